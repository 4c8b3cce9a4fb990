"""Interfaces of first-order oracles: linear minimisation, projection, proximal and Bregman steps.

An oracle is built for one set (and regulariser, and geometry). It is a deterministic function of its
arguments and is called on noised gradients, so its answer is post-processing: a bad answer costs utility,
never privacy.

Oracles of a set alone are found through ``registry`` by the type of the set: ``linear`` and ``projection``
hold formulas, ``polytope`` and ``least_distance`` numerical methods. ``prox``, ``bregman`` and ``gauge_step``
build steps on top of them. Any callable with the same signature can take their place. ``quadratic`` has the
interface of oracles for convex quadratics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from privopt.oracles.errors import CertificateError
from privopt.problems.convex.regularizers import Vector
from privopt.problems.errors import InvalidInputError


class Bounded:
    """An attained objective value with a proved lower bound."""

    value: float
    bound: float

    @property
    def gap(self) -> float:
        """value - bound; negative only by rounding or by a constraint violation."""
        return self.value - self.bound


@dataclass(frozen=True, eq=False)
class LinearAnswer(Bounded):
    """A point of C and a proved lower bound on <v, g> over C.

    Attributes:
        point: shape (p,).
        value: <point, g>, recomputed.
        bound: a lower bound over C, from a formula or from checked dual multipliers.
        violation: the largest constraint violation of the point, in the units of the constraint.
    """

    point: Vector
    value: float
    bound: float
    violation: float = 0.0

    def require(self, *, gap: float, violation: float = 1e-6) -> Vector:
        """Return the point if gap and violation are within the given limits.

        Raises:
            CertificateError: the gap or the violation is larger.
        """
        if not (self.gap <= gap and self.violation <= violation):
            raise CertificateError(
                f"linear minimisation over the set has gap {self.gap:.3g} (allowed {gap:.3g}) and constraint "
                f"violation {self.violation:.3g} (allowed {violation:.3g}): rescale the "
                "constraints, or allow more"
            )
        return self.point


class LinearMinimizer(Protocol):
    """argmin over v in C of <v, g>."""

    def __call__(self, g: Vector, /) -> LinearAnswer: ...


class Projector(Protocol):
    """argmin over u in C of |u - x|_2."""

    def __call__(self, x: Vector, /) -> Vector: ...


class ProxStep(Protocol):
    """argmin over u in C of |u - x|_2^2 / (2 step) + r(u)."""

    def __call__(self, x: Vector, step: float, /) -> Vector: ...


class BregmanStep(Protocol):
    """argmin over u in C of <g, u> + V(u, x) / step + r(u), V the divergence of a geometry."""

    def __call__(self, x: Vector, g: Vector, step: float, /) -> Vector: ...


class GaugeStep(Protocol):
    """argmin over u in C of <g, u - x> + (weight / 2) |u - x|_C^2, |.|_C the Minkowski norm; x in C."""

    def __call__(self, x: Vector, g: Vector, weight: float, /) -> Vector: ...


class Geometry(Protocol):
    """A distance generating function w and its divergence V(u, x) = w(u) - w(x) - <grad w(x), u - x>."""

    def divergence(self, u: Vector, x: Vector) -> float:
        """V(u, x) >= 0."""


@dataclass(frozen=True)
class Euclidean:
    """w(u) = (scale/2) |u|_2^2."""

    scale: float = 1.0

    def divergence(self, u: Vector, x: Vector) -> float:
        return float(self.scale / 2 * np.sum((u - x) ** 2))


@dataclass(frozen=True)
class PNorm:
    """w(u) = (scale/2) |u|_q^2, 1 < q <= 2: strongly convex for |.|_q with modulus scale (q - 1)."""

    q: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not 1 < self.q <= 2:
            raise InvalidInputError(f"q must lie in (1, 2], got {self.q}")

    def value(self, u: Vector) -> float:
        return float(self.scale / 2 * np.linalg.norm(u, self.q) ** 2)

    def gradient(self, u: Vector) -> Vector:
        return _power_map(u, self.q) * self.scale

    def inverse_gradient(self, theta: Vector) -> Vector:
        """The u with grad w(u) = theta: the gradient of the conjugate, a power map with 1/q + 1/q* = 1."""
        return _power_map(theta, self.q / (self.q - 1)) / self.scale

    def divergence(self, u: Vector, x: Vector) -> float:
        return self.value(u) - self.value(x) - float(self.gradient(x) @ (u - x))


@dataclass(frozen=True)
class Entropy:
    """w(u) = scale * sum u log u on u >= 0, with 0 log 0 = 0."""

    scale: float = 1.0

    def divergence(self, u: Vector, x: Vector) -> float:
        if np.any((u > 0) & (x == 0)):
            return math.inf
        used = u > 0
        return float(self.scale * (np.sum(u[used] * np.log(u[used] / x[used])) - np.sum(u) + np.sum(x)))


def _power_map(u: Vector, q: float) -> Vector:
    """The gradient of |u|_q^2 / 2, scaled so that large exponents do not overflow."""
    top = float(np.max(np.abs(u)))
    if top == 0:
        return np.zeros_like(u)
    share = np.abs(u) / top
    length = float(np.sum(share**q)) ** (1 / q)
    return np.asarray(np.sign(u) * share ** (q - 1) * (top * length ** (2 - q)))
