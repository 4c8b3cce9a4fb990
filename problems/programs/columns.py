"""Columns of a card as constraints see them: which points a record can get from a column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.problems.discrete.lattice import IntArray


@dataclass(frozen=True)
class PointColumn:
    """A column of a card: its points are the points of the features [start, stop).

    Attributes:
        name: the name in the schema.
        start, stop: its features.
        ordered: the number of ordered features, the first ones: bins, or 1 for a number; 0 for categories.
        direction: -1 if a number's feature falls where the number rises, otherwise 1.
        ends: the features at the first and the last grid point of a number; None for levels.
        others: whether a record may have none of the levels, and so get 0 points.
    """

    name: str
    start: int
    stop: int
    ordered: int = 0
    direction: int = 1
    ends: tuple[Fraction, Fraction] | None = None
    others: bool = False

    @property
    def size(self) -> int:
        """The number of features."""
        return self.stop - self.start

    def terms(self) -> list[tuple[int, Fraction]]:
        """Return pairs (feature, coefficient) that determine the points of records; feature -1: 0 points.

        A record gets the coefficient times the feature's points for one of these pairs, or, if the column is
        a number, a value between the values of the first two pairs.
        """
        found = [(j, Fraction(1)) for j in range(self.start, self.stop)]
        if self.ends is not None:
            found = [(self.start, end) for end in self.ends] + found[1:]
        return found + [(-1, Fraction(0))] * self.others

    @cached_property
    def unit(self) -> int:
        """The least common denominator of the coefficients."""
        return math.lcm(*(c.denominator for _, c in self.terms()))

    def reach(self, points: IntArray, unit: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the fewest and the most points that a record can get from the column, times ``unit``.

        Args:
            points: of all features, shape (..., d).
            unit: a multiple of ``self.unit``, so that the results are integers: exact, of any size.
        """
        exact = np.asarray(points, dtype=np.int64 if unit == 1 and self.ends is None else object)
        nothing = 0 * exact[..., self.start]
        got = [nothing if j < 0 else exact[..., j] * int(c * unit) for j, c in self.terms()]
        each = np.stack(got)
        return each.min(axis=0), each.max(axis=0)

    def used(self, points: IntArray) -> NDArray[np.bool_]:
        """Return whether some of its points are not 0; points of shape (..., d)."""
        return np.asarray(np.any(points[..., self.start : self.stop] != 0, axis=-1))

    def tells_apart(self, points: IntArray) -> NDArray[np.bool_]:
        """Return whether records can get different points from the column; points of shape (..., d)."""
        low, high = self.reach(points, self.unit)
        return np.asarray(low < high, dtype=np.bool_)
