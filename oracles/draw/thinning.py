"""Exact sampling by Poisson thinning: the arrivals of a region have too high a rate, and some are rejected.

Each point has a Poisson process (``privopt.oracles.draw.arrivals``) whose rate is its mass, exp(-beta L). A
region has a Poisson process whose rate is an upper bound on its mass. Each arrival at a region is assigned to
one of its points or rejected, in such a way that the processes of the points result (Lewis and Shedler 1979).
A region with many rejections gets a better bound, or is split: its current arrival is assigned to one of the
children in proportion to their bounds, or rejected. So the first accepted arrival is an exact Gibbs draw for
any valid bounds; loose bounds cost time only.

Rates differ by thousands of orders of magnitude, and regions with loose bounds have very early arrivals. So
times and rates are decimal numbers, whose exponents do not overflow, and no unit of time has to be chosen.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from privopt.oracles.draw.arrivals import Arrivals
from privopt.oracles.draw.interface import DrawRequest, RandomSource, exponentials, race, stop_if_asked
from privopt.oracles.draw.mass_bounds import DRAWN, OUT_OF_BITS, Words
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Watch
from privopt.problems.discrete.lattice import IntArray

# Number of rejected arrivals after which a region is tuned or split.
TRIES = 100
# Tuning stops when log(rate times current time) is this: the next arrival is then expected at about e^6 times
# the current time.
_QUIET = -6.0
# With more digits than a double, the rounding of times is negligible beside the rounding of waiting times.
_DECIMAL = Context(prec=20, Emax=MAX_EMAX, Emin=MIN_EMIN)

Tables = TypeVar("Tables")


@dataclass(eq=False)
class Node(Generic[Tables]):
    """A region of the frontier. Its tables are made at its first arrival."""

    numeric: int
    levels: tuple[int, ...]  # levels of the fixed variables, in search order
    log_bound: float
    parent: Tables | None
    region: Tables | None = None
    tries: int = 0  # rejected arrivals since the last tuning
    steps: int = 0  # steps of tuning so far
    tuned: bool = False  # whether further tuning gains too little
    _rate: Decimal | None = None

    @property
    def holds_tables(self) -> bool:
        """Whether the node has tables: its own, or the tables of its parent, which its siblings share."""
        return self.region is not None or self.parent is not None

    @property
    def rate(self) -> Decimal:
        """The rate of the Poisson process of the region, exp(log_bound)."""
        if self._rate is None:
            self._rate = _DECIMAL.exp(Decimal(self.log_bound))
        return self._rate

    def tighten(self, log_bound: float) -> float:
        """Set a new bound, and return the decrease of its log."""
        before, self.log_bound, self._rate = self.log_bound, log_bound, None
        return max(0.0, before - log_bound)  # the difference is negative only by rounding


class Bounds(Protocol[Tables]):
    """Regions of a problem and bounds on their masses, at one inverse temperature.

    Attributes:
        beta: the inverse temperature.
        depth: the number of fixed levels at which a region is a single point and its bound is exact.
        words: the number of random words to request at once, which is enough for one proposal.
        most: the largest number of regions of the frontier that may have tables.
    """

    beta: float
    depth: int
    words: int
    most: int

    def roots(self, watch: Watch) -> list[Node[Tables]]:
        """Return regions that cover the lattice, with coarse bounds."""

    def open(self, node: Node[Tables]) -> float:
        """Make the tables of a region, and return the log of its bound, which must not increase."""

    def tune(self, node: Node[Tables], enough: float) -> float:
        """Improve the bound, no further than to a log of ``enough``, and return its log.

        ``node.tuned`` is set if further tuning would gain too little.
        """

    def children(self, node: Node[Tables]) -> list[Node[Tables]]:
        """Split an open region of several points; the bounds of the parts must sum to at most its bound."""

    def propose(
        self,
        node: Node[Tables],
        words: Words,
        cursor: int,
        elapsed: float,
        horizon: float,
        tries: int,
        levels: IntArray,
    ) -> tuple[int, int, float, int]:
        """Assign arrivals at an open region to points; see ``mass_bounds.propose``."""

    def point(self, node: Node[Tables], levels: IntArray) -> IntArray:
        """Return the point of a region with these levels."""


class ThinnedArrivals(Arrivals, Generic[Tables]):
    """Arrivals of one draw by Poisson thinning, from time 0 on.

    Args:
        bounds: regions and bounds of the problem, at the inverse temperature of the request.
        request: the random source and the limits.
        frontier: regions that cover the lattice, perhaps from an earlier draw.
        log_unit: the log of the unit of mass: a point of this mass has one arrival on average in one unit of
            the times that ``next`` returns.
        allowed: returns whether a point is in the domain. Arrivals at other points are rejected.
    """

    def __init__(
        self,
        bounds: Bounds[Tables],
        request: DrawRequest,
        frontier: list[Node[Tables]],
        log_unit: float,
        allowed: Callable[[IntArray], bool] = lambda point: True,
    ) -> None:
        self._allowed = allowed
        self._bounds, self._random, self._watch = bounds, request.random, request.watch
        self._unit = _DECIMAL.exp(Decimal(log_unit))
        self._words = np.empty(0, dtype=np.uint64)
        self._cursor = 0
        self._count = itertools.count()
        self.nodes = 0
        self._holding = holding_tables(frontier)
        waits = exponentials(self._random, len(frontier)).tolist()
        self._heap = [
            (_later(Decimal(0), wait, node), next(self._count), node)
            for wait, node in zip(waits, frontier, strict=True)
        ]
        heapq.heapify(self._heap)

    def frontier(self) -> list[Node[Tables]]:
        return [node for _, _, node in self._heap]

    def first(self) -> IntArray:
        """Return the point of the first accepted arrival: a Gibbs draw."""
        arrival = self.next(math.inf)
        assert arrival is not None
        return arrival[1]

    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        end = _DECIMAL.divide(Decimal(horizon), self._unit)
        while self._heap[0][0] <= end:
            stop_if_asked(self._watch, self.nodes)
            time, _, node = heapq.heappop(self._heap)
            found = self._process(time, node, end)
            if found is not None:
                return float(_DECIMAL.multiply(found[0], self._unit)), found[1]
        return None

    def _process(self, time: Decimal, node: Node[Tables], end: Decimal) -> tuple[Decimal, IntArray] | None:
        """Process an arrival at a region: improve its bound, propose points, or split the region.

        This choice may depend on the past and the current time, but not on later arrivals.
        """
        if node.region is None:
            self._reserve(0 if node.holds_tables else 1)
            if not self._survives(time, node, self._bounds.open(node)):
                return None
        if node.tries >= TRIES and len(node.levels) < self._bounds.depth:
            if node.tuned:
                self._split(time, node)
                return None
            enough = _QUIET - float(_DECIMAL.ln(time))
            if not self._survives(time, node, self._bounds.tune(node, enough)):
                return None
        return self._propose(time, node, end)

    def _reserve(self, more: int) -> None:
        """Reserve memory for the tables of this many more regions.

        Raises:
            UnfinishedDrawError: the memory limit would be exceeded.
        """
        self._holding += more
        if self._holding > self._bounds.most:
            raise UnfinishedDrawError(
                f"the draw needs more than {self._bounds.most} regions at a time, which is all the memory "
                f"it may take: no point was drawn after {self.nodes} nodes. To do: a smaller lattice, fewer "
                f"or coarser columns, a mechanism that minimises, or GibbsBranch(memory=...) of more bytes"
            )

    def _survives(self, time: Decimal, node: Node[Tables], log_bound: float) -> bool:
        """Keep the current arrival with probability (new bound) / (old bound); return whether it is kept."""
        self.nodes += 1
        gained = node.tighten(log_bound)
        if _wait(self._random) > gained:
            return True
        self._restart(time, node)
        return False

    def _split(self, time: Decimal, node: Node[Tables]) -> None:
        """Split a region; assign its arrival to a child or reject it, and start the other children now."""
        children = self._bounds.children(node)
        self._reserve(holding_tables(children) - 1)
        gains = np.array([child.log_bound - node.log_bound for child in children])
        rejected = 1.0 - math.fsum(np.exp(gains))
        weights = np.append(gains, math.log(rejected) if rejected > 0 else -math.inf)
        chosen = race(self._random, weights)
        for number, child in enumerate(children):
            if number == chosen:
                self._push(time, child)
            else:
                self._restart(time, child)

    def _propose(self, time: Decimal, node: Node[Tables], end: Decimal) -> tuple[Decimal, IntArray] | None:
        """Propose points at this arrival and the next ones, until another region has an earlier arrival."""
        if self._heap:
            end = min(end, self._heap[0][0])
        horizon = float(_DECIMAL.multiply(_DECIMAL.subtract(end, time), node.rate))
        levels = np.empty(self._bounds.depth, dtype=np.int64)
        levels[: len(node.levels)] = node.levels
        status, elapsed = OUT_OF_BITS, 0.0
        while status == OUT_OF_BITS:
            status, self._cursor, elapsed, tries = self._bounds.propose(
                node, self._words, self._cursor, elapsed, horizon, max(1, TRIES - node.tries), levels
            )
            node.tries += tries
            self.nodes += tries
            if status == OUT_OF_BITS:
                rest = self._words[self._cursor :]
                self._words = np.concatenate((rest, self._random.bits(self._bounds.words)))
                self._cursor = 0
        time = _later(time, elapsed, node)
        if status != DRAWN:
            self._push(time, node)
            return None
        point = self._bounds.point(node, levels)
        if not self._allowed(point):
            if len(node.levels) < self._bounds.depth:  # otherwise the region is this point, and is dropped
                self._restart(time, node)
            return None
        node.tries = 0
        self._restart(time, node)
        return time, point

    def _restart(self, time: Decimal, node: Node[Tables]) -> None:
        """Schedule the next arrival of a region after ``time``."""
        self._push(_later(time, _wait(self._random), node), node)

    def _push(self, time: Decimal, node: Node[Tables]) -> None:
        heapq.heappush(self._heap, (time, next(self._count), node))


Model = TypeVar("Model", bound=Bounds[Any])


class LastFrontier(Generic[Model]):
    """The frontier at the end of a draw, from which the next draw at the same beta starts.

    The law of a draw does not depend on the regions from which it starts.
    """

    def __init__(self, bounds_at: Callable[[float], Model]) -> None:
        self._bounds_at = bounds_at
        self.kept: tuple[Model, list[Node[Any]]] | None = None

    def take(self, beta: float, watch: Watch) -> tuple[Model, list[Node[Any]]]:
        """Return the frontier to start from, and remove it here, so that an interrupted draw leaves none.

        If there is no frontier at this beta, or if its tables take more than half of the memory, return the
        roots.
        """
        kept, self.kept = self.kept, None
        if kept is None or kept[0].beta != beta:
            bounds = self._bounds_at(beta)
        elif 2 * holding_tables(kept[1]) <= kept[0].most:
            return kept
        else:
            bounds = kept[0]
        return bounds, bounds.roots(watch)


def holding_tables(frontier: list[Node[Tables]]) -> int:
    """Return the number of regions that have tables."""
    return sum(node.holds_tables for node in frontier)


def _wait(random: RandomSource) -> float:
    return float(exponentials(random, 1)[0])


def _later(time: Decimal, wait: float, node: Node[Tables]) -> Decimal:
    """Return the time that is ``wait`` mean interarrival times of the node later."""
    return _DECIMAL.add(time, _DECIMAL.divide(Decimal(wait), node.rate))
