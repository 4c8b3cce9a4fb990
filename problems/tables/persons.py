"""Tables with several records of a person: k places for each person, filled with its own records.

Two tables are neighbours if they differ in one person, with all of its records, whose number may differ; the
number of persons is public. Every person has k places. The records of a person, in the order of the rows,
fill its places in turn: records after the k-th are left out, and fewer than k records are repeated. So what
fills the places of a person depends on the records of that person alone, the total number of places is
public, and the places of neighbouring tables differ in k records at most. All persons count equally.

A person is a value of a column: values are compared as they are, and all rows without a value are one person.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from privopt.problems.errors import InvalidInputError, SchemaError
from privopt.problems.tables.cells import ABSENT
from privopt.problems.tables.columns import Column
from privopt.problems.tables.frames import (
    check_distinct,
    exact_series,
    is_frame,
    missing_columns,
    unread_columns,
)

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Persons:
    """The persons of the rows of a table.

    Attributes:
        number: the person of every row, 0 to ``count`` - 1, shape (n,).
        count: the number of persons.
    """

    number: Rows
    count: int

    @classmethod
    def of(cls, values: Any) -> Persons:
        """Number the different values of a column; no values are an error.

        Args:
            values: a column as its own library holds it (pandas, polars, pyarrow), an array or a list. It is
                never converted to floats, in which two large integers can be equal: whether a library does
                so may depend on one missing cell.
        """
        cells = _unconverted(values)
        number, count = _numbered(cells) if cells.dtype == object else _factorized(cells)
        found = np.asarray(number, dtype=np.int64)
        if np.any(found < 0):  # missing
            found, count = np.where(found < 0, count, found), count + 1
        return cls(found, count)

    def held(self) -> Rows:
        """Return the number of records of each person, shape (count,)."""
        return np.bincount(self.number, minlength=self.count)

    def places(self, k: int) -> Rows:
        """Return the row in every place, person by person, shape (count * k,)."""
        order = np.argsort(self.number, kind="stable").astype(np.int64)
        held = self.held()
        first = np.cumsum(held) - held
        return np.asarray(
            order[first[:, None] + np.arange(k)[None, :] % held[:, None]].ravel(), dtype=np.int64
        )


def column_of_persons(table: Any, person: str) -> Any:
    """Return the column of persons as the table holds it.

    Raises:
        InvalidInputError: no such column, or one of floats, in which different integers may be equal.
    """
    if not (isinstance(table, Mapping) or is_frame(table)):
        raise InvalidInputError("person: X has no named columns: give a data frame")
    named = unread_columns(table)
    check_distinct("the table", [str(name) for name, _ in named])
    columns = dict(named)
    if person not in columns:
        raise InvalidInputError(f"person: no {missing_columns([person], [str(name) for name in columns])}")
    found = columns[person]
    kind = str(getattr(found, "type", getattr(found, "dtype", ""))).lower()
    if "float" in kind or "double" in kind:
        raise InvalidInputError(
            f"the column of persons, {person!r}, holds floats ({kind}), among which different numbers can be "
            "equal. To do: read it as text, or as integers that may be missing (Int64)"
        )
    return found


def check_undeclared(person: str | None, columns: Iterable[Column]) -> None:
    """Raise SchemaError if the column of persons is among those that a schema declares."""
    if any(column.name == person for column in columns):
        raise SchemaError(f"the schema declares {person!r}, the column of persons, which is no feature")


def _unconverted(values: Any) -> pd.Series[Any]:
    """Return a series whose cells are not converted, so that different values stay different."""
    if isinstance(values, np.ndarray):
        return _of_array(values)
    if isinstance(getattr(values, "dtype", None), pd.ArrowDtype):
        values = pa.array(values)
    if isinstance(values, pa.Array | pa.ChunkedArray) or hasattr(values, "to_arrow"):
        return exact_series(values)
    return pd.Series(values) if hasattr(values, "dtype") else pd.Series(list(values), dtype=object)


def _of_array(values: NDArray[Any]) -> pd.Series[Any]:
    """Return an array as a series, so that one far date or lone surrogate does not make pandas fail."""
    kind = values.dtype.kind
    if kind in "mM":
        return pd.Series(pd.arrays.IntegerArray(values.view(np.int64), np.isnat(values)))
    if kind in "biu":
        return pd.Series(values.astype(values.dtype.newbyteorder("=")))
    return pd.Series(list(values) if kind == "O" else values.tolist(), dtype=object)


def _factorized(cells: pd.Series[Any]) -> tuple[NDArray[Any], int]:
    """Number the different values of a column of one type; -1 for missing ones."""
    number, different = pd.factorize(cells)
    return number, len(different)


def _numbered(cells: Iterable[object]) -> tuple[NDArray[Any], int]:
    """Number different objects; -1 for missing ones, and for those that have no hash, such as lists.

    Objects are compared by Python, because the hash table of pandas can take a tuple for another object.
    """
    known: dict[object, int] = {}
    return np.array([_number(cell, known) for cell in cells], dtype=np.int64), len(known)


def _number(cell: object, known: dict[object, int]) -> int:
    try:
        is_missing = isinstance(cell, ABSENT) or cell != cell
        return -1 if is_missing else known.setdefault(cell, len(known))
    except Exception:  # no hash, or an error of a foreign type
        return -1
