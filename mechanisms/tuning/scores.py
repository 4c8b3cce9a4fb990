"""Noisy scores of models on held-out records: the mean of numbers in [0, 1], one per record."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.grid_releases import DiscreteGaussianRelease, DiscreteLaplaceRelease
from privopt.mechanisms.privacy.noise import NoiseSource

# Relative and absolute allowance for the grid of the noise, and the least level for which it suffices.
_GRID, _LEAST = 2.0**-29, 2.0**-24
# The least noise of a mean, whatever the level: with less noise, the sum on the grid would exceed 64 bits.
_LEAST_NOISE = 2.0**-29


@dataclass(frozen=True)
class NoisyMean:
    """A mean of numbers in [0, 1], one per record, with discrete Gaussian or Laplace noise.

    Privacy, for data sets that differ by replacing one record, with a public number of records: a replaced
    record changes the sum by at most 1, so the release is mu-GDP (``gaussian``) or epsilon-DP (otherwise).

    Attributes:
        level: mu or epsilon.
        gaussian: whether the noise is Gaussian.
    """

    level: float
    gaussian: bool

    def __post_init__(self) -> None:
        if not self.level >= _LEAST:
            raise PrivacyParameterError(f"a score at the level {self.level:g} is nothing but noise")

    @property
    def scale(self) -> float:
        """The standard deviation (Gaussian) or scale (Laplace) of the noise on the sum.

        A release has more noise if this is too little for its grid.
        """
        return (1 + 1e-12) / (self.level * (1 - _GRID) - _GRID)

    def release(self, scores: ArrayLike, noise: NoiseSource) -> float:
        """Release the mean of n >= 1 numbers, shape (n,), clipped to [0, 1]; NaN counts as 0."""
        return float(self.releases(np.asarray(scores)[None], noise)[0])

    def releases(self, scores: ArrayLike, noise: NoiseSource) -> NDArray[np.float64]:
        """Release the mean of each row of ``scores``, shape (k, n); each of the k means costs the level."""
        numbers = np.nan_to_num(np.asarray(scores, dtype=np.float64), nan=0.0).clip(0.0, 1.0)
        kind = DiscreteGaussianRelease if self.gaussian else DiscreteLaplaceRelease
        scale = max(self.scale, numbers.shape[1] * _LEAST_NOISE)
        one = kind(1.0, scale, 1)
        if (one.mu if isinstance(one, DiscreteGaussianRelease) else one.epsilon) > self.level:
            raise PrivacyParameterError(
                f"a score at the level {self.level:g} is beyond the grid of its noise"
            )
        # The sums are released as one vector, whose coordinates have independent noise of the same scale.
        sums = kind(1.0, scale, len(numbers)).release(numbers.T, noise)
        return np.asarray(sums / numbers.shape[1])
