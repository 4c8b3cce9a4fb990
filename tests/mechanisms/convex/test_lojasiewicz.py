"""DP-GD under a named Polyak-Lojasiewicz condition: steps, bound, and a privacy that does not change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from privopt.experiments.reproduce import wang2017_theorem6 as fig
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output
from privopt.mechanisms.risk.step_counts import loss_range
from privopt.problems.convex.conditions import PolyakLojasiewicz
from privopt.problems.convex.losses import SigmoidLoss, SquaredLoss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InvalidInputError

FACTS = RiskFacts(100_000, 5, SigmoidLoss(), 2.0)
BUDGET = {"epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize("releases", [1, 4])
def test_steps_minimise_the_bound_on_the_last_iterate(releases: int) -> None:
    """T -> exp(-c T / L) B + p T s^2 / (2 c), s the noise of a single step on the mean gradient."""
    c, l2 = 0.02, 0.1
    plan = DPGradientDescent.plan(
        FACTS, None, ridge(l2), condition=PolyakLojasiewicz(c), releases=releases, **BUDGET
    )
    L, B = FACTS.smoothness + l2, loss_range(FACTS, WholeSpace(5))
    single = plan.noise["sigma"] ** 2 / plan.steps
    best = minimize_scalar(
        lambda t: np.exp(-c * t / L) * B + 5 * t * single / (2 * c), bounds=(1, 2000), method="bounded"
    )
    assert 1 < plan.steps < 2000
    assert abs(plan.steps - best.x) <= 1.01  # rounded up
    assert plan.output is Output.LAST


def test_the_condition_changes_steps_and_output_and_no_privacy() -> None:
    condition = PolyakLojasiewicz(0.02)
    plain = DPGradientDescent.plan(FACTS, steps=30, output=Output.LAST, **BUDGET)
    assert DPGradientDescent.plan(FACTS, steps=30, condition=condition, **BUDGET) == plain
    chosen = DPGradientDescent.plan(FACTS, output=Output.RANDOM, condition=condition, **BUDGET)
    assert chosen.output is Output.RANDOM
    assert chosen.vector_noise.level(chosen.steps) == pytest.approx(plain.vector_noise.level(30), rel=1e-9)
    assert chosen.spend.epsilon == plain.spend.epsilon


def test_a_condition_that_noise_hides_costs_one_step() -> None:
    plan = DPGradientDescent.plan(
        RiskFacts(50, 5, SigmoidLoss()), condition=PolyakLojasiewicz(1e-6), **BUDGET
    )
    assert plan.steps == 1


@pytest.mark.parametrize("wrong", [0.02, "polyak-lojasiewicz", PolyakLojasiewicz(0.4)])
def test_no_other_condition_is_taken_nor_a_constant_beyond_smoothness(wrong: Any) -> None:
    """L = 4 / (6 sqrt 3) = 0.385."""
    with pytest.raises(PrivacyParameterError, match="condition"):
        DPGradientDescent.plan(FACTS, condition=wrong, **BUDGET)


@pytest.mark.parametrize("constant", [0.0, -1.0, float("inf"), float("nan"), "1"])
def test_constants_are_finite_and_positive(constant: Any) -> None:
    with pytest.raises(InvalidInputError, match="constant"):
        PolyakLojasiewicz(constant)


def test_the_bound_is_attained_by_a_parabola() -> None:
    """F = (L/2) w^2: with c = L a step forgets the last one, and leaves noise of sigma^2 / (2 L)."""
    risk = EmpiricalRisk(np.tile([[1.0], [-1.0]], (100, 1)), np.zeros(200), SquaredLoss(4.0))
    plan = DPGradientDescent.plan(risk.facts, steps=3, condition=PolyakLojasiewicz(1.0), **BUDGET)
    bound = fig.proved(plan, 1.0, start=0.0)
    assert bound == pytest.approx(plan.noise["sigma"] ** 2 / 2)
    found = [risk.value(plan.release(risk, NoiseSource(insecure_seed=k)).point) for k in range(200)]
    assert np.mean(found) == pytest.approx(bound, rel=6 * np.sqrt(2 / 200))  # a chi-square has variance 2


@pytest.mark.parametrize("name", fig.PROBLEMS)
def test_problems_of_the_reproduction_satisfy_their_condition(name: str) -> None:
    problem = fig.PROBLEMS[name]
    risk, least = problem.make(1_000, 0)
    rng = np.random.default_rng(1)
    for _ in range(300):
        w = rng.normal(size=risk.facts.dimension)
        w *= 1.2 * rng.random() / np.abs(risk.predictions(w)).max()
        g = risk.gradient(w)
        assert g @ g >= 2 * problem.constant * (risk.value(w) - least) * (1 - 1e-9)


def test_the_condition_of_the_link_is_no_convexity() -> None:
    risk, _ = fig.link_risk(1_000, 0)
    w = np.array([-1.5, 0, 0, 0])
    assert np.abs(risk.predictions(w)).max() <= 1.2 + 1e-9
    assert np.linalg.eigvalsh(risk.hessian(w))[0] < -0.001
