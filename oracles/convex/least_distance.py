"""Nearest points of polytopes and hulls, and convex quadratics over polytopes, by non-negative least squares.

The dual of the problem "find the shortest v with G v >= h" is a non-negative least squares problem. The
active-set method of Lawson and Hanson (1974, chapter 23) solves it in finitely many steps. The constraints
that it finds active are then solved as equations, so that the point is as exact as float64 allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space, solve_triangular
from scipy.optimize import nnls

from privopt.oracles.certificate import Status
from privopt.oracles.convex.interface import Projector
from privopt.oracles.convex.quadratic import (
    QuadraticOracle,
    QuadraticProposal,
    QuadraticSolver,
    quadratic_oracle,
)
from privopt.oracles.convex.registry import project, projector
from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.intersections import as_polytope
from privopt.problems.convex.sets.norm_balls import LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex

_RIDGE = 1e-6  # ridge that is added to a singular H, relative to its largest eigenvalue
_SLOPE_RIDGE = 1e-4  # the ridge is at least this, relative to |g| / radius
_RIDGE_STEPS = 100
_RESCALINGS = 8
_GAP = 1e-9  # relative; rounding leaves about 1e-15

BoolArray = NDArray[np.bool_]


def nearest_in_hull(points: Vector, x: Vector) -> Vector:
    """Return the point of the hull of ``points``, shape (m, p), that is nearest to x, shape (p,).

    Weights u >= 0 of the points are s k with sum k = 1. For P = points - x, the least of
    |P'u|^2 + (sum u - 1)^2 over s is q / (1 + q) with q = |P'k|^2, which increases with q. So the shares k of
    the non-negative least squares solution u give the nearest point P'k + x.

    For a point z of the hull, the gap max <v - z, x - z> over the points v bounds the squared distance of z
    from the nearest point.

    Raises:
        SolverFailedError: the active-set method did not finish, or the gap is not small.
    """
    centre = np.mean(points, axis=0)  # subtracted, so that points far from 0 lose no digits
    V, target = points - centre, x - centre
    lengths = np.linalg.norm(V - target, axis=1)
    scale = float(np.min(lengths))
    if scale == 0:
        return np.array(points[np.argmin(lengths)])
    radius = float(np.max(np.linalg.norm(points, axis=1)))
    reach = radius + float(np.linalg.norm(target))
    best, least = V[0], np.inf
    for _ in range(_RESCALINGS):
        weights, _ = _nnls(np.vstack([(V - target).T / scale, np.ones(len(V))]))
        u = _exact_shares(V, target, weights / np.sum(weights)) @ V
        gap = float(np.max((V - u) @ (target - u)))
        best, least = (u, gap) if gap < least else (best, least)
        if least <= _GAP * radius * reach:
            break
        scale *= 10.0
    # A gap between the two limits is accepted: from a far x, rounding hides the differences of the points.
    if least > _GAP * reach**2:
        raise SolverFailedError("the active-set method did not find the nearest point of the hull")
    return np.asarray(centre + best)


@project.register
def _(convex_set: ConvexHull, x: Vector) -> Vector:
    return nearest_in_hull(convex_set.points, x)


def _exact_shares(V: Vector, target: Vector, weights: Vector) -> Vector:
    """Return the weights of the nearest point in the affine hull of the points with positive weights.

    If one of these weights is negative, the given weights are returned.
    """
    used = np.flatnonzero(weights)
    first, rest = V[used[0]], V[used[1:]]
    shares = np.linalg.lstsq((rest - first).T, target - first, rcond=None)[0]
    exact = np.concatenate([[1 - np.sum(shares)], shares])
    if np.all(exact >= 0):
        weights[used] = exact
    return weights


@dataclass(frozen=True)
class LeastDistanceOracle(QuadraticOracle):
    """Minimises convex quadratics over polytopes, boxes, l-infinity balls and simplices.

    With H = R'R > 0, <w, H w>/2 + <g, w> is |R w - z|^2 / 2 for some z, up to a constant, and the method is
    finite. If H is singular, each step minimises the quadratic plus a small ridge around the last point. This
    is the proximal point method, which converges to a minimum of the quadratic (Rockafellar 1976).
    """

    name: ClassVar[str] = "least-distance"

    def refusals(self, convex_set: ConvexSet, H: Vector) -> list[str]:
        if isinstance(convex_set, Polytope | Box | LinfBall | Simplex):
            return []
        return [f"{type(convex_set).__name__} has no known list of linear constraints"]

    def build(self, convex_set: ConvexSet, H: Vector) -> QuadraticSolver:
        A, b = as_polytope(convex_set).halfspaces
        count, radius = len(b) - 2 * convex_set.dimension, convex_set.radius
        eigenvalues = np.linalg.eigvalsh(H)
        definite = eigenvalues[0] > _RIDGE * eigenvalues[-1]
        direct = _StrictlyConvex(H, A, b) if definite else None

        def solve(g: Vector, watch: Watch) -> QuadraticProposal:
            if direct is not None:
                point, multipliers = direct.solve(g)
                return QuadraticProposal(point, multipliers=multipliers[:count], steps=1)
            # The ridge also shortens the step: coming back from a point far outside would lose digits.
            ridge = max(_RIDGE * float(eigenvalues[-1]), _SLOPE_RIDGE * float(np.linalg.norm(g)) / radius)
            ridge = ridge or 1.0  # H and g are 0, so any point is a minimum
            ridged = _StrictlyConvex(H + ridge * np.eye(len(H)), A, b)
            point, multipliers = ridged.solve(g)
            for k in range(1, _RIDGE_STEPS):
                if (stopped := watch.stop()) is not None:
                    return QuadraticProposal(point, stopped, multipliers[:count], k)
                before = _within_face(H, g, A, b, point, multipliers > 0)
                point, multipliers = ridged.solve(g - ridge * before)
                if np.linalg.norm(point - before) <= 1e-10 * radius:
                    return QuadraticProposal(point, Status.OPTIMAL, multipliers[:count], k)
            return QuadraticProposal(
                point, Status.TIME_LIMIT, multipliers[:count], _RIDGE_STEPS, "out of ridge steps"
            )

        return solve


@quadratic_oracle.register
def _(convex_set: Polytope | Box | LinfBall | Simplex) -> QuadraticOracle:
    return LeastDistanceOracle()


@projector.register
def _(convex_set: Polytope) -> Projector:
    """Return the projection, as argmin over w of |w|^2/2 - <x, w>.

    The gap bounds the squared distance of the answer from the projection; if it is not small,
    ``CertificateError`` is raised.
    """
    quadratic = LeastDistanceOracle().prepare(convex_set, np.eye(convex_set.dimension))
    size = convex_set.radius
    # The largest norm of a row of A, in which violations are measured.
    unit = max(1.0, float(np.max(np.linalg.norm(convex_set.A, axis=1), initial=0.0)))

    def nearest(x: Vector) -> Vector:
        scale = size + float(np.linalg.norm(x))
        return quadratic.minimize(-x).require(gap=_GAP * scale * size, violation=_GAP * scale * unit)

    return nearest


def _within_face(H: Vector, g: Vector, A: Vector, b: Vector, w: Vector, active: BoolArray) -> Vector:
    """Move from w, within the face of the active rows, towards its minimum, as far as other rows allow."""
    face = null_space(A[active])
    curved, slope = face.T @ H @ face, face.T @ (H @ w + g)
    step = np.linalg.lstsq(curved, -slope, rcond=None)[0]
    flat = -slope - curved @ step  # a direction in which the objective falls until another row is active
    whole = bool(np.linalg.norm(flat) <= 1e-9 * np.linalg.norm(slope))
    move = face @ (step if whole else flat)
    rates, room = A @ move, np.maximum(b - A @ w, 0.0)
    ahead = ~active & (rates > 0)
    share = float(np.min(room[ahead] / rates[ahead], initial=1.0 if whole else np.inf))
    return np.asarray(w + share * move) if np.isfinite(share) else w


class _StrictlyConvex:
    """Minimiser of <w, H w>/2 + <g, w> over A w <= b, for one H > 0."""

    def __init__(self, H: Vector, A: Vector, b: Vector) -> None:
        self._R = np.linalg.cholesky(H).T
        rows = solve_triangular(self._R, A.T, trans="T").T  # A w = rows (R w)
        norms = np.linalg.norm(rows, axis=1)
        self._norms = np.where(norms > 0, norms, 1.0)
        self._A, self._b = A, b
        self._rows = rows / self._norms[:, None]

    def solve(self, g: Vector) -> tuple[Vector, Vector]:
        """Return the point, shape (p,), and multipliers of all rows."""
        free = solve_triangular(self._R, solve_triangular(self._R, -g, trans="T"))
        excess = (self._A @ free - self._b) / self._norms
        multipliers = np.zeros(len(self._b))
        if np.all(excess <= 0):
            return free, multipliers
        move, weights = _shortest_move(self._rows, excess)
        point = free + solve_triangular(self._R, move)
        active = weights > 0
        rows = self._rows[active]
        # Solve for the active rows again, now from a near point: from the distant ``free`` digits were lost.
        missed = (self._A[active] @ point - self._b[active]) / self._norms[active]
        point -= solve_triangular(self._R, np.linalg.lstsq(rows, missed, rcond=None)[0])
        multipliers[active] = weights[active] / self._norms[active]
        return point, multipliers


def _shortest_move(rows: Vector, excess: Vector) -> tuple[Vector, Vector]:
    """Return the shortest v with rows @ v <= -excess, and the multipliers y >= 0 with v = -rows.T @ y."""
    scale = float(np.max(excess))
    for _ in range(_RESCALINGS):
        # -residual[-1] is 1 / (1 + (|v| / scale)^2): if |v| is much larger than scale, digits are lost.
        E = np.vstack([-rows.T, excess / scale])
        weights, residual = _nnls(E)
        far = 1 / max(-float(residual[-1]), 1e-16)
        sound = residual[-1] < 0 and np.min(residual @ E) >= -1e-8  # not always so: scipy may stop too early
        if sound and far <= 1e6:
            break
        scale *= math.sqrt(far) if sound else 10.0
    else:
        raise SolverFailedError("the active-set method lost the polytope: is it thinner than rounding?")
    weights *= scale / -residual[-1]
    active = weights > 0
    move = np.linalg.lstsq(rows[active], -excess[active], rcond=None)[0]
    exact = np.linalg.lstsq(rows[active].T, -move, rcond=None)[0]
    if np.all(exact >= 0):
        weights[active] = exact
    return -weights @ rows, weights


def _nnls(E: Vector) -> tuple[Vector, Vector]:
    """Return the u >= 0 with E u nearest to (0, ..., 0, 1), and the residual E u - (0, ..., 0, 1)."""
    target = np.zeros(len(E))
    target[-1] = 1.0
    try:
        u, _ = nnls(E, target, maxiter=30 * E.shape[1])
    except RuntimeError as error:
        raise SolverFailedError(f"non-negative least squares did not finish: {error}") from error
    return u, E @ u - target
