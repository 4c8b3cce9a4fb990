"""Balls of the k-support norm: hulls of sparse vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import NormBall, check_size
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class KSupportBall(NormBall):
    """The hull of the vectors with at most ``sparsity`` non-zeros and |w|_2 <= size.

    Its gauge is the k-support norm of Argyriou, Foygel and Srebro (2012), their Proposition 2.1.
    """

    dimension: int
    sparsity: int
    size: float

    def __post_init__(self) -> None:
        check_size(self.dimension, self.size)
        if not 1 <= self.sparsity <= self.dimension:
            raise InvalidInputError(f"sparsity must lie in 1..{self.dimension}, got {self.sparsity}")

    @property
    def l1_radius(self) -> float:
        return self.size * math.sqrt(self.sparsity)

    def norm(self, v: Vector) -> float:
        k = self.sparsity
        ordered = -np.sort(-np.abs(v))
        tails = np.cumsum(ordered[::-1])[::-1]  # tails[i] = sum of ordered[i:]
        for r in range(k):
            head = k - 1 - r  # the largest coordinates keep their values, the tail is averaged
            mean = tails[head] / (r + 1)
            if (head == 0 or ordered[head - 1] > mean) and mean >= ordered[head]:
                return float(np.sqrt(np.sum(ordered[:head] ** 2) + tails[head] * mean))
        # Only rounding leads here, where head and mean are equal: then all coordinates belong to the tail.
        return float(tails[0] / math.sqrt(k))

    def dual_norm(self, v: Vector) -> float:
        split = self.dimension - self.sparsity
        return float(np.linalg.norm(np.partition(np.abs(v), split)[split:] if split else v))
