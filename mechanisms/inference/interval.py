"""Confidence intervals of linear models: single intervals, tables, and differences between two models.

The bounds of intervals are computed in ``least_squares``, ``robust_least_squares`` and ``logistic``.
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
        InvalidInputError: the confidence is not a number in [0.5, 1).
    """
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0.5 <= confidence < 1:
        raise InvalidInputError(f"confidence must be a number in [0.5, 1), got {told(confidence)}")
    return -float(ndtri((1 - confidence) / 2))


@dataclass(frozen=True)
class Interval:
    """Estimate of a number with a confidence interval that includes the noise for privacy.

    Attributes:
        name: the name of the number, such as that of a coefficient.
        estimate: the estimate, unbiased up to the noise in the curvature. It is not shrunk and so differs
            from the weight of the model.
        low, high: the interval; infinite if the noise leaves no bound.
        noise_share: the share of the estimate's variance that is due to noise for privacy, in [0, 1]; the
            rest is due to the sampling of the records.
    """

    name: str
    estimate: float
    low: float
    high: float
    noise_share: float

    def minus(self, other: Interval) -> Interval:
        """Return the difference of two independent estimates, for example of models of different records.

        Its interval is by the method MOVER (Zou and Donner 2008): squares of distances to the bounds are
        added.
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
        """Return a dictionary for JSON, with None for infinite bounds."""
        low, high = (bound if math.isfinite(bound) else None for bound in (self.low, self.high))
        share = {"noise_share": self.noise_share}
        return {"name": self.name, "estimate": self.estimate, "low": low, "high": high, **share}

    def __str__(self) -> str:
        return f"{self.name} {self.estimate:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclass(frozen=True, repr=False)
class Summary:
    """Coefficients of a linear model with confidence intervals; printed as a table.

    Attributes:
        intervals: one for each coefficient.
        confidence: the confidence of each single interval, in [0.5, 1).
        n_records: the number of records.
        signal_to_noise: the smallest eigenvalue of the noisy curvature in units of the noise. Below 0.5 there
            are no intervals; from 1 on, intervals covered as often as they claim, as measured.
        references: reference levels: coefficients of other levels of their columns are relative to them.
        about: a sentence that says what the intervals are about.
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
        """Sentences on what the intervals are about, on the last column, and on the reference levels."""
        found = [self.about, "noise: share of the variance that is noise for privacy; the rest is sampling."]
        if self.references:
            found.append(f"Relative to {', '.join(self.references)}.")
        return found


def _between(interval: Interval) -> str:
    return f"{interval.low:.4g} to {interval.high:.4g}"
