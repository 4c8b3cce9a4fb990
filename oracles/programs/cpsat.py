"""Card programs with OR-tools' CP-SAT, in a process of its own."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import ClassVar

from privopt.oracles.errors import MissingSolverError
from privopt.oracles.minimize.mip.cpsat import CpSatSession
from privopt.oracles.minimize.mip.model import MipModel, Session
from privopt.oracles.minimize.mip.worker_process import RemoteSession
from privopt.oracles.programs.mip import MipProgramOracle


@dataclass(frozen=True)
class CpSatPrograms(MipProgramOracle):
    """Card programs with CP-SAT.

    Args:
        threads: number of solver threads; None for one per processor.

    Raises:
        MissingSolverError: OR-tools is not installed.
    """

    name: ClassVar[str] = "cpsat"
    threads: int | None = None

    def __post_init__(self) -> None:
        if importlib.util.find_spec("ortools") is None:
            raise MissingSolverError("oracle 'cpsat' needs OR-tools. To do: pip install 'privopt[cpsat]'")

    def open(self, model: MipModel) -> Session:
        return RemoteSession(CpSatSession, model, self.threads or 0)
