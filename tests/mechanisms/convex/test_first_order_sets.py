"""First-order mechanisms over sets whose projection is a program: without noise they reach the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import Bounds, minimize

from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL2, frank_wolfe_rate
from privopt.mechanisms.convex.gradient_descent import DPProximalGradient
from privopt.mechanisms.convex.mirror_descent import DPAcceleratedMirrorDescent
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.convex.svrg import DPSVRG
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output
from privopt.oracles.convex.quantities import contains
from privopt.oracles.convex.registry import lmo_formula
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.parsing import parse_set
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet, NoClosedFormError
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.errors import InvalidInputError
from tests.problems.datasets.logistic_signs import make_logistic_signs

Vector = NDArray[np.float64]
P = 5
X, Y, _ = make_logistic_signs(400, P, seed=0)
RISK = EmpiricalRisk(X, Y, LogisticLoss())
RIDGE = ElasticNet(l2=0.05)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
RNG = np.random.default_rng(3)
HULL = ConvexHull(RNG.standard_normal((12, P)))
POLYTOPE = Polytope(RNG.standard_normal((6, P)), np.full(6, 0.4), np.full(P, -0.5), np.full(P, 0.8))
CUT = Box([-0.3, -0.2, -0.4, -1, -0.6], [0.4, 0.5, 0.2, 0.7, 0.3])
SETS: list[ConvexSet] = [
    HULL,
    POLYTOPE,
    BoxIntersection(CUT, L2Ball(P, 0.6)),
    BoxIntersection(CUT, L1Ball(P, 0.9)),
    BoxIntersection(Box(np.zeros(P), np.full(P, 0.4)), Simplex(P, 1.0)),
]
ids = lambda s: type(s).__name__  # noqa: E731  # pytest wants a callable


def general_optimum(convex_set: ConvexSet, penalty: ElasticNet) -> float:
    """By SLSQP over the constraints as they are written; an l1 norm is the sum of w+ and w-."""

    def value(w: Vector) -> float:
        return RISK.value(w) + penalty.l2 / 2 * float(w @ w)

    options = {"ftol": 1e-13, "maxiter": 1000}
    match convex_set:
        case ConvexHull(points=points):
            m = len(points)
            result = minimize(
                lambda k: value(k @ points),
                np.full(m, 1 / m),
                method="SLSQP",
                bounds=Bounds(np.zeros(m), np.inf),
                constraints=[{"type": "eq", "fun": lambda k: np.sum(k) - 1}],
                options=options,
            )
            return float(result.fun)
        case Polytope(A=A, b=b, box=box):
            outside = {"type": "ineq", "fun": lambda v: b - A @ (v[:P] - v[P:])}
        case BoxIntersection(box=box, other=L2Ball(size=size)):
            outside = {"type": "ineq", "fun": lambda v: size**2 - np.sum((v[:P] - v[P:]) ** 2)}
        case BoxIntersection(box=box, other=L1Ball(size=size)):
            outside = {"type": "ineq", "fun": lambda v: size - np.sum(v)}
        case BoxIntersection(box=box, other=Simplex(size=size)):
            outside = {"type": "eq", "fun": lambda v: np.sum(v[:P] - v[P:]) - size}
    walls = {"type": "ineq", "fun": lambda v: np.r_[box.high - v[:P] + v[P:], v[:P] - v[P:] - box.low]}
    result = minimize(
        lambda v: value(v[:P] - v[P:]) + penalty.l1 * float(np.sum(v)),
        np.full(2 * P, 0.05),
        method="SLSQP",
        bounds=Bounds(np.zeros(2 * P), np.inf),
        constraints=[outside, walls],
        options=options,
    )
    return float(result.fun)


@pytest.mark.parametrize("convex_set", SETS, ids=ids)
def test_projected_gradient_without_noise_reaches_the_optimum(convex_set: ConvexSet) -> None:
    plan = DPProximalGradient.plan(RISK.facts, convex_set, RIDGE, **BUDGET, steps=300, output=Output.LAST)
    w = plan.without_noise(RISK)
    assert contains(convex_set, w, 1e-9)
    assert RISK.value(w) + RIDGE.value(w) == pytest.approx(general_optimum(convex_set, RIDGE), abs=1e-6)


def test_an_l1_penalty_over_a_polytope_reaches_the_optimum() -> None:
    penalty = ElasticNet(l1=0.02, l2=0.05)
    plan = DPProximalGradient.plan(RISK.facts, POLYTOPE, penalty, **BUDGET, steps=200, output=Output.LAST)
    w = plan.without_noise(RISK)
    assert RISK.value(w) + penalty.value(w) == pytest.approx(general_optimum(POLYTOPE, penalty), abs=1e-5)


@pytest.mark.parametrize("convex_set", [POLYTOPE, SETS[2], SETS[3], Box([-1] * P, [0.3] * P)], ids=ids)
def test_accelerated_mirror_descent_takes_sets_with_an_inner_ball(convex_set: ConvexSet) -> None:
    plan = DPAcceleratedMirrorDescent.plan(RISK.facts, convex_set, **BUDGET, steps=300)
    simple = DPProximalGradient.plan(RISK.facts, convex_set, **BUDGET, steps=2000, output=Output.LAST)
    assert RISK.value(plan.without_noise(RISK)) == pytest.approx(
        RISK.value(simple.without_noise(RISK)), abs=2e-4
    )


def test_accelerated_mirror_descent_over_a_simplex() -> None:
    simplex = Simplex(P, 1.5)
    plan = DPAcceleratedMirrorDescent.plan(RISK.facts, simplex, **BUDGET, steps=500, gauge_steps=True)
    simple = DPProximalGradient.plan(RISK.facts, simplex, **BUDGET, steps=2000, output=Output.LAST)
    assert RISK.value(plan.without_noise(RISK)) == pytest.approx(
        RISK.value(simple.without_noise(RISK)), abs=2e-4
    )


def test_intersections_as_text() -> None:
    both = parse_set("l1:1+linf:0.5", P)
    assert isinstance(both, BoxIntersection)
    assert both.contains(np.array([0.5, 0.5, 0, 0, 0]))
    assert not both.contains(np.array([0.6, 0.1, 0, 0, 0]))
    assert parse_set("l2:2+l2:1", P) == L2Ball(P, 1.0)
    with pytest.raises(NoClosedFormError, match="exact intersection"):
        parse_set("l1:1+l2:1", P)
    with pytest.raises(InvalidInputError, match="joined by"):
        parse_set("l1:1+", P)


@pytest.mark.parametrize("convex_set", [HULL, POLYTOPE, SETS[2]], ids=ids)
def test_variance_reduction_and_output_perturbation_take_them_too(convex_set: ConvexSet) -> None:
    for mechanism in (DPSVRG, OutputPerturbation):
        plan = mechanism.plan(RISK.facts, convex_set, ElasticNet(l2=0.3), **BUDGET)
        released = plan.release(RISK, NoiseSource(insecure_seed=1))
        assert contains(convex_set, released.point, 1e-9)


@pytest.mark.parametrize(("steps", "size"), [(1, 1.0), (10, (2 * 4 / (1.4 * 10)) ** 0.5)])
def test_the_step_size_of_frank_wolfe_minimises_its_bound(steps: int, size: float) -> None:
    """eta -> B / (eta T) + eta C / 2 on [0, 1]: losses range over B = 4 on the ball, C = (.25 + .1) 4."""
    facts = RiskFacts(5000, 4, LogisticLoss())
    rate = frank_wolfe_rate(facts, L2Ball(4, 2.0), ElasticNet(l2=0.1), Output.RANDOM, steps)
    assert rate(0) == rate(steps - 1) == pytest.approx(size)


def test_frank_wolfe_needs_no_projection_onto_a_set_of_ones_own() -> None:
    """An ellipsoid with ``lmo_formula`` alone, against a general solver."""
    axes = np.array([1.0, 2.0, 0.5])

    class Ellipsoid(ConvexSet):
        dimension, radius, l1_radius = 3, 2.0, float(np.linalg.norm(axes))

        def support(self, g: Vector) -> float:
            return float(np.linalg.norm(axes * g))

        def gauge(self, v: Vector) -> float:
            return float(np.linalg.norm(v / axes))

        def violation(self, w: Vector) -> float:
            return max(0.0, self.gauge(w) - 1)

    lmo_formula.register(Ellipsoid, lambda _set, g: -axes * axes * g / np.linalg.norm(axes * g))
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3)) / 2
    risk = EmpiricalRisk(X, np.where(X @ [1.0, 1, -1] > 0, 1, -1), LogisticLoss())
    plan = DPFrankWolfeL2.plan(risk.facts, Ellipsoid(), epsilon=1.0, delta=1e-5, steps=400)
    inside = {"type": "ineq", "fun": lambda w: 1 - np.sum((w / axes) ** 2)}
    best = minimize(risk.value, np.zeros(3), jac=risk.gradient, constraints=inside, method="SLSQP")
    assert risk.value(plan.without_noise(risk)) == pytest.approx(best.fun, abs=1e-3)
    assert Ellipsoid().contains(plan.release(risk, NoiseSource(insecure_seed=0)).point)
