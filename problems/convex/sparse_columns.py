"""Columns of clipped sparse rows: sums over the records that have a feature, and updates of predictions.

The kernels are compiled at first use and cached on disk; therefore this module, which imports numba, is
imported where it is used and not with the package.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.problems.convex.passes import in_order
from privopt.problems.convex.risk import EmpiricalRisk, Vector

Indices = NDArray[np.integer[Any]]

_LEAST_ENTRIES = 1 << 20  # in a part: fewer take less time than starting a thread


@dataclass(frozen=True, eq=False)
class SparseColumns:
    """The clipped rows a_i of a sparse risk in float64, stored column by column.

    Attributes:
        starts: the entries of column j are those from starts[j] to starts[j + 1], shape (d + 1,).
        rows, values: the row i of each entry, and a_ij.
    """

    starts: Indices
    rows: Indices
    values: Vector

    @classmethod
    def of(cls, risk: EmpiricalRisk) -> Self:
        """Return a copy of the clipped rows of a risk whose X is sparse."""
        columns = risk.clipped_rows().astype(np.float64, copy=False).tocsc()
        return cls(columns.indptr, columns.indices, columns.data)

    def sums(self, features: Indices, weights: Vector) -> Vector:
        """Return sum_i weights_i a_ij for some features j, shape (len(features),)."""
        found = np.empty(len(features))

        def run(part: slice) -> None:
            _sum_columns(self.starts, self.rows, self.values, features[part], weights, found[part])

        in_order(run, self._parts(features))
        return found

    def _parts(self, features: Indices) -> list[slice]:
        """Cut features into parts of about equally many entries, for threads; one part if entries are few."""
        entries = np.cumsum(self.starts[features + 1] - self.starts[features], dtype=np.int64)
        total = int(entries[-1]) if entries.size else 0
        count = max(1, total // _LEAST_ENTRIES)
        cuts = np.searchsorted(entries, np.arange(1, count) * total // count).tolist()
        return [slice(a, b) for a, b in itertools.pairwise([0, *cuts, len(features)])]

    def sums_of_magnitudes(self, weights: Vector) -> Vector:
        """Return sum_i weights_i |a_ij| for every feature j, shape (d,)."""
        every = np.arange(len(self.starts) - 1)
        return SparseColumns(self.starts, self.rows, np.abs(self.values)).sums(every, weights)

    def add(self, total: Vector, feature: int, factor: float) -> None:
        """Do total_i += factor a_ij for the rows i that have feature j."""
        _add_column(self.starts, self.rows, self.values, feature, factor, total)

    def compile(self) -> None:
        """Compile the kernels, or load them from the cache, by running empty arrays of the same dtypes."""
        no_entries = SparseColumns(np.zeros_like(self.starts[:2]), self.rows[:0], self.values[:0])
        no_entries.add(np.zeros(1), 0, 1.0)
        no_entries.sums(np.zeros(1, dtype=np.int64), np.zeros(1))


# Sums may be reordered and fused with products: the bound on their rounding holds in any order.
@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _sum_columns(
    starts: Indices, rows: Indices, values: Vector, features: Indices, weights: Vector, found: Vector
) -> None:
    for k in range(features.size):
        total = 0.0
        for entry in range(starts[features[k]], starts[features[k] + 1]):
            total += weights[rows[entry]] * values[entry]
        found[k] = total


@njit(cache=True, nogil=True)
def _add_column(
    starts: Indices, rows: Indices, values: Vector, feature: int, factor: float, total: Vector
) -> None:
    for entry in range(starts[feature], starts[feature + 1]):
        total[rows[entry]] += factor * values[entry]
