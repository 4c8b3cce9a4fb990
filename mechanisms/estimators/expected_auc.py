"""Forecasts of the AUC of a private model, or of records or epsilon that an AUC needs, from public guesses.

Forecasts are bands: quantiles of measured fits (``python -m privopt.experiments.planning``), not bounds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

from scipy.special import ndtri

from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.parameters import check_count, check_epsilon, smallest_count
from privopt.problems.arguments import check_real, told
from privopt.problems.errors import InvalidInputError, did_you_mean
from privopt.problems.tables.schema import Schema

# The AUC without privacy is capped at this value: at 1 the separation of the classes would be infinite.
_LARGEST_AUC = 0.99
# Searches for records and epsilon end here; a result beyond is reported as infinite.
_MOST_RECORDS, _LEAST_EPSILON, _MOST_EPSILON = 10**9, 1e-3, 100.0
_CONSTANTS = Path(__file__).with_name("expected_auc.json")


class Band(NamedTuple):
    """A forecast of one number: a low, a middle and a high value. Not a bound."""

    low: float
    middle: float
    high: float


@dataclass(frozen=True)
class AucCurve:
    """The share of AUC - 1/2 that a private fit keeps: x / (x + h), where x is the signal (``ExpectedAuc``).

    Attributes:
        best, middle, worst: the 10%, 50% and 90% quantiles of h over the measured fits; a smaller h is
            better.
        margin: amount by which the band is widened on both sides, for differences between tables.
        tables, fits: the numbers of measured tables and fits.
        records, epsilons: the smallest and the largest measured values.
        error, large_error: mean and 90% quantile of the absolute error of forecast AUCs, averaged over
            splits, on tables to which the constants were not fitted.
        covered: the share of single fits within the band, on such tables.
    """

    best: float
    middle: float
    worst: float
    margin: float
    tables: int
    fits: int
    records: tuple[int, int]
    epsilons: tuple[float, float]
    error: float
    large_error: float
    covered: float

    @classmethod
    def of_model(cls, model: object) -> Self:
        """Return the curve of a kind of model, "card" or "linear".

        Raises:
            InvalidInputError: this kind was not measured.
        """
        known = _measured()
        if not isinstance(model, str) or model not in known:
            hint = did_you_mean(model, list(known)) if isinstance(model, str) else ""
            raise InvalidInputError(
                f"model {told(model)}{hint}: AUC was measured for {' and '.join(known)}, at their defaults"
            )
        found = known[model]
        return cls(**{**found, "records": tuple(found["records"]), "epsilons": tuple(found["epsilons"])})

    @property
    def constants(self) -> Band:
        """The constants h, from the best to the worst."""
        return Band(self.best, self.middle, self.worst)


@cache
def _measured() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(_CONSTANTS.read_text("utf-8"))
    return found


def kept_share(signal: float, constant: float) -> float:
    """Return the share of AUC - 1/2 that is kept at a signal, for the constant h."""
    return signal / (signal + constant)


@dataclass(frozen=True)
class ExpectedAuc:
    """Forecast of the AUC of a default private model from guesses about the table; no data are read.

    The signal is n mu sqrt(s (1 - s)) sqrt(2) Phi^-1(a) / sqrt(p c), where n is the number of records, mu the
    level of Gaussian differential privacy at (epsilon, delta), s the share of positive records, a the AUC
    without privacy, p the number of features including the constant, and c the number of columns.
    Neighbours: replace-one, n public.

    Args:
        schema: a ``Schema``, a dict, or a path.
        positive: a guess of s, the share of positive records, in (0, 1).
        not_private: a guess of a, the AUC of a linear model without privacy, in (0.5, 1].
        model: "card" or "linear", at their defaults.
        delta: in (0, 1), or "auto" for 1/n^2.
    """

    schema: Schema | dict[str, Any] | str | Path
    positive: float
    not_private: float
    model: str = "card"
    delta: float | str = "auto"

    def __post_init__(self) -> None:
        if not 0 < check_real(self.positive, "positive") < 1:
            raise InvalidInputError(f"the share of positives must be in (0, 1), got {told(self.positive)}")
        if not 0.5 < check_real(self.not_private, "not_private") <= 1:
            raise InvalidInputError(
                "AUC without privacy must be in (0.5, 1], where 0.5 is that of chance; got "
                f"{told(self.not_private)}"
            )
        AucCurve.of_model(self.model)

    @property
    def curve(self) -> AucCurve:
        """The measured curve of the model."""
        return AucCurve.of_model(self.model)

    @cached_property
    def _per_record(self) -> float:
        """The signal at n mu = 1."""
        schema, s = declared_schema(self.schema).with_intercept(), self.positive
        return signal_per_record(schema.n_features, len(schema.columns), s, self.not_private)

    def at(self, records: int, epsilon: float) -> Band:
        """Return the expected AUC of a fit to n records at epsilon."""
        n = check_count(records, "records")
        x = self._signal(n, check_epsilon(epsilon))
        worst, middle, best = (
            0.5 + (self.not_private - 0.5) * kept_share(x, h) for h in reversed(self.curve.constants)
        )
        margin = self.curve.margin
        return Band(max(worst - margin, 0.0), middle, min(best + margin, 1.0))

    def records(self, auc: float, epsilon: float) -> Band:
        """Return the number of records for which this AUC is expected at epsilon.

        Raises:
            InvalidInputError: the AUC cannot be reached.
        """
        check_epsilon(epsilon)
        return self._inverted(auc, lambda x: self._least_records(x, epsilon))

    def epsilon(self, auc: float, records: int) -> Band:
        """Return the epsilon at which this AUC is expected of a fit to n records.

        It is at least 0.001, and infinite if more than 100 would be needed.

        Raises:
            InvalidInputError: the AUC cannot be reached.
        """
        n = check_count(records, "records")
        return self._inverted(auc, lambda x: self._least_epsilon(x, n))

    def _signal(self, n: int, epsilon: float) -> float:
        return self._per_record * n * gaussian_mu(epsilon, public_delta(self.delta, n))

    def _inverted(self, auc: float, least: Callable[[float], float]) -> Band:
        """Return, for each constant h, what ``least`` returns for the signal that reaches the AUC."""
        wanted, margin = self.check_wanted(auc), self.curve.margin
        found = []
        for h, shift in zip(self.curve.constants, (-margin, 0.0, margin), strict=True):
            kept = max(wanted + shift - 0.5, 0.0) / (self.not_private - 0.5)
            found.append(least(h * kept / (1 - kept)) if kept < 1 else math.inf)
        return Band(*found)

    def check_wanted(self, auc: float) -> float:
        """Return the AUC if it lies between 0.5 and the AUC without privacy.

        Raises:
            InvalidInputError: the AUC is not between them.
        """
        auc = check_real(auc, "auc")
        if not auc > 0.5:
            raise InvalidInputError(f"AUC {auc:g} needs no records: 0.5 is that of chance")
        if not auc < self.not_private:
            raise InvalidInputError(
                f"AUC {auc:g} is out of reach: a model without privacy is expected to have "
                f"{self.not_private:g}, and privacy adds noise. To do: want less, or correct that guess"
            )
        return auc

    def _least_records(self, signal: float, epsilon: float) -> float:
        if self._signal(_MOST_RECORDS, epsilon) < signal:
            return math.inf
        return smallest_count(lambda n: self._signal(n, epsilon) >= signal, _MOST_RECORDS)

    def _least_epsilon(self, signal: float, n: int) -> float:
        low, high = _LEAST_EPSILON, _MOST_EPSILON
        if self._signal(n, high) < signal:
            return math.inf
        while high > 1.001 * low:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self._signal(n, middle) < signal else (low, middle)
        return high


def signal_per_record(features: int, columns: int, positive: float, not_private: float) -> float:
    """Return the signal of ``ExpectedAuc`` at n mu = 1."""
    separation = math.sqrt(2) * float(ndtri(min(not_private, _LARGEST_AUC)))
    return math.sqrt(positive * (1 - positive) / (features * columns)) * separation
