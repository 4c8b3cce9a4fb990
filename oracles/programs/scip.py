"""Card programs with SCIP, through PySCIPOpt."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import ClassVar

from privopt.oracles.errors import MissingSolverError
from privopt.oracles.minimize.mip.model import MipModel, Session
from privopt.oracles.minimize.mip.scip import ScipSession
from privopt.oracles.programs.mip import MipProgramOracle


@dataclass(frozen=True)
class ScipPrograms(MipProgramOracle):
    """Card programs with SCIP.

    Raises:
        MissingSolverError: PySCIPOpt is not installed.
    """

    name: ClassVar[str] = "scip"

    def __post_init__(self) -> None:
        if importlib.util.find_spec("pyscipopt") is None:
            raise MissingSolverError("oracle 'scip' needs PySCIPOpt. To do: pip install 'privopt[scip]'")

    def open(self, model: MipModel) -> Session:
        return ScipSession(model)
