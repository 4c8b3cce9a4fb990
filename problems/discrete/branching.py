"""Base of decision trees and rule lists: records by predicates and classes, and the loss of a model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.arrays import check_unmasked, record_counts
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.lattice import IntArray, IntegerLattice, check_lattice
from privopt.problems.discrete.predicates import Bools, PredicateTable
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

# Conjunctions of more literals are never counted.
MOST_LEVELS = 4
# Limit on points times rows that are predicted at a time.
_ENTRIES = 1 << 22


class BranchingProblem(DiscreteProblem):
    """Problem of choosing predicates to branch on and labels to predict, at the least cost of errors.

    A point of the lattice has one coordinate for every node where a model can branch, then one for every
    label. A node's coordinate names a predicate, or means that the model stops there, so that the coordinates
    below the node are irrelevant. Half of the coordinate's values mean to stop. So the *uniform* distribution
    over the lattice is the prior of Chipman, George and McCulloch (1998) with a constant splitting
    probability: stop with probability 1/2, otherwise any predicate. A law over points of the lattice is a law
    over models with that prior, which favours simple models.

    A branch with the same label on both sides would predict the same as no branch, so such branches are
    excluded: the two labels are a uniform pair of *different* ones. The coordinate of a label has K (K - 1)
    values c, and means the label c mod K; for the second label of a pair whose first label is a, it means the
    label (a + 1 + c // K) mod K. Both labels are uniform if c is. ``models`` computes the labels.

    Args:
        X: truth values, shape (rows, p), p >= 1, or a ``PredicateTable``. Copied.
        y: the class of each row, 0 to K - 1, shape (rows,). Copied.
        lattice: a result of ``domain``. A public input: it limits the size of models.
        costs: K x K; 1 for every error between two classes by default. A public input.
        counts: the number of records that each row stands for, shape (rows,); None: one each.

    Raises:
        InvalidInputError: wrong shapes, other labels, a lattice that ``domain`` does not return for these
            numbers of predicates and classes, or invalid counts.
    """

    levels: int
    root_splits: bool
    # Number of literals of a predicate that a node can branch on; each literal is a value of the node's
    # coordinate.
    ways: ClassVar[int]

    def __init__(
        self,
        X: ArrayLike | PredicateTable,
        y: ArrayLike,
        lattice: IntegerLattice,
        costs: CostMatrix | None = None,
        counts: ArrayLike | None = None,
    ) -> None:
        check_lattice(lattice)
        self.table = X if isinstance(X, PredicateTable) else PredicateTable.of(X)
        self.costs = CostMatrix.equal(2) if costs is None else costs
        self.record_loss_bound = self.costs.largest
        self.lattice = lattice
        self.levels, self.root_splits = self._shape(lattice)
        self.y = _class_numbers(y, self.table.rows, self.costs.classes)
        self.counts = record_counts(counts, self.table.rows, self.costs.largest)

    @classmethod
    @abstractmethod
    def places(cls, levels: int) -> tuple[int, int]:
        """Return the number of nodes to branch at, and of labels, in a model of ``levels`` levels."""

    @classmethod
    @abstractmethod
    def pairs(cls, branches: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        """Yield the pairs of labels that must differ where both are used: the two sides of a branch.

        A pair is given by the coordinates of its first and second label, and of the nodes that must stop
        for both labels to be used.
        """

    @classmethod
    def domain(
        cls, predicates: int, levels: int, classes: int = 2, *, root_splits: bool = False
    ) -> IntegerLattice:
        """Return all models of up to ``levels`` levels.

        Args:
            predicates: p >= 1, or the sum of the weights if predicates are weighted.
            levels: the largest number of predicates in a prediction, 1 to 4.
            classes: K >= 2.
            root_splits: whether every model branches at least once.

        Raises:
            InvalidInputError: a number out of its range.
        """
        if predicates < 1 or classes < 2 or not 1 <= levels <= MOST_LEVELS:
            raise InvalidInputError(
                f"models branch on one predicate or more, over 1 to {MOST_LEVELS} levels, between two "
                f"classes or more; got {predicates}, {levels} and {classes}"
            )
        branches, labels = cls.places(levels)
        high = np.full(branches + labels, classes * (classes - 1) - 1, dtype=np.int64)
        high[:branches] = 2 * cls.ways * predicates - 1
        if root_splits:
            high[0] = cls.ways * predicates - 1
        return IntegerLattice(np.zeros_like(high), high)

    def _shape(self, lattice: IntegerLattice) -> tuple[int, bool]:
        """Return the number of levels of a lattice, and whether its models branch at least once."""
        for levels in range(1, MOST_LEVELS + 1):
            for root_splits in (False, True):
                width = int(np.sum(self.table.shares))
                made = self.domain(width, levels, self.costs.classes, root_splits=root_splits)
                if made == lattice:
                    return levels, root_splits
        raise InvalidInputError(
            f"{lattice} is no domain of a {type(self).__name__} over {len(self.table)} predicates and "
            f"{self.costs.classes} classes: make it with {type(self).__name__}.domain"
        )

    @property
    def n_records(self) -> int:
        return int(np.sum(self.counts))

    @property
    def n_rows(self) -> int:
        return self.table.rows

    @property
    def X(self) -> Bools:
        """The truth values, shape (rows, p)."""
        return np.concatenate([truths for _, truths in self.table.blocks()])

    def models(self, points: IntArray) -> IntArray:
        """Return points whose label coordinates are replaced by classes; shape (models, dimension)."""
        found = np.array(points, dtype=np.int64)
        branches, classes = found.shape[1] // 2, self.costs.classes
        away, stops = 1 + found // classes, found >= self.ways * len(self.table.values)
        found[:, branches:] %= classes
        for first, second, nodes in self.pairs(branches):
            both = np.all(stops[:, nodes], axis=1)
            label = (found[:, first] + away[:, second]) % classes
            found[:, second] = np.where(both, label, found[:, second])
        return found

    def losses(self, points: IntArray) -> IntArray:
        chosen = self.models(points)
        total, price = np.zeros(len(chosen), dtype=np.int64), self.costs.matrix
        values = self.table.values
        for rows, truths in self.table.blocks():
            truths = truths[:, values]
            size = max(1, _ENTRIES // len(truths))
            for start in range(0, len(chosen), size):
                part = slice(start, start + size)
                told = self.predictions(chosen[part], truths)
                total[part] += price[self.y[rows], told] @ self.counts[rows]
        return total

    @classmethod
    @abstractmethod
    def predictions(cls, models: IntArray, truths: Bools) -> IntArray:
        """Return the predicted classes of models for rows; shape (models, rows).

        Args:
            models: as ``models`` returns them, shape (models, dimension).
            truths: truth values of the predicates, each repeated as often as its weight; shape (rows, sum of
                the weights).
        """


def _class_numbers(y: ArrayLike, rows: int, classes: int) -> IntArray:
    check_unmasked(y, "y")
    given = np.asarray(y)
    if given.shape != (rows,) or given.dtype.kind not in "iu":
        raise InvalidInputError(f"expected the number of a class for each row, shape ({rows},)")
    if np.any(given < 0) or np.any(given >= classes):
        raise InvalidInputError(f"classes are numbered from 0 to {classes - 1}")
    return given.astype(np.int64)
