"""Private linear models: scikit-learn's contract, public facts, budgets, sparse data, files."""

from __future__ import annotations

import json
import math
import pickle
import tracemalloc
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError, UnknownMechanismError
from privopt.mechanisms.estimators.bounded_linear import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSigmoidClassifier,
)
from privopt.mechanisms.estimators.counting import encoded
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.privacy.accounting import zcdp_rho
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.oracles import OracleError, UnfinishedDrawError
from privopt.oracles.certificate import Status
from privopt.oracles.limits import Limits, Progress
from privopt.problems import Categorical, InvalidInputError, Numeric, PrivacyLeakWarning, Schema
from privopt.problems.convex.losses import BiweightLoss, LogisticLoss
from privopt.problems.convex.parsing import parse_regularizer, parse_set
from privopt.problems.convex.regularizers import ElasticNet, lasso, ridge
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.datasets.synthetic import make_cells

CONVEX_ONLY = (
    "dp-accmd",
    "dp-svrg",
    "dp-svrg++",
    "output-perturbation",
    "objective-perturbation",
    "objective-perturbation-hessian",
)
# Takes the squared and the logistic loss alone.
QUADRATIC = ("sufficient-statistics", "screened-statistics")


# Poisson batches are calibrated by convolutions, seconds each.
SAMPLED = ("dp-sgd", "dp-svrg", "dp-svrg++")


def by_cost(names: Iterable[str]) -> list[Any]:
    return [pytest.param(n, marks=[pytest.mark.slow] if n in SAMPLED else []) for n in sorted(names)]


def task(n: int = 2000, d: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows of norm at most 1, separated by a hyperplane off the origin."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) / math.sqrt(d)
    return X, np.where(X @ np.arange(1, d + 1) > 0.3, "yes", "no")


def classifier(**options: Any) -> PrivateLogisticRegression:
    defaults: dict[str, Any] = {"data_norm": 1.0, "classes": ("no", "yes"), "insecure_seed": 0}
    return PrivateLogisticRegression(options.pop("epsilon", 5.0), **{**defaults, **options})


def failed_checks(_: Any) -> dict[str, str]:
    """Checks of weights that contradict privacy, with the reason."""
    number = "the number of records is public and sets the noise: a record of weight 0 is one of them"
    equal = {f"check_sample_weight_equivalence_on_{kind}_data": number for kind in ("dense", "sparse")}
    return {
        "check_all_zero_sample_weights_error": "weights are private: a refusal would reveal them",
        **equal,
    }


# Norms, label bounds and classes are inferred there, which privopt warns about: the checks declare nothing.
# Some checks compare two fits, which only a seed makes equal; no check is skipped, and none
# expected to fail but for the three of weights.
@pytest.mark.filterwarnings("ignore::privopt.problems.errors.PrivacyLeakWarning")
@parametrize_with_checks(
    [
        PrivateLogisticRegression(max_weight=1.0, insecure_seed=0),
        PrivateLogisticRegression(mechanism="dp-fw-l1", steps=3, max_weight=1.0, insecure_seed=0),
        PrivateSigmoidClassifier(steps=3, max_weight=1.0, insecure_seed=0),
        PrivateLinearRegression(max_weight=1.0, insecure_seed=0),
    ],
    expected_failed_checks=failed_checks,
)
def test_scikit_learn_contract(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("mechanism", by_cost(RISK_MECHANISMS))
def test_every_mechanism_learns_with_its_own_defaults(mechanism: str) -> None:
    X, y = task()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrivacyLeakWarning)  # everything is declared: nothing leaks
        model = classifier(mechanism=mechanism, epsilon=10.0).fit(X, y)
    assert model.score(X, y) > 0.85  # the larger class alone: 0.70
    assert model.mechanism_ == mechanism
    assert model.spend_.epsilon <= 10.0 * (1 + 1e-9)
    assert model.spend_.insecure_seed == 0
    assert model.coef_.shape == (1, 3)
    assert model.intercept_.shape == (1,)


@pytest.mark.parametrize("mechanism", by_cost(set(RISK_MECHANISMS) - {*CONVEX_ONLY, *QUADRATIC}))
def test_the_sigmoid_classifier_takes_mechanisms_for_losses_that_are_not_convex(mechanism: str) -> None:
    X, y = task()
    steps = None if mechanism == "net" else 40
    model = PrivateSigmoidClassifier(
        10.0, mechanism=mechanism, data_norm=1.0, classes=("no", "yes"), steps=steps, insecure_seed=1
    )
    assert model.fit(X, y).mechanism_ == mechanism
    assert model.coef_.shape == (1, 3)


@pytest.mark.parametrize("mechanism", [*CONVEX_ONLY, *QUADRATIC])
def test_the_sigmoid_classifier_refuses_the_others(mechanism: str) -> None:
    with pytest.raises(PrivacyParameterError, match=r"convex|not SigmoidLoss"):
        PrivateSigmoidClassifier(mechanism=mechanism, data_norm=1.0, classes=("no", "yes")).fit(*task(50))


def test_auto_says_what_it_chose_and_why() -> None:
    model = classifier(epsilon=10.0).fit(*task(2000))
    assert model.mechanism_ == "objective-perturbation"
    assert len(model.mechanism_reason_) > 20
    assert classifier(regularizer="l1:0.01").fit(*task(200)).mechanism_ == "dp-pgd"
    wide = sp.random_array((50, 2000), density=0.01, rng=np.random.default_rng(0), format="csr")
    labels = np.where(np.arange(50) % 2, "yes", "no")
    for options in ({}, {"norm": "linf"}):
        chosen = classifier(data_norm=2.0, **options).fit(wide, labels)
        assert chosen.mechanism_ == "screened-statistics"
        assert "features" in chosen.mechanism_reason_
    assert classifier(data_norm=2.0).fit(wide[:, :600], labels).mechanism_ == "sufficient-statistics"
    chosen = classifier(data_norm=2.0, norm="linf", steps=5).fit(wide, labels)
    assert chosen.mechanism_ == "dp-fw-l1"
    assert "L1Ball" in chosen.mechanism_reason_


def test_with_little_noise_it_is_the_regression_of_scikit_learn() -> None:
    X, y = task(20_000)
    constant = np.column_stack([X, np.full(len(X), 0.5)])  # data_norm = 1: the appended feature
    model = classifier(epsilon=20.0, delta=1e-3, regularizer="l2:0.01").fit(X, y)
    # sklearn minimises C sum losses + |w|^2 / 2.
    expected = LogisticRegression(C=1 / (0.01 * len(X)), fit_intercept=False, tol=1e-10).fit(constant, y)
    found = np.append(model.coef_[0], model.intercept_ / 0.5)
    assert found == pytest.approx(expected.coef_[0], abs=0.05)
    assert model.predict_proba(X) == pytest.approx(expected.predict_proba(constant), abs=0.01)


def test_ridge_regression_with_little_noise_is_ridge_regression() -> None:
    X, _ = task(20_000)
    y = X @ [0.5, -0.2, 0.1] + 0.1
    model = PrivateLinearRegression(
        20.0, delta=1e-3, data_norm=1.0, label_range=(-1.0, 1.0), regularizer=ridge(0.1), insecure_seed=0
    ).fit(X, y)
    constant = np.column_stack([X, np.full(len(X), 0.5)])
    expected = Ridge(alpha=0.1 * len(X), fit_intercept=False).fit(constant, y)
    assert np.append(model.coef_, model.intercept_ / 0.5) == pytest.approx(expected.coef_, abs=0.02)
    assert isinstance(model.intercept_, float)


def test_lasso_and_robust_regression() -> None:
    X, _ = task()
    y = X @ [1.0, 0.0, 0.0]
    sparse = PrivateLinearRegression(
        10.0, data_norm=1.0, label_range=(-1.0, 1.0), regularizer=lasso(0.01), insecure_seed=0
    ).fit(X, y)
    assert sparse.mechanism_ == "dp-pgd"
    assert sparse.coef_[0] > 0.5
    assert np.abs(sparse.coef_[1:]).max() < 0.1
    robust = PrivateLinearRegression(
        10.0, data_norm=1.0, label_range=(-1.0, 1.0), loss=BiweightLoss(), steps=300, insecure_seed=0
    ).fit(X, y)
    assert robust.score(X, y) > 0.5


def test_labels_are_clipped_to_the_declared_range() -> None:
    X, _ = task()
    y = X[:, 0].copy()
    options: dict[str, Any] = {"data_norm": 1.0, "label_range": (-0.2, 0.2), "insecure_seed": 0}
    clipped = PrivateLinearRegression(3.0, **options).fit(X, np.clip(y, -0.2, 0.2))
    assert np.array_equal(PrivateLinearRegression(3.0, **options).fit(X, y).coef_, clipped.coef_)


def test_a_shift_of_labels_and_range_shifts_predictions_and_nothing_else(tmp_path: Path) -> None:
    X, _ = task(2000)
    y = np.round(256 * X[:, 0]) / 256  # so that y + 32 - 32 is y
    options: dict[str, Any] = {"data_norm": 1.0, "insecure_seed": 0}
    centred = PrivateLinearRegression(3.0, label_range=(-0.5, 0.5), **options).fit(X, y)
    shifted = PrivateLinearRegression(3.0, label_range=(31.5, 32.5), **options).fit(X, y + 32)
    assert np.array_equal(shifted.coef_, centred.coef_)
    assert shifted.intercept_ == centred.intercept_ + 32
    assert shifted.predict(X) == pytest.approx(centred.predict(X) + 32, abs=1e-12)
    assert shifted.score(X, y + 32) > 0.5
    shifted.save(tmp_path / "model.json")
    loaded = PrivateLinearRegression.load(tmp_path / "model.json")
    assert np.array_equal(loaded.predict(X), shifted.predict(X))


def test_a_range_to_one_side_needs_an_intercept_to_be_centred() -> None:
    X, _ = task(2000)
    y = 1 + X[:, 0] / 4
    options: dict[str, Any] = {"data_norm": 1.0, "fit_intercept": False, "insecure_seed": 0}
    one_sided = PrivateLinearRegression(3.0, label_range=(0.5, 1.5), **options).fit(X, y)
    around_0 = PrivateLinearRegression(3.0, label_range=(-1.5, 1.5), **options).fit(X, y)
    assert np.array_equal(one_sided.coef_, around_0.coef_)
    assert one_sided.intercept_ == 0.0


@pytest.mark.parametrize("found", [0.0, 30.0])
def test_a_range_that_is_read_off_is_that_of_the_labels(found: float) -> None:
    X, _ = task(200)
    with pytest.warns(PrivacyLeakWarning, match="label_range"):
        model = PrivateLinearRegression(3.0, data_norm=1.0, insecure_seed=0).fit(X, np.full(200, found))
    declared = PrivateLinearRegression(
        3.0, data_norm=1.0, label_range=(found - 1, found + 1), insecure_seed=0
    ).fit(X, np.full(200, found))
    assert np.array_equal(model.coef_, declared.coef_)


@pytest.mark.parametrize(
    "label_range",
    [
        (1.0, 1.0),
        (2.0, 1.0),
        (0.0, math.nan),
        (-math.inf, 1.0),
        (1.0,),
        (1, 2, 3),
        1.0,
        "15",
        ("low", "high"),
    ],
)
def test_a_range_is_two_finite_numbers_in_order(label_range: Any) -> None:
    X, _ = task(50)
    model = PrivateLinearRegression(data_norm=1.0, label_range=label_range)
    with pytest.raises(InvalidInputError, match="label_range"):
        model.fit(X, X[:, 0])
    assert not hasattr(model, "coef_")


def test_long_rows_are_shortened_to_the_declared_norm() -> None:
    X, y = task(300)
    norms = np.linalg.norm(X, axis=1)
    short = X / np.maximum(1, norms / 0.3)[:, None]
    options: dict[str, Any] = {"data_norm": 0.3, "fit_intercept": False}
    long_rows = classifier(**options).fit(X, y)
    assert long_rows.coef_ == pytest.approx(classifier(**options).fit(short, y).coef_, abs=1e-6)


def test_undeclared_facts_are_warned_about() -> None:
    X, y = task(100)
    with pytest.warns(PrivacyLeakWarning, match="classes"):
        classifier(classes=None).fit(X, y)
    with pytest.warns(PrivacyLeakWarning, match="data_norm"):
        classifier(data_norm=None).fit(X, y)
    with pytest.warns(PrivacyLeakWarning, match="label_range"):
        PrivateLinearRegression(data_norm=1.0).fit(X, X[:, 0])


def test_frames_arrays_and_sparse_matrices_agree(tmp_path: Path) -> None:
    X, y = task(300)
    expected = classifier().fit(X, y)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    named = classifier().fit(frame, y)
    assert np.array_equal(named.coef_, expected.coef_)
    named.save(tmp_path / "named.json")
    loaded = PrivateLogisticRegression.load(tmp_path / "named.json")
    assert list(named.feature_names_in_) == list(loaded.feature_names_in_) == ["a", "b", "c"]
    (tmp_path / "two.json").write_text(json.dumps({**named.to_dict(), "columns": ["a", "b"]}))
    with pytest.raises(InvalidInputError, match="columns must be 3 names"):
        PrivateLogisticRegression.load(tmp_path / "two.json")
    for matrix in (sp.csr_array(X), sp.csc_matrix(X)):
        fitted = classifier().fit(matrix, y)
        assert fitted.coef_ == pytest.approx(expected.coef_, abs=1e-6)
        assert np.array_equal(fitted.predict(matrix), fitted.predict(X))


def test_with_a_schema_tables_are_read_by_it_and_nothing_leaks(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"smoker": rng.choice(["no", "yes"], 300), "age": rng.integers(18, 95, 300)})
    y = np.where((table["smoker"] == "yes") & (table["age"] > 40), "ill", "well")
    columns = [Numeric("age", 0, 100, zero=0, one=100), Categorical("smoker", ["no", "yes"])]
    X = np.column_stack([table["age"] / 100, table["smoker"] == "no", table["smoker"] == "yes"]).astype(float)
    facts: dict[str, Any] = {"classes": ("well", "ill"), "insecure_seed": 0}
    facts["mechanism"] = "objective-perturbation"  # noisy moments are read by the columns of a schema
    Schema(columns).save(tmp_path / "schema.toml")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the bound is the schema's: sqrt(1/4 + 1/2) from the middle
        own = PrivateLogisticRegression(5.0, schema=tmp_path / "schema.toml", **facts).fit(table, y)
    by_hand = PrivateLogisticRegression(5.0, data_norm=math.sqrt(0.75), **facts).fit(X - 0.5, y)
    assert own.coef_ == pytest.approx(by_hand.coef_, abs=1e-6)
    scores = own.decision_function(table[["age", "smoker"]])
    assert scores == pytest.approx(by_hand.decision_function(X - 0.5), abs=1e-6)
    own.save(tmp_path / "model.json")
    loaded = PrivateLogisticRegression.load(tmp_path / "model.json")
    assert np.array_equal(loaded.decision_function(table), own.decision_function(table))
    constant = PrivateLogisticRegression(5.0, schema=Schema(columns, intercept=True), **facts).fit(table, y)
    assert constant.coef_.shape == (1, 4)
    assert constant.intercept_ == [0.0]
    with pytest.raises(InvalidInputError, match="missing from the table"):
        own.predict(table[["age"]])


def test_sparse_rows_with_many_features_are_never_densified() -> None:
    n, d = 2000, 100_000
    rng = np.random.default_rng(0)
    X = sp.random_array((n, d), density=1e-4, rng=rng, format="csr")
    X = sp.csr_array(sp.hstack([sp.csr_array(rng.choice([-1.0, 1.0], (n, 1))), X[:, 1:]]))
    y = np.where(X[:, [0]].toarray().ravel() > 0, "yes", "no")
    tracemalloc.start()
    model = classifier(epsilon=20.0, data_norm=5.0, norm="linf", steps=20).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert model.mechanism_ == "dp-fw-l1"
    assert model.score(X, y) > 0.9
    assert np.count_nonzero(model.coef_) <= 20
    assert peak < 60e6  # dense rows: 1600e6


def test_more_classes_split_the_budget_and_say_so() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 3000)
    X = np.eye(3)[y] * 0.7 + rng.normal(0, 0.05, (3000, 3))
    options: dict[str, Any] = {"classes": (0, 1, 2), "epsilon": 3.0, "delta": 1e-5}
    model = classifier(**options, mechanism="objective-perturbation").fit(X, y)
    assert model.coef_.shape == (3, 3)
    assert model.score(X, y) > 0.9
    assert (model.spend_.epsilon, model.spend_.delta) == (3.0, 1e-5)
    assert model.spend_.note.startswith("one-vs-rest: 3 releases share it, (1, 3.33e-06) each")
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(3000))
    chosen = classifier(**options, mechanism="dp-fw-l1").fit(X, y)
    assert chosen.spend_.level == pytest.approx(zcdp_rho(3.0, 1e-5), rel=1e-6)
    assert f"{zcdp_rho(3.0, 1e-5) / 3:.4g}-zCDP each" in chosen.spend_.note


@pytest.mark.parametrize("mechanism", ["dp-pgd", "dp-fw-l1", "output-perturbation"])
def test_classes_share_the_budget_as_one_composition(mechanism: str) -> None:
    """K releases of T steps cost what one release of K T steps costs: the noise is that of the one."""
    facts = RiskFacts(5000, 4, LogisticLoss())
    choice = choose_risk_mechanism(mechanism, facts, L1Ball(4, 5.0), ElasticNet(l2=0.1), mu=0.2)
    budget: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    taken = None if mechanism == "output-perturbation" else 10
    each = choice.plan(facts, **budget, steps=taken, releases=4)
    if taken is None:
        one = choice.plan(facts, **budget, steps=None)
        assert each.noise["sigma"] == pytest.approx(2 * one.noise["sigma"], rel=1e-6)
    else:
        one = choice.plan(facts, **budget, steps=4 * taken)
        assert {k: each.noise[k] for k in one.noise} == one.noise
    assert (each.spend.epsilon, each.spend.delta) == (1.0, 1e-6)
    assert each.spend.level == pytest.approx(one.spend.level)
    # An even split of epsilon and delta, the basic composition, needs more noise.
    basic = choice.plan(facts, epsilon=0.25, delta=2.5e-7, steps=taken)
    name = "gumbel_scale" if mechanism == "dp-fw-l1" else "sigma"
    assert basic.noise[name] > 1.5 * each.noise[name]


def test_saved_models_predict_alike_and_hold_nothing_private(tmp_path: Path) -> None:
    X, y = task(200)
    model = classifier().fit(X, y)
    model.save(tmp_path / "model.json")
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]
    loaded = PrivateLogisticRegression.load(tmp_path / "model.json")
    assert np.array_equal(loaded.decision_function(X), model.decision_function(X))
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.spend_ == model.spend_
    assert set(json.loads((tmp_path / "model.json").read_text())) == {
        "format", "estimator", "mechanism", "noise", "spend", "classes", "weights", "intercept", "rows",
    }  # fmt: skip
    loaded.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()
    with pytest.raises(InvalidInputError):
        PrivateSigmoidClassifier.load(tmp_path / "model.json")
    line = PrivateLinearRegression(data_norm=1.0, label_range=(-1.0, 1.0)).fit(X, X[:, 0])
    line.save(tmp_path / "line.json")
    assert np.array_equal(PrivateLinearRegression.load(tmp_path / "line.json").predict(X), line.predict(X))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "other"}', '{"format": "privopt-linear/1"}'])
def test_other_files_are_not_models(tmp_path: Path, text: str) -> None:
    (tmp_path / "model.json").write_text(text)
    with pytest.raises(InvalidInputError):
        PrivateLogisticRegression.load(tmp_path / "model.json")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"epsilon": 0}, PrivacyParameterError),
        ({"epsilon": math.nan}, PrivacyParameterError),
        ({"delta": 0.0}, PrivacyParameterError),
        ({"delta": 1.0}, PrivacyParameterError),
        ({"delta": "tiny"}, InvalidInputError),
        ({"mechanism": "magic"}, UnknownMechanismError),
        ({"data_norm": 0.0}, PrivacyParameterError),
        ({"norm": "l7"}, InvalidInputError),
        ({"classes": ("no",)}, InvalidInputError),
        ({"classes": ("no", "no")}, InvalidInputError),
        ({"classes": ("no", "never")}, InvalidInputError),
        ({"convex_set": "l3:1"}, InvalidInputError),
        ({"convex_set": 3.0}, InvalidInputError),
        ({"regularizer": 0.1}, InvalidInputError),
        ({"convex_set": L1Ball(7, 1.0)}, PrivacyParameterError),
        ({"regularizer": "l1"}, InvalidInputError),
        ({"regularizer": "l1:0.1", "mechanism": "dp-gd"}, PrivacyParameterError),
        ({"steps": 5, "mechanism": "objective-perturbation"}, PrivacyParameterError),
        ({"steps": 0, "mechanism": "dp-gd"}, PrivacyParameterError),
    ],
)
def test_bad_parameters_have_one_clear_error_and_release_nothing(
    options: dict[str, Any], error: type[Exception]
) -> None:
    model = classifier(**options)
    with pytest.raises(error):
        model.fit(*task(50))
    assert not hasattr(model, "coef_")


def test_bad_data_release_nothing() -> None:
    X, y = task(50)
    for rows, labels in ((X[:1], y[:1]), (X, y[:7]), (np.where(X > 0.5, np.nan, X), y), (X, [None, *y[1:]])):
        model = classifier()
        with pytest.raises(ValueError, match=r"."):
            model.fit(rows, labels)
        assert not hasattr(model, "coef_")
    with pytest.raises(InvalidInputError) as caught:
        PrivateLinearRegression(data_norm=1.0, label_range=(-1.0, 1.0)).fit(
            X, np.where(y == "no", "S3CRET", "1")
        )
    assert "S3CRET" not in str(caught.value)
    with pytest.raises(InvalidInputError, match="real labels"):
        PrivateLinearRegression(data_norm=1.0, label_range=(-1.0, 1.0), loss=LogisticLoss()).fit(X, X[:, 0])


def test_a_ledger_is_booked_first_and_not_overdrawn(tmp_path: Path) -> None:
    X, y = task(100)
    ledger = Ledger.create(tmp_path / "ledger.jsonl", 1.0, 0.5)
    classifier(epsilon=0.7, insecure_seed=None, ledger=ledger).fit(X, y)
    assert ledger.total().epsilon == pytest.approx(0.7)
    model = classifier(epsilon=0.7, insecure_seed=None, ledger=tmp_path / "ledger.jsonl")
    with pytest.raises(BudgetExceededError):
        model.fit(X, y)
    assert not hasattr(model, "coef_")


def test_unseeded_fits_differ_and_clones_keep_parameters() -> None:
    X, y = task(100)
    first, second = (classifier(insecure_seed=None).fit(X, y).coef_ for _ in range(2))
    assert not np.array_equal(first, second)
    model = classifier(convex_set="l2:5", mechanism="dp-pgd", steps=20)
    assert clone(model).get_params() == model.get_params()
    assert cross_val_score(classifier(epsilon=10.0), *task(600), cv=3).mean() > 0.7


def test_sets_and_penalties_have_a_text_form() -> None:
    assert parse_set("l1:10", 3) == L1Ball(3, 10.0)
    assert parse_set("simplex", 3) == Simplex(3, 1.0)
    assert parse_regularizer("none") == ElasticNet()
    assert parse_regularizer("l1:0.01+l2:0.1") == ElasticNet(0.01, 0.1)
    for text in ("l1", "l2:", "l2:x", "box:1", "l1:-1"):
        with pytest.raises(InvalidInputError):
            parse_set(text, 3)
    for text in ("l3:1", "l1:x", "l1:1+l1:2", ""):
        with pytest.raises(InvalidInputError):
            parse_regularizer(text)


@pytest.mark.parametrize(
    "mechanism",
    ["dp-pgd", "dp-fw-l1", "output-perturbation", "objective-perturbation", "sufficient-statistics"],
)
def test_a_fit_stops_when_told_and_releases_nothing(mechanism: str, tmp_path: Path) -> None:
    X, y = task(500)
    ledger = Ledger.create(tmp_path / "ledger", 9.0, 1e-3)
    for limits, reason in (
        (Limits(seconds=1e-9), "TIME_LIMIT"),
        (Limits(cancelled=lambda: True), "INTERRUPTED"),
    ):
        model = classifier(epsilon=4.0, mechanism=mechanism, limits=limits, ledger=ledger, insecure_seed=None)
        with pytest.raises(OracleError, match=f"{reason}.*nothing was released.*To do: "):
            model.fit(X, y)
        assert not hasattr(model, "coef_")
    # The failure may depend on the records, and noise was drawn: both fits stay spent.
    assert [e.state for e in ledger.entries()] == ["reserved", "reserved"]
    assert ledger.total().epsilon == pytest.approx(8.0)


def test_a_fit_can_be_stopped_between_steps_and_between_classes() -> None:
    """The third class's second step is the first to be refused, after 11 steps, which ask twice each."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 300)
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 2 * 11

    model = classifier(classes=(0, 1, 2), mechanism="dp-pgd", steps=5)
    clone(model).fit(np.eye(3)[y], y)  # compiled: a wait for it asks, too
    model.set_params(limits=Limits(cancelled=cancelled))
    with pytest.raises(UnfinishedDrawError, match="1 of 5 steps"):
        model.fit(np.eye(3)[y], y)
    assert asked == 2 * 11 + 1
    assert not hasattr(model, "releases_")


def test_progress_counts_steps_and_limits_change_nothing_else() -> None:
    X, y = task(500)
    seen: list[Progress] = []
    limits = Limits(seconds=600.0, on_progress=seen.append)
    options: dict[str, Any] = {"mechanism": "dp-gd", "steps": 7}
    watched = classifier(**options, limits=limits).fit(X, y)
    assert np.array_equal(watched.coef_, classifier(**options).fit(X, y).coef_)
    assert (seen[0].nodes, seen[0].total) == (0, 7)
    seen.clear()
    classifier(mechanism="objective-perturbation", limits=limits).fit(X, y)
    assert seen[0].bound <= seen[0].incumbent  # the objective under noise, and a bound on its minimum


def test_certificates_are_kept_and_never_pickled() -> None:
    X, y = task(500)
    model = classifier(mechanism="output-perturbation", regularizer="l2:0.1").fit(X, y)
    proof = model.releases_[0].certificate
    assert proof is not None
    assert proof.status is Status.OPTIMAL
    assert proof.gradient_norm <= 0.01 * math.sqrt(1.25) / 500  # the tolerance of the proof: G / (100 n)
    assert proof.gap == pytest.approx(proof.gradient_norm**2 / 0.2)
    # A bound on the minimum, against a general solver.
    constant = np.column_stack([X, np.full(len(X), 0.5)])
    signs = np.where(y == "yes", 1, -1)

    def objective(w: np.ndarray) -> float:
        return float(np.mean(np.logaddexp(0, -signs * (constant @ w))) + 0.05 * w @ w)

    least = minimize(objective, np.zeros(4), options={"gtol": 1e-9}).fun
    assert proof.bound - 1e-12 <= least <= proof.value + 1e-12
    assert pickle.loads(pickle.dumps(model)).releases_[0].certificate is None
    assert "certificate" not in repr(model.releases_)
    assert classifier(mechanism="dp-gd").fit(X, y).releases_[0].certificate is None


@pytest.mark.parametrize(
    ("mechanism", "least"),
    [
        ("dp-gd", 0.82),
        ("dp-accmd", 0.82),
        ("dp-fw-l2", 0.77),
        ("dp-fw-l1", 0.75),
        ("output-perturbation", 0.67),
    ],
)
def test_defaults_are_good_on_a_table_they_never_saw(mechanism: str, least: float) -> None:
    """Mixed columns, 20,000 records, epsilon = 1; the larger class has 0.64, without privacy it is 0.89.

    Bounds are 0.01 to 0.05 below the worst of five draws.
    """
    X, y = make_cells(20_000, (9, 8, 7, 6, 5, 4, 2), 4, seed=3)
    linf = mechanism == "dp-fw-l1"
    model = PrivateLogisticRegression(
        mechanism=mechanism,
        data_norm=1.0 if linf else math.sqrt(11),
        norm="linf" if linf else "l2",
        classes=(-1, 1),
        insecure_seed=1,
    ).fit(X / 16, y)
    assert model.score(X / 16, y) > least


def test_what_is_no_limits_is_refused_before_anything_is_booked(tmp_path: Path) -> None:
    X, y = task(100)
    ledger = Ledger.create(tmp_path / "ledger", 10.0, 0.1)
    for kind in (PrivateLogisticRegression, PrivateHalfspaceClassifier):
        model = kind(1.0, classes=("no", "yes"), ledger=ledger, limits=5)
        with pytest.raises(InvalidInputError, match=r"limits must be a Limits, .* got 5"):
            model.fit(X, y)
    assert ledger.entries() == []


def test_a_scorecard_of_a_sparse_matrix_is_refused() -> None:
    X, y = task(100)
    schema = Schema([Numeric(f"x{i}", -1, 1, step="1/10") for i in range(3)])
    model = PrivateHalfspaceClassifier(1.0, classes=("no", "yes"), schema=schema)
    with pytest.raises(InvalidInputError, match="X is sparse"):
        model.fit(sp.csr_matrix(X), y)


def measured_from_the_middle() -> tuple[Schema, Any, Any]:
    schema = Schema([Categorical("c", ["a", "b", "d"]), Numeric("x", 0, 10, step=1)])
    rng = np.random.default_rng(3)
    table = {"c": rng.choice(["a", "b", "d"], 4000), "x": rng.integers(0, 11, 4000)}
    odds = 0.4 * (table["x"] - 5) + 2.0 * (table["c"] == "a")
    return schema, pd.DataFrame(table), np.where(odds + rng.logistic(size=4000) > 0, "yes", "no")


@pytest.mark.parametrize("constant", [False, True])
def test_with_a_schema_rows_are_measured_from_the_middle(constant: bool) -> None:
    """Every record is within the stated distance, one reaches it; the model is one for encoded rows."""
    schema, table, y = measured_from_the_middle()
    schema = Schema(schema.columns, intercept=constant)
    middle, bound = schema.middle, schema.spread
    distances = np.linalg.norm(encoded(schema, table) - middle, axis=1)
    assert distances.max() == pytest.approx(bound, rel=1e-9)
    assert distances.max() <= bound < 0.75 * schema.norm() + constant
    model = PrivateLogisticRegression(1e4, schema=schema, classes=("no", "yes"), insecure_seed=0)
    model.set_params(mechanism="objective-perturbation", regularizer="l2:1e-4").fit(table, y)
    reference = LogisticRegression(C=1e4, fit_intercept=True).fit(encoded(schema, table), y)
    assert model.decision_function(table) == pytest.approx(
        reference.decision_function(encoded(schema, table)), abs=0.15
    )


def test_sets_and_declared_norms_are_for_weights_from_zero() -> None:
    schema, table, y = measured_from_the_middle()
    common: dict[str, Any] = {"schema": schema, "classes": ("no", "yes"), "mechanism": "dp-pgd", "steps": 2}
    from_zero = PrivateLogisticRegression(1.0, convex_set="l2:5", **common).fit(table, y)
    declared = PrivateLogisticRegression(1.0, data_norm=schema.norm(), **common).fit(table, y)
    centred = PrivateLogisticRegression(1.0, **common).fit(table, y)
    ratio = schema.spread / schema.norm()
    assert from_zero.noise_["sigma"] == pytest.approx(declared.noise_["sigma"])
    assert centred.noise_["sigma"] == pytest.approx(ratio * declared.noise_["sigma"])


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("sparse", [False, True])
def test_predictions_shorten_rows_as_the_fit_does(norm: Any, sparse: bool, tmp_path: Path) -> None:
    """A declared norm that is far too small: a long row scores as the shortened one that was learned from."""
    rng = np.random.default_rng(0)
    X, bound = rng.normal(size=(500, 4)) * 50, 0.5
    y = (X[:, 0] > 0).astype(int)
    sizes = np.max(np.abs(X), axis=1) if norm == "linf" else np.linalg.norm(X, axis=1)
    short = X * (bound / np.maximum(sizes, bound))[:, None]
    given: Any = sp.csr_matrix(X) if sparse else X
    model = PrivateLogisticRegression(
        5.0, data_norm=bound, norm=norm, classes=(0, 1), mechanism="dp-gd", insecure_seed=0
    ).fit(given, y)
    again = clone(model).fit(short, y)
    assert np.ravel(model.coef_) == pytest.approx(np.ravel(again.coef_), rel=1e-6)
    scores = model.decision_function(given)
    assert scores == pytest.approx(model.decision_function(short), rel=1e-9)
    assert scores == pytest.approx(short @ model.coef_[0] + model.intercept_[0], rel=1e-9)
    model.save(tmp_path / "model.json")
    loaded = PrivateLogisticRegression.load(tmp_path / "model.json")
    assert np.array_equal(loaded.decision_function(given), scores)


@pytest.mark.parametrize("bound", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("intercept", [False, True])
def test_moments_without_a_schema_have_noise_for_the_constant_that_is_appended_and_no_other(
    bound: float, intercept: bool
) -> None:
    """Rows of norm b without a constant, or with one of b / 2, from the definition of the moments' facts."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-bound, bound, (500, 3)) / math.sqrt(3), rng.integers(0, 2, 500)
    model = PrivateLogisticRegression(
        9.0, delta=1e-6, data_norm=bound, mechanism="sufficient-statistics", classes=(0, 1),
        fit_intercept=intercept,
    ).fit(X, y)  # fmt: skip
    constant = bound / 2 if intercept else 0.0
    facts = RiskFacts(500, 3 + intercept, LogisticLoss(), math.hypot(bound, constant), "l2", constant)
    expected = SufficientStatistics.plan(facts, epsilon=9.0, delta=1e-6).vector_noise.sensitivity
    assert model.noise_["sensitivity"] == pytest.approx(expected)
