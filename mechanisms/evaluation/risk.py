"""Monotone table of risks by score, computed from a private histogram (post-processing)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression

from privopt.mechanisms.evaluation.histogram import ScoreHistogram
from privopt.mechanisms.evaluation.intervals import Intervals
from privopt.mechanisms.evaluation.metrics import supported
from privopt.mechanisms.privacy.noisy_share import NoisyShare, likely_share

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RiskTable:
    """The share of positives by score, nondecreasing in the score.

    Neighbouring bins are merged until noise is small, and also where shares would decrease (isotonic
    regression). A row ends at the score where the decision changes, even if the risk is the same on both
    sides. Half a record is added to each class of a row, so that no risk is 0 or 1. If noise requires that
    all bins are merged, the share is a posterior mean given the noise, with prior mean 1/4; it uses the
    counts and, if the release of the model includes a share of positives, this share as well.

    Attributes:
        up_to: the largest score of each row but the last, increasing, shape (rows - 1,).
        risks: shape (rows,).
        lows, highs: the confidence interval of each single risk, for the population from which the records
            were drawn; it includes the noise.
        shares: the share of the records in each row.
        confidence: of each interval.
    """

    up_to: tuple[float, ...]
    risks: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    shares: tuple[float, ...]
    confidence: float

    @classmethod
    def of(cls, histogram: ScoreHistogram, confidence: float = 0.95, share: NoisyShare | None = None) -> Self:
        """Compute the table from a histogram.

        Args:
            histogram: released counts by score and class.
            confidence: of each interval.
            share: a released share of positives of the same records, with independent noise.
        """
        runs = supported(histogram)
        counts = np.array([histogram.fitted[a:b].sum(axis=0) for a, b in runs])
        if len(runs) == 1:
            counts = _of_all(histogram, share)
        levels = _monotone(counts)
        # Merge rows whose shares isotonic regression made equal.
        starts = [k for k in range(len(runs)) if k == 0 or levels[k] > levels[k - 1]]
        rows = [(runs[a][0], runs[b - 1][1]) for a, b in zip(starts, [*starts[1:], len(runs)], strict=True)]
        intervals = Intervals(histogram, "population", confidence)
        parts = [
            (level, *part)
            for level, row in zip(levels[starts].tolist(), rows, strict=True)
            for part in _parts(*row, histogram.bins.first_positive)
        ]
        lows, highs = [], []
        for risk, first, last in parts:
            cells = np.zeros(histogram.counts.shape, dtype=bool)
            cells[first:last] = True
            found = intervals.share(cells & [False, True], cells & [True, False])
            lows.append(min(found.low, risk))
            highs.append(max(found.high, risk))
        held = np.maximum([histogram.fitted[a:b].sum() for _, a, b in parts], 0.0)
        return cls(
            tuple(histogram.bins.edges[last - 1] for _, _, last in parts[:-1]),
            tuple(risk for risk, _, _ in parts),
            tuple(lows),
            tuple(highs),
            tuple((held / held.sum()).tolist()),
            confidence,
        )

    def at(self, scores: ArrayLike) -> Floats:
        """Return the risk of each score, shape (n,)."""
        row = np.searchsorted(np.array(self.up_to), np.asarray(scores), side="left")
        return np.array(self.risks)[row]

    @property
    def frame(self) -> pd.DataFrame:
        """A data frame with a row for each range of scores: above, up_to (nan at the ends), risk, low, high,
        share.
        """
        edges = [np.nan, *self.up_to, np.nan]
        return pd.DataFrame(
            {"above": edges[:-1], "up_to": edges[1:], "risk": self.risks, "low": self.lows,
             "high": self.highs, "share": self.shares}
        )  # fmt: skip


def _parts(first: int, last: int, decision: int) -> list[tuple[int, int]]:
    """Return the bins of a row, in two parts if the decision changes within it."""
    if not first < decision < last:
        return [(first, last)]
    return [(first, decision), (decision, last)]


def _monotone(counts: Floats) -> Floats:
    """Return the share of positives of each row of (negatives, positives), made nondecreasing."""
    held = np.maximum(counts.sum(axis=1), 1.0)
    shares = (np.clip(counts[:, 1], 0, held) + 0.5) / (held + 1)
    fitted = IsotonicRegression().fit_transform(np.arange(len(held)), shares, sample_weight=held)
    return np.asarray(fitted, dtype=np.float64)


def _of_all(histogram: ScoreHistogram, share: NoisyShare | None) -> Floats:
    """Return the posterior mean numbers of (negatives, positives) among all records, shape (1, 2)."""
    n = histogram.n_records
    # ``fitted`` distributes the correction to the sum n evenly to both classes. The error of the positives is
    # then half the difference of the noise of both classes, which has half the variance of the noise of one.
    sigma = math.sqrt(histogram.variance * histogram.bins.size / 2) / n
    seen = float(histogram.fitted[:, 1].sum()) / n
    if share is not None:
        seen, sigma = share.with_another(seen, sigma)
    positive = n * likely_share(seen, sigma)
    return np.array([[n - positive, positive]])
