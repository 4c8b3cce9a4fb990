"""Cells of Arrow columns as arrays: each cell is read by itself, by the type of its column.

Arrow and Parquet hold cells that Python and pandas do not: days of any year, times beyond a day, text that is
not UTF-8. One such cell makes the conversion of a whole column fail. Here that cell alone becomes unreadable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privopt.problems.errors import SchemaError

# In place of a cell that Python cannot hold: neither a number, nor a text, nor a day, nor missing.
UNREADABLE_CELL = b""

_NOT_A_TIME = np.iinfo(np.int64).min
# The calendar repeats after 400 years, weekdays and the rules of time zones included.
_CYCLE = 146_097 * 86_400
_BORDERS = np.array(["0000-12-01", "0003-01-01", "9998-01-01", "10000-02-01"], "datetime64[s]").view(np.int64)


def arrow_columns(table: pa.Table) -> list[tuple[str, pa.ChunkedArray]]:
    """Return the columns of an Arrow table, without those that pandas stored as the index of a data frame."""
    stored = (table.schema.pandas_metadata or {}).get("index_columns", ())
    index = {name for name in stored if isinstance(name, str)}
    pairs = zip(table.column_names, table.columns, strict=True)
    return [(name, column) for name, column in pairs if name not in index]


def arrow_cells(values: Any) -> Any:
    """Return the cells of an Arrow array, plain or chunked: a NumPy array, or an Arrow array of text.

    Raises:
        SchemaError: a type that cannot be read, whatever the cells are.
    """
    column = _decoded(values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values]))
    kind = column.type
    if _is_number(kind):
        return np.asarray(column.to_pandas())
    if is_text(kind):
        return _utf8(column)
    if pa.types.is_date32(kind):
        return _integers(column.cast(pa.int32())).view("datetime64[D]")
    if pa.types.is_date64(kind):
        return _integers(column).view("datetime64[ms]")
    if pa.types.is_timestamp(kind):
        times = _integers(column).view(f"datetime64[{kind.unit}]")
        return times if kind.tz is None else wall_times(times, _zone(kind))
    return _objects(column)


def series_of(column: pa.ChunkedArray, *, exact: bool) -> pd.Series[Any]:
    """Return an Arrow column as a series; cells that pandas may not be able to hold stay in Arrow.

    Args:
        column: the column.
        exact: whether integers stay integers in a column with missing cells; else they become floats.
    """
    column = _decoded(column)
    kind = column.type
    if _is_number(kind) and not (exact and pa.types.is_integer(kind) and column.null_count):
        found: pd.Series[Any] = column.to_pandas()
        return found
    if is_text(kind):  # not checked for UTF-8, which is done when it is read
        column, kind = column.cast(pa.large_string()), pa.large_string()
    elif not (_is_number(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return pd.Series(_objects(column), dtype=object)
    return pd.Series(column, dtype=pd.ArrowDtype(kind))


def taken_cells(values: pa.Array | pa.ChunkedArray, rows: NDArray[Any]) -> Any:
    """Return the cells of some rows; as Python objects where Arrow has no ``take`` for the type (views)."""
    try:
        return values.take(pa.array(rows))
    except pa.ArrowNotImplementedError:
        chunked = values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
        return _objects(_decoded(chunked))[rows]


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is one of text."""
    return str(kind) in ("string", "large_string", "string_view")  # views came with pyarrow 16


def wall_times(utc: NDArray[np.datetime64], zone: Any) -> NDArray[np.datetime64]:
    """Return the local times in a time zone, to the second, without overflow.

    Python's time zones know the years 1 to 9999. Times near the borders of that range are converted in a year
    with the same calendar; times beyond it are returned unchanged, as no date is read from them.
    """
    seconds = utc.astype("datetime64[s]").view(np.int64)
    first, early, late, last = _BORDERS
    inside = (seconds >= first) & (seconds < last)
    shift = np.where(seconds < early, _CYCLE, np.where(seconds >= late, -_CYCLE, 0))
    moved = np.where(inside, seconds, 0) + np.where(inside, shift, 0)
    local = pd.DatetimeIndex(moved.view("datetime64[s]"), tz="UTC").tz_convert(zone).tz_localize(None)
    found = np.asarray(local).astype("datetime64[s]").view(np.int64) - shift
    return np.where(inside, found, seconds).view("datetime64[s]")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _zone(kind: pa.DataType) -> Any:
    try:
        return pa.lib.string_to_tzinfo(kind.tz)
    except Exception:
        raise SchemaError(f"a column of the table has a time zone that is not known: {kind}") from None


def _decoded(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column without extension types, dictionaries and runs: its plain cells."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name.startswith("pandas."):  # periods and intervals, which are no numbers
            nothing = pa.scalar(None, pa.binary())
            return pc.if_else(column.is_valid(), pa.scalar(UNREADABLE_CELL), nothing)
        chunks, kind = [chunk.storage for chunk in column.chunks], kind.storage_type
    elif pa.types.is_dictionary(kind):
        chunks, kind = [chunk.dictionary_decode() for chunk in column.chunks], kind.value_type
    elif str(kind).startswith("run_end_encoded"):
        chunks, kind = [pc.run_end_decode(chunk) for chunk in column.chunks], kind.value_type
    else:
        return column
    return _decoded(pa.chunked_array(chunks, kind))


def _integers(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return dates or times as integers in their unit; missing ones as the integer of NaT."""
    return np.asarray(pc.fill_null(column.cast(pa.int64()), _NOT_A_TIME))


def _utf8(column: pa.ChunkedArray) -> Any:
    """Return text as an Arrow array; as Python objects if a cell is not UTF-8: other cells stay text."""
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return _objects(column)
    found = column.cast(pa.large_string()).combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _objects(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return the cells as Python objects, each converted by itself."""
    found = np.empty(len(column), dtype=object)
    for k, cell in enumerate(column):
        found[k] = _object(cell)
    return found


def _object(cell: pa.Scalar[Any]) -> Any:
    try:
        return cell.as_py()
    except Exception:  # of any type, and its text can quote the cell
        return UNREADABLE_CELL
