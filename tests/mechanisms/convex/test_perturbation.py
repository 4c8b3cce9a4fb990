"""Output and objective perturbation: exact laws by quadrature, certificates, and reference optima."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import norm

from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.convex import objective_perturbation
from privopt.mechanisms.convex.objective_perturbation import (
    HIDING_DELTA,
    HIDING_EPSILON,
    ObjectivePerturbation,
)
from privopt.mechanisms.convex.output_perturbation import OutputPerturbation
from privopt.mechanisms.convex.penalties import objective_penalty, output_penalty
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, gaussian_steps
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.mechanisms.risk.mechanism import RiskTarget
from privopt.oracles.certificate import Status
from privopt.oracles.convex.smooth import SmoothAnswer, SmoothCertificate, minimize_ridge
from privopt.oracles.errors import CertificateError
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SigmoidLoss
from privopt.problems.convex.regularizers import ElasticNet, lasso, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.counted import CountedRecords

Vector = NDArray[np.float64]
P = 5
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def logistic_risk(n: int = 600, seed: int = 0) -> EmpiricalRisk:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)) / 3
    y = np.where(X @ [3.0, -2, 0, 1, 0] + 0.5 * rng.standard_normal(n) > 0, 1, -1)
    return EmpiricalRisk(X, y, LogisticLoss())


@pytest.mark.parametrize("loss", [LogisticLoss(), HuberLoss(0.7)], ids=str)
@pytest.mark.parametrize("l2", [1.0, 1e-3])
def test_certified_minimum_against_a_general_solver(loss: LogisticLoss | HuberLoss, l2: float) -> None:
    data = logistic_risk()
    risk = EmpiricalRisk(data.X, data.y, loss)
    tilt = np.linspace(-0.01, 0.01, P)
    answer = minimize_ridge(risk, l2, 1e-11, linear=tilt)
    w = answer.require(1e-11)

    def objective(u: Vector) -> float:
        return risk.value(u) + l2 / 2 * float(u @ u) + float(tilt @ u)

    reference = minimize(objective, np.zeros(P), method="BFGS", options={"gtol": 1e-7})
    assert objective(w) <= reference.fun + 1e-9
    # The certificate speaks of the gradient, which a finite difference sees too.
    slopes = [(objective(w + 1e-5 * e) - objective(w - 1e-5 * e)) / 2e-5 for e in np.eye(P)]
    assert np.linalg.norm(slopes) <= 1e-9


def test_certificate_of_float32_data_is_about_the_exact_gradient() -> None:
    """Rounding of float32 predictions is common to equal records, and does not average out."""
    rng = np.random.default_rng(3)
    X = np.tile(rng.standard_normal((2, 40)), (200, 1)).astype(np.float32)
    y = np.tile([1.0, -1.0], 200)
    answer = minimize_ridge(EmpiricalRisk(X, y, LogisticLoss()), 1e-4, 1e-9)
    exact = EmpiricalRisk(X.astype(np.float64), y, LogisticLoss())
    w = answer.point
    assert np.linalg.norm(exact.gradient(w) + 1e-4 * w) <= answer.certificate.gradient_norm <= 1e-9


def test_a_worse_point_is_refused() -> None:
    answer = minimize_ridge(logistic_risk(), 0.1, 1e-10)
    with pytest.raises(CertificateError, match="gradient norm"):
        SmoothAnswer(answer.point, replace(answer.certificate, gradient_norm=1e-5)).require(1e-10)
    with pytest.raises(InvalidInputError, match="convex"):
        minimize_ridge(logistic_risk(), 0.0, 1e-10)


def test_minima_of_neighbours_are_within_the_sensitivity() -> None:
    risk = logistic_risk(n=50)
    rng = np.random.default_rng(1)
    plan = OutputPerturbation.plan(risk.facts, regularizer=ridge(0.05), **BUDGET)
    w = plan.without_noise(risk)
    worst = 0.0
    for _ in range(30):
        X, y = risk.X.copy(), risk.y.copy()
        X[0], y[0] = rng.standard_normal(P) * 100, rng.choice([-1.0, 1.0])
        moved = np.linalg.norm(plan.without_noise(EmpiricalRisk(X, y, LogisticLoss())) - w)
        worst = max(worst, float(moved))
    assert worst <= plan.vector_noise.sensitivity
    # 2 G / (n l2), and the tolerance of either minimum over l2.
    assert plan.vector_noise.sensitivity == pytest.approx((2 / 50 + 2 * plan.tolerance) / 0.05, rel=1e-10)


def test_sensitivity_is_attained_by_a_linear_record() -> None:
    """Slopes of +-G at every w move the minimum by exactly 2 G / (n l2); G = 3."""
    X = np.ones((4, 1))
    y = np.full(4, 1e9)
    flipped = np.array([-1e9, 1e9, 1e9, 1e9])
    risks = [EmpiricalRisk(X, labels, HuberLoss(3.0)) for labels in (y, flipped)]
    plan = OutputPerturbation.plan(risks[0].facts, regularizer=ridge(0.5), **BUDGET)
    ends = [plan.without_noise(r)[0] for r in risks]
    assert abs(ends[0] - ends[1]) == pytest.approx(2 * 3 / (4 * 0.5), rel=1e-9)
    tolerated = 2 * plan.tolerance / 0.5
    assert plan.vector_noise.sensitivity == pytest.approx(2 * 3 / (4 * 0.5) + tolerated, rel=1e-9)


@pytest.mark.parametrize("mechanism", [OutputPerturbation, ObjectivePerturbation])
def test_an_unproved_minimum_is_not_released(
    mechanism: type[OutputPerturbation], monkeypatch: pytest.MonkeyPatch
) -> None:
    risk = logistic_risk()
    plan = mechanism.plan(risk.facts, regularizer=ridge(0.1), **BUDGET)

    def lazy(risk: EmpiricalRisk, l2: float, tolerance: float, **more: Any) -> SmoothAnswer:
        proof = SmoothCertificate(Status.HEURISTIC, risk.value(np.zeros(P)), 2 * tolerance, l2, 0.0)
        return SmoothAnswer(np.zeros(P), proof)

    monkeypatch.setattr(f"{mechanism.__module__}.minimize_ridge", lazy)
    with pytest.raises(CertificateError):
        plan.release(risk)


def test_the_proof_leaves_room_for_the_rounding_of_small_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coordinates of b near 0 are rounded in units of sigma: 1/2 is off by 2^-54, b by 2.5 times that."""
    risk = logistic_risk()
    plan = ObjectivePerturbation.plan(risk.facts, epsilon=0.01, delta=1e-5)
    asked = []

    def record(self: SmoothAnswer, tolerance: float) -> Vector:
        asked.append(tolerance)
        return self.point

    monkeypatch.setattr(SmoothAnswer, "require", record)
    monkeypatch.setattr(NoiseSource, "gaussian", lambda self, scale, size: np.zeros(size))
    plan.release(risk)
    assert plan.tolerance - asked[0] >= 2.5 * 2.0**-54 * plan.sigma * math.sqrt(P)


def objective_delta(
    epsilon: float, sigma: float, l2: float, first: EmpiricalRisk, second: EmpiricalRisk
) -> float:
    """The exact delta of the exact minimum in one dimension, from its density by change of variables.

    b(w) = -(F'(w) + l2 w), so the density at w is that of b there times F''(w) + l2.
    """
    w = np.linspace(-1, 1, 40_001) * (12 * sigma + 3) / l2
    densities = []
    for risk in (first, second):
        loss = risk.facts.loss  # every feature is 1: predictions are w
        slope = np.mean([loss.slope(w, np.full_like(w, y)) for y in risk.y], axis=0) + l2 * w
        bend = np.mean([loss.curvature(w, np.full_like(w, y)) for y in risk.y], axis=0) + l2
        densities.append(norm.pdf(slope, scale=sigma) * bend)
    assert np.sum(densities[0]) * (w[1] - w[0]) == pytest.approx(1, abs=1e-3)
    return float(np.sum(np.maximum(densities[0] - math.exp(epsilon) * densities[1], 0)) * (w[1] - w[0]))


def test_exact_law_of_objective_perturbation_in_one_dimension() -> None:
    """Neighbours that differ in a record at the bound: the plan's noise suffices, a third of it does not."""
    n = 3
    ys = (np.array([1.0, 1, -1]), np.array([-1.0, 1, -1]))
    first, second = (EmpiricalRisk(np.ones((n, 1)), y, LogisticLoss()) for y in ys)
    for epsilon in (0.5, 2.0):
        plan = ObjectivePerturbation.plan(first.facts, epsilon=epsilon, delta=1e-3)
        l2 = plan.regularizer.l2
        assert objective_delta(epsilon, plan.sigma, l2, first, second) <= 1e-3
        assert objective_delta(epsilon, plan.sigma / 3, l2, first, second) > 1e-3


@pytest.mark.parametrize("mechanism", [OutputPerturbation, ObjectivePerturbation])
def test_fits_improve_with_n(mechanism: type[OutputPerturbation]) -> None:
    gaps = []
    for n in (500, 20_000):
        risk = logistic_risk(n=n)
        best = risk.value(minimize_ridge(risk, 1e-6, 1e-8).point)
        plan = mechanism.plan(risk.facts, L2Ball(P, 20.0), **BUDGET)
        fits = [plan.release(risk, NoiseSource(insecure_seed=s)).point for s in range(10)]
        assert all(np.linalg.norm(w) <= 20.0 + 1e-9 for w in fits)
        gaps.append(np.mean([risk.value(w) for w in fits]) - best)
    assert gaps[1] < gaps[0] / 3


def test_default_penalties_minimise_their_bounds() -> None:
    """By search over l2, from the definitions; the bounds hold for a quadratic with a known spectrum."""
    facts = RiskFacts(10_000, 30, LogisticLoss(), row_norm=3.0)
    far, smooth = 4 * math.sqrt(30) / 3, 9 / 4
    grid = np.geomspace(1e-5, 1e2, 20_001)
    for mu in (0.02, 0.5):
        bound = grid * far**2 / 8 + smooth / 2 * (2 * 3 / (10_000 * grid * mu)) ** 2
        found = output_penalty(facts, WholeSpace(30), mu, 0.0)
        assert found == pytest.approx(grid[np.argmin(bound)], rel=2e-3)
    for sigma in (1e-4, 3.0):
        cost = sigma**2 / 2 * np.minimum(30 / (4 * grid), smooth / grid**2)
        found = objective_penalty(facts, WholeSpace(30), sigma)
        assert found == pytest.approx(grid[np.argmin(grid * far**2 / 8 + cost)], rel=2e-3)
        spectrum = np.geomspace(1e-4, 1, 30)
        spectrum *= smooth / spectrum.sum()
        for l2 in (0.01, 0.3):
            exact = sigma**2 / 2 * np.sum(spectrum / (spectrum + l2) ** 2)
            assert exact <= sigma**2 / 2 * min(30 / (4 * l2), smooth / l2**2)
            shares = np.full(30, far**2 / 30)
            assert np.sum(spectrum * (l2 / (spectrum + l2)) ** 2 * shares) / 2 <= l2 * far**2 / 8


@pytest.mark.parametrize("hiding", [1e-3, 0.3])
def test_penalties_know_the_noise_that_hides_a_tolerance(hiding: float) -> None:
    facts = RiskFacts(10_000, 30, LogisticLoss(), row_norm=3.0)
    far, smooth, sigma = 4 * math.sqrt(30) / 3, 9 / 4, 1e-5
    grid = np.geomspace(1e-5, 1e2, 20_001)
    bias, on_minimum = grid * far**2 / 8, smooth / 2 / grid**2
    found = objective_penalty(facts, WholeSpace(30), sigma, hiding)
    cost = bias + sigma**2 * on_minimum + hiding**2 * on_minimum
    assert found == pytest.approx(grid[np.argmin(cost)], rel=2e-3)
    cost = bias + (2 * (3 / 10_000 + hiding) / 0.5) ** 2 * on_minimum
    found = output_penalty(facts, WholeSpace(30), 0.5, hiding)
    assert found == pytest.approx(grid[np.argmin(cost)], rel=2e-3)


@pytest.mark.parametrize("name", ["objective-perturbation", "output-perturbation"])
def test_more_records_do_not_drown_the_minimum_in_noise(name: str) -> None:
    """Rounding, and so the tolerance, grows with n: at 10^8 records it is far above what one record moves."""
    for n in (10**6, 10**8, 10**10):
        facts = RiskFacts(n, 10, LogisticLoss(), row_norm=3.0, constant=1.0)
        choice = choose_risk_mechanism(name, facts, mu=0.2)
        plan = choice.plan(facts, epsilon=1.0, delta=1 / n**2, steps=None)
        assert plan.noise["output_sigma" if name.startswith("objective") else "sigma"] < 0.6


def test_a_hundred_million_counted_records_have_a_model() -> None:
    schema = Schema([Categorical("c", ["a", "b"]), Numeric("x", 0, 3)], intercept=True)
    cells = [(c, x, label) for c in (0, 1) for x in range(4) for label in (0, 1)]
    codes = np.array(cells, dtype=np.int64).T
    counts = np.where(codes[0] == codes[2], 11, 1) * (10**8 // 96)
    records = CountedRecords(schema, (codes[0], codes[1]), (0, 1), codes[2], counts)
    model = PrivateLogisticRegression(1.0, schema=schema, classes=(0, 1)).fit(records)
    assert model.mechanism_ == "objective-perturbation"
    assert np.array_equal(model.predict(records), codes[0])


def test_the_penalty_is_raised_where_the_proof_needs_it() -> None:
    facts = RiskFacts(1000, P, LogisticLoss())
    plan = ObjectivePerturbation.plan(facts, regularizer=ridge(1e-9), **BUDGET)
    # The Hessian term spends a quarter of epsilon: log(1 + L / (n l2)) = 1/4 with L = 1/4.
    assert plan.regularizer.l2 == pytest.approx(0.25 / (1000 * math.expm1(0.25)))
    assert ObjectivePerturbation.plan(facts, regularizer=ridge(0.3), **BUDGET).regularizer.l2 == 0.3
    # Of an epsilon without end it needs nothing, and a double all the same.
    vast = RiskFacts(10**7, 20, LogisticLoss(), row_norm=2.0)
    assert 0 < ObjectivePerturbation.plan(vast, epsilon=1e6, delta=1e-5).regularizer.l2 < 1e-100


def test_shares_of_several_releases_add_up_to_no_more_than_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirds of epsilon and of delta, exactly: three times the nearest double to 1e-5 / 3 is more."""
    asked = []

    def record(epsilon: float, delta: float, **others: Any) -> VectorNoise:
        asked.append((epsilon, delta))
        return gaussian_steps(epsilon, delta, **others)

    monkeypatch.setattr(objective_perturbation, "gaussian_steps", record)
    ObjectivePerturbation.plan(RiskFacts(1000, P, LogisticLoss()), releases=3, epsilon=0.1, delta=1e-5)
    for share, part, whole in zip(asked[0], (HIDING_EPSILON, HIDING_DELTA), (0.1, 1e-5), strict=True):
        assert 1 - 1e-14 < 3 * Fraction(share) / Fraction(part) / Fraction(whole) <= 1


def test_refusals() -> None:
    facts = RiskFacts(1000, P, LogisticLoss())
    for mechanism in (OutputPerturbation, ObjectivePerturbation):
        with pytest.raises(PrivacyParameterError, match="convex"):
            mechanism.plan(RiskFacts(1000, P, SigmoidLoss()), **BUDGET)
        with pytest.raises(PrivacyParameterError, match="l1"):
            mechanism.plan(facts, regularizer=lasso(0.1), **BUDGET)


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_proof_is_asked_for_what_the_rounding_of_the_linear_term_leaves(
    monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    """b is drawn as doubles near real numbers, each off by a half unit of its own, or of sigma if smaller."""
    data = logistic_risk()
    risk = EmpiricalRisk(scale * data.X, data.y, LogisticLoss(), row_norm=scale)
    plan = ObjectivePerturbation.plan(risk.facts, **BUDGET)
    asked: list[float] = []
    require = SmoothAnswer.require

    def observed(answer: SmoothAnswer, tolerance: float) -> Vector:
        asked.append(tolerance)
        return require(answer, tolerance)

    monkeypatch.setattr(SmoothAnswer, "require", observed)
    plan.release(risk, NoiseSource(insecure_seed=3))
    b = NoiseSource(insecure_seed=3).gaussian(plan.sigma, P)
    off = 2.0**-53 * float(np.linalg.norm(np.abs(b) + plan.sigma))
    (tolerance,) = asked
    assert off <= plan.tolerance - tolerance <= 64 * off


def test_the_usual_penalty_of_many_records_is_that_without_noise_on_the_minimum() -> None:
    """It weighs the bias against the noise; the noise that hides a tolerance is small beside it."""
    facts, whole = RiskFacts(10_000, 4, LogisticLoss()), WholeSpace(4)
    target = RiskTarget(facts, whole, ElasticNet(), 1.0, 1e-5, 1)
    sigma = ObjectivePerturbation._calibrated(target).sigma
    l2 = ObjectivePerturbation.usual_penalty(target).l2
    assert l2 == pytest.approx(objective_penalty(facts, whole, sigma), rel=0.05)
