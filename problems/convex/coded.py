"""Coded rows: the features of a record as a sum of rows of a small public table, one per column.

A schema encodes a record as one code per column, and a code determines the features of that column alone. A
pass over the records takes a number of operations proportional to the number of columns, not of features.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privopt.problems.errors import InvalidInputError

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CodedRows:
    """A matrix of shape (n, d), whose row i is the sum over j of ``table[codes[i, j]]``.

    An ``EmpiricalRisk`` with counts takes it in place of an array. The risk is the same up to the rounding of
    sums. The bound on that rounding is the same, too, since a record's term passes through no more additions
    than there are records, and through as many products as with an array. The result for a row depends on its
    codes and on the public table alone, not on its position.

    Attributes:
        codes: int32, shape (n, columns), columns >= 1, C-contiguous: indices of the table rows to add.
        table: shape (levels, d), the levels of all columns, one column after the other. Public.
        own: True where a feature belongs to the level's column, shape (levels, d); where it is False, the
            table is 0.
    """

    codes: NDArray[np.int32]
    table: Vector
    own: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.codes), self.table.shape[1]

    @property
    def dtype(self) -> Any:
        return self.table.dtype

    def mapped(self, function: Callable[[Vector], Vector]) -> Self:
        """Return a copy with transformed features: ``function`` maps rows, (k, d), feature by feature."""
        return replace(self, table=np.where(self.own, function(self.table), 0.0))

    def with_constant(self, value: float) -> Self:
        """Return a copy with a constant feature appended: added to the levels of the first column."""
        first = self.own[:, :1]
        table = np.hstack([self.table, np.where(first, value, 0.0)])
        return replace(self, table=table, own=np.hstack([self.own, first]))

    def __getitem__(self, key: Any) -> Vector:
        """Return the rows as an array, or the submatrix of a pair (rows, features)."""
        rows, features = key if isinstance(key, tuple) else (key, slice(None))
        codes, table = self.codes[rows], self.table[:, features]
        found: Vector = table[codes[..., 0]]
        for column in range(1, codes.shape[-1]):
            found += table[codes[..., column]]
        return found

    def norms(self, largest: bool) -> Vector:
        """Return the l2 norms of the rows (linf norms if ``largest``), shape (n,).

        Raises:
            InvalidInputError: two levels of a row share a feature, so the norms do not add up.
        """
        self._check_apart()
        sizes = np.max(np.abs(self.table), axis=1) if largest else np.sum(self.table**2, axis=1)
        found = sizes[self.codes[:, 0]]
        for codes in self.codes.T[1:]:
            found = np.maximum(found, sizes[codes]) if largest else found + sizes[codes]
        return found if largest else np.asarray(np.sqrt(found))

    def _check_apart(self) -> None:
        """Check that codes, which come from records, are in range and that no two columns share a feature."""
        users = np.zeros(self.table.shape[1], dtype=np.int64)
        for codes in self.codes.T:
            if np.min(codes, initial=0) < 0 or np.max(codes, initial=0) >= len(self.table):
                raise InvalidInputError("codes of records must be those of levels in the table")
            used = np.zeros(len(self.table), dtype=bool)
            used[codes] = True
            users += np.any(self.own[used], axis=0)
        if np.any(users > 1) or np.any(self.table[~self.own]):
            raise InvalidInputError("a code belongs to a level of another column: encode the records again")
