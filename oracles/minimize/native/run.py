"""The state that the threads of one search share: the queue of open regions, and the incumbent."""

from __future__ import annotations

import heapq
import threading
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.cells.regions import BIG, Box, CellCosts
from privopt.oracles.certificate import Status
from privopt.oracles.limits import Watch
from privopt.oracles.minimize.native import bounds
from privopt.oracles.minimize.native.model import Model
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.objective import UNIT, from_fixed


@dataclass
class Part:
    """A part of a region that is searched later, with its dual."""

    bound: int
    dom_size: IntArray
    dom: IntArray
    shift: IntArray
    theta: IntArray


@dataclass(order=True)
class Job:
    """A region, or a part of one, with a lower bound."""

    bound: int
    number: int
    swept: bool = False  # whether the region has had its first sweeps
    part: Part | None = field(default=None, compare=False)
    fixed: tuple[int, ...] | None = field(default=None, compare=False)  # levels of a part of a trie


class Run:
    """One search over a box of the lattice, by one thread or several."""

    def __init__(
        self,
        model: Model,
        costs: CellCosts,
        watch: Watch,
        low: IntArray,
        high: IntArray,
        *,
        ties: int = 0,
        any_below: int | None = None,
    ) -> None:
        """Start a search.

        Args:
            ties: how many regions whose bound equals the incumbent's value may be opened, to find a
                lexicographically earlier point.
            any_below: if given, the search stops at the first point with a value below this.
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
        self.duals: dict[int, tuple[NDArray[np.int64], ...]] = {}  # duals of the first tries of regions
        self.flat: set[int] = set()  # regions whose bound a trie does not improve enough
        self._waiting = 0  # number of threads without work
        self._queue = self._regions()

    def _regions(self) -> list[Job]:
        """Return all regions of the box as a heap."""
        model, regions = self.model, self.model.regions
        low, high = self.low[regions.cells.numeric], self.high[regions.cells.numeric]
        index = np.flatnonzero(np.all((regions.weights >= low) & (regions.weights <= high), axis=1))
        offsets = self.costs.numeric[index] + model.least_loss[index] * UNIT
        unary, radial, squares = self.costs.unary, self.costs.radial, regions.squares[index]
        found = bounds.quick_bounds(regions.shape, unary, radial, squares, offsets, *self.box)
        queue = [Job(b, i) for b, i in zip(found.tolist(), index.tolist(), strict=True) if b < BIG]
        heapq.heapify(queue)
        return queue

    @property
    def cutoff(self) -> int:
        """The cutoff: regions with at least this bound are pruned."""
        return self.value + (self.ties > 0)

    def bound(self) -> int:
        """Return a proved lower bound on the minimum over the box."""
        with self.lock:  # so that a region is counted while a thread takes it from the queue
            least = [self.value, *self._active.values()]
            return min(least if not self._queue else [*least, self._queue[0].bound])

    def describe(self) -> str:
        return f"{self.searched} of {len(self.model.regions.weights)} numeric weight vectors searched by tree"

    def offer(self, value: int, point: IntArray) -> None:
        """Replace the incumbent if the point is better, or as good and lexicographically earlier."""
        with self.lock:
            earlier = self.point is None or tuple(point.tolist()) < tuple(self.point.tolist())
            if value < self.value or (value == self.value and self.any_below is None and earlier):
                self.value, self.point = value, np.array(point, dtype=np.int64)
                self.lock.notify_all()

    def outcome(self) -> Status | None:
        """Return the limit that stopped the search, or None; if a thread raised an exception, raise it."""
        if self._error is not None:
            raise self._error
        return self._stopped

    @property
    def over(self) -> bool:
        found = self.any_below is not None and self.point is not None
        return found or self._stopped is not None or self._error is not None

    def take(self, leader: bool) -> Job | None:
        """Take the open region with the lowest bound from the queue; return None if the search is over."""
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

    def settled(self) -> None:
        """Record that this thread no longer works on the region that it took."""
        with self.lock:
            del self._active[threading.get_ident()]
            self.lock.notify_all()

    def fail(self, error: BaseException) -> None:
        with self.lock:
            self._error = self._error or error
            self.lock.notify_all()

    def look_around(self) -> None:
        """Report progress, and stop the search if a limit is reached."""
        self.watch.report(from_fixed(self.value), from_fixed(self.bound()), self.nodes)
        if (reason := self.watch.stop()) is not None:
            with self.lock:
                self._stopped = reason
                self.lock.notify_all()

    def is_next(self, bound: int) -> bool:
        """Return whether no region in the queue has a lower bound than the given one."""
        with self.lock:
            return not self._queue or bound <= self._queue[0].bound

    @property
    def starved(self) -> bool:
        """Whether a thread waits for work and the queue is empty."""
        return self._waiting > 0 and not self._queue

    def postpone(self, job: Job) -> None:
        """Put work into the queue; any thread may take it."""
        with self.lock:
            heapq.heappush(self._queue, job)
            self.lock.notify_all()

    def count(self, nodes: int, ties: int) -> None:
        with self.lock:
            self.nodes += nodes
            self.ties = max(0, self.ties - ties)
