"""Counting of distinct records before a fit: in a database engine, in Dask partitions, or in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.estimators.booking import Unread
from privopt.mechanisms.estimators.labels import label_indices, public_classes
from privopt.mechanisms.estimators.public_facts import declared_schema
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts, Whole
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.frames import Table, is_frame
from privopt.problems.tables.partitions import parts_of, rows_of_parts
from privopt.problems.tables.schema import IntegerFeatures, Schema
from privopt.problems.tables.sources import is_engine_table

if TYPE_CHECKING:
    from privopt.problems.tables.engines import EngineCount

_UNDECLARED = (
    "records counted by an engine or workers need a declared schema and declared classes: nothing is "
    "inferred from them, and regression needs a table in memory"
)
# Data frames with at least _LONG records are reduced to counts of distinct records before a linear model is
# fitted, at the cost of a few passes over the records. Tables with a column of more than _MOST_CODES codes
# are not reduced, as hardly any two of their records are equal.
_LONG, _MOST_CODES = 100_000, 4096


def unread_counts(
    X: Any, y: Any, schema: Schema | dict[str, Any] | str | Path | None, classes: Sequence[Any] | None
) -> Unread[CountedRecords] | None:
    """Wrap a table in a database engine, or counted records, as unread; None for other tables.

    The number of records, which is public, is queried at once; records are counted when they are read.

    Args:
        X, y: an Ibis table and the name of its label column; or ``CountedRecords`` and None.
        schema, classes: the declared facts. Counted records must have the same classes, and a schema that
            ``refines`` this one.

    Raises:
        InvalidInputError: schema or classes are not declared, or do not fit the schema and classes of counted
            records; also as ``EngineCount.of``.
    """
    found = _to_count(X, y, schema, classes)
    if found is None:
        return None
    if isinstance(found, CountedRecords):
        return Unread(found.n_records, lambda: found)
    return Unread(found.n_records, found.counted)


def unread_count_parts(
    X: Any, y: Any, schema: Schema | dict[str, Any] | str | Path | None, classes: Sequence[Any] | None
) -> Unread[Parts] | None:
    """Return the same as ``unread_counts``, but in parts of type ``CountedRecords``, for sums over records.

    There is one part, unless the features of all distinct records of a table in an engine do not fit in
    memory: then there is a part for each block of distinct records.
    """
    found = _to_count(X, y, schema, classes)
    if found is None:
        return None
    if isinstance(found, CountedRecords):
        return Unread(found.n_records, lambda: Whole(found))
    return Unread(found.n_records, found.parts)


def _to_count(
    X: Any, y: Any, schema: Schema | dict[str, Any] | str | Path | None, classes: Sequence[Any] | None
) -> EngineCount | CountedRecords | None:
    if is_engine_table(X):
        return count_in_engine(X, y, schema, classes)
    if not isinstance(X, CountedRecords):
        return None
    facts, known = declared_facts(schema, classes)
    if y is not None:
        raise InvalidInputError("records that were counted hold their labels: leave y out")
    check_counted_by(X, facts, known)
    return X


def count_in_engine(
    X: Any, y: Any, schema: Schema | dict[str, Any] | str | Path | None, classes: Sequence[Any] | None
) -> EngineCount:
    """Return a query, not yet run, that counts the records of an Ibis table; errors as ``unread_counts``."""
    facts, known = declared_facts(schema, classes)
    from privopt.problems.tables.engines import EngineCount  # lazy: only tables in engines need it

    return EngineCount.of(X, facts, y, known)


def declared_facts(
    schema: Schema | dict[str, Any] | str | Path | None, classes: Sequence[Any] | None
) -> tuple[Schema, list[Any]]:
    """Return schema and classes; raise InvalidInputError if they are not declared."""
    if schema is None or classes is None:
        raise InvalidInputError(_UNDECLARED)
    return declared_schema(schema), public_classes(classes, np.array([])).tolist()


def check_counted_by(counted: CountedRecords, schema: Schema, classes: Sequence[Any]) -> None:
    """Raise InvalidInputError unless records were counted for these classes, by a schema that refines this
    one.
    """
    if not counted.schema.refines(schema) or list(counted.classes) != list(classes):
        raise InvalidInputError("records were counted by another schema, or for other classes: count again")


def check_number(found: int, expected: int) -> None:
    """Raise InvalidInputError if the number of records found differs from the planned number."""
    if found != expected:
        raise InvalidInputError("the number of records has changed since they were counted")


def unread_part_counts(
    X: Any, y: Any, schema: Schema | dict[str, Any] | str | Path | None, classes: Sequence[Any] | None
) -> Unread[CountedRecords]:
    """Wrap Dask collections as unread records; their workers count them when they are read.

    Raises:
        InvalidInputError: as ``unread_counts``.
    """
    if schema is None or classes is None:
        raise InvalidInputError(_UNDECLARED)
    facts, known = declared_schema(schema), public_classes(classes, np.array([]))
    parts = parts_of(X, y, [column.name for column in facts.columns])
    assert parts is not None
    count = partial(_counted, schema=facts, classes=known)
    return Unread(rows_of_parts(X, parts), lambda: CountedRecords.together(parts.each(count)))


def counted_here(
    X: Any, y: Any, schema: Schema | None, classes: Sequence[Any] | None
) -> CountedRecords | None:
    """Count the distinct records of a long data frame in memory; None if counting does not pay.

    The decision depends on public facts only. Errors are those of ``Schema.encode`` and of labels.
    """
    if schema is None or classes is None or not is_frame(X) or len(X) < _LONG:
        return None
    if max(column.n_codes for column in schema.columns) > _MOST_CODES:
        return None
    return _counted((X, y), schema, public_classes(classes, np.array([])))


def _counted(pair: tuple[Any, Any], schema: Schema, classes: NDArray[Any]) -> CountedRecords:
    X, y = pair
    codes = schema.codes(X)
    label = label_indices(y, len(codes[0]), classes)
    return CountedRecords.of(schema, codes, classes.tolist(), label)


def codes_of(schema: Schema, X: Any) -> Sequence[IntArray]:
    """Return the codes of a table in memory, or of the distinct rows of counted records.

    Raises:
        InvalidInputError: a table in an engine, or records that were counted by another schema.
        SchemaError: as ``Schema.encode``.
    """
    if is_engine_table(X):
        raise InvalidInputError(
            "predictions are made in memory, by X.to_pandas() in parts; or in the engine: scorecards have "
            "to_sql"
        )
    if not isinstance(X, CountedRecords):
        return schema.codes(X)
    return X.codes_in(schema)


def integer_features(schema: Schema, X: Any) -> IntegerFeatures:
    """Return the integer features of records; arguments and errors as for ``codes_of``."""
    return schema.features(codes_of(schema, X))


def encoded(schema: Schema, table: Table | CountedRecords) -> NDArray[np.float64]:
    """Return the features of a table as floats, shape (n, d)."""
    features = integer_features(schema, table)
    return np.asarray(features.X / features.denominator, dtype=np.float64)
