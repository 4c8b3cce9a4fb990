"""Rows that are sums of rows of a small table: what a schema makes of records.

A record is a code for each column, and a code stands for the features of that column alone. So a pass looks
codes up, and counts them, in as many operations as there are columns, not features.
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

    An ``EmpiricalRisk`` with counts takes it in place of an array, and is the same risk, up to the rounding
    of sums. That is no larger: a record passes through no more additions than there are records, and as many
    products. What is computed for a row depends on its codes and on the table, which is public, not on its
    place.

    Attributes:
        codes: int32, shape (n, columns), columns >= 1, C-contiguous: which rows of the table are added.
        table: shape (levels, d), the levels of one column after those of the other. Public.
        own: which features belong to each level's column, shape (levels, d); others are 0 in the table.
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
        """With other features: ``function`` maps rows, shape (k, d), a column's features by themselves."""
        return replace(self, table=np.where(self.own, function(self.table), 0.0))

    def with_constant(self, value: float) -> Self:
        """With one feature more, which is ``value`` in every row: each has one level of the first column."""
        first = self.own[:, :1]
        table = np.hstack([self.table, np.where(first, value, 0.0)])
        return replace(self, table=table, own=np.hstack([self.own, first]))

    def __getitem__(self, key: Any) -> Vector:
        """Some rows as an array; or (rows, features) of it."""
        rows, features = key if isinstance(key, tuple) else (key, slice(None))
        codes, table = self.codes[rows], self.table[:, features]
        found: Vector = table[codes[..., 0]]
        for column in range(1, codes.shape[-1]):
            found += table[codes[..., column]]
        return found

    def norms(self, largest: bool) -> Vector:
        """The l2 norms of the rows, or their largest entries, shape (n,).

        Raises:
            InvalidInputError: rows in which two levels share a feature, whose norms are none of these.
        """
        self._check_apart()
        sizes = np.max(np.abs(self.table), axis=1) if largest else np.sum(self.table**2, axis=1)
        found = sizes[self.codes[:, 0]]
        for codes in self.codes.T[1:]:
            found = np.maximum(found, sizes[codes]) if largest else found + sizes[codes]
        return found if largest else np.asarray(np.sqrt(found))

    def _check_apart(self) -> None:
        """Codes are records', and may be anything: those of one place need features that no other has."""
        users = np.zeros(self.table.shape[1], dtype=np.int64)
        for codes in self.codes.T:
            if np.min(codes, initial=0) < 0 or np.max(codes, initial=0) >= len(self.table):
                raise InvalidInputError("codes of records must be those of levels in the table")
            used = np.zeros(len(self.table), dtype=bool)
            used[codes] = True
            users += np.any(self.own[used], axis=0)
        if np.any(users > 1) or np.any(self.table[~self.own]):
            raise InvalidInputError("a code stands for a level of another column: count the records again")
