"""A finite list of candidate scorecards (integer halfspaces) as a domain, under exact 0/1 loss."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arrays import tallied
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

# Scores up to this size are exact in float64, where matrix products are many times as fast as in int64.
_EXACT_IN_DOUBLES = 1 << 53
# Entries of features and scores that are converted at a time: they stay in cache.
_CHUNK = 1 << 17


class CandidateCards(DiscreteProblem):
    """Choose a scorecard from a list, and its intercept from a list of candidate values (a ladder).

    The point (i, j) stands for row i of ``cards`` with its last weight replaced by ``ladders[i, j]``. The
    losses of all intercepts of a card are counted in one pass over its scores, so further intercepts cost
    next to nothing. Two cards may err on the same records, so there is no separator set.

    Privacy: list and ladders must be public, or released already: a draw over them is then a draw over a
    fixed finite domain, with the losses of ``ZeroOneHalfspace``.

    Args:
        table: the records, and the lattice that the cards lie in.
        cards: weights, shape (k, d), k >= 1.
        ladders: candidate weights of the last feature, sorted along rows, shape (k, t), t >= 1. If t > 1,
            that feature must be one constant > 0 in every record. A weight that occurs several times counts
            as several candidates, which makes it more probable. None: each card's own last weight.

    Raises:
        InvalidInputError: wrong shapes, ladders that are not sorted, or without a constant feature.
    """

    def __init__(self, table: ZeroOneHalfspace, cards: ArrayLike, ladders: ArrayLike | None = None) -> None:
        self.table, self.record_loss_bound = table, table.record_loss_bound
        self.cards = np.array(cards, dtype=np.int64)
        if self.cards.ndim != 2 or self.cards.shape[1] != table.lattice.dimension or not len(self.cards):
            raise InvalidInputError(
                f"expected cards of shape (k, {table.lattice.dimension}), k >= 1, got {self.cards.shape}"
            )
        given = self.cards[:, -1:] if ladders is None else ladders
        self.ladders = np.array(given, dtype=np.int64)
        if self.ladders.ndim != 2 or len(self.ladders) != len(self.cards) or not self.ladders.size:
            raise InvalidInputError(f"expected one ladder for each card, got {self.ladders.shape}")
        if np.any(self.ladders[:, 1:] < self.ladders[:, :-1]):
            raise InvalidInputError("the weights of a ladder must be sorted, the smallest first")
        self.cards[:, -1] = self.ladders[:, 0]
        constant = table.X[:, -1]
        if self.ladders.shape[1] > 1 and (constant[0] <= 0 or np.any(constant != constant[0])):
            raise InvalidInputError("ladders need a constant feature > 0, the last one")
        top = [len(self.cards) - 1, self.ladders.shape[1] - 1]
        self.lattice = IntegerLattice([0, 0], top)

    @property
    def n_records(self) -> int:
        return self.table.n_records

    @property
    def n_rows(self) -> int:
        return self.table.n_rows

    def card(self, point: IntArray) -> IntArray:
        """Return the weights that a point stands for, shape (d,)."""
        i, j = (int(x) for x in point)
        return np.append(self.cards[i, :-1], self.ladders[i, j])

    def losses(self, points: IntArray) -> IntArray:
        chosen = np.asarray(points, dtype=np.int64)
        return np.asarray(self._table[chosen[:, 0], chosen[:, 1]])

    @cached_property
    def _table(self) -> IntArray:
        """The losses of all points, shape (k, t)."""
        k, t = self.ladders.shape
        if t == 1:
            return self.table.losses(self.cards)[:, None]
        unit = int(self.table.X[0, -1])
        positive, negative = np.zeros((k, t + 1), dtype=np.int64), np.zeros((k, t + 1), dtype=np.int64)
        rows = max(1, _CHUNK // max(self.cards.shape))
        for start in range(0, self.n_rows, rows):
            block = slice(start, start + rows)
            labels, counts = self.table.y[block] > 0, self.table.counts[block]
            scores = self._scores(self.table.X[block])
            for i in range(k):
                # Candidate j predicts +1 iff score + unit * ladder[j] > 0: from this index on.
                first = np.searchsorted(self.ladders[i], (-scores[:, i]) // unit, side="right")
                positive[i] += tallied(first[labels], counts[labels], t + 1)
                negative[i] += tallied(first[~labels], counts[~labels], t + 1)
        said_yes = np.cumsum(negative, axis=1)[:, :t]
        said_no = np.sum(positive, axis=1, keepdims=True) - np.cumsum(positive, axis=1)[:, :t]
        costs = self.table.costs
        total: IntArray = costs.false_negative * said_no + costs.false_positive * said_yes
        return total

    def _scores(self, X: IntArray) -> IntArray:
        """Return scores without the constant, shape (rows, k)."""
        features, weights = X[:, :-1], self.cards[:, :-1].T
        largest = int(np.max(np.abs(features), initial=0)) * int(np.max(np.sum(np.abs(weights), axis=0)))
        if largest < _EXACT_IN_DOUBLES:
            product: NDArray[np.float64] = features.astype(np.float64) @ weights.astype(np.float64)
            return product.astype(np.int64)
        return np.asarray(features @ weights, dtype=np.int64)
