"""Closed-form oracles against general solvers, by value, on random inputs."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog, minimize

from privopt.oracles.convex.bregman import bregman_step, natural_geometry
from privopt.oracles.convex.gauge_step import gauge_step
from privopt.oracles.convex.interface import Entropy, Euclidean, LinearAnswer, SignedEntropy
from privopt.oracles.convex.prox import prox_step
from privopt.oracles.convex.quantities import contains, gauge, support
from privopt.oracles.convex.registry import linear_minimizer, lmo_formula, project, projector
from privopt.oracles.errors import CertificateError, UnsupportedProblemError
from privopt.problems.convex.regularizers import ElasticNet, lasso
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError

Vector = NDArray[np.float64]
P = 5
POINTS = np.random.default_rng(7).standard_normal((9, P))
BOUNDED: list[ConvexSet] = [
    L1Ball(P, 1.3),
    L2Ball(P, 0.7),
    LinfBall(P, 0.4),
    Simplex(P, 2.0),
    Box([-1, -0.2, 0, 0.3, -2], [1, 0.5, 2, 0.3, -1]),
    GroupL1Ball(((0, 3), (1,), (2, 4)), 1.1),
    KSupportBall(P, 2, 0.9),
    KSupportBall(P, 1, 0.9),
    KSupportBall(P, P, 0.9),
    ConvexHull(POINTS),
    Polytope(POINTS, np.full(9, 0.8), np.full(P, -1.0), np.full(P, 1.5)),
]
CUT = Box([-1, -0.2, -0.1, 0.1, -0.5], [1, 0.5, 2, 0.6, -0.2])
BOUNDED += [
    BoxIntersection(CUT, L2Ball(P, 0.7)),
    BoxIntersection(CUT, L1Ball(P, 1.1)),
    BoxIntersection(Box(np.full(P, -0.3), np.full(P, 0.3)), L1Ball(P, 1.0)),
    BoxIntersection(Box([-1, 0, 0.2, 0.0, 0], [0.4, 0.5, 2, 0.1, 0.6]), Simplex(P, 1.1)),
    # Degenerate: one point, repeated points, points in a plane; a polytope in a plane, and one point of it.
    ConvexHull(POINTS[:1]),
    ConvexHull(np.concatenate([POINTS[:3], POINTS[:3], POINTS[:3].mean(axis=0, keepdims=True)])),
    Polytope([[1.0] * P, [-1.0] * P], [0.5, -0.5], np.full(P, -1.0), np.full(P, 1.0)),
    Polytope(np.concatenate([np.eye(P), np.eye(P)]), np.zeros(2 * P), np.zeros(P), np.ones(P)),
]
ids = lambda s: type(s).__name__  # noqa: E731  # pytest wants a callable


def cone(convex_set: ConvexSet) -> tuple[Vector, Vector, Callable[[Vector], Vector]]:
    """The set as a smooth program in lifted variables v: w = M v, A v <= b, h(v) >= 0.

    Written from the definitions of the sets, and sharing nothing with the formulas under test.
    """
    nothing = lambda v: np.zeros(0)  # noqa: E731
    eye = np.eye(P)
    match convex_set:
        case BoxIntersection(box=box, other=other):
            M, half, h = cone(other)
            return M, np.vstack([half, _half(np.vstack([M, -M]), [*box.high, *-box.low])]), h
        case L1Ball(size=size) | KSupportBall(sparsity=1, size=size):
            M = np.hstack([eye, -eye])
            return M, _half(np.vstack([np.ones((1, 2 * P)), -np.eye(2 * P)]), [size] + [0] * 2 * P), nothing
        case L2Ball(size=size) | KSupportBall(sparsity=5, size=size):
            return eye, _half(np.zeros((0, P)), []), lambda v: np.array([size**2 - v @ v])
        case LinfBall(size=size):
            return eye, _half(np.vstack([eye, -eye]), [size] * 2 * P), nothing
        case Simplex(size=size):
            rows = np.vstack([np.ones((1, P)), -np.ones((1, P)), -eye])
            return eye, _half(rows, [size, -size] + [0] * P), nothing
        case Box(low=low, high=high):
            return eye, _half(np.vstack([eye, -eye]), [*high, *-low]), nothing
        case Polytope(A=A, b=b, box=box):
            return eye, _half(np.vstack([A, eye, -eye]), [*b, *box.high, *-box.low]), nothing
        case ConvexHull(points=points):
            m = len(points)
            rows = np.vstack([np.ones((1, m)), -np.ones((1, m)), -np.eye(m)])
            return points.T, _half(rows, [1, -1] + [0] * m), nothing
        case GroupL1Ball(groups=groups, size=size):
            m = len(groups)  # v = (w, t): |w_group| <= t_group, sum t <= size
            M = np.hstack([eye, np.zeros((P, m))])
            rows = np.vstack([np.r_[np.zeros(P), np.ones(m)], np.hstack([np.zeros((m, P)), -np.eye(m)])])
            return (
                M,
                _half(rows, [size] + [0] * m),
                lambda v: np.array(
                    [v[P + i] - math.sqrt(v[list(g)] @ v[list(g)] + 1e-18) for i, g in enumerate(groups)]
                ),
            )
        case KSupportBall(sparsity=2, size=size):
            # A hull of pair-supported vectors: one vector per pair of coordinates, lengths adding up.
            pairs = [(i, j) for i in range(P) for j in range(i)]
            m = len(pairs)
            M = np.zeros((P, 3 * m))
            for c, (i, j) in enumerate(pairs):
                M[i, 2 * c] = M[j, 2 * c + 1] = 1
            rows = np.vstack(
                [np.r_[np.zeros(2 * m), np.ones(m)], np.hstack([np.zeros((m, 2 * m)), -np.eye(m)])]
            )
            return (
                M,
                _half(rows, [size] + [0] * m),
                lambda v: v[2 * m :] - np.sqrt(v[0 : 2 * m : 2] ** 2 + v[1 : 2 * m : 2] ** 2 + 1e-18),
            )
    raise AssertionError(convex_set)


def _half(A: Vector, b: object) -> Vector:
    return np.hstack([A, np.asarray(b, dtype=float)[:, None]])


def general_minimum(convex_set: ConvexSet, objective: Callable[[Vector], float], seed: int = 0) -> float:
    """The best value that SLSQP finds over the lifted program from a few starts."""
    M, half, h = cone(convex_set)
    A, b = half[:, :-1], half[:, -1]
    constraints: list[dict[str, object]] = []
    if len(A):
        constraints.append({"type": "ineq", "fun": lambda v: b - A @ v, "jac": lambda v: -A})
    if len(h(np.zeros(M.shape[1]))):
        constraints.append({"type": "ineq", "fun": h})
    rng = np.random.default_rng(seed)
    best = math.inf
    for _ in range(2):
        start = np.abs(rng.standard_normal(M.shape[1])) * 0.2
        result = minimize(
            lambda v: objective(M @ v),
            start,
            method="SLSQP",
            constraints=constraints,
            options={"maxiter": 300, "ftol": 1e-12},
        )
        feasible = np.all(b - A @ result.x >= -1e-7) and np.all(h(result.x) >= -1e-7)
        if feasible:
            best = min(best, float(result.fun))
    assert math.isfinite(best), "the reference solver found no feasible point"
    return best


@pytest.mark.parametrize("convex_set", BOUNDED, ids=ids)
def test_linear_minimizer_is_feasible_and_meets_its_bound(convex_set: ConvexSet) -> None:
    rng = np.random.default_rng(1)
    minimize_over = linear_minimizer(convex_set)
    for _ in range(20):
        g = rng.standard_normal(P)
        answer = minimize_over(g)
        assert contains(convex_set, answer.require(gap=1e-7), 1e-7)
        assert answer.value == pytest.approx(answer.bound, abs=1e-7)
        assert support(convex_set, -g) == pytest.approx(-answer.value, abs=1e-7)


def test_a_solver_in_numerical_trouble_is_asked_again_with_rows_of_one_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scales = 10.0 ** np.random.default_rng(8).uniform(-6, 6, 9)
    polytope = Polytope(POINTS * scales[:, None], 0.8 * scales, np.full(P, -1.0), np.full(P, 1.5))
    expected = linear_minimizer(polytope)(POINTS[0])
    asked = []

    def troubled(c: Vector, A_ub: Vector, **options: object) -> object:
        asked.append(A_ub)
        found = linprog(c, A_ub, **options)
        found.status = 4 if len(asked) == 1 else found.status
        return found

    monkeypatch.setattr("privopt.oracles.convex.polytope.linprog", troubled)
    answer = linear_minimizer(polytope)(POINTS[0])
    np.testing.assert_allclose(np.linalg.norm(asked[1], axis=1), 1.0)
    assert answer.value == pytest.approx(expected.value, abs=1e-7)
    assert answer.bound == pytest.approx(
        answer.value, abs=1e-7
    )  # the multipliers are those of the rows given


@pytest.mark.parametrize("convex_set", BOUNDED, ids=ids)
def test_linear_minimizer_against_a_general_solver(convex_set: ConvexSet) -> None:
    rng = np.random.default_rng(2)
    minimize_over = linear_minimizer(convex_set)
    M, half, h = cone(convex_set)
    for seed in range(2):
        g = rng.standard_normal(P)
        if len(h(np.zeros(M.shape[1]))):
            reference = general_minimum(convex_set, lambda w, g=g: float(g @ w), seed)
        else:
            reference = linprog(M.T @ g, half[:, :-1], half[:, -1], bounds=(None, None)).fun
        assert minimize_over(g).value == pytest.approx(reference, abs=1e-5)


@pytest.mark.parametrize("convex_set", BOUNDED, ids=ids)
def test_projection_against_a_general_solver(convex_set: ConvexSet) -> None:
    rng = np.random.default_rng(3)
    project = projector(convex_set)
    for seed in range(2):
        x = rng.standard_normal(P) * 2
        point = project(x)
        assert contains(convex_set, point, 1e-9)
        distance = float(np.sum((point - x) ** 2))
        reference = general_minimum(convex_set, lambda w, x=x: float(np.sum((w - x) ** 2)), seed)
        assert distance == pytest.approx(reference, abs=2e-5)


@pytest.mark.parametrize("convex_set", BOUNDED, ids=ids)
def test_projection_satisfies_the_variational_inequality(convex_set: ConvexSet) -> None:
    """u = P(x) exactly when <x - u, v - u> <= 0 on C, i.e. the linear minimum of u - x is at u."""
    rng = np.random.default_rng(4)
    project = projector(convex_set)
    for scale in (0.01, 0.5, 3.0, 100.0):
        for _ in range(25):
            x = rng.standard_normal(P) * scale
            u = project(x)
            assert -support(convex_set, x - u) >= float((u - x) @ u) - 1e-8 * scale
            np.testing.assert_allclose(project(u), u, atol=1e-9)


@pytest.mark.parametrize("sparsity", [1, 3, 17, 60])
def test_k_support_projection_in_higher_dimension(sparsity: int) -> None:
    rng = np.random.default_rng(5)
    ball = KSupportBall(60, sparsity, 1.7)
    project = projector(ball)
    for scale in (0.3, 2.0, 50.0):
        x = rng.standard_normal(60) * scale
        x[:20] = 0
        u = project(x)
        assert ball.contains(u, 1e-9)
        assert -ball.support(x - u) >= float((u - x) @ u) - 1e-7 * scale


@pytest.mark.parametrize("regularizer", [lasso(0.3), ElasticNet(l2=0.8), ElasticNet(0.2, 0.5)], ids=str)
@pytest.mark.parametrize("convex_set", [*BOUNDED, WholeSpace(P)], ids=ids)
def test_prox_step_against_a_general_solver(convex_set: ConvexSet, regularizer: ElasticNet) -> None:
    if isinstance(convex_set, ConvexHull) and regularizer.l1:
        with pytest.raises(UnsupportedProblemError, match="l1 penalty"):
            prox_step(convex_set, regularizer)
        return
    rng = np.random.default_rng(6)
    step_to = prox_step(convex_set, regularizer)
    for _ in range(2 if isinstance(convex_set, Polytope) else 4):
        x, step = rng.standard_normal(P) * 1.5, rng.uniform(0.2, 2)
        u = step_to(x, step)
        assert contains(convex_set, u, 1e-9)
        u = np.where(np.abs(u) < 1e-9, 0.0, u)  # an active-set method leaves rounding
        # Optimality: 0 in (u - x)/step + l2 u + l1 d|u|_1 + N_C(u). Test along directions to other points,
        # where the one-sided derivative of the objective must not be negative.
        others = np.array([projector(convex_set)(u + d) for d in rng.standard_normal((50, P)) * 0.5])
        moves = others - u
        slope = moves @ ((u - x) / step + regularizer.l2 * u)
        slope += regularizer.l1 * np.sum(np.where(u == 0, np.abs(moves), np.sign(u) * moves), axis=1)
        assert np.min(slope) >= -2e-8


def test_mirror_steps_against_a_general_solver() -> None:
    rng = np.random.default_rng(8)
    cases = [
        (L1Ball(P, 1.3), natural_geometry(L1Ball(P, 1.3)), 0.0),
        (L1Ball(P, 1.3), SignedEntropy(1.3), 0.2),
        (Simplex(P, 2.0), Entropy(0.5), 0.0),
        (Simplex(P, 2.0), Euclidean(3.0), 0.3),
        (LinfBall(P, 0.4), natural_geometry(LinfBall(P, 0.4)), 0.1),
    ]
    for convex_set, geometry, l1 in cases:
        move = bregman_step(convex_set, geometry, lasso(l1))
        for seed in range(3):
            x = projector(convex_set)(rng.standard_normal(P) * 0.3 + 0.3)
            x = np.where(x == 0, 1e-3, x) if isinstance(convex_set, Simplex) else x * 0.9
            g, step = rng.standard_normal(P), rng.uniform(0.1, 2)

            def objective(u: Vector, case=(convex_set, geometry, l1), x=x, g=g, step=step) -> float:
                convex_set, geometry, l1 = case
                u = np.where(np.abs(u) < 1e-300, 1e-300, u)
                if isinstance(convex_set, Simplex):
                    u = np.maximum(u, 1e-300)
                return float(g @ u + geometry.divergence(u, x) / step + l1 * np.sum(np.abs(u)))

            u = move(x, g, step)
            assert convex_set.contains(u, 1e-9)
            reference = general_minimum(convex_set, objective, seed)
            assert objective(u) == pytest.approx(reference, abs=1e-5)
            assert objective(u) <= reference + 1e-7


def test_signed_entropy_is_the_least_entropy_of_mixtures_of_vertices() -> None:
    """Against its definition: min sum q log q over mixtures of the 2p vertices with a given mean."""
    rng = np.random.default_rng(9)
    geometry, p = SignedEntropy(1.7), 3
    for _ in range(5):
        u = projector(L1Ball(p, 1.7))(rng.standard_normal(p)) * rng.uniform(0.2, 0.98)
        least = minimize(
            lambda q: float(np.sum(q * np.log(np.maximum(q, 1e-300)))),
            np.full(2 * p, 1 / (2 * p)),
            method="SLSQP",
            bounds=[(1e-12, 1)] * (2 * p),
            constraints=[
                {"type": "eq", "fun": lambda q: np.sum(q) - 1},
                {"type": "eq", "fun": lambda q, u=u: 1.7 * (q[:p] - q[p:]) - u},
            ],
            options={"maxiter": 500, "ftol": 1e-13},
        )
        assert geometry.value(u) == pytest.approx(least.fun, abs=1e-7)
        assert geometry.inverse_gradient(geometry.gradient(u)) == pytest.approx(u, abs=1e-12)


def test_signed_entropy_step_at_high_dimension_stays_in_the_ball() -> None:
    rng = np.random.default_rng(9)
    ball = L1Ball(20_000, 5.0)
    x, g = projector(ball)(rng.standard_normal(ball.dimension)), rng.standard_normal(ball.dimension)
    for step in (1e-3, 1.0, 1e6):  # from the boundary, and to a vertex
        u = bregman_step(ball, natural_geometry(ball))(x, g, step)
        assert np.sum(np.abs(u)) <= 5.0 * (1 + 1e-12)
        assert np.all(np.isfinite(u))
    assert u == pytest.approx(ball.vertex(int(np.argmax(-np.concatenate([g, -g])))), abs=1e-9)


@pytest.mark.parametrize("p", [2, 5, 8, 40])
def test_natural_geometry_is_strongly_convex_for_the_minkowski_norm(p: int) -> None:
    rng = np.random.default_rng(10)
    half = p // 2
    groups = (tuple(range(half)), tuple(range(half, p)))
    balls: list[ConvexSet] = [
        L2Ball(p, 0.6),
        LinfBall(p, 2.0),
        GroupL1Ball(groups, 1.2),
        KSupportBall(p, half, 0.8),
        Box(np.full(p, -0.5), np.arange(1, p + 1)),
    ]
    for ball in balls:
        geometry = natural_geometry(ball)
        for _ in range(200):
            x = rng.standard_normal(p) * rng.choice([0.01, 1, 1, 30], p)
            u = rng.standard_normal(p) * rng.choice([0.01, 1, 1, 30], p)
            distance = max(ball.gauge(u - x), ball.gauge(x - u))
            assert geometry.divergence(u, x) >= distance**2 / 2 * (1 - 1e-9)
    simplex, ball = Simplex(p, 1.7), L1Ball(p, 1.7)
    for _ in range(200):
        u, x = (projector(ball)(rng.standard_normal(p) * rng.choice([0.01, 1, 30], p)) for _ in range(2))
        assert natural_geometry(ball).divergence(u, x) >= ball.gauge(u - x) ** 2 / 2 * (1 - 1e-9) - 1e-12
        u, x = rng.dirichlet(np.full(p, 0.3), 2) * 1.7 + 1e-12
        distance = float(np.sum(np.abs(u - x))) / 1.7
        assert natural_geometry(simplex).divergence(u, x) >= distance**2 / 2 * (1 - 1e-9)


def test_natural_geometry_of_the_l1_ball_loses_only_a_logarithm() -> None:
    """V(vertex, 0) is log(2p), the entropy of the uniform mixture; p/2 for the Euclidean choice."""
    for p in (10, 1000, 10**6):
        ball = L1Ball(p, 3.0)
        far = natural_geometry(ball).divergence(ball.vertex(0), np.zeros(p))
        assert far == pytest.approx(math.log(2 * p), rel=1e-9)


@pytest.mark.parametrize("ball", [L1Ball(P, 1.3), L2Ball(P, 0.7), LinfBall(P, 0.4)], ids=ids)
def test_gauge_step_against_a_general_solver(ball: ConvexSet) -> None:
    rng = np.random.default_rng(11)
    move = gauge_step(ball)
    for seed in range(12):
        x = projector(ball)(rng.standard_normal(P) * rng.uniform(0.05, 0.6))
        g, weight = rng.standard_normal(P), 10 ** rng.uniform(-1.5, 1.0)
        if seed % 4 == 3:
            g[0] = g[1] = 0.0
        u = move(x, g, weight)
        assert ball.contains(u, 1e-9)

        def objective(w: Vector, x=x, g=g, weight=weight) -> float:
            return float(g @ (w - x) + weight / 2 * ball.gauge(w - x) ** 2)

        # Along the segment to any other point the objective must not fall.
        others = np.array([projector(ball)(d) for d in rng.standard_normal((100, P)) * 0.8])
        others = np.concatenate([others, u + 1e-3 * (others - u), [x]])
        assert objective(u) <= min(objective(w) for w in others) + 1e-10
        assert objective(u) <= _lifted_gauge_minimum(ball, x, g, weight) + 1e-6
        assert objective(u) >= _lifted_gauge_minimum(ball, x, g, weight) - 1e-5


def test_gauge_step_on_a_simplex_against_a_general_solver() -> None:
    """min <g, u - x> + (weight/2) (|u - x|_1 / size)^2 with u - x = a - b, a, b >= 0: smooth for SLSQP."""
    rng = np.random.default_rng(13)
    simplex = Simplex(P, 1.7)
    for _ in range(12):
        x = rng.dirichlet(np.full(P, 0.7)) * 1.7
        g, weight = rng.standard_normal(P), 10 ** rng.uniform(-1.5, 1.0)
        u = gauge_step(simplex)(x, g, weight)
        assert simplex.contains(u, 1e-9)
        reference = minimize(
            lambda v, g=g, weight=weight: float(g @ (v[:P] - v[P:]) + weight / 2 * (np.sum(v) / 1.7) ** 2),
            np.full(2 * P, 0.01),
            method="SLSQP",
            bounds=[(0, None)] * (2 * P),
            constraints=[
                {"type": "ineq", "fun": lambda v, x=x: x + v[:P] - v[P:]},
                {"type": "eq", "fun": lambda v: np.sum(v[:P] - v[P:])},
            ],
            options={"maxiter": 500, "ftol": 1e-13},
        )
        value = float(g @ (u - x) + weight / 2 * (np.sum(np.abs(u - x)) / 1.7) ** 2)
        assert value == pytest.approx(reference.fun, abs=1e-6)


@pytest.mark.parametrize(
    "convex_set",
    [
        Box([-1, -0.2, -0.5, -0.3, -2], [1, 0.5, 2, 0.3, 1]),
        GroupL1Ball(((0, 3), (1,), (2, 4)), 1.1),
        KSupportBall(P, 2, 0.9),
        Polytope(POINTS, np.full(9, 0.8), np.full(P, -1.0), np.full(P, 1.5)),
        BoxIntersection(Box(np.full(P, -0.3), np.full(P, 0.3)), L1Ball(P, 1.0)),
        BoxIntersection(Box(np.full(P, -0.3), np.full(P, 0.3)), L2Ball(P, 0.5)),
    ],
    ids=ids,
)
def test_gauge_step_elsewhere_majorises_the_minkowski_norm(convex_set: ConvexSet) -> None:
    """It minimises the quadratic of the natural geometry, which is nowhere below that of the gauge."""
    rng = np.random.default_rng(14)
    geometry = natural_geometry(convex_set)
    move = gauge_step(convex_set)
    for seed in range(3):
        x = projector(convex_set)(rng.standard_normal(P) * 0.3)
        g, weight = rng.standard_normal(P), 10 ** rng.uniform(-1, 1)

        def objective(w: Vector, x=x, g=g, weight=weight) -> float:
            return float(g @ (w - x) + weight * geometry.divergence(w, x))

        assert objective(move(x, g, weight)) == pytest.approx(
            general_minimum(convex_set, objective, seed), abs=1e-5
        )
        for w in rng.standard_normal((50, P)):
            assert geometry.divergence(w, x) >= gauge(convex_set, w - x) ** 2 / 2 * (1 - 1e-9)


def test_projections_far_away_and_in_higher_dimension_are_as_exact() -> None:
    """<x - u, v - u> <= 0 over the set bounds the squared distance from the projection."""
    rng = np.random.default_rng(15)
    points = rng.standard_normal((400, 30)) + 50
    hull = ConvexHull(points)
    A = rng.standard_normal((80, 30))
    polytope = Polytope(A, A @ rng.uniform(-0.3, 0.3, 30) + 0.5, np.full(30, -1.0), np.full(30, 1.0))
    for convex_set in (hull, polytope):
        for scale in (0.1, 10.0, 1e6):
            x = rng.standard_normal(30) * scale + (50 if convex_set is hull else 0)
            u = projector(convex_set)(x)
            assert support(convex_set, x - u) - float((x - u) @ u) <= 1e-10 * (1 + scale)
            assert contains(convex_set, u, 1e-9)


def test_natural_geometry_of_a_polytope_is_its_inner_ball() -> None:
    # The nearest facet of {x + y <= 1} in [-1, 1]^2 is at distance 1 / sqrt 2: |u|^2 / (2 * 1/2).
    square = Polytope([[1.0, 1.0], [0.0, 0.0]], [1.0, 0.0], [-1, -1], [1, 1])
    assert natural_geometry(square) == Euclidean(pytest.approx(2.0))


def _lifted_gauge_minimum(ball: ConvexSet, x: Vector, g: Vector, weight: float) -> float:
    """min <g, d> + (weight/2) t^2 over |d|_C <= t, x + d in C, as a smooth program for SLSQP."""
    M, half, _ = cone(ball)
    A, b = half[:, :-1], half[:, -1]
    m = M.shape[1]
    # v = (a, c, t): w = M a in C and d = M c with A c <= t b; they agree: M a - x = M c.
    constraints: list[dict[str, object]] = [{"type": "eq", "fun": lambda v: M @ (v[:m] - v[m:-1]) - x}]
    if len(A):
        constraints.append(
            {"type": "ineq", "fun": lambda v: np.r_[b - A @ v[:m], v[-1] * b - A @ v[m:-1], v[-1]]}
        )
    else:
        size = ball.radius
        constraints.append(
            {
                "type": "ineq",
                "fun": lambda v: np.array(
                    [size**2 - v[:m] @ v[:m], v[-1] ** 2 * size**2 - v[m:-1] @ v[m:-1], v[-1]]
                ),
            }
        )
    start = np.r_[np.linalg.pinv(M) @ x, np.full(m, 0.1), 0.5]
    result = minimize(
        lambda v: float(g @ (M @ v[m:-1]) + weight / 2 * v[-1] ** 2),
        start,
        method="SLSQP",
        constraints=constraints,
        options={"maxiter": 500, "ftol": 1e-13},
    )
    return float(result.fun)


def test_polytope_certificate_is_recomputed_and_checked() -> None:
    square = Polytope([[1.0, 1.0]], [1.0], [-1, -1], [1, 1])
    answer = linear_minimizer(square)(np.array([-1.0, -2.0]))
    assert answer.value == pytest.approx(-2.0)  # at (0, 1): the corner of x + y <= 1 with y = 1
    assert answer.bound == pytest.approx(-2.0)
    with pytest.raises(InfeasibleDomainError):
        linear_minimizer(Polytope([[1.0, 1.0]], [-3.0], [-1, -1], [1, 1]))(np.ones(2))
    worse = LinearAnswer(answer.point, answer.value + 0.5, answer.bound)
    with pytest.raises(CertificateError, match=r"gap 0\.5"):
        worse.require(gap=0.1)


def test_gauge_and_membership_of_hulls_against_their_definitions() -> None:
    rng = np.random.default_rng(12)
    cross = ConvexHull(np.concatenate([np.eye(3), -np.eye(3)]) * 2)
    for _ in range(10):
        v = rng.standard_normal(3)
        assert gauge(cross, v) == pytest.approx(np.sum(np.abs(v)) / 2)
        assert contains(cross, v) == (np.sum(np.abs(v)) <= 2)
    assert gauge(ConvexHull([[1.0, 0.0]]), np.array([0.0, 1.0])) == math.inf


def test_refusals_of_a_set_of_ones_own_name_the_hooks_that_take_it() -> None:
    class Own(ConvexSet):
        """{0}."""

        dimension, radius, l1_radius = 1, 0.0, 0.0

        def support(self, g: Vector) -> float:
            return 0.0

        def gauge(self, v: Vector) -> float:
            return 0.0 if v[0] == 0 else np.inf

        def violation(self, w: Vector) -> float:
            return float(np.abs(w[0]))

    hooks = ((projector, "project", project), (linear_minimizer, "lmo_formula", lmo_formula))
    for builder, hook, other in hooks:
        name = rf"privopt\.oracles\.convex\.\w+\.{hook}\.register"
        with pytest.raises(UnsupportedProblemError, match=name) as caught:
            builder(Own())
        assert "Own" in str(caught.value)
        assert "Frank-Wolfe" not in str(caught.value)
        other.register(Own, lambda _set, _x: np.zeros(1))
        builder(Own())


def test_refusals_name_the_set_and_the_remedy() -> None:
    hull = ConvexHull(POINTS)
    with pytest.raises(UnsupportedProblemError, match="l1 penalty over ConvexHull"):
        prox_step(hull, lasso(0.1))
    with pytest.raises(InvalidInputError, match="finite"):
        projector(hull)(np.full(P, np.nan))
    with pytest.raises(InvalidInputError, match="finite"):
        linear_minimizer(hull)(np.ones(P + 1))
    with pytest.raises(UnsupportedProblemError, match="bounded"):
        linear_minimizer(WholeSpace(3))
    with pytest.raises(UnsupportedProblemError, match="Entropy"):
        bregman_step(L2Ball(3, 1.0), Entropy())
    with pytest.raises(UnsupportedProblemError, match="ball around 0"):
        gauge_step(hull)
    for without in (Box([0.0, -1], [1, 1]), Polytope([[1.0, 1.0]], [0.0], [-1, -1], [1, 1])):
        with pytest.raises(UnsupportedProblemError, match="0 in its interior"):
            natural_geometry(without)
