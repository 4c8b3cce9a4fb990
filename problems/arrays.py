"""Checks of user arrays, record counts (multiplicities) of their rows, and triangles of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.errors import InvalidInputError

# A loss up to this size fits in 64 bits in units of 2**-20, with room for noise.
MOST_RECORDS = 1 << 40


def record_counts(counts: ArrayLike | None, rows: int, largest: int = 1) -> NDArray[np.int64]:
    """Return the number of records that each row stands for, shape (rows,), read-only; all 1 for None.

    Args:
        counts: whole numbers >= 1.
        rows: the required length.
        largest: the largest cost of a record; the sum of counts times this cost must stay below 2**40.

    Raises:
        InvalidInputError: counts that are no whole numbers >= 1, of another shape, or too large a sum.
    """
    if counts is None:
        return np.broadcast_to(np.int64(1), (rows,))
    check_unmasked(counts, "counts")
    try:
        given = np.asarray(counts)
    except ValueError:  # rows of different lengths
        given = np.empty(0)
    if given.dtype.kind not in "iu" or given.shape != (rows,):
        raise InvalidInputError(f"counts must be whole numbers >= 1, one per row: shape ({rows},)")
    if np.any(given < 1) or float(np.sum(given, dtype=np.float64)) * largest >= MOST_RECORDS:
        raise InvalidInputError(
            "counts must be whole numbers >= 1 whose sum, times the largest cost, is below 2^40"
        )
    whole = given.astype(np.int64)
    whole.flags.writeable = False
    return whole


def tallied(bins: NDArray[np.int64], counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Count the records in each of ``size`` bins, for rows in ``bins`` that stand for ``counts`` records."""
    if np.max(counts, initial=1) == 1:
        return np.bincount(bins, minlength=size).astype(np.int64)
    return np.bincount(bins, counts, minlength=size).astype(np.int64)  # doubles are exact below 2**53


def as_reals(values: object, what: str) -> NDArray[np.floating[Any]]:
    """Convert to a dense array of real numbers: float32 and float64 are kept, others become float64.

    Raises:
        InvalidInputError: values that are no real numbers. The message says what was expected (``what``, such
            as "features of shape (n, d)") and, unlike NumPy's own message, quotes no value.
    """
    check_unmasked(values, what)
    try:
        array = np.asarray(values)
        if array.dtype.kind not in "biufO":
            raise TypeError
        return array if array.dtype in (np.float32, np.float64) else array.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"expected {what}, real numbers") from None


def check_unmasked(values: object, name: str) -> None:
    """Raise InvalidInputError for a masked array: NumPy would read the values behind the mask."""
    if isinstance(values, np.ma.MaskedArray):
        raise InvalidInputError(
            f"{name} is a masked array, and its mask would be ignored: fill it, as {name}.filled(0) does, "
            "or use a data frame with missing values and a schema"
        )


def term_by_term(X: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute X @ weights so that no result depends on the position of its row; with BLAS it may.

    A private evaluation compares scores with bin edges, so equal rows must have bitwise equal scores. The
    positions of rows differ between neighbouring data sets if records are counted or partitioned.
    """
    total = np.zeros((len(X), weights.shape[1]))
    for column, weight in zip(X.T, weights, strict=True):
        total += column[:, None] * weight
    return total


def upper_triangle(matrix: NDArray[np.float64]) -> list[float]:
    """Return the upper triangle of a symmetric matrix by rows, for files."""
    found: list[float] = matrix[np.triu_indices(len(matrix))].tolist()
    return found


def from_triangle(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the symmetric matrix of an ``upper_triangle``.

    Raises:
        ValueError: not as many numbers as a triangle has.
    """
    p = math.isqrt(2 * numbers.size)
    matrix = np.zeros((p, p))
    matrix[np.triu_indices(p)] = numbers
    return np.asarray(matrix + matrix.T - np.diag(np.diag(matrix)))
