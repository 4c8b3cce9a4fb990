"""One pass over the rows of a matrix: cut into blocks that stay in cache, shared among threads.

Cuts do not depend on the number of threads, and partial sums are added in a fixed order, so a pass gives the
same bits on any number of threads. Blocks begin at rows determined by n and d alone, so the result for a row
depends on no other row, not even in its last bit. The kernels are compiled at first use and cached on disk;
therefore this module, which imports numba, is imported where a pass is run and not with the package.
"""

from __future__ import annotations

import contextvars
import itertools
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numba
import numpy as np
import scipy.sparse as sp
from numba import njit
from numpy.typing import NDArray

from privopt.problems.convex.coded import CodedRows
from privopt.problems.convex.losses import RealArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import look_up

Vector = NDArray[np.float64]
Visit = Callable[[slice, Vector], float]
_T = TypeVar("_T")

# A block is large enough to hide the cost of a few calls from Python, and small enough to be still in cache
# when it is read the second time.
BLOCK_BYTES = 1 << 20
_SPARSE_BLOCK = 1024  # rows; not bytes, which would depend on the records
_CODED_BLOCK = 1 << 15  # rows; their intermediate results stay in cache
# Parts are distributed over threads. Each has an accumulator as long as a row, so the number of parts is
# limited: all accumulators together hold at most a quarter as many numbers as the matrix.
_MOST_PARTS = 64
_LEAST_STORED = 1 << 20  # numbers in a part: fewer take less time than starting a thread

# Sums may be reordered (their bounds hold in any order) and fused with products (which rounds less). No other
# kind of "fast" arithmetic is allowed, so NaN and infinity keep their meaning.
_REORDERED = {"reassoc", "contract", "nsz"}


class Rows(Protocol):
    """The rows of a matrix, each times its own scale."""

    @property
    def stored(self) -> int:
        """The number of stored entries, without the zeros of a sparse matrix."""

    @property
    def block(self) -> int:
        """The number of rows in a block."""

    def predict(self, rows: slice, scale: RealArray, w: RealArray) -> RealArray:
        """Return scale_i <row_i, w> for some rows, in the dtype of the matrix, which w has too."""

    def add(self, total: Vector, rows: slice, scale: RealArray, weights: RealArray) -> None:
        """Do total += sum of weights_i scale_i row_i over some rows, in float64."""


def rows_of(X: Any) -> Rows:
    """Return the rows of a C-contiguous array, CSR matrix or ``CodedRows``, float32 or float64, uncopied."""
    if isinstance(X, CodedRows):
        return CodeRows(X)
    if isinstance(X, sp.csr_array):
        return SparseRows(X.data, X.indices, X.indptr)
    return DenseRows(X)


@dataclass(frozen=True, eq=False)
class DenseRows:
    """Rows of a C-contiguous array, shape (n, d)."""

    X: RealArray

    @property
    def stored(self) -> int:
        return int(self.X.size)

    @property
    def block(self) -> int:
        return max(1, BLOCK_BYTES // int(self.X[0].nbytes))

    def predict(self, rows: slice, scale: RealArray, w: RealArray) -> RealArray:
        found = np.empty_like(scale[rows])
        _predict_dense(self.X[rows], scale[rows], w, found)
        return found

    def add(self, total: Vector, rows: slice, scale: RealArray, weights: RealArray) -> None:
        _add_dense(self.X[rows], scale[rows], _one_per_row(weights, rows), total)


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Rows of a CSR matrix, given by its three arrays."""

    data: RealArray
    indices: NDArray[np.integer[Any]]
    indptr: NDArray[np.integer[Any]]

    @property
    def stored(self) -> int:
        return int(self.data.size)

    @property
    def block(self) -> int:
        return _SPARSE_BLOCK

    def predict(self, rows: slice, scale: RealArray, w: RealArray) -> RealArray:
        found = np.empty_like(scale[rows])
        starts = self.indptr[rows.start : rows.stop + 1]
        _predict_sparse(self.data, self.indices, starts, scale[rows], w, found)
        return found

    def add(self, total: Vector, rows: slice, scale: RealArray, weights: RealArray) -> None:
        starts = self.indptr[rows.start : rows.stop + 1]
        _add_sparse(self.data, self.indices, starts, scale[rows], _one_per_row(weights, rows), total)


@dataclass(frozen=True, eq=False)
class CodeRows:
    """Coded rows: predictions and sums are computed for the rows of the table, then looked up by code."""

    X: CodedRows

    @property
    def stored(self) -> int:
        return int(self.X.codes.size)

    @property
    def block(self) -> int:
        return _CODED_BLOCK

    def predict(self, rows: slice, scale: RealArray, w: RealArray) -> RealArray:
        found = np.empty_like(scale[rows])
        each: Any = predict_each(self.X.table, np.ones(len(self.X.table)), w)
        _predict_coded(self.X.codes[rows], each, scale[rows], found)
        return found

    def add(self, total: Vector, rows: slice, scale: RealArray, weights: RealArray) -> None:
        sums = np.zeros(len(self.X.table))
        _add_coded(self.X.codes[rows], scale[rows], _one_per_row(weights, rows), sums)
        _add_dense(self.X.table, sums, np.ones(len(sums)), total)

    def squares(self, weights: Vector) -> Vector:
        """Return the sum of weights_i row_i row_i' over all rows, before they are scaled, shape (d, d)."""
        levels, table = len(self.X.table), self.X.table
        pairs = np.zeros((levels, levels))
        _pair_coded(self.X.codes, weights, pairs)
        pairs[np.diag_indices(levels)] /= 2
        half = table.T @ pairs @ table
        return np.asarray(half + half.T)


def predict_each(X: Any, scale: RealArray, w: RealArray) -> RealArray:
    """Return scale_i <row_i, w> by the same operations at every position, unlike a BLAS product.

    Args:
        X: selected rows, C-contiguous or CSR, of the same dtype as ``scale`` and ``w``.
    """
    found = np.empty_like(scale)
    if isinstance(X, sp.csr_array):
        _predict_sparse(X.data, X.indices, X.indptr, scale, w, found)
    else:
        _predict_each(X, scale, w, found)
    return found


def norms_each(X: Any, largest: bool) -> Vector:
    """Return the l2 norms of the rows of a C-contiguous array (linf norms if ``largest``).

    The operations are the same at every position. A norm is NaN or infinite if the row has such an entry, or
    if its squares overflow.
    """
    found = np.empty(len(X))
    _norms_each(X, largest, found)
    return found


def mark_of(X: Any, y: RealArray) -> int:
    """Return an order-independent fingerprint of rows with labels: the sum of a hash of every row.

    Source: the hash NH of Black, Halevi, Krawczyk, Krovetz and Rogaway (1999), with public keys.

    Args:
        X: rows, C-contiguous, CSR or coded, shape (n, d).
        y: labels, C-contiguous, of the same dtype.
    """
    if isinstance(X, CodedRows):  # the codes tell rows apart
        X = np.ascontiguousarray(X.codes.astype(y.dtype))
    words, odd = f"u{y.itemsize}", np.arange(1, 2 * X.shape[1] + 3, dtype=np.uint64)
    keys = (odd * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32) | np.uint64(1)).reshape(2, -1)
    if isinstance(X, sp.csr_array):
        return int(_mark_sparse(X.data.view(words), X.indices, X.indptr, y.view(words), keys))
    return int(_mark_dense(X.view(words), y.view(words), keys))


def _one_per_row(weights: RealArray, rows: slice) -> RealArray:
    """Check the shape of weights that a loss returned: compiled kernels do not check bounds."""
    found = np.ascontiguousarray(weights)
    if found.shape != (rows.stop - rows.start,):
        raise InvalidInputError(
            f"a loss must return one number per prediction: expected {rows.stop - rows.start} of them, "
            f"got an array of shape {np.shape(weights)}"
        )
    return found


def parts(n: int, d: int, stored: int, block: int = 1) -> list[slice]:
    """Cut the rows 0..n into consecutive parts of about equal length, each of whole blocks."""
    whole = -(-n // block)
    count = min(max(stored // max(4 * d, _LEAST_STORED), 1), _MOST_PARTS, whole)
    cuts = [min(whole * k // count * block, n) for k in range(count + 1)]
    return [slice(a, b) for a, b in itertools.pairwise(cuts)]


def full_pass(visit: Visit, n: int, d: int, stored: int, block: int) -> tuple[float, Vector]:
    """Run ``visit(rows, total)`` on every block; sum the numbers it returns and the vectors it accumulates.

    Args:
        visit: called once per block of rows, from several threads, each with its own ``total`` of shape (d,),
            initially zero.
        n, d, stored, block: the numbers of rows, columns, stored entries, and rows in a block.
    """

    def run(part: slice) -> tuple[float, Vector]:
        number, total = 0.0, np.zeros(d)
        for start in range(part.start, part.stop, block):
            number += visit(slice(start, min(start + block, part.stop)), total)
        return number, total

    found = in_order(run, parts(n, d, stored, block))
    number, total = found[0]
    for more, addend in found[1:]:
        number += more
        total += addend
    return number, total


def in_order(run: Callable[[slice], _T], shares: list[slice]) -> list[_T]:
    """Run every share, on threads that live for this call only (safe under fork); return results in order.

    The calling thread calls ``look_up`` before it waits for each share: an error there, as at a time limit,
    cancels the shares that have not begun.
    """
    threads, found = min(threads_available(), len(shares)), []
    if threads == 1:
        for share in shares:
            look_up()
            found.append(run(share))
        return found
    with ThreadPoolExecutor(threads) as pool:
        # NumPy keeps its error state in the context, which threads do not inherit.
        waiting = [pool.submit(contextvars.copy_context().run, run, share) for share in shares]
        try:
            for each in waiting:
                look_up()
                found.append(each.result())
        finally:
            pool.shutdown(cancel_futures=True)
    return found


def threads_available() -> int:
    """Return the number of threads to use: NUMBA_NUM_THREADS, by default the cores of this process."""
    settings: Any = numba.config  # numba.get_num_threads would start Numba's threads
    return int(settings.NUMBA_NUM_THREADS)


# Kernels take four rows at a time: w and the totals are read, and the totals written, once for four rows, and
# the processor works on four independent sums at once.


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _predict_dense(X: RealArray, scale: RealArray, w: RealArray, found: RealArray) -> None:
    n, d = X.shape
    fours = n // 4 * 4
    for i in range(0, fours, 4):
        a = b = c = e = w.dtype.type(0)
        for j in range(d):
            a += X[i, j] * w[j]
            b += X[i + 1, j] * w[j]
            c += X[i + 2, j] * w[j]
            e += X[i + 3, j] * w[j]
        found[i] = scale[i] * a
        found[i + 1] = scale[i + 1] * b
        found[i + 2] = scale[i + 2] * c
        found[i + 3] = scale[i + 3] * e
    for i in range(fours, n):
        a = w.dtype.type(0)
        for j in range(d):
            a += X[i, j] * w[j]
        found[i] = scale[i] * a


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _predict_each(X: RealArray, scale: RealArray, w: RealArray, found: RealArray) -> None:
    """Predict one row at a time: slower, but with the same operations for a row at every position."""
    for i in range(X.shape[0]):
        a = w.dtype.type(0)
        for j in range(X.shape[1]):
            a += X[i, j] * w[j]
        found[i] = scale[i] * a


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _norms_each(X: RealArray, largest: bool, found: Vector) -> None:
    for i in range(X.shape[0]):
        norm = 0.0
        if largest:
            for j in range(X.shape[1]):
                size = abs(np.float64(X[i, j]))
                if not size <= norm:
                    norm = size
                    if norm != norm:  # NaN, which the next would hide
                        break
            found[i] = norm
        else:
            for j in range(X.shape[1]):
                norm += np.float64(X[i, j]) * np.float64(X[i, j])
            found[i] = math.sqrt(norm)


# NH hash: multiply the halves of each number's bits, each with a key added; mix every row; sum over rows.


@njit(cache=True, nogil=True)
def _mixed(row: np.uint64) -> np.uint64:
    """Return the finalisation mix of MurmurHash3 (Appleby 2011)."""
    row = (row ^ (row >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    row = (row ^ (row >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return row ^ (row >> np.uint64(33))


@njit(cache=True, nogil=True)
def _mark_dense(
    X: NDArray[np.unsignedinteger[Any]], y: NDArray[np.unsignedinteger[Any]], keys: NDArray[np.uint64]
) -> np.uint64:
    total, half, low = np.uint64(0), np.uint64(32), np.uint64(0xFFFFFFFF)
    for i in range(y.size):
        row = np.uint64(y[i]) * keys[0, -1]
        for j in range(X.shape[1]):
            word = np.uint64(X[i, j])
            row += ((word + keys[0, j]) & low) * (((word >> half) + keys[1, j]) & low)
        total += _mixed(row)
    return total


@njit(cache=True, nogil=True)
def _mark_sparse(
    data: NDArray[np.unsignedinteger[Any]],
    indices: NDArray[np.integer[Any]],
    starts: NDArray[np.integer[Any]],
    y: NDArray[np.unsignedinteger[Any]],
    keys: NDArray[np.uint64],
) -> np.uint64:
    total, half, low = np.uint64(0), np.uint64(32), np.uint64(0xFFFFFFFF)
    for i in range(y.size):
        row = np.uint64(y[i]) * keys[0, -1]
        for k in range(starts[i], starts[i + 1]):
            word, j = np.uint64(data[k]), indices[k]
            row += ((word + keys[0, j]) & low) * (((word >> half) + keys[1, j]) & low)
        total += _mixed(row)
    return total


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _add_dense(X: RealArray, scale: RealArray, weights: RealArray, total: Vector) -> None:
    n, d = X.shape
    fours = n // 4 * 4
    for i in range(0, fours, 4):
        a = np.float64(scale[i]) * weights[i]
        b = np.float64(scale[i + 1]) * weights[i + 1]
        c = np.float64(scale[i + 2]) * weights[i + 2]
        e = np.float64(scale[i + 3]) * weights[i + 3]
        for j in range(d):
            total[j] += (a * X[i, j] + b * X[i + 1, j]) + (c * X[i + 2, j] + e * X[i + 3, j])
    for i in range(fours, n):
        a = np.float64(scale[i]) * weights[i]
        for j in range(d):
            total[j] += a * X[i, j]


@njit(cache=True, nogil=True)
def _predict_coded(codes: NDArray[np.int32], each: Vector, scale: RealArray, found: RealArray) -> None:
    for i in range(codes.shape[0]):
        a = 0.0
        for j in range(codes.shape[1]):
            a += each[codes[i, j]]
        found[i] = scale[i] * a


@njit(cache=True, nogil=True)
def _add_coded(codes: NDArray[np.int32], scale: RealArray, weights: RealArray, sums: Vector) -> None:
    for i in range(codes.shape[0]):
        a = scale[i] * weights[i]
        for j in range(codes.shape[1]):
            sums[codes[i, j]] += a


@njit(cache=True, nogil=True)
def _pair_coded(codes: NDArray[np.int32], weights: Vector, pairs: Vector) -> None:
    """Add up how often codes occur together: only the lower triangle, as later columns have larger codes."""
    for i in range(codes.shape[0]):
        for j in range(codes.shape[1]):
            for k in range(j + 1):
                pairs[codes[i, j], codes[i, k]] += weights[i]


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _predict_sparse(
    data: RealArray,
    indices: NDArray[np.integer[Any]],
    starts: NDArray[np.integer[Any]],
    scale: RealArray,
    w: RealArray,
    found: RealArray,
) -> None:
    for i in range(scale.size):
        a = w.dtype.type(0)
        for k in range(starts[i], starts[i + 1]):
            a += data[k] * w[indices[k]]
        found[i] = scale[i] * a


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def _add_sparse(
    data: RealArray,
    indices: NDArray[np.integer[Any]],
    starts: NDArray[np.integer[Any]],
    scale: RealArray,
    weights: RealArray,
    total: Vector,
) -> None:
    for i in range(scale.size):
        a = np.float64(scale[i]) * weights[i]
        for k in range(starts[i], starts[i + 1]):
            total[indices[k]] += a * data[k]
