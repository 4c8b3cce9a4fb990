"""Convex quadratics over sets: values against general solvers, certificates, limits and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, minimize

from privopt.oracles.certificate import Status
from privopt.oracles.convex.conformance import SetInstance, check_linear_minimizer, check_projector
from privopt.oracles.convex.least_distance import LeastDistanceOracle, nearest_in_hull
from privopt.oracles.convex.projected_gradient import ProjectedGradientOracle
from privopt.oracles.convex.quadratic import quadratic_minimizer
from privopt.oracles.convex.quantities import support
from privopt.oracles.convex.registry import linear_minimizer, lmo_formula, project, projector
from privopt.oracles.errors import CertificateError, UnsupportedProblemError
from privopt.oracles.limits import Limits
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError

Vector = NDArray[np.float64]


def random_polytope(rng: np.random.Generator, p: int, m: int) -> Polytope:
    A = rng.standard_normal((m, p))
    return Polytope(
        A, A @ rng.uniform(-0.5, 0.5, p) + rng.exponential(1, m), np.full(p, -1.0), np.full(p, 1.5)
    )


def general_value(convex_set: ConvexSet, H: Vector, g: Vector) -> float:
    """By SLSQP over the constraints as they are written; for a hull, over the weights of its points."""
    p = convex_set.dimension
    value, slope = lambda w: float(w @ H @ w / 2 + g @ w), lambda w: H @ w + g
    start, bounds = np.full(p, 0.5 / p), None
    match convex_set:
        case Polytope(A=A, b=b, box=box):
            constraints = [{"type": "ineq", "fun": lambda w: b - A @ w, "jac": lambda w: -A}]
            bounds = Bounds(box.low, box.high)
        case Simplex(size=size):
            constraints = [{"type": "eq", "fun": lambda w: np.sum(w) - size}]
            bounds = Bounds(np.zeros(p), np.inf)
        case LinfBall(size=size):
            constraints, bounds = [], Bounds(np.full(p, -size), np.full(p, size))
        case L2Ball(size=size):
            constraints = [{"type": "ineq", "fun": lambda w: size**2 - w @ w, "jac": lambda w: -2 * w}]
        case ConvexHull(points=points):
            m = len(points)
            result = minimize(
                lambda k: value(k @ points),
                np.full(m, 1 / m),
                jac=lambda k: points @ slope(k @ points),
                method="SLSQP",
                bounds=Bounds(np.zeros(m), np.inf),
                constraints=[LinearConstraint(np.ones((1, m)), 1, 1)],
                options={"ftol": 1e-13, "maxiter": 500},
            )
            return float(result.fun)
    result = minimize(
        value,
        start,
        jac=slope,
        method="SLSQP",
        bounds=bounds,
        constraints=constraints,
        options={"ftol": 1e-13, "maxiter": 500},
    )
    return float(result.fun)


@pytest.mark.parametrize("rank", [0, 2, 5])
@pytest.mark.parametrize("kind", ["polytope", "simplex", "linf", "l2", "hull"])
def test_values_against_a_general_solver(kind: str, rank: int) -> None:
    rng = np.random.default_rng(rank)
    for _ in range(3):
        convex_set: ConvexSet = {
            "polytope": random_polytope(rng, 5, 8),
            "simplex": Simplex(5, 1.3),
            "linf": LinfBall(5, 0.4),
            "l2": L2Ball(5, 0.8),
            "hull": ConvexHull(rng.standard_normal((9, 5))),
        }[kind]
        B = rng.standard_normal((rank, 5))
        H, g = B.T @ B, rng.standard_normal(5)
        answer = quadratic_minimizer(convex_set, H).minimize(g)
        point = answer.require(gap=1e-6, violation=1e-9)
        assert answer.value == pytest.approx(point @ H @ point / 2 + g @ point, abs=1e-12)
        assert answer.value == pytest.approx(general_value(convex_set, H, g), abs=1e-5)
        assert answer.bound <= answer.value + 1e-12


def test_scales_of_curvature_and_slope_from_nearly_linear_to_nearly_flat() -> None:
    """The gap is a proof in itself; here it is asked to be small next to the terms it is a difference of."""
    rng = np.random.default_rng(1)
    for _ in range(60):
        p = int(rng.integers(1, 10))
        polytope = random_polytope(rng, p, int(rng.integers(0, 15)))
        B = rng.standard_normal((int(rng.integers(0, p + 1)), p)) * 10 ** rng.uniform(-3, 2)
        g = rng.standard_normal(p) * 10 ** rng.uniform(-3, 3)
        answer = LeastDistanceOracle().prepare(polytope, B.T @ B).minimize(g)
        assert answer.gap <= 1e-9 * (np.max(np.abs(B.T @ B), initial=0.0) + np.max(np.abs(g)))
        assert answer.violation <= 1e-9


def test_two_oracles_agree() -> None:
    rng = np.random.default_rng(2)
    simplex = Simplex(6, 1.0)
    B = rng.standard_normal((6, 6))
    for _ in range(5):
        g = rng.standard_normal(6)
        first = LeastDistanceOracle().prepare(simplex, B.T @ B).minimize(g)
        second = ProjectedGradientOracle().prepare(simplex, B.T @ B).minimize(g)
        assert first.value == pytest.approx(second.value, abs=1e-7)
        assert first.status is second.status is Status.OPTIMAL


def test_the_gap_bounds_the_squared_distance_to_a_projection() -> None:
    rng = np.random.default_rng(3)
    polytope = random_polytope(rng, 6, 10)
    quadratic = ProjectedGradientOracle(gap=1e-3).prepare(polytope, np.eye(6))
    for _ in range(5):
        x = rng.standard_normal(6) * 3
        rough, exact = quadratic.minimize(-x), projector(polytope)(x)
        assert np.sum((rough.point - exact) ** 2) <= rough.gap + 1e-12


def test_limits_leave_a_point_of_the_set_and_an_honest_bound() -> None:
    rng = np.random.default_rng(4)
    ball = L2Ball(30, 1.0)
    B = rng.standard_normal((30, 30)) * np.logspace(-3, 1, 30)
    prepared = ProjectedGradientOracle().prepare(ball, B.T @ B)
    best = prepared.minimize(np.ones(30)).value
    early = prepared.minimize(np.ones(30), Limits(cancelled=lambda: True))
    assert early.status is Status.INTERRUPTED
    assert early.bound <= best <= early.value
    with pytest.raises(CertificateError, match="INTERRUPTED"):
        early.require(gap=1e-9)
    few = ProjectedGradientOracle(steps=5).prepare(ball, B.T @ B).minimize(np.ones(30))
    assert few.status is Status.TIME_LIMIT
    assert few.raw_status == "out of steps"


def test_refusals_list_every_reason() -> None:
    with pytest.raises(UnsupportedProblemError, match=r"L2Ball has no known list.*not convex.*-1"):
        LeastDistanceOracle().prepare(L2Ball(2, 1.0), np.diag([1.0, -1.0]))
    with pytest.raises(UnsupportedProblemError, match="unbounded"):
        ProjectedGradientOracle().prepare(WholeSpace(2), np.eye(2))
    with pytest.raises(InfeasibleDomainError):
        quadratic_minimizer(Polytope([[1.0, 1.0]], [-3.0], [-1, -1], [1, 1]), np.eye(2))
    with pytest.raises(InfeasibleDomainError):
        projector(Polytope([[1.0, 1.0]], [-3.0], [-1, -1], [1, 1]))
    with pytest.raises(InvalidInputError, match="symmetric"):
        quadratic_minimizer(L2Ball(2, 1.0), [[1.0, 1.0], [0.0, 1.0]])
    with pytest.raises(InvalidInputError, match="shape"):
        quadratic_minimizer(L2Ball(2, 1.0), np.eye(3))
    with pytest.raises(InvalidInputError, match="finite"):
        quadratic_minimizer(L2Ball(2, 1.0), np.eye(2)).minimize([np.nan, 0.0])
    with pytest.raises(InvalidInputError, match="gap"):
        ProjectedGradientOracle(gap=0.0)


def test_nearest_point_of_a_hull_by_hand() -> None:
    square = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]])
    np.testing.assert_allclose(nearest_in_hull(square, np.array([2.0, 0.3])), [1.0, 0.3], atol=1e-15)
    np.testing.assert_allclose(nearest_in_hull(square, np.array([1e9, 3e9])), [1.0, 1.0], atol=1e-15)
    np.testing.assert_allclose(nearest_in_hull(square, np.array([0.2, 0.7])), [0.2, 0.7], atol=1e-15)
    np.testing.assert_array_equal(nearest_in_hull(square, square[2]), square[2])


def test_thin_and_badly_scaled_polytopes_are_projected_onto() -> None:
    """Slabs down to 1e-12 wide, rows scaled by 1e-6 to 1e6, repeated rows, far points."""
    rng = np.random.default_rng(6)
    for _ in range(60):
        p, m = int(rng.integers(2, 9)), int(rng.integers(1, 12))
        A, slack = rng.standard_normal((m, p)), rng.exponential(1, m) * rng.integers(0, 2)
        b = A @ rng.uniform(-0.5, 0.5, p) + slack
        width = 10 ** rng.uniform(-12, 0)
        A, b = np.vstack([A, A, -A]), np.concatenate([b, b, -b + 2 * slack + width])
        rows = 10 ** rng.uniform(-6, 6, len(b))
        polytope = Polytope(A * rows[:, None], b * rows, np.full(p, -1.0), np.full(p, 1.5))
        x = rng.standard_normal(p) * 10 ** rng.uniform(-2, 5)
        u = projector(polytope)(x)
        assert np.max(A @ u - b) <= 1e-8 * (1 + np.linalg.norm(x))
        assert support(polytope, x - u) - float((x - u) @ u) <= 1e-6 * (1 + np.linalg.norm(x))


def test_clusters_and_flat_hulls_are_projected_onto() -> None:
    rng = np.random.default_rng(7)
    for spread in (1.0, 1e-9, 0.0):
        points = rng.standard_normal((8, 4)) * spread * [1, 1, 0, 1] + [3, 0, 5, 1]
        x = rng.standard_normal(4) * 100
        u = projector(ConvexHull(points))(x)
        assert np.max((points - u) @ (x - u)) <= 1e-10 * max(spread, 1e-6)
        assert u[2] == pytest.approx(5)


def test_a_set_of_ones_own_takes_part_when_its_formulas_are_registered() -> None:
    class Segment(ConvexSet):
        """{(t, t): 0 <= t <= 1}."""

        dimension = 2
        radius = l1_radius = np.sqrt(2)

        def support(self, g: Vector) -> float:
            return max(0.0, float(np.sum(g)))

        def gauge(self, v: Vector) -> float:
            return float(v[0]) if v[0] == v[1] >= 0 else np.inf

        def violation(self, w: Vector) -> float:
            return float(np.max(np.abs(w - np.clip(np.mean(w), 0, 1))))

    lmo_formula.register(Segment, lambda _set, g: np.full(2, float(np.sum(g) < 0)))
    project.register(Segment, lambda _set, x: np.full(2, np.clip(np.mean(x), 0.0, 1.0)))
    instance = SetInstance("segment", Segment(), np.array([[0.0, 0.0], [1.0, 1.0]]))
    assert check_linear_minimizer(linear_minimizer, instances=[instance]).passed
    assert check_projector(projector, instances=[instance]).passed
    answer = quadratic_minimizer(Segment(), np.eye(2)).minimize([-1.0, 0.0])
    assert answer.value == pytest.approx(-0.25)  # t^2 - t is least at 1/2
