"""Integer program of the nearest feasible card: least weighted l1 distance to real-valued points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import Constraint, check_constraints

# Real points are rounded to multiples of 1 / GRID, and costs to multiples of 1 / COST: values are integers.
GRID, COST = 64, 256
# Largest absolute value of points and of real points: values then fit in 64 bits, models in doubles.
LARGEST = 1 << 20


@dataclass(frozen=True, eq=False)
class CardProgram:
    """Minimise sum over features j of cost_j |real_j + shift - points_j| over feasible integer points.

    There is one shift for each column of which every record has exactly one level: the intercept of a card
    absorbs it. A shift costs next to nothing, its absolute value over ``COST``: among equally near cards, the
    card with the smallest shifts is chosen. Everything is in integers, so values are exact.

    Attributes:
        columns: the columns of the card, in order.
        low, high: bounds on the points of each feature, shape (d,).
        constraints: public constraints.
        targets: real points times ``GRID``, rounded, shape (d,).
        costs: costs times ``COST``, rounded, each >= 1, shape (d,).
        shifted: whether there is an intercept to absorb shifts.
    """

    columns: tuple[PointColumn, ...]
    low: IntArray
    high: IntArray
    constraints: tuple[Constraint, ...]
    targets: IntArray
    costs: IntArray
    shifted: bool

    @classmethod
    def of(
        cls,
        columns: tuple[PointColumn, ...],
        low: IntArray,
        high: IntArray,
        constraints: tuple[Constraint, ...],
        costs: NDArray[np.float64],
        *,
        shifted: bool,
    ) -> Self:
        """Build the program with real points 0 (see ``near``); only the ratios of the costs > 0 matter.

        Raises:
            InvalidInputError: a constraint that does not fit the columns, or points beyond ``LARGEST``.
        """
        check_constraints(constraints, columns)
        if np.max(np.maximum(high, -low), initial=0) > LARGEST:
            raise InvalidInputError(
                f"constraints are on points of at most {LARGEST} in absolute value: give smaller bounds "
                "(lattice, --lattice)"
            )
        relative = np.maximum(1, np.rint(COST * costs / np.max(costs, initial=1e-300))).astype(np.int64)
        return cls(columns, low, high, constraints, np.zeros(len(low), np.int64), relative, shifted)

    def near(self, points: NDArray[np.float64]) -> Self:
        """Return the program of the card nearest to these real points, shape (d,)."""
        most = float(4 * LARGEST * GRID)
        return replace(self, targets=np.rint(np.clip(points * GRID, -most, most)).astype(np.int64))

    def shifts(self, points: IntArray) -> IntArray:
        """Return the best shift of each column times ``GRID``, shape (..., columns), for points (..., d).

        It is the weighted median of the gaps between points and real points, and of 0 with weight 1.
        """
        gaps = GRID * np.asarray(points, dtype=np.int64) - self.targets
        found = np.zeros((*gaps.shape[:-1], len(self.columns)), dtype=np.int64)
        for k, column in enumerate(self.columns):
            if self.shifts_column(column):
                own = slice(column.start, column.stop)
                padded = np.concatenate([gaps[..., own], np.zeros_like(gaps[..., :1])], axis=-1)
                found[..., k] = _weighted_median(padded, np.append(self.costs[own], 1))
        return found

    def shifts_column(self, column: PointColumn) -> bool:
        """Return whether the intercept absorbs a shift of all points of a column."""
        return self.shifted and column.ends is None and not column.others

    def value(self, points: IntArray) -> int:
        """Return the objective at integer points, times ``GRID * COST``: exact."""
        return int(self.values(points))

    def values(self, points: IntArray) -> IntArray:
        """Return the objective at each of several points, of shape (..., d)."""
        shifts = self.shifts(points)
        each = np.repeat(shifts, [column.size for column in self.columns], axis=-1)
        gaps = np.abs(self.targets + each - GRID * np.asarray(points, dtype=np.int64))
        return np.asarray(gaps @ self.costs + np.abs(shifts).sum(axis=-1))

    def violations(self, points: IntArray) -> list[str]:
        """Return the constraints that integer points violate, as text; none if they are feasible."""
        found = np.asarray(points)
        if found.shape != self.low.shape or not np.issubdtype(found.dtype, np.integer):
            return [f"points are {len(self.low)} integers"]
        broken = [str(c) for c in self.constraints if not c.holds(found, self.columns)]
        outside = bool(np.any(found < self.low) or np.any(found > self.high))
        return broken + ["points within the bounds of the lattice"] * outside


def _weighted_median(values: IntArray, weights: IntArray) -> IntArray:
    order = np.argsort(values, axis=-1, kind="stable")
    sums = np.cumsum(weights[order], axis=-1)
    middle = np.argmax(2 * sums >= sums[..., -1:], axis=-1)[..., None]
    return np.take_along_axis(np.take_along_axis(values, order, axis=-1), middle, axis=-1)[..., 0]
