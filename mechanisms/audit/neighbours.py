"""Adversarial neighbours: small problems that differ in one record, on which violations are detectable.

There are four kinds:

- parity: a record whose loss is the parity of w, against its complement. The loss of every point changes
  relative to its lattice neighbours, so noise has to hide the record in all directions at once. More records
  of one parity move the loser into the tail of the noise, where its probability changes faster;
- outlier: many records that agree, one of which is replaced by an extreme one that does not;
- all-equal: every point has the same loss, so that only noise and tie-breaking decide; one record breaks the
  tie;
- duplicated: copies of two opposed records that cancel, one of which is replaced by a copy of the other kind.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from privopt.mechanisms.errors import AuditError
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.task import Task
from privopt.problems.discrete.conjunction import MonotoneConjunction, MonotoneDisjunction
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT
from privopt.problems.discrete.problem import DiscreteProblem, SeparatorSet
from privopt.problems.errors import InvalidInputError

# Larger than any feature of the shipped data, and far from overflow of a score.
_EXTREME = 1_000_000


class SignLattice(IntegerLattice):
    """The lattice {-1, 1}^d, with distances of at least 2 and points of equal norm.

    Args:
        dimension: d >= 1.
    """

    separation = 2.0

    def __init__(self, dimension: int) -> None:
        super().__init__(-1, 1, dimension=dimension)

    @cached_property
    def size(self) -> int:
        return 1 << self.dimension

    def contains(self, w: ArrayLike) -> bool:
        return super().contains(w) and bool(np.all(np.asarray(w) != 0))

    def batches(self, size: int = 1 << 16) -> Iterator[IntArray]:
        shifts = np.arange(self.dimension - 1, -1, -1)
        for start in range(0, self.size, size):
            codes = np.arange(start, min(start + size, self.size), dtype=np.int64)
            yield 2 * (codes[:, None] >> shifts & 1) - 1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SignLattice) and other.dimension == self.dimension

    def __hash__(self) -> int:
        return hash((SignLattice, self.dimension))

    def __str__(self) -> str:
        return f"{{-1, 1}}^{self.dimension}"


class ParityProblem(DiscreteProblem):
    """Problem of guessing a parity: a point errs unless its number of high coordinates has a record's parity.

    Args:
        labels: -1 (an even number of coordinates is high) or +1 (odd), shape (n,), n >= 1.
        lattice: ``SignLattice``, or a box with two levels per coordinate. A public input.

    Raises:
        InvalidInputError: other labels, or another lattice.
    """

    def __init__(self, labels: ArrayLike, lattice: IntegerLattice) -> None:
        self.labels = np.array(labels)
        if self.labels.ndim != 1 or not len(self.labels) or not np.all(np.isin(self.labels, (-1, 1))):
            raise InvalidInputError("labels must be -1 or +1, at least one")
        _check_two_levels(lattice)
        self.lattice = lattice

    @property
    def n_records(self) -> int:
        return len(self.labels)

    def losses(self, points: IntArray) -> IntArray:
        odd = np.sum(np.asarray(points) == self.lattice.high, axis=1) % 2 == 1
        return np.where(odd, np.sum(self.labels < 0), np.sum(self.labels > 0)).astype(np.int64)

    @classmethod
    def separators(cls, lattice: IntegerLattice) -> SeparatorSet:
        """Return one abstract record per coordinate; points with the high level of that coordinate err on it.

        They need not be parities: they are separators of the class of all 0/1 losses.
        """
        _check_two_levels(lattice)
        return _thresholds(lattice)


class LossTable(DiscreteProblem):
    """The most general problem over a lattice: a record is any 0/1 loss.

    Args:
        records: one row per record, one column per point in lexicographic order; entries 0 or 1.
        lattice: the points. A public input.

    Raises:
        InvalidInputError: another shape, or other entries.
    """

    def __init__(self, records: ArrayLike, lattice: IntegerLattice) -> None:
        self.records = np.array(records)
        shape = self.records.shape
        if len(shape) != 2 or shape[1] != lattice.size or shape[0] == 0:
            raise InvalidInputError(f"expected losses of shape (n, {lattice.size}), n >= 1, got {shape}")
        if not np.all(np.isin(self.records, (0, 1))):
            raise InvalidInputError("losses must be 0 or 1")
        self.lattice = lattice
        # A box numbers all of its points; the lattice may contain fewer.
        self._totals = np.zeros(lattice.box_size, dtype=np.int64)
        start = 0
        for points in lattice.batches():
            block = self.records[:, start : start + len(points)]
            self._totals[self._codes(points)] = block.sum(axis=0)
            start += len(points)

    def _codes(self, points: IntArray) -> IntArray:
        spans = tuple((self.lattice.high - self.lattice.low + 1).tolist())
        digits = tuple((np.asarray(points) - self.lattice.low).T)
        return np.asarray(np.ravel_multi_index(digits, spans), dtype=np.int64)

    @property
    def n_records(self) -> int:
        return len(self.records)

    def losses(self, points: IntArray) -> IntArray:
        return np.asarray(self._totals[self._codes(points)])

    @classmethod
    def separators(cls, lattice: IntegerLattice) -> SeparatorSet:
        """Return, per coordinate, one record for every threshold between two of its levels."""
        return _thresholds(lattice)


@dataclass(frozen=True)
class ParityOracle(DiscreteOracle):
    """Exact minimiser of parity problems of any dimension, by dynamic programming over coordinates."""

    name: ClassVar[str] = "parity"

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        if not isinstance(problem, ParityProblem):
            return ["only parity problems are known"]
        if task is Task.NORMALIZED and not isinstance(problem.lattice, SignLattice):
            return ["a term in |w|^2 is supported only if all points have the same length"]
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        lattice = problem.lattice
        spans = (lattice.high - lattice.low).tolist()
        low, high = lattice.low, lattice.high
        losses = problem.losses(np.stack([low, np.append(low[:-1], high[-1])])) * UNIT

        def solve(query: Query) -> Proposal:
            unary, radial = query.perturbation.unary, query.perturbation.radial
            tables = [(int(t[0]), int(t[s])) for t, s in zip(unary, spans, strict=True)]
            # rest[j][r]: the least sum over coordinates j and later with r (mod 2) high levels.
            rest: list[tuple[float, float]] = [(0, float("inf"))]
            for a, b in reversed(tables):
                even, odd = rest[-1]
                rest.append((min(a + even, b + odd), min(a + odd, b + even)))
            rest.reverse()
            totals = [int(losses[r]) + rest[0][r] for r in (0, 1)]
            choices = [_first(tables, rest, r) for r in (0, 1) if totals[r] == min(totals)]
            point = np.where(np.array(min(choices)) == 1, high, low)
            constant = 0 if radial is None else int(radial[lattice.dimension])
            return Proposal(point, int(min(totals)) + constant, lexicographic=True, nodes=1)

        return solve


def _first(tables: list[tuple[int, int]], rest: list[tuple[float, float]], parity: int) -> list[int]:
    """Return the lexicographically first levels (0 low, 1 high) that attain rest[0][parity]."""
    chosen = []
    for (low, _), here, then in itertools.zip_longest(tables, rest[:-1], rest[1:]):
        level = 0 if low + then[parity] == here[parity] else 1
        chosen.append(level)
        parity ^= level
    return chosen


@dataclass(frozen=True)
class Neighbours:
    """Two problems that differ in one record.

    Attributes:
        name: the kind of the pair.
        first, second: the problems; same type, lattice and number of records.

    Raises:
        AuditError: their type, lattice or number of records differs.
    """

    name: str
    first: DiscreteProblem
    second: DiscreteProblem

    def __post_init__(self) -> None:
        a, b = self.first, self.second
        if type(a) is not type(b) or a.lattice != b.lattice or a.n_records != b.n_records:
            raise AuditError("neighbours have one type, one lattice and one number of records")

    def change(self, points: IntArray) -> IntArray:
        """Return L(D, w) - L(D', w) at points, shape (k, dimension): each is -1, 0 or 1."""
        return self.first.losses(points) - self.second.losses(points)


def parity_neighbours(lattice: IntegerLattice, records: int = 1) -> Neighbours:
    """Return records of one parity, the last of which is replaced by its complement."""
    common = [1] * (records - 1)
    return Neighbours("parity", ParityProblem([*common, 1], lattice), ParityProblem([*common, -1], lattice))


def singled_out_neighbours(lattice: IntegerLattice) -> Neighbours:
    """Return one record: the first point is the only one without a loss, or the only one with a loss.

    This is the worst case of the exponential mechanism: both the numerator and the partition function change
    as much as possible.
    """
    first = np.zeros((1, lattice.size), dtype=np.int64)
    first[0, 0] = 1
    return Neighbours("singled out", LossTable(1 - first, lattice), LossTable(first, lattice))


def predefined_neighbours(
    problem_type: type[DiscreteProblem], lattice: IntegerLattice, records: int = 4
) -> tuple[Neighbours, ...]:
    """Return every predefined pair for a type of problem.

    Args:
        problem_type: a type of this package; build ``Neighbours`` directly for others.
        lattice: the lattice of both problems, at most a few hundred points for ``LossTable``.
        records: the number of records, even, >= 2.

    Raises:
        AuditError: an unknown type, or an odd number of records.
    """
    if records < 2 or records % 2:
        raise AuditError(f"an even number of records is needed, got {records}")
    if problem_type is ParityProblem:
        return (parity_neighbours(lattice),)
    typical, opposed, extreme, flat = _records(problem_type, lattice)
    most, half = records - 1, records // 2
    pairs = [
        Neighbours("outlier", *_pair(problem_type, lattice, [typical] * most, typical, extreme)),
        Neighbours("all-equal", *_pair(problem_type, lattice, [flat] * most, flat, typical)),
        Neighbours(
            "duplicated",
            *_pair(problem_type, lattice, [typical] * (half - 1) + [opposed] * half, typical, opposed),
        ),
    ]
    if problem_type is LossTable:
        pairs.append(singled_out_neighbours(lattice))
    return tuple(pairs)


# A record: a row of losses, or features and a label.
_Record = tuple[Any, ...]


def _records(problem_type: type[DiscreteProblem], lattice: IntegerLattice) -> tuple[_Record, ...]:
    """Return a typical record, its opposite, an extreme opposite, and one with equal loss at all points."""
    d = lattice.dimension
    zeros, ones, unit = (
        np.zeros(d, dtype=np.int64),
        np.ones(d, dtype=np.int64),
        np.eye(1, d, dtype=np.int64)[0],
    )
    if problem_type is ZeroOneHalfspace:
        # A score of 0 predicts -1 for all weights.
        return (unit, 1), (unit, -1), (_EXTREME * unit, -1), (zeros, 1)
    if problem_type is MonotoneConjunction:
        # All features are present: every conjunction is true.
        return (zeros, 1), (zeros, -1), (zeros, -1), (ones, 1)
    if problem_type is MonotoneDisjunction:
        return (ones, 1), (ones, -1), (ones, -1), (zeros, 1)
    if problem_type is LossTable:
        row = np.ones(lattice.size, dtype=np.int64)
        row[0] = 0
        return (row,), (1 - row,), (1 - row,), (np.zeros_like(row),)
    raise AuditError(
        f"no predefined neighbours for {problem_type.__name__}: build Neighbours from two problems that "
        "differ in one record"
    )


def _pair(
    problem_type: type[DiscreteProblem],
    lattice: IntegerLattice,
    common: list[_Record],
    one: _Record,
    other: _Record,
) -> tuple[DiscreteProblem, DiscreteProblem]:
    def problem(records: list[_Record]) -> DiscreteProblem:
        columns = [np.array(column) for column in zip(*records, strict=True)]
        made: DiscreteProblem = problem_type(*columns, lattice)  # type: ignore[call-arg]
        return made

    return problem([*common, one]), problem([*common, other])


def _check_two_levels(lattice: IntegerLattice) -> None:
    plain = lattice.squared_radius is None and np.all(lattice.high - lattice.low == 1)
    if not (isinstance(lattice, SignLattice) or plain):
        raise InvalidInputError(f"a parity needs two levels per coordinate, got {lattice}")


def _thresholds(lattice: IntegerLattice) -> SeparatorSet:
    """Return separators of all 0/1 losses: abstract records, so their features are the coordinate."""
    coordinate, tables = [], []
    for j, (low, high) in enumerate(zip(lattice.low.tolist(), lattice.high.tolist(), strict=True)):
        cuts = [high] if isinstance(lattice, SignLattice) else range(low + 1, high + 1)
        for cut in cuts:
            coordinate.append(j)
            tables.append((np.arange(low, high + 1) >= cut).astype(np.int64))
    where = np.array(coordinate, dtype=np.int64)
    rows = np.eye(lattice.dimension, dtype=np.int64)[where]
    return SeparatorSet(lattice, rows, np.ones(len(tables), dtype=np.int64), where, tuple(tables))
