"""Parquet files of one pattern as one table: a cell is read by the type of the column in its own file.

Files of one table can hold a column as numbers, as text and as times. DuckDB gives such a column one type,
and converts its cells: NaN becomes a text, single precision and large integers are rounded, a number among
dates is an error. Here the column becomes a struct with a field for each kind of cell; at most one field of a
cell is not NULL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from privopt.problems.tables.parquet_text import TEXT, UNREADABLE_TEXT, make_view, quoted, text_literal

# The fields of a column whose files hold different kinds of cells; the last one is for cells of other kinds.
NUMBER, TIME, OTHER = "privopt_number", "privopt_time", "privopt_other"
_KINDS = {
    "VARCHAR|JSON|ENUM": TEXT,
    "BOOLEAN|U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|DECIMAL": NUMBER,
    "DATE|TIMESTAMP(_NS)?": TIME,
    '"?NULL': "",
}
_NANOSECONDS = "TIMESTAMP_NS"
# Facts about a column in the footer of a file, by which types can differ: columns of ``parquet_schema``.
_FOOTER = "type, converted_type, logical_type, scale, precision"
# The types of each column of a file, in lower case as DuckDB compares names.
_Types = Mapping[str, str]


def is_mixed(kind: Any) -> bool:
    """Return whether an Ibis type is the type of a column whose files hold different kinds of cells."""
    return bool(kind.is_struct()) and set(kind.names) <= {TEXT, NUMBER, TIME, OTHER}


def fields(value: Any) -> dict[str, Any]:
    """Return the fields of a column by name, at most one of which is not NULL in a record."""
    return {name: value[name] for name in value.type().names}


def plain_cell(held: Mapping[str, Any] | None) -> Any:
    """Return the one cell of a struct that is not None; None if there is none."""
    return next((cell for cell in (held or {}).values() if cell is not None), None)


def by_their_own_types(connection: Any, table: Any, pattern: str) -> Any:
    """Return the table of a pattern, with structs in place of columns whose types differ between files.

    Args:
        connection: an Ibis connection to DuckDB.
        table: the table of all files, in the types that DuckDB converts theirs to.
        pattern: the pattern.
    """
    footers = f"SELECT file_name, lower(name), ({_FOOTER})::VARCHAR FROM parquet_schema(?)"
    found: dict[str, set[str]] = {}
    for _, name, held in connection.con.execute(footers, [pattern]).fetchall():
        found.setdefault(name, set()).add(held)
    if all(len(held) == 1 for held in found.values()):
        return table
    files = [file for (file,) in connection.con.execute("SELECT file FROM glob(?)", [pattern]).fetchall()]
    types = [_types(connection.con, [file]) for file in files]
    own = {name: _fields(name, types) for name in table.columns}
    if not any(own.values()):
        return table
    parts = [
        _part(own, kinds, [file for file, _ in run])
        for kinds, run in groupby(zip(files, types, strict=True), key=lambda item: item[1])
    ]
    return connection.table(make_view(connection.con, list(own), " UNION ALL ".join(parts)))


def _types(connection: Any, files: Sequence[str]) -> _Types:
    described = connection.execute(f"DESCRIBE SELECT * FROM {_source(files)}").fetchall()
    return {name.lower(): kind for name, kind, *_ in described}


def _source(files: Sequence[str]) -> str:
    names = (re.sub(r"([*?\[])", r"[\1]", file) for file in files)  # each a pattern of one file
    named = ", ".join(map(text_literal, names))
    return f"read_parquet([{named}], union_by_name = true, hive_partitioning = false)"


def _kind(kind: str) -> str:
    """Return the field for cells of a DuckDB type; "" for the type of NULL."""
    if kind.endswith("]"):  # a list of a type
        return OTHER
    return next((field for start, field in _KINDS.items() if re.match(rf"({start})\b", kind)), OTHER)


def _fields(name: str, types: Sequence[_Types]) -> dict[str, bool]:
    """Return the fields of a column, and whether each is to hold doubles; none if DuckDB loses nothing.

    Two kinds of columns have one field and do not become structs: numbers of which DuckDB would round some,
    and times of which some are in nanoseconds, a unit in which the year 9999 does not exist.
    """
    held = {kinds[name.lower()] for kinds in types if name.lower() in kinds}
    kinds = {_kind(kind) for kind in held} - {""}
    numbers = {kind for kind in held if _kind(kind) == NUMBER}
    inexact = _rounded(numbers)
    if len(kinds) < 2 and not inexact and not (_NANOSECONDS in held and len(held) > 1):
        return {}
    fractions = any(re.match("FLOAT|DOUBLE|DEC", kind) for kind in numbers)
    return {field: field == NUMBER and (inexact or fractions) for field in sorted(kinds)}


def _rounded(numbers: set[str]) -> bool:
    """Return whether DuckDB's common type of several number types holds some numbers unlike a double."""
    if len(numbers) < 2:
        return False
    single = "FLOAT" in numbers and "DOUBLE" not in numbers
    signed = any(re.match("(TINY|SMALL|BIG)?INT", kind) for kind in numbers)
    return single or ("UBIGINT" in numbers and signed) or any(kind.startswith("DEC") for kind in numbers)


def _part(own: Mapping[str, Mapping[str, bool]], types: _Types, files: Sequence[str]) -> str:
    """Return the query for files of the same types."""
    cells = ", ".join(f"{_cell(name, types, held)} AS {quoted(name)}" for name, held in own.items())
    return f"SELECT {cells} FROM {_source(files)}"


def _cell(name: str, types: _Types, held: Mapping[str, bool]) -> str:
    kind, value = types.get(name.lower()), quoted(name)
    if kind is None or not held:
        return value if kind else "NULL"
    field = _kind(kind)
    if field == OTHER:
        value = f"CASE WHEN {value} IS NOT NULL THEN '{UNREADABLE_TEXT}' END"
    elif field == TEXT:
        value = f"CAST({value} AS VARCHAR)"
    elif field == NUMBER and held[NUMBER]:  # a decimal becomes the nearest double by way of its digits
        digits = f"CAST({value} AS VARCHAR)" if kind.startswith("DEC") else value
        value = f"CAST({digits} AS DOUBLE)"
    elif kind == _NANOSECONDS:
        value = f"CAST({value} AS TIMESTAMP)"
    if len(held) == 1:
        return value if field else "NULL"
    return "{" + ", ".join(f"{f}: {value if f == field else 'NULL'}" for f in held) + "}"
