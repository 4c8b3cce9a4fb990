"""Mixed-integer linear model of a ``CardProgram``, for any MIP solver."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.minimize.mip.model import MipModel
from privopt.oracles.minimize.mip.point_rows import PointRows
from privopt.problems.discrete.lattice import FloatArray, IntArray
from privopt.problems.programs.column_bounds import least_deviation, zero_deviation
from privopt.problems.programs.program import COST, GRID, CardProgram


@dataclass
class CardModel:
    """Mixed-integer model of a card program.

    Columns 0 to d - 1 of the model are the points of the d features. Further columns are the deviations
    |real + shift - points| and the shifts, in units of 1 / ``GRID``. In these units some optimal deviations
    and shifts are integers for any given points, as ``MipModel`` requires.

    Attributes:
        program: the program.
        model: columns and rows of the model.
        costs: cost of each column of the model, a multiple of 1 / ``COST``.
    """

    program: CardProgram
    model: MipModel = field(default_factory=lambda: MipModel("card"))
    costs: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        program, model = self.program, self.model
        for low, high in zip(program.low.tolist(), program.high.tolist(), strict=True):
            model.add(1, integer=True, low=low, high=high)
        deviations, sizes = self._deviations()
        rows = PointRows(model, program.columns, program.low, program.high, np.arange(len(program.low)))
        for constraint in program.constraints:
            rows.require(constraint)
        self._bound_deviations(deviations, sizes, rows.used)
        self.costs = np.zeros(model.size)
        self.costs[deviations] = program.costs / COST
        self.costs[list(sizes.values())] = 1 / COST

    def points(self, values: FloatArray) -> IntArray:
        """Return the integer points of a solution."""
        return np.rint(values[: len(self.program.low)]).astype(np.int64)

    def _deviations(self) -> tuple[NDArray[np.int64], dict[str, int]]:
        """Add the deviations and shifts as columns of the model.

        Returns:
            The model's columns of the deviations, one for each feature; and by name of a card's column, the
            model's column of the absolute value of its shift.
        """
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

    def _bound_deviations(
        self, deviations: NDArray[np.int64], sizes: dict[str, int], used_columns: dict[str, int]
    ) -> None:
        """Add valid inequalities: a column's deviation is at least its minimum under its own constraints."""
        program = self.program
        for column in program.columns:
            least = least_deviation(program, column)
            own = slice(column.start, column.stop)
            where, what = deviations[own].tolist(), program.costs[own].tolist()
            if column.name in sizes:
                where, what = [*where, sizes[column.name]], [*what, 1]
            if (used := used_columns.get(column.name)) is not None:
                zero = zero_deviation(program, column)
                # the deviation is at least ``least`` if the column is used, and ``zero`` if it is not
                self.model.constrain([*where, used], [*what, zero - least], ">=", zero)
            elif least:
                self.model.constrain(where, what, ">=", least)
