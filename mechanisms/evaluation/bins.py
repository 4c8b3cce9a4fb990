"""Bins of scores, which follow from public facts: released weights, schema, number of records, epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Numeric
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]

# Without a schema, bins cover log-odds from -_FAR to _FAR.
_FAR = 8.0
_FEWEST, _MOST = 8, 64
# A row of a table of risks merges bins until its count is at least four standard deviations of its noise
# (``supported``). For a single bin, which has two noisy counts, these are 16 / epsilon records if epsilon is
# small. More than n epsilon / 16 bins would therefore only add noise to the sum of positives.
_OF_A_ROW, _FEWEST_OF_RISKS = 16, 2
# Bins extend only as far as if each number had at most this many points. If a number has more, most records
# are usually near one end of its range.
_OF_A_NUMBER = 40
# Round widths of bins are a power of ten times one of these numbers of quarters: 1, 1.25, 1.5, 2, ...
_QUARTERS = (4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48)


@dataclass(frozen=True)
class ScoreBins:
    """Bins of the real line, closed on the right: (-inf, e0], (e0, e1], ..., (e_last, inf).

    Attributes:
        edges: finite and increasing; one edge is 0, as scores above 0 predict the positive class.
    """

    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        finite = all(map(math.isfinite, self.edges))
        if not finite or 0.0 not in self.edges or any(a >= b for a, b in pairwise(self.edges)):
            raise InvalidInputError("edges of scores are finite and increase, and 0 is one of them")

    @property
    def size(self) -> int:
        return len(self.edges) + 1

    @property
    def first_positive(self) -> int:
        """The index of the first bin whose scores are positive."""
        return self.edges.index(0.0) + 1

    @property
    def centres(self) -> Floats:
        """A score inside each bin: its middle, or for an outer bin a point beyond its edge.

        The distance of this point to the edge is half the width of the neighbouring bin.
        """
        edges = np.array(self.edges)
        widths = np.diff(edges) if len(edges) > 1 else np.ones(1)
        return np.concatenate([edges - np.append(widths[:1], widths) / 2, [edges[-1] + widths[-1] / 2]])

    def of(self, scores: ArrayLike) -> NDArray[np.int64]:
        """Return the index of the bin of each score, shape (n,)."""
        return np.searchsorted(np.array(self.edges), np.asarray(scores), side="left").astype(np.int64)


class ScoreLaw(NamedTuple):
    """Distribution of the score if columns are independent and uniform on the declared values."""

    low: float
    high: float
    mean: float
    deviation: float

    @property
    def usual(self) -> tuple[float, float]:
        """The mean plus and minus three standard deviations, cut to the range of scores."""
        reach = 3 * self.deviation
        return max(self.low, self.mean - reach), min(self.high, self.mean + reach)


def score_law(schema: Schema, weights: ArrayLike, intercept: float = 0.0) -> ScoreLaw:
    """Return the distribution of scores for a schema and weights, shape (features,); no record is read."""
    left = np.asarray(weights, dtype=np.float64)
    low = high = mean = intercept + (float(left[-1]) if schema.intercept else 0.0)
    variance = 0.0
    for column in schema.columns:
        own, left = np.split(left, [len(column.feature_names)])
        kind, _ = plain_column(column)
        ends, divisor = own, 1.0
        if isinstance(kind, Numeric):
            ends = np.array([float(q) for q in kind.ends]) * own[0]
            divisor = 3.0  # a uniform variable has a third of the variance of its two ends
        reached = np.concatenate([ends, own[1:]])
        low, high = low + float(reached.min()), high + float(reached.max())
        mean, variance = mean + float(ends.mean()), variance + float(ends.var()) / divisor
    return ScoreLaw(low, high, mean, math.sqrt(variance))


def bins_of(model: Any, n_records: int, epsilon: float) -> ScoreBins:
    """Return bins for the scores of a released binary classifier.

    Bins are coarser with fewer records and smaller epsilon, because every bin adds noise to sums. The bins
    cover three standard deviations of ``score_law`` around its mean or, without a schema, log odds from -8 to
    8; the outer bins contain all other scores. If the model has a table of risks, its edges are among the
    edges of bins, so that all scores in a bin have the same risk.
    """
    if (edges := getattr(model, "score_edges", None)) is not None:
        return ScoreBins(edges)  # a model with few different scores, each of which has a bin
    bins, risks = _bins_by_score(model, n_records, epsilon), getattr(model, "risk_", None)
    return bins if risks is None else ScoreBins(tuple(sorted({*bins.edges, *risks.up_to})))


def _bins_by_score(model: Any, n_records: int, epsilon: float) -> ScoreBins:
    schema = getattr(model, "schema_", None)
    if schema is None:
        return _even(-_FAR, _FAR, 2 * _FAR / _most(n_records, epsilon))
    weights = np.ravel(model.coef_)
    if weights.dtype.kind == "i":
        return card_bins(schema, weights, n_records, epsilon)
    law = score_law(schema, weights, float(np.ravel(model.intercept_)[0]))
    low, high = law.usual
    return _even(low, high, (high - low) / _most(n_records, epsilon))


def card_bins(schema: Schema, points: NDArray[np.int64], n_records: int, epsilon: float) -> ScoreBins:
    """Return bins for the scores of a scorecard; ``points`` include the intercept.

    If scores are integers, widths of bins are whole numbers of points, and 1 point if there are few scores.
    """
    return _bins_of_points(schema, points, _most(n_records, epsilon))


def risk_bins(schema: Schema, points: NDArray[np.int64], n_records: int, epsilon: float) -> ScoreBins:
    """Return bins for a scorecard's table of risks: as ``card_bins``, but fewer if n epsilon is small."""
    room = round(n_records * epsilon / _OF_A_ROW)
    most = max(_FEWEST_OF_RISKS, min(_most(n_records, epsilon), room))
    return _bins_of_points(schema, points, most)


def _bins_of_points(schema: Schema, points: NDArray[np.int64], most: int) -> ScoreBins:
    """Return about ``most`` bins of the usual scores; if scores are integers, so are widths of bins."""
    law = score_law(schema, points)
    within = np.array(points)
    numbers = list(schema.numbers)
    within[numbers] = np.clip(within[numbers], -_OF_A_NUMBER, _OF_A_NUMBER)
    low, high = score_law(schema, within).usual
    if schema.denominator > 1:
        return _even(low, high, (high - low) / most)
    if law.high - law.low < most:
        low, high = law.low, law.high
    return _even(low, high, max(1, math.ceil((high - low) / most)))


def _most(n_records: int, epsilon: float) -> int:
    """Return the largest number of bins; the rule was chosen on synthetic tasks."""
    return min(_MOST, max(_FEWEST, round(2 * math.cbrt(n_records * epsilon))))


def _even(low: float, high: float, width: float) -> ScoreBins:
    """Return bins whose edges are 0 and, in [low, high), the multiples of a round number >= ``width``."""
    if not width > 0:
        return ScoreBins((0.0,))
    power = Fraction(10) ** math.floor(math.log10(width))
    step = next(Fraction(m, 4) * power for m in _QUARTERS if Fraction(m, 4) * power >= Fraction(width))
    inner = range(math.ceil(low / step), math.ceil(high / step))
    return ScoreBins(tuple(sorted({0.0, *(float(k * step) for k in inner)})))
