"""Solver of card programs with HiGHS, called directly through highspy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privopt.oracles.minimize.mip.highs import HighsSession, loads
from privopt.oracles.minimize.mip.model import MipModel, Session
from privopt.oracles.minimize.mip.worker_process import RemoteSession
from privopt.oracles.programs.mip import MipProgramOracle


@dataclass(frozen=True)
class HighsPrograms(MipProgramOracle):
    """Solves card programs with HiGHS."""

    name: ClassVar[str] = "highs"

    def open(self, model: MipModel) -> Session:
        return HighsSession(model) if loads() else RemoteSession(HighsSession, model)
