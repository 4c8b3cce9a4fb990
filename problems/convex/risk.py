"""Empirical risk of a linear model: (1/n) sum phi(<a_i, w>, y_i), with rows clipped to a public norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from mmap import mmap
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arguments import check_real, check_type, told
from privopt.problems.arrays import as_reals, record_counts
from privopt.problems.convex.coded import CodedRows
from privopt.problems.convex.losses import Loss, RealArray
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import look_up

Vector = NDArray[np.float64]
RowNorm = Literal["l2", "linf"]

_COPIED_BYTES = 1 << 20  # bytes of rows that are copied at a time


@dataclass(frozen=True)
class RiskFacts:
    """The public facts of an empirical risk: everything that a plan may depend on.

    Attributes:
        n_records: n, public under the replace-one relation.
        dimension: the number of features.
        loss: the loss.
        row_norm: the norm bound to which rows are clipped.
        norm: the norm that is clipped, "l2" or "linf".
        constant: the value of a constant last feature before clipping; 0 if there is none.
        weighted: whether records have weights in [0, 1], which are private: then no sum of weights is public.
    """

    n_records: int
    dimension: int
    loss: Loss
    row_norm: float = 1.0
    norm: RowNorm = "l2"
    constant: float = 0.0
    weighted: bool = False

    def __post_init__(self) -> None:
        check_type(self.loss, Loss, "loss must be a Loss, such as LogisticLoss()")
        for name in ("row_norm", "constant"):
            check_real(getattr(self, name), name)
        if not 1e-100 <= self.row_norm <= 1e100:  # where squares of norms are normal numbers
            raise InvalidInputError(f"row_norm must be > 0 (and from 1e-100 to 1e100), got {self.row_norm}")
        if not isinstance(self.norm, str) or self.norm not in ("l2", "linf"):
            raise InvalidInputError(f"norm must be 'l2' or 'linf', got {told(self.norm)}")
        if not 0 <= self.constant <= self.row_norm:
            raise InvalidInputError(f"constant must be from 0 to row_norm, got {self.constant}")
        sizes = check_real(self.n_records, "n_records"), check_real(self.dimension, "dimension")
        if not all(size >= 1 and size.is_integer() for size in sizes):
            raise InvalidInputError(
                f"expected features of shape (n, d), n >= 1, d >= 1, got {(self.n_records, self.dimension)}"
            )

    @property
    def row_norm_l2(self) -> float:
        """A bound on the l2 norm of every clipped row."""
        return self.row_norm * (1.0 if self.norm == "l2" else float(np.sqrt(self.dimension)))

    @property
    def gradient_bound(self) -> float:
        """Bound G on the l2 norm of one record's gradient at any w."""
        return self.loss.lipschitz * self.row_norm_l2

    @property
    def gradient_bound_linf(self) -> float:
        """Bound G1 on the l-infinity norm of one record's gradient: the Lipschitz constant under l1."""
        return self.loss.lipschitz * self.row_norm  # an l2 bound is an l-infinity bound

    @property
    def smoothness(self) -> float:
        """Smoothness L: the gradient of each record is L-Lipschitz in l2."""
        return self.loss.smoothness * self.row_norm_l2**2

    @property
    def hessian_lipschitz(self) -> float:
        """Bound rho: each record's Hessian is rho-Lipschitz, spectral norm to l2; infinite if unknown."""
        return self.loss.curvature_lipschitz * self.row_norm_l2**3

    @property
    def hessian_bound(self) -> float:
        """A bound on the Frobenius norm of one record's Hessian, which has rank one, at any w."""
        return self.smoothness

    def smoothness_in(self, convex_set: ConvexSet) -> float:
        """Return smoothness with respect to the Minkowski norm of a bounded set (|.|_1 / size for a simplex).

        It is at most the largest squared dual norm of a row times the bound on phi''. Wang, Ye and Xu (2017)
        use L |C|_2^2 with the diameter, which is larger.
        """
        if isinstance(convex_set, L1Ball | Simplex):
            return self.loss.smoothness * (convex_set.size * self.row_norm) ** 2
        return self.smoothness * convex_set.radius**2

    @property
    def rounding(self) -> float:
        """A bound on the rounding error of a gradient sum, in units of n times the gradient bound.

        Sums are accumulated in float64 over at most n additions in any order, so the error of each coordinate
        is at most (n + 2) 2^-53 times the sum of its magnitudes, and the same holds for the vector. With
        counts there is one more product per row and at least one addition less. When a record changes, other
        rows may change their positions, and slopes computed with vector instructions may then differ in the
        last bits, by assumption by at most 2^-50 of their bound: half of that is included here for each of
        the two sums.
        """
        return (self.n_records + 7) * 2.0**-53

    @property
    def sensitivity(self) -> float:
        """l2 sensitivity of the computed mean gradient under replace-one: 2 G / n, and its rounding."""
        return 2 * self.gradient_bound * (1 / self.n_records + self.rounding)

    @property
    def sensitivity_linf(self) -> float:
        """l-infinity sensitivity of the computed mean gradient: 2 G1 / n, and its rounding."""
        return 2 * self.gradient_bound_linf * (1 / self.n_records + self.rounding)

    @property
    def hessian_sensitivity(self) -> float:
        """Frobenius sensitivity of the computed mean Hessian under replace-one, and its rounding."""
        return 2 * self.hessian_bound * (1 / self.n_records + self.rounding)


class EmpiricalRisk:
    """F(w) = (1/n) sum_i phi(<a_i, w>, y_i), a_i the i-th row clipped to the public norm bound.

    Rows longer than ``row_norm`` are scaled down to it, shorter ones are unchanged; the bound is never
    computed from the data. One scale per row is stored: the matrix is not copied. A full pass (value,
    gradient, Hessian-vector product) works through blocks of rows that stay in cache, so data are read from
    memory once. A full pass uses one thread per core (or NUMBA_NUM_THREADS); the result does not depend on
    the number of threads. Sparse data are never densified.

    Neighbours: replace-one, n public; ``facts`` has the sensitivities. Sums over records are accumulated
    in float64 for float32 data too, so that ``facts.rounding`` holds; for such data, predictions of full
    passes are float32, predictions of batches float64.

    With ``counts`` it is the risk of the table in which every row is repeated as often as its count: n is the
    sum of counts, and record k lies in the row where the cumulative sum of the counts first exceeds k.
    Neighbours are data sets that differ in one *record*, so one count falls by one and another rises,
    possibly from or to zero. Norms and predictions are then computed row by row, so that the result for a row
    does not depend on its position.

    With ``weights`` v_i in [0, 1] it is (1/n) sum_i v_i phi(<a_i, w>, y_i), and a record is (a_i, y_i, v_i).
    v phi has every property that ``facts`` state for phi: Lipschitz and smoothness constants, convexity,
    range. So the sensitivities of ``facts`` hold also where a record's weight changes.

    Args:
        X: dense (rows, d) array or scipy.sparse matrix, rows >= 1, a record each unless there are counts.
            float32 and float64 are used as they are when C-contiguous (CSR without duplicates if sparse),
            anything else is converted. Not copied: do not write to it. A memory-mapped file, which another
            process may write to between the passes, is copied into memory.
        y: labels as the loss requires them, shape (rows,).
        loss: the loss.
        row_norm: public norm bound to which rows are clipped, > 0.
        norm: the norm that is clipped: "l2", or "linf" for l1 geometry.
        constant: the value of the last feature, if it is the same in every row of X; 0 otherwise.
        counts: the number of records that each row stands for, shape (rows,); None: one each. With counts X
            is converted to float64, or is a ``CodedRows``.
        weights: the weight of each record, in [0, 1], shape (rows,), without counts; None: one each.

    Raises:
        InvalidInputError: wrong shapes, no records, NaN or infinity, rows longer than 10^19 (float32) or
            10^153 times ``row_norm``, labels that do not fit the loss, invalid counts or weights.
    """

    weights: Vector | None = None

    def __init__(
        self,
        X: Any,
        y: ArrayLike,
        loss: Loss,
        *,
        row_norm: float = 1.0,
        norm: RowNorm = "l2",
        constant: float = 0.0,
        counts: ArrayLike | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        self.X = _in_memory(_matrix(X))
        self._counted = counts is not None
        if _is_coded(self.X) and not self._counted:
            raise InvalidInputError("coded rows are distinct records: counts are needed")
        if self._counted:
            self.X = self.X if _is_coded(self.X) else self.X.astype(np.float64, copy=False)
        rows, columns = self.X.shape
        self.counts = record_counts(counts, int(rows))
        n = int(np.sum(self.counts))
        self.facts = RiskFacts(n, int(columns), loss, row_norm, norm, constant, weights is not None)
        if weights is not None:
            self.weights = self._checked_weights(weights)
        labels = loss.check_labels(y)
        if labels.shape != (rows,):
            raise InvalidInputError(f"expected labels of shape ({rows},), got {labels.shape}")
        self.y: RealArray = labels.astype(self.X.dtype)
        self._scale = self._row_scales()
        from privopt.problems.convex.passes import rows_of  # imports numba, which is slow

        self._rows = rows_of(self.X)

    def in_float64(self) -> EmpiricalRisk:
        """Return the same risk in float64: a copy of float32 data, otherwise itself. Not private."""
        if self.X.dtype == np.float64:
            return self
        if _is_sparse(self.X):
            return self._on(self.X.astype(np.float64), slice(0, len(self.y)))
        X = np.empty(self.X.shape)
        for b in self._blocks():
            X[b] = self.X[b]
        return self._on(X, slice(0, len(self.y)))

    def _on(self, X: Any, rows: slice) -> EmpiricalRisk:
        """Return the same risk over given rows ``X``, with the labels and weights of ``rows``."""
        f, weights = self.facts, None if self.weights is None else self.weights[rows]
        return EmpiricalRisk(
            X,
            self.y[rows],
            f.loss,
            row_norm=f.row_norm,
            norm=f.norm,
            constant=f.constant,
            weights=weights,
        )

    def value(self, w: ArrayLike) -> float:
        """Return F(w). Not private."""
        return float(self._mean(partial(EmpiricalRisk._value_sum, w=self._point(w))))

    def value_and_gradient(self, w: ArrayLike) -> tuple[float, Vector]:
        """Return F and its gradient at w, in one pass over the data. Not private."""
        both = self._mean(partial(EmpiricalRisk._both_sums, w=self._point(w)))
        return float(both[0]), both[1:]

    def predictions(self, w: ArrayLike) -> RealArray:
        """Return <a_i, w> for the clipped rows, shape (rows,). Not private."""
        return self._predict(slice(0, len(self.y)), self._lowered(w))

    def clipped_rows(self) -> Any:
        """Return a copy of the rows after clipping, shape (rows, d), sparse if X is. Not private."""
        return sp.diags_array(self._scale) @ (self.X[:] if _is_coded(self.X) else self.X)

    def gradient(self, w: ArrayLike) -> Vector:
        """Return the gradient of F at w, shape (d,). Not private."""
        return self._mean(partial(EmpiricalRisk._gradient_sum, w=self._point(w)))

    def hessian_vector(self, w: ArrayLike, v: ArrayLike) -> Vector:
        """Return the Hessian of F at w times v, shape (d,). Not private."""
        return self._mean(partial(EmpiricalRisk._curved_sum, w=self._point(w), v=self._point(v)))

    def hessian(self, w: ArrayLike) -> Vector:
        """Return the Hessian of F at w, shape (d, d), symmetric; d^2 numbers in memory. Not private.

        Products are accumulated in float64 for float32 data too, so that ``facts.rounding`` holds.
        """
        total = self.total(partial(EmpiricalRisk._hessian_sum, w=self._point(w)))
        return (total + total.T) / (2 * self.facts.n_records)

    def total(self, task: Callable[[EmpiricalRisk], Vector]) -> Vector:
        """Run ``task`` on every part of the records and add the results up; here there is one part."""
        return task(self)

    def compile(self, *, batches: bool = False, exact: bool = False) -> None:
        """Compile the kernels of a pass over all records, or load them from the cache, by running one row.

        Args:
            batches: compile the kernels of sums over some records instead.
            exact: compile the kernels for the risk ``in_float64`` instead.
        """
        if exact and self.X.dtype != np.float64:
            one = slice(0, 1)
            self._on(self.X[one].astype(np.float64), one).compile(batches=batches)
            return
        from privopt.problems.convex.passes import predict_each

        zeros, first = np.zeros(self.facts.dimension), slice(0, 1)
        if batches:
            X, _, scale = self._batch(np.zeros(1, dtype=np.int64))
            predict_each(X, scale, zeros)
        else:
            self._add(zeros, first, self._predict(first, self._lowered(zeros)))

    def _mean(self, task: Callable[[EmpiricalRisk], Vector]) -> Vector:
        return np.asarray(self.total(task) / self.facts.n_records)

    def _value_sum(self, w: Vector) -> Vector:
        point, loss = self._lowered(w), self.facts.loss
        return np.array(
            self._sums(lambda b, _: self._sum(b, loss.value(self._predict(b, point), self.y[b])))[0]
        )

    def _both_sums(self, w: Vector) -> Vector:
        """Return the summed value, followed by the summed gradient, shape (1 + d,)."""
        point, loss = self._lowered(w), self.facts.loss

        def visit(b: slice, total: Vector) -> float:
            z = self._predict(b, point)
            self._add(total, b, loss.slope(z, self.y[b]))
            return self._sum(b, loss.value(z, self.y[b]))

        value, gradient = self._sums(visit)
        return np.concatenate([[value], gradient])

    def _gradient_sum(self, w: Vector) -> Vector:
        point, loss = self._lowered(w), self.facts.loss

        def visit(b: slice, total: Vector) -> float:
            self._add(total, b, loss.slope(self._predict(b, point), self.y[b]))
            return 0.0

        return self._sums(visit)[1]

    def _curved_sum(self, w: Vector, v: Vector) -> Vector:
        point, direction, loss = self._lowered(w), self._lowered(v), self.facts.loss

        def visit(b: slice, total: Vector) -> float:
            curvature = loss.curvature(self._predict(b, point), self.y[b])
            self._add(total, b, curvature * self._predict(b, direction))
            return 0.0

        return self._sums(visit)[1]

    def _hessian_sum(self, w: Vector) -> Vector:
        from privopt.problems.convex.passes import CodeRows

        total = np.zeros((self.facts.dimension, self.facts.dimension))
        z = self.predictions(w)
        weights = self.facts.loss.curvature(z, self.y).astype(np.float64) * self._squares()
        weights = np.asarray(self._multiplied(slice(0, len(self.y)), weights), dtype=np.float64)
        if isinstance(self._rows, CodeRows):
            return self._rows.squares(weights)
        for b in self._blocks():
            rows = self._doubles(b)
            weighted = sp.diags_array(weights[b]) @ rows if _is_sparse(rows) else rows * weights[b][:, None]
            product = rows.T @ weighted
            total += product.toarray() if _is_sparse(product) else product
        return total

    def _doubles(self, b: slice) -> Any:
        """Return rows before clipping, in float64; all rows if X is sparse."""
        return (self.X if _is_sparse(self.X) else self.X[b]).astype(np.float64, copy=False)

    def bare_rows(self, b: slice) -> Any:
        """Return rows in float64 without the constant feature, before clipping. Not private.

        Estimators clip rows to a declared norm before the constant feature is appended.
        """
        return self.X[b, : self.facts.dimension - bool(self.facts.constant)].astype(np.float64, copy=False)

    def _squares(self) -> Vector:
        """Return the squared row scales, which multiply products of rows from ``_doubles``."""
        return self._scale.astype(np.float64) ** 2

    def gradient_sum(self, w: ArrayLike, records: NDArray[np.int64]) -> Vector:
        """Return the sum (not the mean) of the gradients of some records at w, shape (d,). Not private."""
        from privopt.problems.convex.passes import predict_each

        X, y, scale = self._batch(records)
        z = predict_each(X, scale, self._point(w))
        return _weighted_rows(X, scale * self._of_batch(records, self.facts.loss.slope(z, y)))

    def difference_sum(self, w: ArrayLike, anchor: ArrayLike, records: NDArray[np.int64]) -> Vector:
        """Return the sum, over some records, of gradient at w minus gradient at the anchor. Not private."""
        from privopt.problems.convex.passes import predict_each

        X, y, scale = self._batch(records)
        slope = self.facts.loss.slope
        z, before = (predict_each(X, scale, self._point(p)) for p in (w, anchor))
        return _weighted_rows(X, scale * self._of_batch(records, slope(z, y) - slope(before, y)))

    def _batch(self, records: NDArray[np.int64]) -> tuple[Any, RealArray, RealArray]:
        """Return rows, labels and scales of some records, in float64 whatever the data.

        The sensitivity of a difference of gradients needs predictions that are Lipschitz in w; float32
        predictions are not at small distances.
        """
        at = np.searchsorted(self._ends, records, side="right") if self._counted else records
        X, y, scale = (a[at].astype(np.float64, copy=False) for a in (self.X, self.y, self._scale))
        return X, y, scale

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        """The cumulative record counts, shape (rows,)."""
        return np.cumsum(self.counts)

    @cached_property
    def mark(self) -> int:
        """An order-independent fingerprint of the records: see ``mark_of``. Not private."""
        from privopt.problems.convex.passes import mark_of

        return mark_of(self.X, self.y)

    def _row_scales(self) -> RealArray:
        if _is_coded(self.X):
            norms = self.X.norms(self.facts.norm == "linf")
        elif self._row_by_row:
            from privopt.problems.convex.passes import norms_each

            norms = norms_each(self.X, self.facts.norm == "linf")
        else:
            norms = np.concatenate([_norms(self.X[b], self.facts.norm) for b in self._blocks()])
        if not np.all(np.isfinite(norms)):
            raise InvalidInputError("features must be finite; got NaN, infinity or an overflowing norm")
        # A subnormal scale would have a relative error larger than ``_slack``.
        if np.max(norms) > self._norm_bound / math.sqrt(np.finfo(self.X.dtype).tiny):
            raise InvalidInputError(
                f"a row is too long to be shortened to row_norm = {self._norm_bound:g} in "
                f"{self.X.dtype}: clip the columns to public bounds first"
            )
        bound = self._norm_bound * (1 - self._slack)
        return np.asarray(np.minimum(1, bound / np.maximum(norms, bound)), dtype=self.X.dtype)

    @property
    def _row_by_row(self) -> bool:
        """Whether every row is computed by itself, so that its result does not depend on its position."""
        return self._counted and isinstance(self.X, np.ndarray)

    @property
    def _norm_bound(self) -> float:
        """The norm bound to which rows of X are clipped."""
        return self.facts.row_norm

    @property
    def _slack(self) -> float:
        """A relative margin below the norm bound that covers the rounding of norms, scales and slopes."""
        return 8 * float(np.finfo(self.X.dtype).eps) + 2.0**-52 * self.facts.dimension

    def _blocks(self) -> Iterator[slice]:
        if _is_sparse(self.X):  # slicing a sparse matrix copies it
            yield slice(0, len(self.y))
            return
        rows = max(1, _COPIED_BYTES // (self.facts.dimension * self.X.dtype.itemsize))
        for start in range(0, len(self.y), rows):
            look_up()
            yield slice(start, min(start + rows, len(self.y)))

    def _sums(self, visit: Callable[[slice, Vector], float]) -> tuple[float, Vector]:
        """Run ``visit(block, total)`` on all blocks; sum the numbers it returns and the vectors it adds."""
        from privopt.problems.convex.passes import full_pass

        return full_pass(visit, len(self.y), self.facts.dimension, self._rows.stored, self._rows.block)

    def _predict(self, b: slice, w: RealArray) -> RealArray:
        if self._row_by_row:
            from privopt.problems.convex.passes import predict_each

            return predict_each(self.X[b], self._scale[b], w)
        return self._rows.predict(b, self._scale, w)

    def _sum(self, b: slice, values: RealArray) -> float:
        """Return the sum of per-record values over some rows, weighted by the record counts."""
        return float(np.sum(self._multiplied(b, values)))

    def _add(self, total: Vector, b: slice, weights: RealArray) -> None:
        """Add the sum of weights_i a_i over the records of some rows to the total."""
        self._rows.add(total, b, self._scale, self._multiplied(b, weights))

    def _multiplied(self, b: slice, values: RealArray) -> RealArray:
        """Return per-record values of some rows times the record counts or the weights."""
        if self.weights is not None:
            return np.asarray(self.weights[b] * values, dtype=values.dtype)
        return np.asarray(self.counts[b] * values) if self._counted else values

    def _of_batch(self, records: NDArray[np.int64], values: RealArray) -> RealArray:
        """Return values of some records times their weights."""
        return values if self.weights is None else np.asarray(self.weights[records] * values)

    def _checked_weights(self, weights: ArrayLike) -> Vector:
        """Return the weights, no larger than a bound below 1 that covers the rounding of products with them.

        Raises:
            InvalidInputError: weights together with counts, of another shape, or not in [0, 1].
        """
        found = as_reals(weights, f"weights of shape ({self.X.shape[0]},)").astype(np.float64)
        if self._counted or found.shape != (self.X.shape[0],):
            raise InvalidInputError(
                f"weights are for records, not for counts of them: shape ({self.X.shape[0]},)"
            )
        if not np.all((found >= 0) & (found <= 1)):
            raise InvalidInputError("weights of records must lie in [0, 1]")
        return np.minimum(found, 1 - 2 * float(np.finfo(self.X.dtype).eps))

    def _lowered(self, w: ArrayLike) -> RealArray:
        return self._point(w).astype(self.X.dtype)

    def _point(self, w: ArrayLike) -> Vector:
        point = np.asarray(w, dtype=np.float64)
        if point.shape != (self.facts.dimension,):
            raise InvalidInputError(
                f"expected a vector of shape ({self.facts.dimension},), got {point.shape}"
            )
        return point


def _weighted_rows(rows: Any, weights: RealArray) -> Vector:
    """Return sum_i weights_i rows_i, accumulated in float64."""
    exact = weights.astype(np.float64, copy=False)
    if _is_sparse(rows):
        return np.asarray(rows.T @ exact)
    return np.asarray(exact @ rows.astype(np.float64, copy=False))


def _is_sparse(X: Any) -> bool:
    return bool(sp.issparse(X))


def _is_coded(X: Any) -> bool:
    return isinstance(X, CodedRows)


def _matrix(X: Any) -> Any:
    if _is_coded(X):
        return X
    if _is_sparse(X):
        matrix: Any = sp.csr_array(X)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
        if not matrix.has_canonical_format:
            # Duplicate entries of a row may cancel: its norm would not bound the terms that sums round.
            matrix = matrix.copy()
            matrix.sum_duplicates()
    else:
        matrix = np.ascontiguousarray(as_reals(X, "features of shape (n, d)"))
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidInputError(f"expected features of shape (n, d), n >= 1, d >= 1, got {matrix.shape}")
    return matrix


def _in_memory(X: Any) -> Any:
    """Return X, or a copy if it lies in a memory-mapped file.

    The file could change between the pass that computes the norms of rows and the passes that sum them.
    """
    held = (X.data, X.indices, X.indptr) if _is_sparse(X) else (X,)
    return X.copy() if any(map(_is_mapped, held)) else X


def _is_mapped(array: Any) -> bool:
    while isinstance(array, np.ndarray | memoryview):
        array = array.base if isinstance(array, np.ndarray) else array.obj
    return isinstance(array, mmap)


def _norms(block: Any, norm: RowNorm) -> Vector:
    if _is_sparse(block):
        magnitudes = abs(block.astype(np.float64))
        found = (
            magnitudes.max(axis=1).toarray() if norm == "linf" else np.sqrt(magnitudes.power(2).sum(axis=1))
        )
    elif norm == "linf":
        found = np.max(np.abs(block), axis=1)
    else:
        found = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
    return np.asarray(found, dtype=np.float64).ravel()
