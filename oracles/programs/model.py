"""Mixed-integer linear model of a ``CardProgram``, for any MIP solver."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import singledispatchmethod

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.minimize.mip.model import MipModel
from privopt.problems.discrete.lattice import FloatArray, IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.column_bounds import least_deviation, zero_deviation
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import (
    Constraint,
    Implication,
    Monotone,
    PointBounds,
    PointList,
    Sign,
    Total,
    UsedColumns,
    steps,
)
from privopt.problems.programs.program import COST, GRID, CardProgram

# Common denominators of the ends of numbers in a total: larger ones would be large coefficients.
_FINEST = 10_000


@dataclass
class CardModel:
    """Mixed-integer model of a card program.

    Points are columns 0 to d - 1. Deviations |real + shift - points| are in units of 1 / ``GRID``, so for
    given points some optimal deviations and shifts are integers, as ``MipModel`` requires.

    Attributes:
        program: the program.
        model: columns and rows.
        costs: cost of each column, multiples of 1 / ``COST``.
    """

    program: CardProgram
    model: MipModel = field(default_factory=lambda: MipModel("card"))
    costs: FloatArray = field(default_factory=lambda: np.zeros(0))
    _used: dict[str, int] = field(default_factory=dict)
    _apart: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program, model = self.program, self.model
        for low, high in zip(program.low.tolist(), program.high.tolist(), strict=True):
            model.add(1, integer=True, low=low, high=high)
        deviations, sizes = self._deviations()
        for constraint in program.constraints:
            self._require(constraint)
        self._bound_deviations(deviations, sizes)
        self.costs = np.zeros(model.size)
        self.costs[deviations] = program.costs / COST
        self.costs[list(sizes.values())] = 1 / COST

    def points(self, values: FloatArray) -> IntArray:
        """Return the integer points of a solution."""
        return np.rint(values[: len(self.program.low)]).astype(np.int64)

    def _deviations(self) -> tuple[NDArray[np.int64], dict[str, int]]:
        """Add deviations and shifts; return each feature's deviation and each column's size of shift."""
        program, model = self.program, self.model
        sizes = np.abs(program.targets) + GRID * np.maximum(np.abs(program.low), np.abs(program.high))
        most = int(np.max(sizes, initial=0))
        found, shifted = list[int](), dict[str, int]()
        for column in program.columns:
            shift = np.zeros(0, np.int64)
            if program.shifts_column(column):
                shift = model.add(1, integer=False, low=-most, high=most)
                (shifted[column.name],) = model.add(1, integer=False, high=most).tolist()
                for way in (1, -1):
                    model.constrain([shifted[column.name], *shift.tolist()], [1, way], ">=", 0)
            for j in range(column.start, column.stop):
                (deviation,) = model.add(1, integer=False, high=2 * most + 1).tolist()
                target, where = int(program.targets[j]), [deviation, j, *shift.tolist()]
                model.constrain(where, [1, GRID, -1][: len(where)], ">=", target)
                model.constrain(where, [1, -GRID, 1][: len(where)], ">=", -target)
                found.append(deviation)
        return np.array(found, dtype=np.int64), shifted

    def _bound_deviations(self, deviations: NDArray[np.int64], sizes: dict[str, int]) -> None:
        """Add valid inequalities: each column's deviation is at least what the column alone can have."""
        program = self.program
        for column in program.columns:
            least = least_deviation(program, column)
            own = slice(column.start, column.stop)
            where, what = deviations[own].tolist(), program.costs[own].tolist()
            if column.name in sizes:
                where, what = [*where, sizes[column.name]], [*what, 1]
            if (used := self._used.get(column.name)) is not None:
                zero = zero_deviation(program, column)
                # least where the column is used, the deviation of 0 points where it is not
                self.model.constrain([*where, used], [*what, zero - least], ">=", zero)
            elif least:
                self.model.constrain(where, what, ">=", least)

    @singledispatchmethod
    def _require(self, constraint: Constraint) -> None:
        raise InvalidInputError(
            f"constraint '{constraint}': no rows are known for {type(constraint).__name__}"
        )

    @_require.register
    def _(self, bounds: PointBounds) -> None:
        for j in self._features(bounds):
            self.model.constrain([j], [1], ">=", bounds.low)
            self.model.constrain([j], [1], "<=", bounds.high)

    @_require.register
    def _(self, listed: PointList) -> None:
        values = np.array(listed.values, dtype=np.int64)
        for j in self._features(listed):
            choice = self.model.add(len(values), integer=True)
            self.model.choose_one(choice)
            self.model.constrain([j, *choice.tolist()], [-1, *values.tolist()], "=", 0)

    @_require.register
    def _(self, sign: Sign) -> None:
        for column in sign.about(self.program.columns):
            for j, end in column.terms():
                if j >= 0 and end:
                    self.model.constrain([j], [sign.sign * (1 if end > 0 else -1)], ">=", 0)

    @_require.register
    def _(self, monotone: Monotone) -> None:
        for column in monotone.about(self.program.columns):
            way = monotone.sign * column.direction
            for a, b in steps(column):
                where, what = ([b], [way]) if a < 0 else ([b, a], [way, -way])
                self.model.constrain(where, what, ">=", 0)

    @_require.register
    def _(self, count: UsedColumns) -> None:
        group = count.about(self.program.columns)
        ones = [1] * len(group)
        if count.most is not None:
            self.model.constrain([self._use(column) for column in group], ones, "<=", count.most)
        if count.least:
            self.model.constrain([self._difference(column) for column in group], ones, ">=", count.least)

    @_require.register
    def _(self, implication: Implication) -> None:
        columns = {c.name: c for c in self.program.columns}
        pair = [self._difference(columns[implication.needed]), self._use(columns[implication.used])]
        self.model.constrain(pair, [1, -1], ">=", 0)

    @_require.register
    def _(self, total: Total) -> None:
        group = total.about(self.program.columns)
        unit = math.lcm(*(end.denominator for c in group for _, end in c.terms()))
        if unit > _FINEST:
            fine = [c.name for c in group if any(end.denominator > 1 for _, end in c.terms())]
            raise InvalidInputError(
                f"constraint '{total}': the ends of numbers have a common denominator of {unit}. To do: "
                f"declare zero and one of {', '.join(map(repr, fine))} at the ends of its grid, or bins"
            )
        extremes: list[tuple[int, int]] = []
        for column in group:
            most = 1 + int(
                max(
                    abs(end) * max(abs(int(self.program.low[j])), abs(int(self.program.high[j])))
                    for j, end in column.terms()
                    if j >= 0
                )
            )
            low, high = self.model.add(2, integer=False, low=-most * unit, high=most * unit).tolist()
            for j, end in column.terms():
                where, what = ([], []) if j < 0 else ([j], [int(end * unit)])
                self.model.constrain([high, *where], [1, *(-v for v in what)], ">=", 0)
                self.model.constrain([low, *where], [1, *(-v for v in what)], "<=", 0)
            extremes.append((low, high))
        ones = [1] * len(group)
        self.model.constrain([low for low, _ in extremes], ones, ">=", total.low * unit)
        self.model.constrain([high for _, high in extremes], ones, "<=", total.high * unit)

    def _features(self, constraint: Constraint) -> list[int]:
        return [j for c in constraint.about(self.program.columns) for j in range(c.start, c.stop)]

    def _use(self, column: PointColumn) -> int:
        """Return the binary that is 1 if a column has points other than 0."""
        if column.name not in self._used:
            (used,) = self.model.add(1, integer=True).tolist()
            self._used[column.name] = used
            for j in range(column.start, column.stop):
                low, high = min(int(self.program.low[j]), 0), max(int(self.program.high[j]), 0)
                self.model.constrain([j, used], [1, -high], "<=", 0)
                self.model.constrain([j, used], [1, -low], ">=", 0)
        return self._used[column.name]

    def _difference(self, column: PointColumn) -> int:
        """Return a binary that is 1 only if two successive levels of a column differ by a point."""
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
                # way * (points of b - points of a) >= 1 if this way is chosen
                self.model.constrain([*where, one], [*what, -room], ">=", 1 - room)
        self.model.constrain([*choice, apart], [*([1] * len(choice)), -1], ">=", 0)
        return self._apart[column.name]

    def _widest(self, where: list[int], what: list[int]) -> int:
        """Return minus the least value of a linear expression in points, or 0 if that is positive."""
        low, high = self.program.low, self.program.high
        least = sum(min(c * int(low[j]), c * int(high[j])) for j, c in zip(where, what, strict=True))
        return max(0, -least)
