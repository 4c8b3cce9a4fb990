"""Private trees and rule lists: scikit-learn's contract, tables of every kind, risks, SQL, files, pages."""

from __future__ import annotations

import json
import sqlite3
import warnings
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import dask.dataframe as dd
import duckdb
import ibis
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.estimators.branches import Branch, Leaf, branches_of
from privopt.mechanisms.estimators.evaluate import evaluate
from privopt.mechanisms.estimators.tree import PrivateRuleListClassifier, PrivateTreeClassifier
from privopt.mechanisms.estimators.tree_card import TreeCard
from privopt.mechanisms.estimators.tree_page import tree_page
from privopt.mechanisms.evaluation.classes import ClassEvaluation
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.discrete.tree import DecisionTree
from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning
from privopt.problems.tables.columns import Binned
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.predicates import Predicates

KINDS = (PrivateTreeClassifier, PrivateRuleListClassifier)
SCHEMA = Schema(
    [
        Numeric("age", 18, 90),
        MissingLevel(Categorical("job", ["nurse", "cook"], outside="ignore")),
        MissingLevel(Binned("points", [0, 20, 30, 40, 100])),
    ]
)


def patients(n: int = 600, seed: int = 0) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Ill are cooks above 54, and whoever has 40 points or more."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 91, n).astype(float),
            "job": rng.choice(["nurse", "cook", "pilot"], n),
            "points": rng.integers(0, 60, n).astype(float),
        }
    )
    ill = ((frame["age"] > 54) & (frame["job"] == "cook")) | (frame["points"] >= 40)
    frame.loc[rng.random(n) < 0.03, "points"] = np.nan
    frame.loc[rng.random(n) < 0.03, "job"] = None
    return frame, pd.Series(np.where(ill, "ill", "well"), name="state")


def classifier(kind: Any = PrivateTreeClassifier, epsilon: float = 20.0, **options: Any) -> Any:
    defaults: dict[str, Any] = {"schema": SCHEMA, "classes": ("well", "ill"), "insecure_seed": 0}
    return kind(epsilon, **{**defaults, **options})


# Bounds, categories and classes are inferred there, which privopt warns about: the checks declare nothing.
@pytest.mark.filterwarnings("ignore::privopt.problems.errors.PrivacyLeakWarning")
@parametrize_with_checks(
    [
        PrivateTreeClassifier(insecure_seed=0, max_depth=2),
        PrivateRuleListClassifier(insecure_seed=0, max_rules=2),
    ]
)
def test_scikit_learn_contract(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weight", [None, "balanced", {"ill": 3.0}])
def test_a_model_is_learned_from_declared_facts_without_a_leak(kind: Any, weight: Any) -> None:
    X, y = patients()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        model = classifier(kind, class_weight=weight, risk_share=0.1).fit(X, y)
    assert model.score(X, y) > 0.85
    assert (model.spend_.epsilon, model.spend_.delta) == (20.0, 0.0)
    assert model.spend_.notion == "pure"
    assert model.target_ == "state"


@pytest.mark.parametrize("kind", KINDS)
def test_three_classes_and_their_risks(kind: Any) -> None:
    X, y = patients()
    y = y.mask(X["age"] < 27, "young")
    model = classifier(kind, epsilon=50.0, classes=("well", "ill", "young"), risk_share=0.2).fit(X, y)
    assert model.score(X, y) > 0.85
    shares = model.predict_proba(X)
    assert shares.shape == (len(X), 3)
    assert np.allclose(shares.sum(axis=1), 1.0)
    assert model.decision_function(X).shape == (len(X), 3)
    best = np.argmax(model.decision_function(X), axis=1)
    assert np.array_equal(model.classes_[best], model.predict(X))


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_count_records_gives_the_same_model(kind: Any) -> None:
    """In memory, counted by either schema, in partitions, in an engine: one seed, one model."""
    X, y = patients(700)
    expected = classifier(kind, epsilon=1.0, risk_share=0.1).fit(X, y)
    table = X.assign(state=y)
    labels = (y == "ill").astype(int).to_numpy()
    counted = CountedRecords.of(SCHEMA, SCHEMA.codes(X), ("well", "ill"), labels)
    engine = ibis.memtable(table.astype(object).where(table.notna(), None))
    ways: list[tuple[Any, Any]] = [
        (counted, None),
        (dd.from_pandas(X, npartitions=3), dd.from_pandas(y, npartitions=3)),
        (engine, "state"),
    ]
    for records, told in ways:
        model = classifier(kind, epsilon=1.0, risk_share=0.1).fit(records, told)
        assert model.release_.point.tolist() == expected.release_.point.tolist()
        assert model.histogram_.counts.tolist() == expected.histogram_.counts.tolist()
    assert np.array_equal(np.asarray(expected.predict(dd.from_pandas(X, npartitions=3))), expected.predict(X))


def test_risks_are_shares_of_leaves_and_rank_by_prediction_first() -> None:
    X, y = patients(4000)
    model = classifier(epsilon=50.0, risk_share=0.5).fit(X, y)
    leaf, ill = model.apply(X), (y == "ill").to_numpy()
    for number in range(len(model.leaves_)):
        held = ill[leaf == number]  # one more is added to each leaf, and hardly any noise
        off = 1.5 / max(1, len(held))
        assert model.risk_.shares[number, 1] == pytest.approx(held.mean() if len(held) else 0.5, abs=off)
        assert model.risk_.lows[number, 1] <= model.risk_.shares[number, 1] <= model.risk_.highs[number, 1]
    score = model.decision_function(X)
    assert np.array_equal(score > 0, model.predict(X) == "ill")
    told = score > 0
    assert np.array_equal(score[told], model.predict_proba(X)[told, 1])
    assert np.array_equal(score[~told], model.predict_proba(X)[~told, 1] - 1)
    assert set(model.risks_at(score[told])) == set(score[told])


def test_without_a_share_there_are_no_risks_and_it_is_said_what_they_take() -> None:
    X, y = patients(100)
    model = classifier().fit(X, y)
    assert not hasattr(model, "predict_proba")
    with pytest.raises(AttributeError, match=r"risk_share=0\.1"):
        model.predict_proba(X)
    assert set(model.decision_function(X)) <= {-1.0, 1.0}


def test_an_evaluation_takes_trees() -> None:
    X, y = patients(2000)
    model = classifier(risk_share=0.1).fit(X, y)
    found = evaluate(model, X, y, epsilon=50.0, insecure_seed=1)
    assert found.metrics["accuracy"].value == pytest.approx(model.score(X, y), abs=0.01)


def test_a_budget_is_booked_first_and_what_it_cannot_afford_is_not_run(tmp_path: Path) -> None:
    X, y = patients(100)
    book = Ledger.create(tmp_path / "budget", epsilon=1.0)
    model = classifier(epsilon=0.75, ledger=book, insecure_seed=None)
    model.fit(X, y)
    with pytest.raises(BudgetExceededError):
        model.fit(X, y)
    assert len(book.entries()) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_says_what_a_fit_will_cost(kind: Any) -> None:
    planned = classifier(kind, epsilon=0.5, class_weight="balanced", risk_share=0.1).plan(1000)
    assert planned.spend.epsilon == pytest.approx(0.5)
    assert planned.plan.levels == 4
    assert planned.plan.choice.lattice.high[0] < planned.plan.choice.lattice.high[1]  # the root branches
    assert planned.predicates == len(Predicates.of(SCHEMA))
    X, y = patients(100)
    model = classifier(kind, epsilon=0.5, class_weight="balanced", risk_share=0.1).fit(X, y)
    assert model.spend_.epsilon == planned.spend.epsilon


def test_what_is_out_of_reach_is_refused_before_data() -> None:
    wide = Schema([Categorical(f"c{k}", [str(i) for i in range(30)]) for k in range(40)])
    with pytest.raises(InvalidInputError, match="fewer levels, or a schema with fewer"):
        PrivateTreeClassifier(schema=wide, classes=(0, 1), max_depth=4).plan(10**6)
    planned = PrivateTreeClassifier(schema=wide, classes=(0, 1)).plan(10**6)
    assert planned.plan.levels < 3
    assert "too many for 3 levels" in planned.plan.reason


@pytest.mark.parametrize("levels", [0, 5, 2.0, True, "deep"])
def test_other_depths_are_refused(levels: Any) -> None:
    with pytest.raises(InvalidInputError, match="from 1 to 4"):
        classifier(max_depth=levels).plan(100)


def test_depths_are_taken_from_a_range_of_numpy() -> None:
    planned = [classifier(max_depth=levels).plan(100).plan.levels for levels in np.arange(1, 5)]
    assert planned == [1, 2, 3, 4]
    assert all(type(levels) is int for levels in planned)  # it is saved as JSON


# --- Pruning ----------------------------------------------------------------------------------------------


def test_questions_whose_answer_is_known_are_left_out() -> None:
    """age < 54 below age < 27, and a missing job below a known one."""
    predicates = Predicates.of(SCHEMA)
    texts = [q.text() for q in predicates.questions]
    p = len(texts)
    young, older = texts.index("age < 26.5"), texts.index("age < 53.5")
    point = np.array([young, older, p, 0, 1, 1, 0])
    kept = branches_of(DecisionTree, point, predicates)
    assert kept == Branch(young, True, Leaf(0, 0), Leaf(1, 1))


def test_branches_that_agree_become_one() -> None:
    predicates = Predicates.of(SCHEMA)
    same = np.array([0, 8, 9, 1, 1, 1, 1])
    assert branches_of(DecisionTree, same, predicates) == Leaf(1, 0)
    rules = np.array([0, 3, 0, 1, 1])
    assert branches_of(RuleList, rules, predicates) == Branch(0, True, Leaf(0, 0), Leaf(1, 1))


@pytest.mark.parametrize(
    ("kind", "drawn"), [(PrivateTreeClassifier, DecisionTree), (PrivateRuleListClassifier, RuleList)]
)
def test_pruned_models_predict_as_drawn(kind: Any, drawn: Any) -> None:
    """Random points of the lattice: the problem's own predictions are the reference."""
    X, y = patients(300)
    model = classifier(kind).fit(X, y)
    rng, predicates = np.random.default_rng(1), model.predicates_
    truths = predicates.table(predicates.coarse.codes(X))
    matrix = np.stack([truths.column(g) for g in range(len(predicates))], axis=1)
    lattice = drawn.domain(len(predicates), 3)
    for _ in range(200):
        point = rng.integers(lattice.low, lattice.high + 1)
        branches = branches_of(drawn, point, predicates)
        model.branches_ = branches
        model.leaves_ = tuple(_leaves(branches))
        assert np.array_equal(model.predict(X) == "ill", drawn.predictions(point[None], matrix)[0] == 1)


@pytest.mark.parametrize("kind", [PrivateTreeClassifier, PrivateRuleListClassifier])
def test_two_sides_that_stop_have_different_labels_in_the_released_point(kind: Any) -> None:
    """Also where no record comes: what is written in a saved model needs no further reading."""
    X, y = patients(60)
    for seed in range(6):
        model = classifier(kind, epsilon=1e-3, insecure_seed=seed).fit(X, y)
        point, predicates = model.release_.point, model.predicates_
        stops = point >= model._kind.ways * len(predicates.values)
        for first, second, nodes in model._kind.pairs(len(point) // 2):
            assert point[first] != point[second] or not np.all(stops[list(nodes)])


def _leaves(node: Any) -> list[Leaf]:
    return [node] if isinstance(node, Leaf) else _leaves(node.then) + _leaves(node.otherwise)


# --- What people and programs read --------------------------------------------------------------------------


def run_sqlite(frame: pd.DataFrame, statement: str) -> pd.DataFrame:
    with sqlite3.connect(":memory:") as database:
        frame.to_sql("records", database, index=False)
        return pd.read_sql_query(statement, database)


def run_duckdb(frame: pd.DataFrame, statement: str) -> pd.DataFrame:
    with duckdb.connect() as database:
        database.execute("CREATE TABLE records (age DOUBLE, job VARCHAR, points DOUBLE)")
        rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
        database.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
        return database.execute(statement).df()


@pytest.fixture
def run_postgres(postgres: str) -> Any:
    import psycopg

    def run(frame: pd.DataFrame, statement: str) -> pd.DataFrame:
        rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
        with psycopg.connect(postgres) as connection, connection.cursor() as cursor:
            cursor.execute(
                "CREATE TEMPORARY TABLE records (age DOUBLE PRECISION, job TEXT, points DOUBLE PRECISION)"
            )
            cursor.executemany("INSERT INTO records VALUES (%s, %s, %s)", rows)
            cursor.execute(statement)
            assert cursor.description is not None
            return pd.DataFrame(cursor.fetchall(), columns=[c.name for c in cursor.description])

    return run


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgres"])
@pytest.mark.parametrize("classes", [2, 3])
def test_sql_agrees_with_predict(
    kind: Any, engine: str, classes: int, request: pytest.FixtureRequest
) -> None:
    """At a small epsilon models ask all kinds of questions; several seeds."""
    run = (
        request.getfixturevalue("run_postgres")
        if engine == "postgres"
        else {"sqlite": run_sqlite, "duckdb": run_duckdb}[engine]
    )
    X, y = patients(500)
    names = ("well", "ill", "it's worse")[:classes]
    if classes == 3:
        y = y.mask(X["age"] > 80, names[2])
    for seed in range(6):
        model = classifier(kind, epsilon=0.5, classes=names, risk_share=0.2, insecure_seed=seed).fit(X, y)
        found = run(X, model.to_sql())
        assert found["prediction"].tolist() == model.predict(X).tolist()
        assert found["leaf"].tolist() == model.apply(X).tolist()
        risk = "risk" if classes == 2 else "risk_2"
        assert found[risk].tolist() == model.predict_proba(X)[:, -1].tolist()
        assert "AS prediction_1" in model.to_sql(columns=["Prediction"])


def test_sql_is_null_where_predict_refuses() -> None:
    schema = Schema([Numeric("age", 18, 90, outside="refuse"), Categorical("job", ["nurse", "cook"]),
                     Binned("points", [0, 20, 30, 40, 100])])  # fmt: skip
    X, y = patients(200)
    X = X.assign(job=X["job"].where(X["job"].isin(["nurse", "cook"]), "cook"), points=X["points"].fillna(0.0))
    model = classifier(schema=schema, risk_share=0.1).fit(X, y)
    bad = pd.DataFrame({"age": [17.0, 50.0, 50.0, 50.0], "job": ["cook", "pilot", None, "cook"],
                        "points": [5.0, 5.0, 5.0, np.nan]})  # fmt: skip
    found = run_duckdb(bad, model.to_sql())
    assert found[["leaf", "prediction", "risk"]].isna().all().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_saved_models_predict_the_same_and_hold_nothing_else(kind: Any, share: float, tmp_path: Path) -> None:
    X, y = patients()
    model, path = classifier(kind, risk_share=share).fit(X, y), tmp_path / "model.json"
    model.save(path)
    again = kind.load(path)
    assert np.array_equal(again.predict(X), model.predict(X))
    assert again.card_.to_markdown() == model.card_.to_markdown()
    if share:
        assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == path.read_text()
    other = KINDS[kind is KINDS[0]]
    with pytest.raises(InvalidInputError, match="is not a privopt"):
        other.load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("point", [0]),
        ("levels", 9),
        ("classes", ["well"]),
        ("model", ["if"]),
        ("histogram", {}),
        ("spend", {}),
    ],
)
def test_a_file_that_was_changed_is_refused(key: str, value: Any, tmp_path: Path) -> None:
    X, y = patients(200)
    path = tmp_path / "model.json"
    classifier(risk_share=0.2).fit(X, y).save(path)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(InvalidInputError):
        PrivateTreeClassifier.load(path)


class _Balanced(HTMLParser):
    """Every tag that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("meta", "br", "rect", "path", "line", "polyline", "circle", "input"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "path", "line", "polyline", "circle"):
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("kind", KINDS)
def test_page_markdown_and_json_say_what_the_model_says(kind: Any) -> None:
    X, y = patients(2000)
    model = classifier(kind, risk_share=0.2, class_weight="balanced", insecure_seed=None).fit(X, y)
    card = model.card_
    page = tree_page(card, evaluate(model, X, y, epsilon=10.0, insecure_seed=0))
    parser = _Balanced()
    parser.feed(page)
    assert not parser.open
    assert "differentially private with epsilon = 20" in parser.text
    conditions = [row.condition for row in card.rows()]
    flat = " ".join(parser.text.split())
    for condition in conditions:
        assert "".join(condition.split()) in "".join(flat.split())
    assert ("Go down the list" in flat) == (kind is PrivateRuleListClassifier)
    markdown = card.to_markdown()
    assert markdown.count("\n- ") + markdown.count("  - ") + markdown.startswith("- ") == len(conditions)

    def followed(node: dict[str, Any], row: pd.Series[Any]) -> Any:
        if "leaf" in node:
            return node["prediction"]
        cell = row[node["column"]]
        gap = pd.isna(cell)
        kind, value = node["kind"], node["value"]
        answer = (
            gap if kind == "missing" else not gap and (cell < value if kind == "below" else cell == value)
        )
        negated = any(sign in node["if"] for sign in ("≥", "≠", "is known"))
        return followed(node["then" if answer != negated else "otherwise"], row)

    told = [followed(card.to_dict()["model"], row) for _, row in X.head(200).iterrows()]
    assert told == model.predict(X.head(200)).tolist()


@pytest.mark.parametrize("with_risks", [False, True])
def test_whatever_is_drawn_lies_within_the_picture(with_risks: bool) -> None:
    tables = dict.fromkeys(("shares", "lows", "highs"), np.full((3, 2), 1.0))
    risks: Any = SimpleNamespace(**tables) if with_risks else None
    predicates = Predicates.of(SCHEMA)
    branches = Branch(0, True, Leaf(0, 0), Branch(1, True, Leaf(1, 1), Leaf(0, 2)))
    card = TreeCard(branches, predicates, ("no", "yes"), False, risks, PrivacySpend.pure(1.0, "test"))
    picture = ElementTree.fromstring(card.to_svg())
    _, _, width, height = (float(number) for number in picture.attrib["viewBox"].split())
    drawn = list(picture.iter("{http://www.w3.org/2000/svg}rect"))
    assert len(drawn) == (6 if with_risks else 3)  # a prediction for each leaf, and a bar for its share
    for box in drawn:
        x, y, w, h = (float(box.attrib[key]) for key in ("x", "y", "width", "height"))
        assert 0 <= x < x + w <= width
        assert 0 <= y < y + h <= height


def test_a_model_that_says_the_same_of_everybody_warns() -> None:
    X, _ = patients(300)
    model = classifier(epsilon=50.0).fit(X, pd.Series(["well"] * 300))
    assert model.leaves_ == (Leaf(0, 0),)
    assert "predicts well for every record" in model.card_.to_markdown()
    assert "predicts well for every record" in tree_page(model.card_)


def test_clones_and_other_estimators_stay_apart() -> None:
    model = classifier(max_depth=2, risk_share=0.1)
    assert clone(model).get_params() == model.get_params()


def test_several_classes_are_evaluated_by_their_confusion_matrix() -> None:
    """At epsilon = 60 the noise of a count is 0 but for odds of exp(30): estimates are those of the table."""
    X, y = patients(3000)
    y = y.mask(X["age"] < 27, "young")
    model = classifier(epsilon=50.0, classes=("well", "ill", "young")).fit(X, y)
    said = model.predict(X)
    found = evaluate(model, X, y, epsilon=60.0, target="table", insecure_seed=0)
    assert isinstance(found, ClassEvaluation)
    assert (found.spend.epsilon, found.spend.delta) == (60.0, 0.0)
    labels = list(model.classes_)
    counted = [[int(np.sum((y == true) & (said == told))) for told in labels] for true in labels]
    assert found.confusion.to_numpy().tolist() == counted
    assert found.metrics["accuracy"].value == pytest.approx(np.mean(said == y))
    recalls = [np.mean(said[y == label] == label) for label in labels]
    assert found.metrics["balanced accuracy"].value == pytest.approx(np.mean(recalls))
    for label, recall in zip(labels, recalls, strict=True):
        assert found.metrics[f"recall of {label}"].value == pytest.approx(recall)
        precision = np.mean(y[said == label] == label)
        assert found.metrics[f"precision of {label}"].value == pytest.approx(precision)
    noisy = evaluate(model, X, y, epsilon=0.1, insecure_seed=0)
    for estimate in noisy.metrics.values():
        assert np.isnan(estimate.value) or estimate.low <= estimate.value <= estimate.high
    assert int(noisy.confusion.to_numpy().sum()) == len(X)
    json.dumps(noisy.to_dict())
    counts = CountedRecords.of(SCHEMA, SCHEMA.codes(X), labels, np.array([labels.index(s) for s in y]))
    again = evaluate(model, counts, epsilon=60.0, target="table", insecure_seed=0)
    assert again.confusion.equals(found.confusion)


def test_a_missing_value_is_mentioned_only_where_there_can_be_one() -> None:
    predicates = Predicates.of(SCHEMA)
    names = {(q.name, q.kind, q.value): k for k, q in enumerate(predicates.questions)}
    missing, below = names["points", "missing", None], names["points", "below", 30]
    inner = Branch(below, True, Leaf(0, 1), Leaf(1, 2))
    spend = PrivacySpend.pure(1.0, "exponential")
    under = TreeCard(Branch(missing, True, Leaf(1, 0), inner), predicates, ("a", "b"), False, None, spend)
    assert under.lines() == [
        "points is missing: b",
        "points is known",
        "  points < 30: a",
        "  points ≥ 30: b",
    ]
    alone = TreeCard(inner, predicates, ("a", "b"), False, None, spend)
    assert alone.lines() == ["points < 30: a", "points ≥ 30 or missing: b"]
    rules = TreeCard(Branch(missing, True, Leaf(1, 0), inner), predicates, ("a", "b"), True, None, spend)
    assert rules.lines() == ["if points is missing: b", "else if points < 30: a", "otherwise: b"]


def test_a_picture_has_its_own_colours() -> None:
    """Outside the page no style sheet says what to fill: black boxes would hide black letters."""
    X, y = patients()
    picture = ElementTree.fromstring(classifier(epsilon=50.0, risk_share=0.2).fit(X, y).card_.to_svg())
    boxes = list(picture.iter("{http://www.w3.org/2000/svg}rect"))
    assert boxes
    assert all(e.get("fill") for e in (picture, *boxes))
