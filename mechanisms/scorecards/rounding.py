"""Integer cards from the real weights of a linear model: post-processing, so free."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.wishes import few_columns, granted
from privopt.problems.discrete.lattice import IntArray

Floats = NDArray[np.float64]

# Rungs of a ladder, and how far it reaches, in units of the points that a record can collect.
_RUNGS, _REACH = 61, 0.5
# Points of a number that count for that: with more of them records mostly lie near one end of its range.
_OF_A_NUMBER = 40
# Where so few points cannot tell weights apart, larger weights are cut off at the bound in some cards.
_FEW_POINTS, _CUTS = 5, (1.0, 1.6, 2.5)


def candidate_cards(weights: Floats, facts: CardFacts) -> tuple[IntArray, IntArray]:
    """Cards that resemble a linear model, and a ladder of thresholds for each.

    Points of a column's levels are centred where there is an intercept to take up the difference, then all
    are scaled so that the largest meets its bound, and rounded. With few points to give there are cards in
    which the largest are cut off. Where not all columns may have points, the weakest go without first.

    Args:
        weights: of the features (not multiplied by the denominator), shape (d,).
        facts: their lattice must be a box. The middle of a ladder is where the probability of yes, as a
            logistic model has it, makes both answers cost the same.

    Returns:
        cards of shape (k, d) in the lattice, and weights of the intercept, increasing, shape (k, t).
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
    real = few_columns(real, facts.spans, facts.max_columns, facts.wishes)
    real = granted(real, facts.wishes, facts.intercept)
    features = slice(0, len(real) - facts.intercept)
    bound = np.where(real > 0, high, -low)[features]
    largest = int(np.max(np.maximum(high, -low)[features], initial=0))  # how many cards there are is public
    # Bounds that a column wishes for cut its points off, and do not scale those of the others.
    free = np.ones(len(bound), dtype=bool)
    for wish in facts.wishes:
        free[wish.start : wish.stop] = wish.points is None
    cards = []
    for cut in (1.0,) if largest > _FEW_POINTS else _CUTS:
        scale = cut * _fitting(np.abs(real[features])[free], bound[free])
        cards.append(np.clip(np.rint(np.clip(real * scale, -(2.0**50), 2.0**50)), low, high))
    found = np.array(cards).astype(np.int64)
    if not facts.intercept:
        return found, found[:, -1:]
    return found, np.stack([_ladder(card, facts) for card in found])


def _fitting(sizes: Floats, bounds: NDArray[np.int64]) -> float:
    """The largest scale at which every weight that may be other than 0 stays within its bound."""
    free = (bounds > 0) & (sizes > 0)
    return float(np.min(bounds[free] / sizes[free])) if np.any(free) else 1.0


def _ladder(card: IntArray, facts: CardFacts) -> IntArray:
    """Weights of the intercept around a card's own, evenly spaced, within the lattice."""
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
