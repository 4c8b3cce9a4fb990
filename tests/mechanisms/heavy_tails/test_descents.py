"""Descents on unbounded records: claims, learning, the baseline without noise, refusals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import special

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.heavy_tails.descent import Descent
from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent
from privopt.mechanisms.heavy_tails.trimmed_descent import TrimmedGradientDescent
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, zcdp_rho
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import ROBUST_MECHANISMS
from privopt.mechanisms.risk import sampling
from privopt.mechanisms.risk.step_counts import mirror_steps, whole_steps
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.convex.truncation import INFLUENCE
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk, unclipped_facts
from tests.mechanisms.privacy.composition import GaussianSteps, composed_epsilon

OPTIONS: dict[str, dict[str, Any]] = {
    "robust-gd": {"moment": 4.0},
    "robust-sgd": {"moment": 4.0, "batch": 2000},
    "trimmed-gd": {"mean_range": (-2.0, 2.0)},
}


def planned(name: str, n: int, d: int, **options: Any) -> Any:
    defaults: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, **OPTIONS[name]}
    facts = unclipped_facts(n, d, options.pop("loss", PLAIN_SQUARES))
    kind: Any = ROBUST_MECHANISMS[name]
    return kind.plan(facts, L2Ball(d, 5.0), **{**defaults, **options})


@pytest.mark.parametrize(("n", "d", "steps", "epsilon"), [(1000, 3, 1, 0.2), (10**5, 10, 30, 1.0)])
def test_plans_spend_their_claim(n: int, d: int, steps: int, epsilon: float) -> None:
    full = planned("robust-gd", n, d, steps=steps, epsilon=epsilon)
    record = 2 * INFLUENCE * full.truncation.scale * math.sqrt(d) / n
    spent = gaussian_epsilon(math.sqrt(steps) * record / full.vector_noise.sigma, 1e-5)
    assert 0.999 * epsilon <= spent <= epsilon * (1 + 1e-9)
    trimmed = planned("trimmed-gd", n, d, steps=steps, epsilon=epsilon)
    rho = d * steps * trimmed.trimming.noise.rho
    lost = d * steps * (2.0**-18 + 2.0**-30 / trimmed.trimming.noise.s)
    assert 0.98 * zcdp_rho(epsilon - lost, 1e-5) <= rho <= zcdp_rho(epsilon - lost, 1e-5)


@pytest.mark.parametrize("name", ROBUST_MECHANISMS)
def test_three_runs_of_four_steps_cost_what_one_of_twelve_does(name: str) -> None:
    options = {} if name == "trimmed-gd" else {"truncation": SoftTruncation(1.0, 1.0)}
    runs, one = (
        planned(name, 20_000, 3, steps=steps, releases=releases, **options)
        for steps, releases in ((4, 3), (12, 1))
    )
    assert runs.noise == one.noise


def test_sampled_sums_pay_for_rounding_and_for_every_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A term of size 1 beside n others: two sums of n terms, each off by n^2 2^-53 at most."""
    asked: dict[str, Any] = {}

    def multiplier(epsilon: float, delta: float, **facts: Any) -> float:
        asked.update(facts)
        return 2.0

    monkeypatch.setattr(sampling, "poisson_multiplier", multiplier)
    n, d = 3 * 10**7, 7
    plan = planned("robust-sgd", n, d, steps=5, releases=2, truncation=SoftTruncation(1.0, 1.0))
    assert asked["steps"] == 10
    assert asked["coordinates"] == 10 * d
    least = INFLUENCE * math.sqrt(d) * (1 + 2 * n * n * 2.0**-53)
    assert least <= plan.vector_noise.sensitivity <= 2 * least
    few = planned("robust-sgd", 20, d, steps=5, truncation=SoftTruncation(1.0, 1.0))
    assert few.vector_noise.sensitivity > INFLUENCE * math.sqrt(d) * (1 + 2e-13)


def test_sampled_plans_spend_their_claim() -> None:
    plan = planned("robust-sgd", 20_000, 4, steps=5)
    bound = INFLUENCE * plan.truncation.scale * math.sqrt(4)
    noise = GaussianSteps(plan.vector_noise.sigma / (2 * bound), plan.sampling, 5)
    assert 0.97 <= composed_epsilon([noise], 1e-5) <= 1.0


def test_a_batch_of_all_records_gets_the_noise_and_the_truncation_of_the_full_gradient() -> None:
    """The noise on the mean and the scale that minimises its error, by the two accountants of a Gaussian."""
    sampled = planned("robust-sgd", 2000, 3, batch=2000, steps=4)
    full = planned("robust-gd", 2000, 3, steps=4)
    for of in ("sigma", "scale"):
        assert sampled.noise[of] == pytest.approx(full.noise[of], rel=0.03)


def test_noise_is_less_than_printed_at_the_printed_scale() -> None:
    """sigma^2 = 8 v d T / (9 log(1/failure) n rho): Algorithm 4."""
    n, d, steps, v, failure, delta = 10**5, 10, 20, 2.0, 0.01, 1e-5
    root = math.sqrt(-math.log(delta))
    rho = (math.sqrt(root**2 + 1) - root) ** 2
    printed = math.sqrt(8 * v * d * steps / (9 * -math.log(failure) * n * rho))
    soft = SoftTruncation.as_printed(n, v, failure)
    plan = planned("robust-gd", n, d, steps=steps, truncation=soft)
    assert 0.6 * printed < plan.vector_noise.sigma < printed
    assert planned("robust-gd", n, d, steps=steps).vector_noise.sigma < 0.5 * plan.vector_noise.sigma


def linear_task(n: int = 20_000, d: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X, w = rng.standard_normal((n, d)), np.linspace(-1, 1, d)
    return X, X @ w + rng.standard_t(2.5, n), w


@pytest.mark.parametrize("name", ROBUST_MECHANISMS)
def test_they_learn_a_line_through_heavy_tails(name: str) -> None:
    X, y, w = linear_task()
    plan = planned(name, *X.shape, steps=10, epsilon=3.0)
    found = plan.release(UnclippedRisk(X, y, PLAIN_SQUARES), NoiseSource(insecure_seed=0))
    assert np.linalg.norm(found.point - w) < 0.45  # 1.41 at the start
    assert found.spend.epsilon == pytest.approx(3.0, rel=1e-6)
    assert found.spend.insecure_seed == 0
    quiet = plan.without_noise(UnclippedRisk(X, y, PLAIN_SQUARES))
    assert np.linalg.norm(quiet - w) < 0.2


def test_the_baseline_outlasts_outliers_that_move_least_squares() -> None:
    """Holland's robust gradient descent: without noise, full batch."""
    X, y, w = linear_task()
    y[:20], X[:20] = 1e6, 1.0
    risk = UnclippedRisk(X, y, PLAIN_SQUARES)
    plan = RobustGradientDescent.plan(
        risk.facts, epsilon=1.0, delta=1e-5, moment=4.0, steps=40, truncation=SoftTruncation(30.0, 3.0)
    )
    assert np.linalg.norm(plan.without_noise(risk) - w) < 0.1
    assert np.linalg.norm(np.linalg.lstsq(X, y, rcond=None)[0] - w) > 10


def test_logistic_ridge_and_sparse_rows() -> None:
    X, y, w = linear_task()
    labels = np.where(y > 0, 1.0, -1.0)
    for rows in (X, sp.csr_array(X)):
        risk = UnclippedRisk(rows, labels, LogisticLoss())
        plan = RobustGradientDescent.plan(
            risk.facts,
            L2Ball(3, 5.0),
            ridge(0.01),
            epsilon=2.0,
            delta=1e-5,
            moment=1.0,
            steps=20,
            descent=Descent(smoothness=0.25),
        )
        point = plan.release(risk, NoiseSource(insecure_seed=1)).point
        assert point @ w > 0.8 * np.linalg.norm(point) * np.linalg.norm(w)
    with pytest.raises(PrivacyParameterError, match="sparse"):
        planned("trimmed-gd", *X.shape).release(UnclippedRisk(sp.csr_array(X), y, PLAIN_SQUARES))


def test_steps_are_as_long_as_the_smoothness_with_the_penalty_allows() -> None:
    facts, descent = unclipped_facts(5000, 3, PLAIN_SQUARES), Descent(smoothness=2.0)
    plan = RobustGradientDescent.plan(
        facts, L2Ball(3, 5.0), ridge(0.5), epsilon=1.0, delta=1e-5, moment=4.0, descent=descent
    )
    assert plan.step_sizes == (1 / 2.5, 1 / 2.5)


def test_gradients_are_truncated_where_their_own_noise_says() -> None:
    for runs, steps in ((1, 1), (1, 30), (3, 30)):
        plan = planned("robust-gd", 5000, 4, steps=steps, releases=runs)
        noise = -float(special.ndtri(0.025)) * plan.vector_noise.sigma / plan.truncation.scale
        best = SoftTruncation.balanced(5000, 4.0, 0.05, noise)
        assert plan.truncation.scale == pytest.approx(best.scale, rel=1e-5)


def test_steps_follow_public_facts() -> None:
    counts = [planned("robust-gd", n, 5).steps for n in (100, 10**4, 10**6, 10**8)]
    assert 1 <= counts[0] <= counts[1] <= counts[2] < counts[3] == 200
    far = planned("robust-gd", 10**4, 5, descent=Descent(distance=4.0))
    assert far.steps >= counts[1]
    for distance in (0.5, 4.0):  # where the bounds D^2 / (2 gamma T) and the noise are equal
        descent = Descent(smoothness=1.0, distance=distance)
        found = descent.steps(None, WholeSpace(5), ridge(0.0), 0.05)
        assert found == whole_steps(mirror_steps(distance**2 / 2, 1.0, 0.05), 200) < 200


def test_what_is_refused() -> None:
    X, y, _ = linear_task(100)
    clipped = RiskFacts(100, 3, PLAIN_SQUARES)
    with pytest.raises(PrivacyParameterError, match="unclipped_facts"):
        RobustGradientDescent.plan(clipped, epsilon=1.0, delta=1e-5, moment=1.0)
    plan = planned("robust-gd", 100, 3)
    with pytest.raises(PlanMismatchError, match="UnclippedRisk"):
        plan.release(EmpiricalRisk(X, y, PLAIN_SQUARES, row_norm=1e100))
    with pytest.raises(PlanMismatchError, match="plan again"):
        plan.release(UnclippedRisk(X[:50], y[:50], PLAIN_SQUARES))
    with pytest.raises(PrivacyParameterError, match="dimension"):
        TrimmedGradientDescent.plan(
            plan.facts, L2Ball(4, 1.0), epsilon=1.0, delta=1e-5, mean_range=(-1.0, 1.0)
        )
    with pytest.raises(PrivacyParameterError):
        Descent(smoothness=0.0)


def test_unseeded_runs_differ() -> None:
    X, y, _ = linear_task(100)
    risk = UnclippedRisk(X, y, PLAIN_SQUARES)
    for name in ROBUST_MECHANISMS:
        plan = planned(name, 100, 3, steps=2)
        assert not np.array_equal(plan.release(risk).point, plan.release(risk).point)
