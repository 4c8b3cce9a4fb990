"""The cell model: a MIP whose size does not depend on the number of records.

For fixed numeric weights a, the loss is a sum of tables over cell offsets (``privopt.oracles.cells``). One
model serves every a and every draw of noise, because only costs and allowed columns differ: binaries r[j, v]
say that indicator weight j has value v, q[s] that their squares sum to s, and z[c, t] that cell c has offset t,

    sum_t z[c, t] = 1,   sum_t t z[c, t] = sum of the weights of the active indicators of c.

Its linear relaxation is tight. Every a gets an exact lower bound from the dual of its tables first; those that
cannot beat the incumbent are never given to the solver, and of the others only the levels that can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.backends._cell_bounds import (
    Dual,
    Shape,
    load,
    make_dual,
    make_shape,
    norm_bound,
    restrict_to_ball,
    simple_bound,
    sweep,
)
from privopt.oracles.backends._mip import FloatArray, MipModel, Session, open_session
from privopt.oracles.backends._mip_search import Region, Search, descend, starting_points, trivial_bound
from privopt.oracles.backends.pulp_rows import Columns, add_weights
from privopt.oracles.cells import CellLimits, CellStructure, Int32Array, why_not
from privopt.oracles.interface import Proposal, Query, Solver, Task
from privopt.problems.discrete import DiscreteProblem
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.lattice import IntArray
from privopt.problems.objective import UNIT, Perturbation

_LIMITS = CellLimits(cells=3_000, numeric_combinations=20_000, table_bytes=1 << 29)
_MAX_COLUMNS = 200_000
_STARTS = 6
_FEW_SWEEPS, _MANY_SWEEPS = 4, 40


def refusals(problem: DiscreteProblem, task: Task) -> list[str]:
    """Every reason why the cell model cannot take a problem."""
    if reasons := why_not(problem, _LIMITS):
        return reasons
    assert isinstance(problem, ZeroOneHalfspace)
    size = CellStructure.of(problem).table_size
    return [f"{size} columns, more than {_MAX_COLUMNS}"] if size > _MAX_COLUMNS else []


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
        tables: their tables, shape (k, table_size).
        place: numeric weight vector -> its row.
        incidence: which coordinates of w are active in each cell, shape (cells, d).
        entry_column: the column that pays each table entry; -1 for cells without indicators.
    """

    problem: ZeroOneHalfspace
    cells: CellStructure
    weights: IntArray
    tables: Int32Array
    place: dict[bytes, int]
    incidence: IntArray
    columns: Columns
    entry_column: NDArray[np.int64]
    size: int
    session: Session
    shape: Shape
    dual: Dual

    @classmethod
    def of(cls, problem: ZeroOneHalfspace, task: Task, solver: str) -> _CellModel:
        cells, lattice = CellStructure.of(problem), problem.lattice
        weights = cells.numeric_weights()
        coupled = task is Task.NORMALIZED or lattice.squared_radius is not None
        model = MipModel("cells")
        columns = add_weights(
            model, lattice, cells.indicators, radial=coupled, budget=lattice.squared_radius
        )
        entry_column = _add_cells(model, cells, columns)
        incidence = np.zeros((cells.n_cells, lattice.dimension), dtype=np.int64)
        incidence[np.repeat(np.arange(cells.n_cells), np.diff(cells.cell_start)), cells.cell_members] = 1
        shape = make_shape(cells, coupled)
        return cls(
            problem,
            cells,
            weights,
            cells.all_tables(weights),
            {a.tobytes(): k for k, a in enumerate(weights)},
            incidence,
            columns,
            entry_column,
            len(model.columns),
            open_session(model, solver),
            shape,
            make_dual(shape, lattice.max_squared_norm + 1),
        )

    def values(self, points: IntArray, perturbation: Perturbation) -> IntArray:
        """Exact objectives from the tables; points of shape (k, d)."""
        rows = [self.place[a.tobytes()] for a in np.ascontiguousarray(points[:, self.cells.numeric])]
        entries = points @ self.incidence.T - self.cells.offset_low + self.cells.table_start[:-1]
        losses = np.sum(self.tables[np.array(rows)[:, None], entries], axis=1, dtype=np.int64)
        return np.asarray(losses * UNIT + perturbation.values(points), dtype=np.int64)


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
    lattice, p = model.problem.lattice, query.perturbation

    def improve(starts: list[IntArray]) -> None:
        found = descend(
            lambda points: model.values(points, p), lattice, starts, lambda: query.watch.stop() is not None
        )
        if found is not None:
            search.offer(found)

    improve(starting_points(p, _STARTS))
    bounds = _Bounds(model, query, search, trivial_bound(p))
    bounds.sweep_all(_FEW_SWEEPS)
    improve(bounds.points())
    bounds.sweep_all(_MANY_SWEEPS)
    order = np.argsort(bounds.bound, kind="stable")
    return search.run([bounds.region(int(k)) for k in order])


class _Bounds:
    """Exact lower bounds, and the levels that are left, for every numeric weight vector."""

    def __init__(self, model: _CellModel, query: Query, search: Search, floor: int) -> None:
        self.model, self.query, self.search = model, query, search
        self.bound = np.full(len(model.weights), floor, dtype=np.int64)
        self.allowed: dict[int, NDArray[np.bool_]] = {}
        self.guesses: dict[int, IntArray] = {}

    def points(self, count: int = 10) -> list[IntArray]:
        """Minimisers of the separable part of the dual, of the numeric weights with the lowest bounds."""
        order = np.argsort(self.bound, kind="stable")
        return [self.guesses[int(k)] for k in order if int(k) in self.guesses][:count]

    def sweep_all(self, sweeps: int) -> None:
        """Raise the bounds of all weight vectors that still matter."""
        for k in np.argsort(self.bound, kind="stable").tolist():
            if self.query.watch.stop() is not None:
                return
            if not self.search.can_prune(int(self.bound[k])):
                self._raise(k, sweeps)

    def _raise(self, k: int, sweeps: int) -> None:
        model, shape, dual = self.model, self.model.shape, self.model.dual
        constant, width = self._constant(k), self._width(k)
        self._load(k, width)
        if not restrict_to_ball(shape, dual, width):
            self.bound[k] = np.iinfo(np.int64).max
            return
        cutoff = self._cutoff() - constant
        load(shape, dual, model.tables[k], width)
        bound = simple_bound(shape, dual, width)
        for _ in range(sweeps):
            if bound >= cutoff or not sweep(shape, dual, width, cutoff - bound):
                bound = max(bound, cutoff)
                break
            before, bound = bound, max(bound, simple_bound(shape, dual, width))
            if bound - before < UNIT // 64:
                break
        if bound < cutoff:
            levels = np.zeros(len(shape.low), dtype=np.int64)
            bound = max(bound, norm_bound(shape, dual, width, levels))
            guess = np.empty(model.problem.lattice.dimension, dtype=np.int64)
            guess[model.cells.numeric] = model.weights[k]
            guess[shape.coordinate] = shape.low + levels
            self.guesses[k] = guess
            self.allowed[k] = self._mask(k, width)
        self.bound[k] = max(int(self.bound[k]), bound + constant)

    def _cutoff(self) -> int:
        """Values from here on do not matter, fixed point."""
        assert self.search.best is not None
        return self.search.best[0] + (1 if self.query.break_ties else 0)

    def _load(self, k: int, width: int) -> None:
        """Fill the dual for one weight vector."""
        model, shape, dual = self.model, self.model.shape, self.model.dual
        p = self.query.perturbation
        dual.phi[:] = 0
        dual.kappa[:] = 0
        dual.dom_size[:] = shape.span
        dual.dom[:] = np.arange(dual.dom.shape[1])
        for j, coordinate in enumerate(shape.coordinate.tolist()):
            dual.unary[j, : shape.span[j]] = p.unary[coordinate]
        used = int(np.sum(model.weights[k] ** 2))
        dual.radial[:width] = 0 if p.radial is None else p.radial[used:][:width]

    def _mask(self, k: int, width: int) -> NDArray[np.bool_]:
        """Columns that may be nonzero: the levels that the sweeps left, and the norms that a leaves."""
        model, shape, dual = self.model, self.model.shape, self.model.dual
        mask = self._norms(width)
        for j, coordinate in enumerate(shape.coordinate.tolist()):
            level = model.columns.level[coordinate]
            mask[level] = False
            mask[level[dual.dom[j, : dual.dom_size[j]]]] = True
        return mask

    def _norms(self, width: int) -> NDArray[np.bool_]:
        mask = np.ones(self.model.size, dtype=np.bool_)
        mask[self.model.columns.norm[max(0, width) :]] = False
        return mask

    def _width(self, k: int) -> int:
        """How many values the sum of squares of the indicator weights can have (1 if nobody asks)."""
        used = int(np.sum(self.model.weights[k] ** 2))
        return self.model.problem.lattice.max_squared_norm + 1 - used if self.model.shape.coupled else 1

    def _constant(self, k: int) -> int:
        """The unary cost of the numeric weights, fixed point."""
        p, low = self.query.perturbation, self.model.problem.lattice.low
        pairs = zip(self.model.cells.numeric.tolist(), self.model.weights[k].tolist(), strict=True)
        return sum(int(p.unary[j][a - low[j]]) for j, a in pairs)

    def region(self, k: int) -> Region:
        """The part of the lattice with the k-th numeric weights."""
        model, low = self.model, self.model.problem.lattice.low
        numeric, a = model.cells.numeric, model.weights[k]
        alone = model.entry_column < 0

        def decode(values: FloatArray) -> IntArray:
            point = model.columns.decode(values, low)
            point[numeric] = a
            return point

        return Region(
            costs=lambda: self._costs(k),
            constant=self._constant(k) + int(np.sum(model.tables[k][alone], dtype=np.int64)) * UNIT,
            bound=int(self.bound[k]),
            decode=decode,
            encode=lambda point: model.columns.encode(point, low),
            contains=lambda point: bool(np.array_equal(point[numeric], a)),
            allowed=self.allowed.get(k, self._norms(self._width(k))),
        )

    def _costs(self, k: int) -> FloatArray:
        """Column costs in units of loss."""
        model, p = self.model, self.query.perturbation
        costs = np.zeros(model.size)
        paid = model.entry_column >= 0
        np.add.at(costs, model.entry_column[paid], model.tables[k][paid])
        for coordinate in model.cells.indicators.tolist():
            costs[model.columns.level[coordinate]] += p.unary[coordinate] / UNIT
        if p.radial is not None:
            norm = model.columns.norm
            radial = p.radial[int(np.sum(model.weights[k] ** 2)) :][: len(norm)]
            costs[norm[: len(radial)]] = radial / UNIT
        return costs
