"""Mirror steps: argmin over u in C of <g, u> + V(u, x) / step + r(u), V a Bregman divergence."""

from __future__ import annotations

import math
from functools import singledispatch

import numpy as np

from privopt.oracles.convex.interface import BregmanStep, Entropy, Euclidean, Geometry, SignedEntropy
from privopt.oracles.convex.prox import prox_step
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector, soft_threshold
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace


def bregman_step(
    convex_set: ConvexSet, geometry: Geometry, regularizer: ElasticNet = NO_REGULARIZER
) -> BregmanStep:
    """Return the mirror step of a geometry over a set.

    Raises:
        UnsupportedProblemError: there is no formula for this geometry, set and regulariser. There is one for
            the Euclidean geometry wherever there is a proximal step; for signed entropy over the l1 ball of
            the same size, with or without an l1 penalty; and for entropy over a simplex, where an l1 penalty
            is constant.
    """
    if isinstance(geometry, Euclidean):
        proximal, scale = prox_step(convex_set, regularizer), geometry.scale
        return lambda x, g, step: proximal(x - g * (step / scale), step / scale)
    if isinstance(geometry, SignedEntropy) and _is_domain(geometry, convex_set) and not regularizer.l2:
        return lambda x, g, step: _signed_step(geometry, x, g, step, regularizer.l1)
    if isinstance(geometry, Entropy) and isinstance(convex_set, Simplex) and not regularizer.l2:
        return lambda x, g, step: _entropic_step(geometry, convex_set.size, x, g, step)
    raise UnsupportedProblemError(
        f"no mirror step in closed form for {type(geometry).__name__} over {type(convex_set).__name__} with "
        f"{regularizer}: use Euclidean, SignedEntropy over an l1 ball, or Entropy over a simplex"
    )


def _is_domain(geometry: SignedEntropy, convex_set: ConvexSet) -> bool:
    return isinstance(convex_set, L1Ball) and convex_set.size == geometry.size


def _signed_step(geometry: SignedEntropy, x: Vector, g: Vector, step: float, l1: float) -> Vector:
    """Return the u with grad w(u) = grad w(x) - step g - step l1 sign(u), w the entropy of the geometry.

    The ball is the domain of w, so this u lies in it.
    """
    return geometry.inverse_gradient(soft_threshold(geometry.gradient(x) - step * g, step * l1))


def _entropic_step(geometry: Entropy, size: float, x: Vector, g: Vector, step: float) -> Vector:
    with np.errstate(divide="ignore"):  # a coordinate that is 0 stays 0
        logits = np.log(x) - g * (step / geometry.scale)
    weights = np.exp(logits - np.max(logits))
    return np.asarray(weights * (size / float(np.sum(weights))))


@singledispatch
def natural_geometry(convex_set: ConvexSet) -> Geometry:
    """Return a distance generating function that is 1-strongly convex for the Minkowski norm of the set.

    l2 and l-infinity balls: |u|^2 / (2 size^2). l1 ball: the entropy of mixtures of its 2p vertices, whose
    range is at most log(2p). Simplex: the entropy, strongly convex for |.|_1 / size. The whole space:
    |u|^2 / 2, for |.|_2. Other sets: |u|^2 / (2 r^2), where r is the radius of a ball around 0 inside the
    set, the largest such ball except for a box cut by an l1 ball.

    Raises:
        UnsupportedProblemError: no ball around 0 inside the set is known.
    """
    raise UnsupportedProblemError(
        f"no natural geometry for {type(convex_set).__name__}: it needs a known ball around 0 inside the set"
    )


@natural_geometry.register
def _(convex_set: WholeSpace) -> Geometry:
    return Euclidean()


@natural_geometry.register
def _(convex_set: L2Ball | LinfBall) -> Geometry:
    return Euclidean(convex_set.size**-2)


@natural_geometry.register
def _(convex_set: L1Ball) -> Geometry:
    return SignedEntropy(convex_set.size)


@natural_geometry.register
def _(convex_set: Simplex) -> Geometry:
    return Entropy(1 / convex_set.size)


@natural_geometry.register
def _(convex_set: GroupL1Ball) -> Geometry:
    return Euclidean(len(convex_set.groups) / convex_set.size**2)


@natural_geometry.register
def _(convex_set: KSupportBall) -> Geometry:
    return Euclidean(convex_set.dimension / (convex_set.sparsity * convex_set.size**2))


@natural_geometry.register
def _(convex_set: Box) -> Geometry:
    return _around_zero(convex_set, _inner_radius(convex_set))


@natural_geometry.register
def _(convex_set: Polytope) -> Geometry:
    A, b = convex_set.halfspaces
    norms = np.linalg.norm(A, axis=1)
    distances = np.divide(b, norms, out=np.where(b >= 0, np.inf, -np.inf), where=norms > 0)
    return _around_zero(convex_set, float(np.min(distances)))


@natural_geometry.register
def _(convex_set: BoxIntersection) -> Geometry:
    if isinstance(convex_set.other, Simplex):
        return _around_zero(convex_set, 0.0)
    shrink = math.sqrt(convex_set.dimension) if isinstance(convex_set.other, L1Ball) else 1.0
    return _around_zero(convex_set, min(_inner_radius(convex_set.box), convex_set.other.size / shrink))


def _inner_radius(box: Box) -> float:
    return float(np.min(np.minimum(-box.low, box.high)))


def _around_zero(convex_set: ConvexSet, inner: float) -> Geometry:
    if inner <= 0:
        raise UnsupportedProblemError(
            f"no natural geometry for a {type(convex_set).__name__} without 0 in its interior"
        )
    return Euclidean(inner**-2)
