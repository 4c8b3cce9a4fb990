"""Interface of oracles for best subsets of columns on released moments.

Such a program is post-processing, so its solution affects accuracy, never privacy. A point is a choice of
columns, a 0/1 vector of shape (m,). A solver that is ``finished`` claims that its choice is optimal up to
rounding, or that no choice is feasible.
"""

from __future__ import annotations

from typing import ClassVar

from privopt.oracles.programs.interface import ProgramSolver
from privopt.problems.programs.subset import SubsetProgram


class SubsetOracle(ProgramSolver[SubsetProgram]):
    """Base class of solvers of best subset programs; a subclass defines ``name`` and ``propose``."""

    solution: ClassVar[str] = "subset"
