"""Text in Parquet files that is not UTF-8: DuckDB ends a query at the first such cell, and Arrow does not.

A query that ended so is asked again of the same files, whose text Arrow then reads as bytes. Each cell is
decoded by itself; what is no text becomes a text that nobody can have declared.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from privopt.problems.tables.arrow_cells import is_text

# In place of a text that is not UTF-8: no category, no number, no date, no marker of missing cells.
UNREADABLE_TEXT = f"not UTF-8: {secrets.token_hex(16)}"
# Options of read_parquet that change no cell, and their values.
_HARMLESS = {"union_by_name": True, "hive_partitioning": False}


def answer(query: Any) -> pa.Table:
    """Run an Ibis query; text in a Parquet file that is not UTF-8 does not end it.

    Raises:
        Exception: of the engine's own types; its message can quote cells.
    """
    try:
        return query.to_pyarrow()
    except Exception as error:  # every driver has its own error types
        other = _in_place_of(query, error)
    return other.to_pyarrow()


def with_readable_rows(table: Any, names: Sequence[str]) -> Any:
    """Return an Ibis table whose rows text cannot end; for DuckDB one pass over its text tells.

    Raises:
        Exception: as ``answer``.
    """
    texts = [name for name in names if table[name].type().is_string()]
    if table.get_backend().name != "duckdb" or not texts:
        return table
    try:
        table.aggregate([table[name].length().max().name(name) for name in texts]).to_pyarrow()
    except Exception as error:  # every driver has its own error types
        return _in_place_of(table, error)
    return table


def _in_place_of(expression: Any, error: Exception) -> Any:
    """Return what to ask in place of an expression that text ended; any other error is raised again."""
    other = _readable(expression) if _about_text(error) else None
    if other is None:
        raise error
    return other


def _about_text(error: Exception) -> bool:
    text = str(error).lower()
    return "parquet" in text and "utf8" in text.replace("-", "")


def _readable(expression: Any) -> Any | None:
    """Return an expression whose Parquet files, as Ibis named them, are read by Arrow; None without any."""
    from ibis.expr import operations

    backend = expression.get_backend()
    if backend.name != "duckdb":
        return None
    tables = expression.op().find(operations.DatabaseTable)
    found = {table: other.op() for table in tables if (other := _by_arrow(backend, table.name)) is not None}
    return expression.op().replace(found).to_expr() if found else None


def _by_arrow(backend: Any, view: str) -> Any | None:
    """Return a view of the same columns and types, of files that Arrow reads; None if it reads no files."""
    files = _files_of(backend.con, view)
    types = {
        name: kind for name, kind, *_ in backend.con.execute(f"DESCRIBE FROM {_quoted(view)}").fetchall()
    }
    parts = []
    for k, file in enumerate(files):
        part = f"{view}_text_{k}"
        dataset, names = _bytes_of(file)
        backend.con.register(part, dataset)
        cells = [_cell(names.get(name.lower()), kind, name) for name, kind in types.items()]
        parts.append(f"SELECT {', '.join(cells)} FROM {_quoted(part)}")
    if not parts:
        return None
    whole = f"{view}_text"
    backend.con.execute(f"CREATE OR REPLACE TEMP VIEW {_quoted(whole)} AS {' UNION ALL '.join(parts)}")
    return backend.table(whole)


def _files_of(connection: Any, view: str) -> list[str]:
    """Return the files of a view that ``read_parquet`` of Ibis made, in its order; none of any other view."""
    import sqlglot

    of = "SELECT sql FROM duckdb_views() WHERE view_name = ? AND NOT internal"
    made = connection.execute(of, [view]).fetchall()
    if len(made) != 1:
        return []
    select: Any = sqlglot.parse_one(made[0][0], read="duckdb").expression
    call = select.find(sqlglot.exp.ReadParquet)
    if call is None or select.sql("duckdb") != f"SELECT * FROM {call.sql('duckdb')}":
        return []
    first, *pairs = call.expressions  # the value of each is public, and the engine's own to tell
    names, values = ["patterns"], [first]
    for pair in pairs:
        names.append(pair.unnest().this.name.lower())
        values.append(pair.unnest().expression)
    row = connection.execute(f"SELECT {', '.join(v.sql('duckdb') for v in values)}").fetchone()
    given = dict(zip(names, row, strict=True))
    patterns = given.pop("patterns")
    if not given.items() <= _HARMLESS.items():
        return []
    patterns = [patterns] if isinstance(patterns, str) else patterns
    found = [connection.execute("SELECT file FROM glob(?)", [p]).fetchall() for p in patterns]
    files = [file for rows in found for (file,) in rows]
    # Parts of paths such as year=2024 are columns unless that is refused.
    return [] if "hive_partitioning" not in given and any("=" in file for file in files) else files


def _bytes_of(file: str) -> tuple[Any, Mapping[str, tuple[str, bool]]]:
    """Return a Parquet file whose text is bytes, and its columns: their names, and whether they are text."""
    import pyarrow.dataset
    import pyarrow.parquet

    own = pyarrow.parquet.read_schema(file)
    fields = [pa.field(f.name, pa.large_binary() if is_text(f.type) else f.type) for f in own]
    times = pyarrow.dataset.ParquetReadOptions(coerce_int96_timestamp_unit="us")  # as DuckDB reads them
    form = pyarrow.dataset.ParquetFileFormat(read_options=times)
    found = pyarrow.dataset.dataset(file, schema=pa.schema(fields), format=form)
    return found, {f.name.lower(): (f.name, is_text(f.type)) for f in own}


def _cell(column: tuple[str, bool] | None, kind: str, name: str) -> str:
    """Return SQL for a column as a type of DuckDB; missing in a file without it."""
    if column is None:
        value = "NULL"
    elif not column[1]:
        value = _quoted(column[0])
    else:
        own = _quoted(column[0])
        value = f"CASE WHEN {own} IS NOT NULL THEN coalesce(TRY(decode({own})), '{UNREADABLE_TEXT}') END"
    return f"CAST({value} AS {kind}) AS {_quoted(name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
