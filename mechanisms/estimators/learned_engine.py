"""Labelled records in a database engine, for learning a schema and fitting a model with it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from privopt.mechanisms.estimators.booking import Unread
from privopt.mechanisms.estimators.counting import check_number
from privopt.mechanisms.estimators.labels import public_classes
from privopt.mechanisms.schemas.learning import ColumnPlan, SchemaPlan
from privopt.mechanisms.schemas.types import CANDIDATES, Candidate, ColumnType
from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Binned, Categorical, Column
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.dates import Date
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.notation import Notation
from privopt.problems.tables.schema import Schema

if TYPE_CHECKING:
    from privopt.problems.tables.engine_persons import EnginePersons


class EngineRecords:
    """An Ibis table with labels: gives columns to learn a schema from, then counts of records by the schema.

    Args:
        table: an Ibis table.
        target: the name of its label column.
        classes: the possible labels.
        written: as for ``count_records``.

    Raises:
        InvalidInputError: undeclared classes, or an expression whose rows depend on several rows of its
            source.
    """

    def __init__(
        self, table: Any, target: object, classes: Sequence[Any] | None, *, written: bool = False
    ) -> None:
        from privopt.problems.tables.engines import rows_in  # imports Ibis
        from privopt.problems.tables.row_by_row import check_expression

        if not isinstance(target, str):
            raise InvalidInputError("y is the name of the label column, where X is a table in an engine")
        if classes is None:
            raise InvalidInputError(
                "classes: declare them; nothing is inferred from a table in an engine, and regression needs "
                "one in memory"
            )
        check_expression(table)
        self.table, self.target, self.written = table, target, written
        self.classes = public_classes(classes, np.array([])).tolist()
        self.n_records = rows_in(table)
        self._persons: EnginePersons | None = None
        self._person, self._places = "", 1
        self._counted: CountedRecords | None = None

    def of_persons(self, person: object, places: int) -> EngineRecords:
        """Return the records that fill the places of each person (``persons``).

        To learn a schema, copies of one cell of the person fill its places. Given a schema, tables that
        differ in one person then differ in at most as many records as a person has places.

        Args:
            person: the name of the column of persons.
            places: the number of places of each person.

        Raises:
            InvalidInputError: no such column, or one that cannot identify persons.
        """
        from privopt.problems.tables.engine_persons import EnginePersons

        if not isinstance(person, str):
            raise InvalidInputError(f"person must be the name of a column, got {told(person)}")
        if person == self.target:
            raise InvalidInputError(f"y is {person!r}, the column of persons, which is no label")
        made = copy.copy(self)
        made._persons, made._person, made._places = EnginePersons.of(self.table, person), person, places
        made.n_records = made._persons.count * places
        return made

    def unread(self) -> Unread[EngineRecords]:
        """Wrap these records as unread."""
        return Unread(self.n_records, lambda: self, None, self.table)

    def check(self, plan: SchemaPlan) -> None:
        """Check that label and columns suit every schema that may be learned, without reading a record.

        Raises:
            SchemaError, InvalidInputError: a column that cannot be learned or counted in the engine.
        """
        self.cells(plan)
        for columns in _every_kind(plan):
            self._count(Schema([*columns, *plan.declared], intercept=True))

    def cells(self, plan: SchemaPlan) -> Any:
        """Return the columns that a plan learns; each column is read on access."""
        from privopt.problems.tables.engine_cells import EngineCells

        return EngineCells(self.table, learned_names(plan), self.n_records, self._persons, self._places)

    def counted(self, schema: Schema) -> CountedRecords:
        """Return the counts of the records by a schema; the last result is kept."""
        if self._counted is None or self._counted.schema != schema:
            self._counted = self._count(schema).counted()
            check_number(self._counted.n_records, self.n_records)
        return self._counted

    def _count(self, schema: Schema) -> Any:
        from privopt.problems.tables.engines import EngineCount

        count = EngineCount.of(self.table, schema, self.target, self.classes, written=self.written)
        if self._persons is not None:
            count = replace(count.of_persons(self._person), places=self._places)
        return count


def learned_names(plan: SchemaPlan) -> list[str]:
    """Return the names of the columns whose cells a plan reads: all but columns of booleans."""
    return [column.name for column in plan.columns if column.type is not ColumnType.BOOLEAN]


def _every_kind(plan: SchemaPlan) -> Iterator[list[Column]]:
    """Yield lists of columns; over all lists, each column occurs in every kind that it may be learned as."""
    kinds = [_kinds(column) for column in plan.columns]
    for k in range(max(map(len, kinds), default=0)):
        yield [made[min(k, len(made) - 1)] for made in kinds]


def _kinds(column: ColumnPlan) -> list[Column]:
    found = CANDIDATES if column.type is ColumnType.VOTE else (Candidate(column.type),)
    return [MissingLevel(_kind(column.name, *candidate)) for candidate in found]


def _kind(name: str, kind: ColumnType, form: str | None, notation: Notation) -> Binned | Categorical:
    if kind is ColumnType.BOOLEAN:
        return Categorical(name, [False, True], "ignore")
    if kind is ColumnType.TEXT:
        return Categorical(name, ["a"], "ignore")
    if kind is ColumnType.DATE:
        return Date(name, ["2000-01-01", "2000-01-02"], format=form)
    return Binned(name, [0, 1], **notation.to_dict())
