"""In what units a card's model reads numbers where the budget is small: what their noisy means suggest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.privacy.gradient_noise import VectorNoise, noise_at_level
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.problems.discrete.halfspace import ZeroOneHalfspace

Floats = NDArray[np.float64]

# The part of mu^2 for means of numbers; the noise, as a share of a number's range, that need not be less, and
# that which would hide what means say; and a unit in terms of the mean's distance from the nearer end of the
# range. What was best on synthetic tables of 500 to 20,000 records and 4 to 35 columns, of which some numbers
# fill their range and others lie near one end of it.
_SHARE, _ENOUGH, _TOO_MUCH, _UNIT = 0.1, 0.01, 0.12, 2.0


class Unit(NamedTuple):
    """A number x in [low, high] that the model reads as end + (x - end) / size, within these bounds.

    Attributes:
        column: its place in ``CardFacts.spans``, of which it is the first feature.
        low, high: as the schema declares them.
        size: at most 1, a share of the range.
        end: low or high.
    """

    column: int
    low: float
    high: float
    size: float
    end: float

    def read(self, x: Floats) -> Floats:
        """The same numbers as the model reads them."""
        return np.asarray(np.clip(self.end + (x - self.end) / self.size, self.low, self.high))


@dataclass(frozen=True)
class NumberMeans:
    """The mean of every number of a table, noised once; numbers that lie near one end get small units.

    A number that mostly lies near one end of its declared range is small beside noise that is calibrated to
    the range, as incomes are below an upper bound that nobody reaches. Its mean says so.

    Privacy: mu-GDP, ``level``, neighbours by replacing one record, n and the facts public. As a share of its
    range a number lies in [0, 1], so one record moves the means of q of them by at most sqrt(q) / n in l2;
    they are one Gaussian release. Units follow from it and cost nothing.

    An instance is a plan: the noise follows from public facts.

    Attributes:
        facts: what is public.
        noise: of the means, as shares of the ranges.
    """

    name: ClassVar[str] = "number-means"

    facts: CardFacts
    noise: VectorNoise

    @classmethod
    def plan(cls, facts: CardFacts, mu: float) -> Self | None:
        """Means for a part of mu; None where there are no numbers, or noise would hide where they lie."""
        q, n = len(facts.lines), facts.n_records
        if not facts.middle or not q:
            return None
        # One more: the sum is exact, and each product of a share and a count is rounded once.
        sensitivity = math.sqrt(q) * (1 / n + 2.0**-50)
        own = min(mu * math.sqrt(_SHARE), sensitivity / _ENOUGH)
        noise = noise_at_level(own, 1, sensitivity, q, n)
        return cls(facts, noise) if noise.sigma <= _TOO_MUCH else None

    @property
    def level(self) -> float:
        """mu, up."""
        return self.noise.level(1)

    def release(self, table: ZeroOneHalfspace, source: NoiseSource) -> Units:
        """The units. Costs ``level``."""
        return Units(self.facts, self.units(self.shares(table, source)))

    def shares(self, table: ZeroOneHalfspace, source: NoiseSource) -> Floats:
        """The noisy mean of each number, as a share of its range. Costs ``level``."""
        means = []
        for feature, low, high in self.facts.lines:
            shares = (table.X[:, feature] / self.facts.denominator - low) / (high - low)
            means.append(math.fsum(np.clip(shares, 0, 1) * table.counts) / table.n_records)
        return self.noise.add(np.array(means), source)

    def units(self, shares: Floats) -> tuple[Unit, ...]:
        """What noisy means suggest; one deviation more, as too small a unit cuts off what tells."""
        starts = [start for start, _ in self.facts.spans]
        found = []
        for share, (feature, low, high) in zip(shares.tolist(), self.facts.lines, strict=True):
            near = max(min(share, 1 - share), 0.0) + self.noise.sigma
            end = low if share <= 0.5 else high
            found.append(Unit(starts.index(feature), low, high, min(1.0, _UNIT * near), end))
        return tuple(found)


@dataclass(frozen=True)
class Units:
    """Features as the model reads them: from their middle, some numbers in units of their own.

    What lies beyond a unit is cut off for the model, while a card counts on: so the distance of a record from
    the middle stays within its bound.

    Attributes:
        facts: what is public.
        units: of numbers that are not read as they are.
    """

    facts: CardFacts
    units: tuple[Unit, ...] = ()

    def features(self, X: Floats) -> Floats:
        """From features, shape (rows, d), those that the model is made of."""
        found: Floats = X - np.array(self.facts.middle)
        for unit in self.units:
            start = self.facts.spans[unit.column][0]
            found[:, start] = unit.read(X[:, start]) - self.facts.middle[start]
        return found

    def weights(self, modelled: Floats) -> Floats:
        """Of the features as they are measured from 0, from those of the model, the last the constant's."""
        found = modelled.copy()
        found[-1] -= modelled @ np.array(self.facts.middle)
        for unit in self.units:
            start, stop = self.facts.spans[unit.column]
            weight, shift = modelled[start], unit.end * (1 - 1 / unit.size)
            found[start], found[-1] = weight / unit.size, found[-1] + weight * shift
            # Records without the number have 0 there, which was brought into its range.
            found[start + 1 : stop] += weight * (float(unit.read(np.zeros(1))[0]) - shift)
        return found
