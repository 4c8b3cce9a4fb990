"""Data dictionaries: CSV files of public facts about the columns of a table, one row per column."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pandas as pd

from privopt.problems.errors import SchemaError
from privopt.problems.tables.display import Display
from privopt.problems.tables.reading import header_of, read_table
from privopt.problems.tables.skeleton import Held, Known
from privopt.problems.tables.values import rational

# The facts of a dictionary, and the names that its columns may have, in lower case.
_FACTS = {
    "name": ("name", "column", "variable", "field"),
    "type": ("type", "data type", "data_type"),
    "label": ("label", "title"),
    "unit": ("unit", "units"),
    "values": ("values", "categories", "codes", "choices"),
    "low": ("low", "min", "minimum"),
    "high": ("high", "max", "maximum"),
    "missing": ("missing", "na_values", "missing values"),
}
_TYPES = {
    Held.NUMBERS: "number numeric integer int whole float double decimal real",
    Held.TEXT: "text string character char varchar category categorical factor enum",
    Held.TRUTH: "boolean bool logical",
    Held.DATES: "date datetime timestamp",
}


def read_dictionary(path: str | Path) -> dict[str, Known]:
    """Read a data dictionary.

    Its columns are ``name`` and any of ``type``, ``label``, ``unit``, ``values`` (categories separated by |
    or ;, each written as CODE or CODE=MEANING), ``low``, ``high`` and ``missing`` (missing-value markers,
    separated as values are). Further columns are not read. Privacy: the file has to be public.

    Raises:
        SchemaError: a file that cannot be read, without names, or with bounds that are no numbers.
    """
    header = header_of(path)
    if not isinstance(header, list):
        raise SchemaError(f"{path}: a data dictionary is a CSV file")
    places = {
        fact: next((h for h in header if h.strip().lower() in words), None) for fact, words in _FACTS.items()
    }
    if places["name"] is None:
        raise SchemaError(f"{path}: a data dictionary needs a column called {' or '.join(_FACTS['name'])}")
    rows = read_table(path, header)
    found: dict[str, Known] = {}
    for row in rows.to_dict("records"):
        texts = {f: "" if h is None or pd.isna(row[h]) else str(row[h]).strip() for f, h in places.items()}
        if texts["name"] in ("", *found):
            raise SchemaError(f"{path}: every row of a data dictionary needs a name of its own")
        found[texts["name"]] = _known(texts)
    return found


def _known(texts: Mapping[str, str]) -> Known:
    name, kind = texts["name"], texts["type"].lower()
    held = next((h for h, words in _TYPES.items() if kind in words.split()), None)
    bounds: tuple[Fraction, Fraction] | None = None
    if texts["low"] and texts["high"]:
        bounds = rational(texts["low"], name, "low"), rational(texts["high"], name, "high")
        if not bounds[0] < bounds[1]:
            raise SchemaError(f"column {name!r}: low must be below high in the data dictionary")
    return Known(
        held or (Held.NUMBERS if bounds is not None else None),
        tuple(code.partition("=")[0].strip() for code in _listed(texts["values"])),
        bounds,
        tuple(_listed(texts["missing"])),
        Display.of(name, texts["label"] or None, texts["unit"] or None),
    )


def _listed(text: str) -> list[str]:
    return [part.strip() for part in re.split("[|;]", text) if part.strip()]
