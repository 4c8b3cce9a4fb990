"""Moments of residuals for robust intervals: sensitivity by brute force, the budget, the sandwich."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.sparse import csr_array

from privopt.mechanisms import PrivateLinearRegression
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics, _residual_sums, residual_fit
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.inference.least_squares import LeastSquares
from privopt.mechanisms.inference.robust_least_squares import RobustLeastSquares
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.noisy_moments import NoisyMoments, NoisySpread
from privopt.problems import InvalidInputError
from privopt.problems.convex.losses import LogisticLoss, SquaredLoss
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts

LABELS = SquaredLoss(2.0)
TASK: dict[str, Any] = {"data_norm": 1.0, "label_range": (-1, 1), "insecure_seed": 0}


def plan_of(n: int, d: int, epsilon: float = 1.0, constant: float = 0.0) -> SufficientStatistics:
    facts = RiskFacts(n, d, LABELS, math.hypot(1.0, constant), "l2", constant)
    return SufficientStatistics.plan(facts, epsilon=epsilon, delta=1e-6).with_residuals()


def test_no_two_records_move_the_moments_of_residuals_by_more_than_is_paid_for() -> None:
    """Residuals far beyond the cut, of rows in all directions, at three fits."""
    rows = [(r * math.cos(a), r * math.sin(a)) for r in (1.0, 3.0) for a in np.linspace(0, math.pi, 7)]
    for constant in (0.0, 0.5):
        plan = plan_of(2, 2 + bool(constant), constant=constant)
        assert plan.residual_noise is not None
        bound, largest = plan.residual_noise.vector.sensitivity, 0.0
        for theta, cut in ((np.zeros(3), 0.5), (np.array([50.0, -9.0, 2.0]), 0.01), (np.ones(3), 3.0)):
            size = plan.facts.dimension
            found = []
            for row, label in itertools.product(rows, (-1.0, 1.0)):
                x = [*row, constant] if constant else row
                risk = EmpiricalRisk(
                    [x, [*[0.0] * len(row), *x[2:]]],
                    [label, 0.0],
                    LABELS,
                    row_norm=plan.facts.row_norm,
                    constant=constant,
                )
                found.append(_residual_sums(risk, plan.offset, theta[:size], cut) / 2)
            largest = max(
                [largest, *(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(found, 2))]
            )
        least = 0.7 if constant else 0.9  # rows with a constant are not orthogonal
        assert least * bound <= largest <= bound


def test_both_releases_spend_what_one_would() -> None:
    for n, d, epsilon in ((50, 1, 0.1), (1000, 3, 1.0), (10**6, 20, 8.0)):
        plan = plan_of(n, d, epsilon)
        assert plan.residual_noise is not None
        r2 = 1.0 + plan.offset**2
        levels = (
            3 / math.sqrt(2) * r2 / n / plan.vector_noise.sigma,
            math.sqrt(2) * r2 / n / plan.residual_noise.vector.sigma,
        )
        mu = gaussian_mu(epsilon, 1e-6)
        assert 0.999 * mu <= math.hypot(*levels) <= mu
        assert plan.spend.level is not None
        assert math.hypot(*levels) <= plan.spend.level <= mu * (1 + 1e-12)
        assert (plan.spend.epsilon, plan.spend.delta) == (epsilon, 1e-6)
        assert levels[1] ** 2 == pytest.approx(0.2 * mu**2, rel=1e-3)


def test_the_second_release_is_the_mean_of_clipped_squares_at_the_fit_of_the_first() -> None:
    """Almost without noise: written out, and alike for sparse rows."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(-0.7, 0.7, (300, 2)), np.ones(300)])
    y = np.clip(X @ [0.5, -0.2, 0.1] + 0.2 * np.abs(X[:, 0]) * rng.standard_t(2, 300), -1, 1)
    facts = RiskFacts(300, 3, LABELS, math.sqrt(2.0), "l2", 1.0)
    plan = SufficientStatistics.plan(facts, epsilon=1e10, delta=1e-6).with_residuals()
    assert plan.residual_noise is not None
    for rows in (X, csr_array(X)):
        released = plan.release(EmpiricalRisk(rows, y, LABELS, row_norm=facts.row_norm, constant=1.0))
        assert released.moments is not None
        assert released.spread is not None
        theta, cut = residual_fit(released.moments, 1.0, plan.residual_noise.vector.sigma)
        Z = np.column_stack([X[:, :2], np.full(300, plan.offset)])
        squares = np.minimum((y - Z @ theta) ** 2, cut**2)
        assert cut > 0
        np.testing.assert_allclose(released.spread.matrix, (Z.T * squares) @ Z / 300, atol=1e-5)


def test_levels_that_add_up_to_one_hide_no_residuals() -> None:
    rng = np.random.default_rng(2)
    Z = np.column_stack([np.eye(3)[rng.integers(3, size=500)], rng.uniform(-1, 1, 500), np.ones(500)])
    y = Z @ [0.3, 0.0, -0.2, 0.4, 0.1] + 0.1 * rng.normal(size=500)
    A, b = Z.T @ Z / 500, Z.T @ y / 500
    moments = NoisyMoments((A + A.T) / 2, b, float(np.mean(y**2)), 1e-6, 1.0, 1.0, 500)
    theta, cut = residual_fit(moments, 1.0, 1.0)
    left = y - Z @ np.linalg.lstsq(Z, y)[0]
    np.testing.assert_allclose(y - Z @ theta, left, atol=1e-6)
    assert cut == pytest.approx(3 * np.std(left), rel=0.01)


def test_where_the_noise_hides_the_fit_residuals_are_labels() -> None:
    noise = NoisyMoments(np.eye(2) * 0.1, np.array([9.0, 9.0]), 0.5, 1.0, 1.0, 0.0, 100)
    theta, cut = residual_fit(noise, 2.0, 1.0)
    assert (theta.tolist(), cut) == ([0.0, 0.0], 2.0)


def uneven(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.7, 0.7, (n, 2))
    return X, X @ [0.5, -0.2] + 0.5 * X[:, 0] ** 2 * rng.normal(size=n)


def test_intervals_under_uneven_spreads_cover_only_if_they_are_robust() -> None:
    """300 draws, seeded; both kinds from the same releases, and three standard errors of 95% are 3.8%."""
    plan, source, held = plan_of(2000, 2, epsilon=50.0), NoiseSource(insecure_seed=5), [0, 0]
    for run in range(300):
        X, y = uneven(2000, run)
        released = plan.release(EmpiricalRisk(X, y, LABELS, row_norm=1.0), source)
        assert released.moments is not None
        assert released.spread is not None
        found = LeastSquares(released.moments), RobustLeastSquares(released.moments, released.spread)
        for k, one in enumerate(found):
            bounds = one.bounds(np.array([[1.0, 0.0]]), 1.96)
            held[k] += int(bounds.low[0] <= 0.5 <= bounds.high[0])
    assert held[0] < 0.88 * 300
    assert 0.912 * 300 <= held[1] <= 0.988 * 300


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])  # of sampling in the variance
@pytest.mark.parametrize("deviation", [0.05, 0.2, 0.4])  # of the noise of W, in units of the variance
def test_noise_of_the_sandwich_takes_no_coverage(share: float, deviation: float) -> None:
    """One weight, whose interval is normal and has the variance 1: coverage is a mean over the noise of W."""
    moments = NoisyMoments(np.eye(1), np.zeros(1), 1.0, 1e-9, 1e-9 / math.sqrt(1 - share), 0.0, 100)
    drawn, covered = stats.norm.ppf((np.arange(2000) + 0.5) / 2000), []
    for noise in drawn:
        spread = NoisySpread(np.array([[100 * (share + deviation * noise)]]), 100 * deviation)
        bounds = RobustLeastSquares(moments, spread).bounds(np.eye(1), 1.959964)
        covered.append(2 * stats.norm.cdf(bounds.high[0]) - 1)
    assert 0.95 - 1e-4 <= np.mean(covered) <= 0.97


def test_a_robust_model_is_booked_saved_and_refused_as_others(tmp_path: Path) -> None:
    X, y = uneven(2000, 1)
    model = PrivateLinearRegression(3.0, errors="robust", **TASK).fit(X, y)
    plain = PrivateLinearRegression(3.0, **TASK).fit(X, y)
    assert model.spend_.epsilon == plain.spend_.epsilon
    assert model.noise_["residual_sigma"] > 0
    assert isinstance(model.inference_, RobustLeastSquares)
    model.save(tmp_path / "model.json")
    read = PrivateLinearRegression.load(tmp_path / "model.json").inference_
    assert isinstance(read, RobustLeastSquares)
    C = np.eye(read.dimension)
    for found, kept in zip(read.bounds(C, 1.96), model.inference_.bounds(C, 1.96), strict=True):
        np.testing.assert_array_equal(found, kept)
    louder = dataclasses.replace(
        model.inference_, spread=dataclasses.replace(model.inference_.spread, sigma=1.0)
    )
    assert np.all(louder.bounds(C, 1.96).high > model.inference_.bounds(C, 1.96).high)
    for options, why in (
        ({"errors": "white"}, "equal"),
        ({"errors": "robust", "mechanism": "dp-gd"}, "needs sufficient-statistics"),
        ({"errors": "robust", "max_features": 1}, "no intervals"),
    ):
        with pytest.raises(InvalidInputError, match=why):
            PrivateLinearRegression(3.0, **TASK, **options).fit(X, y)
    with pytest.raises(PrivacyParameterError, match="without weights"):
        PrivateLinearRegression(3.0, errors="robust", max_weight=1.0, **TASK).fit(X, y, np.ones(2000))
    with pytest.raises(PrivacyParameterError, match="without weights"):
        SufficientStatistics.plan(
            RiskFacts(100, 2, LogisticLoss(), 1.0), epsilon=1.0, delta=1e-6
        ).with_residuals()
