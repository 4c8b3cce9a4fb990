"""Weights of records: clipped, part of the record, and no more noise than without them."""

from __future__ import annotations

import itertools
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from privopt.mechanisms import PrivateLinearRegression, PrivateLogisticRegression
from privopt.mechanisms.convex.sufficient_statistics import _SQUARE_WEIGHT, SufficientStatistics, moments
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.estimators.sample_weight import bounded_weights
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.oracles.limits import Limits
from privopt.problems import InvalidInputError, Numeric, Schema
from privopt.problems.convex.losses import LogisticLoss, Loss, SquaredLoss
from privopt.problems.convex.risk import EmpiricalRisk

BOUND = 3.0
# Records on which the proofs' bounds are attained or nearly so, with weights within and beyond the bounds.
ROWS = [(1.0, 0.0), (0.5, math.sqrt(0.75)), (-1.0, 0.0), (0.0, 0.3)]
WEIGHTS = [0.0, 1.7, 3.0, 50.0, -4.0]
RECORDS = list(itertools.product(ROWS, (-1.0, 1.0), WEIGHTS))


def risk(record: tuple[Any, float, float], loss: Loss) -> EmpiricalRisk:
    """One record beside two others; the last feature is constant, and rows have norm 1 without it."""
    rows, labels, weights = zip(record, ((0.0, 1.0), 1.0, 2.0), ((0.6, -0.8), -1.0, 0.5), strict=True)
    X = np.column_stack([np.array(rows), np.full(3, 0.5)])
    found = bounded_weights(weights, BOUND)
    return EmpiricalRisk(X, labels, loss, row_norm=math.sqrt(1.25), constant=0.5, weights=found)


@pytest.mark.parametrize("loss", [LogisticLoss(), SquaredLoss(2.0)])
def test_neighbours_with_other_weights_are_within_the_sensitivity_of_gradients(loss: Loss) -> None:
    w = np.array([0.4, -9.0, 3.0])
    found = [risk(record, loss) for record in RECORDS]
    gradients = [r.gradient(w) for r in found]
    largest = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(gradients, 2))
    assert largest <= found[0].facts.sensitivity
    assert largest >= found[0].facts.sensitivity / 4  # the records come near it
    hessians = [r.hessian(w) for r in found]
    moved = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(hessians, 2))
    assert moved <= found[0].facts.hessian_sensitivity


@pytest.mark.parametrize("loss", [LogisticLoss(), SquaredLoss(2.0)])
def test_neighbours_with_other_weights_are_within_the_sensitivity_of_moments(loss: Loss) -> None:
    """All that is released, o^2 v included, off the diagonal twice, as in the Frobenius norm."""
    found = [risk(record, loss) for record in RECORDS]
    plan = SufficientStatistics.plan(found[0].facts, epsilon=1.0, delta=1e-6)
    factor = math.hypot(1.0, plan.offset)  # r / B, B = 1

    def released(one: EmpiricalRisk) -> np.ndarray:
        seen = moments(one, plan.offset, Limits().start())
        square = _SQUARE_WEIGHT * factor**2 * seen.square * isinstance(loss, SquaredLoss)
        return np.concatenate([seen.features.ravel(), factor * seen.products, [square]])

    all_released = [released(one) for one in found]
    largest = max(float(np.linalg.norm(a - b)) for a, b in itertools.combinations(all_released, 2))
    sensitivity = plan.noise["sensitivity"]
    assert sensitivity == pytest.approx(3 / math.sqrt(2) * factor**2 / 3, rel=1e-9)  # that without weights
    assert 0.7 * sensitivity <= largest <= sensitivity
    ones = np.array([a[8] for a in all_released])  # the last entry of z z'
    assert len(np.unique(ones.round(9))) > 1, "the total weight is not public, so it is released"


def models(**options: Any) -> list[Any]:
    common = {"data_norm": 1.0, "insecure_seed": 0, "max_weight": BOUND, **options}
    return [
        partial(PrivateLinearRegression, 50.0, label_range=(-4, 4), **common),
        partial(PrivateLogisticRegression, 50.0, classes=(-1, 1), **common),
    ]


def task(n: int = 4000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (n, 2))
    return X, np.sign(X @ [1.0, 2.0] + 0.1), rng.random(n) < 0.5


@pytest.mark.parametrize("make", models(), ids=["regression", "classification"])
def test_weights_beyond_the_bound_are_clipped_to_it(make: Any) -> None:
    X, y, some = task(200)
    low = np.where(np.arange(200) % 3 == 0, -5.0, 1.0)
    beyond, within = np.where(some, 1e9, low), np.where(some, BOUND, np.maximum(low, 0))
    one, other = make().fit(X, y, beyond), make().fit(X, y, within)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    np.testing.assert_array_equal(one.intercept_, other.intercept_)
    assert one.noise_["sigma"] == pytest.approx(make().fit(X, y).noise_["sigma"], rel=1e-9)  # costs nothing


@pytest.mark.parametrize(
    "mechanism", ["auto", *sorted(name for name, kind in RISK_MECHANISMS.items() if kind.takes_weights)]
)
@pytest.mark.parametrize("kind", [0, 1], ids=["regression", "classification"])
def test_records_of_weight_0_do_not_matter(kind: int, mechanism: str) -> None:
    """Half of the labels are wrong, and weigh nothing: the model is that of the others, up to noise."""
    X, y, wrong = task()
    spoiled = np.where(wrong, -y, y)
    make = models(mechanism=mechanism)[kind]
    weighted = make().fit(X, spoiled, np.where(wrong, 0.0, BOUND))
    right = (weighted.predict(X) > 0) == (y > 0)
    assert np.mean(right) > 0.9  # half of the weight is on wrong labels otherwise: 0.5


@pytest.mark.parametrize("mechanism", ["dp-fw-l1", "sufficient-statistics", "dp-gd"])
def test_records_of_weight_0_do_not_matter_in_sparse_tables(mechanism: str) -> None:
    X, y, wrong = task()
    model = models(mechanism=mechanism)[1]()
    model.fit(csr_array(X), np.where(wrong, -y, y), np.where(wrong, 0.0, BOUND))
    assert np.mean((model.predict(X) > 0) == (y > 0)) > 0.9


def test_moments_are_weighted_least_squares() -> None:
    """Almost without noise they are the normal equations with weights, solved here by themselves."""
    X, y, some = task()
    y, v = np.where(some, y, 0.0), np.where(some, 1.0, 0.2)
    ones = np.column_stack([X, np.ones(len(X))])
    exact = np.linalg.solve(ones.T @ (v[:, None] * ones), ones.T @ (v * y))
    model = PrivateLinearRegression(
        1e6, data_norm=1.0, label_range=(-1, 1), max_weight=1.0, mechanism="sufficient-statistics"
    )
    model.fit(X, y, v)
    assert [*model.coef_, model.intercept_] == pytest.approx(exact, abs=2e-2)


def test_mechanisms_without_a_proof_for_weights_refuse_them() -> None:
    X, y, _ = task(100)
    others = [name for name, kind in RISK_MECHANISMS.items() if not kind.takes_weights]
    assert {"dp-sgd", "screened-statistics", "objective-perturbation-hessian"} <= set(others)
    for name in others:
        with pytest.raises(PrivacyParameterError, match="takes no weights of records"):
            models(mechanism=name)[1]().fit(X, y, np.ones(100))


def test_weighted_moments_give_no_intervals() -> None:
    X, y, _ = task(500)
    model = models()[0]().fit(X, y, np.ones(500))
    with pytest.raises(InvalidInputError, match="interval"):
        model.summary()


@pytest.mark.parametrize(
    ("options", "weights", "message"),
    [
        ({"max_weight": None}, np.ones(100), "needs max_weight"),
        ({"max_weight": 0}, np.ones(100), "max_weight"),
        ({}, np.ones(99), "99"),
        ({}, np.ones((100, 1)), "shape"),
        ({}, np.full(100, math.nan), "NaN"),
        ({}, ["much"] * 100, "sample_weight"),
        ({"person": "id"}, np.ones(100), "person"),
    ],
)
def test_refusals(options: dict[str, Any], weights: Any, message: str) -> None:
    X, y, _ = task(100)
    with pytest.raises((InvalidInputError, PrivacyParameterError), match=message):
        models(**options)[0]().fit(X, y, weights)


def test_a_long_table_with_weights_is_not_counted() -> None:
    """Counts are of equal records, which need not have equal weights."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.integers(0, 2, 100_000)})
    y = np.where(rng.random(len(table)) < 0.5, table["a"], 1 - table["a"])
    model = PrivateLogisticRegression(
        20.0, schema=Schema([Numeric("a", 0, 1)]), classes=(0, 1), max_weight=1.0, insecure_seed=0
    )
    model.fit(table, y, (y == table["a"]).astype(float))
    assert model.score(table, table["a"]) == 1


def test_types_of_weights_are_refused_before_the_booking(tmp_path: Path) -> None:
    ledger, (X, y, _) = Ledger.create(tmp_path / "ledger", 100.0, 0.1), task(100)
    for weights in (np.full(100, "1"), np.full(100, 1j), pd.Series(["1"] * 100, dtype="string")):
        with pytest.raises(InvalidInputError, match="sample_weight is of type"):
            models(ledger=ledger)[0]().fit(X, y, weights)
    assert not list(ledger.entries())
