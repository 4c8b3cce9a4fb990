"""The interface of convex sets: membership, support function, gauge, radii and Gaussian width."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import quad

from privopt.problems.arguments import check_real, check_whole
from privopt.problems.convex.regularizers import Vector
from privopt.problems.errors import InvalidInputError

VERTEX_ENTRIES = 1 << 24  # vertices are listed if they have at most this many coordinates in all
_WIDTH_SAMPLES = 4000
_WIDTH_SEED = 20170417  # fixed, so that the width is the same in every plan; no privacy rests on it


class NoClosedFormError(InvalidInputError):
    """A quantity that has no formula, or that the set does not have; the message may say what to use."""


@dataclass(frozen=True)
class Estimate:
    """A number and its error: 0 for a formula, a bound for a quadrature, otherwise one standard error."""

    value: float
    error: float = 0.0


class ConvexSet(ABC):
    """A closed convex set C in R^p, p = ``dimension``."""

    dimension: int
    centrally_symmetric: bool = False
    # Whether C contains, with each of its points w, all points whose coordinates lie between 0 and the
    # coordinates of w.
    shrinkable: bool = False

    @property
    @abstractmethod
    def radius(self) -> float:
        """Radius, max over C of |w|_2; infinite if C is unbounded."""

    @property
    def diameter(self) -> float:
        """Diameter |C|_2 = max over C x C of |v - w|_2. Twice the radius for a centrally symmetric set."""
        if not self.centrally_symmetric:
            raise NoClosedFormError(f"no formula for the diameter of {type(self).__name__}")
        return 2 * self.radius

    @property
    @abstractmethod
    def l1_radius(self) -> float:
        """Radius in l1, max over C of |w|_1, or an upper bound on it for sets whose docstring says so."""

    @abstractmethod
    def support(self, g: Vector) -> float:
        """Return max over C of <w, g>: the dual of the Minkowski norm when C is centrally symmetric."""

    @abstractmethod
    def gauge(self, v: Vector) -> float:
        """Return the Minkowski functional |v|_C = min {r >= 0 : v in r C}; infinite if there is none."""

    @abstractmethod
    def violation(self, w: Vector) -> float:
        """Return the largest violation of a constraint of C at w, shape (p,), in the constraint's units."""

    def contains(self, w: Vector, tolerance: float = 1e-9) -> bool:
        """Return whether w is in C, up to a tolerance in the units of the constraints."""
        return bool(w.shape == (self.dimension,) and self.violation(w) <= tolerance)

    def gaussian_width(self) -> Estimate:
        """Return G_C = E max over C of <w, b>, b standard normal: simulated, unless the set has a formula."""
        return simulated_width(self.support, self.dimension)

    @property
    def vertex_count(self) -> int | None:
        """The number of listed points that have C as convex hull, or None if no finite list is known."""
        return None

    def vertices(self) -> Vector:
        """Return the vertices, shape (vertex_count, dimension).

        Raises:
            NoClosedFormError: not finitely many, or too many to list.
        """
        count = self.vertex_count
        name = type(self).__name__
        if count is None:
            raise NoClosedFormError(f"{name} has no finite list of vertices")
        if count * self.dimension > VERTEX_ENTRIES:
            raise NoClosedFormError(
                f"{name} has {count:.3g} vertices in {self.dimension} dimensions: too many to list. To do: "
                "use vertex_scores and vertex"
            )
        return self._list_vertices()

    def _list_vertices(self) -> Vector:
        raise NoClosedFormError(f"{type(self).__name__} has no vertices")

    def vertex_scores(self, g: Vector) -> Vector:
        """Return <s, g> for every vertex s, shape (vertex_count,)."""
        return self.vertices() @ g

    def vertex(self, index: int) -> Vector:
        """Return one vertex, shape (dimension,)."""
        return np.array(self.vertices()[index])


def simulated_width(
    support: Callable[[Vector], float], dimension: int, samples: int = _WIDTH_SAMPLES
) -> Estimate:
    """Return the mean of a support function over standard normal directions, with its standard error."""
    draws = np.random.Generator(np.random.PCG64(_WIDTH_SEED))
    samples = max(100, min(samples, VERTEX_ENTRIES // dimension))
    values = np.array([support(draws.standard_normal(dimension)) for _ in range(samples)])
    return Estimate(float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(samples)))


class NormBall(ConvexSet):
    """A norm ball around 0: membership and gauge follow from the norm, support from the dual norm."""

    size: float
    centrally_symmetric = True
    shrinkable = True

    @property
    def radius(self) -> float:  # for norms that are at least the l2 norm, with equality somewhere
        return self.size

    @abstractmethod
    def norm(self, v: Vector) -> float:
        """Return the norm of v, in the norm in which this set is the ball of radius ``size``."""

    @abstractmethod
    def dual_norm(self, v: Vector) -> float:
        """Return the dual of ``norm``."""

    def gauge(self, v: Vector) -> float:
        return self.norm(v) / self.size

    def support(self, g: Vector) -> float:
        return self.size * self.dual_norm(g)

    def violation(self, w: Vector) -> float:
        return max(0.0, self.norm(w) - self.size)


def gauge_of_halfspaces(products: Vector, sides: Vector) -> float:
    """Return min {r >= 0 : products <= r sides}."""
    upper, lower = sides < 0, sides > 0
    if np.any((sides == 0) & (products > 0)):
        return math.inf
    least = max(0.0, float(np.max(products[lower] / sides[lower], initial=0.0)))
    most = float(np.min(products[upper] / sides[upper], initial=math.inf))
    return least if least <= most else math.inf


def mean_of_maximum(log_cdf: Callable[[float], float]) -> Estimate:
    """Return E of the positive part of a variable with the given log distribution function: int_0^inf 1 - F.

    1 - F falls from 1 to 0 around a point that moves with the dimension: the integral is split there.
    """
    middle = next(t for t in np.arange(0.0, 1e6) if log_cdf(t) > math.log(0.5))
    parts = [
        quad(lambda t: -math.expm1(log_cdf(t)), a, b, limit=200)
        for a, b in ((0.0, middle), (middle, math.inf))
    ]
    return Estimate(sum(p[0] for p in parts), sum(p[1] for p in parts))


def log1m(tail: ArrayLike) -> Vector:
    """Return log(1 - tail), -inf at tail = 1."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log1p(-np.asarray(tail)))


def scaled_estimate(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.error * factor)


def check_size(dimension: int, size: float) -> None:
    check_whole(dimension, "dimension")
    if not (math.isfinite(check_real(size, "size")) and size > 0):
        raise InvalidInputError(f"size must be finite and > 0, got {size}")


def fixed(values: ArrayLike, ndim: int) -> Vector:
    """Return a read-only finite float64 copy."""
    array = np.array(values, dtype=np.float64)
    if array.ndim != ndim:
        raise InvalidInputError(f"expected an array of {ndim} dimensions, got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise InvalidInputError("coordinates of a set must be finite; got NaN or infinity")
    array.flags.writeable = False
    return array
