"""Evaluation of regressions: the sums, their noise, and intervals that hold what they say."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from privopt.mechanisms import NoiseSource, PrivateLinearRegression, evaluate
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError
from privopt.mechanisms.evaluation.paired_residuals import PairedResidualPlan
from privopt.mechanisms.evaluation.regression import RegressionEvaluation
from privopt.mechanisms.evaluation.residuals import BLOCKS, Block, NoisySums, ResidualPlan, SumsPlan
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems import InvalidInputError

RANGE = (-6.0, 6.0)


def records(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    return X, X @ [2.0, -1.0] + 0.5 * rng.standard_normal(n)


def plain() -> LinearRegression:
    return LinearRegression().fit(*records(500, seed=9))


# ---------------------------------------------------------------- the release


def test_no_two_records_are_further_apart_than_the_plan_pays_for() -> None:
    """All pairs of records on a grid of labels and predictions; privacy lost is rate * distance, summed."""
    ends = np.linspace(-6, 6, 13)
    y, p = (part.ravel() for part in np.meshgrid(ends, ends))
    for epsilon in (0.003, 1.0, 30.0):
        plan = ResidualPlan.plan(RANGE, epsilon=epsilon)
        added = plan.contributions(y, p)
        assert plan.spend.epsilon == epsilon
        loss = np.abs(added[:, None] - added[None]) @ plan.sums.rates
        assert 0.95 * epsilon < loss.max() <= epsilon or epsilon < 0.01
        assert loss.max() <= epsilon
        for block, steps in zip(BLOCKS, plan.sums.steps, strict=True):
            where = [plan.sums.names.index(name) for name in block.names]
            furthest = np.abs(added[:, None, where] - added[None][:, :, where]).sum(axis=2).max()
            assert furthest <= block.reach * 2**plan.sums.bits + len(block.names)
            assert Fraction(steps, 2**30) * int(furthest) <= Fraction(epsilon) * Fraction(block.share)
    assert sum(Fraction(block.share).limit_denominator(100) for block in BLOCKS) == 1


@pytest.mark.parametrize("steps", [65, 3000, 10**7 + 1])
def test_a_rate_that_floats_round_up_is_the_next_below(steps: int) -> None:
    """An epsilon just below what a rate costs: the cost of the rate stays within it, in rationals."""
    block = Block(("a",), 1.0, 1.0)
    bits = SumsPlan.of((block,), steps * 2.0**-10).bits
    reach = 2**bits + 1
    for epsilon in np.nextafter(steps * reach / 2**30, [0.0, 9e9]):
        plan = SumsPlan.of((block,), float(epsilon))
        assert Fraction(plan.steps[0] * (2**plan.bits + 1), 2**30) <= Fraction(float(epsilon))


def test_labels_and_predictions_beyond_the_range_count_as_its_ends() -> None:
    plan = ResidualPlan.plan(RANGE, epsilon=1.0)
    inside = plan.contributions(np.array([6.0, -6.0]), np.array([-6.0, 2.0]))
    assert np.array_equal(plan.contributions(np.array([1e9, -7.0]), np.array([-1e300, 2.0])), inside)
    for broken in (np.nan, np.inf):
        with pytest.raises(InvalidInputError, match="finite"):
            plan.contributions(np.zeros(1), np.array([broken]))


def test_an_epsilon_too_small_for_the_grid_of_rates_is_refused() -> None:
    assert min(SumsPlan.of(BLOCKS, 1e-5).steps) >= 1
    with pytest.raises(PrivacyParameterError, match="too small"):
        SumsPlan.of(BLOCKS, 1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 8.0])
def test_means_carry_the_noise_that_the_plan_states(epsilon: float) -> None:
    plan, source = ResidualPlan.plan(RANGE, epsilon=epsilon), NoiseSource(insecure_seed=0)
    drawn = [plan.release(np.zeros(50), np.ones(50), source) for _ in range(400)]
    for name, variance in drawn[0].variances.items():
        means = np.array([d.means[name] for d in drawn])
        fourth = drawn[0].fourth_cumulants[name] / variance**2
        assert np.var(means) == pytest.approx(variance, rel=4 * np.sqrt((fourth + 2) / 400))
        assert fourth == pytest.approx(3.0, rel=0.01)  # a Laplace law on a fine grid


# ---------------------------------------------------------------- the numbers


def test_without_noise_the_numbers_are_scikit_learns() -> None:
    X, y = records(400)
    model = plain()
    found = evaluate(model, X, y, label_range=RANGE, epsilon=4000.0, insecure_seed=0).metrics
    said = model.predict(X)
    exact = {
        "r2": r2_score(y, said),
        "mse": mean_squared_error(y, said),
        "rmse": mean_squared_error(y, said) ** 0.5,
        "mae": mean_absolute_error(y, said),
        "bias": np.mean(said - y),
        "label_mean": np.mean(y),
        "label_deviation": np.std(y, ddof=1),
    }
    assert {name: e.value for name, e in found.items()} == pytest.approx(exact, abs=2e-3)
    assert all(e.low <= e.value <= e.high for e in found.values())


def draw(kind: str, n: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """Labels and predictions."""
    if kind == "normal":
        said = rng.normal(0, 1, n)
        return np.clip(said + rng.normal(0, 0.6, n), *RANGE), np.clip(said, *RANGE)
    if kind == "skewed":
        said = rng.exponential(1, n)
        return np.clip(said + rng.exponential(1, n) - 1, *RANGE), np.clip(said, *RANGE)
    said = rng.uniform(-2, 2, n)  # errors in a quarter of the records
    return said + rng.normal(0, 1, n) * (said > 1), said


@pytest.mark.parametrize("kind", ["normal", "skewed", "uneven"])
@pytest.mark.parametrize(("n", "epsilon"), [(30, 0.1), (1000, 1.0), (2000, 30.0)])
def test_intervals_cover_the_population_and_the_table(kind: str, n: int, epsilon: float) -> None:
    """120 tables, seeded; three standard errors of 95% are 6%."""
    rng, source, runs = np.random.default_rng(2), NoiseSource(insecure_seed=2), 120
    plan, held = ResidualPlan.plan(RANGE, epsilon=epsilon), {}
    population = quantities(*draw(kind, 400_000, rng))
    for _ in range(runs):
        table = draw(kind, n, rng)
        released = plan.release(*table, source)
        for target, truth in (("population", population), ("table", quantities(*table))):
            found = RegressionEvaluation(released, RANGE, target).metrics  # type: ignore[arg-type]
            for name, value in truth.items():
                within = found[name].low - 1e-4 <= value <= found[name].high + 1e-4
                held[f"{target} {name}"] = held.get(f"{target} {name}", 0) + within
    assert min(held.values()) >= 0.89 * runs, held


def quantities(y: Any, said: Any) -> dict[str, float]:
    """By their definitions."""
    square = float(np.mean((y - said) ** 2))
    return {
        "r2": 1 - square / float(np.var(y)),
        "mse": square,
        "rmse": square**0.5,
        "mae": float(np.mean(np.abs(y - said))),
        "bias": float(np.mean(said - y)),
        "label_mean": float(np.mean(y)),
        "label_deviation": float(np.std(y)),
    }


def test_intervals_of_many_records_are_hardly_wider_than_without_noise() -> None:
    """Var e^2 = 2 m^2 of normal errors: 1.96 * .36 * sqrt(2 / n) on either side; Var |e| = (1 - 2 / pi) m."""
    n = 1_000_000
    table = draw("normal", n, np.random.default_rng(3))
    released = ResidualPlan.plan(RANGE, epsilon=10.0).release(*table, NoiseSource(insecure_seed=3))
    found = RegressionEvaluation(released, RANGE).metrics
    mse, mae = found["mse"], found["mae"]
    assert (mse.high - mse.low) / 2 == pytest.approx(1.96 * 0.36 * np.sqrt(2 / n), rel=0.1)
    assert (mae.high - mae.low) / 2 == pytest.approx(1.96 * 0.6 * np.sqrt((1 - 2 / np.pi) / n), rel=0.1)


def test_where_noise_hides_the_spread_of_labels_r2_has_no_lower_bound() -> None:
    X, y = records(30)
    found = evaluate(plain(), X, y, label_range=RANGE, epsilon=0.01, insecure_seed=1)
    assert found.metrics["r2"].low == -np.inf
    assert found.metrics["r2"].high == 1.0
    report = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert report["metrics"]["r2"]["low"] is None
    assert RegressionEvaluation.from_dict(report).to_dict() == report
    assert "open" in str(found) or "R^2" in str(found)
    assert "R^2" in found._repr_html_()


def test_a_spread_of_labels_within_its_noise_leaves_r2_without_a_lower_bound() -> None:
    """Mean t^2 one deviation of its noise above 0, all else 0: the interval of the spread holds 0."""
    plan = ResidualPlan.plan(RANGE, epsilon=1.0)
    held = np.zeros(len(plan.sums.names), dtype=np.int64)
    found = NoisySums(plan.sums, held, 100, plan.spend)
    held[plan.sums.names.index("t^2")] = round(found.variances["t^2"] ** 0.5 * 100 * 2**plan.sums.bits)
    assert RegressionEvaluation(found, RANGE).metrics["r2"].low == -np.inf


def test_a_file_that_holds_no_evaluation_is_refused() -> None:
    X, y = records(30)
    report = evaluate(plain(), X, y, label_range=RANGE).to_dict()
    for part, broken in (("sums", [1, 2]), ("steps", [1]), ("bits", -1)):
        with pytest.raises(InvalidInputError, match="sums of residuals"):
            RegressionEvaluation.from_dict({**report, "sums": {**report["sums"], part: broken}})
    with pytest.raises(InvalidInputError, match="label_range"):
        RegressionEvaluation.from_dict({**report, "label_range": [1, 0]})
    with pytest.raises(InvalidInputError, match="target is"):
        RegressionEvaluation.from_dict({**report, "target": "everybody"})


# ---------------------------------------------------------------- what is evaluated


def test_models_of_this_package_bring_their_range_and_the_spend_is_booked_first(tmp_path: Path) -> None:
    X, y = records(2000)
    model = PrivateLinearRegression(5.0, data_norm=2**0.5, label_range=(-4, 4), insecure_seed=0).fit(X, y)
    ledger = Ledger.create(tmp_path / "ledger.json", epsilon=1.0)
    found = evaluate(model, X, y, ledger=ledger)
    assert found.label_range == (-4.0, 4.0)
    assert found.spend.claim == "proved"
    assert ledger.total().epsilon == 1.0
    with pytest.raises(BudgetExceededError):
        evaluate(model, X, [None] * 2000, epsilon=0.1, ledger=ledger)  # not looked at
    assert evaluate(model, X, y, label_range=(-9, 9)).label_range == (-9.0, 9.0)


def test_records_of_one_person_count_once() -> None:
    X, y = records(60)
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "who": np.arange(60) // 3})
    model = LinearRegression().fit(frame[["a", "b"]], y)
    options: dict[str, Any] = {"label_range": RANGE, "epsilon": 3.0, "insecure_seed": 5}
    found = evaluate(model, frame, y, person="who", **options)
    first = evaluate(model, frame.loc[::3, ["a", "b"]], y[::3], **options)
    assert found.spend.unit == "person"
    assert found.metrics == first.metrics
    assert found.n_records == 20


def test_parts_of_a_table_are_summed_where_they_are() -> None:
    array = pytest.importorskip("dask.array")
    X, y = records(300)
    options: dict[str, Any] = {"label_range": RANGE, "insecure_seed": 5}
    parts = evaluate(plain(), array.from_array(X, (70, 2)), array.from_array(y, 70), **options)
    assert parts.metrics == evaluate(plain(), X, y, **options).metrics


@pytest.mark.parametrize(
    "wide",
    [
        (-1e308, 1e308),
        (-8e307, 8e307),
        (0.0, 5e-324),
        (1.0, 1.0 + 2.0**-52),
        (1e16, 1e16 + 2),
        (0.0, math.inf),
    ],
)
@pytest.mark.parametrize("plan", [ResidualPlan, PairedResidualPlan])
def test_ranges_that_doubles_do_not_hold_are_refused_in_the_plan(
    plan: Any, wide: tuple[float, float]
) -> None:
    """Of an infinite width, quotients were NaN, and as integers the least there is: one record showed."""
    with pytest.raises(InvalidInputError, match="needs a label_range"):
        plan.plan(wide, epsilon=1.0)


def test_a_range_of_infinite_width_is_refused_before_the_booking(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", 1.0)
    X, y = records(50)
    with pytest.raises(InvalidInputError, match="finite width"):
        evaluate(plain(), X, y, label_range=(-1e308, 1e308), ledger=ledger)
    with pytest.raises(InvalidInputError, match="needs a label_range"):
        evaluate(plain(), X, y, label_range=(-8e307, 8e307), ledger=ledger)
    assert not list(ledger.entries())


def test_what_is_no_regression_is_refused_with_what_to_do() -> None:
    X, y = records(300)
    model = plain()
    with pytest.raises(InvalidInputError, match="needs label_range"):
        evaluate(model, X, y)
    with pytest.raises(InvalidInputError, match="low < high"):
        evaluate(model, X, y, label_range=(2, 1))
    with pytest.raises(InvalidInputError, match="real numbers are needed"):
        evaluate(model, X, np.where(y > 0, "up", "down"), label_range=RANGE)
    with pytest.raises(InvalidInputError, match="gave scores of shape"):
        evaluate(LinearRegression().fit(X, np.column_stack([y, y])), X, y, label_range=RANGE)
    with pytest.raises(InvalidInputError, match="y has 299"):
        evaluate(model, X, y[1:], label_range=RANGE)


def test_pipelines_are_evaluated_and_those_that_look_at_other_rows_are_not() -> None:
    X, y = records(300)
    fair = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), LinearRegression()), transformer=StandardScaler()
    ).fit(X, y)
    found = evaluate(fair, X, y, label_range=RANGE, epsilon=2000.0, insecure_seed=0)
    assert found.metrics["r2"].value == pytest.approx(fair.score(X, y), abs=2e-3)
    assert "synthetic rows" in found.spend.note
    centred = make_pipeline(FunctionTransformer(lambda x: x - np.mean(x, axis=0)), LinearRegression())
    with pytest.raises(InvalidInputError, match="which rows are scored together"):
        evaluate(centred.fit(X, y), X, y, label_range=RANGE)
