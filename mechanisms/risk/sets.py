"""Constraint sets: checks before a plan, and default starting points."""

from __future__ import annotations

import math

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.oracles.convex.registry import linear_minimizer, projector
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.arguments import check_type
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace


def checked_space(
    facts: RiskFacts, convex_set: ConvexSet | None, regularizer: ElasticNet = NO_REGULARIZER
) -> ConvexSet:
    """Check the set, and return it, or the whole space for None.

    Raises:
        PrivacyParameterError: a set of another dimension, or a loss with a kink.
    """
    check_type(facts, RiskFacts, "a plan is made for RiskFacts")
    if not math.isfinite(facts.loss.smoothness):
        raise PrivacyParameterError(
            f"{type(facts.loss).__name__} has a kink, and steps go by its smoothness: use a HuberLoss, or "
            "opsamp-convex"
        )
    check_regularizer(regularizer)
    space = WholeSpace(facts.dimension) if convex_set is None else convex_set
    check_type(space, ConvexSet, "convex_set must be a ConvexSet, such as an L2Ball")
    if space.dimension != facts.dimension:
        raise PrivacyParameterError(
            f"a set of dimension {space.dimension} for weights of dimension {facts.dimension} (with the "
            "intercept, if there is one): make them equal"
        )
    return space


def unconstrained(
    name: str, facts: RiskFacts, convex_set: ConvexSet | None, regularizer: ElasticNet = NO_REGULARIZER
) -> ConvexSet:
    """``checked_space`` for a mechanism that takes no set but the whole space."""
    space = checked_space(facts, convex_set, regularizer)
    if not isinstance(space, WholeSpace):
        raise PrivacyParameterError(
            f"{name} takes no constraint, got {type(space).__name__}: use dp-pgd or dp-gd-so"
        )
    return space


def default_start(convex_set: ConvexSet) -> Vector:
    """A public first iterate: the centre of a simplex or a hull, otherwise the point of C nearest to 0.

    Where there is no projection, as for a set of one's own with only ``lmo_formula``: an extreme point.
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
    """Raise InvalidTypeError for an argument that is no ``ElasticNet``."""
    check_type(regularizer, ElasticNet, "regularizer must be an ElasticNet")


def need_bounded(name: str, convex_set: ConvexSet) -> None:
    if not math.isfinite(convex_set.radius):
        raise PrivacyParameterError(f"{name} needs a bounded set, got {type(convex_set).__name__}")


def need_smooth(name: str, regularizer: ElasticNet) -> None:
    check_regularizer(regularizer)
    if regularizer.l1 > 0:
        raise PrivacyParameterError(
            f"{name} takes no l1 penalty: constrain with an l1 ball instead, or use dp-pgd or dp-pmd"
        )
