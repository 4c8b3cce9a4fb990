"""Shapes of linear models and scorecards: the contribution of each column as a function of its level."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from privopt.experiments.workbench.point_bands import point_bands
from privopt.mechanisms.errors import NoIntervalError
from privopt.mechanisms.estimators.additive import PrivateAdditiveTreeClassifier
from privopt.mechanisms.estimators.card import Card, CardColumn, card_column, number
from privopt.mechanisms.estimators.class_card import ClassCard, ClassColumn
from privopt.mechanisms.estimators.linear_model import PrivateLinearModel
from privopt.mechanisms.estimators.linear_predictors import LinearClassifier, Probabilities
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators.summaries import Summarised
from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Column, Numeric
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]
_BAND = "Band: the 95% range of the noise for privacy, around the unshrunk estimates of a summary."
_BAND_OF_POINTS = (
    "Band: the range of points, relative to each other, that has a probability of about 95% given the noise "
    "for privacy and the sampling of the records; from the posterior of the private linear model, before a "
    "card was drawn from it."
)

Shaped = PrivateLinearModel | PrivateHalfspaceClassifier | PrivateAdditiveTreeClassifier | Card | ClassCard


@dataclass(frozen=True, eq=False)
class Shape:
    """Contribution of one column.

    Attributes:
        title: the name of the column for people.
        levels: names of levels; for a number first its low end, its middle (unnamed) and its high end.
        is_line: whether the first three levels are points of a line.
        values: shape (levels, series).
        band: bounds, shape (levels, 2), by the noise for privacy, or of points by noise and records; None if
            not known.
    """

    title: str
    levels: tuple[str, ...]
    is_line: bool
    values: Floats
    band: Floats | None = None

    @property
    def spread(self) -> float:
        """The largest difference between two levels, over all series."""
        return float(np.max(np.ptp(self.values, axis=0)))


@dataclass(frozen=True)
class Shapes:
    """Contributions of all columns, the widest spread first.

    Attributes:
        shapes: one for each column that contributes.
        unit: the unit of contributions.
        series: names of the classes, if there are more than two; otherwise empty.
        is_card: whether contributions are points.
        notes: sentences on zero, the band, and columns without a contribution.
    """

    shapes: tuple[Shape, ...]
    unit: str
    series: tuple[str, ...]
    is_card: bool
    notes: tuple[str, ...]

    @property
    def description(self) -> str:
        """The text alternative of the picture: the range of each column's contribution."""
        ranges = (
            f"{shape.title} {number(np.min(shape.values))} to {number(np.max(shape.values))}"
            for shape in self.shapes
        )
        return (
            f"{self.unit[0].upper()}{self.unit[1:]} by column, the widest spread first: {'; '.join(ranges)}."
        )


def shapes_of(model: Shaped) -> Shapes:
    """Return the contribution of each declared column of a fitted model, or the points of a card.

    Post-processing: costs no privacy. A linear model has contributions to its predictions, relative to the
    middle of numbers and the mean of levels. The contributions of a card and a tree are the card's points.

    Raises:
        InvalidInputError: another kind of model, a linear one without a schema, or no contributions.
    """
    if isinstance(model, PrivateAdditiveTreeClassifier):
        check_is_fitted(model)
        found = shapes_of(model.scorecard_model_)
        tree = f"The tree adds or subtracts {number(1 / model.card_.unit)} points more."
        return replace(found, notes=(*found.notes, tree))
    if isinstance(model, PrivateHalfspaceClassifier):
        check_is_fitted(model)
        bands = point_bands(model)
        return _of_card(model.card_, bands, _BAND_OF_POINTS if bands else _without_band(model))
    if isinstance(model, Card | ClassCard):
        return _of_card(model, {}, "No band: a card by itself does not hold the noise of its points.")
    if not isinstance(model, PrivateLinearModel):
        raise InvalidInputError(f"shapes are of linear models and scorecards, got {told(model)}")
    check_is_fitted(model)
    if model.schema_ is None:
        raise InvalidInputError(
            "this model was fitted without a schema, so that the levels and bounds of its columns are not "
            "known. To do: fit it with schema=, or --schema"
        )
    return _of_linear(model, model.schema_)


def _of_card(card: Card | ClassCard, bands: dict[str, Floats], note: str) -> Shapes:
    series = card.names if isinstance(card, ClassCard) else ()
    found = [_of_points(column, bands.get(column.name)) for column in card.columns]
    return _sorted(found, "points", series, True, (note,), card.unused)


def _without_band(model: PrivateHalfspaceClassifier) -> str:
    """Say why the points of a card have no band."""
    if model.source_ is None:
        return f"No band: the mechanism {model.mechanism_} drew the card itself, with no model behind it."
    if len(model.classes_) > 2:
        return "No band: the spread of points of several classes is not known."
    return "No band: the spread of the private linear model behind the points is not known."


def _of_points(column: CardColumn | ClassColumn, band: Floats | None = None) -> Shape:
    """Return the shape of a card's column, as printed."""
    names = [level for level, _ in column.rows]
    points = [np.atleast_1d(values) for _, values in column.rows]
    if column.proportion is not None:
        (low, first), (high, last) = column.proportion
        ends = np.atleast_1d(first), np.atleast_1d(last)
        names, points = [low, "", high, *names], [ends[0], (ends[0] + ends[1]) / 2, ends[1], *points]
    values = np.array(points, dtype=np.float64)
    return Shape(column.shown, tuple(names), column.proportion is not None, values, band)


def _of_linear(model: PrivateLinearModel, schema: Schema) -> Shapes:
    weights, noise = np.atleast_2d(model.coef_), _noise(model)
    found, unused = [], []
    for column, (start, stop) in zip(schema.columns, schema.spans, strict=True):
        names, is_line, levels = _encoded_levels(column)
        values = levels @ weights[:, start:stop].T
        title = schema.titles[column.name]
        if not np.any(values):
            unused.append(title)
            continue
        band = None if noise is None else _band(noise, schema, start, levels)
        found.append(Shape(title, names, is_line, values, band))
    zero = "0: the middle of numbers, the mean of levels."
    hidden = (
        "No band: the noise hides the model."
        if _has_inference(model)
        else "No band: the noise in these coefficients is not known."
    )
    if noise is not None:
        missing = [shape.title for shape in found if shape.band is None]
        hidden = f"{_BAND} Unbounded, not drawn: {', '.join(missing)}." if missing else _BAND
    unit, series = _unit(model)
    return _sorted(found, unit, series, False, (zero, hidden), unused)


def _sorted(
    found: list[Shape],
    unit: str,
    series: tuple[str, ...],
    is_card: bool,
    notes: tuple[str, ...],
    unused: Iterable[str],
) -> Shapes:
    if not found:
        raise InvalidInputError(f"no column of this model contributes {unit}: there is nothing to draw")
    if left_out := ", ".join(unused):
        notes = (*notes, f"No contribution: {left_out}.")
    shapes = sorted(found, key=lambda shape: -shape.spread)  # stable: ties in the order of the schema
    return Shapes(tuple(shapes), unit, series, is_card, notes)


def _encoded_levels(column: Column) -> tuple[tuple[str, ...], bool, Floats]:
    """Return names of levels, whether they are of a line, and their features from the middle or the mean."""
    size = len(column.feature_names)
    shown, (kind, _) = card_column(column, [1] * size), plain_column(column)
    names = tuple(level for level, _ in shown.rows)
    if not isinstance(kind, Numeric) or shown.proportion is None:
        levels = np.eye(len(names), size)  # any other level has no feature
        return names, False, levels - np.mean(levels, axis=0)
    low, high = map(float, kind.ends)
    levels = np.zeros((3 + len(names), size))
    levels[:3, 0] = low, (low + high) / 2, high
    levels[3:, 1:] = np.eye(len(names), size - 1)
    (first, _), (last, _) = shown.proportion
    return (first, "", last, *names), True, levels - levels[1]


def _has_inference(model: PrivateLinearModel) -> bool:
    return isinstance(model, Summarised) and model.inference_ is not None


def _noise(model: PrivateLinearModel) -> Summarised | None:
    """Return the model if the noise in its coefficients is known, and does not hide them."""
    if not isinstance(model, Summarised) or not _has_inference(model):
        return None
    try:
        model.summary()
    except NoIntervalError:
        return None
    return model


def _band(model: Summarised, schema: Schema, start: int, levels: Floats) -> Floats | None:
    """Return the part of 95% intervals that is noise for privacy, shape (levels, 2); None without bounds."""
    assert model.coefficients_ is not None
    names, numbers = schema.feature_names, schema.numbers
    band = np.zeros((len(levels), 2))
    for row, level in enumerate(levels):
        weights = {}
        for j, weight in enumerate(level, start):
            unit = float(numbers[j].one - numbers[j].zero) if j in numbers else 1.0
            if weight and names[j] not in model.coefficients_.references:
                weights[names[j]] = float(weight) * unit
        if weights:  # otherwise the middle of numbers, which is 0
            one = model.combination(weights)
            share = math.sqrt(one.noise_share)
            band[row] = [one.estimate + share * (bound - one.estimate) for bound in (one.low, one.high)]
    return band if np.all(np.isfinite(band)) else None


def _unit(model: PrivateLinearModel) -> tuple[str, tuple[str, ...]]:
    """Return the unit of contributions, and the classes if each class has separate contributions."""
    if not isinstance(model, LinearClassifier):
        return "contribution to the predicted label", ()
    scale = "log odds" if isinstance(model, Probabilities) else "score"
    classes = [str(label) for label in model.classes_]
    if len(classes) > 2:
        return f"contribution to the {'score' if model.multinomial_ else scale} of each class", tuple(classes)
    return f"contribution to the {scale} of {classes[1]} against {classes[0]}", ()
