"""Proximal steps over a set: argmin over u in C of |u - x|^2 / (2 step) + r(u)."""

from __future__ import annotations

from privopt.oracles.closed_form.projection import projector
from privopt.oracles.convex import ProxStep
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.regularizers import NO_REGULARIZER, ElasticNet, Vector, soft_threshold
from privopt.problems.sets import (
    Box,
    ConvexSet,
    GroupL1Ball,
    L1Ball,
    L2Ball,
    LinfBall,
    Simplex,
    WholeSpace,
)

# Soft thresholding and then projecting is exact where the set's multiplier only scales or thresholds what
# is left, without waking a coordinate: boxes coordinate by coordinate, the others by their optimality
# conditions. It is wrong in general.
_THRESHOLD_THEN_PROJECT = (WholeSpace, L1Ball, L2Ball, LinfBall, GroupL1Ball)


def prox_step(convex_set: ConvexSet, regularizer: ElasticNet = NO_REGULARIZER) -> ProxStep:
    """The proximal step of an elastic net over a set.

    The quadratic part is absorbed by completing the square; on a simplex the l1 norm is constant.

    Raises:
        UnsupportedProblemError: no projection onto the set, or no formula for the l1 norm on it.
    """
    project = projector(convex_set)
    exact = isinstance(convex_set, (*_THRESHOLD_THEN_PROJECT, Box))
    if regularizer.l1 > 0 and not exact and not isinstance(convex_set, Simplex):
        raise UnsupportedProblemError(
            f"no proximal step in closed form for an l1 penalty over {type(convex_set).__name__}: "
            "drop the penalty or use a box or a norm ball"
        )
    l1 = regularizer.l1 if exact else 0.0

    def step_to(x: Vector, step: float) -> Vector:
        shrink = 1 + step * regularizer.l2
        return project(soft_threshold(x, step * l1) / shrink)

    return step_to
