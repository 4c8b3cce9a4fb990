"""Least deviation of one column of a card program, by dynamic programming: a valid inequality for models.

A linear relaxation does not see the cost of rounding, as its points need not be integers: without these
bounds a solver would have to branch on every column.
"""

from __future__ import annotations

import numpy as np

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import Monotone, PointList, Sign, steps
from privopt.problems.programs.program import GRID, CardProgram

# Largest size of the tables: for wider columns the bound is 0, which is valid.
_MOST = 4_000_000
_NEVER = np.int64(1) << 60


def least_deviation(program: CardProgram, column: PointColumn) -> int:
    """Return a lower bound on a column's part of the objective over the constraints on it alone.

    For a given shift the bound is a shortest path over the values of the levels, in order. It is the exact
    minimum, except that constraints on sums and on numbers of used columns are left out. One of the best
    shifts is 0 or moves some real point onto an allowed value.
    """
    start, stop = column.start, column.stop
    targets, costs = program.targets[start:stop], program.costs[start:stop]
    values = np.arange(int(program.low[start:stop].min()), int(program.high[start:stop].max()) + 1)
    allowed = _allowed(program, column, values)
    shifts = np.zeros(1, dtype=np.int64)
    if program.shifts_column(column):
        levels, ones = np.nonzero(allowed)
        shifts = np.unique(np.append(GRID * values[ones] - targets[levels], 0))
    if not allowed.any(axis=1).all() or len(shifts) * len(values) * column.size > _MOST:
        return 0
    ways = [
        c.sign * column.direction for c in program.constraints if isinstance(c, Monotone) and _on(c, column)
    ]
    ordered = {b for a, b in steps(column) if a >= 0} if len(set(ways)) == 1 else set()
    best = np.zeros((len(shifts), len(values)), dtype=np.int64)
    for k in range(column.size):
        if start + k in ordered:
            best = _running_minimum(best, ways[0])
        elif k:
            best = np.broadcast_to(best.min(axis=1, keepdims=True), best.shape)
        gaps = np.abs((targets[k] + shifts)[:, None] - GRID * values[None, :])
        best = np.minimum(best + np.where(allowed[k], costs[k] * gaps, _NEVER), _NEVER)
    return int(np.min(best.min(axis=1) + np.abs(shifts)))


def zero_deviation(program: CardProgram, column: PointColumn) -> int:
    """Return a column's part of the objective at 0 points."""
    points = np.zeros(len(program.low), dtype=np.int64)
    own = slice(column.start, column.stop)
    shift = int(program.shifts(points)[program.columns.index(column)])
    return int(program.costs[own] @ np.abs(program.targets[own] + shift)) + abs(shift)


def _allowed(program: CardProgram, column: PointColumn, values: IntArray) -> np.typing.NDArray[np.bool_]:
    """Return whether each level may have each value, shape (levels, values)."""
    own = slice(column.start, column.stop)
    found = (values >= program.low[own, None]) & (values <= program.high[own, None])
    for constraint in program.constraints:
        if isinstance(constraint, PointList) and _on(constraint, column):
            found &= np.isin(values, constraint.values)
        if isinstance(constraint, Sign) and _on(constraint, column) and column.ends is None:
            found &= constraint.sign * values >= 0
    return found


def _running_minimum(best: IntArray, way: int) -> IntArray:
    """Return the least entry over all values at most (way 1), or at least (way -1), each value."""
    if way > 0:
        return np.minimum.accumulate(best, axis=1)
    return np.minimum.accumulate(best[:, ::-1], axis=1)[:, ::-1]


def _on(constraint: Monotone | PointList | Sign, column: PointColumn) -> bool:
    return not constraint.names or column.name in constraint.names
