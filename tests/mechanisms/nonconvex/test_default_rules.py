"""Equations behind the defaults of the searches, each of which holds for the plan that is made."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms.nonconvex.constrained import DPConstrainedStationaryPoint
from privopt.mechanisms.nonconvex.newton import DPCubicNewton
from privopt.mechanisms.nonconvex.second_order import SecondOrderMechanism
from privopt.mechanisms.nonconvex.spider import DPSpider
from privopt.mechanisms.nonconvex.stationary import DPStationaryPoint
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.mechanisms.risk.step_counts import MOST_STEPS, loss_range, typical_distance
from privopt.problems.convex.losses import SigmoidLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, ridge
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace

FACTS = RiskFacts(3_000, 5, SigmoidLoss(), 2.0)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize("regularizer", [NO_REGULARIZER, ridge(0.3)])
@pytest.mark.parametrize("releases", [1, 4])
def test_descent_stops_where_its_bound_meets_the_tail_of_its_noise(
    regularizer: ElasticNet, releases: int
) -> None:
    """After T steps of 1/M some |grad F|^2 <= 2 M B / T, B what F falls by at most (Nesterov 2004, 1.2.3)."""
    plan = DPStationaryPoint.plan(FACTS, regularizer=regularizer, releases=releases, **BUDGET)
    bound = 2 * loss_range(FACTS, WholeSpace(5)) * (FACTS.smoothness + regularizer.l2)
    tail = plan.gradient_noise.sigma * math.sqrt(stats.chi2.isf(0.05 / (2 * MOST_STEPS), 5))
    assert 1 < plan.steps < MOST_STEPS
    assert math.sqrt(bound / plan.steps) == pytest.approx(tail, rel=1 / plan.steps)


def test_what_is_tested_for_follows_the_tails() -> None:
    """alpha 3 t_g. gamma: what T steps leave behind, up to sqrt(rho alpha), and down to 2 t_H."""
    plan = DPStationaryPoint.plan(RiskFacts(10**7, 5, SigmoidLoss(), 2.0), **BUDGET)
    assert plan.alpha == pytest.approx(3 * plan.gradient_tail)
    rho, M, sigma = plan.facts.hessian_lipschitz, plan.facts.smoothness, plan.gradient_noise.sigma
    # Noise of sigma/M grows by 1 + gamma/M a step, to a length of M/rho.
    assert sigma / M * math.exp(plan.steps * plan.gamma / M) == pytest.approx(M / rho, rel=0.05)
    assert 2 * plan.hessian_tail < plan.gamma < math.sqrt(rho * plan.alpha)
    loud = DPStationaryPoint.plan(FACTS, hessian_share=1e-4, **BUDGET)
    assert loud.gamma == pytest.approx(2 * loud.hessian_tail)
    few = DPStationaryPoint.plan(RiskFacts(10**7, 5, SigmoidLoss(), 2.0), steps=2, **BUDGET)
    assert few.gamma == pytest.approx(math.sqrt(rho * few.alpha))


def test_five_newton_steps_for_every_e_of_signal_over_noise() -> None:
    plans = [DPCubicNewton.plan(RiskFacts(n, 5, SigmoidLoss()), **BUDGET) for n in (10**5, 10**6, 10**7)]
    for plan in plans:
        one = plan.gradient_noise.sigma / math.sqrt(plan.steps)  # of a single gradient
        assert plan.steps == math.ceil(5 * math.log(plan.facts.gradient_bound / one) - 1e-6)
    assert plans[2].steps - plans[0].steps == pytest.approx(5 * math.log(100), abs=1.5)
    assert DPCubicNewton.plan(RiskFacts(10, 5, SigmoidLoss()), **BUDGET).steps == 10


def test_newton_s_damping_is_the_largest_eigenvalue_that_noise_has() -> None:
    """In the limit of many dimensions; it is 0 without noise."""
    d = 60
    plan = DPCubicNewton.plan(RiskFacts(100_000, d, SigmoidLoss()), **BUDGET)
    source = NoiseSource(insecure_seed=0)
    tops = [np.linalg.eigvalsh(plan.hessian_noise.add(np.zeros((d, d)), source))[-1] for _ in range(10)]
    assert plan.damping == pytest.approx(np.mean(tops), rel=0.1)
    spread = plan.facts.hessian_lipschitz / plan.cubic_coefficient
    assert spread == pytest.approx(d**1.5)  # up to a hundred directions
    wide = DPCubicNewton.plan(RiskFacts(100_000, 400, SigmoidLoss()), **BUDGET)
    assert wide.facts.hessian_lipschitz / wide.cubic_coefficient == pytest.approx(1000)


def test_within_a_set_tails_leave_room_for_what_is_claimed() -> None:
    """D t_g <= alpha/4 and D^2 t_H <= gamma/4: equal, but for a factor of 2 where gamma is a default."""
    ball = L2Ball(5, 3.0)
    plan = DPConstrainedStationaryPoint.plan(FACTS, ball, **BUDGET)
    assert plan.alpha == pytest.approx(4 * 6.0 * plan.gradient_tail)
    assert plan.gamma == pytest.approx(2 * 4 * 36.0 * plan.hessian_tail)
    least = 4 * 36.0 * plan.hessian_tail
    assert DPConstrainedStationaryPoint.plan(FACTS, ball, gamma=least, **BUDGET).gamma == least
    # The least steps: eta = (alpha/2) / (M D^2) at a slope of alpha/2, theta = (gamma/2) / (rho D^3).
    eta, theta = plan.step_sizes
    assert eta == pytest.approx(min(1.0, plan.alpha / 2 / (FACTS.smoothness * 36)))
    assert theta == pytest.approx(min(1.0, plan.gamma / 2 / (FACTS.hessian_lipschitz * 6.0**3)))
    many = DPConstrainedStationaryPoint.plan(RiskFacts(10**8, 5, SigmoidLoss(), 2.0), ball, **BUDGET)
    assert 0 < max(many.step_sizes) < 1
    assert many.step_sizes[0] == pytest.approx(many.alpha / 2 / (FACTS.smoothness * 36))
    assert many.step_sizes[1] == pytest.approx(many.gamma / 2 / (FACTS.hessian_lipschitz * 6.0**3))


def test_the_default_ball_is_twice_the_typical_size_of_weights() -> None:
    plan = DPConstrainedStationaryPoint.plan(FACTS, **BUDGET)
    assert isinstance(plan.convex_set, L2Ball)
    assert plan.convex_set.radius == pytest.approx(2 * typical_distance(FACTS, WholeSpace(5)))


@pytest.mark.parametrize("name", ["dp-gd-so", "dp-gld", "dp-newton", "dp-sosp", "dp-spider", "net"])
def test_a_plan_is_for_one_release_unless_more_are_asked_for(name: str) -> None:
    kind: Any = RISK_MECHANISMS[name]
    few = RiskFacts(3_000, 2, SigmoidLoss(), 2.0)
    assert kind.plan(few, **BUDGET) == kind.plan(few, releases=1, **BUDGET)
    assert kind.plan(few, **BUDGET) != kind.plan(few, releases=2, **BUDGET)


@pytest.mark.parametrize("kind", [DPStationaryPoint, DPSpider])
def test_steps_of_descent_are_one_over_the_penalised_smoothness(kind: Any) -> None:
    eta = kind.plan(FACTS, regularizer=ridge(0.3), **BUDGET).step_sizes
    assert eta == (pytest.approx(1 / (FACTS.smoothness + 0.3)),) * 2


@pytest.mark.parametrize("kind", [DPStationaryPoint, DPCubicNewton, DPConstrainedStationaryPoint])
def test_looks_are_spread_over_the_steps(kind: type[SecondOrderMechanism]) -> None:
    plan = kind.plan(FACTS, steps=37, **BUDGET)
    assert plan.tests == (37 if kind is DPCubicNewton else 10)
    assert plan.test_interval * plan.tests >= plan.steps > (plan.test_interval - 1) * plan.tests
    assert kind.plan(FACTS, steps=4, **BUDGET).tests == 4


def test_spider_warms_up_until_descent_meets_its_noise() -> None:
    """|grad F|^2 <= 2 L B / T, as far as d sigma^2, with the noise of the warm start."""
    for regularizer in (NO_REGULARIZER, ridge(0.3)):
        plan = DPSpider.plan(FACTS, regularizer=regularizer, **BUDGET)
        bound = 2 * loss_range(FACTS, WholeSpace(5)) * (FACTS.smoothness + regularizer.l2)
        noise = plan.warm_noise.sigma * math.sqrt(5)
        assert 1 < plan.warm < MOST_STEPS // 2
        assert math.sqrt(bound / plan.warm) == pytest.approx(noise, rel=1 / plan.warm)
    endless = DPSpider.plan(RiskFacts(10**9, 5, SigmoidLoss(), 2.0), **BUDGET)
    assert (endless.warm, endless.phase) == (MOST_STEPS // 2, MOST_STEPS // 2)


def test_noise_of_any_size_leaves_a_curvature_that_is_not_escaped() -> None:
    """Of noise that is larger than the distance itself, too, whose logarithm of growth is near 0."""
    plan = DPStationaryPoint.plan(FACTS, **BUDGET)
    sizes = np.geomspace(1e-3, 1e6, 10)
    found = [
        replace(plan, gradient_noise=replace(plan.gradient_noise, sigma=s))._inescapable_curvature()
        for s in sizes
    ]
    assert min(found) > 0
    assert found == sorted(found, reverse=True)
