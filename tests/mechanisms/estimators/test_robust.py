"""Private linear models of records of unknown size: contract, learning, classes, files, budgets."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt.mechanisms import PrivateRobustClassifier, PrivateRobustRegression
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError, UnknownMechanismError
from privopt.mechanisms.estimators.robust import in_random_order
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.usefulness import NoiseWarning
from privopt.mechanisms.registry import ROBUST_FITS
from privopt.oracles import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.problems import Categorical, InvalidInputError, Numeric, PrivacyLeakWarning, Schema
from privopt.problems.tables.counted import CountedRecords


def incomes(n: int = 6000, seed: int = 0, size: float = 1000.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log-normal columns of very different sizes, far from 0; t-distributed noise."""
    rng = np.random.default_rng(seed)
    X = rng.lognormal(0, 1, (n, 3)) * [1, 100, 0.01] + [0, 2000, 5]
    w = np.array([1.0, -0.01, 50.0]) * size
    return X, X @ w + 40 * size + size * rng.standard_t(2.5, n), w


@pytest.mark.filterwarnings("ignore::privopt.problems.errors.PrivacyLeakWarning")  # classes are not declared
@parametrize_with_checks(
    [PrivateRobustRegression(insecure_seed=0), PrivateRobustClassifier(steps=3, insecure_seed=0)]
)
def test_scikit_learn_contract(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_regression_needs_no_public_size(size: float) -> None:
    X, y, w = incomes(size=size)
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        model = PrivateRobustRegression(2.0, insecure_seed=0).fit(X, y)
    spread = np.quantile(np.abs(X - np.median(X, axis=0)), 0.75, axis=0)
    assert np.abs((model.coef_ - w) * spread).max() < 0.12 * np.abs(w * spread).max()
    assert np.median(np.abs(model.predict(X) - y)) < 0.6 * np.median(np.abs(y - np.median(y)))
    assert model.spend_.epsilon <= 2.0 * (1 + 1e-9)
    assert model.mechanism_ == "clipped-newton"


def test_columns_of_any_size_are_fitted_alike() -> None:
    X, y, w = incomes(4000)
    sizes, errors = np.array([1e20, 1e-20, 1.0]), []
    spread = np.quantile(np.abs(X - np.median(X, axis=0)), 0.75, axis=0)
    for scale in (np.ones(3), sizes):
        model = PrivateRobustRegression(2.0, insecure_seed=3).fit(X * scale, y)
        errors.append(np.linalg.norm((model.coef_ * scale - w) * spread))
    assert max(errors) < 0.2 * np.linalg.norm(w * spread)


def test_one_record_moves_nothing_out_of_proportion() -> None:
    X, y, w = incomes()
    X[0], y[0] = [1e300, -1e300, 1e-300], 1e305
    model = PrivateRobustRegression(2.0, insecure_seed=0).fit(X, y)
    assert np.abs((model.coef_ - w) / w)[0] < 0.2
    assert np.all(np.isfinite(model.predict(X)))


@pytest.mark.parametrize("name", ["clipped-newton", "robust-gd", "trimmed-gd"])
def test_every_mechanism_learns_both_kinds(name: str) -> None:
    X, y, _ = incomes()
    quiet = np.median(np.abs(y - np.median(y)))
    model = PrivateRobustRegression(20.0, mechanism=name, insecure_seed=1).fit(X, y)
    assert np.median(np.abs(model.predict(X) - y)) < 0.9 * quiet
    assert model.mechanism_ == name
    labels = np.where(y > np.median(y), "high", "low")
    options: dict[str, Any] = {"mechanism": name, "classes": ("low", "high"), "insecure_seed": 1}
    card = PrivateRobustClassifier(20.0, **options).fit(X, labels)
    assert card.score(X, labels) > 0.7
    assert card.predict_proba(X).sum(axis=1) == pytest.approx(1)


@pytest.mark.slow
def test_batches_learn_too() -> None:
    X, y, _ = incomes()
    model = PrivateRobustRegression(20.0, mechanism="robust-sgd", insecure_seed=1).fit(X, y)
    assert np.median(np.abs(model.predict(X) - y)) < 0.9 * np.median(np.abs(y - np.median(y)))


def test_three_classes_share_units_and_budget() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_t(2.5, (9000, 2)) * [1, 1e6]
    y = np.argmax(np.column_stack([X[:, 0], X[:, 1] / 1e6, -X[:, 0] - X[:, 1] / 1e6]), axis=1)
    model = PrivateRobustClassifier(3.0, classes=(0, 1, 2), insecure_seed=0).fit(X, y)
    assert model.coef_.shape == (3, 2)
    assert model.score(X, y) > 0.8
    assert model.spend_.epsilon <= 3.0 * (1 + 1e-9)
    assert "3 releases share it" in model.spend_.note


def test_generous_ranges_of_a_schema_cost_nothing(tmp_path: Path) -> None:
    X, y, _ = incomes()
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.where(X[:, 2] > 5.01, "x", "z")})
    errors = []
    for reach in (2, 10**4):
        columns = [
            Numeric("a", 0, 100 * reach),
            Numeric("b", 0, 10**5 * reach),
            Categorical("kind", ["x", "z"]),
        ]
        model = PrivateRobustRegression(2.0, schema=Schema(columns), insecure_seed=0).fit(table, y)
        errors.append(np.median(np.abs(model.predict(table) - y)))
    assert errors[1] < 1.2 * errors[0]
    model.save(tmp_path / "model.json")
    again = PrivateRobustRegression.load(tmp_path / "model.json")
    assert np.array_equal(again.predict(table), model.predict(table))
    assert again.spend_ == model.spend_
    with pytest.raises(InvalidInputError):
        PrivateRobustClassifier.load(tmp_path / "model.json")


def test_a_classifier_is_saved_and_loaded(tmp_path: Path) -> None:
    X, y, _ = incomes(500)
    labels = np.where(y > np.median(y), "high", "low")
    model = PrivateRobustClassifier(1.0, classes=("low", "high")).fit(X, labels)
    model.save(tmp_path / "model.json")
    again = PrivateRobustClassifier.load(tmp_path / "model.json")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_levels_that_are_as_rare_as_the_noise_of_counts_do_not_blow_predictions_up() -> None:
    """Their units are public: a search for them costs budget, and may leave them out."""
    rng, n = np.random.default_rng(0), 3000
    levels = [f"ward {k}" for k in range(40)]
    table = pd.DataFrame({"ward": rng.choice(levels, n), "cost": rng.lognormal(0, 1, n).clip(0, 9)})
    y = 1000 * (1 + table["cost"] + (table["ward"] == "ward 3")) + 100 * rng.standard_normal(n)
    schema = Schema([Categorical("ward", levels), Numeric("cost", 0, 1000, step=0.01)], intercept=True)
    for seed in range(5):
        model = PrivateRobustRegression(2.0, schema=schema, insecure_seed=seed).fit(table, y)
        assert np.max(np.abs(model.predict(table) - np.median(y))) < 20 * np.std(y)
        assert model.score(table, y) > 0.7


def test_budget_limits_and_refusals(tmp_path: Path) -> None:
    X, y, _ = incomes(300)
    book = Ledger.create(tmp_path / "ledger", epsilon=1.5, delta=1e-3)
    PrivateRobustRegression(1.0, delta=1e-5, ledger=book).fit(X, y)
    with pytest.raises(BudgetExceededError):
        PrivateRobustRegression(1.0, delta=1e-5, ledger=book).fit(X, y)
    with pytest.raises(UnfinishedDrawError):
        PrivateRobustRegression(limits=Limits(cancelled=lambda: True)).fit(X, y)
    with pytest.raises(UnknownMechanismError, match="clipped-newton"):
        PrivateRobustRegression(mechanism="dp-gd").fit(X, y)
    with pytest.raises(PrivacyParameterError):
        PrivateRobustRegression(steps=-1).fit(X, y)
    with pytest.raises(InvalidInputError, match="sparse"):
        PrivateRobustRegression().fit(sp.csr_array(X), y)


@pytest.mark.parametrize("name", ["clipped-newton", "robust-gd", "trimmed-gd"])
def test_unseeded_fits_differ(name: str) -> None:
    X, y, _ = incomes(50)
    first, second = (PrivateRobustRegression(mechanism=name).fit(X, y) for _ in range(2))
    assert not np.array_equal(first.coef_, second.coef_)


def test_the_default_is_the_first() -> None:
    assert next(iter(ROBUST_FITS)) == "clipped-newton"
    assert math.isfinite(PrivateRobustRegression().fit(*incomes(50)[:2]).intercept_)


def test_too_few_records_for_units_are_told() -> None:
    rng = np.random.default_rng(0)
    X, flags = rng.normal(50, 10, (200, 3)), Schema([Categorical("a", ["no", "yes"])], intercept=True)
    with pytest.warns(
        UserWarning, match="200 records are too few at epsilon = 0.5 to estimate units of 4 columns"
    ):
        PrivateRobustRegression(0.5, delta=1e-6).fit(X, X[:, 0])
    table = pd.DataFrame({"a": ["no", "yes"] * 100})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", NoiseWarning)  # few records
        PrivateRobustClassifier(0.5, delta=1e-6, schema=flags, classes=(0, 1)).fit(table, [0, 1] * 100)


def test_counted_records_are_fitted_in_random_order() -> None:
    """Whether they were counted in memory or in an engine; each record once, labels beside their records."""
    ibis = pytest.importorskip("ibis")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.integers(0, 50, 3000) * 1.0, "z": rng.choice(["a", "b"], 3000)})
    label = np.where(frame["x"] + 9 * (frame["z"] == "a") + rng.normal(0, 4, 3000) > 30, "yes", "no")
    schema, classes = Schema([Numeric("x", 0, 50), Categorical("z", ["a", "b"])]), ["no", "yes"]
    counted = CountedRecords.of(schema, schema.codes(frame), classes, (label == "yes").astype(np.int64))
    model = PrivateRobustClassifier(4.0, schema=schema, classes=classes, insecure_seed=1)
    there = model.fit(ibis.memtable(frame.assign(y=label)), "y").coef_.tolist()
    assert model.fit(counted).coef_.tolist() == there
    assert np.mean(model.predict(frame) == label) > 0.85
    seen: list[Any] = []
    X, targets = model._read(counted, None, schema, NoiseSource(2))
    seen = sorted(zip(X[:, 0].tolist(), X[:, 1].tolist(), targets.labels[0].tolist(), strict=True))
    features = schema.encode(frame)
    expected = (features.X / features.denominator)[:, :2]
    signs = np.where(label == "yes", 1.0, -1.0)
    assert seen == sorted((*row, sign) for row, sign in zip(expected.tolist(), signs.tolist(), strict=True))
    with pytest.raises(InvalidInputError, match="regression needs a table in memory"):
        PrivateRobustRegression(1.0, schema=schema).fit(ibis.memtable(frame.assign(y=1.0)), "y")


def test_every_order_of_counted_records_is_equally_likely() -> None:
    """Chi-squared over the 12 orders of counts 2, 1, 1; the limit is its 1 - 1e-6 quantile, 11 degrees."""
    source, found = NoiseSource(0), {}
    for _ in range(6000):
        order = tuple(in_random_order(np.array([2, 1, 1]), source).tolist())
        found[order] = found.get(order, 0) + 1
    assert len(found) == 12
    assert sum((count - 500) ** 2 / 500 for count in found.values()) < 48.9
