"""Metrics of a classifier of several classes, computed from a noisy confusion matrix (post-processing)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.mechanisms.evaluation.intervals import Estimate, Intervals, Target, html_estimates, mean_of
from privopt.mechanisms.evaluation.leaves import LeafHistogram
from privopt.mechanisms.evaluation.metrics import whole_counts
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.notebooks import html_table, text_of


@dataclass(frozen=True)
class ClassEvaluation:
    """A released evaluation of a classifier: metrics with intervals that include the noise.

    Privacy: only ``histogram`` was released, at a cost of ``spend``; everything else is computed from it.
    Each single interval holds with probability ``confidence``, but not all intervals together.

    Attributes:
        histogram: the release: counts of records by predicted class (rows) and true class (columns).
        classes: the labels.
        target: what the metrics are about: "population", from which the records are independent draws, or
            "table", the records at hand.
        confidence: of each interval.
    """

    histogram: LeafHistogram
    classes: tuple[Any, ...]
    target: Target = "population"
    confidence: float = 0.95

    @property
    def spend(self) -> PrivacySpend:
        return self.histogram.spend

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Estimates by name: accuracy, balanced accuracy, and the recall and precision of each class."""
        about = Intervals(self.histogram, self.target, self.confidence)
        right = np.eye(len(self.classes), dtype=bool)
        recalls, precisions = [], []
        for k in range(len(self.classes)):
            true, predicted = np.zeros(right.shape, dtype=bool), np.zeros(right.shape, dtype=bool)
            true[:, k], predicted[k] = True, True
            recalls.append(about.share(true & predicted, true & ~predicted))
            precisions.append(about.share(true & predicted, predicted & ~true))
        return {
            "accuracy": about.share(right, ~right),
            "balanced accuracy": mean_of(recalls),
            **{f"recall of {label}": found for label, found in zip(self.classes, recalls, strict=True)},
            **{f"precision of {label}": found for label, found in zip(self.classes, precisions, strict=True)},
        }

    def __str__(self) -> str:
        return text_of({**self.metrics, "spend": self.spend})

    def _repr_html_(self) -> str:
        """Return tables of the metrics and of the confusion matrix for notebooks."""
        records = self.confusion
        return html_estimates(
            f"Private evaluation ({self.spend})", self.metrics, self.confidence
        ) + html_table(
            "Records by true class and by predicted one",
            ("true", *records.columns),
            records.itertuples(),
        )

    @property
    def confusion(self) -> pd.DataFrame:
        """Counts of records by true (rows) and predicted class (columns): whole numbers that sum to n."""
        counts: NDArray[np.float64] = self.histogram.fitted.T
        table = whole_counts(counts.ravel(), self.histogram.n_records).reshape(counts.shape)
        names = [str(label) for label in self.classes]
        return pd.DataFrame(
            table, index=pd.Index(names, name="true class"), columns=pd.Index(names, name="predicted")
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "classes": list(self.classes),
            "target": self.target,
            "confidence": self.confidence,
            "metrics": {name: found.to_dict() for name, found in self.metrics.items()},
            "confusion": self.confusion.to_numpy().tolist(),
            "histogram": self.histogram.to_dict(),
        }
