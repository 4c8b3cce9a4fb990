"""Enumeration types of databases: public categories, from the catalogue and not from records."""

from __future__ import annotations

import re
from typing import Any

from privopt.problems.tables.parquet_text import text_literal
from privopt.problems.tables.skeleton import Known
from privopt.problems.tables.sources import is_engine_address, open_table, unquoted

_DUCKDB = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = {table}"
_POSTGRES = """SELECT a.attname, e.enumlabel FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid
JOIN pg_class c ON c.oid = a.attrelid WHERE c.relname = {table} AND NOT a.attisdropped
ORDER BY a.attnum, e.enumsortorder"""


def enumerations(data: str, name: str | None = None) -> dict[str, Known]:
    """Return the categories of those columns of a table that are enumerations, by name; none for a file.

    Args:
        data, name: as for ``open_table``. If several database schemas have a table of this name, only columns
            whose values agree in all of these tables are returned.

    Raises:
        InvalidInputError: a database or a table that cannot be opened.
    """
    if not is_engine_address(data) or name is None:
        return {}
    table = open_table(data, name)
    backend, names = table.get_backend(), set(table.columns)
    find = _FINDERS.get(backend.name)
    found = {} if find is None else find(backend, name.rpartition(".")[2])
    return {column: Known(categories=values) for column, values in found.items() if column in names}


def _of_duckdb(backend: Any, table: str) -> dict[str, tuple[str, ...]]:
    rows = _rows(backend, _DUCKDB, table)
    kinds: dict[str, set[str]] = {}
    for column, kind in rows:
        kinds.setdefault(column, set()).add(kind)
    alone = {column: found.pop() for column, found in kinds.items() if len(found) == 1}
    return {
        column: tuple(text.replace("''", "'") for text in re.findall("'((?:[^']|'')*)'", kind))
        for column, kind in alone.items()
        if kind.startswith("ENUM(")
    }


def _of_postgres(backend: Any, table: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {}
    for column, label in _rows(backend, _POSTGRES, table):
        found.setdefault(column, []).append(label)
    return {column: tuple(labels) for column, labels in found.items() if len(set(labels)) == len(labels)}


_FINDERS = {"duckdb": _of_duckdb, "postgres": _of_postgres}


def _rows(backend: Any, query: str, table: str) -> list[Any]:
    with unquoted():
        return list(backend.raw_sql(query.format(table=text_literal(table))).fetchall())
