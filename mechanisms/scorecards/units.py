"""Private rescaling of numeric columns by their noisy means, for small privacy budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.column_statistics import unit_noise, unit_sizes
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.problems.discrete.halfspace import ZeroOneHalfspace

Floats = NDArray[np.float64]


class Unit(NamedTuple):
    """Rescaling of a number x in [low, high] to end + (x - end) / size, clipped to [low, high].

    Attributes:
        column: index of the column in ``CardFacts.spans``; the number is its first feature.
        low, high: the declared range.
        size: the unit as a share of the range, at most 1.
        end: low or high.
    """

    column: int
    low: float
    high: float
    size: float
    end: float

    def rescale(self, x: Floats) -> Floats:
        """Return the rescaled numbers."""
        return np.asarray(np.clip(self.end + (x - self.end) / self.size, self.low, self.high))


@dataclass(frozen=True)
class NumberMeans:
    """Plan of one Gaussian release of the means of all numbers, from which their units are derived.

    If a number mostly lies near one end of its declared range (for example incomes far below a generous upper
    bound), it varies little compared with noise calibrated to the range. A mean near one end indicates this,
    and the number is then rescaled.

    Privacy: mu-GDP, ``level``, neighbours by replacing one record, n and the facts public. As a share of its
    range a number lies in [0, 1], so one record changes the means of q numbers by at most sqrt(q) / n in l2.
    The means are one Gaussian release; units are post-processing.

    An instance is a plan: the noise follows from public facts.

    Attributes:
        facts: public facts of the table.
        noise: noise of the means, as shares of the ranges.
    """

    name: ClassVar[str] = "number-means"

    facts: CardFacts
    noise: VectorNoise

    @classmethod
    def plan(cls, facts: CardFacts, mu: float) -> Self | None:
        """Calibrate to a share of mu; None if there are no numbers or the noise is too large to be useful."""
        noise = unit_noise(len(facts.lines), facts.n_records, mu) if facts.middle else None
        return None if noise is None else cls(facts, noise)

    @property
    def level(self) -> float:
        """Level mu of the release, rounded up."""
        return self.noise.level(1)

    def release(self, table: ZeroOneHalfspace, source: NoiseSource) -> Units:
        """Release the units. Costs ``level``."""
        return Units(self.facts, self.units(self.shares(table, source)))

    def shares(self, table: ZeroOneHalfspace, source: NoiseSource) -> Floats:
        """Release the noisy mean of each number as a share of its range. Costs ``level``."""
        means = []
        for feature, low, high in self.facts.lines:
            shares = (table.X[:, feature] / self.facts.denominator - low) / (high - low)
            means.append(math.fsum(np.clip(shares, 0, 1) * table.counts) / table.n_records)
        return self.noise.add(np.array(means), source)

    def units(self, shares: Floats) -> tuple[Unit, ...]:
        """Derive units from noisy means, see ``unit_sizes``."""
        starts = [start for start, _ in self.facts.spans]
        sizes, found = unit_sizes(shares, self.noise.sigma), []
        for (size, upper), (feature, low, high) in zip(sizes, self.facts.lines, strict=True):
            found.append(Unit(starts.index(feature), low, high, size, high if upper else low))
        return tuple(found)


@dataclass(frozen=True)
class Units:
    """Transformation of features for the linear model: centring, and rescaling of some numbers.

    Rescaled numbers are clipped for the model, so that a record's distance from the centre keeps its bound.
    The card itself does not clip them.

    Attributes:
        facts: public facts of the table.
        units: units of the rescaled numbers.
    """

    facts: CardFacts
    units: tuple[Unit, ...] = ()

    def features(self, X: Floats) -> Floats:
        """Transform features, shape (rows, d), to the features of the linear model."""
        found: Floats = X - np.array(self.facts.middle)
        for unit in self.units:
            start = self.facts.spans[unit.column][0]
            found[:, start] = unit.rescale(X[:, start]) - self.facts.middle[start]
        return found

    def weights(self, modelled: Floats) -> Floats:
        """Transform weights of the model to weights of the original features; the last is the intercept."""
        found = modelled.copy()
        found[-1] -= modelled @ np.array(self.facts.middle)
        for unit in self.units:
            start, stop = self.facts.spans[unit.column]
            weight, shift = modelled[start], unit.end * (1 - 1 / unit.size)
            found[start], found[-1] = weight / unit.size, found[-1] + weight * shift
            # Records in which the number is missing have the feature 0, which ``rescale`` clips to the range.
            found[start + 1 : stop] += weight * self._missing(unit)
        return found

    def deviations(self, modelled: Floats) -> Floats:
        """Transform standard deviations of weights from the model's features to the original features."""
        found = modelled.copy()
        for unit in self.units:
            start, stop = self.facts.spans[unit.column]
            found[start] = modelled[start] / unit.size
            of_missing = modelled[start] * self._missing(unit)
            found[start + 1 : stop] = np.hypot(found[start + 1 : stop], of_missing)
        return found

    @staticmethod
    def _missing(unit: Unit) -> float:
        """Return what the score of a missing number gains for each unit of the number's weight."""
        return float(unit.rescale(np.zeros(1))[0]) - unit.end * (1 - 1 / unit.size)
