"""Skeleton of a schema, from names and types of a table's columns; the user fills in all other facts.

Bounds and categories are not inferred: they would be functions of the records that no budget covers. Names
and types of columns are declared by a form or a database, and as public as the schema itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any

import pyarrow as pa

from privopt.problems.errors import SchemaError
from privopt.problems.tables.display import UNNAMED, Display
from privopt.problems.tables.frames import missing_columns
from privopt.problems.tables.parquet_files import is_mixed
from privopt.problems.tables.reading import header_of
from privopt.problems.tables.schema import toml_line
from privopt.problems.tables.sources import is_engine_address, open_table
from privopt.problems.tables.values import plain


class Held(Enum):
    """Type of a column's content, as declared by the table."""

    NUMBERS = "numbers"
    TEXT = "text"
    TRUTH = "true or false"
    DATES = "dates"
    OPEN = "numbers or text: the file does not tell"
    OTHER = "a type that no kind of column reads"


@dataclass(frozen=True)
class Known:
    """Public facts of a column beyond its type, from a data dictionary or the catalogue of a database.

    Attributes:
        held: its type, None if that is not known.
        categories: all values of text, () if they are not known.
        bounds: smallest and largest number, None if they are not known.
        na_values: its missing-value markers.
        display: its label and unit.
    """

    held: Held | None = None
    categories: tuple[str, ...] = ()
    bounds: tuple[Fraction, Fraction] | None = None
    na_values: tuple[str, ...] = ()
    display: Display = UNNAMED


_HEAD = """\
# Skeleton of a schema from names and types of columns; no value was read. Each line is a column: fill in the
# empty lists from a form or a code book, never from the records (a privacy leak); delete lines that should
# have no points (identifiers, names, what is known only after the label). Kinds, where a file tells none:
#   kind = "binned", edges = [0, 10, 20]       numbers; values beyond the edges join the outer bins
#   kind = "numeric", low = 0, high = 100      numbers with points in proportion; step = 5 makes them coarser
#   kind = "categorical", categories = ["a"]   all values as the table writes them; codes: [1, 2, 3]
#   kind = "date", edges = [2020-01-01, 2024-01-01]   or part = "month", or age_at
# missing_level = true and outside = "ignore" accept every cell. label = "Age" and unit = "years": for people.
# `privopt schema check FILE` says what is left to fill in, and what the schema does to public rows."""
# The keys of a column by its type; the user fills in the empty values.
_KEYS: dict[Held, dict[str, Any]] = {
    Held.NUMBERS: {"kind": "binned", "edges": []},
    Held.TEXT: {"kind": "categorical", "categories": [], "outside": "ignore"},
    Held.TRUTH: {"kind": "categorical", "categories": [False, True]},
    Held.DATES: {"kind": "date", "edges": []},
    Held.OPEN: {"kind": ""},
}
_BINS = 4  # number of bins of a number with public bounds


def skeleton(columns: Mapping[str, Held], target: str, known: Mapping[str, Known] | None = None) -> str:
    """Write TOML with a line per column except the label; ``Schema.load`` reports what is left to fill in.

    Privacy: a function of names, types and further public facts alone.

    Raises:
        SchemaError: no such label column, nothing beside it, or facts of a column that the table lacks.
    """
    facts = known or {}
    if target not in columns:
        raise SchemaError(f"--target: no {missing_columns([target], list(columns))}")
    if len(columns) == 1:
        raise SchemaError("the table has no column beside the label")
    if lacking := [name for name in facts if name not in columns]:
        raise SchemaError(f"the dictionary: no {missing_columns(lacking, list(columns))}")
    lines = [_line(name, held, facts.get(name, Known())) for name, held in columns.items() if name != target]
    return "\n".join([_HEAD, "intercept = true", "columns = [", *lines, "]"]) + "\n"


def _line(name: str, held: Held, known: Known) -> str:
    """Return the line of one column."""
    held = known.held or (Held.TEXT if known.categories and held is Held.OPEN else held)
    if held is Held.OTHER:
        return f"  # {json.dumps(name)} is left out: lists and the like. Make numbers or text of them first."
    keys = {"name": name, **_KEYS[held]}
    if held is Held.TEXT and known.categories:
        keys["categories"] = list(known.categories)
    if held is Held.NUMBERS and known.bounds is not None:
        low, high = known.bounds
        keys["edges"] = [plain(low + (high - low) * Fraction(k, _BINS)) for k in range(_BINS + 1)]
    keys |= {"missing_level": True}
    keys |= {"na_values": list(known.na_values)} if known.na_values else {}
    keys |= known.display.to_dict()
    return f"  {{ {', '.join(toml_line(key, value) for key, value in keys.items())} }},"


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
        raise SchemaError(
            "--table names a table of a database: give the URL of the database in place of a file"
        )
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
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return Held.DATES
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return Held.NUMBERS if numbers else Held.OTHER


def _of_engine(kind: Any) -> Held:
    """Return the content of a column of an Ibis type."""
    if is_mixed(kind):
        return Held.OPEN
    if kind.is_string():
        return Held.TEXT
    if kind.is_boolean():
        return Held.TRUTH
    if kind.is_date() or kind.is_timestamp():
        return Held.DATES
    return Held.NUMBERS if kind.is_numeric() else Held.OTHER


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
