"""Tables in memory of any library: columns as arrays, and messages about missing columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import SchemaError
from privopt.problems.tables.arrow_cells import arrow_cells, arrow_columns, is_text, series_of, wall_times

Table = pd.DataFrame | NDArray[Any] | Mapping[str, ArrayLike]

# The largest number of columns that a message lists.
MOST_NAMED = 20
_ONE_LENGTH = "all columns of a table must be one-dimensional and of the same length"


def check_distinct(where: str, names: Sequence[str]) -> None:
    """Raise SchemaError if two columns have the same name."""
    if twice := [i for i, name in enumerate(names) if name and name in names[:i]]:
        places = f"columns {names.index(names[twice[0]]) + 1} and {twice[0] + 1}"
        raise SchemaError(f"{where}: columns need distinct names; {places} have the same name")


def missing_columns(missing: Sequence[str], there: Sequence[str]) -> str:
    """Describe the columns that a table lacks, without quoting the names that it has.

    If a file has no header, these names are the cells of a record.

    Args:
        missing: the expected names that the table does not have.
        there: the names of the table.
    """
    wanted = ", ".join(f"column {name!r}{_similar(name, there)}" for name in missing[:MOST_NAMED])
    more = ", ..." if len(missing) > MOST_NAMED else ""
    count = "1 column" if len(there) == 1 else f"{len(there)} columns"
    return (
        f"{wanted}{more}. The table has {count}, and names must match exactly; is the first line of the file "
        "its header?"
    )


def _similar(name: str, there: Sequence[str]) -> str:
    """Describe the position of a column with a similar name; empty if there is none."""
    known = [other.strip().lower() for other in there]
    close = get_close_matches(name.strip().lower(), known, n=1)
    return f" (column {known.index(close[0]) + 1} of the table has a similar name)" if close else ""


def _cells_of_categories(values: pd.Series[Any]) -> Any:
    """Return the cells of a categorical column: each is read as its category is."""
    codes = values.cat.codes.to_numpy()
    cells = cells_of(values.cat.categories.to_series())
    if isinstance(cells, pa.Array):
        return cells.take(pa.array(codes, mask=codes < 0))
    if cells.dtype.kind in "mM":
        missing: NDArray[Any] = np.array(["NaT"], cells.dtype)
    else:
        missing = np.array([np.nan]) if cells.dtype.kind in "iufc" else np.array([None])
    return np.concatenate([cells, missing])[codes]


def columns_of(table: Table) -> list[tuple[str | None, NDArray[Any]]]:
    """Return the columns of a table with their names (None for arrays); all have the same length.

    Each is a NumPy array, or an Arrow array of text.

    Raises:
        SchemaError: as ``unread_columns``; or a column of a type that cannot be read.
    """
    return [(name, cells_of(values)) for name, values in unread_columns(table)]


def unread_columns(table: Table) -> list[tuple[str | None, Any]]:
    """Return the columns of a table as it holds them, with their names (None for arrays).

    No cell is converted, so that a column that nobody uses does not matter.

    Raises:
        SchemaError: not a table, no columns, columns that differ in length, or masked ones.
    """
    named: list[tuple[str | None, Any]]
    check_unmasked(table, "the table")
    if is_frame(table) and not isinstance(table, pd.DataFrame):
        named = list(_foreign_columns(table))
    elif isinstance(table, (pd.DataFrame, Mapping)):
        named = [(str(label), values) for label, values in table.items()]
    elif isinstance(table, np.ndarray) and table.ndim == 2:
        named = [(None, table[:, j]) for j in range(table.shape[1])]
    else:
        raise SchemaError(
            "expected a data frame (pandas, polars, pyarrow), a dict of columns, or an array of shape "
            f"(n, columns); got {type(table).__name__}"
            + (": call its collect() first" if hasattr(table, "collect") else "")
        )
    if not named:
        raise SchemaError("the table has no columns")
    if len({_length(values) for _, values in named}) > 1:
        raise SchemaError(_ONE_LENGTH)
    return named


def is_frame(table: object) -> bool:
    """Return whether a table is a data frame: of pandas, or one that converts itself to it."""
    return isinstance(table, pd.DataFrame) or callable(getattr(table, "to_pandas", None))


def as_pandas(table: Any, exact: Collection[str] = ()) -> Any:
    """Convert a data frame of another library (polars, pyarrow) to pandas; return anything else unchanged.

    Args:
        table: the data frame. Cells that pandas may not be able to hold, such as far dates, stay in Arrow.
        exact: columns whose integers stay integers even if cells are missing; others become floats then.

    Raises:
        SchemaError: a data frame without Arrow whose ``to_pandas`` fails.
    """
    if isinstance(table, pd.DataFrame) or not is_frame(table):
        return table
    named = list(_foreign_columns(table))
    columns = [
        exact_series(values) if name in exact else _series(values, exact=False) for name, values in named
    ]
    found = pd.DataFrame(dict(enumerate(columns)), copy=False)
    found.columns = pd.Index([name for name, _ in named])
    return found


def without_column(table: Any, name: str) -> Any:
    """Return a table without a column, in its own type; names are compared as text."""
    if isinstance(table, Mapping):
        return {label: values for label, values in table.items() if str(label) != name}
    if isinstance(table, pa.Table):
        return table.drop_columns([name])
    if hasattr(table, "iloc"):
        return table.loc[:, [str(label) != name for label in table.columns]]
    return table.drop(name) if hasattr(table, "to_arrow") else without_column(as_pandas(table), name)


def _foreign_columns(table: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a data frame of another library, in Arrow if the library can convert to it."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if isinstance(table, pa.Table):
        yield from arrow_columns(table)
    elif hasattr(table, "to_arrow"):
        yield from ((str(name), table[name]) for name in table.columns)
    else:
        try:
            frame = table.to_pandas()
        except Exception as error:  # errors of any type, whose text can quote cells
            raise SchemaError(
                f"the table's to_pandas() failed ({type(error).__name__}): select the columns that are used"
            ) from None
        yield from ((str(name), values) for name, values in frame.items())


def exact_series(values: Any) -> pd.Series[Any]:
    """Return a column of another library as a series, in which integers stay integers."""
    return _series(values, exact=True)


def _series(values: Any, *, exact: bool) -> pd.Series[Any]:
    if isinstance(values, pd.Series):
        return values
    held = _in_arrow(values)
    return (
        series_of(held, exact=exact) if isinstance(held, pa.ChunkedArray) else pd.Series(held, dtype=object)
    )


def _in_arrow(values: Any) -> pa.ChunkedArray | NDArray[Any]:
    """Return a column of another library in Arrow; as Python objects if Arrow does not have its type."""
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if isinstance(values, pa.ChunkedArray) else pa.chunked_array([values])
    if str(values.dtype) != "Object":  # polars would pass Python objects to Arrow as addresses
        with suppress(Exception):  # a type that Arrow does not have, such as Int128
            return _in_arrow(values.to_arrow())
    return objects_of(values.to_list())


def cells_of(values: Any) -> Any:
    """Convert a column to an array of its cells, each by itself: a NumPy array, or an Arrow array of text.

    Lists become arrays of objects, so that NumPy keeps numbers beside text. Nullable numbers become the
    nearest floats. Text held by Arrow stays in Arrow.

    Raises:
        SchemaError: more than one dimension, or a type that cannot be read.
    """
    check_unmasked(values, "a column")
    if isinstance(values, pd.Index | pd.api.extensions.ExtensionArray):
        values = pd.Series(values)
    if isinstance(values, pd.Series):
        return _cells_of_series(values)
    if isinstance(values, pa.Array | pa.ChunkedArray) or hasattr(values, "to_arrow"):
        held = _in_arrow(values)
        return arrow_cells(held) if isinstance(held, pa.ChunkedArray) else held
    if isinstance(values, Sequence):
        return objects_of(values)
    return _numpy_cells(values)


def _numpy_cells(values: Any) -> NDArray[Any]:
    """Return a column as a NumPy array; text of variable width, which came with NumPy 2, as objects."""
    cells: NDArray[Any] = np.asarray(values, dtype=None if hasattr(values, "dtype") else object)
    return cells.astype(object) if cells.dtype.kind == "T" else cells


def _cells_of_series(values: pd.Series[Any]) -> Any:
    dtype = values.dtype
    if isinstance(dtype, pd.ArrowDtype) or (isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow"):
        return arrow_cells(pa.array(values, from_pandas=True))
    if isinstance(dtype, pd.CategoricalDtype):
        return _cells_of_categories(values)
    if isinstance(dtype, pd.DatetimeTZDtype):
        return wall_times(values.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy(), dtype.tz)
    if isinstance(dtype, pd.SparseDtype):  # a sparse column of times is "numeric" to the next test
        return np.asarray(values)
    if isinstance(dtype, pd.api.extensions.ExtensionDtype) and pd.api.types.is_numeric_dtype(dtype):
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(values)


def objects_of(cells: Sequence[Any]) -> NDArray[Any]:
    """Return objects as an array of one dimension; ``np.array`` would make a matrix of equally long lists."""
    return np.fromiter(cells, dtype=object, count=len(cells))


def array_of(values: Any) -> NDArray[Any]:
    """Return a column or a list as a NumPy array, as NumPy converts it.

    Text in Arrow becomes one Python object for each distinct value, as an object per cell would take long.
    """
    texts = texts_in_arrow(values)
    if texts is None:
        return _numpy_cells(values)
    if isinstance(texts, np.ndarray):
        return texts
    encoded = texts.dictionary_encode()
    rows: NDArray[np.intp] = np.asarray(encoded.indices.fill_null(-1))
    return objects_of([*encoded.dictionary.to_pylist(), None])[rows]


def texts_in_arrow(values: Any) -> Any:
    """Return the cells of a column of text that Arrow, polars or pandas hold in Arrow; None for others.

    An Arrow array; an array of objects if a cell is not UTF-8.
    """
    dtype = getattr(values, "dtype", None)
    if str(dtype) == "String":  # of polars
        values = _in_arrow(values)
    elif isinstance(values, pd.Series) and isinstance(dtype, pd.StringDtype) and dtype.storage == "pyarrow":
        values = pa.array(values, from_pandas=True)
    held = isinstance(values, pa.Array | pa.ChunkedArray) and is_text(values.type)
    return arrow_cells(values) if held else None


def _length(values: Any) -> int:
    """Return the length of a column.

    Raises:
        SchemaError: no column, or one of several dimensions.
    """
    listed = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not (listed or hasattr(values, "__array__")) or getattr(values, "ndim", 1) != 1:
        raise SchemaError(_ONE_LENGTH)
    return len(values)
