"""No constraint."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet, Estimate


@dataclass(frozen=True)
class WholeSpace(ConvexSet):
    """R^p: no constraint."""

    dimension: int
    centrally_symmetric = True
    shrinkable = True
    radius = math.inf
    l1_radius = math.inf

    def support(self, g: Vector) -> float:
        return math.inf if np.any(g) else 0.0

    def gauge(self, v: Vector) -> float:
        return 0.0

    def violation(self, w: Vector) -> float:
        return 0.0 if np.all(np.isfinite(w)) else math.inf

    def gaussian_width(self) -> Estimate:
        return Estimate(math.inf)
