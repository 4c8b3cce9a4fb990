"""Intervals to expect of least squares whose moments are assumed: planning, before any data are read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from privopt.mechanisms.inference.least_squares import LeastSquares

# Least ratio of the smallest eigenvalue to the noise for a plan: below it widths vary much between releases.
LEAST_PLANNED_SIGNAL = 2.0


@dataclass(frozen=True, eq=False)
class AssumedLeastSquares(LeastSquares):
    """Least squares at assumed moments without noise, with the intervals that the noise of a release would
    give.

    Its intervals are typically as wide as those of a release: within 3%, as measured, where the smallest
    eigenvalue is 3 times the noise or more.

    Attributes:
        variance: the assumed variance of the residuals.
    """

    variance: float

    @cached_property
    def residual_variance(self) -> float:
        return self.variance
