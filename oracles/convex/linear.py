"""Closed-form linear minimisation: argmin over v in C of <v, g>."""

from __future__ import annotations

import numpy as np

from privopt.oracles.convex.registry import lmo_formula
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.simplex import Simplex


@lmo_formula.register
def _(convex_set: L1Ball, g: Vector) -> Vector:
    best = int(np.argmax(np.abs(g)))
    return convex_set.vertex(best + convex_set.dimension if g[best] > 0 else best)


@lmo_formula.register
def _(convex_set: L2Ball, g: Vector) -> Vector:
    length = float(np.linalg.norm(g))
    return np.zeros_like(g) if length == 0 else g * (-convex_set.size / length)


@lmo_formula.register
def _(convex_set: LinfBall, g: Vector) -> Vector:
    return np.where(g > 0, -convex_set.size, convex_set.size)


@lmo_formula.register
def _(convex_set: Simplex, g: Vector) -> Vector:
    return convex_set.vertex(int(np.argmin(g)))


@lmo_formula.register
def _(convex_set: Box, g: Vector) -> Vector:
    return np.where(g > 0, convex_set.low, convex_set.high)


@lmo_formula.register
def _(convex_set: GroupL1Ball, g: Vector) -> Vector:
    best = int(np.argmax(convex_set.group_norms(g)))
    return lmo_formula(
        L2Ball(convex_set.dimension, convex_set.size), np.where(convex_set.labels == best, g, 0.0)
    )


@lmo_formula.register
def _(convex_set: KSupportBall, g: Vector) -> Vector:
    kept = np.argpartition(-np.abs(g), convex_set.sparsity - 1)[: convex_set.sparsity]
    largest = np.zeros_like(g)
    largest[kept] = g[kept]
    return lmo_formula(L2Ball(convex_set.dimension, convex_set.size), largest)


@lmo_formula.register
def _(convex_set: ConvexHull, g: Vector) -> Vector:
    return convex_set.vertex(int(np.argmin(convex_set.points @ g)))


@lmo_formula.register
def _(convex_set: BoxIntersection, g: Vector) -> Vector:
    return convex_set.maximizer(-g)
