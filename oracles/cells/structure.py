"""Cell structure of 0/1-loss problems over scorecard features.

Scorecards have many indicator columns (one-hot levels, flags) and few numeric columns. Rows with the same
active indicators form a *cell*. Let a be the weights of the numeric columns, and q the value of an active
indicator. The score of a row is q * t + <a, x_numeric>, where the *offset* t of its cell is the sum of the
weights of the active indicators. So for fixed a, the number of errors in cell c is a table E_c over t, and

    L(D, w) = sum over cells c of E_c[t_c],   t_c = sum of w_j over the active indicators j of c,

exactly, for any number of rows. Everything here is deterministic and in integer arithmetic.
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

from privopt.oracles.facts import ProblemFacts
from privopt.problems.arrays import tallied
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.layout import Layout
from privopt.problems.discrete.problem import DiscreteProblem

Int32Array = NDArray[np.int32]


@dataclass(frozen=True)
class CellLimits:
    """Size limits beyond which the cell structure saves no time or does not fit in memory.

    Attributes:
        cells: largest number of cells.
        numeric_combinations: largest number of weight vectors of the numeric columns.
        table_bytes: largest total size of the tables for all these weight vectors.
        squared_norm: largest accepted |w|^2, if the objective or the lattice depends on |w|^2.
    """

    cells: int = 50_000
    numeric_combinations: int = 200_000
    table_bytes: int = 2 << 30
    squared_norm: int = 4096


@dataclass(frozen=True, eq=False)
class CellStructure:
    """A ``ZeroOneHalfspace`` rewritten over cells, made by ``CellStructure.of(problem)``.

    Attributes:
        lattice: the domain of w.
        scale: q, the common nonzero value of the indicator columns, positive or negative.
        indicators: coordinates of w that belong to indicator columns, increasing, shape (k,). A column of
            zeros counts as an indicator that is active in no cell.
        numeric: all other coordinates, increasing, shape (m,).
        blocks: a partition of ``indicators`` such that no row has two active indicators of the same block.
            They are the declared one-hot blocks, joined greedily if the data allow it, and affect only speed.
        cell_start, cell_members: the active indicators of cell c, as coordinates of w in increasing order,
            are ``cell_members[cell_start[c] : cell_start[c + 1]]``; shapes (cells + 1,) and (entries,).
        offset_low, offset_high: the range of the offset t of each cell over the box, shape (cells,).
        table_start: E_c[t] is entry ``table_start[c] + t - offset_low[c]`` of a table vector, which
            ``tables`` returns; shape (cells + 1,). The length of a table vector is ``table_start[-1]``.
        group_cell, group_numeric, group_positive, group_negative: for each distinct row, its cell, shape
            (g,); its numeric features, shape (g, m); and the number of its records with label +1, and with
            label -1, times the cost of an error on them, shape (g,).
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
        """Return the cell structure of a problem, computed once per problem object."""
        if (known := _KNOWN.get(problem)) is None:
            known = _KNOWN[problem] = _structure(problem)
        return known

    @property
    def n_cells(self) -> int:
        return len(self.offset_low)

    @property
    def table_size(self) -> int:
        """The length of a table vector."""
        return int(self.table_start[-1])

    @cached_property
    def records(self) -> IntArray:
        """The cost of errors on all records of each cell, shape (cells,): their number if all costs are 1."""
        return np.bincount(self.group_cell, self.group_positive + self.group_negative).astype(np.int64)

    def members(self, cell: int) -> IntArray:
        """Return the coordinates of w that are active in a cell."""
        return self.cell_members[self.cell_start[cell] : self.cell_start[cell + 1]]

    @cached_property
    def n_numeric_weights(self) -> int:
        """The number of rows of ``numeric_weights``, without listing them."""
        return 1 if self._numeric_lattice is None else self._numeric_lattice.size

    def numeric_weights(self) -> IntArray:
        """Return the numeric weight vectors a of all points of the lattice, in lexicographic order.

        The shape is (combinations, m). Without numeric columns there is one empty vector.
        """
        if self._numeric_lattice is None:
            return np.zeros((1, 0), dtype=np.int64)
        return np.concatenate(list(self._numeric_lattice.batches()))

    @cached_property
    def _numeric_lattice(self) -> IntegerLattice | None:
        return _numeric_lattice(self.lattice, self.indicators, self.numeric)

    @property
    def sizes(self) -> CellSizes:
        return CellSizes(len(self.indicators), self.n_cells, self.n_numeric_weights, self.table_size)

    def tables(self, a: IntArray) -> Int32Array:
        """Return the table vector, E_c[t] for all cells c and offsets t, at numeric weights a, shape (m,)."""
        table: Int32Array = self.all_tables(np.asarray(a, dtype=np.int64).reshape(1, -1))[0]
        return table

    def all_tables(self, weights: IntArray) -> Int32Array:
        """Return the table vectors of several numeric weight vectors; shapes (r, m) -> (r, table_size)."""
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
        """Return t_c for all cells at one point w; shape (cells,)."""
        totals = np.concatenate(([0], np.cumsum(np.asarray(w, dtype=np.int64)[self.cell_members])))
        return np.asarray(totals[self.cell_start[1:]] - totals[self.cell_start[:-1]], dtype=np.int64)

    def loss(self, w: IntArray) -> int:
        """Return the loss at one point, from the tables."""
        table = self.tables(np.asarray(w, dtype=np.int64)[self.numeric])
        return int(np.sum(table[self.table_start[:-1] + self.offsets(w) - self.offset_low], dtype=np.int64))


@dataclass(frozen=True)
class CellSizes:
    """Sizes of a cell structure.

    Attributes:
        indicators: the number of indicator columns.
        cells: the number of cells.
        numeric_weights: the number of weight vectors of the numeric columns.
        table: the number of entries of one table vector.
    """

    indicators: int
    cells: int
    numeric_weights: int
    table: int

    @classmethod
    def most(cls, facts: ProblemFacts) -> CellSizes:
        """Return the largest sizes for any data with these facts.

        The offset of a cell is a sum of at most one weight of each block.
        """
        if facts.layout is None:
            return cls(0, 1, 0, 0)
        lattice, layout = facts.lattice, facts.layout
        cells = min(facts.rows, layout.patterns)
        offsets = 1 + sum(max(int(s) for s in (lattice.high - lattice.low)[list(b)]) for b in layout.blocks)
        numeric = np.setdiff1d(np.arange(lattice.dimension), layout.indicators)
        weights = _numeric_lattice(lattice, layout.indicators, numeric)
        combinations = 1 if weights is None else weights.size
        return cls(len(layout.indicators), cells, combinations, cells * offsets)

    @property
    def table_bytes(self) -> int:
        """The size of the tables of all weight vectors of the numeric columns."""
        return 4 * self.table * self.numeric_weights

    def reasons(self, limits: CellLimits) -> list[str]:
        """List the limits that are exceeded. The sizes are not stated, because they depend on the records."""
        reasons = []
        if self.indicators == 0:
            reasons.append("no indicator columns (integer columns with values 0 and one common constant)")
        if self.cells > limits.cells:
            reasons.append(f"more than {limits.cells} distinct indicator patterns")
        if self.numeric_weights > limits.numeric_combinations:
            reasons.append(f"more than {limits.numeric_combinations} weight vectors of the numeric columns")
        if self.table_bytes > limits.table_bytes:
            reasons.append(f"tables of more than {limits.table_bytes / 2**20:.3g} MiB")
        return reasons


def why_not(problem: DiscreteProblem, limits: CellLimits | None = None) -> list[str]:
    """Return every reason why the cell structure does not suit a problem; empty if it does."""
    if not isinstance(problem, ZeroOneHalfspace):
        return _of_other_kind(type(problem))
    sizes = CellStructure.of(problem).sizes
    return sizes.reasons(limits or CellLimits()) + _large_losses(problem.largest_loss)


def why_not_planned(facts: ProblemFacts, limits: CellLimits) -> list[str]:
    """Return every reason why the cell structure may not suit some problem with these facts."""
    if not issubclass(facts.kind, ZeroOneHalfspace):
        return _of_other_kind(facts.kind)
    return CellSizes.most(facts).reasons(limits) + _large_losses(facts.largest_loss)


def _of_other_kind(kind: type[DiscreteProblem]) -> list[str]:
    return [f"cells are for ZeroOneHalfspace, not {kind.__name__}"]


def _large_losses(largest: int) -> list[str]:
    return [f"losses of up to {largest:.3g}, more than 32-bit tables hold"] if largest >= 1 << 31 else []


def _numeric_lattice(
    lattice: IntegerLattice, indicators: IntArray, numeric: IntArray
) -> IntegerLattice | None:
    """Return the lattice of the numeric weights of a lattice's points; None without numeric columns."""
    if len(numeric) == 0:
        return None
    room = _numeric_room(lattice, indicators)
    return IntegerLattice(
        lattice.low[numeric],
        lattice.high[numeric],
        radius=None if room is None else math.sqrt(room + 0.5),  # so that floor(radius^2) is room
    )


def _numeric_room(lattice: IntegerLattice, indicators: IntArray) -> int | None:
    """Return the largest |a|^2 of numeric weights a of points in the norm ball; None if there is no ball."""
    if lattice.squared_radius is None:
        return None
    low, high = lattice.low[indicators], lattice.high[indicators]
    return lattice.squared_radius - int(np.sum(np.clip(0, low, high) ** 2))


_KNOWN: weakref.WeakKeyDictionary[ZeroOneHalfspace, CellStructure] = weakref.WeakKeyDictionary()


def _structure(problem: ZeroOneHalfspace) -> CellStructure:
    X, lattice = problem.X, problem.lattice
    layout = problem.layout or _detected(X)
    scale, indicators = layout.scale, layout.indicators
    numeric = np.setdiff1d(np.arange(X.shape[1]), indicators)
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
        tuple(_exclusive_blocks(patterns, indicators, layout.blocks)),
        starts(sizes),
        flat,
        low,
        high,
        starts((high - low + 1).tolist()),
        *distinct_rows(cell_of_row, X[:, numeric], problem),
    )


def _detected(X: IntArray) -> Layout:
    """Return a layout for features without a declared one: each column of 0 and one constant is a block."""
    constants: list[int | None] = []
    for column in X.T:
        top, bottom = int(column.max()), int(column.min())
        extreme = top if top > 0 else bottom
        two_valued = (top <= 0 or bottom >= 0) and bool(np.all((column == 0) | (column == extreme)))
        constants.append(extreme if two_valued else None)
    counts = Counter(c for c in constants if c)
    scale = counts.most_common(1)[0][0] if counts else 1
    blocks = tuple((j,) for j, c in enumerate(constants) if c is not None and c in (0, scale))
    return Layout(blocks, scale, 2 ** len(blocks))


def _patterns(active: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], IntArray]:
    """Return the distinct rows of a boolean matrix and the index of each row among them."""
    if active.shape[1] == 0:
        return active[:1], np.zeros(len(active), dtype=np.int64)
    packed = np.packbits(active, axis=1)
    keys = np.zeros((len(active), -(-packed.shape[1] // 8) * 8), dtype=np.uint8)
    keys[:, : packed.shape[1]] = packed
    code = _codes(keys.view(">u8").T)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    return active[first], inverse.astype(np.int64)


def _codes(columns: NDArray[Any]) -> IntArray:
    """Return an integer for each row of a table given by columns: equal integers for equal rows only."""
    code = np.zeros(columns.shape[1], dtype=np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        # This cannot overflow, as code and inverse are less than the number of rows.
        _, code = np.unique(code * len(values) + inverse, return_inverse=True)
    return code.astype(np.int64)


def distinct_rows(cell: IntArray, numeric: IntArray, problem: ZeroOneHalfspace) -> Iterator[IntArray]:
    """Yield four arrays over the distinct rows: cell, numeric features, cost of errors on +1 and on -1."""
    costs, counts, yes = problem.costs, problem.counts, problem.y > 0
    code = _codes(np.vstack([cell[None, :], numeric.T]))
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    yield cell[first]
    yield np.ascontiguousarray(numeric[first])
    yield costs.false_negative * tallied(inverse[yes], counts[yes], len(first))
    yield costs.false_positive * tallied(inverse[~yes], counts[~yes], len(first))


def _exclusive_blocks(
    patterns: NDArray[np.bool_], indicators: IntArray, given: tuple[tuple[int, ...], ...]
) -> Iterator[IntArray]:
    """Join blocks by first fit: each is joined to the first block with which no row has both active."""
    counts = patterns.astype(np.float64)
    together = counts.T @ counts > 0
    blocks: list[list[int]] = []
    for columns in given:
        own = np.searchsorted(indicators, columns)
        home = next((b for b in blocks if not np.any(together[own][:, b])), None)
        if home is None:
            blocks.append(own.tolist())
        else:
            home.extend(own.tolist())
    return (np.sort(indicators[block]) for block in blocks)


def starts(sizes: list[int]) -> IntArray:
    """Return the start of each part in a flat array of parts of these sizes, and the end of the last."""
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
    """Write the costs of errors of all cells and offsets, by a pass over the rows and one over the tables."""
    out[:] = 0
    for i in range(len(scores)):
        c = cell[i]
        # As t grows, the prediction changes once: at t = turn.
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
