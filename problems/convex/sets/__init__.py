"""Convex sets: membership, size and vertices. One kind of set per file."""

from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet, Estimate, NoClosedFormError, simulated_width
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace

__all__ = [
    "Box",
    "ConvexHull",
    "ConvexSet",
    "Estimate",
    "GroupL1Ball",
    "KSupportBall",
    "L1Ball",
    "L2Ball",
    "LinfBall",
    "NoClosedFormError",
    "Polytope",
    "Simplex",
    "WholeSpace",
    "simulated_width",
]
