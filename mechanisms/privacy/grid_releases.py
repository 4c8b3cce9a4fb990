"""Releases of real vectors: sums rounded to a public grid, plus exact discrete Gaussian or Laplace noise."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_positive

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class DiscreteGaussianRelease:
    """Release of a sum of real vectors, one per record, with discrete Gaussian noise on a grid, so that no
    low bits of doubles leak.

    Contributions are rounded to multiples of grid = sigma / 2**30 and summed as integers; exact discrete
    Gaussian noise of standard deviation 2**30 grid steps is added; the total is released as a multiple of the
    grid. Rounding moves each coordinate of the difference of two contributions by at most one grid step, and
    therefore ``grid_sensitivity`` is larger than ``sensitivity``.

    Privacy, neighbours by replacing one record, n public: one release is mu-GDP with mu = ``mu``, which is
    grid_sensitivity / sigma increased by a relative 2^-60, hence also mu^2/2-zCDP. For a sum over a *sampled*
    batch this is not proved. But such a release is within total variation ``distance_to_gaussian`` of the sum
    with rounded Gaussian noise; its delta is the delta of this noisy sum plus (1 + exp(epsilon)) times the
    distance.

    Proof. Let p_j be the discrete Gaussian of parameter s, z_m = Phi^-1(sum of p_j over j < m), and D = (1 +
    s^-2) / s, s >= 2. Then z_(m+1) - z_m <= D for all m: let q_j be the normal mass of the cell [z_m + (j -
    m) D, z_m + (j - m + 1) D], so that p and q agree on {j < m} and on {j >= m}. As a function of the centre
    c of a cell, (log q)'' = -1 + Var, the variance of a law on an interval of length D, at most D^2 / 4;
    hence q_j^2 / (q_(j-1) q_(j+1)) >= exp(D^2 (1 - D^2/4)) >= exp(s^-2) = p_j^2 / (p_(j-1) p_(j+1)), and
    log(p/q) is convex. Were p_m > q_m, some later p_j < q_j, for they have equal sums; then log(p/q) falls
    there and p_i > q_i for all i < m, which have equal sums as well. So p_m <= q_m: the claim.
    The best tests of X against X + k are thresholds (monotone likelihood ratio). The threshold at m has level
    a with Phi^-1(1 - a) = z_m and misses with probability Phi(z_(m-k)) >= Phi(Phi^-1(1 - a) - k D). Between
    thresholds the trade-off curve is linear, while the curve of k D-GDP is convex. So a shift by k is |k|
    D-GDP, and coordinates compose: Dong, Roth and Su (2022), corollary 3.3.

    Attributes:
        sensitivity: bound on |x - x'|_2 over any two contributions x, x', > 0: twice a clipping norm.
        sigma: standard deviation per coordinate of the released sum, > 0.
        dimension: the length of a contribution, >= 1.
    """

    sensitivity: float
    sigma: float
    dimension: int

    def __post_init__(self) -> None:
        _check_release(self.sensitivity, "sigma", self.sigma, self.dimension)

    @property
    def grid(self) -> float:
        """The grid step, in the units of the data."""
        return _grid(self.sigma)

    @property
    def grid_sensitivity(self) -> float:
        """l2 sensitivity of the rounded sum; the last factor bounds the rounding errors of ``_steps``."""
        return (self.sensitivity + math.sqrt(self.dimension) * self.grid) * (1 + 2.0**-40)

    @property
    def mu(self) -> float:
        """The level of Gaussian differential privacy, rounded up; the last factor is more than D s."""
        return self.grid_sensitivity / self.sigma * (1 + 2.0**-50)

    @property
    def distance_to_gaussian(self) -> float:
        """Bound on the total variation distance to a rounded continuous Gaussian.

        Let f be the normal density of standard deviation s = 2**30 grid steps. The integral of f over the
        cell around a grid point differs from f at the point by at most 1/24 of the largest second derivative
        in the cell. Half the sum of these over cells is at most (|D2 f|_1 + |D3 f|_1) / 48, below 1 / (32
        s**2) per coordinate; the normaliser of the discrete law adds less than exp(-19 s**2).
        """
        return self.dimension / 32 * 4.0**-MAX_EXPONENT

    def release(self, contributions: ArrayLike, noise: NoiseSource) -> Floats:
        """Sum the rows of an (n, dimension) array and add noise; returns shape (dimension,).

        The caller guarantees that rows are clipped so that two of them differ by at most ``sensitivity``.

        Raises:
            PrivacyParameterError: another shape, NaN, infinity, or rows too large for the grid.
        """
        return self.add(contributions, noise.discrete_gaussian(MAX_EXPONENT, self.dimension))

    def add(self, contributions: ArrayLike, drawn: Ints) -> Floats:
        """Release with a fresh draw from ``NoiseSource.discrete_gaussian(MAX_EXPONENT, dimension)``."""
        return np.asarray((_steps(contributions, self.grid, self.dimension) + drawn) * self.grid)


@dataclass(frozen=True)
class DiscreteLaplaceRelease:
    """Release like ``DiscreteGaussianRelease``, with exact discrete Laplace noise and sensitivity in l1.

    Privacy: epsilon-differential privacy (pure) with epsilon = ``epsilon``, neighbours by replacing one
    record, n public: a shift of the sum by k grid steps in l1 changes the probability of any outcome by a
    factor of at most exp(k / 2**30), and one record shifts it by at most ``grid_sensitivity``.

    Attributes:
        sensitivity: bound on |x - x'|_1 over any two contributions x, x', > 0: twice a clipping norm.
        scale: scale of the Laplace noise per coordinate, > 0.
        dimension: the length of a contribution, >= 1.
    """

    sensitivity: float
    scale: float
    dimension: int

    def __post_init__(self) -> None:
        _check_release(self.sensitivity, "scale", self.scale, self.dimension)

    @property
    def grid(self) -> float:
        """The grid step, in the units of the data."""
        return _grid(self.scale)

    @property
    def grid_sensitivity(self) -> float:
        """l1 sensitivity of the rounded sum: rounding adds at most one grid step per coordinate."""
        return (self.sensitivity + self.dimension * self.grid) * (1 + 2.0**-40)

    @property
    def epsilon(self) -> float:
        """The epsilon of one release, rounded up."""
        return self.grid_sensitivity / self.scale * (1 + 2.0**-50)

    def release(self, contributions: ArrayLike, noise: NoiseSource) -> Floats:
        """Sum the rows of an (n, dimension) array and add noise; returns shape (dimension,).

        Raises:
            PrivacyParameterError: another shape, NaN, infinity, or rows too large for the grid.
        """
        drawn = noise.discrete_laplace(MAX_EXPONENT, self.dimension)
        return np.asarray((_steps(contributions, self.grid, self.dimension) + drawn) * self.grid)


def _check_release(sensitivity: float, name: str, width: float, dimension: int) -> None:
    """Raise PrivacyParameterError for invalid parameters; ``width`` is the noise scale, called ``name``."""
    check_positive(sensitivity, "sensitivity")
    check_positive(width, name)
    check_count(dimension, "dimension")
    if _grid(width) < sys.float_info.min:  # too few digits: rounding would change the width of the noise
        raise PrivacyParameterError(f"{name} = {width:g} is too small for a grid: rescale the data")


def _grid(width: float) -> float:
    """Return the grid step for a noise scale."""
    return width * 2.0**-MAX_EXPONENT


def _steps(contributions: ArrayLike, grid: float, dimension: int) -> Ints:
    """Return the sum of the rows, each rounded to the grid, in grid steps."""
    rows = np.asarray(contributions, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != dimension:
        raise PrivacyParameterError(f"expected shape (n, {dimension}), got {rows.shape}")
    steps = np.rint(rows / grid)
    if not np.all(np.abs(steps) < 2.0**60 / max(1, len(rows))):
        raise PrivacyParameterError(
            "contributions must be finite, and small enough for a 64-bit sum on the grid"
        )
    more = np.rint(_rest(rows, steps, grid) / grid)
    return np.asarray((steps.astype(np.int64) + more.astype(np.int64)).sum(axis=0))


# Multiplication by this number splits a double into two halves of 26 bits, whose products are exact (Dekker
# 1971).
_SPLIT = 2.0**27 + 1


def _rest(rows: Floats, steps: Floats, grid: float) -> Floats:
    """Return rows - steps * grid, rounded once; for steps below 2^60 it is below 2^8 grid steps.

    A quotient near 2^60 has an error of up to 2^7 before it is rounded; this remainder corrects it. The
    remainder, rounded and added to ``steps``, gives the grid point nearest to a row, up to 2^-44 grid steps.
    """
    product = steps * grid
    high, low = _halves(steps)
    grid_high, grid_low = _halves(grid)
    missing = ((high * grid_high - product) + high * grid_low + low * grid_high) + low * grid_low
    return np.asarray((rows - product) - missing)


def _halves(x: Floats | float) -> tuple[Floats | float, Floats | float]:
    big = _SPLIT * x
    high = big - (big - x)
    return high, x - high
