"""Intervals of linear models: one, a table of them, and the difference between two models.

Their bounds are computed in ``least_squares``, ``robust_least_squares`` and ``logistic``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from scipy.special import ndtri

from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError
from privopt.problems.notebooks import html_table


def normal_quantile(confidence: object) -> float:
    """Return the two-sided normal quantile of a confidence.

    Raises:
        InvalidInputError: no number in [0.5, 1).
    """
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0.5 <= confidence < 1:
        raise InvalidInputError(f"confidence must be a number in [0.5, 1), got {told(confidence)}")
    return -float(ndtri((1 - confidence) / 2))


@dataclass(frozen=True)
class Interval:
    """Estimate of a number with a confidence interval that includes the noise for privacy.

    Attributes:
        name: the number, such as a coefficient.
        estimate: unbiased up to the noise in the curvature, not shrunk, so not equal to a model's weight.
        low, high: the interval; infinite where the noise leaves no bound.
        noise_share: the share of the estimate's variance that is noise for privacy, in [0, 1]; the rest is
            the sampling of the records.
    """

    name: str
    estimate: float
    low: float
    high: float
    noise_share: float

    def minus(self, other: Interval) -> Interval:
        """Return the difference of two independent estimates, such as those of models of different records.

        Source: MOVER (Zou and Donner 2008): the squares of distances to the bounds add up.
        """
        value = self.estimate - other.estimate
        low = value - math.hypot(self.estimate - self.low, other.high - other.estimate)
        high = value + math.hypot(self.high - self.estimate, other.estimate - other.low)
        first, second = ((i.high - i.low) ** 2 for i in (self, other))
        total = first + second
        noisy = self.noise_share * first + other.noise_share * second
        share = noisy / total if 0 < total < math.inf else max(self.noise_share, other.noise_share)
        return Interval(f"{self.name} - {other.name}", value, low, high, share)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON: None for an infinite bound."""
        low, high = (bound if math.isfinite(bound) else None for bound in (self.low, self.high))
        share = {"noise_share": self.noise_share}
        return {"name": self.name, "estimate": self.estimate, "low": low, "high": high, **share}

    def __str__(self) -> str:
        return f"{self.name} {self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True, repr=False)
class Summary:
    """Coefficients of a linear model with confidence intervals; printed as a table.

    Attributes:
        intervals: one for each coefficient, each with the confidence by itself.
        confidence: in [0.5, 1).
        n_records: the number of records.
        signal_to_noise: the smallest eigenvalue of the noisy curvature in units of the noise: below 0.5 there
            are no intervals, from 1 on they were measured to cover as often as they claim.
        references: the levels that coefficients of other levels of their columns are relative to.
        about: a sentence on the target of the intervals.
    """

    intervals: tuple[Interval, ...]
    confidence: float
    n_records: int
    signal_to_noise: float
    references: tuple[str, ...]
    about: str

    def __iter__(self) -> Iterator[Interval]:
        return iter(self.intervals)

    def __len__(self) -> int:
        return len(self.intervals)

    def __getitem__(self, name: str) -> Interval:
        for interval in self.intervals:
            if interval.name == name:
                return interval
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "intervals": [interval.to_dict() for interval in self.intervals],
            "confidence": self.confidence,
            "n_records": self.n_records,
            "signal_to_noise": self.signal_to_noise,
            "references": list(self.references),
            "about": self.about,
        }

    def _table(self) -> tuple[tuple[str, ...], Sequence[tuple[str, ...]]]:
        """Return the header and the rows that are printed."""
        header = ("coefficient", "estimate", f"{100 * self.confidence:.4g}% interval", "noise")
        rows = [(i.name, f"{i.estimate:.4g}", _between(i), f"{i.noise_share:.0%}") for i in self.intervals]
        return header, rows

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return html_table(" ".join(self.notes), *self._table())

    def __repr__(self) -> str:
        header, rows = self._table()
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(w) if k == 0 else cell.rjust(w) for k, (cell, w) in enumerate(pairs))
            for pairs in (tuple(zip(row, widths, strict=True)) for row in (header, *rows))
        ]
        return "\n".join([*(line.rstrip() for line in lines), *self.notes])

    @property
    def notes(self) -> list[str]:
        """The target, the meaning of the last column, and the references, as sentences."""
        found = [self.about, "noise: share of the variance that is noise for privacy; the rest is sampling."]
        if self.references:
            found.append(f"Relative to {', '.join(self.references)}.")
        return found


def _between(interval: Interval) -> str:
    return f"{interval.low:.4g} to {interval.high:.4g}"
