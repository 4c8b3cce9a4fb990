"""Forecast of the widths of intervals of a private linear regression, from an assumed population.

No data are read: the moments that a fit would release, and their noise, follow from declared facts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.sufficient_statistics import Moments, SufficientStatistics
from privopt.mechanisms.estimators.bounded_linear import PrivateLinearRegression
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.estimators.labels import check_label_range
from privopt.mechanisms.estimators.prepared import Outline
from privopt.mechanisms.estimators.public_facts import declared_schema
from privopt.mechanisms.estimators.summaries import coefficients_of
from privopt.mechanisms.inference.assumed import LEAST_PLANNED_SIGNAL, AssumedLeastSquares
from privopt.mechanisms.inference.coefficients import INTERCEPT, Coefficients
from privopt.mechanisms.inference.interval import normal_quantile
from privopt.mechanisms.privacy.parameters import (
    check_count,
    check_epsilon,
    check_positive,
    smallest_count,
)
from privopt.problems.arguments import check_real, told
from privopt.problems.errors import InvalidInputError, did_you_mean
from privopt.problems.tables.columns import Column
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]
# The distribution of a number is computed on at most this many of its grid points, evenly spread.
_GRID = 1001
# Searches for records and epsilon end here.
_MOST_RECORDS, _MOST_EPSILON = 10**9, 100.0


class Width(NamedTuple):
    """The expected width of an interval, its width without privacy, and the noise's share of the variance."""

    width: float
    not_private: float
    noise_share: float


@dataclass(frozen=True)
class ExpectedIntervals:
    """Forecast of the widths of intervals of ``PrivateLinearRegression.summary``; no data are read.

    Assumptions: columns are independent; all levels, and all numbers in the declared ranges, are equally
    frequent; labels have the same variance everywhere around the linear model of ``weights``. Intervals are
    wider for columns that are correlated or concentrated in a part of their range; for such columns give a
    public ``table``.

    Args:
        schema: a ``Schema``, a dict, or a path.
        label_range: (low, high), as for the fit.
        residual_sd: the assumed standard deviation of labels around the linear model.
        table: a *public* table whose columns have about the distribution that the records will have. None:
            the assumptions above.
        weights: assumed coefficients by name, per unit of the column; others are 0. If the intercept is not
            given, it is chosen so that the mean label is the middle of the range.
        confidence: of each interval, in [0.5, 1).
        delta: in (0, 1), or "auto" for 1/n^2.
    """

    schema: Schema | dict[str, Any] | str | Path
    label_range: tuple[float, float]
    residual_sd: float
    table: Any = None
    weights: Mapping[str, float] | None = None
    confidence: float = 0.95
    delta: float | str = "auto"

    def __post_init__(self) -> None:
        low, high = check_label_range(self.label_range)
        normal_quantile(self.confidence)
        if check_positive(self.residual_sd, "residual_sd") > (high - low) / 2:
            raise InvalidInputError(
                f"residual_sd = {self.residual_sd:g} is more than half of the label range, the most that "
                f"labels within it can have: {(high - low) / 2:g}"
            )
        for name in self.weights or {}:
            self.check_name(name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the coefficients, the intercept last."""
        found, _ = self._coefficients(self._model(1.0), 2)
        return (*found.names, INTERCEPT)

    def widths(self, records: int, epsilon: float) -> dict[str, Width]:
        """Return the expected width of each coefficient's interval, per unit of its column.

        Raises:
            InvalidInputError: too few records, or too small an epsilon, for a forecast.
        """
        inference, found = self._inference(_planned_count(records), check_epsilon(epsilon))
        signal = inference.signal_to_noise
        if signal < LEAST_PLANNED_SIGNAL:
            raise InvalidInputError(
                f"these intervals cannot be planned: the smallest eigenvalue of the assumed moments is "
                f"{signal:.2g} times the noise, and a plan needs {LEAST_PLANNED_SIGNAL:g}. To do: more "
                "records, a larger epsilon, or fewer columns"
            )
        return self._widths(inference, found)

    def _widths(self, inference: AssumedLeastSquares, found: Coefficients) -> dict[str, Width]:
        names, C, _ = found.contrasts(inference.constant)
        bounds = inference.bounds(C, normal_quantile(self.confidence))
        plain = self._plain_widths(inference, C)
        rows = zip(names, bounds.high - bounds.low, plain, bounds.noise_share, strict=True)
        return {name: Width(*map(float, numbers)) for name, *numbers in rows}

    def records(self, width: float, epsilon: float, coefficient: str | None = None) -> int:
        """Return the least number of records at which a coefficient's interval is at most ``width`` wide.

        Args:
            width: high - low, per unit of the column.
            epsilon: budget of the fit.
            coefficient: its name; None: all coefficients but the intercept must be as narrow.

        Raises:
            InvalidInputError: more than a billion records would be needed.
        """
        wanted = self._checked(width, coefficient)
        check_epsilon(epsilon)
        if not self._narrow(_MOST_RECORDS, epsilon, wanted, coefficient):
            raise InvalidInputError(
                f"a width of {width:g} needs more than {_MOST_RECORDS:,} records at this epsilon"
            )
        return smallest_count(lambda n: self._narrow(n, epsilon, wanted, coefficient), _MOST_RECORDS)

    def epsilon(self, width: float, records: int, coefficient: str | None = None) -> float:
        """Return the least epsilon at which a coefficient's interval is at most ``width`` wide.

        It is at least 0.001, and exact up to a factor of 1.001.

        Raises:
            InvalidInputError: the interval is wider even without privacy, or even at epsilon = 100.
        """
        wanted, n = self._checked(width, coefficient), _planned_count(records)
        low, high = 1e-3, _MOST_EPSILON
        if not self._narrow(n, high, wanted, coefficient):
            plain = self._plain_width(n, coefficient)
            reason = (
                f"it is {plain:.4g} without privacy" if plain > width else f"epsilon {high:g} is not enough"
            )
            raise InvalidInputError(
                f"a width of {width:g} is out of reach of {n:,} records at any epsilon: {reason}. To do: "
                "more records, or a wider interval"
            )
        while high > 1.001 * low:
            middle = math.sqrt(low * high)
            narrow = self._narrow(n, middle, wanted, coefficient)
            low, high = (low, middle) if narrow else (middle, high)
        return high

    def _checked(self, width: float, coefficient: str | None) -> float:
        if coefficient is not None:
            self.check_name(coefficient)
        return check_positive(check_real(width, "width"), "width")

    def check_name(self, name: str) -> None:
        """Check that a coefficient has this name.

        Raises:
            InvalidInputError: no coefficient has this name.
        """
        if name not in self.names:
            raise InvalidInputError(
                f"no coefficient {told(name)}{did_you_mean(name, list(self.names))}: there are "
                f"{', '.join(self.names)}"
            )

    def _narrow(self, n: int, epsilon: float, width: float, coefficient: str | None) -> bool:
        """Return whether widths can be forecast, and are at most ``width``."""
        if n < 2:
            return False
        inference, found = self._inference(n, epsilon)
        if inference.signal_to_noise < LEAST_PLANNED_SIGNAL:
            return False
        return self._widest(self._widths(inference, found), coefficient).width <= width

    def _plain_widths(self, inference: AssumedLeastSquares, C: Floats) -> Floats:
        """Return the widths, without privacy, of the intervals of the coefficients C theta."""
        half = normal_quantile(self.confidence) * self.residual_sd / math.sqrt(inference.n_records)
        inverse = np.linalg.inv(inference.moments.features)
        return np.asarray(2 * half * np.sqrt(np.sum(C * (C @ inverse), axis=1)))

    def _plain_width(self, n: int, coefficient: str | None) -> float:
        """Return the width without privacy: of a coefficient, or the largest of all but the intercept."""
        inference, found = self._inference(n, _MOST_EPSILON)
        names, C, _ = found.contrasts(inference.constant)
        plain = (Width(float(w), float(w), 0.0) for w in self._plain_widths(inference, C))
        return self._widest(dict(zip(names, plain, strict=True)), coefficient).width

    @staticmethod
    def _widest(widths: Mapping[str, Width], coefficient: str | None) -> Width:
        if coefficient is not None:
            return widths[coefficient]
        return max(width for name, width in widths.items() if name != INTERCEPT)

    def _model(self, epsilon: float) -> PrivateLinearRegression:
        return PrivateLinearRegression(
            epsilon, delta=self.delta, schema=self._declared, label_range=self.label_range
        )

    def _coefficients(self, model: PrivateLinearRegression, n: int) -> tuple[Coefficients, Outline]:
        schema = self._declared
        middle, bound = model._public_norm(None, schema)
        targets = model._declared_targets()
        seen = Outline(n, 1, None, targets, schema.n_features, (), middle, bound)
        return coefficients_of(schema, seen, schema.n_features - schema.intercept), seen

    def _inference(self, n: int, epsilon: float) -> tuple[AssumedLeastSquares, Coefficients]:
        """Return the inference from the assumed moments, with the noise that the fit would add."""
        model, schema = self._model(epsilon), self._declared
        found, seen = self._coefficients(model, n)
        weights = model._class_weights(seen.targets, epsilon)
        choice = model._choice(seen, schema, weights)
        plan = model._planned(choice, seen, schema, weights.rest, weights.expected)
        if not isinstance(plan, SufficientStatistics):
            raise InvalidInputError(f"{plan.name}, which would fit these columns, has no intervals")
        assert seen.middle is not None
        mean, covariance = self._distribution
        kept = list(found.features)
        z = np.append((mean - seen.middle[: len(mean)])[kept], plan.offset)
        A = np.outer(z, z)
        A[:-1, :-1] += covariance[np.ix_(kept, kept)]
        theta = self._theta(found, z)
        variance = self.residual_sd**2
        assumed = Moments(A, A @ theta, float(theta @ A @ theta) + variance)
        moments = plan.stated_moments(assumed, plan.vector_noise.sigma)
        assert moments is not None
        return AssumedLeastSquares(moments, variance), found

    def _theta(self, found: Coefficients, mean: Floats) -> Floats:
        """Return the assumed weights, in the coordinates of the moments.

        ``mean`` is the mean of the features; its last entry is the constant feature.
        """
        weights = self.weights or {}
        names, C, added = found.contrasts(float(mean[-1]))
        theta = np.linalg.solve(C, [weights.get(name, 0.0) for name in names] - added)
        if INTERCEPT not in weights:
            theta[-1] = -float(theta[:-1] @ mean[:-1]) / mean[-1]
        return np.asarray(theta)

    @cached_property
    def _declared(self) -> Schema:
        return declared_schema(self.schema)

    @cached_property
    def _distribution(self) -> tuple[Floats, Floats]:
        """Mean and covariance of the features, without the constant feature."""
        schema = self._declared
        if self.table is not None:
            features = encoded(schema, self.table)[:, : schema.n_features - schema.intercept]
            return features.mean(axis=0), np.cov(features.T, bias=True).reshape(2 * features.shape[1:])
        d = schema.n_features - schema.intercept
        mean, covariance = np.zeros(d), np.zeros((d, d))
        for (start, stop), column in zip(schema.spans, schema.columns, strict=True):
            values = _all_values(column)
            mean[start:stop] = values.mean(axis=0)
            covariance[start:stop, start:stop] = np.cov(values.T, bias=True)
        return mean, covariance


def _all_values(column: Column) -> Floats:
    """Return the features of all codes of a column, or of ``_GRID`` evenly spread codes if there are more."""
    codes = np.unique(np.linspace(0, column.n_codes - 1, _GRID).astype(np.int64))
    features = Schema([column]).features([codes])
    return np.asarray(features.X / features.denominator, dtype=np.float64)


def _planned_count(records: int) -> int:
    """Return the number of records, unless it is too large for doubles to hold the noise of the moments."""
    n = check_count(records, "records")
    if n > _MOST_RECORDS:
        raise InvalidInputError(
            f"intervals are planned for up to {_MOST_RECORDS:,} records, got {n:,}; more make none wider"
        )
    return n
