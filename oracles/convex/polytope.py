"""Linear minimisers over polytopes and gauges of hulls, by HiGHS in scipy; bounds are recomputed."""

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

    The bound does not rely on the solver. For any multipliers y >= 0, a point v of the polytope has
    <v, g> >= min over u in the box of <u, g + A'y> - <b, y>; the right side is computed for the multipliers
    that HiGHS returns.
    """

    polytope: Polytope

    def __call__(self, g: Vector, /) -> LinearAnswer:
        """Return a minimiser and its lower bound.

        Raises:
            InvalidInputError: g is not a finite vector of the polytope's dimension.
            InfeasibleDomainError: the polytope is empty.
            SolverFailedError: HiGHS stopped for any other reason.
        """
        c, box = self.polytope, self.polytope.box
        bounds = list(zip(box.low.tolist(), box.high.tolist(), strict=True))
        slope, scale = checked(g, c.dimension), np.ones(len(c.b))
        result: Any = linprog(slope, A_ub=c.A, b_ub=c.b, bounds=bounds, method="highs")
        # Rows of very different scales cause such trouble: scale them to length 1, and try once more.
        if result.status == _NUMERICAL_TROUBLE:
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
    """Return the least sum of weights >= 0 of the points whose weighted sum is v; infinite if there are none.

    Raises:
        SolverFailedError: HiGHS stopped without an answer.
    """
    result: Any = linprog(np.ones(len(convex_set.points)), A_eq=convex_set.points.T, b_eq=v, method="highs")
    if result.status == 2:
        return float("inf")
    if result.status != 0:
        raise SolverFailedError(f"HiGHS could not decompose the vector: {result.message}")
    return float(result.fun)
