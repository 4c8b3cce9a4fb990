"""Metrics of a binary classifier, computed from a noisy histogram of scores by class (post-processing)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from privopt.mechanisms.evaluation.histogram import ScoreHistogram
from privopt.mechanisms.evaluation.intervals import (
    Estimate,
    Intervals,
    Target,
    check_interval,
    html_estimates,
    mean_of,
)
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.notebooks import text_of

Floats = NDArray[np.float64]

# The count of a row in a table of risks is at least 4 standard deviations of its noise, 20 records, and 4% of
# all records.
_SUPPORT, _LEAST, _SHARE = 4.0, 20, 0.04
# Name of each metric for people, by its key in ``Evaluation.metrics``.
NAMES: Mapping[str, str] = {
    "positive_share": "share of positives",
    "accuracy": "accuracy",
    "majority": "share of the larger class",
    "balanced_accuracy": "balanced accuracy",
    "sensitivity": "sensitivity (true positive rate)",
    "specificity": "specificity (true negative rate)",
    "precision": "precision",
    "auc": "area under the ROC curve",
    "brier": "Brier score",
    "calibration": "mean predicted risk minus share of positives",
}


@dataclass(frozen=True)
class Evaluation:
    """A released evaluation: metrics with intervals that include the noise.

    Privacy: only ``histogram`` was released, at a cost of ``spend``; everything else is computed from it.
    Each single interval holds with probability ``confidence``, but not all intervals together.

    Attributes:
        histogram: the release.
        classes: labels, (negative, positive).
        predicted: the risk that the model predicts in each bin, shape (bins,); None for models without risks.
        target: what the metrics are about: "population", from which the records are independent draws, or
            "table", the records at hand.
        confidence: of each interval.
    """

    histogram: ScoreHistogram
    classes: tuple[Any, Any]
    predicted: tuple[float, ...] | None = None
    target: Target = "population"
    confidence: float = 0.95

    @property
    def spend(self) -> PrivacySpend:
        return self.histogram.spend

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Estimates by name; see ``NAMES``. Calibration and the Brier score need a model with risks."""
        about, cells = self._intervals, _Cells.of(self.histogram)
        sensitivity = about.share(cells.true_positive, cells.false_negative)
        specificity = about.share(cells.true_negative, cells.false_positive)
        positives = about.share(cells.positive, ~cells.positive)
        larger = positives
        if positives.value < 0.5:
            larger = Estimate(1 - positives.value, 1 - positives.high, 1 - positives.low)
        found = {
            "positive_share": positives,
            "accuracy": about.share(cells.right, ~cells.right),
            "majority": larger,
            "balanced_accuracy": mean_of((sensitivity, specificity)),
            "sensitivity": sensitivity,
            "specificity": specificity,
            "precision": about.share(cells.true_positive, cells.false_positive),
            "auc": about.concordance(_area(self.roc)),
        }
        if self.predicted is not None:
            risk = np.array(self.predicted)
            squares = np.column_stack([risk**2, (1 - risk) ** 2])
            found["brier"] = about.mean(squares)
            found["calibration"] = about.mean(np.column_stack([risk, risk - 1]))
        return found

    def _named(self) -> dict[str, Estimate]:
        return {NAMES[name]: estimate for name, estimate in self.metrics.items()}

    def __str__(self) -> str:
        return text_of({**self._named(), "spend": self.spend})

    def _repr_html_(self) -> str:
        """Return a table of the metrics for notebooks."""
        return html_estimates(f"Private evaluation ({self.spend})", self._named(), self.confidence)

    @property
    def confusion(self) -> pd.DataFrame:
        """Counts of records by true (rows) and predicted class (columns): whole numbers that sum to n."""
        cells, counts = _Cells.of(self.histogram), self.histogram.fitted
        groups = (cells.true_negative, cells.false_positive, cells.false_negative, cells.true_positive)
        table = whole_counts(np.array([counts[g].sum() for g in groups]), self.histogram.n_records)
        names = [str(c) for c in self.classes]
        return pd.DataFrame(
            table.reshape(2, 2),
            index=pd.Index(names, name="true class"),
            columns=pd.Index(names, name="predicted"),
        )

    @property
    def confusion_intervals(self) -> dict[str, Estimate]:
        """Intervals for the four counts of the records at hand, whatever the target."""
        cells, about = _Cells.of(self.histogram), self._intervals
        return {
            "true_negatives": about.count(cells.true_negative),
            "false_positives": about.count(cells.false_positive),
            "false_negatives": about.count(cells.false_negative),
            "true_positives": about.count(cells.true_positive),
        }

    @cached_property
    def roc(self) -> pd.DataFrame:
        """The ROC curve, with a point for each threshold between bins.

        The curve is made monotone by isotonic regression; the intervals are computed before this regression.
        """
        about, size = self._intervals, self.histogram.bins.size
        bins = np.arange(size)[:, None]
        positive = np.broadcast_to([False, True], (size, 2))
        rows = []
        for k, threshold in reversed(list(enumerate(self.histogram.bins.edges))):
            above = np.broadcast_to(bins > k, (size, 2))
            false = about.share(above & ~positive, ~above & ~positive)
            true = about.share(above & positive, ~above & positive)
            rows.append((threshold, false.value, false.low, false.high, true.value, true.low, true.high))
        names = ("threshold", "fpr", "fpr_low", "fpr_high", "tpr", "tpr_low", "tpr_high")
        curve = pd.DataFrame(rows, columns=list(names))
        for rate in ("fpr", "tpr"):
            if not curve[rate].isna().any():
                curve[rate] = IsotonicRegression(y_min=0, y_max=1).fit_transform(
                    np.arange(size - 1), curve[rate]
                )
        return curve

    @property
    def calibration(self) -> pd.DataFrame:
        """Observed and predicted risk by score; neighbouring bins are merged until noise is small.

        Columns: above and up_to, the range of scores (nan at the ends); share, the share of records;
        predicted (nan for models without risks); observed, with its interval low, high.
        """
        about = self._intervals
        rows = []
        for first, last in supported(self.histogram):
            cells = np.zeros((self.histogram.bins.size, 2), dtype=bool)
            cells[first:last] = True
            positive = cells & [False, True]
            risk = about.share(positive, cells & ~positive)
            held = self.histogram.fitted[first:last].sum(axis=1)
            predicted = math.nan
            if self.predicted is not None:
                weight = np.maximum(held, 1e-9)
                predicted = float(np.average(np.array(self.predicted[first:last]), weights=weight))
            above, up_to = scores_between(self.histogram, first, last)
            share = min(max(float(held.sum()) / self.histogram.n_records, 0.0), 1.0)
            rows.append((above, up_to, share, predicted, risk.value, risk.low, risk.high))
        names = ("above", "up_to", "share", "predicted", "observed", "low", "high")
        return pd.DataFrame(rows, columns=list(names))

    @property
    def _intervals(self) -> Intervals:
        return Intervals(self.histogram, self.target, self.confidence)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {
            **self.spend.to_dict(),
            "n_records": self.histogram.n_records,
            "classes": list(self.classes),
            "target": self.target,
            "confidence": self.confidence,
            "metrics": {name: estimate.to_dict() for name, estimate in self.metrics.items()},
            "confusion": self.confusion.to_numpy().tolist(),
            "confusion_intervals": {k: e.to_dict() for k, e in self.confusion_intervals.items()},
            "roc": _records(self.roc),
            "calibration": _records(self.calibration),
            "predicted": None if self.predicted is None else list(self.predicted),
            "histogram": self.histogram.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the evaluation of a record from ``to_dict``; all metrics follow from its histogram.

        Raises:
            KeyError, TypeError, ValueError: the record is not from ``to_dict``.
        """
        negative, positive = record["classes"]
        predicted = record["predicted"]
        check_interval(record["target"], record["confidence"])
        return cls(
            ScoreHistogram.from_dict(record["histogram"]),
            (negative, positive),
            None if predicted is None else tuple(map(float, predicted)),
            record["target"],
            record["confidence"],
        )


@dataclass(frozen=True)
class _Cells:
    """Masks of cells of a histogram, shape (bins, 2): cells of positives, and cells predicted positive."""

    positive: NDArray[np.bool_]
    predicted: NDArray[np.bool_]

    @classmethod
    def of(cls, histogram: ScoreHistogram) -> _Cells:
        size = histogram.bins.size
        predicted = np.arange(size)[:, None] >= histogram.bins.first_positive
        return cls(np.broadcast_to([False, True], (size, 2)), np.broadcast_to(predicted, (size, 2)))

    @property
    def true_positive(self) -> NDArray[np.bool_]:
        return self.positive & self.predicted

    @property
    def true_negative(self) -> NDArray[np.bool_]:
        return ~self.positive & ~self.predicted

    @property
    def false_positive(self) -> NDArray[np.bool_]:
        return ~self.positive & self.predicted

    @property
    def false_negative(self) -> NDArray[np.bool_]:
        return self.positive & ~self.predicted

    @property
    def right(self) -> NDArray[np.bool_]:
        return np.equal(self.positive, self.predicted)


def supported(histogram: ScoreHistogram) -> list[tuple[int, int]]:
    """Merge bins into runs [first, last), by increasing score, whose counts clearly exceed the noise."""
    held, least = histogram.fitted.sum(axis=1), max(_LEAST, _SHARE * histogram.n_records)
    runs, first = [], 0
    for last in range(1, histogram.bins.size + 1):
        noise = math.sqrt(2 * (last - first) * histogram.variance)
        if held[first:last].sum() >= max(least, _SUPPORT * noise):
            runs.append((first, last))
            first = last
    if first < histogram.bins.size:  # the remaining bins join the last run
        start = runs.pop()[0] if runs else 0
        runs.append((start, histogram.bins.size))
    return runs


def scores_between(histogram: ScoreHistogram, first: int, last: int) -> tuple[float, float]:
    """Return the range of scores, (above, up to], of a run of bins; nan at the ends."""
    edges = (math.nan, *histogram.bins.edges, math.nan)
    return edges[first], edges[last]


def _area(roc: pd.DataFrame) -> float:
    """Return the area under a curve from (0, 0) to (1, 1); nan if a point is undetermined."""
    fpr, tpr = (np.concatenate([[0.0], roc[rate].to_numpy(), [1.0]]) for rate in ("fpr", "tpr"))
    return float(np.trapezoid(tpr, fpr))


def whole_counts(counts: Floats, n: int) -> NDArray[np.int64]:
    """Project onto counts >= 0 with sum n, then round by largest remainders."""
    counts = counts.astype(np.float64)
    while np.any(counts < 0):
        counts = np.maximum(counts, 0)
        counts[counts > 0] -= (counts.sum() - n) / np.count_nonzero(counts)
    whole = np.floor(counts).astype(np.int64)
    missing = n - int(whole.sum())
    whole[np.argsort(whole - counts, kind="stable")[:missing]] += 1
    return whole


def _records(frame: pd.DataFrame) -> list[dict[str, float | None]]:
    """Return rows as dictionaries for JSON, with None for nan."""
    rows: list[dict[str, Any]] = frame.to_dict("records")  # type: ignore[assignment]
    return [{k: None if math.isnan(v) else float(v) for k, v in row.items()} for row in rows]
