"""Columns of a card as constraints see them: which points a record can get from a column."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from privopt.problems.discrete.lattice import IntArray


@dataclass(frozen=True)
class PointColumn:
    """A column of a card, whose points are those of the features [start, stop).

    Attributes:
        name: the name in the schema.
        start, stop: its features.
        ordered: the number of ordered features, the first ones: bins, or 1 for a number; 0 for categories.
        direction: -1 if a number's feature falls where the number rises, otherwise 1.
        ends: the features at the first and the last grid point of a number; None for levels.
        others: whether a record may have none of the levels, and so 0 points.
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
        """Return (feature, coefficient) of the smallest and largest points of records; feature -1: 0 points.

        A record gets the coefficient times the feature's points for one of these pairs, or, for numbers,
        something between the first two.
        """
        found = [(j, Fraction(1)) for j in range(self.start, self.stop)]
        if self.ends is not None:
            found = [(self.start, end) for end in self.ends] + found[1:]
        return found + [(-1, Fraction(0))] * self.others

    def reach(self, points: IntArray) -> tuple[Fraction, Fraction]:
        """Return the fewest and the most points that a record can get from the column."""
        got = [Fraction(0) if j < 0 else c * int(points[j]) for j, c in self.terms()]
        return min(got), max(got)

    def used(self, points: IntArray) -> bool:
        """Whether some of its points are not 0."""
        return any(points[self.start : self.stop].tolist())

    def tells_apart(self, points: IntArray) -> bool:
        """Whether records can get different points from the column."""
        low, high = self.reach(points)
        return low < high
