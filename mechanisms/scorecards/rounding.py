"""Rounding of a linear model's real weights to integer cards: post-processing, at no privacy cost."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.point_constraints import constrained, few_columns
from privopt.problems.discrete.lattice import IntArray

Floats = NDArray[np.float64]

# Number of thresholds tried per card, and half the width of their range as a share of a record's points.
_RUNGS, _REACH = 61, 0.5
# Largest contribution of one number to these points: beyond it most records lie near one end of its range.
_OF_A_NUMBER = 40
# With bounds of at most so many points, additional cards scale the weights further and clip at the bounds.
_FEW_POINTS, _CUTS = 5, (1.0, 1.6, 2.5)


def candidate_cards(weights: Floats, facts: CardFacts) -> tuple[IntArray, IntArray]:
    """Round a linear model to candidate cards, each with a grid of thresholds.

    With an intercept, the weights of a column's levels are centred first and the intercept absorbs the shift.
    If ``max_columns`` is set, the weights of the least important columns are set to 0. All weights are then
    scaled so that one of them meets its bound, and rounded. Where bounds are small, further cards use larger
    scales and clip at the bounds.

    Args:
        weights: weights of the features (not multiplied by the denominator), shape (d,).
        facts: public facts; the lattice must be a box. The grid of thresholds is centred where, under a
            logistic model, both predictions have the same expected cost.

    Returns:
        cards of shape (k, d) in the lattice, and increasing intercepts of shape (k, t).
    """
    real = np.array(weights, dtype=np.float64)
    low, high = facts.lattice.low, facts.lattice.high
    if facts.intercept:
        for start, stop in facts.columns:
            if stop - start > 1:
                centre = float(np.mean(real[start:stop]))
                real[start:stop] -= centre
                real[-1] += centre
        real[-1] += math.log(facts.costs.false_negative / facts.costs.false_positive)
    real = few_columns(real, facts.spans, facts.max_columns, facts.point_constraints)
    real = constrained(real, facts.point_constraints, facts.intercept)
    features = slice(0, len(real) - facts.intercept)
    bound = np.where(real > 0, high, -low)[features]
    largest = int(np.max(np.maximum(high, -low)[features], initial=0))  # the number of cards is public
    # Declared bounds of a column clip its own points; they do not change the scale of the other columns.
    free = np.ones(len(bound), dtype=bool)
    for constraint in facts.point_constraints:
        free[constraint.start : constraint.stop] = constraint.points is None
    cards = []
    for cut in (1.0,) if largest > _FEW_POINTS else _CUTS:
        scale = cut * _fitting(np.abs(real[features])[free], bound[free])
        cards.append(np.clip(np.rint(np.clip(real * scale, -(2.0**50), 2.0**50)), low, high))
    found = np.array(cards).astype(np.int64)
    if not facts.intercept:
        return found, found[:, -1:]
    return found, np.stack([_ladder(card, facts) for card in found])


def _fitting(sizes: Floats, bounds: NDArray[np.int64]) -> float:
    """Return the largest scale at which every weight with a non-zero bound stays within it."""
    free = (bounds > 0) & (sizes > 0)
    return float(np.min(bounds[free] / sizes[free])) if np.any(free) else 1.0


def _ladder(card: IntArray, facts: CardFacts) -> IntArray:
    """Return evenly spaced intercepts around the card's own, within the lattice."""
    low, high = int(facts.lattice.low[-1]), int(facts.lattice.high[-1])
    sizes = np.abs(card)
    numbers = [feature for feature, _, _ in facts.lines]
    sizes[numbers] = np.minimum(sizes[numbers], _OF_A_NUMBER)
    points = sum(int(np.max(sizes[a:b])) for a, b in facts.columns)
    rungs = min(_RUNGS, high - low + 1)
    half = max(rungs // 2, round(_REACH * points))
    first = max(low, int(card[-1]) - half)
    last = min(high, first + 2 * half)
    first = min(first, last - rungs + 1)
    return np.floor(np.linspace(first, last, rungs) + 0.5).astype(np.int64)
