"""Dates in exported SQL: the same text for SQLite, DuckDB and PostgreSQL, which agrees with ``predict``.

Dates, time stamps and texts are cast to text, ``YYYY-MM-DD ...``, and compared as texts. In PostgreSQL this
needs the default of the setting ``DateStyle``, ISO. Only functions that the three databases share are used.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.dates import YEAR, Date, iso_text, number_of

_DIGITS = "0123456789"
_LISTED = ", ".join(f"'{k}'" for k in _DIGITS)
# Two digits of a century, or of a year in a century, that are a multiple of 4 other than 00.
_LEAP = ", ".join(f"'{k:02d}'" for k in range(4, 100, 4))
# The number of days before the first of each month in a common year, modulo 7.
_DAYS_BEFORE = (0, 3, 3, 6, 1, 4, 6, 2, 5, 0, 3, 5)


def date_cases(column: Date, cell: str, points: Sequence[int], filled: str) -> list[str]:
    """Return the cases of the points of a date: first for a missing cell, then for the bins.

    Args:
        column: the declaration.
        cell: the column in SQL.
        points: the points of the bins.
        filled: the points of a missing cell, in SQL.

    Raises:
        InvalidInputError: a column with a format.
    """
    if column.format is not None:
        raise InvalidInputError(
            f"column {column.name!r}: dates with a format have no translation to SQL, which reads dates and "
            "text YYYY-MM-DD; convert the column in the table, and declare no format"
        )
    text = f"CAST({cell} AS VARCHAR)"
    cases = [f"WHEN {cell} IS NULL OR NOT ({_is_day(text)}) THEN {filled}"]
    day = f"SUBSTR({text}, 1, 10)"
    if column.marked_days:
        marked = ", ".join(f"'{iso_text(number)}'" for number in column.marked_days)
        cases.append(f"WHEN {day} IN ({marked}) THEN {filled}")
    if column.part is not None:
        value = f"SUBSTR({text}, 6, 2)" if column.part == "month" else _weekday(text)
        levels = [f"'{k:02d}'" if column.part == "month" else str(k) for k in range(1, len(points) + 1)]
        held = " ".join(f"WHEN {k} THEN {p}" for k, p in zip(levels, points, strict=True))
        return [*cases, f"ELSE CASE {value} {held} END"]
    if column.outside == "refuse":
        cases.append(f"WHEN {_outside(column, day)} THEN NULL")
    pairs = zip(column.edges[1:-1], itertools.pairwise(points), strict=True)
    cases += [f"WHEN {_below(column, day, int(e))} THEN {p}" for e, (p, after) in pairs if p != after]
    return [*cases, f"ELSE {points[-1]}"]


def _is_day(text: str) -> str:
    """Return SQL for whether a text starts with a valid date; it converts no text to a number."""
    year, month, day = (f"SUBSTR({text}, {k}, {n})" for k, n in ((1, 4), (6, 2), (9, 2)))
    century, rest = (f"SUBSTR({text}, {k}, 2)" for k in (1, 3))
    leap = f"CASE WHEN {rest} = '00' THEN {century} ELSE {rest} END IN ({_LEAP})"
    return "\n    AND ".join(
        [
            f"LTRIM({year} || {month} || {day}, '{_DIGITS}') = '' AND LENGTH({day}) = 2 AND {year} <> '0000'",
            f"SUBSTR({text}, 5, 1) = '-' AND SUBSTR({text}, 8, 1) = '-'",
            f"SUBSTR({text}, 11, 1) IN ('', ' ', 'T')",
            f"SUBSTR({text}, 12, 1) IN ('', ' ', {_LISTED})",
            f"{month} BETWEEN '01' AND '12' AND {day} BETWEEN '01' AND '31'",
            f"NOT ({day} = '31' AND {month} IN ('02', '04', '06', '09', '11'))",
            f"NOT ({month} = '02' AND ({day} = '30' OR ({day} = '29' AND NOT {leap})))",
        ]
    )


def _below(column: Date, day: str, edge: int) -> str:
    """Return SQL for whether a day is below an edge: before a date, or for ages a date of birth that gives a
    smaller age.
    """
    if column.age_at is None:
        return f"{day} < '{iso_text(edge)}'"
    # As numbers YYYYMMDD, at - born < edge; texts of fixed length compare in the same order.
    return f"{day} > '{iso_text(max(number_of(column.age_at) - edge, 0))}'"


def _outside(column: Date, day: str) -> str:
    first, last = int(column.edges[0]), int(column.edges[-1])
    if column.age_at is None:
        return f"{day} < '{iso_text(first)}' OR {day} > '{iso_text(last)}'"
    oldest = number_of(column.age_at) - last
    earlier = f"{day} < '{iso_text(oldest)}'" if oldest > YEAR else "1 = 0"
    return f"{_below(column, day, first)} OR {earlier}"


def _weekday(text: str) -> str:
    """Return SQL for the weekday, 1 for Monday to 7 for Sunday, in integers and without division.

    For a year y of century c, floor(y / 4) - c + floor(c / 4) counts the leap years up to y; in January and
    February a leap year y itself is not counted (see also ``date_expressions``). Modulo 7, floor(y / 4) = (y
    - y % 4) / 4 equals 2 (y - y % 4), as 2 * 4 = 1 modulo 7, and -c equals 6 c.
    """
    c, y, d = (f"CAST(SUBSTR({text}, {k}, {n}) AS INTEGER)" for k, n in ((1, 2), (1, 4), (9, 2)))
    month, rest, century = (f"SUBSTR({text}, {k}, 2)" for k in (6, 3, 1))
    months = " ".join(f"WHEN '{k:02d}' THEN {n}" for k, n in enumerate(_DAYS_BEFORE, 1))
    leap = f"CASE WHEN {rest} = '00' THEN {century} ELSE {rest} END IN ({_LEAP})"
    early = f"CASE WHEN {month} IN ('01', '02') AND {leap} THEN 6 ELSE 0 END"  # 6 is -1 modulo 7
    leaps = f"2 * ({y} - {y} % 4) + 6 * {c} + 2 * ({c} - {c} % 4)"
    return f"(({y} + {leaps} + CASE {month} {months} END + {early} + {d} + 5) % 7 + 1)"
