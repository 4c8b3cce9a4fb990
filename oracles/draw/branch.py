"""Exact draws from 0/1-loss problems over scorecard features, by branch and bound on masses.

This sampler is for lattices that are too large to sum over. A region is the set of points with given numeric
weights and given first indicator weights, and has an upper bound on its mass
(``privopt.oracles.cells.regions``). Poisson thinning (``privopt.oracles.draw.thinning``) gives exact draws
from any such bounds, even loose ones. A Gibbs draw needs no incumbent. Permute-and-flip needs the smallest
loss, which a minimiser must prove.

The running time depends on the data and is not private. Later draws at the same beta reuse the regions, and
are therefore fast. Draws are independent and exact nevertheless, but with a seeded source a draw is repeated
only by a newly prepared oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np

from privopt.oracles.cells.compiling import announced
from privopt.oracles.cells.regions import (
    CellModel,
    Region,
    fix,
    new_region,
    next_shape,
    why_not,
    why_not_planned,
)
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
from privopt.oracles.draw.thinning import TRIES, LastFrontier, Node, ThinnedArrivals
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.task import Task
from privopt.problems.arguments import check_whole
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

# Tuning of one region: the number of steps in a round; the gain of a round, in nats, below which tuning ends;
# the largest number of steps.
_STEPS, _WORTHWHILE, _MOST_STEPS = 10, 2.0, 80
# The largest accepted energy, beta times the loss. It is far below the number that stands for infinity, and
# rounding errors make the law meaningless at much smaller energies.
_LARGEST_ENERGY = 2.0**40
# Bytes of a region besides its tables: the node, its decimal rate and time, the headers of nine arrays.
_OVERHEAD = 3000

SmallestLoss = Callable[[ZeroOneHalfspace, CellModel, Watch], int]


@dataclass(frozen=True)
class GibbsBranch(GibbsOracle):
    """Exact sampler by branch and bound with Hoelder bounds on masses, for both laws.

    Under constraints on points, arrivals at points that violate them are rejected. The arrivals at other
    points do not change, so both laws remain exact. The bounds ignore the constraints, so the time increases
    with the share of the mass at points that violate them.

    Args:
        limits: size limits of the cell structure, beyond which the oracle refuses.
        memory: memory limit for the regions of a draw, in bytes, > 0. A draw that needs more memory raises
            ``UnfinishedDrawError``.
        smallest_loss: a function that returns the proved smallest loss over the lattice and its constraints,
            or raises ``UnfinishedDrawError``. Without it, permute-and-flip is refused.
        smallest_refusals: a function that lists why ``smallest_loss`` may refuse some problem with given
            facts.
    """

    name: ClassVar[str] = "gibbs-branch"
    takes_constraints: ClassVar[bool] = True
    limits: CellLimits = field(default_factory=CellLimits)
    smallest_loss: SmallestLoss | None = None
    memory: int = 4 << 30
    smallest_refusals: Callable[[ProblemFacts], list[str]] | None = None

    def __post_init__(self) -> None:
        check_whole(self.memory, "memory, in bytes,")

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        return why_not(problem, Task.LINEAR, self.limits) + self._no_minimiser(law)

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        reasons = why_not_planned(facts, Task.LINEAR, self.limits) + self._no_minimiser(facts.question)
        if facts.question is Law.PERMUTE_AND_FLIP and self.smallest_refusals is not None:
            reasons += self.smallest_refusals(facts)
        return reasons

    def planned_exactness(self, facts: ProblemFacts, beta: float) -> Exactness:
        """Bound the exactness for all data with these facts.

        There is at most one cell per row, and a cell has at most one column of each block.
        """
        lattice, layout = facts.lattice, facts.layout
        cells, blocks, columns = facts.rows, lattice.dimension, lattice.dimension
        if layout is not None:
            cells, blocks = min(cells, layout.patterns), len(layout.blocks)
            columns = len(layout.indicators)
        levels = int(np.max(lattice.high - lattice.low)) + 1
        sizes = _Sizes(cells, blocks, columns, blocks, cells, levels)
        return _exactness(sizes, lattice, facts.question, beta, facts.largest_loss)

    def _no_minimiser(self, law: object) -> list[str]:
        if law is Law.GIBBS or self.smallest_loss is not None:
            return []
        return ["permute-and-flip needs the smallest loss, and no minimiser was given"]

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        assert isinstance(problem, ZeroOneHalfspace)  # by refusals
        _compile()
        return _BranchSampler(problem, law, self.smallest_loss, self.memory)


@cache
@announced("the exact sampler")
def _compile() -> None:
    """Compile all kernels, or load them from the cache, by a tiny problem, before time is measured."""
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


def _always(point: IntArray) -> bool:
    return True


class _BranchSampler(Sampler):
    def __init__(
        self, problem: ZeroOneHalfspace, law: Law, smallest_loss: SmallestLoss | None, memory: int
    ) -> None:
        self.problem, self.law = problem, law
        self._regions = CellModel.make(problem, Task.LINEAR)
        self._smallest_loss = smallest_loss
        self._smallest: int | None = None  # the proved smallest loss, once it is known
        self._frontier = LastFrontier(lambda beta: _Model(self._regions, beta, memory))

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
        model, frontier = self._frontier.take(beta, request.watch)
        lattice = self.problem.lattice
        allowed = lattice.contains if lattice.constrained else _always
        arrivals = ThinnedArrivals(model, request, frontier, -beta * smallest, allowed)
        if self.law is Law.GIBBS:
            point = arrivals.first()
        else:
            point = permute_and_flip(arrivals, beta, lambda w: self.problem.loss(w) - smallest)
        exactness = _exactness(model.sizes, lattice, self.law, beta, n)
        self._frontier.kept = model, arrivals.frontier()
        return Sample(point, exactness, None, arrivals.nodes)

    def _minimum(self, watch: Watch) -> int:
        if self._smallest is None:
            assert self._smallest_loss is not None  # by refusals
            self._smallest = self._smallest_loss(self.problem, self._regions, watch)
        return self._smallest


class _Model:
    """Regions, their shapes and their bounds, which depend only on the data and on beta."""

    def __init__(self, regions: CellModel, beta: float, memory: int) -> None:
        self.regions, self.beta = regions, beta
        self._free = regions.costs(Perturbation.zero(regions.cells.lattice))
        self.depth = len(regions.shape.span)
        self.shapes = [regions.shape]  # shapes of regions with 0, 1, ... fixed variables
        for _ in range(self.depth):
            self.shapes.append(next_shape(self.shapes[-1]))
        # Number of random words per request: for many proposals of a small problem, for two of a large one.
        self.words = max(1 << 13, 2 * bounds.words_per_try(regions.shape))
        # This is a lower bound, because tables are smaller at larger depth, and siblings share the tables of
        # their parent until they are opened.
        self.most = memory // (_OVERHEAD + new_region(regions.shape, np.float64).nbytes)

    def roots(self, watch: Watch) -> list[Node[Region]]:
        """Return the root regions, one for each numeric weight vector, with coarse bounds."""
        nodes = []
        for a in range(len(self.regions.weights)):
            stop_if_asked(watch, a)
            log_bound, _ = self._root(a)
            if log_bound > -math.inf:
                nodes.append(Node[Region](a, (), log_bound, None))
        return nodes

    def _root(self, number: int) -> tuple[float, Region]:
        """Return the region of one numeric weight vector with the best of a few sets of Hoelder weights."""
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
        """Compute the tables of a region, and return the log of its bound."""
        if node.parent is None:
            log_bound, node.region = self._root(node.numeric)
            return log_bound
        above, shape = self.shapes[len(node.levels) - 1], self.shapes[len(node.levels)]
        node.region = new_region(shape, np.float64)
        fix(above, shape, node.parent, node.region, node.levels[-1])
        node.parent = None
        return float(bounds.log_bound(shape, node.region, bounds.make_odds(shape)))

    def tune(self, node: Node[Region], enough: float) -> float:
        """Improve the shifts and the Hoelder weights, and return the log of the bound."""
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

    @property
    def sizes(self) -> _Sizes:
        root, cells = self.regions.shape, self.regions.cells
        return _Sizes(
            cells.n_cells,
            len(cells.blocks),
            self.depth,
            int(np.max(np.diff(root.member_start)[:-1], initial=0)),
            int(np.max(np.diff(root.var_start) - 1, initial=0)),
            root.squares.shape[1],
        )


class _Sizes(NamedTuple):
    """Sizes of a cell structure that determine bounds on rounding errors.

    Attributes:
        cells, blocks, columns: the numbers of cells, of blocks and of indicator columns.
        longest: the largest number of active columns of a cell.
        cells_of_column: the largest number of cells in which a column is active.
        levels: the largest number of levels of a weight.
    """

    cells: int
    blocks: int
    columns: int
    longest: int
    cells_of_column: int
    levels: int


def _exactness(sizes: _Sizes, lattice: IntegerLattice, law: object, beta: float, n: int) -> Exactness:
    """Bound the rounding errors of the gains at all levels, of the races between children, and of times.

    The absolute shift of a cell's member is at most beta times the records of the cell. So an entry of the
    cell's tables is at most longest + 1 times this, plus logs of numbers of levels. One step down adds the
    cells of one variable. All steps down together add every record once per block, and the shifts of the norm
    term are at most as large.

    A time is a sum of nonnegative waiting times over rates. Its relative error is at most the largest error
    of a summand, plus the error of adding the arrivals of one proposal. When a bound is improved, an arrival
    is kept if an exponential exceeds the decrease of the log bound; these decreases sum to at most ``span``.
    """
    beta_n, k = beta * n, sizes.columns
    if beta_n > _LARGEST_ENERGY:
        return Exactness(math.inf, 1.0)
    size = (2 * sizes.longest + 3) * (sizes.blocks * beta_n + k * math.log(sizes.levels + 1))
    gains = (3 * sizes.cells_of_column + 8) * UNIT_ROUNDOFF * size
    bound = (sizes.cells + 8) * UNIT_ROUNDOFF * size
    span = math.log(lattice.box_size) + beta_n
    clocks = EXPONENTIAL_ERROR * (1 + span) + (TRIES + 8) * UNIT_ROUNDOFF
    races = k * race_error(0.0) + race_error(size)
    error = 2 * (gains + bound + clocks) + races
    if lattice.constrained:  # the probability is P[w] / P[constraints hold], and both have errors
        error *= 2
    # An exponential is exact unless 203 zero bits come in a row, and no draw uses 2^50 exponentials.
    exactness = Exactness(error, 2.0 ** (50 - 203))
    return exactness if law is Law.GIBBS else flipped_exactness(exactness, beta, n)
