"""DP-SPIDER: what a difference of gradients is worth, what it costs, what is added to it, where it wins."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.nonconvex.spider import DPSpider, difference_sensitivity
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Output
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SigmoidLoss
from privopt.problems.convex.regularizers import lasso, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.nonconvex.planted import low_rank, phase_retrieval, strict_saddle

Vector = NDArray[np.float64]


def neighbours(n: int, d: int, seed: int, dtype: Any = np.float64) -> list[EmpiricalRisk]:
    """Two data sets that differ in one record, which is as long as it may be."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)).astype(dtype)
    X[0] *= 100
    y = np.sign(rng.standard_normal(n))
    other, flipped = X.copy(), y.copy()
    other[0], flipped[0] = rng.standard_normal(d) * 100, -y[0]
    return [EmpiricalRisk(X, y, SigmoidLoss()), EmpiricalRisk(other, flipped, SigmoidLoss())]


def moved(pair: list[EmpiricalRisk], w: Vector, before: Vector) -> float:
    first, second = (risk.in_float64() for risk in pair)
    return float(
        np.linalg.norm(
            (first.gradient(w) - first.gradient(before)) - (second.gradient(w) - second.gradient(before))
        )
    )


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("length", [0.0, 1.0, 1e6])
def test_no_record_moves_a_computed_difference_by_more_than_its_sensitivity(
    dtype: Any, length: float
) -> None:
    """From points next to each other, where only rounding is left, to points far apart."""
    rng, tight = np.random.default_rng(1), 0.0
    for seed in range(12):
        pair = neighbours(50, 6, seed, dtype)
        w = length * rng.standard_normal(6)
        for distance in (0.0, 1e-16, 1e-9, 1e-3, 1.0, 1e3):
            near = w + distance * rng.standard_normal(6)
            bound = difference_sensitivity(pair[0].facts, near, w)
            change = moved(pair, near, w)
            assert change <= bound
            tight = max(tight, change / bound)
    assert tight > 0.05 or length > 1


def test_the_sensitivity_of_a_difference_is_attained() -> None:
    """Slopes that change as fast as they may, either way: 2 L |w - before| / n; far apart, 2 (2 G) / n."""
    rows = np.zeros((10, 1))
    rows[0] = 1.0
    near, far, start = np.array([1e-3]), np.array([1e9]), np.array([-1e9])
    up = EmpiricalRisk(rows, [0.0, *[0.0] * 9], HuberLoss(1.0))
    idle = EmpiricalRisk(np.zeros((10, 1)), np.zeros(10), HuberLoss(1.0))
    at_zero = np.zeros(1)
    # Huber's slope rises by |w - before|; that of an idle record does not: half of what two records can do.
    assert moved([up, idle], near, at_zero) == pytest.approx(
        difference_sensitivity(up.facts, near, at_zero) / 2, rel=1e-3
    )
    assert moved([up, idle], far, start) == pytest.approx(
        difference_sensitivity(up.facts, far, start) / 2, rel=1e-3
    )
    assert difference_sensitivity(up.facts, far, start) == pytest.approx(4 / 10)


@pytest.mark.parametrize("n", [10**3, 10**6, 10**8])
def test_sums_of_many_gradients_pay_for_their_rounding(n: int) -> None:
    """Two sums of n terms of length G, in each of two data sets, are off by n^2 G 2^-53 each at most."""
    facts = RiskFacts(n, 4, SigmoidLoss(), 2.0)
    w = np.ones(4)
    least = 4 * facts.gradient_bound * n * 2.0**-53
    assert least <= difference_sensitivity(facts, w, w) <= 1.1 * least + facts.gradient_bound * 2.0**-44 / n


@pytest.mark.parametrize("releases", [1, 3])
@pytest.mark.parametrize("steps", [None, 4, 301])
def test_gradients_and_differences_together_spend_the_claim(releases: int, steps: int | None) -> None:
    facts = RiskFacts(50_000, 4, SigmoidLoss(), 2.0)
    plan = DPSpider.plan(facts, epsilon=1.0, delta=1e-6, steps=steps, releases=releases)
    assert plan.steps == plan.warm + plan.phase == (steps or plan.steps)
    gradient = 2 * facts.gradient_bound / 50_000
    warm = plan.warm * (gradient / plan.warm_noise.sigma) ** 2
    anchor = (gradient / plan.anchor_noise.sigma) ** 2
    differences = (plan.phase - 1) / plan.multiplier**2
    spent = releases * (warm + anchor + differences)
    assert 0.999 <= gaussian_epsilon(math.sqrt(spent), 1e-6) <= 1.0
    assert plan.spend.level is not None
    assert plan.spend.level == pytest.approx(math.sqrt(spent), rel=1e-4)
    assert plan.spend.level <= gaussian_mu(1.0, 1e-6)
    assert releases * warm / gaussian_mu(1.0, 1e-6) ** 2 == pytest.approx(DPSpider.warm_share, rel=1e-4)
    assert anchor / (anchor + differences) == pytest.approx(DPSpider.anchor_share, rel=1e-4)


def test_every_step_has_noise_of_its_own_and_of_its_kind() -> None:
    """Records of zeros: increments of v are the noises, in 20,000 dimensions; 5% less would be seen."""
    d = 20_000
    idle = EmpiricalRisk(np.zeros((1, d)), np.zeros(1), HuberLoss(1.0))
    plan = DPSpider.plan(idle.facts, epsilon=1.0, delta=1e-3, steps=9)
    assert (plan.warm, plan.phase) == (5, 4)
    released = plan.release(idle, NoiseSource(insecure_seed=7))
    path = released.trajectory
    assert path.shape == (10, d)
    assert not np.any(path[0])
    assert np.array_equal(released.point, path[-1])
    v = -np.diff(path, axis=0) / plan.step_sizes[0]
    standardised = [v[k] / plan.warm_noise.sigma for k in range(5)]
    standardised.append(v[5] / plan.anchor_noise.sigma)
    for k in (6, 7, 8):
        bound = difference_sensitivity(idle.facts, path[k], path[k - 1])
        standardised.append((v[k] - v[k - 1]) / (plan.multiplier * bound))
    for one in standardised:
        assert abs(float(np.mean(one**2)) - 1) < 4 * math.sqrt(2 / d)
        assert stats.kstest(one, stats.norm.cdf).pvalue > 1e-4
    assert np.max(np.abs(np.corrcoef(standardised) - np.eye(9))) < 5 / math.sqrt(d)


def test_noise_draws_are_those_that_were_paid_for() -> None:
    class Counting(NoiseSource):
        drawn = 0

        def discrete_gaussian(self, exponent: int, size: Any = 1) -> Any:
            Counting.drawn += math.prod(size) if isinstance(size, tuple) else size
            return super().discrete_gaussian(exponent, size)

    risk = strict_saddle(100, 2).risk
    plan = DPSpider.plan(risk.facts, epsilon=1.0, delta=1e-3, steps=23)
    plan.release(risk, Counting(insecure_seed=1))
    assert Counting.drawn == 23 * 2


def test_without_noise_differences_add_up_to_gradients() -> None:
    """v is the gradient itself then, so the path is that of gradient descent, warm start or not."""
    risk = neighbours(40, 3, 0)[0]
    start = np.array([0.3, -0.2, 0.1])
    plan = DPSpider.plan(risk.facts, regularizer=ridge(0.1), epsilon=1.0, delta=1e-3, steps=40)
    descent = DPGradientDescent.plan(
        risk.facts, regularizer=ridge(0.1), epsilon=1.0, delta=1e-3, steps=40, output=Output.LAST
    )
    assert plan.without_noise(risk, start) == pytest.approx(descent.without_noise(risk, start), abs=1e-12)


def test_float32_data_are_read_as_float64() -> None:
    """Predictions in float32 would not follow w at small distances: the bound would be false."""
    risk = neighbours(200, 5, 3, np.float32)[0]
    plan = DPSpider.plan(risk.facts, epsilon=1.0, delta=1e-3, steps=30)
    points = [plan.release(one, NoiseSource(insecure_seed=2)).point for one in (risk, risk.in_float64())]
    assert np.array_equal(*points)


@pytest.mark.parametrize(
    "problem", [strict_saddle(400, 2), phase_retrieval(400, 3), low_rank(400, 3, 2)], ids=lambda p: p.name
)
def test_where_minima_are_well_curved_gradients_are_shorter_than_those_of_descent(problem: Any) -> None:
    """From the saddle, at n = 200,000: the noise of a few gradients is left, not that of hundreds."""
    facts = dataclasses.replace(problem.risk.facts, n_records=200_000)
    plans = [
        DPSpider.plan(facts, epsilon=1.0, delta=1e-6),
        DPGradientDescent.plan(facts, epsilon=1.0, delta=1e-6, output=Output.LAST),
    ]
    ends = []
    for plan in plans:
        small = dataclasses.replace(plan, facts=problem.risk.facts)  # noise is that of the large one
        if isinstance(small, DPSpider):
            small = dataclasses.replace(small, multiplier=plan.multiplier * 400 / 200_000)
        points = [
            small.release(problem.risk, NoiseSource(insecure_seed=seed), start=problem.saddle).point
            for seed in range(2)
        ]
        assert max(problem.distance(w) for w in points) < 0.05
        ends.append(np.mean([np.linalg.norm(problem.risk.gradient(w)) for w in points]))
    assert ends[0] < ends[1] / 1.5


def test_by_default_a_phase_is_as_long_as_its_noise_allows() -> None:
    """A difference adds d (2 multiplier |v| / n)^2 to |v|^2 on average: together at most 3 in 10."""
    for n, d in ((2_000, 8), (50_000, 3), (50_000, 300)):
        plan = DPSpider.plan(RiskFacts(n, d, LogisticLoss()), epsilon=0.5, delta=1e-6)
        stretch = (plan.phase - 1) * d * (2 * plan.multiplier / n) ** 2
        assert stretch <= 0.3
        longer = plan.phase**2 * d * (2 * plan.multiplier / n) ** 2 / max(1, plan.phase - 1)
        assert longer > 0.25 or plan.phase == 1000


def test_what_is_not_taken_is_refused() -> None:
    facts, budget = RiskFacts(100, 2, SigmoidLoss()), {"epsilon": 1.0, "delta": 1e-5}
    with pytest.raises(PrivacyParameterError, match="l1 penalty"):
        DPSpider.plan(facts, regularizer=lasso(0.1), **budget)
    with pytest.raises(PrivacyParameterError, match="use dp-pgd or dp-gd-so"):
        DPSpider.plan(facts, L2Ball(2, 1.0), **budget)
    with pytest.raises(PrivacyParameterError, match="has no option output; it has steps"):
        DPSpider.plan(facts, output=Output.RANDOM, **budget)
    risk = neighbours(20, 2, 0)[0]
    plan = DPSpider.plan(risk.facts, steps=30, **budget)
    with pytest.raises(UnfinishedDrawError, match="nothing was released"):
        plan.release(risk, limits=Limits(cancelled=lambda: True))
