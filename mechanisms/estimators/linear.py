"""Private linear models in scikit-learn's conventions: logistic, sigmoid, linear (ridge, lasso) regression.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import json
import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import norm as sparse_norm
from scipy.special import expit
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import Tags, assert_all_finite, check_array
from sklearn.utils.validation import check_is_fitted, column_or_1d

import privopt.mechanisms.nonconvex.registry  # noqa: F401 - so that its mechanisms are known by name
from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.mechanism import RiskMechanism
from privopt.mechanisms.convex.registry import Choice, choose_risk_mechanism, parse_regularizer, parse_set
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.estimators.common import (
    ScoredClassifier,
    as_table,
    booked,
    by_parts,
    check_given,
    check_limits,
    check_no_text,
    check_whole_model,
    checked_labels,
    class_indices,
    counted_here,
    counted_records,
    declared_schema,
    integer_features,
    keep_arguments,
    leak,
    public_classes,
    public_delta,
    read_model,
    validated,
    without_values,
    write_atomically,
)
from privopt.mechanisms.estimators.weights import ClassWeights
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_epsilon, check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.limits import Limits
from privopt.problems.arguments import check_type, check_unmasked, record_counts, tallied, told
from privopt.problems.convex.losses import Labels, LogisticLoss, Loss, SigmoidLoss, SquaredLoss, WeightedLoss
from privopt.problems.convex.partitioned import PartitionedRisk, PartRisk
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.parts import Parts, Whole
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.partitions import computed, is_dask, parts_of
from privopt.problems.tables.schema import Schema, Table

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

_MODEL_FORMAT = "privopt-linear/1"

Floats = NDArray[np.float64]


class Targets(NamedTuple):
    """What is fitted: label vectors, one per release, for a loss; ``centre`` is added to predictions."""

    labels: list[Floats]
    loss: Loss
    classes: NDArray[Any] | None = None
    centre: float = 0.0
    label_range: tuple[float, float] | None = None
    number: NDArray[np.int64] | None = None  # of each record's class

    def weighted(self, weights: Floats | None) -> Targets:
        """Labels that carry the weights of their classes, shape (K,), where those differ."""
        if self.number is None or weights is None or np.all(weights == weights[0]):
            return self
        carried = weights[self.number]
        loss = WeightedLoss(self.loss, float(np.max(weights)))
        return self._replace(labels=[carried * y for y in self.labels], loss=loss)


class Prepared(NamedTuple):
    """Records of a table, or of a part of it, as a fit wants them.

    Features end with the constant one, if there is one, which is not among the ``columns``. They, the label
    vectors and the counts are private; ``middle`` and ``bound`` are where rows are measured from, and how far
    away they may be.
    """

    features: Any
    targets: Targets
    counts: NDArray[np.int64] | None
    columns: int
    names: tuple[str, ...]
    middle: Floats | None
    bound: float


class Outline(NamedTuple):
    """What a plan needs to know of records: targets without labels, and how many records each class has."""

    records: int
    releases: int
    held: NDArray[np.int64] | None
    targets: Targets
    columns: int
    names: tuple[str, ...]
    middle: Floats | None
    bound: float


class PrivateLinearModel(BaseEstimator):  # type: ignore[misc]
    """Fitting, one release per target vector, and files; subclasses say what targets and losses are."""

    epsilon: float
    delta: float | str
    mechanism: str
    schema: Schema | dict[str, Any] | str | Path | None
    data_norm: float | None
    norm: RowNorm
    convex_set: ConvexSet | str | None
    regularizer: ElasticNet | str
    fit_intercept: bool
    steps: int | None
    limits: Limits | None
    ledger: Ledger | str | Path | None
    insecure_seed: int | None
    schema_: Schema | None
    label_range_: tuple[float, float] | None
    coef_: Any
    intercept_: Any
    alike: bool = False  # whether a row's score depends on that row alone, to the last bit
    row_bound_: tuple[float, RowNorm] | None = None  # a declared norm, to which predictions shorten rows too

    @abstractmethod
    def _targets_of(self, y: ArrayLike, n_rows: int) -> Targets:
        """What the labels, shape (n,), ask for."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Choose the weights.

        Args:
            X: records, shape (n, d): an array, a data frame of numbers, or a scipy.sparse matrix, which is
                never densified. With a schema, a table with its columns. With declared classes too, an Ibis
                table, which its engine groups: only counts come back; or ``CountedRecords``. A Dask array or
                data frame, whose partitions are added up where they are, and, where all public facts are
                declared, a memory-mapped file, which is read in blocks.
            y: labels, shape (n,), for Dask a collection with the partitions of X; of an Ibis table the name
                of the label column; of counted records None.

        Raises:
            InvalidInputError: unusable data (a ``ValueError``); nothing was released.
            PrivacyParameterError: epsilon, delta, or a mechanism that does not fit loss, set and penalty.
            BudgetExceededError: the ledger refused; nothing was run.
            LostPartsError: the cluster that holds the records gave up; nothing was released, and what the
                ledger reserved stays spent.
            OracleError: a limit was reached, or, for the perturbation mechanisms, there is no certified
                minimum; nothing was released, and what the ledger reserved stays spent.
        """
        check_limits(self.limits)
        check_type(self.fit_intercept, bool | np.bool_, "fit_intercept must be True or False")
        if not isinstance(self.norm, str) or self.norm not in ("l2", "linf"):
            raise InvalidInputError(f'norm must be "l2" or "linf", got {told(self.norm)}')
        schema = None if self.schema is None else declared_schema(self.schema)
        table = self._parts(X, y, schema)
        seen = _seen(table)
        n, d, middle = seen.records, seen.columns, seen.middle
        if n < 2:
            raise InvalidInputError("n_samples = 1: a private fit needs at least 2 records")
        self.n_features_in_ = d
        self.__dict__.pop("feature_names_in_", None)
        if seen.names:
            self.feature_names_in_ = np.array(seen.names, dtype=object)
        targets, bound = seen.targets, seen.bound
        weights = self._class_weights(targets, check_epsilon(self.epsilon))
        carried = weights.known
        given = schema is not None and schema.intercept  # the schema's own constant
        constant = self.fit_intercept and not given
        facts = _risk_facts(n, d, targets.weighted(carried).loss, bound, self.norm, constant)
        if given and bound >= 1:
            facts = replace(facts, constant=1.0)
        feature, delta = _constant(bound, self.norm), public_delta(self.delta, n)
        # Features that are measured from their middle are read as the columns that they come from.
        measured = middle is not None and facts.constant > 0
        columns = Columns.of(schema) if schema is not None and measured else None
        # The plan is complete before a private number has entered it.
        choice, plan = self._planned(facts, weights.rest, delta, seen.releases, columns)
        if not (plan.by_sums or isinstance(table, Whole)):
            raise InvalidInputError(
                f"{plan.name} picks records one by one, which a table in parts does not give: use "
                'mechanism="auto", dp-gd or objective-perturbation, say, or a table in memory'
            )
        source = NoiseSource(self.insecure_seed)
        note = f"one-vs-rest: {plan.spend.note}" if seen.releases > 1 else plan.spend.note
        spend = weights.whole(replace(plan.spend, insecure_seed=source.insecure_seed, note=note))
        with booked(self.ledger, spend):
            clock = (self.limits or Limits()).start()
            if weights.plan is not None and seen.held is not None:
                # The same budget again, for weights that were released first.
                carried = weights.release(seen.held, source)
                facts = replace(facts, loss=targets.weighted(carried).loss)
                choice, plan = self._planned(facts, weights.rest, delta, seen.releases, columns)
            risks = (_risk(table, k, carried, facts) for k in range(seen.releases))
            releases = [plan.release(risk, source, limits=clock.rest) for risk in risks]
        self.releases_ = releases
        self.noise_ = {**plan.noise, "steps": plan.steps}
        self.mechanism_, self.mechanism_reason_ = plan.name, choice.reason
        if targets.classes is not None:
            self.classes_ = targets.classes
        self.label_range_ = targets.label_range
        points = np.stack([release.point for release in releases])
        coef, intercept = points[:, :d], points[:, d] * feature if constant else np.zeros(len(points))
        if middle is not None:
            shift = coef @ middle
            if given:
                coef[:, -1] -= shift
            else:
                intercept = intercept - shift
        self.schema_ = schema
        self.row_bound_ = None if self.data_norm is None else (bound, self.norm)
        return self._set(coef, intercept + targets.centre, spend)

    def _parts(self, X: Any, y: Any, schema: Schema | None) -> Parts:
        """The table as ``Prepared``: one of them in memory, otherwise one for each of its parts."""
        classes = getattr(self, "classes", None)
        counted = counted_records(X, y, schema, classes) or counted_here(X, y, schema, classes)
        undeclared = {
            "schema or data_norm": schema is None and self.data_norm is None,
            "classes": getattr(self, "classes", ()) is None,
            "label_range": getattr(self, "label_range", ()) is None,
        }
        # Without those facts a file is read as a table in memory is, and the same is warned of.
        lying = counted is None and (is_dask(X) or is_dask(y) or not any(undeclared.values()))
        columns = [column.name for column in schema.columns] if schema is not None else []
        parts = parts_of(X, y, columns) if lying else None
        if parts is None:
            return Whole(self._prepared(X if counted is None else counted, y, schema))
        if any(undeclared.values()):
            lacking = " and ".join(name for name, is_lacking in undeclared.items() if is_lacking)
            raise InvalidInputError(f"declare {lacking}: nothing is read off a table that lies in parts")
        own = {"ledger": None, "limits": None, "schema": None}  # what stays here
        worker = type(self)(**{**self.get_params(deep=False), **own})
        return parts.made(partial(_prepared_part, worker=worker, schema=schema))

    def _prepared(self, X: Any, y: Any, schema: Schema | None, part: bool = False) -> Prepared:
        """Records in memory as a fit wants them.

        Those of a ``part`` are as they came: its risk shortens them, and has the constant feature without a
        column. Whether they are finite is for ``_outline_of_part`` to see.
        """
        counts = None
        if isinstance(X, CountedRecords):
            y, counts = X.labels, X.counts
        X = as_table(X) if schema is None else encoded(schema, X)
        X = validated(
            *(self, X), accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=not part
        )
        rows, d = X.shape
        targets = self._targets_of(y, rows)
        middle, bound = self._public_norm(X, schema)
        if middle is not None:
            X -= middle  # of the encoded table, which is our own
        if self.data_norm is not None and not part:
            X = shortened(X, bound, self.norm)
        if not part and self.fit_intercept and not (schema is not None and schema.intercept):
            X = _with_constant(X, _constant(bound, self.norm))
        names = tuple(getattr(self, "feature_names_in_", ()))
        return Prepared(X, targets, counts, d, names, middle, bound)

    def _class_weights(self, targets: Targets, epsilon: float) -> ClassWeights:
        """How records are weighted, and what of epsilon that takes: all alike, and nothing."""
        return ClassWeights(np.ones(1), None, epsilon, epsilon)

    def _planned(
        self, facts: RiskFacts, epsilon: float, delta: float, releases: int, columns: Columns | None
    ) -> tuple[Choice, RiskMechanism]:
        choice = self._choice(facts, gaussian_mu(epsilon, delta) / math.sqrt(releases))
        plan = choice.plan(facts, epsilon=epsilon, delta=delta, steps=self.steps, releases=releases)
        return choice, replace(plan, columns=columns) if isinstance(plan, SufficientStatistics) else plan

    def _public_norm(self, X: Any, schema: Schema | None) -> tuple[Floats | None, float]:
        """Where rows are measured from, None for 0, and a bound on their norm from there.

        A schema tells the middle of each column: rows are nearer to it than to 0, by up to half, which the
        noise follows. With an intercept the model is the same; a set is for the weights from 0.
        """
        if self.data_norm is not None:
            return None, check_positive(self.data_norm, "data_norm")
        if schema is not None:
            if self.norm == "l2" and self.convex_set is None and (self.fit_intercept or schema.intercept):
                return schema.middle, schema.spread
            return None, schema_norm(schema, self.norm)
        leak("data_norm, the bound on row norms, was read off the data, which is not private; declare it")
        norms = sparse_norm if sp.issparse(X) else np.linalg.norm
        largest = float(np.max(norms(X, np.inf if self.norm == "linf" else 2, axis=1)))
        return None, largest or 1.0

    def _choice(self, facts: RiskFacts, mu: float) -> Choice:
        space, penalty = self.convex_set, self.regularizer
        if isinstance(space, str):
            space = parse_set(space, facts.dimension)
        if isinstance(penalty, str):
            penalty = parse_regularizer(penalty)
        if not isinstance(penalty, ElasticNet):
            raise InvalidInputError(
                f'a regularizer is text such as "l2:0.1" or an ElasticNet, got {told(penalty)}'
            )
        if not isinstance(space, ConvexSet | None):
            raise InvalidInputError(
                f'convex_set must be text such as "l2:1" or a ConvexSet, got {told(space)}'
            )
        return choose_risk_mechanism(self.mechanism, facts, space, penalty, mu=mu)

    def _set(self, coef: Floats, intercept: Floats, spend: PrivacySpend) -> Self:
        self.coef_, self.intercept_, self.spend_ = coef, intercept, spend
        return self

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self)
        alike = self.alike or isinstance(X, CountedRecords)
        X = as_table(X) if self.schema_ is None else encoded(self.schema_, X)
        X = validated(
            self,
            X,
            reset=False,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=self.schema_ is None,  # a file without records has no predictions
        )
        if self.row_bound_ is not None:
            X = shortened(X, *self.row_bound_)
        weights = self.coef_.reshape(-1, X.shape[1]).T
        products = _term_by_term(X, weights) if alike and not sp.issparse(X) else X @ weights
        return np.asarray(products + self.intercept_, dtype=np.float64)

    def save(self, path: str | Path) -> None:
        """Write the model as JSON: weights, schema, classes and spend. Nothing that is not private."""
        write_atomically(path, json.dumps(self.to_dict(), indent=2) + "\n")

    def to_dict(self) -> dict[str, Any]:
        """What ``save`` writes."""
        check_is_fitted(self)
        return {
            "format": _MODEL_FORMAT,
            "estimator": type(self).__name__,
            "mechanism": self.mechanism_,
            "noise": dict(self.noise_),
            "spend": self.spend_.to_dict(),
            "classes": self.classes_.tolist() if hasattr(self, "classes_") else None,
            "weights": np.atleast_2d(self.coef_).tolist(),
            "intercept": np.atleast_1d(self.intercept_).tolist(),
            **({} if self.label_range_ is None else {"label_range": list(self.label_range_)}),
            **({} if self.row_bound_ is None else {"rows": list(self.row_bound_)}),
            **({} if self.schema_ is None else {"schema": self.schema_.to_dict()}),
            **({"columns": self._columns} if self._columns else {}),
        }

    @property
    def _columns(self) -> list[str]:
        """The names of the columns where no schema has them."""
        return [] if self.schema_ is not None else list(getattr(self, "feature_names_in_", []))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a model written by ``save``; it predicts, and knows its spend.

        Raises:
            InvalidInputError: not such a file, or another estimator's.
        """
        model = read_model(path, _MODEL_FORMAT)
        try:
            return cls.from_dict(model)
        except (KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
            what = str(error) if isinstance(error, PrivOptError) else type(error).__name__
            raise InvalidInputError(f"{path} is not a saved {cls.__name__}: {what}") from error

    @classmethod
    def from_dict(cls, model: dict[str, Any]) -> Self:
        """Read ``to_dict`` back. Raises ValueError, TypeError or KeyError for anything else."""
        if model["format"] != _MODEL_FORMAT or model["estimator"] != cls.__name__:
            raise InvalidInputError(f"it holds {model['format']!r} of a {model.get('estimator')!r}")
        spend = PrivacySpend.from_dict(model["spend"])
        coef, intercept = np.array(model["weights"], dtype=float), np.array(model["intercept"], dtype=float)
        if (
            coef.ndim != 2
            or intercept.shape != coef.shape[:1]
            or not np.all(np.isfinite([*coef.flat, *intercept]))
        ):
            raise InvalidInputError("weights and intercepts must be finite numbers that fit together")
        schema = Schema.from_dict(model["schema"]) if "schema" in model else None
        if schema is not None and schema.n_features != coef.shape[1]:
            raise InvalidInputError(f"{coef.shape[1]} weights for {schema.n_features} features")
        fitted = cls(spend.epsilon, mechanism=model["mechanism"], schema=schema)
        fitted.schema_ = schema
        if model["classes"] is not None:
            fitted.classes_ = distinct_classes(model["classes"], np.array([]))
            releases = 1 if len(fitted.classes_) == 2 else len(fitted.classes_)
            if len(coef) != releases:
                raise InvalidInputError(f"{len(coef)} rows of weights for {len(fitted.classes_)} classes")
        given = model.get("label_range")  # files of earlier versions have none
        fitted.label_range_ = None if given is None else check_label_range(given)
        if "rows" in model:
            size, norm = model["rows"]
            if norm not in ("l2", "linf"):
                raise InvalidInputError(f"{told(norm)} is no norm of rows")
            fitted.row_bound_ = check_positive(size, "the norm of rows"), norm
        fitted.n_features_in_ = coef.shape[1]
        if "columns" in model:
            fitted.feature_names_in_ = np.array(
                _checked_columns(model["columns"], coef.shape[1]), dtype=object
            )
        fitted.noise_ = dict(model["noise"])
        fitted.mechanism_, fitted.mechanism_reason_ = model["mechanism"], "it was saved"
        fitted._set(coef, intercept, spend)
        check_whole_model(model, fitted.to_dict(), "the file")
        return fitted

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True  # noise from the operating system: two fits differ
        return tags


class LinearClassifier(ScoredClassifier, PrivateLinearModel):
    """Predictions by the largest score."""

    classes: Sequence[Any] | None

    def _class_targets(self, y: ArrayLike, n_rows: int, loss: Loss) -> Targets:
        """Labels -1 and +1, shape (n,): two classes are one release, more a release per class."""
        labels = checked_labels(y, n_rows)
        classes = distinct_classes(self.classes, labels)
        index = class_indices(labels, classes)
        positive = range(1, 2) if len(classes) == 2 else range(len(classes))
        signed = [np.where(index == k, 1.0, -1.0) for k in positive]
        return Targets(signed, loss, classes, number=np.asarray(index, dtype=np.int64))

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
        mechanism: str = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        data_norm: float | None = None,
        norm: RowNorm = "l2",
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
        mechanism: "auto" or a name of ``privopt.mechanisms.convex.registry.RISK_MECHANISMS``;
            ``mechanism_reason_`` tells why, and which set it was given where it needed one; ``noise_`` which
            penalty.
        schema: a ``Schema``, a dict, or a path to a TOML or JSON file: X is then a table with its columns, in
            ``fit`` and in ``predict``. None: X holds numbers. With an intercept, and without set or
            ``data_norm``, rows are measured from the middle of the declared columns: less noise, the same
            models; ``releases_`` holds weights of such rows.
        data_norm: bound R on the norm of rows; longer ones are shortened to it, in predictions as well. None
            is what the schema implies; without a schema it reads the norm off the data, which is *not*
            private: a ``PrivacyLeakWarning`` says so.
        norm: the norm that R bounds, "l2" or "linf" (for l1 balls).
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
        ledger: a ``Ledger``, its path or URL: the spend is booked before the release runs; no overdrafts.
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
        mechanism: str = "auto",
        schema: Schema | dict[str, Any] | str | Path | None = None,
        data_norm: float | None = None,
        norm: RowNorm = "l2",
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
        # The second time for what the subtraction rounds up.
        shifted = np.clip(np.clip(labels, low, high) - centre, -bound, bound)
        return Targets([shifted], loss, centre=centre, label_range=(low, high))

    @by_parts
    def predict(self, X: Any) -> Floats:
        """Predictions, shape (n,): within the range that labels were clipped to."""
        predicted = self._scores(X)[:, 0]
        return predicted if self.label_range_ is None else np.clip(predicted, *self.label_range_)


def check_label_range(label_range: object) -> tuple[float, float]:
    """(low, high) as floats.

    Raises:
        InvalidInputError: not two finite numbers, or low is not below high.
    """
    try:
        if isinstance(label_range, str):
            raise TypeError("text")
        low, high = (float(bound) for bound in label_range)  # type: ignore[attr-defined]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"label_range is two numbers (low, high) that labels are clipped to, got {told(label_range)}"
        ) from error
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidInputError(f"label_range needs finite low < high, got low = {low:g} and high = {high:g}")
    return low, high


def _prepared_part(pair: tuple[Any, Any], worker: PrivateLinearModel, schema: Schema | None) -> Prepared:
    """A part of a table, where it lies. The estimator holds public facts alone."""
    return worker._prepared(*pair, schema, part=True)


def _outline(part: Prepared) -> Outline:
    rows = part.features.shape[0]
    counts, targets = record_counts(part.counts, rows), part.targets
    held, number = None, targets.number
    if number is not None and targets.classes is not None:
        held = tallied(number, counts, len(targets.classes))
        number = number[:0].copy()  # a view would keep all of them
    facts = targets._replace(labels=[], number=number)
    return Outline(int(np.sum(counts)), len(targets.labels), held, facts, *part[3:])


def _outline_of_part(part: Prepared) -> Outline:
    """The outline of a part, which is finite.

    Raises:
        InvalidInputError: it is not.
    """
    try:
        assert_all_finite(part.features, input_name="X")
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None
    return _outline(part)


def _together(parts: list[Outline]) -> Outline:
    """All parts at once.

    Raises:
        InvalidInputError: no records, or parts with other columns than the first.
    """
    if not parts:
        raise InvalidInputError("no records: at least one row is needed")
    first = parts[0]
    if any(part.columns != first.columns or part.names != first.names for part in parts):
        raise InvalidInputError("partitions differ in their columns")
    held = None if first.held is None else np.sum(np.array([part.held for part in parts]), axis=0)
    return first._replace(records=sum(part.records for part in parts), held=held)


def _seen(table: Parts) -> Outline:
    return _together(table.each(_outline if isinstance(table, Whole) else _outline_of_part))


def risk_of_table(model: PrivateLinearModel, X: Any, y: Any) -> EmpiricalRisk:
    """The risk that ``fit`` would minimise, of the first label vector, unweighted. Not private."""
    schema = None if model.schema is None else declared_schema(model.schema)
    table = model._parts(X, y, schema)
    seen = _seen(table)
    constant = model.fit_intercept and not (schema is not None and schema.intercept)
    facts = _risk_facts(seen.records, seen.columns, seen.targets.loss, seen.bound, model.norm, constant)
    return _risk(table, 0, None, facts)


def _risk(table: Parts, number: int, weights: Floats | None, facts: RiskFacts) -> EmpiricalRisk:
    """The risk of one label vector."""
    task = _risk_of if isinstance(table, Whole) else _risk_of_part
    risks = table.made(partial(task, number=number, weights=weights, facts=facts))
    return risks.part if isinstance(risks, Whole) else PartitionedRisk(risks, facts)


def _risk_of(part: Prepared, number: int, weights: Floats | None, facts: RiskFacts) -> EmpiricalRisk:
    return EmpiricalRisk(
        *(part.features, part.targets.weighted(weights).labels[number], facts.loss),
        row_norm=facts.row_norm,
        norm=facts.norm,
        constant=facts.constant,
        counts=part.counts,
    )


def _risk_of_part(part: Prepared, number: int, weights: Floats | None, facts: RiskFacts) -> PartRisk:
    return PartRisk(part.features, part.targets.weighted(weights).labels[number], facts, part.bound)


def encoded(schema: Schema, table: Table | CountedRecords) -> Floats:
    """The features of a table as floats, shape (n, d)."""
    features = integer_features(schema, table)
    return np.asarray(features.X / features.denominator, dtype=np.float64)


def shortened(X: Any, bound: float, norm: RowNorm) -> Any:
    """Rows longer than ``bound`` scaled down to it, all others as they are.

    Raises:
        InvalidInputError: a row whose norm overflows.
    """
    norms = (sparse_norm if sp.issparse(X) else np.linalg.norm)(X, np.inf if norm == "linf" else 2, axis=1)
    if not np.all(np.isfinite(norms)):
        raise InvalidInputError("a row is too long to be shortened to data_norm: clip the columns first")
    if not np.any(norms > bound):
        return X
    scale = (bound / np.maximum(norms, bound)).astype(X.dtype)
    if not sp.issparse(X):
        return X * scale[:, None]
    diagonal: Any = sp.diags_array(scale)
    return (diagonal @ X).tocsr()


def schema_norm(schema: Schema, norm: RowNorm = "l2") -> float:
    """A bound on the norm of every row that a schema can encode. Public."""
    if norm == "linf":
        return max([float(column.reach) for column in schema.columns] + [1.0] * schema.intercept)
    squares = sum(float(column.reach) ** 2 for column in schema.columns)  # one-hots: one level at a time
    return math.sqrt(squares + schema.intercept)


def _checked_columns(columns: object, d: int) -> list[str]:
    if not isinstance(columns, list) or len(columns) != d or not all(isinstance(c, str) for c in columns):
        raise InvalidInputError(f"columns must be {d} names")
    return columns


def distinct_classes(declared: Sequence[Any] | None, labels: NDArray[Any]) -> NDArray[Any]:
    """Two classes or more, as ``public_classes`` has them.

    Raises:
        InvalidInputError: fewer, or one twice.
    """
    classes = public_classes(declared, labels)
    if len(classes) < 2:
        raise InvalidInputError(f"at least 2 classes are needed, got {classes.size} class(es)")
    if len(np.unique(classes)) != len(classes):
        raise InvalidInputError(f"classes must differ, got {', '.join(map(repr, classes.tolist()))}")
    return classes


def real_labels(y: ArrayLike) -> Floats:
    check_given(y)
    check_unmasked(y, "y")
    try:
        check_no_text(y, "y")
        checked = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        return np.asarray(column_or_1d(checked, warn=True))
    except (TypeError, ValueError, OverflowError) as error:
        if not isinstance(error, ValueError) or "text where numbers" in str(error):
            raise InvalidInputError(
                "y holds labels that are not numbers: regression needs numbers; for classes use the logistic "
                "or the sigmoid loss"
            ) from None
        raise InvalidInputError(without_values(error)) from None


def _risk_facts(n: int, d: int, loss: Loss, bound: float, norm: RowNorm, intercept: bool) -> RiskFacts:
    """Public facts of the rows, with the constant feature if there is one."""
    extended = math.hypot(bound, _constant(bound, norm)) if intercept and norm == "l2" else bound
    return RiskFacts(n, d + intercept, loss, extended, norm, _constant(bound, norm) if intercept else 0.0)


def _term_by_term(X: Floats, weights: Floats) -> Floats:
    """X @ weights, each entry alike wherever its row stands: a product by BLAS may not be.

    Rows of a neighbour may stand elsewhere, as rows of counted records do, which stand for many, and rows in
    partitions; and an evaluation asks on which side of an edge they are.
    """
    total = np.zeros((len(X), weights.shape[1]))
    for column, weight in zip(X.T, weights, strict=True):
        total += column[:, None] * weight
    return total


def _constant(bound: float, norm: RowNorm) -> float:
    """The feature that carries the intercept. Free under linf; under l2 half the bound, so that it adds 12%
    to every gradient's bound, and so to the noise, and an intercept is still within easy reach.
    """
    return bound if norm == "linf" else bound / 2


def _with_constant(X: Any, constant: float) -> Any:
    column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
    stack: Any = sp.hstack if sp.issparse(X) else np.hstack
    return stack([X, column])
