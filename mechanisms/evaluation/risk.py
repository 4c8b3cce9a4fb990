"""From a score to a risk: a monotone table out of a private histogram. Post-processing: costs nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.isotonic import IsotonicRegression

from privopt.mechanisms.evaluation.histogram import ScoreHistogram
from privopt.mechanisms.evaluation.intervals import Intervals
from privopt.mechanisms.evaluation.metrics import supported

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RiskTable:
    """The share of positives by score, which never falls where the score rises.

    Neighbouring bins are put together until noise is small beside them, and where the shares would fall
    (isotonic regression). Half a record is added to each class of a row, so that no risk is 0 or 1.

    Attributes:
        up_to: the largest score of each row but the last, increasing, shape (rows - 1,).
        risks: shape (rows,).
        lows, highs: the interval of each, at ``confidence`` by itself, for the population that the records
            were drawn from; it includes the noise.
        shares: of the records, by row.
    """

    up_to: tuple[float, ...]
    risks: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    shares: tuple[float, ...]
    confidence: float

    @classmethod
    def of(cls, histogram: ScoreHistogram, confidence: float = 0.95) -> Self:
        """The table that a histogram gives."""
        runs = supported(histogram)
        counts = np.array([histogram.fitted[a:b].sum(axis=0) for a, b in runs])
        levels = _monotone(counts)
        # Rows that isotonic regression made equal become one.
        starts = [k for k in range(len(runs)) if k == 0 or levels[k] > levels[k - 1]]
        rows = [(runs[a][0], runs[b - 1][1]) for a, b in zip(starts, [*starts[1:], len(runs)], strict=True)]
        about = Intervals(histogram, "population", confidence)
        lows, highs = [], []
        for risk, (first, last) in zip(levels[starts].tolist(), rows, strict=True):
            cells = np.zeros(histogram.counts.shape, dtype=bool)
            cells[first:last] = True
            found = about.share(cells & [False, True], cells & [True, False])
            lows.append(min(found.low, risk))
            highs.append(max(found.high, risk))
        held = np.maximum([histogram.fitted[a:b].sum() for a, b in rows], 0.0)
        return cls(
            tuple(histogram.bins.edges[last - 1] for _, last in rows[:-1]),
            tuple(levels[starts].tolist()),
            tuple(lows),
            tuple(highs),
            tuple((held / held.sum()).tolist()),
            confidence,
        )

    def at(self, scores: ArrayLike) -> Floats:
        """The risk of each score, shape (n,)."""
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


def _monotone(counts: Floats) -> Floats:
    """The share of positives of each row of (negatives, positives), made not to fall."""
    held = np.maximum(counts.sum(axis=1), 1.0)
    shares = (np.clip(counts[:, 1], 0, held) + 0.5) / (held + 1)
    fitted = IsotonicRegression().fit_transform(np.arange(len(held)), shares, sample_weight=held)
    return np.asarray(fitted, dtype=np.float64)
