"""The native exact minimiser for scorecards: cells, dual bounds and a tree search, in integers throughout.

The weights of the few numeric columns are enumerated. For each of them, a *region*, the problem over the
indicator weights is a small sum of tables (``privopt.oracles.cells``). Regions wait in a queue ordered by
lower bound; a region that comes up first gets a better bound (``_cell_bounds``), then a tree search
(``_cell_search``), until every region is searched or its bound reaches the value of the best point known.
Threads share the queue and that point.
"""

from __future__ import annotations

import heapq
import os
import threading
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privopt.oracles import cells as cell_structure
from privopt.oracles.backends import _cell_bounds as bounds
from privopt.oracles.backends import _cell_search as trees
from privopt.oracles.backends._cell_descent import descend
from privopt.oracles.cells import CellLimits, CellStructure
from privopt.oracles.certificate import Status
from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.interface import DiscreteOracle, Limits, Proposal, Query, Solver, Task, Watch
from privopt.problems.discrete import DiscreteProblem
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.lattice import IntArray, IntegerLattice
from privopt.problems.objective import UNIT, Perturbation, from_fixed

_LARGEST_COST = 1 << 52  # of a perturbation; leaves room for sums with the stand-in for infinity
_TIES = 2000  # opened in the main search before ties are left to the search coordinate by coordinate
_FIRST_SWEEPS, _MORE_SWEEPS, _PART_SWEEPS = 2, 10, 4
_TREE_NODES = 16_000  # of one tree, before its region is split
_SLICE = 4000  # nodes between two looks at the clock and at the other threads


@dataclass(frozen=True)
class NativeOracle(DiscreteOracle):
    """Exact minimisation for ``ZeroOneHalfspace`` with indicator columns, any linear or radial noise.

    Args:
        limits: sizes beyond which a problem is refused.
        max_squared_norm: largest |w|^2 that is accepted where the objective or the lattice depends on it.
        threads: how many to use; None for one per processor.
    """

    name: ClassVar[str] = "native"
    limits: CellLimits = field(default_factory=CellLimits)
    max_squared_norm: int = 4096
    threads: int | None = None

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        reasons = cell_structure.why_not(problem, self.limits)
        if _coupled(problem, task) and problem.lattice.max_squared_norm > self.max_squared_norm:
            reasons.append(
                f"|w|^2 up to {problem.lattice.max_squared_norm}, more than {self.max_squared_norm}"
            )
        return reasons

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        assert isinstance(problem, ZeroOneHalfspace)  # others are refused
        _compile()
        model = _Model.make(problem, _coupled(problem, task))
        threads = max(1, self.threads or os.cpu_count() or 1)

        def solve(query: Query) -> Proposal:
            return _solve(model, query, threads)

        return solve


@cache
def _compile() -> None:
    """Have all kernels compiled, or loaded, before a clock runs: one tiny region through everything."""
    lattice = IntegerLattice(-1, 1, dimension=3, radius=1.0)
    problem = ZeroOneHalfspace(np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1]]), np.array([1, -1, 1]), lattice)
    model, watch = _Model.make(problem, coupled=True), Limits().start()
    run = _Run(model, _Costs.of(model, Perturbation.zero(lattice)), watch, lattice.low, lattice.high)
    run.value = UNIT * problem.n_records + 1  # all points are below it: nothing is pruned
    worker, everything = _Worker(run, leader=False), np.zeros(3, dtype=np.int64)
    width = bounds.start(
        model.shape,
        worker.dual,
        model.tables[0],
        run.costs.unary,
        run.costs.radial,
        0,
        everything,
        everything + 2,
        model.tilts[0, 0],
    )
    region = _Region(0, model.tables[0], 0, width)
    worker._tighten(region, 0, 2)
    worker._resume(region, worker._put_aside(0))
    run.value = UNIT * problem.n_records + 1
    worker._search(region, 0)


def _coupled(problem: DiscreteProblem, task: Task) -> bool:
    """Whether anything depends on |w|^2."""
    lattice = problem.lattice
    longest = int(np.sum(np.maximum(lattice.low**2, lattice.high**2)))
    return task is Task.NORMALIZED or lattice.max_squared_norm < longest


@dataclass(frozen=True)
class _Model:
    """What does not depend on the noise."""

    problem: ZeroOneHalfspace
    cells: CellStructure
    weights: IntArray  # numeric weight vectors, (r, m)
    squares: IntArray  # their squared norms, zeros if nothing depends on |w|^2
    tables: NDArray[np.int32]  # (r, table size)
    least_loss: IntArray  # sum of the minima of the cells, (r,)
    rows: IntArray  # number of records of each variable's level, a search order
    tilts: IntArray  # where the dual starts on the first and second visit of a region, (2, r)
    shape: bounds.Shape

    @classmethod
    def make(cls, problem: ZeroOneHalfspace, coupled: bool) -> _Model:
        cells = CellStructure.of(problem)
        weights = cells.numeric_weights()
        tables = cells.all_tables(weights)
        shape = bounds.make_shape(cells, coupled)
        squares = np.einsum("ij,ij->i", weights, weights) if coupled else np.zeros(len(weights), np.int64)
        least = np.minimum.reduceat(tables, cells.table_start[:-1], axis=1).sum(axis=1, dtype=np.int64)
        rows = np.bincount(
            shape.member_var, cells.records[shape.member_cell], minlength=len(shape.coordinate)
        ).astype(np.int64)
        tilts = _tilts(shape, squares, tables, least, problem)
        return cls(problem, cells, weights, squares, tables, least, rows, tilts, shape)


def _tilts(
    shape: bounds.Shape,
    squares: IntArray,
    tables: NDArray[np.int32],
    least: IntArray,
    problem: ZeroOneHalfspace,
) -> IntArray:
    """Good multipliers of |w|^2 for the problem without noise, after few and after many sweeps.

    They depend on the room that the numeric weights leave in the norm ball more than on anything else: a
    representative of each |a|^2, one with a low loss, stands for all.
    """
    tilts = np.zeros((2, len(squares)), dtype=np.int64)
    if not shape.coupled:
        return tilts
    radial = np.zeros(problem.lattice.max_squared_norm + 1, dtype=np.int64)
    dual, unary = bounds.make_dual(shape, len(radial)), np.zeros_like(shape.squares)
    levels = np.zeros_like(shape.low)
    grid = [0, *(problem.n_records * UNIT >> k for k in range(13, 4, -1))]
    for square in np.unique(squares).tolist():
        same = np.flatnonzero(squares == square)
        table = tables[same[np.argmin(least[same])]]
        best = np.full(2, -bounds.BIG)
        for tilt in grid:
            width = bounds.start(shape, dual, table, unary, radial, square, levels * 0, shape.span - 1, tilt)
            for stage, sweeps in enumerate((_FIRST_SWEEPS, _MORE_SWEEPS // 2) if width else ()):
                for _ in range(sweeps):
                    bounds.sweep(shape, dual, width, bounds.BIG)
                bound = bounds.norm_bound(shape, dual, width, levels)
                if bound > best[stage]:
                    best[stage] = bound
                    tilts[stage, same] = tilt
    return tilts


@dataclass
class _Costs:
    """A perturbation in the solver's terms."""

    unary: IntArray  # (k, B), by level
    radial: IntArray  # by |w|^2; a single 0 if nothing depends on it
    numeric: IntArray  # cost of each numeric weight vector, (r,)

    @classmethod
    def of(cls, model: _Model, perturbation: Perturbation) -> _Costs:
        shape, lattice = model.shape, model.cells.lattice
        unary = np.zeros(shape.squares.shape, dtype=np.int64)
        for j, c in enumerate(shape.coordinate.tolist()):
            unary[j, : shape.span[j]] = perturbation.unary[c]
        numeric = np.zeros(len(model.weights), dtype=np.int64)
        for j, c in enumerate(model.cells.numeric.tolist()):
            numeric += perturbation.unary[c][model.weights[:, j] - lattice.low[c]]
        radial = perturbation.radial
        if radial is None:
            radial = np.zeros(lattice.max_squared_norm + 1 if shape.coupled else 1, dtype=np.int64)
        return cls(unary, radial, numeric)


def _solve(model: _Model, query: Query, threads: int) -> Proposal:
    perturbation = query.perturbation
    if perturbation.magnitude > _LARGEST_COST:
        raise UnsupportedProblemError(
            f"the native oracle takes perturbations up to {from_fixed(_LARGEST_COST):.3g} in absolute value; "
            f"this one may reach {from_fixed(perturbation.magnitude):.3g}. To do: rescale, or enumerate"
        )
    lattice = model.problem.lattice
    costs = _Costs.of(model, perturbation)
    point = np.clip(0, lattice.low, lattice.high)  # the shortest vector: always in the lattice
    ties = 0 if perturbation.is_zero or not query.break_ties else _TIES
    run = _Run(model, costs, query.watch, lattice.low, lattice.high, ties=ties)
    run.offer(model.problem.value(point, perturbation), point)
    stopped = run.go(threads)
    assert run.point is not None
    if stopped is not None:
        return Proposal(run.point, run.bound(), stopped, nodes=run.nodes, raw_status=run.describe())
    first = query.break_ties and run.ties > 0
    if query.break_ties and not first:
        stopped = _first_in_order(run, threads)
        first = stopped is None
    status = stopped or Status.OPTIMAL
    return Proposal(run.point, run.value, status, first, nodes=run.nodes, raw_status=run.describe())


def _first_in_order(run: _Run, threads: int) -> Status | None:
    """Replace an optimal point by the lexicographically first one, coordinate by coordinate.

    Keeps w_0..w_{j-1} and looks for an equally good point with a smaller w_j, until there is none.
    """
    assert run.point is not None
    low, high = run.low.copy(), run.high.copy()
    for j in range(len(low)):
        while run.point[j] > low[j]:
            high[j] = run.point[j] - 1
            deeper = _Run(run.model, run.costs, run.watch, low, high, any_below=run.value + 1)
            stopped = deeper.go(threads)
            run.nodes += deeper.nodes
            if deeper.point is None:
                if stopped is not None:
                    return stopped
                break
            run.point = deeper.point
        low[j] = high[j] = run.point[j]
    return None


class _Run:
    """One search over a box of the lattice; several threads may work on it."""

    def __init__(
        self,
        model: _Model,
        costs: _Costs,
        watch: Watch,
        low: IntArray,
        high: IntArray,
        *,
        ties: int = 0,
        any_below: int | None = None,
    ) -> None:
        """
        Args:
            ties: how many regions that can at best equal the best point are opened to find one that comes
                first in lexicographic order.
            any_below: stop at the first point with a value below this.
        """
        self.model, self.costs, self.watch, self.low, self.high = model, costs, watch, low, high
        self.ties, self.any_below = ties, any_below
        self.value = bounds.BIG if any_below is None else any_below
        self.point: IntArray | None = None
        self.nodes = self.searched = 0
        self.lock = threading.Condition()
        self._stopped: Status | None = None
        self._error: BaseException | None = None
        self._active: dict[int, int] = {}  # bounds of the regions that threads are working on
        coordinate = model.shape.coordinate
        self._first = low[coordinate] - model.shape.low
        self._last = high[coordinate] - model.shape.low
        self._queue = self._regions()

    def _regions(self) -> list[tuple[int, int, bool]]:
        """All regions of the box as a heap: bound, number, whether it had its first sweeps."""
        model, numeric = self.model, self.model.cells.numeric
        inside = np.all((model.weights >= self.low[numeric]) & (model.weights <= self.high[numeric]), axis=1)
        index = np.flatnonzero(inside)
        offsets = self.costs.numeric[index] + model.least_loss[index] * UNIT
        out = np.empty(len(index), dtype=np.int64)
        bounds.quick_bounds(
            model.shape,
            self.costs.unary,
            self.costs.radial,
            model.squares[index],
            offsets,
            self._first,
            self._last,
            out,
        )
        queue = [(b, i, False) for b, i in zip(out.tolist(), index.tolist(), strict=True) if b < bounds.BIG]
        heapq.heapify(queue)
        return queue

    @property
    def cutoff(self) -> int:
        """Only values below this are of interest."""
        return self.value + (self.ties > 0)

    def bound(self) -> int:
        """A proved lower bound on the minimum over the box."""
        least = [self.value, *self._active.values()]
        return min(least if not self._queue else [*least, self._queue[0][0]])

    def describe(self) -> str:
        return f"{self.searched} of {len(self.model.weights)} numeric weight vectors searched by tree"

    def offer(self, value: int, point: IntArray) -> None:
        """Take note of a point if it is better, or as good and lexicographically earlier."""
        with self.lock:
            earlier = self.point is None or tuple(point.tolist()) < tuple(self.point.tolist())
            if value < self.value or (value == self.value and self.any_below is None and earlier):
                self.value, self.point = value, np.array(point, dtype=np.int64)
                self.lock.notify_all()

    def go(self, threads: int) -> Status | None:
        """Search until done (None) or stopped by the watch."""
        helpers = [
            threading.Thread(target=self._work, args=(False,), daemon=True) for _ in range(threads - 1)
        ]
        for helper in helpers:
            helper.start()
        self._work(True)
        for helper in helpers:
            helper.join()
        if self._error is not None:
            raise self._error
        return self._stopped

    @property
    def over(self) -> bool:
        found = self.any_below is not None and self.point is not None
        return found or self._stopped is not None or self._error is not None

    def _work(self, leader: bool) -> None:
        """What each thread does. The leader, the caller's own thread, also watches the clock."""
        try:
            worker = _Worker(self, leader)
            while (job := self._next(leader)) is not None:
                worker.process(*job)
                with self.lock:
                    del self._active[threading.get_ident()]
                    self.lock.notify_all()
        except BaseException as error:
            with self.lock:
                self._error = self._error or error
                self.lock.notify_all()

    def _next(self, leader: bool) -> tuple[int, int, bool] | None:
        """The open region with the lowest bound; None when there is nothing left to do."""
        while True:
            if leader:
                self.look_around()
            with self.lock:
                if self._queue and self._queue[0][0] >= self.cutoff:
                    self._queue.clear()
                if self.over or not (self._queue or self._active):
                    self.lock.notify_all()
                    return None
                if self._queue:
                    job = heapq.heappop(self._queue)
                    self._active[threading.get_ident()] = job[0]
                    return job
                self.lock.wait(0.02)

    def look_around(self) -> None:
        """Stop if the watch says so; report progress."""
        self.watch.report(from_fixed(self.value), from_fixed(self.bound()), self.nodes)
        if (reason := self.watch.stop()) is not None:
            with self.lock:
                self._stopped = reason
                self.lock.notify_all()

    def postpone(self, bound: int, number: int) -> None:
        """Put a region back, with a better bound."""
        with self.lock:
            heapq.heappush(self._queue, (bound, number, True))

    def count(self, nodes: int, ties: int) -> None:
        with self.lock:
            self.nodes += nodes
            self.ties = max(0, self.ties - ties)


@dataclass
class _Region:
    """All points with one numeric weight vector."""

    number: int
    table: NDArray[np.int32]
    offset: int  # cost of the numeric weights
    width: int  # values that the sum of the other squares can take


@dataclass
class _Part:
    """Part of a region, and its dual, put aside."""

    bound: int
    dom_size: IntArray
    dom: IntArray
    phi: IntArray
    kappa: IntArray


class _Worker:
    """One thread's working memory and what it does with a region."""

    def __init__(self, run: _Run, leader: bool) -> None:
        self.run, self.leader, self.shape = run, leader, run.model.shape
        self.dual = bounds.make_dual(self.shape, len(run.costs.radial))
        self.levels = np.zeros(len(self.shape.low), dtype=np.int64)
        self.trial = np.zeros(len(run.low), dtype=np.int64)

    def process(self, bound: int, number: int, swept: bool) -> None:
        """Raise the bound of a region; the second time around, search it."""
        run, model, costs = self.run, self.run.model, self.run.costs
        width = bounds.start(
            self.shape,
            self.dual,
            model.tables[number],
            costs.unary,
            costs.radial,
            int(model.squares[number]),
            run._first,
            run._last,
            model.tilts[int(swept), number],
        )
        run.count(1, 0)
        self.trial[model.cells.numeric] = model.weights[number]
        region = _Region(number, model.tables[number], int(costs.numeric[number]), width)
        if width > 0:
            bound = self._tighten(region, bound, _MORE_SWEEPS if swept else _FIRST_SWEEPS)
            if bound < run.cutoff and swept and not run.over:
                bound = self._explore(region, bound)
            if bound < run.cutoff:
                run.postpone(bound, number)

    def _interrupted(self) -> bool:
        if self.leader:
            self.run.look_around()
        return self.run.over

    def _tighten(self, region: _Region, bound: int, sweeps: int) -> int:
        """A better bound for what the dual holds now; BIG if it is pruned. Looks for points on the way."""
        for s in range(sweeps):
            simple = region.offset + bounds.simple_bound(self.shape, self.dual, region.width)
            slack = self.run.cutoff - simple
            if slack <= 0 or not bounds.sweep(self.shape, self.dual, region.width, slack):
                return bounds.BIG
            joint = bounds.norm_bound(self.shape, self.dual, region.width, self.levels)
            bound = max(bound, region.offset + joint)
            if bound >= self.run.cutoff:
                return bounds.BIG
            if s % 5 == 1:
                self._descend(region)
            if self._interrupted():
                break
        return bound

    def _descend(self, region: _Region) -> None:
        value = region.offset + descend(self.shape, self.dual, region.table, region.width, self.levels)
        if value <= self.run.value:
            self.trial[self.shape.coordinate] = self.shape.low + self.levels
            self.run.offer(value, self.trial)

    def _explore(self, region: _Region, bound: int) -> int:
        """Search a region by trees. A part whose tree grows too large is split, and each half gets a dual of
        its own. Returns a lower bound of what was left undone; BIG if nothing was."""
        parts: list[_Part] = []
        while True:
            if bound < self.run.cutoff:
                bound = self._search(region, bound)
            if self._interrupted():
                return min(bound, *(p.bound for p in parts)) if parts else bound
            if bound < self.run.cutoff:
                parts += self._split(region, bound)
            if not parts:
                return bounds.BIG
            part = parts.pop()
            bound = part.bound
            if bound < self.run.cutoff and self._resume(region, part):
                bound = self._tighten(region, bound, _PART_SWEEPS)

    def _search(self, region: _Region, bound: int) -> int:
        """Search what the dual holds now by one tree; the same returns as ``_explore``."""
        run, shape = self.run, self.shape
        order, leaves = trees.choose_order(shape, self.dual, run.model.rows)
        tree = trees.plant(shape, self.dual, region.table, region.width, order, leaves)
        trees.sprout(shape, self.dual, tree, region.width)
        run.searched += 1
        left = _TREE_NODES if np.any(self.dual.dom_size[order] > 1) else bounds.BIG
        while left > 0:
            with run.lock:
                value, ties = run.value, run.ties
                best = self.trial if run.point is None else run.point
            what, found, nodes, opened = trees.search(
                shape,
                self.dual,
                tree,
                region.width,
                region.offset,
                value,
                best,
                self.trial,
                min(left, _SLICE),
                ties,
            )
            run.count(nodes, opened)
            left -= nodes
            if what == trees.IMPROVED:
                run.offer(found, self.trial)
            if what == trees.DONE:
                return bounds.BIG
            if self._interrupted():
                break
        return max(bound, region.offset + trees.open_bound(tree))

    def _split(self, region: _Region, bound: int) -> list[_Part]:
        """A part for each level of the variable with most rows, the best one last."""
        dual, shape = self.dual, self.shape
        order, _ = trees.choose_order(shape, dual, self.run.model.rows)
        j = int(order[np.argmax(dual.dom_size[order] > 1)])
        whole, parts = self._put_aside(bound), []
        for i in range(int(whole.dom_size[j])):
            part = replace(whole, dom_size=whole.dom_size.copy(), dom=whole.dom.copy())
            part.dom_size[j], part.dom[j, 0] = 1, whole.dom[j, i]
            if self._resume(region, part):
                better = self._tighten(region, bound, _FIRST_SWEEPS)
                if better < self.run.cutoff:
                    parts.append(self._put_aside(better))
        return sorted(parts, key=lambda p: -p.bound)

    def _put_aside(self, bound: int) -> _Part:
        dual = self.dual
        return _Part(bound, dual.dom_size.copy(), dual.dom.copy(), dual.phi.copy(), dual.kappa.copy())

    def _resume(self, region: _Region, part: _Part) -> bool:
        """Take a part up again; False if it is empty."""
        dual = self.dual
        dual.dom_size[:], dual.dom[:], dual.phi[:], dual.kappa[:] = (
            part.dom_size,
            part.dom,
            part.phi,
            part.kappa,
        )
        if not bounds.restrict_to_ball(self.shape, dual, region.width):
            return False
        bounds.load(self.shape, dual, region.table, region.width)
        return True
