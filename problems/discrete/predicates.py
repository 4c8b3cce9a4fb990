"""Truth values of public predicates, one bit per row, on which trees and rule lists branch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import InvalidInputError

Bools = NDArray[np.bool_]

# Number of truth values unpacked at a time.
_BLOCK = 1 << 22


@dataclass(frozen=True, eq=False)
class PredicateTable:
    """Packed truth values of p predicates on a number of rows.

    Attributes:
        bits: shape (p, ceil(rows / 8)), the first row in the lowest bit of the first byte.
        rows: number of rows, >= 1.
        weights: public weights of the predicates in the prior over models, whole and >= 1, shape (p,); None:
            1 each. A predicate of weight w stands for w of the values that a branch of a tree can have.
    """

    bits: NDArray[np.uint8]
    rows: int
    weights: NDArray[np.int64] | None = None

    @classmethod
    def of(cls, truths: ArrayLike) -> Self:
        """Pack truth values, or zeros and ones, of shape (rows, p).

        Raises:
            InvalidInputError: another shape, other values, no rows or no predicates.
        """
        check_unmasked(truths, "X")
        table: NDArray[Any] = np.asarray(truths)
        if table.ndim != 2 or 0 in table.shape:
            raise InvalidInputError(
                f"expected truth values of shape (rows, predicates), at least one of each, got {table.shape}"
            )
        if table.dtype.kind not in "biu" or not np.all((table == 0) | (table == 1)):
            raise InvalidInputError("predicates must be true or false, 1 or 0")
        return cls.from_columns(table.T.astype(bool), len(table))

    @classmethod
    def from_columns(
        cls, columns: Iterable[Bools], rows: int, weights: NDArray[np.int64] | None = None
    ) -> Self:
        """Pack predicates one by one, shape (rows,) each."""
        packed = [np.packbits(column, bitorder="little") for column in columns]
        return cls(np.stack(packed), rows, weights)

    def __len__(self) -> int:
        """Return p, the number of predicates."""
        return len(self.bits)

    @property
    def shares(self) -> NDArray[np.int64]:
        """The weights, with 1 in place of None, shape (p,)."""
        return np.ones(len(self), dtype=np.int64) if self.weights is None else self.weights

    @property
    def values(self) -> NDArray[np.int64]:
        """The predicate that each value of a branch stands for, shape (sum of the weights,)."""
        return np.repeat(np.arange(len(self)), self.shares)

    def column(self, predicate: int) -> Bools:
        """Return the truth values of one predicate, shape (rows,)."""
        return np.unpackbits(self.bits[predicate], count=self.rows, bitorder="little").astype(bool)

    def blocks(self) -> Iterator[tuple[slice, Bools]]:
        """Yield the table in blocks: rows, and their truth values, shape (rows of the block, p)."""
        size = 8 * max(1, _BLOCK // (8 * len(self)))
        for start in range(0, self.rows, size):
            stop = min(start + size, self.rows)
            packed = self.bits[:, start // 8 : -(-stop // 8)]
            truths = np.unpackbits(packed, axis=1, count=stop - start, bitorder="little")
            yield slice(start, stop), np.ascontiguousarray(truths.T).astype(bool)
