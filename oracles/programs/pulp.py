"""Solver of card programs through PuLP: HiGHS by default, or any other solver that PuLP can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privopt.oracles.minimize.mip.model import MipModel, Session
from privopt.oracles.minimize.mip.pulp import PulpSession, display_name, require_solver
from privopt.oracles.programs.mip import MipProgramOracle


@dataclass(frozen=True)
class PulpPrograms(MipProgramOracle):
    """Solves card programs with any solver that PuLP can run.

    Args:
        solver: "HiGHS", "CBC", or the name of another solver in PuLP.

    Raises:
        UnknownOracleError: PuLP knows no solver of this name.
        MissingSolverError: the solver is not installed.
    """

    name: ClassVar[str] = "pulp-highs"
    solver: str = "HiGHS"

    def __post_init__(self) -> None:
        require_solver(self.solver)
        object.__setattr__(self, "name", display_name(self.solver))

    def open(self, model: MipModel) -> Session:
        return PulpSession(model, self.solver)
