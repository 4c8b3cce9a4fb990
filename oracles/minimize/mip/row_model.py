"""The row model: one prediction per distinct record. Takes any data; its bounds are weak on many records.

Binaries r[j, v] say that weight j has value v, so any separable term is linear; q[s] say that |w|^2 = s, so
any function of |w|^2 is. Identical records are merged, and only the direction in which the loss pulls against
a prediction needs a row:

- halfspace: scores are integers, brought down by their common divisor, so "score >= 1" and "score <= 0" are
  all that can happen; rows switch at 1/2, half a grid step away from both, which tolerances cannot cross;
- conjunction and disjunction: h >= w_j for each violated feature j, h <= the sum of those w_j.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.minimize.interface import Proposal, Query, Solver
from privopt.oracles.minimize.mip.model import MipModel, open_session
from privopt.oracles.minimize.mip.search import Region, Search, trivial_bound
from privopt.oracles.task import Task
from privopt.problems.arguments import tallied
from privopt.problems.discrete.conjunction import MonotoneConjunction, MonotoneDisjunction
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation, levels
from privopt.problems.discrete.problem import DiscreteProblem

# Tolerance (1e-6) times big-M has to stay below half a grid step.
_MAX_SCORE = 200_000
_MAX_COLUMNS = 50_000
_MAX_ENTRIES = 20_000_000
# Candidate-record-feature triples spent on a first incumbent.
_DESCENT_WORK = 2e8


@dataclass(frozen=True)
class Columns:
    """The columns of the weights, which both models share.

    Attributes:
        level: level[j][v - low_j] is the column of r[j, v]; empty for coordinates that are not in the model.
        norm: norm[s] is the column of q[s]; empty if nothing depends on |w|^2.
    """

    level: list[NDArray[np.int64]]
    norm: NDArray[np.int64]

    def decode(self, values: FloatArray, low: IntArray) -> IntArray:
        """Each coordinate at its largest binary; coordinates that are not in the model stay at ``low``."""
        point = low.copy()
        for j, columns in enumerate(self.level):
            if len(columns):
                point[j] += int(np.argmax(values[columns]))
        return point

    def encode(self, point: IntArray, low: IntArray) -> NDArray[np.int64]:
        """The binaries that are 1 at a point."""
        return np.array([c[point[j] - low[j]] for j, c in enumerate(self.level) if len(c)], dtype=np.int64)


def add_weights(
    model: MipModel, lattice: IntegerLattice, coordinates: IntArray, *, radial: bool, budget: int | None
) -> Columns:
    """Binaries for the given coordinates, and for their sum of squares if a function of it is needed.

    Args:
        radial: make columns q[s].
        budget: largest sum of squares, or None.
    """
    chosen = set(coordinates.tolist())
    squares: list[IntArray] = []
    level: list[NDArray[np.int64]] = []
    for j, values in enumerate(levels(lattice)):
        columns = model.add(len(values), integer=True) if j in chosen else np.empty(0, dtype=np.int64)
        if j in chosen:
            model.choose_one(columns)
            squares.append(values**2)
        level.append(columns)
    flat = np.concatenate([*(c for c in level if len(c)), np.empty(0, dtype=np.int64)]).astype(np.int64)
    square = np.concatenate([*squares, np.empty(0, dtype=np.int64)])
    most = sum(int(s.max()) for s in squares)
    reach = most if budget is None else min(most, budget)
    norm = np.empty(0, dtype=np.int64)
    if radial:
        norm = model.add(reach + 1, integer=True)
        model.choose_one(norm)
        model.constrain(np.concatenate([flat, norm]), np.concatenate([square, -np.arange(reach + 1)]), "=", 0)
    elif reach < most:
        model.constrain(flat, square, "<=", reach)
    return Columns(level, norm)


def refusals(problem: DiscreteProblem, task: Task) -> list[str]:
    """Every reason why the row model cannot take a problem."""
    if not isinstance(problem, ZeroOneHalfspace | MonotoneConjunction):
        return [f"no row model of {type(problem).__name__}"]
    lattice = problem.lattice
    reasons = []
    columns = int(np.sum(lattice.high - lattice.low + 1)) + len(problem.X)
    columns += lattice.max_squared_norm + 1 if task is Task.NORMALIZED else 0
    if columns > _MAX_COLUMNS:
        reasons.append(f"{columns} columns, more than {_MAX_COLUMNS}")
    if (entries := int(np.count_nonzero(problem.X))) > _MAX_ENTRIES:
        reasons.append(f"{entries} nonzero features, more than {_MAX_ENTRIES}")
    if isinstance(problem, ZeroOneHalfspace):
        largest = _largest_score(problem)
        if largest > _MAX_SCORE:
            reasons.append(
                # The largest score itself is all but a record: it is not quoted.
                f"scores above {_MAX_SCORE}: floating-point tolerances would blur 0 and 1"
            )
    return reasons


def _largest_score(problem: ZeroOneHalfspace) -> int:
    rows = _reduced(problem.X)
    low, high = _score_range(rows, problem.lattice)
    return int(max(np.max(np.abs(low)), np.max(np.abs(high))))


def build(problem: DiscreteProblem, task: Task, solver: str) -> Solver:
    """The row model of a problem that ``refusals`` has nothing against."""
    assert isinstance(problem, ZeroOneHalfspace | MonotoneConjunction)
    lattice = problem.lattice
    model = MipModel("rows")
    columns = add_weights(
        model,
        lattice,
        np.arange(lattice.dimension),
        radial=task is Task.NORMALIZED,
        budget=lattice.squared_radius,
    )
    rows = list(_merged(problem))
    if isinstance(problem, ZeroOneHalfspace):
        fixed, loss = _halfspace_rows(model, problem, columns, rows)
    else:
        fixed, loss = _feature_set_rows(model, problem, columns, rows)
    session = open_session(model, solver)
    loss_costs = np.zeros(len(model.columns))
    loss_costs[list(loss)] = list(loss.values())

    def solve(query: Query) -> Proposal:
        search = Search(problem, query, session)
        if (first := _incumbent(problem, query)) is not None:
            search.offer(first)
        region = Region(
            costs=lambda: loss_costs + _costs(query.perturbation, columns, len(model.columns)),
            constant=fixed * UNIT,
            bound=trivial_bound(query.perturbation),
            decode=lambda values: columns.decode(values, lattice.low),
            encode=lambda point: columns.encode(point, lattice.low),
            contains=lambda point: True,
        )
        return search.run([region])

    return solve


def _incumbent(problem: ZeroOneHalfspace | MonotoneConjunction, query: Query) -> IntArray | None:
    lattice = problem.lattice
    move = float(np.sum(lattice.high - lattice.low)) * problem.X.size
    count = int(np.clip(_DESCENT_WORK / (8 * max(1.0, move)), 1, 8))
    return _descend(
        lambda points: problem.values(points, query.perturbation),
        lattice,
        _starting_points(query.perturbation, count),
        lambda: query.watch.stop() is not None,
    )


def _costs(p: Perturbation, columns: Columns, size: int) -> FloatArray:
    """The perturbation as column costs in units of loss. Multiples of 2**-20 below 2**32 are exact."""
    costs = np.zeros(size)
    for table, level in zip(p.unary, columns.level, strict=True):
        costs[level] = table / UNIT
    if p.radial is not None:
        costs[columns.norm] = p.radial[: len(columns.norm)] / UNIT
    return costs


def _merged(problem: ZeroOneHalfspace | MonotoneConjunction) -> Iterator[tuple[IntArray, int, int]]:
    """Distinct records (up to a positive factor, for halfspaces): what labels +1 and -1 cost if missed."""
    X = _reduced(problem.X) if isinstance(problem, ZeroOneHalfspace) else problem.X
    rows, inverse = np.unique(X, axis=0, return_inverse=True)
    which, costs = inverse.ravel(), problem.costs
    positive = costs.false_negative * tallied(which[problem.y > 0], problem.counts[problem.y > 0], len(rows))
    negative = costs.false_positive * tallied(which[problem.y < 0], problem.counts[problem.y < 0], len(rows))
    yield from zip(rows, positive.tolist(), negative.tolist(), strict=True)


def _reduced(X: IntArray) -> IntArray:
    """Rows divided by the greatest common divisor of their entries; rows of zeros stay."""
    return np.asarray(X // np.maximum(1, np.gcd.reduce(X, axis=1))[:, None], dtype=np.int64)


def _score_range(rows: IntArray, lattice: IntegerLattice) -> tuple[IntArray, IntArray]:
    """Bounds on <w, x> over the lattice for rows x: from the box and from the norm ball."""
    up, down = np.maximum(rows, 0), np.minimum(rows, 0)
    high = up @ lattice.high + down @ lattice.low
    low = up @ lattice.low + down @ lattice.high
    if lattice.squared_radius is not None:
        # Cauchy and Schwarz, rounded up: a bound may be loose, never tight.
        norms = np.sqrt(np.sum(rows.astype(np.float64) ** 2, axis=1) * lattice.squared_radius)
        ball = np.ceil(norms * (1 + 1e-9) + 1e-6).astype(np.int64)
        high, low = np.minimum(high, ball), np.maximum(low, -ball)
    return low.astype(np.int64), high.astype(np.int64)


def _halfspace_rows(
    model: MipModel, problem: ZeroOneHalfspace, columns: Columns, rows: list[tuple[IntArray, int, int]]
) -> tuple[int, dict[int, int]]:
    """Predictions of the distinct records; the constant part of the loss and the loss of each column."""
    lattice = problem.lattice
    weights = _weight_columns(model, lattice, columns)
    lows, highs = _score_range(np.array([x for x, _, _ in rows]), lattice)
    constant, loss = 0, {}
    for (x, positive, negative), low, high in zip(rows, lows.tolist(), highs.tolist(), strict=True):
        if high <= 0 or low >= 1 or positive == negative:
            constant += positive if high <= 0 else negative  # equal counts: either way
            continue
        constant += positive
        (p,) = model.add(1, integer=True)
        loss[int(p)] = negative - positive  # p = 1: predicted +1
        used = np.flatnonzero(x)
        terms = np.concatenate([weights[used], [p]])
        if negative > positive:  # the loss pulls p down: score <= 1/2 unless p = 1
            model.constrain(terms, [*x[used].tolist(), 0.5 - high], "<=", 0.5)
        else:  # up: score >= 1/2 unless p = 0
            model.constrain(terms, [*x[used].tolist(), low - 0.5], ">=", low)
    return constant, loss


def _weight_columns(model: MipModel, lattice: IntegerLattice, columns: Columns) -> NDArray[np.int64]:
    """Continuous columns equal to the weights, so that a score has one entry per feature."""
    found = []
    for values, level in zip(levels(lattice), columns.level, strict=True):
        (w,) = model.add(1, integer=False, low=float(values[0]), high=float(values[-1]))
        model.constrain([*level.tolist(), int(w)], [*values.tolist(), -1], "=", 0)
        found.append(int(w))
    return np.array(found, dtype=np.int64)


def _feature_set_rows(
    model: MipModel, problem: MonotoneConjunction, columns: Columns, rows: list[tuple[IntArray, int, int]]
) -> tuple[int, dict[int, int]]:
    """h = 1 where a chosen feature is violated (conjunction) or present (disjunction)."""
    disjunction = isinstance(problem, MonotoneDisjunction)
    lattice = problem.lattice
    constant, loss = 0, {}
    for x, positive, negative in rows:
        hit, miss = (negative, positive) if disjunction else (positive, negative)  # loss if h = 1, h = 0
        features = np.flatnonzero(x == (1 if disjunction else 0))
        if np.any(lattice.low[features] == 1):
            constant += hit
            continue
        chosen = [int(columns.level[j][1]) for j in features if lattice.high[j] == 1]
        if not chosen or hit == miss:
            constant += miss
            continue
        constant += miss
        (h,) = model.add(1, integer=False)
        loss[int(h)] = hit - miss
        if hit > miss:
            for c in chosen:
                model.constrain([c, int(h)], [1, -1], "<=", 0)
        else:
            model.constrain([*chosen, int(h)], [*([1] * len(chosen)), -1], ">=", 0)
    return constant, loss


def _descend(
    values: Callable[[IntArray], IntArray],
    lattice: IntegerLattice,
    starts: Sequence[IntArray],
    stop: Callable[[], bool],
) -> IntArray | None:
    """Coordinate descent on the exact objective from several points; the best point found.

    Args:
        values: exact objectives of points of shape (k, dimension).
        lattice: the domain.
        starts: points of the lattice.
        stop: polled between moves.
    """
    best: tuple[int, IntArray] | None = None
    for start in starts:
        point, value = start, int(values(start[None, :])[0])
        while not stop():
            moves = _neighbours(point, lattice)
            if len(moves) == 0:
                break
            found = values(moves)
            first = int(np.argmin(found))
            if int(found[first]) >= value:
                break
            point, value = moves[first], int(found[first])
        if best is None or value < best[0]:
            best = value, point
        if stop():
            break
    return None if best is None else best[1]


def _starting_points(perturbation: Perturbation, count: int) -> list[IntArray]:
    """The lattice point nearest to the origin, the box minimiser of the unary terms if it is feasible, and
    random walks from the origin (a fixed generator: answers do not depend on the time of day)."""
    lattice = perturbation.lattice
    origin = np.clip(np.zeros(lattice.dimension, dtype=np.int64), lattice.low, lattice.high)
    points = [origin]
    flat = np.array([int(np.argmin(t)) for t in perturbation.unary], dtype=np.int64) + lattice.low
    points += [flat] if lattice.contains(flat) else []
    rng = np.random.default_rng(0)
    while len(points) < count:
        point = origin.copy()
        for j in rng.permutation(lattice.dimension):
            trial = point.copy()
            trial[j] = rng.integers(lattice.low[j], lattice.high[j] + 1)
            if lattice.contains(trial):
                point = trial
        points.append(point)
    return points


def _neighbours(point: IntArray, lattice: IntegerLattice) -> IntArray:
    """All lattice points that differ from ``point`` in one coordinate."""
    moves = []
    for j in range(lattice.dimension):
        levels = np.arange(lattice.low[j], lattice.high[j] + 1)
        block = np.repeat(point[None, :], len(levels), axis=0)
        block[:, j] = levels
        moves.append(block[levels != point[j]])
    block = np.concatenate(moves)
    if lattice.squared_radius is not None:
        block = block[np.einsum("ij,ij->i", block, block) <= lattice.squared_radius]
    return block
