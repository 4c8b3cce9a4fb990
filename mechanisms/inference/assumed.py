"""Intervals to expect of least squares whose moments are assumed: planning, before any data are read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from privopt.mechanisms.inference.least_squares import LeastSquares

# Least ratio of the smallest eigenvalue to the noise for a plan: below it widths vary much between releases.
LEAST_PLANNED_SIGNAL = 2.0


@dataclass(frozen=True, eq=False)
class AssumedLeastSquares(LeastSquares):
    """Least squares at moments without noise in them, beside the noise that a release would have.

    Its intervals are as wide as those of a release typically are; measured: within 3% where the smallest
    eigenvalue is 3 times the noise or more.

    Attributes:
        variance: the assumed variance of the residuals.
    """

    variance: float

    @cached_property
    def residual_variance(self) -> float:
        return self.variance
