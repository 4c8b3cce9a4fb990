"""Numbers of tables in bins or as lines: the public rule, and what reads such models."""

from __future__ import annotations

import json
import sqlite3
import sys
import warnings
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from privopt.experiments.cli.main import main
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
    PrivateSigmoidClassifier,
    PrivateTreeClassifier,
    compare,
    evaluate,
)
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.cuts import codes_in_bins
from privopt.problems.tables.engines import count_records
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.predicates import Predicates
from privopt.problems.tables.rules import PointRule

SCHEMA = Schema(
    [
        MissingLevel(Numeric("age", 0, 80, step=1)),
        Numeric("is_old", 0, 1, step=1),
        Categorical("job", ["a", "b"]),
    ],
    intercept=True,
)
BINNED = SCHEMA.with_bins()
COMMON: dict[str, Any] = {"schema": SCHEMA, "classes": (0, 1), "insecure_seed": 1}
N = 2000


def people(n: int = N) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Risk is high in the middle of the ages, and the same at both ends."""
    rng = np.random.default_rng(0)
    age = rng.integers(0, 81, n).astype(float)
    ill = rng.random(n) < np.where(np.abs(age - 40) < 15, 0.8, 0.2)
    frame = pd.DataFrame({"age": age, "is_old": (age > 60).astype(int), "job": rng.choice(["a", "b"], n)})
    frame.loc[::50, "age"] = np.nan
    return frame, pd.Series(ill.astype(int), name="ill")


@pytest.mark.parametrize("kind", [PrivateHalfspaceClassifier, PrivateLogisticRegression])
def test_bins_show_what_no_line_can(kind: Any) -> None:
    X, y = people()
    model, lines = kind(3.0, **COMMON).fit(X, y), kind(3.0, numbers="lines", **COMMON).fit(X, y)
    assert (model.schema_, lines.schema_) == (BINNED, SCHEMA)
    assert "bins" in model.mechanism_reason_
    assert "bins" not in lines.mechanism_reason_
    ranked, by_lines = (roc_auc_score(y, found.decision_function(X)) for found in (model, lines))
    assert ranked > by_lines + 0.03
    assert model.spend_.epsilon == lines.spend_.epsilon == 3.0


def test_n_and_mu_decide() -> None:
    """At the same n mu the rule says the same for any n; fit and plan agree, and no record is read for it."""
    for n in (500, 50_000):
        epsilons = np.geomspace(1e-3, 10, 60)
        signal = [n * gaussian_mu(epsilon, 1 / n**2) for epsilon in epsilons]
        chosen = ["bins" in PrivateHalfspaceClassifier(e, **COMMON).plan(n).reason for e in epsilons]
        assert chosen == [s >= 30 for s in signal]
    X, y = people(200)
    small = PrivateLogisticRegression(0.01, **COMMON).fit(X, y)
    assert small.schema_ == SCHEMA
    assert "bins" not in small.mechanism_reason_


@pytest.mark.parametrize(
    "options",
    [
        {"mechanism": "sufficient-statistics"},
        {"convex_set": "l2:1"},
        {"regularizer": "l2:0.1"},
        {"data_norm": 2.0},
        {"norm": "l2"},
        {"max_weight": 2.0},
    ],
)
def test_what_was_asked_for_is_of_the_declared_features(options: dict[str, Any]) -> None:
    X, y = people()
    model = PrivateLogisticRegression(3.0, **COMMON, **options).fit(X, y)
    assert model.coef_.shape == (1, SCHEMA.n_features)
    assert PrivateLogisticRegression(3.0, numbers="bins", **COMMON, **options).fit(X, y).schema_ == BINNED


def test_cards_that_were_asked_for_and_other_losses_keep_lines() -> None:
    X, y = people()
    for options in ({"mechanism": "seeded"}, {"lattice": (-5, 5)}, {"oracle": "bounded"}):
        planned = PrivateHalfspaceClassifier(3.0, **COMMON, **options).plan(N)
        assert planned.plan.lattice.dimension == SCHEMA.n_features
    assert PrivateSigmoidClassifier(3.0, **COMMON).fit(X, y).schema_ == SCHEMA
    with pytest.raises(InvalidInputError, match='"auto", "bins" or "lines"'):
        PrivateHalfspaceClassifier(3.0, numbers="bin", **COMMON).plan(N)


def test_numbers_of_two_values_keep_one_weight() -> None:
    assert BINNED.columns[1:] == SCHEMA.columns[1:]
    assert Schema([Numeric("x", 0, 1, step=0.5)]).with_bins().n_features > 2


@pytest.mark.parametrize("kind", [PrivateHalfspaceClassifier, PrivateLogisticRegression])
def test_counted_records_and_engines_give_the_same_model(kind: Any) -> None:
    X, y = people()
    inside = ibis.memtable(X.assign(ill=y))
    counted = count_records(inside, SCHEMA, "ill", (0, 1))
    assert counted.in_schema(BINNED).n_records == N
    assert len(counted.in_schema(BINNED).counts) < len(counted.counts)
    models = [kind(3.0, **COMMON).fit(*given) for given in ((X, y), (inside, "ill"), (counted, None))]
    for model in models[1:]:
        assert model.schema_ == BINNED
        assert np.allclose(model.coef_, models[0].coef_, atol=1e-9)
    scores = models[0].decision_function(counted)
    by_hand = models[0].decision_function(CountedRecords.of(BINNED, BINNED.codes(X), (0, 1), y.to_numpy()))
    assert len(scores) == len(counted.counts)
    assert set(np.round(scores, 9)) == set(np.round(by_hand, 9))
    with pytest.raises(InvalidInputError, match="predictions are made in memory"):
        models[0].decision_function(inside)
    with pytest.raises(InvalidInputError, match="another schema"):
        counted.in_schema(Schema([Numeric("age", 0, 90, step=1)]))


def test_codes_in_bins_are_those_of_the_cells() -> None:
    X, y = people()
    counted = CountedRecords.of(SCHEMA, SCHEMA.codes(X), (0, 1), y.to_numpy())
    other = CountedRecords.of(BINNED, BINNED.codes(X), (0, 1), y.to_numpy())
    found = counted.in_schema(BINNED)
    assert [c.tolist() for c in found.codes] == [c.tolist() for c in other.codes]
    assert (found.label.tolist(), found.counts.tolist()) == (other.label.tolist(), other.counts.tolist())


def test_a_card_with_bins_beside_a_tree_adds_up_in_sql_and_files(tmp_path: Path) -> None:
    X, y = people()
    model = PrivateAdditiveTreeClassifier(3.0, max_depth=2, **COMMON).fit(X, y)
    assert (model.scorecard_model_.schema_, model.schema_) == (BINNED, SCHEMA)
    model.save(tmp_path / "model.json")
    loaded = PrivateAdditiveTreeClassifier.load(tmp_path / "model.json")
    scores = model.decision_function(X)
    assert loaded.decision_function(X).tolist() == scores.tolist()
    connection = sqlite3.connect(":memory:")
    X.to_sql("records", connection, index=False)
    assert pd.read_sql(model.to_sql(), connection)["score"].to_numpy() == pytest.approx(scores)
    wrong = json.loads((tmp_path / "model.json").read_text())
    wrong["card"]["schema"]["columns"][0]["edges"][1] += 1
    (tmp_path / "model.json").write_text(json.dumps(wrong))
    with pytest.raises(InvalidInputError):
        PrivateAdditiveTreeClassifier.load(tmp_path / "model.json")


def test_models_with_and_without_bins_are_compared_where_the_records_are() -> None:
    X, y = people()
    card = PrivateHalfspaceClassifier(3.0, **COMMON).fit(X, y)
    tree = PrivateTreeClassifier(3.0, max_depth=2, **COMMON).fit(X, y)
    inside = ibis.memtable(X.assign(ill=y))
    seed: dict[str, Any] = {"insecure_seed": 0}
    for pair in ((card, tree), (tree, card)):
        here = compare(*pair, X, y, epsilon=1.0, **seed)
        assert str(compare(*pair, inside, "ill", epsilon=1.0, **seed)) == str(here)
    inside_alone, here_alone = (
        evaluate(card, *given, epsilon=1.0, **seed) for given in ((inside, "ill"), (X, y))
    )
    assert str(inside_alone) == str(here_alone)
    other = PrivateTreeClassifier(3.0, **COMMON | {"schema": Schema([Numeric("age", 0, 80)])})
    other.fit(X.fillna(0), y)
    with pytest.raises(InvalidInputError, match="the same schema"):
        compare(card, other, inside, "ill", epsilon=1.0)


def test_persons_have_bins_by_their_own_budget() -> None:
    X, y = people()
    held = X.assign(who=np.arange(N) // 2)
    card = PrivateHalfspaceClassifier(3.0, person="who", records_per_person=2, **COMMON)
    assert card.fit(held, y).schema_ == BINNED
    assert "bins" in card.plan(N // 2).reason
    assert "bins" not in PrivateHalfspaceClassifier(0.05, person="who", **COMMON).plan(N // 2).reason


def test_three_classes_have_bins() -> None:
    X, y = people()
    model = PrivateHalfspaceClassifier(3.0, schema=SCHEMA, classes=(0, 1, 2), insecure_seed=0)
    assert model.fit(X, y + (X["job"] == "a")).schema_ == BINNED


def test_inferred_classes_count_as_declared_ones() -> None:
    """At n mu between 150, which is enough for two classes, and 225, for three."""
    X, y = people()
    epsilon = next(e for e in np.geomspace(0.01, 1, 400) if N * gaussian_mu(e, 1 / N**2) >= 180)
    for labels, binned in ((y, True), (y + (X["job"] == "a"), False)):
        for classes in (None, tuple(np.unique(labels).tolist())):
            model = PrivateLogisticRegression(epsilon, schema=SCHEMA, classes=classes, insecure_seed=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PrivacyLeakWarning)  # classes are inferred
                model.fit(X, labels)
            assert (model.schema_ == BINNED) == binned


def test_a_model_with_an_inferred_schema_says_that_its_numbers_are_in_bins() -> None:
    X, y = people()
    for numbers in ("auto", "lines"):
        model = PrivateHalfspaceClassifier(3.0, numbers=numbers, classes=(0, 1), insecure_seed=0)
        with pytest.warns(PrivacyLeakWarning, match="inferred"):
            model.fit(X, y)
        assert ("bins" in model.mechanism_reason_) == (numbers == "auto")


def test_ordered_levels_count_as_one_in_noise_against_signal() -> None:
    """The ratio of bins is that of lines: neighbours are assumed alike, and neither ranks records worse."""
    ratio = {
        kind: PrivateHalfspaceClassifier(1.0, numbers=kind, **COMMON).plan(N).noise_to_signal(N).ratio
        for kind in ("bins", "lines")
    }
    assert ratio["bins"] == pytest.approx(ratio["lines"], rel=0.15)


@pytest.mark.parametrize(("epsilon", "numbers"), [(0.2, "lines"), (3.0, "auto")])
def test_cards_have_an_intercept_of_their_own(epsilon: float, numbers: str) -> None:
    """Points per unit alone put the threshold where the number is 0: every record had one class."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.integers(0, 101, N)})
    y = (rng.random(N) < 1 / (1 + np.exp((60 - X["age"]) / 8))).astype(int)
    schema = Schema([Numeric("age", 0, 100)])
    asked = PrivateHalfspaceClassifier(
        epsilon, numbers=numbers, schema=schema, classes=(0, 1), insecure_seed=0
    )
    card = clone(asked).fit(X, y)
    whole = Schema(schema.columns, intercept=True)
    assert card.schema_ == (whole if numbers == "lines" else whole.with_bins())
    assert balanced_accuracy_score(y, card.predict(X)) > 0.7
    declared = clone(asked).set_params(schema=whole).fit(X, y)
    assert np.array_equal(card.coef_, declared.coef_)
    assert card.spend_ == declared.spend_
    counted = clone(asked).fit(CountedRecords.of(schema, schema.codes(X), (0, 1), y))
    assert np.array_equal(card.coef_, counted.coef_)


def test_records_are_counted_alike_with_an_intercept_and_without() -> None:
    """A tree had booked its comparison with such a card before it refused records counted by its schema."""
    X, y = people(400)
    bare = Schema([Categorical("job", ["a", "b"]), Numeric("is_old", 0, 1, step=1)])
    common: dict[str, Any] = {"schema": bare, "classes": (0, 1), "insecure_seed": 0}
    inside = ibis.memtable(X.assign(ill=y))
    counted = CountedRecords.of(bare, bare.codes(X), (0, 1), y.to_numpy())
    card = PrivateHalfspaceClassifier(1.0, **common).fit(counted)
    tree = PrivateTreeClassifier(1.0, **common).fit(counted)
    both = PrivateAdditiveTreeClassifier(1.0, **common).fit(counted)
    assert card.schema_ == bare.with_intercept() != bare == tree.schema_
    for first, second in ((card, tree), (tree, card), (both, tree), (tree, both)):
        found = [compare(first, second, *given, insecure_seed=0) for given in ((inside, "ill"), (counted,))]
        assert found[0].metrics == found[1].metrics == compare(first, second, X, y, insecure_seed=0).metrics
    again = counted.in_schema(card.schema_)
    for kind in (PrivateRobustClassifier, PrivateTreeClassifier):
        models = [kind(1.0, **common).fit(given) for given in (counted, again)]
        assert np.array_equal(models[0].predict(X), models[1].predict(X))


def test_a_column_named_intercept_leaves_no_room_for_another() -> None:
    table = pd.DataFrame({"intercept": np.arange(400) % 10})
    y = (table["intercept"] > 4).astype(int)
    schema = Schema([Numeric("intercept", 0, 9, step=1)])
    common: dict[str, Any] = {"schema": schema, "classes": (0, 1), "insecure_seed": 0}
    counted = CountedRecords.of(schema, schema.codes(table), (0, 1), y.to_numpy())
    for model in (PrivateHalfspaceClassifier(3.0, **common), PrivateLogisticRegression(3.0, **common)):
        assert np.mean(model.fit(counted).predict(table) == y) > 0.8


def test_only_cards_that_choose_by_themselves_have_an_intercept_of_their_own() -> None:
    schema = Schema([Categorical("sex", ["f", "m"])])
    for options in ({"mechanism": "seeded"}, {"lattice": (-2, 2)}, {"mechanism": "opdisc"}):
        plan = PrivateHalfspaceClassifier(1.0, schema=schema, **options).plan(N)
        assert not plan.intercept
        assert plan.plan.lattice.dimension == 2
    plan = PrivateHalfspaceClassifier(1.0, schema=schema).plan(N)
    assert plan.intercept
    assert plan.plan.lattice.dimension == 3


@pytest.mark.parametrize(
    ("rule", "scale", "bins"),
    [
        ("points(age) in [0, 5]", {}, True),
        ("points in {-5, 0, 5}", {}, True),
        ("monotone(age) = rising", {"zero": 80, "one": 0}, True),
        ("points(age) in [1, 5]", {}, False),  # of a line: none at 0
        ("points(age) in [-2, 2]", {"zero": 0, "one": 10}, False),  # of a line: per ten years, up to 16
    ],
)
def test_bounds_that_mean_something_else_of_a_line_keep_lines(
    rule: str, scale: dict[str, Any], bins: bool
) -> None:
    schema = Schema([Numeric("age", 0, 80, **scale), Numeric("is_old", 0, 1)], intercept=True)
    options = {**COMMON, "schema": schema, "constraints": [rule]}
    assert ("bins" in PrivateHalfspaceClassifier(3.0, **options).plan(N).reason) == bins
    assert "bins" in PrivateHalfspaceClassifier(3.0, numbers="bins", **options).plan(N).reason


def test_bounds_of_a_schema_keep_lines() -> None:
    schema = Schema(SCHEMA.columns, intercept=True, rules={"age": PointRule(points=(1, 5))})
    assert "bins" not in PrivateHalfspaceClassifier(3.0, **COMMON | {"schema": schema}).plan(N).reason


@pytest.mark.parametrize(("numbers", "said"), [("bins", "needs a schema"), ("bin", '"bins" or "lines"')])
def test_without_a_schema_there_are_no_bins(numbers: str, said: str) -> None:
    model = PrivateLogisticRegression(1.0, data_norm=1.0, classes=(0, 1), numbers=numbers)
    with pytest.raises(InvalidInputError, match=said):
        model.fit(np.zeros((10, 2)), np.arange(10) % 2)


def test_classes_that_are_no_list_are_refused_as_such() -> None:
    X, y = people(100)
    with pytest.raises(InvalidInputError, match="a list of labels"):
        PrivateLogisticRegression(3.0, **COMMON | {"classes": 5}).fit(X, y)


def test_cuts_that_doubles_do_not_tell_apart_are_one() -> None:
    column = Numeric("x", 2**53, 2**53 + 4)
    binned = Schema([column]).with_bins().columns[0]
    cells = np.array([2.0**53, 2.0**53 + 2, 2.0**53 + 4])
    assert binned.n_codes < 4
    assert codes_in_bins(column, column.code(cells)).tolist() == binned.code(cells).tolist()


def test_codes_of_long_grids_take_no_more_memory_than_their_records() -> None:
    """After the booking a table of all codes of a column was made: 8 TiB for these."""
    column = MissingLevel(Numeric("x", 0, 2**40))
    schema = Schema([column])
    X = pd.DataFrame({"x": [0.0, 2**38 - 1, 2**38, 2**40, np.nan]})
    found = CountedRecords.of(schema, schema.codes(X), (0, 1), np.zeros(5, np.int64)).in_schema(
        schema.with_bins()
    )
    binned = schema.with_bins().codes(X)[0].tolist()
    assert found.codes[0].tolist() == sorted(binned)
    assert Predicates.of(schema).coarsened(schema.codes(X))[0].tolist() == binned


def test_the_command_line_has_the_same_bins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Linear models, too; and models with and without bins are compared in an engine."""
    X, y = people()
    SCHEMA.save(tmp_path / "schema.json")
    with sqlite3.connect(tmp_path / "p.sqlite") as database:
        X.assign(ill=y).to_sql("people", database, index=False)
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["privopt", *words, "--insecure-seed", "0"])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert not stopped.value.code, capsys.readouterr().err

    data = ("--data", "sqlite://p.sqlite", "--table", "people", "--target", "ill")
    fit = ("fit", *data, "--schema", "schema.json", "--classes", "0,1", "--epsilon", "3")
    run(*fit, "--loss", "logistic", "--save", "linear.json")
    run(*fit, "--numbers", "lines", "--save", "lines.json")
    assert PrivateLogisticRegression.load("linear.json").schema_ == BINNED
    for first, second in (("linear", "lines"), ("lines", "linear")):
        run("evaluate", f"{first}.json", "--against", f"{second}.json", *data, "--epsilon", "1")


@pytest.mark.parametrize(("numbers", "mechanism"), [("auto", "dp-gd"), ("lines", "sufficient-statistics")])
def test_a_plan_has_the_numbers_and_the_mechanism_of_the_fit(numbers: str, mechanism: str) -> None:
    """Bins and lines have budgets of their own from which on moments are not the choice."""
    schema = Schema([Numeric(f"x{k}", -5, 5, step=0.1) for k in range(12)], intercept=True)
    records = CountedRecords.of(schema, [np.zeros(30_000, int)] * 12, (0, 1), np.arange(30_000) % 2)
    fit = PrivateLogisticRegression(1.0, schema=schema, classes=(0, 1), numbers=numbers, insecure_seed=0)
    assert fit.plan(30_000).mechanism.name == mechanism
    assert fit.fit(records).mechanism_ == mechanism
