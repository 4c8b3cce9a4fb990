"""Distances from a minimum or a stationary point, on the records: independent checks of minimisers."""

from __future__ import annotations

import numpy as np

from privopt.oracles.convex.prox import prox_step
from privopt.oracles.convex.proximal import ConvexAnswer, minimize_convex
from privopt.oracles.convex.registry import linear_minimizer
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InvalidInputError


def gradient_mapping_norm(
    risk: EmpiricalRisk,
    w: Vector,
    convex_set: ConvexSet | None = None,
    regularizer: ElasticNet = NO_REGULARIZER,
    *,
    step: float | None = None,
) -> float:
    """The l2 norm of the generalized projected gradient (w - w+) / step. NOT private.

    w+ = argmin over u in C of <grad F(w), u> + |u - w|^2 / (2 step) + r(u). It is 0 exactly at stationary
    points of F + r over C, and |grad F(w)| without a set and a penalty.

    Source: Wang and Xu (2019), the measure of Theorem 2; Ghadimi, Lan and Zhang (2016).

    Args:
        risk: F.
        w: shape (p,), in C.
        convex_set: C; the whole space by default.
        regularizer: r.
        step: > 0; 1/(2 L) by default, as in their theorem.
    """
    space = convex_set or WholeSpace(risk.facts.dimension)
    step = 1 / (2 * risk.facts.smoothness) if step is None else step
    if not step > 0:
        raise InvalidInputError(f"step must be > 0, got {step}")
    following = prox_step(space, regularizer)(w - step * risk.gradient(w), step)
    return float(np.linalg.norm(w - following)) / step


def frank_wolfe_gap(risk: EmpiricalRisk, w: Vector, convex_set: ConvexSet, l2: float = 0.0) -> float:
    """max over v in C of <grad, w - v>, grad that of F + (l2/2)|w|^2. NOT private.

    At least F(w) - min F for convex losses; 0 exactly at stationary points for all.

    Source: Jaggi (2013); Wang and Xu (2019), the measure of Theorems 4 and 6.

    Args:
        risk: F.
        w: shape (p,), in C.
        convex_set: C, bounded.
        l2: strength of a ridge penalty.
    """
    gradient = risk.gradient(w) + l2 * w
    return float(gradient @ w) - linear_minimizer(convex_set)(gradient).bound


def excess_risk(
    risk: EmpiricalRisk,
    w: Vector,
    convex_set: ConvexSet | None = None,
    regularizer: ElasticNet = NO_REGULARIZER,
    *,
    reference: ConvexAnswer | None = None,
) -> tuple[float, float]:
    """Bounds (low, high) on F(w) + r(w) less its minimum over C. NOT private.

    They differ by the gap of the reference.

    Args:
        risk: F, with a convex loss.
        w: shape (p,).
        convex_set: C; the whole space by default.
        regularizer: r.
        reference: a minimum with its bound, ``minimize_convex`` of the same problem by default.
    """
    if reference is None:
        reference = minimize_convex(risk, convex_set, regularizer)
    value = risk.value(w) + regularizer.value(w)
    return value - reference.value, value - reference.bound
