"""``learn_schema``: learns a schema from a table, as a private release."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from privopt.mechanisms.estimators.booking import Unread, booked, column_shape, shape_of
from privopt.mechanisms.estimators.learned_engine import learned_names
from privopt.mechanisms.estimators.persons import AnyPersons
from privopt.mechanisms.estimators.public_facts import declared_schema, public_delta
from privopt.mechanisms.privacy.groups import PersonBudget
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.learning import DEFAULT_CUTS, LearnedSchema, SchemaPlan
from privopt.mechanisms.schemas.types import ColumnType
from privopt.problems.arguments import check_some_records
from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import InvalidInputError, SchemaError
from privopt.problems.tables.frames import (
    as_pandas,
    cells_of,
    check_distinct,
    missing_columns,
    unread_columns,
)
from privopt.problems.tables.parquet_files import is_mixed
from privopt.problems.tables.persons import Persons, check_undeclared, column_of_persons
from privopt.problems.tables.row_by_row import check_expression
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_table, is_type_of_null

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger


def learn_schema(
    table: Any,
    *,
    epsilon: float,
    delta: float | str = "auto",
    types: Mapping[str, str] | None = None,
    declared: Schema | dict[str, Any] | str | Path | None = None,
    leave_out: Sequence[str] = (),
    cuts: int = DEFAULT_CUTS,
    na_values: Sequence[str | float] = (),
    ledger: Ledger | str | Path | None = None,
    insecure_seed: int | None = None,
    person: str | None = None,
) -> LearnedSchema:
    """Learn a schema from a table: cuts of numbers and dates, and categories of text that many records share.

    Privacy: (epsilon, delta)-differential privacy, for data sets that differ by replacing one record. The
    number of records is public, and so are names and types of columns; types are given in ``types``
    or by a data frame's columns. If another program inferred a type from the cells, as pandas does for CSV
    files, the type is public only if no single record can change it; the type "vote" finds it privately
    instead. All columns are one release (``SchemaPlan``), booked before a cell is read. Fitting a model to
    the same records afterwards is a second release. Running time is outside the guarantee.

    Learned columns have a missing level and accept every cell; in a column of numbers, a cell that is not a
    number counts as missing.

    Args:
        table: a data frame (pandas, polars, pyarrow) or a mapping of columns, in memory; or an Ibis table,
            whose engine counts the distinct cells of each column and declares the types.
        epsilon: > 0, of this release.
        delta: in (0, 1), or "auto" for 1/n^2.
        types: types by column name: "number", "whole" (whole numbers), "range" (numbers between learned
            bounds, without cuts), "date", "text", "boolean", or "vote" (one of number, whole, date and text,
            by a private vote of the cells). For columns not named here, the type follows from the column's
            type in the table: number, boolean, date or text. Columns of Python objects, of categories, and of
            the type "str" that pandas 3 infers get "vote".
        declared: a schema of known columns, which are kept and cost nothing.
        leave_out: columns that should not be in the schema, such as the label.
        cuts: the largest number of cuts of a column of numbers: 1, 3, 7 or 15. With few records there are
            fewer cuts.
        na_values: missing-value markers in addition to the usual ones.
        ledger: a ``Ledger``, its path or URL: the spend is booked before a cell is read. A release that would
            overdraw the budget is refused.
        insecure_seed: reproducible noise for tests and demonstrations. *Voids the guarantee.*
        person: the column that identifies the person of each record. Only the first record of each person is
            used. The rows of an engine have no order: there, one cell of each person is used in each column,
            perhaps from several records. The guarantee is for replacing a person with all of its records, and
            the number of persons is public.

    Raises:
        PrivacyParameterError: epsilon or delta out of range, or too few records; no cell was read.
        InvalidInputError, SchemaError: a table or arguments that cannot be used; or by the private release no
            column has a category that enough records share.
        BudgetExceededError: the ledger refused the spend; no cell was read.
    """
    check_unmasked(table, "the table")
    known = None if declared is None else declared_schema(declared)
    left = [*leave_out, *([] if person is None else [person])]
    n, kinds = size_of(table), column_types(declared_types(table), types or {}, known, left)
    persons = None if person is None else persons_of(table, person, known)
    n = n if persons is None else persons.count
    plan = SchemaPlan.plan(
        kinds,
        n,
        epsilon=epsilon,
        delta=public_delta(delta, n),
        cuts=cuts,
        declared=known,
        na_values=na_values,
    )
    return released_schema(plan, table, ledger, NoiseSource(insecure_seed), persons)


def persons_of(table: Any, person: str, known: Schema | None) -> AnyPersons:
    """Return the persons of a table; only the column ``person`` is read.

    Raises:
        InvalidInputError: the engine cannot distinguish persons by this column.
        SchemaError: the declared schema includes this column.
    """
    if known is not None:
        check_undeclared(person, known.columns)
    if is_engine_table(table):
        from privopt.problems.tables.engine_persons import EnginePersons  # lazy: only engines need it

        return EnginePersons.of(table, person)
    return Persons.of(column_of_persons(table, person))


def released_schema(
    plan: SchemaPlan,
    table: Any,
    ledger: Ledger | str | Path | None,
    source: NoiseSource,
    persons: AnyPersons | None = None,
) -> LearnedSchema:
    """Book a plan, then make its release from a table; with ``persons``, from one record of each person."""
    if persons is not None:
        plan = for_persons(plan)
    if is_engine_table(table):
        from privopt.problems.tables.engine_cells import EngineCells  # lazy: only engines need it

        each: Any = persons
        # This refuses unusable types of columns before anything is booked.
        lazy = EngineCells(table, learned_names(plan), plan.n_records, each)
        unread: Unread[Any] = Unread(plan.n_records, lambda: lazy, given=table)
    else:
        names = [column.name for column in plan.columns]
        rows = persons.places(1) if isinstance(persons, Persons) else None
        unread = Unread(plan.n_records, partial(cells_by_name, table, names, rows), given=table)
    with booked(ledger, plan.spend_with(source), unread) as cells:
        return plan.release(cells, source)


def column_types(
    frame: Any, types: Mapping[str, str], known: Schema | None, leave_out: Sequence[str]
) -> dict[str, str]:
    """Return the types of the columns to learn, in the order of the table.

    Raises:
        SchemaError: a column is missing or occurs twice, or its type is none of numbers, dates and text.
    """
    if is_engine_table(frame):
        dtypes = dict(frame.schema().items())
    else:
        dtypes = {str(name): _dtype(values) for name, values in frame.items()}
        check_distinct("the table", [str(name) for name in frame])
    free = [] if known is None else [column.name for column in known.columns]
    if lacking := [name for name in (*types, *leave_out, *free) if name not in dtypes]:
        raise SchemaError(f"missing from the table: {missing_columns(lacking, list(dtypes))}")
    wanted = [name for name in dtypes if name not in leave_out and name not in free]
    places = {name: k for k, name in enumerate(dtypes, 1)}
    return {n: types[n] if n in types else str(_type(places[n], dtypes[n])) for n in wanted}


def for_persons(plan: SchemaPlan) -> SchemaPlan:
    """Return the plan for one record of each person, with the spend stated for persons."""
    budget = PersonBudget(plan.spend.epsilon, plan.spend.delta, records=1)
    return replace(plan, spend=budget.of_person(plan.spend))


def cells_by_name(table: Any, wanted: Sequence[str], rows: NDArray[np.int64] | None = None) -> dict[str, Any]:
    """Return the cells of the columns ``wanted``, of all rows or of ``rows``; no other column is read."""
    named = {str(name): values for name, values in unread_columns(table)}
    found = {name: cells_of(named[name]) for name in wanted}
    return found if rows is None else {name: values.take(rows) for name, values in found.items()}


def declared_types(table: Any) -> Any:
    """Return the table, or an empty pandas table with the declared types of its columns.

    A table of another library is converted to pandas without its rows, because a missing cell would change
    the type of a column of booleans.
    """
    if isinstance(table, pd.DataFrame | Mapping) or is_engine_table(table):
        return table
    return as_pandas(table.slice(0, 0))


def _is_frame(table: Any) -> bool:
    """Return whether a table is a data frame in memory of another library (polars, pyarrow)."""
    return all(hasattr(table, name) for name in ("to_pandas", "slice", "shape"))


def size_of(table: Any) -> int:
    """Return the number of records of a table.

    Raises:
        InvalidInputError: the table has no column names or no records, or is an engine's expression in which
            one row depends on several rows of the source.
    """
    if is_engine_table(table):
        from privopt.problems.tables.engines import rows_in  # lazy: only engines need it

        check_expression(table)
        return _some(rows_in(table))
    if not (isinstance(table, pd.DataFrame | Mapping) or _is_frame(table)):
        raise InvalidInputError(
            "a schema is learned from a table with names: a data frame, a mapping of columns, or a table in "
            f"an engine; got {type(table).__name__}"
        )
    if not isinstance(table, Mapping):
        lengths = {shape_of(table)[:1]}
    else:
        lengths = {column_shape(values)[:1] for values in table.values()}
    if len(lengths) != 1 or () in lengths:
        raise InvalidInputError("all columns of a table must be one-dimensional and of the same length")
    return _some(lengths.pop()[0])


def _some(n: int) -> int:
    check_some_records(n)
    return n


def _dtype(values: Any) -> Any:
    return getattr(values, "dtype", np.dtype(object))


def _type(place: int, dtype: Any) -> ColumnType:
    """Return the type that a column declares; "vote" for columns of objects, categories and pandas' "str".

    Integer columns count as whole numbers only in databases: pandas turns integers into floats if a cell is
    missing.
    """
    if is_engine_table(dtype):
        if (found := _engine_type(dtype)) is not None:
            return found
        if is_mixed(dtype):
            return ColumnType.VOTE
        dtype = "a type of its own" if dtype.is_unknown() else dtype
        raise SchemaError(_no_type(place, dtype))
    if pd.api.types.is_bool_dtype(dtype):
        return ColumnType.BOOLEAN
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_complex_dtype(dtype):
        return ColumnType.NUMBER
    if pd.api.types.is_datetime64_any_dtype(dtype) or _is_arrow_date(dtype):
        return ColumnType.DATE
    # For text in files pandas 3 infers "str", as pandas 2 inferred objects: inferred types are not declared.
    found_by_pandas = isinstance(dtype, pd.StringDtype) and dtype.na_value is not pd.NA
    if isinstance(dtype, pd.CategoricalDtype) or dtype == np.dtype(object) or found_by_pandas:
        return ColumnType.VOTE
    if isinstance(dtype, pd.StringDtype) or getattr(dtype, "kind", "") == "U" or _is_arrow_text(dtype):
        return ColumnType.TEXT
    raise SchemaError(_no_type(place, dtype))


def _no_type(place: int, dtype: Any) -> str:
    return (
        f"column {place} of the table: neither numbers, dates nor text ({dtype}). To do: make numbers of it, "
        "or leave it out"
    )


def _engine_type(dtype: Any) -> ColumnType | None:
    """Return the type that a column of an engine declares; None if no columns of this type are learned."""
    if dtype.is_boolean():
        return ColumnType.BOOLEAN
    if dtype.is_integer():
        return ColumnType.WHOLE
    if dtype.is_floating() or dtype.is_decimal():
        return ColumnType.NUMBER
    if dtype.is_date() or dtype.is_timestamp():
        return ColumnType.DATE
    return ColumnType.TEXT if dtype.is_string() or is_type_of_null(dtype) else None


def _is_arrow_date(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype) and bool(pa.types.is_date(dtype.pyarrow_dtype))


def _is_arrow_text(dtype: Any) -> bool:
    if not isinstance(dtype, pd.ArrowDtype):
        return False
    return bool(pa.types.is_string(dtype.pyarrow_dtype) or pa.types.is_large_string(dtype.pyarrow_dtype))
