"""The native exact minimiser for scorecards: cells, dual bounds and a tree search, in integers throughout.

The weights of the few numeric columns are enumerated. For each of them, a *region*, the problem over the
indicator weights is a small sum of tables (``regions``). Regions wait in a queue ordered by
lower bound; a region that comes up first gets a better bound (``bounds``), then a tree search
(``search``), until every region is searched or its bound reaches the value of the best point known.
Threads share the queue and that point.
"""

from __future__ import annotations

import heapq
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.cells.regions import (
    BIG,
    Box,
    CellCosts,
    CellModel,
    bound,
    give_to_norm,
    new_region,
    restrict_to_ball,
    update,
    why_not,
)
from privopt.oracles.cells.structure import CellLimits
from privopt.oracles.certificate import Status
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver, refuse_large
from privopt.oracles.minimize.native import bounds as bounds
from privopt.oracles.minimize.native import nested
from privopt.oracles.minimize.native import search as trees
from privopt.oracles.minimize.native.descent import descend, descend_from_many
from privopt.oracles.minimize.native.tries import Tries, make_tries
from privopt.oracles.minimize.order import first_in_order
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation, from_fixed
from privopt.problems.discrete.problem import DiscreteProblem

_TIES = 2000  # opened in the main search before ties are left to the search coordinate by coordinate
_FIRST_SWEEPS, _MORE_SWEEPS, _PART_SWEEPS = 2, 10, 4
_STRONG_TILT, _STRONG_SWEEPS = 7, 20  # of a region whose tree grew too large; binary digits of the tilt
_REPRESENTATIVES = 8  # of the numeric weight vectors, to find out where duals should start
_FIRST_TREE_NODES, _TREE_NODES = 8_000, 16_000  # of one tree, before its region is nested, or split
_FIRST_TREE_WORK = 10_000_000  # nodes times cells; fewer nodes where there are many cells
_WORTH = 20  # a trie is searched if its bound closes one part in so many of the gap
_SLICE, _TRIE_SLICE = 256, 8  # nodes before the first look at the clock and at the other threads
_PASSES, _PART_PASSES = 10, 3  # at most, over a trie before it is searched: of a region, and of a part of one
_TILT_PASSES = 3  # over a trie, to compare tilts
_TILTS, _LEAST_TILT = 10, 14  # of a trie: none, and powers of two from 2^-13 records on
_LEAST_GAIN = UNIT // 4  # of a pass that is not the last one
_PART_NODES = 500  # of a trie, before what is left of it waits for its turn
_DESCENTS, _MORE_DESCENTS = 64, 4  # for a good point before the first trie is searched, and the others
_MOMENT = 0.05  # seconds in a search between two looks at the clock


@dataclass(frozen=True)
class NativeOracle(DiscreteOracle):
    """Exact minimisation for ``ZeroOneHalfspace`` with indicator columns, any linear or radial noise.

    Args:
        limits: sizes beyond which a problem is refused.
        threads: how many to use; None for one per processor.
    """

    name: ClassVar[str] = "native"
    limits: CellLimits = field(default_factory=CellLimits)
    threads: int | None = None

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return why_not(problem, task, self.limits)

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        assert isinstance(problem, ZeroOneHalfspace)  # others are refused
        return self.solver(problem, CellModel.make(problem, task))

    def solver(self, problem: ZeroOneHalfspace, regions: CellModel) -> Solver:
        """``build`` from a cell model that may be shared."""
        _compile()
        model = _Model.make(problem, regions)
        threads = max(1, self.threads or os.cpu_count() or 1)

        def solve(query: Query) -> Proposal:
            return _solve(model, query, threads)

        return solve


def smallest_loss(problem: ZeroOneHalfspace, regions: CellModel, watch: Watch) -> int:
    """The smallest loss over the lattice, proved; ``regions`` may be shared.

    Raises:
        UnfinishedDrawError: a limit came first.
    """
    query = Query(Perturbation.zero(problem.lattice), watch, break_ties=False)
    proposal = NativeOracle().solver(problem, regions)(query)
    if proposal.status is not Status.OPTIMAL or proposal.point is None:
        raise UnfinishedDrawError(
            f"permute-and-flip needs the smallest loss, and the minimiser was stopped by "
            f"{proposal.status.name}: no point was drawn. To do: {proposal.status.value}"
        )
    return problem.loss(proposal.point)


@cache
def _compile() -> None:
    """Have all kernels compiled, or loaded, before a clock runs: one tiny region through everything."""
    lattice = IntegerLattice(-1, 1, dimension=3, radius=1.0)
    problem = ZeroOneHalfspace(np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1]]), np.array([1, -1, 1]), lattice)
    model = _Model.make(problem, CellModel.make(problem, Task.NORMALIZED))
    costs = model.regions.costs(Perturbation.zero(lattice))
    run = _Run(model, costs, Limits().start(), lattice.low, lattice.high)
    run.value = UNIT * problem.largest_loss + 1  # all points are below it: nothing is pruned
    worker = _Worker(run, leader=False)
    worker.start(0, swept=False)
    worker._tighten(0, 2)
    worker._strengthen(0)
    run.value = UNIT * problem.largest_loss + 1
    worker._search(0, _TREE_NODES)
    run.value = UNIT * problem.largest_loss + 1
    worker._offer(*descend_from_many(worker.shape, worker.region, 2))
    run.value = UNIT * problem.largest_loss + 1
    run.duals[0] = nested.dual(model.tries, worker._loaded())
    worker._search_trie(_Job(0, 0, True, fixed=()))


@dataclass(frozen=True)
class _Model:
    """What does not depend on the noise."""

    problem: ZeroOneHalfspace
    regions: CellModel
    least_loss: IntArray  # sum of the minima of the cells, (r,)
    rows: IntArray  # number of records of each variable's level, a search order
    shares: bounds.Shares
    tilts: IntArray  # where the dual starts on the first and second visit of a region, (2, r)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def make(cls, problem: ZeroOneHalfspace, regions: CellModel) -> _Model:
        shape, starts = regions.shape, regions.cells.table_start[:-1]
        least = np.minimum.reduceat(regions.tables, starts, axis=1).sum(axis=1, dtype=np.int64)
        rows = np.bincount(shape.member_var, shape.records[shape.member_factor]).astype(np.int64)
        shares = bounds.make_shares(shape)
        return cls(
            problem, regions, least, rows, shares, _tilts(regions, shares, least, problem.largest_loss)
        )

    @property
    def tries(self) -> Tries:
        """Made when the first region needs them."""
        with self.lock:
            return self._tries

    @cached_property
    def _tries(self) -> Tries:
        return make_tries(self.regions.shape, self.rows)


def _tilts(regions: CellModel, shares: bounds.Shares, least: IntArray, n: int) -> IntArray:
    """Good multipliers of |w|^2 for the problem without noise, after few and after many sweeps.

    They depend on the room that the numeric weights leave in the norm ball more than on anything else: a
    representative, one with a low loss, stands for all with about the same |a|^2.
    """
    shape, squares = regions.shape, regions.squares
    tilts = np.zeros((2, len(squares)), dtype=np.int64)
    if not shape.coupled:
        return tilts
    region, costs = new_region(shape, np.int64), regions.costs(Perturbation.zero(regions.cells.lattice))
    forward, levels = np.zeros_like(region.tables), np.zeros_like(shape.low)
    tried = (0, *(n * UNIT >> digits for digits in range(13, 4, -1)))
    at, distinct = [0, 0], np.unique(squares)
    for part in np.array_split(distinct, min(len(distinct), _REPRESENTATIVES)):
        same = np.flatnonzero((squares >= part[0]) & (squares <= part[-1]))
        number = int(same[np.argmin(least[same])])

        @cache
        def reached(tilt: int, number: int = number) -> tuple[int, int]:
            """The bounds after few and after many sweeps."""
            found = -BIG, -BIG
            if regions.start(region, number, UNIT, costs, regions.all_levels):
                give_to_norm(shape, region, tilt)
                update(shape, region, None)
                sweeps = range(max(_FIRST_SWEEPS, _MORE_SWEEPS))
                low = [bounds.sweep(shape, region, forward, shares, BIG, levels) for _ in sweeps]
                found = low[_FIRST_SWEEPS - 1], low[-1]
            return found

        for stage in range(2):
            at[stage] = climb(at[stage], len(tried), lambda k: reached(tried[k])[stage])  # noqa: B023
            tilts[stage, same] = tried[at[stage]]
    return tilts


def _next_slice(nodes: int, took: float) -> int:
    """How many nodes to search before the next look at the clock, if the last ones took so many seconds."""
    return max(1, min(2 * nodes, int(nodes * _MOMENT / max(took, 1e-6))))


def climb(at: int, size: int, height: Callable[[int], int]) -> int:
    """The first of 0..size - 1, from ``at`` on, that is as high as both its neighbours."""
    while True:
        best = max((at, max(0, at - 1), min(size - 1, at + 1)), key=height)
        if height(best) <= height(at):
            return at
        at = best


def _solve(model: _Model, query: Query, threads: int) -> Proposal:
    perturbation, lattice = query.perturbation, model.problem.lattice
    refuse_large(perturbation, "the native oracle takes", "rescale, or enumerate")
    costs = model.regions.costs(perturbation)
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

        def equal(low: IntArray, high: IntArray) -> tuple[IntArray | None, Status | None]:
            deeper = _Run(model, costs, query.watch, low, high, any_below=run.value + 1)
            stopped = deeper.go(threads)
            run.nodes += deeper.nodes
            return deeper.point, stopped

        run.point, stopped = first_in_order(run.point, run.low, run.high, equal)
        first = stopped is None
    status = stopped or Status.OPTIMAL
    return Proposal(run.point, run.value, status, first, nodes=run.nodes, raw_status=run.describe())


@dataclass
class _Part:
    """Part of a region, and its dual, put aside."""

    bound: int
    dom_size: IntArray
    dom: IntArray
    shift: IntArray
    theta: IntArray


@dataclass(order=True)
class _Job:
    """A region, or a part of one, with a lower bound."""

    bound: int
    number: int
    swept: bool = False  # whether it had its first sweeps
    part: _Part | None = field(default=None, compare=False)
    fixed: tuple[int, ...] | None = field(default=None, compare=False)  # levels of a part of a trie


class _Run:
    """One search over a box of the lattice; several threads may work on it."""

    def __init__(
        self,
        model: _Model,
        costs: CellCosts,
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
        self.value = BIG if any_below is None else any_below
        self.point: IntArray | None = None
        self.nodes = self.searched = 0
        self.lock = threading.Condition()
        self._stopped: Status | None = None
        self._error: BaseException | None = None
        self._active: dict[int, int] = {}  # bounds of the regions that threads are working on
        shape = model.regions.shape
        self.box: Box = low[shape.coordinate] - shape.low, high[shape.coordinate] - shape.low
        self.duals: dict[int, tuple[NDArray[np.int64], ...]] = {}  # of the whole tries of regions
        self.flat: set[int] = set()  # regions that tries do not bound better
        self._waiting = 0  # threads without work
        self._queue = self._regions()

    def _regions(self) -> list[_Job]:
        """All regions of the box as a heap."""
        model, regions = self.model, self.model.regions
        low, high = self.low[regions.cells.numeric], self.high[regions.cells.numeric]
        index = np.flatnonzero(np.all((regions.weights >= low) & (regions.weights <= high), axis=1))
        offsets = self.costs.numeric[index] + model.least_loss[index] * UNIT
        out, squares = np.empty(len(index), dtype=np.int64), regions.squares[index]
        bounds.quick_bounds(
            regions.shape, self.costs.unary, self.costs.radial, squares, offsets, *self.box, out
        )
        queue = [_Job(b, i) for b, i in zip(out.tolist(), index.tolist(), strict=True) if b < BIG]
        heapq.heapify(queue)
        return queue

    @property
    def cutoff(self) -> int:
        """Only values below this are of interest."""
        return self.value + (self.ties > 0)

    def bound(self) -> int:
        """A proved lower bound on the minimum over the box."""
        with self.lock:  # a region on its way from the queue to a thread must not be missed
            least = [self.value, *self._active.values()]
            return min(least if not self._queue else [*least, self._queue[0].bound])

    def describe(self) -> str:
        return f"{self.searched} of {len(self.model.regions.weights)} numeric weight vectors searched by tree"

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
                worker.process(job)
                with self.lock:
                    del self._active[threading.get_ident()]
                    self.lock.notify_all()
        except BaseException as error:
            with self.lock:
                self._error = self._error or error
                self.lock.notify_all()

    def _next(self, leader: bool) -> _Job | None:
        """The open region with the lowest bound; None when there is nothing left to do."""
        while True:
            if leader:
                self.look_around()
            with self.lock:
                if self._queue and self._queue[0].bound >= self.cutoff:
                    self._queue.clear()
                if self.over or not (self._queue or self._active):
                    self.lock.notify_all()
                    return None
                if self._queue:
                    job = heapq.heappop(self._queue)
                    self._active[threading.get_ident()] = job.bound
                    return job
                self._waiting += 1
                self.lock.wait(0.02)
                self._waiting -= 1

    def look_around(self) -> None:
        """Stop if the watch says so; report progress."""
        self.watch.report(from_fixed(self.value), from_fixed(self.bound()), self.nodes)
        if (reason := self.watch.stop()) is not None:
            with self.lock:
                self._stopped = reason
                self.lock.notify_all()

    def is_next(self, bound: int) -> bool:
        """Whether no region that waits has a lower bound."""
        with self.lock:
            return not self._queue or bound <= self._queue[0].bound

    @property
    def starved(self) -> bool:
        """Whether a thread waits for work and there is none."""
        return self._waiting > 0 and not self._queue

    def postpone(self, job: _Job) -> None:
        """Put work aside, for any thread."""
        with self.lock:
            heapq.heappush(self._queue, job)
            self.lock.notify_all()

    def count(self, nodes: int, ties: int) -> None:
        with self.lock:
            self.nodes += nodes
            self.ties = max(0, self.ties - ties)


class _Worker:
    """One thread's working memory and what it does with a region."""

    def __init__(self, run: _Run, leader: bool) -> None:
        self.run, self.leader, self.shape = run, leader, run.model.regions.shape
        self.region = new_region(self.shape, np.int64)
        self.forward = np.zeros_like(self.region.tables)
        self.state: nested.State | None = None
        self.tilt = 0  # of the trie at hand, by number
        self.levels = np.zeros(len(self.shape.low), dtype=np.int64)
        self.trial = np.zeros(len(run.low), dtype=np.int64)

    def process(self, job: _Job) -> None:
        """Raise the bound of a region; the second time around, search it."""
        run, low = self.run, job.bound
        run.count(1, 0)
        if not self.start(job.number, job.swept) or not (job.part is None or self._resume(job.part)):
            return
        if job.fixed is not None:
            self._search_trie(job)
            return
        if run.duals and self._nested(low, job.number):  # other regions were left to tries
            return
        low = self._tighten(low, _MORE_SWEEPS if job.swept else _FIRST_SWEEPS)
        if low < run.cutoff and job.swept and not run.over:
            low = self._explore(low, job)
        if low < run.cutoff:
            run.postpone(_Job(low, job.number, True, job.part))

    def start(self, number: int, swept: bool) -> bool:
        """Set up the region of one numeric weight vector; False if it is empty.

        Without noise all min-marginals are level and sweeps cannot start: a tilt gets them going.
        """
        regions = self.run.model.regions
        if not regions.start(self.region, number, UNIT, self.run.costs, self.run.box):
            return False
        give_to_norm(self.shape, self.region, self.run.model.tilts[int(swept), number])
        update(self.shape, self.region, None)
        self.trial[regions.cells.numeric] = regions.weights[number]
        return True

    def _interrupted(self) -> bool:
        if self.leader:
            self.run.look_around()
        return self.run.over

    def _tighten(self, low: int, sweeps: int) -> int:
        """A better bound for the region at hand; BIG if it is pruned. Looks for points on the way."""
        shape, region = self.shape, self.region
        for s in range(sweeps):
            cutoff, shares = self.run.cutoff, self.run.model.shares
            low = max(low, bounds.sweep(shape, region, self.forward, shares, cutoff, self.levels))
            if low >= self.run.cutoff:
                return BIG
            if s % 5 == 1:
                self._descend()
            if self._interrupted():
                break
        return low

    def _descend(self) -> None:
        self._offer(descend(self.shape, self.region, self.levels), self.levels)

    def _offer(self, value: int, levels: IntArray) -> None:
        if value <= self.run.value:
            self.trial[self.shape.coordinate] = self.shape.low + levels
            self.run.offer(value, self.trial)

    def _explore(self, low: int, job: _Job) -> int:
        """Search the region at hand by trees over stars of cells. If one grows too large, the region is left
        to tries if these bound it better; if not, it gets a stronger dual, and is split, and idle threads are
        given parts. Returns a lower bound of what was left undone; BIG if nothing was."""
        parts: list[_Part] = []
        strong = job.part is not None
        while True:
            if low < self.run.cutoff:
                first = min(_FIRST_TREE_NODES, _FIRST_TREE_WORK // max(1, self.shape.cells))
                low = self._search(low, _TREE_NODES if strong else first)
            if self._interrupted():
                return min(low, *(p.bound for p in parts)) if parts else low
            if low < self.run.cutoff and not strong:
                if self._nested(low, job.number):
                    return int(BIG)
                low, strong = self._strengthen(low), True
                if not self.run.is_next(low):
                    return low
                continue
            if low < self.run.cutoff:
                parts += self._split(low)
            if not parts:
                return BIG
            while len(parts) > 1 and self.run.starved:
                self.run.postpone(_Job(parts[0].bound, job.number, True, parts.pop(0)))
            part = parts.pop()
            low = part.bound
            if low < self.run.cutoff and self._resume(part):
                low = self._tighten(low, _PART_SWEEPS)

    def _strengthen(self, low: int) -> int:
        """A new dual from a tilt that lets most levels be dropped: trees need that more than a bound."""
        n, low = self.run.model.problem.largest_loss, max(low, bound(self.shape, self.region))
        self.region.shift[:] = 0
        give_to_norm(self.shape, self.region, n * UNIT >> _STRONG_TILT)
        update(self.shape, self.region, None)
        return self._tighten(low, _STRONG_SWEEPS)

    def _nested(self, low: int, number: int) -> bool:
        """Leave the region at hand to tries, with a dual for all its parts, if they are worth it."""
        run = self.run
        if number in run.flat:
            return False
        descents = _MORE_DESCENTS if run.duals else _DESCENTS
        self._offer(*descend_from_many(self.shape, self.region, descents))
        found = self._raised(number)
        if found - low < (run.value - low) // _WORTH and not run.over:
            run.flat.add(number)
            return False
        if found < run.cutoff:
            assert self.state is not None
            run.duals[number] = nested.dual(run.model.tries, self.state)
            run.postpone(_Job(max(low, found), number, True, fixed=()))
        return True

    def _raised(self, number: int) -> int:
        """The bound of a region's trie after some passes; BIG if it is pruned.

        The best tilt after a few passes is looked for near that of the region before.
        """
        tries, duals = self.run.model.tries, dict[int, nested.Dual]()

        @cache
        def reached(at: int) -> int:
            tilt = self.run.model.problem.largest_loss * UNIT >> _LEAST_TILT - at if at > 0 else 0
            state = self._loaded(tilt)
            found = self._passes(state, _TILT_PASSES)
            duals[at] = nested.dual(tries, state)
            return found

        self.tilt = climb(self.tilt, _TILTS if self.shape.coupled else 1, reached)
        if reached(self.tilt) >= self.run.cutoff:
            return int(BIG)
        assert self.state is not None
        nested.resume(tries, self.state, duals[self.tilt], np.zeros(0, dtype=np.int64))
        return max(reached(self.tilt), self._passes(self.state, _PASSES))

    def _passes(self, state: nested.State, most: int) -> int:
        """The bound of a trie after so many passes, fewer if they gain little; BIG if it is pruned."""
        found = -int(BIG)
        for number in range(most):
            before, found = found, nested.enter(self.run.model.tries, state, 0, 1, self.run.cutoff)
            if found >= self.run.cutoff:
                return int(BIG)
            if number % 5 == 1:
                self._improve(state.level)
            if self._interrupted() or found - before < _LEAST_GAIN:
                break
        return max(before, found)

    def _loaded(self, tilt: int = 0) -> nested.State:
        if self.state is None:
            self.state = nested.new_state(self.run.model.tries, len(self.run.costs.radial))
        nested.load(self.shape, self.region, self.run.model.tries, self.state, tilt)
        return self.state

    def _improve(self, level: IntArray) -> None:
        """Descend from a point of a trie, if it is one of the norm ball."""
        self.levels[self.run.model.tries.order] = level
        shape = self.shape
        if shape.squares[np.arange(len(level)), self.levels].sum() < self.region.width[0]:
            self._descend()

    def _search_trie(self, job: _Job) -> None:
        """Search a part of a region by tries; what is left after a while waits for its turn."""
        run, state, tries = self.run, self._loaded(), self.run.model.tries
        assert job.fixed is not None
        nested.resume(tries, state, run.duals[job.number], np.array(job.fixed, dtype=np.int64))
        depth = len(job.fixed)
        if depth == tries.last:
            if (value := nested.settle(tries, state, depth)) <= run.value:
                self.trial[tries.coordinate] = tries.low + state.level
                run.offer(value, self.trial)
            return
        if nested.enter(tries, state, depth, _PART_PASSES, run.cutoff) >= run.cutoff:
            return
        self._improve(state.level)
        left, slice_ = _PART_NODES, _TRIE_SLICE
        while left > 0:
            with run.lock:
                value, ties = run.value, run.ties
                best = self.trial if run.point is None else run.point
            began = time.perf_counter()
            what, found, expanded, opened = nested.search(
                tries, state, value, best, self.trial, min(left, slice_), ties
            )
            slice_ = _next_slice(slice_, time.perf_counter() - began)
            run.count(expanded, opened)
            left -= expanded
            if what == nested.IMPROVED:
                run.offer(found, self.trial)
                self._improve(state.level)
            if what == nested.DONE:
                return
            if self._interrupted() or run.starved:
                break
        for low, levels in nested.what_is_left(tries, state, job.fixed):
            if low < run.cutoff:
                run.postpone(_Job(max(low, job.bound), job.number, True, fixed=levels))

    def _search(self, low: int, nodes: int) -> int:
        """Search the region at hand by one tree; the same returns as ``_explore``."""
        run, shape, region = self.run, self.shape, self.region
        order, leaves = trees.choose_order(shape, region, run.model.rows)
        tree = trees.plant(shape, region, order, leaves)
        trees.sprout(shape, region, tree)
        run.searched += 1
        left, slice_ = nodes if np.any(region.dom_size[order] > 1) else BIG, _SLICE
        while left > 0:
            with run.lock:
                value, ties = run.value, run.ties
                best = self.trial if run.point is None else run.point
            began = time.perf_counter()
            what, found, expanded, opened = trees.search(
                shape, region, tree, value, best, self.trial, min(left, slice_), ties
            )
            slice_ = _next_slice(slice_, time.perf_counter() - began)
            run.count(expanded, opened)
            left -= expanded
            if what == trees.IMPROVED:
                run.offer(found, self.trial)
            if what == trees.DONE:
                return BIG
            if self._interrupted():
                break
        return max(low, int(region.constant[0]) + trees.open_bound(tree))

    def _split(self, low: int) -> list[_Part]:
        """A part for each level of the variable with most rows, the best one last."""
        region = self.region
        order, _ = trees.choose_order(self.shape, region, self.run.model.rows)
        j = int(order[np.argmax(region.dom_size[order] > 1)])
        whole, parts = self._put_aside(low), []
        for i in range(int(whole.dom_size[j])):
            part = replace(whole, dom_size=whole.dom_size.copy(), dom=whole.dom.copy())
            part.dom_size[j], part.dom[j, 0] = 1, whole.dom[j, i]
            if self._resume(part):
                better = self._tighten(low, _FIRST_SWEEPS)
                if better < self.run.cutoff:
                    parts.append(self._put_aside(better))
        return sorted(parts, key=lambda p: -p.bound)

    def _put_aside(self, low: int) -> _Part:
        region = self.region
        return _Part(low, region.dom_size.copy(), region.dom.copy(), region.shift.copy(), region.theta.copy())

    def _resume(self, part: _Part) -> bool:
        """Take a part up again; False if it is empty."""
        region = self.region
        region.dom_size[:], region.dom[:] = part.dom_size, part.dom
        region.shift[:], region.theta[:] = part.shift, part.theta
        if not restrict_to_ball(self.shape, region):
            return False
        update(self.shape, region, None)
        return True
