"""Categories: the law of what is kept, on all neighbours of two categories."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_delta
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.categories import CategoryPlan

SIGMA = 2.0**30


def kept(plan: CategoryPlan, count: int) -> float:
    """P[a category of so many records is kept], of a continuous Gaussian, which is within 2^-30."""
    return float(stats.norm.sf((plan.threshold - count * plan.steps) / SIGMA)) if count else 0.0


def law(plan: CategoryPlan, counts: tuple[int, int]) -> list[float]:
    p, q = (kept(plan, count) for count in counts)
    return [(1 - p) * (1 - q), p * (1 - q), (1 - p) * q, p * q]


@pytest.mark.parametrize(("mu", "delta"), [(0.5, 1e-2), (1.0, 1e-4), (3.0, 0.1)])
def test_no_two_categories_refute_level_and_delta(mu: float, delta: float) -> None:
    plan, tight = CategoryPlan.plan(mu, delta, 1000), 0.0
    assert plan.level <= mu * (1 + 1e-9)
    for a, b in itertools.product(range(1, 12), range(12)):
        p, q = law(plan, (a, b)), law(plan, (a - 1, b + 1))
        for epsilon in (0.0, mu / 2, mu, 2 * mu):
            for one, two in ((p, q), (q, p)):
                found = sum(max(0.0, x - math.exp(epsilon) * y) for x, y in zip(one, two, strict=True))
                assert found <= gaussian_delta(plan.level, epsilon) + plan.delta * (1 + 1e-6)
    # A category that vanishes while another appears costs delta, once, and nearly all of it.
    found = sum(max(0.0, x - y) for x, y in zip(law(plan, (1, 0)), law(plan, (0, 1)), strict=True))
    tight = found / plan.delta
    assert 0.99 < tight <= 1 + 1e-6


@pytest.mark.parametrize("delta", [1e-9, 1e-3, 0.1, 0.4])
def test_the_threshold_is_the_proofs_and_hardly_more(delta: float) -> None:
    """P[Z >= m] <= P[N(0, sigma^2) >= m - 1], so one record is kept with probability delta at most."""
    plan = CategoryPlan.plan(1.0, delta, 1000)
    beyond = plan.threshold - plan.steps - 1 - SIGMA * stats.norm.isf(delta)
    assert 0 <= beyond <= 2 + 1e-8 * SIGMA


def test_frequent_categories_are_found_and_rare_ones_are_not() -> None:
    plan = CategoryPlan.plan(0.1, 1e-6, 10_000)
    # T = 1 + sqrt(2) / mu Phi^-1(1 - delta) in records: 1 + 14.14 * 4.753.
    assert plan.threshold / plan.steps == pytest.approx(1 + 14.142 * 4.7534, rel=1e-3)
    values = ["often"] * 300 + ["once"] + ["rare"] * 5 + [f"name {k}" for k in range(3000)]
    assert plan.release(values, NoiseSource(0)) == ("often",)
    assert plan.release([], NoiseSource(0)) == ()
    found = sum("edge" in plan.release(["edge"] * plan.found, NoiseSource(seed)) for seed in range(400))
    assert found / 400 > 0.9  # 95%, and a standard deviation is 1.1%


def test_counts_that_leave_64_bits_are_refused_before_data() -> None:
    for mu in (1e-12, 1e7):
        with pytest.raises(PrivacyParameterError, match="64 bits"):
            CategoryPlan.plan(mu, 1e-6, 10_000)
    assert np.isfinite(CategoryPlan.plan(0.01, 1e-300, 10_000).threshold)


def test_a_level_that_its_own_steps_would_exceed_by_rounding_has_one_step_less() -> None:
    for steps in (1, 3, 10_007, 2**29 + 1):
        mu = math.sqrt(2) * (steps + 1) / SIGMA  # exactly that of steps + 1, but for rounding
        plan = CategoryPlan.plan(mu, 1e-6, 10)
        assert plan.steps == steps
        assert plan.level <= mu
