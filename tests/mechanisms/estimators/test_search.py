"""``PrivateSearchCV``: one booking, a hidden number of runs, and nothing that a run tells beside the best."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt.mechanisms import (
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSearchCV,
    PrivateTreeClassifier,
    budget,
)
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError, SearchError
from privopt.mechanisms.estimators import search as module
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.usefulness import NoiseWarning
from privopt.oracles.limits import Limits, Progress
from privopt.problems import Categorical, InvalidInputError, Numeric, Schema


def records(n: int = 400, d: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d)) / math.sqrt(d)
    return X, np.where(X[:, 0] > 0, "yes", "no")


def logistic(**options: Any) -> PrivateLogisticRegression:
    return PrivateLogisticRegression(
        **{"mechanism": "dp-gd", "data_norm": 1.0, "classes": ("no", "yes"), **options}
    )


FOUR = {"steps": [1, 5], "regularizer": ["none", "l2:0.1"]}


class Coin(ClassifierMixin, BaseEstimator):
    """A classifier from outside the package, which counts its fits and can fail."""

    fits: ClassVar[list[str]] = []

    def __init__(self, epsilon: float = 1.0, delta: float = 1e-6, word: str = "yes", fails: bool = False):
        self.epsilon, self.delta, self.word, self.fails = epsilon, delta, word, fails

    def fit(self, X: Any, y: Any) -> Self:
        Coin.fits.append(self.word)
        warnings.warn("told by every run", stacklevel=1)
        if self.fails:
            raise ZeroDivisionError("it holds record 17")
        self.classes_, self.n_features_in_ = np.array(["no", "yes"]), X.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        self.seen_ = X  # a copy that predicts must not be the one that is released
        return np.full(len(X), self.word)


@pytest.fixture(autouse=True)
def no_fits_yet() -> None:
    Coin.fits.clear()


def with_classes(**grid: Iterable[Any]) -> PrivateSearchCV:
    """A search over coins and one estimator that declares the classes."""
    return PrivateSearchCV([Coin(), logistic()], [grid, {}], epsilon=50.0, delta=1e-6, insecure_seed=0)


@parametrize_with_checks(
    [
        PrivateSearchCV(
            PrivateLinearRegression(data_norm=10.0, label_range=(-100, 100)),
            {"fit_intercept": [True, False]},
            epsilon=50.0,
            insecure_seed=0,
        )
    ]
)
def test_scikit_learn_conventions(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


def test_best_model_is_released_with_the_spend_of_the_search() -> None:
    X, y = records()
    search = PrivateSearchCV(logistic(), FOUR, epsilon=30.0, insecure_seed=4).fit(X, y)
    assert search.spend_.epsilon == 30.0
    assert search.spend_.delta == pytest.approx(1 / 400**2)
    assert search.spend_.insecure_seed == 4
    assert search.spend_.mechanism == "private-selection"
    best = search.best_estimator_
    assert best.spend_ == search.spend_
    assert best.limits is None
    assert {name: getattr(best, name) for name in FOUR} == search.best_params_
    assert search.plan_.candidates[search.best_index_] == search.best_params_
    assert best.epsilon == search.plan_.selection.run_epsilon < 30.0
    np.testing.assert_array_equal(search.predict(X), best.predict(X))
    np.testing.assert_array_equal(search.predict_proba(X), best.predict_proba(X))
    np.testing.assert_array_equal(search.decision_function(X), best.decision_function(X))
    assert search.score(X, y) == best.score(X, y) > 0.7
    assert abs(search.best_score_ - best.score(X, y)) < 0.2
    assert list(search.classes_) == ["no", "yes"]
    assert search.n_features_in_ == 3


def test_saved_model_states_the_spend_of_the_search(tmp_path: Path) -> None:
    X, y = records()
    search = PrivateSearchCV(logistic(), FOUR, epsilon=30.0).fit(X, y)
    search.best_estimator_.save(tmp_path / "model.json")
    assert PrivateLogisticRegression.load(tmp_path / "model.json").spend_ == search.spend_


def test_search_is_booked_once_before_records_are_read(tmp_path: Path) -> None:
    X, y = records()
    ledger = Ledger.create(tmp_path / "ledger.db", 1.5, 1e-4)
    search = PrivateSearchCV(logistic(), FOUR, epsilon=1.0, ledger=ledger).fit(X, y)
    (entry,) = ledger.entries()
    assert (entry.spend, entry.state) == (search.spend_, "committed")
    with pytest.raises(BudgetExceededError):
        search.fit(np.full(X.shape, "no number"), y)
    assert len(ledger.entries()) == 1


def test_refusal_because_of_records_stays_booked(tmp_path: Path) -> None:
    X, y = records()
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0, 1e-4)
    X[5, 1] = math.nan
    with pytest.raises(InvalidInputError, match="NaN") as error:
        PrivateSearchCV(logistic(), FOUR, ledger=ledger).fit(X, y)
    assert "counts as spent" in error.value.__notes__[0]
    assert ledger.total().epsilon == 1.0


def test_interruption_stays_booked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    X, y = records()
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0, 1e-4)
    monkeypatch.setattr(module._Search, "_fitted", interrupted)
    search = PrivateSearchCV(logistic(), FOUR, ledger=ledger)
    with pytest.raises(KeyboardInterrupt):
        search.fit(X, y)
    assert ledger.total().epsilon == 1.0
    assert not hasattr(search, "best_estimator_")


def test_limits_release_nothing(tmp_path: Path) -> None:
    X, y = records()
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0, 1e-4)
    search = PrivateSearchCV(logistic(), FOUR, ledger=ledger, limits=Limits(cancelled=lambda: True))
    with pytest.raises(SearchError, match="INTERRUPTED"):
        search.fit(X, y)
    assert ledger.total().epsilon == 1.0
    assert not hasattr(search, "best_estimator_")


def test_number_of_runs_is_neither_shown_nor_kept() -> None:
    X, y = records()
    shown: list[Progress] = []
    limits = Limits(on_progress=shown.append)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        search = with_classes(word=["yes", "no", "maybe"]).set_params(limits=limits).fit(X, y)
    assert not shown
    assert not caught
    assert Coin.fits
    assert not any("run" in name or "results" in name for name in vars(search))
    assert search.spend_.claim == "not checked"
    assert "Coin" in search.spend_.note


def test_progress_counts_runs_where_all_are_made() -> None:
    X, y = records()
    shown: list[Progress] = []
    limits = Limits(on_progress=shown.append)
    PrivateSearchCV(logistic(), {"steps": [1, 2]}, epsilon=9.0, limits=limits).fit(X, y)
    assert shown
    assert all(now.total == 2 for now in shown)


def test_runs_show_no_progress_and_fits_beside_them_are_booked(tmp_path: Path) -> None:
    X, y = records()
    shown: list[Progress] = []
    of_runs = [Limits(on_progress=shown.append)] * 2
    search = PrivateSearchCV(logistic(steps=2), {"limits": of_runs}, epsilon=9.0).fit(X, y)
    assert not shown
    assert search.best_estimator_.limits is of_runs[0]
    begun: list[PrivateLogisticRegression] = []

    def beside() -> bool:
        if not begun:
            begun.append(logistic(epsilon=1.0, steps=1))
            begun[0].fit(X, y)
        return False

    runs = logistic(limits=Limits(cancelled=beside))
    with budget(epsilon=11.0, delta=1e-2) as book:
        PrivateSearchCV(runs, {"steps": [1, 2]}, epsilon=9.0).fit(X, y)
    assert hasattr(begun[0], "spend_")
    assert book.total().epsilon == pytest.approx(10.0)


def test_classes_may_be_an_array() -> None:
    X, y = records()
    models = [logistic(classes=np.array(["no", "yes"])), logistic()]
    assert PrivateSearchCV(models, epsilon=9.0).fit(X, y).classes_.tolist() == ["no", "yes"]


def test_failing_candidate_has_the_lowest_score_and_tells_nothing() -> None:
    X, y = records()
    for seed in range(8):
        Coin.fits.clear()
        search = with_classes(word=["yes", "no"], fails=[True]).set_params(insecure_seed=seed)
        search = search.set_params(estimator=[Coin(), logistic()]).fit(X, y)  # three: all are run
        assert len(Coin.fits) == 2
        assert search.best_params_ == {}


def test_search_in_which_all_runs_fail_says_so_without_their_errors(tmp_path: Path) -> None:
    X, y = records()
    search = PrivateSearchCV([Coin(fails=True), Coin(fails=True), logistic(data_norm=1.0)], delta=1e-6)
    search.set_params(estimator=[*search.estimator[:2]], epsilon=5.0)
    with pytest.raises(InvalidInputError, match="same classes"):
        search.fit(X, y)
    broken = logistic(limits=Limits(cancelled=lambda: True))
    ledger = Ledger.create(tmp_path / "ledger.db", 5.0, 1e-2)
    with pytest.raises(SearchError, match="every run failed") as error:
        PrivateSearchCV([broken, clone(broken)], epsilon=5.0, ledger=ledger).fit(X, y)
    assert error.value.__cause__ is None
    assert "counts as spent" in "".join(error.value.__notes__)
    assert ledger.total().epsilon == pytest.approx(5.0)


def test_released_model_has_not_seen_the_records_that_it_was_scored_on() -> None:
    X, y = records()
    for seed in range(6):
        search = with_classes(word=["yes", "no"]).set_params(insecure_seed=seed).fit(X, y)
        assert not hasattr(search.best_estimator_, "seen_")


def test_spend_that_differs_from_the_plan_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = records()
    search = PrivateSearchCV(logistic(), FOUR, epsilon=1.0)
    chosen = module._with_budget
    calls = iter(range(100))

    def generous(*given: Any) -> Any:
        model = chosen(*given)
        return model.set_params(epsilon=2.0) if next(calls) >= 4 else model

    monkeypatch.setattr(module, "_with_budget", generous)
    with pytest.raises(module._OverspentError):
        search.fit(X, y)


def test_parts_are_drawn_anew_and_cover_all_records() -> None:
    X = np.arange(50.0)[:, None]
    search = PrivateSearchCV(
        PrivateLinearRegression(data_norm=99.0, label_range=(0, 50)), {"fit_intercept": [True, False]}
    )
    planned = search.plan(50, 1)
    splits = [module._split(X, X[:, 0], planned, module.NoiseSource()) for _ in range(2)]
    for fitted, held in splits:
        assert len(held.X) == planned.n_held_out == 10
        assert len(fitted.X) == planned.n_fitted == 40
        assert sorted([*fitted.y, *held.y]) == list(range(50))
        np.testing.assert_array_equal(fitted.X[:, 0], fitted.y)
    assert list(splits[0][1].y) != list(splits[1][1].y)


def test_every_run_has_fresh_noise() -> None:
    X, y = records()
    found = set()
    for _ in range(3):
        model = PrivateSearchCV(logistic(), {"steps": [2, 2]}, epsilon=5.0).fit(X, y).best_estimator_
        found.add(float(model.coef_[0, 0]))
    assert len(found) == 3


def test_plan_is_the_budget_of_every_run_without_data() -> None:
    search = PrivateSearchCV(logistic(), FOUR, epsilon=1.0, delta=1e-6)
    planned = search.plan(10_000, 3)
    assert planned.n_fitted == 8_000
    assert planned.n_held_out == 2_000
    level = planned.selection.run_mu
    assert level is not None
    assert all(s.level <= level for s in planned.run_spends)
    # More than all four runs would have had.
    assert level > gaussian_mu(1.0, 1e-6) / 2
    text = str(planned)
    assert "random number, 4 on average" in text
    assert "noise 1." in text
    assert "regularizer: ridge" in text


def test_plan_warns_once_of_runs_that_are_lost_in_noise() -> None:
    search = PrivateSearchCV(logistic(), {"steps": [5, 5, 5, 5]}, epsilon=0.01)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        planned = search.plan(1000, 3)
    assert [w.category for w in told] == [NoiseWarning]
    assert "chance decides between candidates that differ by less" in str(planned)


def test_notion_of_the_runs_decides_the_plan() -> None:
    schema = Schema([Numeric("age", 0, 100, step=20), Categorical("sex", ("f", "m"))])
    facts: dict[str, Any] = {"schema": schema, "classes": (0, 1)}
    trees = PrivateSearchCV(PrivateTreeClassifier(**facts), {"max_depth": [1, 2, 3, 4]}, epsilon=1.0)
    planned = trees.plan(1000)
    assert planned.selection.notion == "pure"
    assert planned.spend.delta == 0
    cards = PrivateSearchCV(
        [PrivateHalfspaceClassifier(mechanism="seeded", **facts), PrivateTreeClassifier(**facts)], delta=1e-6
    )
    assert cards.plan(1000).selection.notion == "approximate"
    with pytest.raises(PrivacyParameterError):
        cards.set_params(delta=0.0).plan(1000)


def test_data_frames_with_a_schema() -> None:
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"age": rng.integers(0, 100, 300), "sex": rng.choice(["f", "m"], 300)})
    schema = Schema([Numeric("age", 0, 100, step=20), Categorical("sex", ("f", "m"))])
    label = (frame["age"] > 60).astype(int)
    search = PrivateSearchCV(
        PrivateTreeClassifier(schema=schema, classes=(0, 1)), {"max_depth": [1, 2]}, epsilon=20.0
    ).fit(frame, label)
    assert search.score(frame, label) > 0.8
    assert search.fit(frame.to_dict("list"), label.tolist()).score(frame, label) > 0.8
    with pytest.raises(InvalidInputError, match="sex"):
        search.fit(frame[["age"]], label)


def test_sparse_tables_and_probabilities() -> None:
    X, y = records()
    search = PrivateSearchCV(logistic(), {"steps": [5, 10]}, epsilon=20.0, scoring="brier")
    assert search.fit(sp.csr_matrix(X), y).scorer_ == "brier"
    assert search.best_score_ > 0.75  # a constant risk of 1/2 has 3/4


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"estimator": make_pipeline(StandardScaler(), logistic()), "param_grid": None},
            "no parameter epsilon",
        ),
        ({"estimator": logistic(insecure_seed=1)}, "insecure_seed must be None"),
        ({"estimator": logistic(ledger="ledger.db")}, "ledger must be None"),
        # Clones would copy its state, so that all runs had the same noise.
        (
            {"estimator": Coin(word=np.random.default_rng(0)), "param_grid": {"fails": [False, True]}},
            "word must be None",
        ),
        ({"estimator": logistic(classes=None)}, "same classes"),
        ({"estimator": logistic(data_norm=None)}, "declare schema or data_norm"),
        ({"estimator": [logistic(), PrivateLinearRegression()], "param_grid": None}, "no score in common"),
        ({"param_grid": {"epsilon": [1.0, 2.0]}}, "not searched over"),
        ({"param_grid": {"no_such": [1, 2]}}, "no_such"),
        ({"param_grid": {"steps": [1]}}, "one candidate"),
        ({"param_grid": {"steps": [1, 2], "mechanism": ["dp-fw-l1", "no such"]}}, "no such"),
        ({"param_grid": [{"steps": [1]}, {"steps": [2]}], "estimator": [logistic()]}, "as many grids"),
        ({"scoring": "roc_auc"}, "scoring must be one of accuracy, brier"),
        ({"held_out": 1.0}, "held_out"),
        ({"epsilon": 0.0}, "epsilon"),
    ],
)
def test_searches_that_cannot_be_are_refused_before_anything_is_booked(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    X, y = records()
    ledger = Ledger.create(tmp_path / "ledger.db", 9.0, 1e-4)
    search = PrivateSearchCV(logistic(), FOUR, ledger=ledger).set_params(**change)
    with pytest.raises(ValueError, match=message):
        search.fit(X, y)
    assert not ledger.entries()


class AboveMean(ClassifierMixin, BaseEstimator):
    """A classifier that compares records with those it predicts beside them."""

    def __init__(self, epsilon: float = 1.0, shift: float = 0.0, classes: tuple[str, ...] = ("no", "yes")):
        self.epsilon, self.shift, self.classes = epsilon, shift, classes

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_ = np.array(self.classes)
        return self

    def predict(self, X: Any) -> Any:
        return self.classes_[(X[:, 0] > np.mean(X[:, 0]) + self.shift).astype(int)]


class AboveZero(AboveMean):
    def predict(self, X: Any) -> Any:
        return self.classes_[(X[:, 0] > self.shift).astype(int)]


class InPlace(AboveZero):
    """A classifier that writes to the rows that it is given, as with ``copy=False``."""

    seen: ClassVar[list[float]] = []

    def fit(self, X: Any, y: Any) -> Self:
        self.seen.append(float(X[0, 1]))
        X -= np.mean(X, axis=0)
        return super().fit(X, y)

    def predict(self, X: Any) -> Any:
        if len(X) == 20:  # the records that models are scored on
            self.seen.append(float(X[0, 1]))
            X[:] = 0
        return super().predict(X)


def test_a_model_that_writes_to_its_rows_changes_no_records_of_other_runs() -> None:
    """Where the first run has subtracted means, a replaced record changes every row that the second reads."""
    InPlace.seen.clear()
    rng = np.random.default_rng(0)
    X, y = np.column_stack([rng.normal(size=100), np.full(100, 7.0)]), rng.choice(["no", "yes"], 100)
    PrivateSearchCV(InPlace(), {"shift": [0.0, 0.1, 0.2]}, epsilon=5.0, delta=0.0).fit(X, y)
    assert InPlace.seen == [7.0] * 6  # of three fits and three scores


class OfTheFirst(AboveZero):
    """A classifier that says the class of the first row, once."""

    def predict(self, X: Any) -> Any:
        return super().predict(X)[0]

    def predict_proba(self, X: Any) -> Any:
        return np.eye(2)[int(X[0, 0] > 0)]


@pytest.mark.parametrize("scoring", ["accuracy", "brier"])
def test_a_model_with_one_prediction_for_all_records_is_not_scored(scoring: str) -> None:
    """It would be broadcast: replacing the first record then moved every score."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 2)), rng.choice(["no", "yes"], 60)
    search = PrivateSearchCV(OfTheFirst(), {"shift": [0.0, 0.1]}, epsilon=5.0, delta=0.0, scoring=scoring)
    with pytest.raises(SearchError, match="every run failed"):
        search.fit(X, y)


def test_a_model_whose_predictions_depend_on_other_records_is_not_scored() -> None:
    """One held-out record could move every score, and the noise covers one score."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 2)), rng.choice(["no", "yes"], 60)
    grid: dict[str, Any] = {"shift": [0.0, 0.1]}
    budget: dict[str, Any] = {"epsilon": 5.0, "delta": 0.0}
    with pytest.raises(SearchError, match="every run failed"):
        PrivateSearchCV(AboveMean(), grid, **budget).fit(X, y)
    assert isinstance(PrivateSearchCV(AboveZero(), grid, **budget).fit(X, y).best_estimator_, AboveZero)
