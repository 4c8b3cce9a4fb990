"""Fits that protect persons with several records each, in place of records.

Neighbours: tables that differ in one person with all of its records; the number of persons P is public. Each
person gets k places, which are filled with its records (``problems.tables.persons``). Neighbouring tables
then differ in at most k of their P k places, and a release that is proved private for one record is private
for a person by group privacy (``mechanisms.privacy.groups``).

The places are put in uniformly random order, so that nothing depends on the order of persons. Each order of a
table corresponds to an equally likely order of its neighbour that differs in at most k places. Privacy for
each such pair carries over to the mixtures over all orders, as divergences are jointly convex.

Before the booking only the column of persons is read, and only the number of persons is used. k may be
learned (``mechanisms.schemas.records``), as a part of the booked release.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.estimators.booked_estimator import BookedEstimator, never_read, spend_of_fit
from privopt.mechanisms.estimators.booking import Unread, booked, charged, is_part, unread_table
from privopt.mechanisms.estimators.counting import count_in_engine
from privopt.mechanisms.estimators.labels import label_name
from privopt.mechanisms.estimators.partition_persons import PartitionPersons
from privopt.mechanisms.estimators.public_facts import any_schema, public_delta
from privopt.mechanisms.privacy.groups import LEARN, PersonBudget
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_epsilon
from privopt.mechanisms.privacy.spend import NOTIONS, PrivacySpend
from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.arrow_cells import arrow_columns, taken_cells
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.frames import (
    unread_columns,
    without_column,
)
from privopt.problems.tables.partitions import is_dask
from privopt.problems.tables.persons import Persons, check_undeclared, column_of_persons
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_table

if TYPE_CHECKING:
    from privopt.mechanisms.schemas.records import RecordsPlan
    from privopt.problems.tables.engine_persons import EnginePersons
    from privopt.problems.tables.engines import EngineCount

Model = TypeVar("Model", bound=BookedEstimator)
AnyPersons: TypeAlias = "Persons | EnginePersons"

_NO_PERSONS = "person does not work with counted records, which do not hold the persons of records"
# Notions of privacy, in the order in which the budget of a record is tried in them. The last entry is for
# mechanisms whose notion depends on their budget.
_NOTIONS = (("gdp",), ("zcdp",), ("pure", "approximate"), ("gdp", "zcdp"))

ONCE = (
    "risk_share counts each person once: with it records_per_person must be 1, as intervals of risks assume "
    "that the counted records are independent"
)


@dataclass(frozen=True, eq=False)
class RecordFit:
    """A fit to the places of persons, as if each place were a record.

    Attributes:
        model: the unfitted estimator, with the budget of a record.
        budget: the budget of a person.
        spend: the spend for a person.
    """

    model: Any
    budget: PersonBudget
    spend: PrivacySpend

    def check(self, spend: PrivacySpend) -> None:
        """Raise PlanMismatchError if the fit spends more than was planned."""
        found = self.budget.of_person(spend)
        if found.epsilon > self.spend.epsilon or found.delta > self.spend.delta:
            raise PlanMismatchError(f"{found} is more than was planned, {self.spend}: report this")


@dataclass(frozen=True, eq=False)
class PersonsPlan:
    """Plan of a fit for persons: for the given number of records per person, or for each number that may be
    learned.

    Attributes:
        fits: the fits by number of records per person, in increasing order.
        spend: the spend for a person: the costliest fit, plus the cost of learning the number.
        choice: the plan that learns the number; None if the number is given.
    """

    fits: Mapping[int, RecordFit]
    spend: PrivacySpend
    choice: RecordsPlan | None = None

    def chosen(self, persons: AnyPersons, source: NoiseSource) -> int:
        """Return the number of records per person that are used: the given one, or a private release."""
        if self.choice is None:
            return next(iter(self.fits))
        return self.choice.release(persons.held(), source)

    def spent(self, k: int) -> PrivacySpend:
        """Return the spend, with the number of records per person in its note."""
        if self.choice is None:
            return self.spend
        learned = f"this number was learned at epsilon = {self.choice.epsilon:.4g}"
        return replace(self.spend, note="; ".join((self.fits[k].spend.note, learned)))


def fit_persons(estimator: Model, X: Any, y: Any) -> Model:
    """Fit an estimator with ``person`` set: plan, book, fill the places, fit.

    Raises:
        InvalidInputError: counted records, no such column, one that cannot identify persons, or undeclared
            facts.
        PrivOptError: as ``fit`` of the estimator.
    """
    given, persons = _opened(estimator, X, y)
    unread = Unread(persons.count, given._read, given.n_columns, given.given)
    planned = plan_persons(estimator, unread)
    source = NoiseSource(params_of(estimator)["insecure_seed"])
    spend = replace(planned.spend, insecure_seed=source.insecure_seed)
    with booked(estimator.ledger, spend, unread) as content:
        k = planned.chosen(persons, source)
        pair = _placed(content, persons, k, source)
        fit = planned.fits[k]
        with charged(fit.check):
            fit.model.fit(_places(unread, k).known(pair), None)
    _take_over(estimator, fit.model, replace(planned.spent(k), insecure_seed=source.insecure_seed), k)
    if hasattr(fit.model, "target_") and (name := label_name(y)):
        estimator.target_ = name  # type: ignore[attr-defined]
    return estimator


def _places(persons: Unread[Any], k: int) -> Unread[Any]:
    """Return the unread table of all places, k for each person."""
    return replace(persons, n_records=persons.n_records * k)


def _placed(content: Any, persons: AnyPersons, k: int, source: NoiseSource | None) -> tuple[Any, Any]:
    """Return table and labels of the records that fill k places for each person.

    With a source of randomness, the places are in random order.
    """
    if not isinstance(content, tuple):  # counts from an engine or from workers, which have no order
        return replace(content, places=k).counted(), None
    assert isinstance(persons, Persons)
    places = persons.places(k)
    if source is not None:
        places = places[source.order(len(places))]
    table, labels = content
    return _taken(table, places), _taken(labels, places)


def one_record_each(
    X: Any, y: Any, person: object, schema: Schema | None, classes: Sequence[Any] | None = None
) -> Unread[Any]:
    """Return an unread table of one record per person: in memory, the first.

    Raises:
        InvalidInputError: see ``fit_persons``.
    """
    return places_of(X, y, person, schema, 1, None, classes)


def places_of(
    X: Any,
    y: Any,
    person: object,
    schema: Schema | None,
    k: int,
    source: NoiseSource | None,
    classes: Sequence[Any] | None = None,
) -> Unread[Any]:
    """Return an unread table of the records that fill k places for each person.

    With a source of randomness, the places are in random order.

    Args:
        classes: the possible labels, needed for a table in an engine.

    Raises:
        InvalidInputError: see ``fit_persons``.
    """
    given, persons = opened_table(X, y, person, schema, classes)
    return Unread(
        persons.count * k,
        lambda: _placed(given._read(), persons, k, source),
        given.n_columns,
        given.given,
    )


def plan_persons(estimator: BookedEstimator, persons: Unread[Any]) -> PersonsPlan:
    """Plan a fit to places, with the largest budget for a record that a person's budget allows.

    If the number of places per person is learned, plan a fit for each number that may be released.

    Args:
        estimator: an estimator with ``person`` set.
        persons: the unread table, with the number of persons as its number of records.

    Raises:
        PrivOptError: as ``fit`` of the estimator before it reads records.
    """
    known, k = params_of(estimator), records_per_person(estimator)
    if k != 1 and known.get("risk_share"):
        raise InvalidInputError(ONCE)
    delta = public_delta(known.get("delta", "auto"), persons.n_records)
    if k is None:
        return _plan_to_learn(estimator, persons, delta)
    budget = PersonBudget(known["epsilon"], delta, k)
    for notions in _NOTIONS:
        # With one record per person, record and person have the same budget, in any notion.
        fit = _planned_fit(estimator, persons, budget, NOTIONS if k == 1 else notions)
        if fit is not None:
            return PersonsPlan({k: fit}, fit.spend)
    raise AssertionError("every spend has one of the notions")


def _plan_to_learn(estimator: BookedEstimator, persons: Unread[Any], delta: float) -> PersonsPlan:
    """Plan to learn the number of records per person, with a fit for each number that may be released.

    Which fit runs depends on the released number. By adaptive composition, in one notion, the spend is the
    spend of the costliest of these fits plus the spend of the choice.
    """
    from privopt.mechanisms.schemas.records import CHOICES, RecordsPlan

    epsilon = check_epsilon(params_of(estimator)["epsilon"])
    choice = RecordsPlan.plan(persons.n_records, epsilon)
    for notions in (*_NOTIONS[:-1], NOTIONS):
        left, fits = choice.left(epsilon, delta, _notion(notions)), {}
        for k in CHOICES:
            fit = _planned_fit(estimator, persons, PersonBudget(left, delta, k), notions)
            if fit is None:
                break
            fits[k] = fit
        else:
            spend = choice.beside([fit.spend for fit in fits.values()], delta)
            if spend.epsilon > epsilon:
                raise PlanMismatchError(f"{spend} is more than epsilon = {epsilon:g}: report this")
            return PersonsPlan(fits, spend, choice)
    raise AssertionError("every spend has one of the notions")


def _planned_fit(
    estimator: BookedEstimator, persons: Unread[Any], budget: PersonBudget, notions: tuple[str, ...]
) -> RecordFit | None:
    """Return a fit to places, a record's budget in one of ``notions``; None if its spend is in another."""
    model = of_record(estimator, budget, _notion(notions))
    with warnings.catch_warnings():  # the fit will warn again
        warnings.simplefilter("ignore")
        spend = spend_of_fit(model, _places(persons, budget.records))
    return RecordFit(model, budget, budget.of_person(spend)) if spend.notion in notions else None


def _notion(notions: tuple[str, ...]) -> str:
    return notions[0] if len(notions) == 1 else "approximate"


def records_per_person(estimator: Any) -> int | None:
    """Return the number of records per person that are used; None if it is to be learned.

    Raises:
        PrivacyParameterError: neither a number nor "learn".
    """
    given = estimator.records_per_person
    if not isinstance(given, str):
        return check_count(given, "records_per_person")
    if given != LEARN:
        raise PrivacyParameterError(
            f"records_per_person must be a whole number >= 1 or {LEARN!r}, got {told(given)}"
        )
    return None


def plan_of_persons(estimator: Any, n_persons: int, n_columns: int | None = None) -> Any:
    """Return the plan of the fit to places for ``n_persons``, with the spend for a person.

    If the number of records per person is to be learned, the plan is for the largest number, whose fit takes
    longest.
    """
    persons: Unread[Any] = Unread(check_count(n_persons, "the number of persons"), never_read, n_columns)
    planned = plan_persons(with_two_classes(estimator), persons)
    k, columns = max(planned.fits), () if n_columns is None else (n_columns,)
    return replace(planned.fits[k].model.plan(n_persons * k, *columns), spend=planned.spend)


def with_two_classes(estimator: Any) -> Any:
    """Return the estimator for a plan: with two placeholder classes if classes are not declared."""
    known = params_of(estimator)
    if known.get("classes", ()) is not None:
        return estimator
    return type(estimator)(**{**known, "classes": (0, 1)})


def person_of(estimator: Any) -> str | None:
    """Return the name of the column of persons: the parameter ``person``, or the name in the schema.

    Raises:
        InvalidInputError, SchemaError: parameter and schema differ, or the schema cannot be read.
    """
    schema = params_of(estimator).get("schema")
    declared = None if schema is None else any_schema(schema).person
    if estimator.person is not None and declared not in (None, estimator.person):
        raise InvalidInputError(
            f"person is {told(estimator.person)}, and the schema's column of persons {declared!r}: give one"
        )
    return declared if estimator.person is None else estimator.person


def without_person(estimator: Any, X: Any) -> Any:
    """Return a table without the column of persons, for predictions of models without a schema."""
    if estimator.person is None:
        return X
    names = map(str, getattr(X, "columns", ()))
    return without_column(X, estimator.person) if estimator.person in names else X


def params_of(estimator: Any) -> dict[str, Any]:
    """Return the arguments of an estimator by name."""
    found: dict[str, Any] = estimator.get_params(deep=False)
    return found


def of_record(estimator: BookedEstimator, budget: PersonBudget, notion: str) -> Any:
    """Return a new estimator that protects single records, with the budget of a record in ``notion``."""
    known = params_of(estimator)
    epsilon, delta = budget.of_record(notion)
    own: dict[str, Any] = {"epsilon": epsilon, "ledger": None, "person": None, "records_per_person": 1}
    if known.get("schema") is not None:
        own["schema"] = any_schema(known["schema"]).for_records()
    return type(estimator)(**{**known, **own, **({"delta": delta} if "delta" in known else {})})


def _opened(estimator: BookedEstimator, X: Any, y: Any) -> tuple[Unread[Any], AnyPersons]:
    """Return the unread table without its column of persons, and the persons.

    Raises:
        InvalidInputError: see ``fit_persons``.
    """
    if is_part():
        raise InvalidInputError(
            "person is not supported where several releases are booked as one. To do: declare it for all of "
            "them together, as in PrivateSearchCV(person=...)"
        )
    schema, classes = (params_of(estimator).get(name) for name in ("schema", "classes"))
    person = person_of(estimator)
    return opened_table(X, y, person, None if schema is None else any_schema(schema).for_records(), classes)


def opened_table(
    X: Any, y: Any, person: object, schema: Schema | None, classes: Sequence[Any] | None = None
) -> tuple[Unread[Any], AnyPersons]:
    """Return the unread table without its column of persons, and the persons.

    Raises:
        InvalidInputError: counted records, no such column, or one that cannot identify persons.
    """
    if not isinstance(person, str):
        raise InvalidInputError(f"person must be the name of a column, got {told(person)}")
    if isinstance(X, Unread):
        X, y = X._read()
        from privopt.problems.tables.engines import EngineCount  # from the command line, not yet run

        if isinstance(X, EngineCount):
            return _in_engine(X)
    if isinstance(X, CountedRecords):
        raise InvalidInputError(_NO_PERSONS)
    if is_dask(X):
        count = PartitionPersons.of(X, y, person, schema, classes)
        return Unread(count.persons.count, lambda: count, None, X), count.persons
    if schema is not None:
        check_undeclared(person, schema.columns)
    if is_engine_table(X):
        return _opened_in_engine(X, y, person, schema, classes)
    ids = column_of_persons(X, person)
    given = unread_table(without_column(X, person), y, schema, unread_columns)
    return replace(given, given=X), Persons.of(ids)


def _opened_in_engine(
    X: Any, y: Any, person: str, schema: Schema | None, classes: Sequence[Any] | None
) -> tuple[Unread[Any], AnyPersons]:
    """Return the persons of a table in an engine, and an unread query that counts one place per person."""
    if y == person:
        raise InvalidInputError(f"y is {person!r}, the column of persons, which is no label")
    return _in_engine(count_in_engine(X, y, schema, classes).of_persons(person))


def _in_engine(count: EngineCount) -> tuple[Unread[Any], AnyPersons]:
    assert count.persons is not None
    return Unread(count.n_records, lambda: count, None, count.table), count.persons


def _taken(values: Any, rows: np.ndarray[Any, Any]) -> Any:
    """Return rows of a table, or entries of labels, in a container of the same type where possible."""
    if isinstance(values, Mapping):
        return {name: _taken(column, rows) for name, column in values.items()}
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    if isinstance(values, pa.Table):
        return {name: _taken(column, rows) for name, column in arrow_columns(values)}
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return taken_cells(values, rows)
    # A list stays a list: in an array, one text would turn all entries into text.
    if isinstance(values, list | tuple):
        return [values[row] for row in rows]
    return np.asarray(values)[rows]


def _take_over(estimator: Any, fitted: Any, spend: PrivacySpend, k: int) -> None:
    """Copy the attributes of a fitted model to the estimator, and set its spend for a person."""
    own: Mapping[str, Any] = params_of(estimator)
    for name in [name for name in vars(estimator) if name not in own and name.endswith("_")]:
        delattr(estimator, name)
    for name, value in vars(fitted).items():
        if name not in own:
            setattr(estimator, name, value)
    estimator.spend_, estimator.records_per_person_ = spend, k
    without_intervals(estimator, k)


def without_intervals(fitted: Any, k: int) -> None:
    """Drop the intervals of a model of several records per person, as they assume independent records."""
    if k > 1 and hasattr(fitted, "inference_"):
        fitted.inference_ = fitted.coefficients_ = None
