"""Best subsets on noisy moments: post-processing of one release; enumeration where there is no noise."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateLinearRegression
from privopt.mechanisms.convex.subset_statistics import SubsetStatistics
from privopt.mechanisms.convex.sufficient_statistics import Moments, SufficientStatistics
from privopt.mechanisms.estimators.column_choice import by_moments
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.oracles.errors import UnfinishedBuildError, UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import SquaredLoss
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.datasets.synthetic import SparseDesign
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Categorical, Numeric
from privopt.problems.tables.schema import Schema

X, Y = SparseDesign(20, 3).table(4000, np.random.default_rng(0))
FACTS: dict[str, Any] = {"data_norm": 1.0, "label_range": (-1.0, 1.0), "delta": 1e-6}
MOMENTS = {"mechanism": "sufficient-statistics", **FACTS}


def test_the_path_is_that_of_enumeration_without_noise() -> None:
    """Each size against NumPy's least squares with an intercept on every subset of columns."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 7)) + rng.normal(size=(60, 1))
    labels = rows @ np.array([1.0, -1.0, 0.5, 0.0, 0.0, 0.3, 0.0]) + rng.normal(size=60) + 3
    extended = np.column_stack([rows, np.ones(60)])
    bare = SufficientStatistics.plan(
        RiskFacts(60, 8, SquaredLoss(80.0), 20.0, "l2", 2.0), epsilon=1.0, delta=1e-6
    )
    plan = SubsetStatistics.of(bare, 3, tuple((j, j + 1) for j in range(7)))
    z = np.column_stack([rows, np.full(60, plan.offset)])
    found = Moments(z.T @ z / 60, z.T @ labels / 60, float(labels @ labels) / 60)
    point, path = plan._best(found, 0.0, Limits().start())
    for size in (1, 2, 3):
        best = min(
            itertools.combinations(range(7), size),
            key=lambda s: float(np.linalg.lstsq(extended[:, [*s, 7]], labels, rcond=None)[1][0]),
        )
        assert tuple(np.flatnonzero(path.masks[size - 1]).tolist()) == best
    assert path.finished == (True, True, True)
    exact = np.linalg.lstsq(extended[:, [*best, 7]], labels, rcond=None)[0]
    assert point[list(best)] == pytest.approx(exact[:-1])
    assert 2.0 * point[-1] == pytest.approx(exact[-1])
    assert np.count_nonzero(point) == 4


def test_one_release_at_the_whole_budget() -> None:
    """The same noise gives the moments of a fit without a choice, and costs what that costs."""
    model = PrivateLinearRegression(1.0, max_features=3, insecure_seed=5, **MOMENTS).fit(X, Y)
    clipped = np.clip(X, -1, 1)
    facts = {**MOMENTS, "data_norm": np.sqrt(20) * (1 + 1e-12)}
    plain = PrivateLinearRegression(1.0, insecure_seed=5, **facts).fit(clipped, Y)
    assert np.array_equal(model.releases_[0].moments.features, plain.releases_[0].moments.features)
    assert np.array_equal(model.releases_[0].moments.products, plain.releases_[0].moments.products)
    assert (model.spend_, model.noise_) == (plain.spend_, plain.noise_)


def test_fit_on_the_best_columns(tmp_path: Path) -> None:
    """Columns 0, 6 and 12 explain the labels; the noise of a covariance is a tenth of theirs."""
    model = PrivateLinearRegression(2.0, max_features=3, **MOMENTS).fit(X, Y)
    assert np.flatnonzero(model.support_).tolist() == [0, 6, 12]
    assert np.array_equal(model.coef_ != 0, model.support_)
    assert np.all(model.coef_[model.support_] > 0.2)
    assert model.support_path_.sum(axis=1).tolist() == [1, 2, 3]
    assert np.array_equal(model.support_path_[-1], model.support_)
    with pytest.raises(InvalidInputError, match="the same records chose its columns"):
        model.summary()
    model.save(tmp_path / "model.json")
    again = PrivateLinearRegression.load(tmp_path / "model.json")
    assert np.array_equal(again.predict(X), model.predict(X))
    model.set_params(max_features=None).fit(X, Y)
    assert not hasattr(model, "support_path_")
    drawn = PrivateLinearRegression(8.0, max_features=3, mechanism="best-subset", **FACTS).fit(X, Y)
    assert np.flatnonzero(drawn.support_).tolist() == [0, 6, 12]
    assert not hasattr(drawn, "support_path_")


def test_levels_of_a_category_are_chosen_together() -> None:
    rng = np.random.default_rng(2)
    columns = [Numeric(f"x{j}", 0, 10, one=10) for j in range(4)]
    schema = Schema([columns[0], Categorical("c", ["a", "b", "d"]), *columns[1:]])
    table = pd.DataFrame({f"x{j}": rng.integers(0, 11, 3000) for j in range(4)})
    table["c"] = rng.choice(["a", "b", "d"], 3000)
    labels = np.where(table["c"] == "a", 0.6, -0.4) + table["x2"] / 10
    options = {"delta": 1e-6, "label_range": (-1.0, 2.0), "schema": schema}
    model = PrivateLinearRegression(4.0, max_features=2, mechanism="sufficient-statistics", **options).fit(
        table, labels
    )
    assert np.flatnonzero(model.support_).tolist() == [1, 2, 3, 5]
    assert np.all(model.coef_[~model.support_] == 0)
    assert model.score(table, labels) > 0.9
    auto = PrivateLinearRegression(4.0, max_features=2, **options).fit(table, labels)
    assert not hasattr(auto, "support_path_")  # an exact draw takes each level by itself


def test_auto_takes_the_better_one_by_public_facts() -> None:
    """Measured on synthetic tables at epsilon 1: docs, best subsets."""
    mu = gaussian_mu(1.0, 1e-6)
    assert by_moments(30, 5, 1.0, mu)[0]
    assert by_moments(100, 10, 1.0, mu)[0]
    assert not by_moments(100, 2, 1.0, mu)[0]
    assert not by_moments(1000, 5, 1.0, mu)[0]
    table, labels = SparseDesign(12, 6).table(300, np.random.default_rng(0))
    auto = PrivateLinearRegression(1.0, max_features=6, **FACTS)
    assert "on noisy moments needed fewer" in auto.fit(table, labels).mechanism_reason_
    penalised = PrivateLinearRegression(1.0, max_features=6, regularizer="l2:0.1", **FACTS)
    assert not hasattr(penalised.fit(table.copy(), labels), "support_path_")


def test_a_limit_releases_nothing() -> None:
    calls = iter([False] * 3 + [True] * 1000)
    model = PrivateLinearRegression(1.0, max_features=3, **MOMENTS)
    with pytest.raises((UnfinishedBuildError, UnfinishedDrawError)):
        model.set_params(limits=Limits(cancelled=lambda: next(calls))).fit(X, Y)
    for wrong in (0, 21, True):
        with pytest.raises(InvalidInputError, match="max_features must be"):
            PrivateLinearRegression(1.0, max_features=wrong, **MOMENTS).fit(X, Y)
