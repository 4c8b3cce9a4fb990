"""Cells of a table in a SQL engine: each different cell of a column and the number of its records.

A column is read by one query with GROUP BY. Cells are read as in tables in memory (``cells``,
``days``): numbers are the nearest doubles, text is compared and returned by its bytes, dates are days. Only
SQLite, whose columns hold cells of any type, can have other cells in such columns; these are returned
unchanged. ``expressions`` makes the codes of cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.arrow_cells import UNREADABLE_CELL
from privopt.problems.tables.counted_cells import CountedCells
from privopt.problems.tables.date_expressions import check_day, written_day
from privopt.problems.tables.dates import YEAR
from privopt.problems.tables.engine_persons import EnginePersons
from privopt.problems.tables.expressions import Cell, exact_text, with_type
from privopt.problems.tables.parquet_files import fields, is_mixed
from privopt.problems.tables.parquet_text import UNREADABLE_TEXT, answer
from privopt.problems.tables.sources import check_encoding, decoded, ibis_library, unquoted

# Turns the cells that a query returned into cells as tables in memory hold them.
Decode = Callable[[Any], Any]
# Makes the query for the different cells and their numbers, from expressions that tell cells apart.
Count = Callable[[Mapping[str, Any]], Any]


class EngineCells(Mapping[str, CountedCells]):
    """Columns of an Ibis table by name; each is read by one query when it is looked up.

    Args:
        table: an Ibis table.
        names: the columns.
        n_records: the number of cells of a column, which was counted before.
        persons: the persons of the table; one cell of each counts in a column, ``copies`` times. None: every
            cell counts, ``copies`` times.

    Raises:
        SchemaError: a type that tables in memory do not have, such as times and lists. No record is read.
        InvalidInputError: a SQLite database in UTF-16.
    """

    def __init__(
        self,
        table: Any,
        names: Sequence[str],
        n_records: int,
        persons: EnginePersons | None = None,
        copies: int = 1,
    ) -> None:
        check_encoding(table)
        self._n_records, self._copies, self._sqlite = n_records, copies, table.get_backend().name == "sqlite"
        make = _any_cells if self._sqlite else _typed_cells
        count = partial(_grouped, table) if persons is None else persons.one_each
        self._queries = {name: make(table, name, count) for name in names}

    def __getitem__(self, name: str) -> CountedCells:
        """Read a column.

        Raises:
            InvalidInputError: an error of the engine, or records that were added or removed meanwhile.
        """
        query, decode = self._queries[name]
        with unquoted():
            cells, counts = _rows(query) if self._sqlite else _arrays(query)
        counts = counts * self._copies
        if int(counts.sum()) != self._n_records:
            raise InvalidInputError("the number of records has changed since they were counted")
        return CountedCells(decode(cells), counts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)


def _typed_cells(table: Any, name: str, count: Count) -> tuple[Any, Decode]:
    """Return the query for a column whose cells all have the column's type, and their decoding."""
    value, where = with_type(table[name], "string"), f"column {name!r}"
    engine = table.get_backend().name
    if not is_mixed(value.type()):
        cell, decode = _typed_cell(value, where, engine)
        return count({"privopt_cell": cell}), decode
    parts = {field: _typed_cell(part, where, engine) for field, part in fields(value).items()}
    cells = ibis_library().struct({field: cell for field, (cell, _) in parts.items()})
    return count({"privopt_cell": cells}), partial(_in_parts, [decode for _, decode in parts.values()])


def _typed_cell(value: Any, where: str, engine: str) -> tuple[Any, Decode]:
    kind = value.type()
    if kind.is_date() or kind.is_timestamp():
        check_day(value, where, engine)
        return written_day(value.cast("date")), _days
    cell = Cell(value, where, engine)
    if cell.text:
        return exact_text(value, engine), _texts
    if kind.is_decimal():  # as text: for some, the engine's conversion to doubles raises an error
        return value.cast("string"), _decimals
    return cell.number, _numbers


def _in_parts(decodes: Sequence[Decode], cells: Any) -> Any:
    """Return the cells of a column whose files hold different kinds, each by the decoding of its kind."""
    held = cells.combine_chunks()
    found = np.full(len(held), None, dtype=object)
    for part, decode in zip(held.flatten(), decodes, strict=True):
        known = np.asarray(part.is_valid())
        found[known] = list(decode(part.filter(pa.array(known))))
    return found


def _any_cells(table: Any, name: str, count: Count) -> tuple[Any, Decode]:
    """Return the query for a column of SQLite; text is returned as bytes, as it need not be valid UTF-8."""
    ibis, value = ibis_library(), table[name]
    if value.type().is_unknown():
        Cell(value, f"column {name!r}", "sqlite")  # raises the error of a column without a known type
    kind = value.typeof()
    text = ibis.ifelse(kind == "text", value.cast("binary"), ibis.null("binary"))
    other = ibis.ifelse(kind == "text", ibis.null(value.type()), value)
    return count({"privopt_kind": kind, "privopt_text": text, "privopt_cell": other}), _objects


def _grouped(table: Any, cells: Mapping[str, Any]) -> Any:
    return table.select(**cells).group_by(list(cells)).aggregate(privopt_n=lambda t: t.count())


def _arrays(query: Any) -> tuple[Any, IntArray]:
    found = answer(query)
    return found["privopt_cell"], found["privopt_n"].to_numpy().astype(np.int64)


def _rows(query: Any) -> tuple[list[tuple[bytes | None, Any]], IntArray]:
    answer(query.limit(0))  # reads no row; makes Ibis register the Python functions of the query
    cursor = query.get_backend().raw_sql(ibis_library().to_sql(query))
    found = cursor.fetchall()
    return [row[1:3] for row in found], np.array([row[3] for row in found], dtype=np.int64)


def _numbers(cells: Any) -> Any:
    return np.array(pc.fill_null(cells.cast(pa.float64()), np.nan), dtype=np.float64)


def _decimals(cells: Any) -> Any:
    return np.array([np.nan if cell is None else float(cell) for cell in cells.to_pylist()])


def _texts(cells: Any) -> Any:
    texts = [None if cell is None else decoded(cell) for cell in cells.to_pylist()]
    return _as_objects([UNREADABLE_CELL if text == UNREADABLE_TEXT else text for text in texts])


def _days(cells: Any) -> Any:
    """Return days from numbers YYYYMMDD, as the engine writes days of the years 1 to 9999."""
    written = np.array(pc.fill_null(cells.cast(pa.int64()), 0), dtype=np.int64)
    year, month, day = written // YEAR, written % YEAR // 100, written % 100
    months = ((year - 1970) * 12 + np.maximum(month, 1) - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1)
    days[written == 0] = np.datetime64("NaT")
    return days


def _objects(cells: list[tuple[bytes | None, Any]]) -> Any:
    return _as_objects([cell if text is None else decoded(text) for text, cell in cells])


def _as_objects(cells: list[Any]) -> Any:
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found
