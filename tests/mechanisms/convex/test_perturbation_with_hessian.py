"""Objective perturbation with a paid Hessian: sensitivity by brute force, calibration by quadrature."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import chi, norm

from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.convex.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.convex.perturbation_with_hessian import PerturbationWithHessian
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, gaussian_profile
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.shifts import delta_before_gaussian, shift_delta
from privopt.mechanisms.risk.mechanism import RiskTarget
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, WeightedLoss
from privopt.problems.convex.regularizers import ElasticNet, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace

Vector = NDArray[np.float64]
NAME = "objective-perturbation-hessian"
BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5}


def profile(mu: float, epsilon: float) -> float:
    """The integral of (p - exp(epsilon) q)_+ for normal p around mu and q around 0."""

    def excess(x: float) -> float:
        return max(0.0, float(norm.pdf(x - mu)) - math.exp(epsilon) * float(norm.pdf(x)))

    start = max(epsilon / mu + mu / 2, -13.0)
    return float(quad(excess, start, start + 26 + mu, limit=200)[0])


@pytest.mark.parametrize("mu", [0.1, 0.7, 3.0])
@pytest.mark.parametrize("epsilon", [-2.0, -0.1, 0.0, 0.4])
def test_the_profile_of_a_gaussian_at_epsilons_of_any_sign(mu: float, epsilon: float) -> None:
    [found] = gaussian_profile(mu, np.array([epsilon]))
    assert found == pytest.approx(profile(mu, epsilon), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("dof", [1, 2])
@pytest.mark.parametrize(("epsilon", "sigma", "mu"), [(0.7, 6.0, 0.2), (2.0, 3.0, 0.5), (0.2, 15.0, 0.03)])
def test_delta_of_a_perturbation_and_a_gaussian_against_quadrature(
    epsilon: float, sigma: float, mu: float, dof: int
) -> None:
    a = 2.0 / sigma

    def later(t: float) -> float:
        e = epsilon - a * t - a * a / 2
        return float(norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)) * float(
            chi.pdf(t, dof)
        )

    wanted = quad(later, 0, 5, limit=200)[0] + quad(later, 5, 40, limit=200)[0]
    assert wanted <= delta_before_gaussian(epsilon, sigma, 2.0, dof, mu) <= 1.1 * wanted + 1e-12
    alone = shift_delta(epsilon, sigma, 2.0, dof)
    assert delta_before_gaussian(epsilon, sigma, 2.0, dof, 1e-4) == pytest.approx(alone, rel=0.05, abs=1e-12)
    assert delta_before_gaussian(epsilon, sigma, 2.0, dof, 2 * mu) > 1.1 * wanted


@pytest.mark.parametrize(
    ("n", "p", "epsilon", "delta"), [(100, 1, 1.0, 1e-5), (5_000, 4, 0.3, 1e-8), (10**6, 40, 8.0, 1e-12)]
)
@pytest.mark.parametrize("releases", [1, 3])
def test_a_plan_spends_its_claim(n: int, p: int, epsilon: float, delta: float, releases: int) -> None:
    """Its three costs from its noise and the sensitivities of the theory; shares of several releases add."""
    facts = RiskFacts(n, p, LogisticLoss(), 2.0)
    plan = PerturbationWithHessian.plan(facts, epsilon=epsilon, delta=delta, releases=releases)
    assert (plan.spend.epsilon, plan.spend.delta) == (epsilon, delta)
    each, rest = epsilon / releases, 0.9 * delta / releases
    l2 = plan.regularizer.l2
    hidden = gaussian_epsilon(2 * plan.tolerance / l2 / plan.vector_noise.sigma, 0.1 * delta / releases)
    left = each - hidden - math.log1p(facts.smoothness / (n * l2))
    level = math.sqrt(2) * facts.smoothness / n / plan.hessian_noise.vector.sigma
    shift = 2 * facts.gradient_bound / n

    def spent(e: float) -> float:
        return delta_before_gaussian(e, plan.sigma, shift, min(2, p), level)

    assert spent(left * (1 + 1e-6)) <= rest
    assert spent(left * 0.99) > rest
    lighter = dataclasses.replace(plan, sigma=plan.sigma * 0.98)
    assert delta_before_gaussian(left, lighter.sigma, shift, min(2, p), level) > rest


def test_less_noise_than_two_mechanisms_beside_each_other() -> None:
    """Against a Hessian of the same noise that is paid for by basic composition."""
    facts = RiskFacts(5_000, 4, LogisticLoss(), 2.0)
    plan = PerturbationWithHessian.plan(facts, regularizer=ridge(1e-3), **BUDGET)
    level = math.sqrt(2) * facts.smoothness / 5_000 / plan.hessian_noise.vector.sigma
    beside = 1.0 - gaussian_epsilon(level, 0.5e-5)
    other = ObjectivePerturbation.plan(facts, regularizer=ridge(1e-3), epsilon=beside, delta=0.5e-5)
    assert plan.sigma < 0.9 * other.sigma


def hessian(rows: Vector, w: Vector) -> Vector:
    """The mean of s (1 - s) a a', written out."""
    return np.mean([np.outer(a, a) / (2 + 2 * math.cosh(float(a @ w))) for a in rows], axis=0)


def test_one_record_moves_the_hessian_by_no_more_than_the_sensitivity() -> None:
    """Neighbours on the sphere and within it, at random points and at 0, where orthogonal rows attain it."""
    rng, n, radius = np.random.default_rng(0), 5, 3.0
    facts = RiskFacts(n, 3, LogisticLoss(), radius)
    plan = PerturbationWithHessian.plan(facts, **BUDGET)
    bound, largest = plan.hessian_noise.vector.sensitivity, 0.0
    pairs = [(np.eye(3)[0], np.eye(3)[1], np.zeros(3)), (np.eye(3)[0], np.zeros(3), np.zeros(3))]
    for _ in range(300):
        a, b = rng.normal(size=(2, 3))
        a, b = a / np.linalg.norm(a), b / np.linalg.norm(b) * rng.choice([1.0, rng.random()])
        pairs.append((a, b, rng.normal(size=3) * rng.choice([0.0, 0.3, 2.0])))
    others = rng.normal(size=(n - 1, 3)) / 3
    for a, b, w in pairs:
        found = [
            EmpiricalRisk(np.vstack([others, radius * row]), np.ones(n), LogisticLoss(), row_norm=radius)
            for row in (a, b)
        ]
        moved = found[0].hessian(w) - found[1].hessian(w)
        rows = [np.vstack([others, radius * row]) for row in (a, b)]
        assert moved == pytest.approx(hessian(rows[0], w) - hessian(rows[1], w), abs=1e-12)
        largest = max(largest, float(np.linalg.norm(moved)))
    assert 0.999999 * bound <= largest <= bound


def test_the_hessian_is_released_with_the_noise_that_it_states() -> None:
    """The point is fixed by the penalty: the mean and deviation of 400 Hessians, within five errors."""
    rng = np.random.default_rng(1)
    risk = EmpiricalRisk(rng.normal(size=(50, 2)) / 3, rng.choice([-1.0, 1.0], 50), LogisticLoss())
    plan = PerturbationWithHessian.plan(risk.facts, regularizer=ridge(1e4), **BUDGET)
    found = [plan.release(risk, NoiseSource(seed)).minimum for seed in range(400)]
    noises = np.array([one.hessian - risk.hessian(one.weights) for one in found if one is not None])
    sigma = plan.hessian_noise.vector.sigma
    for i, j in ((0, 0), (1, 1), (0, 1)):
        deviation = sigma if i == j else sigma / math.sqrt(2)
        assert np.std(noises[:, i, j]) == pytest.approx(deviation, rel=5 / math.sqrt(800))
        assert abs(np.mean(noises[:, i, j])) <= 5 * deviation / 20
    one = found[0]
    assert one is not None
    stated = (one.l2, one.tilt, one.blur, one.sigma, one.n_records)
    assert stated == (1e4, plan.sigma, plan.vector_noise.sigma, sigma, 50)
    assert plan.noise["hessian_sigma"] == sigma


def test_what_has_no_intervals_is_refused_before_data() -> None:
    facts = RiskFacts(100, 3, LogisticLoss())
    for other in (HuberLoss(1.0), WeightedLoss(LogisticLoss(), 2.0)):
        with pytest.raises(PrivacyParameterError, match="logistic loss without class weights"):
            PerturbationWithHessian.plan(dataclasses.replace(facts, loss=other), **BUDGET)
    with pytest.raises(PrivacyParameterError, match="takes no constraint"):
        PerturbationWithHessian.plan(facts, L2Ball(3, 1.0), **BUDGET)
    with pytest.raises(PrivacyParameterError, match="1,000 features"):
        PerturbationWithHessian.plan(dataclasses.replace(facts, dimension=1_001), **BUDGET)


def test_point_and_hessian_are_one_booking_that_is_made_before_data(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    X, y = rng.uniform(-1, 1, (200, 2)), rng.integers(0, 2, 200)
    ledger = Ledger.create(tmp_path / "ledger.db", epsilon=1.5, delta=1e-3)
    facts: dict[str, Any] = {"data_norm": 1.5, "classes": (0, 1), "ledger": ledger, "mechanism": NAME}
    model = PrivateLogisticRegression(1.0, **facts).fit(X, y)
    assert model.spend_.epsilon == 1.0
    assert len(ledger.entries()) == 1
    assert ledger.total().epsilon == pytest.approx(1.0)
    with pytest.raises(BudgetExceededError):
        PrivateLogisticRegression(1.0, **facts).fit(X, y)
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("epsilon", [0.25, 4.0])
def test_the_usual_penalty_of_few_records_costs_a_tenth_of_epsilon_in_determinants(epsilon: float) -> None:
    """A record multiplies the determinant by at most 1 + L / (n l2) at each minimum, L the smoothness."""
    facts = RiskFacts(100, 4, LogisticLoss())
    target = RiskTarget(facts, WholeSpace(4), ElasticNet(), epsilon, 1e-5, 1)
    l2 = PerturbationWithHessian.usual_penalty(target).l2
    share = math.log1p(facts.smoothness / (facts.n_records * l2))
    assert share == pytest.approx(epsilon / 10)
