"""Oracle for quadratics by SCIP, an optional package, which itself branches on non-convex terms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.convex.registry import linear_minimizer
from privopt.oracles.errors import MissingSolverError, SolverFailedError
from privopt.oracles.indefinite.interface import (
    HalfSpace,
    IndefiniteOracle,
    IndefiniteProposal,
    IndefiniteSolver,
    scale_of,
)
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.interface import ConvexSet, NoClosedFormError
from privopt.problems.convex.sets.intersections import as_polytope
from privopt.problems.convex.sets.norm_balls import L2Ball

_TOLERANCE = 1e-6  # SCIP's tolerance on feasibility, in units of ``scale_of``


@dataclass(frozen=True)
class ScipOracle(IndefiniteOracle):
    """Minimises quadratics over l2 balls, polytopes, boxes, l-infinity balls and simplices.

    The bound depends on SCIP's tolerances, so ``exact`` is False. The time limit is passed to SCIP, but
    cancellation is checked only before SCIP starts.

    Raises:
        MissingSolverError: PySCIPOpt is not installed.
    """

    name: ClassVar[str] = "scip"
    exact: ClassVar[bool] = False

    def __post_init__(self) -> None:
        try:
            import pyscipopt  # noqa: F401
        except ImportError as error:
            raise MissingSolverError(
                "oracle 'scip' needs PySCIPOpt. To do: pip install 'privopt[scip]'"
            ) from error

    def refusals(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> list[str]:
        if isinstance(convex_set, L2Ball):
            return []
        try:
            as_polytope(convex_set)
        except NoClosedFormError:
            return [f"{type(convex_set).__name__} is no l2 ball and has no known list of linear constraints"]
        return []

    def build(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> IndefiniteSolver:
        def solve(g: Vector, watch: Watch) -> IndefiniteProposal:
            start = linear_minimizer(convex_set)(g if cut is None else cut.normal).point
            if (reason := watch.stop()) is not None:
                return IndefiniteProposal(start, -math.inf, reason)
            return _solved(convex_set, H, g, cut, start, watch)

        return solve


def _solved(
    convex_set: ConvexSet, H: Vector, g: Vector, cut: HalfSpace | None, start: Vector, watch: Watch
) -> IndefiniteProposal:
    from pyscipopt import Model, quicksum

    model, scale = Model("quadratic"), max(scale_of(H, g, convex_set.radius), 1e-300)
    model.hideOutput()
    model.setParam("limits/gap", 0.0)
    if watch.remaining is not None:
        model.setParam("limits/time", max(watch.remaining, 1e-3))
    w = _variables(model, convex_set, quicksum)
    if cut is not None:
        length = float(np.linalg.norm(cut.normal))
        model.addCons(
            quicksum(float(a / length) * x for a, x in zip(cut.normal, w, strict=True)) <= cut.offset / length
        )
    value = model.addVar("value", lb=None, ub=None)
    pairs = [(i, j) for i in range(len(w)) for j in range(i + 1) if H[i, j] != 0]
    terms = [float(H[i, j] / scale) * (0.5 if i == j else 1.0) * w[i] * w[j] for i, j in pairs]
    linear = [float(c / scale) * x for c, x in zip(g, w, strict=True)]
    model.addCons(quicksum(terms) + quicksum(linear) <= value)
    model.setObjective(value, "minimize")
    model.optimize()
    state = str(model.getStatus())
    if state in ("infeasible", "unbounded", "inforunbd"):
        raise SolverFailedError(f"SCIP calls a bounded, feasible quadratic {state}")
    status = Status.OPTIMAL if state in ("optimal", "gaplimit") else Status.TIME_LIMIT
    if state == "userinterrupt":
        status = Status.INTERRUPTED
    bound = model.getDualbound()
    proved = -math.inf if bound <= -1e19 else (bound - _TOLERANCE) * scale
    point = np.array([model.getVal(x) for x in w]) if model.getNSols() else start
    return IndefiniteProposal(point, proved, status, int(model.getNNodes()), f"SCIP: {state}")


def _variables(model: Any, convex_set: ConvexSet, quicksum: Any) -> list[Any]:
    if isinstance(convex_set, L2Ball):
        r = convex_set.size
        w = [model.addVar(f"w{j}", lb=-r, ub=r) for j in range(convex_set.dimension)]
        model.addCons(quicksum(x * x for x in w) <= r * r)
        return w
    polytope = as_polytope(convex_set)
    box = zip(polytope.box.low, polytope.box.high, strict=True)
    w = [model.addVar(f"w{j}", lb=float(lo), ub=float(hi)) for j, (lo, hi) in enumerate(box)]
    for row, side in zip(polytope.A, polytope.b, strict=True):
        model.addCons(quicksum(float(a) * x for a, x in zip(row, w, strict=True)) <= float(side))
    return w
