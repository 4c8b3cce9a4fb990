"""Constraint sets as data: closed convex subsets of R^p, with the quantities that the theory asks for.

A set is a *public* input. Everything here is a formula: what needs a solver (the support function of an
H-polytope, the gauge of a hull) is answered by ``privopt.oracles.closed_form``. Norms and diameters enter
step sizes and iteration counts, never a sensitivity.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.integrate import quad

from privopt.problems.errors import InfeasibleDomainError, InvalidInputError
from privopt.problems.regularizers import Vector

_VERTEX_ENTRIES = 1 << 24  # vertices are listed up to this many numbers
_WIDTH_SAMPLES = 4000
_WIDTH_SEED = 20170417  # a public quantity: the same in every plan. No privacy rests on it


class NoClosedFormError(InvalidInputError):
    """A quantity of a set that has no formula, or a set that lacks it. The message says where to turn."""


@dataclass(frozen=True)
class Estimate:
    """A number and how far it may be off: 0 for a formula, a quadrature's bound, or one standard error."""

    value: float
    error: float = 0.0


class ConvexSet(ABC):
    """A closed convex set C in R^p, p = ``dimension``."""

    dimension: int
    centrally_symmetric: bool = False
    # With a point, C holds every point whose coordinates are pulled towards 0.
    shrinkable: bool = False

    @property
    @abstractmethod
    def radius(self) -> float:
        """max over C of |w|_2; infinite if C is unbounded."""

    @property
    def diameter(self) -> float:
        """|C|_2 = max over C x C of |v - w|_2. Twice the radius for a centrally symmetric set."""
        if not self.centrally_symmetric:
            raise NoClosedFormError(f"no formula for the diameter of {type(self).__name__}")
        return 2 * self.radius

    @property
    @abstractmethod
    def l1_radius(self) -> float:
        """max over C of |w|_1 (an upper bound where a set says so)."""

    @abstractmethod
    def support(self, g: Vector) -> float:
        """max over C of <w, g>: the dual of the Minkowski norm when C is centrally symmetric."""

    @abstractmethod
    def gauge(self, v: Vector) -> float:
        """The Minkowski functional |v|_C = min {r >= 0 : v in r C}; infinite if there is none."""

    @abstractmethod
    def violation(self, w: Vector) -> float:
        """By how much w, of shape (p,), misses a constraint of C at most, in the constraint's units."""

    def contains(self, w: Vector, tolerance: float = 1e-9) -> bool:
        """Whether w is in C, up to a tolerance in the units of the constraints."""
        return bool(w.shape == (self.dimension,) and self.violation(w) <= tolerance)

    def gaussian_width(self) -> Estimate:
        """G_C = E max over C of <w, b>, b standard normal; by simulation unless a set knows better."""
        return simulated_width(self.support, self.dimension)

    @property
    def vertex_count(self) -> int | None:
        """How many points C is the hull of, or None if it is not known to be the hull of finitely many."""
        return None

    def vertices(self) -> Vector:
        """The vertices, shape (vertex_count, dimension).

        Raises:
            NoClosedFormError: not finitely many, or too many to list.
        """
        count = self.vertex_count
        if count is None or count * self.dimension > _VERTEX_ENTRIES:
            raise NoClosedFormError(
                f"{type(self).__name__} has {'no finite list of' if count is None else f'{count:.3g}'} "
                f"vertices in {self.dimension} dimensions: too many to list. Use vertex_scores and vertex"
            )
        return self._list_vertices()

    def _list_vertices(self) -> Vector:
        raise NoClosedFormError(f"{type(self).__name__} has no vertices")

    def vertex_scores(self, g: Vector) -> Vector:
        """<s, g> for every vertex s, shape (vertex_count,)."""
        return self.vertices() @ g

    def vertex(self, index: int) -> Vector:
        """One vertex, shape (dimension,)."""
        return np.array(self.vertices()[index])


def simulated_width(
    support: Callable[[Vector], float], dimension: int, samples: int = _WIDTH_SAMPLES
) -> Estimate:
    """The mean of a support function over standard normal directions, with its standard error."""
    draws = np.random.Generator(np.random.PCG64(_WIDTH_SEED))
    samples = max(100, min(samples, _VERTEX_ENTRIES // dimension))
    values = np.array([support(draws.standard_normal(dimension)) for _ in range(samples)])
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(samples)))


@dataclass(frozen=True)
class WholeSpace(ConvexSet):
    """R^p: no constraint."""

    dimension: int
    centrally_symmetric = True
    shrinkable = True
    radius = math.inf
    l1_radius = math.inf

    def support(self, g: Vector) -> float:
        return math.inf if np.any(g) else 0.0

    def gauge(self, v: Vector) -> float:
        return 0.0

    def violation(self, w: Vector) -> float:
        return 0.0 if np.all(np.isfinite(w)) else math.inf

    def gaussian_width(self) -> Estimate:
        return Estimate(math.inf)


class NormBall(ConvexSet):
    """A norm ball around 0: membership and gauge follow from the norm, support from the dual norm."""

    size: float
    centrally_symmetric = True
    shrinkable = True

    @abstractmethod
    def norm(self, v: Vector) -> float:
        """The norm whose ball of radius ``size`` this is."""

    @abstractmethod
    def dual_norm(self, v: Vector) -> float:
        """The dual of ``norm``."""

    def gauge(self, v: Vector) -> float:
        return self.norm(v) / self.size

    def support(self, g: Vector) -> float:
        return self.size * self.dual_norm(g)

    def violation(self, w: Vector) -> float:
        return max(0.0, self.norm(w) - self.size)


@dataclass(frozen=True)
class L2Ball(NormBall):
    """{|w|_2 <= size}."""

    dimension: int
    size: float

    def __post_init__(self) -> None:
        _check(self.dimension, self.size)

    @property
    def radius(self) -> float:
        return self.size

    @property
    def l1_radius(self) -> float:
        return self.size * math.sqrt(self.dimension)

    def norm(self, v: Vector) -> float:
        return float(np.linalg.norm(v))

    dual_norm = norm

    def gaussian_width(self) -> Estimate:
        return Estimate(self.size * math.sqrt(2) * float(special.poch(self.dimension / 2, 0.5)))


class _SignedVertices(NormBall):
    """Balls whose vertices are size * (+-e_j): index j < p is +e_j, index p + j is -e_j."""

    @property
    def vertex_count(self) -> int | None:
        return 2 * self.dimension

    def _list_vertices(self) -> Vector:
        return self.size * np.concatenate([np.eye(self.dimension), -np.eye(self.dimension)])

    def vertex_scores(self, g: Vector) -> Vector:
        return self.size * np.concatenate([g, -g])

    def vertex(self, index: int) -> Vector:
        point = np.zeros(self.dimension)
        point[index % self.dimension] = self.size if index < self.dimension else -self.size
        return point


@dataclass(frozen=True)
class L1Ball(_SignedVertices):
    """{|w|_1 <= size}, the hull of 2p points."""

    dimension: int
    size: float

    def __post_init__(self) -> None:
        _check(self.dimension, self.size)

    @property
    def radius(self) -> float:
        return self.size

    @property
    def l1_radius(self) -> float:
        return self.size

    def norm(self, v: Vector) -> float:
        return float(np.sum(np.abs(v)))

    def dual_norm(self, v: Vector) -> float:
        return float(np.max(np.abs(v)))

    def gaussian_width(self) -> Estimate:
        # max |b_j| exceeds t with probability 1 - (2 Phi(t) - 1)^p.
        return _scaled(
            _mean_of_maximum(
                lambda t: self.dimension * math.log1p(-2 * special.ndtr(-t)) if t else -math.inf
            ),
            self.size,
        )


@dataclass(frozen=True)
class LinfBall(NormBall):
    """{|w|_inf <= size}, with 2^p vertices."""

    dimension: int
    size: float

    def __post_init__(self) -> None:
        _check(self.dimension, self.size)

    @property
    def radius(self) -> float:
        return self.size * math.sqrt(self.dimension)

    @property
    def l1_radius(self) -> float:
        return self.size * self.dimension

    def norm(self, v: Vector) -> float:
        return float(np.max(np.abs(v)))

    def dual_norm(self, v: Vector) -> float:
        return float(np.sum(np.abs(v)))

    def gaussian_width(self) -> Estimate:
        return Estimate(self.size * self.dimension * math.sqrt(2 / math.pi))

    @property
    def vertex_count(self) -> int | None:
        return int(2**self.dimension)

    def _list_vertices(self) -> Vector:
        return Box(np.full(self.dimension, -self.size), np.full(self.dimension, self.size)).vertices()


@dataclass(frozen=True)
class Simplex(ConvexSet):
    """{w >= 0, sum w = size}, the hull of p points."""

    dimension: int
    size: float = 1.0

    def __post_init__(self) -> None:
        _check(self.dimension, self.size)

    @property
    def radius(self) -> float:
        return self.size

    @property
    def diameter(self) -> float:
        return self.size * math.sqrt(2) if self.dimension > 1 else 0.0

    @property
    def l1_radius(self) -> float:
        return self.size

    def support(self, g: Vector) -> float:
        return self.size * float(np.max(g))

    def gauge(self, v: Vector) -> float:
        return float(np.sum(v)) / self.size if np.all(v >= 0) else math.inf

    def violation(self, w: Vector) -> float:
        return max(0.0, -float(np.min(w)), abs(float(np.sum(w)) - self.size))

    def gaussian_width(self) -> Estimate:
        # E max b_j = int_0^inf P[max > t] - P[max < -t] dt.
        p = self.dimension
        above = _mean_of_maximum(lambda t: p * math.log1p(-special.ndtr(-t)))
        below, error = quad(lambda t: special.ndtr(-t) ** p, 0, math.inf)
        return _scaled(Estimate(above.value - below, above.error + error), self.size)

    @property
    def vertex_count(self) -> int | None:
        return self.dimension

    def _list_vertices(self) -> Vector:
        return self.size * np.eye(self.dimension)

    def vertex_scores(self, g: Vector) -> Vector:
        return self.size * g

    def vertex(self, index: int) -> Vector:
        point = np.zeros(self.dimension)
        point[index] = self.size
        return point


@dataclass(frozen=True, eq=False)
class Box(ConvexSet):
    """{low <= w <= high}, coordinate by coordinate; shape (p,) each, finite."""

    low: Vector
    high: Vector

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        lower, upper = _fixed(low, 1), _fixed(high, 1)
        if lower.shape != upper.shape:
            raise InvalidInputError(f"low and high differ in shape: {lower.shape} and {upper.shape}")
        if np.any(lower > upper):
            raise InfeasibleDomainError("empty box: low > high in some coordinate")
        object.__setattr__(self, "low", lower)
        object.__setattr__(self, "high", upper)

    @property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the bounds
        return len(self.low)

    @property
    def centrally_symmetric(self) -> bool:  # type: ignore[override]  # depends on the bounds
        return bool(np.array_equal(self.low, -self.high))

    @property
    def shrinkable(self) -> bool:  # type: ignore[override]  # depends on the bounds
        return bool(np.all(self.low <= 0) and np.all(self.high >= 0))

    @property
    def _reach(self) -> Vector:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def nearest_to_zero(self) -> Vector:
        """The point of the box with the smallest coordinates, shape (p,)."""
        return self.clip(np.zeros(self.dimension))

    def clip(self, w: Vector) -> Vector:
        """The nearest point of the box."""
        return np.clip(w, self.low, self.high)

    @property
    def radius(self) -> float:
        return float(np.linalg.norm(self._reach))

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(self.high - self.low))

    @property
    def l1_radius(self) -> float:
        return float(np.sum(self._reach))

    def support(self, g: Vector) -> float:
        return float(np.sum(np.maximum(self.low * g, self.high * g)))

    def gauge(self, v: Vector) -> float:
        return _gauge_of_halfspaces(np.concatenate([v, -v]), np.concatenate([self.high, -self.low]))

    def violation(self, w: Vector) -> float:
        return float(np.max(np.maximum(self.low - w, w - self.high), initial=0.0))

    def gaussian_width(self) -> Estimate:
        # A coordinate contributes (high - low)/2 * E|b|; the centre contributes nothing on average.
        return Estimate(float(np.sum(self.high - self.low)) / math.sqrt(2 * math.pi))

    @property
    def vertex_count(self) -> int | None:
        return int(2**self.dimension)

    def _list_vertices(self) -> Vector:
        return np.array(list(itertools.product(*np.stack([self.low, self.high], axis=1))))


@dataclass(frozen=True)
class GroupL1Ball(NormBall):
    """{sum over groups of |w_group|_2 <= size}; groups partition the coordinates 0..p-1."""

    groups: tuple[tuple[int, ...], ...]
    size: float

    def __post_init__(self) -> None:
        members = sorted(j for group in self.groups for j in group)
        if not all(self.groups) or members != list(range(len(members))):
            raise InvalidInputError("groups must be non-empty and hold every coordinate 0..p-1 once")
        _check(len(members), self.size)

    @cached_property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the groups
        return sum(len(group) for group in self.groups)

    @cached_property
    def labels(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The group of each coordinate, shape (p,)."""
        labels = np.empty(self.dimension, dtype=np.int64)
        for number, group in enumerate(self.groups):
            labels[list(group)] = number
        return labels

    def group_norms(self, v: Vector) -> Vector:
        """|v_group|_2 for every group."""
        return np.sqrt(np.bincount(self.labels, v * v, len(self.groups)))

    @property
    def radius(self) -> float:
        return self.size

    @property
    def l1_radius(self) -> float:
        return self.size * math.sqrt(max(len(group) for group in self.groups))

    def norm(self, v: Vector) -> float:
        return float(np.sum(self.group_norms(v)))

    def dual_norm(self, v: Vector) -> float:
        return float(np.max(self.group_norms(v)))

    def gaussian_width(self) -> Estimate:
        sizes = np.array([len(group) for group in self.groups])
        return _scaled(
            _mean_of_maximum(lambda t: float(np.sum(_log1m(special.gammaincc(sizes / 2, t * t / 2))))),
            self.size,
        )


@dataclass(frozen=True)
class KSupportBall(NormBall):
    """The hull of the vectors with at most ``sparsity`` non-zeros and |w|_2 <= size.

    Its gauge is the k-support norm of Argyriou, Foygel and Srebro (2012), their Proposition 2.1.
    """

    dimension: int
    sparsity: int
    size: float

    def __post_init__(self) -> None:
        _check(self.dimension, self.size)
        if not 1 <= self.sparsity <= self.dimension:
            raise InvalidInputError(f"sparsity must lie in 1..{self.dimension}, got {self.sparsity}")

    @property
    def radius(self) -> float:
        return self.size

    @property
    def l1_radius(self) -> float:
        return self.size * math.sqrt(self.sparsity)

    def norm(self, v: Vector) -> float:
        k = self.sparsity
        ordered = -np.sort(-np.abs(v))
        tails = np.cumsum(ordered[::-1])[::-1]  # tails[i] = sum of ordered[i:]
        for r in range(k):
            head = k - 1 - r  # the head coordinates count as they are, the tail shares the rest
            mean = tails[head] / (r + 1)
            if (head == 0 or ordered[head - 1] > mean) and mean >= ordered[head]:
                return float(np.sqrt(np.sum(ordered[:head] ** 2) + tails[head] * mean))
        # Rounding can blur the two strict inequalities only where the head equals the mean: all in the tail.
        return float(tails[0] / math.sqrt(k))

    def dual_norm(self, v: Vector) -> float:
        split = self.dimension - self.sparsity
        return float(np.linalg.norm(np.partition(np.abs(v), split)[split:] if split else v))


@dataclass(frozen=True, eq=False)
class ConvexHull(ConvexSet):
    """The hull of given points, shape (m, p), m >= 1."""

    points: Vector

    def __init__(self, points: ArrayLike) -> None:
        object.__setattr__(self, "points", _fixed(points, 2))

    @property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the points
        return int(self.points.shape[1])

    @cached_property
    def centrally_symmetric(self) -> bool:  # type: ignore[override]  # depends on the points
        return {tuple(row) for row in (self.points + 0.0).tolist()} == {
            tuple(row) for row in (-self.points + 0.0).tolist()
        }

    @property
    def radius(self) -> float:
        return float(np.max(np.linalg.norm(self.points, axis=1)))

    @cached_property
    def diameter(self) -> float:
        return max(float(np.max(np.linalg.norm(self.points - v, axis=1))) for v in self.points)

    @property
    def l1_radius(self) -> float:
        return float(np.max(np.sum(np.abs(self.points), axis=1)))

    def support(self, g: Vector) -> float:
        return float(np.max(self.points @ g))

    def gauge(self, v: Vector) -> float:
        raise NoClosedFormError(
            "the gauge of a hull is a linear program: use privopt.oracles.closed_form.gauge"
        )

    def violation(self, w: Vector) -> float:
        raise NoClosedFormError(
            "the distance from a hull takes a solver: use privopt.oracles.closed_form.violation"
        )

    @property
    def vertex_count(self) -> int | None:
        return len(self.points)

    def _list_vertices(self) -> Vector:
        return self.points


@dataclass(frozen=True, eq=False)
class Polytope(ConvexSet):
    """{A w <= b, low <= w <= high}: A of shape (m, p), b (m,), low and high (p,), all finite.

    The box keeps the set bounded; the exact radius and diameter are hard to compute, and the box's are
    used: upper bounds, which is the side that step sizes want.
    """

    A: Vector
    b: Vector
    box: Box

    def __init__(self, A: ArrayLike, b: ArrayLike, low: ArrayLike, high: ArrayLike) -> None:
        matrix, sides, box = _fixed(A, 2), _fixed(b, 1), Box(low, high)
        if matrix.shape != (len(sides), box.dimension):
            raise InvalidInputError(
                f"A must have shape ({len(sides)}, {box.dimension}) to match b and the box, "
                f"got {matrix.shape}"
            )
        object.__setattr__(self, "A", matrix)
        object.__setattr__(self, "b", sides)
        object.__setattr__(self, "box", box)

    @property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the box
        return self.box.dimension

    @cached_property
    def centrally_symmetric(self) -> bool:  # type: ignore[override]  # depends on the rows
        A, b = self.halfspaces
        rows = {(*a, side) for a, side in zip((A + 0.0).tolist(), b.tolist(), strict=True)}
        return rows == {(*a, side) for a, side in zip((-A + 0.0).tolist(), b.tolist(), strict=True)}

    @property
    def halfspaces(self) -> tuple[Vector, Vector]:
        """All constraints as rows: (A, b) with the box's 2 p rows below, high then low."""
        eye = np.eye(self.dimension)
        A = np.concatenate([self.A, eye, -eye])
        return A, np.concatenate([self.b, self.box.high, -self.box.low])

    @property
    def radius(self) -> float:
        return self.box.radius

    @property
    def diameter(self) -> float:
        return self.box.diameter

    @property
    def l1_radius(self) -> float:
        return self.box.l1_radius

    def support(self, g: Vector) -> float:
        raise NoClosedFormError(
            "the support function of a polytope is a linear program: use privopt.oracles.closed_form.support"
        )

    def gaussian_width(self) -> Estimate:
        raise NoClosedFormError(
            "the width of a polytope takes linear programs: use privopt.oracles.closed_form.gaussian_width"
        )

    def gauge(self, v: Vector) -> float:
        A, b = self.halfspaces
        return _gauge_of_halfspaces(A @ v, b)

    def violation(self, w: Vector) -> float:
        return max(self.box.violation(w), float(np.max(self.A @ w - self.b, initial=0.0)))

    def lower_bound(self, g: Vector, multipliers: Vector) -> float:
        """A lower bound on <w, g> over C for any multipliers y >= 0 of A w <= b (weak duality).

        min over the box of <w, g + A'y>, less <b, y>.
        """
        return -self.box.support(-(g + multipliers @ self.A)) - float(multipliers @ self.b)

    @cached_property
    def _corners(self) -> Vector:
        """All vertices, by trying every p-subset of the halfspaces; a corner met twice is kept once."""
        A, b = self.halfspaces
        found = []
        for subset in itertools.combinations(range(len(b)), self.dimension):
            rows = list(subset)
            if abs(np.linalg.det(A[rows])) > 1e-12:
                corner = np.linalg.solve(A[rows], b[rows])
                if np.all(A @ corner <= b + 1e-9):
                    found.append(corner)
        if not found:
            raise InfeasibleDomainError("empty polytope: no corner satisfies all constraints")
        corners = np.array(found)
        _, first = np.unique(np.round(corners, 9), axis=0, return_index=True)
        return corners[np.sort(first)]

    @property
    def vertex_count(self) -> int | None:
        subsets = math.comb(len(self.b) + 2 * self.dimension, self.dimension)
        return len(self._corners) if subsets <= 20_000 else None

    def _list_vertices(self) -> Vector:
        return self._corners


def _gauge_of_halfspaces(products: Vector, sides: Vector) -> float:
    """min {r >= 0 : products <= r sides}."""
    upper, lower = sides < 0, sides > 0
    if np.any((sides == 0) & (products > 0)):
        return math.inf
    least = max(0.0, float(np.max(products[lower] / sides[lower], initial=0.0)))
    most = float(np.min(products[upper] / sides[upper], initial=math.inf))
    return least if least <= most else math.inf


def _mean_of_maximum(log_cdf: Callable[[float], float]) -> Estimate:
    """E of the positive part of a variable with the given log distribution function: int_0^inf 1 - F.

    1 - F falls from 1 to 0 around a point that moves with the dimension: the integral is split there.
    """
    middle = next(t for t in np.arange(0.0, 1e6) if log_cdf(t) > math.log(0.5))
    parts = [
        quad(lambda t: -math.expm1(log_cdf(t)), a, b, limit=200)
        for a, b in ((0.0, middle), (middle, math.inf))
    ]
    return Estimate(sum(p[0] for p in parts), sum(p[1] for p in parts))


def _log1m(tail: ArrayLike) -> Vector:
    """log(1 - tail), -inf at tail = 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(-np.asarray(tail)))


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.error * factor)


def _check(dimension: int, size: float) -> None:
    if dimension < 1:
        raise InvalidInputError(f"dimension must be >= 1, got {dimension}")
    if not (math.isfinite(size) and size > 0):
        raise InvalidInputError(f"size must be finite and > 0, got {size}")


def _fixed(values: ArrayLike, ndim: int) -> Vector:
    """A read-only finite float64 copy."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != ndim:
        raise InvalidInputError(f"expected an array of {ndim} dimensions, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise InvalidInputError("coordinates of a set must be finite; got NaN or infinity")
    array.flags.writeable = False
    return array
