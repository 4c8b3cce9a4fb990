"""The simplex of non-negative weights with a given sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special
from scipy.integrate import quad

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import (
    ConvexSet,
    Estimate,
    check_size,
    mean_of_maximum,
    scaled_estimate,
)


@dataclass(frozen=True)
class Simplex(ConvexSet):
    """Simplex {w >= 0, sum w = size}, the hull of p points."""

    dimension: int
    size: float = 1.0

    def __post_init__(self) -> None:
        check_size(self.dimension, self.size)

    @property
    def radius(self) -> float:
        return self.size

    @property
    def diameter(self) -> float:
        return self.size * math.sqrt(2) if self.dimension > 1 else 0.0

    @property
    def l1_radius(self) -> float:
        return self.size

    def support(self, g: Vector) -> float:
        return self.size * float(np.max(g))

    def gauge(self, v: Vector) -> float:
        return float(np.sum(v)) / self.size if np.all(v >= 0) else math.inf

    def violation(self, w: Vector) -> float:
        return max(0.0, -float(np.min(w)), abs(float(np.sum(w)) - self.size))

    def gaussian_width(self) -> Estimate:
        # E max b_j = int_0^inf P[max > t] - P[max < -t] dt.
        p = self.dimension
        above = mean_of_maximum(lambda t: p * math.log1p(-special.ndtr(-t)))
        below, error = quad(lambda t: special.ndtr(-t) ** p, 0, math.inf)
        return scaled_estimate(Estimate(above.value - below, above.error + error), self.size)

    @property
    def vertex_count(self) -> int | None:
        return self.dimension

    def _list_vertices(self) -> Vector:
        return self.size * np.eye(self.dimension)

    def vertex_scores(self, g: Vector) -> Vector:
        return self.size * g

    def vertex(self, index: int) -> Vector:
        point = np.zeros(self.dimension)
        point[index] = self.size
        return point
