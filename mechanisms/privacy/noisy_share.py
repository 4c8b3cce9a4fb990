"""Released share of positives with known noise, as part of a larger release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from privopt.problems.arguments import check_real
from privopt.problems.errors import InvalidInputError

# Beta prior of the share of positives, the best of those tried on synthetic scores with 2% to 50% positives,
# 500 to 2,000 records, and epsilon 0.02 and 0.06 for the table of risks, which then has one row.
_PRIOR = 0.5, 1.5
_FAR, _CELLS = 8.0, 400  # of the integral: reach on either side, in standard deviations of noise; cells


@dataclass(frozen=True)
class NoisyShare:
    """Share of positive records plus Gaussian noise: a part of a release, whose spend covers it.

    Attributes:
        value: the noisy share, possibly outside [0, 1].
        deviation: standard deviation of its noise, > 0. Public.
    """

    value: float
    deviation: float

    def __post_init__(self) -> None:
        for number, name in ((self.value, "a noisy share"), (self.deviation, "the noise of a share")):
            if not math.isfinite(check_real(number, name)):
                raise InvalidInputError(f"{name} must be finite, got {number}")
        if not self.deviation > 0:
            raise InvalidInputError(f"the noise of a share must be > 0, got {self.deviation}")

    def with_another(self, seen: float, deviation: float) -> tuple[float, float]:
        """Return the mean of two noisy values of the share, weighted by precision, and the deviation of its
        noise.

        Args:
            seen: another noisy value of the same share, with independent noise.
            deviation: standard deviation of that noise, >= 0.
        """
        kept = deviation**2 / (deviation**2 + self.deviation**2)
        return seen + kept * (self.value - seen), math.sqrt(kept) * self.deviation

    def to_dict(self) -> dict[str, float]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {"value": self.value, "deviation": self.deviation}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read ``to_dict`` back.

        Raises:
            KeyError, TypeError, InvalidInputError: not what ``to_dict`` returns.
        """
        return cls(record["value"], record["deviation"])


def likely_share(seen: float, sigma: float) -> float:
    """Return the posterior mean of a share observed with noise ``sigma``, with a beta prior of mean 1/4."""
    near = min(max(seen, 0.0), 1.0)
    low, high = max(near - _FAR * sigma, 0.0), min(near + _FAR * sigma, 1.0)
    if not high > low:
        return near
    p = low + (high - low) * (np.arange(_CELLS) + 0.5) / _CELLS
    a, b = _PRIOR
    logarithms = (a - 1) * np.log(p) + (b - 1) * np.log1p(-p) - ((seen - p) / sigma) ** 2 / 2
    likely = np.exp(logarithms - logarithms.max())
    return float(p @ likely / likely.sum())
