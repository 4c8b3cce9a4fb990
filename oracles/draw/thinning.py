"""Exact draws from bounds alone: points ring, regions ring for them, and rings to nobody are thrown away.

Think of Poisson clocks (``privopt.oracles.draw.arrivals``): every point rings at the rate of its mass,
exp(-beta L). The clock of a region rings at the rate of an upper bound on its mass, and each ring is given to
a point of the region or to nobody, so that exactly the points' own processes remain. A region whose rings
keep going to nobody is bounded better, or split: the ring at hand is passed to one of the children, or to
nobody, in proportion to their bounds. So the first ring that reaches a point is an exact Gibbs draw, whatever
the bounds are: bad bounds only cost time.

Rates span thousands of orders of magnitude, and what is bounded badly rings very early. So times and rates
are decimal numbers, whose exponents do not overflow: no unit of time has to be found first, every rate can be
held, and nothing is lost at either end.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from typing import Generic, Protocol, TypeVar

import numpy as np

from privopt.oracles.draw.arrivals import Arrivals
from privopt.oracles.draw.interface import DrawRequest, RandomSource, exponentials, race, stop_if_asked
from privopt.oracles.draw.mass_bounds import DRAWN, OUT_OF_BITS, Words
from privopt.oracles.errors import UnfinishedDrawError
from privopt.problems.discrete.lattice import IntArray

# Rings of a region that go to nobody before it is tuned or split.
TRIES = 100
# Tuning stops at regions that are not going to ring until the time is e^6 times what it is now.
_QUIET = -6.0
# More digits than doubles have: what times lose is nothing against what the waiting times do.
_DECIMAL = Context(prec=20, Emax=MAX_EMAX, Emin=MIN_EMIN)

Tables = TypeVar("Tables")


@dataclass(eq=False)
class Node(Generic[Tables]):
    """A region of the frontier. Its tables are made when its clock first rings."""

    numeric: int
    levels: tuple[int, ...]  # of the fixed variables, in search order
    log_bound: float
    parent: Tables | None
    region: Tables | None = None
    tries: int = 0  # rings that went to nobody since the last tuning
    steps: int = 0  # of tuning so far
    tuned: bool = False  # tuning has stopped being worthwhile
    _rate: Decimal | None = None

    @property
    def holds_tables(self) -> bool:
        """Its own, or those it will be made from, which its siblings share."""
        return self.region is not None or self.parent is not None

    @property
    def rate(self) -> Decimal:
        """exp(log_bound)."""
        if self._rate is None:
            self._rate = _DECIMAL.exp(Decimal(self.log_bound))
        return self._rate

    def tighten(self, log_bound: float) -> float:
        """Take over a new bound; by how much its log fell."""
        before, self.log_bound, self._rate = self.log_bound, log_bound, None
        return max(0.0, before - log_bound)  # negative by rounding alone


class Bounds(Protocol[Tables]):
    """What drawing needs to know of a problem at one inverse temperature.

    Attributes:
        depth: with so many levels fixed, a region is a point and its bound is exact.
        words: a sensible number of random words to ask for at once; enough for one proposal.
        most: as many regions of the frontier may hold tables.
    """

    depth: int
    words: int
    most: int

    def open(self, node: Node[Tables]) -> float:
        """Make the tables of a region; the log of its bound, at most what it was."""

    def tune(self, node: Node[Tables], enough: float) -> float:
        """A better bound, but not better than ``enough``; its log. Says in ``node.tuned`` if that is all."""

    def children(self, node: Node[Tables]) -> list[Node[Tables]]:
        """The parts of an open region that is no point; their bounds add up to no more than its own."""

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
        """Give rings of an open region to points: see ``mass_bounds.propose``."""

    def point(self, node: Node[Tables], levels: IntArray) -> IntArray:
        """The point of a region with these levels."""


class Rings(Arrivals, Generic[Tables]):
    """The clocks of one draw. Every clock starts at 0; the frontier may come from earlier draws.

    Args:
        bounds: of the problem, at the inverse temperature of the request.
        request: the randomness and the limits.
        frontier: regions that cover the lattice.
        log_unit: ``next`` counts time so that a point of mass exp(log_unit) rings at rate 1.
    """

    def __init__(
        self, bounds: Bounds[Tables], request: DrawRequest, frontier: list[Node[Tables]], log_unit: float
    ) -> None:
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
        """The point that rings first: a Gibbs draw."""
        arrival = self.next(math.inf)
        assert arrival is not None
        return arrival[1]

    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        end = _DECIMAL.divide(Decimal(horizon), self._unit)
        while self._heap[0][0] <= end:
            stop_if_asked(self._watch, self.nodes)
            time, _, node = heapq.heappop(self._heap)
            found = self._ring(time, node, end)
            if found is not None:
                return float(_DECIMAL.multiply(found[0], self._unit)), found[1]
        return None

    def _ring(self, time: Decimal, node: Node[Tables], end: Decimal) -> tuple[Decimal, IntArray] | None:
        """The clock of a region rings: bound it better, propose points, or split it.

        What is done may depend on all that was seen up to now, the time included, but on nothing that is
        still to come.
        """
        if node.region is None:
            self._make_room(0 if node.holds_tables else 1)
            if not self._still_rings(time, node, self._bounds.open(node)):
                return None
        if node.tries >= TRIES and len(node.levels) < self._bounds.depth:
            if node.tuned:
                self._split(time, node)
                return None
            enough = _QUIET - float(_DECIMAL.ln(time))
            if not self._still_rings(time, node, self._bounds.tune(node, enough)):
                return None
        return self._propose(time, node, end)

    def _make_room(self, more: int) -> None:
        """Fail closed before memory runs out: so many more regions are going to hold tables.

        Raises:
            UnfinishedDrawError: with the number of regions there may be, and what to use instead.
        """
        self._holding += more
        if self._holding > self._bounds.most:
            raise UnfinishedDrawError(
                f"the draw needs more than {self._bounds.most} regions at a time, which is all the memory "
                f"it may take: no point was drawn after {self.nodes} nodes. To do: a smaller lattice, fewer "
                f"or coarser columns, a mechanism that minimises, or GibbsBranch(memory=...) of more bytes"
            )

    def _still_rings(self, time: Decimal, node: Node[Tables], log_bound: float) -> bool:
        """A better bound was found: the ring at hand remains with probability new bound / old bound."""
        self.nodes += 1
        gained = node.tighten(log_bound)
        if _wait(self._random) > gained:
            return True
        self._restart(time, node)
        return False

    def _split(self, time: Decimal, node: Node[Tables]) -> None:
        """Pass the ring at hand on to a child or to nobody; the clocks of the other children start now."""
        children = self._bounds.children(node)
        self._make_room(holding_tables(children) - 1)
        gains = np.array([child.log_bound - node.log_bound for child in children])
        nobody = 1.0 - math.fsum(np.exp(gains))
        weights = np.append(gains, math.log(nobody) if nobody > 0 else -math.inf)
        heir = race(self._random, weights)
        for number, child in enumerate(children):
            if number == heir:
                self._push(time, child)
            else:
                self._restart(time, child)

    def _propose(self, time: Decimal, node: Node[Tables], end: Decimal) -> tuple[Decimal, IntArray] | None:
        """Give this ring and those that follow it to points, until another region rings."""
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
        if status == DRAWN:
            node.tries = 0
            self._restart(time, node)
            return time, self._bounds.point(node, levels)
        self._push(time, node)
        return None

    def _restart(self, time: Decimal, node: Node[Tables]) -> None:
        """The clock of a region waits for its next ring from now on."""
        self._push(_later(time, _wait(self._random), node), node)

    def _push(self, time: Decimal, node: Node[Tables]) -> None:
        heapq.heappush(self._heap, (time, next(self._count), node))


def holding_tables(frontier: list[Node[Tables]]) -> int:
    return sum(node.holds_tables for node in frontier)


def _wait(random: RandomSource) -> float:
    return float(exponentials(random, 1)[0])


def _later(time: Decimal, wait: float, node: Node[Tables]) -> Decimal:
    """``wait`` mean times between rings later."""
    return _DECIMAL.add(time, _DECIMAL.divide(Decimal(wait), node.rate))
