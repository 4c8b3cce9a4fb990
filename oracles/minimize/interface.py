"""Interface of minimising oracles: certified minimisers of a loss plus a perturbation over a lattice.

``prepare`` checks whether the oracle can take a problem; a refusal lists every reason. ``prepare`` also does
all work that does not depend on the noise. The prepared oracle can then minimise with many perturbations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from privopt.oracles.certificate import Answer, Certificate, Status
from privopt.oracles.errors import SolverFailedError, UnsupportedProblemError
from privopt.oracles.limits import LatticeOracle, Limits, Watch, started, unless_deaf
from privopt.oracles.task import Task
from privopt.oracles.vetting import is_own, outside_code
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.objective import Perturbation, from_fixed
from privopt.problems.discrete.problem import DiscreteProblem, check_question
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class Query:
    """One question to a prepared solver.

    Attributes:
        perturbation: the term added to the loss.
        watch: limits and progress of this solve.
        break_ties: whether the caller needs a proof that the point is the lexicographically first minimiser.
            Solvers that always prove this may ignore the flag.
    """

    perturbation: Perturbation
    watch: Watch
    break_ties: bool


@dataclass(frozen=True)
class Proposal:
    """The claim of a solver. It contains no objective value, because privopt recomputes the value.

    Attributes:
        point: the best point found, shape (dimension,), or None.
        bound: a proved lower bound on the objective over the lattice, an integer in fixed point.
        status: why the solver stopped.
        lexicographic: whether the point is proved to be the lexicographically first minimiser.
        exact: whether the bound was proved in integer arithmetic.
        nodes: search nodes (or candidates) visited.
        raw_status: the solver's status text.
    """

    point: IntArray | None
    bound: int
    status: Status = Status.OPTIMAL
    lexicographic: bool = False
    exact: bool = True
    nodes: int = 0
    raw_status: str = ""


Solver = Callable[[Query], Proposal]


# Largest absolute value of a perturbation, in fixed point: it is exact in float64, and sums cannot overflow.
LARGEST_COST = 1 << 52


def refuse_large(perturbation: Perturbation, who_takes: str, to_do: str) -> None:
    """Raise UnsupportedProblemError for a perturbation beyond ``LARGEST_COST``."""
    if perturbation.magnitude > LARGEST_COST:
        raise UnsupportedProblemError(
            f"{who_takes} perturbations up to {from_fixed(LARGEST_COST):.3g} in absolute value; "
            f"this one may reach {from_fixed(perturbation.magnitude):.3g}. To do: {to_do}"
        )


def trivial_bound(perturbation: Perturbation) -> int:
    """Return a fixed-point lower bound without search: the sum of the tables' minima, as losses are >= 0."""
    unary = sum(int(t.min()) for t in perturbation.unary)
    return unary + (0 if perturbation.radial is None else int(perturbation.radial.min()))


class DiscreteOracle(LatticeOracle):
    """An oracle that minimises over a lattice. Instances are cheap to make.

    To add one, implement ``refusals`` and ``build`` in one file and run
    ``privopt.oracles.minimize.conformance.check_oracle`` on it.
    """

    name: ClassVar[str]
    # False for a heuristic, which proves nothing and is refused by mechanisms that release a minimiser.
    certifies: ClassVar[bool] = True
    takers_of_constraints: ClassVar[str] = "enumerate, highs, cpsat, scip"

    @abstractmethod
    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        """List every reason why this oracle cannot take the problem; empty if it can. Must be cheap."""

    @abstractmethod
    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        """Do all work that does not depend on the noise. Called only if there are no refusals."""

    def all_refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        """List ``refusals``, and the refusal of constraints if the oracle takes none."""
        return [*self._boxes_alone(problem.lattice), *self.refusals(problem, task)]

    def prepare(self, problem: DiscreteProblem, task: Task) -> PreparedOracle:
        """Validate, then build the solver.

        Raises:
            UnsupportedProblemError: the problem is refused; the message lists every reason.
        """
        check_question(problem, task, Task)
        if reasons := self.all_refusals(problem, task):
            raise UnsupportedProblemError(
                f"oracle {self.name!r} cannot minimise {type(problem).__name__} over {problem.lattice}: "
                + "; ".join(reasons)
            )
        solver = self.build(problem, task)
        return PreparedOracle(self.name, problem, task, solver, outside_code(self))


@dataclass(frozen=True)
class PreparedOracle:
    """A solver built for one problem; each of its answers gets a certificate.

    Lower bounds are not checked. An answer must depend on the problem and the question alone: if a solver
    uses earlier data, releases of its answers are not private.

    ``maker`` is the class whose bounds are trusted: the class of the oracle, or of outside code that the
    oracle wraps.
    """

    name: str
    problem: DiscreteProblem
    task: Task
    solver: Solver
    maker: Any = field(default=None, compare=False)

    def minimize(
        self, perturbation: Perturbation, limits: Limits | None = None, *, break_ties: bool = False
    ) -> Answer:
        """Minimise loss + perturbation over the lattice; return a point with a certificate.

        At a limit the answer has a valid bound, and may have no point; see ``Answer.require``.

        Args:
            perturbation: a perturbation over the problem's lattice; a radial part needs ``Task.NORMALIZED``.
            limits: time limit, progress, cancellation.
            break_ties: also prove that the point is the lexicographically first minimiser.

        Raises:
            InvalidInputError: the perturbation is for another lattice or task.
            SolverFailedError: the solver returned no ``Proposal``, a point outside the lattice, or a bound
                above the value of its point.
        """
        if perturbation.lattice != self.problem.lattice:
            raise InvalidInputError("the perturbation was made for another lattice")
        if perturbation.radial is not None and self.task is not Task.NORMALIZED:
            raise InvalidInputError("a term in |w|^2 needs an oracle prepared for Task.NORMALIZED")
        watch = started(limits)
        proposal = self._proposal(Query(perturbation, watch, break_ties))
        if not isinstance(proposal, Proposal):
            raise SolverFailedError(
                f"oracle {self.name!r}: solve must return a Proposal, got {type(proposal).__name__}"
            )
        return self._certify(proposal, perturbation, watch.seconds)

    def _proposal(self, query: Query) -> object:
        """Ask the solver. Outside code that ignores a limit is abandoned: the answer has no point."""
        if self.maker is None or is_own(self.maker):
            return self.solver(query)

        def nothing(reason: Status) -> object:
            bound = trivial_bound(query.perturbation)
            return Proposal(None, bound, reason, raw_status="went on after its limit, and was abandoned")

        return unless_deaf(query.watch, lambda: self.solver(query), nothing)

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
