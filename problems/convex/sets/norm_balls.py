"""Balls of the l1, l2 and l-infinity norms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.interface import (
    Estimate,
    NormBall,
    check_size,
    mean_of_maximum,
    scaled_estimate,
)


@dataclass(frozen=True)
class _Ball(NormBall):
    dimension: int
    size: float

    def __post_init__(self) -> None:
        check_size(self.dimension, self.size)


@dataclass(frozen=True)
class L2Ball(_Ball):
    """Euclidean ball {|w|_2 <= size}."""

    @property
    def l1_radius(self) -> float:
        return self.size * math.sqrt(self.dimension)

    def norm(self, v: Vector) -> float:
        return float(np.linalg.norm(v))

    dual_norm = norm

    def gaussian_width(self) -> Estimate:
        return Estimate(self.size * math.sqrt(2) * float(special.poch(self.dimension / 2, 0.5)))


@dataclass(frozen=True)
class L1Ball(_Ball):
    """Ball {|w|_1 <= size}, the hull of 2p points size * (+-e_j): index j < p is +e_j, p + j is -e_j."""

    @property
    def l1_radius(self) -> float:
        return self.size

    def norm(self, v: Vector) -> float:
        return float(np.sum(np.abs(v)))

    def dual_norm(self, v: Vector) -> float:
        return float(np.max(np.abs(v)))

    def gaussian_width(self) -> Estimate:
        # max |b_j| exceeds t with probability 1 - (2 Phi(t) - 1)^p.
        return scaled_estimate(
            mean_of_maximum(lambda t: self.dimension * math.log1p(-2 * special.ndtr(-t)) if t else -math.inf),
            self.size,
        )

    @property
    def vertex_count(self) -> int | None:
        return 2 * self.dimension

    def _list_vertices(self) -> Vector:
        return self.size * np.concatenate([np.eye(self.dimension), -np.eye(self.dimension)])

    def vertex_scores(self, g: Vector) -> Vector:
        return self.size * np.concatenate([g, -g])

    def vertex(self, index: int) -> Vector:
        point = np.zeros(self.dimension)
        point[index % self.dimension] = self.size if index < self.dimension else -self.size
        return point


@dataclass(frozen=True)
class LinfBall(_Ball):
    """Cube {|w|_inf <= size}, with 2^p vertices."""

    @property
    def radius(self) -> float:
        return self.size * math.sqrt(self.dimension)

    @property
    def l1_radius(self) -> float:
        return self.size * self.dimension

    def norm(self, v: Vector) -> float:
        return float(np.max(np.abs(v)))

    def dual_norm(self, v: Vector) -> float:
        return float(np.sum(np.abs(v)))

    def gaussian_width(self) -> Estimate:
        return Estimate(self.size * self.dimension * math.sqrt(2 / math.pi))

    @property
    def vertex_count(self) -> int | None:
        return int(2**self.dimension)

    def _list_vertices(self) -> Vector:
        return Box(np.full(self.dimension, -self.size), np.full(self.dimension, self.size)).vertices()
