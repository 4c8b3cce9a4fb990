"""Oracles for integer programs after the noise: their data are released, so only accuracy is at stake.

An oracle returns a point. privopt recomputes whether it is feasible, and its value. Neither a bound nor a
proof of optimality is needed: the program is post-processing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Limits, Watch, started
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.programs.program import CardProgram

# Relative gap at which a solver is done. The last half percent of the distance to a private model took ten
# times as long as all before, and is far below the noise of the model.
GAP = 0.005


class Program(Protocol):
    """An integer program whose answers can be checked."""

    def violations(self, points: Any, /) -> list[str]:
        """Return what a point violates, as text; none if it is feasible."""

    def value(self, points: Any, /) -> float:
        """Return the objective at a point."""


AnyProgram = TypeVar("AnyProgram", bound=Program)


@dataclass(frozen=True)
class ProgramProposal:
    """The answer of a solver.

    Attributes:
        point: the best feasible point found, integers of shape (d,), or None.
        finished: whether the solver claims to be done: no feasible point has a value that is less by more
            than ``GAP``, relatively; without a point, that no point is feasible.
        raw_status: the solver's status text.
    """

    point: IntArray | None
    finished: bool
    raw_status: str = ""


@dataclass(frozen=True)
class ProgramAnswer:
    """A checked answer.

    Attributes:
        point: a feasible point, or None.
        value: its value, recomputed by the program, or None.
        finished: as in ``ProgramProposal``: a claim of the solver.
        oracle, raw_status: the solver, and its status text.
        seconds: wall-clock time.
    """

    point: IntArray | None
    value: float | None
    finished: bool
    oracle: str
    raw_status: str
    seconds: float

    @property
    def infeasible(self) -> bool:
        """Whether the solver claims that there is no feasible point."""
        return self.finished and self.point is None


class ProgramSolver(ABC, Generic[AnyProgram]):
    """A solver of programs of one kind, whose answers are checked.

    Attributes:
        solution: the word for a point of such a program, in messages.
    """

    name: ClassVar[str]
    solution: ClassVar[str]

    @abstractmethod
    def propose(self, program: AnyProgram, watch: Watch) -> ProgramProposal:
        """Solve; poll ``watch.stop()``, and return the best point at a limit."""

    def solve(self, program: AnyProgram, limits: Limits | None = None) -> ProgramAnswer:
        """Solve the program and check the answer.

        Raises:
            SolverFailedError: the solver failed, or its point is not feasible.
        """
        watch = started(limits)
        found = self.propose(program, watch)
        if found.point is None:
            return ProgramAnswer(None, None, found.finished, self.name, found.raw_status, watch.seconds)
        point = np.array(found.point)
        if broken := program.violations(point):
            raise SolverFailedError(f"{self.name} returned a {self.solution} that violates '{broken[0]}'")
        value = program.value(point)
        return ProgramAnswer(point, value, found.finished, self.name, found.raw_status, watch.seconds)


class ProgramOracle(ProgramSolver[CardProgram]):
    """A solver of card programs: subclass it with ``propose``, in a file of its own."""

    solution: ClassVar[str] = "card"
