"""Exact draws from 0/1-loss problems over scorecard features, by branch and bound on masses.

For lattices that are too large to sum over. Regions (numeric weights and the first few indicator weights)
carry upper bounds on their mass (``_mass_bounds``). Think of Poisson clocks (``privopt.oracles.arrivals``):
every point rings at rate exp(-beta (L - smallest)). The clock of a region rings at the rate of its bound, and
each ring is given to a point of the region or to nobody, so that exactly the points' own processes remain. A
region whose rings keep going to nobody is bounded better, or split: the ring at hand is passed to one of
the children, or to nobody, in proportion to their bounds. So the first ring that reaches a point is an exact
Gibbs draw, whatever the bounds are: bad bounds only cost time.

The running time depends on the data and is not private. Regions are kept from one draw to the next at the
same beta, which makes later draws fast; they stay independent and exact, but a seeded source repeats a draw
only with a freshly prepared oracle.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from privopt.oracles.arrivals import Arrivals, flipped_exactness, permute_and_flip
from privopt.oracles.backends import _mass_bounds as bounds
from privopt.oracles.backends.native import NativeOracle
from privopt.oracles.cells import CellLimits, CellStructure
from privopt.oracles.certificate import Status
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.gibbs import (
    UNIT_ROUNDOFF,
    DrawRequest,
    Exactness,
    FloatArray,
    GibbsOracle,
    Law,
    Sample,
    Sampler,
    exponentials,
    race,
    race_error,
    stop_if_asked,
)
from privopt.oracles.interface import Query, Task, Watch
from privopt.problems.discrete import DiscreteProblem
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.lattice import IntArray
from privopt.problems.objective import Perturbation

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
        return _BranchSampler(problem, law, self.limits)


@dataclass(eq=False)
class _Node:
    """A region of the frontier. Its tables are made when its clock first rings."""

    numeric: int
    levels: tuple[int, ...]  # of the fixed variables, in search order
    log_bound: float
    parent: bounds.Region | None
    region: bounds.Region | None = None
    tries: int = 0  # rings that went to nobody since the last tuning
    steps: int = 0  # of tuning so far
    tuned: bool = False  # tuning has stopped being worthwhile

    def tighten(self) -> float:
        """Take over the bound of the region's tables; by how much its log fell."""
        assert self.region is not None
        before, self.log_bound = self.log_bound, float(self.region.scalars[2])
        return max(0.0, before - self.log_bound)  # negative by rounding alone


class _BranchSampler(Sampler):
    def __init__(self, problem: ZeroOneHalfspace, law: Law, limits: CellLimits) -> None:
        self.problem, self.law = problem, law
        self.model = _Model(CellStructure.of(problem))
        self._minimizer = NativeOracle(limits).build(problem, Task.LINEAR)
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
            self._model.open(node, self._request.beta)
            if not self._still_rings(time, node):
                return None
        if node.tries >= _TRIES and len(node.levels) < len(self._model.order):
            if node.tuned:
                self._split(time, node)
                return None
            self._model.tune(node, self._request.beta, self._log_unit + _QUIET)
            if not self._still_rings(time, node):
                return None
        return self._propose(time, node, horizon)

    def _still_rings(self, time: float, node: _Node) -> bool:
        """A better bound was found: the ring at hand remains with probability new bound / old bound."""
        self.nodes += 1
        gained = node.tighten()
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
        levels = np.empty(len(self._model.order), dtype=np.int64)
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
            return time, self._model.point(node, levels)
        self._push(time, node)
        return None

    def _soften(self, frontier: list[_Node]) -> list[_Node]:
        """Refine regions until every rate is a double. No clock runs yet, so nothing is passed on."""
        quiet, loud = [], list(frontier)
        while loud:
            stop_if_asked(self._request.watch, self.nodes)
            node = loud.pop()
            if node.log_bound - self._log_unit > _LOUD and node.region is None:
                self._model.open(node, self._request.beta)
                self._model.tune(node, self._request.beta, self._log_unit + _QUIET)
                node.tighten()
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
    """What depends on the data alone: order of the variables, shapes of the regions."""

    def __init__(self, cells: CellStructure) -> None:
        self.cells = cells
        self.numeric = cells.numeric_weights()
        self.order = _search_order(cells)
        self._ball = cells.lattice.squared_radius is not None
        self.shapes = _shapes(cells, self.order)
        # Random words per request: many tries of a small problem, two of a large one.
        self.words = max(1 << 13, 2 * bounds.words_per_try(self.shapes[0]))

    def roots(self, beta: float, watch: Watch) -> list[_Node]:
        """One region per numeric weight vector, coarsely bounded."""
        nodes = []
        for a in range(len(self.numeric)):
            stop_if_asked(watch, a)
            log_bound = float(self._root(a, beta).scalars[2])
            if log_bound > -math.inf:
                nodes.append(_Node(a, (), log_bound, None))
        return nodes

    def _root(self, numeric: int, beta: float) -> bounds.Region:
        """Nothing is fixed but the numeric weights. The best of a few ways to deal weights out."""
        shape, a = self.shapes[0], self.numeric[numeric]
        room = self.cells.lattice.squared_radius
        table = -beta * self.cells.tables(a).astype(np.float64)
        regions = []
        for base in (0.05, 0.3, 0.8):
            region = bounds.new_region(shape)
            region.scalars[1] = 0 if room is None else room - int(a @ a)
            bounds.set_losses(shape, region, table, self.cells.table_start)
            bounds.share_weights(shape, region, base)
            bounds.bound(shape, region)
            regions.append(region)
        return min(regions, key=lambda region: float(region.scalars[2]))

    def open(self, node: _Node, beta: float) -> None:
        """Make the tables of a region."""
        shape = self.shapes[len(node.levels)]
        if node.parent is None:
            node.region = self._root(node.numeric, beta)
        else:
            above = self.shapes[len(node.levels) - 1]
            node.region, node.parent = bounds.child_of(above, shape, node.parent, node.levels[-1]), None
            bounds.bound(shape, node.region)

    def tune(self, node: _Node, beta: float, enough: float) -> None:
        assert node.region is not None
        before = float(node.region.scalars[2])
        bounds.tune(self.shapes[len(node.levels)], node.region, beta, _STEPS, enough)
        node.steps += _STEPS
        node.tries = 0
        gained = before - float(node.region.scalars[2])
        node.tuned = gained < _WORTHWHILE or node.steps >= _MOST_STEPS

    def children(self, node: _Node) -> list[_Node]:
        assert node.region is not None
        log_bounds = bounds.child_bounds(self.shapes[len(node.levels)], node.region)
        return [
            _Node(node.numeric, (*node.levels, v), log_bound, node.region)
            for v, log_bound in enumerate(log_bounds.tolist())
            if log_bound > -math.inf
        ]

    def point(self, node: _Node, levels: IntArray) -> IntArray:
        w = np.empty(self.cells.lattice.dimension, dtype=np.int64)
        w[self.cells.numeric] = self.numeric[node.numeric]
        w[self.order] = self.cells.lattice.low[self.order] + levels
        return w

    def exactness(self, beta: float, n: int) -> Exactness:
        """Rounding of the gains of every step down, of the races between them, and of the clocks.

        |phi| of a member is at most beta times the records of its cell, so the tables of one cell are at most
        longest + 1 times that (and logs of numbers of levels). A step down adds up the cells of one variable;
        all steps together meet every record once per block.
        """
        root = self.shapes[0]
        k, longest = len(self.order), int(np.max(np.diff(root.member_start), initial=0))
        cells_of_variable = int(np.max(np.diff(root.var_start), initial=0))
        size = (2 * longest + 3) * (
            len(self.cells.blocks) * beta * n + k * math.log(root.square.shape[1] + 1)
        )
        gains = (3 * cells_of_variable + 8) * UNIT_ROUNDOFF * size
        bound = (self.cells.n_cells + 8) * UNIT_ROUNDOFF * size
        clocks = 4 * (k + 1) * (_MOST_STEPS / _STEPS + 2) * (_TRIES + 1) * UNIT_ROUNDOFF
        races = k * race_error(0.0) + race_error(size)
        # Regions of rate below exp(-745) never ring; the longest run of zero bits that is told apart is 203,
        # and no draw uses 2^50 exponential variables.
        lost = math.exp(math.log(self.cells.lattice.box_size) - _LOUD) + 2.0 ** (50 - 203)
        return Exactness(2 * (gains + bound + clocks) + races, lost)


def _search_order(cells: CellStructure) -> IntArray:
    """Small blocks first: fixing them merges cells. Within a block, levels of many records first."""
    records = np.zeros(cells.lattice.dimension, dtype=np.int64)
    np.add.at(records, cells.cell_members, np.repeat(cells.records, np.diff(cells.cell_start)))
    span = cells.lattice.high - cells.lattice.low + 1
    blocks = sorted(cells.blocks, key=lambda block: math.prod(span[block].tolist()))
    ordered = [block[np.argsort(-records[block], kind="stable")] for block in blocks]
    order = np.concatenate([*ordered, np.empty(0, dtype=np.int64)]).astype(np.int64)
    return np.concatenate((order[records[order] > 0], order[records[order] == 0]))


def _shapes(cells: CellStructure, order: IntArray) -> list[bounds.Shape]:
    """The shapes of regions with 0, 1, ... variables fixed."""
    place = {j: p for p, j in enumerate(order.tolist())}
    keys = [tuple(sorted(place[j] for j in cells.members(c).tolist())) for c in range(cells.n_cells)]
    records = cells.records.astype(np.float64)
    shapes = []
    for fixed in range(len(order) + 1):
        left = [tuple(j for j in key if j > fixed) for key in keys]
        below = {key: number for number, key in enumerate(dict.fromkeys(key for key in left if key))}
        merged_into = np.array([below.get(key, -1) for key in left], dtype=np.int64)
        shapes.append(_shape(cells, order, fixed, keys, records, merged_into))
        merged = np.zeros(len(below))
        np.add.at(merged, merged_into[merged_into >= 0], records[merged_into >= 0])
        keys, records = list(below), merged
    return shapes


def _shape(
    cells: CellStructure,
    order: IntArray,
    fixed: int,
    keys: list[tuple[int, ...]],
    records: FloatArray,
    merged_into: IntArray,
) -> bounds.Shape:
    low, high = cells.lattice.low[order], cells.lattice.high[order]
    span = high - low + 1
    radius = cells.lattice.squared_radius
    weights = low[:, None] + np.arange(int(span.max(initial=1)))
    sizes = [len(key) for key in keys]
    table_sizes: list[int] = []
    for key in keys:
        table_sizes.extend(itertools.accumulate((int(span[j]) - 1 for j in key), initial=1))
    member_var = np.array([j for key in keys for j in key], dtype=np.int64)
    member_cell = np.repeat(np.arange(len(keys)), sizes).astype(np.int64)
    per_var = np.bincount(member_var, minlength=len(order))
    return bounds.Shape(
        fixed=fixed,
        span=span,
        square=weights**2 if radius is not None else np.zeros_like(weights),
        norms=1 if radius is None else radius + 1,
        member_start=_starts(sizes),
        member_var=member_var,
        member_cell=member_cell,
        table_start=_starts(table_sizes),
        var_start=_starts(per_var.tolist()),
        var_member=np.argsort(member_var, kind="stable").astype(np.int64),
        merged_into=merged_into,
        largest_shift=records[member_cell],
    )


def _starts(sizes: list[int]) -> IntArray:
    return np.concatenate(([0], np.cumsum(np.array(sizes, dtype=np.int64)))).astype(np.int64)
