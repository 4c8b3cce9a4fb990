"""Scores and predictions of records for evaluations, and checks of the models that give them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.estimators.booking import Unread, names_of, unread_table
from privopt.mechanisms.estimators.counting import unread_count_parts
from privopt.mechanisms.estimators.labels import (
    check_label_range,
    check_real_kind,
    checked_labels,
    class_indices,
    real_labels,
)
from privopt.mechanisms.estimators.persons import one_record_each
from privopt.mechanisms.estimators.predictions import for_workers
from privopt.mechanisms.estimators.rowwise import Check, FreshModel, check_rowwise_scores, is_own
from privopt.mechanisms.evaluation.bins import ScoreBins
from privopt.mechanisms.evaluation.histogram import held_in
from privopt.mechanisms.evaluation.intervals import Target
from privopt.mechanisms.evaluation.residuals import ResidualPlan
from privopt.mechanisms.privacy.groups import PersonBudget
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arrays import record_counts, tallied
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts, Whole
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.frames import missing_columns
from privopt.problems.tables.partitions import is_dask, parts_of, rows_of_parts
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_table

Floats = NDArray[np.float64]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Request:
    """Subject of an evaluation: one model, or two models to compare, with the public facts."""

    models: tuple[Any, ...]
    scorer: Any
    check: Check | None
    person: str | None
    target: Target
    confidence: float
    source: NoiseSource

    @property
    def model(self) -> Any:
        """The model; of two models, the first."""
        return self.models[0]

    def spend(self, spend: PrivacySpend) -> PrivacySpend:
        """Return the spend, for persons if ``person`` is set, with the check of the scores and the seed."""
        if self.person is not None:
            spend = PersonBudget(spend.epsilon, spend.delta, records=1).of_person(spend)
        if self.check is not None:
            spend = spend.relying_on(f"scores: {self.check.words}", checked=self.check.made)
        return replace(spend, insecure_seed=self.source.insecure_seed)


@dataclass(frozen=True)
class Planned(Generic[Found]):
    """A planned release: its spend, the unread records, and the function that makes it from the records."""

    spend: PrivacySpend
    records: Unread[Parts]
    release: Callable[[Parts], Found]


def declared_range(model: Any, label_range: object) -> tuple[float, float] | None:
    """Return the range of labels of a regression; None for a classifier.

    Raises:
        InvalidInputError: not a regression or a classifier, a classifier without scores, or a missing or
            invalid range.
    """
    classes = getattr(model, "classes_", None)
    if classes is None and hasattr(model, "predict"):
        found = getattr(model, "label_range_", None) if label_range is None else label_range
        if found is None:
            raise InvalidInputError(
                f"{type(model).__name__} has no classes: its evaluation as a regression needs label_range="
                "(low, high), public bounds that labels and predictions are clipped to"
            )
        return check_label_range(found)
    outputs = (
        ("predict_proba", "decision_function") if classes is not None and len(classes) == 2 else ("predict",)
    )
    if classes is None or len(classes) < 2 or not any(hasattr(model, name) for name in outputs):
        raise InvalidInputError(
            "evaluate takes a classifier with predict_proba or decision_function (of more than two classes: "
            f"predict), or a regression; {type(model).__name__} has "
            f"{'no' if classes is None else len(classes)} classes"
        )
    if label_range is not None:
        raise InvalidInputError(f"label_range is for regressions, and {type(model).__name__} has classes")
    return None


class Checked(NamedTuple):
    """A scorer of records and, for a model from another package, the result of its test on synthetic rows."""

    scorer: Any
    check: Check | None


def scorer_of(model: Any, schema: Schema | None) -> Checked:
    """Return the scorer of a model, tested on synthetic rows if the model is from another package.

    Raises:
        InvalidInputError: the model cannot be pickled, or its score of a row depends on other rows.
    """
    if is_own(model):
        return Checked(model, None)
    scorer = FreshModel.of(model)
    given = schema or getattr(model, "schema_", None)
    return Checked(scorer, check_rowwise_scores(scorer.copy(), given, scorer.output))


def predictor_of(model: Any, schema: Schema | None) -> Checked:
    """Return the scorer of a model, after tests of its scores, as ``scorer_of``, and of its predictions.

    Scores show finer differences between rows than predictions do.

    Raises:
        InvalidInputError: as ``scorer_of``; or the prediction of a row depends on other rows.
    """
    found = scorer_of(model, schema)
    if found.check is None or found.scorer.output == "predict":
        return found
    given = schema or getattr(model, "schema_", None)
    check = check_rowwise_scores(found.scorer.copy(), given, "predict")
    return Checked(found.scorer, Check(found.check.made and check.made, found.check.words))


def unread_scores(request: Request, X: Any, y: Any, score: Callable[..., Any]) -> Unread[Parts]:
    """Wrap records as unread; they are scored when they are read, and partitions are scored on their workers.

    ``score(table, scorer, classes)`` is called on every part.

    Raises:
        InvalidInputError: a table whose form or columns the models do not accept; no cell is read.
    """
    model, scorer = request.model, request.scorer
    classes = getattr(model, "classes_", None)
    if request.person is not None:
        return _unread_persons(request, X, y, score, classes)
    counted = unread_count_parts(X, y, _common_schema(request, X), classes)
    if counted is not None:
        return counted.then(lambda parts: parts.made(lambda c: score((c, None), scorer, classes)))
    _check_given(request, X, y, classes)
    parts = parts_of(X, y)
    if parts is not None:
        on_workers = partial(score, model=for_workers(scorer), classes=classes)
        return Unread(rows_of_parts(X, parts), lambda: parts.made(on_workers))
    tables = [unread_table(X, y, getattr(each, "schema_", None)) for each in request.models]
    return tables[0].then(lambda pair: Whole(score(pair, scorer, classes)))


def _unread_persons(
    request: Request, X: Any, y: Any, score: Callable[..., Any], classes: Any
) -> Unread[Parts]:
    """Wrap one record of each person (in memory, the first), as ``unread_scores`` wraps records."""
    if is_engine_table(X) or is_dask(X):
        schemas = [_common_schema(request, X)]
    else:
        if not isinstance(X, CountedRecords):
            _check_given(request, X, y, classes)
        schemas = [getattr(each, "schema_", None) for each in request.models]
    tables = [one_record_each(X, y, request.person, schema, classes) for schema in schemas]
    return tables[0].then(lambda pair: Whole(score(pair, request.scorer, classes)))


def _check_given(request: Request, X: Any, y: Any, classes: Any) -> None:
    """Raise InvalidInputError for columns that the models do not accept; of a regression, for labels that are
    not numbers."""
    for each in request.models:
        _check_columns(each, X, request.person)
    if classes is None:
        check_real_kind(y, "y")


def _common_schema(request: Request, X: Any) -> Schema | None:
    """Return the schema by which an engine or workers count records.

    Of two models whose schemas differ only in bins of numbers, take the schema without these bins.

    Raises:
        InvalidInputError: two models have different schemas, and records are counted by an engine or already.
    """
    schemas = [getattr(each, "schema_", None) for each in request.models]
    if len(schemas) == 1:
        return schemas[0]
    schemas.sort(key=lambda schema: schema is None or schema == schema.with_bins())  # the finest comes first
    finest = schemas[0]
    alike = finest is not None and all(schema is not None and finest.refines(schema) for schema in schemas)
    of_persons = is_dask(X) and request.person is not None
    if not alike and (isinstance(X, CountedRecords) or is_engine_table(X) or of_persons):
        raise InvalidInputError(
            "tables in engines, counted records, and persons in partitions are compared by models with the "
            "same schema: take the table into memory"
        )
    return finest


def _check_columns(model: Any, X: Any, person: str | None) -> None:
    """Raise InvalidInputError if a table has other columns than the model was fitted to; no cell is read.

    scikit-learn refuses such tables as well, but only when records are scored, which is after the booking. As
    in scikit-learn, only the number of columns is compared if the table has no names, or the model was fitted
    to a table without names.
    """
    if getattr(model, "schema_", None) is not None or isinstance(X, Unread):
        return  # the schema finds its columns
    names = names_of(X)
    others = [str(name) for name in names or () if name != person]
    shape: Any = (None, len(others)) if names else getattr(X, "shape", ())
    width, fitted = (shape[1] if len(shape) == 2 else None), getattr(model, "n_features_in_", None)
    name = type(model).__name__
    if None not in (width, fitted) and width != fitted:
        raise InvalidInputError(f"X has {width} features, and {name} was fitted to {fitted}")
    wanted = [str(column) for column in getattr(model, "feature_names_in_", ())]
    if not wanted or not names or others == wanted:
        return
    if missing := [column for column in wanted if column not in others]:
        raise InvalidInputError(f"X lacks what {name} was fitted to: {missing_columns(missing, others)}")
    raise InvalidInputError(
        f"{name} was fitted to the columns of X in another order: give it X[list(model.feature_names_in_)]"
    )


class Predicted(NamedTuple):
    """Predicted and true classes of the rows of a part, and the number of records of each row."""

    predicted: NDArray[np.int64]
    true: NDArray[np.int64]
    counts: NDArray[np.int64]


def predicted(pair: tuple[Any, Any], model: Any, classes: Any) -> Predicted:
    X, y = pair
    predicted = class_indices(np.asarray(model.predict(X)), np.asarray(classes))
    if isinstance(X, CountedRecords):
        return Predicted(predicted, X.label, X.counts)
    n = len(predicted)
    return Predicted(
        predicted, class_indices(checked_labels(y, n), np.asarray(classes)), record_counts(None, n)
    )


def confusion_counts(part: Predicted, size: int) -> NDArray[np.int64]:
    return tallied(size * part.predicted + part.true, part.counts, size * size)


class Scored(NamedTuple):
    """Scores of the rows of a part, whether each label is positive, and the number of records of each row."""

    scores: NDArray[np.float64]
    positive: NDArray[np.bool_]
    counts: NDArray[np.int64]


def scored(pair: tuple[Any, Any], model: Any, classes: Any) -> Scored:
    X, y = pair
    scores = np.asarray(model.decision_function(X), dtype=np.float64)
    if np.any(np.isnan(scores)):
        raise InvalidInputError("the model gave scores of records that are no numbers (NaN)")
    if isinstance(X, CountedRecords):
        return Scored(scores, X.label > 0, X.counts)
    positive = class_indices(checked_labels(y, len(scores)), np.asarray(classes)) == 1
    return Scored(scores, positive, record_counts(None, len(scores)))


def score_counts(part: Scored, bins: ScoreBins) -> NDArray[np.int64]:
    return held_in(bins, *part)


class Residuals(NamedTuple):
    """Labels and predictions of the rows of a part."""

    labels: Floats
    predictions: Floats


def predicted_numbers(pair: tuple[Any, Any], model: Any, classes: None) -> Residuals:
    X, y = pair
    predictions, labels = np.asarray(model.predict(X), dtype=np.float64), real_labels(y)
    if predictions.shape != labels.shape:
        raise InvalidInputError(
            f"predict gave numbers of shape {predictions.shape} for labels of shape {labels.shape}"
        )
    return Residuals(labels, predictions)


def residual_sums(part: Residuals, plan: ResidualPlan) -> NDArray[np.int64]:
    """Return the planned sums over a part, followed by the number of its records."""
    return np.append(np.sum(plan.contributions(part.labels, part.predictions), axis=0), len(part.labels))
