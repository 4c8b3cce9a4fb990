"""Confidence intervals from noisy counts; they include the noise, and on request the sampling of records.

N holds the m noisy counts of a histogram, all shifted by the same amount so that they sum to the public n: N
= h + Z - mean(Z), where h holds the true counts and Z the noise, independent, with a known distribution. A
quantity theta is tested by a statistic T(theta) whose expectation is 0 if theta is true. The interval
consists of all theta with T(theta)^2 <= z^2 V(theta), where V is the variance of T and z the normal quantile.
V includes the variance due to noise, which is known exactly: v (|c|^2 - (sum c)^2 / m) for a statistic sum
c_i N_i, with v the variance of one Z_i. For the target "population", V also includes the sampling variance. z
is corrected for the fourth cumulant of the noise, which has heavier tails than the normal distribution
(Cornish and Fisher 1938).

If noise hides the denominator of a ratio, the interval is wide, up to [0, 1], but always valid (Fieller
1954). Without noise, the interval of a share is the interval of Wilson (1927).

With target "table" an interval is about the records at hand; with target "population" it is about the
distribution from which the records are independent draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privopt.mechanisms.evaluation.histogram import NoisyCounts
from privopt.problems.errors import InvalidInputError
from privopt.problems.notebooks import html_table

Floats = NDArray[np.float64]
Target = Literal["population", "table"]

# Intervals ignore noise if the probability that any of it is nonzero is below this number.
_HARDLY_EVER = 1e-6


def check_interval(target: object, confidence: object) -> None:
    """Raise InvalidInputError for an unknown target or a confidence outside [0.5, 1)."""
    if target not in ("population", "table"):
        raise InvalidInputError(f'target is "population" or "table", got {target!r}')
    if not isinstance(confidence, int | float) or not 0.5 <= confidence < 1:
        raise InvalidInputError(f"confidence must be a number in [0.5, 1), got {confidence!r}")


@dataclass(frozen=True)
class Estimate:
    """An estimate with a confidence interval; ``value`` is nan if the noise hides it."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """Return a dictionary for JSON, with None for nan and for infinite bounds."""
        numbers = {"value": self.value, "low": self.low, "high": self.high}
        return {name: number if math.isfinite(number) else None for name, number in numbers.items()}

    def __str__(self) -> str:
        value = "open" if math.isnan(self.value) else f"{self.value:.3f}"
        return f"{value} [{self.low:.3f}, {self.high:.3f}]"


def html_estimates(
    title: str,
    estimates: Mapping[str, Estimate],
    confidence: float,
    number: Callable[[float], str] = "{:.3f}".format,
) -> str:
    """Return a table of estimates by name with their intervals, for notebooks."""
    rows = [
        (name, number(found.value), f"{number(found.low)} to {number(found.high)}")
        for name, found in estimates.items()
    ]
    return html_table(title, ("measure", "estimate", f"{100 * confidence:g}% interval"), rows)


def critical_value(confidence: float, fourth_cumulant: float, variance: float) -> float:
    """Return the two-sided normal quantile, enlarged for the excess kurtosis of a statistic."""
    z = float(stats.norm.isf((1 - confidence) / 2))
    if variance <= 0:
        return z
    return max(z, z + (z**3 - 3 * z) / 24 * fourth_cumulant / variance**2)


@dataclass(frozen=True)
class Intervals:
    """Intervals for one histogram.

    Attributes:
        histogram: the release.
        target: "table" or "population", see the module.
        confidence: of each single interval, in [0.5, 1).
    """

    histogram: NoisyCounts
    target: Target = "population"
    confidence: float = 0.95

    def count(self, cells: NDArray[np.bool_]) -> Estimate:
        """Return the number of records at hand in some cells, in whole numbers, whatever the target."""
        chosen = cells.astype(np.float64)
        value, variance = float(np.sum(chosen * self.histogram.fitted)), self._noise(chosen)
        reach = self._critical(chosen, variance) * math.sqrt(variance)
        low, high = math.ceil(value - reach), math.floor(value + reach)
        n = self.histogram.n_records
        value = min(max(round(value), 0), n)
        # If no whole number is within reach, the interval is the rounded value only.
        return Estimate(value, min(max(low, 0), value), max(min(high, n), value))

    def share(self, inside: NDArray[np.bool_], outside: NDArray[np.bool_]) -> Estimate:
        """Return the share p of ``inside`` among records of both sets, by T(p) = N_in - p (N_in + N_out)."""
        counts = self.histogram.fitted
        whole = max(float(counts[inside | outside].sum()), 0.0)
        part = min(max(float(counts[inside].sum()), 0.0), whole)
        if whole == 0:
            return Estimate(math.nan, 0.0, 1.0)
        p = part / whole
        weights = inside * (1 - p) - outside * p
        total = self._noise(weights) + self._drawn * whole * p * (1 - p)
        z = self._critical(weights, total)
        # z^2 V - T^2 as a quadratic in p.
        a, b = self._square(inside), self._square(inside | outside)
        cross = float(inside.sum()) - float(inside.sum() * (inside | outside).sum()) / counts.size
        v, drawn = self._variance, self._drawn * whole
        square = z * z * (v * b - drawn) - whole * whole
        linear = z * z * (drawn - 2 * v * cross) + 2 * part * whole
        constant = z * z * v * a - part * part
        low, high = _where_positive(square, linear, constant, p)
        return Estimate(p, low, high)

    def mean(self, values: Floats) -> Estimate:
        """Return the mean over all records of ``values``, a number for each cell."""
        counts, n = self.histogram.fitted, self.histogram.n_records
        value = float(np.sum(values * counts)) / n
        spread = float(np.sum((values - value) ** 2 * np.maximum(counts, 0)))
        variance = self._noise(values) + self._drawn * spread
        reach = self._critical(values, variance) * math.sqrt(variance) / n
        return Estimate(value, value - reach, value + reach)

    def mean_among(self, values: Floats, cells: NDArray[np.bool_]) -> Estimate:
        """Return the mean m, over records in some cells, of ``values`` v in [-1, 1], by T(m) = sum (v - m) N.

        The sampling variance includes one added record at a distance of 1 from the mean. Without it, the
        sampling variance would be 0 if all records have equal values.
        """
        counts, (square, cross) = self.histogram.fitted, self._squares(values, cells)
        whole, total = float(counts[cells].sum()), float(np.sum((values * counts)[cells]))
        if whole <= 0:
            return Estimate(math.nan, -1.0, 1.0)
        value = min(max(total / whole, -1.0), 1.0)
        spread = float(np.sum(((values - value) ** 2 * np.maximum(counts, 0))[cells])) + 1.0
        weights = np.where(cells, values - value, 0.0)
        z2 = self._critical(weights, self._noise(weights) + self._drawn * spread) ** 2
        v = self._variance
        lead = whole**2 - z2 * v * self._square(cells)
        if lead <= 0:
            return Estimate(value, -1.0, 1.0)
        middle = (total * whole - z2 * v * cross) / lead
        constant = (total**2 - z2 * (v * square + self._drawn * spread)) / lead
        reach = math.sqrt(max(middle**2 - constant, 0.0))
        low, high = max(middle - reach, -1.0), min(middle + reach, 1.0)
        return Estimate(value, min(low, value), max(high, value))

    def concordance(self, value: float) -> Estimate:
        """Return the area theta under the ROC curve.

        For pairs of a positive record in bin i and a negative record in bin j, theta is the share with i > j,
        plus half of the share with i = j. The statistic is T(theta) = N1' (K - theta) N0, where N1 and N0 are
        the counts of positives and negatives by bin, and K_ij is 1 for i > j, 1/2 for i = j and 0 for i < j.

        The sampling variance is the larger of two estimates: DeLong's, which is 0 if the classes seem
        separated, and Hanley and McNeil's (1982) at theta.

        Args:
            value: the estimate, which the interval contains.
        """
        negatives, positives = self.histogram.fitted.T
        n0, n1 = float(negatives.sum()), float(positives.sum())
        if min(n0, n1) <= 0 or math.isnan(value):
            return Estimate(math.nan, 0.0, 1.0)
        below = np.cumsum(negatives) - negatives / 2
        above = n1 - np.cumsum(positives) + positives / 2
        theta = np.linspace(0, 1, 2001)[:, None]
        gains, losses = below - theta * n0, above - theta * n1
        v = self._variance
        noise = v * (np.sum(gains**2, axis=1) + np.sum(losses**2, axis=1))
        p1, p0 = (np.maximum(x, 0) / np.maximum(x, 0).sum() for x in (positives, negatives))
        delong = n1 * _variance(below, p1) + n0 * _variance(above, p0)
        t = theta[:, 0]
        q1, q2 = t / (2 - t) - t**2, 2 * t**2 / (1 + t) - t**2
        hanley = n1 * n0 * (t * (1 - t) + max(n1 - 1, 0) * q1 + max(n0 - 1, 0) * q2)
        variance = noise + self._drawn * np.maximum(delong, hanley)
        here = round(value * 2000)
        weights = np.column_stack([losses[here], gains[here]])
        z = self._critical(weights, float(variance[here]))
        statistic = float(np.sum(positives * below)) - t * n1 * n0
        inside = t[statistic**2 <= z * z * variance]
        if not inside.size:
            return Estimate(value, value, value)
        return Estimate(value, min(float(inside[0]), value), max(float(inside[-1]), value))

    def _noise(self, weights: Floats) -> float:
        """Return the noise variance of a weighted sum of counts."""
        square = float(np.sum(weights**2)) - float(np.sum(weights)) ** 2 / weights.size
        return self._variance * max(square, 0.0)

    def _squares(self, values: Floats, cells: NDArray[np.bool_]) -> tuple[float, float]:
        """Return the noise variance of the sum of v N over some cells, and its covariance with the sum of N.

        Both are in units of the noise variance of one count, as in ``_square``.
        """
        total, k, size = float(values[cells].sum()), float(cells.sum()), cells.size
        return float(np.sum(values[cells] ** 2)) - total**2 / size, total - total * k / size

    def _square(self, cells: NDArray[np.bool_]) -> float:
        """Return the noise variance of the sum of N over some cells, in units of one count's variance."""
        k = float(cells.sum())
        return k - k * k / cells.size

    @property
    def _variance(self) -> float:
        """The noise variance of a count, or 0 if noise is hardly ever nonzero: P[Z != 0] <= E Z^2."""
        found, cells = self.histogram.variance, self.histogram.counts.size
        return found if cells * found > _HARDLY_EVER else 0.0

    @property
    def _drawn(self) -> float:
        """1 if intervals include the sampling variance, otherwise 0."""
        return float(self.target == "population")

    def _critical(self, weights: Floats, variance: float) -> float:
        """Return the critical value: the normal quantile, corrected for the excess kurtosis of the noise.

        The mean of the weights is subtracted, as sum c_i (Z_i - mean(Z)) = sum (c_i - mean(c)) Z_i.
        """
        if not self._variance:
            return critical_value(self.confidence, 0.0, variance)
        fourth = self.histogram.fourth_cumulant * float(np.sum((weights - np.mean(weights)) ** 4))
        return critical_value(self.confidence, fourth, variance)


def mean_of(estimates: Sequence[Estimate], least: float = 0.0) -> Estimate:
    """Return the mean of independent estimates in [least, 1].

    Its interval is by the method MOVER, in which squared half-widths add (Zou and Donner 2008).
    """
    size = len(estimates)
    value = sum(e.value for e in estimates) / size
    if math.isnan(value):
        return Estimate(value, sum(e.low for e in estimates) / size, sum(e.high for e in estimates) / size)
    low = math.hypot(*(e.value - e.low for e in estimates)) / size
    high = math.hypot(*(e.high - e.value for e in estimates)) / size
    return Estimate(value, max(least, value - low), min(1.0, value + high))


def _variance(values: Floats, probabilities: Floats) -> float:
    return float(probabilities @ values**2 - (probabilities @ values) ** 2)


def _where_positive(square: float, linear: float, constant: float, inside: float) -> tuple[float, float]:
    """Return the interval within [0, 1] on which a quadratic is >= 0; it contains the point ``inside``."""
    roots = [0.0, 1.0]
    if square != 0:
        discriminant = math.sqrt(max(linear**2 - 4 * square * constant, 0.0))
        # This form is stable: it has no difference of nearly equal numbers.
        sum_ = -(linear + math.copysign(discriminant, linear)) / 2
        found = (sum_ / square, constant / sum_ if sum_ else 0.0)
        if square > 0:  # the quadratic is >= 0 outside an interval, so the confidence set is unbounded
            return 0.0, 1.0
        roots = [min(max(r, 0.0), 1.0) for r in found]
    return min(*roots, inside), max(*roots, inside)
