"""Steps in the Minkowski norm of the set: argmin over u in C of <g, u - x> + (weight/2) |u - x|_C^2.

This is the gradient step of linear coupling (Allen-Zhu and Orecchia 2017), which DP-AccMD uses. The largest
decrease of <g, u> over moves of length t in this norm, the gain, is concave and piecewise linear in t. The
best length is where the marginal gain falls to the marginal cost, weight * t.

Without a formula for the gain, the step uses the norm |.|_2 / r instead, where r is the radius of a ball
around 0 inside the set. This norm is at least the Minkowski norm. It is also the norm of the set's natural
geometry, so both steps of linear coupling are in the same norm and its analysis holds.
"""

from __future__ import annotations

import numpy as np

from privopt.oracles.convex.bregman import bregman_step, natural_geometry
from privopt.oracles.convex.interface import Euclidean, GaugeStep
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball, LinfBall
from privopt.problems.convex.sets.simplex import Simplex


def gauge_step(convex_set: ConvexSet) -> GaugeStep:
    """Return the step over a set.

    Its norm is the Minkowski norm of the set for l1, l2 and l-infinity balls, |.|_1 / size for a simplex,
    |.|_2 for the whole space, and |.|_2 / r for other sets, r the radius of a ball around 0 inside them.

    Raises:
        UnsupportedProblemError: no projection onto the set, or no ball around 0 inside it, is known.
    """
    if isinstance(convex_set, L1Ball):
        return lambda x, g, weight: _l1_step(x, g, weight / convex_set.size**2, convex_set.size)
    if isinstance(convex_set, LinfBall):
        return lambda x, g, weight: _linf_step(x, g, weight / convex_set.size**2, convex_set.size)
    if isinstance(convex_set, Simplex):
        return lambda x, g, weight: _simplex_step(x, g, weight / convex_set.size**2)
    geometry = natural_geometry(convex_set)
    if not isinstance(geometry, Euclidean):
        raise UnsupportedProblemError(f"no step in the norm of {geometry} over {type(convex_set).__name__}")
    move = bregman_step(convex_set, geometry)
    return lambda x, g, weight: move(x, g, 1 / weight)


def _l1_step(x: Vector, g: Vector, cost: float, size: float) -> Vector:
    """Add l1 norm to the steepest coordinate: first the slack of the ball, then what others give up.

    Moving one unit from coordinate i to the steepest one is a move of length 2 and gains
    sign(x_i) g_i + max |g|, so the coordinates give in decreasing order of sign(x_i) g_i.
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


def _simplex_step(x: Vector, g: Vector, cost: float) -> Vector:
    """Move mass to the coordinate of the smallest g, first from the coordinates of the largest g."""
    best = int(np.argmin(g))
    pull = g - g[best]
    order = np.argsort(-pull, kind="stable")
    given = np.zeros_like(x)
    given[order] = _spend(2 * x[order], pull[order] / 2, cost) / 2
    u = x - given
    u[best] += float(np.sum(given))
    return u


def _linf_step(x: Vector, g: Vector, cost: float, size: float) -> Vector:
    """Move all coordinates against the gradient, each until it reaches its bound."""
    room = np.where(g == 0, 0.0, np.maximum(0.0, size + np.sign(g) * x))
    order = np.argsort(room, kind="stable")
    gains = np.cumsum(np.abs(g[order])[::-1])[::-1]  # of the coordinates that are not at their bounds yet
    used = _spend(np.diff(room[order], prepend=0.0), gains, cost)
    return np.asarray(x - np.sign(g) * np.minimum(room, np.sum(used)))


def _spend(lengths: Vector, gains: Vector, cost: float) -> Vector:
    """Return how much of each segment of a move to use, to maximise its gain minus cost * t^2 / 2.

    t is the total length used. Gains are per unit of length, one for each segment, and decrease.
    """
    ends = np.cumsum(lengths)
    stop = float(np.max(np.minimum(ends, gains / cost)))
    return np.clip(stop - (ends - lengths), 0.0, lengths)
