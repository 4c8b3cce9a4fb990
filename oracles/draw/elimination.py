"""Exact Gibbs draws from 0/1-loss problems over scorecard features, by variable elimination.

For fixed numeric weights the loss is a sum of small integer tables over cells
(``privopt.oracles.cells.structure``). No row has two indicators of one block. So for given weights of all
other blocks, the sum over the weights of one block, the *leaf block*, is a product of short sums. The weights
of the other blocks are enumerated, in an order that shares partial sums of the tables. A norm ball couples
the leaf weights only through |w|^2, so there is a sum for each value of |w|^2.

Two properties affect privacy.

- **Time.** The number of additions does not depend on labels and numeric features. The time of a sum over the
  lattice depends on the lattice, on beta, on the number of records, and on which combinations of indicators
  occur in the data, but not on their frequencies or labels. The time of the draw that follows also depends on
  the drawn point. (Caches and processors may still leak: timing attacks by users of the same machine are out
  of scope.)
- **Rounding.** Losses are added as integers, and exponentials are read from one table. A sum of exponentials
  is stored as the smallest loss and the sum relative to it, so nothing overflows. A term that underflows is
  less than exp(-700) times the total.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.cells.compiling import announced
from privopt.oracles.cells.structure import (
    CellLimits,
    CellSizes,
    CellStructure,
    Int32Array,
    why_not,
    why_not_planned,
)
from privopt.oracles.draw.arrivals import RepeatedDraws, flipped_exactness, permute_and_flip
from privopt.oracles.draw.interface import (
    UNIT_ROUNDOFF,
    DrawRequest,
    Exactness,
    GibbsOracle,
    Law,
    Moments,
    Sample,
    Sampler,
    chain_error,
    lost_to_the_source,
    race,
    stop_if_asked,
)
from privopt.oracles.draw.sum_product import (
    EMPTY,
    LARGEST_EXPONENT,
    Mass,
    Program,
    exponentials_of_losses,
    number_of_exponentials,
    sum_out,
)
from privopt.oracles.facts import Precision, ProblemFacts
from privopt.oracles.limits import Watch
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem

# Largest number of assignments of the innermost weights that are computed in parallel, as vector lanes.
_MAX_LANES = 1024
# Approximate number of table additions per call of the compiled kernel; limits are checked between calls.
_CHUNK_WORK = 2e7


@dataclass(frozen=True)
class GibbsElimination(GibbsOracle):
    """Exact sampler by variable elimination: one sum over the whole lattice for each beta, then fast draws.

    It draws from both laws; permute-and-flip takes a few Gibbs draws (``privopt.oracles.draw.arrivals``).

    Args:
        max_work: the largest accepted number of table additions for one sum over the lattice. A core makes
            about 4e8 in a second.
        threads: number of cores to use; None for all.
        limits: size limits of the cell structure, beyond which the oracle refuses. The table of exponentials
            of losses counts, too.
    """

    name: ClassVar[str] = "gibbs-elimination"
    max_work: float = 2e10
    threads: int | None = None
    limits: CellLimits = field(default_factory=CellLimits)

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        reasons = why_not(problem, self.limits) + _large_losses(problem.largest_loss)
        if not reasons and isinstance(problem, ZeroOneHalfspace):
            reasons += self._long(_PlanBuilder(CellStructure.of(problem)).work)
        return reasons

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        reasons = why_not_planned(facts, self.limits) + _large_losses(facts.largest_loss)
        if not reasons and facts.precision is not None:
            reasons += self._large(CellSizes.most(facts), facts.precision.beta, facts.largest_loss)
        return reasons or self._long(_most_work(facts))

    def all_refusals(
        self, problem: DiscreteProblem, law: Law = Law.GIBBS, precision: Precision | None = None
    ) -> list[str]:
        reasons = super().all_refusals(problem, law, precision)
        if reasons or precision is None or not isinstance(problem, ZeroOneHalfspace):
            return reasons
        return self._large(CellStructure.of(problem).sizes, precision.beta, problem.largest_loss)

    def _large(self, sizes: CellSizes, beta: float, largest: int) -> list[str]:
        """Return the reason to refuse if the tables of cells and of exponentials are together too large."""
        exponentials = number_of_exponentials(beta, largest)
        if sizes.table_bytes + 8 * exponentials <= self.limits.table_bytes:
            return []
        return [
            f"tables of more than {self.limits.table_bytes / 2**20:.3g} MiB, with one of {exponentials:,} "
            "exponentials of losses: a larger epsilon, smaller costs or fewer records"
        ]

    def planned_exactness(self, facts: ProblemFacts, beta: float) -> Exactness:
        """Bound the exactness for all problems with these facts.

        Each weight is a step or a leaf, and each block has another step.
        """
        lattice = facts.lattice
        levels = int(np.sum(lattice.high - lattice.low + 1))
        steps = 1 + levels + lattice.dimension
        sizes = _Sizes(
            1 + lattice.dimension,
            _roundings(1 + (lattice.squared_radius or 0), 1 + levels + _MAX_LANES, steps),
            1 + levels,
            self.max_work,  # as a chunk takes at least one table addition
        )
        return _exactness(sizes, lattice, facts.question, beta, facts.largest_loss)

    def _long(self, work: float) -> list[str]:
        return [f"more than {self.max_work:.3g} table additions"] if work > self.max_work else []

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        assert isinstance(problem, ZeroOneHalfspace)  # by refusals
        _compile()
        threads = self.threads or os.cpu_count() or 1
        return _EliminationSampler(problem, CellStructure.of(problem), law, threads)


def _large_losses(largest: int) -> list[str]:
    return [f"losses of up to {largest}, more than 32-bit tables hold"] if largest >= EMPTY // 2 else []


def _most_work(facts: ProblemFacts) -> float:
    """Return a bound on the work for any data with these facts.

    The blocks are the declared blocks, without the columns that no row has, and perhaps joined. So all blocks
    except the largest have together at most as many assignments as all declared blocks except the largest.
    The number of levels that are summed out is at most the number of all levels.
    """
    assert facts.layout is not None  # by refusals
    span = facts.lattice.high - facts.lattice.low + 1
    blocks = sorted(math.prod(span[list(block)].tolist()) for block in facts.layout.blocks)
    norms, levels = 1 + (facts.lattice.squared_radius or 0), 1 + int(np.sum(span[facts.layout.indicators]))
    outer = CellSizes.most(facts).numeric_weights * math.prod(blocks[:-1])
    return float(min(outer * levels * norms, 10**300))


@cache
@announced("the exact sampler")
def _compile() -> None:
    """Compile all kernels, or load them from the cache, by a tiny problem, before a draw begins.

    This runs in the thread of the caller, because Python waits for the threads of pools before it exits.
    """
    lattice = IntegerLattice(-1, 1, dimension=2, radius=1.0)
    problem = ZeroOneHalfspace(np.array([[1, 0], [1, 1]]), np.array([1, -1]), lattice)
    sampler = _EliminationSampler(problem, CellStructure.of(problem), Law.GIBBS, 1)
    sampler.mass(sampler._chunks[0], exponentials_of_losses(1.0, problem.largest_loss))


@dataclass(frozen=True)
class _Chunk:
    """A part of the lattice, given by numeric weights and the digits (level numbers) of the first weights."""

    numeric: int
    digits: tuple[int, ...]


@dataclass
class _EliminationSampler(Sampler):
    problem: ZeroOneHalfspace
    cells: CellStructure
    law: Law
    threads: int

    def __post_init__(self) -> None:
        self._plan = _Plan.of(self.cells)
        self._numeric = self.cells.numeric_weights()
        self._chunks = list(self._plan.chunks(len(self._numeric)))
        self._known: tuple[float, list[Mass]] | None = None

    def draw(self, request: DrawRequest) -> Sample:
        weights = exponentials_of_losses(request.beta, self.problem.largest_loss)
        masses = self._masses(request.beta, request.watch, weights)
        whole = _joined(masses, request.beta)
        arrivals = _WeightDraws(self, request, masses, weights, whole.total)
        if self.law is Law.GIBBS:
            point = arrivals.draw()
        else:
            point = permute_and_flip(arrivals, request.beta, lambda w: self.problem.loss(w) - whole.smallest)
        problem = self.problem
        exactness = _exactness(self._sizes, problem.lattice, self.law, request.beta, problem.largest_loss)
        return Sample(point, exactness, _moments(whole, request.beta).log_partition, arrivals.nodes)

    def moments(self, beta: float, watch: Watch) -> Moments:
        weights = exponentials_of_losses(beta, self.problem.largest_loss)
        return _moments(_joined(self._masses(beta, watch, weights), beta), beta)

    def _masses(self, beta: float, watch: Watch, weights: FloatArray) -> list[Mass]:
        """Return the mass of every chunk; they are kept for further draws at the same beta."""
        if self._known is not None and self._known[0] == beta:
            return self._known[1]
        masses: list[Mass] = []
        threads = min(self.threads, len(self._chunks))
        with ThreadPoolExecutor(threads) if threads > 1 else nullcontext() as pool:
            each = map if pool is None else pool.map
            for start in range(0, len(self._chunks), 4 * self.threads):
                stop_if_asked(watch, len(masses))
                batch = self._chunks[start : start + 4 * self.threads]
                masses.extend(each(lambda chunk: self.mass(chunk, weights), batch))
        self._known = beta, masses
        return masses

    def mass(self, chunk: _Chunk, weights: FloatArray) -> Mass:
        """Return the mass of the points of a chunk."""
        a = self._numeric[chunk.numeric]
        return self._plan.mass(self.cells.tables(a), int(a @ a), chunk.digits, weights)

    @property
    def _sizes(self) -> _Sizes:
        plan = self._plan
        races, leaf_levels = 1 + len(plan.order) + len(plan.leaf), int(np.sum(plan.program.leaf_span))
        return _Sizes(races, plan.roundings, leaf_levels, len(self._chunks))


class _Sizes(NamedTuple):
    """Sizes of an elimination that determine bounds on rounding errors.

    Attributes:
        races: the number of races of a draw.
        roundings: the number of roundings from one summand to a mass.
        leaf_levels: the number of levels of all leaf weights.
        chunks: the number of chunks.
    """

    races: int
    roundings: float
    leaf_levels: int
    chunks: float


def _exactness(sizes: _Sizes, lattice: IntegerLattice, law: object, beta: float, n: int) -> Exactness:
    """Bound the rounding error of a draw, the sum over its races of the errors of their masses."""
    log_size = math.log(lattice.box_size)
    mass = UNIT_ROUNDOFF * (sizes.roundings + 4 * min(beta * n, LARGEST_EXPONENT))
    # In a norm ball the leaf weights are drawn from sums of logarithms, each at most ``magnitude``.
    magnitude = beta * n + log_size
    sums = 0 if lattice.squared_radius is None else sizes.leaf_levels
    leaf = 4 * UNIT_ROUNDOFF * magnitude * sums
    spans = int(np.max(lattice.high - lattice.low)) + 1
    underflow = math.exp(min(0.0, log_size - LARGEST_EXPONENT))
    exactness = Exactness(
        chain_error(sizes.races, mass + leaf, 2 * magnitude),
        sizes.races * underflow + lost_to_the_source(sizes.chunks + sizes.races * spans),
    )
    return exactness if law is Law.GIBBS else flipped_exactness(exactness, beta, n)


def _roundings(norms: int, additions: int, steps: int) -> float:
    """Return the number of roundings from one summand to the total mass, with a margin.

    ``norms`` is the number of values of |w|^2, for each of which there are ``additions``; ``steps`` is the
    number of levels that are enumerated.
    """
    return 4.0 * (norms * additions + steps + 16)


class _WeightDraws(RepeatedDraws):
    """Independent Gibbs draws of weights."""

    def __init__(
        self,
        sampler: _EliminationSampler,
        request: DrawRequest,
        masses: list[Mass],
        weights: FloatArray,
        rate: float,
    ) -> None:
        super().__init__(request, rate)
        self._sampler, self._log_masses = sampler, _log_masses(masses, request.beta)
        self._weights = weights
        self.nodes = len(masses)

    def draw(self) -> IntArray:
        chunk = self._sampler._chunks[race(self.request.random, self._log_masses)]
        search = _Descent(self._sampler, self.request, chunk, self._weights)
        point = search.finish(search.outer_digits())
        self.nodes += search.nodes
        return point


class _Descent:
    """A draw in a chunk: the level of each weight in turn, in proportion to conditional masses."""

    def __init__(
        self, sampler: _EliminationSampler, request: DrawRequest, chunk: _Chunk, weights: FloatArray
    ) -> None:
        self._sampler, self._request, self._chunk = sampler, request, chunk
        self._a = sampler._numeric[chunk.numeric]
        self._table = sampler.cells.tables(self._a)
        self._weights = weights
        self.nodes = 0

    def outer_digits(self) -> tuple[int, ...]:
        plan, digits, norm = self._sampler._plan, self._chunk.digits, int(self._a @ self._a)
        for j in plan.order[len(digits) :]:
            stop_if_asked(self._request.watch, self.nodes)
            masses = [plan.mass(self._table, norm, (*digits, d), self._weights) for d in range(plan.span[j])]
            self.nodes += len(masses)
            digits = (*digits, race(self._request.random, _log_masses(masses, self._request.beta)))
        return digits

    def finish(self, digits: tuple[int, ...]) -> IntArray:
        """Draw the leaf weights, given all other weights; return the point."""
        cells, plan = self._sampler.cells, self._sampler._plan
        w = np.zeros(cells.lattice.dimension, dtype=np.int64)
        w[cells.numeric] = self._a
        w[plan.order] = cells.lattice.low[plan.order] + np.array(digits, dtype=np.int64)
        scores = [self._request.beta * -table.astype(np.float64) for table in self._leaf_losses(w)]
        squares = [plan.squares(j) for j in plan.leaf]
        room = 0 if plan.squared_radius is None else plan.squared_radius - int(w @ w)
        below = _suffix_masses(scores, squares, room)
        for j, score, square, rest in zip(plan.leaf, scores, squares, below, strict=True):
            left = room - square
            log_weights = np.where(left >= 0, score + rest[np.maximum(left, 0)], -np.inf)
            v = race(self._request.random, log_weights)
            room -= int(square[v])
            w[j] = cells.lattice.low[j] + v
        return w

    def _leaf_losses(self, w: IntArray) -> list[IntArray]:
        """Return the loss in the cells of each leaf weight, at each level of the weight."""
        cells, plan = self._sampler.cells, self._sampler._plan
        lowest = w.copy()
        lowest[plan.leaf] = cells.lattice.low[plan.leaf]
        entry = cells.table_start[:-1] + cells.offsets(lowest) - cells.offset_low
        losses = {j: np.zeros(plan.span[j], dtype=np.int64) for j in plan.leaf}
        for c, first in enumerate(entry.tolist()):
            for j in cells.members(c).tolist():
                if j in losses:
                    losses[j] += self._table[first : first + plan.span[j]]
        return list(losses.values())


def _suffix_masses(scores: list[FloatArray], squares: list[IntArray], room: int) -> list[FloatArray]:
    """Return for each leaf weight the log mass of the leaf weights after it, by the |w|^2 left for these."""
    rest = np.zeros(room + 1)
    masses = [rest]
    for score, square in zip(scores[:0:-1], squares[:0:-1], strict=True):
        shifted = np.full((len(score), room + 1), -np.inf)
        for row, s, q in zip(shifted, score.tolist(), square.tolist(), strict=True):
            if q <= room:
                row[q:] = rest[: room + 1 - q] + s
        rest = np.logaddexp.reduce(shifted, axis=0)
        masses.append(rest)
    return masses[::-1]


def _joined(masses: list[Mass], beta: float) -> Mass:
    """Return the sum of masses."""
    base = min(m.smallest for m in masses)
    scales = [math.exp(-beta * (m.smallest - base)) for m in masses]
    scaled = list(zip(scales, masses, strict=True))
    return Mass(
        base,
        math.fsum(s * m.total for s, m in scaled),
        math.fsum(s * (m.excess + m.total * (m.smallest - base)) for s, m in scaled if s > 0),
    )


def _moments(mass: Mass, beta: float) -> Moments:
    return Moments(math.log(mass.total) - beta * mass.smallest, mass.smallest + mass.excess / mass.total)


def _log_masses(masses: list[Mass], beta: float) -> FloatArray:
    smallest = np.array([m.smallest for m in masses], dtype=np.float64)
    total = np.array([m.total for m in masses])
    logs: FloatArray = np.full(len(masses), -np.inf)
    some = total > 0
    logs[some] = np.log(total[some]) - beta * (smallest[some] - smallest.min())
    return logs


@dataclass(frozen=True, eq=False)
class _Plan:
    """Elimination order: the enumerated weights in order, and the weights that are summed out.

    Attributes:
        order: coordinates of the enumerated weights; the lane weights of the program come last.
        leaf: coordinates of the weights that are summed out.
        span: number of levels of each coordinate.
        is_weight: for each step, whether it fixes the digit of a weight; else it enters a block.
        program: the program for the compiled kernel. The cells without a leaf indicator belong to a
            pseudo-weight of one level, which comes before the leaf weights.
        work: approximate number of table additions for a sum over the whole lattice.
    """

    cells: CellStructure
    order: list[int]
    leaf: list[int]
    span: list[int]
    is_weight: NDArray[np.bool_]
    program: Program
    work: float

    @classmethod
    def of(cls, cells: CellStructure) -> _Plan:
        return _PlanBuilder(cells).build()

    @property
    def squared_radius(self) -> int | None:
        return self.cells.lattice.squared_radius

    @property
    def lanes(self) -> int:
        return math.prod(self.program.lane_span.tolist())

    @property
    def norms(self) -> int:
        """The number of values of |w|^2; 1 without a norm ball."""
        return 1 + (self.squared_radius or 0)

    def squares(self, j: int) -> IntArray:
        """Return w_j^2 at the levels of a coordinate; zeros without a norm ball."""
        low, high = int(self.cells.lattice.low[j]), int(self.cells.lattice.high[j])
        levels = np.arange(low, high + 1, dtype=np.int64)
        return levels**2 if self.squared_radius is not None else np.zeros_like(levels)

    @property
    def roundings(self) -> float:
        additions = int(np.sum(self.program.leaf_span)) + self.lanes
        return _roundings(self.norms, additions, int(np.sum(self.program.span)))

    def chunks(self, numeric: int) -> Iterator[_Chunk]:
        fixed, work = 0, self.work / numeric
        free = len(self.order) - len(self.program.lane_span)
        while fixed < free and work > _CHUNK_WORK:
            work /= self.span[self.order[fixed]]
            fixed += 1
        digits = [range(self.span[j]) for j in self.order[:fixed]]
        for a in range(numeric):
            for prefix in itertools.product(*digits):
                yield _Chunk(a, prefix)

    def mass(self, table: Int32Array, norm: int, digits: tuple[int, ...], weights: FloatArray) -> Mass:
        """Return the mass of points with the given first digits; ``norm`` is |a|^2 of the numeric weights."""
        fixed = np.full(len(self.is_weight), -1, dtype=np.int64)
        steps = np.flatnonzero(self.is_weight)[: len(digits)]
        fixed[steps] = digits[: len(steps)]
        lane_fixed = np.full(len(self.program.lane_span), -1, dtype=np.int64)
        lane_fixed[: len(digits) - len(steps)] = digits[len(steps) :]
        room = 0 if self.squared_radius is None else self.squared_radius - norm
        smallest, total, excess = sum_out(self.program, table, fixed, lane_fixed, room, weights)
        return Mass(int(smallest), float(total), float(excess))


class _PlanBuilder:
    """Builder of a plan: chooses the leaf block and arranges the tables of partial sums.

    The key of a table has the weights on which the table still depends: a leaf weight, and one weight of each
    block that is not enumerated yet; -1 if no indicator of the block is active.
    """

    def __init__(self, cells: CellStructure) -> None:
        self.cells = cells
        self.span = (cells.lattice.high - cells.lattice.low + 1).tolist()
        self.low = cells.lattice.low.tolist()
        active = set(cells.cell_members.tolist())
        blocks = [[j for j in block.tolist() if j in active] for block in cells.blocks]
        blocks = [b for b in blocks if b]
        free = [j for j in cells.indicators.tolist() if j not in active]
        leaf = max(blocks, key=self._assignments, default=[])
        self.leaf = leaf + free
        # The largest of the other blocks is enumerated last, so that the tables before it are reused most.
        self.outer = sorted((b for b in blocks if b is not leaf), key=self._assignments) or [[]]
        self.size = cells.table_size
        self.ops: list[list[tuple[int, int, int, int]]] = []
        self.step_weight: list[int] = []

    @property
    def work(self) -> float:
        outer = self.cells.n_numeric_weights * math.prod(self._assignments(b) for b in self.outer)
        norms = 1 + (self.cells.lattice.squared_radius or 0)
        levels = 1 + sum(self.span[j] for j in self.leaf)
        return float(min(outer * levels * norms, 10**300))  # the product may exceed a double

    def _assignments(self, block: list[int]) -> int:
        return math.prod(self.span[j] for j in block)

    def build(self) -> _Plan:
        tables = self._cell_tables()
        lanes = self._lane_weights()
        lane_tables: dict[tuple[int, ...], int] = {}
        for depth, block in enumerate(self.outer):
            last = depth == len(self.outer) - 1
            lane_tables = tables
            tables = self._enumerate(block[: len(block) - len(lanes)] if last else block, tables)
        pseudo = [-1] if (-1,) in tables else []
        names = pseudo + self.leaf
        lane_add = [[lane_tables.get((j, r), -1) for r in lanes] for j in names]
        operations = _ints([op for ops in self.ops for op in ops]).reshape(-1, 4)
        program = Program(
            span=_ints([self.span[j] if j >= 0 else 1 for j in self.step_weight]),
            low=_ints([self.low[j] if j >= 0 else 0 for j in self.step_weight]),
            start=_ints(list(itertools.accumulate((len(ops) for ops in self.ops), initial=0))),
            dst=operations[:, 0].copy(),
            width=operations[:, 1].copy(),
            prev=operations[:, 2].copy(),
            add=operations[:, 3].copy(),
            leaf_base=_ints([tables.get((j,), -1) for j in names]),
            leaf_low=_ints([self.low[j] if j >= 0 else 0 for j in names]),
            leaf_span=_ints([self.span[j] if j >= 0 else 1 for j in names]),
            lane_add=_ints(lane_add).reshape(len(names), len(lanes)),
            lane_low=_ints([self.low[j] for j in lanes]),
            lane_span=_ints([self.span[j] for j in lanes]),
            work_size=self.size,
            ball=self.cells.lattice.squared_radius is not None,
        )
        is_weight = np.array([j >= 0 for j in self.step_weight])
        order = [j for block in self.outer for j in block]
        return _Plan(self.cells, order, self.leaf, self.span, is_weight, program, self.work)

    def _cell_tables(self) -> dict[tuple[int, ...], int]:
        tables = {}
        for c in range(self.cells.n_cells):
            members = set(self.cells.members(c).tolist())
            name = tuple(next((j for j in block if j in members), -1) for block in [self.leaf, *self.outer])
            tables[name] = int(self.cells.table_start[c])
        return tables

    def _lane_weights(self) -> list[int]:
        lanes: list[int] = []
        size = 1
        for j in reversed(self.outer[-1]):
            size *= self.span[j]
            if size > _MAX_LANES:
                break
            lanes.insert(0, j)
        return lanes

    def _enumerate(self, block: list[int], tables: dict[tuple[int, ...], int]) -> dict[tuple[int, ...], int]:
        """Add the steps that enter a block and fix its weights; return the resulting tables by key."""
        names = sorted({(name[0], *name[2:]) for name in tables})
        current = self._step(-1, names, {}, {n: tables.get((n[0], -1, *n[1:]), -1) for n in names})
        for j in block:
            added = {n: tables.get((n[0], j, *n[1:]), -1) for n in names}
            current = self._step(j, names, current, added)
        return current

    def _step(
        self,
        weight: int,
        names: list[tuple[int, ...]],
        prev: dict[tuple[int, ...], int],
        added: dict[tuple[int, ...], int],
    ) -> dict[tuple[int, ...], int]:
        made, ops = {}, []
        for name in names:
            width = 1 + sum(self.span[j] - 1 for j in name if j >= 0)
            ops.append((self.size, width, prev.get(name, -1), added[name]))
            made[name] = self.size
            self.size += width
        self.ops.append(ops)
        self.step_weight.append(weight)
        return made


def _ints(values: object) -> IntArray:
    return np.array(values, dtype=np.int64)
