"""Persons of a table in Dask partitions: counts of the records that fill their places.

Places are filled as in memory (``problems.tables.persons``), in the order of partitions and of the rows in
them; a person may have records in several partitions. Workers encode each row by the schema, whatever the
other rows are. They return the codes, packed into few integers per row, together with the column of persons,
both from a single reading of the partition, so that codes are never paired with the person of another row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import pandas as pd

from privopt.mechanisms.estimators.counting import declared_facts
from privopt.mechanisms.estimators.labels import label_indices
from privopt.problems.arguments import check_some_records
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts
from privopt.problems.tables.counted import CountedRecords, pack, unpack
from privopt.problems.tables.frames import missing_columns
from privopt.problems.tables.partitions import parts_of
from privopt.problems.tables.persons import Persons, check_undeclared, column_of_persons
from privopt.problems.tables.schema import Schema


@dataclass(frozen=True, eq=False)
class PartitionPersons:
    """The persons of Dask partitions.

    Attributes:
        parts: pairs of records and labels.
        person: the column of persons.
        schema, classes: the facts by which records are counted.
        persons: the persons of all rows, read before.
        places: the number of places of each person.
    """

    parts: Parts
    person: str
    schema: Schema
    classes: tuple[Any, ...]
    persons: Persons
    places: int = 1

    @classmethod
    def of(cls, X: Any, y: Any, person: str, schema: Schema | None, classes: Sequence[Any] | None) -> Self:
        """Read the column of persons, and no other column.

        Raises:
            InvalidInputError, SchemaError: the column does not exist, cannot identify persons or is a
                feature, or facts are not declared.
            PrivOptError: as ``Parts.each``.
        """
        facts, known = declared_facts(schema, classes)
        check_undeclared(person, facts.columns)
        named = [str(name) for name in getattr(X, "columns", ())]
        if named.count(person) != 1:
            raise InvalidInputError(f"person: no {missing_columns([person], named)}")
        only = X[[person]]
        alone, parts = parts_of(only, only), parts_of(X, y, [person, *(c.name for c in facts.columns)])
        assert alone is not None
        assert parts is not None
        persons = _persons(alone.each(partial(_of_pair, person=person)))
        return cls(parts, person, facts, tuple(known), persons)

    def counted(self) -> CountedRecords:
        """Count the records that fill the places.

        Raises:
            InvalidInputError: persons were added or removed since they were counted.
            PrivOptError: as ``Parts.each``.
        """
        read = partial(_read, person=self.person, schema=self.schema, classes=self.classes)
        found = self.parts.each(read)
        persons = _persons([ids for ids, _ in found])
        if persons.count != self.persons.count:
            raise InvalidInputError("the number of persons has changed since they were counted")
        rows = persons.places(self.places)
        keys = [np.concatenate(parts)[rows] for parts in zip(*(keys for _, keys in found), strict=True)]
        label, *codes = unpack(keys, _sizes(self.schema, self.classes))
        return CountedRecords.of(self.schema, codes, self.classes, label)


def _persons(columns: Sequence[Any]) -> Persons:
    """Number the persons of all partitions; identifiers of different types are compared as in Python."""
    check_some_records(len(columns))
    if any(column.dtype != columns[0].dtype for column in columns):
        columns = [column.astype(object) for column in columns]
    return Persons.of(pd.concat(columns, ignore_index=True))


def _of_pair(pair: tuple[Any, Any], person: str) -> Any:
    """Return the column of persons of a partition."""
    return column_of_persons(pair[0], person)


def _read(
    pair: tuple[Any, Any], person: str, schema: Schema, classes: tuple[Any, ...]
) -> tuple[Any, list[IntArray]]:
    """Return the persons and the packed codes of the rows of a partition."""
    X, y = pair
    codes = schema.codes(X)
    label = label_indices(y, len(codes[0]), np.array(classes))
    return _of_pair(pair, person), pack([label, *codes], _sizes(schema, classes))


def _sizes(schema: Schema, classes: Sequence[Any]) -> list[int]:
    return [len(classes), *(column.n_codes for column in schema.columns)]
