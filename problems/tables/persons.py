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
        """Number the different values of a column; whatever they are, this raises no error."""
        cells = pd.Series(values)
        try:
            number, different = pd.factorize(cells)
        except TypeError:
            number, different = pd.factorize(cells.astype(object).map(_value))
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


def _value(cell: object) -> object:
    """Return the cell, or None if it cannot be compared by its value, such as a list."""
    try:
        hash(cell)
    except TypeError:
        return None
    return cell
