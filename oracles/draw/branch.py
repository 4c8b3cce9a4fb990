"""Exact draws from 0/1-loss problems over scorecard features, by branch and bound on masses.

For lattices that are too large to sum over. Regions (numeric weights and the first few indicator weights)
carry upper bounds on their mass (``privopt.oracles.cells.regions``). Think of Poisson clocks
(``privopt.oracles.draw.arrivals``): every point rings at rate exp(-beta (L - smallest)). The clock of a
region rings at the rate of its bound, and each ring is given to a point of the region or to nobody, so that
exactly the points' own processes remain. A region whose rings keep going to nobody is bounded better, or
split: the ring at hand is passed to one of the children, or to nobody, in proportion to their bounds. So the
first ring that reaches a point is an exact Gibbs draw, whatever the bounds are: bad bounds only cost time.

The running time depends on the data and is not private. Regions are kept from one draw to the next at the
same beta, which makes later draws fast; they stay independent and exact, but a seeded source repeats a draw
only with a freshly prepared oracle.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace
from functools import cache
from typing import ClassVar

import numpy as np

from privopt.oracles.cells.regions import CellModel, Region, fix, new_region, next_shape
from privopt.oracles.cells.structure import CellLimits
from privopt.oracles.certificate import Status
from privopt.oracles.draw import mass_bounds as bounds
from privopt.oracles.draw.arrivals import Arrivals, flipped_exactness, permute_and_flip
from privopt.oracles.draw.interface import (
    UNIT_ROUNDOFF,
    DrawRequest,
    Exactness,
    GibbsOracle,
    Law,
    Sample,
    Sampler,
    exponentials,
    race,
    race_error,
    stop_if_asked,
)
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.minimize.interface import Query
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.discrete.problem import DiscreteProblem

# Effort on one region: rings to nobody before it is tuned or split; tuning steps at a time; what these must
# gain, in nats, to be continued; the most of them.
_TRIES, _STEPS, _WORTHWHILE, _MOST_STEPS = 100, 10, 2.0, 80
# Tuning stops at regions that will hardly ring before the first point does.
_QUIET = -6.0
# How long to look for a good point that sets the unit of time of Gibbs draws.
_INCUMBENT_SECONDS = 2.0
# Clocks start when every rate is within the range of a double.
_LOUD = 600.0


@dataclass(frozen=True)
class GibbsBranch(GibbsOracle):
    """Branch and bound with Hoelder bounds on masses; both laws.

    Args:
        limits: sizes of the cell structure beyond which the oracle refuses.
    """

    name: ClassVar[str] = "gibbs-branch"
    limits: CellLimits = field(default_factory=CellLimits)

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        return NativeOracle(self.limits).refusals(problem, Task.LINEAR)

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        assert isinstance(problem, ZeroOneHalfspace)  # by refusals
        _compile()
        return _BranchSampler(problem, law, self.limits)


@cache
def _compile() -> None:
    """Have all kernels compiled, or loaded, before a clock runs: one tiny region through everything."""
    lattice = IntegerLattice(-1, 1, dimension=3, radius=1.0)
    problem = ZeroOneHalfspace(np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1]]), np.array([1, -1, 1]), lattice)
    model = _Model(CellModel.make(problem, Task.LINEAR))
    node = model.roots(1.0, Limits().start())[0]
    model.open(node, 1.0)
    model.tune(node, 1.0, -math.inf)
    child = model.children(node)[0]
    model.open(child, 1.0)
    assert child.region is not None
    words, levels = np.arange(model.words, dtype=np.uint64), np.zeros(model.depth, dtype=np.int64)
    bounds.propose(model.shapes[1], child.region, words, 0, 0.0, 1.0, math.inf, 1, levels)


@dataclass(eq=False)
class _Node:
    """A region of the frontier. Its tables are made when its clock first rings."""

    numeric: int
    levels: tuple[int, ...]  # of the fixed variables, in search order
    log_bound: float
    parent: Region | None
    region: Region | None = None
    tries: int = 0  # rings that went to nobody since the last tuning
    steps: int = 0  # of tuning so far
    tuned: bool = False  # tuning has stopped being worthwhile

    def tighten(self, log_bound: float) -> float:
        """Take over a new bound; by how much its log fell."""
        before, self.log_bound = self.log_bound, log_bound
        return max(0.0, before - log_bound)  # negative by rounding alone


class _BranchSampler(Sampler):
    def __init__(self, problem: ZeroOneHalfspace, law: Law, limits: CellLimits) -> None:
        self.problem, self.law = problem, law
        regions = CellModel.make(problem, Task.LINEAR)
        self.model = _Model(regions)
        self._minimizer = NativeOracle(limits).solver(problem, regions)
        self._smallest: int | None = None  # for Gibbs draws: of the losses that were seen
        self._known: tuple[float, list[_Node]] | None = None

    def draw(self, request: DrawRequest) -> Sample:
        unit = self._unit(request.watch)
        beta = request.beta
        if self._known is None or self._known[0] != beta:
            self._known = beta, self.model.roots(beta, request.watch)
        frontier, self._known = self._known[1], None  # kept only if the draw is not interrupted
        rings = _Rings(self.model, request, frontier, -beta * unit)
        if self.law is Law.GIBBS:
            point = rings.first()
        else:
            point = permute_and_flip(rings, beta, lambda w: self.problem.loss(w) - unit)
        self._known = beta, rings.frontier()
        exactness = self.model.exactness(beta, self.problem.n_records)
        if self.law is Law.PERMUTE_AND_FLIP:
            exactness = flipped_exactness(exactness, beta, self.problem.n_records)
        return Sample(point, exactness, None, rings.nodes)

    def _unit(self, watch: Watch) -> int:
        """The loss at which a point rings at rate 1: for permute-and-flip the exact minimum.

        Gibbs draws are the same for every unit; a good incumbent keeps the rates within the range of doubles.
        """
        stop_if_asked(watch, 0)
        if self._smallest is None:
            own = watch
            if self.law is Law.GIBBS:
                left = watch.remaining or math.inf
                own = replace(watch.limits, seconds=min(left, _INCUMBENT_SECONDS)).start()
            query = Query(Perturbation.zero(self.problem.lattice), own, break_ties=False)
            proposal = self._minimizer(query)
            if self.law is Law.PERMUTE_AND_FLIP and proposal.status is not Status.OPTIMAL:
                raise UnfinishedDrawError(
                    f"permute-and-flip needs the smallest loss, and the minimiser was stopped by "
                    f"{proposal.status.name}: no point was drawn. To do: {proposal.status.value}"
                )
            assert proposal.point is not None
            self._smallest = self.problem.loss(proposal.point)
        return self._smallest


class _Rings(Arrivals):
    """The clocks of one draw. Every clock starts at 0; the frontier may come from earlier draws."""

    def __init__(self, model: _Model, request: DrawRequest, frontier: list[_Node], log_unit: float) -> None:
        self._model, self._request, self._log_unit = model, request, log_unit
        self._words = np.empty(0, dtype=np.uint64)
        self._cursor = 0
        self._count = itertools.count()
        self.nodes = 0
        quiet = self._soften(frontier)
        waits = exponentials(request.random, len(quiet))
        self._heap: list[tuple[float, int, _Node]] = [
            (self._later(0.0, wait, node), next(self._count), node)
            for wait, node in zip(waits.tolist(), quiet, strict=True)
        ]
        heapq.heapify(self._heap)

    def frontier(self) -> list[_Node]:
        return [node for _, _, node in self._heap]

    def first(self) -> IntArray:
        arrival = self.next(math.inf)
        assert arrival is not None
        return arrival[1]

    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        while self._heap[0][0] <= horizon:
            stop_if_asked(self._request.watch, self.nodes)
            time, _, node = heapq.heappop(self._heap)
            found = self._ring(time, node, horizon)
            if found is not None:
                return found
        return None

    def _ring(self, time: float, node: _Node, horizon: float) -> tuple[float, IntArray] | None:
        """The clock of a region rings: bound it better, propose points, or split it."""
        if node.region is None:
            log_bound = self._model.open(node, self._request.beta)
            if not self._still_rings(time, node, log_bound):
                return None
        if node.tries >= _TRIES and len(node.levels) < self._model.depth:
            if node.tuned:
                self._split(time, node)
                return None
            log_bound = self._model.tune(node, self._request.beta, self._log_unit + _QUIET)
            if not self._still_rings(time, node, log_bound):
                return None
        return self._propose(time, node, horizon)

    def _still_rings(self, time: float, node: _Node, log_bound: float) -> bool:
        """A better bound was found: the ring at hand remains with probability new bound / old bound."""
        self.nodes += 1
        gained = node.tighten(log_bound)
        if self._wait() > gained:
            return True
        self._push(self._later(time, self._wait(), node), node)
        return False

    def _split(self, time: float, node: _Node) -> None:
        """Pass the ring at hand on to a child or to nobody; the clocks of the other children start now."""
        children = self._model.children(node)
        gains = np.array([child.log_bound - node.log_bound for child in children])
        nobody = 1.0 - math.fsum(np.exp(gains))
        weights = np.append(gains, math.log(nobody) if nobody > 0 else -math.inf)
        heir = race(self._request.random, weights)
        for number, child in enumerate(children):
            self._push(time if number == heir else self._later(time, self._wait(), child), child)

    def _propose(self, time: float, node: _Node, horizon: float) -> tuple[float, IntArray] | None:
        assert node.region is not None
        if self._heap:
            horizon = min(horizon, self._heap[0][0])
        levels = np.empty(self._model.depth, dtype=np.int64)
        levels[: len(node.levels)] = node.levels
        status = bounds.OUT_OF_BITS
        while status == bounds.OUT_OF_BITS:
            status, self._cursor, time, tries = bounds.propose(
                self._model.shapes[len(node.levels)], node.region, self._words, self._cursor,
                time, self._rate(node), horizon, max(1, _TRIES - node.tries), levels,
            )  # fmt: skip
            node.tries += tries
            self.nodes += tries
            if status == bounds.OUT_OF_BITS:
                rest = self._words[self._cursor :]
                self._words = np.concatenate((rest, self._request.random.bits(self._model.words)))
                self._cursor = 0
        if status == bounds.DRAWN:
            node.tries = 0
            self._push(self._later(time, self._wait(), node), node)
            return time, self._model.regions.point(node.numeric, levels)
        self._push(time, node)
        return None

    def _soften(self, frontier: list[_Node]) -> list[_Node]:
        """Refine regions until every rate is a double. No clock runs yet, so nothing is passed on."""
        quiet, loud = [], list(frontier)
        while loud:
            stop_if_asked(self._request.watch, self.nodes)
            node = loud.pop()
            if node.log_bound - self._log_unit > _LOUD and node.region is None:
                node.tighten(self._model.open(node, self._request.beta))
                node.tighten(self._model.tune(node, self._request.beta, self._log_unit + _QUIET))
            if node.log_bound - self._log_unit <= _LOUD:
                quiet.append(node)
            else:
                loud.extend(self._model.children(node))
        return quiet

    def _rate(self, node: _Node) -> float:
        return math.exp(node.log_bound - self._log_unit)

    def _later(self, time: float, wait: float, node: _Node) -> float:
        rate = self._rate(node)
        return time + wait / rate if rate > 0 else math.inf

    def _wait(self) -> float:
        return float(exponentials(self._request.random, 1)[0])

    def _push(self, time: float, node: _Node) -> None:
        heapq.heappush(self._heap, (time, next(self._count), node))


class _Model:
    """What depends on the data alone: the regions and their shapes."""

    def __init__(self, regions: CellModel) -> None:
        self.regions = regions
        self._free = regions.costs(Perturbation.zero(regions.cells.lattice))
        self.depth = len(regions.shape.span)
        self.shapes = [regions.shape]  # of regions with 0, 1, ... variables fixed
        for _ in range(self.depth):
            self.shapes.append(next_shape(self.shapes[-1]))
        # Random words per request: many tries of a small problem, two of a large one.
        self.words = max(1 << 13, 2 * bounds.words_per_try(regions.shape))

    def roots(self, beta: float, watch: Watch) -> list[_Node]:
        """One region per numeric weight vector, coarsely bounded."""
        nodes = []
        for a in range(len(self.regions.weights)):
            stop_if_asked(watch, a)
            log_bound, _ = self._root(a, beta)
            if log_bound > -math.inf:
                nodes.append(_Node(a, (), log_bound, None))
        return nodes

    def _root(self, number: int, beta: float) -> tuple[float, Region]:
        """Nothing is fixed but the numeric weights. The best of a few ways to deal weights out."""
        shape, tried = self.regions.shape, []
        odds = bounds.make_odds(shape)
        for share in (0.05, 0.3, 0.8):
            region = new_region(shape, np.float64)
            if not self.regions.start(region, number, beta, self._free, self.regions.all_levels):
                return -math.inf, region
            bounds.share_weights(shape, region, share)
            tried.append((bounds.log_bound(shape, region, odds), region))
        return min(tried, key=lambda one: one[0])

    def open(self, node: _Node, beta: float) -> float:
        """Make the tables of a region; the log of its bound."""
        if node.parent is None:
            log_bound, node.region = self._root(node.numeric, beta)
            return log_bound
        above, shape = self.shapes[len(node.levels) - 1], self.shapes[len(node.levels)]
        node.region = new_region(shape, np.float64)
        fix(above, shape, node.parent, node.region, node.levels[-1])
        node.parent = None
        return float(bounds.log_bound(shape, node.region, bounds.make_odds(shape)))

    def tune(self, node: _Node, beta: float, enough: float) -> float:
        """Better shifts and weights; the log of the bound."""
        assert node.region is not None
        log_bound, _ = bounds.tune(self.shapes[len(node.levels)], node.region, beta, _STEPS, enough)
        node.steps += _STEPS
        node.tries = 0
        node.tuned = node.log_bound - log_bound < _WORTHWHILE or node.steps >= _MOST_STEPS
        return float(log_bound)

    def children(self, node: _Node) -> list[_Node]:
        assert node.region is not None
        log_bounds = bounds.child_bounds(self.shapes[len(node.levels)], node.region)
        return [
            _Node(node.numeric, (*node.levels, v), log_bound, node.region)
            for v, log_bound in enumerate(log_bounds.tolist())
            if log_bound > -math.inf
        ]

    def exactness(self, beta: float, n: int) -> Exactness:
        """Rounding of the gains of every step down, of the races between them, and of the clocks.

        |shift| of a cell's member is at most beta times the records of the cell, so a table of a cell is at
        most longest + 1 times that (and logs of numbers of levels). A step down adds up the cells of one
        variable; all steps together meet every record once per block, and the norm term is shifted no more.
        """
        root, beta_n = self.regions.shape, beta * n
        k, cells = self.depth, self.regions.cells
        longest = int(np.max(np.diff(root.member_start)[:-1], initial=0))
        cells_of_variable = int(np.max(np.diff(root.var_start) - 1, initial=0))
        size = (2 * longest + 3) * (len(cells.blocks) * beta_n + k * math.log(root.squares.shape[1] + 1))
        gains = (3 * cells_of_variable + 8) * UNIT_ROUNDOFF * size
        bound = (cells.n_cells + 8) * UNIT_ROUNDOFF * size
        clocks = 4 * (k + 1) * (_MOST_STEPS / _STEPS + 2) * (_TRIES + 1) * UNIT_ROUNDOFF
        races = k * race_error(0.0) + race_error(size)
        # Regions of rate below exp(-745) never ring; the longest run of zero bits that is told apart is 203,
        # and no draw uses 2^50 exponential variables.
        lost = math.exp(math.log(cells.lattice.box_size) - _LOUD) + 2.0 ** (50 - 203)
        return Exactness(2 * (gains + bound + clocks) + races, lost)
