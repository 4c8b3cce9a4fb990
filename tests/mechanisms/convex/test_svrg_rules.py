"""DP-SVRG's defaults are what its docstrings say: shares of the budget, batches, epochs, steps."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq, minimize

from privopt.mechanisms.convex.svrg import (
    DPSVRG,
    DPSVRGPlusPlus,
    anchor_weights,
    noise_growth,
    permitted_rounds,
)
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.risk.sampling import private_batch
from privopt.mechanisms.risk.step_counts import loss_range, typical_distance
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace

DELTA = 1e-5
FACTS = RiskFacts(3000, 4, LogisticLoss(), row_norm=3.0)
BALL = L2Ball(4, 2.0)
KINDS = [DPSVRG, DPSVRGPlusPlus]


@pytest.mark.parametrize("kind", KINDS)
def test_anchors_take_their_share_of_the_budget_and_steps_are_the_theorems(kind: Any) -> None:
    """The full gradients of three releases are mu_a-GDP together with mu_a^2 = share mu^2. L = 9 / 4."""
    plan = kind.plan(FACTS, BALL, epsilon=1.0, delta=DELTA, rounds=(5, 10), batch=60, releases=3)
    moved = 2 * FACTS.gradient_bound / FACTS.n_records
    together = math.sqrt(2 * 3) * moved / plan.anchor_noise.sigma
    share, factor = {DPSVRG: (2 / 3, 2), DPSVRGPlusPlus: (1 / 2, 13)}[kind]
    assert together == pytest.approx(math.sqrt(share) * gaussian_mu(1.0, DELTA), rel=1e-6)
    assert plan.schedule["step_sizes"] == pytest.approx((1 / (factor * 2.25),) * 2, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS[:1])
def test_batches_read_as_much_as_full_gradients_do_unless_noise_wants_more(kind: Any) -> None:
    few, many = (
        kind.plan(FACTS, BALL, epsilon=epsilon, delta=DELTA, rounds=(20, 20)) for epsilon in (0.1, 8.0)
    )
    for plan, epsilon in ((few, 0.1), (many, 8.0)):
        batches = gaussian_mu(epsilon, DELTA) * math.sqrt(1 - kind.anchor_share)
        least = private_batch(FACTS, 40, batches)
        expected = max(least, 2 * FACTS.n_records / 40)
        assert plan.sampling * FACTS.n_records == pytest.approx(expected, abs=1)
    assert few.sampling == pytest.approx(2 / 40, rel=0.01)
    assert many.sampling > 1.5 * few.sampling


@pytest.mark.parametrize("kind", KINDS)
def test_epochs_end_before_noise_stretches_the_distance_by_e(kind: Any) -> None:
    """The noise of M batches, together mu-GDP, adds up to at most 1 in the log over the longest epoch."""
    calm = RiskFacts(200_000, 4, LogisticLoss())
    for facts, epsilon in ((calm, 1.0), (calm, 0.1), (FACTS, 1.0)):
        mu, rate = gaussian_mu(epsilon, DELTA) / facts.sensitivity, kind._default_step_size(facts)
        _, rounds = kind._theorem(facts, BALL, ridge(0.02), mu)
        mu *= math.sqrt(1 - kind.anchor_share)
        longest = max(rounds) - 1  # rounded up
        growth = noise_growth(facts, mu, rate) * longest * (sum(rounds) - len(rounds))
        assert growth <= 1.0 or max(rounds) == 2
        if max(rounds) > 2 and sum(rounds) < 3000:  # and no sooner, or where the theorem ends
            more = noise_growth(facts, mu, rate) * (longest + 1) * sum(rounds)
            assert more >= 1.0 or max(rounds) >= min(8 * facts.smoothness / 0.02, 5000)
        # The growth is what noise of that size adds, per step, by its definition.
        noise = facts.smoothness * math.sqrt(sum(rounds)) / (facts.gradient_bound * mu)
        stretched = facts.dimension * (rate * noise) ** 2  # of E |x - anchor|^2 = 1, in one step
        assert stretched == pytest.approx(noise_growth(facts, mu, rate) * sum(rounds))


def test_epochs_are_alike_or_double() -> None:
    calm = RiskFacts(200_000, 4, LogisticLoss())
    mu = gaussian_mu(1.0, DELTA) / calm.sensitivity
    _, alike = DPSVRG._theorem(calm, BALL, ridge(0.02), mu)
    assert len(set(alike)) == 1
    _, double = DPSVRGPlusPlus._theorem(calm, BALL, ridge(0.0), mu)
    assert len(double) > 2
    np.testing.assert_allclose(np.array(double[1:]), 2 * np.array(double[:-1]), atol=2)


@pytest.mark.parametrize("radius", [1 / 8, 1.0, 64.0])
def test_epochs_halve_the_excess_risk_down_to_the_noise(radius: float) -> None:
    """Noise of deviation 1 / mu in each coordinate, over the distance to the optimum."""
    calm, ball = RiskFacts(200_000, 4, LogisticLoss()), L2Ball(4, radius)
    mu = gaussian_mu(0.01, DELTA) / calm.sensitivity
    _, rounds = DPSVRGPlusPlus._theorem(calm, ball, ridge(0.0), mu)
    cost = 2 / mu * typical_distance(calm, ball)  # sqrt(d) = 2
    assert 2 ** (len(rounds) - 1) < loss_range(calm, ball) / cost <= 2 ** len(rounds)


def test_each_of_several_releases_runs_as_one_with_its_share_of_the_budget_would() -> None:
    half = gaussian_mu(1.0, DELTA) / 2
    epsilon = float(brentq(lambda e: gaussian_mu(e, DELTA) - half, 0.1, 1.0, xtol=1e-12))
    for kind in KINDS[:1]:
        alone: Any = kind.plan(FACTS, BALL, epsilon=epsilon, delta=DELTA)
        four: Any = kind.plan(FACTS, BALL, epsilon=1.0, delta=DELTA, releases=4)
        assert four.rounds == alone.rounds
        assert four.sampling == pytest.approx(alone.sampling, rel=1e-3)
        assert four.regularizer.l2 == pytest.approx(alone.regularizer.l2, rel=1e-6)
        assert four.anchor_noise.sigma == pytest.approx(alone.anchor_noise.sigma, rel=1e-6)


def test_anchors_are_noisier_than_what_the_steps_of_gradient_descent_average_to() -> None:
    """Each has a part of the share of one release at the whole budget: why dp-sgd is ahead."""
    facts = RiskFacts(4_000, 20, LogisticLoss())
    plan = DPSVRG.plan(facts, regularizer=ridge(0.01), epsilon=1.0, delta=1e-6)
    one = facts.sensitivity / gaussian_mu(1.0, 1e-6)
    parts = np.array([(one / noise.sigma) ** 2 for noise in plan.anchor_noises])
    assert len(parts) == len(plan.rounds) >= 5
    assert parts.sum() == pytest.approx(DPSVRG.anchor_share, rel=1e-3)
    assert parts[-1] < DPSVRG.anchor_share / 1.5
    assert plan.noise["anchor_sigma"] == plan.anchor_noises[-1].sigma


def test_unequal_anchors_spend_no_more_than_equal_ones() -> None:
    """Adaptive Gaussian releases compose to the root of their squared levels, whatever their order."""
    one = DPSVRG.plan(FACTS, None, ridge(0.02), epsilon=2.0, delta=DELTA, rounds=(3, 9, 7))
    for rounds in ((3, 90, 7), (300,) * 9):
        plan = dataclasses.replace(one, rounds=rounds)
        noises = plan.anchor_noises
        assert len({noise.sigma for noise in noises}) > 1
        assert {noise.sensitivity for noise in noises} == {plan.anchor_noise.sensitivity}
        together = math.hypot(*[noise.level(1) for noise in noises])
        assert 0.9999 * plan.anchor_noise.level(len(rounds)) <= together
        assert together <= plan.anchor_noise.level(len(rounds))


def test_weights_of_anchors_minimise_what_their_noise_costs_at_the_end() -> None:
    """sum over anchors of s_e times the product of later c^2, at a given sum of 1 / s_e; c from the steps."""
    rounds, l2, eta = (40, 10, 60, 25), 0.05, 0.3
    weights = anchor_weights(FACTS, BALL, ridge(l2), rounds, eta, 1e-9)
    assert weights.mean() == pytest.approx(1.0)
    contracted = [np.mean((1 + eta * l2) ** -np.arange(1.0, m + 1)) for m in rounds]
    later = np.array([np.prod(contracted[e + 1 :]) for e in range(4)])

    def cost(logs: Any) -> float:
        shares = np.exp(logs) / np.exp(logs).sum() * 4
        return float(np.sum(later**2 / shares))

    best = minimize(cost, np.zeros(4), tol=1e-12)
    assert cost(np.log(weights)) == pytest.approx(best.fun, rel=1e-6)
    assert cost(np.log(weights)) < cost(np.zeros(4))


def test_an_early_anchor_costs_at_most_the_range_of_the_loss() -> None:
    """p s / (2 l2) <= range, but for the sum of the weights, which is at most twice the largest here."""
    l2, sigma = 0.5, 0.02
    weights = anchor_weights(FACTS, WholeSpace(4), ridge(l2), (200,) * 12, 0.5, sigma)
    range_, total = loss_range(FACTS, WholeSpace(4)), weights.sum() / weights.max()
    assert weights[0] == weights[1]
    costs = 4 * sigma**2 / weights / (2 * l2)
    assert costs.max() == pytest.approx(total * range_, rel=1e-9)
    assert total < 2


def test_an_early_anchor_keeps_a_level_that_a_grid_can_hold() -> None:
    """With a penalty so large that hardly anything is left of it, too: 16 sqrt(d) 2^-30, but for the mean."""
    facts = RiskFacts(10**6, 1000, LogisticLoss())
    plan = DPSVRG.plan(facts, None, ridge(1e12), epsilon=1.0, delta=1e-9, rounds=(500,) * 9)
    first = plan.anchor_noises[0].level(1)
    assert 16 * math.sqrt(1000) * 2.0**-30 <= first < 1e-3 * plan.anchor_noise.level(1)


def test_without_a_penalty_anchors_are_alike() -> None:
    plan = DPSVRG.plan(FACTS, BALL, epsilon=1.0, delta=DELTA, rounds=(5, 10))
    assert plan.anchor_noises == (plan.anchor_noise,) * 2
    tiny = DPSVRG.plan(FACTS, BALL, ridge(1e-300), epsilon=1.0, delta=DELTA, rounds=(5, 10))
    assert tiny.anchor_noises == (tiny.anchor_noise,) * 2


def test_no_epoch_is_longer_than_is_asked_for() -> None:
    calm = RiskFacts(200_000, 4, LogisticLoss())
    assert permitted_rounds((1, 2, 4), calm, 1e6, 1e-9, longest=16) == (4, 8, 16)
