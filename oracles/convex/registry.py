"""What is asked of a convex set, whatever its kind; solvers enter their answers for the kinds they know.

Whoever asks imports these names and no solver. For a set of your own register one formula each, for
``facing`` and for ``project``; where a formula is not enough, an oracle, for ``linear_minimizer`` and for
``projector``.
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
def facing(convex_set: object, g: Vector) -> Vector:
    """A point of the set that minimises <v, g>, shape (p,), by the formula registered for the set."""
    raise UnsupportedProblemError(f"no linear minimiser for {type(convex_set).__name__}")


@singledispatch
def project(convex_set: object, x: Vector) -> Vector:
    """The point of the set nearest to x, shape (p,), by the formula registered for the set."""
    raise UnsupportedProblemError(f"no projection onto {type(convex_set).__name__}")


@singledispatch
def linear_minimizer(convex_set: ConvexSet) -> LinearMinimizer:
    """The linear minimisation oracle of a set; a polytope's is a linear program with a checked dual.

    For a set of your own, register a function of set and gradient:
    ``privopt.oracles.convex.registry.facing.register(YourSet)``.

    Raises:
        UnsupportedProblemError: the set is unbounded or unknown.
    """
    if facing.dispatch(type(convex_set)) is facing.dispatch(object):
        raise UnsupportedProblemError(
            f"no linear minimiser for {type(convex_set).__name__}: it needs a bounded set; for one of your "
            "own, register its formula by privopt.oracles.convex.registry.facing.register"
        )

    def minimize(g: Vector) -> LinearAnswer:
        point = facing(convex_set, checked(g, convex_set.dimension))
        return LinearAnswer(point, float(point @ g), -convex_set.support(-g))

    return minimize


@singledispatch
def projector(convex_set: ConvexSet) -> Projector:
    """The projection onto a set: a formula, or an active-set method for hulls and polytopes.

    For a set of your own, register a function of set and point:
    ``privopt.oracles.convex.registry.project.register(YourSet)``.

    Raises:
        UnsupportedProblemError: no projection is known.
        InfeasibleDomainError: a polytope without a point.
    """
    if project.dispatch(type(convex_set)) is project.dispatch(object):
        raise UnsupportedProblemError(
            f"no projection onto {type(convex_set).__name__}: for a set of your own, register its formula by "
            "privopt.oracles.convex.registry.project.register"
        )
    return lambda x: project(convex_set, checked(x, convex_set.dimension))


def checked(x: Vector, dimension: int) -> Vector:
    """x itself, if it is a finite vector of that length.

    Raises:
        InvalidInputError: it is not; a NaN would come out as a point.
    """
    if x.shape != (dimension,) or not np.all(np.isfinite(x)):
        raise InvalidInputError(f"expected {dimension} finite coordinates, got shape {x.shape}, or NaN")
    return x
