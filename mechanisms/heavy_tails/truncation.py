"""Soft truncation: its threshold, its effect on accuracy, and its sensitivity to a record."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_positive
from privopt.problems.convex.truncation import INFLUENCE


@dataclass(frozen=True)
class SoftTruncation:
    """The robust mean (s/n) sum_i E phi(x_i (1 + Z / sqrt beta) / s), Z standard normal.

    A record contributes at most 2 sqrt(2)/3 * s / n, whatever its value. Let E x^2 <= v. Since phi(x) <=
    log(1 + x + x^2/2), and exp(E phi) <= E exp(phi), the mean is above E x by more than

        (1 + 1/beta) v / (2 s) + s log(1/p) / n

    with probability at most p; the same bound holds below. (Catoni and Giulini 2017 use a divergence between
    laws of Z and get a larger constant; Holland 2019, Lemma 5.)

    Attributes:
        scale: s, in the unit of the data.
        beta: precision of the smoothing: the threshold is blurred by a relative 1 / sqrt beta.
    """

    scale: float
    beta: float

    def __post_init__(self) -> None:
        check_positive(self.scale, "scale")
        check_positive(self.beta, "beta")

    @classmethod
    def as_printed(cls, n: int, moment: float, failure: float) -> Self:
        """Return the truncation of the paper: s = sqrt(n v / (2 beta)), beta = log(1/failure).

        It balances bias against deviation and ignores the noise, which grows with s. Source: Wang, Xiao,
        Devadas and Xu (2020).
        """
        log = _log(failure)
        return cls(math.sqrt(n * check_positive(moment, "moment") / (2 * log)), log)

    @classmethod
    def balanced(cls, n: int, moment: float, failure: float, noise: float) -> Self:
        """Return the s that minimises bias + deviation + noise * s, far below the printed one if noise
        dominates.

        Args:
            noise: magnitude of the noise on the mean for s = 1.
        """
        log = _log(failure)
        bias = (1 + 1 / log) * check_positive(moment, "moment") / 2
        return cls(math.sqrt(bias / (log / n + noise)), log)

    def sensitivity(self, n: int, dimension: int) -> float:
        """Return the l2 sensitivity of the computed mean of n vectors under replace-one."""
        rounding = (n + 3) * 2.0**-53
        return 2 * INFLUENCE * self.scale * math.sqrt(dimension) * (1 / n + rounding) * (1 + 1e-12)

    def largest_mean(self, moment: float) -> float:
        """Bound the mean of numbers with this second moment, before and after truncation."""
        return min(math.sqrt(moment), INFLUENCE * self.scale)

    def deviation(self, n: int, moment: float, failure: float) -> float:
        """Bound the deviation of the mean of n numbers, except with probability ``failure``."""
        log = _log(failure / 2)
        return (1 + 1 / self.beta) * moment / (2 * self.scale) + self.scale * log / n


def _log(failure: float) -> float:
    """Return log(1/failure) for failure in (0, 1/2)."""
    if not 0 < failure < 0.5:
        raise PrivacyParameterError(f"failure is a probability in (0, 0.5), got {failure!r}")
    return -math.log(failure)
