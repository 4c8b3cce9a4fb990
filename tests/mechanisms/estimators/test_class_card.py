"""Scorecards of several classes: one release, one scale; predictions, pages, SQL and files that agree."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier, evaluate
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.estimators.class_card import ClassCard, ClassColumn
from privopt.mechanisms.estimators.class_page import class_heads, class_page
from privopt.mechanisms.estimators.sql import take_free_name
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.scorecards.class_points import ClassPoints
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.rounding import class_points
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Binned, Categorical, Numeric
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.schema import Schema

CLASSES = ("low", "mid", "it's high", "")
SCHEMA = Schema(
    [
        MissingLevel(Categorical("points_low", ["a", "b", "c"])),
        MissingLevel(Binned("pulse", [40, 60, 80])),
        MissingLevel(Numeric("age", 0, 98, step=7)),
        Numeric("dose", 0, 1, step="0.25"),
    ],
    intercept=True,
)


def table(n: int = 4000, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "points_low": rng.choice(["a", "b", "c"], n),
            "pulse": rng.choice([45.0, 60.0, 79.5], n),
            "age": rng.choice([3.5, 49.0, 90.0], n),
            "dose": rng.choice([0.0, 0.3, 1.0], n),
        }
    )
    scores = np.column_stack(
        [
            2.0 * (X["points_low"] == "b"),
            2.0 * (X["pulse"] > 50),
            X["age"] / 40 - 0.5,
            2 * X["dose"] + 0.2,
        ]
    )
    return X, np.array(CLASSES)[np.argmax(scores + 0.5 * rng.gumbel(size=(n, 4)), axis=1)]


def fitted(epsilon: float = 5.0, **more: Any) -> PrivateHalfspaceClassifier:
    options = {"schema": SCHEMA, "classes": CLASSES, "insecure_seed": 0, **more}
    X, y = table()
    return PrivateHalfspaceClassifier(epsilon, numbers="lines", **options).fit(X, y)


@pytest.fixture(scope="module")
def model() -> PrivateHalfspaceClassifier:
    return fitted()


def test_a_card_has_points_for_every_class(model: PrivateHalfspaceClassifier) -> None:
    X, y = table(3000, seed=1)
    assert model.coef_.shape == (4, SCHEMA.n_features)
    assert model.coef_.dtype == np.int64
    assert model.intercept_.tolist() == model.coef_[:, -1].tolist()
    assert model.score(X, y) > 0.6  # a constant .35, without noise .68
    scores = model.decision_function(X)
    features = SCHEMA.encode(X)
    assert scores == pytest.approx(features.X @ model.coef_.T / features.denominator)
    assert model.predict(X).tolist() == [CLASSES[k] for k in np.argmax(scores, axis=1)]
    columns = [f"points: {name}" for name in CLASSES]
    assert model.scorecard_[columns].to_numpy().tolist() == model.coef_.T.tolist()
    assert not hasattr(model, "predict_proba")


def test_columns_are_shown_by_their_titles_or_else_their_names() -> None:
    column = ClassColumn("pulse", (("40 to 60", (1, 2)),))
    assert [column.shown, replace(column, title="Heart rate").shown] == ["pulse", "Heart rate"]
    assert replace(column, title="Heart rate").to_dict()["title"] == "Heart rate"


def test_ties_go_to_the_first_class(model: PrivateHalfspaceClassifier) -> None:
    equal = PrivateHalfspaceClassifier.from_dict({**model.to_dict(), **_points_of(np.ones_like(model.coef_))})
    X, _ = table(5)
    assert equal.predict(X).tolist() == ["low"] * 5


def _points_of(points: np.ndarray) -> dict[str, Any]:
    """The weights of a saved model, and what repeats them."""
    rows = [
        {"feature": f, "level": v, **{f"points: {c}": int(p) for c, p in zip(CLASSES, own, strict=True)}}
        for (f, v), own in zip(SCHEMA.levels, points.T, strict=True)
    ]
    return {"weights": points.tolist(), "scorecard": rows}


def test_the_release_costs_what_that_of_two_classes_costs() -> None:
    """The noise of the plan is that of moments of two classes at the whole budget; nothing is drawn after."""
    facts = CardFacts.of(SCHEMA, 5000, IntegerLattice(-10, 10, dimension=SCHEMA.n_features))
    plan = ClassPoints.plan(facts, 4, epsilon=1.0, delta=1e-6)
    risk = RiskFacts(5000, SCHEMA.n_features, LogisticLoss(), facts.row_norm, "l2", constant=1.0)
    two = SufficientStatistics.plan(risk, epsilon=1.0, delta=1e-6)
    assert plan.seed.vector_noise.sensitivity == two.vector_noise.sensitivity
    assert plan.seed.vector_noise.sigma == pytest.approx(two.vector_noise.sigma, rel=1e-6)
    assert plan.spend.level == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-6)
    assert plan.spend.level <= gaussian_mu(1.0, 1e-6)
    with pytest.raises(PlanMismatchError, match="5000 records"):
        plan.release(np.zeros((1, SCHEMA.n_features)), np.zeros(1, dtype=np.int64), np.array([4999]))


def test_one_scale_for_all_classes_keeps_their_order() -> None:
    """Scores of real weights and of points: rounding moves a difference by at most half a point a feature."""
    rng = np.random.default_rng(0)
    schema = Schema([Categorical(name, list("abcd")) for name in "uvw"], intercept=True)
    facts = CardFacts.of(schema, 100, IntegerLattice(-1000, 1000, dimension=13))
    weights = rng.normal(size=(3, 13)) * np.array([[1.0], [0.1], [3.0]])
    points = class_points(weights, facts)
    assert np.max(np.abs(points)) == 1000
    rows = schema.encode(pd.DataFrame({name: rng.choice(list("abcd"), 200) for name in "uvw"})).X
    real, rounded = rows @ weights.T, rows @ points.T
    gaps, found = real[:, :1] - real[:, 1:], rounded[:, :1] - rounded[:, 1:]
    scale = float(np.sum(gaps * found) / np.sum(gaps**2))
    assert np.max(np.abs(found - scale * gaps)) <= 4 + 4 * scale / 1000
    clear = np.sort(real, axis=1)[:, -1] - np.sort(real, axis=1)[:, -2] > 5 / scale
    assert np.array_equal(np.argmax(real, axis=1)[clear], np.argmax(rounded, axis=1)[clear])


def test_one_large_weight_leaves_the_others_their_points() -> None:
    """Thirty levels of weights near 1 beside one of 60: at the scale of the largest all others were 0."""
    schema = Schema([Categorical("u", [f"l{k}" for k in range(31)])], intercept=True)
    facts = CardFacts.of(schema, 100, IntegerLattice(-10, 10, dimension=32))
    weights = np.zeros((2, 32))
    weights[0, :31] = np.where(np.arange(31) % 2, 1.0, -1.0)
    weights[0, 30] = 60.0
    points = class_points(weights, facts)
    assert points[0, 30] == 10
    assert np.all(points[0, 1:30:2] > points[0, 0:30:2])


def test_files_and_plans(model: PrivateHalfspaceClassifier, tmp_path: Path) -> None:
    X, _ = table(50)
    model.save(tmp_path / "card.json")
    loaded = PrivateHalfspaceClassifier.load(tmp_path / "card.json")
    assert loaded.predict(X).tolist() == model.predict(X).tolist()
    assert loaded.card_ == model.card_
    planned = PrivateHalfspaceClassifier(5.0, schema=SCHEMA, classes=CLASSES, numbers="lines").plan(4000)
    assert planned.spend.level == model.spend_.level
    assert "one release" in planned.facts["mechanism"]
    record = model.to_dict()
    with pytest.raises(InvalidInputError, match=r"\d+ weights for"):
        PrivateHalfspaceClassifier.from_dict({**record, "weights": record["weights"][:3]})


@pytest.mark.parametrize(
    "more",
    [
        {"risk_share": 0.2},
        {"max_columns": 2},
        {"constraints": ["at most 2 columns"]},
        {"oracle": "enumerate"},
        {"card_solver": "highs"},
    ],
)
def test_what_only_two_classes_take_is_refused(more: dict[str, Any]) -> None:
    (name,) = more
    with pytest.raises(InvalidInputError, match=f"{name}: scorecards of 4 classes do not take it"):
        fitted(**more)
    with pytest.raises(InvalidInputError, match="do not take it"):
        PrivateHalfspaceClassifier(1.0, schema=SCHEMA, classes=CLASSES, **more).plan(4000)


def test_other_mechanisms_are_of_two_classes() -> None:
    with pytest.raises(InvalidInputError, match="cards of 4 classes is 'seeded'"):
        fitted(mechanism="opdisc")


def test_a_schema_needs_an_intercept_and_no_constraints() -> None:
    bare = Schema(SCHEMA.columns, intercept=False)
    with pytest.raises(InvalidInputError, match="need an intercept"):
        fitted(schema=bare, mechanism="seeded")
    assert fitted(schema=bare).schema_.intercept
    bound = Schema(SCHEMA.columns, intercept=True, constraints=["at most 2 columns"])
    with pytest.raises(InvalidInputError, match="constraints of the schema"):
        fitted(schema=bound)


def test_costs_of_errors_move_the_decision() -> None:
    """Balanced costs, released at a twentieth of epsilon, are those of the declared shares but for noise."""
    X, y = table()
    shares = [float(np.mean(y == label)) for label in CLASSES]
    plain, dear = fitted(), fitted(class_weight={"low": 20.0})
    assert np.mean(dear.predict(X) == "low") > np.mean(plain.predict(X) == "low") + 0.05
    declared = fitted(class_weight="balanced", prevalence=shares)
    released = fitted(class_weight="balanced")
    assert declared.spend_ == plain.spend_
    assert "the prevalence at epsilon = 0.25" in released.spend_.note
    assert released.spend_.epsilon == 5.0
    assert np.mean(released.predict(X) == declared.predict(X)) > 0.9
    unfitted = PrivateHalfspaceClassifier(5.0, schema=SCHEMA, classes=CLASSES, class_weight="balanced")
    planned = unfitted.plan(4000)
    assert planned.spend.epsilon == 5.0
    assert "the prevalence" in planned.spend.note


def rows_on_edges() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    edges = [w for v in (40.0, 60.0, 80.0) for w in (math.nextafter(v, 0), v, math.nextafter(v, 1e3))]
    choices: dict[str, list[Any]] = {
        "points_low": [None, "a", "b", "c"],
        "pulse": [None, -5.0, *edges],
        "age": [None, *(3.5 + 7 * k for k in range(14)), 98.0],
        "dose": [0.1, 0.125, 0.375, 1.0],
    }
    return pd.DataFrame({k: pd.Series([v[i] for i in rng.integers(0, len(v), 400)], dtype=object)
                         for k, v in choices.items()})  # fmt: skip


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_sql_agrees_with_predict(model: PrivateHalfspaceClassifier, engine: str) -> None:
    frame = rows_on_edges()
    stored = frame.astype({"pulse": float, "age": float, "dose": float})
    statement = model.to_sql('our "table"')
    if engine == "sqlite":
        with sqlite3.connect(":memory:") as lite:
            stored.to_sql('our "table"', lite, index=False)
            found = pd.read_sql_query(statement, lite)
    else:
        with duckdb.connect() as database:
            database.register("held", stored)
            database.execute('CREATE TABLE "our ""table""" AS SELECT * FROM held')
            found = database.execute(statement).df()
    assert found["prediction"].tolist() == model.predict(frame).tolist()
    assert len(set(found["prediction"])) == 4
    # A declared column is called points_low.
    names = ["points_low_1", "points_mid", "points_it's high", "points_"]
    assert found[names].to_numpy().tolist() == model.decision_function(frame).tolist()


def test_sql_of_equal_points_and_of_refused_records(model: PrivateHalfspaceClassifier) -> None:
    equal = PrivateHalfspaceClassifier.from_dict(
        {**model.to_dict(), **_points_of(np.zeros_like(model.coef_))}
    )
    X, _ = table(3)
    X["dose"] = [0.0, None, 1.0]
    with duckdb.connect() as database:
        database.register("records", X.astype({"dose": float}))
        found = database.execute(equal.to_sql()).df()
    assert found["prediction"].fillna("refused").tolist() == ["low", "refused", "low"]
    assert found["points_mid"].isna().tolist() == [False, True, False]
    numbered = equal.to_sql(columns=["Points_mid", "prediction"])
    assert 'AS "points_mid_1"' in numbered
    assert "AS prediction_1" in numbered


def test_the_printed_card_adds_up(model: PrivateHalfspaceClassifier) -> None:
    """A record's points, looked up in the card's JSON, with and without negative points."""
    X, _ = table(40, seed=3)
    said, shown = model.predict(X).tolist(), model.card_
    assert isinstance(shown, ClassCard)
    for card in (shown, shown.without_negative_points()):
        record = json.loads(json.dumps(card.to_dict()))
        for k in range(len(X)):
            totals = np.array(record["bases"], dtype=float)
            for column in record["columns"]:
                totals += _looked_up(column, X[column["name"]].iloc[k])
            best = np.flatnonzero(totals > totals.max() - 1e-6)
            assert said[k] in [CLASSES[j] for j in best]
    least = [min(p for c in shown.without_negative_points().columns for _, ps in c.ends for p in ps)]
    assert min(*least, *shown.without_negative_points().bases) == 0


def _looked_up(column: dict[str, Any], value: Any) -> np.ndarray:
    if column["in_proportion"]:
        (low, first), (high, last) = column["in_proportion"]
        step = {"age": 7.0, "dose": 0.25}[column["name"]]
        share = (math.floor(value / step + 0.5) * step - float(low)) / (float(high) - float(low))
        return np.array(first) + share * (np.array(last) - np.array(first))
    levels = {row["level"]: row["points"] for row in column["levels"]}
    if isinstance(value, str):
        return np.array(levels[value])
    edges = [40, 60, 80]
    names = [name for name in levels if name != "missing"]
    return np.array(levels[names[min(np.searchsorted(edges[1:-1], value, side="right"), 1)]])


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.points: list[str] = []
        self.facts = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.points += [str(found["data-points"])] if "data-points" in found else []
        self.facts = str(found.get("data-card", self.facts))


def test_the_page_has_a_column_of_points_for_each_class(model: PrivateHalfspaceClassifier) -> None:
    shown = model.card_
    assert isinstance(shown, ClassCard)
    text, page = class_page(shown), _Page()
    page.feed(text)
    expected = [",".join(map(str, points)) for column in shown.columns for _, points in column.rows]
    assert page.points == expected
    assert json.loads(page.facts) == {"bases": list(shown.bases), "classes": list(shown.names)}
    assert "it&#x27;s high" in text
    assert text.count("<b><small>") == 4
    cells = re.findall(r'<b class="(minus|plus)"[^>]*>([^<]*)</b>', text)
    assert {sign for sign, _ in cells} == {"minus", "plus"}
    assert all((sign == "minus") == (points[0] in "-\u2212") for sign, points in cells)
    markdown = shown.to_markdown()
    assert "| column | level | low | mid | it's high |  |" in markdown
    assert "class with the most points" in shown._repr_html_()


def test_long_names_become_letters() -> None:
    assert class_heads(("low", "high")) == ("low", "high")
    assert class_heads(("Lodgepole Pine", "Aspen")) == ("A", "B")


def test_counted_records_and_evaluation(model: PrivateHalfspaceClassifier) -> None:
    X, y = table(2000, seed=5)
    report = evaluate(model, X, y, epsilon=5.0, insecure_seed=0)
    accuracy = report.metrics["accuracy"]
    assert accuracy.low <= model.score(X, y) <= accuracy.high


def test_columns_of_classes_get_names_that_are_free_in_either_case() -> None:
    taken = {"score", "score_1"}
    names = [take_free_name(name, taken) for name in ("Score", "other", "SCORE")]
    assert names == ["Score_2", "other", "SCORE_3"]
