"""Private selection of the k largest of many scores: successive draws of the exponential mechanism."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import bounded_range_to_zcdp
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_positive
from privopt.oracles.draw.interface import race, race_error

# The share of a draw's epsilon reserved for the floating-point error of its law.
_ARITHMETIC_SHARE = 1e-4


@dataclass(frozen=True)
class TopScores:
    """Draw k indices without replacement, each in proportion to exp(rate * score) among those left.

    Privacy: rho-zCDP, rho = k e^2 / 8 with e = ``draw_epsilon``, if replacing one record changes no score by
    more than ``sensitivity``. Proof: given the earlier draws, the logarithm of the probability of index j
    changes by rate times the change of score j, minus a number that is the same for all j left (the
    normalisation). So for all j this change lies in an interval of width 2 rate * sensitivity <= e: a draw
    has bounded range e (Durfee and Rogers 2019), hence is e^2 / 8-zCDP (Cesar and Rogers 2021), whatever was
    drawn before, and zCDP adds up over adaptive releases. The drawn indices are returned in increasing order,
    and this sorting is post-processing.

    Floating point: ``rate`` is smaller than this proof allows by a share of 1e-4, which covers rounding
    errors in the probabilities of a draw for all scores up to ``largest``; a plan for which this share is too
    small is refused. The probability that a source of random bits runs into 256 zeros is treated as zero.

    Attributes:
        count: k, the number of draws.
        sensitivity: bound on the change of a score when one record is replaced.
        largest: public bound on the magnitude of the scores.
        draw_epsilon: the range of the privacy loss of each draw.
    """

    count: int
    sensitivity: float
    largest: float
    draw_epsilon: float

    @classmethod
    def at_level(cls, rho: float, count: int, *, sensitivity: float, largest: float) -> Self:
        """Calibrate k draws to rho-zCDP together.

        Raises:
            PrivacyParameterError: a parameter out of range, or draws in doubles that are too coarse for it.
        """
        step = math.sqrt(8 * check_positive(rho, "rho") / check_count(count, "count")) * (1 - 1e-12)
        check_positive(sensitivity, "sensitivity")
        made = cls(count, sensitivity, largest, check_positive(step, "epsilon"))
        size = made.rate * largest
        # Rounding a product is like moving a score by 2^-53 of its size. The laws on both data sets may be
        # wrong, each in either direction: hence the factor 4. A billionth of the share is left for the
        # rounding of the rate.
        if not 4 * (race_error(size) + 2.0**-53 * size) <= (1 - 1e-9) * _ARITHMETIC_SHARE * step:
            raise PrivacyParameterError(
                f"draws in doubles are too coarse for an epsilon of {step:.3g} each: a larger epsilon, or "
                "fewer records"
            )
        return made

    @property
    def rate(self) -> float:
        """The factor of scores; its inverse is the scale of the noise on them."""
        return self.draw_epsilon * (1 - _ARITHMETIC_SHARE) / (2 * self.sensitivity)

    @property
    def rho(self) -> float:
        """The cost of all draws as zCDP, rounded up."""
        return self.count * bounded_range_to_zcdp(self.draw_epsilon) * (1 + 1e-14)

    def largest_of(self, scores: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the indices of the k largest scores in increasing order. NOT private."""
        return np.sort(np.argsort(-scores, kind="stable")[: self.count])

    def choose(self, scores: NDArray[np.float64], source: NoiseSource) -> NDArray[np.int64]:
        """Return the drawn indices in increasing order, shape (k,).

        Args:
            scores: shape (p,), p >= k, of magnitude at most ``largest``.
            source: source of the draws.
        """
        left, found = np.arange(len(scores)), []
        for _ in range(self.count):
            winner = race(source, self.rate * scores[left])
            found.append(left[winner])
            left = np.delete(left, winner)
        return np.sort(np.array(found, dtype=np.int64))
