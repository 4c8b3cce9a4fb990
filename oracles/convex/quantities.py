"""Support functions, gauges, violations and widths of sets, by a formula or else by a solver."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from privopt.oracles.convex.registry import linear_minimizer, projector
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.convex.regularizers import Vector, soft_threshold
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet, Estimate, simulated_width
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex


def support(convex_set: ConvexSet, g: Vector) -> float:
    """Return max over C of <w, g>, the dual of the Minkowski norm; for a polytope, an upper bound on it."""
    if isinstance(convex_set, Polytope):
        return -linear_minimizer(convex_set)(-g).bound
    return convex_set.support(g)


def penalized_support(convex_set: ConvexSet, g: Vector, l1: float) -> float:
    """Return max over C of <w, g> - l1 |w|_1.

    Raises:
        UnsupportedProblemError: there is no formula for the set.
    """
    if l1 == 0:
        return support(convex_set, g)
    if convex_set.shrinkable:
        return support(convex_set, soft_threshold(g, l1))
    if isinstance(convex_set, Box):
        ends = np.stack([convex_set.low, convex_set.nearest_to_zero, convex_set.high])
        return float(np.sum(np.max(ends * g - l1 * np.abs(ends), axis=0)))
    if isinstance(convex_set, Polytope):
        return support(lifted(convex_set), np.concatenate([g, np.full(len(g), -l1)]))
    if is_simplex(convex_set):
        return support(convex_set, g - l1)
    raise UnsupportedProblemError(
        f"no support function for an l1 penalty over {type(convex_set).__name__}: drop one of them"
    )


def is_simplex(convex_set: ConvexSet) -> bool:
    """Return whether the set is a simplex or part of a simplex: there the l1 norm is constant."""
    if isinstance(convex_set, BoxIntersection):
        return isinstance(convex_set.other, Simplex)
    return isinstance(convex_set, Simplex)


def lifted(polytope: Polytope) -> Polytope:
    """Return the polytope {(w, t) : w in C, |w_j| <= t_j}, on which sum t represents the l1 norm."""
    reach = np.maximum(np.abs(polytope.box.low), np.abs(polytope.box.high))
    eye, zero = np.eye(len(reach)), np.zeros(len(reach))
    A = np.block([[polytope.A, np.zeros(polytope.A.shape)], [eye, -eye], [-eye, -eye]])
    return Polytope(
        A,
        np.concatenate([polytope.b, zero, zero]),
        np.concatenate([polytope.box.low, zero]),
        np.concatenate([polytope.box.high, reach]),
    )


@singledispatch
def gauge(convex_set: ConvexSet, v: Vector) -> float:
    """Return min {r >= 0 : v in r C}; for a hull, by a linear program.

    Raises:
        SolverFailedError: the solver of the linear program stopped without an answer.
    """
    return convex_set.gauge(v)


def violation(convex_set: ConvexSet, w: Vector) -> float:
    """Return the largest constraint violation of w, shape (p,); for a hull, the distance of w from it."""
    if isinstance(convex_set, ConvexHull):
        return float(np.linalg.norm(projector(convex_set)(w) - w))
    return convex_set.violation(w)


def contains(convex_set: ConvexSet, w: Vector, tolerance: float = 1e-9) -> bool:
    """Return whether w is in C."""
    return w.shape == (convex_set.dimension,) and violation(convex_set, w) <= tolerance


def gaussian_width(convex_set: ConvexSet) -> Estimate:
    """Return the Gaussian width E [max over C of <w, b>] for standard normal b, with its error."""
    if isinstance(convex_set, Polytope):
        # Each sample takes a linear program, so there are fewer; the error of the estimate is larger.
        return simulated_width(lambda g: support(convex_set, g), convex_set.dimension, samples=400)
    return convex_set.gaussian_width()
