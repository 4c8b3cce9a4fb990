"""Indefinite quadratics over polytopes by mixed-integer programming, with chord and tangent relaxations.

With eigenvalues d_i and eigenvectors v_i of H, the quadratic is a linear function plus the sum of the terms
d_i z_i^2/2, where z_i = <v_i, w>. A concave term is at least its chord between adjacent breakpoints, and
binary variables choose the pair of breakpoints; a convex term is at least its tangents at the breakpoints.
The minimum of this model is therefore a lower bound, and the model is exact where every z_i is a breakpoint.
So it is solved repeatedly, with the z_i of the last answer as new breakpoints, until the bound is close to
the best value. These are the piecewise-linear underestimators of Pardalos and Rosen (1987), refined.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.convex.registry import linear_minimizer
from privopt.oracles.errors import SolverFailedError
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
from privopt.problems.convex.sets.polytope import Polytope

# In units of ``scale_of``: the error that the solver's tolerances may cause, and the gap at which we stop.
_TOLERANCE = 1e-7
_GAP = 1e-6
_FIRST_PIECES = 4
_MOST_ROUNDS = 30
_MOST_CONCAVE = 40


@dataclass(frozen=True)
class ChordOracle(IndefiniteOracle):
    """Minimises quadratics over polytopes, boxes, l-infinity balls and simplices, by PuLP with HiGHS.

    The bound depends on the solver's tolerances (about 1e-7 on feasibility), so ``exact`` is False. The time
    limit is passed to the solver; if that stops early, the answer holds the bound proved so far.
    """

    name: ClassVar[str] = "chords"
    exact: ClassVar[bool] = False

    def refusals(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> list[str]:
        reasons = []
        try:
            as_polytope(convex_set)
        except NoClosedFormError:
            reasons.append(f"{type(convex_set).__name__} has no known list of linear constraints")
        concave = int(np.sum(np.linalg.eigvalsh(H) < 0))
        if concave > _MOST_CONCAVE:
            reasons.append(f"{concave} negative eigenvalues, more than {_MOST_CONCAVE}")
        return reasons

    def build(self, convex_set: ConvexSet, H: Vector, cut: HalfSpace | None) -> IndefiniteSolver:
        polytope = _within(as_polytope(convex_set), cut)
        d, Q = np.linalg.eigh(H)
        used = np.flatnonzero(np.abs(d) > 1e-14 * max(1e-300, float(np.max(np.abs(d)))))
        minimize = linear_minimizer(polytope)
        ends = [(minimize(Q[:, i]).bound, -minimize(-Q[:, i]).bound) for i in used]
        terms = [
            (float(d[i]), Q[:, i], low, max(low, high)) for i, (low, high) in zip(used, ends, strict=True)
        ]
        # A bound on the contribution of the eigenvalues that are left out.
        lost = 1e-14 * float(np.max(np.abs(d), initial=0.0)) * len(d) * convex_set.radius**2

        def solve(g: Vector, watch: Watch) -> IndefiniteProposal:
            # The problem is scaled, because the solver's tolerances are absolute.
            scale = scale_of(H, g, convex_set.radius) or 1.0
            scaled = [(d / scale, v, low, high) for d, v, low, high in terms]
            found = _refine(polytope, H / scale, g / scale, scaled, lost / scale, watch)
            return dataclasses.replace(found, bound=found.bound * scale)

        return solve


def _within(polytope: Polytope, cut: HalfSpace | None) -> Polytope:
    if cut is None:
        return polytope
    A = np.concatenate([polytope.A, cut.normal[None, :]])
    return Polytope(A, np.append(polytope.b, cut.offset), polytope.box.low, polytope.box.high)


_Term = tuple[float, Vector, float, float]


def _refine(
    polytope: Polytope, H: Vector, g: Vector, terms: list[_Term], lost: float, watch: Watch
) -> IndefiniteProposal:
    breaks = [np.linspace(low, high, _FIRST_PIECES + 1) for _, _, low, high in terms]
    best = linear_minimizer(polytope)(g).point
    least = _value(H, g, best)
    bound, status, raw = _trivial(polytope, g, terms), Status.OPTIMAL, "closed without the solver"
    for rounds in range(_MOST_ROUNDS):
        if least - bound <= _GAP:
            return IndefiniteProposal(best, bound, Status.OPTIMAL, rounds, raw)
        if (reason := watch.stop()) is not None:
            return IndefiniteProposal(best, bound, reason, rounds, raw)
        answer = _Model(polytope, g, terms, breaks).solve(watch.remaining, _GAP / 4)
        raw = answer.raw
        bound = max(bound, answer.bound - _TOLERANCE - lost)
        if answer.point is None:
            continue  # out of time, so the watch stops the next round
        point = polytope.box.clip(answer.point)
        reached = _towards(polytope, best, point)
        if _value(H, g, reached) < least:
            best, least = reached, _value(H, g, reached)
        pairs = zip(breaks, terms, strict=True)
        refined = [_with(b, float(v @ point), high - low) for b, (_, v, low, high) in pairs]
        if all(len(a) == len(b) for a, b in zip(breaks, refined, strict=True)):
            status = Status.OPTIMAL if least - bound <= 100 * _GAP else Status.TIME_LIMIT
            return IndefiniteProposal(best, bound, status, rounds + 1, f"{raw}; nothing left to refine")
        breaks = refined
        watch.report(least, bound, rounds)
    return IndefiniteProposal(best, bound, Status.TIME_LIMIT, _MOST_ROUNDS, f"{raw}; out of rounds")


def _towards(polytope: Polytope, inside: Vector, point: Vector) -> Vector:
    """Return the last feasible point on the way from ``inside`` to a point that may violate constraints."""
    sides = polytope.b + 1e-9 * (1 + np.abs(polytope.b))  # ``inside`` may also violate rows a little
    rates, room = polytope.A @ (point - inside), np.maximum(sides - polytope.A @ inside, 0.0)
    ahead = rates > 0
    share = float(np.min(room[ahead] / rates[ahead], initial=1.0))
    return np.asarray(inside + share * (point - inside))


def _value(H: Vector, g: Vector, w: Vector) -> float:
    return float(w @ (H @ w / 2 + g))


def _trivial(polytope: Polytope, g: Vector, terms: list[_Term]) -> float:
    """Return a lower bound on the quadratic: the sum of the separate minima of its terms."""
    least = [0.5 * d * (max(lo * lo, hi * hi) if d < 0 else max(0.0, lo, -hi) ** 2) for d, _, lo, hi in terms]
    return math.fsum([linear_minimizer(polytope)(g).bound, *least])


def _with(breaks: Vector, z: float, width: float) -> Vector:
    """Add z to the breakpoints, unless it equals one up to the solver's precision or is outside them all."""
    if width <= 0 or np.min(np.abs(breaks - z)) <= 1e-7 * width or not breaks[0] < z < breaks[-1]:
        return breaks
    return np.sort(np.append(breaks, z))


@dataclass(frozen=True)
class _ModelAnswer:
    point: Vector | None
    bound: float
    raw: str


@dataclass
class _Model:
    """One mixed-integer program: the variables w, and underestimators of all terms."""

    polytope: Polytope
    g: Vector
    terms: list[_Term]
    breaks: list[Vector]
    columns: list[Any] = field(default_factory=list)

    def solve(self, seconds: float | None, gap: float) -> _ModelAnswer:
        import pulp  # imported late: it is slow, as it loads every solver that it finds

        problem = pulp.LpProblem("chords", pulp.LpMinimize)
        box = self.polytope.box
        w = [
            problem.add_variable(f"w{j:04d}", float(lo), float(hi))
            for j, (lo, hi) in enumerate(zip(box.low, box.high, strict=True))
        ]
        costs = [(w[j], float(c)) for j, c in enumerate(self.g)]
        for i, ((d, v, _, _), breaks) in enumerate(zip(self.terms, self.breaks, strict=True)):
            z = [(w[j], float(c)) for j, c in enumerate(v)]
            under = self._chords if d < 0 else self._tangents
            costs += under(pulp, problem, f"{i:04d}", d / 2, z, breaks)
        problem.setObjective(pulp.LpAffineExpression(costs))
        for row, side in zip(self.polytope.A, self.polytope.b, strict=True):
            problem += pulp.LpAffineExpression([(w[j], float(c)) for j, c in enumerate(row)]) <= float(side)
        solver = pulp.HiGHS(msg=False, gapRel=0.0, gapAbs=gap, timeLimit=seconds)
        try:
            problem.solve(solver)
        except pulp.PulpSolverError as error:
            raise SolverFailedError(f"HiGHS failed on a chord model: {error}") from error
        return self._answer(problem, w)

    @staticmethod
    def _chords(
        pulp: Any, problem: Any, name: str, half: float, z: list[Any], breaks: Vector
    ) -> list[tuple[Any, float]]:
        """Model half z^2, half < 0, by its chords.

        Binary b_k is 1 if z is in piece k, and u_k <= b_k is the position of z in it, from 0 to 1.
        """
        values, pieces, position = half * breaks**2, [], []
        costs: list[tuple[Any, float]] = []
        for k in range(len(breaks) - 1):
            b = problem.add_variable(f"b{name}_{k:04d}", cat=pulp.LpBinary)
            u = problem.add_variable(f"u{name}_{k:04d}", 0.0, 1.0)
            problem += u <= b
            pieces.append((b, 1.0))
            position += [(b, float(breaks[k])), (u, float(breaks[k + 1] - breaks[k]))]
            costs += [(b, float(values[k])), (u, float(values[k + 1] - values[k]))]
        problem += pulp.LpAffineExpression(pieces) == 1
        problem += pulp.LpAffineExpression(z) == pulp.LpAffineExpression(position)
        return costs

    @staticmethod
    def _tangents(
        pulp: Any, problem: Any, name: str, half: float, z: list[Any], breaks: Vector
    ) -> list[tuple[Any, float]]:
        """Model half z^2, half > 0, by a variable that is at least 0 and at least every tangent."""
        s = problem.add_variable(f"s{name}", 0.0)
        for t in breaks.tolist():
            tangent = [(x, 2 * half * t * c) for x, c in z]
            problem += pulp.LpAffineExpression([*tangent, (s, -1.0)]) <= half * t * t
        return [(s, 1.0)]

    @staticmethod
    def _answer(problem: Any, w: list[Any]) -> _ModelAnswer:
        highs = problem.solverModel
        info, status = highs.getInfo(), highs.modelStatusToString(highs.getModelStatus())
        values = [x.value() for x in w]
        found = all(v is not None for v in values) and info.primal_solution_status == 2
        integer = any(x.cat != "Continuous" for x in problem.variables())
        if integer:
            bound = float(info.mip_dual_bound)
        else:  # a linear program has a bound only when it is solved
            bound = float(info.objective_function_value) if status == "Optimal" else -math.inf
        if not math.isfinite(bound):
            bound = -math.inf
        return _ModelAnswer(np.array(values, dtype=np.float64) if found else None, bound, f"HiGHS: {status}")
