"""Empirical risk of a linear model on unclipped records; mechanisms bound each record's influence instead."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.convex.losses import Loss, RealArray, SquaredLoss
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, Vector

# Rows are clipped only to this norm, so that the sum of squares of a row cannot overflow.
_UNCLIPPED = 1e100
# The squared loss without a linear continuation: its threshold is larger than any residual.
PLAIN_SQUARES = SquaredLoss(sys.float_info.max)


def unclipped_facts(n_records: int, dimension: int, loss: Loss) -> RiskFacts:
    """Return the public facts of an ``UnclippedRisk``."""
    return RiskFacts(n_records, dimension, loss, _UNCLIPPED)


class UnclippedRisk(EmpiricalRisk):
    """F(w) = (1/n) sum_i phi(<x_i, w>, y_i), with rows x_i that are not clipped.

    Nothing bounds a record's gradient, so a mean of gradients has no finite sensitivity. Some mechanisms use
    ``soft_gradient``, to which a record contributes at most ``truncation.INFLUENCE`` * scale / n per
    coordinate; others trim each coordinate of the gradients, ``slopes(w)`` times a column.

    Args:
        X, y, loss: as for ``EmpiricalRisk``; ``PLAIN_SQUARES`` is the squared loss.

    Raises:
        InvalidInputError: as ``EmpiricalRisk``.
    """

    def __init__(self, X: Any, y: ArrayLike, loss: Loss) -> None:
        super().__init__(X, y, loss, row_norm=_UNCLIPPED)

    def slopes(self, w: ArrayLike) -> Vector:
        """Return phi'(<x_i, w>, y_i), shape (n,): gradients are rows times these. Not private."""
        return self._slopes(slice(0, self.facts.n_records), self._lowered(w))

    def soft_gradient(self, w: ArrayLike, scale: float, beta: float) -> Vector:
        """Return the robust mean of the gradients at w, coordinate by coordinate, shape (d,). Not private.

        scale / n * sum_i influence(gradient_ij / scale), in one pass over the data; no array of n x d
        numbers is made. See ``soft_truncation``.
        """
        point, rows = self._lowered(w), self._rows

        def visit(b: slice, total: Vector) -> float:
            _add_soft(rows, b, self._slopes(b, point, scale), beta, total)
            return 0.0

        return self._sums(visit)[1] / self.facts.n_records * scale

    def soft_gradient_sum(
        self, w: ArrayLike, records: NDArray[np.int64], scale: float, beta: float
    ) -> Vector:
        """Return scale * sum of influences over some records, shape (d,). Not private."""
        from privopt.problems.convex.passes import predict_each, rows_of

        X, y, row_scale = self._batch(records)
        total = np.zeros(self.facts.dimension)
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = self.facts.loss.slope(predict_each(X, row_scale, self._point(w)), y) / scale
        _add_soft(rows_of(X), slice(0, len(y)), np.asarray(slopes, np.float64), beta, total)
        return total * scale

    def compile(self, *, batches: bool = False, exact: bool = False) -> None:
        zeros, first = np.zeros(self.facts.dimension), slice(0, 1)
        if batches:
            self.soft_gradient_sum(zeros, np.zeros(1, dtype=np.int64), 1.0, 1.0)
        else:
            _add_soft(self._rows, first, self._slopes(first, self._lowered(zeros)), 1.0, zeros)

    def _slopes(self, rows: slice, point: RealArray, scale: float = 1.0) -> Vector:
        # A slope that overflows becomes infinite or NaN; its influence is bounded all the same.
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.facts.loss.slope(self._predict(rows, point), self.y[rows]).astype(np.float64)
            return np.asarray(found / scale)


def _add_soft(rows: Any, b: slice, factor: Vector, beta: float, total: Vector) -> None:
    """Add soft-truncated gradients of the rows in ``b``; ``rows`` comes from ``passes.rows_of``."""
    from privopt.problems.convex.passes import DenseRows
    from privopt.problems.convex.soft_truncation import add_soft_dense, add_soft_sparse

    if isinstance(rows, DenseRows):
        add_soft_dense(rows.X[b], factor, beta, total)
    else:
        add_soft_sparse(rows.data, rows.indices, rows.indptr[b.start : b.stop + 1], factor, beta, total)
