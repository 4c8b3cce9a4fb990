"""Intersections of sets, for pairs whose intersection is again a set of this package."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.interface import ConvexSet, NoClosedFormError, NormBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InvalidInputError


def intersect(first: ConvexSet, second: ConvexSet) -> ConvexSet:
    """Return the intersection of two sets of one dimension, if it is a set of this package.

    Such pairs are balls of one kind; boxes and l-infinity balls with each other, with l1 and l2 balls and
    with simplices; polytopes with each other and with boxes, l-infinity balls and simplices.

    Raises:
        NoClosedFormError: no set of this package is the intersection.
        InfeasibleDomainError: the intersection of boxes, or of a box and another set, is empty.
    """
    if first.dimension != second.dimension:
        raise InvalidInputError(
            f"sets of dimensions {first.dimension} and {second.dimension} have no intersection: give both "
            "the same dimension"
        )
    if isinstance(first, WholeSpace) or first is second:
        return second
    if isinstance(second, WholeSpace):
        return first
    if isinstance(first, NormBall) and type(first) is type(second) and _shape(first) == _shape(second):
        return min(first, second, key=lambda ball: ball.size)
    for one, other in ((first, second), (second, first)):
        if isinstance(one, Box | LinfBall) and isinstance(other, L1Ball | L2Ball | Simplex):
            return BoxIntersection(as_polytope(one).box, other)
        if isinstance(one, Box | LinfBall) and isinstance(other, BoxIntersection):
            return intersect(intersect(one, other.box), other.other)
    a, b = as_polytope(first), as_polytope(second)
    low, high = np.maximum(a.box.low, b.box.low), np.minimum(a.box.high, b.box.high)
    if len(a.b) + len(b.b) == 0:
        return Box(low, high)
    return Polytope(np.concatenate([a.A, b.A]), np.concatenate([a.b, b.b]), low, high)


def _shape(ball: NormBall) -> object:
    """Return a ball's shape: balls of one type with equal shape are multiples of each other."""
    return getattr(ball, "groups", None), getattr(ball, "sparsity", None)


@singledispatch
def as_polytope(convex_set: ConvexSet) -> Polytope:
    """Return a box, l-infinity ball, simplex or polytope as a ``Polytope``.

    Raises:
        NoClosedFormError: any other set.
    """
    raise NoClosedFormError(
        f"no exact intersection with {type(convex_set).__name__}: only boxes, l-infinity balls, "
        "simplices and polytopes, a box with an l1 or l2 ball, or balls of one kind around 0"
    )


@as_polytope.register
def _(convex_set: Polytope) -> Polytope:
    return convex_set


@as_polytope.register
def _(convex_set: Box) -> Polytope:
    return Polytope(np.zeros((0, convex_set.dimension)), np.zeros(0), convex_set.low, convex_set.high)


@as_polytope.register
def _(convex_set: LinfBall) -> Polytope:
    reach = np.full(convex_set.dimension, convex_set.size)
    return as_polytope(Box(-reach, reach))


@as_polytope.register
def _(convex_set: Simplex) -> Polytope:
    p, size = convex_set.dimension, convex_set.size
    ones = np.ones((1, p))
    return Polytope(np.concatenate([ones, -ones]), [size, -size], np.zeros(p), np.full(p, size))
