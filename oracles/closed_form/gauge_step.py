"""Steps in the Minkowski norm of the set: argmin over u in C of <g, u - x> + (weight/2) |u - x|_C^2.

The gradient step of linear coupling (Allen-Zhu and Orecchia 2017) and so of DP-AccMD. For each length t of
the move the best gain is concave and piecewise linear in t; the step stops where the marginal gain falls to
the marginal cost, weight * t.
"""

from __future__ import annotations

import numpy as np

from privopt.oracles.closed_form.projection import projector
from privopt.oracles.convex import GaugeStep
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.regularizers import Vector
from privopt.problems.sets import ConvexSet, L1Ball, L2Ball, LinfBall, WholeSpace


def gauge_step(convex_set: ConvexSet) -> GaugeStep:
    """The step over an l1, l2 or l-infinity ball, or the whole space (where the norm is |.|_2).

    Raises:
        UnsupportedProblemError: any other set.
    """
    if isinstance(convex_set, L1Ball):
        return lambda x, g, weight: _l1_step(x, g, weight / convex_set.size**2, convex_set.size)
    if isinstance(convex_set, LinfBall):
        return lambda x, g, weight: _linf_step(x, g, weight / convex_set.size**2, convex_set.size)
    if isinstance(convex_set, L2Ball | WholeSpace):
        project = projector(convex_set)
        unit = convex_set.size**2 if isinstance(convex_set, L2Ball) else 1.0
        return lambda x, g, weight: project(x - g * (unit / weight))
    raise UnsupportedProblemError(
        f"no step in the Minkowski norm of {type(convex_set).__name__}: use an l1, l2 or l-infinity ball"
    )


def _l1_step(x: Vector, g: Vector, cost: float, size: float) -> Vector:
    """Mass goes to the steepest coordinate: first the slack of the ball, then what others give up.

    Taking a unit from coordinate i and giving it to the steepest one moves 2 units and gains
    (sign(x_i) g_i + max|g|): coordinates give in the order of sign(x_i) g_i.
    """
    steepest = int(np.argmax(np.abs(g)))
    top = float(np.abs(g[steepest]))
    pull = np.sign(x) * g
    order = np.argsort(-pull, kind="stable")
    slack = max(0.0, size - float(np.sum(np.abs(x))))
    lengths = np.concatenate([[slack], 2 * np.abs(x[order])])
    gains = np.concatenate([[top], (pull[order] + top) / 2])
    used = _spend(lengths, gains, cost)
    given = np.zeros_like(x)
    given[order] = used[1:] / 2
    u = x - np.sign(x) * given
    u[steepest] -= np.sign(g[steepest]) * (used[0] + float(np.sum(given)))
    return u


def _linf_step(x: Vector, g: Vector, cost: float, size: float) -> Vector:
    """All coordinates move together against the gradient until they meet the wall."""
    room = np.where(g == 0, 0.0, np.maximum(0.0, size + np.sign(g) * x))
    order = np.argsort(room, kind="stable")
    gains = np.cumsum(np.abs(g[order])[::-1])[::-1]  # those that have not met the wall yet
    used = _spend(np.diff(room[order], prepend=0.0), gains, cost)
    return np.asarray(x - np.sign(g) * np.minimum(room, np.sum(used)))


def _spend(lengths: Vector, gains: Vector, cost: float) -> Vector:
    """How much of each segment is walked: gains fall from one to the next, the t-th unit costs cost * t."""
    ends = np.cumsum(lengths)
    stop = float(np.max(np.minimum(ends, gains / cost)))
    return np.clip(stop - (ends - lengths), 0.0, lengths)
