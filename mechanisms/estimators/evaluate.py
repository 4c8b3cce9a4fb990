"""``evaluate``: private estimates of a released model's quality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.booking import Unread, booked, unread_table
from privopt.mechanisms.estimators.counting import check_number, unread_count_parts
from privopt.mechanisms.estimators.labels import (
    check_label_range,
    checked_labels,
    class_indices,
    real_labels,
)
from privopt.mechanisms.estimators.persons import one_record_each
from privopt.mechanisms.estimators.predictions import for_workers
from privopt.mechanisms.estimators.preprocessing import warn_of_fitted_steps
from privopt.mechanisms.estimators.rowwise import Check, FreshModel, check_rowwise_scores, is_own
from privopt.mechanisms.evaluation.bins import ScoreBins, bins_of
from privopt.mechanisms.evaluation.classes import ClassEvaluation
from privopt.mechanisms.evaluation.histogram import HistogramPlan, held_in
from privopt.mechanisms.evaluation.intervals import Target, check_interval
from privopt.mechanisms.evaluation.leaves import LeafPlan
from privopt.mechanisms.evaluation.metrics import Evaluation
from privopt.mechanisms.evaluation.regression import RegressionEvaluation
from privopt.mechanisms.evaluation.residuals import ResidualPlan
from privopt.mechanisms.privacy.groups import PersonBudget
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arrays import record_counts, tallied
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts, Whole
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.partitions import parts_of, rows_of_parts
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Request:
    """A model with the public facts of its evaluation."""

    model: Any
    scorer: Any
    check: Check | None
    unit: str
    target: Target
    confidence: float
    source: NoiseSource

    def spend(self, spend: PrivacySpend) -> PrivacySpend:
        """Return the spend of a release with the unit of privacy, the check of the scores and the seed."""
        if self.unit == "person":
            spend = PersonBudget(spend.epsilon, spend.delta, records=1).of_person(spend)
        if self.check is not None:
            spend = spend.relying_on(f"scores: {self.check.words}", checked=self.check.made)
        return replace(spend, insecure_seed=self.source.insecure_seed)


def evaluate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float = 1.0,
    label_range: tuple[float, float] | None = None,
    schema: Schema | None = None,
    target: Target = "population",
    confidence: float = 0.95,
    person: str | None = None,
    ledger: Ledger | str | Path | None = None,
    insecure_seed: int | None = None,
) -> Evaluation | ClassEvaluation | RegressionEvaluation:
    """Release the quality of a model on records that its fit did not read, with intervals.

    Of a classifier of two classes: confusion matrix, accuracy, balanced accuracy, ROC, AUC and calibration;
    of more classes: confusion matrix, accuracy, balanced accuracy, and recall and precision of each class; of
    a regression: R^2, RMSE, MSE, MAE, bias, and mean and standard deviation of the labels.

    On training records the estimates are optimistic.

    Privacy: epsilon-differential privacy (pure), neighbours by replacing one record; their number and the
    model are public. Of a classifier one histogram of (bin of score, class) is released, with exact integer
    noise on its counts (``HistogramPlan``); bins are fixed by the model, the number of records and epsilon.
    Of several classes it is one of (predicted class, class), of which a record moves two counts, too. Of a
    regression sums of residuals and labels, clipped to ``label_range``, are released (``ResidualPlan``). The
    guarantee is for the records in X: if ``fit`` read them too, its spend is added.

    A record moves no more than that only if the score of a row does not depend on other rows, on rows scored
    before, or on chance. Models of this package satisfy this. Any other model is tested on synthetic rows,
    drawn from its schema if there is one, never on records. It is refused if the scores change with the
    order or choice of the rows scored together. If it does not accept synthetic rows, the claim of the spend
    is "not checked". Each table, and each part of one, is scored by a copy of it, made before records are
    read: what it keeps reaches no other score.

    Args:
        model: a fitted model of this package, or a public classifier or regression that scores each row by
            itself, such as a pipeline or a calibrated classifier of scikit-learn. Two classes need
            ``predict_proba`` or ``decision_function``; of the former the log odds are the scores, so that a
            probability above 1/2 is the second class. Other models need ``predict``.
        X: records, as ``model.predict`` takes them; with a classifier of this package that has a schema, also
            an Ibis table, or ``CountedRecords``; or a Dask array or data frame, or a memory-mapped file,
            whose parts are counted where they are.
        y: labels, shape (n,), for Dask with the partitions of X; of an Ibis table the name of the label
            column; of counted records None.
        epsilon: > 0, of this evaluation.
        label_range: (low, high), public: labels and predictions of a regression are clipped to it. None: that
            of the model.
        schema: a schema for synthetic rows, for a model without a schema of its own.
        target: the target of the intervals, "population" or "table"; see ``Evaluation``.
        confidence: confidence of each interval, in [0.5, 1).
        person: the column of a table in memory that says whose a record is. The first record of each person
            counts, and the guarantee is for replacing a person with all of its records; the number of persons
            is public.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            when records are refused; no overdrafts.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Raises:
        InvalidInputError: a model that cannot be evaluated or pickled, or whose scores depend on other rows;
            or invalid records; nothing was released.
        PrivacyParameterError: epsilon out of range.
        BudgetExceededError: the ledger refused the spend; no record was read.
    """
    check_interval(target, confidence)
    check_is_fitted(model)
    warn_of_fitted_steps(model)
    bounds = declared_range(model, label_range)
    if person is not None:
        X, y = one_record_each(X, y, person, getattr(model, "schema_", None)), None
    unit = "record" if person is None else "person"
    scorer, check = scorer_of(model, schema)
    source = NoiseSource(insecure_seed)
    request = _Request(model, scorer, check, unit, target, confidence, source)
    if bounds is not None:
        planned = _of_numbers(request, X, y, epsilon, bounds)
    elif len(model.classes_) > 2:
        planned = _of_classes(request, X, y, epsilon)
    else:
        planned = _of_scores(request, X, y, epsilon)
    with booked(ledger, planned.spend, planned.records) as table:
        return planned.release(table)


def declared_range(model: Any, label_range: object) -> tuple[float, float] | None:
    """Return the range of labels of a regression; None of a classifier.

    Raises:
        InvalidInputError: neither of them, a classifier without scores, or a missing or invalid range.
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


def scorer_of(model: Any, schema: Schema | None) -> tuple[Any, Check | None]:
    """Return what scores the records, and of a foreign model the test of its scores on synthetic rows.

    Raises:
        InvalidInputError: a model that cannot be pickled, or whose scores depend on other rows.
    """
    if is_own(model):
        return model, None
    scorer = FreshModel.of(model)
    given = schema or getattr(model, "schema_", None)
    return scorer, check_rowwise_scores(scorer.copy(), given, scorer.output)


class Planned(NamedTuple):
    """A release that is planned: its spend, its records, and what makes it of them."""

    spend: PrivacySpend
    records: Unread[Parts]
    release: Callable[[Parts], Evaluation | ClassEvaluation | RegressionEvaluation]


def _of_scores(request: _Request, X: Any, y: Any, epsilon: float) -> Planned:
    """Plan the histogram of scores of a model of two classes."""
    model, scorer = request.model, request.scorer
    given = unread_scores(model, X, y, _scored, scorer)
    n = given.n_records
    bins = bins_of(model, n, epsilon)
    plan = HistogramPlan.plan(bins, epsilon=epsilon)
    plan = replace(plan, spend=request.spend(plan.spend))

    def release(table: Parts) -> Evaluation:
        held = np.sum(table.each(partial(_score_counts, bins=bins)), axis=0)
        check_number(int(np.sum(held)), n)
        histogram = plan.release_counts(held, request.source)
        predicted = None
        if hasattr(model, "risks_at"):
            predicted = tuple(model.risks_at(bins.centres).tolist())
        elif getattr(scorer, "output", None) == "predict_proba":
            predicted = tuple(expit(bins.centres).tolist())
        classes = (model.classes_[0], model.classes_[1])
        return Evaluation(histogram, classes, predicted, request.target, request.confidence)

    return Planned(plan.spend, given, release)


def _of_classes(request: _Request, X: Any, y: Any, epsilon: float) -> Planned:
    """Plan the confusion matrix of a model of several classes."""
    classes = np.asarray(request.model.classes_)
    size = len(classes)
    given = unread_scores(request.model, X, y, _predicted, request.scorer)
    plan = LeafPlan.plan(epsilon)
    plan = replace(plan, spend=request.spend(plan.spend))

    def release(table: Parts) -> ClassEvaluation:
        held = np.sum(table.each(partial(_confusion_counts, size=size)), axis=0)
        check_number(int(np.sum(held)), given.n_records)
        histogram = plan.release_counts(held.reshape(size, size), request.source)
        return ClassEvaluation(histogram, tuple(classes.tolist()), request.target, request.confidence)

    return Planned(plan.spend, given, release)


def _of_numbers(
    request: _Request, X: Any, y: Any, epsilon: float, label_range: tuple[float, float]
) -> Planned:
    """Plan the sums of residuals and labels of a regression."""
    given = unread_scores(request.model, X, y, _numbers, request.scorer)
    plan = ResidualPlan.plan(label_range, epsilon=epsilon)
    plan = replace(plan, spend=request.spend(plan.spend))

    def release(table: Parts) -> RegressionEvaluation:
        *held, n = np.sum(table.each(partial(_residual_sums, plan=plan)), axis=0)
        check_number(int(n), given.n_records)
        sums = plan.release_sums(np.array(held), int(n), request.source)
        return RegressionEvaluation(sums, label_range, request.target, request.confidence)

    return Planned(plan.spend, given, release)


def unread_scores(model: Any, X: Any, y: Any, score: Callable[..., Any], scorer: Any) -> Unread[Parts]:
    """Wrap records as unread; they are scored when they are read, in parts on their workers.

    ``score(table, scorer, classes)`` is called on every part; of ``model`` only public facts are read.
    """
    classes = getattr(model, "classes_", None)
    schema = getattr(model, "schema_", None)
    counted = unread_count_parts(X, y, schema, classes)
    if counted is not None:
        return counted.then(lambda parts: parts.made(lambda c: score((c, None), scorer, classes)))
    parts = parts_of(X, y)
    if parts is not None:
        on_workers = partial(score, model=for_workers(scorer), classes=classes)
        return Unread(rows_of_parts(X, parts), lambda: parts.made(on_workers))
    table = unread_table(X, y, schema)
    features = getattr(model, "n_features_in_", None)
    if schema is None and None not in (features, table.n_columns) and features != table.n_columns:
        raise InvalidInputError(f"X has {table.n_columns} features, and the model was fitted to {features}")
    return table.then(lambda pair: Whole(score(pair, scorer, classes)))


class _Predicted(NamedTuple):
    """Predicted and true classes of the rows of a part, and the number of records of each row."""

    predicted: NDArray[np.int64]
    true: NDArray[np.int64]
    counts: NDArray[np.int64]


def _predicted(pair: tuple[Any, Any], model: Any, classes: Any) -> _Predicted:
    X, y = pair
    predicted = class_indices(np.asarray(model.predict(X)), np.asarray(classes))
    if isinstance(X, CountedRecords):
        return _Predicted(predicted, X.label, X.counts)
    n = len(predicted)
    return _Predicted(
        predicted, class_indices(checked_labels(y, n), np.asarray(classes)), record_counts(None, n)
    )


def _confusion_counts(part: _Predicted, size: int) -> NDArray[np.int64]:
    return tallied(size * part.predicted + part.true, part.counts, size * size)


class _Scored(NamedTuple):
    """Scores of the rows of a part, whether each is positive, and the number of records of each row."""

    scores: NDArray[np.float64]
    positive: NDArray[np.bool_]
    counts: NDArray[np.int64]


def _scored(pair: tuple[Any, Any], model: Any, classes: Any) -> _Scored:
    X, y = pair
    scores = np.asarray(model.decision_function(X), dtype=np.float64)
    if isinstance(X, CountedRecords):
        return _Scored(scores, X.label > 0, X.counts)
    positive = class_indices(checked_labels(y, len(scores)), np.asarray(classes)) == 1
    return _Scored(scores, positive, record_counts(None, len(scores)))


def _score_counts(part: _Scored, bins: ScoreBins) -> NDArray[np.int64]:
    return held_in(bins, *part)


class _Residuals(NamedTuple):
    """Labels and predictions of the rows of a part."""

    labels: Floats
    predictions: Floats


def _numbers(pair: tuple[Any, Any], model: Any, classes: None) -> _Residuals:
    X, y = pair
    predictions, labels = np.asarray(model.predict(X), dtype=np.float64), real_labels(y)
    if predictions.shape != labels.shape:
        raise InvalidInputError(
            f"predict gave numbers of shape {predictions.shape} for labels of shape {labels.shape}"
        )
    return _Residuals(labels, predictions)


def _residual_sums(part: _Residuals, plan: ResidualPlan) -> NDArray[np.int64]:
    """Return the sums over a part, and the number of its records."""
    return np.append(np.sum(plan.contributions(part.labels, part.predictions), axis=0), len(part.labels))
