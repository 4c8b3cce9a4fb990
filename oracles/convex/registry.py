"""Dispatch of linear minimisation and projection by the type of the convex set.

Callers import these functions, and never a solver. For a set of your own, register one formula with
``lmo_formula`` and another with ``project``. If there is no formula, register an oracle with
``linear_minimizer`` and ``projector`` instead.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from privopt.oracles.convex.interface import LinearAnswer, LinearMinimizer, Projector
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.errors import InvalidInputError


@singledispatch
def lmo_formula(convex_set: object, g: Vector) -> Vector:
    """Return a minimiser of <v, g> over the set, shape (p,), by the formula registered for its type."""
    raise UnsupportedProblemError(f"no linear minimiser for {type(convex_set).__name__}")


@singledispatch
def project(convex_set: object, x: Vector) -> Vector:
    """Return the Euclidean projection of x onto the set, shape (p,), by the formula for its type."""
    raise UnsupportedProblemError(f"no projection onto {type(convex_set).__name__}")


@singledispatch
def linear_minimizer(convex_set: ConvexSet) -> LinearMinimizer:
    """Return the linear minimisation oracle (LMO) of a set; for a polytope, a linear program with its dual.

    For a set of your own, register a function of set and gradient:
    ``privopt.oracles.convex.registry.lmo_formula.register(YourSet)``.

    Raises:
        UnsupportedProblemError: the set is unbounded or unknown.
    """
    if lmo_formula.dispatch(type(convex_set)) is lmo_formula.dispatch(object):
        raise UnsupportedProblemError(
            f"no linear minimiser for {type(convex_set).__name__}: it needs a bounded set; for one of your "
            "own, register its formula by privopt.oracles.convex.registry.lmo_formula.register"
        )

    def minimize(g: Vector) -> LinearAnswer:
        point = lmo_formula(convex_set, checked(g, convex_set.dimension))
        return LinearAnswer(point, float(point @ g), -convex_set.support(-g))

    return minimize


@singledispatch
def projector(convex_set: ConvexSet) -> Projector:
    """Return the projection onto a set: a formula, or an active-set method for hulls and polytopes.

    For a set of your own, register a function of set and point:
    ``privopt.oracles.convex.registry.project.register(YourSet)``.

    Raises:
        UnsupportedProblemError: no projection is known.
        InfeasibleDomainError: the set is an empty polytope.
    """
    if project.dispatch(type(convex_set)) is project.dispatch(object):
        raise UnsupportedProblemError(
            f"no projection onto {type(convex_set).__name__}: for a set of your own, register its formula by "
            "privopt.oracles.convex.registry.project.register"
        )
    return lambda x: project(convex_set, checked(x, convex_set.dimension))


def checked(x: Vector, dimension: int) -> Vector:
    """Return x if it is a finite vector of the right length.

    Raises:
        InvalidInputError: x has another shape, or a coordinate is NaN or infinite.
    """
    if x.shape != (dimension,) or not np.all(np.isfinite(x)):
        raise InvalidInputError(f"expected {dimension} finite coordinates, got shape {x.shape}, or NaN")
    return x
