"""Rounding of a linear model's real weights to integer cards: post-processing, at no privacy cost."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.point_constraints import constrained, few_columns, forced_columns
from privopt.problems.discrete.lattice import IntArray

Floats = NDArray[np.float64]

# Number of thresholds per card, and two distances from the model's own threshold, as shares of the largest
# total of points: half of the thresholds are within the first distance, and all are within the second.
_THRESHOLDS, _NEAR, _FARTHEST = 61, 0.03, 0.5
# Largest number of points that one number adds to that total: if it has more, most records usually lie near
# one end of its range.
_POINTS_OF_A_NUMBER = 40
# Scales of the weights, in units of the largest without clipping; larger scales are tried where bounds are at
# most ``FEW_POINTS``.
FEW_POINTS, SCALES = 5, (1.0, 1.6, 2.5)
# Scales of the weights of several classes, in the same units.
_CLASS_SCALES = (1.0, 1.6, 2.5, 4.0, 6.3, 10.0)


def candidate_cards(weights: Floats, facts: CardFacts) -> tuple[IntArray, IntArray]:
    """Round a linear model to candidate cards, each with a grid of thresholds.

    With an intercept, the weights of a column's levels are centred first and the intercept absorbs the shift.
    If ``max_columns`` is set, the weights of the least important columns are set to 0. All weights are then
    scaled so that one weight meets its bound, and rounded. Where bounds are small, further cards use larger
    scales and clip at the bounds.

    Args:
        weights: weights of the features (not multiplied by the denominator), shape (d,).
        facts: public facts; the lattice must be a box. The grid of thresholds is centred at the threshold at
            which, under a logistic model, both predictions have the same expected cost.

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
    forced = forced_columns(facts.lattice, facts.spans)
    whole, real = real, few_columns(real, facts.spans, facts.max_columns, forced)
    real = constrained(real, facts.point_constraints, facts.intercept)
    if facts.intercept:
        real[-1] += lost_by_rounding(whole, real, facts)
    features = slice(0, len(real) - facts.intercept)
    bound = np.where(real > 0, high, -low)[features]
    largest = int(np.max(np.maximum(high, -low)[features], initial=0))  # public: it sets the number of cards
    # Declared bounds of a column clip its own points; they do not change the scale of the other columns.
    free = np.ones(len(bound), dtype=bool)
    for constraint in facts.point_constraints:
        free[constraint.start : constraint.stop] = constraint.points is None
    cards = []
    for factor in (1.0,) if largest > FEW_POINTS else SCALES:
        scale = factor * _largest_scale(np.abs(real[features])[free], bound[free])
        cards.append(rounded(real, scale, facts))
    found = np.array(cards)
    if not facts.intercept:
        return found, found[:, -1:]
    return found, np.stack([intercepts(card, facts) for card in found])


def class_points(weights: Floats, facts: CardFacts) -> IntArray:
    """Round the weights of several classes, shape (K, d), at one common scale, which keeps their order.

    What all classes share is subtracted, and the weights of a column's levels are centred; neither changes a
    difference of two scores. The facts must have an intercept.
    """
    real = centred_classes(weights, facts)
    return rounded(real, class_scale(real, facts), facts)


def centred_classes(weights: Floats, facts: CardFacts) -> Floats:
    """Return equivalent weights of classes: they sum to 0 over classes, and over the levels of a column."""
    real: Floats = weights - np.mean(weights, axis=0)
    for start, stop in facts.columns:
        if stop - start > 1:
            centre = np.mean(real[:, start:stop], axis=1)
            real[:, start:stop] -= centre[:, None]
            real[:, -1] += centre
    return real


def class_scale(real: Floats, facts: CardFacts) -> float:
    """Return the common scale of centred weights.

    The first candidate clips no weight; larger scales clip large weights at their bounds. The candidate with
    the smallest l1 rounding error is taken: at the first, a rare level with a large weight may leave all
    other levels no points.
    """
    bounds = np.where(real > 0, facts.lattice.high, -facts.lattice.low)
    first = _largest_scale(np.abs(real), bounds)
    most = max(first, _largest_scale(np.abs(real[:, -1:]), bounds[:, -1:]))  # clips no intercept
    scales = [min(factor * first, most) for factor in _CLASS_SCALES]
    return min(scales, key=lambda t: float(np.sum(np.abs(rounded(real, t, facts) / t - real))))


def rounded(real: Floats, scale: float, facts: CardFacts) -> IntArray:
    """Return the integer points within the bounds that are nearest to real ones, (..., d), times a scale."""
    low, high = facts.lattice.low, facts.lattice.high
    scaled = np.clip(real * scale, -(2.0**50), 2.0**50)
    points = np.clip(np.rint(scaled), low, high)
    if facts.intercept:
        base = scaled[..., -1] + lost_by_rounding(scaled, points, facts)
        points[..., -1] = np.clip(np.rint(base), low[-1], high[-1])
    return np.asarray(points, dtype=np.int64)


def lost_by_rounding(real: Floats, points: NDArray[Any], facts: CardFacts) -> Floats:
    """Return how much scores fall by rounding, at the value in each number's range that is nearest to 0.

    It is 0 for a number whose range contains 0. Where 0 is far away, as for a year, every record gets many
    times the number's points, and the intercept has to make up for the difference.
    """
    nearest = np.zeros(real.shape[-1])
    for feature, low, high in facts.lines:
        nearest[feature] = np.clip(0.0, low, high)
    return np.asarray((real - points) @ nearest)


def _largest_scale(sizes: Floats, bounds: NDArray[np.int64]) -> float:
    """Return the largest scale at which every weight with a non-zero bound stays within it."""
    free = (bounds > 0) & (sizes > 0)
    return float(np.min(bounds[free] / sizes[free])) if np.any(free) else 1.0


def intercepts(card: IntArray, facts: CardFacts) -> IntArray:
    """Return intercepts within the lattice around the card's intercept, increasing, some several times.

    They are quantiles of a Cauchy distribution, so that a uniform choice is usually close to the model: with
    a small budget the private choice is not far from uniform. If the lattice has fewer intercepts than there
    are quantiles, each is returned once.
    """
    low, high = int(facts.lattice.low[-1]), int(facts.lattice.high[-1])
    if high - low < _THRESHOLDS:
        return np.arange(low, high + 1, dtype=np.int64)
    sizes = np.abs(card)
    numbers = [feature for feature, _, _ in facts.lines]
    sizes[numbers] = np.minimum(sizes[numbers], _POINTS_OF_A_NUMBER)
    points = sum(int(np.max(sizes[a:b])) for a, b in facts.columns)
    levels = (np.arange(_THRESHOLDS) + 0.5) / _THRESHOLDS
    distances = np.clip(_NEAR * np.tan(math.pi * (levels - 0.5)), -_FARTHEST, _FARTHEST) * points
    return np.asarray(np.clip(card[-1] + np.rint(distances).astype(np.int64), low, high))
