"""Bands of AUC follow the stated curve, and records and epsilon are what it takes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from privopt.mechanisms.estimators.expected_auc import AucCurve, ExpectedAuc
from privopt.problems import Categorical, InvalidInputError, Numeric, Schema

SCHEMA = Schema([Numeric("age", 0, 100, step=10), Categorical("region", ["a", "b", "c"])], intercept=True)


def expected(**changes: Any) -> ExpectedAuc:
    return ExpectedAuc(**{"schema": SCHEMA, "positive": 0.2, "not_private": 0.85, **changes})


def mu_of(epsilon: float, delta: float) -> float:
    """The level of Gaussian differential privacy, from its definition (Dong, Roth and Su, corollary 1)."""

    def excess(mu: float) -> float:
        tail = math.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)
        return float(norm.cdf(-epsilon / mu + mu / 2) - tail - delta)

    return float(brentq(excess, 1e-3, 10))


@pytest.mark.parametrize("model", ["card", "linear"])
def test_the_band_is_that_of_the_stated_signal(model: str) -> None:
    n, curve = 3_000, AucCurve.of_model(model)
    # Two columns; one feature of the number, three levels, and the constant.
    x = n * mu_of(1.0, 1 / n**2) * math.sqrt(0.16) * math.sqrt(2) * norm.ppf(0.85) / math.sqrt(5 * 2)
    low, middle, high = expected(model=model).at(n, 1.0)
    assert middle == pytest.approx(0.5 + 0.35 * x / (x + curve.middle), rel=1e-4)
    assert low == pytest.approx(0.5 + 0.35 * x / (x + curve.worst) - curve.margin, rel=1e-4)
    assert high == pytest.approx(0.5 + 0.35 * x / (x + curve.best) + curve.margin, rel=1e-4)


@pytest.mark.parametrize("model", ["card", "linear"])
def test_default_models_have_a_constant_that_is_not_declared(model: str) -> None:
    bare = Schema(SCHEMA.columns, intercept=False)
    assert expected(model=model, schema=bare).at(3_000, 1.0) == expected(model=model).at(3_000, 1.0)


def test_records_and_epsilon_are_the_least_that_keep_the_auc() -> None:
    model = expected()
    few, middle, many = model.records(0.8, 0.5)
    for n, part in ((few, "high"), (middle, "middle"), (many, "low")):
        enough, less = (getattr(model.at(int(n) - k, 0.5), part) for k in (0, 1))
        assert less < 0.8 <= enough
    for epsilon, part in zip(model.epsilon(0.8, 2_000), ("high", "middle", "low"), strict=True):
        enough, less = (getattr(model.at(2_000, epsilon * k), part) for k in (1, 0.998))
        assert less < 0.8 <= enough


def test_the_least_numbers_of_records_are_found_too() -> None:
    """At a large epsilon two or three records are enough; by default delta needs two."""
    schema = Schema([Numeric("age", 18, 90)], intercept=True)
    for delta in (1e-6, "auto"):
        found = ExpectedAuc(schema, 0.5, 0.95, delta=delta).records(0.7, 40.0)
        assert 2 <= found.low <= found.middle <= found.high < 100


def test_what_is_not_certain_at_any_number_is_infinite() -> None:
    model = expected()
    almost = 0.85 - AucCurve.of_model("card").margin / 2  # the low end never gets there
    assert model.records(almost, 1.0).high == math.inf
    assert math.isfinite(model.records(almost, 1.0).low)
    assert model.epsilon(almost, 100).high == math.inf


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (
            lambda: expected().records(0.85, 1.0),
            "out of reach: a model without privacy is expected to have 0.85",
        ),
        (lambda: expected().epsilon(0.5, 100), "0.5 is that of chance"),
        (lambda: expected(not_private=0.5), "where 0.5 is that of chance"),
        (lambda: expected(positive=1.0), "share of positives"),
        (lambda: expected(model="tree"), "measured for card and linear"),
        (lambda: expected(model="crad"), "did you mean 'card'"),
    ],
)
def test_refusals_say_why(make: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        make()
