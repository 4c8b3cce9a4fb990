"""Private linear models in scikit-learn's conventions: logistic, sigmoid, linear (ridge, lasso) regression.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import RegressorMixin
from sklearn.utils import Tags

from privopt.mechanisms.estimators.labels import (
    check_label_range,
    checked_labels,
    class_indices,
    distinct_classes,
    real_labels,
)
from privopt.mechanisms.estimators.linear_model import PrivateLinearModel
from privopt.mechanisms.estimators.predictions import ScoredClassifier, by_parts
from privopt.mechanisms.estimators.prepared import Targets
from privopt.mechanisms.estimators.public_facts import leak
from privopt.mechanisms.estimators.validation import keep_arguments
from privopt.mechanisms.estimators.weights import ClassWeights
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.limits import Limits
from privopt.problems.arguments import told
from privopt.problems.convex.losses import Labels, LogisticLoss, Loss, SigmoidLoss, SquaredLoss
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.partitions import computed
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

Floats = NDArray[np.float64]


class LinearClassifier(ScoredClassifier, PrivateLinearModel):
    """Predictions by the largest score."""

    classes: Sequence[Any] | None

    def _class_targets(self, y: ArrayLike, n_rows: int, loss: Loss) -> Targets:
        """Labels -1 and +1, shape (n,): two classes are one release, more a release per class."""
        labels = checked_labels(y, n_rows)
        classes = distinct_classes(self.classes, labels)
        index = class_indices(labels, classes)
        positive = range(1, 2) if len(classes) == 2 else range(len(classes))
        signed = [2.0 * (index == k) - 1.0 for k in positive]  # a choice by label would guess branches
        return Targets(signed, loss, classes, number=np.asarray(index, dtype=np.int64))

    def _declared_classes(self, loss: Loss) -> Targets:
        """The same without labels, from declared classes."""
        classes = distinct_classes(self.classes, np.array([]))
        return Targets([], loss, classes, number=np.zeros(0, dtype=np.int64))

    @by_parts
    def decision_function(self, X: Any) -> Floats:
        """Scores, shape (n,) for two classes, otherwise (n, classes)."""
        scores = self._scores(X)
        return scores[:, 0] if len(self.classes_) == 2 else scores

    @by_parts
    def predict(self, X: Any) -> NDArray[Any]:
        """Labels, shape (n,): of the largest score, or for two classes the second where the score is > 0."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(int) if scores.ndim == 1 else np.argmax(scores, axis=1)
        return np.asarray(self.classes_[index])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.poor_score = True  # on a handful of records noise wins
        return tags


class Probabilities:
    """Probabilities of a model that was fitted by the logistic loss."""

    classes_: NDArray[Any]
    _scores: Callable[[Any], Floats]

    @by_parts
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities, shape (n, classes): the model's, for one-vs-rest normalised to sum to 1."""
        p = expit(self._scores(X))
        if len(self.classes_) == 2:
            return np.column_stack([1 - p, p])
        total = np.sum(p, axis=1, keepdims=True)
        return np.asarray(np.where(total > 0, p / np.maximum(total, 1e-300), 1 / p.shape[1]))

    def risks_at(self, scores: ArrayLike) -> Floats:
        """The model's probability of the second of two classes at scores of ``decision_function``."""
        return np.asarray(expit(np.asarray(scores, dtype=np.float64)))


class _PrivateLinearClassifier(LinearClassifier):
    """Labels are classes: two are one release, more are one-vs-rest, a release per class."""

    class_weight: dict[Any, float] | str | None
    prevalence: float | Sequence[float] | None

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float | str = "auto",
        mechanism: str | type[Any] = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        data_norm: float | None = None,
        norm: RowNorm | None = None,
        classes: Sequence[Any] | None = None,
        class_weight: dict[Any, float] | str | None = None,
        prevalence: float | Sequence[float] | None = None,
        convex_set: ConvexSet | str | None = None,
        regularizer: ElasticNet | str = "none",
        fit_intercept: bool = True,
        steps: int | None = None,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())

    @abstractmethod
    def _loss(self) -> Loss:
        """The loss, for labels -1 and +1."""

    def _targets_of(self, y: ArrayLike, n_rows: int) -> Targets:
        return self._class_targets(y, n_rows, self._loss())

    def _declared_targets(self) -> Targets:
        return self._declared_classes(self._loss())

    def _class_weights(self, targets: Targets, epsilon: float) -> ClassWeights:
        return ClassWeights.of(self.class_weight, self.prevalence, np.asarray(targets.classes), epsilon)


class PrivateLogisticRegression(Probabilities, _PrivateLinearClassifier):
    """Logistic regression under differential privacy, by any mechanism that minimises risks.

    Privacy: (epsilon, delta)-differential privacy for the fitted weights, for data sets that differ by
    *replacing one record*; n, d, the classes and every parameter below are public. Outside the guarantee:
    running time, whether data were refused (NaN, unknown labels, absurdly long rows), and for the
    perturbation mechanisms whether fitting failed. With K > 2 classes there is one release per class, and
    they share the budget evenly in the notion in which the mechanism composes: on full batches and under
    output perturbation mu / sqrt(K) each (GDP), "dp-fw-l1" rho / K (zCDP), sampled
    mechanisms as one sequence of K times the steps, objective perturbation epsilon / K and delta / K.
    ``spend_`` states the whole, its note the share.

    Args:
        epsilon: privacy budget of the whole fit, > 0 and finite.
        delta: in (0, 1), or "auto" for 1/n^2.
        mechanism: "auto", a name of ``privopt.mechanisms.RISK_MECHANISMS``, or a ``RiskMechanism`` of one's
            own; ``mechanism_reason_`` tells why, and which set it was given where it needed one; ``noise_``
            which penalty.
        schema: a ``Schema``, a dict, or a path to a TOML or JSON file: X is then a table with its columns, in
            ``fit`` and in ``predict``. None: X holds numbers. With an intercept, and without set or
            ``data_norm``, rows are measured from the middle of the declared columns: less noise, the same
            models; ``releases_`` holds weights of such rows.
        data_norm: bound R on the norm of rows; longer ones are shortened to it, in predictions as well. None
            is what the schema implies; without a schema it reads the norm off the data, which is *not*
            private: a ``PrivacyLeakWarning`` says so.
        norm: the norm that R bounds, "l2" or "linf"; None is the one that the mechanism's noise depends on:
            "linf" for "dp-fw-l1", otherwise "l2".
        classes: the labels, two or more; for two (negative, positive). None reads them off the data, with
            the same warning.
        class_weight: None; a dict of weights > 0 of the classes, a thousandth of the largest at least, which
            bounds on gradients, and so the noise, follow; or "balanced", which weighs classes by the inverse
            of their share.
        prevalence: shares for "balanced", *public* numbers: of the second of two classes, or of each. None:
            they are released first, at a twentieth of epsilon.
        convex_set: a ``ConvexSet``, or "l1:SIZE", "l2:SIZE", "linf:SIZE", "simplex": where the weights,
            the intercept's included, lie.
        regularizer: an ``ElasticNet``, or "none", "l1:STRENGTH", "l2:STRENGTH"; covers the intercept too.
        fit_intercept: whether a constant feature joins each row, R/2 for the l2 and R for the linf norm; a
            schema with a constant of its own needs none and gets none.
        steps: number of noisy steps of mechanisms that have one; by default the theory's.
        limits: time limit of all releases together, progress callback and cancellation.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            when records are refused; no overdrafts. All public facts must be declared then.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        classes_: the labels.
        schema_: the schema in use, or None.
        coef_, intercept_: weights, shapes (1, d) and (1,), or a row per class.
        spend_: what the fit cost.
        noise_: the public parameters of the noise, and the number of steps.
        releases_: the ``RealRelease`` of each row; not in loaded models.
        mechanism_, mechanism_reason_: the name of the mechanism in use, and why.

    References:
        Wang, Ye and Xu (2017); Wang and Xu (2019); Chaudhuri, Monteleoni and Sarwate (2011).
    """

    def _loss(self) -> Loss:
        return LogisticLoss()


class PrivateSigmoidClassifier(_PrivateLinearClassifier):
    """A linear classifier by the sigmoid loss, a smooth count of errors, which outliers sway less.

    The loss is not convex: gradients are small at what is found, it need not be a minimum. Privacy,
    arguments and attributes: as ``PrivateLogisticRegression``; mechanisms for convex losses are refused.

    References:
        Wang and Xu (2019).
    """

    def _loss(self) -> Loss:
        return SigmoidLoss()


class LinearRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """One vector of weights, and R squared as the score."""

    def _labels(self, y: ArrayLike, n_rows: int) -> Floats:
        """Labels that are numbers, one for each row, shape (n,)."""
        labels = real_labels(y)
        if len(labels) != n_rows:
            raise InvalidInputError(f"X has {n_rows} rows and y has {len(labels)}")
        return labels

    def _set(self, coef: Floats, intercept: Floats, spend: PrivacySpend) -> Self:
        super()._set(coef, intercept, spend)
        self.coef_, self.intercept_ = coef[0], float(intercept[0])
        return self

    @abstractmethod
    def predict(self, X: Any) -> Floats:
        """Predictions, shape (n,)."""

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """R squared of the predictions. Not private."""
        predicted, y = computed(self.predict(X), y)
        labels = real_labels(y)
        if len(labels) != len(predicted):
            raise InvalidInputError(f"X has {len(predicted)} rows and y has {len(labels)}")
        from sklearn.metrics import r2_score  # takes a while

        return float(r2_score(labels, predicted, sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True  # on a handful of records noise wins
        return tags


class PrivateLinearRegression(LinearRegressor):
    """Linear regression under differential privacy; ridge or lasso by ``regularizer``.

    Labels are clipped to the range [low, high], and with ``fit_intercept`` what is fitted is their difference
    from its midpoint, which then joins the intercept: labels around 30 cost no more than labels around 0, and
    ``regularizer`` and ``convex_set`` pull predictions to the midpoint. Without an intercept nothing is
    shifted, and the width that counts is 2 max(|low|, |high|). The squared loss continues linearly for
    residuals beyond the width, which no prediction within the range meets. Privacy: as
    ``PrivateLogisticRegression``; the range is public.

    Args:
        label_range: (low, high), in the labels' unit. None reads it off the labels, which is *not* private:
            a ``PrivacyLeakWarning`` says so.
        loss: a loss for real labels such as ``HuberLoss(1.0)`` or ``BiweightLoss()`` in place of the squared
            one.

    The other arguments and attributes are those of ``PrivateLogisticRegression``; ``coef_`` has shape (d,),
    ``intercept_`` is a float, and ``label_range_`` the range that predictions stay within. "auto" is
    sufficient statistics for up to 512 features without set or penalty.
    """

    label_range: tuple[float, float] | None
    loss: Loss | None

    def __init__(
        self,
        epsilon: float = 1.0,
        *,
        delta: float | str = "auto",
        mechanism: str | type[Any] = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        data_norm: float | None = None,
        norm: RowNorm | None = None,
        label_range: tuple[float, float] | None = None,
        loss: Loss | None = None,
        convex_set: ConvexSet | str | None = None,
        regularizer: ElasticNet | str = "none",
        fit_intercept: bool = True,
        steps: int | None = None,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())

    def _targets_of(self, y: ArrayLike, n_rows: int) -> Targets:
        labels = self._labels(y, n_rows)
        facts, bound = self._range_facts(labels)
        # The second time for what the subtraction rounds up.
        assert facts.label_range is not None
        shifted = np.clip(np.clip(labels, *facts.label_range) - facts.centre, -bound, bound)
        return facts._replace(labels=[shifted])

    def _declared_targets(self) -> Targets:
        return self._range_facts(np.zeros(0))[0]

    def _range_facts(self, labels: Floats) -> tuple[Targets, float]:
        """Loss, centre and range, and how far from the centre labels are; read off the labels if need be."""
        if self.label_range is None:
            leak("label_range was read off the labels, which is not private; declare it")
            low, high = float(np.min(labels)), float(np.max(labels))
            if low == high:
                low, high = low - 1, high + 1
        else:
            low, high = check_label_range(self.label_range)
        centre, bound = 0.0, max(abs(low), abs(high))
        if self.fit_intercept:
            centre, bound = low / 2 + high / 2, high / 2 - low / 2
        loss = SquaredLoss(2 * bound) if self.loss is None else self.loss
        if not isinstance(loss, Loss):
            raise InvalidInputError(f"loss must be a Loss such as HuberLoss(1.0), got {told(loss)}")
        if loss.labels is not Labels.REAL:
            raise InvalidInputError(
                f"{type(loss).__name__} is not a loss for real labels: use SquaredLoss, HuberLoss or "
                "BiweightLoss"
            )
        return Targets([], loss, centre=centre, label_range=(low, high)), bound

    @by_parts
    def predict(self, X: Any) -> Floats:
        """Predictions, shape (n,): within the range that labels were clipped to."""
        predicted = self._scores(X)[:, 0]
        return predicted if self.label_range_ is None else np.clip(predicted, *self.label_range_)
