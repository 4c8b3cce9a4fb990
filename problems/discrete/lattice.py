"""Integer lattices: the finite domains over which 0/1-loss problems are optimised."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arguments import check_real, check_type, check_whole
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

# sqrt(23)**2 is 22.999999999999996: this is added to the square of a radius before it is rounded down.
_RADIUS_SLACK = 1e-9


@dataclass(frozen=True, eq=False)
class IntegerLattice:
    """All integer vectors w with ``low <= w <= high`` and, if a radius is given, ``|w|_2 <= radius``.

    A lattice is a *public* input: choose it before looking at the data. Distinct points are at least
    1 apart (``separation``), which is the tau of Neel, Roth, Vietri and Wu (2020).

    Args:
        low, high: integers, or integer arrays of shape (dimension,).
        dimension: number of coordinates; may be omitted when ``low`` or ``high`` is an array.
        radius: Euclidean norm bound, or None.

    Raises:
        InvalidInputError: bounds that are not integers or do not agree in shape.
        InfeasibleDomainError: no integer vector satisfies the constraints.
    """

    low: IntArray
    high: IntArray
    squared_radius: int | None

    separation = 1.0
    # Whether points must satisfy constraints beyond bounds and norm: see ``ConstrainedLattice``.
    constrained: ClassVar[bool] = False

    def __init__(
        self, low: ArrayLike, high: ArrayLike, *, dimension: int | None = None, radius: float | None = None
    ) -> None:
        try:
            lower, upper = np.asarray(low), np.asarray(high)
        except ValueError:
            raise InvalidInputError("lattice bounds must be integers, or arrays of them") from None
        if dimension is not None:
            dimension = check_whole(dimension, "the dimension of a lattice")
        shapes = {a.shape for a in (lower, upper) if a.ndim > 0}
        if dimension is None and not shapes:
            raise InvalidInputError("scalar bounds need dimension=...")
        shape = (dimension,) if dimension is not None else next(iter(shapes))
        if len(shape) != 1 or shape[0] < 1 or not shapes <= {shape}:
            raise InvalidInputError(
                f"lattice bounds need one common shape (dimension,), dimension >= 1; "
                f"got low {lower.shape}, high {upper.shape}, dimension {dimension}"
            )
        for name, bound in (("low", lower), ("high", upper)):
            if not np.issubdtype(bound.dtype, np.integer):
                raise InvalidInputError(
                    f"lattice bound {name} must hold 64-bit integers, got dtype {bound.dtype}"
                )
        object.__setattr__(self, "low", _frozen(np.broadcast_to(lower, shape)))
        object.__setattr__(self, "high", _frozen(np.broadcast_to(upper, shape)))
        object.__setattr__(self, "squared_radius", None if radius is None else _integer_square(radius))
        self._check_feasible()

    def _check_feasible(self) -> None:
        if np.any(self.low > self.high):
            raise InfeasibleDomainError(
                f"empty lattice: low > high in coordinates {np.flatnonzero(self.low > self.high).tolist()}"
            )
        shortest = sum(v * v for v in np.clip(0, self.low, self.high).tolist())
        if self.squared_radius is not None and shortest > self.squared_radius:
            raise InfeasibleDomainError(
                f"empty lattice: its shortest vector has squared norm {shortest}, "
                f"above radius^2 = {self.squared_radius}"
            )

    @property
    def dimension(self) -> int:
        return int(self.low.size)

    @cached_property
    def max_squared_norm(self) -> int:
        """An upper bound on |w|^2 over the lattice: D^2 in the papers' notation. Public."""
        bounds = zip(self.low.tolist(), self.high.tolist(), strict=True)
        box: int = sum(max(low * low, high * high) for low, high in bounds)  # Python integers: no overflow
        return box if self.squared_radius is None else min(box, self.squared_radius)

    @cached_property
    def box_size(self) -> int:
        """The number of points of the surrounding box, an upper bound on the number of points."""
        return math.prod((self.high - self.low + 1).tolist())

    @cached_property
    def size(self) -> int:
        """The exact number of points, by a convolution over |w|^2 (Python integers, no overflow)."""
        if self.squared_radius is None:
            return self.box_size
        counts = [1] + [0] * self.squared_radius
        for low, high in zip(self.low.tolist(), self.high.tolist(), strict=True):
            following = [0] * len(counts)
            for v in range(low, high + 1):
                for s in range(v * v, len(counts)):
                    following[s] += counts[s - v * v]
            counts = following
        return sum(counts)

    def with_bounds(self, low: ArrayLike, high: ArrayLike) -> IntegerLattice:
        """Return the lattice with other bounds, under the same norm bound.

        Raises:
            InfeasibleDomainError: no integer vector satisfies both.
        """
        made = IntegerLattice(low, high)
        object.__setattr__(made, "squared_radius", self.squared_radius)
        made._check_feasible()
        return made

    def contains(self, w: ArrayLike) -> bool:
        point = np.asarray(w)
        if point.shape != (self.dimension,) or not np.issubdtype(point.dtype, np.integer):
            return False
        inside = bool(np.all(point >= self.low) and np.all(point <= self.high))
        return inside and (self.squared_radius is None or int(point @ point) <= self.squared_radius)

    def batches(self, size: int = 1 << 16) -> Iterator[IntArray]:
        """Yield all points in lexicographic order, as arrays of shape (at most ``size``, dimension)."""
        spans = (self.high - self.low + 1).tolist()
        for start in range(0, self.box_size, size):
            codes = np.arange(start, min(start + size, self.box_size), dtype=np.int64)
            block = np.stack(np.unravel_index(codes, spans), axis=1).astype(np.int64) + self.low
            if self.squared_radius is not None:
                block = block[np.einsum("ij,ij->i", block, block) <= self.squared_radius]
            if len(block):
                yield block

    def ranks(self, points: IntArray) -> IntArray:
        """Return the positions of points in the lexicographic order of the box, shape (k,); below 2^63."""
        spans = tuple((self.high - self.low + 1).tolist())
        return np.asarray(np.ravel_multi_index(tuple((points - self.low).T), spans), dtype=np.int64)

    def point(self, rank: int) -> IntArray:
        """Return the point at a position: the inverse of ``ranks``."""
        digits = np.unravel_index(rank, tuple((self.high - self.low + 1).tolist()))
        return np.array(digits, dtype=np.int64) + self.low

    def points(self) -> Iterator[IntArray]:
        """Yield all points, one by one, in lexicographic order."""
        for block in self.batches():
            yield from block

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, IntegerLattice)
            and np.array_equal(self.low, other.low)
            and np.array_equal(self.high, other.high)
            and self.squared_radius == other.squared_radius
        )

    def __hash__(self) -> int:
        return hash((self.low.tobytes(), self.high.tobytes(), self.squared_radius))

    def __str__(self) -> str:
        low, high = set(self.low.tolist()), set(self.high.tolist())
        box = (
            f"[{low.pop()}, {high.pop()}]^{self.dimension}"
            if len(low) == len(high) == 1
            else f"a box of {self.box_size} points in Z^{self.dimension}"
        )
        return box if self.squared_radius is None else f"{box} with |w|^2 <= {self.squared_radius}"


def check_lattice(lattice: object) -> None:
    """Raise InvalidTypeError for what is no ``IntegerLattice``."""
    check_type(lattice, IntegerLattice, "lattice must be an IntegerLattice")


def _frozen(a: NDArray[np.integer]) -> IntArray:
    copy = np.array(a, dtype=np.int64)
    copy.flags.writeable = False
    return copy


def _integer_square(radius: float) -> int:
    length = check_real(radius, "radius")
    square = length * length  # infinite where ** would raise
    if not (math.isfinite(square) and length >= 0):
        raise InvalidInputError(f"radius must be >= 0 with a finite square, got {radius}")
    return math.floor(square + _RADIUS_SLACK)
