"""Integer weights under a Lipschitz loss of the score: hinge loss and absolute loss, in exact integers.

Features and labels are integers over a common denominator, so a score <w, x> and its loss are integers too:
in units of 1 over that denominator nothing is rounded. A lattice of spacing tau is an integer lattice in
these units, with features (or the margin) scaled accordingly.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.arguments import check_whole
from privopt.problems.arrays import check_unmasked, record_counts
from privopt.problems.discrete.halfspace import integer_matrix, sign_labels
from privopt.problems.discrete.lattice import IntArray, IntegerLattice, check_lattice
from privopt.problems.discrete.problem import ScoreProblem
from privopt.problems.errors import InvalidInputError


class LossBounds(NamedTuple):
    """Public bounds that a plan is calibrated to.

    Attributes:
        loss_bound: the largest loss of a record over the lattice.
        lipschitz: G, with |l(w) - l(v)| <= G |w - v|.
    """

    loss_bound: int
    lipschitz: float


class LipschitzProblem(ScoreProblem):
    """Minimise sum_i l(<w, x_i>, y_i) over a lattice, l convex and 1-Lipschitz in the score.

    Rows longer than the declared norm are shortened, each by a rule that uses its own entries alone.

    Args:
        X: integer features, shape (rows, d), rows >= 1. Copied.
        y: labels, shape (rows,); see the subclass.
        lattice: the weights to choose from, dimension d. A public input.
        norm: the largest Euclidean norm of a row; its square is rounded down to an integer. A public input.
        largest: the margin of the hinge, or the largest absolute label. A whole number, a public input.
        counts: the number of records that each row stands for, shape (rows,); None: one each.

    Raises:
        InvalidInputError: wrong shapes, non-integer features or labels, a norm or margin out of range.
    """

    # What ``largest`` is, for messages: the margin of the hinge, or the largest label of a regression.
    number: ClassVar[str]

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        lattice: IntegerLattice,
        norm: float,
        largest: int,
        counts: ArrayLike | None = None,
    ) -> None:
        check_lattice(lattice)
        bounds = self.bounds(lattice, norm, largest)
        self.lattice, self.norm, self.largest = lattice, norm, largest
        self.X = shortened(integer_matrix(X, lattice.dimension), _square(norm))
        self.y = self._labels(y, len(self.X))
        self.record_loss_bound, self.record_lipschitz = bounds
        self.counts = record_counts(counts, len(self.X), bounds.loss_bound)

    @classmethod
    def bounds(cls, lattice: IntegerLattice, norm: float, largest: int) -> LossBounds:
        """Return the bounds that a plan needs, before any data.

        Raises:
            InvalidInputError: a norm, margin or largest label below 1, or a norm of 2^26 or more.
        """
        check_lattice(lattice)
        if check_whole(largest, cls.number) < 1:
            raise InvalidInputError(f"{cls.number} must be a whole number >= 1, got {largest}")
        square = _square(norm)
        # A score is an integer of at most norm * |w|.
        return LossBounds(largest + math.isqrt(square * lattice.max_squared_norm), math.sqrt(square))

    def _losses_of_scores(self, scores: IntArray, rows: slice) -> IntArray:
        losses: IntArray = self.counts[rows] @ self.loss_of(scores, self.y[rows, None])
        return losses

    def with_records(self, X: ArrayLike, y: ArrayLike) -> Self:
        return type(self)(X, y, self.lattice, self.norm, self.largest)

    @abstractmethod
    def loss_of(self, scores: IntArray, labels: IntArray) -> IntArray:
        """Return losses of integer scores, elementwise."""

    @abstractmethod
    def slopes(self, label: int) -> list[tuple[int, int]]:
        """Return linear pieces (a, b), for a * score + b: the loss is the maximum of them and 0."""

    @abstractmethod
    def _labels(self, y: ArrayLike, rows: int) -> IntArray:
        """Return the labels, checked and copied."""


class HingeHalfspace(LipschitzProblem):
    """Minimise the hinge loss sum_i max(0, m - y_i <w, x_i>), labels -1 or +1, m = ``largest``.

    Privacy: a record's loss is ``norm``-Lipschitz in w and at most m + norm * max |w|.
    """

    number = "the margin"

    def loss_of(self, scores: IntArray, labels: IntArray) -> IntArray:
        return np.asarray(np.maximum(0, self.largest - labels * scores), dtype=np.int64)

    def slopes(self, label: int) -> list[tuple[int, int]]:
        return [(-label, self.largest)]

    def _labels(self, y: ArrayLike, rows: int) -> IntArray:
        return sign_labels(y, rows)


class AbsoluteRegression(LipschitzProblem):
    """Minimise the absolute loss sum_i |y_i - <w, x_i>|, integer labels clipped to [-m, m], m = ``largest``.

    Privacy: a record's loss is ``norm``-Lipschitz in w and at most m + norm * max |w|.
    """

    number = "the largest label"

    def loss_of(self, scores: IntArray, labels: IntArray) -> IntArray:
        return np.asarray(np.abs(labels - scores), dtype=np.int64)

    def slopes(self, label: int) -> list[tuple[int, int]]:
        return [(1, -label), (-1, label)]

    def _labels(self, y: ArrayLike, rows: int) -> IntArray:
        check_unmasked(y, "y")
        labels = np.asarray(y)
        if labels.shape != (rows,) or labels.dtype.kind not in "iub":
            raise InvalidInputError(
                f"expected integer labels of shape ({rows},), got {labels.dtype} {labels.shape}"
            )
        return np.asarray(np.clip(labels, -self.largest, self.largest), dtype=np.int64)


def shortened(X: IntArray, square: int) -> IntArray:
    """Return rows of integers with |x|^2 <= square: longer ones are scaled and rounded towards zero.

    Rounding towards zero only shortens a row, and the scale is reduced by more than its rounding error.
    """
    squares = np.sum(X.astype(np.float64) ** 2, axis=1)
    if np.max(np.abs(X), initial=0) >= 1 << 52:
        raise InvalidInputError("features beyond 2^52: use a coarser common denominator")
    factor = np.sqrt(square / np.maximum(squares, 1.0)) * (1 - 1e-9)
    long = squares > square * (1 - 1e-9)  # rows on the boundary are checked in integers
    long[long] = [sum(v * v for v in row) > square for row in X[long].tolist()]
    short = X.copy()
    short[long] = np.trunc(X[long] * factor[long, None]).astype(np.int64)
    return short


def _square(norm: float) -> int:
    square = float(norm) * float(norm)
    if not (math.isfinite(square) and 1 <= square < 1 << 52):
        raise InvalidInputError(f"the largest norm of a row must be at least 1 and below 2^26, got {norm}")
    return math.floor(square + 1e-9)
