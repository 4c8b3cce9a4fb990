"""Concave quadratics over sets with few vertices: the minimum is attained at a vertex."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.indefinite.interface import (
    HalfSpace,
    IndefiniteOracle,
    IndefiniteProposal,
    IndefiniteSolver,
    scale_of,
)
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet

_MOST_VERTICES = 100_000
_MOST_CUT_EDGES = 1_000_000


@dataclass(frozen=True)
class VertexOracle(IndefiniteOracle):
    """Concave quadratics over the hull of finitely many points; every point is tried.

    With a half-space, the set is the hull of two kinds of points: the points inside the half-space, and the
    crossings of its boundary with the segments from a point inside to a point outside.
    """

    name: ClassVar[str] = "vertices"
    exact: ClassVar[bool] = True

    def refusals(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> list[str]:
        reasons = []
        count = convex_set.vertex_count
        if count is None or count > _MOST_VERTICES:
            many = "no finite list of" if count is None else f"{count}"
            reasons.append(
                f"{type(convex_set).__name__} has {many} vertices, at most {_MOST_VERTICES} are tried"
            )
        elif cut is not None and count * count > 4 * _MOST_CUT_EDGES:
            reasons.append(f"{count} vertices may have {count * count // 4} edges that leave the half-space")
        eigenvalues = np.linalg.eigvalsh(H)
        if eigenvalues[-1] > 1e-14 * len(H) * float(np.max(np.abs(eigenvalues))):
            reasons.append(
                f"the quadratic is not concave: its largest eigenvalue is {eigenvalues[-1]:.3g}, so "
                "a minimum need not be at a vertex"
            )
        return reasons

    def build(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> IndefiniteSolver:
        points = convex_set.vertices()
        if cut is not None:
            points = _cut_hull(points, cut)
        curved = np.einsum("ij,jk,ik->i", points, H, points) / 2

        def solve(g: Vector, watch: Watch) -> IndefiniteProposal:
            values = curved + points @ g
            best = int(np.argmin(values))
            slack = 1e-13 * len(H) * scale_of(H, g, convex_set.radius)
            return IndefiniteProposal(points[best], float(values[best]) - slack, steps=len(points))

        return solve


def _cut_hull(points: Vector, cut: HalfSpace) -> Vector:
    room = cut.offset - points @ cut.normal
    inside, outside = points[room >= 0], points[room < 0]
    within, beyond = room[room >= 0], -room[room < 0]
    share = within[:, None] / (within[:, None] + beyond)
    ends = inside[:, None, :] + share[..., None] * (outside - inside[:, None, :])
    return np.concatenate([inside, ends.reshape(-1, points.shape[1])])
