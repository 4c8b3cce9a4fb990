"""Interface of oracles for convex quadratics over convex sets, with certified lower bounds.

The problem is to minimise f(w) = <w, H w>/2 + <g, w> over w in C, with H positive semidefinite. H and C are
fixed when an oracle is prepared, so that H is factorised once; g is given with each question. The oracle
returns a point z, and privopt computes its value, a lower bound and the violation. The bound is the least
value over C of the tangent at z, as f(w) >= f(z) + <H z + g, w - z> for any w in C. If H = I and z is in C,
the gap is at least the squared distance of z from the minimiser.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from privopt.oracles.certificate import Status
from privopt.oracles.convex.interface import Bounded, LinearMinimizer
from privopt.oracles.convex.quantities import violation
from privopt.oracles.convex.registry import linear_minimizer
from privopt.oracles.errors import CertificateError, SolverFailedError, UnsupportedProblemError
from privopt.oracles.limits import Limits, Watch, started
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class QuadraticAnswer(Bounded):
    """A point with its value and a lower bound on the minimum.

    Attributes:
        point: shape (p,).
        value: <w, H w>/2 + <g, w> at the point, recomputed.
        bound: a lower bound on the minimum over C, up to the rounding of float64 sums.
        violation: the largest constraint violation of the point, in the units of the constraint.
        status: why the solver stopped.
        oracle: name of the oracle.
        raw_status: the solver's status text.
        steps: number of iterations.
        seconds: wall-clock time of the solve.
    """

    point: Vector
    value: float
    bound: float
    violation: float
    status: Status
    oracle: str
    raw_status: str
    steps: int
    seconds: float

    def require(self, *, gap: float, violation: float = 1e-6) -> Vector:
        """Return the point if gap and violation are within the given limits.

        Raises:
            CertificateError: the gap or the violation is larger.
        """
        if not (self.gap <= gap and self.violation <= violation):
            raise CertificateError(
                f"{self.oracle} proved a gap of {self.gap:.3g} (allowed {gap:.3g}) at constraint violation "
                f"{self.violation:.3g} (allowed {violation:.3g}); stopped by {self.status.name} after "
                f"{self.steps} steps, {self.seconds:.1f} s {self.raw_status!r}. To do: {self.status.value}"
            )
        return self.point


@dataclass(frozen=True, eq=False)
class QuadraticProposal:
    """The result that a solver claims, without value and bound, which privopt computes.

    Attributes:
        point: shape (p,).
        status: why the solver stopped.
        multipliers: for a ``Polytope``, dual multipliers >= 0 of A w <= b, shape (m,), or None. With them the
            bound needs no linear program; it is valid whatever their values are.
        steps: number of iterations.
        raw_status: the solver's status text.
    """

    point: Vector
    status: Status = Status.OPTIMAL
    multipliers: Vector | None = None
    steps: int = 0
    raw_status: str = ""


QuadraticSolver = Callable[[Vector, Watch], QuadraticProposal]


class Proposal(Protocol):
    """The common part of the proposals for convex and indefinite quadratics."""

    @property
    def point(self) -> Vector: ...
    @property
    def status(self) -> Status: ...
    @property
    def steps(self) -> int: ...
    @property
    def raw_status(self) -> str: ...


P = TypeVar("P", bound=Proposal)


class QuadraticOracle(ABC):
    """An oracle that minimises convex quadratics over sets.

    To add one, implement ``refusals`` and ``build`` in one file and run
    ``privopt.oracles.convex.conformance.check_quadratic_oracle`` on it.
    """

    name: ClassVar[str]

    @abstractmethod
    def refusals(self, convex_set: ConvexSet, H: Vector) -> list[str]:
        """List every reason, beyond ``prepare``'s checks, why the oracle cannot take the problem. Cheap."""

    @abstractmethod
    def build(self, convex_set: ConvexSet, H: Vector) -> QuadraticSolver:
        """Do all work that does not depend on g. Called only if there are no refusals; H is read-only."""

    def prepare(self, convex_set: ConvexSet, H: ArrayLike) -> PreparedQuadratic:
        """Validate, then build the solver.

        Args:
            convex_set: C, bounded.
            H: symmetric, shape (p, p).

        Raises:
            InvalidInputError: H has another shape, is not symmetric, or is not finite.
            UnsupportedProblemError: the oracle refuses, or H is not positive semidefinite, or C is unbounded;
                the message lists every reason.
            InfeasibleDomainError: C is an empty polytope.
        """
        matrix = symmetric(H, convex_set.dimension)
        reasons = self.refusals(convex_set, matrix)
        eigenvalues = np.linalg.eigvalsh(matrix)
        least, largest = float(eigenvalues[0]), float(np.max(np.abs(eigenvalues)))
        if least < -len(matrix) * 1e-15 * largest:
            reasons.append(f"the quadratic is not convex: its smallest eigenvalue is {least:.3g}")
        refuse(self.name, convex_set, reasons)
        minimize = linear_minimizer(convex_set)
        if isinstance(convex_set, Polytope):
            minimize(np.zeros(convex_set.dimension))  # raises if the polytope is empty
        return PreparedQuadratic(self.name, convex_set, matrix, self.build(convex_set, matrix), minimize)


@dataclass(frozen=True, eq=False)
class Prepared(ABC, Generic[P]):
    """A solver built for one set and one H; its answers are checked."""

    kind: ClassVar[type[Any]]

    name: str
    convex_set: ConvexSet
    H: Vector
    solver: Callable[[Vector, Watch], P]

    def minimize(self, g: ArrayLike, limits: Limits | None = None) -> QuadraticAnswer:
        """Minimise <w, H w>/2 + <g, w>, with a certificate; see ``QuadraticAnswer.require``.

        Args:
            g: shape (p,), finite.
            limits: time limit and cancellation; a solver that stops early returns its best point.

        Raises:
            InvalidInputError: g has another shape, or is not finite.
            SolverFailedError: the solver failed, or what it returned is not a point.
        """
        watch = started(limits)
        slope, proposal, point = asked(self.name, self.solver, self.kind, g, self.convex_set.dimension, watch)
        curved = self.H @ point
        return QuadraticAnswer(
            point=point,
            value=float(point @ (curved / 2 + slope)),
            bound=self._bound(proposal, point, curved, slope),
            violation=max(violation(self.convex_set, point), self._beyond(point)),
            status=proposal.status,
            oracle=self.name,
            raw_status=proposal.raw_status,
            steps=proposal.steps,
            seconds=watch.seconds,
        )

    @abstractmethod
    def _bound(self, proposal: P, point: Vector, curved: Vector, slope: Vector) -> float:
        """Return a lower bound on the minimum; ``curved`` is H times the point, ``slope`` is g."""

    def _beyond(self, point: Vector) -> float:
        """Return by how much the point violates constraints other than those of the set, in units of w."""
        return 0.0


@dataclass(frozen=True, eq=False)
class PreparedQuadratic(Prepared[QuadraticProposal]):
    """A solver for convex quadratics; each of its answers gets a certificate."""

    kind: ClassVar[type[Any]] = QuadraticProposal

    linear: LinearMinimizer

    def _bound(self, proposal: QuadraticProposal, point: Vector, curved: Vector, slope: Vector) -> float:
        """Return the least value over C of the tangent at the point z: min <H z + g, w> - <z, H z>/2."""
        tangent, multipliers = curved + slope, proposal.multipliers
        if multipliers is not None and isinstance(self.convex_set, Polytope):
            lowest = self.convex_set.lower_bound(tangent, np.maximum(multipliers, 0.0))
        else:
            lowest = self.linear(tangent).bound
        return lowest - float(point @ curved) / 2


def refuse(name: str, convex_set: ConvexSet, reasons: list[str]) -> None:
    """Raise UnsupportedProblemError if there are reasons to refuse, or if the set is unbounded."""
    if not np.isfinite(convex_set.radius):
        reasons = [*reasons, "the set is unbounded, so there may be no minimum"]
    if reasons:
        raise UnsupportedProblemError(
            f"oracle {name!r} cannot minimise this quadratic over {type(convex_set).__name__}: "
            + "; ".join(reasons)
        )


def asked(
    name: str, solver: Callable[[Vector, Watch], P], kind: type[P], g: ArrayLike, dimension: int, watch: Watch
) -> tuple[Vector, P, Vector]:
    """Call a solver and check its proposal; return a copy of g, the proposal, and a copy of its point.

    Raises:
        InvalidInputError: g has another shape, or is not finite.
        SolverFailedError: the solver returned no proposal of this kind, or one without a finite point.
    """
    slope = np.array(g, dtype=np.float64)
    if slope.shape != (dimension,) or not np.all(np.isfinite(slope)):
        raise InvalidInputError(f"g must be finite and of shape ({dimension},), got {slope.shape}")
    proposal: object = solver(slope.copy(), watch)
    if not isinstance(proposal, kind):
        raise SolverFailedError(
            f"oracle {name!r}: solve must return {kind.__name__}, got {type(proposal).__name__}"
        )
    point = np.array(proposal.point, dtype=np.float64)
    if point.shape != slope.shape or not np.all(np.isfinite(point)):
        raise SolverFailedError(f"oracle {name!r} returned something that is not a point")
    return slope, proposal, point


@singledispatch
def quadratic_oracle(convex_set: object) -> QuadraticOracle:
    """Return the oracle registered for the type of a set."""
    raise UnsupportedProblemError(f"no quadratic oracle for {type(convex_set).__name__}")


def quadratic_minimizer(convex_set: ConvexSet, H: ArrayLike) -> PreparedQuadratic:
    """Prepare a suitable oracle for the set.

    It is an active-set method over polytopes, boxes, l-infinity balls and simplices, and accelerated
    projected gradient steps over other sets.

    Raises:
        InvalidInputError, UnsupportedProblemError, InfeasibleDomainError: see ``QuadraticOracle.prepare``.
    """
    return quadratic_oracle(convex_set).prepare(convex_set, H)


def symmetric(H: ArrayLike, dimension: int) -> Vector:
    matrix = np.array(H, dtype=np.float64)
    if matrix.shape != (dimension, dimension) or not np.all(np.isfinite(matrix)):
        raise InvalidInputError(f"H must be finite and of shape {(dimension, dimension)}, got {matrix.shape}")
    if np.max(np.abs(matrix - matrix.T)) > 1e-12 * np.max(np.abs(matrix)):
        raise InvalidInputError("H must be symmetric: use (H + H') / 2, which is the same quadratic")
    matrix = (matrix + matrix.T) / 2
    matrix.flags.writeable = False
    return matrix
