"""Exact draws from 0/1-loss problems over scorecard features, by branch and bound on masses.

For lattices that are too large to sum over. Regions (numeric weights and the first few indicator weights)
carry upper bounds on their mass (``privopt.oracles.cells.regions``), and their clocks are thinned to those of
the points (``privopt.oracles.draw.thinning``): exact whatever the bounds are. Nothing is searched for first:
the law of a Gibbs draw depends on no incumbent, and on no clock but the drawn ones. Permute-and-flip compares
with the smallest loss, which a minimiser has to prove.

The running time depends on the data and is not private. Regions are kept from one draw to the next at the
same beta, which makes later draws fast; they stay independent and exact, but a seeded source repeats a draw
only with a freshly prepared oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np

from privopt.oracles.cells.compiling import announced
from privopt.oracles.cells.regions import CellModel, Region, fix, new_region, next_shape, why_not
from privopt.oracles.cells.structure import CellLimits
from privopt.oracles.draw import mass_bounds as bounds
from privopt.oracles.draw.arrivals import flipped_exactness, permute_and_flip
from privopt.oracles.draw.interface import (
    EXPONENTIAL_ERROR,
    UNIT_ROUNDOFF,
    DrawRequest,
    Exactness,
    GibbsOracle,
    Law,
    Sample,
    Sampler,
    race_error,
    stop_if_asked,
)
from privopt.oracles.draw.thinning import TRIES, Node, Rings, holding_tables
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.task import Task
from privopt.problems.arguments import check_whole
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

# Effort on one region: tuning steps at a time; what these must gain, in nats, to go on; the most of them.
_STEPS, _WORTHWHILE, _MOST_STEPS = 10, 2.0, 80
# Energies, beta times the loss, stay far below the stand-in for infinity; rounding makes a law of larger ones
# meaningless long before.
_LARGEST_ENERGY = 2.0**40
# Bytes of a region beside its tables: the node, its decimal rate and time, the headers of nine arrays.
_OVERHEAD = 3000

SmallestLoss = Callable[[ZeroOneHalfspace, CellModel, Watch], int]


@dataclass(frozen=True)
class GibbsBranch(GibbsOracle):
    """Branch and bound with Hoelder bounds on masses; both laws.

    Args:
        limits: sizes of the cell structure beyond which the oracle refuses.
        memory: bytes that the regions of a draw may take, > 0; a draw that needs more ends without a point
            (``UnfinishedDrawError``), whatever time it has.
        smallest_loss: proves the smallest loss over the lattice, or raises ``UnfinishedDrawError``.
            Permute-and-flip is refused without it.
    """

    name: ClassVar[str] = "gibbs-branch"
    limits: CellLimits = field(default_factory=CellLimits)
    smallest_loss: SmallestLoss | None = None
    memory: int = 4 << 30

    def __post_init__(self) -> None:
        check_whole(self.memory, "memory, in bytes,")

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        reasons = why_not(problem, Task.LINEAR, self.limits)
        if law is Law.PERMUTE_AND_FLIP and self.smallest_loss is None:
            reasons.append("permute-and-flip needs the smallest loss, and no minimiser was given")
        return reasons

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        assert isinstance(problem, ZeroOneHalfspace)  # by refusals
        _compile()
        return _BranchSampler(problem, law, self.smallest_loss, self.memory)


@cache
@announced("the exact sampler")
def _compile() -> None:
    """Have all kernels compiled, or loaded, before a clock runs: one tiny region through everything."""
    lattice = IntegerLattice(-1, 1, dimension=3, radius=1.0)
    problem = ZeroOneHalfspace(np.array([[1, 0, 1], [0, 1, 1], [0, 0, 1]]), np.array([1, -1, 1]), lattice)
    model = _Model(CellModel.make(problem, Task.LINEAR), 1.0, 1 << 20)
    node = model.roots(Limits().start())[0]
    model.open(node)
    model.tune(node, -math.inf)
    child = model.children(node)[0]
    model.open(child)
    words, levels = np.arange(model.words, dtype=np.uint64), np.zeros(model.depth, dtype=np.int64)
    model.propose(child, words, 0, 0.0, math.inf, 1, levels)


class _BranchSampler(Sampler):
    def __init__(
        self, problem: ZeroOneHalfspace, law: Law, smallest_loss: SmallestLoss | None, memory: int
    ) -> None:
        self.problem, self.law, self._memory = problem, law, memory
        self._regions = CellModel.make(problem, Task.LINEAR)
        self._smallest_loss = smallest_loss
        self._smallest: int | None = None  # the smallest loss, proved
        self._known: tuple[_Model, list[Node[Region]]] | None = None

    def draw(self, request: DrawRequest) -> Sample:
        beta, n = request.beta, self.problem.largest_loss
        if beta * n > _LARGEST_ENERGY:
            raise InvalidInputError(
                f"beta times the number of records is {beta * n:.3g}; beyond {_LARGEST_ENERGY:.3g} rounding "
                f"drowns the law. To do: a smaller beta, or an oracle that adds losses as integers "
                f"(enumeration, elimination)"
            )
        stop_if_asked(request.watch, 0)
        smallest = self._minimum(request.watch) if self.law is Law.PERMUTE_AND_FLIP else 0
        model, frontier = self._frontier(beta, request.watch)
        self._known = None  # the frontier is kept only if the draw is not interrupted
        rings = Rings(model, request, frontier, -beta * smallest)
        exactness = model.exactness(n)
        if self.law is Law.GIBBS:
            point = rings.first()
        else:
            point = permute_and_flip(rings, beta, lambda w: self.problem.loss(w) - smallest)
            exactness = flipped_exactness(exactness, beta, n)
        self._known = model, rings.frontier()
        return Sample(point, exactness, None, rings.nodes)

    def _frontier(self, beta: float, watch: Watch) -> tuple[_Model, list[Node[Region]]]:
        """That of the last draw, unless it leaves little room: the law of a draw depends on neither."""
        if self._known is not None and self._known[0].beta == beta:
            model, frontier = self._known
            if 2 * holding_tables(frontier) <= model.most:
                return model, frontier
        else:
            model = _Model(self._regions, beta, self._memory)
        self._known = None
        return model, model.roots(watch)

    def _minimum(self, watch: Watch) -> int:
        if self._smallest is None:
            assert self._smallest_loss is not None  # by refusals
            self._smallest = self._smallest_loss(self.problem, self._regions, watch)
        return self._smallest


class _Model:
    """What depends on the data and on beta alone: the regions, their shapes and their bounds."""

    def __init__(self, regions: CellModel, beta: float, memory: int) -> None:
        self.regions, self.beta = regions, beta
        self._free = regions.costs(Perturbation.zero(regions.cells.lattice))
        self.depth = len(regions.shape.span)
        self.shapes = [regions.shape]  # of regions with 0, 1, ... variables fixed
        for _ in range(self.depth):
            self.shapes.append(next_shape(self.shapes[-1]))
        # Random words per request: many tries of a small problem, two of a large one.
        self.words = max(1 << 13, 2 * bounds.words_per_try(regions.shape))
        # Tables shrink on the way down, and siblings share those of their parent until they ring.
        self.most = memory // (_OVERHEAD + new_region(regions.shape, np.float64).nbytes)

    def roots(self, watch: Watch) -> list[Node[Region]]:
        """One region per numeric weight vector, coarsely bounded."""
        nodes = []
        for a in range(len(self.regions.weights)):
            stop_if_asked(watch, a)
            log_bound, _ = self._root(a)
            if log_bound > -math.inf:
                nodes.append(Node[Region](a, (), log_bound, None))
        return nodes

    def _root(self, number: int) -> tuple[float, Region]:
        """Nothing is fixed but the numeric weights. The best of a few ways to deal weights out."""
        shape, tried = self.regions.shape, []
        odds = bounds.make_odds(shape)
        for share in (0.05, 0.3, 0.8):
            region = new_region(shape, np.float64)
            if not self.regions.start(region, number, self.beta, self._free, self.regions.all_levels):
                return -math.inf, region
            bounds.share_weights(shape, region, share)
            tried.append((bounds.log_bound(shape, region, odds), region))
        return min(tried, key=lambda one: one[0])

    def open(self, node: Node[Region]) -> float:
        """Make the tables of a region; the log of its bound."""
        if node.parent is None:
            log_bound, node.region = self._root(node.numeric)
            return log_bound
        above, shape = self.shapes[len(node.levels) - 1], self.shapes[len(node.levels)]
        node.region = new_region(shape, np.float64)
        fix(above, shape, node.parent, node.region, node.levels[-1])
        node.parent = None
        return float(bounds.log_bound(shape, node.region, bounds.make_odds(shape)))

    def tune(self, node: Node[Region], enough: float) -> float:
        """Better shifts and weights; the log of the bound."""
        assert node.region is not None
        log_bound, _ = bounds.tune(self.shapes[len(node.levels)], node.region, self.beta, _STEPS, enough)
        node.steps += _STEPS
        node.tries = 0
        node.tuned = node.log_bound - log_bound < _WORTHWHILE or node.steps >= _MOST_STEPS
        return float(log_bound)

    def children(self, node: Node[Region]) -> list[Node[Region]]:
        assert node.region is not None
        log_bounds = bounds.child_bounds(self.shapes[len(node.levels)], node.region)
        return [
            Node(node.numeric, (*node.levels, v), log_bound, node.region)
            for v, log_bound in enumerate(log_bounds.tolist())
            if log_bound > -math.inf
        ]

    def propose(
        self,
        node: Node[Region],
        words: bounds.Words,
        cursor: int,
        elapsed: float,
        horizon: float,
        tries: int,
        levels: IntArray,
    ) -> tuple[int, int, float, int]:
        assert node.region is not None
        status, cursor, elapsed, tries = bounds.propose(
            self.shapes[len(node.levels)], node.region, words, cursor, elapsed, horizon, tries, levels
        )
        return status, cursor, elapsed, tries

    def point(self, node: Node[Region], levels: IntArray) -> IntArray:
        return self.regions.point(node.numeric, levels)

    def exactness(self, n: int) -> Exactness:
        """Rounding of the gains of every step down, of the races between them, and of the clocks.

        |shift| of a cell's member is at most beta times the records of the cell, so a table of a cell is at
        most longest + 1 times that (and logs of numbers of levels). A step down adds up the cells of one
        variable; all steps together meet every record once per block, and the norm term is shifted no more.
        A time is a sum of waiting times over rates, none of them negative: its relative error is that of the
        worst of them, and of adding up the rings of one proposal. That a ring remains when a bound falls has
        the probability of an exponential above the gain; the gains add up to at most ``span``.
        """
        root, beta_n = self.regions.shape, self.beta * n
        k, cells = self.depth, self.regions.cells
        longest = int(np.max(np.diff(root.member_start)[:-1], initial=0))
        cells_of_variable = int(np.max(np.diff(root.var_start) - 1, initial=0))
        size = (2 * longest + 3) * (len(cells.blocks) * beta_n + k * math.log(root.squares.shape[1] + 1))
        gains = (3 * cells_of_variable + 8) * UNIT_ROUNDOFF * size
        bound = (cells.n_cells + 8) * UNIT_ROUNDOFF * size
        span = math.log(cells.lattice.box_size) + beta_n
        clocks = EXPONENTIAL_ERROR * (1 + span) + (TRIES + 8) * UNIT_ROUNDOFF
        races = k * race_error(0.0) + race_error(size)
        # The longest run of zero bits that is told apart is 203, and no draw uses 2^50 exponential variables.
        return Exactness(2 * (gains + bound + clocks) + races, 2.0 ** (50 - 203))
