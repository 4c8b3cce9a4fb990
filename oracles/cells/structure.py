"""Cell structure of 0/1-loss problems over scorecard features.

Scorecards have many indicator columns (one-hot levels, flags) and few numeric ones. Rows with the same
active indicators form a *cell*. For fixed weights a of the numeric columns, the prediction on a row depends
on the indicator weights only through one integer, the offset t of its cell (the sum of the weights of the
active indicators): the score is q * t + <a, x_numeric>. So a cell's errors are a table over t, and

    L(D, w) = sum over cells c of E_c[t_c],   t_c = sum of w_j over the active indicators j of c,

holds exactly, whatever the number of rows. Everything here is integer arithmetic and deterministic.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.problems.arrays import tallied
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem

Int32Array = NDArray[np.int32]


@dataclass(frozen=True)
class CellLimits:
    """Size limits beyond which the cell structure saves no time or does not fit in memory.

    Attributes:
        cells: largest number of cells.
        numeric_combinations: largest number of weight vectors of the numeric columns.
        table_bytes: largest size of all tables of all combinations together.
        squared_norm: largest |w|^2 that regions take where the objective or the lattice depends on it.
    """

    cells: int = 20_000
    numeric_combinations: int = 200_000
    table_bytes: int = 2 << 30
    squared_norm: int = 4096


@dataclass(frozen=True, eq=False)
class CellStructure:
    """A ``ZeroOneHalfspace`` rewritten over cells, made by ``CellStructure.of(problem)``.

    Attributes:
        lattice: the domain of w.
        scale: q, the common nonzero value of the indicator columns (positive or negative).
        indicators: coordinates of w that belong to indicator columns, increasing, shape (k,). Columns of
            zeros count as indicators that no cell activates: their weights are free.
        numeric: all other coordinates, increasing, shape (m,).
        blocks: partition of ``indicators`` into sets of columns of which no row has two (one-hot blocks,
            found greedily from the data; they affect speed alone).
        cell_start, cell_members: the active indicators of cell c, as coordinates of w in increasing order,
            are ``cell_members[cell_start[c] : cell_start[c + 1]]``; shapes (cells + 1,) and (entries,).
        offset_low, offset_high: range of the offset t of each cell over the box, shape (cells,).
        table_start: E_c[t] is entry ``table_start[c] + t - offset_low[c]`` of a table vector as returned by
            ``tables``; shape (cells + 1,), so ``table_start[-1]`` is the length of that vector.
        group_cell, group_numeric, group_positive, group_negative: the distinct rows: their cell, shape (g,),
            numeric features, shape (g, m), and numbers of records with label +1 and -1, times the cost of
            an error on them, shape (g,).
    """

    lattice: IntegerLattice
    scale: int
    indicators: IntArray
    numeric: IntArray
    blocks: tuple[IntArray, ...]
    cell_start: IntArray
    cell_members: IntArray
    offset_low: IntArray
    offset_high: IntArray
    table_start: IntArray
    group_cell: IntArray
    group_numeric: IntArray
    group_positive: IntArray
    group_negative: IntArray

    @classmethod
    def of(cls, problem: ZeroOneHalfspace) -> CellStructure:
        """The cell structure of a problem, computed once per problem object."""
        if (known := _KNOWN.get(problem)) is None:
            known = _KNOWN[problem] = _structure(problem)
        return known

    @property
    def n_cells(self) -> int:
        return len(self.offset_low)

    @property
    def table_size(self) -> int:
        """Entries of one table vector."""
        return int(self.table_start[-1])

    @cached_property
    def records(self) -> IntArray:
        """The cost of errors on all records of each cell, shape (cells,); at costs of 1, their number."""
        return np.bincount(self.group_cell, self.group_positive + self.group_negative).astype(np.int64)

    def members(self, cell: int) -> IntArray:
        """Coordinates of w that are active in a cell."""
        return self.cell_members[self.cell_start[cell] : self.cell_start[cell + 1]]

    @cached_property
    def numeric_squared_radius(self) -> int | None:
        """The largest |a|^2 that leaves room for some indicator weights in the norm ball."""
        if self.lattice.squared_radius is None:
            return None
        low, high = self.lattice.low[self.indicators], self.lattice.high[self.indicators]
        return self.lattice.squared_radius - int(np.sum(np.clip(0, low, high) ** 2))

    @cached_property
    def n_numeric_weights(self) -> int:
        """The number of rows of ``numeric_weights``, without listing them."""
        return self._numeric_lattice.size if len(self.numeric) else 1

    def numeric_weights(self) -> IntArray:
        """All numeric weight vectors a of points of the lattice, in lexicographic order.

        The shape is (combinations, m), with one empty vector if there are no numeric columns.
        """
        if len(self.numeric) == 0:
            return np.zeros((1, 0), dtype=np.int64)
        return np.concatenate(list(self._numeric_lattice.batches()))

    @cached_property
    def _numeric_lattice(self) -> IntegerLattice:
        room = self.numeric_squared_radius
        return IntegerLattice(
            self.lattice.low[self.numeric],
            self.lattice.high[self.numeric],
            radius=None if room is None else math.sqrt(room + 0.5),  # half-way: floor(radius^2) is room
        )

    def tables(self, a: IntArray) -> Int32Array:
        """E_c[t] for all cells and offsets, at numeric weights ``a`` of shape (m,); see ``table_start``."""
        table: Int32Array = self.all_tables(np.asarray(a, dtype=np.int64).reshape(1, -1))[0]
        return table

    def all_tables(self, weights: IntArray) -> Int32Array:
        """The tables of several numeric weight vectors, shapes (k, m) -> (k, table_size)."""
        out = np.empty((len(weights), self.table_size), dtype=np.int32)
        scores = np.empty(len(self.group_cell), dtype=np.int64)
        for row, a in zip(out, weights, strict=True):
            np.matmul(self.group_numeric, a, out=scores)
            _fill_tables(
                scores,
                self.scale,
                self.group_cell,
                self.group_positive,
                self.group_negative,
                self.offset_low,
                self.table_start,
                row,
            )
        return out

    def offsets(self, w: IntArray) -> IntArray:
        """t_c for all cells at one point w; shape (cells,)."""
        totals = np.concatenate(([0], np.cumsum(np.asarray(w, dtype=np.int64)[self.cell_members])))
        return np.asarray(totals[self.cell_start[1:]] - totals[self.cell_start[:-1]], dtype=np.int64)

    def loss(self, w: IntArray) -> int:
        """The number of errors at one point, from the tables."""
        table = self.tables(np.asarray(w, dtype=np.int64)[self.numeric])
        return int(np.sum(table[self.table_start[:-1] + self.offsets(w) - self.offset_low], dtype=np.int64))


def why_not(problem: DiscreteProblem, limits: CellLimits | None = None) -> list[str]:
    """Every reason why the cell structure does not suit a problem; empty if it does."""
    limits = limits or CellLimits()
    if not isinstance(problem, ZeroOneHalfspace):
        return [f"cells are for ZeroOneHalfspace, not {type(problem).__name__}"]
    cells = CellStructure.of(problem)
    reasons = []
    if cells.n_cells <= 1 and np.all(np.diff(cells.cell_start) == 0):
        reasons.append("no indicator columns (integer columns with values 0 and one common constant)")
    if problem.largest_loss >= 1 << 31:
        reasons.append(f"losses of up to {problem.largest_loss:.3g}, more than 32-bit tables hold")
    if cells.n_cells > limits.cells:
        reasons.append(f"{cells.n_cells} distinct indicator patterns, more than {limits.cells}")
    if cells.n_numeric_weights > limits.numeric_combinations:
        reasons.append(
            f"{cells.n_numeric_weights:.3g} weight vectors of the {len(cells.numeric)} numeric columns, "
            f"more than {limits.numeric_combinations}"
        )
    if (size := 4 * cells.table_size * cells.n_numeric_weights) > limits.table_bytes:
        reasons.append(f"tables of {size / 2**20:.3g} MiB, more than {limits.table_bytes / 2**20:.3g}")
    return reasons


_KNOWN: weakref.WeakKeyDictionary[ZeroOneHalfspace, CellStructure] = weakref.WeakKeyDictionary()


def _structure(problem: ZeroOneHalfspace) -> CellStructure:
    X, lattice = problem.X, problem.lattice
    scale, is_indicator = _indicator_columns(X)
    indicators, numeric = np.flatnonzero(is_indicator), np.flatnonzero(~is_indicator)
    patterns, cell_of_row = _patterns(X[:, indicators] != 0)
    members = [indicators[p] for p in patterns]
    sizes = [len(m) for m in members]
    flat = np.concatenate([*members, np.empty(0, dtype=np.int64)]).astype(np.int64)
    low = np.array([lattice.low[m].sum() for m in members], dtype=np.int64)
    high = np.array([lattice.high[m].sum() for m in members], dtype=np.int64)
    return CellStructure(
        lattice,
        scale,
        indicators,
        numeric,
        tuple(indicators[b] for b in _exclusive_blocks(patterns)),
        _starts(sizes),
        flat,
        low,
        high,
        _starts((high - low + 1).tolist()),
        *distinct_rows(cell_of_row, X[:, numeric], problem),
    )


def _indicator_columns(X: IntArray) -> tuple[int, NDArray[np.bool_]]:
    """The scale q, and a mask of the columns with values 0 and q alone."""
    constants: list[int | None] = []
    for column in X.T:
        top, bottom = int(column.max()), int(column.min())
        extreme = top if top > 0 else bottom
        two_valued = (top <= 0 or bottom >= 0) and bool(np.all((column == 0) | (column == extreme)))
        constants.append(extreme if two_valued else None)
    counts = Counter(c for c in constants if c)
    scale = counts.most_common(1)[0][0] if counts else 1
    return scale, np.array([c is not None and c in (0, scale) for c in constants])


def _patterns(active: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], IntArray]:
    """The distinct rows of a boolean matrix and the index of each row among them."""
    if active.shape[1] == 0:
        return active[:1], np.zeros(len(active), dtype=np.int64)
    packed = np.packbits(active, axis=1)
    keys = np.zeros((len(active), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
    keys[:, : packed.shape[1]] = packed
    code = _codes(keys.view(">u8").T)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return active[first], inverse.astype(np.int64)


def _codes(columns: NDArray[Any]) -> IntArray:
    """One integer per row of a table given by columns: equal exactly when the rows are equal."""
    code = np.zeros(columns.shape[1], dtype=np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        _, code = np.unique(code * len(values) + inverse, return_inverse=True)  # both below n: no overflow
    return code.astype(np.int64)


def distinct_rows(cell: IntArray, numeric: IntArray, problem: ZeroOneHalfspace) -> Iterator[IntArray]:
    """Cells, numeric features, and error costs on positives and negatives of the distinct rows, by cell."""
    costs, counts, yes = problem.costs, problem.counts, problem.y > 0
    code = _codes(np.vstack([cell[None, :], numeric.T]))
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    yield cell[first]
    yield np.ascontiguousarray(numeric[first])
    yield costs.false_negative * tallied(inverse[yes], counts[yes], len(first))
    yield costs.false_positive * tallied(inverse[~yes], counts[~yes], len(first))


def _exclusive_blocks(patterns: NDArray[np.bool_]) -> list[list[int]]:
    """Exclusive blocks by greedy first fit: a column joins the first block with no column co-occurring."""
    counts = patterns.astype(np.float64)
    together = counts.T @ counts > 0
    blocks: list[list[int]] = []
    for j in range(patterns.shape[1]):
        home = next((b for b in blocks if not np.any(together[j, b])), None)
        if home is None:
            blocks.append([j])
        else:
            home.append(j)
    return blocks


def _starts(sizes: list[int]) -> IntArray:
    return np.concatenate(([0], np.cumsum(np.asarray(sizes, dtype=np.int64)))).astype(np.int64)


@njit(cache=True, nogil=True)
def _fill_tables(
    scores: IntArray,
    scale: int,
    cell: IntArray,
    positive: IntArray,
    negative: IntArray,
    offset_low: IntArray,
    start: IntArray,
    out: Int32Array,
) -> None:
    """Error counts of all cells and offsets; one pass over the distinct rows, one over the tables."""
    out[:] = 0
    for i in range(len(scores)):
        c = cell[i]
        # The prediction flips once as t grows: at t = turn it is new, below it is old.
        if scale > 0:  # q t + s > 0 iff t >= floor(-s / q) + 1: positive from there on
            turn = (-scores[i]) // scale + 1
            below, above = positive[i], negative[i]
        else:  # q t + s > 0 iff t < s / |q|: positive until ceil(s / |q|)
            turn = -((-scores[i]) // (-scale))
            below, above = negative[i], positive[i]
        entry = start[c] + max(turn - offset_low[c], 0)
        out[start[c]] += below
        if entry < start[c + 1]:
            out[entry] += above - below
    for c in range(len(offset_low)):
        for e in range(start[c] + 1, start[c + 1]):
            out[e] += out[e - 1]
