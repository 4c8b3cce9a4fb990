"""Evaluation of pipelines, calibrated classifiers and classifiers of other packages."""

from __future__ import annotations

import math
import traceback
from typing import Any, Self

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, confusion_matrix, recall_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

from privopt.mechanisms import PrivateLogisticRegression, PrivateSigmoidClassifier, compare, evaluate
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.problems import InvalidInputError


def records(n: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, X @ [1.5, 0.5, 0.0] + rng.logistic(size=n) > 1


def calibrated() -> Any:
    """Probabilities alone, some of them 0 and 1."""
    return CalibratedClassifierCV(LinearSVC(), method="isotonic", cv=3)


def around_a_calibrated_one() -> Any:
    return make_pipeline(StandardScaler(), calibrated())


def around_one_of_this_package() -> Any:
    private = PrivateLogisticRegression(8.0, data_norm=3.0, classes=(False, True), insecure_seed=0)
    return make_pipeline(StandardScaler(), private)


def calibrated_private() -> Any:
    private = PrivateLogisticRegression(8.0, data_norm=3.0, classes=(False, True), insecure_seed=0)
    return CalibratedClassifierCV(private, cv=3)


@pytest.mark.parametrize(
    "make",
    [calibrated, around_a_calibrated_one, around_one_of_this_package, calibrated_private],
    ids=lambda f: f.__name__,
)
def test_probabilities_are_used_and_without_noise_measures_are_scikit_learns(make: Any) -> None:
    model = make().fit(*records(400, seed=3))
    X, y = records(500)
    found = evaluate(model, X, y, epsilon=2000.0, insecure_seed=0)
    risks = model.predict_proba(X)[:, 1]
    assert found.confusion.to_numpy().tolist() == confusion_matrix(y, risks > 0.5).tolist()
    assert found.metrics["brier"].value == pytest.approx(brier_score_loss(y, risks), abs=0.004)
    assert found.metrics["auc"].value == pytest.approx(roc_auc_score(y, risks), abs=0.01)
    assert found.metrics["calibration"].value == pytest.approx(np.mean(risks) - np.mean(y), abs=0.01)
    assert found.spend.claim == "proved"


def test_a_pipeline_without_probabilities_is_evaluated_by_its_scores() -> None:
    private = PrivateSigmoidClassifier(8.0, data_norm=3.0, classes=(False, True), insecure_seed=0)
    for last in (LinearSVC(), private):
        model = make_pipeline(StandardScaler(), last).fit(*records(400, seed=3))
        X, y = records(300)
        found = evaluate(model, X, y, epsilon=2000.0, insecure_seed=0)
        assert found.metrics["accuracy"].value == pytest.approx(np.mean(model.predict(X) == y))
        assert "brier" not in found.metrics


def test_several_classes_of_a_pipeline_are_counted_by_its_predictions() -> None:
    X, _ = records(600)
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    model = make_pipeline(StandardScaler(), DecisionTreeClassifier(max_depth=2)).fit(X[:300], y[:300])
    found = evaluate(model, X[300:], y[300:], epsilon=2000.0, insecure_seed=0)
    recalls = recall_score(y[300:], model.predict(X[300:]), average=None)
    assert [found.metrics[f"recall of {k}"].value for k in range(3)] == pytest.approx(recalls)
    assert "synthetic rows" in found.spend.note


@pytest.mark.parametrize("classes", [2, 3])
def test_a_calibrated_pipeline_that_looks_at_other_rows_is_refused(classes: int) -> None:
    X, _ = records(300)
    y = np.digitize(X[:, 0], [-0.5, 0.5])[: len(X)] % classes
    centred = make_pipeline(FunctionTransformer(lambda x: x - np.mean(x, axis=0)), LogisticRegression())
    model = CalibratedClassifierCV(centred, cv=2).fit(X, y)
    with pytest.raises(InvalidInputError, match="which rows are scored together"):
        evaluate(model, X, y)


def test_a_classifier_without_any_score_is_refused() -> None:
    class OnlyPredicts(LogisticRegression):  # type: ignore[misc]
        predict_proba = decision_function = property()

    X, y = records(300)
    model = OnlyPredicts()
    model.__dict__.update(vars(LogisticRegression().fit(X, y)))
    with pytest.raises(InvalidInputError, match="predict_proba or decision_function"):
        evaluate(model, X, y)


class Delicate(LogisticRegression):
    """A model of another package that quotes a record which it cannot score, and scores some as NaN."""

    def predict_proba(self, X: Any) -> Any:
        if np.any(X[:, 0] > 1e5):
            raise ZeroDivisionError(f"the record {X[np.argmax(X[:, 0])].tolist()}")
        risks = super().predict_proba(X)
        return np.where(X[:, :1] < -3, np.nan, risks)


def test_what_a_model_cannot_score_is_refused_without_its_words() -> None:
    X, y = records(300)
    model = Delicate().fit(X, y)
    found = evaluate(model, np.clip(X, -2, 2), y)
    assert "did not change" in found.spend.note  # the NaN of a row is that of the row in a batch
    with pytest.raises(InvalidInputError, match="NaN"):
        evaluate(model, np.where(np.arange(300)[:, None] == 7, -4.0, X), y)
    X[7] = 10 * 12345.6
    with pytest.raises(InvalidInputError, match="Delicate raised ZeroDivisionError on the records") as error:
        evaluate(model, X, y)
    assert "123456" not in "".join(traceback.format_exception(error.value))


def test_an_epsilon_that_is_no_number_is_refused_as_in_a_fit() -> None:
    X, y = records(30)
    model = LogisticRegression().fit(X, y)
    for epsilon in (math.nan, math.inf, 0.0):
        with pytest.raises(PrivacyParameterError, match="finite and > 0"):
            evaluate(model, X, y, epsilon=epsilon)
        with pytest.raises(PrivacyParameterError, match="finite and > 0"):
            compare(model, model, X, y, epsilon=epsilon)


class OfTheFirst(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that says the class of the first row, for all, and takes no made-up rows."""

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        if np.any(X < 0):
            raise ValueError("X has negative numbers")
        return self.classes_[X[:1, 0].astype(int)]


def test_a_model_with_one_prediction_for_all_rows_is_not_compared() -> None:
    """It would be broadcast: replacing the first record then moved every count by one."""
    X = np.random.default_rng(0).uniform(0, 3, (60, 2))
    y = X[:, 0].astype(int)
    other, model = DecisionTreeClassifier(max_depth=2).fit(X, y), OfTheFirst().fit(X, y)
    for pair in ((other, model), (model, other)):
        with pytest.raises(InvalidInputError, match=r"gave scores of shape \(1,\) for 60 rows"):
            compare(*pair, X, y, epsilon=1.0)
