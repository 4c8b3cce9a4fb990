"""Hulls of finitely many points."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet, NoClosedFormError, fixed


@dataclass(frozen=True, eq=False)
class ConvexHull(ConvexSet):
    """The hull of given points, shape (m, p), m >= 1."""

    points: Vector

    def __init__(self, points: ArrayLike) -> None:
        object.__setattr__(self, "points", fixed(points, 2))

    @property
    def dimension(self) -> int:  # type: ignore[override]  # derived from the points
        return int(self.points.shape[1])

    @cached_property
    def centrally_symmetric(self) -> bool:  # type: ignore[override]  # depends on the points
        return {tuple(row) for row in (self.points + 0.0).tolist()} == {
            tuple(row) for row in (-self.points + 0.0).tolist()
        }

    @property
    def radius(self) -> float:
        return float(np.max(np.linalg.norm(self.points, axis=1)))

    @cached_property
    def diameter(self) -> float:
        return max(float(np.max(np.linalg.norm(self.points - v, axis=1))) for v in self.points)

    @property
    def l1_radius(self) -> float:
        return float(np.max(np.sum(np.abs(self.points), axis=1)))

    def support(self, g: Vector) -> float:
        return float(np.max(self.points @ g))

    def gauge(self, v: Vector) -> float:
        raise NoClosedFormError(
            "the gauge of a hull is a linear program: use privopt.oracles.convex.quantities.gauge"
        )

    def violation(self, w: Vector) -> float:
        raise NoClosedFormError(
            "the distance from a hull takes a solver: use privopt.oracles.convex.quantities.violation"
        )

    @property
    def vertex_count(self) -> int | None:
        return len(self.points)

    def _list_vertices(self) -> Vector:
        return self.points
