"""Fits for persons with several records: budgets, places, refusals before records are read."""

import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone

from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
    PrivateRobustRegression,
    PrivateRuleListClassifier,
    PrivateSearchCV,
    PrivateTreeClassifier,
    SchemaTransformer,
    compare,
    evaluate,
    fit_with_learned_schema,
    learn_schema,
)
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.estimators import persons as module
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.ambient import budget
from privopt.mechanisms.schemas import records as records_module
from privopt.mechanisms.schemas.records import RecordsPlan
from privopt.problems.errors import InvalidInputError, SchemaError
from privopt.problems.tables.columns import Binned
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.schema import Schema

P, K = 40, 3
FACTS = {
    "schema": Schema([Binned("a", [0, 4, 8]), Binned("b", [0, 4, 8])], intercept=True),
    "classes": (0, 1),
}


def table(seed=0):
    """Return records of 40 persons, 1 to 6 each; b is unique and tells a row."""
    rng = np.random.default_rng(seed)
    ids = np.repeat([f"p{i}" for i in range(P)], rng.integers(1, 7, P))
    rng.shuffle(ids)
    frame = pd.DataFrame({"id": ids, "a": rng.integers(0, 8, len(ids)), "b": rng.random(len(ids)) * 8})
    return frame, pd.Series((frame.a > 3).astype(int), name="ill")


def regression(**more):
    bounds = {"data_norm": 12.0, "label_range": (0.0, 1.0)}
    facts = {"epsilon": 1.0, **bounds, "person": "id", "records_per_person": K}
    return PrivateLinearRegression(delta=1e-6, **{**facts, **more})


@pytest.fixture
def filled(monkeypatch):
    """The tables and labels that fits of places are given."""
    seen = []
    kept = module._taken
    monkeypatch.setattr(module, "_taken", lambda values, rows: seen.append(kept(values, rows)) or seen[-1])
    return seen


@pytest.mark.parametrize(
    "model",
    [
        PrivateHalfspaceClassifier(1.0, person="id", records_per_person=K, mechanism="exponential",
                                   lattice=(-1, 1), **FACTS),
        PrivateTreeClassifier(1.0, person="id", records_per_person=K, **FACTS),
        PrivateRuleListClassifier(1.0, person="id", records_per_person=K, **FACTS),
        PrivateAdditiveTreeClassifier(1.0, delta=1e-6, person="id", records_per_person=K, **FACTS),
        PrivateLogisticRegression(1.0, delta=1e-6, person="id", records_per_person=K, **FACTS),
        regression(),
        regression(max_features=1),
        PrivateRobustRegression(1.0, delta=1e-6, person="id", records_per_person=K),
    ],
    ids=lambda m: type(m).__name__ + ("-columns" if getattr(m, "max_features", None) else ""),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::privopt.mechanisms.privacy.usefulness.NoiseWarning")
@pytest.mark.filterwarnings("ignore:.*records are too few")
def test_every_estimator_protects_persons_within_its_budget(model, filled):
    X, y = table()
    fitted = clone(model).fit(X, y)
    spend = fitted.spend_
    assert spend.neighbours == "replace-one person"
    assert f"at most {K} records" in spend.note
    assert 0.999 < spend.epsilon <= 1
    assert spend.delta <= 1e-6
    assert len(filled[0]) == len(filled[1]) == P * K
    assert "id" not in filled[0]
    first = {cell for _, mine in X.groupby("id").b for cell in mine.to_list()[:K]}
    assert set(filled[0].b) == first
    assert np.array_equal(fitted.predict(X), fitted.predict(X.drop(columns="id")))
    assert fitted.get_params() == model.get_params()


def test_noise_is_that_of_k_records():
    """Sufficient statistics: a record is mu / k-GDP, mu that of (1, 1e-6); moments have n = 3 P places."""
    X, y = table()
    one, three = regression(records_per_person=1).fit(X, y), regression().fit(X, y)
    mu = gaussian_mu(1.0, 1e-6)
    assert three.spend_.level == pytest.approx(mu, rel=1e-6)
    # A record moves means by s / (k P), and has mu / k of the privacy: the noise does not depend on k.
    assert three.noise_["sigma"] == pytest.approx(one.noise_["sigma"], rel=1e-6)


# 40 persons: a number of records is learned for epsilon 5, of 60.
LEARNED = {"epsilon": 60.0, "records_per_person": "learn"}


@pytest.mark.parametrize(
    ("model", "notion"),
    [
        (PrivateTreeClassifier(60.0, person="id", records_per_person="learn", **FACTS), "pure"),
        (PrivateHalfspaceClassifier(60.0, person="id", records_per_person="learn", **FACTS), "approximate"),
        (regression(**LEARNED), "gdp"),
    ],
    ids=("tree", "card", "regression"),
)
@pytest.mark.filterwarnings("ignore::privopt.mechanisms.privacy.usefulness.NoiseWarning")
def test_a_learned_number_of_records_is_booked_with_the_fit(model, notion, filled):
    X, y = table()
    with budget(epsilon=60.0, delta=1e-2, unit="person") as book:
        fitted = clone(model).fit(X, y)
        (entry,) = book.entries()
    k, spend = fitted.records_per_person_, fitted.spend_
    assert len(filled[0]) == len(filled[1]) == P * k
    assert k in (4, 6, 8)  # 1 to 6 records each; P[another] < .01
    assert (spend.notion, spend.unit) == (notion, "person")
    assert (spend.epsilon, spend.delta) == (entry.spend.epsilon, entry.spend.delta)
    assert 59.9 < spend.epsilon <= 60
    assert spend.note.startswith(f"a person with at most {k} records, each protected at")
    assert "this number was learned at epsilon = 5" in spend.note
    assert "is learned at epsilon = 5.001, at most 32" in entry.spend.note


def test_the_fit_has_the_noise_of_the_number_that_was_learned():
    """The noise does not depend on k (above), but what the choice costs is missing: mu^2 is less."""
    X, y = table()
    one, learned = (regression(**{**LEARNED, **more}).fit(X, y) for more in ({"records_per_person": 1}, {}))
    assert learned.records_per_person_ > 1
    mu, choice = gaussian_mu(60.0, 1e-6), RecordsPlan.plan(P, 60.0).level
    ratio = math.sqrt(mu**2 / (mu**2 - choice**2))
    assert learned.noise_["sigma"] == pytest.approx(ratio * one.noise_["sigma"], rel=1e-6)


def test_plans_of_a_learned_number_say_its_cost_and_refuse_few_persons():
    model = PrivateTreeClassifier(60.0, person="id", records_per_person="learn", **FACTS)
    planned = model.plan(P)
    assert planned.spend.epsilon == pytest.approx(60)
    assert "learned at epsilon = 5.001, at most 32; a person with at most 32 records" in str(planned)
    X, y = table()
    model.set_params(epsilon=40.0)
    with budget(epsilon=60.0, unit="person") as book:
        for refused in (lambda: model.plan(P), lambda: model.fit(X, y)):
            with pytest.raises(PrivacyParameterError, match=r"from 51 persons or more .* there are 40"):
                refused()
        with pytest.raises(InvalidInputError, match="records_per_person must be 1"):
            model.set_params(epsilon=60.0, risk_share=0.5).fit(X, y)
        with pytest.raises(PrivacyParameterError, match="records_per_person must be a whole number"):
            model.set_params(records_per_person="most", risk_share=0.0).fit(X, y)
        assert not book.entries()


def test_a_search_learns_a_number_of_records_and_a_learned_schema_does_not():
    X, y = table()
    trees = [PrivateTreeClassifier(max_depth=depth, **FACTS) for depth in (1, 2)]
    search = PrivateSearchCV(trees, **LEARNED, person="id").fit(X, y)
    assert search.spend_ == search.best_estimator_.spend_
    assert f"at most {search.records_per_person_} records" in search.spend_.note
    assert search.plan_.n_fitted + search.plan_.n_held_out == P * search.records_per_person_
    with pytest.raises(InvalidInputError, match="records_per_person must be a number"):
        fit_with_learned_schema(PrivateTreeClassifier(**LEARNED, person="id", classes=(0, 1)), X, y)


def test_labels_go_with_their_records_and_the_order_is_random(filled):
    X, y = table()
    X["b"] = np.arange(len(X)) / len(X) * 8
    regression().fit(X, y.to_numpy())
    regression().fit(X, y.to_list())
    rows = np.round(filled[0].b.to_numpy() * len(X) / 8).astype(int)
    assert np.array_equal(filled[1], y.to_numpy()[rows])
    assert not np.array_equal(filled[0].b, filled[2].b)  # one of 120! orders each
    assert sorted(filled[0].b) == sorted(filled[2].b)


@pytest.mark.parametrize(
    "kind", [PrivateHalfspaceClassifier, PrivateTreeClassifier, PrivateAdditiveTreeClassifier]
)
def test_plans_say_what_a_person_costs(kind):
    model = kind(1.0, person="id", records_per_person=K, **FACTS)
    planned = model.plan(1000)
    assert planned.spend.neighbours == "replace-one person"
    assert 0.999 < planned.spend.epsilon <= 1
    assert "a person with at most 3 records, each protected at epsilon = 0.33" in str(planned)
    if planned.spend.delta:
        assert planned.spend.delta == pytest.approx(1e-6, rel=1e-5)  # 1 / persons^2


def test_predictions_and_saved_models_keep_the_unit(tmp_path):
    X, y = table()
    model = regression().fit(X, y)
    assert list(model.feature_names_in_) == ["a", "b"]
    model.save(tmp_path / "m.json")
    again = PrivateLinearRegression.load(tmp_path / "m.json")
    assert again.spend_ == model.spend_
    assert again.spend_.unit == "person"
    for fitted in (model, again):
        with pytest.raises(InvalidInputError, match="those of the same person are not"):
            fitted.summary()
    assert regression(records_per_person=1, epsilon=50.0).fit(X, y).inference_ is not None


def test_a_ledger_counts_by_one_unit(tmp_path):
    X, y = table()
    with budget(epsilon=1.5, delta=1e-4, unit="person") as book:
        regression().fit(X, y)
        assert book.entries()[0].spend.unit == "person"
        with pytest.raises(PrivacyParameterError, match="counts by person"):
            regression(person=None, epsilon=0.1).fit(X[["a", "b"]], y)
    with budget(epsilon=1.5, delta=1e-4), pytest.raises(PrivacyParameterError, match="counts by record"):
        regression().fit(X, y)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"person": "who"}, "person: no column 'who'"),
        ({"person": 3}, "person must be the name of a column"),
        ({"records_per_person": 0}, "records_per_person must be a whole number"),
        ({"data_norm": None}, "declare schema or data_norm"),
        ({"data_norm": None, "schema": Schema([Binned("id", [0, 1])])}, "the schema declares 'id'"),
        ({"epsilon": -1.0}, "epsilon must be"),
    ],
)
def test_wrong_arguments_are_refused_before_places_are_filled(arguments, why, filled):
    X, y = table()
    with pytest.raises((InvalidInputError, PrivacyParameterError), match=why):
        regression(**arguments).fit(X, y)
    assert not filled


def test_tables_without_names_or_declared_facts_are_refused():
    X, y = table()
    with pytest.raises(InvalidInputError, match="no named columns"):
        regression().fit(X[["a", "b"]].to_numpy(), y)
    dask = pytest.importorskip("dask.dataframe")
    with pytest.raises(InvalidInputError, match="need a declared schema and declared classes"):
        regression().fit(dask.from_pandas(X, npartitions=2), y)
    ibis = pytest.importorskip("ibis")
    with pytest.raises(InvalidInputError, match="need a declared schema and declared classes"):
        regression().fit(ibis.memtable(X), "a")


@pytest.mark.parametrize("k", [1, K])
@pytest.mark.filterwarnings("ignore::privopt.mechanisms.privacy.usefulness.NoiseWarning")
def test_searches_protect_persons_as_a_whole(k, filled):
    X, y = table()
    trees = [PrivateTreeClassifier(max_depth=depth, **FACTS) for depth in (1, 2)]
    search = PrivateSearchCV(trees, epsilon=3.0, person="id", records_per_person=k)
    planned = search.plan(P)
    assert planned.n_fitted + planned.n_held_out == P * k
    with budget(epsilon=4, delta=1e-3, unit="person") as book:
        search.fit(X, y)
        assert [entry.spend for entry in book.entries()] == [search.spend_]
    assert search.spend_ == planned.spend == search.best_estimator_.spend_ == search.plan_.spend
    assert search.spend_.neighbours == "replace-one person"
    assert 2.999 < search.spend_.epsilon <= 3
    assert max(spend.epsilon for spend in search.plan_.run_spends) < 3 / k
    assert len(filled[0]) == P * k
    assert np.array_equal(search.predict(X), search.predict(X.drop(columns="id")))


def test_a_search_for_persons_needs_no_schema():
    X, y = table()
    one = PrivateLogisticRegression(data_norm=12.0, classes=(0, 1), mechanism="output-perturbation")
    search = PrivateSearchCV(one, {"regularizer": ["l2:0.1", "l2:0.3"]}, person="id", records_per_person=2)
    assert search.fit(X, y).best_estimator_.n_features_in_ == 2
    assert search.spend_.neighbours == "replace-one person"


def test_a_search_has_the_person_and_not_its_candidates():
    X, y = table()
    one, other = PrivateTreeClassifier(person="id", **FACTS), PrivateTreeClassifier(max_depth=1, **FACTS)
    with pytest.raises(InvalidInputError, match="person must be None; set it for the whole search"):
        PrivateSearchCV([one, other]).fit(X, y)
    one.set_params(person=None, risk_share=0.5)
    with pytest.raises(InvalidInputError, match="records_per_person must be 1"):
        PrivateSearchCV([one, other], person="id", records_per_person=2).fit(X, y)
    for person, message in (("who", "person: no column 'who'"), ("a", "the schema declares 'a'")):
        with pytest.raises(InvalidInputError, match=message):
            PrivateSearchCV([other, other], person=person).fit(X, y)


def visits(persons=2000):
    """Return records of many persons, every other with a second one, whose dose is 1e6."""
    rng = np.random.default_rng(3)
    dose, town = rng.exponential(10, persons), rng.choice(["Bern", "Graz"], persons)
    first = pd.DataFrame({"id": np.arange(persons).astype(str), "dose": dose, "town": town})
    both = pd.concat([first, first[::2].assign(dose=1e6)])
    return both, (both.dose > 10).astype(int).to_numpy()


def test_a_learned_schema_counts_the_first_record_of_each_person():
    X, _ = visits()
    with budget(epsilon=3, delta=1e-3, unit="person") as book:
        found = learn_schema(X, epsilon=2.0, person="id", types={"dose": "number", "town": "text"})
        assert book.entries()[0].spend.unit == "person"
    assert float(found.schema.columns[0].column.edges[-2]) < 1000
    assert [column.name for column in found.schema.columns] == ["dose", "town"]
    assert found.spend.neighbours == "replace-one person"
    assert found.spend.delta == 1 / 2000**2
    with pytest.raises(InvalidInputError, match="the column of persons"):
        learn_schema(X, epsilon=2.0, person="id", declared=Schema([Binned("id", [0, 1])]))


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateTreeClassifier])
def test_schema_and_model_together_protect_persons(kind, k, filled):
    X, y = visits()
    model = kind(8.0, classes=(0, 1), person="id", records_per_person=k)
    fitted = fit_with_learned_schema(model, X, y, types={"dose": "number"}, leave_out=["town"])
    assert fitted.spend_.neighbours == "replace-one person"
    assert 7.99 < fitted.spend_.epsilon <= 8
    assert fitted.spend_.delta <= 1 / 2000**2
    assert len(filled[0]) == 2000 * k
    assert fitted.get_params()["person"] == "id"
    assert fitted.get_params()["epsilon"] == 8
    assert np.mean(fitted.predict(X) == y) > 0.8


@pytest.mark.parametrize(
    "kind", [PrivateTreeClassifier, PrivateLogisticRegression, PrivateHalfspaceClassifier]
)
@pytest.mark.filterwarnings("ignore::privopt.mechanisms.privacy.usefulness.NoiseWarning")
def test_a_schema_may_name_the_column_of_persons(kind, tmp_path):
    X, y = table()
    named = Schema(FACTS["schema"].columns, intercept=True, person="id")
    named.save(tmp_path / "s.toml")
    assert 'person = "id"' in (tmp_path / "s.toml").read_text()
    assert Schema.load(tmp_path / "s.toml") == named
    assert named.with_na_values(["x"]).person == "id"
    options = {"mechanism": "exponential", "lattice": (-1, 1)} if kind is PrivateHalfspaceClassifier else {}
    model = kind(9.0, schema=tmp_path / "s.toml", classes=(0, 1), records_per_person=K, **options).fit(X, y)
    assert model.spend_.neighbours == "replace-one person"
    assert f"at most {K} records" in model.spend_.note
    assert model.schema_ == FACTS["schema"]
    if hasattr(model, "plan"):
        assert model.plan(P).spend.unit == "person"
    with pytest.raises(InvalidInputError, match="the schema's column of persons 'id': give one"):
        kind(9.0, schema=named, classes=(0, 1), person="a", **options).fit(X, y)


def test_what_protects_records_alone_refuses_a_schema_with_persons():
    X, y = table()
    named = Schema(FACTS["schema"].columns, intercept=True, person="id")
    trees = [PrivateTreeClassifier(schema=named, classes=(0, 1), max_depth=depth) for depth in (1, 2)]
    message = "as the column of persons, but single records are protected here"
    with pytest.raises(SchemaError, match=message):
        PrivateSearchCV(trees).fit(X, y)
    with pytest.raises(SchemaError, match=message):
        SchemaTransformer(named).fit(X)
    with pytest.raises(SchemaError, match=message):
        learn_schema(X, epsilon=1.0, declared=named)
    for person, said in (("a", "the schema declares 'a'"), (3, "person must be the name of a column")):
        with pytest.raises(SchemaError, match=said):
            Schema(FACTS["schema"].columns, person=person)


def test_risks_count_each_person_once():
    X, y = table()
    model = PrivateTreeClassifier(2.0, person="id", risk_share=0.5, **FACTS)
    assert model.fit(X, y).histogram_.n_records == P
    with pytest.raises(InvalidInputError, match="records_per_person must be 1"):
        model.set_params(records_per_person=2).fit(X, y)


def test_polars_and_dictionaries_of_columns_are_taken():
    X, y = table()
    for given in (X.to_dict("list"), pytest.importorskip("polars").from_pandas(X)):
        spend = regression().fit(given, y).spend_
        assert spend.unit == "person"
        assert math.isclose(spend.epsilon, 1.0, rel_tol=1e-3)


@pytest.mark.parametrize("several", [False, True])
def test_evaluations_count_the_first_record_of_each_person(several):
    """At a huge epsilon the counts are those of first records, however many records a person has."""
    X, y = table()
    labels = y if not several else pd.Series(np.where(y == 1, 1, X.b.to_numpy() < 2).astype(int) + y)
    classes = (0, 1, 2) if several else (0, 1)
    model = PrivateTreeClassifier(50.0, schema=FACTS["schema"], classes=classes, insecure_seed=1)
    model.fit(X[["a", "b"]], labels)
    with budget(epsilon=100, unit="person") as ledger:
        found = evaluate(model, X, labels, epsilon=60.0, person="id", target="table")
        with pytest.raises(PrivacyParameterError, match="counts by person"):
            evaluate(model, X.drop(columns="id"), labels, epsilon=1.0)
        assert ledger.total().epsilon == 60
    first = ~X.id.duplicated()
    said = model.predict(X[first][["a", "b"]])
    right = float(np.mean(said == labels[first]))
    assert found.metrics["accuracy"].value == pytest.approx(right)
    assert found.confusion.to_numpy().sum() == P
    assert found.spend.neighbours == "replace-one person"


def test_evaluations_of_persons_need_their_column():
    X, y = table()
    model = PrivateTreeClassifier(50.0, schema=FACTS["schema"], classes=(0, 1)).fit(X[["a", "b"]], y)
    with pytest.raises(InvalidInputError, match="no column 'who'"):
        evaluate(model, X, y, epsilon=1.0, person="who")


def test_evaluations_do_not_count_all_records_where_persons_cannot_be_told():
    """Counts hold no persons: all records were counted, under a claim for persons."""
    X, y = table()
    model = PrivateTreeClassifier(50.0, schema=FACTS["schema"], classes=(0, 1)).fit(X[["a", "b"]], y)
    counted = CountedRecords.of(model.schema_, model.schema_.codes(X), model.classes_, y.to_numpy())
    with pytest.raises(InvalidInputError, match="person does not work with"):
        evaluate(model, counted, None, epsilon=1.0, person="id")
    with pytest.raises(InvalidInputError, match="person does not work with"):
        compare(model, model, counted, None, epsilon=1.0, person="id")


@pytest.fixture
def in_engine():
    """The table in DuckDB, through Ibis, with its label."""
    ibis = pytest.importorskip("ibis")
    X, y = table()
    connection = ibis.duckdb.connect()
    connection.con.register("given", X.assign(ill=y))
    connection.con.execute("CREATE TABLE t AS FROM given")
    yield connection.table("t")
    connection.disconnect()


@pytest.mark.parametrize(
    "kind",
    [
        PrivateHalfspaceClassifier,
        PrivateLogisticRegression,
        PrivateTreeClassifier,
        PrivateRuleListClassifier,
        PrivateAdditiveTreeClassifier,
        PrivateRobustClassifier,
    ],
)
@pytest.mark.filterwarnings("ignore::privopt.mechanisms.privacy.usefulness.NoiseWarning")
@pytest.mark.filterwarnings("ignore:.*records are too few")
def test_every_estimator_protects_persons_of_a_table_in_an_engine(kind, in_engine, monkeypatch):
    """The plan is that for persons in memory; k places of each are counted."""
    seen = []
    kept = module._placed
    monkeypatch.setattr(module, "_placed", lambda *given: seen.append(kept(*given)) or seen[-1])
    model = kind(3.0, person="id", records_per_person=K, **FACTS)
    with budget(epsilon=4, delta=1e-3, unit="person") as book:
        model.fit(in_engine, "ill")
        assert [entry.spend for entry in book.entries()] == [model.spend_]
    X, y = table()
    assert model.spend_ == clone(model).fit(X, y).spend_
    (counted, _), _ = seen
    assert counted.n_records == P * K


def test_evaluations_count_one_record_of_each_person_of_an_engine(in_engine):
    X, y = table()
    model = PrivateTreeClassifier(50.0, **FACTS, insecure_seed=1).fit(X[["a", "b"]], y)
    one = in_engine.mutate(b=in_engine.a.cast("float64"))  # so that rows of one label and a are equal
    found = evaluate(model, one, "ill", epsilon=60.0, person="id", target="table")
    assert found.confusion.to_numpy().sum() == P
    assert found.spend.neighbours == "replace-one person"
    both = compare(model, model, one, "ill", epsilon=60.0, person="id", target="table")
    assert both.spend.neighbours == "replace-one person"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"person": "who"}, "person: no column 'who'"),
        ({"person": "b"}, "the schema declares 'b'"),
        ({"person": "ill"}, "y is 'ill', the column of persons"),
        ({"classes": None}, "need a declared schema and declared classes"),
    ],
)
def test_persons_of_engines_are_refused_before_a_booking(arguments, why, in_engine):
    model = PrivateTreeClassifier(**{"epsilon": 1.0, "person": "id", **FACTS, **arguments})
    with budget(epsilon=4, delta=1e-3, unit="person") as book:
        with pytest.raises((InvalidInputError, SchemaError), match=why):
            model.fit(in_engine, "ill")
        assert not book.entries()


def test_a_number_of_records_is_learned_from_an_engine(monkeypatch, in_engine):
    """From the records of each person, which the engine counts."""
    held = []
    monkeypatch.setattr(RecordsPlan, "release", lambda _, found, source: held.append(found) or 2)
    monkeypatch.setattr(records_module, "_CLEAR", 0.1)
    model = PrivateTreeClassifier(3.0, person="id", records_per_person="learn", **FACTS)
    model.fit(in_engine, "ill")
    assert model.records_per_person_ == 2
    assert sorted(held[0]) == sorted(table()[0].id.value_counts())


def test_columns_named_by_numbers_have_persons_too():
    X, y = table()
    named = X.set_axis([0, 1, 2], axis=1)
    bounds = {"data_norm": 12.0, "label_range": (0.0, 1.0)}
    for model in (regression(person="0"), PrivateLinearRegression(1.0, delta=1e-6, **bounds, person="0")):
        fitted = model.fit(named, y)
        assert fitted.coef_.shape == (2,)
        assert fitted.predict(named).shape == (len(X),)


@pytest.mark.parametrize(
    "use",
    [
        lambda X, y, schema: regression(schema=schema, data_norm=None).fit(X, y),
        lambda X, y, schema: learn_schema(X, epsilon=1.0, declared=schema, person="id"),
        lambda X, y, schema: Schema(schema.columns, person="id"),
    ],
)
def test_the_column_of_persons_is_no_feature_and_refused_alike(use):
    X, y = table()
    with pytest.raises(SchemaError, match="declares 'id', the column of persons, which is no feature"):
        use(X, y, Schema([Binned("id", [0, 1]), Binned("a", [0, 4, 8])]))


def test_a_list_of_labels_keeps_the_types_of_its_entries():
    """NumPy would make text of all of them beside one text, and floats beside one float."""
    assert list(map(type, module._taken([1, "a", True, 2**60, 0.5], np.array([0, 2, 3])))) == [int, bool, int]


@pytest.mark.skipif(not hasattr(pa, "string_view"), reason="views came with pyarrow 16")
def test_columns_of_which_arrow_takes_no_rows_are_read_as_others():
    frame, y = table()
    plain = pa.table({**frame, "unused": frame["id"]})
    views = pa.table(
        {
            **frame,
            "id": pa.array(frame["id"], pa.string_view()),
            "unused": pa.array(frame["id"], pa.string_view()),
        }
    )
    fitted = [
        PrivateLogisticRegression(1.0, **FACTS, delta=1e-6, person="id", insecure_seed=0).fit(X, y)
        for X in (plain, views)
    ]
    assert fitted[0].coef_.tolist() == fitted[1].coef_.tolist()
