"""First-order mechanisms: textbook algorithms without noise, calibrated laws with it."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize
from scipy.stats import beta, chisquare

from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1, DPFrankWolfeL2
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent, DPProximalGradient
from privopt.mechanisms.convex.mirror_descent import DPAcceleratedMirrorDescent, DPMirrorDescent
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.accounting import bounded_range_step_epsilon, gaussian_mu, zcdp_epsilon
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, gaussian_steps
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.selection_noise import SelectionNoise
from privopt.mechanisms.risk.iteration import Output
from privopt.mechanisms.risk.mechanism import FullBatchMechanism
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SigmoidLoss
from privopt.problems.convex.regularizers import ElasticNet, lasso, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.group_ball import GroupL1Ball
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace

Vector = NDArray[np.float64]
P = 6
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def logistic_risk(n: int = 400, seed: int = 0) -> EmpiricalRisk:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)) / 3
    w = np.array([3.0, -2.0, 0, 0, 1, 0])
    y = np.where(X @ w + 0.5 * rng.standard_normal(n) > 0, 1, -1)
    return EmpiricalRisk(X, y, LogisticLoss())


def optimum(risk: EmpiricalRisk, regularizer: ElasticNet, convex_set: ConvexSet) -> float:
    """The least objective by SLSQP over w = u - v, u, v >= 0 (smooth l1 norms), from the definitions."""

    def objective(t: Vector) -> float:
        w = t[:P] - t[P:]
        return risk.value(w) + regularizer.l1 * float(np.sum(t)) + regularizer.l2 / 2 * float(w @ w)

    constraints: list[dict[str, object]] = []
    match convex_set:
        case L1Ball(size=size):
            constraints.append({"type": "ineq", "fun": lambda t: size - np.sum(t)})
        case L2Ball(size=size):
            constraints.append({"type": "ineq", "fun": lambda t: size**2 - np.sum((t[:P] - t[P:]) ** 2)})
        case LinfBall(size=size):
            constraints.append({"type": "ineq", "fun": lambda t: size - np.abs(t[:P] - t[P:])})
        case Simplex(size=size):
            constraints.append({"type": "eq", "fun": lambda t: np.sum(t[:P]) - size})
            constraints.append({"type": "eq", "fun": lambda t: t[P:]})
    result = minimize(
        objective,
        np.full(2 * P, 0.05),
        bounds=[(0, None)] * (2 * P),
        constraints=constraints,
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return float(result.fun)


# mechanism, set, regulariser, steps, tolerance: a textbook rate bounds what is left after so many steps.
CASES = [
    (DPGradientDescent, WholeSpace(P), ridge(0.05), 200, 1e-6),
    (DPProximalGradient, WholeSpace(P), lasso(0.02), 4000, 1e-6),
    (DPProximalGradient, L1Ball(P, 1.5), ElasticNet(), 1000, 1e-6),
    (DPProximalGradient, L2Ball(P, 1.0), ElasticNet(0.01, 0.02), 1000, 1e-6),
    (DPMirrorDescent, L2Ball(P, 1.0), ElasticNet(), 500, 1e-6),
    (DPMirrorDescent, L1Ball(P, 1.5), lasso(0.01), 3000, 1e-4),
    (DPMirrorDescent, Simplex(P, 1.5), ElasticNet(), 2000, 1e-4),
    (DPMirrorDescent, LinfBall(P, 0.5), ElasticNet(), 1000, 1e-6),
    (DPAcceleratedMirrorDescent, L2Ball(P, 1.0), ElasticNet(), 300, 1e-5),
    (DPAcceleratedMirrorDescent, L1Ball(P, 1.5), ElasticNet(), 300, 1e-4),
    (DPAcceleratedMirrorDescent, LinfBall(P, 0.5), ridge(0.1), 300, 1e-5),
    (DPFrankWolfeL2, L2Ball(P, 1.0), ElasticNet(), 1000, 1e-5),
    (DPFrankWolfeL2, L1Ball(P, 1.5), ridge(0.1), 3000, 1e-3),
    (DPFrankWolfeL1, L1Ball(P, 1.5), ElasticNet(), 3000, 1e-3),
    (DPFrankWolfeL1, Simplex(P, 1.5), ElasticNet(), 3000, 1e-3),
]


@pytest.mark.parametrize(
    ("mechanism", "convex_set", "regularizer", "steps", "tolerance"),
    CASES,
    ids=[f"{c[0].name}-{type(c[1]).__name__}-{c[2].l1}-{c[2].l2}" for c in CASES],
)
def test_without_noise_every_mechanism_reaches_the_optimum(
    mechanism: type[FullBatchMechanism],
    convex_set: ConvexSet,
    regularizer: ElasticNet,
    steps: int,
    tolerance: float,
) -> None:
    risk = logistic_risk()
    options: dict[str, Any] = {"steps": steps, "output": Output.LAST}
    if mechanism is DPMirrorDescent:  # as exact steps may be; the default is for noisy ones
        options["step_size"] = 1 / (2 * risk.facts.smoothness_in(convex_set))
    if mechanism is DPAcceleratedMirrorDescent:
        options["gauge_steps"] = True
    plan = mechanism.plan(risk.facts, convex_set, regularizer, **BUDGET, **options)
    w = plan.without_noise(risk)
    assert convex_set.contains(w)
    reached = risk.value(w) + regularizer.value(w)
    assert reached <= optimum(risk, regularizer, convex_set) + tolerance


def test_without_noise_the_iterates_are_those_of_the_textbook() -> None:
    """Second implementations, straight from the listings, ten steps each."""
    risk, T = logistic_risk(), 10
    X, y = risk.X * risk._scale[:, None], risk.y
    gradient = lambda w: X.T @ (-y / (1 + np.exp(y * (X @ w)))) / len(y)  # noqa: E731
    L, R = 0.25, 1.5

    w = np.zeros(P)
    for _ in range(T):
        w = w - (gradient(w) + 0.3 * w) / (L + 0.3)
    plan = DPGradientDescent.plan(risk.facts, regularizer=ridge(0.3), **BUDGET, steps=T)
    np.testing.assert_allclose(plan.without_noise(risk), w, rtol=1e-10)

    w = np.zeros(P)
    for _ in range(T):
        w = w - gradient(w) / (2 * L)
        w = np.sign(w) * np.maximum(np.abs(w) - 0.02 / (2 * L), 0)
    average = DPProximalGradient.plan(
        risk.facts, regularizer=lasso(0.02), **BUDGET, steps=T, output=Output.LAST
    )
    np.testing.assert_allclose(average.without_noise(risk), w, rtol=1e-10)

    w = np.zeros(P)
    for k in range(T):
        g = gradient(w)
        v = np.zeros(P)
        v[np.argmax(np.abs(g))] = -R * np.sign(g[np.argmax(np.abs(g))])
        w = w + 2 / (k + 2) * (v - w)
    for mechanism in (DPFrankWolfeL2, DPFrankWolfeL1):
        plan_fw = mechanism.plan(risk.facts, L1Ball(P, R), **BUDGET, steps=T)
        np.testing.assert_allclose(plan_fw.without_noise(risk), w, rtol=1e-10)

    w = np.full(P, R / P)
    smooth = L * R**2  # in |.|_1 / R; entropy scaled by 1/R; gamma = 1/(2 smooth)
    for _ in range(T):
        w = w * np.exp(-gradient(w) * R / (2 * smooth))
        w = w * R / np.sum(w)
    rule: dict[str, Any] = {"steps": T, "output": Output.LAST, "step_size": 1 / (2 * smooth)}
    plan_md = DPMirrorDescent.plan(risk.facts, Simplex(P, R), **BUDGET, **rule)
    np.testing.assert_allclose(plan_md.without_noise(risk), w, rtol=1e-10)

    dual = np.zeros(P)  # exponentiated gradients with positive and negative weights
    for _ in range(T):
        dual = dual - gradient(R * np.sinh(dual) / np.sum(np.cosh(dual))) * R / (2 * smooth)
    plan_md = DPMirrorDescent.plan(risk.facts, L1Ball(P, R), **BUDGET, **rule)
    np.testing.assert_allclose(
        plan_md.without_noise(risk), R * np.sinh(dual) / np.sum(np.cosh(dual)), rtol=1e-10
    )

    shrink = lambda u: u * min(1.0, R / float(np.linalg.norm(u)))  # noqa: E731
    a = z = np.zeros(P)
    for k in range(T):
        r = 2 / (k + 2)
        x = r * z + (1 - r) * a
        g = gradient(x)
        a, z = shrink(x - g / L), shrink(z - (k + 2) / (4 * L) * g)
    plan_acc = DPAcceleratedMirrorDescent.plan(risk.facts, L2Ball(P, R), **BUDGET, steps=T)
    np.testing.assert_allclose(plan_acc.without_noise(risk), a, rtol=1e-10)


def test_accelerated_descent_is_faster_than_its_plain_relative() -> None:
    risk = logistic_risk()
    ball = L2Ball(P, 8.0)
    gaps = []
    for T in (20, 40, 80):
        plan = DPAcceleratedMirrorDescent.plan(risk.facts, ball, **BUDGET, steps=T)
        gaps.append(risk.value(plan.without_noise(risk)) - optimum(risk, ElasticNet(), ball))
        plain = DPProximalGradient.plan(risk.facts, ball, **BUDGET, steps=T, output=Output.LAST)
        assert gaps[-1] < risk.value(plain.without_noise(risk)) - optimum(risk, ElasticNet(), ball)
    assert gaps[2] < gaps[0] / 8  # 1/T^2, with room


@pytest.mark.parametrize("convex_set", [L1Ball(P, 1.5), Simplex(P, 1.5)], ids=lambda s: type(s).__name__)
def test_accelerated_steps_without_gauges_reach_the_optimum(convex_set: ConvexSet) -> None:
    """E F(y_T) - F* <= 8 L' V / T^2, without noise."""
    risk = logistic_risk()
    plan = DPAcceleratedMirrorDescent.plan(risk.facts, convex_set, epsilon=1e4, delta=1e-5, steps=300)
    assert plan.gauge_steps is False
    w = plan.without_noise(risk)
    left = risk.value(w) - optimum(risk, ElasticNet(), convex_set)
    assert left <= 8 * risk.facts.smoothness_in(convex_set) * math.log(2 * P) / 300**2


def test_average_is_the_mean_of_the_iterates() -> None:
    risk = logistic_risk()
    ends = [
        DPProximalGradient.plan(risk.facts, **BUDGET, steps=T, output=Output.LAST).without_noise(risk)
        for T in range(1, 6)
    ]
    plan = DPProximalGradient.plan(risk.facts, **BUDGET, steps=5, output=Output.AVERAGE)
    np.testing.assert_allclose(plan.without_noise(risk), np.mean(ends, axis=0), rtol=1e-12)


def shifting_risks(n: int = 3, p: int = 1) -> tuple[EmpiricalRisk, EmpiricalRisk]:
    """Neighbours whose gradients differ by exactly 2 G / n at every w that is ever visited.

    A Huber loss far from its labels has slope -+1 whatever w is, so the final iterate is exactly Gaussian
    with a shift of T steps: the calibration must be tight on this pair. Only coordinate 0 is not constant.
    """
    X = np.zeros((n, p))
    X[:, 0] = 1.0
    y = np.full(n, 1e9)
    other = y.copy()
    other[0] = -1e9
    return EmpiricalRisk(X, y, HuberLoss(1.0)), EmpiricalRisk(X, other, HuberLoss(1.0))


def output_samples(
    plan: DPProximalGradient, risks: tuple[EmpiricalRisk, EmpiricalRisk]
) -> tuple[Vector, Vector]:
    """Samples of coordinate 0 of the output on both neighbours.

    Noise is the same in every coordinate and the others have no gradient, so they are as many draws of the
    noise of coordinate 0 around its mean, which is the output with that noise taken out.
    """
    samples = []
    for seed, risk in enumerate(risks):
        noise = plan.release(risk, NoiseSource(insecure_seed=seed)).point[1:]
        samples.append(plan.without_noise(risk)[0] + noise)
    return samples[0], samples[1]


@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_the_law_of_the_output_meets_the_calibration_and_no_more(epsilon: float) -> None:
    """mu between the two output laws, estimated from 20,000 draws, is the mu of the target, within 3%."""
    risks = shifting_risks(p=20_001)
    plan = DPProximalGradient.plan(risks[0].facts, epsilon=epsilon, delta=1e-3, steps=4, output=Output.LAST)
    a, b = output_samples(plan, risks)
    shift = abs(plan.without_noise(risks[0])[0] - plan.without_noise(risks[1])[0])
    assert shift / math.sqrt((np.var(a) + np.var(b)) / 2) == pytest.approx(
        gaussian_mu(epsilon, 1e-3), rel=0.03
    )
    # The shift is also what two runs with one noise differ by: nothing else depends on the record.
    runs = [plan.release(r, NoiseSource(insecure_seed=9)).point for r in risks]
    assert abs(runs[0][0] - runs[1][0]) == pytest.approx(shift, rel=1e-6)
    np.testing.assert_array_equal(runs[0][1:], runs[1][1:])


def audited_epsilon(a: Vector, b: Vector, delta: float) -> float:
    """A 99.9% lower confidence bound on epsilon from samples of two laws: threshold chosen on one half."""
    half = len(a) // 2
    thresholds = np.quantile(np.r_[a[:half], b[:half]], np.linspace(0.02, 0.98, 49))
    best, sign = max(
        itertools.product(thresholds, (1, -1)),
        key=lambda c: _ratio(
            np.mean(c[1] * a[:half] > c[1] * c[0]), np.mean(c[1] * b[:half] > c[1] * c[0]), delta
        ),
    )
    n = len(a) - half
    hits_a, hits_b = (int(np.sum(sign * s[half:] > sign * best)) for s in (a, b))
    low = beta.ppf(0.0005, hits_a, n - hits_a + 1) if hits_a else 0.0
    high = beta.ppf(0.9995, hits_b + 1, n - hits_b)
    return _ratio(low, high, delta)


def _ratio(p: float, q: float, delta: float) -> float:
    return math.log(max(p - delta, 1e-9) / max(q, 1e-3))


def test_audit_accepts_the_mechanism_and_rejects_half_the_noise() -> None:
    risks = shifting_risks(p=20_001)
    plan = DPProximalGradient.plan(risks[0].facts, epsilon=1.0, delta=1e-3, steps=3, output=Output.LAST)
    loud = plan.vector_noise
    quiet = VectorNoise(loud.sensitivity, loud.sigma / 2, loud.dimension)
    half = dataclasses.replace(plan, vector_noise=quiet)
    assert audited_epsilon(*output_samples(plan, risks), 1e-3) <= 1.0
    assert audited_epsilon(*output_samples(half, risks), 1e-3) > 1.0


def test_vertex_choice_is_the_exponential_mechanism_at_its_calibrated_scale() -> None:
    """Frequencies against softmax(score / scale); a scale that is off by 30% is rejected."""
    noise = SelectionNoise(sensitivity=0.3, step_epsilon=0.5)
    assert noise.scale == pytest.approx(2 * 0.3 / 0.5)
    scores = np.array([0.0, 1.0, 2.0, -1.0])
    source = NoiseSource(insecure_seed=3)
    counts = np.bincount([noise.choose(scores, source) for _ in range(20_000)], minlength=4)

    def p_value(scale: float) -> float:
        law = np.exp(scores / scale)
        return float(chisquare(counts, counts.sum() * law / law.sum()).pvalue)

    assert p_value(noise.scale) > 1e-3
    assert p_value(noise.scale * 1.3) < 1e-6


def test_selection_sensitivity_and_loss_on_an_extreme_pair() -> None:
    """One step of DP-FW-L1 on neighbours: the exact privacy loss of every vertex has range at most eps0."""
    first, second = shifting_risks()
    plan = DPFrankWolfeL1.plan(first.facts, L1Ball(1, 2.0), epsilon=1.0, delta=1e-3, steps=7)
    laws = []
    for risk in (first, second):
        scores = L1Ball(1, 2.0).vertex_scores(-risk.gradient(np.zeros(1))) / plan.selection.scale
        laws.append(scores - np.logaddexp.reduce(scores))
    loss = laws[0] - laws[1]
    spread = float(np.max(loss) - np.min(loss))
    assert spread <= plan.selection.step_epsilon
    assert spread == pytest.approx(plan.selection.step_epsilon, rel=1e-6)  # +-e_j: the bound is attained
    rho = 7 * plan.selection.step_epsilon**2 / 8
    assert zcdp_epsilon(rho, 1e-3) <= 1.0
    assert plan.spend.epsilon == pytest.approx(1.0, rel=1e-6)


def test_selection_sensitivity_covers_the_rounding_of_scores() -> None:
    """Beside a penalty of 10^12 G a gradient has few bits: scores move by whole units of the last place."""
    facts, ball = RiskFacts(10**6, 1, LogisticLoss()), L1Ball(1, 1e6)
    plan = DPFrankWolfeL1.plan(facts, ball, ridge(1e6), epsilon=1.0, delta=1e-6, steps=3)
    x = np.array([1e6])
    gradients = np.linspace(0, 1e-3, 1001)[:, None]
    scores = np.array([ball.vertex_scores(-(g + 1e6 * x))[0] for g in gradients])
    moved = np.max(np.abs(np.diff(scores)))  # by gradients half a sensitivity apart
    assert moved > 60 * ball.size * facts.sensitivity_linf
    assert moved <= plan.selection.sensitivity


def test_reference_figures_of_the_calibration() -> None:
    """T = 200, (2, 1e-3): 20.439 per step for Gaussians, eps0 = 0.0879 or more for selections."""
    noise = gaussian_steps(2.0, 1e-3, steps=200, sensitivity=1.0, dimension=54)
    assert noise.sigma == pytest.approx(20.439, abs=2e-3)
    facts = RiskFacts(1000, 5, LogisticLoss())
    plan = DPFrankWolfeL1.plan(facts, L1Ball(5, 1.0), epsilon=2.0, delta=1e-3, steps=200)
    assert plan.selection.step_epsilon >= 0.0879
    assert plan.selection.sensitivity == pytest.approx(2 / 1000, rel=1e-6)


def test_selection_noise_against_advanced_composition() -> None:
    """At (2, 1e-3), T = 200: 2.6 below the theorem's root (0.0337), 4.6 below the rule that papers print."""
    ours = bounded_range_step_epsilon(2.0, 1e-3, 200)
    printed = 2 / math.sqrt(8 * 200 * math.log(1e3))
    root = brentq(lambda e: math.sqrt(400 * math.log(1e3)) * e + 200 * e * math.expm1(e) - 2, 1e-6, 1)
    assert root == pytest.approx(0.0337, abs=1e-4)
    assert ours / root == pytest.approx(2.6, abs=0.02)
    assert ours / printed == pytest.approx(4.6, abs=0.05)

    def ratios(delta: float) -> list[float]:
        return [
            bounded_range_step_epsilon(e, delta, T) * math.sqrt(8 * T * math.log(1 / delta)) / e
            for e, T in itertools.product((0.1, 1.0, 5.0), (10, 400))
        ]

    small = [*ratios(1e4**-2), *ratios(581_012.0**-2)]
    assert 4.0 < min(small) < 4.2 < 4.9 < max(small) < 5.1
    assert 3.9 < min(ratios(1e-3)) < 7.2 < max(ratios(1e-3)) < 7.3


def test_default_steps_balance_the_bound() -> None:
    """T minimises V / (gamma T) + gamma T E|xi|_*^2 / mu^2, from the definitions, by search."""
    facts = RiskFacts(20_000, 40, LogisticLoss(), row_norm=2.0)
    mu = gaussian_mu(0.5, 1e-6) / facts.sensitivity
    # Predictions of 4, the scale of the logistic loss, on rows of norm 2 spread over 40 directions.
    far = 4 * math.sqrt(40) / 2
    every = np.arange(1, 3000)
    for mechanism, gamma in ((DPGradientDescent, 1 / facts.smoothness), (DPProximalGradient, 0.5 / 1.0)):
        bound = far**2 / 2 / (gamma * every) + gamma * every * 40 / mu**2
        plan = mechanism.plan(facts, epsilon=0.5, delta=1e-6)
        assert abs(plan.steps - every[np.argmin(bound)]) <= 1
    ball = L2Ball(40, 5.0)
    bound = 5.0**2 / 2 / (0.5 * every) + 0.5 * every * 40 / mu**2
    plan = DPMirrorDescent.plan(facts, ball, epsilon=0.5, delta=1e-6)
    assert plan.steps == pytest.approx(every[np.argmin(bound)], rel=0.02)  # radius and width, not sqrt(p)


@pytest.mark.parametrize("convex_set", [L1Ball(40, 30.0), Simplex(40, 30.0)], ids=lambda s: type(s).__name__)
def test_default_steps_of_entropic_mirror_descent_balance_their_bound(convex_set: ConvexSet) -> None:
    """gamma T minimises V / (gamma T) + gamma T (size / mu)^2 / 2, V the log of the number of vertices."""
    facts = RiskFacts(20_000, 40, LogisticLoss(), norm="linf", row_norm=0.2)
    mu = gaussian_mu(0.5, 1e-6) / facts.sensitivity
    plan = DPMirrorDescent.plan(facts, convex_set, epsilon=0.5, delta=1e-6)
    vertices = 80 if isinstance(convex_set, L1Ball) else 40
    horizon = math.sqrt(2 * math.log(vertices)) * mu / 30
    assert plan.steps * plan.step_size == pytest.approx(horizon, rel=1e-9)
    smooth = 0.25 * (30 * 0.2) ** 2
    assert plan.steps == math.ceil(horizon * smooth)
    # Noise of (30/mu) a step costs gamma T (30/mu)^2 / 2: half of a gain of 1, a quarter of 4 * 1, at most.
    weak = DPMirrorDescent.plan(facts, convex_set, epsilon=0.01, delta=1e-6)
    noise = 30 * facts.sensitivity / gaussian_mu(0.01, 1e-6)
    assert weak.steps * weak.step_size * noise**2 / 2 == pytest.approx(1 / 2, rel=1e-9)
    # A bound on the l2 norm lets one coordinate have all of a row: rows are taken to spread instead.
    wide = DPMirrorDescent.plan(
        RiskFacts(20_000, 40, LogisticLoss()), convex_set, epsilon=0.5, delta=1e-6, steps=3
    )
    assert wide.step_size == pytest.approx(2 * 40 / (0.25 * 30**2))
    with pytest.raises(PrivacyParameterError, match="step_size must be positive"):
        DPMirrorDescent.plan(facts, convex_set, epsilon=0.5, delta=1e-6, step_size=0.0)


def test_noise_of_an_entropic_step_costs_its_variance_and_not_that_of_the_largest() -> None:
    """E log sum q exp(-gamma (g + xi)) <= log sum q exp(-gamma g) + gamma^2 s^2 / 2, by simulation."""
    rng = np.random.default_rng(3)
    q, g = rng.dirichlet(np.full(200, 0.3)), rng.normal(size=200)
    for gamma, s in ((0.3, 1.0), (1.0, 2.0)):
        noise = s * rng.normal(size=(4000, 200))
        potential = np.log(np.exp(-gamma * (g + noise)) @ q)
        bound = math.log(float(np.exp(-gamma * g) @ q)) + gamma**2 * s**2 / 2
        assert np.mean(potential) <= bound
        assert np.mean(potential) < bound + (gamma * s) ** 2 * math.log(200)  # of the largest of 200


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_mirror_descent_closes_the_gap_where_the_rule_of_the_paper_does_not_move(norm: RowNorm) -> None:
    """Frank-Wolfe gap over an l1 ball, p = 200, a twentieth relevant: half of the start's at most.

    With n epsilon = 16,000: few records at a large epsilon, which are quick to pass over.
    """
    rng = np.random.default_rng(3)
    p, n, epsilon, delta = 200, 4_000, 4.0, 1e-6
    X = rng.choice(np.array([-1.0, 1.0]), size=(n, p)) / math.sqrt(p)
    weights = np.where(np.arange(p) < 10, 2 * math.sqrt(p / 10), 0.0)
    y = np.where(rng.random(n) < 1 / (1 + np.exp(-(X @ weights))), 1, -1)
    bound = 1.0 if norm == "l2" else 1 / math.sqrt(p)
    risk = EmpiricalRisk(X, y, LogisticLoss(), row_norm=bound, norm=norm)
    ball = L1Ball(p, float(np.sum(weights)))

    def gap(w: Vector) -> float:
        g = risk.gradient(w)
        return float(g @ w) + ball.support(-g)

    # Theorem 5 without constants: gamma = 1/(2 L |C|^2), T = |C| n epsilon / sqrt((|C|^2 + G_C^2) ln(1/d)).
    width = math.hypot(ball.size, ball.gaussian_width().value)
    steps = round(ball.size * n * epsilon / (width * math.sqrt(math.log(1 / delta))))
    rule = {"steps": min(steps, 400), "output": Output.RANDOM}
    rule["step_size"] = 1 / (2 * risk.facts.smoothness * ball.size**2)
    ends = []
    for options in ({}, rule):
        plan = DPMirrorDescent.plan(risk.facts, ball, epsilon=epsilon, delta=delta, **options)
        assert plan.spend.epsilon <= epsilon
        ends.append(gap(plan.release(risk, NoiseSource(insecure_seed=1)).point))
    start = gap(np.zeros(p))
    assert ends[0] < 0.5 * start
    assert ends[1] > 0.9 * start


def test_noise_against_the_printed_ones() -> None:
    """Never below what the exact composition needs, and below what the papers print.

    Zhang et al. (2017) as quoted by Wang and Xu: 32 ln(1/d) ln(T/d) / (n eps)^2 per step; and their zCDP
    step with the erratum mended, 2 T / (n^2 rho), rho from rho + 2 sqrt(rho ln(1/d)) = eps, whose
    sensitivity is 2 G/n here (replace-one).
    """
    for epsilon, delta, T, n in itertools.product((0.1, 1.0, 5.0), (1e-3, 1e-6), (10, 400), (1000, 200_000)):
        facts = RiskFacts(n, 20, LogisticLoss())
        ours = DPProximalGradient.plan(facts, epsilon=epsilon, delta=delta, steps=T).vector_noise.sigma
        exact = math.sqrt(T) * (2 / n) / gaussian_mu(epsilon, delta)
        assert exact <= ours <= exact * (1 + 2e-4)
        zhang = math.sqrt(32 * math.log(1 / delta) * math.log(T / delta) * T) / (n * epsilon)
        log = math.log(1 / delta)
        rho = (math.sqrt(log + epsilon) - math.sqrt(log)) ** 2
        mended = math.sqrt(2 * T / (n**2 * rho))
        assert ours < mended < zhang


def test_random_iterate_is_uniform_over_the_path() -> None:
    first, _ = shifting_risks(n=1000)
    plan = DPProximalGradient.plan(first.facts, epsilon=10.0, delta=1e-3, steps=5, output=Output.RANDOM)
    source = NoiseSource(insecure_seed=4)
    # Every step moves by 1/2 (gamma = 1/2, slope -1): the position tells R.
    ends = np.array([plan.release(first, source).point[0] for _ in range(2000)])
    counts = np.bincount(np.rint(ends * 2).astype(int), minlength=5)
    assert counts.size == 5
    assert chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    "convex_set",
    [
        L1Ball(P, 2.0),
        L2Ball(P, 2.0),
        LinfBall(P, 1.0),
        Simplex(P),
        Box(np.full(P, -1.0), np.full(P, 2.0)),
        GroupL1Ball(((0, 1, 2), (3, 4, 5)), 1.0),
        KSupportBall(P, 2, 1.0),
        ConvexHull(np.vstack([np.eye(P), -np.eye(P)])),
        Polytope(np.ones((1, P)), [1.0], np.full(P, -1.0), np.full(P, 1.0)),
    ],
    ids=lambda s: type(s).__name__,
)
def test_defaults_work_over_every_set_and_stay_inside(convex_set: ConvexSet) -> None:
    from privopt.oracles.convex.quantities import contains

    risk = logistic_risk()
    ran = 0
    for mechanism in (
        DPProximalGradient,
        DPMirrorDescent,
        DPAcceleratedMirrorDescent,
        DPFrankWolfeL2,
        DPFrankWolfeL1,
    ):
        try:
            plan = mechanism.plan(risk.facts, convex_set, **BUDGET)
        except (UnsupportedProblemError, PrivacyParameterError):
            continue
        assert 1 <= plan.steps <= 2000
        released = plan.release(risk, NoiseSource(insecure_seed=5))
        assert contains(convex_set, released.point, 1e-7)
        assert released.spend.epsilon <= 1.0
        assert released.spend.insecure_seed == 5
        ran += 1
    assert ran >= 2 - isinstance(convex_set, Polytope)


def test_private_fits_improve_with_the_budget_and_approach_the_optimum() -> None:
    risk = logistic_risk(n=5_000)
    best = optimum(risk, ElasticNet(), L2Ball(P, 2.0))
    gaps = []
    for epsilon in (0.05, 2.0):
        plan = DPProximalGradient.plan(risk.facts, L2Ball(P, 2.0), epsilon=epsilon, delta=1e-6)
        fits = [plan.release(risk, NoiseSource(insecure_seed=s)).point for s in range(2)]
        gaps.append(np.mean([risk.value(w) for w in fits]) - best)
    assert gaps[1] < gaps[0]
    assert gaps[1] < 0.01


def test_sigmoid_loss_uses_a_random_iterate_by_default_and_convex_losses_do_not() -> None:
    facts, nonconvex = RiskFacts(1000, P, LogisticLoss()), RiskFacts(1000, P, SigmoidLoss())
    ball = L1Ball(P, 1.0)
    assert DPProximalGradient.plan(facts, **BUDGET).output is Output.AVERAGE
    assert DPProximalGradient.plan(facts, regularizer=ridge(0.1), **BUDGET).output is Output.LAST
    assert DPProximalGradient.plan(nonconvex, **BUDGET).output is Output.RANDOM
    assert DPFrankWolfeL2.plan(nonconvex, ball, **BUDGET).output is Output.RANDOM
    assert DPFrankWolfeL1.plan(nonconvex, ball, **BUDGET).output is Output.LAST
    with pytest.raises(PrivacyParameterError, match="convex loss"):
        DPAcceleratedMirrorDescent.plan(nonconvex, ball, **BUDGET)


def test_refusals() -> None:
    facts = RiskFacts(1000, P, LogisticLoss())
    with pytest.raises(PrivacyParameterError, match="dp-pgd"):
        DPGradientDescent.plan(facts, L2Ball(P, 1.0), **BUDGET)
    with pytest.raises(PrivacyParameterError, match="bounded"):
        DPFrankWolfeL2.plan(facts, WholeSpace(P), **BUDGET)
    with pytest.raises(PrivacyParameterError, match="l1 penalty"):
        DPFrankWolfeL1.plan(facts, L1Ball(P, 1.0), lasso(0.1), **BUDGET)
    with pytest.raises(PrivacyParameterError, match="finitely many"):
        DPFrankWolfeL1.plan(facts, L2Ball(P, 1.0), **BUDGET)
    with pytest.raises(PrivacyParameterError, match="dimension"):
        DPProximalGradient.plan(facts, L2Ball(P + 1, 1.0), **BUDGET)
    with pytest.raises(PrivacyParameterError, match="leave nothing"):
        gaussian_steps(1e-6, 1e-12, steps=10**6, sensitivity=1.0, dimension=10**6)
    with pytest.raises(PlanMismatchError, match="plan again"):
        DPProximalGradient.plan(facts, **BUDGET).release(logistic_risk(n=999))


def test_unseeded_runs_differ() -> None:
    risk = logistic_risk()
    plan = DPProximalGradient.plan(risk.facts, **BUDGET, steps=2, output=Output.LAST)
    assert not np.array_equal(plan.release(risk).point, plan.release(risk).point)
    assert plan.release(risk).spend.guaranteed


def test_sparse_frank_wolfe_with_many_features() -> None:
    """10^5 features, 10^5 non-zeros: one step touches non-zeros and vertices (dense X would be 4 GB)."""
    rng = np.random.default_rng(6)
    X = sp.random_array((5_000, 10**5), density=2e-4, format="csr", rng=rng)
    strong = sp.csr_array(np.r_[[1.0], np.zeros(10**5 - 1)][None, :])
    y = rng.choice([-1.0, 1.0], 5_000)
    X = sp.csr_array(X + sp.csr_array(y[:, None]) @ strong)  # column 0 is the label
    risk = EmpiricalRisk(X, y, LogisticLoss(), norm="linf")
    plan = DPFrankWolfeL1.plan(risk.facts, L1Ball(10**5, 5.0), epsilon=2.0, delta=1e-6, steps=5)
    w = plan.release(risk, NoiseSource(insecure_seed=7)).point
    assert np.count_nonzero(w) <= 5
    assert w[0] > 1.0  # the informative column among 10^5 is found
