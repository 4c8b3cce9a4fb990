"""Moments of several classes in one release: sensitivity by search, the discriminant by scikit-learn's."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from privopt.mechanisms import PrivateLogisticRegression, PrivateSigmoidClassifier
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics, moments, simplex_vertices
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Run
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import LogisticLoss, OneVsRestLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Categorical, Numeric
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]
BUDGET = {"epsilon": 1.0, "delta": 1e-6}
NAME = "sufficient-statistics"


def risk(rows: Floats, y: Floats, classes: int, constant: float = 0.5) -> EmpiricalRisk:
    """Rows of norm at most 1 beside a constant; no constant feature at 0."""
    X = np.column_stack([rows, np.full(len(rows), constant)]) if constant else rows
    norm = math.hypot(1.0, constant)
    return EmpiricalRisk(X, y, OneVsRestLoss(classes), row_norm=norm, constant=constant)


def released(data: EmpiricalRisk, plan: SufficientStatistics) -> Floats:
    """Vector that noise is added to, from z z' and z v_y' of single records, written out independently."""
    rows = np.asarray(data.X)[:, : data.X.shape[1] - bool(plan.facts.constant)]
    if plan.facts.constant:
        rows = np.column_stack([rows, np.full(len(rows), plan.offset)])
    z, v = rows[0], simplex_vertices(plan.facts.loss.classes)[int(data.y[0])]  # type: ignore[attr-defined]
    p = len(z)
    triangle = [z[j] * z[k] * (1 if j == k else math.sqrt(2)) for j in range(p) for k in range(j, p)]
    return np.array([*triangle, *(math.hypot(1.0, plan.offset) * np.outer(v, z)).ravel()])


@pytest.mark.parametrize("classes", [2, 3, 4, 7])
def test_labels_are_a_simplex_in_the_unit_ball(classes: int) -> None:
    products = simplex_vertices(classes) @ simplex_vertices(classes).T
    expected = np.where(np.eye(classes, dtype=bool), 1.0, -1 / (classes - 1))
    assert products == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_no_pair_of_records_moves_moments_of_classes_by_more_than_the_sensitivity(classes: int) -> None:
    """All pairs of a schema of a category and a number, by a search; and the worst pair of the proof."""
    schema = Schema([Categorical("a", ["x", "y", "z"]), Numeric("b", -1, 1)], intercept=False)
    records = pd.DataFrame({"a": ["x", "y", "z"] * 3, "b": np.repeat([-1.0, 0.0, 1.0], 3)})
    rows = (encoded(schema, records) - schema.middle) / schema.spread
    for constant in (0.5, 0.0):
        plan = SufficientStatistics.plan(risk(rows[:1], np.zeros(1), classes, constant).facts, **BUDGET)
        seen = [
            released(risk(row[None, :], np.array([k]), classes, constant), plan)
            for row in rows
            for k in range(classes)
        ]
        changes = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(seen, 2)]
        assert max(changes) <= plan.vector_noise.sensitivity
    # Without a constant, rows at 120 degrees with one class attain the bound.
    turned = np.array([[1.0, 0.0], [-0.5, math.sqrt(3) / 2]])
    pair = [risk(row[None, :], np.array([1.0]), classes, 0.0) for row in turned]
    plan = SufficientStatistics.plan(pair[0].facts, **BUDGET)
    found = [moments(data, 0.0, Limits().start()) for data in pair]
    vectors = [np.concatenate([m.features.ravel(), m.products.ravel()]) for m in found]
    worst = float(np.linalg.norm(vectors[0] - vectors[1]))
    assert worst == pytest.approx(plan.vector_noise.sensitivity, rel=1e-9)
    assert worst <= plan.vector_noise.sensitivity


def test_the_search_moves_what_noise_is_added_to() -> None:
    data = risk(np.array([[0.3, -0.4]]), np.array([2.0]), 3)
    plan = SufficientStatistics.plan(data.facts, **BUDGET)
    seen: list[Floats] = []

    class Spy(type(plan.vector_noise)):  # type: ignore[misc]
        def add(self, vector: Floats, source: NoiseSource) -> Floats:
            seen.append(vector)
            return np.asarray(super().add(vector, source))

    noise = plan.vector_noise
    spied = dataclasses.replace(plan, vector_noise=Spy(noise.sensitivity, noise.sigma, noise.dimension))
    spied.release(data, NoiseSource(0))
    assert seen[0] == pytest.approx(np.delete(released(data, plan), 5), rel=1e-12)  # a public square
    assert seen[0].size == noise.dimension


def test_every_product_of_classes_has_the_planned_noise() -> None:
    """80 draws of 9 products: the standard deviation of each within 5 of its standard errors."""
    data = risk(np.zeros((20, 2)), np.arange(20.0) % 4, 4)
    plan = SufficientStatistics.plan(data.facts, **BUDGET)
    run = Run(np.zeros(0), NoiseSource(0), Limits().start())
    products = np.array([plan._noisy_moments(data, run)[0].products for _ in range(80)])
    expected = plan.vector_noise.sigma / math.hypot(1.0, plan.offset)
    assert products.shape == (80, 3, 3)
    assert np.all(np.abs(products.std(axis=0) / expected - 1) < 5 / math.sqrt(160))


def test_several_classes_cost_what_two_cost() -> None:
    """The same sensitivity and mu; only the grid knows that more numbers are released."""
    rows = np.zeros((50, 2))
    plans = [SufficientStatistics.plan(risk(rows, np.zeros(50), k).facts, **BUDGET) for k in (2, 7)]
    two = SufficientStatistics.plan(dataclasses.replace(plans[0].facts, loss=LogisticLoss()), **BUDGET)
    for plan in plans:
        assert plan.vector_noise.sensitivity == two.vector_noise.sensitivity
        assert plan.vector_noise.sigma == pytest.approx(two.vector_noise.sigma, rel=1e-6)
    assert plans[0].vector_noise == two.vector_noise


def test_without_noise_it_is_the_linear_discriminant() -> None:
    """Differences of scores of scikit-learn's analysis, whose weights are determined up to those."""
    rng = np.random.default_rng(0)
    y = rng.choice(4, 600, p=[0.4, 0.3, 0.2, 0.1])
    rows = rng.normal(0, 0.1, (600, 3)) + 0.15 * rng.normal(size=(4, 3))[y]
    rows = rows / max(1.0, float(np.max(np.linalg.norm(rows, axis=1))))
    data = risk(rows, y.astype(float), 4)
    plan = SufficientStatistics.plan(data.facts, **BUDGET)
    found = np.asarray(data.X) @ plan.without_noise(data).T
    expected = LinearDiscriminantAnalysis(solver="lsqr").fit(rows, y).decision_function(rows)
    assert found - found[:, :1] == pytest.approx(expected - expected[:, :1], abs=1e-8)


def table(n: int = 3000, seed: int = 0) -> tuple[Floats, NDArray[np.str_]]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3)) / math.sqrt(3)
    scores = X @ rng.normal(0, 6, (3, 3)) + rng.gumbel(size=(n, 3))
    return X, np.array(["a", "b", "c"])[np.argmax(scores, axis=1)]


OPTIONS = {"data_norm": 1.0, "classes": ("a", "b", "c"), "insecure_seed": 0}


def test_an_estimator_of_several_classes_makes_one_release(tmp_path: Path) -> None:
    X, y = table()
    model = PrivateLogisticRegression(1.0, mechanism=NAME, **OPTIONS).fit(X, y)
    assert len(model.releases_) == 1
    assert model.multinomial_
    assert "one-vs-rest" not in model.spend_.note
    assert model.coef_.shape == (3, 3)
    assert model.score(X, y) > 0.55  # without noise .75, a constant .4
    scores = model.decision_function(X[:5])
    assert model.predict_proba(X[:5]) == pytest.approx(softmax(scores, axis=1))
    model.save(tmp_path / "model.json")
    loaded = PrivateLogisticRegression.load(tmp_path / "model.json")
    assert np.array_equal(loaded.predict_proba(X[:5]), model.predict_proba(X[:5]))


def test_other_fits_of_several_classes_are_one_vs_rest() -> None:
    X, y = table(300)
    model = PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=1, **OPTIONS).fit(X, y)
    assert len(model.releases_) == 3
    assert not model.multinomial_
    weighted = PrivateLogisticRegression(1.0, mechanism=NAME, class_weight={"a": 2.0}, **OPTIONS).fit(X, y)
    assert weighted.multinomial_  # weights move the scores of one release
    with pytest.raises(PrivacyParameterError, match="takes the squared and the logistic loss"):
        PrivateSigmoidClassifier(1.0, mechanism=NAME, **OPTIONS).fit(X, y)


def test_hessians_of_several_classes_are_not_paid_for() -> None:
    X, y = table(300)
    model = PrivateLogisticRegression(1.0, mechanism="objective-perturbation-hessian", **OPTIONS)
    with pytest.raises(PrivacyParameterError, match="exist for two classes only; there are 3 classes: use "):
        model.fit(X, y)


def test_the_loss_of_classes_is_a_loss_of_indices() -> None:
    loss, z = OneVsRestLoss(3), np.array([-1.0, 0.5, 2.0])
    signed, indices = np.array([1.0, -1.0, -1.0]), np.array([0.0, 1.0, 2.0])
    assert np.array_equal(loss.value(z, indices), LogisticLoss().value(z, signed))
    assert np.array_equal(loss.slope(z, indices), LogisticLoss().slope(z, signed))
    with pytest.raises(InvalidInputError, match="class indices from 0 to 2"):
        OneVsRestLoss(3).check_labels([0, 1, 3])
    with pytest.raises(InvalidInputError, match="at least 2"):
        OneVsRestLoss(1)
