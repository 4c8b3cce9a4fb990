"""Bases of linear classifiers and regressors: targets and predictions, whatever the fit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from privopt.mechanisms.estimators.labels import (
    checked_labels,
    class_indices,
    distinct_classes,
    real_labels,
)
from privopt.mechanisms.estimators.linear_model import PrivateLinearModel
from privopt.mechanisms.estimators.predictions import ScoredClassifier, by_parts
from privopt.mechanisms.estimators.prepared import Targets
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arguments import check_same_length
from privopt.problems.convex.losses import Loss
from privopt.problems.tables.partitions import computed

Floats = NDArray[np.float64]


class LinearClassifier(ScoredClassifier, PrivateLinearModel):
    """Base of linear classifiers, which predict the class with the largest score."""

    classes: Sequence[Any] | None

    def _class_targets(self, y: ArrayLike, n_rows: int, loss: Loss) -> Targets:
        """Return label vectors of -1 and +1, shape (n,): one for two classes, otherwise one per class."""
        labels = checked_labels(y, n_rows)
        classes = distinct_classes(self.classes, labels)
        index = class_indices(labels, classes)
        positive = range(1, 2) if len(classes) == 2 else range(len(classes))
        signed = [2.0 * (index == k) - 1.0 for k in positive]  # arithmetic, so no branch depends on a label
        return Targets(signed, loss, classes, number=np.asarray(index, dtype=np.int64))

    def _declared_classes(self, loss: Loss) -> Targets:
        """Return the targets without label vectors, from declared classes."""
        classes = distinct_classes(self.classes, np.array([]))
        return Targets([], loss, classes, number=np.zeros(0, dtype=np.int64))

    @by_parts
    def decision_function(self, X: Any) -> Floats:
        """Return scores, shape (n,) for two classes, otherwise (n, classes)."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @by_parts
    def predict(self, X: Any) -> NDArray[Any]:
        """Predict labels, shape (n,): the class with the largest score, or of two the second if score > 0."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return np.asarray(self.classes_[index])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on few records noise dominates
        return tags


class Probabilities:
    """Mixin with the class probabilities of models fitted with the logistic loss."""

    classes_: NDArray[Any]
    multinomial_: bool
    _scores: Callable[[Any], Floats]

    @by_parts
    def predict_proba(self, X: Any) -> Floats:
        """Return class probabilities, shape (n, classes); in one-vs-rest models, normalised to sum 1."""
        scores = self._scores(X)
        if self.multinomial_:
            return np.asarray(softmax(scores, axis=1))
        p = expit(scores)
        if len(self.classes_) == 2:
            return np.column_stack([1 - p, p])
        total = np.sum(p, axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, p / np.maximum(total, 1e-300), 1 / p.shape[1]))

    def risks_at(self, scores: ArrayLike) -> Floats:
        """Return the probability of the second of two classes at scores of ``decision_function``."""
        return np.asarray(expit(np.asarray(scores, dtype=np.float64)))


class LinearRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Base of linear regressors: one weight vector, and R squared as the score."""

    def _labels(self, y: ArrayLike, n_rows: int) -> Floats:
        """Validate real labels, one for each row, shape (n,)."""
        labels = real_labels(y)
        check_same_length(n_rows, len(labels))
        return labels

    def _set(self, coef: Floats, intercept: Floats, spend: PrivacySpend) -> Self:
        super()._set(coef, intercept, spend)
        self.coef_, self.intercept_ = coef[0], float(intercept[0])
        return self

    @abstractmethod
    def predict(self, X: Any) -> Floats:
        """Return predictions, shape (n,)."""

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return R squared of the predictions. Not private."""
        predicted, y = computed(self.predict(X), y)
        labels = real_labels(y)
        check_same_length(len(predicted), len(labels))
        from sklearn.metrics import r2_score  # lazy: a slow import

        return float(r2_score(labels, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on few records noise dominates
        return tags
