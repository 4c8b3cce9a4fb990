"""``evaluate``: how good a released classifier is, privately."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.booking import Unread, booked, unread_table
from privopt.mechanisms.estimators.counting import check_number, unread_counts
from privopt.mechanisms.estimators.labels import checked_labels, class_indices
from privopt.mechanisms.estimators.lone_scores import check_lone_scores, is_own
from privopt.mechanisms.estimators.predictions import for_workers
from privopt.mechanisms.evaluation.bins import ScoreBins, bins_of
from privopt.mechanisms.evaluation.histogram import HistogramPlan, held_in
from privopt.mechanisms.evaluation.intervals import Target, check_interval
from privopt.mechanisms.evaluation.metrics import Evaluation
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.arrays import record_counts
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
    ledger: Ledger | str | Path | None = None,
    insecure_seed: int | None = None,
) -> Evaluation:
    """Release confusion matrix, accuracy, balanced accuracy, ROC, AUC and calibration, with intervals.

    Use records that ``fit`` has not seen: on its own a model looks better than it is.

    Privacy: epsilon-differential privacy (pure), neighbours by replacing one record; their number and the
    model are public. One histogram of (bin of score, class) is released, with exact integer noise on its
    counts (``HistogramPlan``); bins are fixed by the model, the number of records and epsilon. The guarantee
    is for the records in X: if ``fit`` read them too, its spend is added.

    That a record moves two counts needs scores that depend on their own row alone, not on the other rows, on
    rows scored before or on chance. Models of this package do that. Any other is tried on made-up rows, of
    its schema where there is one, never on records: it is refused where their scores change with their order
    or company, and where it takes no made-up rows the claim of the spend is "not checked".

    Args:
        model: a fitted scorecard or linear classifier of this package, or any classifier with two
            ``classes_`` and a ``decision_function`` that is public and scores each row by itself.
        X: records, as ``model.predict`` takes them; with a model of this package that has a schema, also an
            Ibis table, or ``CountedRecords``; or a Dask array or data frame, or a memory-mapped file, whose
            parts are counted where they are.
        y: labels, shape (n,), for Dask with the partitions of X; of an Ibis table the name of the label
            column; of counted records None.
        epsilon: > 0, of this evaluation.
        schema: what columns hold, for a model without a schema of its own: what made-up rows are drawn from.
        target: what intervals are about, "population" or "table"; see ``Evaluation``.
        confidence: of each interval, in (0, 1).
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            when records are refused; no overdrafts.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Raises:
        InvalidInputError: a model that is no binary classifier, or one whose scores depend on other rows; or
            unusable records; nothing was released.
        PrivacyParameterError: epsilon out of range.
        BudgetExceededError: the ledger refused; nothing was read.
    """
    check_interval(target, confidence)
    check_is_fitted(model)
    classes = getattr(model, "classes_", None)
    if classes is None or len(classes) != 2 or not hasattr(model, "decision_function"):
        more = classes is not None and len(classes) > 2
        raise InvalidInputError(
            "evaluate takes a classifier of two classes with a decision_function; "
            f"{type(model).__name__} has {'no' if classes is None else len(classes)} classes"
            + (". To do: fit and evaluate one class against all others, as two labels" if more else "")
        )
    check = None
    if not is_own(model):
        check = check_lone_scores(model, schema or getattr(model, "schema_", None))
    given = _unread_scores(model, X, y, classes)
    n = given.n_records
    bins = bins_of(model, n, epsilon)
    plan, source = HistogramPlan.plan(bins, epsilon=epsilon), NoiseSource(insecure_seed)
    if check is not None:
        plan = replace(plan, spend=plan.spend.relying_on(f"scores: {check.words}", checked=check.made))
    with booked(ledger, plan.spend_with(source), given) as table:
        held = np.sum(table.each(partial(_held, bins=bins)), axis=0)
        check_number(int(np.sum(held)), n)
        histogram = plan.release_counts(held, source)
    predicted = tuple(model.risks_at(bins.centres).tolist()) if hasattr(model, "risks_at") else None
    return Evaluation(histogram, (classes[0], classes[1]), predicted, target, confidence)


def _unread_scores(model: Any, X: Any, y: Any, classes: Any) -> Unread[Parts]:
    """Records that are scored when they are read, where they are."""
    schema = getattr(model, "schema_", None)
    counted = unread_counts(X, y, schema, classes)
    if counted is not None:
        return counted.then(lambda records: Whole(_scored((records, None), model, classes)))
    parts = parts_of(X, y)
    if parts is not None:
        score = partial(_scored, model=for_workers(model), classes=classes)
        return Unread(rows_of_parts(X, parts), lambda: parts.made(score))
    table = unread_table(X, y, schema)
    features = getattr(model, "n_features_in_", None)
    if schema is None and None not in (features, table.n_columns) and features != table.n_columns:
        raise InvalidInputError(f"X has {table.n_columns} features, and the model was fitted to {features}")
    return table.then(lambda pair: Whole(_scored(pair, model, classes)))


class _Scored(NamedTuple):
    """Of the rows of a part: scores, whether they are of the positive class, and how many records each is."""

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


def _held(part: _Scored, bins: ScoreBins) -> NDArray[np.int64]:
    return held_in(bins, *part)
