"""Quantities of constraint sets against enumeration, sampling and linear programs."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from privopt.oracles.convex.quantities import contains, gauge, gaussian_width, support
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet, NoClosedFormError
from privopt.problems.convex.sets.intersections import intersect
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InfeasibleDomainError, InvalidInputError

P = 4
POINTS = np.random.default_rng(7).standard_normal((7, P))
POLYTOPE = Polytope(POINTS, np.full(7, 0.8), np.full(P, -1.0), np.full(P, 1.5))
SETS: list[ConvexSet] = [
    L1Ball(P, 1.3),
    L2Ball(P, 0.7),
    LinfBall(P, 0.4),
    Simplex(P, 2.0),
    Box([-1, -0.2, 0, -2], [1, 0.5, 2, -1]),
    GroupL1Ball(((0, 3), (1,), (2,)), 1.1),
    KSupportBall(P, 2, 0.9),
    ConvexHull(POINTS),
    POLYTOPE,
    BoxIntersection(Box([-1, -0.2, 0, -0.5], [1, 0.5, 2, -0.1]), L2Ball(P, 0.7)),
    BoxIntersection(Box([-0.4, -0.2, -0.1, -0.5], [1, 0.5, 2, 0.1]), L1Ball(P, 0.9)),
    BoxIntersection(Box([-1, 0.1, 0, -0.5], [0.6, 0.5, 2, 0.4]), Simplex(P, 1.2)),
]
ids = lambda s: type(s).__name__  # noqa: E731  # pytest wants a callable


def extreme_points(convex_set: ConvexSet, rng: np.random.Generator) -> np.ndarray:
    """Points whose hull is (dense in) the set, from its definition."""
    if isinstance(convex_set, L2Ball):
        directions = rng.standard_normal((20_000, P))
        return convex_set.size * directions / np.linalg.norm(directions, axis=1)[:, None]
    if isinstance(convex_set, GroupL1Ball):
        found = [np.zeros((1, P))]
        for group in convex_set.groups:
            directions = np.zeros((5_000, P))
            directions[:, list(group)] = rng.standard_normal((5_000, len(group)))
            found.append(convex_set.size * directions / np.linalg.norm(directions, axis=1)[:, None])
        return np.concatenate(found)
    if isinstance(convex_set, KSupportBall):
        found = []
        for pair in itertools.combinations(range(P), convex_set.sparsity):
            directions = np.zeros((5_000, P))
            directions[:, list(pair)] = rng.standard_normal((5_000, convex_set.sparsity))
            found.append(convex_set.size * directions / np.linalg.norm(directions, axis=1)[:, None])
        return np.concatenate(found)
    if isinstance(convex_set, BoxIntersection):
        return sampled_intersection(convex_set, rng)
    return convex_set.vertices()


def sampled_intersection(convex_set: BoxIntersection, rng: np.random.Generator) -> np.ndarray:
    """Corners of the polyhedral ones by linear programs, points of the l2 sphere by SLSQP."""
    box, size = convex_set.box, convex_set.other.size
    bounds = list(zip(box.low, box.high, strict=True))
    found = []
    for g in rng.standard_normal((150, P)):
        if isinstance(convex_set.other, L2Ball):
            inside = {"type": "ineq", "fun": lambda w: size**2 - w @ w, "jac": lambda w: -2 * w}
            result = minimize(
                lambda w, g=g: -float(g @ w),
                box.nearest_to_zero,
                jac=lambda w, g=g: -g,
                bounds=bounds,
                constraints=[inside],
                method="SLSQP",
            )
            found.append(result.x)
        elif isinstance(convex_set.other, Simplex):
            found.append(linprog(-g, A_eq=np.ones((1, P)), b_eq=[size], bounds=bounds).x)
        else:  # w = a - b, a + b in the l1 ball
            eye = np.eye(P)
            rows = np.vstack([np.ones((1, 2 * P)), np.hstack([eye, -eye]), np.hstack([-eye, eye])])
            split = linprog(np.r_[-g, g], rows, np.r_[size, box.high, -box.low]).x
            found.append(split[:P] - split[P:])
    return np.array(found)


@pytest.mark.parametrize("convex_set", SETS, ids=ids)
def test_support_radius_and_diameter_against_extreme_points(convex_set: ConvexSet) -> None:
    rng = np.random.default_rng(0)
    points = extreme_points(convex_set, rng)
    assert all(contains(convex_set, p, 1e-6) for p in points[:50])
    for _ in range(10):
        g = rng.standard_normal(P)
        sampled = 0.1 if isinstance(convex_set, BoxIntersection) else 5e-3
        assert support(convex_set, g) == pytest.approx(np.max(points @ g), rel=sampled, abs=1e-9)
        assert support(convex_set, g) >= np.max(points @ g) - 1e-6
    radius = np.max(np.linalg.norm(points, axis=1))
    some = points[:: max(1, len(points) // 2000)]
    diameter = max(float(np.max(np.linalg.norm(some - p, axis=1))) for p in some)
    l1_radius = np.max(np.sum(np.abs(points), axis=1))
    if isinstance(convex_set, Polytope | BoxIntersection):  # upper bounds
        assert convex_set.radius >= radius - 1e-6
        assert convex_set.diameter >= diameter - 1e-6
        assert convex_set.l1_radius >= l1_radius - 1e-6
        return
    assert convex_set.radius == pytest.approx(radius, rel=1e-3)
    assert convex_set.diameter == pytest.approx(diameter, rel=2e-2)
    assert convex_set.diameter >= diameter - 1e-9
    assert convex_set.l1_radius == pytest.approx(l1_radius, rel=1e-2)


@pytest.mark.parametrize("convex_set", [s for s in SETS if contains(s, np.zeros(P))], ids=ids)
def test_gauge_is_where_the_ray_leaves_the_set(convex_set: ConvexSet) -> None:
    """By bisection on membership alone, for sets that hold 0."""
    rng = np.random.default_rng(1)
    for _ in range(10):
        v = rng.standard_normal(P)
        low, high = 0.0, 1e4
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if contains(convex_set, v * middle, 1e-12) else (low, middle)
        assert gauge(convex_set, v) == pytest.approx(1 / low, rel=1e-6)


def test_gauge_of_sets_without_zero() -> None:
    simplex = Simplex(3, 2.0)
    assert simplex.gauge(np.array([1.0, 2.0, 3.0])) == pytest.approx(3.0)
    assert simplex.gauge(np.array([1.0, -2.0, 3.0])) == math.inf
    box = Box([1.0, 1.0], [2.0, 3.0])
    assert box.gauge(np.array([2.0, 6.0])) == pytest.approx(2.0)  # 2 <= r <= 2 from both coordinates
    assert box.gauge(np.array([4.0, 1.0])) == math.inf


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_k_support_norm_is_its_variational_form(k: int) -> None:
    """|w|^2 = min over 0 <= t <= 1, sum t <= k of sum w_i^2 / t_i (Argyriou, Foygel and Srebro 2012)."""
    rng = np.random.default_rng(2)
    for _ in range(5):
        w = rng.standard_normal(5) * [1, 1, 3, 0.1, 1]
        result = minimize(
            lambda t, w=w: float(np.sum(w**2 / t)),
            np.full(5, k / 5 * 0.99),
            jac=lambda t, w=w: -((w / t) ** 2),
            bounds=[(1e-3, 1)] * 5,
            constraints=[{"type": "ineq", "fun": lambda t: k - np.sum(t), "jac": lambda t: -np.ones(5)}],
            method="SLSQP",
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert np.sum(result.x) <= k + 1e-9
        assert KSupportBall(5, k, 1.0).gauge(w) ** 2 == pytest.approx(result.fun, rel=1e-4)
    assert KSupportBall(5, 1, 1.0).gauge(w) == pytest.approx(np.sum(np.abs(w)))
    assert KSupportBall(5, 5, 1.0).gauge(w) == pytest.approx(np.linalg.norm(w))


@pytest.mark.parametrize("k", [1, 3, 4])
def test_k_support_norm_with_ties_and_zeros(k: int) -> None:
    ball = KSupportBall(4, k, 1.0)
    for w in ([1.0, 1, 1, 1], [0.0, 0, 0, 0], [2.0, 0, 0, 0], [1.0, 1, 0, 0], [0.1 + 0.2, 0.3, 0.3, 0.3]):
        v = np.array(w)
        # By duality: the gauge is the largest <v, g> over top-k norms of g at most 1; vectors constant on the
        # support of v, and v itself, are the candidates for these inputs.
        flat = np.where(v > 0, 1.0, 0.0)
        candidates = [v @ g / ball.dual_norm(g) for g in (flat, v) if np.any(g)]
        assert ball.norm(v) == pytest.approx(max(candidates, default=0.0), abs=1e-12)


@pytest.mark.parametrize("convex_set", [*SETS, L1Ball(1, 2.0), Simplex(1, 2.0), L1Ball(300, 1.0)], ids=ids)
def test_gaussian_width_against_simulation(convex_set: ConvexSet) -> None:
    width = gaussian_width(convex_set)
    rng = np.random.default_rng(3)
    samples = 300 if isinstance(convex_set, Polytope) else 4_000
    values = [support(convex_set, rng.standard_normal(convex_set.dimension)) for _ in range(samples)]
    spread = float(np.std(values)) / math.sqrt(samples)
    assert width.value == pytest.approx(np.mean(values), abs=5 * math.hypot(spread, width.error) + 1e-9)
    assert width.error <= 0.05 * max(width.value, 1.0)


def test_closed_form_widths_against_known_values() -> None:
    assert L1Ball(2, 1.0).gaussian_width().value == pytest.approx(2 / math.sqrt(math.pi))  # E max(|a|,|b|)
    assert Simplex(2, 1.0).gaussian_width().value == pytest.approx(1 / math.sqrt(math.pi))  # E max(a, b)
    assert Simplex(3, 2.0).gaussian_width().value == pytest.approx(3 / math.sqrt(math.pi))
    assert LinfBall(3, 1.0).gaussian_width().value == pytest.approx(3 * math.sqrt(2 / math.pi))
    assert WholeSpace(3).gaussian_width().value == math.inf


def test_the_whole_space_holds_all_finite_points_and_no_others() -> None:
    assert WholeSpace(2).violation(np.array([1e300, -1e300])) == 0.0
    for wrong in (math.nan, math.inf):
        assert WholeSpace(2).violation(np.array([1.0, wrong])) == math.inf


def test_vertices_and_their_scores_agree() -> None:
    g = np.array([0.3, -1.2, 0.8, 0.1])
    for convex_set in SETS:
        if convex_set.vertex_count is None:
            continue
        vertices = convex_set.vertices()
        assert vertices.shape == (convex_set.vertex_count, P)
        np.testing.assert_allclose(convex_set.vertex_scores(g), vertices @ g)
        for index in range(0, len(vertices), 3):
            np.testing.assert_array_equal(convex_set.vertex(index), vertices[index])
    with pytest.raises(NoClosedFormError, match="too many"):
        L1Ball(10**6, 1.0).vertices()
    with pytest.raises(NoClosedFormError, match="no finite list"):
        L2Ball(2, 1.0).vertices()


def test_polytope_corners_of_a_cut_cube() -> None:
    cube = Polytope([[1.0, 1.0, 1.0]], [2.5], [-1] * 3, [1] * 3)
    corners = {tuple(np.round(v, 9)) for v in cube.vertices()}
    whole = set(itertools.product([-1.0, 1.0], repeat=3)) - {(1.0, 1.0, 1.0)}
    assert corners == whole | {(0.5, 1.0, 1.0), (1.0, 0.5, 1.0), (1.0, 1.0, 0.5)}
    with pytest.raises(InfeasibleDomainError):
        Polytope([[1.0, 1.0]], [-5.0], [-1, -1], [1, 1]).vertices()


def test_central_symmetry() -> None:
    symmetric = [L1Ball(2, 1.0), WholeSpace(2), Box([-1, -2], [1, 2]), ConvexHull([[1.0, 0], [-1.0, 0]])]
    symmetric.append(Polytope([[1.0, 1.0], [-1.0, -1.0]], [1.0, 1.0], [-1, -1], [1, 1]))
    assert all(s.centrally_symmetric for s in symmetric)
    skew = [Simplex(2), Box([-1, -2], [1, 3]), ConvexHull([[1.0, 0], [-1.0, 1]])]
    skew.append(Polytope([[1.0, 1.0]], [1.0], [-1, -1], [1, 1]))
    assert not any(s.centrally_symmetric for s in skew)


def test_intersections_hold_exactly_the_common_points() -> None:
    rng = np.random.default_rng(4)
    box = Box([-0.5] * P, [0.3] * P)
    pairs: list[tuple[ConvexSet, ConvexSet]] = [
        (L1Ball(P, 1.0), L1Ball(P, 2.0)),
        (box, LinfBall(P, 0.4)),
        (POLYTOPE, box),
        (POLYTOPE, LinfBall(P, 0.4)),
        (WholeSpace(P), Simplex(P)),
        (KSupportBall(P, 2, 1.0), KSupportBall(P, 2, 0.5)),
    ]
    for first, second in pairs:
        both = intersect(first, second)
        for w in rng.uniform(-0.7, 0.7, (300, P)):
            assert contains(both, w) == (contains(first, w) and contains(second, w))
    rng = np.random.default_rng(5)
    cut = [
        (box, L1Ball(P, 0.6)),
        (L2Ball(P, 0.4), box),
        (LinfBall(P, 0.3), L1Ball(P, 0.6)),
        (intersect(box, L2Ball(P, 0.5)), LinfBall(P, 0.2)),
        (box, Simplex(P, 0.8)),
        (POLYTOPE, Simplex(P, 1.4)),
    ]
    for first, second in cut:
        both = intersect(first, second)
        inside = 0
        for w in rng.uniform(-0.7, 0.7, (300, P)) * rng.uniform(0, 1, (300, 1)):
            if isinstance(second, Simplex):
                w = np.abs(w) * second.size / np.sum(np.abs(w))
            inside += contains(both, w)
            assert contains(both, w) == (contains(first, w) and contains(second, w))
        assert 0 < inside < 300
    for apart in (L1Ball(P, 0.9), L2Ball(P, 0.5), Simplex(P, 0.5), Simplex(P, 9.0)):
        with pytest.raises(InfeasibleDomainError, match="empty intersection"):
            intersect(Box([0.4] * P, [2.0] * P), apart)
    with pytest.raises(NoClosedFormError, match="exact intersection"):
        intersect(L1Ball(P, 1.0), L2Ball(P, 1.0))
    with pytest.raises(NoClosedFormError):
        intersect(KSupportBall(P, 2, 1.0), KSupportBall(P, 3, 1.0))
    with pytest.raises(InfeasibleDomainError):
        intersect(Box([0.0], [1.0]), Box([2.0], [3.0]))


def test_a_set_cut_with_itself_or_with_the_whole_space_is_that_set() -> None:
    """Also where no intersection has a closed form."""
    for convex_set in (ConvexHull([[1.0, 0.0], [0.0, 1.0]]), KSupportBall(2, 2, 1.0), Simplex(2)):
        assert intersect(convex_set, convex_set) is convex_set
        assert intersect(WholeSpace(2), convex_set) is convex_set
        assert intersect(convex_set, WholeSpace(2)) is convex_set


def test_bad_sets_are_refused() -> None:
    for ball in (L1Ball, L2Ball, Simplex):
        with pytest.raises(InvalidInputError, match="size"):
            ball(3, 0.0)
    with pytest.raises(InvalidInputError, match="dimension"):
        L2Ball(0, 1.0)
    with pytest.raises(InvalidInputError, match="groups"):
        GroupL1Ball(((0, 1), (1, 2)), 1.0)
    with pytest.raises(InvalidInputError, match="groups"):
        GroupL1Ball(((0, 1), ()), 1.0)
    with pytest.raises(InvalidInputError, match="size"):
        GroupL1Ball(((0, 1), (2,)), 0.0)
    with pytest.raises(InvalidInputError, match="sparsity"):
        KSupportBall(3, 4, 1.0)
    with pytest.raises(InvalidInputError, match="finite"):
        ConvexHull([[math.inf, 0.0]])
    with pytest.raises(InvalidInputError, match="A must have shape"):
        Polytope(np.eye(2), [1.0], [0, 0], [1, 1])
