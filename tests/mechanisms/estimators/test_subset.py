"""Best subset selection: the selector, regression on drawn columns, and plans."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt.mechanisms import PrivateLinearRegression, PrivateSubsetSelector
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.estimators.column_choice import schema_facts
from privopt.mechanisms.estimators.repeats import RepeatedReleaseWarning
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.problems.datasets.synthetic import SparseDesign
from privopt.problems.discrete.supports import SubsetBounds
from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning
from privopt.problems.tables.columns import Categorical, Numeric
from privopt.problems.tables.schema import Schema

DESIGN = SparseDesign(8, 2, snr=10.0)
X, Y = DESIGN.table(2000, np.random.default_rng(0))
FACTS = {"data_norm": 1.0, "label_range": (-1.0, 1.0)}


@parametrize_with_checks([PrivateSubsetSelector(insecure_seed=0)])
@pytest.mark.filterwarnings("ignore::privopt.problems.errors.PrivacyLeakWarning")
def test_selector_follows_scikit_learn(estimator, check) -> None:  # type: ignore[no-untyped-def]
    check(estimator)


def test_selector_draws_the_informative_columns() -> None:
    """At this size every other subset has a probability below exp(-30), by the losses of enumeration."""
    table = pd.DataFrame(X, columns=[f"c{j}" for j in range(8)])
    selector = PrivateSubsetSelector(2, 2.0, **FACTS).fit(table, Y)
    assert selector.get_support(indices=True).tolist() == [0, 4]
    assert selector.get_feature_names_out().tolist() == ["c0", "c4"]
    assert selector.transform(table).shape == (2000, 2)
    spend = selector.spend_
    assert (spend.epsilon, spend.delta, spend.notion) == (2.0, 0.0, "pure")


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_release_is_that_of_the_plan_on_centred_labels(norm: str) -> None:
    bound = 1.0 if norm == "linf" else 3.0
    given = {"data_norm": bound, "norm": norm, "label_range": (4.0, 8.0), "insecure_seed": 3}
    selector = PrivateSubsetSelector(2, 0.05, **given).fit(X, Y + 6)
    rows = {"feature": bound, "constant": bound} if norm == "linf" else {"row": bound, "constant": bound / 2}
    plan = SubsetPlan.plan(8, 2, SubsetBounds(2.0, **rows), epsilon=0.05)
    release = plan.release(X, Y + 6 - 6.0, NoiseSource(3))
    assert np.array_equal(selector.support_, release.point == 1)


def test_regression_fits_on_the_drawn_columns(tmp_path: Path) -> None:
    model = PrivateLinearRegression(4.0, mechanism="best-subset", delta=1e-6, max_features=2, **FACTS).fit(
        X, Y
    )
    assert np.flatnonzero(model.support_).tolist() == [0, 4]
    assert np.all(model.coef_[~model.support_] == 0)
    assert np.all(model.coef_[model.support_] > 0.2)
    spend = model.spend_
    assert (spend.epsilon, spend.delta, spend.notion) == (4.0, 1e-6, "approximate")
    assert "supports of 2 of 8 features at epsilon = 2" in spend.note
    model.save(tmp_path / "model.json")
    again = PrivateLinearRegression.load(tmp_path / "model.json")
    assert np.array_equal(again.predict(X), model.predict(X))
    pipeline = make_pipeline(PrivateSubsetSelector(2, 2.0, **FACTS), PrivateLinearRegression(2.0, **FACTS))
    assert pipeline.fit(X, Y).predict(X).shape == (2000,)


def test_there_are_no_intervals_after_a_choice(tmp_path: Path) -> None:
    """Nor those of an earlier fit of the same object, nor in its file; without a choice there are."""
    model = PrivateLinearRegression(4.0, delta=1e-6, **FACTS).fit(X, Y)
    assert len(model.summary()) == 9
    model.set_params(max_features=2).fit(X, Y)
    for asked in (
        model.summary,
        model.intervals,
        lambda: model.combination({"x0": 1.0}),
        lambda: model.mean_intervals(X[:2]),
    ):
        with pytest.raises(InvalidInputError, match="the same records chose its columns"):
            asked()
    model.save(tmp_path / "model.json")
    with pytest.raises(InvalidInputError, match="without max_features"):
        PrivateLinearRegression.load(tmp_path / "model.json").summary()
    assert len(model.set_params(max_features=None).fit(X, Y).summary()) == 9


def test_a_schema_gives_the_bounds_of_its_features() -> None:
    """The fit on features of the schema is that on numbers, centred and bounded by hand."""
    rng = np.random.default_rng(0)
    values = rng.integers(0, 11, size=(500, 6))
    labels = values[:, 0] / 10 - values[:, 3] / 10 + 0.1 * rng.normal(size=500)
    columns = [{"kind": "numeric", "name": f"x{j}", "low": 0, "high": 10, "one": 10} for j in range(6)]
    options = {
        "delta": 1e-6,
        "label_range": (-1.0, 1.0),
        "max_features": 2,
        "insecure_seed": 1,
        "mechanism": "best-subset",
    }
    table = pd.DataFrame(values, columns=[f"x{j}" for j in range(6)])
    model = PrivateLinearRegression(8.0, schema={"columns": columns}, **options).fit(table, labels)
    # 0.5 raised for rounding as the schema's bound is: noise is in proportion to it.
    numbers = PrivateLinearRegression(8.0, data_norm=0.5 * (1 + 1e-12), **options).fit(
        values / 10 - 0.5, labels
    )
    assert np.flatnonzero(model.support_).tolist() == [0, 3]
    assert model.coef_ == pytest.approx(numbers.coef_, abs=1e-9)
    assert model.predict(table) == pytest.approx(numbers.predict(values / 10 - 0.5), abs=1e-9)


def test_a_schema_of_categories_bounds_them(tmp_path: Path) -> None:
    """A level less its middle 1/4 is at most 3/4; each level may be chosen by itself."""
    schema = Schema([Categorical("c", ["a", "b", "d", "e"]), Numeric("x", 0, 10, one=10)])
    assert schema_facts(schema, centred=True).bound == pytest.approx(0.75)
    assert schema_facts(schema, centred=False).bound == 1.0
    rng = np.random.default_rng(1)
    table = pd.DataFrame({"c": rng.choice(["a", "b", "d", "e"], 900), "x": rng.integers(0, 11, 900)})
    labels = np.where(table["c"] == "d", 1.0, -1.0)
    options = {"delta": 1e-6, "label_range": (-1.0, 1.0), "max_features": 1}
    model = PrivateLinearRegression(8.0, schema=schema, **options).fit(table, labels)
    assert np.flatnonzero(model.support_).tolist() == [2]
    model.save(tmp_path / "model.json")
    assert np.array_equal(
        PrivateLinearRegression.load(tmp_path / "model.json").predict(table), model.predict(table)
    )
    with pytest.raises(InvalidInputError, match="set intercept to false"):
        PrivateLinearRegression(schema=Schema(schema.columns, intercept=True), **options).fit(table, labels)


def test_a_ledger_is_charged_once_for_choice_and_fit(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "book.jsonl", epsilon=1.5, delta=1e-5)
    options = {"delta": 1e-6, "max_features": 2, "ledger": book, **FACTS}
    PrivateLinearRegression(1.0, **options).fit(X, Y)
    with pytest.raises(BudgetExceededError):
        PrivateLinearRegression(1.0, **options).fit(X, Y)
    with pytest.raises(InvalidInputError, match="declare data_norm and label_range"):
        PrivateSubsetSelector(2, 0.1, ledger=book).fit(X, Y)


def test_a_second_choice_on_a_table_is_warned_of() -> None:
    model = PrivateLinearRegression(1.0, delta=1e-6, max_features=2, **FACTS)
    table = X.copy()
    model.fit(table, Y)
    with pytest.warns(RepeatedReleaseWarning, match="second release of the same table"):
        model.fit(table, Y)


def test_undeclared_facts_are_warned_of() -> None:
    with pytest.warns(PrivacyLeakWarning, match="data_norm and label_range"):
        PrivateSubsetSelector(2).fit(X, Y)


def test_bad_arguments_are_refused() -> None:
    for model in (
        PrivateLinearRegression(max_features=9, **FACTS),
        PrivateLinearRegression(max_features=0, **FACTS),
        PrivateLinearRegression(max_features=True, **FACTS),
        PrivateLinearRegression(max_features=2.5, **FACTS),
        PrivateLinearRegression(max_features=2, norm="l3", **FACTS),
        PrivateSubsetSelector(9, **FACTS),
        PrivateSubsetSelector(2, norm="l1", **FACTS),
    ):
        with pytest.raises(InvalidInputError):
            model.fit(X, Y)
    with pytest.raises(InvalidInputError, match="dense table"):
        PrivateSubsetSelector(2, **FACTS).fit(sp.csr_array(X), Y)
    with pytest.raises(InvalidInputError, match="leave out data_norm"):
        PrivateLinearRegression(max_features=2, schema=Schema([Numeric("a", 0, 1)]), **FACTS).fit(X, Y)
    with pytest.raises(UnfinishedDrawError):
        PrivateSubsetSelector(2, **FACTS, limits=Limits(cancelled=lambda: True)).fit(X, Y)


def test_recovery_counts_draws_of_the_whole_support() -> None:
    bounds = SubsetBounds(1.0, feature=1.0)
    certain = SubsetPlan.plan(8, 2, bounds, epsilon=10.0)
    assert certain.recovery(DESIGN, 2000, tables=3) == 1.0
    blind = SubsetPlan.plan(8, 2, bounds, epsilon=1e-4)
    assert blind.recovery(DESIGN, 50, tables=20) < 0.5  # uniform: 1 of 28 subsets
    with pytest.raises(InvalidInputError, match="the plan is for"):
        certain.recovery(SparseDesign(9, 2), 100)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label_range": (0.0, 1e300)}, "bound on labels must be from 1e-100 to 1e.100"),
        ({"label_range": (1e-300, 2e-300)}, "bound on labels must be from 1e-100"),
        ({"data_norm": 1e300}, "bound on features or rows must be from 1e-100"),
    ],
)
def test_bounds_whose_squares_are_no_doubles_are_refused_before_data(
    options: dict[str, Any], words: str
) -> None:
    given = {"data_norm": 1.0, "label_range": (-1.0, 1.0), **options}
    with pytest.raises(InvalidInputError, match=words):
        PrivateSubsetSelector(1, **given).fit(np.full((9, 2), np.nan), np.zeros(9))


def test_a_selector_that_was_not_fitted_has_chosen_nothing() -> None:
    with pytest.raises(NotFittedError):
        PrivateSubsetSelector(2).get_support()
