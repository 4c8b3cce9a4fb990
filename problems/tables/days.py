"""Parsing of cells as days of the calendar: each cell by itself is a day, missing, or unreadable.

A cell is a day if it is a date, a time stamp (its date in its own time zone), or a text that starts with a
date: ``YYYY-MM-DD``, or in a declared format. A time may follow, after a blank or a T; it is not read. Days
lie in the years 1 to 9999. A cell is missing if it is None, NaN, NA or NaT, or the text of a missing-value
marker. Any other cell, numbers included, is unreadable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import date
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privopt.problems.errors import SchemaError
from privopt.problems.tables.cells import ABSENT, distinct_texts, grouped

# A date is followed by the end of the text, or by a blank or a T and then the end, a blank or a digit. Two
# blanks are appended to every text, so that the pattern needs no anchor for the end and no lookahead, which
# mean different things in different engines.
_END, _AFTER = "  ", "[T ][0-9 ]"
_LEAP = "(0[48]|[2468][048]|[13579][26])"
ISO_PATTERN = (
    "^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-"
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    f"|([0-9]{{2}}{_LEAP}|{_LEAP}00)-02-29){_AFTER}"
)
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip
MONTHS = [month[:3] for month in _MONTHS]  # the first three letters tell months apart


def either_case(text: str) -> str:
    """Return a regular expression for a text with letters A to Z in either case, the same in every engine."""
    return "".join(f"[{c.lower()}{c.upper()}]" if c.isascii() and c.isalpha() else re.escape(c) for c in text)


# The codes of a format, by the part of a date that they stand for, and their patterns.
_CODES = {
    "%Y": ("year", "[0-9]{4}"),
    "%y": ("year", "[0-9]{2}"),
    "%m": ("month", "[0-9]{1,2}"),
    "%b": ("month", "|".join(map(either_case, MONTHS))),
    "%B": ("month", "|".join(map(either_case, _MONTHS))),
    "%d": ("day", "[0-9]{1,2}"),
}
_FIRST, _LAST = np.datetime64("0001-01-01", "D"), np.datetime64("9999-12-31", "D")
_NO_DAY = np.datetime64("NaT", "D")
# Units that NumPy does not convert to days.
_PER_DAY = {"ps": 86_400 * 10**12, "fs": 86_400 * 10**15, "as": 86_400 * 10**18}
_COARSE = 10_000_000  # years, months and weeks up to here are converted to days without overflow

Parser = Callable[[str], date | None]


class Days(NamedTuple):
    """The parsed cells of a column of dates.

    Attributes:
        days: datetime64[D], shape (n,); NaT where a cell is missing or unreadable.
        unreadable: boolean, shape (n,); true for cells that are neither a day nor missing.
    """

    days: NDArray[np.datetime64]
    unreadable: NDArray[np.bool_]


@cache
def day_parser(where: str, form: str | None) -> Parser:
    """Return the parser of the texts of a column: it returns a day, or None.

    Args:
        where: the beginning of messages.
        form: day, month and year by the codes of ``strftime`` (%d, %m, %b, %B, %y, %Y); None: YYYY-MM-DD.

    Raises:
        SchemaError: a format that does not name a day, a month and a year, each once.
    """
    if form is None:
        return _iso_day
    compiled = re.compile(format_pattern(where, form, "year", "month", "day"))
    return lambda text: _day(compiled.match(text + _END))


def format_pattern(where: str, form: str, *captured: str) -> str:
    """Return a regular expression for texts in a format, with two blanks appended to them.

    Its groups are the ``captured`` parts of the date, with names if there are several. Python and PostgreSQL
    give it the same meaning.

    Raises:
        SchemaError: as ``day_parser``.
    """
    parts = re.split("(%.)", form) if isinstance(form, str) else []
    found = [_CODES[part][0] for part in parts[1::2] if part in _CODES]
    if sorted(found) != ["day", "month", "year"] or len(found) != len(parts) // 2:
        raise SchemaError(
            f"{where}: format must name day, month and year once each, by %d, %m (%b, %B: month names) "
            f"and %Y (%y: two digits), as in '%d.%m.%Y'; a time after the date is not read and not named; "
            f"got {form!r}"
        )
    pattern, between = "", parts[::2]
    for k, code in enumerate(parts[1::2]):
        what, held = _CODES[code]
        # Without a separator on either side, days and months have two digits.
        alone = between[k] != "" or k == 0, between[k + 1] != "" or k == len(found) - 1
        held = held if all(alone) else held.replace("{1,2}", "{2}")
        named = f"?P<{what}>" if len(captured) > 1 else "" if what in captured else "?:"
        pattern += f"{either_case(between[k])}({named}{held})"
    return f"^{pattern}{either_case(between[-1])}[Tt ][0-9 ]"  # as ``_AFTER``, of either case


def _iso_day(text: str) -> date | None:
    return date.fromisoformat(text[:10]) if _iso_pattern().match(text + _END) else None


@cache
def _iso_pattern() -> re.Pattern[str]:
    return re.compile(ISO_PATTERN)


def _day(found: re.Match[str] | None) -> date | None:
    if found is None:
        return None
    year, month = int(found["year"]), found["month"].lower()
    if len(found["year"]) == 2:  # as in POSIX: 69 is 1969, 68 is 2068
        year += 1900 if year >= 69 else 2000
    number = int(month) if month.isdigit() else 1 + MONTHS.index(month[:3])
    try:
        return date(year, number, int(found["day"]))
    except ValueError:  # 30 February
        return None


def read_days(values: Any, parse: Parser, is_missing: Callable[[str], bool]) -> Days:
    """Parse the cells of a column as days, by the rules of this module.

    Args:
        values: a NumPy array of shape (n,), or an Arrow array of text.
        parse: the parser of texts.
        is_missing: whether a text is a missing-value marker.
    """
    if isinstance(values, pa.Array):
        encoded = pc.dictionary_encode(values)
        texts = encoded.dictionary.to_pylist()
        return _written(np.asarray(pc.fill_null(encoded.indices, -1)), texts, parse, is_missing)
    if values.dtype.kind == "M":
        return _stamps(values)
    if values.dtype.kind == "U":
        values = values.astype(object)
    if values.dtype.kind != "O":
        absent = pd.isna(values) if values.dtype.kind in "fmc" else np.zeros(len(values), dtype=bool)
        return Days(np.full(len(values), _NO_DAY), ~np.asarray(absent))
    found = Days(np.full(len(values), _NO_DAY), np.zeros(len(values), dtype=bool))
    for kind, rows in grouped(values, _kind_of):
        cells = values[rows]
        if kind == "text":
            part = _written(*distinct_texts(cells), parse, is_missing)
        else:
            part = _days([None if kind == "absent" else _cell_day(v) for v in cells], kind != "absent")
        found.days[rows], found.unreadable[rows] = part.days, part.unreadable
    return found


def _kind_of(kind: type) -> str:
    if issubclass(kind, ABSENT):
        return "absent"
    return "text" if issubclass(kind, str) else "object"


def _written(
    codes: NDArray[Any], texts: Iterable[str], parse: Parser, is_missing: Callable[[str], bool]
) -> Days:
    """Return the days of texts, given as codes into the distinct texts; code -1 is missing."""
    held = list(texts)
    known = _days([*(parse(text) for text in held), None])
    missing = np.array([*map(is_missing, held), True], dtype=bool)
    days = np.where(missing, _NO_DAY, known.days)
    return Days(days[codes], (known.unreadable & ~missing)[codes])


def _days(found: list[date | None], readable: bool = True) -> Days:
    days = np.array([_NO_DAY if day is None else np.datetime64(day, "D") for day in found], "datetime64[D]")
    return Days(days, np.isnat(days) & readable)


def _cell_day(value: object) -> date | None:
    """Return the day of an object; None if it is no date or time stamp."""
    if isinstance(value, np.datetime64):
        day = _stamps(np.array([value])).days[0]
        return None if np.isnat(day) else day.item()
    try:
        return date.fromordinal(value.toordinal()) if isinstance(value, date) else None
    except Exception:  # time stamps beyond the years of the calendar, or an error of a foreign type
        return None


def _stamps(values: NDArray[Any]) -> Days:
    absent = np.isnat(values)
    unit, count = np.datetime_data(values.dtype)
    if unit in _PER_DAY:
        whole = values.view(np.int64).astype(object) * count // _PER_DAY[unit]
        values = np.where(absent, _NO_DAY, whole.astype("datetime64[D]"))
    elif unit in ("Y", "M", "W"):
        far = np.abs(values.view(np.int64)) > _COARSE
        values = np.where(far, np.datetime64("NaT"), values)
    days = values.astype("datetime64[D]")
    with np.errstate(invalid="ignore"):
        inside = (days >= _FIRST) & (days <= _LAST)
    return Days(np.where(inside, days, _NO_DAY), ~absent & ~inside)
