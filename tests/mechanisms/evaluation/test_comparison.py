"""Comparison of two models on the same records: one release, and paired intervals that hold what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import balanced_accuracy_score, mean_absolute_error, mean_squared_error, recall_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from privopt.mechanisms import (
    NoiseSource,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    compare,
    evaluate,
)
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.evaluation.comparison import ClassComparison, Comparison, RegressionComparison
from privopt.mechanisms.evaluation.leaves import LeafPlan
from privopt.mechanisms.evaluation.paired_residuals import PairedResidualPlan
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems import Categorical, InvalidInputError, Numeric, Schema
from privopt.problems.tables.counted import CountedRecords

RANGE = (-3.0, 3.0)


def records(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, np.where(X @ [1.0, 0.5, 0.0] + rng.normal(size=n) > 1, "ill", "well")


def numbers(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    return X, X @ [1.0, 0.5, 0.2] + 0.3 * rng.normal(size=n)


def classifiers() -> tuple[Any, Any]:
    """One that knows three columns, and one that knows the second alone."""
    X, y = records(500, seed=7)
    one = FunctionTransformer(lambda x: x[:, 1:2])
    return LogisticRegression().fit(X, y), make_pipeline(one, LogisticRegression()).fit(X, y)


def regressions() -> tuple[Any, Any]:
    X, y = numbers(500, seed=7)
    one = FunctionTransformer(lambda x: x[:, :1])
    return LinearRegression().fit(X, y), make_pipeline(one, LinearRegression()).fit(X, y)


def test_without_noise_differences_are_scikit_learns() -> None:
    (X, y), (a, b) = records(600), classifiers()
    found = compare(a, b, X, y, epsilon=2000.0, insecure_seed=0)
    said = a.predict(X), b.predict(X)
    recalls = [recall_score(y, s, labels=["ill", "well"], average=None) for s in said]
    exact = {
        "difference of accuracy": np.mean(said[0] == y) - np.mean(said[1] == y),
        "difference of balanced accuracy": balanced_accuracy_score(y, said[0])
        - balanced_accuracy_score(y, said[1]),
        "difference of recall of ill": recalls[0][0] - recalls[1][0],
        "difference of recall of well": recalls[0][1] - recalls[1][1],
        "accuracy of the first": np.mean(said[0] == y),
        "accuracy of the second": np.mean(said[1] == y),
    }
    assert {name: e.value for name, e in found.metrics.items()} == pytest.approx(exact)
    (X, y), (a, b) = numbers(600), regressions()
    found = compare(a, b, X, y, label_range=RANGE, epsilon=4000.0, insecure_seed=0)
    said = a.predict(X), b.predict(X)
    assert {name: e.value for name, e in found.metrics.items()} == pytest.approx(
        {
            "difference of mean squared error": mean_squared_error(y, said[0])
            - mean_squared_error(y, said[1]),
            "difference of mean absolute error": mean_absolute_error(y, said[0])
            - mean_absolute_error(y, said[1]),
        },
        abs=2e-4,
    )


@pytest.mark.parametrize("discordant", [0.0, 0.05, 0.3])
@pytest.mark.parametrize(("n", "epsilon"), [(400, 1.0), (2000, 0.3), (2000, 50.0)])
def test_intervals_of_classifiers_cover_the_population_and_the_table(
    discordant: float, n: int, epsilon: float
) -> None:
    """150 tables, seeded; three standard errors of 95% are 5.3%."""
    shares = np.array([0.2, 0.4 * discordant, 0.6 * discordant, 0.8 - discordant])
    law = np.outer(shares, [0.25, 0.75])
    rng, source, plan = np.random.default_rng(4), NoiseSource(insecure_seed=4), LeafPlan.plan(epsilon)
    held: dict[str, int] = {}
    for _ in range(150):
        table = rng.multinomial(n, law.ravel()).reshape(4, 2)
        released = plan.release_counts(table, source)
        for target, truth in (("population", law), ("table", table)):
            found = ClassComparison(target, 0.95, released, (0, 1)).metrics  # type: ignore[arg-type]
            lead = truth[2] - truth[1]
            recalls = lead / truth.sum(axis=0)
            for name, value in {
                "difference of accuracy": lead.sum() / truth.sum(),
                "difference of balanced accuracy": recalls.mean(),
                "difference of recall of 0": recalls[0],
            }.items():
                within = found[name].low - 1e-9 <= value <= found[name].high + 1e-9
                held[f"{target} {name}"] = held.get(f"{target} {name}", 0) + within
    assert min(held.values()) >= 0.897 * 150, held


@pytest.mark.parametrize(("n", "epsilon"), [(500, 1.0), (2000, 30.0)])
def test_intervals_of_regressions_cover_the_population_and_the_table(n: int, epsilon: float) -> None:
    plan, source = PairedResidualPlan.plan(RANGE, epsilon=epsilon), NoiseSource(insecure_seed=4)
    a, b = regressions()
    held: dict[str, int] = {}

    def errors(X: Any, y: Any) -> dict[str, float]:
        first, second = a.predict(X) - y, b.predict(X) - y
        return {
            "difference of mean squared error": float(np.mean(first**2 - second**2)),
            "difference of mean absolute error": float(np.mean(np.abs(first) - np.abs(second))),
        }

    population = errors(*numbers(400_000, seed=8))
    for run in range(120):
        X, y = numbers(n, seed=100 + run)
        released = plan.release(y, a.predict(X), b.predict(X), source)
        for target, truth in (("population", population), ("table", errors(X, y))):
            found = RegressionComparison(target, 0.95, released, RANGE).metrics  # type: ignore[arg-type]
            for name, value in truth.items():
                within = found[name].low - 1e-4 <= value <= found[name].high + 1e-4
                held[f"{target} {name}"] = held.get(f"{target} {name}", 0) + within
    assert min(held.values()) >= 0.89 * 120, held


def test_a_paired_interval_is_much_narrower_than_that_of_two_evaluations() -> None:
    """Two evaluations at half the budget each; squared half-widths of independent estimates add."""
    (X, y), (a, b) = records(2000), classifiers()
    paired = compare(a, b, X, y, epsilon=1.0, insecure_seed=1).metrics["difference of accuracy"]
    single = [evaluate(m, X, y, epsilon=0.5, insecure_seed=1).metrics["accuracy"] for m in (a, b)]
    assert paired.high - paired.low < 0.8 * np.hypot(*(s.high - s.low for s in single))
    (X, y), (a, b) = numbers(20_000), regressions()
    facts: dict[str, Any] = {"label_range": RANGE, "insecure_seed": 1}
    paired = compare(a, b, X, y, epsilon=1.0, **facts).metrics["difference of mean squared error"]
    single = [evaluate(m, X, y, epsilon=0.5, **facts).metrics["mse"] for m in (a, b)]
    assert paired.high - paired.low < 0.6 * np.hypot(*(s.high - s.low for s in single))


def test_a_model_equals_itself_up_to_noise_and_one_record() -> None:
    X, y = records(500)
    a, _ = classifiers()
    found = compare(a, a, X, y, epsilon=2000.0).metrics["difference of accuracy"]
    assert found.value == 0.0
    assert found.high == pytest.approx(1.96 / 500, rel=0.01)  # variance 1 of a sum of 500
    (X, y), (c, _) = numbers(500), regressions()
    same = compare(c, c, X, y, label_range=RANGE, epsilon=20.0).metrics["difference of mean squared error"]
    assert same.low <= 0 <= same.high


def test_no_two_records_are_further_apart_than_the_plan_pays_for() -> None:
    ends = np.linspace(-3, 3, 9)
    y, p, q = (part.ravel() for part in np.meshgrid(ends, ends, ends))
    for epsilon in (0.01, 1.0):
        plan = PairedResidualPlan.plan(RANGE, epsilon=epsilon)
        added = np.unique(plan.contributions(y, p, q), axis=0)
        loss = np.abs(added[:, None] - added[None]) @ plan.sums.rates
        assert 0.9 * epsilon < loss.max() <= epsilon
    with pytest.raises(InvalidInputError, match="finite"):
        plan.contributions(y, p, np.full_like(q, np.nan))


class Centring(LogisticRegression):
    """Predicts row by row, and then centres the table it was given."""

    def predict(self, X: Any) -> Any:
        found = super().predict(X)
        X -= np.asarray(X).mean(axis=0)
        return found


@pytest.mark.parametrize("form", [np.asarray, lambda X: pd.DataFrame(X, columns=["a", "b", "c"])])
def test_what_a_model_writes_to_its_table_the_other_does_not_read(form: Any) -> None:
    """One record moves two counts, although it moves the means that the first model subtracts."""
    X, y = records(300)
    plain, centring = LogisticRegression().fit(form(X), y), Centring().fit(form(X), y)
    counts = []
    for first in (X[0], np.full(3, -1e6)):
        table = form(np.vstack([first, X[1:]]))
        kept = table.copy()
        found = compare(centring, plain, table, y, epsilon=1e4, insecure_seed=0)
        assert isinstance(found, ClassComparison)
        np.testing.assert_array_equal(table, kept)
        counts.append(np.asarray(found.histogram.counts))
    assert np.abs(counts[0] - counts[1]).sum() <= 2


def test_models_of_different_widths_are_refused_before_the_booking(tmp_path: Path) -> None:
    ledger, (X, y) = Ledger.create(tmp_path / "ledger", 1.0), records(50)
    for pair in ((X, X[:, :2]), (X[:, :2], X)):
        models = [LogisticRegression().fit(table, y) for table in pair]
        with pytest.raises(InvalidInputError, match="fitted to 2"):
            compare(models[0], models[1], X, y, ledger=ledger)
    assert not list(ledger.entries())


def test_names_and_types_that_no_record_can_mend_are_refused_before_the_booking(tmp_path: Path) -> None:
    ledger, (X, y) = Ledger.create(tmp_path / "ledger", 1.0), records(60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    one = LogisticRegression().fit(frame, y)
    others = {
        "column 'd'": LogisticRegression().fit(frame.rename(columns={"c": "d"}), y),
        "another order": LogisticRegression().fit(frame[["c", "b", "a"]], y),
    }
    owned = frame.assign(who=np.arange(60))
    for (match, other), (table, who) in zip(
        others.items(), ((owned, "who"), (dict(frame), None)), strict=True
    ):
        with pytest.raises(InvalidInputError, match=match):
            compare(one, other, table, y, person=who, ledger=ledger)
        with pytest.raises(InvalidInputError, match=match):
            evaluate(other, frame, y, ledger=ledger)
    line, complex_labels = LinearRegression().fit(X, X[:, 0]), X[:, 0] * 1j
    for labels in (y, complex_labels, pd.Series(y, dtype="string")):
        with pytest.raises(InvalidInputError, match="real numbers"):
            compare(line, line, X, labels, label_range=RANGE, ledger=ledger)
    assert not list(ledger.entries())
    assert compare(one, one, owned, y, person="who").metrics


def test_a_saved_comparison_is_read_back() -> None:
    (X, y), (a, b) = records(300), classifiers()
    (Z, numbers_), (c, d) = numbers(300), regressions()
    for found in (compare(a, b, X, y), compare(c, d, Z, numbers_, label_range=RANGE, target="table")):
        saved = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        read = Comparison.from_dict(saved)
        assert type(read) is type(found)
        assert (read.metrics, read.spend, read.to_dict()) == (found.metrics, found.spend, saved)
        for field in ("target", "confidence"):
            with pytest.raises(InvalidInputError):
                Comparison.from_dict({**saved, field: 2})
        nonsense = {
            "classes": ["ab", ["a"], [float("nan"), 1], [1, 1], [0, "1"]],
            "label_range": [[0, 10**400], ["0", "1"], [0]],
            "histogram": [{**saved.get("histogram", {}), "n_records": 1e308}],
            "sums": [{**saved.get("sums", {}), "bits": bits} for bits in (1e308, 1)],
        }
        for field in nonsense.keys() & saved.keys():
            for value in nonsense[field]:
                with pytest.raises((TypeError, ValueError)):
                    Comparison.from_dict({**saved, field: value})


def test_the_spend_is_booked_once_and_before_records_are_read(tmp_path: Path) -> None:
    (X, y), (a, b) = records(300), classifiers()
    ledger = Ledger.create(tmp_path / "ledger.json", epsilon=1.0)
    found = compare(a, b, X, y, ledger=ledger)
    assert [entry.spend.epsilon for entry in ledger.entries()] == [1.0]
    assert "64 synthetic rows" in found.spend.note
    assert found.spend.claim == "proved"
    with pytest.raises(BudgetExceededError):
        compare(a, b, X, [None] * 300, epsilon=0.1, ledger=ledger)
    report = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert report["epsilon"] == 1.0
    assert np.shape(report["histogram"]["counts"]) == (4, 2)
    assert "difference of accuracy" in str(found)
    assert "first minus second" in found._repr_html_()


def test_records_of_one_person_count_once_and_parts_are_counted_where_they_are() -> None:
    (X, y), (a, b) = records(60), classifiers()
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(who=np.arange(60) // 3)
    a, b = (LogisticRegression(C=c).fit(frame[["a", "b", "c"]], y) for c in (1.0, 1e-3))
    found = compare(a, b, frame, y, person="who", insecure_seed=2)
    assert found.spend.unit == "person"
    assert found.metrics == compare(a, b, frame.loc[::3, ["a", "b", "c"]], y[::3], insecure_seed=2).metrics
    array = pytest.importorskip("dask.array")
    (X, y), (a, b) = numbers(300), regressions()
    facts: dict[str, Any] = {"label_range": RANGE, "insecure_seed": 2}
    parts = compare(a, b, array.from_array(X, (70, 3)), array.from_array(y, 70), **facts)
    assert parts.metrics == compare(a, b, X, y, **facts).metrics


def test_models_of_this_package_compare_on_counted_records_of_one_schema() -> None:
    schema = Schema([Numeric("age", 0, 9), Categorical("smoker", ["no", "yes"])])
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(0, 10, 400), "smoker": rng.choice(["no", "yes"], 400)})
    y = np.where(frame["age"] + rng.integers(0, 4, 400) > 6, 1, 0)
    models = [
        PrivateLogisticRegression(e, schema=schema, classes=(0, 1), insecure_seed=0).fit(frame, y)
        for e in (5.0, 0.5)
    ]
    counted = CountedRecords.of(schema, schema.codes(frame), (0, 1), y)
    found = compare(models[0], models[1], counted, insecure_seed=3)
    assert found.metrics == compare(models[0], models[1], frame, y, insecure_seed=3).metrics
    assert found.spend.note == ""
    other = Schema([Numeric("age", 0, 9)])
    third = PrivateLogisticRegression(schema=other, classes=(0, 1), insecure_seed=0).fit(frame[["age"]], y)
    with pytest.raises(InvalidInputError, match="same schema"):
        compare(models[0], third, counted)
    assert compare(models[0], third, frame, y).metrics


def test_what_cannot_be_compared_is_refused_with_what_to_do() -> None:
    (X, y), (a, b), (c, d) = records(300), classifiers(), regressions()
    Z, numbers_ = numbers(300)
    own = [
        PrivateLinearRegression(5.0, data_norm=2.0, label_range=ends, insecure_seed=0).fit(Z, numbers_)
        for ends in ((-3, 3), (-2, 2))
    ]
    with pytest.raises(InvalidInputError, match="one of each"):
        compare(a, own[0], X, y)
    with pytest.raises(InvalidInputError, match="different ranges"):
        compare(own[0], own[1], Z, numbers_)
    assert compare(own[0], own[1], Z, numbers_, label_range=(-3, 3)).metrics
    others = LogisticRegression().fit(X, np.where(y == "ill", "sick", "well"))
    with pytest.raises(InvalidInputError, match="different classes"):
        compare(a, others, X, y)
    peeks = make_pipeline(FunctionTransformer(lambda x: x - x.mean(axis=0)), LogisticRegression()).fit(X, y)
    with pytest.raises(InvalidInputError, match="which rows are scored together"):
        compare(a, peeks, X, y)
    with pytest.raises(InvalidInputError, match="target is"):
        compare(a, b, X, y, target="me")  # type: ignore[arg-type]
    assert compare(a, make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y), X, y).metrics
    assert compare(c, d, Z, numbers_, label_range=RANGE).metrics


@pytest.mark.parametrize("classes", [["ill"], ["ill", "ill"], ["ill", 1], [0, 0], "ill", None])
def test_the_classes_of_a_saved_comparison_are_different_labels_of_one_kind(classes: Any) -> None:
    plan = LeafPlan.plan(1.0)
    found = ClassComparison(
        "table", 0.95, plan.release_counts(np.full((4, 2), 9), NoiseSource(1)), ("ill", "well")
    )
    saved = found.to_dict()
    assert ClassComparison.from_dict(saved).to_dict() == saved
    with pytest.raises(InvalidInputError, match="two or more different labels"):
        ClassComparison.from_dict({**saved, "classes": classes})
