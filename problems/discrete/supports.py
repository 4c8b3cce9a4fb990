"""Best subset selection: the restricted squared loss over supports of a given size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arguments import check_real, check_type, check_whole
from privopt.problems.arrays import as_reals
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

# The largest loss of a record is this many units of loss.
UNITS = 1 << 20
# Largest size of a support, and number of features.
MOST_SELECTED, MOST_FEATURES = 40, 5000
# Rows whose products are added up by one matrix product.
_BLOCK = 256
_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, eq=False)
class SupportLattice(IntegerLattice):
    """All 0/1 vectors of ``features`` coordinates with ``size`` ones: a point is the mask of a support.

    Args:
        features: p >= 1.
        size: s, 1 to p.

    Raises:
        InvalidInputError: a number out of its range.
    """

    support: int

    def __init__(self, features: int, size: int) -> None:
        features = check_whole(features, "the number of features")
        size = check_whole(size, "the size of a support")
        if size > features:
            raise InvalidInputError(f"a support has at most {features} features, as there are, got {size}")
        super().__init__(0, 1, dimension=features)
        object.__setattr__(self, "support", size)

    @cached_property
    def box_size(self) -> int:
        """The number of supports."""
        return math.comb(self.dimension, self.support)

    @cached_property
    def size(self) -> int:
        return self.box_size

    @cached_property
    def max_squared_norm(self) -> int:
        return self.support

    def contains(self, w: ArrayLike) -> bool:
        return super().contains(w) and int(np.sum(w)) == self.support

    def batches(self, size: int = 1 << 16) -> Iterator[IntArray]:
        chosen = itertools.combinations(range(self.dimension), self.support)
        rows = max(1, min(size, (1 << 24) // self.dimension))
        while part := list(itertools.islice(chosen, rows)):
            block = np.zeros((len(part), self.dimension), dtype=np.int64)
            np.put_along_axis(block, np.array(part, dtype=np.int64), 1, axis=1)
            yield block

    def ranks(self, points: IntArray) -> IntArray:
        """Return numbers of supports in the combinatorial number system, shape (k,); below 2^63."""
        columns = self.columns(points)
        numbers = np.zeros(len(points), dtype=np.int64)
        for t in range(self.support):
            table = np.array([math.comb(e, t + 1) for e in range(self.dimension)], dtype=np.int64)
            numbers += table[columns[:, t]]
        return numbers

    def point(self, rank: int) -> IntArray:
        mask, top = np.zeros(self.dimension, dtype=np.int64), self.dimension
        for t in range(self.support, 0, -1):
            top = next(e for e in range(top - 1, -1, -1) if math.comb(e, t) <= rank)
            rank -= math.comb(top, t)
            mask[top] = 1
        return mask

    def columns(self, points: IntArray) -> IntArray:
        """Return the selected columns of each point in increasing order, shape (k, s)."""
        return np.nonzero(points)[1].reshape(len(points), self.support).astype(np.int64)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SupportLattice)
            and self.dimension == other.dimension
            and self.support == other.support
        )

    def __hash__(self) -> int:
        return hash((self.dimension, self.support))

    def __str__(self) -> str:
        return f"supports of {self.support} of {self.dimension} features"


# Smallest bound on records; the largest is its inverse.
_SMALLEST = 1e-100


@dataclass(frozen=True)
class SubsetBounds:
    """Public bounds of records and weights in a subset problem.

    Rows are cut to them before anything else: features to [-feature, feature] each, then rows longer than
    ``row`` are scaled down, and labels to [-label, label].

    Attributes:
        label: bound on |y|, > 0.
        feature: bound on every |x_j|, or infinity.
        row: bound on |x|_2, or infinity; ``feature`` or ``row`` is finite.
        constant: value of a constant feature that every support contains, >= 0; 0: there is none.
        radius: bound r on |b|_2 of the weights of a support, with the constant's weight. None: the largest r
            for which no prediction exceeds ``label``.

    Raises:
        InvalidInputError: bounds that are not positive, or none on the features.
    """

    label: float
    feature: float = math.inf
    row: float = math.inf
    constant: float = 0.0
    radius: float | None = None

    def __post_init__(self) -> None:
        check_real(self.constant, "the constant feature")
        for name in ("label", "feature", "row", "radius"):
            value = getattr(self, name)
            if value is not None and not float(value) > 0:
                raise InvalidInputError(f"the bound {name} must be > 0, got {value}")
        finite = math.isfinite(min(self.feature, self.row)) and math.isfinite(self.label)
        if not (finite and 0 <= self.constant < math.inf):
            raise InvalidInputError("subset bounds need a bound on labels and one on features or rows")
        if self.radius is not None and not math.isfinite(self.radius):
            raise InvalidInputError("the bound radius must be finite")
        sizes = {"labels": self.label, "features or rows": min(self.feature, self.row)}
        for what, size in sizes.items():
            if not _SMALLEST <= size <= 1 / _SMALLEST:  # so that sums of squares do not over- or underflow
                raise InvalidInputError(
                    f"the bound on {what} must be from {_SMALLEST:g} to {1 / _SMALLEST:g}, got {size:g}: "
                    "take other units"
                )

    def reach(self, support: int) -> float:
        """Return a bound on |x_S|_2, the constant included, over records and supports of the size."""
        return math.hypot(min(self.feature * math.sqrt(support), self.row), self.constant)

    def ball(self, support: int) -> float:
        """Return r, the bound on |b|_2."""
        return self.label / self.reach(support) if self.radius is None else self.radius

    def largest_loss(self, support: int) -> float:
        """Return Delta = (label + r reach)^2, rounded up: a record's loss at feasible b is in [0, Delta]."""
        return (self.label + self.ball(support) * self.reach(support)) ** 2 * (1 + 1e-12)

    def cut(self, X: FloatArray, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the records cut to the bounds, each by itself, so that neighbours remain neighbours."""
        if math.isfinite(self.feature):
            X = np.clip(X, -self.feature, self.feature)
        if math.isfinite(self.row):
            norms = np.sqrt(np.einsum("ij,ij->i", X, X))
            X = X * np.minimum(1.0, self.row / np.maximum(norms, self.row))[:, None]
        return X, np.clip(y, -self.label, self.label)


@dataclass(frozen=True)
class Products:
    """Sums of products of the columns within bounds: G = X'X, c = X'y, y'y; the constant is the last column.

    Attributes:
        gram: G, shape (q, q).
        cross: c, shape (q,).
        square: y'y.
    """

    gram: FloatArray
    cross: FloatArray
    square: float


class BestSubset(DiscreteProblem):
    """Choose s of p features for least squares with bounded weights.

    The loss of a support S is R(S) = min over |b|_2 <= r with b = 0 outside S of the sum of (y - x'b)^2. For
    each feasible b the loss of a record is in [0, Delta], Delta = (bound of y + r * bound of |x_S|)^2, so
    replacing one record moves the sum at each b, and hence its minimum over b, by at most Delta. Losses are
    in units of Delta / 2^20: replacing a record moves them by at most ``record_loss_bound``. They are rounded
    to whole units, and the sums are made in doubles: ``loss_error`` bounds both effects.

    Args:
        X: features, shape (n, p), finite. Copied.
        y: labels, shape (n,), finite.
        lattice: supports of s of the p features. A public input.
        bounds: of records and weights. A public input.

    Raises:
        InvalidInputError: wrong shapes, numbers that are not finite, or more records or features than the
            stated ``loss_error`` or memory allows.
    """

    record_loss_bound = UNITS
    loss_error = 2
    lattice: SupportLattice

    def __init__(self, X: ArrayLike, y: ArrayLike, lattice: SupportLattice, bounds: SubsetBounds) -> None:
        check_type(lattice, SupportLattice, "lattice must be a SupportLattice")
        check_type(bounds, SubsetBounds, "bounds must be SubsetBounds")
        features = _finite(X, "features of shape (n, p)", 2)
        labels = _finite(y, "labels of shape (n,)", 1)
        if features.shape != (len(labels), lattice.dimension) or not len(labels):
            raise InvalidInputError(
                f"expected {lattice.dimension} features and a label per row; got shapes {features.shape} and "
                f"{labels.shape}"
            )
        if refusals := too_large(len(labels), lattice):
            raise InvalidInputError("; ".join(refusals))
        self.lattice, self.bounds = lattice, bounds
        self._rows = len(labels)
        self.products = _products(features, labels, bounds)

    @property
    def n_records(self) -> int:
        return self._rows

    @property
    def radius(self) -> float:
        """Radius r, in units of weights of the scaled columns of ``products``."""
        return self.bounds.ball(self.lattice.support) * _scale(self.bounds) / self.bounds.label

    @property
    def units(self) -> float:
        """The number of units of loss in a squared residual of 1 of the scaled records."""
        return UNITS / (self.bounds.largest_loss(self.lattice.support) / self.bounds.label**2)

    def columns(self, points: IntArray) -> IntArray:
        """Return the selected columns of ``products`` per point, and the constant; (k, s) or (k, s + 1)."""
        chosen = self.lattice.columns(np.asarray(points, dtype=np.int64))
        if not self.bounds.constant:
            return chosen
        last = np.full((len(chosen), 1), self.lattice.dimension, dtype=np.int64)
        return np.ascontiguousarray(np.hstack([chosen, last]))

    def losses(self, points: IntArray) -> IntArray:
        from privopt.problems.discrete.restricted_loss import losses_of_columns  # imports numba: slow

        sums = self.products
        losses: IntArray = losses_of_columns(
            sums.gram, sums.cross, sums.square, self.radius, self.units, self.columns(points)
        )
        check_certified(losses)
        return losses

    def with_records(self, X: ArrayLike, y: ArrayLike) -> Self:
        return type(self)(X, y, self.lattice, self.bounds)


def check_certified(losses: Any) -> None:
    """Raise InvalidInputError if the minimum of a support was not certified: nothing is released then."""
    if np.any(np.asarray(losses) < 0):
        raise InvalidInputError(
            "least squares on a support did not reach a duality gap of a quarter unit: the features are "
            "out of scale. To do: other units"
        )


def too_large(records: int, lattice: SupportLattice) -> list[str]:
    """Return reasons, from public sizes, why the sums of products are too large or too coarse.

    With u the roundoff of doubles, a sum of n products is off by at most (256 + log2 n + 4) n u; the value of
    a support adds 4 (s + 4) n u Delta. Together these, with room to spare, must stay within a quarter unit.
    """
    reasons = []
    if lattice.dimension > MOST_FEATURES:
        reasons.append(f"{lattice.dimension} features, more than {MOST_FEATURES}")
    if lattice.support > MOST_SELECTED:
        reasons.append(f"supports of {lattice.support}, more than {MOST_SELECTED}")
    roundoffs = 2 * (_BLOCK + math.log2(records) + 8) + 4 * (lattice.support + 5)
    if records * roundoffs * _ROUNDOFF * UNITS > 0.25:
        reasons.append(f"{records} records, too many for sums of products in doubles")
    return reasons


def _scale(bounds: SubsetBounds) -> float:
    """Return the unit of features: no column exceeds it."""
    return min(bounds.feature, bounds.row)


def _products(X: FloatArray, y: FloatArray, bounds: SubsetBounds) -> Products:
    """Sum the products of scaled records, block by block."""

    def part(start: int, stop: int) -> NDArray[np.float64]:
        if stop - start > _BLOCK:
            middle = (start + stop) // 2
            return part(start, middle) + part(middle, stop)
        features, labels = bounds.cut(X[start:stop], y[start:stop])
        columns = [features / _scale(bounds)]
        if bounds.constant:
            columns.append(np.full((stop - start, 1), bounds.constant / _scale(bounds)))
        table = np.hstack([*columns, labels[:, None] / bounds.label])
        return table.T @ table

    sums = part(0, len(y))
    sums = np.triu(sums) + np.triu(sums, 1).T
    gram, cross = np.ascontiguousarray(sums[:-1, :-1]), np.ascontiguousarray(sums[:-1, -1])
    return Products(gram, cross, float(sums[-1, -1]))


def _finite(values: ArrayLike, what: str, dimensions: int) -> FloatArray:
    array = np.asarray(as_reals(values, what), dtype=np.float64)
    if array.ndim != dimensions or not np.all(np.isfinite(array)):
        raise InvalidInputError(f"expected {what}, finite numbers; got shape {array.shape}")
    return array
