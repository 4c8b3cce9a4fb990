"""Oracles for best subsets of columns after the noise: their data are released, so only accuracy is at stake.

A point is a choice of columns, 0/1 of shape (m,). A solver that is done claims that it is optimal, up to
rounding, or that there is none.
"""

from __future__ import annotations

from typing import ClassVar

from privopt.oracles.programs.interface import ProgramSolver
from privopt.problems.programs.subset import SubsetProgram


class SubsetOracle(ProgramSolver[SubsetProgram]):
    """A solver of best subset programs: subclass it with ``propose``, in a file of its own."""

    solution: ClassVar[str] = "subset"
