"""Counting of records inside a SQL engine: a schema becomes a GROUP BY query, and only counts come back.

Engines are accessed by Ibis (https://ibis-project.org), an optional dependency; DuckDB is embedded. The query
does what ``Schema.codes`` does with arrays: numbers are doubles that are compared with thresholds, which are
exact in every engine (integers over powers of two), so ties are decided as in memory. A value that a
declaration refuses gets a reserved code, which is then found among the counts: no value comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import pandas as pd

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError, SchemaError
from privopt.problems.parts import Blocks, Parts, Whole
from privopt.problems.tables.counted import CountedRecords, pack, unpack
from privopt.problems.tables.engine_persons import EnginePersons
from privopt.problems.tables.expressions import (
    REFUSED,
    feature_code,
    label_code,
)
from privopt.problems.tables.frames import missing_columns
from privopt.problems.tables.parquet_files import is_mixed, plain_cell
from privopt.problems.tables.parquet_text import answer, with_readable_rows
from privopt.problems.tables.persons import check_undeclared
from privopt.problems.tables.row_by_row import check_expression
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import check_encoding, decoded, ibis_library, unquoted
from privopt.problems.tables.values import Refused

# Columns with more codes than this are refused.
_MOST_CODES = 4096
# Limits on numbers in memory, 8 bytes each: the features (or, in ``parts``, the keys) of all distinct
# records, and the features of a block of distinct records.
_MOST_NUMBERS, _BLOCK_NUMBERS = 1 << 26, 1 << 24


def count_records(
    table: Any, schema: Schema, target: str, classes: Sequence[Any], *, written: bool = False
) -> CountedRecords:
    """Group the records of an Ibis table by the codes of a schema and their class, inside the engine.

    The result is what ``CountedRecords.of`` counts in memory. Columns are found by name; they must be
    booleans, integers, floats, decimals of up to 15 digits, or text. This reads the records without a booking
    in a ledger; estimators and ``evaluate``, which take the table itself, book first.

    Args:
        table: an Ibis table, or table expression.
        schema: the features.
        target: the column of labels.
        classes: the possible labels, all text, or all integers or booleans.
        written: whether classes are the text of labels of any type, such as "1" for 1 and for 1.0.

    Raises:
        SchemaError, InvalidInputError: a column or a value that the declaration refuses, or more distinct
            records than fit in memory. No value is quoted.
    """
    return EngineCount.of(table, schema, target, classes, written=written).counted()


@dataclass(frozen=True, eq=False)
class EngineCount:
    """The two steps of ``count_records``: ``of`` checks a table's columns, ``counted`` counts the records.

    Attributes:
        table: an Ibis table.
        schema, classes: the declarations.
        keys: expressions to group by, as ``pack`` makes them of numbers below ``sizes``.
        most: the largest number of distinct records that fit in memory with their features.
        persons: the persons whose records are counted; None if each record counts once.
        places: the number of places of each person, which its records fill.
    """

    table: Any
    schema: Schema
    classes: tuple[Any, ...]
    keys: tuple[Any, ...]
    sizes: tuple[int, ...]
    most: int
    persons: EnginePersons | None = None
    places: int = 1

    @classmethod
    def of(
        cls, table: Any, schema: Schema, target: str, classes: Sequence[Any], *, written: bool = False
    ) -> Self:
        """Check the columns without reading a record; arguments as for ``count_records``.

        Raises:
            SchemaError, InvalidInputError: a column that does not exist, or of a type that the declaration
                refuses; a SQLite database in UTF-16.
        """
        if not isinstance(target, str):
            raise InvalidInputError("y is the name of the label column, where X is a table in an engine")
        if not isinstance(table, ibis_library().Table):
            raise InvalidInputError(f"an Ibis table is needed, not {type(table).__name__}")
        check_expression(table)
        check_encoding(table)
        if len(set(classes)) < max(len(classes), 2):
            raise InvalidInputError("at least 2 different classes are needed, each of them once")
        names = list(table.columns)
        if lacking := [c for c in (*(c.name for c in schema.columns), target) if c not in names]:
            raise SchemaError(f"missing from the table: {missing_columns(lacking, names)}")
        if any(c.name == target for c in schema.columns):
            raise InvalidInputError(f"the schema declares {target!r}, which is the label, not a feature")
        engine = table.get_backend().name
        sizes = [len(classes) + len(REFUSED)]
        codes = [label_code(table[target], classes, written, engine)]
        for column in schema.columns:
            if column.n_codes > _MOST_CODES:
                raise SchemaError(
                    f"column {column.name!r}: {column.n_codes} different values are too many to be grouped "
                    f'by; declare a coarser step, or bins (kind = "binned")'
                )
            sizes.append(column.n_codes + len(REFUSED))
            codes.append(feature_code(table[column.name], column, engine))
        most = max(1, _MOST_NUMBERS // schema.n_features)
        keys = pack([c.cast("int64") for c in codes], sizes)
        return cls(table, schema, tuple(classes), tuple(keys), tuple(sizes), most)

    @cached_property
    def n_records(self) -> int:
        """The number of records, or of places of persons, which is public.

        Raises:
            InvalidInputError: the engine cannot count them.
        """
        return rows_in(self.table) if self.persons is None else self.persons.count * self.places

    def of_persons(self, name: str) -> Self:
        """Return the same count for one place of each person, by a column; no cell is read.

        Raises:
            InvalidInputError, SchemaError: as ``EnginePersons.of``, or a column that is a feature.
        """
        check_undeclared(name, self.schema.columns)
        return replace(self, persons=EnginePersons.of(self.table, name))

    def counted(self) -> CountedRecords:
        """Count the records.

        Raises:
            SchemaError, InvalidInputError: a value that the declaration refuses, or more distinct records
                than fit in memory with their features. No value is quoted.
        """
        keys, counts = self._grouped(self.most)
        return CountedRecords.from_keys(self.schema, self.classes, keys, counts, self.sizes)

    def parts(self) -> Parts:
        """Count the records, for sums over them: one or several ``CountedRecords``.

        Distinct records that do not fit in memory with their features are held as keys, 8 bytes for some 20
        columns; blocks of keys, in order, become ``CountedRecords`` when they are used.

        Raises:
            SchemaError, InvalidInputError: as ``counted``, for keys in place of features.
        """
        keys, counts = self._grouped(max(self.most, _MOST_NUMBERS // (len(self.keys) + 1)))
        if len(counts) <= self.most:
            return Whole(CountedRecords.from_keys(self.schema, self.classes, keys, counts, self.sizes))
        order = np.lexsort(list(keys)[::-1])
        arrays = (*(key[order] for key in keys), counts[order])
        rows = max(1, _BLOCK_NUMBERS // self.schema.n_features)
        make = partial(_counted_block, schema=self.schema, classes=self.classes, sizes=self.sizes)
        return Blocks(arrays, rows).made(make)

    def _grouped(self, most: int) -> tuple[list[IntArray], IntArray]:
        """Return the keys and the counts of the distinct records, up to ``most``."""
        named = [f"privopt_{k}" for k in range(len(self.keys))]
        keys, counts = _answer(self._query(named).limit(most + 1), named)
        if len(counts) > most:
            raise SchemaError(
                f"more than {most} distinct records: they do not fit in memory. To do: declare fewer "
                "columns, or coarser steps or bins for those with the most values; a linear model, which "
                "adds records up in parts, takes more of them than a scorecard or a tree"
            )
        if self.persons is not None and int(counts.sum()) != self.n_records:
            raise InvalidInputError("the number of persons has changed since they were counted")
        self._check_values(keys)
        return keys, counts

    def _query(self, names: Sequence[str]) -> Any:
        """Return the query for the distinct records and their numbers, privopt_n."""
        if self.persons is not None:
            return self.persons.placed(self.keys, self.places)
        found = self.table.select(**dict(zip(names, self.keys, strict=True)))
        return found.group_by(list(names)).aggregate(privopt_n=lambda t: t.count())

    def _check_values(self, keys: Sequence[IntArray]) -> None:
        """Raise the error of the first column that holds a refused value."""
        own = [len(self.classes), *(column.n_codes for column in self.schema.columns)]
        found: list[set[int]] = [set() for _ in own]
        for block in Blocks(tuple(keys), _BLOCK_NUMBERS // len(own)).each(tuple):
            for codes, n, refused in zip(unpack(block, self.sizes), own, found, strict=True):
                refused.update((codes[codes >= n] - n).tolist())
        refusals = [_label_refused, *(column.refusal for column in self.schema.columns)]
        for refused, refusal in zip(found, refusals, strict=True):
            if refused:
                raise refusal(REFUSED[min(refused)])


def rows_in(table: Any) -> int:
    """Return the number of rows of an Ibis table, which is public.

    Raises:
        InvalidInputError: the engine cannot count them.
    """
    with unquoted():
        return int(answer(table.aggregate(privopt_n=lambda t: t.count()))["privopt_n"][0].as_py())


def _counted_block(
    block: tuple[IntArray, ...], schema: Schema, classes: tuple[Any, ...], sizes: tuple[int, ...]
) -> CountedRecords:
    *keys, counts = block
    return CountedRecords.from_keys(schema, classes, keys, counts, sizes)


def rows_of(table: Any, names: Sequence[str], size: int) -> Iterator[pd.DataFrame]:
    """Yield columns of an Ibis table, ``size`` rows at a time, in the engine's order; missing cells are None.

    Values are those that ``count_records`` compares: numbers of single precision are doubles, where a driver
    may read the decimal that they print as, and text of PostgreSQL's char(n) has no trailing blanks. Bytes of
    a SQLite text that are not UTF-8 become lone surrogates.

    Raises:
        SchemaError: a column that does not exist.
        InvalidInputError: an engine that cannot be read in parts (Spark).
    """
    if lacking := [name for name in names if name not in table.columns]:
        raise SchemaError(f"missing from the table: {missing_columns(lacking, list(table.columns))}")
    backend = table.get_backend()
    with unquoted():
        table = with_readable_rows(table, names)
        exact = {name: _as_counted(table[name], backend.name) for name in names}
        cursor = backend.raw_sql(ibis_library().to_sql(table.select(**exact)))
    if not hasattr(cursor, "fetchmany"):
        raise InvalidInputError("this engine is not read in parts: bring records here by X.to_pandas()")
    text = decoded if backend.name == "sqlite" else None
    mixed = [name for name in names if is_mixed(table[name].type())]
    while rows := _next(cursor, size, text):
        found = pd.DataFrame(rows, columns=list(names), dtype=object)
        for name in mixed:
            found[name] = pd.Series([plain_cell(cell) for cell in found[name]], dtype=object)
        yield found


def _as_counted(value: Any, engine: str) -> Any:
    if value.type().is_float32():
        return value.cast("float64")
    return value + "" if value.type().is_string() and engine == "postgres" else value


def _next(cursor: Any, size: int, text: Callable[[bytes], str] | None) -> list[Any]:
    """Fetch rows; ``text`` replaces the text decoding of a SQLite connection for the time of the call."""
    with unquoted():
        if text is None:
            return list(cursor.fetchmany(size))
        own, cursor.connection.text_factory = cursor.connection.text_factory, text
        try:
            return list(cursor.fetchmany(size))
        finally:
            cursor.connection.text_factory = own


def _answer(query: Any, names: Sequence[str]) -> tuple[list[IntArray], IntArray]:
    with unquoted():
        found = answer(query)
    columns = [found[name].to_numpy().astype(np.int64) for name in (*names, "privopt_n")]
    return columns[:-1], columns[-1]


def _label_refused(reason: Refused) -> InvalidInputError:
    if reason is Refused.KIND:
        return InvalidInputError("y holds labels of another type than its column")
    if reason is Refused.MISSING:
        return InvalidInputError("y holds missing labels: give them a class of their own")
    return InvalidInputError(
        "y holds labels outside the declared classes; declare them, or correct the declaration"
    )
