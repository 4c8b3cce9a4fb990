"""Fits that protect persons with several records each, in place of records.

Neighbours: tables that differ in one person with all of its records; the number of persons P is public. The
records of each person fill k places (``problems.tables.persons``), so neighbouring tables differ in at most k
of P k places, and a release with a proof for one record is private for a person by group privacy
(``mechanisms.privacy.groups``). The places are put in uniformly random order, so that nothing depends on the
order of persons: an order of one table corresponds to an equally likely one of its neighbour, from which it
differs in k places; privacy carries over to the mixture, as divergences are jointly convex.

Before the booking only the column of persons is read, and only their number is used.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.estimators.booked_estimator import BookedEstimator, never_read, spend_of_fit
from privopt.mechanisms.estimators.booking import Unread, booked, charged, is_part, unread_table
from privopt.mechanisms.estimators.public_facts import any_schema, public_delta
from privopt.mechanisms.privacy.groups import PersonBudget
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.frames import (
    check_distinct,
    is_frame,
    missing_columns,
    unread_columns,
    without_column,
)
from privopt.problems.tables.partitions import is_dask
from privopt.problems.tables.persons import Persons, check_undeclared
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_table

Model = TypeVar("Model", bound=BookedEstimator)

ONCE = (
    "risk_share counts each person once: with it records_per_person must be 1, as intervals of risks take "
    "the records that they count to be independent"
)


@dataclass(frozen=True, eq=False)
class RecordFit:
    """A fit of places, with the budget of a record.

    Attributes:
        model: the estimator of the places, not fitted.
        budget: the budget of a person.
        spend: the spend of a person.
    """

    model: Any
    budget: PersonBudget
    spend: PrivacySpend

    def check(self, spend: PrivacySpend) -> None:
        """Raise PlanMismatchError for a spend of the fit that was not planned."""
        found = self.budget.of_person(spend)
        if found.epsilon > self.spend.epsilon or found.delta > self.spend.delta:
            raise PlanMismatchError(f"{found} is more than was planned, {self.spend}: report this")


def fit_persons(estimator: Model, X: Any, y: Any) -> Model:
    """Fit an estimator with ``person`` set: plan, book, fill the places, fit.

    Raises:
        InvalidInputError: a table in an engine or in partitions, no such column, or undeclared facts.
        PrivOptError: as ``fit`` of the estimator.
    """
    given, persons = _opened(estimator, X, y)
    k = check_count(estimator.records_per_person, "records_per_person")
    unread = Unread(persons.count * k, given._read, given.n_columns, given.given)
    planned = plan_persons(estimator, unread)
    source = NoiseSource(_params(estimator)["insecure_seed"])
    spend = replace(planned.spend, insecure_seed=source.insecure_seed)
    with booked(estimator.ledger, spend, unread) as (table, labels):
        places = persons.places(k)
        places = places[source.order(len(places))]
        pair = _taken(table, places), _taken(labels, places)
        with charged(planned.check):
            planned.model.fit(unread.known(pair), None)
    _take_over(estimator, planned.model, spend, k)
    name = y if isinstance(y, str) else getattr(y, "name", None)
    if hasattr(planned.model, "target_") and isinstance(name, str):
        estimator.target_ = name  # type: ignore[attr-defined]
    return estimator


def one_record_each(X: Any, y: Any, person: object, schema: Schema | None) -> Unread[Any]:
    """Return the first record of each person, unread; their number is that of persons.

    Raises:
        InvalidInputError: see ``fit_persons``.
    """
    return places_of(X, y, person, schema, 1, None)


def places_of(
    X: Any, y: Any, person: object, schema: Schema | None, k: int, source: NoiseSource | None
) -> Unread[Any]:
    """Return the records that fill k places for each person, unread, in random order if there is a source.

    Raises:
        InvalidInputError: see ``fit_persons``.
    """
    given, persons = opened_table(X, y, person, schema)
    places = persons.places(k)
    if source is not None:
        places = places[source.order(len(places))]

    def read() -> tuple[Any, Any]:
        table, labels = given._read()
        return _taken(table, places), _taken(labels, places)

    return Unread(len(places), read, given.n_columns, given.given)


def plan_persons(estimator: BookedEstimator, places: Unread[Any]) -> RecordFit:
    """Return the fit of places with the largest budget of a record that a person's budget allows.

    Raises:
        PrivOptError: as ``fit`` of the estimator before it reads records.
    """
    known, k = _params(estimator), check_count(estimator.records_per_person, "records_per_person")
    if k > 1 and known.get("risk_share"):
        raise InvalidInputError(ONCE)
    delta = public_delta(known.get("delta", "auto"), places.n_records // k)
    budget = PersonBudget(known["epsilon"], delta, k)
    for notions in (("gdp",), ("zcdp",), ("pure", "approximate"), ("gdp", "zcdp")):
        # The last: a mechanism whose notion depends on its budget.
        model = of_record(estimator, budget, notions[0] if len(notions) == 1 else "approximate")
        with warnings.catch_warnings():  # the fit itself warns
            warnings.simplefilter("ignore")
            spend = spend_of_fit(model, places)
        if k == 1 or spend.notion in notions:
            return RecordFit(model, budget, budget.of_person(spend))
    raise AssertionError("every spend has one of the notions")


def plan_of_persons(estimator: Any, n_persons: int, n_columns: int | None = None) -> Any:
    """Return the plan of an estimator for that many persons: of the fit of places, with a person's spend."""
    k = check_count(estimator.records_per_person, "records_per_person")
    n_places = check_count(n_persons, "the number of persons") * k
    places: Unread[Any] = Unread(n_places, never_read, n_columns)
    known = _params(estimator)
    if "classes" in known and known["classes"] is None:  # any two, as other plans take
        estimator = type(estimator)(**{**known, "classes": (0, 1)})
    planned = plan_persons(estimator, places)
    columns = () if n_columns is None else (n_columns,)
    return replace(planned.model.plan(n_places, *columns), spend=planned.spend)


def person_of(estimator: Any) -> str | None:
    """Return the column of persons: the parameter, or that of the schema.

    Raises:
        InvalidInputError, SchemaError: two different ones, or a schema that cannot be read.
    """
    schema = _params(estimator).get("schema")
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


def _params(estimator: Any) -> dict[str, Any]:
    found: dict[str, Any] = estimator.get_params(deep=False)
    return found


def of_record(estimator: BookedEstimator, budget: PersonBudget, notion: str) -> Any:
    """Return a new estimator of records, with the budget of a record."""
    known = _params(estimator)
    epsilon, delta = budget.of_record(notion)
    own: dict[str, Any] = {"epsilon": epsilon, "ledger": None, "person": None, "records_per_person": 1}
    if known.get("schema") is not None:
        own["schema"] = any_schema(known["schema"]).for_records()
    return type(estimator)(**{**known, **own, **({"delta": delta} if "delta" in known else {})})


def _opened(estimator: BookedEstimator, X: Any, y: Any) -> tuple[Unread[Any], Persons]:
    """Return the unread table without its column of persons, and the persons.

    Raises:
        InvalidInputError: see ``fit_persons``.
    """
    if is_part():
        raise InvalidInputError(
            "person is not supported where several releases are booked as one. To do: that of the whole, as "
            "in PrivateSearchCV(person=...)"
        )
    schema = _params(estimator).get("schema")
    person = person_of(estimator)
    return opened_table(X, y, person, None if schema is None else any_schema(schema).for_records())


def opened_table(X: Any, y: Any, person: object, schema: Schema | None) -> tuple[Unread[Any], Persons]:
    """Return the unread table without its column of persons, and the persons.

    Raises:
        InvalidInputError: a table in an engine or in partitions, or no such column.
    """
    if not isinstance(person, str):
        raise InvalidInputError(f"person must be the name of a column, got {told(person)}")
    if isinstance(X, Unread):
        X, y = X._read()
    if is_engine_table(X) or is_dask(X):
        raise InvalidInputError(
            "person takes tables in memory, as engines and partitions do not keep the rows of a person in "
            "order. To do: X.to_pandas() or X.compute(), or one record a person by a query"
        )
    if schema is not None:
        check_undeclared(person, schema.columns)
    ids = column_of_persons(X, person)
    given = unread_table(without_column(X, person), y, schema, unread_columns)
    return replace(given, given=X), Persons.of(ids)


def column_of_persons(table: Any, person: str) -> Any:
    """Return the column of persons as the table holds it.

    Raises:
        InvalidInputError: no such column, or one of floats, in which different integers may be equal.
    """
    if not (isinstance(table, Mapping) or is_frame(table)):
        raise InvalidInputError("person: X has no named columns: give a data frame")
    named = unread_columns(table)
    check_distinct("the table", [str(name) for name, _ in named])
    columns = dict(named)
    if person not in columns:
        raise InvalidInputError(f"person: no {missing_columns([person], [str(name) for name in columns])}")
    found = columns[person]
    kind = str(getattr(found, "type", getattr(found, "dtype", ""))).lower()
    if "float" in kind or "double" in kind:
        raise InvalidInputError(
            f"the column of persons, {person!r}, holds floats ({kind}), among which different numbers can be "
            "equal. To do: read it as text, or as integers that may be missing (Int64)"
        )
    return found


def _taken(values: Any, rows: np.ndarray[Any, Any]) -> Any:
    """Return rows of a table, or entries of labels, in the form that they have."""
    if isinstance(values, Mapping):
        return {name: _taken(column, rows) for name, column in values.items()}
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    if isinstance(values, pa.Table | pa.Array | pa.ChunkedArray):
        return values.take(pa.array(rows))
    # A list keeps the types of its entries: one text among them makes no texts of the others.
    if isinstance(values, list | tuple):
        return [values[row] for row in rows]
    return np.asarray(values)[rows]


def _take_over(estimator: Any, fitted: Any, spend: PrivacySpend, k: int) -> None:
    """Set the attributes of a fit."""
    own: Mapping[str, Any] = _params(estimator)
    for name in [name for name in vars(estimator) if name not in own and name.endswith("_")]:
        delattr(estimator, name)
    for name, value in vars(fitted).items():
        if name not in own:
            setattr(estimator, name, value)
    estimator.spend_ = spend
    without_intervals(estimator, k)


def without_intervals(fitted: Any, k: int) -> None:
    """Drop the intervals of a model of several records a person: they take records to be independent."""
    if k > 1 and hasattr(fitted, "inference_"):
        fitted.inference_ = fitted.coefficients_ = None
