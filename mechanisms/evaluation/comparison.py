"""Differences between two models on the same records, computed from one release (post-processing)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from privopt.mechanisms.evaluation.intervals import (
    Estimate,
    Intervals,
    Target,
    check_interval,
    html_estimates,
    mean_of,
)
from privopt.mechanisms.evaluation.leaves import LeafHistogram
from privopt.mechanisms.evaluation.paired_residuals import PAIRED_BLOCKS
from privopt.mechanisms.evaluation.regression import mean_of_sums, number, scaled, text_of_estimate
from privopt.mechanisms.evaluation.residuals import NoisySums, check_width
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arguments import check_real
from privopt.problems.errors import InvalidInputError
from privopt.problems.notebooks import text_of

# Which model is right, by row of the histogram: neither, only the second, only the first, both.
FIRST_RIGHT = np.array([False, False, True, True])
SECOND_RIGHT = np.array([False, True, False, True])


@dataclass(frozen=True, eq=False)
class Comparison(ABC):
    """A released comparison of two models: differences, first minus second, with intervals.

    Each single interval includes the noise and holds with probability ``confidence``. Intervals are paired:
    records on which the models agree do not widen them.

    Attributes:
        target: what the differences are about: "population", from which the records are independent draws, or
            "table", the records at hand.
        confidence: of each interval.
    """

    target: Target
    confidence: float

    @property
    @abstractmethod
    def spend(self) -> PrivacySpend:
        """The privacy spend of the release."""

    @property
    @abstractmethod
    def metrics(self) -> dict[str, Estimate]:
        """Estimates by name."""

    def __str__(self) -> str:
        shown = {name: text_of_estimate(found) for name, found in self.metrics.items()}
        return text_of({**shown, "spend": self.spend})

    def _repr_html_(self) -> str:
        """Return a table of the differences for notebooks."""
        title = f"Private comparison, first minus second ({self.spend})"
        return html_estimates(title, self.metrics, self.confidence, number)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {
            **self.spend.to_dict(),
            "target": self.target,
            "confidence": self.confidence,
            "metrics": {name: estimate.to_dict() for name, estimate in self.metrics.items()},
            **self._released(),
        }

    @abstractmethod
    def _released(self) -> Mapping[str, Any]:
        """Return the release for JSON, with what else ``from_dict`` needs except target and confidence."""

    @classmethod
    @abstractmethod
    def _read(cls, record: Mapping[str, Any]) -> Self:
        """Return the comparison of a record of this kind."""

    @staticmethod
    def from_dict(record: Mapping[str, Any]) -> Comparison:
        """Return the comparison, of either kind, of a record from ``to_dict``.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: the record is not from ``to_dict``.
        """
        check_interval(record["target"], record["confidence"])
        kind = ClassComparison if "histogram" in record else RegressionComparison
        return kind._read(record)


@dataclass(frozen=True, eq=False)
class ClassComparison(Comparison):
    """A comparison of two classifiers.

    Attributes:
        histogram: the release: counts of records by which models are right (``FIRST_RIGHT``,
            ``SECOND_RIGHT``) and by true class.
        classes: the labels.
    """

    histogram: LeafHistogram
    classes: tuple[Any, ...]

    @property
    def spend(self) -> PrivacySpend:
        return self.histogram.spend

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Differences of accuracy, balanced accuracy and recalls, and the accuracy of each model."""
        about = Intervals(self.histogram, self.target, self.confidence)
        shape = self.histogram.counts.shape
        gain = FIRST_RIGHT.astype(np.float64) - SECOND_RIGHT
        values = np.broadcast_to(gain[:, None], shape)
        recalls = []
        for k in range(len(self.classes)):
            cells = np.zeros(shape, dtype=bool)
            cells[:, k] = True
            recalls.append(about.mean_among(values, cells))
        first, second = (np.broadcast_to(r[:, None], shape) for r in (FIRST_RIGHT, SECOND_RIGHT))
        return {
            "difference of accuracy": about.mean_among(values, np.ones(shape, dtype=bool)),
            "difference of balanced accuracy": mean_of(recalls, least=-1.0),
            **{f"difference of recall of {c}": r for c, r in zip(self.classes, recalls, strict=True)},
            "accuracy of the first": about.share(first, ~first),
            "accuracy of the second": about.share(second, ~second),
        }

    def _released(self) -> Mapping[str, Any]:
        return {"classes": list(self.classes), "histogram": self.histogram.to_dict()}

    @classmethod
    def _read(cls, record: Mapping[str, Any]) -> Self:
        classes = _labels(record["classes"])
        histogram = LeafHistogram.from_dict(record["histogram"], len(FIRST_RIGHT), len(classes))
        return cls(record["target"], record["confidence"], histogram, classes)


@dataclass(frozen=True, eq=False)
class RegressionComparison(Comparison):
    """A comparison of two regressions, on labels and predictions clipped to ``label_range``.

    Attributes:
        sums: the release.
        label_range: (low, high).
    """

    sums: NoisySums
    label_range: tuple[float, float]

    @property
    def spend(self) -> PrivacySpend:
        return self.sums.spend

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Differences of the mean squared and of the mean absolute error: below 0 if the first is better."""
        width = self.label_range[1] - self.label_range[0]
        return {
            "difference of mean squared error": scaled(self._mean("squares"), width**2),
            "difference of mean absolute error": scaled(self._mean("absolutes"), width),
        }

    def _mean(self, name: str) -> Estimate:
        means, n = self.sums.means, self.sums.n_records
        # Noise may hide this variance, so it is taken to be at least the standard deviation of its noise.
        square = max(means[f"{name}^2"] - means[name] ** 2, self.sums.variances[f"{name}^2"] ** 0.5)
        drawn = square / n if self.target == "population" else 0.0
        return mean_of_sums(self.sums, name, drawn, self.confidence)

    def _released(self) -> Mapping[str, Any]:
        return {"label_range": list(self.label_range), "sums": self.sums.to_dict()}

    @classmethod
    def _read(cls, record: Mapping[str, Any]) -> Self:
        low, high = (check_real(end, "label_range") for end in record["label_range"])
        check_width((low, high))
        sums = NoisySums.from_dict(record["sums"], PAIRED_BLOCKS)
        return cls(record["target"], record["confidence"], sums, (low, high))


def _labels(given: Any) -> tuple[Any, ...]:
    """Return the classes of a saved comparison."""
    texts = isinstance(given, list) and all(isinstance(label, str) for label in given)
    whole = isinstance(given, list) and all(isinstance(label, int) for label in given)
    if not (texts or whole) or len(set(given)) != len(given) or len(given) < 2:
        raise InvalidInputError(
            "the classes of a comparison are a list of two or more different labels: texts, or whole numbers"
        )
    return tuple(given)
