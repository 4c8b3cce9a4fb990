"""Linear programs over polytopes and hulls by HiGHS, through scipy, with bounds that we recompute."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from privopt.oracles.convex.interface import LinearAnswer, LinearMinimizer
from privopt.oracles.convex.quantities import gauge
from privopt.oracles.convex.registry import checked, linear_minimizer
from privopt.oracles.errors import SolverFailedError
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.errors import InfeasibleDomainError

_NUMERICAL_TROUBLE = 4  # a status of scipy.optimize.linprog


@dataclass(frozen=True)
class PolytopeMinimizer:
    """Linear minimiser over a polytope: argmin over {A v <= b, low <= v <= high} of <v, g>.

    The bound does not rely on the solver: for any multipliers y >= 0, <v, g> is at least
    min over the box of <v, g + A'y> - <b, y>, which is evaluated for the multipliers that HiGHS returns.
    """

    polytope: Polytope

    def __call__(self, g: Vector, /) -> LinearAnswer:
        """Return a minimiser, and the bound of its multipliers.

        Raises:
            InvalidInputError: g is not a finite vector of the polytope's dimension.
            InfeasibleDomainError: the polytope is empty.
            SolverFailedError: HiGHS stopped for any other reason.
        """
        c, box = self.polytope, self.polytope.box
        bounds = list(zip(box.low.tolist(), box.high.tolist(), strict=True))
        slope, scale = checked(g, c.dimension), np.ones(len(c.b))
        result: Any = linprog(slope, A_ub=c.A, b_ub=c.b, bounds=bounds, method="highs")
        if result.status == _NUMERICAL_TROUBLE:  # rows of very different scales: again, with rows of length 1
            scale = 1 / np.maximum(np.linalg.norm(c.A, axis=1), np.finfo(float).tiny)
            rows = c.A * scale[:, None]
            result = linprog(slope, A_ub=rows, b_ub=c.b * scale, bounds=bounds, method="highs")
        if result.status == 2:
            raise InfeasibleDomainError("empty polytope: no point satisfies all constraints")
        if result.x is None or result.status != 0:
            raise SolverFailedError(f"HiGHS could not minimise over the polytope: {result.message}")
        point = np.clip(result.x, box.low, box.high)
        multipliers = np.maximum(-result.ineqlin.marginals * scale, 0.0)
        return LinearAnswer(point, float(point @ g), c.lower_bound(g, multipliers), c.violation(point))


@linear_minimizer.register
def _(convex_set: Polytope) -> LinearMinimizer:
    return PolytopeMinimizer(convex_set)


@gauge.register
def _(convex_set: ConvexHull, v: Vector) -> float:
    """Return the least total weight of a conic combination of the points equal to v; infinite if none.

    Raises:
        SolverFailedError: HiGHS stopped without an answer.
    """
    result: Any = linprog(np.ones(len(convex_set.points)), A_eq=convex_set.points.T, b_eq=v, method="highs")
    if result.status == 2:
        return float("inf")
    if result.status != 0:
        raise SolverFailedError(f"HiGHS could not decompose the vector: {result.message}")
    return float(result.fun)
