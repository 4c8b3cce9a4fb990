"""Skeleton of a schema, from names and types of a table's columns; a person fills in all other facts.

Bounds and categories inferred from the records are functions of the records, and no budget covers them.
Names and types of columns are declared by a form or a database, as public as the schema itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

import pyarrow as pa

from privopt.problems.errors import SchemaError
from privopt.problems.tables.frames import missing_columns
from privopt.problems.tables.reading import header_of
from privopt.problems.tables.schema import toml_line
from privopt.problems.tables.sources import is_engine_address, open_table


class Held(Enum):
    """Type of a column's content, as declared by the table."""

    NUMBERS = "numbers"
    TEXT = "text"
    TRUTH = "true or false"
    OPEN = "numbers or text: a CSV file does not tell"
    OTHER = "a type that no kind of column reads"


_HEAD = """\
# The skeleton of a schema, from names and types of columns; no value was read. Fill in what you know from a
# form, a code book or common sense, never from the records: facts inferred from them are a privacy leak.
#
# edges increase; values beyond the first or last edge belong to the outer bin.
# categories lists all values, as the table writes them; outside = "ignore" gives other values no points,
# without it they are refused. Codes that are numbers: kind = "categorical", categories = [1, 2, 3].
# Numbers with points in proportion: kind = "numeric", low = 0, high = 100, step = 5, and no edges.
# missing_level = true gives missing values points of their own; without it they are refused.
# Delete columns that should have no points: identifiers, names, what is known only after the label."""
_BINS = 'kind = "binned"\n# edges = [0, 10, 20]'
_LEVELS = 'kind = "categorical"\n# categories = ["a", "b"]\n# outside = "ignore"'
_BODIES = {
    Held.NUMBERS: _BINS,
    Held.TEXT: _LEVELS,
    Held.TRUTH: 'kind = "categorical"\ncategories = [false, true]',
    Held.OPEN: f"# {_BINS}\n#\n# {_LEVELS}",
}


def skeleton(columns: Mapping[str, Held], target: str) -> str:
    """Write TOML with a block per column except the label; ``Schema.load`` reports what is left to fill in.

    Privacy: a function of names and types alone.

    Raises:
        SchemaError: no such label column, or nothing beside it.
    """
    if target not in columns:
        raise SchemaError(f"--target: no {missing_columns([target], list(columns))}")
    if len(columns) == 1:
        raise SchemaError("the table has no column beside the label")
    blocks = [_HEAD, "intercept = true"]
    for name, held in columns.items():
        if name == target:
            continue
        named = toml_line("name", name)
        if held is Held.OTHER:
            blocks.append(
                f"# {named} is left out: times, lists and the like. Make numbers or text of them first."
            )
        else:
            blocks.append("\n".join(["[[columns]]", named, _BODIES[held], "# missing_level = true"]))
    return "\n\n".join(blocks) + "\n"


def column_types(data: str, table: str | None = None) -> dict[str, Held]:
    """Return the names and contents of columns, from the header of a file or the catalogue of a database.

    Args:
        data: a .csv, .csv.gz or .parquet file, or an address that ``open_table`` takes.
        table: the table of a database.

    Raises:
        SchemaError, InvalidInputError: a table that cannot be read, or a CSV file without a header.
    """
    if is_engine_address(data):
        return {name: _of_engine(kind) for name, kind in open_table(data, table).schema().items()}
    if table is not None:
        raise SchemaError("--table names a table of a database, whose URL is its place")
    header = header_of(data)
    if isinstance(header, list):
        if any(not name or _is_number(name) for name in header):
            raise SchemaError(
                f"{data}: the first line must hold the names of the columns, and holds numbers or gaps"
            )
        return dict.fromkeys(header, Held.OPEN)
    index = (header.pandas_metadata or {}).get("index_columns", [])
    return {field.name: _of_arrow(field.type) for field in header if field.name not in index}


def _of_arrow(kind: Any) -> Held:
    if pa.types.is_dictionary(kind):
        return _of_arrow(kind.value_type)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return Held.TEXT
    if pa.types.is_boolean(kind):
        return Held.TRUTH
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return Held.NUMBERS if numbers else Held.OTHER


def _of_engine(kind: Any) -> Held:
    """Return the content of a column of an Ibis type."""
    if kind.is_string():
        return Held.TEXT
    if kind.is_boolean():
        return Held.TRUTH
    return Held.NUMBERS if kind.is_numeric() else Held.OTHER


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
