"""Questions about one column at a time, and how much their answers tell of the labels: exact, in records."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arrays import tallied
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

# Numbers that are converted at a time.
_CHUNK = 1 << 22


class Asked(NamedTuple):
    """A column of a table of features, and thresholds for its number, if it is one.

    Attributes:
        start, stop: its features. A record has at most one of them, but the first may be a number, which
            those that have another do not have.
        thresholds: increasing; pieces are what lies at or below, and above. Empty: every feature is a piece.
    """

    start: int
    stop: int
    thresholds: tuple[int, ...] = ()


class ColumnQuestions(DiscreteProblem):
    """Choose the column, and threshold, by which a yes or no question tells positive records apart best.

    A column, cut at a threshold if it is a number, sorts the records into pieces. For a set of pieces let s
    be 1 for its records and 0 for others, and y 1 for positive ones: n cov(s, y) = sum s y - (sum s)(sum y)/n
    is how many more of the positive records are in it than if neither knew of the other. What a column tells
    is the largest of these over all sets of its pieces, rounded down; the loss is a public number less it.

    The largest loss of a record: n cov = (1 / 2n) sum over pairs of (s_i - s_j)(y_i - y_j). Replacing record
    i changes the n - 1 pairs with it (counted twice), each product (s_i - s_j)(y_i - y_j) by at most 1: for
    s_j, y_j of 0 it is s_i y_i, in [0, 1], and in the other cases the same up to signs of both factors. So
    n cov moves by at most (n - 1) / n, the largest of several such too, and rounded down by at most 1. The
    sign of what a record adds is not fixed, so this is no sum of losses of records, but one record moves
    the loss by at most 1, which is what draws rely on.

    Point (i) is a pair of a column and a threshold, in the order of ``told``; a column without thresholds
    stands there as often as one with ``repeats`` of them, so that none is likelier before data. There are no
    separators: two columns may tell the same.

    Args:
        table: the records.
        columns: at least one.
        repeats: how often a column without thresholds stands there, >= 1.
        known: what the columns tell, ``ColumnQuestions.told`` of the same table and columns, if it is there.
    """

    record_loss_bound = 1

    def __init__(
        self,
        table: ZeroOneHalfspace,
        columns: tuple[Asked, ...],
        repeats: int = 1,
        known: list[IntArray] | None = None,
    ) -> None:
        if not columns:
            raise InvalidInputError("there must be a column to ask about")
        self.table, self.columns = table, columns
        self.told = [_told(table, column) for column in columns] if known is None else known
        each = [told if column.thresholds else np.repeat(told, repeats) for column, told in self._pairs]
        self._losses = self.n_records // 4 + 1 - np.concatenate(each)
        places = [
            (j, k if column.thresholds else 0)
            for j, column in enumerate(columns)
            for k in range(len(column.thresholds) or repeats)
        ]
        self._places = np.array(places)
        self.lattice = IntegerLattice([0], [len(places) - 1])

    @property
    def _pairs(self) -> list[tuple[Asked, IntArray]]:
        return list(zip(self.columns, self.told, strict=True))

    @property
    def n_records(self) -> int:
        return self.table.n_records

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def place(self, point: ArrayLike) -> tuple[int, int]:
        """The number of the column that a point stands for, and of its threshold."""
        column, threshold = self._places[int(np.ravel(point)[0])].tolist()
        return column, threshold

    def losses(self, points: IntArray) -> IntArray:
        return np.asarray(self._losses[np.asarray(points, dtype=np.int64)[:, 0]])


def _told(table: ZeroOneHalfspace, column: Asked) -> IntArray:
    """What the column tells, for each threshold, or once."""
    pieces = len(column.thresholds) + 1 if column.thresholds else 0
    others = column.stop - column.start - bool(column.thresholds)
    held, positive = np.zeros((2, pieces + others), dtype=np.int64)
    rows = max(1, _CHUNK // (column.stop - column.start))
    for start in range(0, table.n_rows, rows):
        block = slice(start, start + rows)
        X, counts = table.X[block, column.start : column.stop], table.counts[block]
        piece = _pieces(X, column.thresholds)
        held += tallied(piece, counts, len(held) + 1)[:-1]
        yes = table.y[block] > 0
        positive += tallied(piece[yes], counts[yes], len(held) + 1)[:-1]
    n, p = table.n_records, int(np.sum(table.counts[table.y > 0]))
    # n^2 cov(piece, label), exactly: in Python's integers, as n^2 leaves 64 bits from 3 * 10^9 records on.
    more = n * positive.astype(object) - p * held.astype(object)
    if not column.thresholds:
        return (_largest(more[None, :]) // n).astype(np.int64)
    below, levels = np.cumsum(more[:pieces])[:-1], more[pieces:]
    above = np.sum(more[:pieces]) - below
    sides = np.column_stack([below, above, np.broadcast_to(levels, (len(below), len(levels)))])
    return (_largest(sides) // n).astype(np.int64)


def _largest(more: NDArray[Any]) -> NDArray[Any]:
    """The largest |sum| of a row over sets of pieces; what no piece holds is a piece, and takes the rest."""
    rest = -np.sum(more, axis=1, keepdims=True)
    return np.asarray(np.sum(np.maximum(np.hstack([more, rest]), 0), axis=1))


def _pieces(X: NDArray[np.int64], thresholds: tuple[int, ...]) -> IntArray:
    """The piece of each record: between thresholds, then one for each other feature, then none of them."""
    flags = X[:, bool(thresholds) :] > 0
    none = flags.shape[1]
    piece = np.where(np.any(flags, axis=1), np.argmax(flags, axis=1), none) if none else np.zeros(len(X), int)
    if not thresholds:
        return piece
    cut = np.searchsorted(np.array(thresholds), X[:, 0], side="left")
    return np.where(piece < none, piece + len(thresholds) + 1, cut) if none else cut
