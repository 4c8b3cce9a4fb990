"""DP-SGD's defaults follow from what its docstring says they minimise, and its batches from the source."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

from privopt.mechanisms.convex.stochastic_gradient import DPStochasticGradient
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.sampling import balanced_batch, private_batch
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball

FACTS = RiskFacts(5000, 4, LogisticLoss())
DELTA = 1e-5


def test_each_of_several_releases_runs_as_one_with_its_share_of_the_budget_would() -> None:
    """Four mu/2-GDP releases are mu-GDP together: as many steps and records each as at half the mu."""
    half = gaussian_mu(1.0, DELTA) / 2
    epsilon = brentq(lambda e: gaussian_mu(e, DELTA) - half, 0.1, 1.0, xtol=1e-12)
    alone = DPStochasticGradient.plan(FACTS, L2Ball(4, 2.0), epsilon=epsilon, delta=DELTA)
    four = DPStochasticGradient.plan(FACTS, L2Ball(4, 2.0), epsilon=1.0, delta=DELTA, releases=4)
    one = DPStochasticGradient.plan(FACTS, L2Ball(4, 2.0), epsilon=1.0, delta=DELTA)
    assert abs(four.steps - alone.steps) <= 1
    assert four.sampling == pytest.approx(alone.sampling, rel=1e-3)
    assert one.steps > 1.2 * four.steps


def test_steps_are_never_longer_than_smoothness_and_penalty_allow() -> None:
    """1 / (L + l2) where noise is small: beyond 2 / (L + l2) gradient descent on a quadratic diverges."""
    calm = RiskFacts(10**7, 4, LogisticLoss())
    plan = DPStochasticGradient.plan(calm, L2Ball(4, 50.0), ridge(0.3), epsilon=8.0, delta=DELTA, steps=20)
    assert plan.step_size == pytest.approx(1 / (0.25 + 0.3), rel=1e-12)


def test_steps_do_not_pass_over_the_data_more_than_twenty_times_for_their_variance() -> None:
    assert private_batch(FACTS, 400, 0.1) < balanced_batch(FACTS, 400, 0.1) < 20 * 5000 / 400
    assert private_batch(FACTS, 400, 0.3) < balanced_batch(FACTS, 400, 0.3) == 20 * 5000 / 400


@pytest.mark.parametrize("batch", [None, 50, 5000])
def test_the_step_size_minimises_the_bound_on_the_error(batch: int | None) -> None:
    """eta -> D^2 / (2 eta T) + eta V, V the variance of a noisy mean over a batch of q n in expectation.

    V: of sampling, |g|^2 (1 - q) / (q n) with |g| = G / 2, and of the noise, d sigma^2 / (q n)^2.
    """
    plan = DPStochasticGradient.plan(FACTS, L2Ball(4, 1.0), epsilon=0.3, delta=DELTA, steps=300, batch=batch)
    q, n = plan.sampling, FACTS.n_records
    V = (1.0 / 2) ** 2 * (1 - q) / (q * n) + 4 * (plan.vector_noise.sigma / (q * n)) ** 2
    found = minimize_scalar(
        lambda eta: 1.0 / (2 * eta * 300) + eta * V, bounds=(1e-6, 10.0), options={"xatol": 1e-9}
    )
    assert found.x < 1 / 0.25  # so the bound decides
    assert plan.step_size == pytest.approx(found.x, rel=1e-4)


def test_batches_come_from_the_source_and_without_noise_from_the_operating_system() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (300, 4))
    risk = EmpiricalRisk(X, np.where(X[:, 0] > 0, 1, -1), LogisticLoss())
    plan = DPStochasticGradient.plan(risk.facts, epsilon=1.0, delta=DELTA, steps=8, batch=20)
    points = [plan.release(risk, NoiseSource(insecure_seed=seed)).point for seed in (7, 7, 8)]
    assert np.array_equal(points[0], points[1])
    assert not np.array_equal(points[0], points[2])
    quiet = [plan.without_noise(risk) for _ in range(2)]
    assert not np.array_equal(*quiet)
    everyone = DPStochasticGradient.plan(risk.facts, epsilon=1.0, delta=DELTA, steps=8, batch=300)
    assert np.array_equal(everyone.without_noise(risk), everyone.without_noise(risk))
