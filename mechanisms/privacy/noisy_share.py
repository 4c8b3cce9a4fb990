"""Released share of positives with known noise, as part of a larger release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from privopt.problems.arguments import check_real
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class NoisyShare:
    """Share of positive records plus Gaussian noise. Released: the spend is that of the release around it.

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
        """Return the mean of this share and another, weighted by precision, and its standard deviation.

        Args:
            seen: the same share, with other, independent noise.
            deviation: standard deviation of that noise, >= 0.
        """
        kept = deviation**2 / (deviation**2 + self.deviation**2)
        return seen + kept * (self.value - seen), math.sqrt(kept) * self.deviation

    def to_dict(self) -> dict[str, float]:
        """JSON-ready; ``from_dict`` reads it back."""
        return {"value": self.value, "deviation": self.deviation}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read ``to_dict`` back.

        Raises:
            KeyError, TypeError, InvalidInputError: anything else.
        """
        return cls(record["value"], record["deviation"])
