"""Boxes: bounds on each coordinate."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet, Estimate, fixed, gauge_of_halfspaces
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError


@dataclass(frozen=True, eq=False)
class Box(ConvexSet):
    """Box {low <= w <= high}, coordinate by coordinate; shape (p,) each, finite."""

    low: Vector
    high: Vector

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        lower, upper = fixed(low, 1), fixed(high, 1)
        if lower.shape != upper.shape:
            raise InvalidInputError(f"low and high differ in shape: {lower.shape} and {upper.shape}")
        if np.any(lower > upper):
            raise InfeasibleDomainError("empty box: low > high in some coordinate")
        object.__setattr__(self, "low", lower)
        object.__setattr__(self, "high", upper)

    @property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the bounds
        return len(self.low)

    @property
    def centrally_symmetric(self) -> bool:  # type: ignore[override]  # depends on the bounds
        return bool(np.array_equal(self.low, -self.high))

    @property
    def shrinkable(self) -> bool:  # type: ignore[override]  # depends on the bounds
        return bool(np.all(self.low <= 0) and np.all(self.high >= 0))

    @property
    def _reach(self) -> Vector:
        return np.maximum(np.abs(self.low), np.abs(self.high))

    @property
    def nearest_to_zero(self) -> Vector:
        """The point of the box with the smallest coordinates, shape (p,)."""
        return self.clip(np.zeros(self.dimension))

    def clip(self, w: Vector) -> Vector:
        """Return the nearest point of the box."""
        return np.clip(w, self.low, self.high)

    @property
    def radius(self) -> float:
        return float(np.linalg.norm(self._reach))

    @property
    def diameter(self) -> float:
        return float(np.linalg.norm(self.high - self.low))

    @property
    def l1_radius(self) -> float:
        return float(np.sum(self._reach))

    def support(self, g: Vector) -> float:
        return float(np.sum(np.maximum(self.low * g, self.high * g)))

    def gauge(self, v: Vector) -> float:
        return gauge_of_halfspaces(np.concatenate([v, -v]), np.concatenate([self.high, -self.low]))

    def violation(self, w: Vector) -> float:
        return float(np.max(np.maximum(self.low - w, w - self.high), initial=0.0))

    def gaussian_width(self) -> Estimate:
        # A coordinate contributes (high - low)/2 * E|b|; the centre contributes nothing on average.
        return Estimate(float(np.sum(self.high - self.low)) / math.sqrt(2 * math.pi))

    @property
    def vertex_count(self) -> int | None:
        return int(2**self.dimension)

    def _list_vertices(self) -> Vector:
        return np.array(list(itertools.product(*np.stack([self.low, self.high], axis=1))))
