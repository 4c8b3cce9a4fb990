"""Private bounds between which nearly all numbers of a column lie."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.privacy.accounting import pure_to_gdp
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.cuts import ARITHMETIC_SHARE, ENOUGH, counted_ordinals, strength_of
from privopt.mechanisms.schemas.prior import LAST, draw_between, masses, number_at
from privopt.oracles.draw.interface import race

# Bounds of larger magnitude have no round numbers around them.
_LARGEST = 1e300
_FINITE = sys.float_info.max

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class BoundsPlan:
    """Draw a number with about 20 / strength numbers of the column above it, and another with as many below
    it.

    The upper bound is t with the probability proportional to prior(t) exp(-strength d(t)), where d(t) is the
    distance of 20 / strength from the interval [#{x > t}, #{x >= t}]. So the largest number itself is likely
    if many records hold it. The lower bound is drawn in the same way, with all signs reversed; the prior
    (``schemas.prior``) is symmetric. A number beyond all data has the weight e^-20 times its prior.

    Privacy: ``level``-GDP, neighbours by replacing one record, the number of records public; missing numbers
    are not counted. Replacing a record moves either end of the interval by at most 1, hence d(t) by at most
    1, and the logarithm of a weight by a number in [-strength, strength]. So a draw is a release of bounded
    range 2 strength, like one level of the tree of ``CutPlan``, whose conversion and charge for rounding
    apply. Two draws compose.

    Attributes:
        strength: lambda, > 0.
        n_records: public, missing ones included.
    """

    strength: float
    n_records: int

    @classmethod
    def plan(cls, mu: float, n_records: int) -> Self | None:
        """Calibrate to mu-GDP; None if strength * n_records < 40.

        Raises:
            PrivacyParameterError: a mu for which doubles are too coarse.
        """
        # Distances reach n_records, twice as far as the distances of cuts.
        made = cls(strength_of(mu / math.sqrt(2), 2 * n_records), n_records)
        return made if made.strength * n_records >= ENOUGH else None

    @property
    def level(self) -> float:
        """The level of Gaussian differential privacy, rounded up."""
        return math.sqrt(2) * pure_to_gdp(self.strength * (1 + ARITHMETIC_SHARE)) * (1 + 2.0**-50)

    @property
    def beyond(self) -> float:
        """The approximate number of records beyond a bound."""
        return ENOUGH / 2 / self.strength

    def release(self, values: Floats, source: NoiseSource, counts: Ints | None = None) -> tuple[float, float]:
        """Release bounds, the smaller first; they may be equal. Costs ``level``.

        Args:
            values: the numbers that are not missing; infinite ones allowed.
            source: the source of noise.
            counts: the number of records of each value, None: one. They add up to at most n_records.
        """
        held, times = counted_ordinals(np.clip(values, -_FINITE, _FINITE), counts)
        high, low = self._upper(held, times, source), -self._upper(-held[::-1], times[::-1], source)
        low, high = min(low, high), max(low, high)
        least, largest = np.clip([number_at(low), number_at(high)], -_LARGEST, _LARGEST)
        return float(least), float(largest)

    def _upper(self, held: Ints, times: Ints, source: NoiseSource) -> int:
        """Draw the ordinal of an upper bound. Numbers between two records have the same score.

        Args:
            held: different ordinals of finite numbers, sorted.
            times: the number of records of each.
            source: the source of noise.
        """
        # Intervals: the gap below all records, then for each number of the column that number and the gap
        # above it.
        edges = np.concatenate([[-LAST - 1], np.stack([held - 1, held], axis=1).ravel(), [LAST]])
        above = np.cumsum(np.concatenate([[0], times[::-1]]))[::-1]
        fewest = np.repeat(above, 2)[1:]  # #{x > t}
        most = np.repeat(above, 2)[:-1]  # #{x >= t}
        distance = np.maximum(np.maximum(fewest - self.beyond, self.beyond - most), 0.0)
        with np.errstate(divide="ignore"):
            log_weights = np.log(masses(edges[:-1], edges[1:])) - self.strength * distance
        place = race(source, log_weights)
        return draw_between(int(edges[place]), int(edges[place + 1]), source)
