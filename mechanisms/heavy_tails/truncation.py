"""Soft truncation as a plan: where it sets in, what it costs in accuracy, what a record can do to it."""

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

    A record contributes at most 2 sqrt(2)/3 * s / n, whatever it is. Let E x^2 <= v. Since
    phi(x) <= log(1 + x + x^2/2), and exp(E phi) <= E exp(phi), the mean is above E x by more than

        (1 + 1/beta) v / (2 s) + s log(1/p) / n

    with probability at most p; below it likewise. (Catoni and Giulini 2017 go through a divergence between
    laws of Z and get a larger constant; Holland 2019, Lemma 5.)

    Attributes:
        scale: s, in the unit of the data.
        beta: how little the threshold is blurred.
    """

    scale: float
    beta: float

    def __post_init__(self) -> None:
        check_positive(self.scale, "scale")
        check_positive(self.beta, "beta")

    @classmethod
    def as_printed(cls, n: int, moment: float, failure: float) -> Self:
        """s = sqrt(n v / (2 log(1/failure))), beta = log(1/failure): Wang, Xiao, Devadas and Xu (2020).

        It balances bias against deviation, and knows nothing of the noise, which grows with s.
        """
        log = _log(failure)
        return cls(math.sqrt(n * check_positive(moment, "moment") / (2 * log)), log)

    @classmethod
    def balanced(cls, n: int, moment: float, failure: float, noise: float) -> Self:
        """The s that minimises bias + deviation + noise * s: far smaller where noise is the larger part.

        Args:
            noise: the size of the noise on the mean for s = 1.
        """
        log = _log(failure)
        bias = (1 + 1 / log) * check_positive(moment, "moment") / 2
        return cls(math.sqrt(bias / (log / n + noise)), log)

    def sensitivity(self, n: int, dimension: int) -> float:
        """l2 sensitivity of the computed mean of n vectors under replace-one, rounding of sums included."""
        rounding = (n + 3) * 2.0**-53
        return 2 * INFLUENCE * self.scale * math.sqrt(dimension) * (1 / n + rounding) * (1 + 1e-12)

    def deviation(self, n: int, moment: float, failure: float) -> float:
        """Bound on the deviation of the mean of n numbers, except with probability ``failure``."""
        log = _log(failure / 2)
        return (1 + 1 / self.beta) * moment / (2 * self.scale) + self.scale * log / n


def _log(failure: float) -> float:
    """log(1/failure), failure in (0, 1/2)."""
    if not 0 < failure < 0.5:
        raise PrivacyParameterError(f"failure is a probability in (0, 0.5), got {failure!r}")
    return -math.log(failure)
