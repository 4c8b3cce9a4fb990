"""Integer halfspaces under exact 0/1 loss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arguments import check_some_records
from privopt.problems.arrays import check_unmasked, record_counts
from privopt.problems.discrete.costs import EQUAL_COSTS, Costs
from privopt.problems.discrete.lattice import IntArray, IntegerLattice, check_lattice
from privopt.problems.discrete.layout import Layout
from privopt.problems.discrete.problem import ScoreProblem, SeparatorSet
from privopt.problems.errors import InvalidInputError

# Scores are sums of feature * weight; below this bound int64 cannot wrap.
SCORE_LIMIT = 1 << 61


class ZeroOneHalfspace(ScoreProblem):
    """Choose integer weights w; predict +1 exactly when <w, x> > 0; the loss is the total cost of errors.

    Features are integers: rational features are brought to a common denominator first (``Schema`` does
    that), which changes no prediction. A score of exactly 0 predicts -1. More than half of the lattice
    points of a typical scorecard have such ties, so floating-point scores would be wrong.

    Args:
        X: integer features, shape (rows, d), rows >= 1: a record each, unless there are ``counts``. Copied.
        y: labels -1 or +1, shape (rows,). Copied.
        lattice: the weights to choose from, dimension d. A public input.
        costs: the cost of either kind of error; 1 each by default. A public input.
        counts: the number of records that each row stands for, shape (rows,); None: one each. The problem
            is the same, bit for bit, as over a table in which every row is repeated that often.
        layout: the indicator columns, a public input; None: solvers find them in the rows.
        weights: the weight of each record, a whole number from 0 to ``max_weight``, shape (rows,), without
            counts. A weight multiplies its record's loss, and is part of the record. None: one each.
        max_weight: a public bound on weights: a record's loss is at most this bound times the larger cost.

    Raises:
        InvalidInputError: wrong shapes, non-integer features, labels other than -1 and +1, scores beyond 64
            bits, invalid counts or weights.
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        lattice: IntegerLattice,
        costs: Costs = EQUAL_COSTS,
        counts: ArrayLike | None = None,
        layout: Layout | None = None,
        weights: ArrayLike | None = None,
        max_weight: int = 1,
    ) -> None:
        check_lattice(lattice)
        self.X = integer_matrix(X, lattice.dimension)
        self.layout = layout
        if layout is not None:
            layout.check(self.X)
        self.y = sign_labels(y, len(self.X))
        self.lattice = lattice
        self.costs, self.max_weight = costs, max_weight
        self.record_loss_bound = costs.largest * max_weight
        self.is_weighted = weights is not None
        if weights is None:
            self.counts = record_counts(counts, len(self.X), self.record_loss_bound)
        else:
            self.counts = _whole_weights(weights, counts, len(self.X), self.record_loss_bound, max_weight)
        reach = np.maximum(np.abs(lattice.low), np.abs(lattice.high)).astype(object)
        # Computed without a copy of the features, and in Python's integers, as the least int64 has no
        # absolute value.
        largest = np.maximum(np.max(self.X, axis=0).astype(object), -np.min(self.X, axis=0).astype(object))
        if int(reach @ largest) >= SCORE_LIMIT:
            raise InvalidInputError("scores could exceed 64-bit integers: use a coarser common denominator")

    @property
    def n_records(self) -> int:
        """The number of records, public; the sum of their weights is not."""
        return len(self.X) if self.is_weighted else super().n_records

    def _losses_of_scores(self, scores: IntArray, rows: slice) -> IntArray:
        positive, actual, counts = scores > 0, self.y[rows] > 0, self.counts[rows]
        missed = self.costs.false_negative * _held(~positive[actual], counts[actual])
        return missed + self.costs.false_positive * _held(positive[~actual], counts[~actual])

    def predict(self, w: IntArray) -> IntArray:
        """Return predictions -1 or +1 for all rows, shape (rows,)."""
        return np.where(self.X @ np.asarray(w, dtype=np.int64) > 0, 1, -1).astype(np.int64)

    def with_records(self, X: ArrayLike, y: ArrayLike) -> Self:
        return type(self)(X, y, self.lattice, self.costs, layout=self.layout)

    @classmethod
    def separators(cls, lattice: IntegerLattice) -> SeparatorSet:
        """Return records with label +1 whose losses tell any two points of the lattice apart.

        Within {-1, 0, 1}^d they are +-e_j, at most 2d. Over a wider lattice w and 2w classify every record
        alike, so there is no such set, unless a coordinate is fixed at a nonzero value. Then the points are
        threshold functions 1{<w, x> > t}, and for any two neighbouring values of a coordinate one record
        tells them apart.

        Raises:
            InvalidInputError: no such set exists.
        """
        wide = bool(np.any(lattice.low < -1) or np.any(lattice.high > 1))
        fixed = np.flatnonzero((lattice.low == lattice.high) & (lattice.low != 0))
        if wide and not len(fixed):
            raise InvalidInputError(
                f"no separator set for halfspaces over {lattice}: w and 2w classify every record alike. "
                f"Use a lattice within {{-1, 0, 1}}^d (lattice=(-1, 1); on the command line --lattice=-1:1), "
                f"one with the weight of a constant feature fixed (a threshold function), or a mechanism "
                f"that needs no separators, such as exponential"
            )
        found = list(_between_values(lattice, int(fixed[0])) if wide else _unit_records(lattice))
        records = [record for record, _, _ in found]
        return SeparatorSet(
            lattice,
            np.array(records, dtype=np.int64).reshape(len(found), lattice.dimension),
            np.ones(len(found), dtype=np.int64),
            np.array([j for _, j, _ in found], dtype=np.int64),
            tuple(table for _, _, table in found),
        )


def _unit_records(lattice: IntegerLattice) -> Iterator[tuple[IntArray, int, IntArray]]:
    """Yield the records +-e_j that separate a lattice within {-1, 0, 1}^d, with coordinate and losses.

    (e_j, +1) is an error iff w_j <= 0; (-e_j, +1) is an error iff w_j >= 0. A record on which all values of
    w_j have the same loss separates nothing and is left out.
    """
    for j, (low, high) in enumerate(zip(lattice.low.tolist(), lattice.high.tolist(), strict=True)):
        known: list[IntArray] = []
        for sign in (1, -1):
            table = (sign * np.arange(low, high + 1) <= 0).astype(np.int64)
            if table.min() != table.max() and not any(np.array_equal(table, 1 - t) for t in known):
                known.append(table)
                yield sign * np.eye(1, lattice.dimension, j, dtype=np.int64)[0], j, table


def _between_values(lattice: IntegerLattice, fixed: int) -> Iterator[tuple[IntArray, int, IntArray]]:
    """Yield a record for each pair of neighbouring values of w_j: an error iff w_j is at most the smaller.

    With c the weight that is fixed, 2|c| e_j - sign(c) (2k + 1) e_fixed has the score |c| (2 w_j - 2k - 1).
    """
    c = int(lattice.low[fixed])
    for j, (low, high) in enumerate(zip(lattice.low.tolist(), lattice.high.tolist(), strict=True)):
        for k in range(low, high):
            record = np.zeros(lattice.dimension, dtype=np.int64)
            record[j], record[fixed] = 2 * abs(c), -(2 * k + 1) * (1 if c > 0 else -1)
            yield record, j, (np.arange(low, high + 1) <= k).astype(np.int64)


def _whole_weights(
    weights: ArrayLike, counts: ArrayLike | None, rows: int, bound: int, max_weight: int
) -> IntArray:
    """Return an int64 copy of the weights of records.

    Raises:
        InvalidInputError: beside counts, of another shape, or no whole numbers from 0 to ``max_weight``; or
            too large a bound on the loss.
    """
    given = np.asarray(weights)
    if counts is not None or given.dtype.kind not in "iu" or given.shape != (rows,):
        raise InvalidInputError(f"weights are whole numbers, one per record: shape ({rows},), without counts")
    if np.any(given < 0) or np.any(given > max_weight):
        raise InvalidInputError(f"weights must lie between 0 and max_weight = {max_weight}")
    record_counts(np.array([rows]), 1, bound)  # the largest loss that is possible stays within 64 bits
    return given.astype(np.int64)


def _held(true: NDArray[np.bool_], counts: IntArray) -> IntArray:
    """Sum the record counts of the true entries of each column."""
    one_each = bool(np.all(counts == 1))
    return np.asarray(np.sum(true, axis=0) if one_each else counts @ true, dtype=np.int64)


def integer_matrix(X: ArrayLike, columns: int) -> IntArray:
    """Return a C-contiguous int64 copy of shape (n, columns), n >= 1."""
    check_unmasked(X, "X")
    matrix = _array(X, "features")
    if matrix.ndim != 2 or matrix.shape[1] != columns:
        raise InvalidInputError(f"expected features of shape (n, {columns}), got {matrix.shape}")
    check_some_records(len(matrix))
    if matrix.dtype.kind not in "iub":
        raise InvalidInputError(
            f"features must be integers over a common denominator, got dtype {matrix.dtype}; see Schema"
        )
    return np.array(matrix, dtype=np.int64, order="C")


def sign_labels(y: ArrayLike, n: int) -> IntArray:
    """Return an int64 copy of labels -1 and +1, shape (n,)."""
    check_unmasked(y, "y")
    labels = _array(y, "labels")
    if labels.shape != (n,):
        raise InvalidInputError(f"expected labels of shape ({n},), got {labels.shape}")
    if labels.dtype.kind not in "if" or not np.all(np.isin(labels, (-1, 1))):
        raise InvalidInputError("labels must be -1 or +1")
    return labels.astype(np.int64)


def _array(values: ArrayLike, what: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (TypeError, ValueError):  # rows of different lengths, say
        raise InvalidInputError(f"{what} cannot be read as an array") from None
