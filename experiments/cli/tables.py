"""Labelled records of ``--data`` and ``--table``, in memory or counted by an engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privopt.mechanisms.estimators.booking import Unread, read_unbooked, unread_table
from privopt.mechanisms.estimators.counting import counted_here
from privopt.problems.arrays import record_counts
from privopt.problems.datasets.adult import ADULT23_CLASSES, ADULT_TARGET, adult23_frame, adult23_schema
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.cells import read_numbers
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.engines import EngineCount, rows_of
from privopt.problems.tables.frames import cells_of, missing_columns
from privopt.problems.tables.persons import Persons, column_of_persons
from privopt.problems.tables.reading import header_of, read_table
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_address, open_table

# Number of records per batch of predictions: some tens of megabytes.
_PART = 100_000


class Labelled:
    """Labelled records and the public facts about them.

    An estimator takes ``unread`` and reads it once the spend is booked. The other properties of the records
    are available only after that.

    Attributes:
        schema, classes: the declarations; None: not declared.
        target: the name of the label column.
        weights: the weight of every record; None: all count the same.
    """

    def __init__(
        self,
        records: Unread[Any],
        schema: Schema | None,
        classes: tuple[Any, ...] | None,
        target: str,
        weights: NDArray[np.float64] | None = None,
    ) -> None:
        self.schema, self.classes, self.target, self.weights = schema, classes, target, weights
        self._records = records
        self._read: tuple[pd.DataFrame | CountedRecords | EngineCount, pd.Series[Any] | None] | None = None

    def unread(self, *, counted: bool = False) -> Unread[Any]:
        """Return the records for an estimator; with ``counted``, a long table is reduced to its counts."""
        return self._records.then(partial(self._kept, counted))

    def units(self, person: str | None) -> int:
        """Return the public number of records, or of persons by a column."""
        table = None if person is None else self._records._read()[0]
        if person is None or isinstance(table, EngineCount):
            return self._records.n_records
        return Persons.of(column_of_persons(table, person)).count

    def in_memory(self) -> tuple[Any, Any]:
        """Return table and labels as objects, for an estimator that books before it looks at a cell."""
        self._read = self._records._read()
        return self._read

    def inferred(self, ledger: object) -> Schema:
        """Return the declared schema, or infer one from the records: a leak, which a ledger refuses."""
        if self.schema is not None:
            return self.schema
        return Schema.infer(read_unbooked(ledger, self._records, ["--schema"])[0])

    def keep(self, counted: CountedRecords) -> None:
        """Use counts that an engine made, under a learned schema, in place of the records."""
        self._read = (counted, None)

    def _kept(self, counted: bool, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        found = counted_here(*pair, self.schema, self.classes) if counted else None
        self._read = pair if found is None else (found, None)
        return self._read

    @property
    def X(self) -> pd.DataFrame | CountedRecords:
        """The records in the form that estimators take."""
        assert self._read is not None, "records are read by a fit, once it is booked"
        found = self._read[0]
        if isinstance(found, EngineCount):  # persons may be limited there; reports use all records
            found = replace(found, persons=None).counted()
            self._read = found, None
        return found

    @property
    def y(self) -> pd.Series[Any] | None:
        """The labels; None if ``X`` counts records with their labels."""
        assert self._read is not None, "records are read by a fit, once it is booked"
        return self._read[1]

    @property
    def frame(self) -> pd.DataFrame:
        """The records of a table in memory.

        Raises:
            InvalidInputError: the table is in an engine.
        """
        if isinstance(self.X, CountedRecords):
            raise InvalidInputError("regression needs a table in memory: an engine counts records by class")
        return self.X

    @property
    def labels(self) -> NDArray[Any]:
        """The label of every row."""
        return self.X.labels if isinstance(self.X, CountedRecords) else np.asarray(self.y)

    def share(self, rows: NDArray[np.bool_]) -> float:
        """Return the share of the records in the selected rows."""
        counts = record_counts(self.X.counts if isinstance(self.X, CountedRecords) else None, len(rows))
        return float(np.sum(counts[rows]) / np.sum(counts))


def read_labelled(
    data: str,
    target: str | None,
    schema: Schema | None,
    classes: tuple[Any, ...] | None,
    table: str | None = None,
    person: str | None = None,
    weight: str | None = None,
) -> Labelled:
    """Open labelled records of a file, of the package or of an engine; no cell is interpreted yet.

    A file is parsed to count its records. Errors here concern its format, not the schema's rules for cells.
    The column ``person`` is read as text, as it is written: what a cell means must not depend on other cells.
    The column ``weight`` is no feature; a weight that is not a number is NaN, which a fit refuses.

    Raises:
        InvalidInputError: facts that are missing, or a table that cannot be read.
        SchemaError: columns that do not fit the schema.
    """
    if person is not None and schema is None:
        raise InvalidInputError("--person needs --schema")
    if data == "adult23" or data.startswith("adult23:"):
        frame = adult23_frame(_seed(data.partition(":")[2] or "0"))
        target = target or ADULT_TARGET
        schema, classes = schema or adult23_schema(), classes or ADULT23_CLASSES
    elif target is None:
        raise InvalidInputError("--target is needed: the name of the label column")
    elif is_engine_address(data):
        if weight is not None:
            raise InvalidInputError(
                "--sample-weight takes files: an engine counts records, not their weights"
            )
        return _counted(data, table, target, schema, classes, person)
    else:
        # The command line holds strings: compare labels as they are written in the file.
        frame = read_table(Path(data), _as_written(data, schema, target, classes))
    if person is not None and person not in map(str, frame.columns):
        raise InvalidInputError(f"--person: no {missing_columns([person], list(map(str, frame.columns)))}")
    if table is not None:
        raise InvalidInputError("--table names a table of a database: give the URL of the database as --data")
    return labelled(frame, target, schema, classes, weight)


def labelled(
    frame: pd.DataFrame,
    target: str,
    schema: Schema | None,
    classes: tuple[Any, ...] | None,
    weight: str | None = None,
) -> Labelled:
    """Take the labels, and weights from a column, from a table in memory; no other cell is interpreted yet.

    Raises:
        InvalidInputError: a table without the label column or the weights, or a schema that declares them.
    """
    names = list(map(str, frame.columns))
    weights = None if weight is None else _weights(frame, weight, target, schema)
    if target not in names:
        raise InvalidInputError(f"--target: no {missing_columns([target], names)}")
    if schema is not None and any(c.name == target for c in schema.columns):
        raise InvalidInputError(f"--schema: it declares {target!r}, which is the label, not a feature")
    y = frame[target]
    if classes is not None:
        y = _objects(y).map(_written, na_action="ignore").astype(object)
    features = frame.drop(columns=[target, *filter(None, [weight])])
    return Labelled(unread_table(features, y, schema), schema, classes, target, weights)


def _weights(frame: pd.DataFrame, weight: str, target: str, schema: Schema | None) -> NDArray[np.float64]:
    """Return the weights in a column, each read from its cell alone; NaN for a cell that is no number."""
    names = list(map(str, frame.columns))
    if weight not in names:
        raise InvalidInputError(f"--sample-weight: no {missing_columns([weight], names)}")
    if weight == target or (schema is not None and any(c.name == weight for c in schema.columns)):
        raise InvalidInputError(f"--sample-weight {weight}: that is the label or a feature, not a weight")
    return read_numbers(cells_of(frame[weight])).values


def read_parts(data: str, schema: Schema | None, table: str | None = None) -> Iterator[pd.DataFrame]:
    """Yield records in order: a file as one table, a table in an engine in batches.

    Batches have the columns of the schema only.

    Raises:
        InvalidInputError, SchemaError: the table cannot be read, or is in an engine and there is no schema.
    """
    if not is_engine_address(data):
        if table is not None:
            raise InvalidInputError(
                "--table names a table of a database: give the URL of the database in place of a file"
            )
        yield read_table(Path(data), _as_written(data, schema))
        return
    if schema is None:
        raise InvalidInputError("a model without a schema reads files, not tables in an engine")
    yield from rows_of(open_table(data, table), [column.name for column in schema.columns], _PART)


def _as_written(
    data: str, schema: Schema | None, target: str | None = None, classes: tuple[Any, ...] | None = None
) -> list[str]:
    """Return the columns to read as text.

    With a schema these are all columns, but not the label if its classes are not declared.
    """
    if schema is None:
        return [] if target is None or classes is None else [target]
    header = header_of(data)
    names = header if isinstance(header, list) else header.names
    return [name for name in names if name != target or classes is not None]


def _counted(
    data: str,
    table: str | None,
    target: str,
    schema: Schema | None,
    classes: tuple[Any, ...] | None,
    person: str | None = None,
) -> Labelled:
    facts = {"--schema": schema, "--classes": classes}
    if schema is None or classes is None:
        lacking = " and ".join(option for option, fact in facts.items() if fact is None)
        raise InvalidInputError(
            f"{lacking}: declare it, as nothing is inferred from a table in an engine; regression needs a "
            "table in memory"
        )
    written = isinstance(classes[0], str)
    engine = EngineCount.of(open_table(data, table), schema, target, classes, written=written)
    if person is not None:
        if person == target:
            raise InvalidInputError(f"--person {person}: that is the label")
        persons = engine.of_persons(person)
        return Labelled(Unread(persons.n_records, lambda: (persons, None)), schema, classes, target)
    return Labelled(Unread(engine.n_records, lambda: (engine.counted(), None)), schema, classes, target)


def _objects(labels: pd.Series[Any]) -> pd.Series[Any]:
    """Return labels as objects, each converted alone: integers stay integers where others are missing."""
    if pd.api.types.is_integer_dtype(labels.dtype):
        return labels.astype(object)
    cells = cells_of(labels)
    return pd.Series(cells.to_pylist() if hasattr(cells, "to_pylist") else cells, dtype=object)


def _written(label: Any) -> str:
    """Write a label as text: "1" for 1.0, which Parquet stores for integers with missing values."""
    if isinstance(label, float | np.floating) and float(label).is_integer():
        return str(int(label))
    return str(label)


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise InvalidInputError(f"adult23:SEED needs a seed >= 0 of the public subsample, got {text!r}")
    return int(text)
