"""The estimator: scikit-learn's contract, public facts, bad input, saving."""

from __future__ import annotations

import json
import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt.mechanisms import MECHANISMS, PrivateHalfspaceClassifier
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError, UnknownMechanismError
from privopt.mechanisms.estimators.labels import checked_labels, class_indices
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.registry import SCORECARD_MECHANISMS
from privopt.oracles.errors import CertificateError, UnfinishedDrawError, UnknownOracleError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.wrappers import Counting
from privopt.oracles.select import gibbs_oracle, minimizer
from privopt.problems import (
    Categorical,
    IntegerLattice,
    InvalidInputError,
    Numeric,
    PrivacyLeakWarning,
    Schema,
)

SCHEMA = Schema(
    [
        Numeric("age", 0, 100, step=10),
        Categorical("plan", ["basic", "gold"]),
        Categorical("smoker", ["no", "yes"]),
    ],
    intercept=True,
)


def patients(n: int = 200, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 95, n),
            "plan": rng.choice(["basic", "gold"], n),
            "smoker": rng.choice(["no", "yes"], n, p=[0.7, 0.3]),
        }
    )
    return frame, pd.Series(
        np.where((frame["smoker"] == "yes") & (frame["age"] > 40), "ill", "well"), name="state"
    )


def classifier(**options: Any) -> PrivateHalfspaceClassifier:
    defaults: dict[str, Any] = {"schema": SCHEMA, "classes": ("well", "ill"), "insecure_seed": 0}
    return PrivateHalfspaceClassifier(options.pop("epsilon", 5.0), **{**defaults, **options})


# Bounds, categories and classes are inferred there, which privopt warns about: the checks declare nothing.
def failed_checks(estimator: PrivateHalfspaceClassifier) -> dict[str, str]:
    """Checks of weights that contradict privacy, or of a mechanism that takes none, with the reason."""
    number = "the number of records is public and sets the noise: a record of weight 0 is one of them"
    private = {
        "check_all_zero_sample_weights_error": "weights are private: a refusal would reveal them",
        "check_sample_weights_list": "it has three classes, of which cards take no weights",
        **{f"check_sample_weight_equivalence_on_{kind}_data": number for kind in ("dense", "sparse")},
    }
    if estimator.mechanism != "opdisc":
        return private
    kinds = ("pandas_series", "not_an_array", "not_overwritten", "shape")
    names = (
        *(f"check_sample_weights_{kind}" for kind in kinds),
        "check_classifiers_one_label_sample_weights",
    )
    return private | dict.fromkeys(names, "opdisc takes no weights")


# Some checks compare two fits, which only a seed makes equal; no check is skipped, and none expected to fail
# but some of weights.
@pytest.mark.filterwarnings("ignore::privopt.problems.errors.PrivacyLeakWarning")
@parametrize_with_checks(
    [
        PrivateHalfspaceClassifier(max_weight=1, insecure_seed=0),
        PrivateHalfspaceClassifier(mechanism="opdisc", insecure_seed=0),
    ],
    expected_failed_checks=failed_checks,
)
def test_scikit_learn_contract(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("mechanism", sorted(MECHANISMS))
def test_every_mechanism_learns_a_scorecard_from_a_data_frame(mechanism: str) -> None:
    X, y = patients()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)  # everything is declared: nothing leaks
        model = classifier(mechanism=mechanism, epsilon=200.0).fit(X, y)
    assert model.score(X, y) > 0.8
    assert model.spend_.epsilon == 200.0
    assert model.spend_.insecure_seed == 0
    assert model.mechanism_ == mechanism
    assert model.scorecard_["points"].tolist() == model.coef_[0].tolist()
    assert model.scorecard_["feature"].tolist()[-1] == "intercept"
    assert model.scorecard_["level"].tolist()[:2] == ["in proportion: none at 0, all at 100", "basic"]
    assert model.intercept_[0] == model.coef_[0, -1]
    scores = model.decision_function(X)
    assert np.array_equal(model.predict(X), np.where(scores > 0, "ill", "well"))


def test_delta_auto_is_one_over_n_squared() -> None:
    X, y = patients(150)
    assert classifier(mechanism="opdisc").fit(X, y).spend_.delta == pytest.approx(1 / 150**2)
    assert classifier(mechanism="exponential").fit(X, y).spend_.delta == 0


def test_auto_says_what_it_chose_and_why() -> None:
    model = classifier().fit(*patients())
    assert model.mechanism_ in SCORECARD_MECHANISMS
    assert len(model.mechanism_reason_) > 20


def test_undeclared_facts_are_warned_about() -> None:
    X, y = patients()
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        classifier(classes=None).fit(X, y)
    with pytest.warns(PrivacyLeakWarning):
        classifier(schema=None).fit(X, y)


def test_unseeded_fits_differ() -> None:
    X, y = patients(30)
    weights = {classifier(epsilon=0.1, insecure_seed=None).fit(X, y).coef_.tobytes() for _ in range(12)}
    assert len(weights) > 1


def test_params_clone_pipeline_and_cross_validation() -> None:
    X, y = patients()
    model = classifier(epsilon=50.0)
    assert clone(model).get_params() == model.get_params()
    assert clone(model).set_params(epsilon=2.0).epsilon == 2.0
    piped = make_pipeline(FunctionTransformer(), model)
    assert cross_val_score(piped, X, y, cv=3).mean() > 0.6


def test_numpy_columns_come_in_the_schema_order() -> None:
    X, y = patients()
    model = classifier().fit(X, y)
    array = X[["age", "plan", "smoker"]].to_numpy(dtype=object)
    fresh = classifier().fit(array, y)
    assert np.array_equal(model.coef_, fresh.coef_)
    assert np.array_equal(model.predict(X), fresh.predict(array))


def test_data_frames_are_read_by_name_in_any_order() -> None:
    X, y = patients()
    model = classifier().fit(X, y)
    shuffled = X[["smoker", "age", "plan"]].assign(note="more")
    assert np.array_equal(model.predict(shuffled), model.predict(X))
    assert np.array_equal(classifier().fit(shuffled, y).coef_, model.coef_)
    with pytest.raises(InvalidInputError, match="'plan'"):
        model.predict(X.drop(columns="plan"))


def test_a_person_can_compute_the_score_from_the_saved_card(tmp_path: Path) -> None:
    X, y = patients()
    model = classifier(epsilon=50.0, numbers="lines").fit(X, y)
    model.save(tmp_path / "model.json")
    saved = json.loads((tmp_path / "model.json").read_text())
    assert saved["rule"] == "state = ill when the points sum to more than 0, else well"
    card = {(line["feature"], line["level"]): line["points"] for line in saved["scorecard"]}
    scores = model.decision_function(X)
    for i in range(20):
        age, plan, smoker = X.iloc[i]
        grid = 10 * math.floor(age / 10 + 0.5)  # step = 10
        by_hand = card["age", "in proportion: none at 0, all at 100"] * grid / 100
        by_hand += card["plan", plan] + card["smoker", smoker] + card["intercept", "always"]
        assert scores[i] == pytest.approx(by_hand)


def test_an_oracle_of_ones_own_answers_for_the_named_one(tmp_path: Path) -> None:
    X, y = patients()
    counting = Counting(minimizer("native"))
    own = classifier(mechanism="rspm-laplace", oracle=counting).fit(X, y)
    named = classifier(mechanism="rspm-laplace", oracle="native").fit(X, y)
    assert counting.solves == 1
    assert np.array_equal(own.coef_, named.coef_)
    own.save(tmp_path / "model.json")
    assert json.loads((tmp_path / "model.json").read_text())["oracle"] == counting.name
    drawn = classifier(oracle=gibbs_oracle("elimination")).fit(X, y)
    assert np.array_equal(drawn.coef_, classifier(oracle="elimination").fit(X, y).coef_)
    with pytest.raises(UnknownOracleError, match="a GibbsOracle"):
        classifier(mechanism="exponential", oracle=counting).fit(X, y)
    with pytest.raises(UnknownOracleError, match="a DiscreteOracle"):
        classifier(mechanism="opdisc", oracle=gibbs_oracle("elimination")).fit(X, y)


def test_what_failed_says_what_was_booked(tmp_path: Path) -> None:
    X, y = patients()
    ledger = Ledger.create(tmp_path / "ledger", 1.0)
    options: dict[str, Any] = {
        "epsilon": 0.2, "insecure_seed": None, "ledger": ledger, "mechanism": "exponential"
    }  # fmt: skip
    with pytest.raises(UnfinishedDrawError) as stopped:
        classifier(**options, limits=Limits(cancelled=lambda: True)).fit(X, y)
    assert ["counts as spent" in note for note in stopped.value.__notes__] == [True]
    with pytest.raises(InvalidInputError) as early:
        classifier(**options).fit(X.drop(columns="plan"), y)
    assert not hasattr(early.value, "__notes__")
    assert len(ledger.entries()) == 1


def test_saved_models_predict_alike_and_hold_nothing_private(tmp_path: Path) -> None:
    X, y = patients()
    model = classifier(mechanism="opdisc").fit(X, y)
    assert model.certificate_ is not None
    assert model.certificate_.gap == 0
    model.save(tmp_path / "model.json")
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]  # no half-written leftovers
    loaded = PrivateHalfspaceClassifier.load(tmp_path / "model.json")
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.spend_ == model.spend_
    assert loaded.certificate_ is None
    assert not {"certificate", "value", "bound"} & set(json.loads((tmp_path / "model.json").read_text()))
    assert json.loads((tmp_path / "model.json").read_text())["oracle"] == "auto"  # not the one that fitted
    thawed = pickle.loads(pickle.dumps(model))
    assert thawed.certificate_ is None
    assert np.array_equal(thawed.predict(X), model.predict(X))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "other"}', '{"format": "privopt-scorecard/1"}'])
def test_other_files_are_not_models(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(InvalidInputError):
        PrivateHalfspaceClassifier.load(tmp_path / "model.json")


def bad_frame(column: str, value: object) -> pd.DataFrame:
    X, _ = patients()
    X[column] = X[column].astype(object)
    X.loc[0, column] = value
    return X


FRAME, LABELS = patients()


@pytest.mark.parametrize(
    ("options", "X", "y", "error"),
    [
        ({"epsilon": 0}, FRAME, LABELS, PrivacyParameterError),
        ({"epsilon": -1.0}, FRAME, LABELS, PrivacyParameterError),
        ({"epsilon": math.inf}, FRAME, LABELS, PrivacyParameterError),
        ({"epsilon": math.nan}, FRAME, LABELS, PrivacyParameterError),
        ({"delta": 0.0, "mechanism": "opdisc"}, FRAME, LABELS, PrivacyParameterError),
        ({"delta": 1.0, "mechanism": "rspm"}, FRAME, LABELS, PrivacyParameterError),
        ({"delta": "tiny"}, FRAME, LABELS, InvalidInputError),
        ({"calibration": "hopeful", "mechanism": "opdisc"}, FRAME, LABELS, PrivacyParameterError),
        ({"calibration": "printed", "mechanism": "exponential"}, FRAME, LABELS, PrivacyParameterError),
        ({"mechanism": "magic"}, FRAME, LABELS, UnknownMechanismError),
        ({"oracle": "magic"}, FRAME, LABELS, UnknownOracleError),
        ({"lattice": (1, -1)}, FRAME, LABELS, InvalidInputError),
        ({"lattice": (2, 3, 1.0)}, FRAME, LABELS, InvalidInputError),
        ({"lattice": IntegerLattice(-1, 1, dimension=2)}, FRAME, LABELS, InvalidInputError),
        ({"lattice": (-2, 2), "mechanism": "rspm"}, FRAME, LABELS, InvalidInputError),
        ({"classes": ("well",)}, FRAME, LABELS, InvalidInputError),
        ({"classes": ("well", "dead")}, FRAME, LABELS, InvalidInputError),
        ({}, FRAME.iloc[:0], LABELS.iloc[:0], ValueError),
        ({}, FRAME, LABELS.iloc[:7], ValueError),
        ({}, FRAME.drop(columns=["plan"]), LABELS, InvalidInputError),
        ({}, bad_frame("age", math.nan), LABELS, InvalidInputError),
        ({}, bad_frame("plan", "platinum"), LABELS, InvalidInputError),
        ({"limits": Limits(cancelled=lambda: True), "mechanism": "opdisc"}, FRAME, LABELS, CertificateError),
        ({"limits": Limits(cancelled=lambda: True)}, FRAME, LABELS, UnfinishedDrawError),
    ],
)
def test_bad_input_has_one_clear_error_and_releases_nothing(
    options: dict[str, Any], X: pd.DataFrame, y: pd.Series, error: type[Exception]
) -> None:
    model = classifier(**options)
    with pytest.raises(error) as caught:
        model.fit(X, y)
    assert "platinum" not in str(caught.value)  # errors never quote a record
    assert not hasattr(model, "coef_")


def test_a_ledger_is_booked_first_and_not_overdrawn(tmp_path: Path) -> None:
    X, y = patients()
    ledger = Ledger.create(tmp_path / "ledger.jsonl", 1.0, 1e-3)
    classifier(epsilon=0.7, insecure_seed=None, ledger=ledger).fit(X, y)
    assert ledger.total().epsilon == 0.7
    model = classifier(epsilon=0.7, insecure_seed=None, ledger=tmp_path / "ledger.jsonl")
    with pytest.raises(BudgetExceededError):
        model.fit(X, y)
    assert not hasattr(model, "coef_")
    assert ledger.total().epsilon == 0.7
    # A release that was started counts, even if it failed: the failure may depend on the records.
    stopped = classifier(
        epsilon=0.2, insecure_seed=None, ledger=ledger, limits=Limits(cancelled=lambda: True)
    )
    with pytest.raises(UnfinishedDrawError):
        stopped.fit(X, y)
    assert ledger.total().epsilon == pytest.approx(0.9)


@pytest.mark.filterwarnings("ignore::privopt.problems.errors.PrivacyLeakWarning")
@pytest.mark.parametrize(
    ("X", "y"),
    [
        (np.array([["S3CRET", 1], [2, 3]], dtype=object), ["well", "ill"]),
        (np.array([["S3CRET"], ["b"]]), ["well", "ill"]),
        (np.array([[987654 + 1j], [2.0]]), ["well", "ill"]),
        (np.array([[1.0], [2.0]]), np.array(["S3CRET", 987654], dtype=object)),
    ],
)
def test_conversion_errors_quote_no_cell(X: Any, y: Any) -> None:
    with pytest.raises((InvalidInputError, ValueError)) as caught:
        PrivateHalfspaceClassifier().fit(X, y)
    assert "S3CRET" not in str(caught.value)
    assert "987654" not in str(caught.value)


def test_one_class_alone_is_refused_when_classes_are_not_declared() -> None:
    X, y = patients()
    with pytest.warns(PrivacyLeakWarning), pytest.raises(InvalidInputError, match="at least 2 classes"):
        classifier(classes=None).fit(X, np.full(len(y), "well"))
    # Declared classes are public: a sample that happens to hold only one of them must not fail.
    assert classifier(epsilon=100.0).fit(X, np.full(len(y), "well")).score(X, np.full(len(y), "well")) > 0.9


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ((1.5, 2.5, 3.5), "all text, or all integers"),
        (("ill", "ill", "well"), "classes must differ"),
        (("ill",), "at least 2 classes"),
        ("ill", "a list of labels"),
    ],
)
def test_the_plan_refuses_the_classes_that_a_fit_refuses(classes: Any, words: str) -> None:
    for planned in (lambda model: model.plan(100), lambda model: model.fit(*patients())):
        with pytest.raises(InvalidInputError, match=words):
            planned(classifier(classes=classes))


def test_the_plan_is_made_before_features_are_read() -> None:
    # A wrong epsilon is found although the table could not be encoded.
    with pytest.raises(PrivacyParameterError):
        classifier(epsilon=-1.0).fit(bad_frame("plan", "platinum"), LABELS)


def test_labels_of_text_in_arrow_are_read_as_those_of_lists() -> None:
    for kind in (pa.string(), pa.large_string()):
        y = pa.chunked_array([pa.array(["a", "b"], kind), pa.array(["a"], kind)])
        assert class_indices(checked_labels(y, 3), np.array(["a", "b"])).tolist() == [0, 1, 0]
        with pytest.raises(InvalidInputError, match="missing labels"):
            checked_labels(pa.array(["a", None, "b"], kind), 3)


def test_labels_of_integers_in_an_array_of_objects_are_read() -> None:
    y = np.array([0, 1, 0], dtype=object)
    for given in (y, pd.Series(y), y.astype(bool).astype(object)):
        assert class_indices(checked_labels(given, 3), np.array([0, 1])).tolist() == [0, 1, 0]
