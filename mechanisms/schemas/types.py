"""Types of columns for learning a schema: declared, or by a private vote of the cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

import numpy as np

from privopt.mechanisms.privacy.accounting import pure_to_gdp
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.cuts import ARITHMETIC_SHARE, ENOUGH, strength_of
from privopt.oracles.draw.interface import race
from privopt.problems.tables.cells import Numbers


class ColumnType(StrEnum):
    """Types of columns: all but ``VOTE`` are declared, as public facts."""

    NUMBER = "number"
    WHOLE = "whole"
    TEXT = "text"
    BOOLEAN = "boolean"
    VOTE = "vote"


@dataclass(frozen=True)
class VotePlan:
    """Choose between number and text: with N cells that are numbers and O others, exp(strength (N - O) / 2)
    and its inverse are the weights; missing cells do not vote.

    Privacy: ``level``-GDP, neighbours by replacing one record, their number public. N - O moves by at most 2,
    so either logarithm of a weight moves by at most strength: a release of bounded range 2 strength, as a
    level of ``CutPlan``, whose conversion and charge for rounding apply.

    Attributes:
        strength: > 0.
    """

    strength: float

    @classmethod
    def plan(cls, mu: float, n_records: int) -> Self:
        """Calibrate to mu-GDP.

        Raises:
            PrivacyParameterError: a mu for which doubles are too coarse.
        """
        return cls(strength_of(mu, n_records))

    @property
    def level(self) -> float:
        """The level of Gaussian differential privacy, rounded up."""
        return pure_to_gdp(self.strength * (1 + ARITHMETIC_SHARE)) * (1 + 2.0**-50)

    @property
    def margin(self) -> int:
        """The difference of N and O beyond which the vote is wrong with a probability below exp(-20)."""
        return math.ceil(ENOUGH / 2 / self.strength)

    def release(self, cells: Numbers, source: NoiseSource) -> ColumnType:
        """Vote, once. Costs ``level``."""
        numbers = int(np.count_nonzero(~np.isnan(cells.values)))
        lead = numbers - int(np.count_nonzero(cells.unreadable))
        winner = race(source, np.array([1.0, -1.0]) * (self.strength / 2 * lead))
        return (ColumnType.NUMBER, ColumnType.TEXT)[winner]
