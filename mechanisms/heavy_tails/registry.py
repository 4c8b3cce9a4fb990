"""Mechanisms for records without bounds, by name."""

from __future__ import annotations

from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.heavy_tails.descent import RobustDescent
from privopt.mechanisms.heavy_tails.measured_descent import (
    MeasuredDescent,
    MeasuredRobustDescent,
    MeasuredRobustStochastic,
    MeasuredTrimmedDescent,
)
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.robust_stochastic import RobustStochasticGradient
from privopt.mechanisms.heavy_tails.trimmed_descent import TrimmedGradientDescent
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean

# Minimisers of risks.
ROBUST_MECHANISMS: dict[str, type[RobustDescent]] = {
    m.name: m for m in (RobustGradientDescent, RobustStochasticGradient, TrimmedGradientDescent)
}
# Means of vectors.
MEANS: dict[str, type[RobustMean] | type[TrimmedMean]] = {m.name: m for m in (RobustMean, TrimmedMean)}
# Linear models of records of unknown size; the first is the default.
ROBUST_FITS: dict[str, type[ClippedNewton] | type[MeasuredDescent]] = {
    m.name: m
    for m in (ClippedNewton, MeasuredRobustDescent, MeasuredRobustStochastic, MeasuredTrimmedDescent)
}
