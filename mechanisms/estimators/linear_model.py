"""Base class of private linear models: targets, scores, saving and loading.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.booked_estimator import BookedEstimator
from privopt.mechanisms.estimators.counting import codes_of, encoded
from privopt.mechanisms.estimators.labels import check_label_range, distinct_classes
from privopt.mechanisms.estimators.linear_plan import LinearPlan
from privopt.mechanisms.estimators.persons import (
    person_of,
    plan_of_persons,
    with_two_classes,
    without_person,
)
from privopt.mechanisms.estimators.prepared import (
    Targets,
    shortened,
)
from privopt.mechanisms.estimators.saved import SavedModel
from privopt.mechanisms.estimators.validation import as_table, validated
from privopt.mechanisms.privacy.parameters import check_positive
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.limits import Limits
from privopt.problems.arguments import check_type, told
from privopt.problems.arrays import term_by_term
from privopt.problems.convex.risk import RowNorm
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]


class PrivateLinearModel(BookedEstimator, SavedModel, BaseEstimator):  # type: ignore[misc]
    """Base class of private linear models; subclasses define targets and fits."""

    epsilon: float
    delta: float | str
    mechanism: str | type[Any]
    schema: Schema | dict[str, Any] | str | Path | None
    steps: int | None
    limits: Limits | None
    insecure_seed: int | None
    schema_: Schema | None
    label_range_: tuple[float, float] | None
    coef_: Any
    intercept_: Any
    alike: bool = False  # whether the score of a row is bitwise independent of the other rows
    multinomial_: bool = False  # whether scores are log odds of one model of all classes, not one-vs-rest
    row_bound_: tuple[float, RowNorm] | None = None  # declared bound, enforced in predictions too

    file_format = "privopt-linear/1"

    def plan(self, n_records: int, n_columns: int | None = None) -> LinearPlan:
        """Plan a fit without data, for ``n_records`` records or, with ``person``, for as many persons.

        With ``max_weight`` the plan is for a fit with ``sample_weight``. Without ``classes`` it is for two
        classes.

        Args:
            n_records: n, public.
            n_columns: d, public; needed without a schema.

        Raises:
            InvalidInputError: a public fact that a plan needs is not declared.
            PrivOptError: an argument that ``fit`` would refuse before it reads records.
        """
        if person_of(self) is not None:
            whole: LinearPlan = plan_of_persons(self, n_records, n_columns)
            return whole
        declared: Self = with_two_classes(self)
        return declared._plan_of_records(n_records, n_columns)

    @abstractmethod
    def _plan_of_records(self, n_records: int, n_columns: int | None) -> LinearPlan:
        """Return the plan of a fit to records with declared classes; arguments and errors as for ``plan``."""

    @abstractmethod
    def _targets_of(self, y: ArrayLike, n_rows: int) -> Targets:
        """Return the targets of labels of shape (n,)."""

    @abstractmethod
    def _declared_targets(self) -> Targets:
        """Return the targets from declared facts, without label vectors."""

    def _keep(
        self, releases: list[Any], plan: Any, reason: str, targets: Targets, schema: Schema | None
    ) -> None:
        """Set the fitted attributes, except for weights and spend."""
        self.releases_ = releases
        self.noise_ = {**plan.noise, "steps": getattr(plan, "steps", 1)}
        self.mechanism_, self.mechanism_reason_ = plan.name, reason
        if targets.classes is not None:
            self.classes_ = targets.classes
        self.label_range_, self.schema_ = targets.label_range, schema

    def _set(self, coef: Floats, intercept: Floats, spend: PrivacySpend) -> Self:
        self.coef_, self.intercept_, self.spend_ = coef, intercept, spend
        return self

    def _features(self, X: Any) -> Any:
        """Return encoded records, scaled down to the declared norm bound."""
        X = without_person(self, as_table(X)) if self.schema_ is None else encoded(self.schema_, X)
        X = validated(
            self,
            X,
            reset=False,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=self.schema_ is None,  # with a schema, a file without records is accepted
        )
        if self.row_bound_ is not None:
            X = shortened(X, *self.row_bound_)
        return X

    def _scores(self, X: Any) -> Floats:
        check_is_fitted(self)
        weights = np.atleast_2d(self.coef_).T
        if self.schema_ is not None and self.row_bound_ is None:
            products = self.schema_.products(codes_of(self.schema_, X), weights)
        else:
            alike = self.alike or isinstance(X, CountedRecords)
            X = self._features(X)
            products = term_by_term(X, weights) if alike and not sp.issparse(X) else X @ weights
        return np.asarray(products + self.intercept_, dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return the dictionary that ``save`` writes."""
        check_is_fitted(self)
        return {
            "format": self.file_format,
            "estimator": type(self).__name__,
            "mechanism": self.mechanism_,
            "noise": dict(self.noise_),
            "spend": self.spend_.to_dict(),
            "classes": self.classes_.tolist() if hasattr(self, "classes_") else None,
            "weights": np.atleast_2d(self.coef_).tolist(),
            "intercept": np.atleast_1d(self.intercept_).tolist(),
            **({"multinomial": True} if self.multinomial_ else {}),
            **({} if self.label_range_ is None else {"label_range": list(self.label_range_)}),
            **({} if self.row_bound_ is None else {"rows": list(self.row_bound_)}),
            **({} if self.schema_ is None else {"schema": self.schema_.to_dict()}),
            **({"columns": self._columns} if self._columns else {}),
        }

    @property
    def _columns(self) -> list[str]:
        """The names of the columns of a model without a schema; empty if there is a schema."""
        return [] if self.schema_ is not None else list(getattr(self, "feature_names_in_", []))

    @classmethod
    def _restored(cls, model: Mapping[str, Any]) -> Self:
        if model["format"] != cls.file_format or model["estimator"] != cls.__name__:
            raise InvalidInputError(f"it holds {model['format']!r} of a {model.get('estimator')!r}")
        spend = PrivacySpend.from_dict(model["spend"])
        coef, intercept = _checked_weights(model["weights"], model["intercept"])
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
        fitted.multinomial_ = check_type(
            model.get("multinomial", False), bool, "whether a model is multinomial is true or false"
        )
        given = model.get("label_range")  # files of earlier versions have none
        fitted.label_range_ = None if given is None else check_label_range(given)
        if "rows" in model:
            fitted.row_bound_ = _checked_row_bound(*model["rows"])
        fitted.n_features_in_ = coef.shape[1]
        if "columns" in model:
            names = _checked_columns(model["columns"], coef.shape[1])
            fitted.feature_names_in_ = np.array(names, dtype=object)
        fitted.noise_ = dict(model["noise"])
        fitted.mechanism_, fitted.mechanism_reason_ = model["mechanism"], "it was saved"
        return fitted._set(coef, intercept, spend)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = True  # noise is from the operating system, so two fits differ
        return tags


def _checked_weights(weights: object, intercept: object) -> tuple[Floats, Floats]:
    """Validate weights, shape (releases, d), and intercepts, shape (releases,), from a file."""
    w, b = np.array(weights, dtype=float), np.array(intercept, dtype=float)
    if w.ndim != 2 or b.shape != w.shape[:1] or not np.all(np.isfinite([*w.flat, *b])):
        raise InvalidInputError("weights and intercepts must be finite numbers that fit together")
    return w, b


def _checked_row_bound(size: Any, norm: Any) -> tuple[float, RowNorm]:
    """Validate the norm bound of rows from a file."""
    if norm not in ("l2", "linf"):
        raise InvalidInputError(f"{told(norm)} is no norm of rows")
    return check_positive(size, "the norm of rows"), "l2" if norm == "l2" else "linf"


def _checked_columns(columns: object, d: int) -> list[str]:
    if not isinstance(columns, list) or len(columns) != d or not all(isinstance(c, str) for c in columns):
        raise InvalidInputError(f"columns must be {d} names")
    return columns
