"""The row model: a MIP with one prediction for each distinct record. It fits any data.

If there are many distinct records, its bounds are weak. With binaries r[j, v] (weight j has value v) every
separable term is linear, and with binaries q[s] (|w|^2 = s) every function of |w|^2. Identical records are
merged. A prediction needs a constraint in one direction only, because minimising the loss pushes it in the
other:

- halfspace: scores are integers, after division by their common divisor, so score >= 1 or score <= 0. The
  constraints have their threshold at 1/2, which is farther from 0 and 1 than the feasibility tolerance.
- conjunction and disjunction: h >= w_j for each violated feature j, or h <= the sum of these w_j.

For a Lipschitz loss, each record has a continuous column for its loss, bounded below by each linear piece of
the loss; at integer weights the least value of this column is an integer. The solver's tolerances add up over
these columns (``_row_error``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.minimize.interface import Proposal, Query, Solver, trivial_bound
from privopt.oracles.minimize.local_search import incumbent
from privopt.oracles.minimize.mip.model import Formulation, MipModel, OpenSession
from privopt.oracles.minimize.mip.point_rows import PointRows, row_refusals
from privopt.oracles.minimize.mip.search import Region, Search
from privopt.oracles.task import Task
from privopt.problems.arrays import tallied
from privopt.problems.discrete.conjunction import MonotoneConjunction, MonotoneDisjunction
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice
from privopt.problems.discrete.lipschitz import LipschitzProblem
from privopt.problems.discrete.objective import UNIT, Perturbation, levels
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.programs.lattice import ConstrainedLattice

# The feasibility tolerance (1e-6) times a score, the big M, must be below the distance 1/2 to the threshold.
_MAX_SCORE = 200_000
# The same tolerance: each row of a Lipschitz loss, and each weight in it, may have an error of this size.
_FEASIBILITY = 1e-6

_Rows = ZeroOneHalfspace | MonotoneConjunction | LipschitzProblem
_MAX_COLUMNS = 50_000
_MAX_ENTRIES = 20_000_000


@dataclass(frozen=True)
class Columns:
    """The columns of the weights, in the row model and the cell model.

    Attributes:
        level: level[j][v - low_j] is the column of r[j, v]; empty for coordinates that are not in the model.
        norm: norm[s] is the column of q[s]; empty if nothing depends on |w|^2.
    """

    level: list[NDArray[np.int64]]
    norm: NDArray[np.int64]

    def decode(self, values: FloatArray, low: IntArray) -> IntArray:
        """Return the point: each coordinate by its largest binary, or ``low`` if it is not in the model."""
        point = low.copy()
        for j, columns in enumerate(self.level):
            if len(columns):
                point[j] += int(np.argmax(values[columns]))
        return point

    def encode(self, point: IntArray, low: IntArray) -> NDArray[np.int64]:
        """Return the binaries that are 1 at a point."""
        return np.array([c[point[j] - low[j]] for j, c in enumerate(self.level) if len(c)], dtype=np.int64)


def add_weights(
    model: MipModel, lattice: IntegerLattice, coordinates: IntArray, *, radial: bool, budget: int | None
) -> Columns:
    """Add binaries r for the given coordinates, and binaries q for their sum of squares if it has a cost.

    Args:
        radial: whether to add columns q[s].
        budget: the largest allowed sum of squares, or None.
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


def require_constraints(model: MipModel, lattice: IntegerLattice, columns: Columns) -> None:
    """Add rows for the constraints of a lattice, if it has any; every weight must have columns."""
    if isinstance(lattice, ConstrainedLattice):
        points = _weight_columns(model, lattice, columns)
        rows = PointRows(model, lattice.columns, lattice.low, lattice.high, points)
        for constraint in lattice.constraints:
            rows.require(constraint)


def refusals(problem: DiscreteProblem, task: Task) -> list[str]:
    """Return every reason why the row model cannot take a problem."""
    if not isinstance(problem, _Rows):
        return _of_other_kind(type(problem))
    score = _largest_score(problem) if isinstance(problem, ZeroOneHalfspace) else 0
    if isinstance(problem, LipschitzProblem):
        score = problem.record_loss_bound
    return _too_large(problem.lattice, task, len(problem.X), int(np.count_nonzero(problem.X)), score)


def planned_refusals(facts: ProblemFacts) -> list[str]:
    """Return every reason why the row model may not take some problem with these facts."""
    if not issubclass(facts.kind, _Rows):
        return _of_other_kind(facts.kind)
    assert isinstance(facts.question, Task)  # minimisers get no other questions
    entries = facts.rows * facts.lattice.dimension
    return _too_large(facts.lattice, facts.question, facts.rows, entries, facts.largest_score)


def _of_other_kind(kind: type[DiscreteProblem]) -> list[str]:
    return [f"no row model of {kind.__name__}"]


def _too_large(lattice: IntegerLattice, task: Task, rows: int, entries: int, score: int) -> list[str]:
    """List the limits that are exceeded. The sizes are not stated, because they depend on the records."""
    reasons = row_refusals(lattice)
    columns = int(np.sum(lattice.high - lattice.low + 1)) + rows
    columns += lattice.max_squared_norm + 1 if task is Task.NORMALIZED else 0
    if columns > _MAX_COLUMNS:
        reasons.append(f"more than {_MAX_COLUMNS} columns")
    if entries > _MAX_ENTRIES:
        reasons.append(f"more than {_MAX_ENTRIES} nonzero features")
    if score > _MAX_SCORE:
        reasons.append(f"scores above {_MAX_SCORE}: floating-point tolerances would blur 0 and 1")
    return reasons


def _largest_score(problem: ZeroOneHalfspace) -> int:
    rows = _reduced(problem.X)
    low, high = _score_range(rows, problem.lattice)
    return int(max(np.max(np.abs(low)), np.max(np.abs(high))))


@dataclass(frozen=True)
class RowModel:
    """The part of the model that does not depend on the noise.

    Attributes:
        constant: loss that every point has, in units of loss.
        loss: loss of each column, shape (columns,).
    """

    problem: _Rows
    model: MipModel
    columns: Columns
    constant: int
    loss: FloatArray

    @classmethod
    def of(cls, problem: DiscreteProblem, task: Task) -> RowModel:
        assert isinstance(problem, _Rows)
        lattice, model = problem.lattice, MipModel("rows")
        columns = add_weights(
            model,
            lattice,
            np.arange(lattice.dimension),
            radial=task is Task.NORMALIZED,
            budget=lattice.squared_radius,
        )
        require_constraints(model, lattice, columns)
        if isinstance(problem, LipschitzProblem):
            constant, paid = 0, _lipschitz_rows(model, problem, columns)
        elif isinstance(problem, ZeroOneHalfspace):
            constant, paid = _halfspace_rows(model, problem, columns, list(_merged(problem)))
        else:
            constant, paid = _feature_set_rows(model, problem, columns, list(_merged(problem)))
        loss = np.zeros(model.size)
        loss[list(paid)] = list(paid.values())
        return cls(problem, model, columns, constant, loss)

    def region(self, p: Perturbation) -> Region:
        """Return the whole lattice as one region."""
        low, columns = self.problem.lattice.low, self.columns
        return Region(
            costs=lambda: self.loss + _costs(p, columns, self.model.size),
            constant=self.constant * UNIT,
            bound=trivial_bound(p),
            decode=lambda values: columns.decode(values, low),
            encode=lambda point: columns.encode(point, low),
            contains=lambda point: True,
        )


def build(problem: DiscreteProblem, task: Task, open_session: OpenSession) -> Solver:
    """Build the row model of a problem without ``refusals``, and load it into a solver."""
    rows = RowModel.of(problem, task)
    session = open_session(rows.model)

    def solve(query: Query) -> Proposal:
        search = Search(problem, query, session, row_error=_row_error(problem))
        search.offer(_incumbent(problem, query))
        return search.run([rows.region(query.perturbation)])

    return solve


def _incumbent(problem: DiscreteProblem, query: Query) -> IntArray:
    lattice = problem.lattice
    return lattice.witness if isinstance(lattice, ConstrainedLattice) else incumbent(problem, query)


def formulation(problem: DiscreteProblem, task: Task, p: Perturbation) -> Formulation:
    """Return one question as a self-contained model.

    Raises:
        UnsupportedProblemError: the problem has no row model.
    """
    if reasons := refusals(problem, task):
        raise UnsupportedProblemError("; ".join(reasons))
    rows = RowModel.of(problem, task)
    return Formulation(rows.model, rows.region(p).costs(), rows.constant)


def _costs(p: Perturbation, columns: Columns, size: int) -> FloatArray:
    """Return the perturbation as costs of columns, in units of loss; they are exact in float64."""
    costs = np.zeros(size)
    for table, level in zip(p.unary, columns.level, strict=True):
        costs[level] = table / UNIT
    if p.radial is not None:
        costs[columns.norm] = p.radial[: len(columns.norm)] / UNIT
    return costs


def _merged(problem: ZeroOneHalfspace | MonotoneConjunction) -> Iterator[tuple[IntArray, int, int]]:
    """Merge equal records, for halfspaces up to a positive factor, and add the costs of errors by label."""
    X = _reduced(problem.X) if isinstance(problem, ZeroOneHalfspace) else problem.X
    rows, inverse = np.unique(X, axis=0, return_inverse=True)
    which, costs = inverse.ravel(), problem.costs
    positive = costs.false_negative * tallied(which[problem.y > 0], problem.counts[problem.y > 0], len(rows))
    negative = costs.false_positive * tallied(which[problem.y < 0], problem.counts[problem.y < 0], len(rows))
    yield from zip(rows, positive.tolist(), negative.tolist(), strict=True)


def _reduced(X: IntArray) -> IntArray:
    """Divide each row by the greatest common divisor of its entries; zero rows are unchanged."""
    return np.asarray(X // np.maximum(1, np.gcd.reduce(X, axis=1))[:, None], dtype=np.int64)


def _score_range(rows: IntArray, lattice: IntegerLattice) -> tuple[IntArray, IntArray]:
    """Return lower and upper bounds on <w, x> over the lattice for each row x, from box and norm ball."""
    up, down = np.maximum(rows, 0), np.minimum(rows, 0)
    high = up @ lattice.high + down @ lattice.low
    low = up @ lattice.low + down @ lattice.high
    if lattice.squared_radius is not None:
        # By Cauchy-Schwarz, rounded up so that the bound is valid.
        norms = np.sqrt(np.sum(rows.astype(np.float64) ** 2, axis=1) * lattice.squared_radius)
        ball = np.ceil(norms * (1 + 1e-9) + 1e-6).astype(np.int64)
        high, low = np.minimum(high, ball), np.maximum(low, -ball)
    return low.astype(np.int64), high.astype(np.int64)


def _halfspace_rows(
    model: MipModel, problem: ZeroOneHalfspace, columns: Columns, rows: list[tuple[IntArray, int, int]]
) -> tuple[int, dict[int, int]]:
    """Add the predictions of the distinct records; return the constant loss and the loss of each column."""
    lattice = problem.lattice
    weights = _weight_columns(model, lattice, columns)
    lows, highs = _score_range(np.array([x for x, _, _ in rows]), lattice)
    constant, loss = 0, {}
    for (x, positive, negative), low, high in zip(rows, lows.tolist(), highs.tolist(), strict=True):
        if high <= 0 or low >= 1 or positive == negative:
            constant += (
                positive if high <= 0 else negative
            )  # with equal counts both predictions cost the same
            continue
        constant += positive
        (p,) = model.add(1, integer=True)
        loss[int(p)] = negative - positive  # p = 1: predicted +1
        used = np.flatnonzero(x)
        terms = np.concatenate([weights[used], [p]])
        # The rows contain twice the score, so that the threshold 1/2 becomes an integer.
        twice = (2 * x[used]).tolist()
        if negative > positive:  # minimisation prefers p = 0: score <= 1/2 unless p = 1
            model.constrain(terms, [*twice, 1 - 2 * high], "<=", 1)
        else:  # minimisation prefers p = 1: score >= 1/2 unless p = 0
            model.constrain(terms, [*twice, 2 * low - 1], ">=", 2 * low)
    return constant, loss


def _weight_columns(model: MipModel, lattice: IntegerLattice, columns: Columns) -> NDArray[np.int64]:
    """Add a continuous column equal to each weight, so that a score needs one entry per feature only."""
    found = []
    for values, level in zip(levels(lattice), columns.level, strict=True):
        (w,) = model.add(1, integer=False, low=int(values[0]), high=int(values[-1]))
        model.constrain([*level.tolist(), int(w)], [*values.tolist(), -1], "=", 0)
        found.append(int(w))
    return np.array(found, dtype=np.int64)


def _lipschitz_rows(model: MipModel, problem: LipschitzProblem, columns: Columns) -> dict[int, int]:
    """Add a column for the loss of each distinct record; return the number of records of each column."""
    weights = _weight_columns(model, problem.lattice, columns)
    records = np.column_stack([problem.X, problem.y])
    distinct, which = np.unique(records, axis=0, return_inverse=True)
    counts = tallied(which.ravel(), problem.counts, len(distinct))
    loss = {}
    for record, count in zip(distinct, counts.tolist(), strict=True):
        used = np.flatnonzero(record[:-1])
        (t,) = model.add(1, integer=False, high=problem.record_loss_bound)
        loss[int(t)] = count
        for slope, constant in problem.slopes(int(record[-1])):
            terms = [*weights[used].tolist(), int(t)]
            model.constrain(terms, [*(-slope * record[used]).tolist(), 1], ">=", constant)
    return loss


def _row_error(problem: DiscreteProblem) -> float:
    """Return a bound on the error of the summed losses at a point that is feasible up to the tolerance."""
    if not isinstance(problem, LipschitzProblem):
        return 0.0
    reach = 1 + 2 * np.sum(np.abs(problem.X), axis=1)
    return _FEASIBILITY * float(problem.counts @ reach)


def _feature_set_rows(
    model: MipModel, problem: MonotoneConjunction, columns: Columns, rows: list[tuple[IntArray, int, int]]
) -> tuple[int, dict[int, int]]:
    """Add a column h per record: 1 if and only if a chosen feature is 0 (conjunction) or 1 (disjunction).

    Returns the constant loss and the loss of each column.
    """
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
