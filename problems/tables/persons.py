"""Tables with several records of a person: k places for each person, filled with its own records.

Two tables are neighbours if they differ in one person, with all of its records, whose number may differ; the
number of persons is public. Every person has k places. The records of a person, in the order of the rows,
fill its places in turn: those after the k-th are left out, and a person with fewer than k has some of them
twice. So what fills the places of a person depends on the records of that person alone, k places times
persons is public, and places of neighbouring tables differ in k records at most. All persons count the same.

A person is a value of a column: values are compared as they are, and all rows without a value are one person.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

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
        """Number the different values of a column; whatever they are, this raises no error.

        Args:
            values: a column as its own library holds it (pandas, polars, pyarrow), an array or a list. It is
                never converted as a whole: among floats two large integers are one, and whether a column is
                of floats may depend on one missing cell.
        """
        cells = _unconverted(values)
        try:
            number, different = pd.factorize(cells)
        except (TypeError, NotImplementedError):  # cells that have no hash
            number, different = pd.factorize(pd.Series([_value(c) for c in cells.tolist()], dtype=object))
        found = np.asarray(number, dtype=np.int64)
        count = len(different)
        if np.any(found < 0):  # missing
            found, count = np.where(found < 0, count, found), count + 1
        return cls(found, count)

    def places(self, k: int) -> Rows:
        """Return the row in every place, shape (count * k,): k places for each person, one person after the
        other.
        """
        order = np.argsort(self.number, kind="stable").astype(np.int64)
        held = np.bincount(self.number, minlength=self.count)
        first = np.cumsum(held) - held
        return np.asarray(
            order[first[:, None] + np.arange(k)[None, :] % held[:, None]].ravel(), dtype=np.int64
        )


def _unconverted(values: Any) -> pd.Series[Any]:
    """Return a series that compares the cells by their own values."""
    if hasattr(values, "to_arrow"):  # polars
        values = values.to_arrow()
    if isinstance(values, pa.Array | pa.ChunkedArray):
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        return pd.Series(values, dtype=pd.ArrowDtype(values.type))
    return pd.Series(values) if hasattr(values, "dtype") else pd.Series(list(values), dtype=object)


def _value(cell: object) -> object:
    """Return the cell, or None if it cannot be compared by its value, such as a list."""
    try:
        hash(cell)
    except TypeError:
        return None
    return cell
