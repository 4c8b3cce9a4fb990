"""Solver of card programs with SCIP, through PySCIPOpt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privopt.oracles.minimize.mip.model import Library, MipModel, Session
from privopt.oracles.minimize.mip.scip import PYSCIPOPT, ScipSession
from privopt.oracles.programs.mip import MipProgramOracle


@dataclass(frozen=True)
class ScipPrograms(MipProgramOracle):
    """Solves card programs with SCIP.

    Raises:
        MissingSolverError: PySCIPOpt is not installed.
    """

    name: ClassVar[str] = "scip"
    library: ClassVar[Library | None] = PYSCIPOPT

    def open(self, model: MipModel) -> Session:
        return ScipSession(model)
