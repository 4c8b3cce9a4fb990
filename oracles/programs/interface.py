"""Interface of oracles for integer programs over released quantities.

Such a program is post-processing, so its solution affects accuracy, never privacy. An oracle returns a
point, without a bound or a proof of optimality; privopt checks that the point is feasible, and recomputes
its value.
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

# Relative gap at which a solver may stop. Closing the last half percent took ten times as long as all before
# it, and is far below the noise of the private model.
GAP = 0.005


class Program(Protocol):
    """An integer program whose answers can be checked."""

    def violations(self, points: Any, /) -> list[str]:
        """Return the constraints that a point violates, as text; the list is empty if it is feasible."""

    def value(self, points: Any, /) -> float:
        """Return the objective at a point."""


AnyProgram = TypeVar("AnyProgram", bound=Program)


@dataclass(frozen=True)
class ProgramProposal:
    """The answer of a solver.

    Attributes:
        point: the best feasible point found, integers of shape (d,), or None.
        finished: whether the solver claims that no feasible point has a value smaller by more than the
            relative ``GAP``; or, if ``point`` is None, that no point is feasible.
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
        finished: the solver's claim, as in ``ProgramProposal``.
        oracle, raw_status: the solver's name and its status text.
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
        solution: the word that messages use for a point of such a program.
    """

    name: ClassVar[str]
    solution: ClassVar[str]

    @abstractmethod
    def propose(self, program: AnyProgram, watch: Watch) -> ProgramProposal:
        """Solve the program. Poll ``watch.stop()``, and at a limit return the best point found so far."""

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
    """Base class of solvers of card programs; a subclass defines ``name`` and ``propose``."""

    solution: ClassVar[str] = "card"
