"""Proximal steps over a set: argmin over u in C of |u - x|^2 / (2 step) + r(u)."""

from __future__ import annotations

import numpy as np

from privopt.oracles.convex.interface import ProxStep
from privopt.oracles.convex.quadratic import quadratic_minimizer
from privopt.oracles.convex.quantities import is_simplex, lifted
from privopt.oracles.convex.registry import checked, projector
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector, soft_threshold
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.polytope import Polytope


def prox_step(convex_set: ConvexSet, regularizer: ElasticNet = NO_REGULARIZER) -> ProxStep:
    """Return the proximal step of an elastic net over a set.

    The l2 part is absorbed by completing the square. How the l1 part is treated depends on the set:

    - On a simplex the l1 norm is constant.
    - A ``shrinkable`` set contains, with each point, all points whose coordinates are moved towards 0. There,
      soft thresholding followed by projection is exact: a coordinate that the threshold brings to 0, or whose
      sign would change, is best at 0. The other coordinates keep their signs, so for them the penalty is
      linear and only shifts x.
    - On a box this argument holds for each coordinate, and on a box cut by a ball for any given multiplier of
      the ball.
    - On a polytope the step is a quadratic program.

    Raises:
        UnsupportedProblemError: no projection onto the set is known, or no step for an l1 penalty over it.
        InfeasibleDomainError: the set is an empty polytope.
    """
    constant = regularizer.l1 == 0 or is_simplex(convex_set)
    if isinstance(convex_set, Polytope) and not constant:
        return _polytope_step(convex_set, regularizer)
    project = projector(convex_set)
    if not (constant or convex_set.shrinkable or isinstance(convex_set, Box | BoxIntersection)):
        raise UnsupportedProblemError(
            f"no proximal step for an l1 penalty over {type(convex_set).__name__}: drop the penalty or use a "
            "box, a norm ball or a polytope"
        )
    l1 = 0.0 if constant else regularizer.l1

    def step_to(x: Vector, step: float) -> Vector:
        shrink = 1 + step * regularizer.l2
        return project(soft_threshold(x, step * l1) / shrink)

    return step_to


def _polytope_step(polytope: Polytope, regularizer: ElasticNet) -> ProxStep:
    """Return the step that minimises |u - target|^2 / 2 + threshold * sum t over u in C and |u_j| <= t_j.

    ``target`` and ``threshold`` are x and the l1 penalty after completing the square.
    """
    p, size = polytope.dimension, polytope.radius
    quadratic = quadratic_minimizer(lifted(polytope), np.diag(np.repeat([1.0, 0.0], p)))

    def step_to(x: Vector, step: float) -> Vector:
        shrink = 1 + step * regularizer.l2
        threshold = step * regularizer.l1 / shrink
        target = checked(x, p) / shrink
        scale = size + float(np.linalg.norm(target)) + threshold * p
        answer = quadratic.minimize(np.concatenate([-target, np.full(p, threshold)]))
        return answer.require(gap=1e-8 * scale * size, violation=1e-8 * scale)[:p]

    return step_to
