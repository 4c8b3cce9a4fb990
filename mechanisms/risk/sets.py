"""Sets of weights: checks before a plan, and the first iterate."""

from __future__ import annotations

import math

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.oracles.convex.registry import linear_minimizer, projector
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.arguments import check_type
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex


def check_facts(facts: RiskFacts) -> None:
    """Check the type of facts, and refuse losses with a kink.

    Raises:
        PrivacyParameterError: a loss with a kink.
    """
    check_type(facts, RiskFacts, "a plan is made for RiskFacts")
    if not math.isfinite(facts.loss.smoothness):
        raise PrivacyParameterError(
            f"{type(facts.loss).__name__} has a kink, and step sizes need a smooth loss: use a HuberLoss"
        )


def checked_set(convex_set: ConvexSet, dimension: int) -> ConvexSet:
    """Return the set, if its dimension is that of the weights.

    Raises:
        PrivacyParameterError: another dimension.
    """
    check_type(convex_set, ConvexSet, "convex_set must be a ConvexSet, such as an L2Ball")
    if convex_set.dimension != dimension:
        raise PrivacyParameterError(
            f"a set of dimension {convex_set.dimension} for weights of dimension {dimension} (with the "
            "intercept, if there is one): make them equal"
        )
    return convex_set


def default_start(convex_set: ConvexSet) -> Vector:
    """Return a public first iterate: the centre of a simplex or a hull, otherwise the point of C nearest
    to 0.

    For a set without projection, such as a custom set with only ``lmo_formula``: an extreme point.
    """
    if isinstance(convex_set, Simplex):
        return np.full(convex_set.dimension, convex_set.size / convex_set.dimension)
    if isinstance(convex_set, ConvexHull):
        return np.asarray(np.mean(convex_set.points, axis=0))
    if isinstance(convex_set, Polytope):
        return linear_minimizer(convex_set)(np.zeros(convex_set.dimension)).point
    try:
        return projector(convex_set)(np.zeros(convex_set.dimension))
    except UnsupportedProblemError as refusal:
        try:
            return linear_minimizer(convex_set)(np.ones(convex_set.dimension)).point
        except UnsupportedProblemError:
            raise refusal from None


def check_regularizer(regularizer: object) -> None:
    """Raise InvalidTypeError unless the argument is an ``ElasticNet``."""
    check_type(regularizer, ElasticNet, "regularizer must be an ElasticNet")
