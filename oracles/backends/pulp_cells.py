"""The cell model: a MIP whose size does not depend on the number of records.

For fixed numeric weights a, the loss is a sum of tables over cell offsets (``privopt.oracles.cells``). One
model serves every a and every draw of noise, because only costs and allowed columns differ: binaries r[j, v]
say that indicator weight j has value v, q[s] that their squares sum to s, z[c, t] that cell c has offset t,

    sum_t z[c, t] = 1,   sum_t t z[c, t] = sum of the weights of the active indicators of c.

Its linear relaxation is tight. Every a gets an exact lower bound from the dual of its tables first; those
that cannot beat the incumbent are never given to the solver, and of the others only the levels that can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.backends import _cell_bounds as duals
from privopt.oracles.backends._cell_descent import descend
from privopt.oracles.backends._mip import FloatArray, MipModel, Session, open_session
from privopt.oracles.backends._mip_search import Region, Search, trivial_bound
from privopt.oracles.backends.pulp_rows import Columns, add_weights
from privopt.oracles.cells import CellLimits, CellStructure, Int32Array, why_not
from privopt.oracles.interface import Proposal, Query, Solver, Task
from privopt.problems.discrete import DiscreteProblem
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.lattice import IntArray
from privopt.problems.objective import UNIT

_LIMITS = CellLimits(cells=3_000, numeric_combinations=20_000, table_bytes=1 << 29)
_MAX_COLUMNS = 200_000
_MAX_SQUARED_NORM = 4096
# Sweeps over every weight vector that may matter, then over those that are left.
_FEW_SWEEPS, _MANY_SWEEPS = 4, 40
# A sweep that raises a bound by less than this (fixed point) was the last one.
_LEAST_GAIN = UNIT // 64


def refusals(problem: DiscreteProblem, task: Task) -> list[str]:
    """Every reason why the cell model cannot take a problem."""
    if reasons := why_not(problem, _LIMITS):
        return reasons
    assert isinstance(problem, ZeroOneHalfspace)
    size, squares = CellStructure.of(problem).table_size, problem.lattice.max_squared_norm
    if size > _MAX_COLUMNS:
        reasons.append(f"{size} columns, more than {_MAX_COLUMNS}")
    if _coupled(problem, task) and squares > _MAX_SQUARED_NORM:
        reasons.append(f"|w|^2 up to {squares}, more than {_MAX_SQUARED_NORM}")
    return reasons


def _coupled(problem: ZeroOneHalfspace, task: Task) -> bool:
    """Whether anything depends on |w|^2."""
    return task is Task.NORMALIZED or problem.lattice.squared_radius is not None


def build(problem: DiscreteProblem, task: Task, solver: str) -> Solver:
    """The cell model of a problem that ``refusals`` has nothing against."""
    assert isinstance(problem, ZeroOneHalfspace)
    model = _CellModel.of(problem, task, solver)
    return lambda query: _solve(model, query)


@dataclass(frozen=True)
class _CellModel:
    """What does not depend on the noise.

    Attributes:
        weights: numeric weight vectors, shape (k, m).
        squares: their squared norms, shape (k,).
        tables: their tables, shape (k, table_size).
        entry_column: the column that pays each table entry; -1 for cells without indicators.
        size: number of columns of the MIP.
    """

    problem: ZeroOneHalfspace
    cells: CellStructure
    weights: IntArray
    squares: IntArray
    tables: Int32Array
    columns: Columns
    entry_column: NDArray[np.int64]
    size: int
    session: Session
    shape: duals.Shape

    @classmethod
    def of(cls, problem: ZeroOneHalfspace, task: Task, solver: str) -> _CellModel:
        cells, lattice = CellStructure.of(problem), problem.lattice
        weights = cells.numeric_weights()
        coupled = _coupled(problem, task)
        model = MipModel("cells")
        columns = add_weights(model, lattice, cells.indicators, radial=coupled, budget=lattice.squared_radius)
        entry_column = _add_cells(model, cells, columns)
        return cls(
            problem,
            cells,
            weights,
            np.sum(weights**2, axis=1) if coupled else np.zeros(len(weights), dtype=np.int64),
            cells.all_tables(weights),
            columns,
            entry_column,
            len(model.columns),
            open_session(model, solver),
            duals.make_shape(cells, coupled),
        )


def _add_cells(model: MipModel, cells: CellStructure, columns: Columns) -> NDArray[np.int64]:
    """Columns z[c, t] and their links; returns ``entry_column``. One indicator alone needs no z: it is r."""
    entry_column = np.full(cells.table_size, -1, dtype=np.int64)
    for c in range(cells.n_cells):
        members = cells.members(c)
        entries = slice(int(cells.table_start[c]), int(cells.table_start[c + 1]))
        if len(members) == 1:
            entry_column[entries] = columns.level[members[0]]
        elif len(members) > 1:
            offsets = np.arange(cells.offset_low[c], cells.offset_high[c] + 1)
            z = entry_column[entries] = model.add(len(offsets), integer=True)
            model.choose_one(z)
            low, high = cells.lattice.low, cells.lattice.high
            linked = np.concatenate([z, *(columns.level[j] for j in members)])
            sizes = [-np.arange(low[j], high[j] + 1) for j in members]
            model.constrain(linked, np.concatenate([offsets, *sizes]), "=", 0)
    return entry_column


def _solve(model: _CellModel, query: Query) -> Proposal:
    search = Search(model.problem, query, model.session)
    lattice = model.problem.lattice
    search.offer(np.clip(0, lattice.low, lattice.high))  # the shortest vector is in every lattice
    draw = _Draw(model, query, search)
    draw.sweep_all(_FEW_SWEEPS)
    draw.sweep_all(_MANY_SWEEPS)
    order = np.argsort(draw.bound, kind="stable")
    return search.run([draw.region(int(k)) for k in order if not search.can_prune(int(draw.bound[k]))])


class _Draw:
    """One draw of noise: costs, exact lower bounds and remaining levels of every numeric weight vector."""

    def __init__(self, model: _CellModel, query: Query, search: Search) -> None:
        self.model, self.query, self.search = model, query, search
        p, shape, low = query.perturbation, model.shape, model.problem.lattice.low
        self.unary = np.zeros(shape.squares.shape, dtype=np.int64)
        for j, coordinate in enumerate(shape.coordinate.tolist()):
            self.unary[j, : shape.span[j]] = p.unary[coordinate]
        self.radial = np.zeros(model.problem.lattice.max_squared_norm + 1 if shape.coupled else 1, np.int64)
        if p.radial is not None:
            self.radial[:] = p.radial
        self.constant = np.zeros(len(model.weights), dtype=np.int64)
        for i, coordinate in enumerate(model.cells.numeric.tolist()):
            self.constant += p.unary[coordinate][model.weights[:, i] - low[coordinate]]
        self.bound = np.full(len(model.weights), trivial_bound(p), dtype=np.int64)
        self.allowed: dict[int, NDArray[np.bool_]] = {}
        self.dual = duals.make_dual(shape, len(self.radial))

    def sweep_all(self, sweeps: int) -> None:
        """Raise the bounds of all weight vectors that still matter, and improve the incumbent on the way."""
        for k in np.argsort(self.bound, kind="stable").tolist():
            if self.query.watch.stop() is not None:
                return
            if not self.search.can_prune(int(self.bound[k])):
                self.bound[k] = max(int(self.bound[k]), self._raised(k, sweeps))
                self.search.report(int(self.bound.min()))

    def _raised(self, k: int, sweeps: int) -> int:
        """A bound for one weight vector: exact, or the value from which on nothing matters."""
        shape, dual, constant = self.model.shape, self.dual, int(self.constant[k])
        table, square = self.model.tables[k], int(self.model.squares[k])
        first = np.zeros(len(shape.low), dtype=np.int64)
        width = duals.start(
            shape, dual, table, self.unary, self.radial, square, first, np.asarray(shape.span - 1)
        )
        if width == 0:
            return int(duals.BIG)
        levels = first  # overwritten by the minimiser of the dual
        bound = duals.norm_bound(shape, dual, width, levels)
        for _ in range(sweeps):
            slack = self.search.dominated - constant - duals.simple_bound(shape, dual, width)
            if slack <= 0 or not duals.sweep(shape, dual, width, slack):
                return self.search.dominated
            before, bound = bound, max(bound, int(duals.norm_bound(shape, dual, width, levels)))
            if bound - before < _LEAST_GAIN:
                break
        self._offer(k, width, levels)
        self.allowed[k] = self._mask(k)
        return bound + constant

    def _offer(self, k: int, width: int, levels: IntArray) -> None:
        """The dual's point, improved block by block, as an incumbent."""
        shape = self.model.shape
        value = descend(shape, self.dual, self.model.tables[k], width, levels) + int(self.constant[k])
        if value < self.search.dominated:
            point = np.zeros(self.model.problem.lattice.dimension, dtype=np.int64)
            point[self.model.cells.numeric] = self.model.weights[k]
            point[shape.coordinate] = shape.low + levels
            self.search.offer(point)

    def _mask(self, k: int) -> NDArray[np.bool_]:
        """Columns that may be nonzero: the levels that the sweeps left, and the norms that a leaves."""
        mask = self._norms(k)
        for j, coordinate in enumerate(self.model.shape.coordinate.tolist()):
            level = self.model.columns.level[coordinate]
            mask[level] = False
            mask[level[self.dual.dom[j, : self.dual.dom_size[j]]]] = True
        return mask

    def _norms(self, k: int) -> NDArray[np.bool_]:
        mask = np.ones(self.model.size, dtype=np.bool_)
        mask[self.model.columns.norm[len(self.radial) - int(self.model.squares[k]) :]] = False
        return mask

    def region(self, k: int) -> Region:
        """The part of the lattice with the k-th numeric weights."""
        model, low = self.model, self.model.problem.lattice.low
        numeric, a = model.cells.numeric, model.weights[k]
        alone = model.tables[k][model.entry_column < 0]

        def decode(values: FloatArray) -> IntArray:
            point = model.columns.decode(values, low)
            point[numeric] = a
            return point

        return Region(
            costs=lambda: self._costs(k),
            constant=int(self.constant[k]) + int(np.sum(alone, dtype=np.int64)) * UNIT,
            bound=int(self.bound[k]),
            decode=decode,
            encode=lambda point: model.columns.encode(point, low),
            contains=lambda point: bool(np.array_equal(point[numeric], a)),
            allowed=self.allowed.get(k, self._norms(k)),
        )

    def _costs(self, k: int) -> FloatArray:
        """Column costs in units of loss."""
        model, p = self.model, self.query.perturbation
        costs = np.zeros(model.size)
        paid = model.entry_column >= 0
        np.add.at(costs, model.entry_column[paid], model.tables[k][paid])
        for coordinate in model.cells.indicators.tolist():
            costs[model.columns.level[coordinate]] += p.unary[coordinate] / UNIT
        radial = self.radial[int(model.squares[k]) :][: len(model.columns.norm)]
        costs[model.columns.norm[: len(radial)]] = radial / UNIT
        return costs
