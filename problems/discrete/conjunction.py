"""Monotone conjunctions and disjunctions over {0, 1}^d under exact 0/1 loss."""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.arrays import record_counts
from privopt.problems.discrete.costs import EQUAL_COSTS, Costs
from privopt.problems.discrete.halfspace import integer_matrix, sign_labels
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.problem import RowProblem, SeparatorSet
from privopt.problems.errors import InvalidInputError


class MonotoneConjunction(RowProblem):
    """Choose a set of features (w in {0, 1}^d); predict +1 exactly when all chosen features are 1.

    The empty set predicts +1 for everybody.

    Args:
        X: binary features, shape (rows, d), rows >= 1: a record each, unless there are ``counts``. Copied.
        y: labels -1 or +1, shape (rows,). Copied.
        lattice: the sets to choose from, within {0, 1}^d; a radius of sqrt(k) means at most k features.
            A public input. Default: all of {0, 1}^d.
        costs: the cost of either kind of error; 1 each by default. A public input.
        counts: the number of records that each row stands for, shape (rows,); None: one each.

    Raises:
        InvalidInputError: wrong shapes, features other than 0 and 1, labels other than -1 and +1, a lattice
            beyond {0, 1}^d, invalid counts.
    """

    # A record violates feature j when x_j equals this value.
    _violating_value: ClassVar[int] = 0

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        lattice: IntegerLattice | None = None,
        costs: Costs = EQUAL_COSTS,
        counts: ArrayLike | None = None,
    ) -> None:
        columns = np.shape(X)[1] if np.ndim(X) == 2 else 0
        self.lattice = lattice or IntegerLattice(0, 1, dimension=columns)
        _check_binary(self.lattice)
        self.X = integer_matrix(X, self.lattice.dimension)
        if not np.all((self.X == 0) | (self.X == 1)):
            raise InvalidInputError("features must be 0 or 1")
        self.y = sign_labels(y, len(self.X))
        self.costs, self.record_loss_bound = costs, costs.largest
        self.counts = record_counts(counts, len(self.X), costs.largest)

    def predict(self, w: IntArray) -> IntArray:
        """Return predictions -1 or +1 for all rows, shape (rows,)."""
        return self._predictions(np.asarray(w, dtype=np.int64)[None, :])[:, 0]

    def losses(self, points: IntArray) -> IntArray:
        chunk = max(1, (1 << 22) // self.n_rows)
        chosen = np.asarray(points, dtype=np.int64)
        parts = [self._predictions(chosen[i : i + chunk]) for i in range(0, len(chosen), chunk)]
        price = self.counts * self.costs.of(self.y)
        return np.concatenate([price @ (p != self.y[:, None]) for p in parts]).astype(np.int64)

    def _predictions(self, points: IntArray) -> IntArray:
        violated = np.equal(self.X, self._violating_value).astype(np.int64)
        hits = violated @ points.T
        return self._label(hits > 0)

    @staticmethod
    def _label(hit: np.typing.NDArray[np.bool_]) -> IntArray:
        return np.where(hit, -1, 1).astype(np.int64)

    def with_records(self, X: ArrayLike, y: ArrayLike) -> Self:
        return type(self)(X, y, self.lattice, self.costs)

    @classmethod
    def separators(cls, lattice: IntegerLattice) -> SeparatorSet:
        """Return one record per free feature: it violates that feature and no other."""
        _check_binary(lattice)
        free = np.flatnonzero(lattice.low < lattice.high)
        unit = np.eye(lattice.dimension, dtype=np.int64)[free]
        violating = unit if cls._violating_value == 1 else 1 - unit
        # Labelled +1 for a conjunction: an error exactly when the feature is chosen.
        label = int(cls._label(np.array([False]))[0])
        tables = tuple(np.array([0, 1], dtype=np.int64) for _ in free)
        labels = np.full(len(free), label, dtype=np.int64)
        return SeparatorSet(lattice, violating, labels, free.astype(np.int64), tables)


class MonotoneDisjunction(MonotoneConjunction):
    """Choose a set of features; predict +1 exactly when at least one chosen feature is 1.

    The empty set predicts -1 for everybody. The negation of a conjunction over negated features.
    """

    _violating_value: ClassVar[int] = 1

    @staticmethod
    def _label(hit: np.typing.NDArray[np.bool_]) -> IntArray:
        return np.where(hit, 1, -1).astype(np.int64)


def _check_binary(lattice: IntegerLattice) -> None:
    if np.any(lattice.low < 0) or np.any(lattice.high > 1):
        raise InvalidInputError(f"sets of features live in {{0, 1}}^d, got {lattice}")
