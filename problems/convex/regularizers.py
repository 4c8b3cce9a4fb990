"""The elastic net regulariser l1 |w|_1 + (l2/2) |w|_2^2, with lasso and ridge as special cases."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.problems.arguments import check_real
from privopt.problems.errors import InvalidInputError

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class ElasticNet:
    """Penalty r(w) = l1 |w|_1 + (l2/2) |w|_2^2. With one coefficient 0 it is the lasso or the ridge penalty.

    Public: choosing the strengths by looking at the data is a separate release.

    Attributes:
        l1, l2: finite, >= 0. ``l2`` is also the strong convexity that r adds.
    """

    l1: float = 0.0
    l2: float = 0.0

    def __post_init__(self) -> None:
        strengths = check_real(self.l1, "l1"), check_real(self.l2, "l2")
        if not all(math.isfinite(s) and s >= 0 for s in strengths):
            raise InvalidInputError(f"strengths must be finite and >= 0, got l1={self.l1}, l2={self.l2}")

    def value(self, w: Vector) -> float:
        return float(self.l1 * np.sum(np.abs(w)) + self.l2 / 2 * (w @ w))


NO_REGULARIZER = ElasticNet()


def lasso(strength: float) -> ElasticNet:
    """Return strength * |w|_1."""
    return ElasticNet(l1=strength)


def ridge(strength: float) -> ElasticNet:
    """Return (strength / 2) * |w|_2^2."""
    return ElasticNet(l2=strength)


def soft_threshold(w: Vector, threshold: float) -> Vector:
    """Apply soft thresholding: every coordinate moves towards 0 by ``threshold`` and stops at 0."""
    return np.sign(w) * np.maximum(np.abs(w) - threshold, 0)
