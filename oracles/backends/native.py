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
from dataclasses import dataclass, field
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
from privopt.oracles.interface import DiscreteOracle, Proposal, Query, Solver, Task, Watch
from privopt.problems.discrete import DiscreteProblem
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.lattice import IntArray
from privopt.problems.objective import UNIT, Perturbation, from_fixed

_LARGEST_COST = 1 << 52  # of a perturbation; leaves room for sums with the stand-in for infinity
_TIES = 2000  # opened in the main search before ties are left to the search coordinate by coordinate
_FIRST_SWEEPS, _MORE_SWEEPS = 2, 20
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
        model = _Model.make(problem, _coupled(problem, task))
        threads = max(1, self.threads or os.cpu_count() or 1)

        def solve(query: Query) -> Proposal:
            return _solve(model, query, threads)

        return solve


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
        return cls(problem, cells, weights, squares, tables, least, rows, shape)


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
        self._lock = threading.Condition()
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
        with self._lock:
            earlier = self.point is None or tuple(point.tolist()) < tuple(self.point.tolist())
            if value < self.value or (value == self.value and self.any_below is None and earlier):
                self.value, self.point = value, np.array(point, dtype=np.int64)
                self._lock.notify_all()

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
    def _over(self) -> bool:
        found = self.any_below is not None and self.point is not None
        return found or self._stopped is not None or self._error is not None

    def _work(self, leader: bool) -> None:
        """What each thread does. The leader, the caller's own thread, also watches the clock."""
        try:
            worker = _Worker(self, leader)
            while (job := self._next(leader)) is not None:
                worker.process(*job)
                with self._lock:
                    del self._active[threading.get_ident()]
                    self._lock.notify_all()
        except BaseException as error:
            with self._lock:
                self._error = self._error or error
                self._lock.notify_all()

    def _next(self, leader: bool) -> tuple[int, int, bool] | None:
        """The open region with the lowest bound; None when there is nothing left to do."""
        while True:
            if leader:
                self.look_around()
            with self._lock:
                if self._queue and self._queue[0][0] >= self.cutoff:
                    self._queue.clear()
                if self._over or not (self._queue or self._active):
                    self._lock.notify_all()
                    return None
                if self._queue:
                    job = heapq.heappop(self._queue)
                    self._active[threading.get_ident()] = job[0]
                    return job
                self._lock.wait(0.02)

    def look_around(self) -> None:
        """Stop if the watch says so; report progress."""
        self.watch.report(from_fixed(self.value), from_fixed(self.bound()), self.nodes)
        if (reason := self.watch.stop()) is not None:
            with self._lock:
                self._stopped = reason
                self._lock.notify_all()

    def postpone(self, bound: int, number: int) -> None:
        """Put a region back, with a better bound."""
        with self._lock:
            heapq.heappush(self._queue, (bound, number, True))

    def count(self, nodes: int, ties: int) -> None:
        with self._lock:
            self.nodes += nodes
            self.ties = max(0, self.ties - ties)


class _Worker:
    """One thread's working memory and what it does with a region."""

    def __init__(self, run: _Run, leader: bool) -> None:
        self.run, self.leader = run, leader
        self.dual = bounds.make_dual(run.model.shape, len(run.costs.radial))
        self.levels = np.zeros(len(run.model.shape.low), dtype=np.int64)
        self.trial = np.zeros(len(run.low), dtype=np.int64)

    def process(self, bound: int, number: int, swept: bool) -> None:
        """Raise the bound of a region; the second time around, search it."""
        run, dual = self.run, self.dual
        model, costs = run.model, run.costs
        shape, table, offset = model.shape, model.tables[number], int(costs.numeric[number])
        square = int(model.squares[number])
        width = bounds.start(shape, dual, table, costs.unary, costs.radial, square, run._first, run._last)
        run.count(1, 0)
        if width == 0:
            return None
        self.trial[model.cells.numeric] = model.weights[number]
        for s in range(_MORE_SWEEPS if swept else _FIRST_SWEEPS):
            slack = run.cutoff - offset - bounds.simple_bound(shape, dual, width)
            if slack <= 0 or not bounds.sweep(shape, dual, width, slack):
                return None
            bound = max(bound, offset + bounds.norm_bound(shape, dual, width, self.levels))
            if bound >= run.cutoff:
                return None
            if s % 5 == 1:
                self._descend(table, width, offset)
            if self._interrupted():
                return run.postpone(bound, number)
        if not swept:
            return run.postpone(bound, number)
        return self._search(table, width, offset, bound, number)

    def _interrupted(self) -> bool:
        if self.leader:
            self.run.look_around()
        return self.run._over

    def _descend(self, table: NDArray[np.int32], width: int, offset: int) -> None:
        shape = self.run.model.shape
        value = offset + descend(shape, self.dual, table, width, self.levels)
        if value <= self.run.value:
            self.trial[shape.coordinate] = shape.low + self.levels
            self.run.offer(value, self.trial)

    def _search(self, table: NDArray[np.int32], width: int, offset: int, bound: int, number: int) -> None:
        run, dual, shape = self.run, self.dual, self.run.model.shape
        order, leaves = trees.choose_order(shape, dual, run.model.rows)
        tree = trees.plant(shape, dual, table, width, order, leaves)
        trees.sprout(shape, dual, tree, width)
        run.searched += 1
        while True:
            with run._lock:
                value, ties = run.value, run.ties
                best = self.trial if run.point is None else run.point
            what, found, nodes, opened = trees.search(
                shape, dual, tree, width, offset, value, best, self.trial, _SLICE, ties
            )
            run.count(nodes, opened)
            if what == trees.IMPROVED:
                run.offer(found, self.trial)
            if what == trees.DONE:
                return None
            if self._interrupted():
                return run.postpone(max(bound, offset + trees.open_bound(tree)), number)
