"""The interface of a discrete problem: integer losses over a lattice, and separator sets."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.arguments import check_type
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation, to_fixed
from privopt.problems.errors import InvalidInputError


class DiscreteProblem(ABC):
    """Minimise an integer loss L(D, w), such as a number of errors, over the points w of a lattice.

    Every record contributes a whole number between 0 and B to the loss, B = ``record_loss_bound``. Mechanisms
    rely on two consequences: replacing one record changes L at a fixed w by at most B, and a difference
    L(D, w) - L(D, v) by at most 2 B. A class sets B for all its problems. Where B follows from public costs,
    each problem sets its own B, and plans made for a smaller B refuse the problem.
    """

    record_loss_bound: int = 1
    # G, if |l(w) - l(v)| <= G |w - v| for the loss l of a record: OPDisc can be calibrated to G.
    record_lipschitz: float = math.inf
    # Bound on the error of ``losses``. Only exact losses change by at most B, so a draw is charged for the
    # error.
    loss_error: int = 0
    lattice: IntegerLattice

    @property
    @abstractmethod
    def n_records(self) -> int:
        """The number of records: public under the replace-one relation."""

    @property
    def n_rows(self) -> int:
        """The number of distinct rows: fewer than records where rows have counts. Not public."""
        return self.n_records

    @property
    def largest_loss(self) -> int:
        """A public bound on L(D, w), from which bounds on floating-point errors are computed."""
        return self.n_records * self.record_loss_bound

    @abstractmethod
    def losses(self, points: IntArray) -> IntArray:
        """Return exact losses at points of shape (k, dimension); shape (k,)."""

    @classmethod
    def separators(cls, lattice: IntegerLattice) -> SeparatorSet:
        """Return a separator set of the problem over a lattice, from public facts alone.

        Raises:
            InvalidInputError: the lattice has two points with the same loss on every record, or the class
                defines no separator set.
        """
        raise InvalidInputError(f"{cls.__name__} has no separator set: use a mechanism that draws")

    def loss(self, w: IntArray) -> int:
        """Return the exact loss at one point."""
        return int(self.losses(np.asarray(w, dtype=np.int64)[None, :])[0])

    def values(self, points: IntArray, perturbation: Perturbation) -> IntArray:
        """Return exact fixed-point objectives: losses * UNIT + perturbation; shape (k,)."""
        return self.losses(points) * UNIT + perturbation.values(points)

    def value(self, w: IntArray, perturbation: Perturbation) -> int:
        """Return the exact fixed-point objective at one point, as a Python integer."""
        return int(self.values(np.asarray(w, dtype=np.int64)[None, :], perturbation)[0])


class RowProblem(DiscreteProblem):
    """Problem over rows of integers, each of which stands for a number of records.

    Attributes:
        X: the rows, shape (rows, d).
        y: their labels, shape (rows,).
        counts: the number of records that each row stands for, shape (rows,).
    """

    X: IntArray
    y: IntArray
    counts: IntArray

    @abstractmethod
    def with_records(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Return the same problem, with the same public inputs, over other records."""

    @property
    def n_records(self) -> int:
        return int(np.sum(self.counts))

    @property
    def n_rows(self) -> int:
        return len(self.X)


class ScoreProblem(RowProblem):
    """Problem whose losses depend on the score <w, x> of a row."""

    def losses(self, points: IntArray) -> IntArray:
        weights = np.ascontiguousarray(np.asarray(points, dtype=np.int64).T)
        total = np.zeros(weights.shape[1], dtype=np.int64)
        rows = max(1, (1 << 22) // max(1, weights.shape[1]))
        for start in range(0, len(self.X), rows):
            block = slice(start, start + rows)
            total += self._losses_of_scores(self.X[block] @ weights, block)
        return total

    @abstractmethod
    def _losses_of_scores(self, scores: IntArray, rows: slice) -> IntArray:
        """Sum the losses of some rows, from their scores at k points, shape (rows, k); shape (k,)."""


@dataclass(frozen=True, eq=False)
class SeparatorSet:
    """Records e_1..e_m such that any two points of the lattice differ in loss on at least one e_i.

    Neel, Roth and Wu (2018), Definition 10. Here the loss on each separator is a function of one
    coordinate, which is true of all problems in this package and keeps perturbations separable.

    Attributes:
        lattice: the domain that is separated.
        records: features of the separators, shape (m, dimension).
        labels: their labels, shape (m,).
        coordinate: the coordinate that decides the loss on each, shape (m,).
        loss_tables: ``loss_tables[k][w_j - low_j]`` in {0, 1}, j = coordinate[k]: 1 where the record is
            misclassified, whatever the cost. Calibrations rely on a difference of exactly 1.

    Raises:
        InvalidInputError: other entries in a loss table.
    """

    lattice: IntegerLattice
    records: IntArray
    labels: IntArray
    coordinate: IntArray
    loss_tables: tuple[IntArray, ...]

    def __post_init__(self) -> None:
        if not all(np.all((table == 0) | (table == 1)) for table in self.loss_tables):
            raise InvalidInputError(
                "the loss tables of separators hold 0 and 1: whether a record has a loss, not what it costs"
            )

    @property
    def size(self) -> int:
        """The number m of separators."""
        return len(self.loss_tables)

    def losses(self, w: IntArray) -> IntArray:
        """Return phi(w): the losses of one point on all separators, shape (m,)."""
        low = self.lattice.low
        pairs = zip(self.coordinate.tolist(), self.loss_tables, strict=True)
        return np.array([table[int(w[j] - low[j])] for j, table in pairs], dtype=np.int64)

    def perturbation(self, weights: IntArray) -> Perturbation:
        """Return sum_k weights[k] * loss(w, e_k) for weights of shape (m,) already in fixed point."""
        if weights.shape != (self.size,) or weights.dtype != np.int64:
            raise InvalidInputError(f"expected {self.size} fixed-point (int64) weights")
        spans = (self.lattice.high - self.lattice.low + 1).tolist()
        unary = [np.zeros(s, dtype=np.int64) for s in spans]
        for weight, j, table in zip(weights, self.coordinate.tolist(), self.loss_tables, strict=True):
            unary[j] += weight * table
        return Perturbation(self.lattice, tuple(unary))

    def weighted(self, weights: object) -> Perturbation:
        """Return the ``perturbation`` by real weights, each rounded to the grid first."""
        return self.perturbation(to_fixed(np.asarray(weights, dtype=np.float64)))


def check_question(problem: object, question: object, kind: type) -> None:
    """Raise InvalidTypeError unless a problem comes with a question of the kind that an oracle answers."""
    check_type(problem, DiscreteProblem, "an oracle is prepared for a problem, such as a ZeroOneHalfspace")
    check_type(question, kind, f"this oracle is prepared for a {kind.__name__}")
