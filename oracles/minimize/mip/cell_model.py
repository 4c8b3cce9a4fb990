"""The cell model: a MIP whose size does not depend on the number of records.

For fixed numeric weights a, the loss is a sum of tables over the offsets of cells (``cells.structure``). The
same model is used for every a and every draw of noise, because only the costs and the allowed columns differ.
Its binaries are r[j, v] (indicator weight j has value v), q[s] (the squares of the indicator weights sum to
s) and z[c, t] (cell c has offset t), with

    sum_t z[c, t] = 1,   sum_t t z[c, t] = sum of the weights of the active indicators of c.

The linear relaxation is usually tight. First an exact dual bound is computed for every a. Only the numeric
weight vectors and levels that may be better than the incumbent are passed to the solver.

Public constraints on points become rows. For these rows the model has binaries of the numeric weights, too; a
question for one a allows only the binaries of a. Dual bounds and descents ignore the constraints. The bounds
are valid nevertheless, because they are over a larger set, and a point found by descent is used only if it
satisfies the constraints.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.cells.compiling import announced
from privopt.oracles.cells.regions import (
    BIG,
    CellCosts,
    CellModel,
    long_points,
    new_region,
    start_dual,
)
from privopt.oracles.cells.structure import CellLimits, CellSizes, CellStructure, why_not, why_not_planned
from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.minimize.interface import Proposal, Query, Solver, trivial_bound
from privopt.oracles.minimize.mip.model import Formulation, MipModel, OpenSession, Session
from privopt.oracles.minimize.mip.point_rows import row_refusals
from privopt.oracles.minimize.mip.row_model import Columns, add_weights, require_constraints
from privopt.oracles.minimize.mip.search import Region, Search
from privopt.oracles.minimize.native import bounds as duals
from privopt.oracles.minimize.native.descent import descend, descend_from_many
from privopt.oracles.minimize.native.worker import compile_bounds
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation, from_fixed
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.programs.lattice import ConstrainedLattice

_LIMITS = CellLimits(cells=3_000, numeric_combinations=20_000, table_bytes=1 << 29)
_MAX_COLUMNS = 200_000
_MAX_SQUARED_NORM = 4096
# Number of dual sweeps in the first and in the second pass over the weight vectors that are not pruned.
_FEW_SWEEPS, _MANY_SWEEPS = 4, 40
# Sweeping stops when the bound rises by less than this (fixed point).
_LEAST_GAIN = UNIT // 64
# Descents for incumbents: the number of numeric weight vectors, and of starting points for each.
_DESCENDED, _DESCENTS = 8, 16


def refusals(problem: DiscreteProblem, task: Task) -> list[str]:
    """Return every reason why the cell model cannot take a problem."""
    if reasons := [*row_refusals(problem.lattice), *why_not(problem, _LIMITS)]:
        return reasons
    assert isinstance(problem, ZeroOneHalfspace)
    return _too_large(CellStructure.of(problem).sizes, problem.lattice, task)


def planned_refusals(facts: ProblemFacts) -> list[str]:
    """Return every reason why the cell model may not take some problem with these facts."""
    assert isinstance(facts.question, Task)  # minimisers get no other questions
    reasons = [*row_refusals(facts.lattice), *why_not_planned(facts, _LIMITS)]
    return reasons or _too_large(CellSizes.most(facts), facts.lattice, facts.question)


def _too_large(sizes: CellSizes, lattice: IntegerLattice, task: Task) -> list[str]:
    reasons = [f"more than {_MAX_COLUMNS} columns"] if sizes.table > _MAX_COLUMNS else []
    return reasons + long_points(lattice, task, _MAX_SQUARED_NORM)


def build(problem: DiscreteProblem, task: Task, open_session: OpenSession) -> Solver:
    """Build the cell model of a problem without ``refusals``, and load it into a solver."""
    assert isinstance(problem, ZeroOneHalfspace)
    with announced("the bounds of cells"):
        compile_bounds()
    model = _CellModel.of(problem, task)
    session = open_session(model.model)
    return lambda query: _solve(model, session, query)


@dataclass(frozen=True)
class _CellModel:
    """The part of the model that does not depend on the noise.

    Attributes:
        regions: one region for each numeric weight vector.
        columns: the columns of the indicator weights.
        numeric: the columns of the numeric weights, which exist only if there are constraints.
        entry_column: for each table entry, the column whose cost it is; -1 for cells without indicators.
        model: the MIP.
    """

    problem: ZeroOneHalfspace
    regions: CellModel
    columns: Columns
    numeric: Columns
    entry_column: NDArray[np.int64]
    model: MipModel
    shares: duals.Shares

    @classmethod
    def of(cls, problem: ZeroOneHalfspace, task: Task) -> _CellModel:
        regions, lattice = CellModel.make(problem, task), problem.lattice
        model = MipModel("cells")
        columns = add_weights(
            model,
            lattice,
            regions.cells.indicators,
            radial=regions.shape.coupled,
            budget=lattice.squared_radius,
        )
        chosen = regions.cells.numeric if lattice.constrained else np.empty(0, dtype=np.int64)
        numeric = add_weights(model, lattice, chosen, radial=False, budget=None)
        level = [a if len(a) else b for a, b in zip(columns.level, numeric.level, strict=True)]
        require_constraints(model, lattice, Columns(level, columns.norm))
        return cls(
            problem,
            regions,
            columns,
            numeric,
            _add_cells(model, regions.cells, columns),
            model,
            duals.make_shares(regions.shape),
        )

    def alone(self, k: int) -> int:
        """Return the loss in cells without indicators, which depends on the k-th numeric weights only."""
        return int(np.sum(self.regions.tables[k][self.entry_column < 0], dtype=np.int64))

    def column_costs(self, p: Perturbation, costs: CellCosts, k: int) -> FloatArray:
        """Return the cost of each column, in units of loss, for the k-th numeric weights."""
        regions, found, paid = self.regions, np.zeros(self.model.size), self.entry_column >= 0
        np.add.at(found, self.entry_column[paid], regions.tables[k][paid])
        for coordinate in regions.cells.indicators.tolist():
            found[self.columns.level[coordinate]] += p.unary[coordinate] / UNIT
        radial = costs.radial[int(regions.squares[k]) :][: len(self.columns.norm)]
        found[self.columns.norm[: len(radial)]] = radial / UNIT
        return found


def _add_cells(model: MipModel, cells: CellStructure, columns: Columns) -> NDArray[np.int64]:
    """Add columns z[c, t] and their constraints, and return ``entry_column``.

    Cells with one indicator j use the columns r[j, v] instead.
    """
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


def formulation(problem: DiscreteProblem, task: Task, p: Perturbation) -> Formulation:
    """Return one question as a self-contained model.

    Raises:
        UnsupportedProblemError: the problem has no cell model, or has several numeric weight vectors, each of
            which needs a model.
    """
    if reasons := refusals(problem, task):
        raise UnsupportedProblemError("; ".join(reasons))
    assert isinstance(problem, ZeroOneHalfspace)
    built = _CellModel.of(problem, task)
    if len(built.regions.weights) > 1:
        raise UnsupportedProblemError("numeric columns: a cell model for each of their weight vectors")
    costs = built.regions.costs(p)
    constant = int(costs.numeric[0]) + built.alone(0) * UNIT
    return Formulation(built.model, built.column_costs(p, costs, 0), from_fixed(constant))


def _known_point(lattice: IntegerLattice) -> IntArray:
    """Return a point of the lattice: its witness if it has constraints, otherwise its shortest vector."""
    if isinstance(lattice, ConstrainedLattice):
        return lattice.witness
    return np.asarray(np.clip(0, lattice.low, lattice.high), dtype=np.int64)


def _solve(model: _CellModel, session: Session, query: Query) -> Proposal:
    search = Search(model.problem, query, session)
    search.offer(_known_point(model.problem.lattice))
    draw = _Draw(model, query, search)
    # Without noise all min-marginals are equal, and sweeps give poor points; so descents come first.
    draw.offer_good([int(np.argmin(np.sum(model.regions.weights**2, axis=1)))])
    draw.sweep_all(_FEW_SWEEPS)
    draw.offer_good(np.argsort(draw.bound, kind="stable")[:_DESCENDED].tolist())
    draw.sweep_all(_MANY_SWEEPS)
    order = np.argsort(draw.bound, kind="stable")
    return search.run([draw.region(int(k)) for k in order if not search.can_prune(int(draw.bound[k]))])


class _Draw:
    """State for one draw of noise: costs, and exact bounds and allowed levels by numeric weight vector."""

    def __init__(self, model: _CellModel, query: Query, search: Search) -> None:
        self.model, self.query, self.search = model, query, search
        p, regions = query.perturbation, model.regions
        self.costs = regions.costs(p)
        self.bound = np.full(len(regions.weights), trivial_bound(p), dtype=np.int64)
        self.allowed: dict[int, NDArray[np.bool_]] = {}
        self.dual = new_region(regions.shape, np.int64)
        self.forward = np.zeros_like(self.dual.tables)

    def sweep_all(self, sweeps: int) -> None:
        """Improve the bounds of all weight vectors that are not pruned, and the incumbent."""
        for k in np.argsort(self.bound, kind="stable").tolist():
            if self.query.watch.stop() is not None:
                return
            if not self.search.can_prune(int(self.bound[k])):
                self.bound[k] = max(int(self.bound[k]), self._raised(k, sweeps))
                self.search.report(int(self.bound.min()))

    def offer_good(self, chosen: list[int]) -> None:
        """Run descents at the given numeric weight vectors, and offer the results as incumbents."""
        shape = self.model.regions.shape
        for k in chosen:
            if self.query.watch.stop() is not None:
                return
            if not self.search.can_prune(int(self.bound[k])) and self._start(k):
                value, levels = descend_from_many(shape, self.dual, _DESCENTS)
                if value < self.search.dominated:
                    self.search.offer_found(self.model.regions.point(k, levels))

    def _start(self, k: int) -> bool:
        regions = self.model.regions
        return regions.start(self.dual, k, UNIT, self.costs, regions.all_levels)

    def _raised(self, k: int, sweeps: int) -> int:
        """Run dual sweeps for one weight vector; return its bound, or ``dominated`` if it is pruned."""
        regions, dual = self.model.regions, self.dual
        if not self._start(k):
            return int(BIG)
        start_dual(regions.shape, dual, 0)
        levels, bound = np.zeros_like(regions.shape.low), -BIG
        for _ in range(sweeps):
            before, cutoff = bound, self.search.dominated
            bound = max(
                bound, duals.sweep(regions.shape, dual, self.forward, self.model.shares, cutoff, levels)
            )
            if bound >= cutoff:
                return self.search.dominated
            if bound - before < _LEAST_GAIN:
                break
        self._offer(k, levels)
        self.allowed[k] = self._mask(k)
        return bound

    def _offer(self, k: int, levels: IntArray) -> None:
        """Improve a point, which the dual gave, by block descent, and offer the result as incumbent."""
        if descend(self.model.regions.shape, self.dual, levels) < self.search.dominated:
            self.search.offer_found(self.model.regions.point(k, levels))

    def _mask(self, k: int) -> NDArray[np.bool_]:
        """Return the columns that may be nonzero: ``_allowed_by`` without the columns of dropped levels."""
        mask = self._allowed_by(k)
        for j, coordinate in enumerate(self.model.regions.shape.coordinate.tolist()):
            level = self.model.columns.level[coordinate]
            mask[level] = False
            mask[level[self.dual.dom[j, : self.dual.dom_size[j]]]] = True
        return mask

    def _allowed_by(self, k: int) -> NDArray[np.bool_]:
        """Return the columns that may be nonzero at the k-th a, which rules out norms and numeric weights."""
        model = self.model
        mask = np.ones(model.model.size, dtype=np.bool_)
        mask[model.columns.norm[len(self.costs.radial) - int(model.regions.squares[k]) :]] = False
        point = model.problem.lattice.low.copy()
        point[model.regions.cells.numeric] = model.regions.weights[k]
        mask[np.concatenate([*model.numeric.level, np.empty(0, dtype=np.int64)])] = False
        mask[model.numeric.encode(point, model.problem.lattice.low)] = True
        return mask

    def region(self, k: int) -> Region:
        """Return the points of the lattice with the k-th numeric weights as a region."""
        model, low, regions = self.model, self.model.problem.lattice.low, self.model.regions
        numeric, a = regions.cells.numeric, regions.weights[k]

        def decode(values: FloatArray) -> IntArray:
            point = model.columns.decode(values, low)
            point[numeric] = a
            return point

        return Region(
            costs=lambda: model.column_costs(self.query.perturbation, self.costs, k),
            constant=int(self.costs.numeric[k]) + model.alone(k) * UNIT,
            bound=int(self.bound[k]),
            decode=decode,
            encode=lambda point: model.columns.encode(point, low),
            contains=lambda point: bool(np.array_equal(point[numeric], a)),
            allowed=self.allowed.get(k, self._allowed_by(k)),
        )
