"""Private linear models of records within bounds, in scikit-learn's conventions: linear regression, logistic
regression, and a classifier with the sigmoid loss.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from privopt.mechanisms.convex.perturbation_with_hessian import PerturbationWithHessian
from privopt.mechanisms.convex.subset_statistics import SubsetStatistics
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.estimators.column_choice import (
    SchemaFacts,
    SubsetChoice,
    by_moments,
    checked_norm,
    checked_size,
    declared_facts,
    schema_facts,
    shared_epsilon,
    unread_features,
    unread_numbers,
)
from privopt.mechanisms.estimators.labels import (
    check_label_range,
)
from privopt.mechanisms.estimators.persons import fit_persons, person_of
from privopt.mechanisms.estimators.predictions import by_parts
from privopt.mechanisms.estimators.prepared import Outline, Targets
from privopt.mechanisms.estimators.public_facts import declared_schema, leak, public_delta
from privopt.mechanisms.estimators.validation import keep_arguments
from privopt.mechanisms.estimators.weights import ClassWeights
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.parameters import check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import warn_if_noise
from privopt.mechanisms.risk.choice import Choice, natural_norm
from privopt.oracles.limits import Limits, check_limits
from privopt.problems.arguments import told
from privopt.problems.convex.losses import Labels, LogisticLoss, Loss, SigmoidLoss, SquaredLoss
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.discrete.supports import SubsetBounds
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.estimators.bounded_fit import BoundedFit
from privopt.mechanisms.estimators.linear_plan import LinearPlan
from privopt.mechanisms.estimators.linear_predictors import LinearClassifier, LinearRegressor, Probabilities
from privopt.mechanisms.estimators.sample_weight import refuse_weights
from privopt.mechanisms.estimators.summaries import Summarised
from privopt.mechanisms.inference.coefficients import Coefficients
from privopt.mechanisms.inference.interface import LinearInference
from privopt.mechanisms.inference.least_squares import LeastSquares
from privopt.mechanisms.inference.logistic import LogisticMinimum
from privopt.mechanisms.inference.robust_least_squares import RobustLeastSquares
from privopt.mechanisms.risk.mechanism import RealRelease, RiskMechanism

Floats = NDArray[np.float64]

# Share of epsilon for the choice of columns.
_CHOICE_SHARE = 0.5
# Bounds on the half width of the label range and on the size of labels: within them, squares of labels times
# squares of noise are normal doubles.
_LEAST_RANGE, _LARGEST_LABEL = 1e-60, 1e60


class _PrivateLinearClassifier(LinearClassifier, BoundedFit):
    """Base of private linear classifiers of two or more classes."""

    class_weight: dict[Any, float] | str | None
    prevalence: float | Sequence[float] | None
    numbers: str

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
        max_weight: float | None = None,
        numbers: str = "auto",
        person: str | None = None,
        records_per_person: int | str = 1,
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
    perturbation mechanisms whether fitting failed.

    More than two classes: "sufficient-statistics" releases moments once, with the noise of two classes, and
    the model is one discriminant of all K classes. Any other mechanism makes one release per class
    (one-vs-rest), with an equal part of the budget each: mu / sqrt(K) (GDP) for mechanisms on full batches
    and for output perturbation, rho / K (zCDP) for "dp-fw-l1", epsilon / K and delta / K for objective
    perturbation. Mechanisms that sample batches are accounted as one sequence of K times the steps.
    ``spend_`` states the total, and its note the part of each release.

    Args:
        epsilon: privacy budget of the whole fit, > 0 and finite.
        delta: in (0, 1), or "auto" for 1/n^2.
        mechanism: "auto", a name of ``privopt.mechanisms.RISK_MECHANISMS``, or a custom ``RiskMechanism``.
            ``mechanism_reason_`` states the reason and any default set, ``noise_`` any default penalty.
        schema: a ``Schema``, a dict, or a path to a TOML or JSON file: X is then a table with its columns, in
            ``fit`` and in ``predict``. None: X holds numbers. With an intercept, the l2 norm, and neither
            set nor ``data_norm``, rows are centred at the middle of the declared ranges: an equivalent model
            then needs less noise. ``releases_`` holds the weights of centred rows.
        data_norm: bound R on the norm of rows; longer rows are scaled down to norm R, also in predictions.
            None derives R from the schema; without a schema it is computed from the data, which is *not*
            private and emits a ``PrivacyLeakWarning``.
        norm: the norm that R bounds, "l2" or "linf"; None is the norm on which the mechanism's noise depends:
            "linf" for "dp-fw-l1" and "screened-statistics", otherwise "l2".
        classes: the labels, two or more; two are given as (negative, positive). None infers them from the
            data, with the same warning.
        class_weight: None; a dict of class weights > 0, each raised to at least a thousandth of the largest;
            or "balanced", weights inverse to the class shares. Weights in the loss multiply its gradient
            bound, and the noise with it. Therefore mechanism="auto" fits two classes without weights and adds
            the log of the ratio of weights to the log odds afterwards, unless the budget is large for this
            ratio; "sufficient-statistics" does so for any number of classes. ``mechanism_reason_`` says if
            it was done.
        prevalence: *public* class shares for "balanced": of the second of two classes, or a list for all
            classes. None: they are released privately first, at a twentieth of epsilon.
        convex_set: constraint set of the weights, including the intercept: a ``ConvexSet``, or "l1:SIZE",
            "l2:SIZE", "linf:SIZE", "simplex".
        regularizer: an ``ElasticNet``, or "none", "l1:STRENGTH", "l2:STRENGTH"; includes the intercept.
        fit_intercept: whether to append a constant feature, R/2 for the l2 norm and R for the linf norm,
            unless the schema has an intercept.
        steps: number of noisy steps, for iterative mechanisms; by default the number that theory suggests.
        max_weight: a public bound > 0 on ``sample_weight`` in ``fit``.
        numbers: "lines" gives each number of the schema one weight, per unit; "bins" gives a weight to each
            bin of its range (``Schema.with_bins``), as most effects are not linear. "auto" takes bins if the
            budget pays for their noise, which n, epsilon and delta decide, and if ``mechanism``,
            ``data_norm``, ``norm``, ``convex_set``, ``regularizer``, ``steps`` and ``max_weight`` have their
            defaults.
        person, records_per_person: as for ``PrivateHalfspaceClassifier``.
        limits: time limit of all releases together, progress callback and cancellation.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            when records are refused. A fit that would overdraw the budget is refused. A ledger requires
            that all public facts are declared.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        classes_: the labels.
        schema_: the schema in use, with bins if numbers are in bins, or None.
        coef_, intercept_: weights, shapes (1, d) and (1,), or a row per class.
        spend_: the privacy spend of the fit.
        noise_: the public parameters of the noise, and the number of steps.
        multinomial_: whether the scores of several classes are log odds of one model, whose probabilities are
            their softmax. False: the model is one-vs-rest.
        releases_: the ``RealRelease`` of each row of ``coef_``, or one of all rows if ``multinomial_``; not
            in loaded models.
        mechanism_, mechanism_reason_: the name of the mechanism in use, and why.

    Intervals: with two classes and mechanism="objective-perturbation-hessian", a part of the budget pays for
    a noisy Hessian, from which ``summary`` computes confidence intervals of the coefficients.

    References:
        Wang, Ye and Xu (2017); Wang and Xu (2019); Chaudhuri, Monteleoni and Sarwate (2011).
    """

    def _loss(self) -> Loss:
        return LogisticLoss()

    def mean_intervals(self, X: Any, confidence: float = 0.95) -> Floats:
        """Return confidence intervals of the probability of the second class for records, shape (n, 2)."""
        return np.asarray(expit(super().mean_intervals(X, confidence)))

    def _choice(self, seen: Outline, schema: Schema | None, weights: ClassWeights) -> Choice:
        choice = super()._choice(seen, schema, weights)
        if seen.releases > 1 and choice.kind is PerturbationWithHessian:
            raise PrivacyParameterError(
                f"{choice.kind.name} spends budget on Hessians for intervals, which exist for two classes "
                f"only; there are {seen.releases} classes: {choice.kind.instead}"
            )
        return choice

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
            f"records{rows}, in the population from which they are independent draws; the probabilities of "
            "the model are assumed to be right."
        )

    @property
    def _no_intervals(self) -> str:
        return (
            'for intervals fit two classes with mechanism="objective-perturbation-hessian", which releases a '
            "noisy Hessian"
        )


class PrivateSigmoidClassifier(_PrivateLinearClassifier):
    """Linear classifier with the sigmoid loss, a smooth approximation of the 0/1 loss, robust to outliers.

    The loss is not convex: the fit finds an approximate stationary point, not necessarily a minimum. Privacy,
    arguments and attributes: as ``PrivateLogisticRegression``, except that numbers="auto" is "lines", and
    that mechanisms for convex losses only are refused.

    References:
        Wang and Xu (2019).
    """

    _bins_pay = False  # bins were not measured with this loss

    def _loss(self) -> Loss:
        return SigmoidLoss()


class PrivateLinearRegression(LinearRegressor, Summarised):
    """Linear regression under differential privacy; ridge or lasso by ``regularizer``.

    Labels are clipped to the range [low, high]. With ``fit_intercept`` they are centred at the midpoint of
    the range, which is added back to the intercept. Labels around 30 then need no more noise than labels
    around 0, and ``regularizer`` and ``convex_set`` shrink predictions to the midpoint. For residuals larger
    than the width of the range, high - low, the squared loss continues linearly; predictions within the range
    never have such residuals. Without an intercept labels are not centred, and 2 max(|low|, |high|) takes the
    place of the width. Privacy: as ``PrivateLogisticRegression``; the range is public.

    Args:
        label_range: (low, high), in the unit of the labels. None infers it from the labels, which is *not*
            private and emits a ``PrivacyLeakWarning``.
        loss: a loss for real labels such as ``HuberLoss(1.0)`` or ``BiweightLoss()``; None is the squared
            loss.

        max_features: fit on this many columns; the weights of other columns are 0. ``mechanism`` decides how
            columns are chosen. "sufficient-statistics" spends the whole epsilon on one release of noisy
            moments, and takes the best subset by these moments; with a schema all levels of a category are
            one column. "best-subset" and all other mechanisms draw the columns as ``PrivateSubsetSelector``
            does, with half of epsilon, and fit on them with the other half; X is then a dense table, and with
            a schema each level of a category is a separate column. "auto" chooses between these two ways by
            public facts. It draws if ``convex_set``, ``regularizer``, ``loss`` or ``steps`` is set, or if a
            column of the schema has several features, as a category with several levels has. ``data_norm``
            and ``norm`` are as in ``PrivateSubsetSelector`` ("linf" by default); a schema takes their place.
            ``limits`` apply to the draw and to the fit separately.
        errors: "equal", or "robust" for intervals that allow residuals of unequal variance: a fifth of the
            budget (of mu^2) then pays for the moments of residuals, so that every interval is wider by about
            an eighth. Only for sufficient statistics with the squared loss.

    The other arguments and attributes are those of ``PrivateLogisticRegression``; ``coef_`` has shape (d,),
    ``intercept_`` is a float, and predictions stay within ``label_range_``. With ``max_features``,
    ``support_`` is the mask of the chosen features; if they were chosen by noisy moments, ``support_path_``
    has the masks for 1, 2, ... columns, from the same release. Without set or penalty, "auto" takes
    sufficient statistics; it screens features first if there are more than 1,000, or more than 100 that are
    bounded separately (``norm="linf"``).

    Intervals: from the release of sufficient statistics, ``summary`` computes confidence intervals of the
    coefficients of least squares, of their combinations and of mean labels, without further cost. The
    intervals include both the noise and the sampling of the records, are about records *clipped* as the fit
    clips them, and assume that all residuals have the same variance, unless ``errors="robust"``. With
    ``max_features`` there are no intervals: the same records choose the columns, and intervals would ignore
    that choice.
    """

    label_range: tuple[float, float] | None
    loss: Loss | None
    max_features: int | None
    errors: str
    support_: NDArray[np.bool_]

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
        max_features: int | None = None,
        errors: str = "equal",
        steps: int | None = None,
        max_weight: float | None = None,
        person: str | None = None,
        records_per_person: int | str = 1,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
    ) -> None:
        keep_arguments(self, locals())

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model, as ``BoundedFit.fit``; with ``max_features``, on the chosen columns only."""
        self.__dict__.pop("support_", None)
        self.__dict__.pop("support_path_", None)
        if person_of(self) is not None:
            refuse_weights(sample_weight, "person")
            return fit_persons(self, X, y)
        if self.errors not in ("equal", "robust"):
            raise InvalidInputError(f'errors is "equal" or "robust", got {told(self.errors)}')
        if self.max_features is None:
            return super().fit(X, y, sample_weight)
        if self.errors == "robust":
            raise InvalidInputError('with max_features there are no intervals: leave out errors="robust"')
        refuse_weights(sample_weight, "max_features")
        check_limits(self.limits)
        encoding = self._encoding()
        if self.mechanism == SufficientStatistics.name:
            return self._fit_on_moments(X, y, encoding, "it was asked for")
        return self._fit_on_columns(X, y, encoding)

    def plan(self, n_records: int, n_columns: int | None = None) -> LinearPlan:
        """Plan a fit without data, as ``BoundedFit.plan``; ``max_features`` is refused."""
        if self.max_features is not None:
            raise InvalidInputError(
                "plan takes no max_features: SubsetPlan.plan plans the choice of columns, "
                "and plan without max_features the fit on all of them"
            )
        return super().plan(n_records, n_columns)

    def _fit_on_columns(self, X: Any, y: Any, encoding: SchemaFacts | None) -> Self:
        """Fit on columns drawn by the exponential mechanism; "auto" may use ``_fit_on_moments`` instead."""
        if encoding is None:
            norm, bound = checked_norm("linf" if self.norm is None else self.norm), self.data_norm
            given = unread_numbers(self, X, y)
        else:
            norm, bound, given = "linf", encoding.bound, unread_features(self, X, y, encoding)
        assert given.n_columns is not None
        size, reason = checked_size(self.max_features, given.n_columns), "it was asked for"
        if self.mechanism == "auto":
            mu = gaussian_mu(check_epsilon(self.epsilon), public_delta(self.delta, given.n_records))
            moments, reason = by_moments(given.n_columns, size, self.epsilon, mu)
            if moments and self._takes_moments(encoding):
                return self._fit_on_moments(X, y, encoding, reason)
        facts = declared_facts(self, given, norm, bound)
        first, rest = shared_epsilon(self.epsilon, _CHOICE_SHARE)
        plan = SubsetPlan.plan(given.n_columns, size, facts.bounds, epsilon=first)
        plan.check_records(given.n_records)
        warn_if_noise(plan.noise_to_signal(given.n_records))
        choice = SubsetChoice(plan, facts, given, self.limits, self.insecure_seed)
        inner = _OnColumns(**self.get_params(deep=False))
        inner.max_features, inner.label_range, inner.schema = None, facts.label_range, None
        if self.mechanism == SubsetPlan.name:
            inner.mechanism = "auto"
        inner.norm, inner.data_norm = _norm_on_columns(inner.mechanism, facts.bounds, size)
        inner.choice, inner.rest = choice, rest
        inner.fit(choice.chosen())
        self.row_bound_ = (facts.bounds.row, "l2") if norm == "l2" else None
        return self._take_over(inner, choice.mask, encoding)

    def _takes_moments(self, encoding: SchemaFacts | None) -> bool:
        """Return whether noisy moments can fit this model: least squares, with one feature per column."""
        plain = self.convex_set is None and self.regularizer == "none" and self.loss is None
        single = encoding is None or all(stop - start == 1 for start, stop in encoding.schema.spans)
        return plain and single and self.steps is None

    def _fit_on_moments(self, X: Any, y: Any, encoding: SchemaFacts | None, reason: str) -> Self:
        """Fit on the best subset of columns by one release of noisy moments."""
        inner = _OfMoments(**self.get_params(deep=False))
        inner.max_features, inner.mechanism = None, SufficientStatistics.name
        if encoding is not None:
            inner.size = checked_size(self.max_features, len(encoding.schema.spans))
            inner.fit(X, y)
        else:
            given = unread_numbers(self, X, y)
            assert given.n_columns is not None
            inner.size = checked_size(self.max_features, given.n_columns)
            norm = checked_norm("linf" if self.norm is None else self.norm)
            facts = declared_facts(self, given, norm, self.data_norm)
            inner.label_range, inner.norm = facts.label_range, "l2"
            inner.data_norm = _norm_on_columns(inner.mechanism, facts.bounds, given.n_columns)[1]
            inner.fit(given.then(lambda pair: (facts.bounds.cut(pair[0], pair[1])[0], pair[1])))
            inner.row_bound_ = (facts.bounds.row, "l2") if norm == "l2" else None
        names = self.__dict__.get("feature_names_in_")
        self.__dict__.update({name: value for name, value in vars(inner).items() if name.endswith("_")})
        if names is not None:
            self.feature_names_in_ = names
        supports = inner.releases_[0].supports
        self.support_path_, self.support_ = supports.masks, supports.masks[-1]
        self.mechanism_reason_, self.inference_, self.coefficients_ = reason, None, None
        return self

    def _encoding(self) -> SchemaFacts | None:
        """Return the facts of the schema for a fit with ``max_features``; None without a schema."""
        if self.schema is None:
            return None
        if self.data_norm is not None or self.norm is not None:
            raise InvalidInputError(
                "max_features takes the bounds of columns from the schema: leave out data_norm and norm"
            )
        return schema_facts(
            declared_schema(self.schema), bool(self.fit_intercept) and self.convex_set is None
        )

    def _take_over(self, inner: _OnColumns, mask: NDArray[np.bool_], encoding: SchemaFacts | None) -> Self:
        """Set the fitted attributes from ``inner``, a fit on the columns of ``mask``."""
        self.support_, self.inference_, self.coefficients_ = mask, None, None
        for name in ("releases_", "noise_", "mechanism_", "mechanism_reason_", "label_range_"):
            setattr(self, name, getattr(inner, name))
        self.schema_ = None if encoding is None else encoding.schema
        coef = np.zeros((1, len(mask)))
        coef[0, mask] = inner.coef_
        shift = 0.0 if encoding is None else float(coef[0] @ encoding.middle)
        return self._set(coef, np.array([inner.intercept_ - shift]), inner.spend_)

    def _targets_of(self, y: ArrayLike, n_rows: int) -> Targets:
        labels = self._labels(y, n_rows)
        facts, bound = self._range_facts(labels)
        # Clip again, as the subtraction may round beyond the bound.
        assert facts.label_range is not None
        shifted = np.clip(np.clip(labels, *facts.label_range) - facts.centre, -bound, bound)
        return facts._replace(labels=[shifted])

    def _declared_targets(self) -> Targets:
        return self._range_facts(np.zeros(0))[0]

    def _range_facts(self, labels: Floats) -> tuple[Targets, float]:
        """Return loss, centre and label range, and a bound on centred labels; infer an undeclared range."""
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

    def _inference(self) -> tuple[LinearInference, Coefficients]:
        if "support_" in self.__dict__:
            raise InvalidInputError(
                "this model has no intervals: the same records chose its columns, and intervals for given "
                "columns ignore that choice. To do: choose columns with PrivateSubsetSelector on some of the "
                "records, and fit without max_features on the others"
            )
        return super()._inference()

    def _planned(
        self, choice: Choice, seen: Outline, schema: Schema | None, epsilon: float, carried: Floats | None
    ) -> RiskMechanism:
        plan = super()._planned(choice, seen, schema, epsilon, carried)
        if self.errors != "robust":
            return plan
        if not isinstance(plan, SufficientStatistics):
            raise InvalidInputError(f'errors="robust" needs sufficient-statistics, and not {plan.name}')
        return plan.with_residuals()

    def _released_inference(self, releases: list[RealRelease]) -> LeastSquares | None:
        moments, spread = releases[0].moments, releases[0].spread
        if moments is None:
            return None
        return LeastSquares(moments) if spread is None else RobustLeastSquares(moments, spread)

    @classmethod
    def _saved_inference(cls, record: Mapping[str, Any]) -> LeastSquares:
        return (RobustLeastSquares if "spread" in record else LeastSquares).from_dict(record)

    @property
    def _about(self) -> str:
        low, high = self.label_range_ or (-math.inf, math.inf)
        rows = "" if self.row_bound_ is None else f" and rows to norm {self.row_bound_[0]:g}"
        return (
            f"About least squares on records with labels clipped to {low:g} to {high:g}{rows}, in the "
            "population from which they are independent draws."
        )

    @property
    def _no_intervals(self) -> str:
        return (
            'for intervals fit with mechanism="sufficient-statistics" and the squared loss, without '
            "max_features; files of earlier versions do not hold the moments that intervals need"
        )

    @by_parts
    def predict(self, X: Any) -> Floats:
        """Return predictions, shape (n,), clipped to the label range."""
        predicted = self._scores(X)[:, 0]
        return predicted if self.label_range_ is None else np.clip(predicted, *self.label_range_)


class _OfMoments(PrivateLinearRegression):
    """Linear regression on the best subset of ``size`` columns, chosen by noisy moments."""

    size: int

    def _planned(
        self, choice: Choice, seen: Outline, schema: Schema | None, epsilon: float, carried: Floats | None
    ) -> RiskMechanism:
        plan = super()._planned(choice, seen, schema, epsilon, carried)
        assert isinstance(plan, SufficientStatistics)
        spans = tuple((j, j + 1) for j in range(seen.columns)) if schema is None else schema.spans
        return SubsetStatistics.of(plan, self.size, spans)


class _OnColumns(PrivateLinearRegression):
    """Linear regression on columns that are drawn when the records are read; the spend includes the draw."""

    choice: SubsetChoice
    rest: float

    def _class_weights(self, targets: Targets, epsilon: float) -> ClassWeights:
        return _AfterChoice(np.ones(1), None, epsilon, self.rest, self.choice)


@dataclass(frozen=True)
class _AfterChoice(ClassWeights):
    """Equal class weights, with the epsilon that is left after a choice of columns."""

    choice: SubsetChoice

    def whole(self, spend: PrivacySpend) -> PrivacySpend:
        return self.choice.whole(spend, self.epsilon)


def _norm_on_columns(mechanism: str | type[Any], bounds: SubsetBounds, size: int) -> tuple[RowNorm, float]:
    """Return the norm on which a mechanism's noise depends, and its bound for rows of ``size`` columns."""
    if natural_norm(mechanism) == "linf" and math.isfinite(bounds.feature):
        return "linf", bounds.feature
    return "l2", min(bounds.row, bounds.feature * math.sqrt(size)) * (1 + 1e-12)
