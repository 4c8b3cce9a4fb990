"""A schema and a model that uses it, both learned from the same records under one plan and one booking."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar

from sklearn.base import clone

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.estimators.booked_estimator import BookedEstimator, spend_of_fit
from privopt.mechanisms.estimators.booking import Unread, booked, charged, unread_table
from privopt.mechanisms.estimators.learn_schema import cells_by_name, column_types, declared_types
from privopt.mechanisms.estimators.learned_engine import EngineRecords
from privopt.mechanisms.estimators.persons import (
    ONCE,
    of_record,
    params_of,
    places_of,
    records_per_person,
    without_intervals,
)
from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
from privopt.mechanisms.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.groups import PersonBudget
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_delta, check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseWarning
from privopt.mechanisms.schemas.learning import DEFAULT_CUTS, LearnedSchema, SchemaPlan
from privopt.mechanisms.schemas.types import ColumnType
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.schema import Schema, numeric_between
from privopt.problems.tables.sources import is_engine_table

Model = TypeVar("Model", bound=BookedEstimator)

_DOWN = 1 - 2.0**-40
# Bounds on the number of categories of a learned column, tried in turn; None: all learned categories.
_MOST_CATEGORIES = (None, 32, 8, 2, 1)
_COARSER = "the model takes fewer categories than learned: the {} most frequent ones of each column are used"


@dataclass(frozen=True, eq=False)
class LearnedFitPlan:
    """Plan of a schema and of a model that is fitted with it, as one release.

    Privacy: ``spend``, for data sets that differ by replacing one record; their number is public. The schema
    is mu-GDP, where mu is its ``level``, apart from the deltas of its categories, which are added. The model
    depends on the records and on the released schema, so the composition of both is adaptive.

    - If the model is mu'-GDP, both together are sqrt(mu^2 + mu'^2)-GDP (Dong, Roth and Su 2022, corollary
      3.3). A scorecard "seeded" has such a level mu', which its spend does not state
      (``SeededScorecard.level``).
    - If the model is (a, d)-differentially private, it is dominated, up to an event of probability d, by one
      randomised bit with odds exp(a) (Kairouz, Oh and Viswanath 2015, theorem 3.2). The composition of this
      bit with the Gaussian pair of the schema has at epsilon the delta p D(epsilon - a) + (1 - p) D(epsilon +
      a), where p = exp(a) / (1 + exp(a)) and D(x) is the delta of mu-GDP at epsilon = x.

    Attributes:
        schema: plan of the schema.
        spend: the spend of schema and model together.
        mu: the level of Gaussian differential privacy that is left for a model.
        model_epsilon, model_delta: budget of the model.
        gaussian: whether the model must have a level of at most ``mu``; otherwise its epsilon and delta must
            be within ``model_epsilon`` and ``model_delta``.
    """

    schema: SchemaPlan
    spend: PrivacySpend
    mu: float
    model_epsilon: float
    model_delta: float
    gaussian: bool

    @classmethod
    def plan(
        cls,
        types: Mapping[str, ColumnType | str],
        n_records: int,
        *,
        share: float,
        epsilon: float,
        delta: float,
        gaussian: bool,
        **options: Any,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            types, n_records, options: as for ``SchemaPlan.plan``.
            share: the share of mu^2 that the schema spends, in (0, 1).
            epsilon, delta: budget of schema and model together.
            gaussian: whether the model has a level of Gaussian differential privacy.

        Raises:
            PrivacyParameterError: the budget is too small for the schema, or leaves nothing for the model.
        """
        check_epsilon(epsilon)
        check_delta(delta)
        if not isinstance(share, float) or not 0 < share < 1:
            raise InvalidInputError(f"the share of the schema must be a number in (0, 1), got {told(share)}")
        declared = options.get("declared")
        free = set() if declared is None else {column.name for column in declared.columns}
        texts = any(
            kind in (ColumnType.TEXT, ColumnType.VOTE) for name, kind in types.items() if name not in free
        )
        kept = delta / 2 if texts else delta  # categories take the other half
        mu = gaussian_mu(epsilon, kept)
        part = gaussian_epsilon(mu * math.sqrt(share), kept)
        schema = SchemaPlan.plan(types, n_records, epsilon=part, delta=delta, **options)
        left = delta - math.fsum(column.delta for column in schema.columns)
        whole = gaussian_mu(epsilon, left)
        rest = math.sqrt(whole**2 - schema.level**2) * _DOWN
        if gaussian:
            budget = gaussian_epsilon(rest, left) * _DOWN, left
        else:
            budget = _epsilon_beside(schema.level, epsilon, left / 2), left / 2 * _DOWN
        spend = PrivacySpend.approximate(epsilon, delta, "learn-schema and model")
        return cls(schema, spend, rest, *budget, gaussian)

    def covers(self, spend: PrivacySpend, level: float | None = None) -> bool:
        """Return whether a model costs no more than the plan left for it.

        Args:
            spend: the spend of the model.
            level: the model's level of Gaussian differential privacy if its spend does not state it.
        """
        if self.gaussian:
            own = spend.level if spend.notion == "gdp" else level
            return own is not None and own <= self.mu
        return spend.epsilon <= self.model_epsilon and spend.delta <= self.model_delta

    def to_dict(self) -> dict[str, Any]:
        """Return the total spend and the parts of schema and model, for JSON."""
        model = {"epsilon": self.model_epsilon, "delta": self.model_delta}
        return {**self.spend.to_dict(), "schema": self.schema.to_dict(), "model": model}


def delta_beside(mu: float, beside: float, epsilon: float) -> float:
    """Return the delta at ``epsilon`` of a mu-GDP plus a (``beside``, 0)-private release, rounded up."""
    p = 1 / (1 + math.exp(-beside))
    first, second = gaussian_delta(mu, epsilon - beside), gaussian_delta(mu, epsilon + beside)
    return (p * first + (1 - p) * second) * (1 + 2.0**-40)


def _epsilon_beside(mu: float, epsilon: float, delta: float) -> float:
    """Return the largest a such that an (a, 0)-private and a mu-GDP release together keep (epsilon, delta).

    Raises:
        PrivacyParameterError: the mu-GDP release alone needs the whole budget.
    """
    if gaussian_delta(mu, epsilon) >= delta * _DOWN:
        raise PrivacyParameterError(
            "the schema leaves no budget for a model of this mechanism. To do: a smaller share, a larger "
            "epsilon, or a mechanism with Gaussian noise"
        )
    low, high = 0.0, epsilon
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_beside(mu, middle, epsilon) <= delta * _DOWN else (low, middle)
    return low


def fit_with_learned_schema(
    estimator: Model,
    X: Any,
    y: Any,
    *,
    share: float = 0.1,
    types: Mapping[str, str] | None = None,
    declared: Schema | dict[str, Any] | str | Path | None = None,
    leave_out: Sequence[str] = (),
    cuts: int = DEFAULT_CUTS,
    na_values: Sequence[str | float] = (),
) -> Model:
    """Learn a schema from a table, then fit an estimator with it to the same records, as one release.

    Privacy: schema and model together have the estimator's (epsilon, delta), for data sets that differ by
    replacing one record, or one person if the estimator has ``person``; public facts as for ``learn_schema``.
    One spend is booked in the estimator's ledger before a cell is read, and is ``spend_`` of the model
    (``LearnedFitPlan``).

    Args:
        estimator: an unfitted estimator of this package, with classes (or label range) declared and with
            schema None; it is not changed. Without a parameter delta, the total delta is 1/n^2.
        X: a data frame (pandas, polars, pyarrow) or a mapping of columns, in memory; or an Ibis table.
        y: labels, shape (n,); for an Ibis table the name of the label column.
        share: the schema's share of the budget, in (0, 1), measured in mu^2 of Gaussian differential privacy.
        types, declared, leave_out, cuts, na_values: as for ``learn_schema``.

    Returns:
        A fitted copy of the estimator, with the learned schema.

    Raises:
        PrivacyParameterError: a budget that is too small; no record was read.
        InvalidInputError, SchemaError: facts that are missing or cannot be used.
        BudgetExceededError: the ledger refused the spend; no record was read.

    If an error is raised after the schema was released, its attribute ``learned`` holds the schema. If the
    model refuses so many categories, only the most frequent ones are used, with a warning.
    """
    known = None if declared is None else declared_schema(declared)
    left = [*leave_out, *filter(None, [params_of(estimator).get("person")])]
    options: dict[str, Any] = {"cuts": cuts, "declared": known, "na_values": na_values}
    given: Unread[Any] | EngineRecords
    if is_engine_table(X):
        given, left = EngineRecords(X, y, params_of(estimator).get("classes")), [*left, y]
    else:
        given = unread_table(X, y, None)
    kinds = column_types(declared_types(X), types or {}, known, left)
    return fit_learned(estimator, given, kinds, share, options)


def fit_learned(
    estimator: Model,
    given: Unread[Any] | EngineRecords,
    kinds: Mapping[str, str],
    share: float,
    options: Mapping[str, Any],
) -> Model:
    """Plan and book schema and model, then release the schema and fit the model."""
    known = params_of(estimator)
    if known.get("schema") is not None:
        raise InvalidInputError("schema must be None where one is learned; give known columns as declared=")
    source, persons = NoiseSource(known["insecure_seed"]), None
    if known.get("person") is not None:
        k = records_per_person(estimator)
        if k is None:
            raise InvalidInputError(
                "records_per_person must be a number where a schema is learned in the same release. To do: "
                "learn the schema first, by learn_schema(person=...), then fit with it"
            )
        if k > 1 and known.get("risk_share"):
            raise InvalidInputError(ONCE)
        if isinstance(given, EngineRecords):
            given = given.of_persons(known["person"], k)
        else:
            given = places_of(given, None, known["person"], options["declared"], k, source)
        delta = public_delta(known.get("delta", "auto"), given.n_records // k)
        persons = PersonBudget(known["epsilon"], delta, k)
    check = given.check if isinstance(given, EngineRecords) else None
    given = given.unread() if isinstance(given, EngineRecords) else given
    model = _fitted(estimator, given, kinds, share, options, source, persons, check)
    own = ("epsilon", "delta", "ledger", "person", "records_per_person")
    asked: Model = model.set_params(**{key: known[key] for key in own if key in known})  # type: ignore[attr-defined]
    return asked


def _fitted(
    estimator: Model,
    given: Unread[Any],
    kinds: Mapping[str, str],
    share: float,
    options: Mapping[str, Any],
    source: NoiseSource,
    persons: PersonBudget | None,
    check: Callable[[SchemaPlan], None] | None,
) -> Model:
    """Return the fitted model with its schema; with ``persons``, ``given`` holds the places of persons."""
    ledger = params_of(estimator)["ledger"]
    delta = public_delta(params_of(estimator).get("delta", "auto"), given.n_records)
    if persons is not None:
        estimator = of_record(estimator, persons, "approximate")
        delta = persons.of_record("approximate")[1]
    plan, before = _planned(estimator, given, kinds, share, options, delta)
    if check is not None:
        check(plan.schema)
    spend = replace(
        plan.spend,
        mechanism=f"{SchemaPlan.name}, {before.mechanism}",
        claim=before.claim,
        note=before.note,
        insecure_seed=source.insecure_seed,
    )
    if persons is not None:
        spend = persons.of_person(spend)
    with booked(ledger, spend, given) as records:
        learned = plan.schema.release(_cells(records, plan.schema), source)
        with _keeping(learned):
            model: Any = _taking(estimator, plan, learned, given, before)
            counts = isinstance(records, EngineRecords)
            pair = (records.counted(model.schema), None) if counts else records
            with charged(_charge(plan, _level_of(model, given.n_records))):
                model.fit(given.known(pair))
    model.spend_ = spend
    without_intervals(model, 1 if persons is None else persons.records)
    made: Model = model
    return made


def _taking(
    estimator: Any,
    plan: LearnedFitPlan,
    learned: LearnedSchema,
    given: Unread[Any],
    before: PrivacySpend,
) -> Any:
    """Return the unfitted model with the finest version of the learned schema that it accepts.

    No record is read: everything decided here follows from the released schema. The plan was made for one
    category per text column; with more categories, a model may refuse the schema or choose another mechanism.
    If the newly chosen mechanism does not fit the planned budget and claim, the mechanism of the plan is set
    by name.

    Raises:
        PrivOptError: the model accepts none of the versions.
    """
    refused: PrivOptError | None = None
    for most in _MOST_CATEGORIES:
        schema = learned.schema if most is None else learned.coarser(most)
        for mechanism in (None, before.mechanism):
            try:
                made = _with_budget(estimator, plan, schema, mechanism)
                spend = _quiet_spend(made, given)
                level = _level_of(made, given.n_records)
                if plan.covers(spend, level) and spend.claim == before.claim:
                    _check_ends(made, given.n_records)
                    if most is not None:
                        warnings.warn(_COARSER.format(most), stacklevel=6)
                    return made
            except PrivOptError as error:
                refused = refused or error
    raise refused or PlanMismatchError("the model's spend is more than the plan left for it: report this")


def _quiet_spend(model: Any, given: Unread[Any]) -> PrivacySpend:
    """Return the spend of a fit; suppress its warnings, as this fit may never be made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        return spend_of_fit(model, given)


def _level_of(model: Any, n_records: int) -> float | None:
    """Return the GDP level of a scorecard by "seeded" without further releases; None for other models."""
    if not isinstance(model, PrivateHalfspaceClassifier):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        planned = model.plan(n_records)
    plan, whole = planned.plan, planned.spend
    alone = (whole.epsilon, whole.delta) == (plan.spend.epsilon, plan.spend.delta)
    return plan.level if isinstance(plan, SeededScorecard) and alone else None


def _check_ends(model: Any, n_records: int) -> None:
    """Raise InvalidInputError for a mechanism that searches: its time depends on records and categories."""
    if isinstance(model, PrivateHalfspaceClassifier) and model.plan(n_records).seconds is None:
        raise InvalidInputError(
            f"mechanism {told(model.mechanism)}: its time depends on the records, and it may not end for a "
            "schema that is not known yet. To do: mechanism='seeded' (--mechanism seeded), which is sure to "
            "end; or learn the schema first (learn_schema, privopt schema learn), then fit with it"
        )


@contextmanager
def _keeping(learned: LearnedSchema) -> Iterator[None]:
    """Add the learned schema, whose budget is spent, to errors of the block, as attribute ``learned``."""
    try:
        yield
    except Exception as error:
        error.learned = learned  # type: ignore[attr-defined]
        error.add_note(
            "The schema was released before, and using it costs nothing: it is the attribute `learned` of "
            "this error"
        )
        raise


def learned_before(error: BaseException) -> LearnedSchema | None:
    """Return the schema that was released before a fit with it failed; None if there is none."""
    found: LearnedSchema | None = getattr(error, "learned", None)
    return found


def _cells(records: Any, plan: SchemaPlan) -> Any:
    """Return the planned columns of the records, in an engine or in memory."""
    if isinstance(records, EngineRecords):
        return records.cells(plan)
    return cells_by_name(records[0], [column.name for column in plan.columns])


def _planned(
    estimator: Any,
    given: Unread[Any],
    kinds: Mapping[str, str],
    share: float,
    options: Mapping[str, Any],
    delta: float,
) -> tuple[LearnedFitPlan, PrivacySpend]:
    """Return the plan, and the spend of the model with a placeholder schema, without reading records.

    Raises:
        PrivacyParameterError: the spend of the model is more than the schema leaves.
    """
    known = params_of(estimator)
    if not {"epsilon", "schema"} <= set(known):
        raise InvalidInputError(
            f"{type(estimator).__name__} has no epsilon and schema: none is learned for it"
        )
    for gaussian in (True, False):
        plan = LearnedFitPlan.plan(
            kinds,
            given.n_records,
            share=share,
            epsilon=known["epsilon"],
            delta=delta,
            gaussian=gaussian,
            **options,
        )
        model = _with_budget(estimator, plan, _stand_in(plan.schema))
        while plan.gaussian and (level := _level_of(model, given.n_records) or 0.0) > plan.mu:
            plan = replace(plan, model_epsilon=plan.model_epsilon * min(plan.mu / level, 1 - 1e-6))
            model = _with_budget(estimator, plan, _stand_in(plan.schema))
        spend = spend_of_fit(model, given)
        if plan.covers(spend, _level_of(model, given.n_records)):
            _check_ends(model, given.n_records)
            return plan, spend
    raise PrivacyParameterError(
        f"{spend} of the model is more than the schema leaves it, epsilon = {plan.model_epsilon:g} and "
        f"delta = {plan.model_delta:.3g}: report this"
    )


def _charge(plan: LearnedFitPlan, level: float | None) -> Any:
    def check(spend: PrivacySpend) -> None:
        if not plan.covers(spend, level):
            raise PlanMismatchError(f"{spend} of the model is more than the plan left for it: report this")

    return check


def _with_budget(estimator: Any, plan: LearnedFitPlan, schema: Schema, mechanism: str | None = None) -> Any:
    """Return a new estimator with the model's budget and a schema; a given mechanism replaces "auto"."""
    made = clone(estimator)
    if mechanism is not None and params_of(made).get("mechanism") == "auto":
        made.set_params(mechanism=mechanism)
    delta = {"delta": plan.model_delta} if "delta" in params_of(made) else {}
    made.set_params(epsilon=plan.model_epsilon, schema=schema, ledger=None, **delta)
    return made


def _stand_in(plan: SchemaPlan) -> Schema:
    """Return a placeholder schema with the planned numbers of cuts, and one category for each text column."""
    columns: list[Column] = []
    for column in plan.columns:
        if column.bounds is not None:
            made: Numeric | Binned | Categorical = numeric_between(column.name, 0.0, 1.0)
        elif column.cuts is not None:
            made = Binned(column.name, list(range(2**column.cuts.depth + 1)))
        else:
            made = Categorical(column.name, ["a"], "ignore")
        columns.append(MissingLevel(made))
    return Schema([*columns, *plan.declared], intercept=True)
