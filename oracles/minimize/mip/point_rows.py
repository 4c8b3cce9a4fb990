"""Public constraints on the points of a scorecard, as rows of any mixed-integer model.

The model has a variable for the points of each feature.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod

import numpy as np

from privopt.oracles.minimize.mip.model import MipModel
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import (
    Constraint,
    Implication,
    Monotone,
    OtherColumns,
    PointBounds,
    PointList,
    Sign,
    Total,
    UsedColumns,
    steps,
)
from privopt.problems.programs.lattice import ConstrainedLattice

# Largest common denominator of the numbers at the ends of the grids of the columns of a ``Total``
# (``PointColumn.ends``). The rows of a total are multiplied by it, so a larger one would give large
# coefficients.
_FINEST = 10_000
_WITH_ROWS = (Implication, Monotone, OtherColumns, PointBounds, PointList, Sign, Total, UsedColumns)


@dataclass
class PointRows:
    """Adds rows to a model, so that the points in it satisfy constraints.

    Attributes:
        model: the model.
        columns: the columns of the card.
        low, high: bounds on the points of each feature, shape (d,).
        points: the model's column of the points of each feature, shape (d,).
        used: by name of a card's column, the binary that is 1 if the column has points other than 0.
    """

    model: MipModel
    columns: tuple[PointColumn, ...]
    low: IntArray
    high: IntArray
    points: IntArray
    used: dict[str, int] = field(default_factory=dict)
    _apart: dict[str, int] = field(default_factory=dict)

    @singledispatchmethod
    def require(self, constraint: Constraint) -> None:
        """Add rows that points satisfy if and only if the constraint holds.

        If a row excluded points that satisfy the constraint, the lower bounds of minimisers would be false.

        Raises:
            InvalidInputError: MIP models cannot express this kind of constraint.
        """
        raise InvalidInputError(_unknown(constraint))

    @require.register
    def _(self, bounds: PointBounds) -> None:
        for point in self._own(bounds):
            self.model.constrain([point], [1], ">=", bounds.low)
            self.model.constrain([point], [1], "<=", bounds.high)

    @require.register
    def _(self, listed: PointList) -> None:
        values = np.array(listed.values, dtype=np.int64)
        for point in self._own(listed):
            choice = self.model.add(len(values), integer=True)
            self.model.choose_one(choice)
            self.model.constrain([point, *choice.tolist()], [-1, *values.tolist()], "=", 0)

    @require.register
    def _(self, sign: Sign) -> None:
        for column in sign.about(self.columns):
            for j, end in column.terms():
                if j >= 0 and end:
                    self.model.constrain(self._at([j]), [sign.sign * (1 if end > 0 else -1)], ">=", 0)

    @require.register
    def _(self, monotone: Monotone) -> None:
        for column in monotone.about(self.columns):
            way = monotone.sign * column.direction
            for a, b in steps(column):
                where, what = ([b], [way]) if a < 0 else ([b, a], [way, -way])
                self.model.constrain(self._at(where), what, ">=", 0)

    @require.register
    def _(self, count: UsedColumns) -> None:
        group = count.about(self.columns)
        ones = [1] * len(group)
        if count.most is not None:
            self.model.constrain([self._use(column) for column in group], ones, "<=", count.most)
        if count.least:
            self.model.constrain([self._difference(column) for column in group], ones, ">=", count.least)

    @require.register
    def _(self, implication: Implication) -> None:
        columns = {c.name: c for c in self.columns}
        pair = [self._difference(columns[implication.needed]), self._use(columns[implication.used])]
        self.model.constrain(pair, [1, -1], ">=", 0)

    @require.register
    def _(self, known: OtherColumns) -> None:
        missing = [self._use(c) for c in self.columns if c.name in known.columns]
        new = [self._difference(c) for c in self.columns if c.name not in known.columns]
        # sum of (1 - used) over the known columns + sum of differences of the other columns >= 1
        signs = [-1] * len(missing) + [1] * len(new)
        self.model.constrain([*missing, *new], signs, ">=", 1 - len(missing))

    @require.register
    def _(self, total: Total) -> None:
        group = total.about(self.columns)
        unit = math.lcm(*(c.unit for c in group))
        if reason := too_fine(total, self.columns):
            raise InvalidInputError(reason)
        extremes: list[tuple[int, int]] = []
        for column in group:
            most = 1 + int(
                max(
                    abs(end) * max(abs(int(self.low[j])), abs(int(self.high[j])))
                    for j, end in column.terms()
                    if j >= 0
                )
            )
            low, high = self.model.add(2, integer=False, low=-most * unit, high=most * unit).tolist()
            for j, end in column.terms():
                where, what = ([], []) if j < 0 else (self._at([j]), [int(end * unit)])
                self.model.constrain([high, *where], [1, *(-v for v in what)], ">=", 0)
                self.model.constrain([low, *where], [1, *(-v for v in what)], "<=", 0)
            extremes.append((low, high))
        ones = [1] * len(group)
        self.model.constrain([low for low, _ in extremes], ones, ">=", total.low * unit)
        self.model.constrain([high for _, high in extremes], ones, "<=", total.high * unit)

    def _own(self, constraint: Constraint) -> list[int]:
        """Return the model's columns of all points in the card's columns that a constraint is about."""
        return self._at([j for c in constraint.about(self.columns) for j in range(c.start, c.stop)])

    def _at(self, features: list[int]) -> list[int]:
        return [int(self.points[j]) for j in features]

    def _use(self, column: PointColumn) -> int:
        """Return the binary that is 1 if a card's column has points other than 0."""
        if column.name not in self.used:
            (used,) = self.model.add(1, integer=True).tolist()
            self.used[column.name] = used
            for j in range(column.start, column.stop):
                low, high = min(int(self.low[j]), 0), max(int(self.high[j]), 0)
                (point,) = self._at([j])
                self.model.constrain([point, used], [1, -high], "<=", 0)
                self.model.constrain([point, used], [1, -low], ">=", 0)
        return self.used[column.name]

    def _difference(self, column: PointColumn) -> int:
        """Return a binary that can be 1 only if two successive levels of a column have different points.

        Only then the column affects comparisons between records.
        """
        if column.name in self._apart:
            return self._apart[column.name]
        (apart,) = self.model.add(1, integer=True).tolist()
        self._apart[column.name] = apart
        levels = list(range(column.start, column.stop))
        if column.ends is not None or column.others:
            levels = [-1, *levels]
        choice: list[int] = []
        for a, b in itertools.pairwise(levels):
            for way in (1, -1):
                (one,) = self.model.add(1, integer=True).tolist()
                choice.append(one)
                where, what = ([b], [way]) if a < 0 else ([b, a], [way, -way])
                room = 1 + self._widest(where, what)
                # way * (points of b - points of a) >= 1 if this binary is 1
                self.model.constrain([*self._at(where), one], [*what, -room], ">=", 1 - room)
        self.model.constrain([*choice, apart], [*([1] * len(choice)), -1], ">=", 0)
        return self._apart[column.name]

    def _widest(self, where: list[int], what: list[int]) -> int:
        """Return max(0, -m), where m is the minimum of a linear expression in points within their bounds."""
        low, high = self.low, self.high
        least = sum(min(c * int(low[j]), c * int(high[j])) for j, c in zip(where, what, strict=True))
        return max(0, -least)


def too_fine(total: Total, columns: Sequence[PointColumn]) -> str:
    """Return why a total cannot be written as rows; an empty text if it can."""
    group = total.about(columns)
    unit = math.lcm(*(c.unit for c in group))
    if unit <= _FINEST:
        return ""
    fine = ", ".join(repr(c.name) for c in group if c.unit > 1)
    return (
        f"constraint '{total}': the declared zero and one of {fine} give fractions with the common "
        f"denominator {unit}, above {_FINEST}. To do: in the schema, set the fields `zero` and `one` of "
        "these columns to the ends of their grids, or declare bins"
    )


def row_refusals(lattice: IntegerLattice) -> list[str]:
    """Return every reason why the constraints of a lattice, if it has any, cannot be written as rows."""
    if not isinstance(lattice, ConstrainedLattice):
        return []
    totals = [c for c in lattice.constraints if isinstance(c, Total)]
    reasons = [reason for total in totals if (reason := too_fine(total, lattice.columns))]
    return reasons + [_unknown(c) for c in lattice.constraints if not isinstance(c, _WITH_ROWS)]


def _unknown(constraint: Constraint) -> str:
    kind = type(constraint).__name__
    return f"constraint '{constraint}': MIP models cannot express constraints of the kind {kind}"
