"""Quadratics over an l2 ball, with one half-space or none: exact up to rounding.

Without a half-space this is the trust-region problem, which has no duality gap (More and Sorensen 1983). Let
d be the eigenvalues of H, and c the coefficients of g in its eigenvectors. For every lambda >= max(0, -min d)

    min over |w| <= R of <w, H w>/2 + <g, w>  >=  -lambda R^2/2 - sum c_i^2 / (2 (d_i + lambda)),

with equality at the best lambda. With a half-space there may be a duality gap (the extended trust-region
problem: Burer and Anstreicher 2013), so we branch and bound on t, the coordinate of w along the normal. For
given t, the other coordinates solve a trust-region problem whose linear term is affine in t; let m(t) be its
minimum. The dual value at a given lambda is a *quadratic in t*, at most m(t) for every t, and equal to m(t)
where lambda is the best. The least value of such a parabola over an interval is a lower bound on m there; the
interval of the lowest bound is split until the bound is close to the best value.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq

from privopt.oracles.certificate import Status
from privopt.oracles.indefinite.interface import (
    HalfSpace,
    IndefiniteOracle,
    IndefiniteProposal,
    IndefiniteSolver,
    scale_of,
)
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L2Ball

# In units of ``scale_of``: the rounding errors of sums and eigenvalues, and the gap at which a search ends.
_ROUNDING = 1e-13
_GAP = 1e-9
_MOST_SPLITS = 20_000


@dataclass(frozen=True)
class BallOracle(IndefiniteOracle):
    """Minimises any quadratic over an ``L2Ball``, with a half-space or without."""

    name: ClassVar[str] = "ball"
    exact: ClassVar[bool] = True

    def refusals(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> list[str]:
        return [] if isinstance(convex_set, L2Ball) else [f"{type(convex_set).__name__} is no l2 ball"]

    def build(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> IndefiniteSolver:
        radius = convex_set.radius
        if cut is None or cut.offset >= radius * float(np.linalg.norm(cut.normal)):
            return _whole_ball(H, radius)
        return _cut_ball(H, radius, cut)


def _whole_ball(H: Vector, radius: float) -> IndefiniteSolver:
    d, Q = np.linalg.eigh(H)

    def solve(g: Vector, watch: Watch) -> IndefiniteProposal:
        c = Q.T @ g
        multiplier, v = trust_region(d, c, radius)
        slack = _ROUNDING * len(d) * scale_of(H, g, radius)
        bound = -multiplier * radius**2 / 2 - float(_inverse(d, multiplier) @ c**2) / 2
        return IndefiniteProposal(Q @ v, bound - slack, steps=1)

    return solve


def trust_region(d: Vector, c: Vector, radius: float) -> tuple[float, Vector]:
    """Return the best lambda, and argmin of sum d v^2/2 + c v over |v| <= radius.

    Args:
        d: shape (p,), the smallest first.
        c: shape (p,).
        radius: >= 0.
    """
    least = max(0.0, -float(np.min(d, initial=0.0)))
    if radius == 0 or not len(d):  # v can only be 0: any lambda gives a bound, and there is no best
        return (2 * least + float(np.linalg.norm(c)) + 1) if len(d) else 0.0, np.zeros_like(d)
    tiny = 1e-14 * (float(np.max(np.abs(d))) + float(np.linalg.norm(c)) / radius) + 1e-300

    def excess(multiplier: float) -> float:
        return float(np.linalg.norm(c / (d + multiplier))) / radius - 1

    low = least + tiny
    if excess(low) > 0:
        high = low + float(np.linalg.norm(c)) / radius + tiny
        multiplier = float(brentq(lambda t: 1 - 1 / (1 + excess(t)), low, high, xtol=tiny, rtol=1e-15))
        return multiplier, -c / (d + multiplier)
    v = -c / (d + low)
    if least == 0:  # an interior minimum of a convex quadratic
        return 0.0 if d[0] > tiny else low, v
    # The hard case: a multiple of the eigenvector of the least eigenvalue, against c, makes |v| = radius.
    rest = float(v[1:] @ v[1:])
    v[0] = math.copysign(math.sqrt(max(0.0, radius**2 - rest)), -c[0])
    return low, v


def _inverse(d: Vector, multiplier: float) -> Vector:
    return np.asarray(1 / np.maximum(d + multiplier, 1e-300))


@dataclass(frozen=True)
class _Slices:
    """The quadratic in the coordinates t along the normal and v orthogonal to it.

    It is beta t^2/2 + t <h, v> + sum d v^2/2 + a t + <c, v> over t^2 + |v|^2 <= radius^2. The coordinates v
    are with respect to the eigenvectors of H restricted to the orthogonal complement of the normal.
    """

    beta: float
    h: Vector
    d: Vector
    a: float
    c: Vector
    radius: float

    def best(self, t: float) -> tuple[float, float, Vector]:
        """Return m(t), the best lambda at t, and the minimiser v."""
        slope = self.c + t * self.h
        room = math.sqrt(max(0.0, self.radius**2 - t * t))
        multiplier, v = trust_region(self.d, slope, room)
        value = self.beta * t * t / 2 + self.a * t + float(v @ (self.d * v / 2 + slope))
        return value, multiplier, v

    def least(self, multiplier: float, low: float, high: float) -> float:
        """Return the least value over t in [low, high] of the dual parabola for a lambda."""
        inverse = _inverse(self.d, multiplier)
        bend = self.beta + multiplier - float(inverse @ self.h**2)
        slope = self.a - float(inverse @ (self.c * self.h))
        at_zero = -multiplier * self.radius**2 / 2 - float(inverse @ self.c**2) / 2
        ends = [low, high]
        if bend > 0 and low < -slope / bend < high:
            ends = [-slope / bend]
        return min(at_zero + slope * t + bend * t * t / 2 for t in ends)


def _cut_ball(H: Vector, radius: float, cut: HalfSpace) -> IndefiniteSolver:
    length = float(np.linalg.norm(cut.normal))
    normal = cut.normal / length
    across = np.linalg.qr(normal[:, None], mode="complete")[0][:, 1:]
    d, Q = np.linalg.eigh(across.T @ H @ across)
    across = across @ Q
    beta, h = float(normal @ H @ normal), across.T @ (H @ normal)
    end = max(cut.offset / length, -radius)

    def solve(g: Vector, watch: Watch) -> IndefiniteProposal:
        slices = _Slices(beta, h, d, float(normal @ g), across.T @ g, radius)
        scale = scale_of(H, g, radius)
        t, v, bound, splits, status = _search(slices, -radius, end, _GAP * scale, watch)
        slack = _ROUNDING * len(H) * scale
        return IndefiniteProposal(t * normal + across @ v, bound - slack, status, splits)

    return solve


def _search(
    slices: _Slices, low: float, high: float, gap: float, watch: Watch
) -> tuple[float, Vector, float, int, Status]:
    """Branch and bound on t; return the best t and v, a lower bound, the number of splits, and the status."""
    found = {t: slices.best(t) for t in (low, high)}
    best, t_best = min((value, t) for t, (value, _, _) in found.items())
    v_best, tie = found[t_best][2], itertools.count()
    heap: list[tuple[float, int, float, float]] = []

    def enter(a: float, b: float) -> None:
        """Bound an interval by the parabolas that are tight at its ends and at its middle."""
        multipliers = {found[a][1], found[b][1], slices.best((a + b) / 2)[1]}
        heapq.heappush(heap, (max(slices.least(m, a, b) for m in multipliers), next(tie), a, b))

    enter(low, high)
    for splits in range(_MOST_SPLITS):
        bound, _, a, b = heap[0]
        middle = (a + b) / 2
        if bound >= best - gap or not a < middle < b:
            return t_best, v_best, min(bound, best), splits, Status.OPTIMAL
        if (reason := watch.stop()) is not None:
            return t_best, v_best, bound, splits, reason
        heapq.heappop(heap)
        found[middle] = value, _, v = slices.best(middle)
        if value < best:
            best, t_best, v_best = value, middle, v
        enter(a, middle)
        enter(middle, b)
    return t_best, v_best, heap[0][0], _MOST_SPLITS, Status.TIME_LIMIT
