"""Interval branch and bound over boxes of weights, for a few dense integer features.

Over a box of weights the score of a row is an interval. A row is decided if all scores in its interval have
the same sign; its errors are then counted once for the whole box. The lower bound of a box assumes that the
undecided rows are classified correctly. The least cost of the perturbation over the box and the norm ball is
found exactly, as a knapsack over |w|^2, so a box without undecided rows is solved at once. The search is
depth first, and takes the better half of a box first. All arithmetic is in int64.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.oracles.cells.compiling import announced
from privopt.oracles.cells.record import Record
from privopt.oracles.cells.regions import coupled, long_points
from privopt.oracles.cells.structure import distinct_rows
from privopt.oracles.certificate import Status
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver, refuse_large
from privopt.oracles.minimize.order import first_in_order, precedes
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation, from_fixed
from privopt.problems.discrete.problem import DiscreteProblem

# Stands for infinity. Adding perturbations, at most LARGEST_COST, to it neither overflows nor gives a value
# below _BIG // 2, the test of infinity.
_BIG = 1 << 60
_TIES = 2000  # largest number of ties that the main search opens; then ``first_in_order`` takes over
_SLICE_ROWS = 4_000_000  # number of row visits between two checks of the clock
_DONE, _PAUSED, _IMPROVED = 0, 1, 2


@dataclass(frozen=True)
class IntervalOracle(DiscreteOracle):
    """Exact minimiser of any ``ZeroOneHalfspace``, meant for up to about eight dense features.

    Args:
        max_bytes: largest accepted working memory.
        max_squared_norm: largest accepted |w|^2, if the objective or the lattice depends on |w|^2.
    """

    name: ClassVar[str] = "interval"
    max_bytes: int = 1 << 30
    max_squared_norm: int = 4096

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return self._refusals(type(problem), problem.lattice, problem.n_rows, task)

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        assert isinstance(facts.question, Task)  # minimisers get no other questions
        return self._refusals(facts.kind, facts.lattice, facts.rows, facts.question)

    def _refusals(
        self, kind: type[DiscreteProblem], lattice: IntegerLattice, rows: int, task: Task
    ) -> list[str]:
        if not issubclass(kind, ZeroOneHalfspace):
            return [f"boxes of weights are for ZeroOneHalfspace, not {kind.__name__}"]
        reasons = long_points(lattice, task, self.max_squared_norm)
        if _ROW_BYTES * rows * _depth(lattice) > self.max_bytes:
            reasons.append(f"more than {self.max_bytes / 2**20:.3g} MiB of working memory")
        return reasons

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        assert isinstance(problem, ZeroOneHalfspace)  # other problems are refused
        _compile()
        data = _Data.of(problem, coupled(problem, task))

        def solve(query: Query) -> Proposal:
            return _Search(problem, data, query).solve()

        return solve


@cache
@announced("the exact solver")
def _compile() -> None:
    """Compile all kernels, or load them from the cache, by a tiny problem, before time is measured."""
    lattice = IntegerLattice(-1, 1, dimension=2, radius=1.0)
    problem = ZeroOneHalfspace(np.array([[1, 2], [2, -1]]), np.array([1, -1]), lattice)
    query = Query(Perturbation.zero(lattice), Limits().start(), break_ties=True)
    search = _Search(problem, _Data.of(problem, coupled=True), query)
    search.solve()
    _open_bound(search.stack)


def _depth(lattice: IntegerLattice) -> int:
    """Return a bound on the number of open boxes: the number of times that a box can be halved, plus two."""
    spans = lattice.high - lattice.low
    return int(np.sum(np.ceil(np.log2(spans + 1)))) + 2


class _Data(Record):
    """The distinct rows and the lattice."""

    X: IntArray  # (g, d)
    positive: IntArray  # (g,) records with label +1, times the cost of an error
    negative: IntArray  # (g,)
    weight: NDArray[np.float64]  # (d,) sum of |feature| * cost over records: how much w_j moves scores
    low: IntArray  # (d,) lower bounds of the lattice
    room: int  # largest |w|^2 if the objective or the lattice depends on it, else 0
    depth: int
    coupled: bool

    @classmethod
    def of(cls, problem: ZeroOneHalfspace, coupled: bool) -> _Data:
        everywhere = np.zeros(problem.n_rows, dtype=np.int64)
        _, X, positive, negative = distinct_rows(everywhere, problem.X, problem)
        weight = np.abs(X).astype(np.float64).T @ (positive + negative)
        lattice = problem.lattice
        room = lattice.max_squared_norm if coupled else 0
        return cls(X, positive, negative, weight + 1e-9, lattice.low, room, _depth(lattice), coupled)


class _Stack(Record):
    """Stack of open boxes. ``slot[i]`` is the memory slot of the i-th box from the bottom."""

    slot: IntArray  # (depth,)
    low: IntArray  # (depth, d)
    high: IntArray  # (depth, d)
    bound: IntArray  # (depth,)
    errors: IntArray  # (depth,) errors on decided rows
    undecided: IntArray  # (depth,) number of undecided rows
    row: NDArray[np.int32]  # (depth, g)
    least: IntArray  # (depth, g) smallest score of each undecided row
    most: IntArray  # (depth, g) largest score
    size: IntArray  # (1,) number of boxes


_ROW_BYTES = 4 + 8 + 8


def _empty_stack(data: _Data) -> _Stack:
    depth, (rows, d) = data.depth, data.X.shape

    def zeros(*shape: int) -> NDArray[np.int64]:
        return np.zeros(shape, dtype=np.int64)

    return _Stack(
        np.arange(depth),
        zeros(depth, d),
        zeros(depth, d),
        zeros(depth),
        zeros(depth),
        zeros(depth),
        np.zeros((depth, rows), dtype=np.int32),
        zeros(depth, rows),
        zeros(depth, rows),
        zeros(1),
    )


class _Costs(Record):
    """A perturbation, and scratch memory for its knapsacks."""

    unary: IntArray  # (d, B) cost of coordinate j, at index w_j - low_j
    radial: IntArray  # (room + 1,) cost of |w|^2
    # (d + 1, room + 1) scratch memory: [j, s] is the least cost of coordinates j.. with sum of squares s.
    reach: IntArray


def _costs(data: _Data, perturbation: Perturbation) -> _Costs:
    d = len(data.low)
    unary = np.zeros((d, max(len(t) for t in perturbation.unary)), dtype=np.int64)
    for j, table in enumerate(perturbation.unary):
        unary[j, : len(table)] = table
    radial = perturbation.radial
    if radial is None:
        radial = np.zeros(data.room + 1, dtype=np.int64)
    return _Costs(unary, radial, np.zeros((d + 1, data.room + 1), dtype=np.int64))


@dataclass
class _Search:
    """The search for one query."""

    problem: ZeroOneHalfspace
    data: _Data
    query: Query

    def __post_init__(self) -> None:
        refuse_large(self.query.perturbation, "the interval oracle takes", "rescale, or enumerate")
        self.costs = _costs(self.data, self.query.perturbation)
        self.stack = _empty_stack(self.data)
        self.nodes = 0

    def solve(self) -> Proposal:
        # Copies, because the arrays of the lattice are read-only, which is another type to the compiler.
        low, high = self.problem.lattice.low.copy(), self.problem.lattice.high.copy()
        self.point, self.value = self._descend(low, high)
        ties = 0 if self.query.perturbation.is_zero or not self.query.break_ties else _TIES
        found = self._run(low, high, self.value, self.point, ties)
        assert found.point is not None  # the search started with a point
        self.point, self.value = found.point, found.value
        answer = Proposal(self.point, self.value, Status.OPTIMAL, nodes=self.nodes)
        if found.stopped is not None:
            return replace(answer, bound=found.bound, status=found.stopped)
        if not self.query.break_ties:
            return answer
        point, stopped = self.point, None
        if found.ties == 0:
            point, stopped = first_in_order(point, low, high, self._equal)
        return replace(
            answer,
            point=point,
            status=stopped or Status.OPTIMAL,
            lexicographic=stopped is None,
            nodes=self.nodes,
        )

    def _equal(self, low: IntArray, high: IntArray) -> tuple[IntArray | None, Status | None]:
        """Return a point of a box as good as the point found, or None; and the limit reached, or None."""
        found = self._run(low, high, self.value + 1, None, 0)
        return found.point, found.stopped

    def _run(self, low: IntArray, high: IntArray, cutoff: int, point: IntArray | None, ties: int) -> _Found:
        """Minimise over a box, starting from ``point`` of value ``cutoff``.

        If ``point`` is None, stop at the first point found with a value below the cutoff.
        """
        best = np.zeros_like(low) if point is None else point.copy()
        trial = np.zeros_like(low)
        _push_root(self.data, self.costs, self.stack, low, high)
        while True:
            what, found, nodes, opened = _search(
                self.data, self.costs, self.stack, cutoff, best, trial, _SLICE_ROWS, ties
            )
            self.nodes += nodes
            ties = max(0, ties - opened)
            if what == _IMPROVED:
                cutoff, best = found, trial.copy()
                if point is None:
                    return _Found(best, cutoff, cutoff, ties, None)
                point = best
            if what == _DONE:
                return _Found(point, cutoff, cutoff, ties, None)
            bound = min(cutoff, _open_bound(self.stack))
            self.query.watch.report(from_fixed(cutoff), from_fixed(bound), self.nodes)
            if (stopped := self.query.watch.stop()) is not None:
                return _Found(point, cutoff, bound, ties, stopped)

    def _descend(self, low: IntArray, high: IntArray) -> tuple[IntArray, int]:
        """Find a good point by coordinate descent, from the minimiser of the perturbation and from near 0."""
        lattice, perturbation = self.problem.lattice, self.query.perturbation
        cheapest = np.zeros_like(low)
        _cheapest(self.data, self.costs, low, high, cheapest)
        best: tuple[int, IntArray] | None = None
        for start in (cheapest, np.clip(0, lattice.low, lattice.high)):
            point, value = start.copy(), self.problem.value(start, perturbation)
            unchanged, j = 0, 0
            while unchanged < len(point) and self.query.watch.stop() is None:
                points = np.repeat(point[None, :], lattice.high[j] - lattice.low[j] + 1, axis=0)
                points[:, j] = np.arange(lattice.low[j], lattice.high[j] + 1)
                if lattice.squared_radius is not None:
                    points = points[np.einsum("ij,ij->i", points, points) <= lattice.squared_radius]
                values = self.problem.values(points, perturbation)
                first = int(np.argmin(values))
                unchanged = unchanged + 1 if values[first] >= value else 1
                if values[first] < value:
                    point, value = points[first], int(values[first])
                j = (j + 1) % len(point)
            if best is None or value < best[0]:
                best = value, point
        assert best is not None
        return best[1], best[0]


@dataclass(frozen=True)
class _Found:
    """Result of a search: the point found and the proved bound."""

    point: IntArray | None
    value: int
    bound: int
    ties: int  # number of ties that could still have been opened
    stopped: Status | None


@njit(cache=True, nogil=True)
def _push_root(data: _Data, costs: _Costs, stack: _Stack, low: IntArray, high: IntArray) -> None:
    k = stack.slot[0]
    stack.size[0] = 1
    stack.errors[k], stack.undecided[k] = 0, len(data.X)
    for j in range(len(low)):
        stack.low[k, j], stack.high[k, j] = low[j], high[j]
    for i in range(len(data.X)):
        stack.row[k, i] = i
        stack.least[k, i] = 0
        stack.most[k, i] = 0
        for j in range(len(low)):
            a, b = data.X[i, j] * low[j], data.X[i, j] * high[j]
            stack.least[k, i] += min(a, b)
            stack.most[k, i] += max(a, b)
    _judge(data, costs, stack, k)


@njit(inline="always")
def _score_bounds(x: IntArray, low: IntArray, high: IntArray, ball: float) -> tuple[int, int]:
    """Return bounds on <w, x> over a box, given that the squares of the w_j that may be 0 sum to <= ``ball``.

    By Cauchy-Schwarz, these w_j contribute at most sqrt(ball * sum of their x_j^2) in absolute value.
    """
    inside, above, below = 0.0, 0, 0
    for j in range(len(x)):
        if low[j] > 0 or high[j] < 0:
            above += max(x[j] * low[j], x[j] * high[j])
            below += min(x[j] * low[j], x[j] * high[j])
        else:
            inside += float(x[j]) * float(x[j])
    # Scores are below 2 * _BIG, but the root may be larger, and would overflow as an integer.
    reach = int(min(np.sqrt(ball * inside) * (1 + 1e-9), 2.0 * _BIG)) + 1
    return below - reach, above + reach


@njit(cache=True, nogil=True)
def _judge(data: _Data, costs: _Costs, stack: _Stack, k: int) -> None:
    """Count and remove the rows of a box that are now decided, and set the bound of the box."""
    low, high = stack.low[k], stack.high[k]
    d = len(low)
    ball = float(data.room)  # squared radius that is left by the coordinates that cannot be 0
    for j in range(d):
        if low[j] > 0 or high[j] < 0:
            ball -= min(low[j] * low[j], high[j] * high[j])
    perturbation = _least_cost(data, costs, low, high)
    if perturbation >= _BIG // 2:
        stack.bound[k] = _BIG
        return
    kept, free = 0, 0
    for n in range(stack.undecided[k]):
        i = stack.row[k, n]
        least, most = stack.least[k, n], stack.most[k, n]
        if least <= 0 < most and data.coupled:
            below, above = _score_bounds(data.X[i], low, high, ball)
            most, least = min(most, above), max(least, below)
        if least > 0:
            stack.errors[k] += data.negative[i]
        elif most <= 0:
            stack.errors[k] += data.positive[i]
        else:
            free += min(data.positive[i], data.negative[i])
            stack.row[k, kept] = i
            stack.least[k, kept] = stack.least[k, n]
            stack.most[k, kept] = stack.most[k, n]
            kept += 1
    stack.undecided[k] = kept
    stack.bound[k] = (stack.errors[k] + free) * UNIT + perturbation


@njit(cache=True, nogil=True)
def _least_cost(data: _Data, costs: _Costs, low: IntArray, high: IntArray) -> int:
    """Return the minimum of the perturbation over box and norm ball; >= _BIG // 2 if no point is in both."""
    d, room = len(low), len(costs.radial)
    if not data.coupled:
        total = costs.radial[0]
        for j in range(d):
            least = _BIG
            for w in range(low[j], high[j] + 1):
                least = min(least, costs.unary[j, w - data.low[j]])
            total += least
        return int(total)
    reach = costs.reach
    for s in range(room):
        reach[d, s] = _BIG
    reach[d, 0] = 0
    for j in range(d - 1, -1, -1):
        here, after = reach[j], reach[j + 1]
        for s in range(room):
            here[s] = _BIG
        for w in range(low[j], high[j] + 1):
            cost, q = costs.unary[j, w - data.low[j]], w * w
            for s in range(room - q):
                here[s + q] = min(here[s + q], after[s] + cost)
    least = _BIG
    for s in range(room):
        if reach[0, s] < _BIG // 2:
            least = min(least, reach[0, s] + costs.radial[s])
    return int(least)


@njit(cache=True, nogil=True)
def _cheapest(data: _Data, costs: _Costs, low: IntArray, high: IntArray, out: IntArray) -> None:
    """Write the lexicographically first minimiser of the perturbation over a box to ``out``."""
    d, room = len(low), len(costs.radial)
    goal = _least_cost(data, costs, low, high)
    used = 0
    for j in range(d):
        for w in range(low[j], high[j] + 1):
            cost = costs.unary[j, w - data.low[j]]
            if not data.coupled:
                rest = costs.radial[0]
                for i in range(j + 1, d):
                    least = _BIG
                    for v in range(low[i], high[i] + 1):
                        least = min(least, costs.unary[i, v - data.low[i]])
                    rest += least
            else:
                rest = _BIG
                for s in range(room - used - w * w):
                    if costs.reach[j + 1, s] < _BIG // 2:
                        rest = min(rest, costs.reach[j + 1, s] + costs.radial[s + used + w * w])
            if rest + cost == goal:
                out[j] = w
                goal -= cost
                used += w * w if data.coupled else 0
                break


@njit(cache=True, nogil=True)
def _split(data: _Data, costs: _Costs, stack: _Stack) -> int:
    """Halve the top box along the coordinate that moves scores most, and put the better half on top.

    Returns the number of rows visited.
    """
    top = stack.size[0] - 1
    k, other = stack.slot[top], stack.slot[top + 1]
    d, at, widest = len(data.low), 0, -1.0
    for j in range(d):
        spread = data.weight[j] * (stack.high[k, j] - stack.low[k, j])
        if spread > widest:
            at, widest = j, spread
    middle = (stack.low[k, at] + stack.high[k, at]) // 2
    for j in range(d):
        stack.low[other, j], stack.high[other, j] = stack.low[k, j], stack.high[k, j]
    old_low, old_high = stack.low[k, at], stack.high[k, at]
    stack.high[k, at], stack.low[other, at] = middle, middle + 1
    stack.errors[other], stack.undecided[other] = stack.errors[k], stack.undecided[k]
    for n in range(stack.undecided[k]):
        i = stack.row[k, n]
        x = data.X[i, at]
        stack.row[other, n] = i
        stack.least[other, n], stack.most[other, n] = stack.least[k, n], stack.most[k, n]
        if x > 0:
            stack.most[k, n] -= x * (old_high - middle)
            stack.least[other, n] += x * (middle + 1 - old_low)
        else:
            stack.least[k, n] -= x * (old_high - middle)
            stack.most[other, n] += x * (middle + 1 - old_low)
    looked = 2 * stack.undecided[k]
    _judge(data, costs, stack, k)
    _judge(data, costs, stack, other)
    if stack.bound[other] > stack.bound[k]:
        stack.slot[top], stack.slot[top + 1] = other, k
    stack.size[0] += 1
    return int(looked)


@njit(cache=True, nogil=True)
def _search(
    data: _Data,
    costs: _Costs,
    stack: _Stack,
    cutoff: int,
    best: IntArray,
    trial: IntArray,
    row_budget: int,
    tie_budget: int,
) -> Any:
    """Search until the stack is empty, a better point is found, or the budget is spent.

    A better point is written to ``trial``. Up to ``tie_budget`` boxes whose bound equals the cutoff are
    opened, to find a point that precedes ``best`` in lexicographic order; further such boxes are pruned.

    Returns:
        The outcome, the value of the point found (if _IMPROVED), and the numbers of boxes and of ties opened.
    """
    nodes, ties, rows = 0, 0, 0
    while stack.size[0] > 0:
        k = stack.slot[stack.size[0] - 1]
        bound = stack.bound[k]
        tie = bound == cutoff and ties < tie_budget
        if bound >= cutoff and not tie:
            stack.size[0] -= 1
            continue
        if rows >= row_budget:
            return _PAUSED, 0, nodes, ties
        ties += tie
        if tie and not precedes(stack.low[k], best):
            stack.size[0] -= 1
            continue
        nodes += 1
        if stack.undecided[k] > 0:
            rows += 100 + _split(data, costs, stack)
            continue
        stack.size[0] -= 1
        _cheapest(data, costs, stack.low[k], stack.high[k], trial)
        if not tie or precedes(trial, best):
            return _IMPROVED, bound, nodes, ties
    return _DONE, 0, nodes, ties


@njit(cache=True, nogil=True)
def _open_bound(stack: _Stack) -> int:
    """Return the least bound of all open boxes."""
    least = _BIG
    for i in range(stack.size[0]):
        least = min(least, stack.bound[stack.slot[i]])
    return int(least)
