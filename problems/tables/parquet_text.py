"""Text in Parquet files that is not UTF-8: DuckDB aborts a query at the first such cell, and Arrow does not.

An aborted query is repeated on the same files, whose text Arrow then reads as bytes. Each cell is decoded by
itself; a cell that is not UTF-8 becomes a text that nobody can have declared.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.arrow_cells import is_text

# In place of a text that is not UTF-8: no category, no number, no date, no marker of missing cells.
UNREADABLE_TEXT = f"not UTF-8: {secrets.token_hex(16)}"
# The field for text of a column whose files hold different kinds of cells.
TEXT = "privopt_text"
# Options of read_parquet that change no cell, and their values.
_HARMLESS = {"union_by_name": True}
# Optimizers of DuckDB, and settings of Spark, that evaluate conditions on the statistics of row groups.
_BY_STATISTICS = ("filter_pushdown", "statistics_propagation")
_BY_STATISTICS_IN_SPARK = ("spark.sql.parquet.filterPushdown", "spark.sql.orc.filterPushdown")


def answer(query: Any) -> pa.Table:
    """Run an Ibis query; text in a Parquet file that is not UTF-8 does not abort it.

    Raises:
        Exception: of the engine's own types; its message can quote cells.
    """
    _ask_each_record(query.get_backend())
    try:
        return query.to_pyarrow()
    except Exception as error:  # every driver has its own error types
        other = _in_place_of(query, error)
    return other.to_pyarrow()


def _ask_each_record(backend: Any) -> None:
    """Make DuckDB and Spark evaluate the conditions of filters and views for every record, from now on.

    By default they evaluate conditions on the statistics of row groups of Parquet files, which leave NaN out:
    then one record with a number decides for all NaN of its row group whether they meet a condition.

    Raises:
        InvalidInputError: the configuration of the connection is locked.
    """
    if backend.name == "pyspark":
        for name in _BY_STATISTICS_IN_SPARK:
            backend._session.conf.set(name, "false")
    if backend.name != "duckdb":
        return
    from duckdb import Error

    own = backend.con.cursor()  # a query on the connection itself would end one that it is answering
    (held,) = own.execute("SELECT current_setting('disabled_optimizers')").fetchone()
    known = {name.strip() for name in held.split(",") if name.strip()}
    if known.issuperset(_BY_STATISTICS):
        return
    try:
        own.execute(f"SET disabled_optimizers = '{','.join(sorted(known.union(_BY_STATISTICS)))}'")
    except Error as error:
        raise InvalidInputError(
            "the configuration of the DuckDB connection is locked, and statistics of Parquet files would "
            "decide for whole row groups. To do, before it is locked: SET disabled_optimizers = "
            f"'{','.join(_BY_STATISTICS)}'"
        ) from error


def with_readable_rows(table: Any, names: Sequence[str]) -> Any:
    """Return an Ibis table whose rows can be fetched even if text is not UTF-8.

    For DuckDB, one pass over its text tells whether the table needs a replacement.

    Raises:
        Exception: as ``answer``.
    """
    _ask_each_record(table.get_backend())
    columns = {name: _text_in(table[name]) for name in names}
    texts = [text.length().max().name(name) for name, text in columns.items() if text is not None]
    if table.get_backend().name != "duckdb" or not texts:
        return table
    try:
        table.aggregate(texts).to_pyarrow()
    except Exception as error:  # every driver has its own error types
        return _in_place_of(table, error)
    return table


def _text_in(value: Any) -> Any | None:
    """Return the text of a column, which can be a field of it; None if there is none."""
    kind = value.type()
    if kind.is_struct() and TEXT in kind.names:
        value, kind = value[TEXT], kind[TEXT]
    return value if kind.is_string() else None


def make_view(connection: Any, names: Sequence[str], query: str) -> str:
    """Make a temporary view, and return its name."""
    view, columns = f"privopt_{_hash(query)}", ", ".join(map(quoted, names))
    connection.execute(f"CREATE OR REPLACE TEMP VIEW {quoted(view)}({columns}) AS {query}")
    return view


def quoted(name: str) -> str:
    """Return a name as SQL writes it."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: str) -> str:
    """Return a text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"


def _in_place_of(expression: Any, error: Exception) -> Any:
    """Return the replacement of an expression that text aborted; any other error is raised again."""
    try:
        other = _readable(expression) if _about_text(error) else None
    except Exception:  # no replacement can be built, which depends on no cell
        other = None
    if other is None:
        raise error
    return other


def _about_text(error: Exception) -> bool:
    text = str(error).lower()
    return "parquet" in text and "utf8" in text.replace("-", "")


def _readable(expression: Any) -> Any | None:
    """Return an expression whose Parquet files, in views and SQL too, are read by Arrow; None without any."""
    from ibis.expr import operations

    backend, found = expression.get_backend(), {}
    if backend.name != "duckdb":
        return None
    for node in expression.op().find((operations.DatabaseTable, operations.SQLQueryResult)):
        own = isinstance(node, operations.SQLQueryResult)
        query = node.query if own else f"SELECT * FROM {quoted(node.name)}"
        if (other := _rewritten(backend.con, query)) is not None:
            found[node] = backend.table(make_view(backend.con, list(node.schema), other)).op()
    return expression.op().replace(found).to_expr() if found else None


def _rewritten(connection: Any, query: str) -> str | None:
    """Return a query with the Parquet files that it names read by Arrow; None if it names none.

    DuckDB itself parses the query and writes it again, so what the query computes does not change.
    """
    tree = _parsed(connection, query)
    if tree["error"]:
        return None
    own = {entry["key"] for node in _nodes(tree) for entry in node.get("cte_map", {}).get("map", ())}
    places = [(holder, key) for holder in _nodes(tree) for key, node in holder.items() if _is_source(node)]
    changed = False
    for holder, key in places:
        node = holder[key]
        if node.get("table_name") not in own and (name := _in_place(connection, node)) is not None:
            holder[key] = _named(connection, name, node)
            changed = True
    return _written(connection, tree) if changed else None


def _in_place(connection: Any, node: Mapping[str, Any]) -> str | None:
    """Return the view that replaces a table, view or file in a query; None if it reads no Parquet file."""
    source = _written(connection, _selected(connection, dict(node, alias="", column_name_alias=[])))
    known = _known(connection, node) if node["type"] == "BASE_TABLE" else []
    if not known:
        return _by_arrow(connection, node, source)
    made = known[0] if len(known) == 1 else None
    if made is None or (other := _rewritten(connection, _definition(made))) is None:
        return None
    names = [name for name, *_ in connection.execute(f"DESCRIBE {source}").fetchall()]
    return make_view(connection, names, other)


def _known(connection: Any, node: Mapping[str, Any]) -> list[str | None]:
    """Return, for each view and table of that name, the SQL of the view; None for a table."""
    given = {"schema_name": node["schema_name"], "database_name": node["catalog_name"]}
    told = {key: value for key, value in given.items() if value}
    where = " AND ".join(f"{key} = ?" for key in ("{0}_name", *told))
    views = f"SELECT sql FROM duckdb_views() WHERE NOT internal AND {where.format('view')}"
    tables = f"SELECT NULL FROM duckdb_tables() WHERE {where.format('table')}"
    values = [node["table_name"], *told.values()]
    return [made for q in (views, tables) for (made,) in connection.execute(q, values).fetchall()]


def _definition(view: str) -> str:
    """Return the query of a view, from the SQL that makes it."""
    import sqlglot

    words = sqlglot.tokenize(view, read="duckdb")
    first = next(word for word in words if word.token_type == sqlglot.TokenType.ALIAS)
    return view[first.end + 1 :].rstrip().removesuffix(";")


def _by_arrow(connection: Any, node: Mapping[str, Any], source: str) -> str | None:
    """Make a view of the same columns and types, of files that Arrow reads; None if it reads no files."""
    named = _files_of(connection, node, source)
    if named is None:
        return None
    files, in_path = named
    types = {name: kind for name, kind, *_ in connection.execute(f"DESCRIBE {source}").fetchall()}
    parts = []
    for file in files:
        part = f"privopt_{_hash(file)}"
        dataset, names = _bytes_of(file)
        path = _path_parts(file) if in_path else {}
        if names.keys() & path.keys():
            return None  # a column in file and path: which of the two DuckDB reads is not known here
        connection.register(part, dataset)
        cells = [_cell(names.get(n.lower()), kind, n, path.get(n.lower())) for n, kind in types.items()]
        parts.append(f"SELECT {', '.join(cells)} FROM {quoted(part)}")
    return make_view(connection, list(types), " UNION ALL ".join(parts)) if parts else None


def _files_of(connection: Any, node: Mapping[str, Any], source: str) -> tuple[list[str], bool] | None:
    """Return the files that a source reads, in its order, and whether parts of their paths are columns.

    None if it reads anything else, or in a way that is not known here.
    """
    import sqlglot

    if node["type"] == "BASE_TABLE":
        if not str(node["table_name"]).lower().endswith(".parquet"):
            return None
        given: dict[str, Any] = {"patterns": node["table_name"]}
    else:
        call = sqlglot.parse_one(source, read="duckdb").find(sqlglot.exp.ReadParquet)
        if call is None:
            return None
        first, *pairs = call.expressions  # public; the engine evaluates them
        asked = {"patterns": first}
        asked |= {pair.unnest().this.name.lower(): pair.unnest().expression for pair in pairs}
        values = ", ".join(value.sql("duckdb") for value in asked.values())
        given = dict(zip(asked, connection.execute(f"SELECT {values}").fetchone(), strict=True))
    patterns, in_path = given.pop("patterns"), given.pop("hive_partitioning", True)
    if not given.items() <= _HARMLESS.items():
        return None
    patterns = [patterns] if isinstance(patterns, str) else patterns
    found = [connection.execute("SELECT file FROM glob(?)", [p]).fetchall() for p in patterns]
    return [file for rows in found for (file,) in rows], bool(in_path)


def _path_parts(file: str) -> dict[str, str]:
    """Return the parts such as year=2024 of a path."""
    pairs = [part.split("=", 1) for part in Path(file).parts[:-1] if part.count("=") == 1]
    return {name.lower(): unquote(value) for name, value in pairs}


def _parsed(connection: Any, query: str) -> Any:
    return json.loads(connection.execute("SELECT json_serialize_sql(?)", [query]).fetchone()[0])


def _written(connection: Any, tree: Any) -> str:
    return str(connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()[0])


def _selected(connection: Any, node: Any) -> Any:
    """Return the parsed query for all columns of a source."""
    tree = _parsed(connection, "SELECT * FROM t")
    tree["statements"][0]["node"]["from_table"] = node
    return tree


def _named(connection: Any, view: str, node: Mapping[str, Any]) -> Any:
    """Return the parsed name of a view that replaces a source, with the alias that the query refers to."""
    made = _parsed(connection, f"SELECT * FROM {quoted(view)}")["statements"][0]["node"]["from_table"]
    own = node.get("table_name") or node["function"]["function_name"]
    kept = {key: node[key] for key in ("sample", "column_name_alias") if key in node}
    return made | kept | {"alias": node["alias"] or Path(own).stem}


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """Go through the objects of a parsed query."""
    if isinstance(tree, dict):
        yield tree
    for part in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from _nodes(part)


def _is_source(node: Any) -> bool:
    if not isinstance(node, dict):
        return False
    call = node.get("function", {})
    reads = isinstance(call, dict) and call.get("function_name") in ("read_parquet", "parquet_scan")
    return node.get("type") == "BASE_TABLE" or (node.get("type") == "TABLE_FUNCTION" and reads)


def _hash(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:24]


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


def _cell(column: tuple[str, bool] | None, kind: str, name: str, in_path: str | None) -> str:
    """Return SQL for a column in a DuckDB type; NULL if neither the file nor its path has the column."""
    if column is None:
        value = "NULL" if in_path in (None, "__HIVE_DEFAULT_PARTITION__") else text_literal(str(in_path))
    elif not column[1]:
        value = quoted(column[0])
    else:
        own = quoted(column[0])
        value = f"CASE WHEN {own} IS NOT NULL THEN coalesce(TRY(decode({own})), '{UNREADABLE_TEXT}') END"
    return f"CAST({value} AS {kind}) AS {quoted(name)}"
