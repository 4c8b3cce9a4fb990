"""Private linear models of records within bounds, as scikit-learn's: logistic, sigmoid, linear regression.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from privopt.mechanisms.estimators.labels import (
    check_label_range,
)
from privopt.mechanisms.estimators.predictions import by_parts
from privopt.mechanisms.estimators.prepared import Targets
from privopt.mechanisms.estimators.public_facts import leak
from privopt.mechanisms.estimators.validation import keep_arguments
from privopt.mechanisms.estimators.weights import ClassWeights
from privopt.oracles.limits import Limits
from privopt.problems.arguments import told
from privopt.problems.convex.losses import Labels, LogisticLoss, Loss, SigmoidLoss, SquaredLoss
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.estimators.bounded_fit import BoundedFit
from privopt.mechanisms.estimators.linear_predictors import LinearClassifier, LinearRegressor, Probabilities
from privopt.mechanisms.estimators.summaries import Summarised
from privopt.mechanisms.inference.least_squares import LeastSquares
from privopt.mechanisms.inference.logistic import LogisticMinimum
from privopt.mechanisms.risk.mechanism import RealRelease

Floats = NDArray[np.float64]

# Range of labels whose squares, times squares of noise in their units, are finite in doubles.
_LEAST_RANGE, _LARGEST_LABEL = 1e-60, 1e60


class _PrivateLinearClassifier(LinearClassifier, BoundedFit):
    """Base of private linear classifiers: one release for two classes, otherwise one-vs-rest."""

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
        """Return the loss for labels -1 and +1."""

    def _targets_of(self, y: ArrayLike, n_rows: int) -> Targets:
        return self._class_targets(y, n_rows, self._loss())

    def _declared_targets(self) -> Targets:
        return self._declared_classes(self._loss())

    def _class_weights(self, targets: Targets, epsilon: float) -> ClassWeights:
        return ClassWeights.of(self.class_weight, self.prevalence, np.asarray(targets.classes), epsilon)


class PrivateLogisticRegression(Probabilities, _PrivateLinearClassifier, Summarised):
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
            own. ``mechanism_reason_`` states the reason and any default set, ``noise_`` any default penalty.
        schema: a ``Schema``, a dict, or a path to a TOML or JSON file: X is then a table with its columns, in
            ``fit`` and in ``predict``. None: X holds numbers. With an intercept, and without set or
            ``data_norm``, rows are centred at the middle of the declared ranges, which needs less noise for
            equivalent models; ``releases_`` holds weights of centred rows.
        data_norm: bound R on the norm of rows; longer rows are scaled down to it, in predictions as well.
            None derives it from the schema; without a schema it is computed from the data, which is *not*
            private and emits a ``PrivacyLeakWarning``.
        norm: the norm that R bounds, "l2" or "linf"; None is the norm on which the mechanism's noise depends:
            "linf" for "dp-fw-l1", otherwise "l2".
        classes: the labels, two or more; for two (negative, positive). None infers them from the data, with
            the same warning.
        class_weight: None; a dict of class weights > 0 (raised to at least a thousandth of the largest), to
            which the noise is proportional through gradient bounds; or "balanced": inverse class shares.
        prevalence: shares for "balanced", *public* numbers: of the second of two classes, or of each. None:
            they are released privately first, at a twentieth of epsilon.
        convex_set: constraint set of the weights, the intercept's included: a ``ConvexSet``, or "l1:SIZE",
            "l2:SIZE", "linf:SIZE", "simplex".
        regularizer: an ``ElasticNet``, or "none", "l1:STRENGTH", "l2:STRENGTH"; includes the intercept.
        fit_intercept: whether to append a constant feature, R/2 for the l2 and R for the linf norm, unless
            the schema has a constant of its own.
        steps: number of noisy steps, for iterative mechanisms; by default the one from theory.
        limits: time limit of all releases together, progress callback and cancellation.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            when records are refused; no overdrafts. It requires that all public facts are declared.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        classes_: the labels.
        schema_: the schema in use, or None.
        coef_, intercept_: weights, shapes (1, d) and (1,), or a row per class.
        spend_: the privacy spend of the fit.
        noise_: the public parameters of the noise, and the number of steps.
        releases_: the ``RealRelease`` of each row; not in loaded models.
        mechanism_, mechanism_reason_: the name of the mechanism in use, and why.

    Intervals: with two classes and mechanism="objective-perturbation-hessian" a part of the budget pays for a
    noisy Hessian, from which confidence intervals of the coefficients follow (``summary``).

    References:
        Wang, Ye and Xu (2017); Wang and Xu (2019); Chaudhuri, Monteleoni and Sarwate (2011).
    """

    def _loss(self) -> Loss:
        return LogisticLoss()

    def mean_intervals(self, X: Any, confidence: float = 0.95) -> Floats:
        """Return intervals of the probability of the second class for records, shape (n, 2)."""
        return np.asarray(expit(super().mean_intervals(X, confidence)))

    def _released_inference(self, releases: list[RealRelease]) -> LogisticMinimum | None:
        minimum = releases[0].minimum
        return None if minimum is None or len(releases) > 1 else LogisticMinimum.of(minimum)

    @classmethod
    def _saved_inference(cls, record: Mapping[str, Any]) -> LogisticMinimum:
        return LogisticMinimum.from_dict(record)

    @property
    def _about(self) -> str:
        rows = "" if self.row_bound_ is None else f" with rows clipped to norm {self.row_bound_[0]:g}"
        return (
            f"About log odds of {self.classes_[1]} against {self.classes_[0]} by logistic regression on "
            f"records{rows}, in the population that they are independent draws from, where its probabilities "
            "are taken to be right."
        )

    @property
    def _no_intervals(self) -> str:
        return (
            'intervals of two classes follow from mechanism="objective-perturbation-hessian", which pays for '
            "a noisy Hessian; fit again"
        )


class PrivateSigmoidClassifier(_PrivateLinearClassifier):
    """Linear classifier with the sigmoid loss, a smooth 0/1 loss that is robust to outliers.

    The loss is not convex: the fit finds an approximate stationary point, not necessarily a minimum. Privacy,
    arguments and attributes: as ``PrivateLogisticRegression``; mechanisms for convex losses are refused.

    References:
        Wang and Xu (2019).
    """

    def _loss(self) -> Loss:
        return SigmoidLoss()


class PrivateLinearRegression(LinearRegressor, Summarised):
    """Linear regression under differential privacy; ridge or lasso by ``regularizer``.

    Labels are clipped to the range [low, high]. With ``fit_intercept`` they are centred at its midpoint,
    which is added to the intercept: labels around 30 need no more noise than labels around 0, and
    ``regularizer`` and ``convex_set`` shrink predictions to the midpoint. Without an intercept labels are not
    centred, and the width of the range is 2 max(|low|, |high|). The squared loss is extended linearly for
    residuals beyond the width, which predictions within the range never have. Privacy: as
    ``PrivateLogisticRegression``; the range is public.

    Args:
        label_range: (low, high), in the labels' unit. None infers it from the labels, which is *not* private
            and emits a ``PrivacyLeakWarning``.
        loss: a loss for real labels such as ``HuberLoss(1.0)`` or ``BiweightLoss()`` in place of the squared
            one.

    The other arguments and attributes are those of ``PrivateLogisticRegression``; ``coef_`` has shape (d,),
    ``intercept_`` is a float, and ``label_range_`` the range that predictions stay within. "auto" is
    sufficient statistics for up to 512 features without set or penalty.

    Intervals: the release of sufficient statistics is enough for confidence intervals of the coefficients of
    least squares (``summary``), of their combinations and of mean labels. They include both the noise and the
    sampling of the records, and are about records that are *clipped* as the fit clips them.
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
        # Clip again: the subtraction may round up.
        assert facts.label_range is not None
        shifted = np.clip(np.clip(labels, *facts.label_range) - facts.centre, -bound, bound)
        return facts._replace(labels=[shifted])

    def _declared_targets(self) -> Targets:
        return self._range_facts(np.zeros(0))[0]

    def _range_facts(self, labels: Floats) -> tuple[Targets, float]:
        """Return loss, centre and range, and a bound on centred labels; infer an undeclared range."""
        if self.label_range is None:
            leak("label_range was inferred from the labels, which is not private; declare it")
            low, high = float(np.min(labels)), float(np.max(labels))
            if low == high:
                low, high = low - 1, high + 1
        else:
            low, high = check_label_range(self.label_range)
        centre, bound = 0.0, max(abs(low), abs(high))
        if self.fit_intercept:
            centre, bound = low / 2 + high / 2, high / 2 - low / 2
        if not (bound >= _LEAST_RANGE and max(abs(low), abs(high)) <= _LARGEST_LABEL):
            what = "the range of the labels" if self.label_range is None else "label_range"
            raise InvalidInputError(
                f"{what} must be wider than {2 * _LEAST_RANGE:g} and within {_LARGEST_LABEL:g} of 0, so that "
                "squares of labels are normal numbers: use other units, or declare a label_range to clip to"
            )
        loss = SquaredLoss(2 * bound) if self.loss is None else self.loss
        if not isinstance(loss, Loss):
            raise InvalidInputError(f"loss must be a Loss such as HuberLoss(1.0), got {told(loss)}")
        if loss.labels is not Labels.REAL:
            raise InvalidInputError(
                f"{type(loss).__name__} is not a loss for real labels: use SquaredLoss, HuberLoss or "
                "BiweightLoss"
            )
        return Targets([], loss, centre=centre, label_range=(low, high)), bound

    def _released_inference(self, releases: list[RealRelease]) -> LeastSquares | None:
        moments = releases[0].moments
        return None if moments is None else LeastSquares(moments)

    @classmethod
    def _saved_inference(cls, record: Mapping[str, Any]) -> LeastSquares:
        return LeastSquares.from_dict(record)

    @property
    def _about(self) -> str:
        low, high = self.label_range_ or (-math.inf, math.inf)
        rows = "" if self.row_bound_ is None else f" and rows to norm {self.row_bound_[0]:g}"
        return (
            f"About least squares on records with labels clipped to {low:g} to {high:g}{rows}, in the "
            "population that they are independent draws from."
        )

    @property
    def _no_intervals(self) -> str:
        return (
            'intervals follow from mechanism="sufficient-statistics" with the squared loss, whose moments '
            "files of earlier versions do not hold; fit again"
        )

    @by_parts
    def predict(self, X: Any) -> Floats:
        """Return predictions, shape (n,), clipped to the label range."""
        predicted = self._scores(X)[:, 0]
        return predicted if self.label_range_ is None else np.clip(predicted, *self.label_range_)
