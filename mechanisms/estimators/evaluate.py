"""``evaluate``: private estimates of a released classifier's quality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.booking import Unread, booked, unread_table
from privopt.mechanisms.estimators.counting import check_number, unread_count_parts
from privopt.mechanisms.estimators.labels import checked_labels, class_indices
from privopt.mechanisms.estimators.persons import one_record_each
from privopt.mechanisms.estimators.predictions import for_workers
from privopt.mechanisms.estimators.rowwise import FreshModel, check_rowwise_scores, is_own
from privopt.mechanisms.evaluation.bins import ScoreBins, bins_of
from privopt.mechanisms.evaluation.classes import ClassEvaluation
from privopt.mechanisms.evaluation.histogram import HistogramPlan, held_in
from privopt.mechanisms.evaluation.intervals import Target, check_interval
from privopt.mechanisms.evaluation.leaves import LeafPlan
from privopt.mechanisms.evaluation.metrics import Evaluation
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


def evaluate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float = 1.0,
    schema: Schema | None = None,
    target: Target = "population",
    confidence: float = 0.95,
    person: str | None = None,
    ledger: Ledger | str | Path | None = None,
    insecure_seed: int | None = None,
) -> Evaluation | ClassEvaluation:
    """Release confusion matrix, accuracy, balanced accuracy, ROC, AUC and calibration, with intervals.

    For a model of this package with more than two classes: the confusion matrix, accuracy, balanced accuracy,
    and recall and precision of each class.

    Use records that were not used in ``fit``: on training records the estimates are optimistic.

    Privacy: epsilon-differential privacy (pure), neighbours by replacing one record; their number and the
    model are public. One histogram of (bin of score, class) is released, with exact integer noise on its
    counts (``HistogramPlan``); bins are fixed by the model, the number of records and epsilon. Of several
    classes it is one of (predicted class, class), of which a record moves two counts, too. The guarantee
    is for the records in X: if ``fit`` read them too, its spend is added.

    A record changes at most two counts only if the score of a row does not depend on other rows, on rows
    scored before, or on chance. Models of this package satisfy this. Any other model is tested on synthetic
    rows, drawn from its schema if there is one, never on records. It is refused if the scores change with the
    order or choice of the rows scored together. If it does not accept synthetic rows, the claim of the spend
    is "not checked". Each table, and each part of one, is scored by a copy of it, made before records are
    read: what it keeps reaches no other score.

    Args:
        model: a fitted scorecard or linear classifier of this package, or any classifier with two
            ``classes_`` and a ``decision_function`` that is public and scores each row by itself.
        X: records, as ``model.predict`` takes them; with a model of this package that has a schema, also an
            Ibis table, or ``CountedRecords``; or a Dask array or data frame, or a memory-mapped file, whose
            parts are counted where they are.
        y: labels, shape (n,), for Dask with the partitions of X; of an Ibis table the name of the label
            column; of counted records None.
        epsilon: > 0, of this evaluation.
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
        InvalidInputError: a model that is not a binary classifier, cannot be pickled, or whose scores depend
            on other rows; or invalid records; nothing was released.
        PrivacyParameterError: epsilon out of range.
        BudgetExceededError: the ledger refused the spend; no record was read.
    """
    check_interval(target, confidence)
    check_is_fitted(model)
    classes = getattr(model, "classes_", None)
    more = classes is not None and len(classes) > 2
    if classes is None or not hasattr(model, "decision_function") or (more and not is_own(model)):
        raise InvalidInputError(
            "evaluate takes a classifier of two classes with a decision_function; "
            f"{type(model).__name__} has {'no' if classes is None else len(classes)} classes"
            + (". To do: fit and evaluate one class against all others, as two labels" if more else "")
        )
    if person is not None:
        X, y = one_record_each(X, y, person, getattr(model, "schema_", None)), None
    unit = "record" if person is None else "person"
    if len(classes) > 2:
        return _evaluate_classes(
            model,
            X,
            y,
            epsilon=epsilon,
            unit=unit,
            target=target,
            confidence=confidence,
            ledger=ledger,
            seed=insecure_seed,
        )
    check, scorer = None, model
    if not is_own(model):
        scorer = FreshModel.of(model)
        check = check_rowwise_scores(scorer.copy(), schema or getattr(model, "schema_", None))
    given = _unread(model, X, y, _scored, scorer)
    n = given.n_records
    bins = bins_of(model, n, epsilon)
    plan, source = HistogramPlan.plan(bins, epsilon=epsilon), NoiseSource(insecure_seed)
    plan = replace(plan, spend=_of_unit(plan.spend, unit))
    if check is not None:
        plan = replace(plan, spend=plan.spend.relying_on(f"scores: {check.words}", checked=check.made))
    with booked(ledger, plan.spend_with(source), given) as table:
        held = np.sum(table.each(partial(_score_counts, bins=bins)), axis=0)
        check_number(int(np.sum(held)), n)
        histogram = plan.release_counts(held, source)
    predicted = tuple(model.risks_at(bins.centres).tolist()) if hasattr(model, "risks_at") else None
    return Evaluation(histogram, (classes[0], classes[1]), predicted, target, confidence)


def _unread(model: Any, X: Any, y: Any, score: Callable[..., Any], scorer: Any) -> Unread[Parts]:
    """Wrap records as unread; they are scored when they are read, in parts on their workers.

    ``score(table, scorer, classes)`` is called on every part; of ``model`` only public facts are read.
    """
    classes = model.classes_
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


def _evaluate_classes(
    model: Any,
    X: Any,
    y: Any,
    *,
    epsilon: float,
    unit: str,
    target: Target,
    confidence: float,
    ledger: Ledger | str | Path | None,
    seed: int | None,
) -> ClassEvaluation:
    """Release the confusion matrix of a model of several classes."""
    size = len(model.classes_)
    given = _unread(model, X, y, _predicted, model)
    n, plan, source = given.n_records, LeafPlan.plan(epsilon), NoiseSource(seed)
    plan = replace(plan, spend=_of_unit(plan.spend, unit))
    with booked(ledger, replace(plan.spend, insecure_seed=source.insecure_seed), given) as table:
        held = np.sum(table.each(partial(_confusion_counts, size=size)), axis=0)
        check_number(int(np.sum(held)), n)
        histogram = plan.release_counts(held.reshape(size, size), source)
    return ClassEvaluation(histogram, tuple(model.classes_.tolist()), target, confidence)


def _of_unit(spend: PrivacySpend, unit: str) -> PrivacySpend:
    """Return the spend for a person with one record, if that is the unit of privacy."""
    if unit == "record":
        return spend
    return PersonBudget(spend.epsilon, spend.delta, records=1).of_person(spend)


class _Predicted(NamedTuple):
    """Predicted and true classes of the rows of a part, and the number of records of each row."""

    predicted: NDArray[np.int64]
    true: NDArray[np.int64]
    counts: NDArray[np.int64]


def _predicted(pair: tuple[Any, Any], model: Any, classes: Any) -> _Predicted:
    X, y = pair
    predicted = class_indices(np.asarray(model.predict(X)), classes)
    if isinstance(X, CountedRecords):
        return _Predicted(predicted, X.label, X.counts)
    n = len(predicted)
    return _Predicted(predicted, class_indices(checked_labels(y, n), classes), record_counts(None, n))


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
    positive = class_indices(checked_labels(y, len(scores)), classes) == 1
    return _Scored(scores, positive, record_counts(None, len(scores)))


def _score_counts(part: _Scored, bins: ScoreBins) -> NDArray[np.int64]:
    return held_in(bins, *part)
