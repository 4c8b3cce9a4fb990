"""Empirical risk of a linear model: (1/n) sum phi(<a_i, w>, y_i), with rows clipped to a public norm."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from privopt.problems.errors import InvalidInputError
from privopt.problems.losses import Loss, RealArray

Vector = NDArray[np.float64]
RowNorm = Literal["l2", "linf"]

# Large enough to hide the cost of a Python call, small enough that a block is still in cache when the
# gradient reads it the second time.
_BLOCK_BYTES = 1 << 20


class EmpiricalRisk:
    """F(w) = (1/n) sum_i phi(<a_i, w>, y_i), a_i the i-th row scaled down to the public norm bound.

    Rows longer than ``row_norm`` are shortened to it, shorter ones stay as they are; the bound is never read
    off the data. Scaling costs one number per row: the matrix is not copied. A full pass (gradient,
    Hessian-vector product) works through blocks of rows that stay in cache, so dense data are read from
    memory once; sparse data are read twice and never densified.

    Neighbours: replace-one, n public. One record's gradient is at most ``gradient_bound``, so the mean
    gradient moves by at most twice that over n. float32 data halve the memory traffic; the float32
    rounding of sums is then of relative order 1e-7 and no part of any sensitivity.

    Args:
        X: dense (n, d) array or scipy.sparse matrix, n >= 1. float32 and float64 are used as they are
            when C-contiguous (CSR if sparse), anything else is converted. Not copied: do not write to it.
        y: labels as the loss wants them, shape (n,).
        loss: the loss.
        row_norm: public bound that rows are clipped to, > 0.
        norm: which norm is clipped: "l2", or "linf" for l1 geometry.

    Raises:
        InvalidInputError: wrong shapes, no records, NaN or infinity, labels that do not fit the loss.
    """

    def __init__(
        self, X: Any, y: ArrayLike, loss: Loss, *, row_norm: float = 1.0, norm: RowNorm = "l2"
    ) -> None:
        if not (np.isfinite(row_norm) and row_norm > 0):
            raise InvalidInputError(f"row_norm must be finite and > 0, got {row_norm}")
        if norm not in ("l2", "linf"):
            raise InvalidInputError(f"norm must be 'l2' or 'linf', got {norm!r}")
        self.X = _matrix(X)
        self.loss = loss
        self.row_norm = float(row_norm)
        self.norm: RowNorm = norm
        labels = loss.check_labels(y)
        if labels.shape != (self.n_records,):
            raise InvalidInputError(f"expected labels of shape ({self.n_records},), got {labels.shape}")
        self.y: RealArray = labels.astype(self.X.dtype)
        self._scale = self._row_scales()

    @property
    def n_records(self) -> int:
        """n: public under the replace-one relation."""
        return int(self.X.shape[0])

    @property
    def dimension(self) -> int:
        return int(self.X.shape[1])

    @property
    def row_norm_l2(self) -> float:
        """A public bound on the l2 norm of every clipped row."""
        return self.row_norm * (1.0 if self.norm == "l2" else float(np.sqrt(self.dimension)))

    @property
    def gradient_bound(self) -> float:
        """G: a bound on the l2 norm of one record's gradient at any w. Public."""
        return self.loss.lipschitz * self.row_norm_l2

    @property
    def gradient_bound_linf(self) -> float:
        """G1: a bound on the l-infinity norm of one record's gradient, i.e. Lipschitz under l1. Public."""
        return self.loss.lipschitz * self.row_norm  # an l2 bound is an l-infinity bound

    @property
    def smoothness(self) -> float:
        """L: the gradient of each record is L-Lipschitz in l2. Public."""
        return self.loss.smoothness * self.row_norm_l2**2

    def value(self, w: ArrayLike) -> float:
        """F(w). Not private."""
        point = self._point(w)
        total = sum(float(np.sum(self.loss.value(z, self.y[b]))) for b, z in self._predictions(point))
        return total / self.n_records

    def predictions(self, w: ArrayLike) -> RealArray:
        """<a_i, w> for the clipped rows, shape (n,). Not private."""
        return np.asarray(np.concatenate([z for _, z in self._predictions(self._point(w))]))

    def gradient(self, w: ArrayLike) -> Vector:
        """The gradient of F at w, shape (d,). Not private."""
        point = self._point(w)
        total = np.zeros(self.dimension)
        for b, z in self._predictions(point):
            self._add_rows(total, b, self.loss.slope(z, self.y[b]))
        return total / self.n_records

    def hessian_vector(self, w: ArrayLike, v: ArrayLike) -> Vector:
        """The Hessian of F at w times v, shape (d,). Not private."""
        point, direction = self._point(w), self._point(v)
        total = np.zeros(self.dimension)
        for b, z in self._predictions(point):
            along = self._predict(b, direction)
            self._add_rows(total, b, self.loss.curvature(z, self.y[b]) * along)
        return total / self.n_records

    def gradient_sum(self, w: ArrayLike, records: NDArray[np.int64]) -> Vector:
        """The sum (not the mean) of the gradients of some records at w, shape (d,). Not private."""
        X, scale = self.X[records], self._scale[records]
        z = scale * (X @ self._point(w).astype(X.dtype))
        return np.asarray((scale * self.loss.slope(z, self.y[records])) @ X, dtype=np.float64)

    def _row_scales(self) -> RealArray:
        norms = np.concatenate([_norms(self.X[b], self.norm) for b in self._blocks()])
        if not np.all(np.isfinite(norms)):
            raise InvalidInputError("features must be finite; got NaN, infinity or an overflowing norm")
        # A few units in the last place below the bound, so that rounding never lands above it.
        bound = self.row_norm * (1 - 8 * float(np.finfo(self.X.dtype).eps))
        return np.asarray(np.minimum(1, bound / np.maximum(norms, bound)), dtype=self.X.dtype)

    def _blocks(self) -> Iterator[slice]:
        if _is_sparse(self.X):  # slicing a sparse matrix copies it
            yield slice(0, self.n_records)
            return
        rows = max(1, _BLOCK_BYTES // max(1, self.dimension * self.X.dtype.itemsize))
        for start in range(0, self.n_records, rows):
            yield slice(start, min(start + rows, self.n_records))

    def _predictions(self, w: Vector) -> Iterator[tuple[slice, RealArray]]:
        for b in self._blocks():
            yield b, self._predict(b, w)

    def _predict(self, b: slice, w: Vector) -> RealArray:
        block = self.X if _is_sparse(self.X) else self.X[b]
        return np.asarray(self._scale[b] * (block @ w.astype(self.X.dtype)))

    def _add_rows(self, total: Vector, b: slice, weights: RealArray) -> None:
        """total += sum over the block of weights_i a_i."""
        scaled = self._scale[b] * weights
        total += self.X.T @ scaled if _is_sparse(self.X) else scaled @ self.X[b]

    def _point(self, w: ArrayLike) -> Vector:
        point = np.asarray(w, dtype=np.float64)
        if point.shape != (self.dimension,):
            raise InvalidInputError(f"expected a vector of shape ({self.dimension},), got {point.shape}")
        return point


def _is_sparse(X: Any) -> bool:
    return bool(sp.issparse(X))


def _matrix(X: Any) -> Any:
    if _is_sparse(X):
        matrix: Any = sp.csr_array(X)
        if matrix.dtype not in (np.float32, np.float64):
            matrix = matrix.astype(np.float64)
    else:
        dense = np.asarray(X)
        kept = dense.dtype if dense.dtype in (np.float32, np.float64) else np.float64
        matrix = np.ascontiguousarray(dense, dtype=kept)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidInputError(f"expected features of shape (n, d), n >= 1, d >= 1, got {matrix.shape}")
    return matrix


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
