"""How common the classes are: noisy counts, for weights that balance them."""

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

# Shares are told as at least this, so weights that balance them differ by its inverse at most.
RAREST = 1e-3


@dataclass(frozen=True)
class PrevalencePlan:
    """The counts of records by class, with exact discrete Laplace noise.

    Privacy: epsilon-differential privacy (pure), neighbours by replacing one record, n public. For two
    classes one count is released, which moves by 1 when a record is replaced; for more a count of each, of
    which two move by 1. The noise is P[Z = z] ~ exp(-rate |z|), rate = epsilon over the number of counts that
    move, rounded down.

    Attributes:
        epsilon: of the release.
        steps: rate = steps / 2**30.
    """

    name: ClassVar[str] = "prevalence"

    epsilon: float
    steps: int

    @classmethod
    def plan(cls, epsilon: float, classes: int) -> Self:
        """Noise for that many classes.

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
        """Shares of the classes, from the number of records of each, shape (K,); all > 0, their sum is 1."""
        released = held[1:] if len(held) == 2 else held
        noisy = released + source.discrete_laplace(MAX_EXPONENT, len(released), steps=self.steps)
        shares = np.clip(noisy / np.sum(held), RAREST, 1 - RAREST)
        whole = np.array([1 - shares[0], shares[0]]) if len(held) == 2 else shares
        return np.asarray(whole / np.sum(whole))
