"""``PrivateSearchCV``: the best of several private models, by noisy scores on held-out records."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_regressor
from sklearn.model_selection import ParameterGrid
from sklearn.utils import Tags, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError, SearchError
from privopt.mechanisms.estimators.booked_estimator import BookedEstimator, never_read, spend_of_fit
from privopt.mechanisms.estimators.booking import Unread, booked, charged, is_part, unread_table
from privopt.mechanisms.estimators.labels import (
    check_label_range,
    checked_labels,
    class_indices,
    distinct_classes,
    real_labels,
)
from privopt.mechanisms.estimators.persons import (
    ONCE,
    fit_persons,
    opened_table,
    plan_of_persons,
    without_intervals,
)
from privopt.mechanisms.estimators.predictions import for_workers
from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.estimators.rowwise import FreshModel, check_rowwise_scores, is_own
from privopt.mechanisms.estimators.search_advice import expected_lines
from privopt.mechanisms.estimators.validation import as_table, validated
from privopt.mechanisms.privacy.ambient import CarriedBudgets
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.reliance import relying_on
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.tuning.record_scores import CLASS_SCORES, REGRESSION_SCORES
from privopt.mechanisms.tuning.selection import BestRun, Notion, Run, SelectionPlan
from privopt.oracles.limits import Limits, Watch, check_limits, started
from privopt.problems.arguments import check_real, told
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.notebooks import html_table
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.partitions import is_dask
from privopt.problems.tables.sources import is_engine_table

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

# Parameters that the search sets in every candidate.
_BUDGET = ("epsilon", "delta", "mu", "ledger", "insecure_seed", "random_state")


class Candidate(NamedTuple):
    """An unfitted estimator, and the parameters that distinguish it from other candidates."""

    estimator: Any
    params: dict[str, Any]


class _Part(NamedTuple):
    """One part of the records."""

    X: Any
    y: Any


@dataclass(frozen=True)
class SearchPlan:
    """A search, planned without data.

    Attributes:
        selection: the budget of every run, the distribution of the number of runs, and the spend.
        candidates: parameters of all candidates.
        run_spends: what a run of each candidate costs.
        n_fitted, n_held_out: numbers of records that models are fitted to, and that they are scored on.
        spend: the privacy spend of the whole search.
        expected: sentences on what to expect of the search: the price of tuning, and what costs nothing.
    """

    selection: SelectionPlan
    candidates: tuple[dict[str, Any], ...]
    run_spends: tuple[PrivacySpend, ...]
    n_fitted: int
    n_held_out: int
    spend: PrivacySpend
    expected: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"spend: {self.spend}", *self.expected))

    def _repr_html_(self) -> str:
        """Return a table of the candidates for notebooks."""
        rows = [(_words(params),) for params in self.candidates]
        return html_table(str(self), ("candidate",), rows)


Method = TypeVar("Method", bound=Callable[..., Any])
Given = TypeVar("Given")


def _of_best(name: str) -> Callable[[Method], Method]:
    def available(search: Any) -> bool:
        source = getattr(search, "best_estimator_", None)
        if source is None:
            estimators = (
                search.estimator if isinstance(search.estimator, list | tuple) else [search.estimator]
            )
            source = estimators[0]
        getattr(source, name)  # an AttributeError says what is missing
        return True

    decorate: Callable[[Method], Method] = available_if(available)
    return decorate


class PrivateSearchCV(BookedEstimator, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Search over parameters and estimators for the best model, under differential privacy.

    Like ``GridSearchCV``, except that a privacy budget covers the whole search: the best model and its score.
    Records are split at random; models are fitted to one part, and scored with noise on the other. Two or
    three candidates are all run. With more, a random number of runs is made, each of a candidate drawn at
    random: this needs less of the budget than running all, but some candidates may not be run at all. The
    model of the best run is released, without fitting it again to all records.

    Privacy: (epsilon, delta)-differential privacy of the released model, its parameters and its score, for
    data sets that differ by *replacing one record*, or one person (``person``); the number of records or
    persons and all arguments are public (``SelectionPlan`` has the proof). The number of runs and the other
    models and scores are neither kept nor shown, and warnings of the runs are suppressed. Outside the
    guarantee: running time, which reveals how many runs there were, and whether every run failed. A run that
    fails gets the lowest score.

    An estimator from outside this package needs a parameter ``epsilon`` (with ``delta`` unless it is purely
    private) or ``mu``, which must bound its privacy under replacement of one record. The search cannot check
    this bound; the spend says that its claim relies on the estimator. The estimator's predictions are tested
    on synthetic rows: if the prediction of a row depends on the other rows of the call, the run fails.

    Args:
        estimator: an unfitted estimator, or a list of them, with all public facts declared. ``ledger``,
            ``insecure_seed`` and ``random_state`` must be None; the search sets epsilon, delta and mu.
        param_grid: parameters to search, as for ``ParameterGrid``: a dict of lists, or a list of such dicts;
            for a list of estimators, a list of one grid per estimator. None: the estimators unchanged.
        epsilon: privacy budget of the whole search, > 0 and finite.
        delta: in (0, 1), or "auto" for 1/n^2; may be 0 if all candidates are purely private, and then
            ``spend_`` has delta = 0 in any case.
        scoring: a score in [0, 1] of each record, which is averaged. For classifiers "accuracy", or "brier"
            for estimators with ``predict_proba`` (1 minus the squared error of the risk); for regressors
            "squared_error" (1 minus the squared error in units of the label range). None: "accuracy" or
            "squared_error".
        held_out: share of the records that models are scored on, in (0, 1).
        limits: time limit and cancellation of the whole search. If a limit is reached, nothing is released.
            Progress is shown only if all candidates are run.
        ledger: a ``Ledger``, its path or URL: the spend is booked once, before a record is read, and stays
            booked if the search fails or is interrupted.
        person, records_per_person: as for ``PrivateHalfspaceClassifier``, but set for the whole search, not
            for candidates. With more than one record per person, both parts may hold records of the same
            person, so that scores are optimistic.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*

    Attributes:
        best_estimator_: the model; its ``spend_`` is the spend of the search.
        best_params_, best_index_: the parameters of the best candidate, and its index.
        best_score_: the noisy score of the best candidate, which is optimistic because it is the best of
            several.
        spend_: the privacy spend of the search.
        plan_: the ``SearchPlan``.
        scorer_: the name of the score.

    References:
        Liu and Talwar (STOC 2019); Papernot and Steinke (ICLR 2022).
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Any] | None = None,
        *,
        epsilon: float = 1.0,
        delta: float | str = "auto",
        scoring: str | None = None,
        held_out: float = 0.2,
        limits: Limits | None = None,
        ledger: Ledger | str | Path | None = None,
        insecure_seed: int | None = None,
        person: str | None = None,
        records_per_person: int | str = 1,
    ) -> None:
        self.person = person
        self.records_per_person = records_per_person
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.scoring = scoring
        self.held_out = held_out
        self.limits = limits
        self.ledger = ledger
        self.insecure_seed = insecure_seed

    def fit(self, X: Any, y: Any = None) -> Self:
        """Search, and keep the best model.

        Args:
            X: records in memory, as the estimators take them: an array, a data frame, or a sparse matrix.
            y: labels, shape (n,).

        Raises:
            InvalidInputError: invalid candidates or data (a ``ValueError``).
            PrivacyParameterError: a budget or a candidate that cannot be planned; no record was read.
            BudgetExceededError: the ledger refused the spend; no record was read.
            SearchError: a limit was reached, or every run failed; nothing was released.
        """
        check_limits(self.limits)
        if self.person is not None:
            return self._fit_persons(X, y)
        if not (isinstance(X, Unread) and is_part()):  # unread records come from a search for persons
            _check_table(X)
        candidates = self._candidates()
        given, *_ = [self._unread(candidate, X, y) for candidate in candidates]
        planned = self.plan(given.n_records, given.n_columns)
        source, score = NoiseSource(self.insecure_seed), _score_of(self.scoring, candidates)
        spend = replace(planned.spend, insecure_seed=source.insecure_seed)
        with booked(self.ledger, spend, given) as (X, y):
            parts = _split(_checked(X, candidates), y, planned, source)
            search = _Search(
                candidates, planned, score, source, started(self.limits), self._delta_given(planned)
            )
            best = search.run(*parts)
            if (model := best.made) is None:
                raise SearchError(
                    f"none of the {len(candidates)} candidates could be fitted and scored: every run failed, "
                    "and nothing was released. To do: fit each candidate alone to synthetic records of the "
                    "same form, to see its error; errors on the records are not shown, as they may reveal "
                    "records"
                )
        self.best_estimator_, self.best_index_, self.best_score_ = model.estimator, model.number, best.score
        self.best_params_ = planned.candidates[model.number]
        self.plan_, self.spend_, self.scorer_ = planned, spend, score.name
        if isinstance(model.estimator, BookedEstimator):
            self.best_estimator_.spend_ = spend
            self.best_estimator_.set_params(limits=candidates[model.number].estimator.limits)
        return self

    def _fit_persons(self, X: Any, y: Any) -> Self:
        """Search as ``fit`` does, with the guarantee for persons in place of records."""
        _check_table(X)
        for candidate in self._candidates():
            known = candidate.estimator.get_params(deep=False)
            if self.records_per_person != 1 and known.get("risk_share"):
                raise InvalidInputError(ONCE)
            schema = known.get("schema")
            opened_table(X, y, self.person, None if schema is None else declared_schema(schema))
        fit_persons(self, X, y)
        best = self.best_estimator_
        if isinstance(best, BookedEstimator):
            without_intervals(best, self.records_per_person_)
            self.best_estimator_.spend_ = self.spend_
        self.plan_ = replace(self.plan_, spend=self.spend_)
        return self

    def plan(self, n_records: int, n_columns: int | None = None) -> SearchPlan:
        """Plan a search over ``n_records`` without data: every candidate, the budget of a run, the spend, and
        what to expect.

        Args:
            n_records: number of records; with ``person``, number of persons.
            n_columns: number of columns without the column of persons, for estimators without a schema.

        Raises:
            PrivOptError: an argument that ``fit`` would refuse before it reads records.
        """
        if self.person is not None:
            whole: SearchPlan = plan_of_persons(self, n_records, n_columns)
            return whole
        candidates, n = self._candidates(), check_count(n_records, "n_records")
        _score_of(self.scoring, candidates)
        share = check_real(self.held_out, "held_out")
        if not 0 < share < 1:
            raise InvalidInputError(f"held_out is a share of the records in (0, 1), got {share!r}")
        held = max(1, int(share * n))
        if n - held < 2:
            raise InvalidInputError(
                f"n_samples = {n}: a search needs at least 3 records, 2 to fit a model to"
            )
        delta = public_delta(self.delta, n)
        given: Unread[Any] = Unread(n - held, never_read, n_columns)
        selection, spends = self._planned(candidates, given, delta)
        spend = _relying(selection, candidates, spends)
        expected = expected_lines(selection, candidates, delta, n, held)
        return SearchPlan(
            selection, tuple(c.params for c in candidates), spends, n - held, held, spend, expected
        )

    def _planned(
        self, candidates: Sequence[Candidate], given: Unread[Any], delta: float
    ) -> tuple[SelectionPlan, tuple[PrivacySpend, ...]]:
        """Plan in a notion of privacy that the runs of all candidates have, and return the runs' spends."""
        notion: Notion = "gdp" if delta else "pure"
        for _ in range(3):
            plan = SelectionPlan.plan(len(candidates), epsilon=self.epsilon, delta=delta, notion=notion)
            given_delta = plan.run_delta or delta / len(candidates)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                spends = tuple(_run_spend(c, plan, given_delta, given) for c in candidates)
            if all(map(plan.covers, spends)):
                for warning in {str(each.message): each.message for each in caught}.values():
                    warnings.warn(warning, stacklevel=3)  # each once, of the final plan only
                return plan, spends
            found = {spend.notion for spend in spends}
            before, notion = notion, _common(found, delta)
            if notion == before:
                notion = "approximate"
        raise PrivacyParameterError(
            f"candidates spend more than the epsilon = {plan.run_epsilon:g}, delta = {plan.run_delta:g} that "
            f"each run was given, or their spends cannot be added up: {'; '.join(map(str, spends))}"
        )

    def _delta_given(self, planned: SearchPlan) -> float:
        """Return the delta that is set in each candidate; purely private candidates ignore it."""
        n = planned.n_fitted + planned.n_held_out
        return planned.selection.run_delta or public_delta(self.delta, n) / len(planned.candidates)

    def _candidates(self) -> list[Candidate]:
        """Return all candidates, checked as far as possible without knowing the data."""
        several = isinstance(self.estimator, list | tuple)
        estimators = list(self.estimator) if several else [self.estimator]
        grids = (
            self.param_grid
            if several and self.param_grid is not None
            else [self.param_grid] * len(estimators)
        )
        if not isinstance(grids, Sequence) or len(grids) != len(estimators):
            raise InvalidInputError(f"{len(estimators)} estimators need a list of as many grids")
        made = []
        for estimator, grid in zip(estimators, grids, strict=True):
            try:
                choices = list(ParameterGrid({} if grid is None else grid))
            except (TypeError, ValueError) as error:
                raise InvalidInputError(f"param_grid: {error}") from None
            made += [Candidate(_with(estimator, params), params) for params in choices]
        if len(made) < 2:
            raise InvalidInputError("one candidate needs no search: fit it")
        return made

    def _unread(self, candidate: Candidate, X: Any, y: Any) -> Unread[Any]:
        """Return the unread table after all checks that read no cell, including the check of the schema."""
        schema = candidate.estimator.get_params(deep=False).get("schema")
        known = None if schema is None else declared_schema(schema)
        probe = clone(candidate.estimator)

        def refuse(zeros: NDArray[Any]) -> object:
            return validated(probe, zeros)

        return unread_table(X, y, known, refuse)

    @_of_best("predict")
    def predict(self, X: Any) -> Any:
        """Predict with the best model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict(X)

    @_of_best("predict_proba")
    def predict_proba(self, X: Any) -> Any:
        """Return class probabilities of the best model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.predict_proba(X)

    @_of_best("decision_function")
    def decision_function(self, X: Any) -> Any:
        """Return scores of the best model."""
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_.decision_function(X)

    @_of_best("score")
    def score(self, X: Any, y: ArrayLike) -> float:
        """Return what the method ``score`` of the best model returns. Not private."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes of the best model."""
        check_is_fitted(self, "best_estimator_")
        classes: NDArray[Any] = self.best_estimator_.classes_
        return classes

    @property
    def n_features_in_(self) -> int:
        """The number of columns that the best model was fitted to."""
        if "best_estimator_" not in self.__dict__:
            raise AttributeError("n_features_in_: the search is not fitted")
        return int(self.best_estimator_.n_features_in_)

    def __sklearn_is_fitted__(self) -> bool:
        return "best_estimator_" in self.__dict__

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        estimators = self.estimator if isinstance(self.estimator, list | tuple) else [self.estimator]
        first = get_tags(estimators[0])
        tags.estimator_type, tags.classifier_tags = first.estimator_type, first.classifier_tags
        tags.regressor_tags, tags.input_tags = first.regressor_tags, first.input_tags
        tags.target_tags, tags.non_deterministic = first.target_tags, True
        return tags


@dataclass(frozen=True)
class _Score:
    """A score of models by name, with the public facts on labels: classes, or their range."""

    name: str
    classes: NDArray[Any] | None
    label_range: tuple[float, float] | None

    def labels(self, y: Any, n: int) -> NDArray[Any]:
        """Validate labels; return class indices, or real numbers for regression."""
        if self.classes is None:
            return real_labels(y)
        return class_indices(checked_labels(y, n), self.classes)

    def of(self, model: Any, X: Any, labels: NDArray[Any]) -> NDArray[np.float64]:
        """Return a score in [0, 1] for each record; not private."""
        if self.classes is None:
            return REGRESSION_SCORES[self.name](model, X, labels, self.label_range)
        return CLASS_SCORES[self.name](model, X, labels, self.classes)


class _Fitted(NamedTuple):
    """A fitted model and the number of its candidate."""

    estimator: Any
    number: int


@dataclass(frozen=True)
class _Search:
    """The runs of a search whose spend is booked."""

    candidates: Sequence[Candidate]
    planned: SearchPlan
    score: _Score
    source: NoiseSource
    clock: Watch
    given_delta: float

    def run(self, fitted: _Part, held_out: _Part) -> Run[_Fitted]:
        """Return the best run.

        Raises:
            SearchError: a limit was reached.
        """
        n = self.planned.n_held_out
        labels, best = self.score.labels(held_out.y, n), BestRun[_Fitted](self.source)
        self.score.labels(fitted.y, self.planned.n_fitted)  # refuse unusable labels before any run
        for done, number in enumerate(self.planned.selection.runs(self.source)):
            best.take(self._one(number, fitted, held_out.X, labels))
            self._check_limits()
            if self.planned.selection.law is None:
                self.clock.report(np.nan, np.nan, done + 1, len(self.candidates))
        assert best.best is not None
        return best.best

    def _check_limits(self) -> None:
        if (reason := self.clock.stop()) is not None:
            raise SearchError(
                f"stopped by {reason.name} after {self.clock.seconds:.1f} s: nothing was released, and the "
                f"budget stays spent. To do: {reason.value}"
            )

    def _one(self, number: int, fitted: _Part, X: Any, labels: NDArray[Any]) -> Run[_Fitted]:
        """Fit and score one candidate; a run that fails for any reason gets the lowest score."""
        try:
            with warnings.catch_warnings():  # how often they appear would reveal the number of runs
                warnings.simplefilter("ignore")
                model = self._fitted(number, fitted)
                scores = self.score.of(self._scorer(model, X), _own_copy(model, X), labels)
            return Run(_Fitted(model, number), self.planned.selection.score.release(scores, self.source))
        except _OverspentError:
            raise
        except Exception:
            return Run(None, -np.inf)

    def _scorer(self, model: Any, X: Any) -> Any:
        """Return a copy of the model that scores records.

        Raises:
            InvalidInputError: a model from outside this package, whose prediction of a row depends on other
                rows of the call, so that one record could change every score.
        """
        if is_own(model):
            return for_workers(model)
        fresh, columns = FreshModel.of(model), getattr(X, "columns", None)
        predictions = _Predictions(fresh, self.score, int(X.shape[1]), columns)
        check_rowwise_scores(predictions, getattr(model, "schema", None))
        return fresh.copy()

    def _fitted(self, number: int, fitted: _Part) -> Any:
        model = _with_budget(self.candidates[number], self.planned.selection, self.given_delta)
        known = model.get_params(deep=False)
        if "limits" in known:  # progress of runs would reveal their number
            limits = known["limits"] or self.clock.rest
            model.set_params(limits=replace(limits, on_progress=None))
        if self.source.insecure_seed is not None:
            seed = int(self.source.integers(1 << 31)[0])
            model.set_params(**{name: seed for name in ("insecure_seed", "random_state") if name in known})

        def check(spend: PrivacySpend) -> None:
            if not self.planned.selection.covers(spend):
                raise _OverspentError(f"{type(model).__name__} spends {spend}, which is not what was planned")

        with charged(check):
            model.fit(*_own_copy(model, fitted))
        return model


def _own_copy(model: Any, rows: Given) -> Given:
    """Return rows that the model may modify: a copy for a model from outside this package.

    An outside model may scale its rows in place, and all runs read the same records. If one run scaled them
    by a statistic of all records, replacing one record would change every record of the other runs.
    """
    return rows if is_own(model) else deepcopy(rows)


@dataclass(frozen=True)
class _Predictions:
    """Predictions of fresh copies of a model, as one number per row."""

    model: FreshModel
    score: _Score
    n_features_in_: int
    feature_names_in_: Any

    def decision_function(self, rows: Any) -> NDArray[np.float64]:
        model, classes = self.model.copy(), self.score.classes
        if self.score.name == "brier":
            risks = np.asarray(model.predict_proba(rows), dtype=np.float64)
            return np.asarray(risks @ np.arange(risks.shape[1], dtype=np.float64))
        predicted = np.asarray(model.predict(rows))
        if classes is None:
            return np.asarray(predicted, dtype=np.float64)
        return np.asarray(np.argmax(predicted[:, None] == classes, axis=1), dtype=np.float64)


class _OverspentError(PlanMismatchError):
    """A fit that would spend more than was planned before records were read."""


def _run_spend(candidate: Candidate, plan: SelectionPlan, delta: float, given: Unread[Any]) -> PrivacySpend:
    """Return what a run of a candidate costs, before any data are read.

    For estimators of this package, start a fit that stops where it would read records.
    """
    model = _with_budget(candidate, plan, delta)
    if not isinstance(model, BookedEstimator):
        return _declared_spend(model)
    try:
        return relying_on(spend_of_fit(model, given), plan, ("estimator", type(model)))
    except PrivOptError as error:
        error.add_note(f"The error is about the candidate {_words(candidate.params)} of the search")
        raise


def _declared_spend(model: Any) -> PrivacySpend:
    """Return the spend that an estimator from outside this package declares by its parameters."""
    known, name = model.get_params(deep=False), type(model).__name__
    if "epsilon" in known and "delta" in known:
        spend = PrivacySpend.approximate(known["epsilon"], known["delta"], name)
    elif "epsilon" in known:
        spend = PrivacySpend.pure(known["epsilon"], name)
    else:
        spend = PrivacySpend.gdp(known["mu"], _DELTA_OF_MU, name)
    return relying_on(spend, None, ("estimator", type(model)))


# A GDP spend is stated with some delta; only its level mu is used here, so any delta serves.
_DELTA_OF_MU = 1e-6


def _with_budget(candidate: Candidate, plan: SelectionPlan, delta: float) -> Any:
    """Return a new estimator with the budget of a run."""
    model = clone(candidate.estimator)
    known = model.get_params(deep=False)
    if "epsilon" in known:
        values = {"epsilon": plan.run_epsilon, **({"delta": delta} if "delta" in known else {})}
    elif plan.run_mu is not None:
        values = {"mu": plan.run_mu}
    else:
        raise PrivacyParameterError(
            f"{type(model).__name__} is mu-GDP, and other candidates are not: search them separately"
        )
    return model.set_params(**values)


def _with(estimator: Any, params: Mapping[str, Any]) -> Any:
    """Return a new estimator with the parameters of a candidate.

    Raises:
        InvalidInputError: the estimator has no budget parameter, or has a ledger or fixed noise of its own.
    """
    if not hasattr(estimator, "get_params") or isinstance(estimator, type):
        raise InvalidInputError(
            f"estimator must be an estimator of scikit-learn's kind, got {told(estimator)}"
        )
    name = type(estimator).__name__
    if wrong := sorted(set(params) & set(_BUDGET)):
        raise InvalidInputError(f"{', '.join(wrong)}: set for every run by the search, so not searched over")
    try:
        model = clone(estimator).set_params(**params)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{name} with {_words(params)}: {error}") from None
    known = model.get_params(deep=False)
    if isinstance(known.get("ledger"), CarriedBudgets):  # the search carries the same budgets
        known = model.set_params(ledger=None).get_params(deep=False)
    if "epsilon" not in known and "mu" not in known:
        raise InvalidInputError(
            f"{name} has no parameter epsilon or mu, so its fit would not be private: a search needs private "
            "estimators, and does not accept pipelines with steps that learn from records"
        )
    if known.get("person") is not None:
        raise InvalidInputError(
            f"{name}: person must be None; set it for the whole search, PrivateSearchCV(person=...)"
        )
    if fixed := [key for key, value in model.get_params().items() if _is_fixed(key, value)]:
        raise InvalidInputError(
            f"{name}: {' and '.join(fixed)} must be None: the search books once, and runs have fresh noise"
        )
    return model


def _is_fixed(key: str, value: Any) -> bool:
    """Return whether a parameter is a ledger or fixes the noise: a seed, or a generator.

    Copies of a generator, one per run, would repeat its numbers.
    """
    kinds = (np.random.Generator, np.random.BitGenerator, np.random.RandomState)
    return isinstance(value, kinds) or (
        value is not None and key in ("ledger", "insecure_seed", "random_state")
    )


def _words(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {told(value)}" for name, value in params.items()) or "without parameters"


def _common(found: set[str], delta: float) -> Notion:
    """Return one notion of privacy for runs whose notions are ``found``.

    Raises:
        PrivacyParameterError: delta = 0, and a notion that needs a delta.
    """
    if found == {"pure"}:
        return "pure"
    if delta == 0:
        raise PrivacyParameterError("delta = 0, and some candidates are not purely private: declare a delta")
    return "gdp" if found == {"gdp"} else "approximate"


def _relying(
    plan: SelectionPlan, candidates: Sequence[Candidate], spends: Sequence[PrivacySpend]
) -> PrivacySpend:
    """Return the spend of the search, with a note of all outside code that the claims of its runs rely on."""
    spend = plan.spend
    for claimed in spends:
        if claimed.claim != "proved" and claimed.note not in spend.note:
            spend = spend.relying_on(claimed.note, checked=False)
    return spend


def _score_of(name: object, candidates: Sequence[Candidate]) -> _Score:
    """Return the score by name, with the public facts of the labels: the classes of all candidates, or a
    label range that covers theirs."""
    models = [candidate.estimator for candidate in candidates]
    kinds = {is_regressor(model) for model in models}
    if len(kinds) > 1:
        raise InvalidInputError("classifiers and regressors have no score in common: search them separately")
    known = REGRESSION_SCORES if kinds == {True} else CLASS_SCORES
    chosen = next(iter(known)) if name is None else name
    if not isinstance(chosen, str) or chosen not in known:
        raise InvalidInputError(f"scoring must be one of {', '.join(known)} here; got {told(name)}")
    if kinds == {True}:
        return _Score(chosen, None, _common_range(models))
    declared = [model.get_params(deep=False).get("classes") for model in models]
    stated = [distinct_classes(given, np.array([])) for given in declared if given is not None]
    if not stated or any(classes.tolist() != stated[0].tolist() for classes in stated):
        raise InvalidInputError("declare the same classes for all candidates: a search infers nothing")
    if chosen == "brier" and not all(hasattr(model, "predict_proba") for model in models):
        raise InvalidInputError("brier needs predict_proba of every candidate; for scorecards set risk_share")
    return _Score(chosen, stated[0], None)


def _common_range(models: Sequence[Any]) -> tuple[float, float]:
    ranges = [model.get_params(deep=False).get("label_range") for model in models]
    stated = [check_label_range(given) for given in ranges if given is not None]
    if not stated:
        raise InvalidInputError("declare label_range for a candidate: its width is the unit of scored errors")
    return min(low for low, _ in stated), max(high for _, high in stated)


def _check_table(X: Any) -> None:
    if is_dask(X) or is_engine_table(X) or isinstance(X, CountedRecords | Unread):
        raise InvalidInputError(
            f"a search splits records at random, so it takes a table in memory, not {told(X)}: "
            "X.compute() or X.to_pandas(), say"
        )


def _checked(X: Any, candidates: Sequence[Candidate]) -> Any:
    """Return a table whose rows can be selected.

    If no candidate has a schema, check the cells as these estimators do.

    Raises:
        InvalidInputError: cells that no run can use.
    """
    X = as_table(X)
    free = [c for c in candidates if c.estimator.get_params(deep=False).get("schema") is None]
    if len(free) < len(candidates):
        return X
    checked = validated(clone(free[0].estimator), X, accept_sparse="csr", dtype=[np.float64, np.float32])
    return X if hasattr(X, "iloc") else checked


def _split(X: Any, y: Any, planned: SearchPlan, source: NoiseSource) -> tuple[_Part, _Part]:
    """Split the records at random into a part for fits and a held-out part; each part keeps its order.

    The split is drawn from fresh noise and never shown, so the guarantee holds for any order of the rows.
    """
    words = source.bits(planned.n_fitted + planned.n_held_out)
    while np.unique(words).size < words.size:  # without ties, all orders have the same probability
        words = source.bits(words.size)
    order = np.argsort(words)
    held = np.sort(order[: planned.n_held_out])
    rest = np.sort(order[planned.n_held_out :])
    return _Part(_rows(X, rest), _rows(y, rest)), _Part(_rows(X, held), _rows(y, held))


def _rows(table: Any, numbers: NDArray[np.int64]) -> Any:
    if hasattr(table, "iloc"):
        return table.iloc[numbers]
    if isinstance(table, list | tuple):
        return [table[i] for i in numbers]
    if sp.issparse(table):
        sparse: Any = table
        return sparse.tocsr()[numbers]
    return np.asarray(table)[numbers]
