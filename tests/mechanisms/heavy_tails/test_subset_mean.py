"""Means over subsets: their noise, their number of subsets, their use where a centre is of none."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.heavy_tails.subset_mean import SubsetMean, default_subsets
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.errors import InvalidInputError

FACTS: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}


def first(rows: Any, labels: Any) -> Any:
    """Return the first record of a subset."""
    return rows[0]


def test_the_noise_pays_for_two_ends_of_the_ball() -> None:
    """An estimate that goes from one end to the other moves a mean of m by 2 R / m."""
    plan = SubsetMean.plan(40, 3, subsets=10, radius=5.0, **FACTS)
    mu = gaussian_mu(1.0, 1e-6)
    assert plan.noise["sigma"] == pytest.approx(2 * 5.0 / 10 / mu, rel=1e-6)
    assert 2 * 5.0 / 10 / plan.noise["sigma"] <= mu
    assert plan.spend.level <= mu


def test_a_release_is_the_mean_of_projected_estimates_and_noise() -> None:
    X = np.array([[300.0, 400.0], [0.0, 1.0], [np.inf, 0.0], [1.0, 0.0]] * 100)
    X[~np.isfinite(X)] = 0.0
    plan = SubsetMean.plan(400, 2, subsets=400, radius=5.0, epsilon=1e4, delta=1e-6)
    found = plan.release(X, np.zeros(400), first, NoiseSource(insecure_seed=0))
    # (300, 400) becomes (3, 4); (3 + 0 + 0 + 1) / 4 and (4 + 1) / 4.
    assert found.point == pytest.approx([1.0, 1.25], abs=8 * plan.noise["sigma"])
    assert plan.noise["sigma"] < 0.01
    with pytest.raises(PlanMismatchError, match="400 records"):
        plan.release(X[1:], np.zeros(399), first)


def test_it_is_of_use_where_the_centre_is_of_none() -> None:
    """n = 200,000, d = 4, epsilon 4, weights of norm 1; released on a tenth of the records."""
    plan = SubsetMean.plan(200_000, 4, radius=1.0, epsilon=4.0, delta=1 / 200_000**2)
    assert math.sqrt(4) * plan.noise["sigma"] < 0.02
    rng, w = np.random.default_rng(0), np.array([0.5, -0.5, 0.5, 0.5])
    small = SubsetMean.plan(20_000, 4, radius=1.0, epsilon=4.0, delta=1e-8)
    X = rng.normal(size=(20_000, 4))
    y = X @ w + rng.normal(size=20_000)
    found = small.release(X, y, least_squares, NoiseSource(insecure_seed=1))
    assert np.linalg.norm(found.point - w) < 0.1


def least_squares(rows: Any, labels: Any) -> Any:
    return np.linalg.lstsq(rows, labels, rcond=None)[0]


def test_the_number_of_subsets_balances_noise_and_bias() -> None:
    """m minimises d m / n + 2 sqrt(d) / (m mu), by search, where subsets are large enough."""
    n, d, mu = 200_000, 4, 0.5
    sizes = np.arange(2, 5000)
    best = int(sizes[np.argmin(d * sizes / n + 2 * math.sqrt(d) / (sizes * mu))])
    assert abs(default_subsets(n, d, mu) - best) <= 1
    assert default_subsets(400, 4, 0.01) == 10  # 10 records for each of 4 coordinates
    assert default_subsets(3, 4, 0.5) == 2


@pytest.mark.parametrize(
    "wrong",
    [{"radius": 0.0}, {"radius": 1e200}, {"subsets": 0}, {"subsets": 41}, {"epsilon": 0.0}, {"delta": 0.0}],
)
def test_plans_refuse(wrong: dict[str, Any]) -> None:
    with pytest.raises((PrivacyParameterError, InvalidInputError)):
        SubsetMean.plan(40, 2, **{"radius": 1.0, **FACTS, **wrong})
