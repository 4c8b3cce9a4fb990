"""Solver of card programs with CP-SAT of OR-tools, which runs in a separate process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privopt.oracles.minimize.mip.cpsat import ORTOOLS, CpSatSession
from privopt.oracles.minimize.mip.model import Library, MipModel, Session
from privopt.oracles.minimize.mip.worker_process import RemoteSession
from privopt.oracles.programs.mip import MipProgramOracle


@dataclass(frozen=True)
class CpSatPrograms(MipProgramOracle):
    """Solves card programs with CP-SAT.

    Args:
        threads: number of solver threads; None for one thread per processor.

    Raises:
        MissingSolverError: OR-tools is not installed.
    """

    name: ClassVar[str] = "cpsat"
    library: ClassVar[Library | None] = ORTOOLS
    threads: int | None = None

    def open(self, model: MipModel) -> Session:
        return RemoteSession(CpSatSession, model, self.threads or 0)
