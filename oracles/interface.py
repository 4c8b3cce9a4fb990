"""What an oracle is: one kind of question about one problem, answered with a proof.

An oracle is a value. ``prepare`` matches it against a problem (listing every reason for a refusal) and
builds whatever does not depend on the noise; the prepared oracle then answers many perturbations.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import numpy as np

from privopt.oracles.certificate import Answer, Certificate, Status
from privopt.oracles.errors import SolverFailedError, UnsupportedProblemError
from privopt.problems.discrete import DiscreteProblem
from privopt.problems.errors import InvalidInputError
from privopt.problems.lattice import IntArray
from privopt.problems.objective import Perturbation


class Task(Enum):
    """The two minimisation questions of oracle-efficient private optimization."""

    LINEAR = "argmin over w of L(D, w) + separable terms in w"
    NORMALIZED = "argmin over w of L(D, w) + separable terms in w + a function of |w|^2"


@dataclass(frozen=True)
class Progress:
    """A snapshot of a running solve, in units of loss.

    Attributes:
        incumbent, bound: the best value and the proved bound so far; NaN where there is no such thing.
        nodes: work done: nodes, candidates, or steps of an iteration.
        seconds: since the start.
        total: the work to be done in all, where it is known.
    """

    incumbent: float
    bound: float
    nodes: int
    seconds: float
    total: int | None = None

    @property
    def gap(self) -> float:
        return self.incumbent - self.bound


@dataclass(frozen=True)
class Limits:
    """When to stop early and whom to tell.

    Attributes:
        seconds: wall-clock limit of one solve, > 0, or None.
        on_progress: called at most a few times per second with a ``Progress``.
        cancelled: asked often; True stops the solve with a valid bound.
    """

    seconds: float | None = None
    on_progress: Callable[[Progress], None] | None = None
    cancelled: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not self.seconds > 0:
            raise InvalidInputError(f"a time limit must be > 0 seconds, got {self.seconds}")

    def start(self) -> Watch:
        return Watch(self)


@dataclass
class Watch:
    """A running clock over ``Limits``; solvers ask it whether to stop and report to it."""

    limits: Limits
    began: float = field(default_factory=time.monotonic)
    _reported: float = -1.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def remaining(self) -> float | None:
        """Seconds left, never negative; None without a limit."""
        return None if self.limits.seconds is None else max(0.0, self.limits.seconds - self.seconds)

    def stop(self) -> Status | None:
        """The reason to stop now, if any."""
        if self.limits.cancelled is not None and self.limits.cancelled():
            return Status.INTERRUPTED
        return Status.TIME_LIMIT if self.remaining == 0.0 else None

    def report(self, incumbent: float, bound: float, nodes: int = 0, total: int | None = None) -> None:
        """Pass a snapshot on, at most five times a second."""
        now = self.seconds
        if self.limits.on_progress is not None and now - self._reported >= 0.2:
            self._reported = now
            self.limits.on_progress(Progress(incumbent, bound, nodes, now, total))


@dataclass(frozen=True)
class Query:
    """One question to a prepared solver.

    Attributes:
        perturbation: what is added to the loss.
        watch: limits and progress of this solve.
        break_ties: the caller needs the lexicographically first minimiser, proved. Solvers that get it
            for free may ignore the flag.
    """

    perturbation: Perturbation
    watch: Watch
    break_ties: bool


@dataclass(frozen=True)
class Proposal:
    """What a solver claims. The objective is not part of it: privopt recomputes that.

    Attributes:
        point: the best point found, shape (dimension,), or None.
        bound: a proved lower bound over the lattice, fixed point (an integer).
        status: why the solver stopped.
        lexicographic: the point is proved to be the lexicographically smallest minimiser.
        exact: the bound was proved in integer arithmetic.
        nodes: work done.
        raw_status: the solver's own words.
    """

    point: IntArray | None
    bound: int
    status: Status = Status.OPTIMAL
    lexicographic: bool = False
    exact: bool = True
    nodes: int = 0
    raw_status: str = ""


Solver = Callable[[Query], Proposal]


class DiscreteOracle(ABC):
    """Minimises over a lattice. Subclasses are values: cheap to make, comparable by their fields.

    To add one, implement ``refusals`` and ``build`` in one file and run
    ``privopt.oracles.conformance.check_oracle`` on it.
    """

    name: ClassVar[str]

    @abstractmethod
    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        """Every reason why this oracle cannot take the problem; empty if it can. Cheap."""

    @abstractmethod
    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        """Everything that does not depend on the noise. Called only without refusals."""

    def prepare(self, problem: DiscreteProblem, task: Task) -> PreparedOracle:
        """Match, then build.

        Raises:
            UnsupportedProblemError: listing every refusal.
        """
        if reasons := self.refusals(problem, task):
            raise UnsupportedProblemError(
                f"oracle {self.name!r} cannot minimise {type(problem).__name__} over {problem.lattice}: "
                + "; ".join(reasons)
            )
        return PreparedOracle(self.name, problem, task, self.build(problem, task))


@dataclass(frozen=True)
class PreparedOracle:
    """A solver built for one problem; certifies each of its answers."""

    name: str
    problem: DiscreteProblem
    task: Task
    solver: Solver

    def minimize(
        self, perturbation: Perturbation, limits: Limits | None = None, *, break_ties: bool = False
    ) -> Answer:
        """argmin over the lattice of loss + perturbation, with a certificate.

        Stops early, with an honest bound, when a limit is reached; see ``Answer.require``.

        Args:
            perturbation: over the problem's lattice; a radial part needs ``Task.NORMALIZED``.
            limits: time limit, progress, cancellation.
            break_ties: also prove that the point is the lexicographically first minimiser.

        Raises:
            InvalidInputError: a perturbation of another lattice or task.
            SolverFailedError: the solver returned something other than a ``Proposal``, a point outside the
                lattice or a bound above a value.
        """
        if perturbation.lattice != self.problem.lattice:
            raise InvalidInputError("the perturbation was made for another lattice")
        if perturbation.radial is not None and self.task is not Task.NORMALIZED:
            raise InvalidInputError("a term in |w|^2 needs an oracle prepared for Task.NORMALIZED")
        watch = (limits or Limits()).start()
        proposal: object = self.solver(Query(perturbation, watch, break_ties))
        if not isinstance(proposal, Proposal):
            raise SolverFailedError(
                f"oracle {self.name!r}: solve must return a Proposal, got {type(proposal).__name__}"
            )
        return self._certify(proposal, perturbation, watch.seconds)

    def _certify(self, proposal: Proposal, perturbation: Perturbation, seconds: float) -> Answer:
        point, value = None, None
        if proposal.point is not None:
            point = np.array(proposal.point, dtype=np.int64)
            if not self.problem.lattice.contains(proposal.point):
                raise SolverFailedError(f"oracle {self.name!r} returned a point outside the lattice")
            value = self.problem.value(point, perturbation)
            if proposal.bound > value:
                raise SolverFailedError(
                    f"oracle {self.name!r} claims a lower bound above the recomputed value of its own point"
                )
        optimal = value == proposal.bound
        certificate = Certificate(
            status=proposal.status,
            fixed_value=value,
            fixed_bound=int(proposal.bound),
            lexicographic=proposal.lexicographic and optimal,
            exact=proposal.exact,
            oracle=self.name,
            raw_status=proposal.raw_status,
            nodes=proposal.nodes,
            seconds=seconds,
        )
        return Answer(point, certificate)
