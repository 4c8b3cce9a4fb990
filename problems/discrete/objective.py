"""Integer objectives: an exact loss plus a perturbation in fixed point.

Noise is real, losses are integers. To make every comparison exact, the noise terms are rounded once to
multiples of 2**-FRACTION_BITS and everything after that is int64 arithmetic: bounds, values and ties are
then exact. Mechanisms add the effect of the rounding to their calibration (``rounding_slack``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.errors import InvalidInputError

FRACTION_BITS = 20
UNIT = 1 << FRACTION_BITS  # one unit of loss, in fixed point

# Sums of a loss and a perturbation stay below this, so int64 never wraps.
_MAGNITUDE_LIMIT = 1 << 61
# A single term stays below this: the few float64 roundings in it then add up to less than half a grid step.
_TERM_LIMIT = 1 << 50
LARGEST_TERM = _TERM_LIMIT / UNIT  # in units of loss


def to_fixed(values: ArrayLike) -> IntArray:
    """Round real numbers to the fixed-point grid (ties to even). Shape is kept.

    Raises:
        InvalidInputError: a value that is NaN, infinite or too large for the grid.
    """
    scaled = np.rint(np.asarray(values, dtype=np.float64) * UNIT)
    if not np.all(np.isfinite(scaled)):
        raise InvalidInputError("objective coefficients must be finite; got NaN or infinity")
    if scaled.size and float(np.max(np.abs(scaled))) >= _TERM_LIMIT:
        raise InvalidInputError(
            f"objective terms must stay below {LARGEST_TERM:.3g} errors in absolute value"
        )
    return scaled.astype(np.int64)


def from_fixed(value: int) -> float:
    return value / UNIT


def rounding_slack(terms: int) -> float:
    """Bound the rounding error of a difference of two objectives of ``terms`` terms, in loss units.

    Each term is off by less than one grid step (half for the rounding to the grid, less than half for the
    float64 products before it), at each of the two points, before and after a shift of the noise.
    """
    return 4.0 * terms / UNIT


@dataclass(frozen=True, eq=False)
class Perturbation:
    """Term added to the loss: sum_j unary[j][w_j - low_j] + radial[|w|^2], in fixed point.

    Attributes:
        lattice: the domain that the tables refer to.
        unary: one int64 array per coordinate, of length high_j - low_j + 1.
        radial: int64 array of length lattice.max_squared_norm + 1, or None.
    """

    lattice: IntegerLattice
    unary: tuple[IntArray, ...]
    radial: IntArray | None = None

    def __post_init__(self) -> None:
        spans = (self.lattice.high - self.lattice.low + 1).tolist()
        if [t.shape for t in self.unary] != [(s,) for s in spans]:
            raise InvalidInputError("one table per coordinate, one entry per level, is needed")
        if self.radial is not None and self.radial.shape != (self.lattice.max_squared_norm + 1,):
            raise InvalidInputError("radial needs an entry for every |w|^2 from 0 to the maximum")
        if self.magnitude >= _MAGNITUDE_LIMIT:
            raise InvalidInputError("the perturbation is too large for exact 64-bit arithmetic")

    @property
    def magnitude(self) -> int:
        """An upper bound on the absolute value, in fixed point."""
        total = sum(int(np.max(np.abs(t))) for t in self.unary)
        return total + (0 if self.radial is None else int(np.max(np.abs(self.radial))))

    @property
    def is_zero(self) -> bool:
        return self.magnitude == 0

    def values(self, points: IntArray) -> IntArray:
        """Return exact values at points of shape (k, dimension); shape (k,), fixed point."""
        total = np.zeros(len(points), dtype=np.int64)
        for j, table in enumerate(self.unary):
            total += table[points[:, j] - self.lattice.low[j]]
        if self.radial is not None:
            total += self.radial[np.einsum("ij,ij->i", points, points)]
        return total

    @classmethod
    def zero(cls, lattice: IntegerLattice) -> Perturbation:
        """Return the zero perturbation: the perturbation of the non-private problem."""
        return cls.linear(lattice, np.zeros(lattice.dimension))

    @classmethod
    def linear(cls, lattice: IntegerLattice, c: ArrayLike) -> Perturbation:
        """Return <c, w>, for c of shape (dimension,), each product rounded to the grid."""
        coefficients = _vector(c, lattice.dimension)
        return cls(
            lattice, tuple(to_fixed(cj * lv) for cj, lv in zip(coefficients, levels(lattice), strict=True))
        )

    @classmethod
    def normalized(cls, lattice: IntegerLattice, eta: ArrayLike) -> Perturbation:
        """Return -<eta, pi(w)>, pi(w) = (w/D, sqrt(1 - |w|^2/D^2)), for eta of shape (dimension + 1,).

        The normalisation map of Neel, Roth, Vietri and Wu (2020), section 3, scaled to unit length.
        """
        noise = _vector(eta, lattice.dimension + 1)
        d2 = lattice.max_squared_norm
        if d2 == 0:
            return cls.zero(lattice)  # a single point, the origin
        flat = cls.linear(lattice, -noise[:-1] / math.sqrt(d2))
        # Integers under the root: 1 - |w|^2/D^2 in floats would lose digits near the boundary of the ball.
        rest = d2 - np.arange(d2 + 1)
        return cls(lattice, flat.unary, to_fixed(-noise[-1] * np.sqrt(rest / d2)))


def levels(lattice: IntegerLattice) -> list[NDArray[np.int64]]:
    """Return the values that each coordinate can take, in increasing order."""
    return [np.arange(a, b + 1) for a, b in zip(lattice.low.tolist(), lattice.high.tolist(), strict=True)]


def _vector(c: ArrayLike, size: int) -> NDArray[np.float64]:
    vector = np.asarray(c, dtype=np.float64)
    if vector.shape != (size,):
        raise InvalidInputError(f"expected shape ({size},), got {vector.shape}")
    if not np.all(np.isfinite(vector)):
        raise InvalidInputError("coefficients must be finite; got NaN or infinity")
    return vector
