"""Private choice of the number of records per person: about the least that is enough for most persons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import (
    bounded_range_to_zcdp,
    gaussian_epsilon,
    gaussian_mu,
    pure_to_gdp,
    zcdp_epsilon,
    zcdp_rho,
)
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_epsilon
from privopt.mechanisms.privacy.spend import NEIGHBOURS, PrivacySpend
from privopt.mechanisms.schemas.cuts import ARITHMETIC_SHARE
from privopt.oracles.draw.interface import UNIT_ROUNDOFF, chain_error, race

# Public numbers of records to choose among.
CHOICES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
# The share of persons that may have more than k records, of which only k are used. On synthetic tables of
# persons with 1 to 500 records the k that covers all others was better than k = 1; k = 32 was no better and
# took several times longer.
BEYOND = 0.1
# A choice that no person needs has a weight of exp(-10).
_CLEAR = 10.0
# The largest part of a budget that the choice may take.
_MOST = 0.1
# Factors that round toward privacy: the budget that is left is rounded down, as conversions are inverse to
# each other only up to 1e-10, and sums are rounded up.
_DOWN, _UP = 1 - 2.0**-26, 1 + 2.0**-50


@dataclass(frozen=True)
class RecordsPlan:
    """Choose k, the number of records of each person that are used: about the least of ``CHOICES`` that is
    enough for nine tenths of the persons.

    k is drawn with the probability proportional to exp(-strength d(k)), d(k) the distance of P / 10 from the
    interval [#{r > k}, #{r > j}], where r runs through the numbers of records of the P persons, cut off at
    the largest choice, and j is the choice below k, or 0. So d(k) is 0 if k is enough for nine tenths of the
    persons and j is not, and it is P / 10 if j is already enough for all.

    Privacy: a release of bounded range ``epsilon``, so pure ``epsilon``, and ``level``-GDP; neighbours by
    replacing one person with all of its records, the number of persons public. Replacing a person moves both
    ends of the interval by at most 1, hence d(k) by at most 1, and the logarithm of a weight by a number in
    [-strength, strength]; normalisation shifts all logarithms alike. A factor 1 + 1e-4 on that range, 2
    strength, pays for the rounding of the draw's law. The conversion to GDP is that of ``CutPlan``; the
    conversion to zCDP is that of Cesar and Rogers (2021).

    Attributes:
        strength: > 0.
        n_persons: P, public.
    """

    strength: float
    n_persons: int

    @classmethod
    def plan(cls, n_persons: int, epsilon: float) -> Self:
        """Plan the cheapest choice that is unlikely to draw a k that nobody needs, at a cost of at most a
        tenth of ``epsilon``.

        Raises:
            PrivacyParameterError: too few persons.
        """
        made = cls(_CLEAR / (BEYOND * check_count(n_persons, "the number of persons")), n_persons)
        if made.epsilon > _MOST * check_epsilon(epsilon):
            fewest = math.ceil(made.epsilon * n_persons / (_MOST * epsilon))
            raise PrivacyParameterError(
                f"learning the number of records per person takes data from {fewest:,} persons or more at "
                f"epsilon = {epsilon:g}; there are {n_persons:,}. To do: records_per_person as a number"
            )
        if not 4 * made._law_error <= 2 * made.strength * ARITHMETIC_SHARE:
            raise PrivacyParameterError(f"floating-point numbers are too coarse for {n_persons:,} persons")
        return made

    @property
    def _law_error(self) -> float:
        """A bound on the error of the logarithm of a probability, from rounding."""
        magnitude = self.strength * self.n_persons
        return chain_error(1, 4 * UNIT_ROUNDOFF * (1 + magnitude), magnitude)

    @property
    def epsilon(self) -> float:
        """The range of the privacy loss, rounded up."""
        return 2 * self.strength * (1 + ARITHMETIC_SHARE) * _UP

    @property
    def level(self) -> float:
        """The level of Gaussian differential privacy, rounded up."""
        return pure_to_gdp(self.epsilon / 2) * _UP

    def release(self, held: NDArray[np.int64], source: NoiseSource) -> int:
        """Choose k. Costs ``epsilon``.

        Args:
            held: the number of records of each person, shape (P,), each >= 1.
            source: the source of noise.
        """
        held = np.minimum(held, CHOICES[-1])
        more = np.array([np.count_nonzero(held > k) for k in (0, *CHOICES)], dtype=np.float64)
        wanted = BEYOND * self.n_persons
        distance = np.maximum(np.maximum(more[1:] - wanted, wanted - more[:-1]), 0.0)
        return CHOICES[race(source, -self.strength * distance)]

    def left(self, epsilon: float, delta: float, notion: str) -> float:
        """Return the epsilon that is left for a fit at the same ``delta``; ``notion`` is the notion of
        privacy in which the fit is proved.
        """
        if delta > 0 and notion == "gdp" and (mu := gaussian_mu(epsilon, delta)) > self.level:
            return gaussian_epsilon(math.sqrt(mu**2 - self.level**2) * _DOWN, delta) * _DOWN
        own = bounded_range_to_zcdp(self.epsilon)
        if delta > 0 and notion == "zcdp" and (rho := zcdp_rho(epsilon, delta)) > own:
            return zcdp_epsilon((rho - own) * _DOWN, delta) * _DOWN
        return (epsilon - self.epsilon) * _DOWN

    def beside(self, fits: Sequence[PrivacySpend], delta: float) -> PrivacySpend:
        """Return the spend, for a person, of the choice of k together with the fit that depends on it; that
        fit counts as the costliest of ``fits``.

        Args:
            fits: the spend of the fit for each possible k, for a person.
            delta: the delta at which epsilon is stated.
        """
        names = " or ".join(dict.fromkeys(spend.mechanism for spend in fits))
        notions, name = {spend.notion for spend in fits}, f"learn-records, {names}"
        levels = [spend.level for spend in fits if spend.level is not None]
        epsilon = (max(spend.epsilon for spend in fits) + self.epsilon) * _UP
        if notions == {"gdp"} and len(levels) == len(fits):
            found = PrivacySpend.gdp(math.hypot(max(levels), self.level) * _UP, delta, name)
        elif notions == {"zcdp"} and len(levels) == len(fits):
            rho = max(levels) + bounded_range_to_zcdp(self.epsilon)
            found = PrivacySpend.zcdp(rho * _UP, delta, name)
        elif notions == {"pure"}:
            found = PrivacySpend.pure(epsilon, name)
        else:
            found = PrivacySpend.approximate(epsilon, max(spend.delta for spend in fits), name)
        weakest = next((spend for spend in fits if spend.claim != "proved"), fits[-1])
        learned = (
            f"the number of records of a person that count is learned at epsilon = {self.epsilon:.4g}, "
            f"at most {CHOICES[-1]}"
        )
        return replace(
            found,
            neighbours=NEIGHBOURS["person"],
            claim=weakest.claim,
            note="; ".join(filter(None, (learned, weakest.note))),
        )
