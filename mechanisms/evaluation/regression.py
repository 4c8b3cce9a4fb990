"""Metrics of a regression, computed from noisy sums of residuals and labels (post-processing).

As in ``intervals``, an interval consists of all theta with T(theta)^2 <= z^2 V(theta), for a statistic
T(theta) whose expectation is 0 if theta is true. The variance V of T includes the variance of the noise,
which is known exactly, and for the target "population" the sampling variance, which is estimated from the
released fourth moments. As noise may hide these moments, sampling variances are taken to be at least as large
as for normal labels and predictions of a calibrated model: Var e^2 = 2 m^2 and Var |e| = (1 - 2 / pi) m,
where e is the residual and m = mean e^2; for R^2 see ``_ratio_sampling``. The numbers e and t are defined in
``residuals``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from privopt.mechanisms.evaluation.intervals import (
    Estimate,
    Target,
    check_interval,
    critical_value,
    html_estimates,
)
from privopt.mechanisms.evaluation.residuals import BLOCKS, NoisySums, check_width
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.notebooks import text_of

# Name of each metric for people, by its key in ``RegressionEvaluation.metrics``.
NAMES: Mapping[str, str] = {
    "r2": "R^2",
    "rmse": "root mean squared error",
    "mse": "mean squared error",
    "mae": "mean absolute error",
    "bias": "mean prediction minus mean label",
    "label_mean": "mean label",
    "label_deviation": "standard deviation of labels",
}


@dataclass(frozen=True, eq=False)
class RegressionEvaluation:
    """A released evaluation of a regression: metrics with intervals that include the noise.

    All metrics are of labels and predictions clipped to ``label_range``, in the unit of the labels. The
    standard deviation of labels is the root mean squared error of the best constant prediction.

    Privacy: only ``sums`` was released, at a cost of ``spend``; everything else is computed from it. Each
    single interval holds with probability ``confidence``, but not all intervals together.

    Attributes:
        sums: the release.
        label_range: (low, high).
        target: what the metrics are about: "population", from which the records are independent draws, or
            "table", the records at hand.
        confidence: of each interval.
    """

    sums: NoisySums
    label_range: tuple[float, float]
    target: Target = "population"
    confidence: float = 0.95

    @property
    def spend(self) -> PrivacySpend:
        return self.sums.spend

    @property
    def n_records(self) -> int:
        return self.sums.n_records

    @cached_property
    def metrics(self) -> dict[str, Estimate]:
        """Estimates by name; see ``NAMES``. The value of R^2 is nan if noise hides the spread of labels."""
        (low, high), m = self.label_range, self.sums.means
        width, square = high - low, self._mean_square
        mse = self._mean("e^2", max(m["e^4"] - m["e^2"] ** 2, 2 * square**2))
        mse = Estimate(max(mse.value, 0.0), max(mse.low, 0.0), max(mse.high, 0.0))
        mae = self._mean("|e|", max(square - m["|e|"] ** 2, (1 - 2 / math.pi) * square))
        mae = Estimate(max(mae.value, 0.0), max(mae.low, 0.0), max(mae.high, 0.0))
        bias = self._mean("e", max(square - m["e"] ** 2, 0.0))
        mean = self._mean("t", max(m["t^2"] - m["t"] ** 2, 0.0))
        middle = low / 2 + high / 2
        return {
            "r2": self._r2(),
            "rmse": scaled(_root(mse), width),
            "mse": scaled(mse, width**2),
            "mae": scaled(mae, width),
            "bias": scaled(Estimate(-bias.value, -bias.high, -bias.low), width),
            "label_mean": _shifted(scaled(mean, width / 2), middle),
            "label_deviation": scaled(_root(self._label_variance()), width / 2),
        }

    def _mean(self, name: str, sampling: float) -> Estimate:
        """Return the interval of the mean of a number, given the variance of this number among records."""
        return mean_of_sums(self.sums, name, self._drawn(sampling), self.confidence)

    def _label_variance(self) -> Estimate:
        """Return the interval of Var t = mean t^2 - (mean t)^2, linearised at the estimated mean."""
        weights, spread = self._spread
        _, _, fourth = self._ratio_sampling(spread)
        variance = self._noise_of_spread(weights) + self._drawn(fourth)
        z = self._critical(weights, variance)
        reach = z * math.sqrt(variance)
        return Estimate(max(spread, 0.0), max(spread - reach, 0.0), max(spread + reach, 0.0))

    def _r2(self) -> Estimate:
        """Return the interval of R^2 = 1 - r, where r = 4 mean e^2 / Var t, by T(r) = 4 mean e^2 - r Var t.

        If noise hides the spread of labels, r has no upper bound, and R^2 no lower bound.
        """
        weights, spread = self._spread
        squares = 4 * self.sums.means["e^2"]
        value = max(squares, 0.0) / spread if spread > 0 else math.nan
        e4, both, t4 = self._ratio_sampling(spread)
        constant = 16 * (self.sums.variances["e^2"] + self._drawn(e4))
        linear, square = -8 * self._drawn(both), self._noise_of_spread(weights) + self._drawn(t4)
        at = 0.0 if math.isnan(value) else value
        here = {"e^2": 4.0, **{name: -at * weight for name, weight in weights.items()}}
        z2 = self._critical(here, constant + linear * at + square * at * at) ** 2
        lead = spread**2 - z2 * square
        if spread <= 0 or lead <= 0:
            return Estimate(1 - value, -math.inf, 1.0)
        middle = (squares * spread + z2 * linear / 2) / lead
        root = math.sqrt(max(middle**2 - (squares**2 - z2 * constant) / lead, 0.0))
        least, most = max(min(middle - root, value), 0.0), max(middle + root, value)
        return Estimate(1 - value, 1 - most, 1 - least)

    @property
    def _spread(self) -> tuple[dict[str, float], float]:
        """The weights of mean t^2 and mean t in the linearised estimate of Var t, and the estimate."""
        m, noise, n = self.sums.means, self.sums.variances, self.n_records
        spread = m["t^2"] - m["t"] ** 2 + noise["t"]  # the noise variance is added to the squared mean
        # For the table, the variance is a mean over n; for the population, the unbiased one divides by n - 1.
        factor = n / max(n - 1, 1) if self.target == "population" else 1.0
        return {"t^2": factor, "t": -2 * factor * m["t"]}, factor * spread

    def _noise_of_spread(self, weights: Mapping[str, float]) -> float:
        """Return the noise variance of the estimate of Var t; noise Z of mean t enters as Z and as Z^2."""
        squared = self.sums.fourth_cumulants["t"] + 2 * self.sums.variances["t"] ** 2
        return self._noise(weights) + weights["t^2"] ** 2 * squared

    def _ratio_sampling(self, spread: float) -> tuple[float, float, float]:
        """Return estimates of Var e^2, Cov(e^2, s^2) and Var s^2, where s = t - mean t.

        Let m = mean e^2 and v = Var t. For normal labels and predictions with Cov(e, prediction) = 0, so that
        Cov(e, t) = 2 m, the three are 2 m^2, 8 m^2 and 2 v^2. As noise may hide them, the returned variances
        are at least 2 m^2 and 2 v^2; the returned covariance, which makes R^2 vary less, is at most 8 m^2.
        """
        m, mean, square = self.sums.means, self.sums.means["t"], self._mean_square
        v = max(spread, 0.0)
        e4 = max(m["e^4"] - m["e^2"] ** 2, 2 * square**2)
        fourth = m["t^4"] - 4 * mean * m["t^3"] + 6 * mean**2 * m["t^2"] - 3 * mean**4
        t4 = max(fourth - v**2, 2 * v**2)
        both = m["e^2 t^2"] - 2 * mean * m["e^2 t"] + mean**2 * m["e^2"] - square * v
        return e4, max(min(both, 8 * square**2), -math.sqrt(e4 * t4)), t4

    @property
    def _mean_square(self) -> float:
        return max(self.sums.means["e^2"], 0.0)

    def _drawn(self, variance: float) -> float:
        """Return the sampling variance of the mean of a number, or 0 if intervals do not include sampling."""
        return variance / self.n_records if self.target == "population" else 0.0

    def _noise(self, weights: Mapping[str, float]) -> float:
        return sum(weight**2 * self.sums.variances[name] for name, weight in weights.items())

    def _critical(self, weights: Mapping[str, float], variance: float) -> float:
        known = self.sums.fourth_cumulants
        fourth = sum(weight**4 * known[name] for name, weight in weights.items())
        return critical_value(self.confidence, fourth, variance)

    def __str__(self) -> str:
        shown = {NAMES[name]: text_of_estimate(estimate) for name, estimate in self.metrics.items()}
        return text_of({**shown, "spend": self.spend})

    def _repr_html_(self) -> str:
        """Return a table of the metrics for notebooks."""
        named = {NAMES[name]: estimate for name, estimate in self.metrics.items()}
        return html_estimates(f"Private evaluation ({self.spend})", named, self.confidence, number)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {
            **self.spend.to_dict(),
            "n_records": self.n_records,
            "label_range": list(self.label_range),
            "target": self.target,
            "confidence": self.confidence,
            "metrics": {name: estimate.to_dict() for name, estimate in self.metrics.items()},
            "sums": self.sums.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the evaluation of a record from ``to_dict``; all metrics follow from its sums.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: the record is not from ``to_dict``.
        """
        low, high = map(float, record["label_range"])
        check_width((low, high))
        check_interval(record["target"], record["confidence"])
        sums = NoisySums.from_dict(record["sums"], BLOCKS)
        return cls(sums, (low, high), record["target"], record["confidence"])


def mean_of_sums(sums: NoisySums, name: str, drawn: float, confidence: float) -> Estimate:
    """Return the interval of the mean of a number, given the sampling variance of this mean."""
    variance = sums.variances[name] + drawn
    reach = critical_value(confidence, sums.fourth_cumulants[name], variance) * math.sqrt(variance)
    value = sums.means[name]
    return Estimate(value, value - reach, value + reach)


def number(value: float) -> str:
    """Format a number of an evaluation, as "open" if it is nan."""
    return "open" if math.isnan(value) else f"{value:.4g}"


def text_of_estimate(found: Estimate) -> str:
    return f"{number(found.value)} [{number(found.low)}, {number(found.high)}]"


def scaled(found: Estimate, factor: float) -> Estimate:
    return Estimate(found.value * factor, found.low * factor, found.high * factor)


def _shifted(found: Estimate, by: float) -> Estimate:
    return Estimate(found.value + by, found.low + by, found.high + by)


def _root(found: Estimate) -> Estimate:
    return Estimate(math.sqrt(found.value), math.sqrt(found.low), math.sqrt(found.high))
