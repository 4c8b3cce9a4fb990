"""Monotone table of risks by score, from a private histogram. Post-processing only."""

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

    Neighbouring bins are merged until noise is small, and where shares would decrease (isotonic regression).
    A row also ends at the score where the decision changes, even if the risk is the same on both sides.
    If all bins are merged, the share is a posterior mean given the noise, with prior mean 1/4, from the
    counts and from the share of positives that the model's own release contains, if any. Half a record is
    added to each class of a row, so that no risk is 0 or 1.

    Attributes:
        up_to: the largest score of each row but the last, increasing, shape (rows - 1,).
        risks: shape (rows,).
        lows, highs: the confidence interval of each risk alone (not of all jointly), for the population that
            the records were drawn from; it includes the noise.
        shares: the share of the records in each row.
        confidence: the level of the intervals.
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
            share: a released share of positives of the same records, with noise of its own.
        """
        runs = supported(histogram)
        counts = np.array([histogram.fitted[a:b].sum(axis=0) for a, b in runs])
        if len(runs) == 1:
            counts = _of_all(histogram, share)
        levels = _monotone(counts)
        # Rows that isotonic regression made equal become one.
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
        """A row per range of scores: above, up_to (nan at the ends), risk, low, high, share."""
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
    """Return the posterior means of (negatives, positives) of all records, shape (1, 2)."""
    n = histogram.n_records
    # ``fitted`` sums to n: both classes share the correction, and the error left in the positives is half the
    # difference of the two classes' noise, with half the variance of one.
    sigma = math.sqrt(histogram.variance * histogram.bins.size / 2) / n
    seen = float(histogram.fitted[:, 1].sum()) / n
    if share is not None:
        seen, sigma = share.with_another(seen, sigma)
    positive = n * likely_share(seen, sigma)
    return np.array([[n - positive, positive]])
