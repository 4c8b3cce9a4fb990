"""Convex quadratics over convex sets: what a quadratic oracle is, and the proof that comes with its answers.

min over w in C of <w, H w>/2 + <g, w>, H positive semidefinite. H and C are fixed when an oracle is prepared
(factorising H, laying out rows), g is asked later. The point is the oracle's; value, lower bound and
violation are privopt's. The bound is the tangent at the point, minimised over C: for any w in C,
f(w) >= f(z) + <H z + g, w - z>. If H = I then |z - z*|^2 is at most the gap of a z in C.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import ClassVar, Protocol, TypeVar

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
    """A point and what is known about the minimum.

    Attributes:
        point: shape (p,).
        value: <w, H w>/2 + <g, w> there, recomputed.
        bound: a lower bound over C, up to the rounding of float64 sums.
        violation: by how much the point misses a constraint of C at most, in the constraint's units.
        status: why the solver stopped.
        oracle: its name.
        raw_status: its own words.
        steps: work done.
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
        """The point, if it is proved to be that good.

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
    """What a solver claims. Value and bound are not part of it: privopt computes them.

    Attributes:
        point: shape (p,).
        status: why the solver stopped.
        multipliers: over a ``Polytope`` those of A w <= b, >= 0, shape (m,), if the solver knows them: they
            prove the bound without a linear program. Any values are safe.
        steps: work done.
        raw_status: the solver's own words.
    """

    point: Vector
    status: Status = Status.OPTIMAL
    multipliers: Vector | None = None
    steps: int = 0
    raw_status: str = ""


QuadraticSolver = Callable[[Vector, Watch], QuadraticProposal]


class Proposal(Protocol):
    """What every proposal has."""

    @property
    def point(self) -> Vector: ...


P = TypeVar("P", bound=Proposal)


class QuadraticOracle(ABC):
    """Minimises convex quadratics over sets. Subclasses are values.

    To add one, implement ``refusals`` and ``build`` in one file and run
    ``privopt.oracles.convex.conformance.check_quadratic_oracle`` on it.
    """

    name: ClassVar[str]

    @abstractmethod
    def refusals(self, convex_set: ConvexSet, H: Vector) -> list[str]:
        """Every reason, beyond those of ``prepare``, why this oracle cannot take the problem. Cheap."""

    @abstractmethod
    def build(self, convex_set: ConvexSet, H: Vector) -> QuadraticSolver:
        """Everything that does not depend on g. Called only without refusals; H is read-only."""

    def prepare(self, convex_set: ConvexSet, H: ArrayLike) -> PreparedQuadratic:
        """Match, then build.

        Args:
            convex_set: C, bounded.
            H: symmetric, shape (p, p).

        Raises:
            InvalidInputError: H of another shape, not symmetric or not finite.
            UnsupportedProblemError: listing every refusal, one of which is that H is not convex.
            InfeasibleDomainError: C is a polytope without a point.
        """
        matrix = symmetric(H, convex_set.dimension)
        reasons = self.refusals(convex_set, matrix)
        eigenvalues = np.linalg.eigvalsh(matrix)
        least, largest = float(eigenvalues[0]), float(np.max(np.abs(eigenvalues)))
        if least < -len(matrix) * 1e-15 * largest:
            reasons.append(f"the quadratic is not convex: its smallest eigenvalue is {least:.3g}")
        if not np.isfinite(convex_set.radius):
            reasons.append("the set is unbounded, so there may be no minimum")
        if reasons:
            raise UnsupportedProblemError(
                f"oracle {self.name!r} cannot minimise this quadratic over {type(convex_set).__name__}: "
                + "; ".join(reasons)
            )
        minimize = linear_minimizer(convex_set)
        if isinstance(convex_set, Polytope):
            minimize(np.zeros(convex_set.dimension))  # an empty set is refused now
        return PreparedQuadratic(self.name, convex_set, matrix, minimize, self.build(convex_set, matrix))


@dataclass(frozen=True, eq=False)
class PreparedQuadratic:
    """A solver built for one set and one H; certifies each of its answers."""

    name: str
    convex_set: ConvexSet
    H: Vector
    linear: LinearMinimizer
    solver: QuadraticSolver

    def minimize(self, g: ArrayLike, limits: Limits | None = None) -> QuadraticAnswer:
        """argmin over C of <w, H w>/2 + <g, w>, with the evidence; see ``QuadraticAnswer.require``.

        Args:
            g: shape (p,), finite.
            limits: time limit and cancellation; a solver that stops early returns what it has.

        Raises:
            InvalidInputError: g of another shape, or not finite.
            SolverFailedError: the solver broke down, or returned something that is not a point.
        """
        watch = started(limits)
        slope, proposal, point = asked(
            *(self.name, self.solver, QuadraticProposal), g, self.convex_set.dimension, watch
        )
        curved = self.H @ point
        return QuadraticAnswer(
            point=point,
            value=float(point @ (curved / 2 + slope)),
            bound=self._lowest(curved + slope, proposal.multipliers) - float(point @ curved) / 2,
            violation=violation(self.convex_set, point),
            status=proposal.status,
            oracle=self.name,
            raw_status=proposal.raw_status,
            steps=proposal.steps,
            seconds=watch.seconds,
        )

    def _lowest(self, slope: Vector, multipliers: Vector | None) -> float:
        """A lower bound on <slope, w> over C. f(z) - <H z + g, z> is -<z, H z>/2, for the caller."""
        if multipliers is not None and isinstance(self.convex_set, Polytope):
            return self.convex_set.lower_bound(slope, np.maximum(multipliers, 0.0))
        return self.linear(slope).bound


def asked(
    name: str, solver: Callable[[Vector, Watch], P], kind: type[P], g: ArrayLike, dimension: int, watch: Watch
) -> tuple[Vector, P, Vector]:
    """Ask a solver of an oracle: g, what it proposes, and the point of that, copies and checked.

    Raises:
        InvalidInputError: g of another shape, or not finite.
        SolverFailedError: no proposal of that kind, or not with a point.
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
    """The oracle for a set: solvers enter themselves for the kinds they take, the closest kind counts."""
    raise UnsupportedProblemError(f"no quadratic oracle for {type(convex_set).__name__}")


def quadratic_minimizer(convex_set: ConvexSet, H: ArrayLike) -> PreparedQuadratic:
    """An oracle that fits: active sets over polytopes and boxes, otherwise accelerated projections.

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
