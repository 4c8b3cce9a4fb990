"""The work of a search thread on a region: bounds, tree search, search over tries."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from privopt.oracles.cells.compiling import announced
from privopt.oracles.cells.regions import (
    BIG,
    CellModel,
    new_region,
    restrict_to_ball,
    start_dual,
    update,
)
from privopt.oracles.certificate import Status
from privopt.oracles.limits import Limits, awaited
from privopt.oracles.minimize.native import bounds, nested
from privopt.oracles.minimize.native import search as trees
from privopt.oracles.minimize.native.descent import descend, descend_from_many
from privopt.oracles.minimize.native.model import FIRST_SWEEPS, MORE_SWEEPS, Model, climb
from privopt.oracles.minimize.native.run import Job, Part, Run
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation

_PART_SWEEPS = 4
# When a tree is too large: the tilt, 2^-7 of the largest loss, and the number of sweeps.
_STRONG_TILT, _STRONG_SWEEPS = 7, 20
# Largest number of nodes of the first tree of a region, and of later trees.
_FIRST_TREE_NODES, _TREE_NODES = 8_000, 16_000
_FIRST_TREE_WORK = 10_000_000  # limit on nodes times cells of the first tree
_WORTH = 20  # a trie is searched if its bound closes at least 1 / _WORTH of the gap
_SLICE, _TRIE_SLICE = 256, 8  # nodes before the first check of the clock and of the other threads
# Largest number of passes over a trie before the search of a whole region, and of a part of a region.
_PASSES, _PART_PASSES = 10, 3
_TILT_PASSES = 3  # passes over a trie to compare tilts
_TILTS, _LEAST_TILT = 10, 14  # tilts of a trie: 0, and the largest loss times 2^-13, 2^-12, ...
_LEAST_GAIN = UNIT // 4  # passes end when one raises the bound by less than this
_PART_NODES = 500  # nodes of a trie before its open nodes return to the queue
_DESCENTS, _MORE_DESCENTS = 64, 4  # descents before the first search of a trie, and before later searches
_MOMENT = 0.05  # seconds of search between two checks of the clock
_COMPILING = threading.Lock()  # one thread compiles and logs a line; other threads wait
_NOTHING_IS_PRUNED = UNIT * 4 + 1  # above the value of every point of the tiny region, with its three records


def go(run: Run, threads: int) -> Status | None:
    """Search to the end or until a limit; return the status of the limit, or None if none was reached."""
    helpers = [threading.Thread(target=_work, args=(run, False), daemon=True) for _ in range(threads - 1)]
    for helper in helpers:
        helper.start()
    _work(run, True)
    for helper in helpers:
        helper.join()
    return run.outcome()


def _work(run: Run, leader: bool) -> None:
    """Process regions until the search is over. The leader, the thread of the caller, also checks limits."""
    try:
        worker = Worker(run, leader)
        while (job := run.take(leader)) is not None:
            worker.process(job)
            run.settled()
    except BaseException as error:
        run.fail(error)


@cache
@announced("the exact solver")
def compile_kernels() -> None:
    """Compile the kernels of every solve (or load them from the cache), before a search begins."""
    compile_bounds()
    worker = _on_a_tiny_region()
    worker._tighten(0, 1)
    worker.run.value = _NOTHING_IS_PRUNED
    worker._search(0, _TREE_NODES)


@cache
def compile_bounds() -> None:
    """Compile the kernels of bounds and descents."""
    worker = _on_a_tiny_region()
    worker._tighten(0, 2)
    descend_from_many(worker.shape, worker.region, 1)


@cache
def compile_tries() -> None:
    """Compile the kernels of tries. This is done when a solve first needs them, which few solves do."""
    with _COMPILING, announced("the search over tries"):
        worker = _on_a_tiny_region()
        worker.run.duals[0] = nested.dual(worker.run.model.tries, worker._loaded())
        worker._search_trie(Job(0, 0, True, fixed=()))


def _on_a_tiny_region() -> Worker:
    lattice = IntegerLattice(-1, 1, dimension=3, radius=1.0)
    problem = ZeroOneHalfspace(np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1]]), np.array([1, -1, 1]), lattice)
    model = Model.make(problem, CellModel.make(problem, Task.NORMALIZED))
    costs = model.regions.costs(Perturbation.zero(lattice))
    run = Run(model, costs, Limits().start(), lattice.low, lattice.high)
    run.value = _NOTHING_IS_PRUNED
    worker = Worker(run, leader=False)
    worker.start(0, swept=False)
    return worker


class Worker:
    """A thread's working memory and its operations on a region."""

    def __init__(self, run: Run, leader: bool) -> None:
        self.run, self.leader, self.shape = run, leader, run.model.regions.shape
        self.region = new_region(self.shape, np.int64)
        self.forward = np.zeros_like(self.region.tables)
        self.state: nested.State | None = None
        self.tilt = 0  # number of the tilt of the current trie
        self.levels = np.zeros(len(self.shape.low), dtype=np.int64)
        self.trial = np.zeros(len(run.low), dtype=np.int64)

    def process(self, job: Job) -> None:
        """Improve the bound of a region on its first turn; search the region on its second turn."""
        run, low = self.run, job.bound
        run.count(1, 0)
        if not self.start(job.number, job.swept) or not (job.part is None or self._resume(job.part)):
            return
        if job.fixed is not None:
            self._search_trie(job)
            return
        if run.duals and self._nested(low, job.number):  # tries were better for other regions
            return
        low = self._tighten(low, MORE_SWEEPS if job.swept else FIRST_SWEEPS)
        if low < run.cutoff and job.swept and not run.over:
            low = self._explore(low, job)
        if low < run.cutoff:
            run.postpone(Job(low, job.number, True, job.part))

    def start(self, number: int, swept: bool) -> bool:
        """Set up the region of one numeric weight vector; return False if it is empty.

        Without noise all min-marginals are equal and sweeps make no progress; a tilt makes them different.
        """
        regions = self.run.model.regions
        if not regions.start(self.region, number, UNIT, self.run.costs, self.run.box):
            return False
        start_dual(self.shape, self.region, self.run.model.tilts[int(swept), number])
        self.trial[regions.cells.numeric] = regions.weights[number]
        return True

    def _interrupted(self) -> bool:
        if self.leader:
            self.run.look_around()
        return self.run.over

    def _tighten(self, low: int, sweeps: int) -> int:
        """Improve and return the bound of the current region, BIG if it is pruned; offer the points found."""
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

    def _explore(self, low: int, job: Job) -> int:
        """Search the current region by trees with star bounds.

        If a tree becomes too large and a trie gives a better bound, the region is queued for a search by
        tries. Otherwise the region gets a stronger dual and is split, and parts of it are queued for idle
        threads. Returns a lower bound for the parts that are neither searched nor queued; BIG if there are
        none.
        """
        parts: list[Part] = []
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
                self.run.postpone(Job(parts[0].bound, job.number, True, parts.pop(0)))
            part = parts.pop()
            low = part.bound
            if low < self.run.cutoff and self._resume(part):
                low = self._tighten(low, _PART_SWEEPS)

    def _strengthen(self, low: int) -> int:
        """Recompute the dual from a tilt that drops most levels, which helps the tree search."""
        start_dual(self.shape, self.region, self.run.model.problem.largest_loss * UNIT >> _STRONG_TILT)
        return self._tighten(low, _STRONG_SWEEPS)

    def _nested(self, low: int, number: int) -> bool:
        """Queue the current region for a search by tries if their bound is enough better.

        Returns whether the region is done with here: queued, or pruned by the bound of its trie.
        """
        run = self.run
        if number in run.flat:
            return False
        if not awaited(compile_tries, self._interrupted).done():
            run.postpone(Job(low, number, True))
            return True
        descents = _MORE_DESCENTS if run.duals else _DESCENTS
        self._offer(*descend_from_many(self.shape, self.region, descents))
        found = self._raised(number)
        if found - low < (run.value - low) // _WORTH and not run.over:
            run.flat.add(number)
            return False
        if found < run.cutoff:
            assert self.state is not None
            run.duals[number] = nested.dual(run.model.tries, self.state)
            run.postpone(Job(max(low, found), number, True, fixed=()))
        return True

    def _raised(self, number: int) -> int:
        """Return the bound of a region's trie after some passes; BIG if it is pruned.

        The passes begin with the tilt whose bound after a few passes is best. It is found by climbing from
        the tilt of the previous region.
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
        """Make passes over a trie until they gain little, and return its bound; BIG if it is pruned."""
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
        """Descend from a point found on a trie, if the point is in the norm ball."""
        self.levels[self.run.model.tries.order] = level
        shape = self.shape
        if shape.squares[np.arange(len(level)), self.levels].sum() < self.region.width[0]:
            self._descend()

    def _search_trie(self, job: Job) -> None:
        """Search a part of a region by tries; after some nodes, put the open nodes into the queue."""
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
        for what in self._slices(partial(nested.search, tries, state), _PART_NODES, _TRIE_SLICE):
            if what == nested.IMPROVED:
                self._improve(state.level)
            if what == nested.DONE:
                return
            if self._interrupted() or run.starved:
                break
        for low, levels in nested.what_is_left(tries, state, job.fixed):
            if low < run.cutoff:
                run.postpone(Job(max(low, job.bound), job.number, True, fixed=levels))

    def _search(self, low: int, nodes: int) -> int:
        """Search the current region by one tree; return a lower bound for the rest, BIG if there is none."""
        run, shape, region = self.run, self.shape, self.region
        order, leaves = trees.choose_order(shape, region, run.model.rows)
        tree = trees.plant(shape, region, order, leaves)
        run.searched += 1
        most = nodes if np.any(region.dom_size[order] > 1) else BIG
        for what in self._slices(partial(trees.search, shape, region, tree), most, _SLICE):
            if what == trees.DONE:
                return BIG
            if self._interrupted():
                break
        return max(low, int(region.constant[0]) + trees.open_bound(tree))

    def _slices(self, search: Callable[..., Any], nodes: int, size: int) -> Iterator[int]:
        """Run a search in slices up to a number of nodes, and yield the result of each."""
        run = self.run
        while nodes > 0:
            with run.lock:
                value, ties = run.value, run.ties
                best = self.trial if run.point is None else run.point
            began = time.perf_counter()
            what, found, expanded, opened = search(value, best, self.trial, min(nodes, size), ties)
            size = _next_slice(size, time.perf_counter() - began)
            run.count(expanded, opened)
            nodes -= expanded
            if what == trees.IMPROVED:
                run.offer(found, self.trial)
            yield what

    def _split(self, low: int) -> list[Part]:
        """Split the region into a part for each level of its free variable with most rows, the best last."""
        region = self.region
        order, _ = trees.choose_order(self.shape, region, self.run.model.rows)
        j = int(order[np.argmax(region.dom_size[order] > 1)])
        whole, parts = self._put_aside(low), []
        for i in range(int(whole.dom_size[j])):
            part = replace(whole, dom_size=whole.dom_size.copy(), dom=whole.dom.copy())
            part.dom_size[j], part.dom[j, 0] = 1, whole.dom[j, i]
            if self._resume(part):
                better = self._tighten(low, FIRST_SWEEPS)
                if better < self.run.cutoff:
                    parts.append(self._put_aside(better))
        return sorted(parts, key=lambda p: -p.bound)

    def _put_aside(self, low: int) -> Part:
        region = self.region
        return Part(low, region.dom_size.copy(), region.dom.copy(), region.shift.copy(), region.theta.copy())

    def _resume(self, part: Part) -> bool:
        """Make a part the current region; return False if it is empty."""
        region = self.region
        region.dom_size[:], region.dom[:] = part.dom_size, part.dom
        region.shift[:], region.theta[:] = part.shift, part.theta
        if not restrict_to_ball(self.shape, region):
            return False
        update(self.shape, region, None)
        return True


def _next_slice(nodes: int, took: float) -> int:
    """Return the number of nodes before the next check of the clock, if the last ``nodes`` took ``took``."""
    return max(1, min(2 * nodes, int(nodes * _MOMENT / max(took, 1e-6))))
