"""Private release of class shares (prevalence) from noisy counts, for balanced class weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_epsilon

Floats = NDArray[np.float64]

# Released shares are at least this, so balanced weights differ by a factor of at most its inverse.
RAREST = 1e-3


@dataclass(frozen=True)
class PrevalencePlan:
    """Plan of a release of class counts with exact discrete Laplace noise.

    Privacy: epsilon-differential privacy (pure), neighbours by replacing one record, n public. For two
    classes one count is released; replacing a record changes it by at most 1. For more classes every count is
    released; two of them change by at most 1. The noise is P[Z = z] ~ exp(-rate |z|), where rate is epsilon
    divided by the number of counts that change, rounded down.

    Attributes:
        epsilon: the budget of the release.
        steps: rate = steps / 2**30.
    """

    name: ClassVar[str] = "prevalence"

    epsilon: float
    steps: int

    @classmethod
    def plan(cls, epsilon: float, classes: int) -> Self:
        """Calibrate the noise to the number of classes.

        Raises:
            PrivacyParameterError: epsilon not finite and > 0, or too small for the grid of rates.
        """
        epsilon = check_epsilon(epsilon)
        moves = 1 if classes == 2 else 2
        steps = math.floor(min(epsilon, 1000.0) / moves * 2**MAX_EXPONENT * (1 - 1e-12))
        if steps < 1:
            raise PrivacyParameterError(
                f"epsilon = {epsilon:g} for the prevalence is too small: noise would exceed 2^30"
            )
        return cls(epsilon, steps)

    def release(self, held: NDArray[np.int64], source: NoiseSource) -> Floats:
        """Release class shares, shape (K,), from the number of records per class; all > 0 and of sum 1."""
        released = held[1:] if len(held) == 2 else held
        noisy = released + source.discrete_laplace(MAX_EXPONENT, len(released), steps=self.steps)
        shares = np.clip(noisy / np.sum(held), RAREST, 1 - RAREST)
        whole = np.array([1 - shares[0], shares[0]]) if len(held) == 2 else shares
        return np.asarray(whole / np.sum(whole))
