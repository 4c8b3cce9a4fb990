"""Cells of a column, each with the number of records that hold it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.tables.cells import distinct_texts, grouped


@dataclass(frozen=True, eq=False)
class CountedCells:
    """Cells of a column with counts; equal cells may occur several times, in any order.

    Privacy: not private. Replacing one record lowers one count by one and raises another by one.

    Attributes:
        cells: a NumPy array or an Arrow array of text, shape (m,).
        counts: the number of records of each cell, >= 1, shape (m,).
    """

    cells: Any
    counts: IntArray

    @classmethod
    def of(cls, cells: Any) -> CountedCells:
        """Give each cell of a column in memory the count 1; counted cells are returned unchanged."""
        if isinstance(cells, CountedCells):
            return cells
        return cls(cells, np.ones(len(cells), dtype=np.int64))

    def where(self, rows: NDArray[np.bool_]) -> Self:
        """Return the cells of these rows."""
        arrow = isinstance(self.cells, pa.Array)
        return type(self)(self.cells.filter(pa.array(rows)) if arrow else self.cells[rows], self.counts[rows])

    def total(self, rows: NDArray[np.bool_]) -> int:
        """Return the number of records of these rows."""
        return int(self.counts[rows].sum())

    def apart(self) -> tuple[Counter[str], Self]:
        """Return the counts of the texts among the cells, and the cells that are no text."""
        held = self.cells
        if isinstance(held, pa.Array):
            encoded = pc.dictionary_encode(held)
            codes = np.asarray(pc.fill_null(encoded.indices, -1))
            nothing = type(self)(np.array([], dtype=object), self.counts[:0])
            return _summed(codes, encoded.dictionary.to_pylist(), self.counts), nothing
        if held.dtype.kind == "U":
            held = held.astype(object)
        if held.dtype.kind != "O":
            return Counter(), self
        texts: Counter[str] = Counter()
        others = np.zeros(len(held), dtype=bool)
        for is_text, rows in grouped(held, lambda kind: issubclass(kind, str)) if len(held) else []:
            if is_text:
                texts = _summed(*distinct_texts(held[rows]), self.counts[rows])
            else:
                others[rows] = True
        return texts, self.where(others)


def _summed(codes: NDArray[Any], texts: list[str], counts: IntArray) -> Counter[str]:
    """Return the counts of texts, given as codes into the distinct texts; code -1 is none."""
    sums = np.zeros(len(texts) + 1, dtype=np.int64)
    np.add.at(sums, codes, counts)
    return Counter(dict(zip(texts, sums.tolist(), strict=False)))
