"""A card and a tree whose scores are added: budget, scores, files, printing; and the choice of a model."""

from __future__ import annotations

import json
import sqlite3
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.estimators.additive import PrivateAdditiveTreeClassifier
from privopt.mechanisms.estimators.additive_card import additive_page
from privopt.mechanisms.estimators.evaluate import evaluate
from privopt.mechanisms.estimators.model_choice import choose_model
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning

SCHEMA = Schema([Numeric("age", 18, 90), Categorical("job", ["nurse", "cook", "pilot"])], intercept=True)


def patients(n: int = 600) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Ill are cooks above 54: a condition that holds together, and one column that adds up."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 91, n), "job": rng.choice(["nurse", "cook", "pilot"], n)})
    ill = (frame["age"] > 54) & ((frame["job"] == "cook") | (rng.random(n) < 0.3))
    return frame, pd.Series(np.where(ill, "ill", "well"), name="state")


def classifier(epsilon: float = 10.0, **options: Any) -> PrivateAdditiveTreeClassifier:
    known: dict[str, Any] = {"schema": SCHEMA, "classes": ("well", "ill"), "max_depth": 2, "insecure_seed": 0}
    return PrivateAdditiveTreeClassifier(epsilon, **{**known, **options})


@pytest.mark.filterwarnings("ignore::privopt.problems.errors.PrivacyLeakWarning")
@parametrize_with_checks([PrivateAdditiveTreeClassifier(insecure_seed=0, max_depth=1)])
def test_scikit_learn_contract(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


def test_the_budget_is_halved_and_the_scores_are_added() -> None:
    X, y = patients()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)
        model = classifier().fit(X, y)
    card, tree = model.scorecard_model_, model.tree_model_
    assert (card.spend_.epsilon, tree.spend_.epsilon) == (5.0, 5.0)
    assert (model.spend_.epsilon, model.spend_.delta) == (10.0, card.spend_.delta)
    assert tree.spend_.delta == 0
    assert model.plan(len(X)).spend.epsilon == 10.0
    # The most points that any record of the schema has, found by trying all of them.
    ages, jobs = np.meshgrid(np.arange(18, 91), ["nurse", "cook", "pilot"])
    every = pd.DataFrame({"age": ages.ravel(), "job": jobs.ravel()})
    largest = np.max(np.abs(card.decision_function(every)))
    said = np.where(tree.predict(X) == "ill", 1, -1)
    expected = 3 * card.decision_function(X) / largest + said
    assert np.allclose(model.decision_function(X), expected)
    assert np.array_equal(model.predict(X) == "ill", model.decision_function(X) > 0)
    assert model.score(X, y) > 0.8
    assert model.target_ == tree.target_ == "state"


def test_a_table_in_an_engine_names_its_labels() -> None:
    ibis = pytest.importorskip("ibis")
    X, y = patients(100)
    model = classifier().fit(ibis.memtable(X.assign(state=y)), "state")
    assert model.target_ == model.scorecard_model_.target_ == "state"


def test_what_is_saved_is_what_was_fitted(tmp_path: Path) -> None:
    X, y = patients()
    model = classifier().fit(X, y)
    model.save(tmp_path / "m.json")
    again = PrivateAdditiveTreeClassifier.load(tmp_path / "m.json")
    assert again.to_dict() == model.to_dict()
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    other = classifier(classes=("well", "sick")).fit(X, y.replace("ill", "sick"))
    mixed = {**model.to_dict(), "tree": other.to_dict()["tree"]}
    (tmp_path / "other.json").write_text(json.dumps(mixed))
    with pytest.raises(InvalidInputError, match="different schemas or classes"):
        PrivateAdditiveTreeClassifier.load(tmp_path / "other.json")


def test_both_are_booked_at_once_or_not_at_all(tmp_path: Path) -> None:
    X, y = patients()
    book = Ledger.create(tmp_path / "budget.db", epsilon=15.0, delta=1e-3)
    classifier(insecure_seed=None, ledger=book).fit(X, y)
    with pytest.raises(BudgetExceededError):
        classifier(insecure_seed=None, ledger=book).fit(X, y)
    assert len(book.entries()) == 1


def test_it_is_evaluated_by_its_scores() -> None:
    X, y = patients(2000)
    model = classifier().fit(X, y)
    found = evaluate(model, X, y, epsilon=20.0, insecure_seed=1)
    assert found.metrics["accuracy"].value == pytest.approx(model.score(X, y), abs=0.01)


def test_the_page_says_how_both_are_joined() -> None:
    X, y = patients()
    card = classifier().fit(X, y).card_
    assert "add 1 where it says state = ill" in card.how
    for text in (card.to_markdown(), additive_page(card)):
        assert "Add up the points of the card" in text
        assert f"{card.unit:.4g}" in text
        assert "cook" in text
    assert "Date of birth" in additive_page(card)
    column = replace(card.card.columns[0], title="late_payments")
    named = replace(card, card=replace(card.card, columns=(column,)))
    assert "late_<wbr>payments" in additive_page(named)
    assert card.to_dict()["kind"] == "card and tree"


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgres"])
def test_sql_agrees_with_predict(engine: str, request: pytest.FixtureRequest) -> None:
    """At a small epsilon both hold all kinds of points and questions; several seeds, and refused records."""
    schema = Schema(
        [Numeric("age", 18, 90, step="0.5"), Categorical("job", ["nurse", "cook", "pilot"])], intercept=True
    )
    X, y = patients(300)
    some = pd.DataFrame({"age": [17.0, 54.3, 91.0, 33.25], "job": ["cook", "pilot", "nurse", "cook"]})
    X, y = pd.concat([X, some], ignore_index=True), pd.concat([y, pd.Series(["ill"] * 4)], ignore_index=True)
    refused = pd.DataFrame({"age": [np.nan, 50.0, 50.0], "job": ["cook", None, "baker"]})
    rows = pd.concat([X, refused], ignore_index=True)
    for seed in range(4):
        model = classifier(0.5, schema=schema, insecure_seed=seed).fit(X, y)
        found = _run(engine, rows, model.to_sql(), request)
        assert found["score"][: len(X)].astype(float).tolist() == model.decision_function(X).tolist()
        assert found["prediction"][: len(X)].tolist() == model.predict(X).tolist()
        assert found[["score", "prediction"]][len(X) :].isna().all().all()
        assert "AS prediction_1" in model.to_sql(columns=["Prediction"])


def _run(engine: str, frame: pd.DataFrame, statement: str, request: pytest.FixtureRequest) -> pd.DataFrame:
    rows = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    if engine == "sqlite":
        with sqlite3.connect(":memory:") as database:
            frame.to_sql("records", database, index=False)
            return pd.read_sql_query(statement, database)
    if engine == "duckdb":
        with duckdb.connect() as database:
            database.execute("CREATE TABLE records (age DOUBLE, job VARCHAR)")
            database.executemany("INSERT INTO records VALUES (?, ?)", rows)
            return database.execute(statement).df()
    import psycopg

    with psycopg.connect(request.getfixturevalue("postgres")) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TEMPORARY TABLE records (age DOUBLE PRECISION, job TEXT)")
        cursor.executemany("INSERT INTO records VALUES (%s, %s)", rows)
        cursor.execute(statement)
        assert cursor.description is not None
        return pd.DataFrame(cursor.fetchall(), columns=[c.name for c in cursor.description])


def test_risks_are_refused_with_the_models_that_have_them() -> None:
    model = classifier().fit(*patients())
    with pytest.raises(AttributeError, match="PrivateTreeClassifier or a PrivateHalfspaceClassifier with"):
        model.predict_proba(patients()[0])
    assert not hasattr(PrivateAdditiveTreeClassifier(), "predict_proba")


@pytest.mark.parametrize(
    ("n", "epsilon", "classes", "ranking", "model"),
    [
        (1_000_000, 0.001, 2, False, "tree"),
        (1_000, 1.0, 2, True, "additive"),
        (301, 1.0, 2, True, "additive"),
        (300, 1.0, 2, True, "tree"),
        (30_000, 1.0, 2, False, "tree"),
        (30_001, 1.0, 2, False, "card"),
        (1_000_000, 1.0, 2, True, "card"),
        (1_000_000, 1.0, 3, True, "tree"),
    ],
)
def test_a_model_is_chosen_by_public_facts(
    n: int, epsilon: float, classes: int, ranking: bool, model: str
) -> None:
    chosen = choose_model(n, epsilon, classes=classes, ranking=ranking)
    assert chosen.model == model
    assert str(classes) in chosen.reason or "records times epsilon" in chosen.reason
