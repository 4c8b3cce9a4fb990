"""Costs of misclassification: public integers, for any number of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError

# Ratios of weights are rounded to multiples of 1/m, with m up to this.
_FINEST = 10
# Keeps sums over billions of records within 64 bits, and sensitivities within reason.
_LARGEST = 100_000


@dataclass(frozen=True)
class CostMatrix:
    """Misclassification costs: ``rows[y][k]`` is the cost of predicting class k for a record of class y.

    Public inputs: choose them before looking at the data. Replacing a record changes a loss by at most
    ``largest``, and mechanisms calibrate to that.

    Raises:
        InvalidInputError: not a square of whole numbers from 0 to 100,000 with zeros on the diagonal, or no
            positive cost.
    """

    rows: tuple[tuple[int, ...], ...]

    def __init__(self, rows: ArrayLike) -> None:
        given = np.asarray(rows)
        if given.ndim != 2 or given.shape[0] != given.shape[1] or len(given) < 2:
            raise InvalidInputError(
                f"costs must be a square matrix, two classes or more, got shape {given.shape}"
            )
        if given.dtype.kind not in "iu" or np.any(given < 0) or np.any(given > _LARGEST):
            raise InvalidInputError(f"costs must be whole numbers from 0 to {_LARGEST}")
        if np.any(np.diagonal(given) != 0) or not np.any(given):
            raise InvalidInputError("right predictions cost nothing, and some wrong ones must cost something")
        object.__setattr__(self, "rows", tuple(tuple(row) for row in given.tolist()))

    @classmethod
    def equal(cls, classes: int) -> Self:
        """Return the matrix with cost 1 for every error."""
        return cls(1 - np.eye(classes, dtype=np.int64))

    @classmethod
    def of_weights(cls, weights: ArrayLike) -> Self:
        """Return costs of errors on records of class y in proportion to weights[y] > 0; weights: shape (K,).

        Ratios to the smallest weight are rounded to multiples of 1/m, with the m up to 10 that changes them
        least.
        """
        ratios = np.asarray(weights, dtype=np.float64)
        ratios = ratios / np.min(ratios)
        multiples = [np.maximum(np.rint(m * ratios), 1) for m in range(1, _FINEST + 1)]
        off = [float(np.max(np.abs(found / (m * ratios) - 1))) for m, found in enumerate(multiples, 1)]
        # The smallest m whose error exceeds the least one by no more than floating-point errors.
        best = next(found for found, by in zip(multiples, off, strict=True) if by <= min(off) + 1e-9)
        whole = best.astype(np.int64) // np.gcd.reduce(best.astype(np.int64))
        return cls(whole[:, None] * (1 - np.eye(len(whole), dtype=np.int64)))

    @property
    def matrix(self) -> IntArray:
        """The costs as an array, shape (K, K)."""
        return np.array(self.rows, dtype=np.int64)

    @property
    def classes(self) -> int:
        """The number K of classes."""
        return len(self.rows)

    @property
    def largest(self) -> int:
        """The largest cost of one record."""
        return max(max(row) for row in self.rows)
