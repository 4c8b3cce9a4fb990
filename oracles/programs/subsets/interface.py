"""Oracles for best subsets of columns after the noise: their data are released, so only accuracy is at stake.

An oracle returns a choice of columns; privopt recomputes whether it is feasible, and its value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Limits, Watch, started
from privopt.oracles.programs.interface import ProgramProposal
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.programs.subset import SubsetProgram


@dataclass(frozen=True)
class SubsetAnswer:
    """A checked answer.

    Attributes:
        choice: a feasible choice of columns, 0/1 of shape (m,), or None.
        value: its value, recomputed (see ``SubsetProgram.value``), or None.
        finished: whether the solver claims to be done: the choice is optimal, up to rounding, or there is
            none.
        oracle, raw_status: the solver, and its status text.
        seconds: wall-clock time.
    """

    choice: IntArray | None
    value: float | None
    finished: bool
    oracle: str
    raw_status: str
    seconds: float

    @property
    def infeasible(self) -> bool:
        """Whether the solver claims that there is no feasible choice."""
        return self.finished and self.choice is None


class SubsetOracle(ABC):
    """A solver of best subset programs: subclass it with ``propose``, in a file of its own."""

    name: ClassVar[str]

    @abstractmethod
    def propose(self, program: SubsetProgram, watch: Watch) -> ProgramProposal:
        """Solve; poll ``watch.stop()``, and return the best choice (as ``point``) at a limit."""

    def solve(self, program: SubsetProgram, limits: Limits | None = None) -> SubsetAnswer:
        """Solve the program and check the answer.

        Raises:
            SolverFailedError: the solver failed, or its choice is not feasible.
        """
        watch = started(limits)
        found = self.propose(program, watch)
        if found.point is None:
            return SubsetAnswer(None, None, found.finished, self.name, found.raw_status, watch.seconds)
        choice = np.array(found.point)
        if broken := program.violations(choice):
            raise SolverFailedError(f"{self.name} returned a subset that violates '{broken[0]}'")
        value = program.value(choice)
        return SubsetAnswer(choice, value, found.finished, self.name, found.raw_status, watch.seconds)
