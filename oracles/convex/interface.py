"""Interfaces of first-order oracles: linear minimisation, projection, proximal and Bregman steps.

An oracle is built for one set C; some are also built for a regulariser r or a geometry. An oracle is a
deterministic function of its arguments. Mechanisms call it on vectors that already contain noise, so its
answer is post-processing: a bad answer costs accuracy, never privacy.

``registry`` finds linear minimisers and projections by the type of the set: ``linear`` and ``projection``
hold formulas, ``polytope`` and ``least_distance`` numerical methods. ``prox``, ``bregman`` and ``gauge_step``
build their steps from these. Any callable with the same signature can replace an oracle. ``quadratic`` has
the interface of oracles for convex quadratics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import special

from privopt.oracles.errors import CertificateError
from privopt.problems.convex.regularizers import Vector


class Bounded:
    """An objective value that a point attains, and a proved lower bound on the minimum."""

    value: float
    bound: float

    @property
    def gap(self) -> float:
        """Value minus bound; negative only by rounding or if the point violates a constraint."""
        return self.value - self.bound


@dataclass(frozen=True, eq=False)
class LinearAnswer(Bounded):
    """A point of C and a proved lower bound on <v, g> over C.

    Attributes:
        point: shape (p,).
        value: <point, g>, recomputed.
        bound: a lower bound on <v, g> over C, computed by a formula or from dual multipliers.
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
    """Linear minimisation oracle: argmin over v in C of <v, g>."""

    def __call__(self, g: Vector, /) -> LinearAnswer: ...


class Projector(Protocol):
    """Euclidean projection: argmin over u in C of |u - x|_2."""

    def __call__(self, x: Vector, /) -> Vector: ...


class ProxStep(Protocol):
    """Proximal step: argmin over u in C of |u - x|_2^2 / (2 step) + r(u)."""

    def __call__(self, x: Vector, step: float, /) -> Vector: ...


class BregmanStep(Protocol):
    """Mirror step: argmin over u in C of <g, u> + V(u, x) / step + r(u), V a Bregman divergence."""

    def __call__(self, x: Vector, g: Vector, step: float, /) -> Vector: ...


class GaugeStep(Protocol):
    """Step from x in C in the Minkowski norm |.|_C of the set.

    argmin over u in C of <g, u - x> + (weight / 2) |u - x|_C^2.
    """

    def __call__(self, x: Vector, g: Vector, weight: float, /) -> Vector: ...


class Geometry(Protocol):
    """A distance generating function w and its divergence V(u, x) = w(u) - w(x) - <grad w(x), u - x>."""

    def divergence(self, u: Vector, x: Vector) -> float:
        """Return V(u, x) >= 0."""


@dataclass(frozen=True)
class Euclidean:
    """Geometry of w(u) = (scale/2) |u|_2^2."""

    scale: float = 1.0

    def divergence(self, u: Vector, x: Vector) -> float:
        return float(self.scale / 2 * np.sum((u - x) ** 2))


@dataclass(frozen=True)
class Entropy:
    """Geometry of w(u) = scale * sum u log u on u >= 0, with 0 log 0 = 0."""

    scale: float = 1.0

    def divergence(self, u: Vector, x: Vector) -> float:
        if np.any((u > 0) & (x == 0)):
            return math.inf
        used = u > 0
        return float(self.scale * (np.sum(u[used] * np.log(u[used] / x[used])) - np.sum(u) + np.sum(x)))


@dataclass(frozen=True)
class SignedEntropy:
    """Geometry of the entropy of mixtures of the vertices of an l1 ball.

    For |u|_1 <= size, w(u) is the least sum q log q over mixtures q of the 2p vertices +-size e_j whose mean
    is u.

    w is 1-strongly convex for |.|_1 / size, because its conjugate log(2 sum cosh(size theta_j)) is 1-smooth
    in the dual norm. Its mirror steps are exponentiated gradients with positive and negative weights (Kivinen
    and Warmuth 1997). The gradient is infinite on the boundary, so a point of the boundary is treated as if
    it were a rounding error inside.
    """

    size: float = 1.0

    def value(self, u: Vector) -> float:
        share = np.abs(u) / self.size
        floor = self._floor(share)
        more = np.hypot(share, floor) + share
        halves = np.concatenate([more, floor**2 / more]) / 2
        return float(np.sum(special.xlogy(halves, halves)))

    def gradient(self, u: Vector) -> Vector:
        share = u / self.size
        return np.asarray(np.arcsinh(share / self._floor(np.abs(share))) / self.size)

    def inverse_gradient(self, theta: Vector) -> Vector:
        """Return the u with grad w(u) = theta: size sinh(size theta) / sum cosh(size theta)."""
        length = np.abs(theta) * self.size
        top = float(np.max(length))
        up, down = np.exp(length - top), np.exp(-length - top)
        return np.asarray(self.size * np.sign(theta) * (up - down) / float(np.sum(up + down)))

    def divergence(self, u: Vector, x: Vector) -> float:
        return self.value(u) - self.value(x) - float(self.gradient(x) @ (u - x))

    def _floor(self, share: Vector) -> float:
        """Solve sum sqrt(share^2 + t^2) = 1 for t by Newton's method, whose iterates decrease to the root."""
        t, least = 1 / len(share), 2.0**-52 / len(share)
        while t > least:
            both = np.hypot(share, t)
            move = (float(np.sum(both)) - 1) / (t * float(np.sum(1 / both)))
            if move <= 1e-15 * t:
                break
            t -= move
        return max(t, least)
