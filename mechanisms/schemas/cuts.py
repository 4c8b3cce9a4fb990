"""Private cuts of a column of numbers: a tree of exponential mechanisms over one public prior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import pure_to_gdp
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_positive, largest_below
from privopt.mechanisms.schemas.prior import (
    LARGEST_LOG_MASS,
    LAST,
    MASS_ROUNDINGS,
    draw_between,
    masses,
    number_at,
    ordinals,
)
from privopt.oracles.draw.interface import UNIT_ROUNDOFF, RandomSource, chain_error, race

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# The share of a draw's strength reserved for the floating-point error of its law.
ARITHMETIC_SHARE = 1e-4
# A tree halves its cells well if strength times records is at least this.
ENOUGH = 40.0
# Leaving a node whole weighs as much as if each of its numbers were a cut with 5% of its records on one side.
# In a node at an end of the range of doubles, where a cut may be far from all records, leaving it whole
# weighs at least e^4 times as much as if each of its numbers were a cut with no record on one side.
_FEW, _UNBOUNDED = 0.05, 4.0


@dataclass(frozen=True)
class CutPlan:
    """Cut a column of numbers at about its median, the halves at about theirs, and so on, ``depth`` times.

    A node is an interval (a, b); it is cut at a number t with a < t < b, drawn with the probability
    proportional to prior(t) exp(-strength |#{x < t} - m / 2|), where x runs through the m records of the node
    (m is not released). The prior is public (``schemas.prior``), so there is no declared range.

    A node may also be left whole, until the next level tries it again: no cut halves a node whose records all
    have the same number. Leaving it whole has a weight of a factor times prior((a, b)) exp(-strength m / 2),
    which is at least the total weight of all cuts with no record on one side. The factor is the larger of e^c
    and exp(0.05 strength m), where c is 4 if a or b is an end of the range of doubles, and 0 otherwise; at
    the root, where both are ends, it is e^4. So cuts that no record supports are rare, and a column has none
    if its records are too few.

    Privacy: ``level``-GDP, neighbours by replacing one record, the number of records public. A missing number
    is in no node. One level of the tree, given the levels above, is a release of bounded range 2 strength:

    - The replaced record stays in its node: m is unchanged and #{x < t} moves by at most 1, so the logarithm
      of a weight moves by a number in [-strength, strength].
      The weight of leaving the node whole does not move, as it depends on m alone.
    - The replaced record moves from one node to another, or is missing on one of the two tables. Where a node
      gains or loses a record, #{x < t} - m / 2 moves by +-1/2, and m / 2 - max(c / strength, 0.05 m), for
      leaving it whole, by between 0.45 and 1/2. So in each of at most two independent draws the logarithms of
      weights move by numbers in [-strength / 2, strength / 2], and in both together by a number in
      [-strength, strength].

    Normalisation shifts all logarithms alike: their range is at most 2 strength. A factor 1 + 1e-4 on that
    range pays for the rounding of the draw's law. A release of bounded range r is mu-GDP, mu =
    ``pure_to_gdp(r / 2)``: its likelihood ratios lie in an interval [e^(t-r), e^t], so it is a
    post-processing of the release of one bit with the ratios e^t and e^(t-r). The neighbour changes the odds
    of that bit by the factor e^r. The trade-off curve of the bit has one corner, which is on or above the
    curve of mu-GDP if mu >= Phi^-1(p) - Phi^-1(q) for logit p = logit q + r. That difference is largest where
    p = 1 - q, since the derivative of Phi^-1(logistic(x)) is even and falls with |x|. Levels compose: mu
    sqrt(depth) (Dong, Roth and Su 2022, corollary 3.3).

    Attributes:
        strength: lambda, > 0.
        depth: levels of the tree, >= 1: 2^depth - 1 cuts.
        n_records: public, missing ones included.
    """

    strength: float
    depth: int
    n_records: int

    @classmethod
    def plan(cls, mu: float, n_records: int, *, most_depth: int) -> Self | None:
        """Calibrate to mu-GDP, with the greatest depth for which strength * n_records >= 40; None if no depth
        satisfies that.

        Raises:
            PrivacyParameterError: a mu for which doubles are too coarse.
        """
        for depth in range(most_depth, 0, -1):
            made = cls(strength_of(mu / math.sqrt(depth), n_records), depth, n_records)
            if made.strength * n_records >= ENOUGH:
                return made
        return None

    @property
    def level(self) -> float:
        """The level of Gaussian differential privacy, rounded up."""
        one = pure_to_gdp(self.strength * (1 + ARITHMETIC_SHARE))
        return math.sqrt(self.depth) * one * (1 + 2.0**-50)

    def release(self, values: Floats, source: NoiseSource, counts: Ints | None = None) -> tuple[float, ...]:
        """Release the cuts, increasing; none if records are too few for any. Costs ``level``.

        Args:
            values: the numbers that are not missing; infinite ones allowed.
            source: the source of noise.
            counts: the number of records of each value, None: one. They add up to at most n_records.
        """
        cuts: list[int] = []
        nodes = [(-LAST, LAST, *counted_ordinals(values, counts))]
        for _level in range(self.depth):
            below: list[tuple[int, int, Ints, Ints]] = []
            for low, high, held, times in nodes:
                if high - low < 2:  # no number lies between: this follows from released cuts
                    continue
                cut = _drawn_cut(low, high, held, times, self.strength, source)
                if cut is None:
                    below.append((low, high, held, times))
                    continue
                place = int(np.searchsorted(held, cut, side="left"))
                below += [(low, cut, held[:place], times[:place]), (cut, high, held[place:], times[place:])]
                cuts.append(cut)
            nodes = below
        return tuple(number_at(cut) for cut in sorted(cuts))


def counted_ordinals(values: Floats, counts: Ints | None) -> tuple[Ints, Ints]:
    """Return the different ordinals of numbers, sorted, and the number of records of each.

    Args:
        values: numbers, none missing.
        counts: the number of records of each value, None: one.
    """
    held, places = np.unique(ordinals(np.asarray(values, dtype=np.float64)), return_inverse=True)
    times = np.zeros(len(held), dtype=np.int64)
    np.add.at(times, places, 1 if counts is None else counts)
    return held, times


def strength_of(mu: float, n_records: int) -> float:
    """Return the largest strength with which a draw is mu-GDP (see ``CutPlan``), rounded down.

    Raises:
        PrivacyParameterError: the law of a draw in doubles is too coarse for it.
    """
    charged = largest_below(pure_to_gdp, check_positive(mu, "mu"))
    strength = charged / (1 + ARITHMETIC_SHARE) * (1 - 1e-12)
    # If the probabilities of a draw are wrong by a factor of at most e^error on either table, the range grows
    # by 4 errors.
    if not 4 * law_error(strength, n_records) <= 2 * strength * ARITHMETIC_SHARE:
        raise PrivacyParameterError(
            f"mu = {mu:.3g} (GDP) for one draw from {n_records:,} records: floating-point numbers are too "
            "coarse for it. To do: an epsilon nearer to 1"
        )
    return strength


def law_error(strength: float, n_records: int) -> float:
    """Return a bound on the rounding error of the logarithm of the probability of a cut.

    The gap between two records is drawn by a race between rounded weights; the number within the gap is drawn
    exactly.
    """
    magnitude = LARGEST_LOG_MASS + _UNBOUNDED + strength * n_records / 2
    weight = UNIT_ROUNDOFF * (MASS_ROUNDINGS + 8 * (1 + magnitude))
    return chain_error(1, weight, magnitude)


def _drawn_cut(
    low: int, high: int, held: Ints, times: Ints, strength: float, random: RandomSource
) -> int | None:
    """Draw the ordinal of a cut in (low, high) of a node; None leaves it whole.

    The node holds the distinct ordinals ``held``, sorted, each as often as ``times`` says. All cuts between
    two consecutive ordinals have the same score. A gap that contains no number has no mass.
    """
    edges = np.concatenate([[low], np.clip(held, low, high - 1), [high - 1]])
    below = np.concatenate([[0], np.cumsum(times)])
    records = int(below[-1])
    off_centre = np.abs(2 * below - records)
    with np.errstate(divide="ignore"):
        log_weights = np.log(masses(edges[:-1], edges[1:])) - strength / 2 * off_centre
    beyond = np.log(masses(edges[:1], edges[-1:])) - strength / 2 * records
    ends = (low == -LAST) + (high == LAST)
    for_ends = _UNBOUNDED if ends else 0.0
    for_few = _FEW * strength * records if ends < 2 else 0.0
    gap = race(random, np.append(log_weights, beyond + max(for_ends, for_few)))
    return None if gap > len(held) else draw_between(int(edges[gap]), int(edges[gap + 1]), random)
