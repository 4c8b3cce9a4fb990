"""Poisson-sampled mechanisms: sampling, accounting, and textbook algorithms without noise."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.stats import beta, binom, chisquare, norm

from privopt.mechanisms.convex.stochastic_gradient import DPStochasticGradient
from privopt.mechanisms.convex.svrg import DPSVRG, DPSVRGPlusPlus, permitted_rounds
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, gaussian_steps
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.poisson import (
    continuous_delta,
    poisson_batch,
    poisson_multiplier,
    sampled_noise,
)
from privopt.mechanisms.risk.iteration import Output, choose_output
from privopt.mechanisms.risk.step_counts import loss_range
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SigmoidLoss, SquaredLoss
from privopt.problems.convex.regularizers import ElasticNet, lasso, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from tests.mechanisms.privacy.composition import poisson_epsilon

Vector = NDArray[np.float64]
P = 5
BUDGET = {"epsilon": 1.0, "delta": 1e-5}


def logistic_risk(n: int = 600, seed: int = 0) -> EmpiricalRisk:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, P)) / 3
    y = np.where(X @ [3.0, -2, 0, 1, 0] + 0.5 * rng.standard_normal(n) > 0, 1, -1)
    return EmpiricalRisk(X, y, LogisticLoss())


def minimum(risk: EmpiricalRisk, regularizer: ElasticNet) -> float:
    found = minimize(
        lambda w: risk.value(w) + regularizer.value(w),
        np.zeros(P),
        jac=lambda w: risk.gradient(w) + regularizer.l2 * w,
        options={"gtol": 1e-10},
    )
    return float(found.fun)


def test_a_batch_is_a_poisson_sample() -> None:
    """Sizes are binomial, indices uniform; a probability that is off by 10% is rejected."""
    source, n, q, runs = NoiseSource(insecure_seed=1), 200, 0.07, 4000
    batches = [poisson_batch(n, q, source) for _ in range(runs)]
    for batch in batches[:50]:
        assert np.all(np.diff(batch) > 0)
        assert batch.size == 0 or (batch[0] >= 0 and batch[-1] < n)
    edges = np.arange(6, 24)

    def p_value(probability: float) -> float:
        law = np.diff(np.r_[0, binom.cdf(edges, n, probability), 1])
        sizes = np.searchsorted(edges, [b.size for b in batches])
        return float(chisquare(np.bincount(sizes, minlength=len(law)), runs * law).pvalue)

    assert p_value(q) > 1e-3
    assert p_value(q * 1.1) < 1e-6
    hits = np.bincount(np.concatenate(batches), minlength=n)
    assert chisquare(hits).pvalue > 1e-3
    together = sum(1 for b in batches if {3, 4} <= set(b.tolist()))  # neighbours in the order are independent
    assert abs(together - runs * q * q) < 4 * math.sqrt(runs) * q
    np.testing.assert_array_equal(poisson_batch(5, 1.0, source), np.arange(5))


def test_without_sampling_the_accountant_agrees_with_the_exact_gaussian() -> None:
    """Canary for the meaning of REPLACE_ONE: noise z C against a shift of 2 C."""
    for z, T in ((22.745, 200), (5.0, 3)):
        exact = gaussian_epsilon(2 * math.sqrt(T) / z, 1e-3)
        assert poisson_epsilon(z, q=1.0, steps=T, delta=1e-3) == pytest.approx(exact, rel=2e-3)
    assert poisson_epsilon(22.745, q=1.0, steps=200, delta=1e-3) == pytest.approx(4.119, abs=5e-3)


def hockey_stick(epsilon: float, z: float, q: float, a: Vector, b: Vector) -> float:
    """delta between (1-q) N(0, z^2) + q N(a, z^2) and the same with b, in the plane, by quadrature."""
    t = np.linspace(-9 * z - 1, 9 * z + 1, 201)

    def density(c: Vector) -> Vector:
        at = lambda u, v: np.outer(norm.pdf(t - v, scale=z), norm.pdf(t - u, scale=z))  # noqa: E731
        return np.asarray((1 - q) * at(0.0, 0.0) + q * at(*c))

    return float(np.sum(np.maximum(density(a) - math.exp(epsilon) * density(b), 0)) * (t[1] - t[0]) ** 2)


@pytest.mark.parametrize(("z", "q", "epsilon"), [(0.8, 0.1, 0.3), (1.5, 0.5, 0.3), (3.0, 0.02, 0.01)])
def test_opposite_contributions_are_the_worst_pair(z: float, q: float, epsilon: float) -> None:
    """The pair behind REPLACE_ONE dominates contributions at any angle and of any shorter length."""
    worst = hockey_stick(epsilon, z, q, np.array([1.0, 0]), np.array([-1.0, 0]))
    for angle in np.linspace(0, math.pi, 5):
        for length in (0.3, 1.0):
            other = length * np.array([math.cos(angle), math.sin(angle)])
            assert hockey_stick(epsilon, z, q, np.array([1.0, 0]), other) <= worst + 1e-12
            assert hockey_stick(epsilon, z, q, other, np.array([1.0, 0])) <= worst + 1e-12
    # And the accountant gives that pair's epsilon: delta(epsilon) = worst <=> epsilon(worst) = epsilon.
    assert poisson_epsilon(z, q=q, steps=1, delta=worst) == pytest.approx(epsilon, abs=2e-3)


def test_multiplier_meets_the_target_and_is_not_wasteful() -> None:
    for q, steps in ((0.01, 1000), (0.2, 50), (1.0, 10)):
        z = poisson_multiplier(1.0, 1e-5, q=q, steps=steps, coordinates=steps * P)
        assert poisson_epsilon(z, q=q, steps=steps, delta=1e-5) <= 1.0 + 1e-9
        assert poisson_epsilon(z * 0.99, q=q, steps=steps, delta=1e-5) > 1.0
    with_full = poisson_multiplier(1.0, 1e-5, q=0.01, steps=1000, coordinates=1, full_z=30.0, full_steps=5)
    assert with_full > poisson_multiplier(1.0, 1e-5, q=0.01, steps=1000, coordinates=1)
    with pytest.raises(PrivacyParameterError, match="sampling probability"):
        poisson_multiplier(1.0, 1e-5, q=0.0, steps=1, coordinates=1)
    with pytest.raises(PrivacyParameterError, match="alone"):
        poisson_multiplier(0.5, 1e-5, q=0.01, steps=5, coordinates=1, full_z=1.0, full_steps=5)


def test_less_noise_than_a_sixth_is_not_searched_for() -> None:
    """Of 10^18 records a batch holds 2,000: any noise does, and less of it takes ever finer distributions."""
    assert poisson_multiplier(1.0, 1e-6, q=2e-15, steps=2, coordinates=4) > 0.2 / 1.2 / 1.02


def test_the_grid_is_paid_for_out_of_delta() -> None:
    """(1 + e^epsilon) times the total variation distance of a release on the grid from a continuous one."""
    each = 4.0**-30 / 32  # per coordinate, with 2^30 grid steps in sigma
    assert continuous_delta(2.0, 1e-10, coordinates=10**6) == pytest.approx(
        1e-10 - (1 + math.exp(2)) * 1e6 * each, rel=1e-12
    )
    with pytest.raises(PrivacyParameterError, match="too small"):
        continuous_delta(50.0, 1e-12, coordinates=100_000)


def test_sampled_noise_covers_the_bound_and_the_grid() -> None:
    noise = sampled_noise(2.0, 3.0, 10_000)
    grid = noise.sigma * 2.0**-30
    assert noise.sigma / (3.0 + math.sqrt(10_000) * grid) >= 2.0
    assert noise.sigma == pytest.approx(6.0, rel=1e-6)


def test_full_batches_without_noise_are_proximal_gradient_descent() -> None:
    risk = logistic_risk()
    plan = DPStochasticGradient.plan(
        risk.facts, regularizer=lasso(0.01), **BUDGET, steps=7, batch=600, output=Output.LAST
    )
    assert plan.sampling == 1.0
    w, eta = np.zeros(P), plan.step_size
    for _ in range(7):
        w = w - eta * risk.gradient(w)
        w = np.sign(w) * np.maximum(np.abs(w) - eta * 0.01, 0)
    np.testing.assert_allclose(plan.without_noise(risk), w, rtol=1e-9)


@pytest.mark.parametrize("mechanism", [DPSVRG, DPSVRGPlusPlus])
def test_full_batches_make_svrg_exact_gradient_steps(mechanism: type[DPSVRG]) -> None:
    """With q = 1 the difference cancels the anchor: inner steps are proximal gradient steps."""
    risk = logistic_risk()
    plan = mechanism.plan(risk.facts, regularizer=ridge(0.1), **BUDGET, rounds=(4, 6), batch=600)
    eta = plan.step_size
    x = np.zeros(P)
    for m in (4, 6):
        path = []
        for _ in range(m):
            x = (x - eta * risk.gradient(x)) / (1 + eta * 0.1)
            path.append(x)
        average = np.mean(path, axis=0)
        x = average if mechanism is DPSVRG else path[-1]
    np.testing.assert_allclose(plan.without_noise(risk), average, rtol=1e-9)


def test_svrg_without_noise_converges() -> None:
    risk, penalty = logistic_risk(), ridge(0.05)
    best = minimum(risk, penalty)
    plans = [
        DPSVRG.plan(risk.facts, regularizer=penalty, **BUDGET, rounds=(40,) * epochs, batch=40)
        for epochs in (2, 6)
    ]
    gaps = [risk.value(w) + penalty.value(w) - best for w in (p.without_noise(risk) for p in plans)]
    assert gaps[1] < gaps[0] / 100
    assert gaps[1] < 1e-6
    doubling = [tuple(8 * 2**s for s in range(epochs)) for epochs in (3, 6)]
    plus = [
        DPSVRGPlusPlus.plan(risk.facts, **BUDGET, rounds=r, batch=40).without_noise(risk) for r in doubling
    ]
    early, late = (risk.value(w) - minimum(risk, ElasticNet()) for w in plus)
    assert late < early / 2


def test_bound_on_a_record_difference_holds_for_every_record() -> None:
    risk = logistic_risk()
    rng = np.random.default_rng(1)
    for scale in (1e-6, 0.1, 100.0):
        x, anchor = rng.standard_normal((2, P)) * scale
        public = min(2 * risk.facts.gradient_bound, risk.facts.smoothness * np.linalg.norm(x - anchor))
        sizes = [np.linalg.norm(risk.difference_sum(x, anchor, np.array([i]))) for i in range(200)]
        assert max(sizes) <= public * (1 + 1e-6)


def test_svrg_noise_follows_the_distance_from_the_anchor() -> None:
    n, p = 400, 4000
    risk = EmpiricalRisk(np.eye(n, p), np.ones(n), LogisticLoss())
    plan = DPSVRG.plan(risk.facts, regularizer=ridge(0.1), **BUDGET, rounds=(3,), batch=n)
    anchor = np.zeros(p)
    for distance in (0.01, 1.0, 1e6):
        x = np.zeros(p)
        x[0] = distance
        source = NoiseSource(insecure_seed=2)
        noise = source.discrete_gaussian_vectors(MAX_EXPONENT, p, 1)
        estimate = plan._difference(risk, anchor, source, noise)
        bound = min(2.0, 0.25 * distance)
        assert np.std(estimate(x)[1:]) * n == pytest.approx(plan.multiplier * bound, rel=0.1)
    assert not np.any(plan._difference(risk, anchor, NoiseSource(), iter(()))(anchor))


def test_defaults_release_something_sensible() -> None:
    risk = logistic_risk(n=1500)
    ball = L2Ball(P, 3.0)
    start = risk.value(np.zeros(P))
    for mechanism, penalty in (
        (DPStochasticGradient, ElasticNet()),
        (DPSVRG, ridge(0.05)),
        (DPSVRGPlusPlus, ElasticNet()),
    ):
        plan = mechanism.plan(risk.facts, ball, penalty, epsilon=4.0, delta=1e-6)
        released = plan.release(risk, NoiseSource(insecure_seed=3))
        assert ball.contains(released.point)
        assert risk.value(released.point) < start - 0.05
        assert released.spend.epsilon == 4.0


def test_noise_of_inner_steps_stays_a_fraction_of_the_distance_gone() -> None:
    """A step away from the anchor, where nothing pulls: |x - anchor|^2 grows by up to e, and about that."""
    n, p = 3_000, 300
    risk = EmpiricalRisk(np.eye(n, p), np.ones(n), SquaredLoss(1e6))
    facts, mu = risk.facts, gaussian_mu(1.0, 1e-6) / math.sqrt(2)
    eta = 1 / (2 * facts.smoothness)
    (m,) = permitted_rounds((1,), facts, mu / facts.sensitivity, eta)
    plan = DPSVRG.plan(facts, epsilon=1.0, delta=1e-6, rounds=(m,), batch=n // 4)
    plan = dataclasses.replace(
        plan, multiplier=poisson_multiplier(1.0 / math.sqrt(2), 1e-6, q=0.25, steps=m, coordinates=1)
    )
    anchor, growth = np.zeros(p), []
    for seed in range(10):
        source = NoiseSource(insecure_seed=seed)
        estimate = plan._difference(
            risk, anchor, source, source.discrete_gaussian_vectors(MAX_EXPONENT, p, m)
        )
        x = np.ones(p) / math.sqrt(p)
        for _ in range(m):
            noise_only = estimate(x) - risk.difference_sum(x, anchor, np.arange(n)) / n
            x = x - eta * noise_only
        growth.append(float(x @ x))
    assert 1.5 < np.mean(growth) < 1.3 * math.e


def test_default_rounds_follow_the_theorem_where_noise_is_small_and_stay_few() -> None:
    plan = DPSVRG.plan(RiskFacts(10**7, P, LogisticLoss()), regularizer=ridge(0.1), **BUDGET)
    assert set(plan.rounds) == {math.ceil(8 * 0.25 / 0.1)}
    signal = 2 * 0.1 * loss_range(plan.facts, plan.convex_set) * 10**14 / (4 * P)
    assert len(plan.rounds) == math.ceil(math.log(signal * gaussian_mu(1.0, 1e-5) ** 2))
    assert plan.regularizer == ridge(0.1)
    for n, d in ((20, 10**6), (10**6, 3), (10**9, 100)):
        for mechanism in (DPSVRG, DPSVRGPlusPlus):
            facts = RiskFacts(n, d, LogisticLoss())
            rounds = mechanism.plan(facts, epsilon=0.1, delta=1e-9).rounds
            assert sum(rounds) < 8_000
            assert mechanism is DPSVRG or all(b >= a for a, b in pairwise(rounds))


def test_svrg_without_a_penalty_has_one_that_balances_its_noise() -> None:
    strengths = [
        DPSVRG.plan(RiskFacts(n, P, LogisticLoss()), regularizer=lasso(0.01), **BUDGET).regularizer
        for n in (1_000, 10_000)
    ]
    assert strengths[0].l2 > strengths[1].l2 > 0
    assert {r.l1 for r in strengths} == {0.01}
    assert DPSVRGPlusPlus.plan(RiskFacts(1_000, P, LogisticLoss()), **BUDGET).regularizer.l2 == 0


@pytest.mark.parametrize("runs", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_default_svrg_comes_close_to_the_minimum(runs: int) -> None:
    """On a task that its rules were not chosen on. A ridge penalty of 1% of L, say, keeps it away."""
    risk = logistic_risk(n=20_000, seed=7)
    best, start = minimum(risk, ElasticNet()), risk.value(np.zeros(P))

    def share_left(mechanism: type[DPSVRG], penalty: ElasticNet) -> float:
        plan = mechanism.plan(risk.facts, regularizer=penalty, **BUDGET)
        points = [plan.release(risk, NoiseSource(insecure_seed=s)).point for s in range(runs)]
        return float(np.mean([risk.value(w) for w in points]) - best) / (start - best)

    assert share_left(DPSVRG, ElasticNet()) < 0.01
    assert share_left(DPSVRGPlusPlus, ElasticNet()) < 0.02
    assert share_left(DPSVRG, ridge(0.01 * risk.facts.smoothness)) > 0.02


@pytest.mark.parametrize("mechanism", [DPSVRG, DPSVRGPlusPlus])
def test_releases_that_share_a_budget_are_noised_like_one_long_run(mechanism: type[DPSVRG]) -> None:
    facts = RiskFacts(1_000, P, LogisticLoss())
    shared = mechanism.plan(facts, **BUDGET, rounds=(20, 20), batch=100, releases=4)
    alone = mechanism.plan(facts, **BUDGET, rounds=(20,) * 8, batch=100)
    assert shared.multiplier == pytest.approx(alone.multiplier, rel=1e-9)
    assert shared.anchor_noise.sigma == pytest.approx(alone.anchor_noise.sigma, rel=1e-9)


def test_sampled_releases_that_share_a_budget_are_noised_like_one_long_run() -> None:
    facts = RiskFacts(1_000, P, LogisticLoss())
    shared = DPStochasticGradient.plan(facts, **BUDGET, steps=30, batch=100, releases=4)
    alone = DPStochasticGradient.plan(facts, **BUDGET, steps=120, batch=100)
    single = DPStochasticGradient.plan(facts, **BUDGET, steps=30, batch=100)
    assert shared.vector_noise.sigma == pytest.approx(alone.vector_noise.sigma, rel=1e-9)
    assert shared.vector_noise.sigma > 1.2 * single.vector_noise.sigma
    assert shared.steps == 30


@pytest.mark.parametrize("releases", [1, 3])
def test_every_coordinate_that_is_noised_on_the_grid_is_paid_for(releases: int) -> None:
    """A million features: so many draws are too far from continuous ones for this delta, and are counted."""
    facts, tiny = RiskFacts(1_000, 10**6, LogisticLoss()), {"epsilon": 1.0, "delta": 1e-12}
    numbers = {
        DPStochasticGradient: ({"steps": 50}, 50),
        DPSVRG: ({"rounds": (20, 30), "regularizer": ridge(0.1)}, 52),  # and a full gradient for each epoch
        DPSVRGPlusPlus: ({"rounds": (20, 30)}, 52),
    }
    for mechanism, (options, vectors) in numbers.items():
        with pytest.raises(PrivacyParameterError, match=f" {vectors * releases * 10**6} draws"):
            mechanism.plan(facts, **tiny, **options, batch=100, releases=releases)


@pytest.mark.parametrize("mechanism", [DPSVRG, DPSVRGPlusPlus])
def test_default_rounds_of_absurd_facts_are_finite(mechanism: type[DPSVRG]) -> None:
    for row_norm in (1e-60, 1.0, 1e80):
        for space in (WholeSpace(2), L2Ball(2, 1e-200), Box([0.0, 0.0], [0.0, 0.0])):
            for l2 in (0.0, 5e-324, 1e300):
                facts = RiskFacts(50, 2, LogisticLoss(), row_norm)
                regularizer, rounds = mechanism._theorem(facts, space, ElasticNet(l2=l2), 3.0 / row_norm)
                assert 1 <= len(rounds) <= 5_000
                assert sum(rounds) < 15_000
                assert math.isfinite(regularizer.l2)


def test_a_strong_penalty_shortens_doubling_epochs() -> None:
    facts = RiskFacts(50_000, P, LogisticLoss())
    weak, strong = (DPSVRGPlusPlus.plan(facts, regularizer=ridge(l2), **BUDGET) for l2 in (1e-6, 1.0))
    assert sum(strong.rounds) < sum(weak.rounds) / 3


def test_refusals() -> None:
    facts = RiskFacts(1000, P, LogisticLoss())
    with pytest.raises(PrivacyParameterError, match="convex"):
        DPSVRGPlusPlus.plan(RiskFacts(1000, P, SigmoidLoss()), **BUDGET)
    with pytest.raises(PrivacyParameterError, match="dimension"):
        DPStochasticGradient.plan(facts, L2Ball(P + 1, 1.0), **BUDGET)


@pytest.mark.slow
def test_audit_of_sampled_steps_accepts_the_plan_and_rejects_a_third_of_the_noise() -> None:
    """One record of constant slope, flipped; Clopper-Pearson at 99.9% on held-out runs."""
    X, y = np.ones((1, 1)), np.array([1e9])
    risks = [EmpiricalRisk(X, s * y, HuberLoss(1.0)) for s in (1, -1)]
    plan = DPStochasticGradient(
        *_sgd_fields(risks[0].facts, epsilon=1.5, delta=1e-3, q=0.5, steps=3),
    )
    quiet = dataclasses.replace(plan.vector_noise, sigma=plan.vector_noise.sigma / 3)
    mutant = dataclasses.replace(plan, vector_noise=quiet)
    bounds = []
    for mechanism in (plan, mutant):
        source = NoiseSource(insecure_seed=4)
        a, b = (np.array([mechanism.release(r, source).point[0] for _ in range(10_000)]) for r in risks)
        threshold = np.quantile(b[:5000], 0.9)
        hits_a, hits_b = np.sum(a[5000:] > threshold), np.sum(b[5000:] > threshold)
        low = beta.ppf(0.0005, hits_a, 5000 - hits_a + 1)
        high = beta.ppf(0.9995, hits_b + 1, 5000 - hits_b)
        bounds.append(math.log((low - 1e-3) / high))
    assert bounds[0] <= 1.5
    assert bounds[1] > 1.5


def _sgd_fields(
    facts: RiskFacts, *, epsilon: float, delta: float, q: float, steps: int
) -> tuple[object, ...]:
    """The fields of a plan with a sampling probability that no integer batch of one record gives."""
    plan = DPStochasticGradient.plan(
        facts, epsilon=epsilon, delta=delta, steps=steps, batch=1, output=Output.LAST
    )
    z = poisson_multiplier(epsilon, delta, q=q, steps=steps, coordinates=steps)
    noise = sampled_noise(z, facts.gradient_bound, 1)
    return (
        plan.facts,
        plan.convex_set,
        plan.regularizer,
        plan.spend,
        plan.steps,
        plan.output,
        q,
        noise,
        plan.step_size,
    )


def test_differences_shrink_with_the_distance_for_float32_data_too() -> None:
    """The noise of DP-SVRG follows L |x - anchor| down; float32 predictions stop following near 1e-7."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 50)).astype(np.float32)
    risk = EmpiricalRisk(X, rng.choice([-1.0, 1.0], 300), LogisticLoss())
    anchor, direction = rng.standard_normal(50), rng.standard_normal(50)
    x = anchor + 1e-7 * direction / np.linalg.norm(direction)
    bound = risk.facts.smoothness * float(np.linalg.norm(x - anchor))
    for i in range(300):
        assert np.linalg.norm(risk.difference_sum(x, anchor, np.array([i]))) <= bound


def test_default_batches_cost_neither_privacy_nor_a_full_pass() -> None:
    """Noise per step is that of as many steps on all records, calibrated exactly, to a few percent."""
    for n, d, epsilon in ((32_561, 109, 0.1), (32_561, 109, 3.0), (10_000, 10, 1.0), (200, 3, 1.0)):
        facts = RiskFacts(n, d, LogisticLoss())
        plan = DPStochasticGradient.plan(facts, epsilon=epsilon, delta=1 / n**2)
        full = gaussian_steps(epsilon, 1 / n**2, steps=plan.steps, sensitivity=facts.sensitivity, dimension=d)
        assert full.sigma * 0.99 < plan.noise["sigma"] < full.sigma * 1.06
        assert plan.sampling < 0.02 or n <= 10_000
        assert plan.sampling * plan.steps < 50
        assert plan.output is Output.WEIGHTED


def test_more_steps_than_needed_are_shorter_and_go_as_far() -> None:
    facts = RiskFacts(5_000, P, LogisticLoss())
    plans = [DPStochasticGradient.plan(facts, **BUDGET, steps=T, batch=200) for T in (1_000, 4_000)]
    lengths = [plan.steps * plan.step_size for plan in plans]
    assert lengths[1] == pytest.approx(lengths[0], rel=0.15)
    short = DPStochasticGradient.plan(facts, **BUDGET, steps=5)
    assert short.step_size == 1 / facts.smoothness


def test_weighted_average_counts_late_iterates_more() -> None:
    points = [np.array([1.0, 0]), np.array([0, 1.0]), np.array([0, 5.0])]
    np.testing.assert_allclose(choose_output(iter(points), Output.WEIGHTED, points[0]), [1 / 6, 17 / 6])
    np.testing.assert_allclose(choose_output(iter(points), Output.AVERAGE, points[0]), [1 / 3, 2])
    np.testing.assert_array_equal(choose_output(iter([]), Output.WEIGHTED, points[0]), points[0])


def test_noise_drawn_ahead_is_one_fresh_draw_per_step() -> None:
    d, steps = 3_000, 12  # more than are drawn at a time
    drawn = list(NoiseSource().discrete_gaussian_vectors(MAX_EXPONENT, d, steps))
    assert len(drawn) == steps
    together = np.stack(drawn) / 2.0**MAX_EXPONENT
    # Correlation of independent vectors: standard deviation 1 / sqrt(d).
    correlation = np.corrcoef(together)
    assert np.abs(correlation[np.triu_indices(steps, 1)]).max() < 5 / math.sqrt(d)
    assert np.std(together) == pytest.approx(1, abs=5 / math.sqrt(2 * d * steps))
    add = VectorNoise(1.0, 2.0, d).adder(NoiseSource(), 2)
    first, second = add(np.zeros(d)), add(np.ones(d)) - 1
    assert not np.array_equal(first, second)
    with pytest.raises(StopIteration):
        add(np.zeros(d))
