"""A model and the schema under it, learned from the same records: one plan, one booking."""

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
# Largest numbers of categories of a learned column that are tried in turn; None: all of them.
_MOST_CATEGORIES = (None, 32, 8, 2, 1)
_COARSER = "the model takes fewer categories than learned: the {} most frequent ones of each column are used"


@dataclass(frozen=True, eq=False)
class LearnedFitPlan:
    """Plan of a schema and of a model that is fitted with it, as one release.

    Privacy: ``spend``, neighbours by replacing one record, their number public. The schema is mu-GDP with mu
    its ``level``, except for the deltas of its categories, which are added. The model depends on the records
    and the released schema; their composition is adaptive.

    - A model that is mu'-GDP: sqrt(mu^2 + mu'^2)-GDP together (Dong, Roth and Su 2022, corollary 3.3).
    - A scorecard "seeded" has such a level, too, which its spend does not state (``SeededScorecard.level``).
    - Any other model that is (e, d)-differentially private: up to an event of probability d it is dominated
      by one randomised bit with odds e^e (Kairouz, Oh and Viswanath 2015, theorem 3.2), whose composition
      with the Gaussian pair of the schema has the delta p D(epsilon - e) + (1 - p) D(epsilon + e), p = e^e /
      (1 + e^e), D the delta of mu-GDP.

    Attributes:
        schema: plan of the schema.
        spend: the spend of schema and model together.
        mu: the level that is left for a model under Gaussian differential privacy.
        model_epsilon, model_delta: budget of the model.
        gaussian: whether the model has to be mu-GDP; otherwise its epsilon and delta count.
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
            types, n_records: as for ``SchemaPlan.plan``, as are further options.
            share: the share of mu^2 that the schema spends, in (0, 1).
            epsilon, delta: of schema and model together.
            gaussian: whether the model states a level of Gaussian differential privacy.

        Raises:
            PrivacyParameterError: a budget that is too small for the schema, or leaves nothing for the model.
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
        kept = delta / 2 if texts else delta  # the other half is that of categories
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
        """Return whether a model is within what the plan left for it.

        Args:
            spend: the model's spend.
            level: its level of Gaussian differential privacy, if it has one that the spend does not state.
        """
        if self.gaussian:
            own = spend.level if spend.notion == "gdp" else level
            return own is not None and own <= self.mu
        return spend.epsilon <= self.model_epsilon and spend.delta <= self.model_delta

    def to_dict(self) -> dict[str, Any]:
        """Return the spend, and what schema and model cost, for JSON."""
        model = {"epsilon": self.model_epsilon, "delta": self.model_delta}
        return {**self.spend.to_dict(), "schema": self.schema.to_dict(), "model": model}


def delta_beside(mu: float, beside: float, epsilon: float) -> float:
    """Return the delta at ``epsilon`` of a mu-GDP and a (``beside``, 0)-private release, rounded up."""
    p = 1 / (1 + math.exp(-beside))
    first, second = gaussian_delta(mu, epsilon - beside), gaussian_delta(mu, epsilon + beside)
    return (p * first + (1 - p) * second) * (1 + 2.0**-40)


def _epsilon_beside(mu: float, epsilon: float, delta: float) -> float:
    """Return the largest pure epsilon of a release that keeps (epsilon, delta) together with a mu-GDP one.

    Raises:
        PrivacyParameterError: the mu-GDP release leaves nothing.
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

    Privacy: (epsilon, delta) of the estimator for schema and model together, neighbours by replacing one
    record, or one person if the estimator has ``person``; public facts as for ``learn_schema``. One spend is
    booked before a cell is read, in the estimator's ledger, and is ``spend_`` of the model
    (``LearnedFitPlan``).

    Args:
        estimator: an estimator of this package, not fitted, with classes (or label range) declared; its
            schema is None. It is not changed. Without a parameter delta, that of the whole is 1/n^2.
        X: a data frame (pandas, polars, pyarrow) or a mapping of columns, in memory; or an Ibis table.
        y: labels, shape (n,); of an Ibis table the name of the label column.
        share: the share of mu^2 of Gaussian differential privacy that the schema spends, in (0, 1).
        types, declared, leave_out, cuts, na_values: as for ``learn_schema``.

    Returns:
        A fitted copy of the estimator, with the learned schema.

    Raises:
        PrivacyParameterError: a budget that is too small; no record was read.
        InvalidInputError, SchemaError: facts that are missing or cannot be used.
        BudgetExceededError: the ledger refused the spend; no record was read.

    An error after the booking has the released schema in its attribute ``learned``. A model that cannot take
    so many categories gets the most frequent ones alone, with a warning.
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
    """Plan, book, and run schema and model."""
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
    """Return schema and model of records, or of the places of persons with their budget."""
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
    """Return the model with the finest of the learned schemas that it takes; no record is read.

    The plan was made for one category of each column of text; for more, a model may refuse, or choose another
    mechanism. Everything decided here follows from the released schema. If the mechanism that the model
    chooses now does not fit the planned budget and claim, it gets the mechanism of the plan by name.

    Raises:
        PrivOptError: the model takes none of the schemas.
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
    """Return the spend of a fit without its warnings, as the fit may never be made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        return spend_of_fit(model, given)


def _level_of(model: Any, n_records: int) -> float | None:
    """Return the GDP level of a scorecard by "seeded" with no release beside it; None for other models."""
    if not isinstance(model, PrivateHalfspaceClassifier):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        planned = model.plan(n_records)
    plan, whole = planned.plan, planned.spend
    alone = (whole.epsilon, whole.delta) == (plan.spend.epsilon, plan.spend.delta)
    return plan.level if isinstance(plan, SeededScorecard) and alone else None


def _check_ends(model: Any, n_records: int) -> None:
    """Raise InvalidInputError for a search: its time depends on the records and on learned categories."""
    if isinstance(model, PrivateHalfspaceClassifier) and model.plan(n_records).seconds is None:
        raise InvalidInputError(
            f"mechanism {told(model.mechanism)}: its time depends on the records, and it may not end for a "
            "schema that is not known yet. To do: mechanism='seeded' (--mechanism seeded), which is sure to "
            "end; or learn the schema first (learn_schema, privopt schema learn), then fit with it"
        )


@contextmanager
def _keeping(learned: LearnedSchema) -> Iterator[None]:
    """Add the learned schema, which is paid for, to errors of the block as ``learned``."""
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
    """Return the columns of records in an engine, or of a table in memory with its labels."""
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
    """Return the plan, and the spend of the model for a schema of the same size, without reading records.

    Raises:
        PrivacyParameterError: a model whose spend does not fit.
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
    """Return a new estimator with the budget of the model, and a schema; a mechanism replaces "auto"."""
    made = clone(estimator)
    if mechanism is not None and params_of(made).get("mechanism") == "auto":
        made.set_params(mechanism=mechanism)
    delta = {"delta": plan.model_delta} if "delta" in params_of(made) else {}
    made.set_params(epsilon=plan.model_epsilon, schema=schema, ledger=None, **delta)
    return made


def _stand_in(plan: SchemaPlan) -> Schema:
    """Return a placeholder schema of made-up values: the planned numbers of cuts, one category for text."""
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
