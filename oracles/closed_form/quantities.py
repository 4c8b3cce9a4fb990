"""Quantities of sets, by formula where there is one and by a linear program where there is not."""

from __future__ import annotations

from privopt.oracles.closed_form.linear import linear_minimizer
from privopt.problems.regularizers import Vector
from privopt.problems.sets import ConvexHull, ConvexSet, Estimate, Polytope, simulated_width


def support(convex_set: ConvexSet, g: Vector) -> float:
    """max over C of <w, g>; for a polytope the certified upper bound."""
    if isinstance(convex_set, Polytope):
        return -linear_minimizer(convex_set)(-g).bound
    return convex_set.support(g)


def gauge(convex_set: ConvexSet, v: Vector) -> float:
    """min {r >= 0 : v in r C}."""
    if isinstance(convex_set, ConvexHull):
        from privopt.oracles.backends.polytope import hull_gauge

        return hull_gauge(convex_set, v)
    return convex_set.gauge(v)


def contains(convex_set: ConvexSet, w: Vector, tolerance: float = 1e-9) -> bool:
    """Whether w is in C."""
    if isinstance(convex_set, ConvexHull):
        from privopt.oracles.backends.polytope import hull_contains

        return hull_contains(convex_set, w, tolerance)
    return convex_set.contains(w, tolerance)


def gaussian_width(convex_set: ConvexSet) -> Estimate:
    """E max over C of <w, b>, b standard normal, and how far the figure may be off."""
    if isinstance(convex_set, Polytope):
        # A linear program per sample: fewer of them, and the error says so.
        return simulated_width(lambda g: support(convex_set, g), convex_set.dimension, samples=400)
    return convex_set.gaussian_width()
