"""Planned widths of intervals are those of fits to the assumed population."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import ExpectedIntervals, PrivateLinearRegression
from privopt.problems import Categorical, InvalidInputError, Numeric, Schema

SCHEMA = Schema([Numeric("age", 20, 80), Categorical("region", ["a", "b", "c"])])
CONSTANT = Schema(SCHEMA.columns, intercept=True)
RANGE = (0.0, 10.0)


def expected(**changes: Any) -> ExpectedIntervals:
    return ExpectedIntervals(**{"schema": SCHEMA, "label_range": RANGE, "residual_sd": 1.0, **changes})


def records(n: int, seed: int, slope: float) -> tuple[pd.DataFrame, Any]:
    """Draw from the assumed population; labels are centred at the middle of their range, within it."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.integers(20, 81, n), "region": rng.choice(list("abc"), n)})
    return frame, 5 + slope * (frame["age"] - 50) + rng.uniform(-(3**0.5), 3**0.5, n)


@pytest.mark.parametrize(("schema", "slope", "epsilon"), [(SCHEMA, 0.0, 1.0), (CONSTANT, 0.05, 0.5)])
def test_fits_to_the_assumed_population_have_the_planned_widths(
    schema: Schema, slope: float, epsilon: float
) -> None:
    n = 8_000
    planned = expected(schema=schema, weights={"age": slope}).widths(n, epsilon)
    found = []
    for seed in range(24):
        frame, y = records(n, seed, slope)
        model = PrivateLinearRegression(epsilon, schema=schema, label_range=RANGE, insecure_seed=seed)
        found.append({one.name: one.high - one.low for one in model.fit(frame, y).summary()})
    for name, width in pd.DataFrame(found).median().items():
        assert width == pytest.approx(planned[str(name)].width, rel=0.05)


def test_of_a_public_table_the_width_without_privacy_is_that_of_least_squares() -> None:
    rng = np.random.default_rng(0)
    age = np.clip(np.rint(rng.gamma(9, 4, 3_000)), 20, 80)
    region = np.where(age > 40, "a", rng.choice(list("abc"), 3_000))  # correlated
    planned = expected(table=pd.DataFrame({"age": age, "region": region})).widths(10**6, 50.0)
    Z = np.column_stack([age, region == "b", region == "c", np.ones(3_000)])
    exact = 2 * 1.959964 * np.sqrt(np.diag(np.linalg.inv(Z.T @ Z / 3_000)) / 10**6)
    assert [one.not_private for one in planned.values()] == pytest.approx(exact, rel=1e-6)
    assert [one.width for one in planned.values()] == pytest.approx(exact, rel=0.01)
    assert planned["age"].not_private > 1.5 * expected().widths(10**6, 50.0)["age"].not_private


def test_records_and_epsilon_are_the_least_for_a_width() -> None:
    plan = expected()
    n = plan.records(0.01, 1.0, "age")
    assert plan.widths(n, 1.0)["age"].width <= 0.01 < plan.widths(n - 1, 1.0)["age"].width
    epsilon = plan.epsilon(0.01, 20_000, "age")
    assert plan.widths(20_000, epsilon)["age"].width <= 0.01
    assert plan.widths(20_000, epsilon / 1.002)["age"].width > 0.01
    widest = max(one.width for name, one in plan.widths(20_000, 1.0).items() if name != "intercept")
    assert plan.epsilon(widest, 20_000) == pytest.approx(1.0, rel=0.002)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: expected().widths(200, 0.1), "a plan needs 2"),
        (lambda: expected().epsilon(0.001, 1_000, "age"), "without privacy"),
        (lambda: expected().records(1e-12, 1.0), "more than 1,000,000,000 records"),
        (lambda: expected().epsilon(0.05, 10**18), "up to 1,000,000,000 records, got 1,000,000"),
        (lambda: expected().records(0.1, 1.0, "agee"), "did you mean 'age'"),
        (lambda: expected(residual_sd=6.0), "more than half of the label range"),
        (lambda: expected(weights={"height": 1.0}), "no coefficient 'height'"),
    ],
)
def test_refusals_say_why(make: Any, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        make()
