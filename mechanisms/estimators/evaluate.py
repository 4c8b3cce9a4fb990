"""``evaluate``: private estimates of the quality of a released model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.estimators.booking import booked, refuse_from_another_budget
from privopt.mechanisms.estimators.counting import check_number
from privopt.mechanisms.estimators.preprocessing import warn_of_fitted_steps
from privopt.mechanisms.estimators.scoring import (
    Planned,
    Request,
    confusion_counts,
    declared_range,
    predicted,
    predicted_numbers,
    residual_sums,
    score_counts,
    scored,
    scorer_of,
    unread_scores,
)
from privopt.mechanisms.evaluation.bins import bins_of
from privopt.mechanisms.evaluation.classes import ClassEvaluation
from privopt.mechanisms.evaluation.histogram import HistogramPlan
from privopt.mechanisms.evaluation.intervals import Target, check_interval
from privopt.mechanisms.evaluation.leaves import LeafPlan
from privopt.mechanisms.evaluation.metrics import Evaluation
from privopt.mechanisms.evaluation.regression import RegressionEvaluation
from privopt.mechanisms.evaluation.residuals import ResidualPlan
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_epsilon
from privopt.problems.parts import Parts
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger


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
    """Release estimates of the quality of a model, with intervals, from records that its fit did not read.

    For a classifier of two classes: confusion matrix, accuracy, balanced accuracy, ROC, AUC and calibration;
    for more classes: confusion matrix, accuracy, balanced accuracy, and recall and precision of each class;
    for a regression: R^2, RMSE, MSE, MAE, bias, and mean and standard deviation of the labels.

    On training records the estimates are optimistic.

    Privacy: epsilon-differential privacy (pure), for data sets that differ by replacing one record; the
    number of records and the model are public. For a classifier of two classes, one histogram of (bin of
    score, class) is released, with exact integer noise on its counts (``HistogramPlan``); the bins depend
    only on the model, the number of records and epsilon. For more classes, it is a histogram of (predicted
    class, class). In both, a replaced record changes two counts. For a regression, sums of residuals and
    labels, clipped to ``label_range``, are released (``ResidualPlan``). The guarantee is for the records in
    X: for records that the fit read as well, the spend of the fit is added.

    These sensitivities hold only if the score of a row does not depend on other rows, on rows scored before,
    or on chance. Models of this package satisfy this. Any other model is tested on synthetic rows, drawn from
    its schema if there is one, never on records. It is refused if the scores of rows change with their order
    or with the rows scored together. If the model does not accept synthetic rows, the claim of the spend is
    "not checked". Each table, and each part of a table, is scored by a fresh copy of the model, made before
    records are read, so that whatever a copy remembers of its rows cannot affect other scores.

    Args:
        model: a fitted model of this package; or a public classifier or regression whose score of a row does
            not depend on other rows, such as a pipeline or a calibrated classifier of scikit-learn. With two
            classes it needs ``predict_proba``, which is converted to log odds, so that a probability above
            1/2 predicts the second class, or ``decision_function``. Other models need ``predict``.
        X: records, as ``model.predict`` accepts them; also a Dask array or data frame, or a memory-mapped
            file, whose parts are counted where they are stored. For classifiers of this package with a
            schema, also an Ibis table or ``CountedRecords``.
        y: labels, shape (n,); for Dask a collection with the partitions of X; for an Ibis table the name of
            the label column; for counted records None.
        epsilon: > 0, of this evaluation.
        label_range: (low, high), public: labels and predictions of a regression are clipped to this range.
            None: the range of the model.
        schema: a schema for synthetic rows, for a model without a schema.
        target: the target of the intervals, "population" or "table"; see ``Evaluation``.
        confidence: confidence of each interval, in [0.5, 1).
        person: the column that identifies the person of each record, in a data frame (also of Dask) or a
            table in an engine. Only the first record of each person is used (in an engine, one chosen by a
            fixed rule). The guarantee is for replacing a person with all of its records; the number of
            persons is public.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a record is read, and stays booked
            when records are refused. An evaluation that would overdraw the budget is refused.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Raises:
        InvalidInputError: the model cannot be evaluated or pickled, or its score of a row depends on other
            rows; or invalid records. Nothing was released.
        PrivacyParameterError: epsilon out of range.
        BudgetExceededError: the ledger refused the spend; no record was read.
        LedgerError: the model was pickled within a budget of another process, and no ledger is given.
    """
    check_interval(target, confidence)
    check_epsilon(epsilon)
    refuse_from_another_budget((model,), ledger)
    check_is_fitted(model)
    warn_of_fitted_steps(model)
    bounds = declared_range(model, label_range)
    scorer, check = scorer_of(model, schema)
    source = NoiseSource(insecure_seed)
    request = Request((model,), scorer, check, person, target, confidence, source)
    planned: Planned[Any]
    if bounds is not None:
        planned = _of_numbers(request, X, y, epsilon, bounds)
    elif len(model.classes_) > 2:
        planned = _of_classes(request, X, y, epsilon)
    else:
        planned = _of_scores(request, X, y, epsilon)
    with booked(ledger, planned.spend, planned.records) as table:
        found: Evaluation | ClassEvaluation | RegressionEvaluation = planned.release(table)
    return found


def _of_scores(request: Request, X: Any, y: Any, epsilon: float) -> Planned[Evaluation]:
    """Plan the release of the histogram of scores of a model of two classes."""
    model, scorer = request.model, request.scorer
    given = unread_scores(request, X, y, scored)
    n = given.n_records
    bins = bins_of(model, n, epsilon)
    plan = HistogramPlan.plan(bins, epsilon=epsilon)
    plan = replace(plan, spend=request.spend(plan.spend))

    def release(table: Parts) -> Evaluation:
        held = np.sum(table.each(partial(score_counts, bins=bins)), axis=0)
        check_number(int(np.sum(held)), n)
        histogram = plan.release_counts(held, request.source)
        risks = None
        if hasattr(model, "risks_at"):
            risks = tuple(model.risks_at(bins.centres).tolist())
        elif getattr(scorer, "output", None) == "predict_proba":
            risks = tuple(expit(bins.centres).tolist())
        classes = (model.classes_[0], model.classes_[1])
        return Evaluation(histogram, classes, risks, request.target, request.confidence)

    return Planned(plan.spend, given, release)


def _of_classes(request: Request, X: Any, y: Any, epsilon: float) -> Planned[ClassEvaluation]:
    """Plan the release of the confusion matrix of a model of more than two classes."""
    classes = np.asarray(request.model.classes_)
    size = len(classes)
    given = unread_scores(request, X, y, predicted)
    plan = LeafPlan.plan(epsilon)
    plan = replace(plan, spend=request.spend(plan.spend))

    def release(table: Parts) -> ClassEvaluation:
        held = np.sum(table.each(partial(confusion_counts, size=size)), axis=0)
        check_number(int(np.sum(held)), given.n_records)
        histogram = plan.release_counts(held.reshape(size, size), request.source)
        return ClassEvaluation(histogram, tuple(classes.tolist()), request.target, request.confidence)

    return Planned(plan.spend, given, release)


def _of_numbers(
    request: Request, X: Any, y: Any, epsilon: float, label_range: tuple[float, float]
) -> Planned[RegressionEvaluation]:
    """Plan the release of sums of residuals and labels of a regression."""
    given = unread_scores(request, X, y, predicted_numbers)
    plan = ResidualPlan.plan(label_range, epsilon=epsilon)
    plan = replace(plan, spend=request.spend(plan.spend))

    def release(table: Parts) -> RegressionEvaluation:
        *held, n = np.sum(table.each(partial(residual_sums, plan=plan)), axis=0)
        check_number(int(n), given.n_records)
        sums = plan.release_sums(np.array(held), int(n), request.source)
        return RegressionEvaluation(sums, label_range, request.target, request.confidence)

    return Planned(plan.spend, given, release)
