"""Closed-form Euclidean projections.

Mechanisms project vectors that already contain noise: an inaccurate projection costs accuracy, never privacy.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from privopt.oracles.convex.registry import project
from privopt.problems.convex.regularizers import Vector, soft_threshold
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection, scaled_into, shifted_to_sum
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace


@project.register
def _(convex_set: WholeSpace, x: Vector) -> Vector:
    return x.copy()


@project.register
def _(convex_set: L2Ball, x: Vector) -> Vector:
    return x * min(1.0, convex_set.size / max(float(np.linalg.norm(x)), convex_set.size))


@project.register
def _(convex_set: LinfBall, x: Vector) -> Vector:
    return np.clip(x, -convex_set.size, convex_set.size)


@project.register
def _(convex_set: Box, x: Vector) -> Vector:
    return convex_set.clip(x)


@project.register
def _(convex_set: Simplex, x: Vector) -> Vector:
    return np.maximum(x - _water_level(x, convex_set.size), 0)


@project.register
def _(convex_set: L1Ball, x: Vector) -> Vector:
    magnitudes = np.abs(x)
    if np.sum(magnitudes) <= convex_set.size:
        return x.copy()
    return soft_threshold(x, _water_level(magnitudes, convex_set.size))


@project.register
def _(convex_set: GroupL1Ball, x: Vector) -> Vector:
    norms = convex_set.group_norms(x)
    shrunk = project(L1Ball(len(norms), convex_set.size), norms)
    ratio = np.divide(shrunk, norms, out=np.zeros_like(norms), where=norms > 0)
    return x * ratio[convex_set.labels]


@project.register
def _(convex_set: BoxIntersection, x: Vector) -> Vector:
    """Project by the multiplier t of the set that cuts the box.

    The projection is clip(x / (1 + t)) for an l2 ball, clip(x - t sign(x)) for an l1 ball, and clip(x - t)
    for a simplex.
    """
    box, size = convex_set.box, convex_set.other.size
    if isinstance(convex_set.other, Simplex):
        return shifted_to_sum(x, box.low, box.high, size)
    inside = box.clip(x)
    if convex_set.other.norm(inside) <= size:
        return inside
    if isinstance(convex_set.other, L2Ball):
        return scaled_into(box, x, size)[0]
    # Reflect so that x >= 0. A coordinate whose upper bound is then below 0 is fixed at that bound.
    sign = np.where(x < 0, -1.0, 1.0)
    low, high = np.minimum(sign * box.low, sign * box.high), np.maximum(sign * box.low, sign * box.high)
    fixed, nearest = high < 0, np.clip(0.0, low, high)
    u = np.array(high)
    left = size + float(np.sum(high[fixed]))
    u[~fixed] = shifted_to_sum(sign[~fixed] * x[~fixed], nearest[~fixed], high[~fixed], left)
    return np.asarray(sign * u)


@project.register
def _(convex_set: KSupportBall, x: Vector) -> Vector:
    """Project by duality, with a multiplier m on the squared k-support norm.

    The squared norm of w is the least sum of w_i^2 / t_i over 0 <= t <= 1 with sum t <= k. Hence the
    projection is w_i = x_i t_i / (t_i + m) with t_i = clip(c |x_i| - m, 0, 1), where c is such that
    sum t = k, and m such that the norm of w is the radius of the ball (McDonald, Pontil and Stamos 2016).
    """
    excess_ratio = convex_set.norm(x) / convex_set.size
    if excess_ratio <= 1 + 1e-12:  # inside, or outside by a rounding error, too little to solve for m below
        return x / max(1.0, excess_ratio)
    magnitudes = np.abs(x)
    budget = min(convex_set.sparsity, int(np.count_nonzero(magnitudes)))

    def shares(m: float) -> Vector:
        return np.asarray(np.clip(_slope_for_budget(magnitudes, m, budget) * magnitudes - m, 0, 1))

    def excess(log_m: float) -> float:
        t, m = shares(np.exp(log_m)), np.exp(log_m)
        return float(np.sum(magnitudes**2 * t / (t + m) ** 2)) - convex_set.size**2

    # The norm of w is at most |x| / m, and tends to |x| as m falls to 0.
    log_m = brentq(excess, np.log(1e-14), np.log(2 * excess_ratio), xtol=1e-15, rtol=1e-14)
    t, m = shares(np.exp(log_m)), np.exp(log_m)
    w = x * t / (t + m)
    return np.asarray(w * min(1.0, convex_set.size / convex_set.norm(w)))


def _slope_for_budget(magnitudes: Vector, m: float, budget: int) -> float:
    """Solve sum clip(c a_i - m, 0, 1) = budget for c.

    The sum is piecewise linear in c, so interpolation between its knots is exact.
    """
    positive = magnitudes[magnitudes > 0]
    knots = np.sort(np.concatenate([m / positive, (1 + m) / positive]))
    ordered = np.sort(positive)
    below = np.concatenate([[0.0], np.cumsum(ordered)])

    def total(c: Vector) -> Vector:
        start = np.searchsorted(ordered, m / c, side="right")  # t = 0 before this index
        full = np.searchsorted(ordered, (1 + m) / c, side="left")  # t = 1 from this index on
        full = np.maximum(full, start)
        inside = c * (below[full] - below[start]) - m * (full - start)
        return np.asarray(inside + (len(ordered) - full))

    totals = total(knots)
    at = int(np.searchsorted(totals, budget))
    if at >= len(knots):
        return float(knots[-1])
    if at == 0 or totals[at] == totals[at - 1]:
        return float(knots[at])
    part = (budget - totals[at - 1]) / (totals[at] - totals[at - 1])
    return float(knots[at - 1] + part * (knots[at] - knots[at - 1]))


def _water_level(x: Vector, total: float) -> float:
    """Return the t with sum max(x - t, 0) = total (Held, Wolfe and Crowder 1974)."""
    ordered = -np.sort(-x)
    levels = (np.cumsum(ordered) - total) / np.arange(1, len(x) + 1)
    return float(levels[np.flatnonzero(ordered > levels)[-1]])
