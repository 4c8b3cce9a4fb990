"""Tables in memory of any library: columns as arrays, and messages about missing columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import SchemaError

Table = pd.DataFrame | NDArray[Any] | Mapping[str, ArrayLike]

# The largest number of columns that a message lists.
MOST_NAMED = 20


def check_distinct(where: str, names: Sequence[str]) -> None:
    """Raise SchemaError if two columns have the same name."""
    if twice := [i for i, name in enumerate(names) if name and name in names[:i]]:
        places = f"columns {names.index(names[twice[0]]) + 1} and {twice[0] + 1}"
        raise SchemaError(f"{where}: columns need distinct names; {places} have the same name")


def missing_columns(missing: Sequence[str], there: Sequence[str]) -> str:
    """Describe the columns that a table lacks, without quoting its own names.

    If a file has no header, the names of its columns are a record.

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


def _is_decimal(dtype: Any) -> bool:
    return isinstance(dtype, pd.ArrowDtype) and pa.types.is_decimal(dtype.pyarrow_dtype)


def _as_arrow(values: pd.Series[Any]) -> Any:
    found = pa.array(values, from_pandas=True)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _cells_of_categories(values: pd.Series[Any]) -> Any:
    """Return the cells of a categorical column: an Arrow array if its categories are text."""
    try:
        if values.cat.categories.inferred_type == "string":
            codes = values.cat.codes.to_numpy()
            texts = pa.array(values.cat.categories, type=pa.large_string())
            return texts.take(pa.array(codes, mask=codes < 0))
    except UnicodeEncodeError:  # halves of characters, which Arrow does not hold
        pass
    return np.asarray(values)


def columns_of(table: Table) -> list[tuple[str | None, NDArray[Any]]]:
    """Return the columns of a table with their names (None for arrays); all have the same length.

    Raises:
        SchemaError: not a table, no columns, columns that differ in length, or masked ones.
    """
    named: list[tuple[str | None, NDArray[Any]]]
    check_unmasked(table, "the table")
    table = as_pandas(table)
    if isinstance(table, (pd.DataFrame, Mapping)):
        named = [(str(label), _array(values)) for label, values in table.items()]
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
    if (
        any(getattr(values, "ndim", 1) != 1 for _, values in named)
        or len({len(values) for _, values in named}) > 1
    ):
        raise SchemaError("all columns of a table must be one-dimensional and of the same length")
    return named


def as_pandas(table: Any) -> Any:
    """Convert a data frame of another library (polars, pyarrow) to pandas; return anything else unchanged.

    Raises:
        SchemaError: its ``to_pandas`` fails.
    """
    if isinstance(table, pd.DataFrame) or not callable(getattr(table, "to_pandas", None)):
        return table
    if isinstance(table, pa.Table):  # pandas takes no dictionary in which NaN is a value
        table = _without_dictionaries(table)
    try:
        return table.to_pandas()
    except Exception as error:  # of any type, and its text can quote cells
        raise SchemaError(
            f"the table's to_pandas() failed ({type(error).__name__}): select the columns that are used"
        ) from None


def _without_dictionaries(table: Any) -> Any:
    for k, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(k, field.name, table.column(k).cast(field.type.value_type))
    return table


def _array(values: object) -> Any:
    """Convert a column to an array; lists become object arrays, so that NumPy keeps numbers beside text.

    Nullable numbers become the nearest floats. Text held by Arrow stays an Arrow array.
    """
    check_unmasked(values, "a column")
    if isinstance(values, pd.Series) and isinstance(values.dtype, pd.api.extensions.ExtensionDtype):
        if pd.api.types.is_numeric_dtype(values.dtype) and not _is_decimal(values.dtype):
            return values.to_numpy(dtype=np.float64, na_value=np.nan)
        if isinstance(values.dtype, pd.StringDtype) and values.dtype.storage == "pyarrow":
            return _as_arrow(values)
        if isinstance(values.dtype, pd.CategoricalDtype):
            return _cells_of_categories(values)
    try:
        return np.asarray(values, dtype=None if hasattr(values, "dtype") else object)
    except (TypeError, ValueError):
        raise SchemaError("all columns of a table must be one-dimensional and of the same length") from None
