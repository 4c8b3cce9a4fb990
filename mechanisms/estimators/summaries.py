"""Confidence intervals of linear estimators: for coefficients, linear combinations and mean predictions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.bounded_fit import BoundedFit
from privopt.mechanisms.estimators.prepared import Outline
from privopt.mechanisms.inference.coefficients import Coefficients
from privopt.mechanisms.inference.interface import LinearInference
from privopt.mechanisms.inference.interval import Interval, Summary, normal_quantile
from privopt.mechanisms.risk.mechanism import RealRelease
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]


def coefficients_of(schema: Schema | None, seen: Outline, features: int) -> Coefficients:
    """Return the coefficients of the first ``features`` encoded features, per unit of their columns.

    If rows are centred, the first level of a column whose level features sum to 1 is the reference level: it
    has no coefficient, as the model has a constant and the coefficients would not be determined.
    """
    if schema is None:
        names = seen.names or tuple(f"x{j}" for j in range(features))
        ones = (1.0,) * features
        return Coefficients(
            names,
            tuple(range(features)),
            (0.0,) * features,
            (0.0,) * features,
            ones,
            centre=seen.targets.centre,
        )
    left_out = references(schema) if seen.middle is not None else []
    kept = [j for j in range(features) if j not in left_out]
    middle = np.zeros(schema.n_features) if seen.middle is None else seen.middle
    numbers = schema.numbers
    return Coefficients(
        names=tuple(schema.feature_names[j] for j in kept),
        features=tuple(kept),
        middle=tuple(float(middle[j]) for j in kept),
        zeros=tuple(float(numbers[j].zero) if j in numbers else 0.0 for j in kept),
        units=tuple(float(numbers[j].one - numbers[j].zero) if j in numbers else 1.0 for j in kept),
        centre=seen.targets.centre,
        references=tuple(schema.feature_names[j] for j in left_out),
    )


def references(schema: Schema) -> list[int]:
    """Return the first feature of each column whose features are levels that sum to 1 for every record."""
    columns = zip(schema.spans, schema.columns, strict=True)
    return [
        start
        for (start, stop), column in columns
        if start not in schema.numbers and column.n_codes == stop - start
    ]


def spanned(
    schema: Schema | None, middle: Floats | None, found: Coefficients, inference: LinearInference
) -> Floats:
    """Return a matrix, shape (kept, features), that expresses all features by the features with coefficients.

    The feature of a reference level is 1 minus the features of the other levels of its column. The constant
    feature, if any, comes last.
    """
    kept, constant, p = found.features, inference.constant, inference.dimension
    rows = np.zeros((len(kept) + bool(constant), p))
    rows[np.arange(len(kept)), list(kept)] = 1.0
    if constant:
        rows[-1, -1] = 1.0
    for start, stop in [] if schema is None else schema.spans:
        if start < p and start not in kept and middle is not None:
            rows[[kept.index(j) for j in range(start + 1, stop)], start] = -1.0
            rows[-1, start] = (1 - float(np.sum(middle[start:stop]))) / (constant or 1.0)
    return rows


class Summarised(BoundedFit):
    """Base class of linear estimators with confidence intervals.

    Attributes:
        inference_: the released numbers from which intervals are computed; None if the fit released none.
        coefficients_: the coefficients that have intervals.
    """

    inference_: LinearInference | None = None
    coefficients_: Coefficients | None = None

    @property
    @abstractmethod
    def _about(self) -> str:
        """A sentence that says what the intervals are about."""

    @property
    @abstractmethod
    def _no_intervals(self) -> str:
        """The advice in the error of a model without intervals."""

    def summary(self, confidence: float = 0.95) -> Summary:
        """Return all coefficients, per unit of their columns, with confidence intervals.

        This costs no privacy. The estimates differ from ``coef_``, which is shrunk: shrinkage would bias the
        intervals.

        Args:
            confidence: of each single interval, in [0.5, 1).

        Raises:
            NoIntervalError: the noise hides the model.
            InvalidInputError: the fit released no numbers from which intervals can be computed.
        """
        inference, coefficients = self._inference()
        z = normal_quantile(confidence)
        names, C, added = coefficients.contrasts(inference.constant)
        found = inference.bounds(C, z)
        rows = zip(
            names,
            added + found.estimate,
            added + found.low,
            added + found.high,
            found.noise_share,
            strict=True,
        )
        return Summary(
            tuple(Interval(name, *map(float, numbers)) for name, *numbers in rows),
            confidence,
            inference.n_records,
            inference.signal_to_noise,
            coefficients.references,
            self._about,
        )

    def intervals(self, confidence: float = 0.95) -> Floats:
        """Return the bounds of the intervals in ``summary``, shape (coefficients, 2)."""
        return np.array([[i.low, i.high] for i in self.summary(confidence)])

    def combination(self, weights: Mapping[str, float], confidence: float = 0.95) -> Interval:
        """Return a linear combination of coefficients with its interval.

        Args:
            weights: the weights of coefficients by their names in ``summary``: {"age": 10, "sex=male": 1}.
            confidence: in [0.5, 1).

        Raises:
            NoIntervalError, InvalidInputError: as ``summary``; or an unknown name.
        """
        inference, coefficients = self._inference()
        z = normal_quantile(confidence)
        row, added = coefficients.combination(weights, inference.constant)
        found = inference.bounds(row[None, :], z)
        name = " + ".join(f"{weight:g} {name}" for name, weight in weights.items())
        estimate, low, high = (added + float(part[0]) for part in found[:3])
        return Interval(name, estimate, low, high, float(found.noise_share[0]))

    def mean_intervals(self, X: Any, confidence: float = 0.95) -> Floats:
        """Return confidence intervals of the scores of records, shape (n, 2).

        They are intervals of the mean label of records like these, not of single labels.

        Raises:
            NoIntervalError, InvalidInputError: as ``summary``; or unusable records.
        """
        inference, coefficients = self._inference()
        z = normal_quantile(confidence)
        features: Any = self._features(X)
        if hasattr(features, "toarray"):  # a sparse matrix
            features = features.toarray()
        found = inference.bounds(
            coefficients.rows(np.asarray(features, dtype=np.float64), inference.constant), z
        )
        return coefficients.centre + np.column_stack([found.low, found.high])

    def _inference(self) -> tuple[LinearInference, Coefficients]:
        check_is_fitted(self)
        if self.inference_ is None and self.spend_.unit == "person":
            raise InvalidInputError(
                "this model has no intervals: they assume independent records, and those of the same person "
                "are not. To do: records_per_person=1, if the mechanism has intervals"
            )
        if self.inference_ is None or self.coefficients_ is None:
            raise InvalidInputError(f"this model has no intervals: {self._no_intervals}")
        return self.inference_, self.coefficients_

    def _keep_inference(self, releases: list[RealRelease], seen: Outline, schema: Schema | None) -> None:
        inference = self._released_inference(releases)
        self.inference_ = self.coefficients_ = None
        if inference is None:
            return
        found = coefficients_of(schema, seen, inference.dimension - bool(inference.constant))
        kept = np.array(found.features, dtype=np.int64)
        if inference.constant:
            kept = np.append(kept, inference.dimension - 1)
        combined = spanned(schema, seen.middle, found, inference)
        self.inference_, self.coefficients_ = inference.only(kept, combined), found

    @abstractmethod
    def _released_inference(self, releases: list[RealRelease]) -> LinearInference | None:
        """Return the numbers from which intervals are computed; None if none were released."""

    @classmethod
    @abstractmethod
    def _saved_inference(cls, record: Mapping[str, Any]) -> LinearInference:
        """Read the inference of a saved model."""

    @classmethod
    def _restored(cls, model: Mapping[str, Any]) -> Self:
        fitted = super()._restored(model)
        if "inference" in model:  # files of earlier versions have none
            record = model["inference"]
            inference, found = cls._saved_inference(record), Coefficients.from_dict(record["coefficients"])
            if inference.dimension != len(found.names) + bool(inference.constant):
                raise InvalidInputError("coefficients and their inference do not fit together")
            fitted.inference_, fitted.coefficients_ = inference, found
        return fitted

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary that ``save`` writes."""
        found = super().to_dict()
        if self.inference_ is not None and self.coefficients_ is not None:
            found["inference"] = {**self.inference_.to_dict(), "coefficients": self.coefficients_.to_dict()}
        return found
