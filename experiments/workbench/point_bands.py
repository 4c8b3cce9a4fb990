"""Bands of the points of a scorecard, from the posterior of the private linear model behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.estimators.card import Card, CardColumn
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.problems.tables.columns import Column, Numeric
from privopt.problems.tables.missing import plain_column

Floats = NDArray[np.float64]
_REACH = 1.96  # standard deviations of a normal law on each side, for 95%


class _Part(NamedTuple):
    """Features of one column: public facts, points, and the model's weights with their deviations."""

    column: Column
    points: Floats
    weights: Floats
    deviations: Floats
    is_free: NDArray[np.bool_]

    @property
    def number(self) -> Numeric | None:
        kind, _ = plain_column(self.column)
        return kind if isinstance(kind, Numeric) else None

    def spread(self, values: Floats) -> Floats:
        """Return values of indicators minus their mean; values of a number times its range."""
        if (number := self.number) is None:
            return values - np.mean(values) if len(values) > 1 else values
        low, high = map(float, number.ends)
        return np.asarray(values * np.array([high - low, *np.ones(len(values) - 1)]))


def point_bands(model: PrivateHalfspaceClassifier) -> dict[str, Floats]:
    """Return bounds of the points of each column of a fitted card, shape (levels, 2); empty if not known.

    Post-processing: costs no privacy. Points have no unit, and a constant added to all points of a column
    only moves the threshold. So the model is scaled to the card, and centred in each column: levels at the
    mean of their points, a number at the middle of its range.
    """
    card = model.card_
    if model.source_ is None or model.source_.deviations is None or not isinstance(card, Card):
        return {}
    parts = {part.column.name: part for part in _parts(model)}
    used = [parts[column.name] for column in card.columns]
    scale = _scale(used)
    if not scale > 0:
        return {}
    return {c.name: _band(c, parts[c.name], scale) for c in card.columns}


def _parts(model: PrivateHalfspaceClassifier) -> Iterator[_Part]:
    source, schema, points = model.source_, model.schema_, np.asarray(model.coef_[0], dtype=np.float64)
    assert source is not None
    assert source.deviations is not None
    is_free = (points > source.low) & (points < source.high)
    for column, (start, stop) in zip(schema.columns, schema.spans, strict=True):
        own = slice(start, stop)
        yield _Part(column, points[own], source.weights[own], source.deviations[own], is_free[own])


def _scale(parts: list[_Part]) -> float:
    """Return the points per unit of the model's weights, by least squares; clipped points are left out."""
    points, weights, is_free = (
        np.concatenate([np.zeros(0), *each])
        for each in (
            [part.spread(part.points) for part in parts],
            [part.spread(part.weights) for part in parts],
            [part.is_free for part in parts],
        )
    )
    kept = is_free.astype(bool)
    if not np.any(weights[kept]):
        kept = np.ones_like(kept)
    size = float(weights[kept] @ weights[kept])
    return float(points[kept] @ weights[kept]) / size if size > 0 else 0.0


def _band(shown: CardColumn, part: _Part, scale: float) -> Floats:
    """Return the band of a column by the rows of its shape; a level without a feature has none."""
    weights, reach = scale * part.weights, scale * _REACH * part.deviations
    rows = np.array([points for _, points in shown.rows], dtype=np.float64)
    number = part.number
    if number is None:
        k = len(weights)
        middle = np.concatenate([part.spread(weights) + np.mean(rows[:k]), rows[k:]])
        return _around(middle, np.concatenate([reach, np.zeros(len(rows) - k)]))
    # Where the number is missing: its own points, which a printed card may have shifted.
    missing = _around(weights[1:] + rows - part.points[1:], reach[1:])
    if shown.proportion is None:
        return missing
    low, high = map(float, number.ends)
    far = np.array([low - high, 0.0, high - low]) / 2
    (_, first), (_, last) = shown.proportion
    line = _around((first + last) / 2 + far * weights[0], np.abs(far) * reach[0])
    return np.concatenate([line, missing])


def _around(middle: Floats, reach: Floats) -> Floats:
    return np.stack([middle - reach, middle + reach], axis=1)
