"""Public constraints on the points of a card, as data. Each has a text form that ``parse_constraint`` reads.

A column is *used* if some of its points are not 0. Where a constraint demands a column ("any of", "all of",
"at least", "then"), its points must differ between records: equal points for everybody would be a loophole.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError, did_you_mean
from privopt.problems.programs.columns import PointColumn

_BARE = re.compile(r"[^\W\d][\w.+/-]*(?: [\w.+/-]+)*")
_WORDS = {"then", "of", "in"}
MOST_POINTS = 1 << 62


class Constraint(ABC):
    """A public constraint on the points of a card."""

    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the constraint names; none: it is about all columns."""
        return self.columns

    @abstractmethod
    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        """Return whether each of several cards, of shape (..., d), satisfies the constraint."""

    def holds(self, points: IntArray, columns: Sequence[PointColumn]) -> bool:
        """Return whether a card's points, of shape (d,), satisfy it; ``columns``: the card's columns."""
        return bool(self.held(np.asarray(points), columns))

    @abstractmethod
    def __str__(self) -> str:
        """Return the text form."""

    def check(self, columns: Sequence[PointColumn]) -> None:
        """Check that the constraint fits the columns.

        Raises:
            InvalidInputError: a column that is not declared, named twice, or of an unsuitable kind.
        """
        known = [c.name for c in columns]
        for name in self.names:
            if name not in known:
                raise InvalidInputError(
                    f"constraint '{self}': no column {name!r} is declared{did_you_mean(name, known)}"
                )
        if len(set(self.names)) < len(self.names):
            raise InvalidInputError(f"constraint '{self}': it names a column twice; name it once")

    def about(self, columns: Sequence[PointColumn]) -> list[PointColumn]:
        """Return the columns that the constraint is about."""
        return [c for c in columns if not self.names or c.name in self.names]


@dataclass(frozen=True)
class PointBounds(Constraint):
    """Bounds on the points of every level; for a number, on the points between its ``zero`` and ``one``.

    Attributes:
        columns: names; none: all columns.
        low, high: integers.
    """

    columns: tuple[str, ...]
    low: int
    high: int

    def check(self, columns: Sequence[PointColumn]) -> None:
        super().check(columns)
        _check_size(self, (self.low, self.high))

    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        own = _points(self.about(columns), points)
        return np.asarray(np.all((own >= self.low) & (own <= self.high), axis=-1))

    def __str__(self) -> str:
        return f"points{_brackets(self.columns)} in [{self.low}, {self.high}]"


@dataclass(frozen=True)
class PointList(Constraint):
    """Points of every level from a list of integers.

    Attributes:
        columns: names; none: all columns.
        values: the allowed points, increasing.
    """

    columns: tuple[str, ...]
    values: tuple[int, ...]

    def check(self, columns: Sequence[PointColumn]) -> None:
        super().check(columns)
        _check_size(self, self.values)

    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        return np.asarray(np.all(np.isin(_points(self.about(columns), points), self.values), axis=-1))

    def __str__(self) -> str:
        return f"points{_brackets(self.columns)} in {{{', '.join(map(str, self.values))}}}"


@dataclass(frozen=True)
class Sign(Constraint):
    """No record loses (sign 1), or gains (sign -1), points by the columns.

    Attributes:
        columns: names.
        sign: 1 or -1.
    """

    columns: tuple[str, ...]
    sign: Literal[1, -1]

    def check(self, columns: Sequence[PointColumn]) -> None:
        super().check(columns)
        for column in self.about(columns):
            if column.ends is not None and min(column.ends) < 0 < max(column.ends):
                raise InvalidInputError(
                    f"constraint '{self}': numbers of column {column.name!r} lie on both sides of its zero, "
                    f"so points of one sign are 0. To do: 'monotone({quoted(column.name)}) = rising' (or "
                    "falling), or declare zero = low in the schema"
                )

    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        ends = [self.sign * end for c in self.about(columns) for end in c.reach(points, c.unit)]
        return _all_of([end >= 0 for end in ends], points)

    def __str__(self) -> str:
        return f"sign{_brackets(self.columns)} = {'+' if self.sign > 0 else '-'}"


@dataclass(frozen=True)
class Monotone(Constraint):
    """Points that do not fall (sign 1), or do not rise (sign -1), in the bins or numbers of columns.

    Missing levels are not constrained.

    Attributes:
        columns: names.
        sign: 1 for rising, -1 for falling.
    """

    columns: tuple[str, ...]
    sign: Literal[1, -1]

    def check(self, columns: Sequence[PointColumn]) -> None:
        super().check(columns)
        for column in self.about(columns):
            if not column.ordered:
                raise InvalidInputError(
                    f"constraint '{self}': the categories of column {column.name!r} have no order. To do: "
                    "leave it out, or declare the column as bins of a number"
                )

    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        rises = [
            self.sign * c.direction * (points[..., b] - (0 if a < 0 else points[..., a]))
            for c in self.about(columns)
            for a, b in steps(c)
        ]
        return _all_of([rise >= 0 for rise in rises], points)

    def __str__(self) -> str:
        return f"monotone{_brackets(self.columns)} = {'rising' if self.sign > 0 else 'falling'}"


@dataclass(frozen=True)
class UsedColumns(Constraint):
    """Bounds on the number of used columns; only those that tell records apart count for ``least``.

    Attributes:
        columns: names; none: all columns.
        least: the number of columns whose points differ between records is at least this.
        most: the number of columns with points other than 0 is at most this; None: no bound.
    """

    columns: tuple[str, ...]
    least: int
    most: int | None

    def check(self, columns: Sequence[PointColumn]) -> None:
        super().check(columns)
        if self.least > len(self.about(columns)):
            raise InvalidInputError(
                f"constraint '{self}': there are only {len(self.about(columns))} such columns"
            )

    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        group, asked = self.about(columns), []
        if self.most is not None:
            asked.append(_count([c.used(points) for c in group], points) <= self.most)
        if self.least:
            asked.append(_count([c.tells_apart(points) for c in group], points) >= self.least)
        return _all_of(asked, points)

    def __str__(self) -> str:
        group = f"of {', '.join(map(quoted, self.columns))}" if self.columns else "columns"
        if self.most is not None:
            return f"at most {self.most} {group}"
        if self.columns and self.least in (1, len(self.columns)):
            return f"{'any' if self.least == 1 else 'all'} {group}"
        return f"at least {self.least} {group}"


@dataclass(frozen=True)
class Implication(Constraint):
    """If one column is used, then another one tells records apart.

    Attributes:
        used, needed: names of columns.
    """

    used: str
    needed: str

    @property
    def names(self) -> tuple[str, ...]:
        return self.used, self.needed

    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        by_name = {c.name: c for c in columns}
        return np.asarray(~by_name[self.used].used(points) | by_name[self.needed].tells_apart(points))

    def __str__(self) -> str:
        return f"if {quoted(self.used)} then {quoted(self.needed)}"


@dataclass(frozen=True)
class OtherColumns(Constraint):
    """A no-good cut: the card must not use exactly the columns of a known card.

    One of the known card's columns is not used, or another column tells records apart. The constraint is for
    programs that find several cards; ``parse_constraint`` does not read its text.

    Attributes:
        columns: names of all columns that the known card uses.
    """

    columns: tuple[str, ...]

    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        missing = [~c.used(points) for c in columns if c.name in self.columns]
        new = [c.tells_apart(points) for c in columns if c.name not in self.columns]
        return np.asarray(_count([*missing, *new], points) >= 1)

    def __str__(self) -> str:
        return f"other columns than {', '.join(map(quoted, self.columns))}"


@dataclass(frozen=True)
class Total(Constraint):
    """Bounds on the sum of the points that any record can get from a group of columns.

    The base (intercept) of the card does not count.

    Attributes:
        columns: names; none: all columns.
        low, high: integers.
    """

    columns: tuple[str, ...]
    low: int
    high: int

    def held(self, points: IntArray, columns: Sequence[PointColumn]) -> NDArray[np.bool_]:
        group = self.about(columns)
        unit = math.lcm(*(c.unit for c in group))
        ends = [c.reach(points, unit) for c in group]
        least, most = (sum(end[side] for end in ends) for side in (0, 1))
        return _all_of([least >= self.low * unit, most <= self.high * unit], points)

    def __str__(self) -> str:
        return f"total{_brackets(self.columns)} in [{self.low}, {self.high}]"


def steps(column: PointColumn) -> list[tuple[int, int]]:
    """Return pairs of adjacent features in a column's order; for a number (-1, j): 0 points, then its own."""
    if column.ends is not None:
        return [(-1, column.start)]
    return [(j, j + 1) for j in range(column.start, column.start + column.ordered - 1)]


def check_constraints(constraints: Iterable[Constraint], columns: Sequence[PointColumn]) -> None:
    """Raise InvalidInputError for a constraint that does not fit the columns."""
    for constraint in constraints:
        constraint.check(columns)


def quoted(name: str) -> str:
    """Return a column's name as constraints write it: in double quotes unless it is plain words."""
    plain = _BARE.fullmatch(name) and not _WORDS & set(name.lower().split())
    return name if plain else json.dumps(name, ensure_ascii=False)


def bounds_of(
    constraints: Iterable[Constraint], columns: Sequence[PointColumn]
) -> Mapping[int, tuple[int, int]]:
    """Return the bounds (low, high) that ranges and lists of points put on features."""
    found: dict[int, tuple[int, int]] = {}
    for constraint in constraints:
        if not isinstance(constraint, PointBounds | PointList):
            continue
        values = constraint.values if isinstance(constraint, PointList) else (constraint.low, constraint.high)
        for column in constraint.about(columns):
            for j in range(column.start, column.stop):
                low, high = found.get(j, (values[0], values[-1]))
                found[j] = max(low, values[0]), min(high, values[-1])
    return found


def _points(group: Sequence[PointColumn], points: IntArray) -> IntArray:
    """Return the points of the features of some columns, shape (..., features)."""
    return points[..., [j for c in group for j in range(c.start, c.stop)]]


def _count(found: Sequence[NDArray[np.bool_]], points: IntArray) -> IntArray:
    """Return the number of true entries at each card; points have shape (..., d)."""
    return sum((one.astype(np.int64) for one in found), np.zeros(points.shape[:-1], dtype=np.int64))


def _all_of(found: Sequence[Any], points: IntArray) -> NDArray[np.bool_]:
    """Return whether all entries are true at each card; points have shape (..., d)."""
    every = np.ones(points.shape[:-1], dtype=np.bool_)
    for one in found:
        every = every & np.asarray(one, dtype=np.bool_)
    return np.asarray(every)


def _check_size(constraint: Constraint, points: Iterable[int]) -> None:
    """Raise InvalidInputError for points that 64-bit integers do not hold."""
    if beyond := [p for p in points if abs(p) > MOST_POINTS]:
        raise InvalidInputError(
            f"constraint '{constraint}': {beyond[0]} is no number of points (at most 2^62)"
        )


def _brackets(columns: tuple[str, ...]) -> str:
    return f"({', '.join(map(quoted, columns))})" if columns else ""
