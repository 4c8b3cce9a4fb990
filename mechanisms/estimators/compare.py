"""``compare``: private differences between two models on the same records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.booking import booked, refuse_from_another_budget
from privopt.mechanisms.estimators.counting import check_number
from privopt.mechanisms.estimators.labels import checked_labels, class_indices, real_labels
from privopt.mechanisms.estimators.predictions import for_workers
from privopt.mechanisms.estimators.rowwise import Check
from privopt.mechanisms.estimators.scoring import (
    Planned,
    Predicted,
    Request,
    declared_range,
    predictor_of,
    unread_scores,
)
from privopt.mechanisms.evaluation.comparison import ClassComparison, Comparison, RegressionComparison
from privopt.mechanisms.evaluation.intervals import Target, check_interval
from privopt.mechanisms.evaluation.leaves import LeafPlan
from privopt.mechanisms.evaluation.paired_residuals import PairedResidualPlan
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_epsilon
from privopt.problems.arrays import record_counts, tallied
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

Floats = NDArray[np.float64]


def compare(
    first: Any,
    second: Any,
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
) -> Comparison:
    """Release how much better one model is than another on the same records, with intervals.

    For classifiers, release both accuracies, and the differences, first minus second, of accuracy, balanced
    accuracy and recalls; for regressions, the differences of the mean squared and of the mean absolute error.
    The differences are paired, so their intervals are narrower than those from two separate evaluations,
    which would also have half the budget each.

    Privacy: epsilon-differential privacy (pure), for data sets that differ by replacing one record; the
    number of records and both models are public. For classifiers one histogram of (which models are right,
    true class) is released, in which a replaced record changes two counts (``LeafPlan``); for regressions,
    sums of differences of errors (``PairedResidualPlan``). Both models are checked as in ``evaluate``.

    Args:
        first, second: fitted models that ``evaluate`` accepts: two classifiers with the same classes, or two
            regressions.
        X: records that both models accept. Tables in engines and counted records only for models of this
            package with the same schema.
        y, epsilon, schema, target, confidence, person, ledger, insecure_seed: as in ``evaluate``.
        label_range: as in ``evaluate``; it is needed if the two models have different ranges.

    Raises:
        InvalidInputError: models that ``evaluate`` refuses, or of different kinds; or invalid records.
        PrivacyParameterError: epsilon out of range.
        BudgetExceededError: the ledger refused the spend; no record was read.
        LedgerError: a model was pickled within a budget of another process, and no ledger is given.
    """
    check_interval(target, confidence)
    check_epsilon(epsilon)
    refuse_from_another_budget((first, second), ledger)
    bounds = _shared_range(first, second, label_range)
    one, other = predictor_of(first, schema), predictor_of(second, schema)
    scorers = _TwoScorers(for_workers(one.scorer), for_workers(other.scorer))
    check, source = _joined(one.check, other.check), NoiseSource(insecure_seed)
    request = Request((first, second), scorers, check, person, target, confidence, source)
    planned: Planned[Any]
    if bounds is None:
        planned = _of_classes(request, X, y, epsilon)
    else:
        planned = _of_numbers(request, X, y, epsilon, bounds)
    with booked(ledger, planned.spend, planned.records) as table:
        found: Comparison = planned.release(table)
    return found


def _shared_range(first: Any, second: Any, label_range: object) -> tuple[float, float] | None:
    """Return the range of labels of two regressions; None for two classifiers of the same classes.

    Raises:
        InvalidInputError: models of different kinds, classes or ranges, or models that ``evaluate`` refuses.
    """
    check_is_fitted(first)
    check_is_fitted(second)
    bounds, others = declared_range(first, label_range), declared_range(second, label_range)
    if (bounds is None) != (others is None):
        raise InvalidInputError("compare takes two classifiers or two regressions, and got one of each")
    if bounds != others:
        raise InvalidInputError(
            "the models clip labels to different ranges: declare label_range=(low, high) for both"
        )
    classes = [set(np.asarray(m.classes_).tolist()) for m in (first, second) if bounds is None]
    if classes and classes[0] != classes[1]:
        raise InvalidInputError("the models have different classes: compare takes models of the same ones")
    return bounds


def _joined(*checks: Check | None) -> Check | None:
    """Combine the checks of several models into one."""
    made = [check for check in checks if check is not None]
    if not made:
        return None
    return Check(all(c.made for c in made), "; ".join(dict.fromkeys(c.words for c in made)))


@dataclass
class _TwoScorers:
    """Scorers of the first and of the second model."""

    first: Any
    second: Any


def _of_classes(request: Request, X: Any, y: Any, epsilon: float) -> Planned[ClassComparison]:
    """Plan the release of counts of records by which models are right and by true class."""
    classes = np.asarray(request.model.classes_)
    shape = (4, len(classes))
    given = unread_scores(request, X, y, _agreement)
    plan = LeafPlan.plan(epsilon)
    plan = replace(plan, spend=request.spend(plan.spend))

    def release(table: Parts) -> ClassComparison:
        held = np.sum(table.each(partial(_agreement_counts, size=shape[1])), axis=0)
        check_number(int(np.sum(held)), given.n_records)
        histogram = plan.release_counts(held.reshape(shape), request.source)
        return ClassComparison(request.target, request.confidence, histogram, tuple(classes.tolist()))

    return Planned(plan.spend, given, release)


def _agreement(pair: tuple[Any, Any], model: _TwoScorers, classes: Any) -> Predicted:
    """Return, in place of predictions, which models are right, as the row index of
    ``ClassComparison.histogram``.
    """
    (X, y), known = pair, np.asarray(classes)
    first, second = (class_indices(np.asarray(m.predict(X)), known) for m in (model.first, model.second))
    if isinstance(X, CountedRecords):
        true, counts = X.label, X.counts
    else:
        true, counts = class_indices(checked_labels(y, len(first)), known), record_counts(None, len(first))
    return Predicted(2 * (first == true) + (second == true), true, counts)


def _agreement_counts(part: Predicted, size: int) -> NDArray[np.int64]:
    return tallied(size * part.predicted + part.true, part.counts, 4 * size)


def _of_numbers(
    request: Request, X: Any, y: Any, epsilon: float, label_range: tuple[float, float]
) -> Planned[RegressionComparison]:
    """Plan the release of sums of differences of errors of two regressions."""
    given = unread_scores(request, X, y, _pairs)
    plan = PairedResidualPlan.plan(label_range, epsilon=epsilon)
    plan = replace(plan, spend=request.spend(plan.spend))

    def release(table: Parts) -> RegressionComparison:
        *held, n = np.sum(table.each(partial(_paired_sums, plan=plan)), axis=0)
        check_number(int(n), given.n_records)
        sums = plan.release_sums(np.array(held), int(n), request.source)
        return RegressionComparison(request.target, request.confidence, sums, label_range)

    return Planned(plan.spend, given, release)


class _Pairs(NamedTuple):
    """Labels, and the predictions of two models, of the rows of a part."""

    labels: Floats
    first: Floats
    second: Floats


def _pairs(pair: tuple[Any, Any], model: _TwoScorers, classes: None) -> _Pairs:
    X, y = pair
    labels = real_labels(y)
    first, second = (np.asarray(m.predict(X), dtype=np.float64) for m in (model.first, model.second))
    if not first.shape == second.shape == labels.shape:
        raise InvalidInputError(
            f"predict gave numbers of shapes {first.shape} and {second.shape}, for {len(labels)} labels"
        )
    return _Pairs(labels, first, second)


def _paired_sums(part: _Pairs, plan: PairedResidualPlan) -> NDArray[np.int64]:
    """Return the planned sums over a part, followed by the number of its records."""
    added = plan.contributions(part.labels, part.first, part.second)
    return np.append(np.sum(added, axis=0), len(part.labels))
