"""Columns of dates: bins between dates, weekdays, months, or ages at a reference date."""

from __future__ import annotations

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privopt.problems.arguments import told
from privopt.problems.errors import SchemaError, did_you_mean
from privopt.problems.tables.cells import NO_MARKERS, Markers, Numbers, is_marker
from privopt.problems.tables.columns import Binned, check_declaration, plain_markers
from privopt.problems.tables.days import Days, Parser, day_parser, read_days
from privopt.problems.tables.notation import PLAIN
from privopt.problems.tables.values import Refused

# Days are written as the number YYYYMMDD. The difference of two such numbers is 10,000 for a year or more of
# age, whatever the lengths of months: age = floor((at - born) / 10,000), for births on 29 February too, whose
# birthday is 1 March in other years.
YEAR = 10_000
PARTS = {
    "weekday": tuple(calendar.day_name),
    "month": tuple(calendar.month_name)[1:],
}


@dataclass(frozen=True)
class Date(Binned):
    """One-hot encoding of a date: one 0/1 feature for each bin, weekday or month.

    A declaration has one of three forms: ``edges`` that are dates, for bins between them; ``part``, for a
    level for each weekday or month; ``age_at``, a date, with ``edges`` that are ages in whole years on that
    date.

    A cell is a date, a time stamp, or a text that starts with a date (``YYYY-MM-DD``, or ``format``); a time
    after it, behind a blank or a T, is not read. Any other cell, numbers included, counts as missing.

    Args:
        name: the column.
        edges: at least two, increasing: dates, as text YYYY-MM-DD or ``datetime.date``; or ages.
        part: "weekday" (Monday to Sunday) or "month" (January to December).
        age_at: the reference date of ages. A person of age a has had a birthdays; a birth after the reference
            date has a negative age, which is outside.
        format: how texts write dates, by the codes of ``strftime``: "%d.%m.%Y". Only %Y, %y (69 is 1969, 68
            is 2068), %m, %b, %B (names of months in English), %d; days and months have one or two digits.
        outside: "clip" puts a date outside the edges into the first or the last bin, "refuse" raises.
        missing: the date (with ``age_at``: age; with ``part``: name) that replaces a missing cell; None
            refuses missing cells.
        na_values: missing-value markers in addition to the usual ones: texts; dates are compared as dates.

    Raises:
        SchemaError: a contradiction, something else where a date is needed, or a format that does not name
            day, month and year.
    """

    part: Literal["weekday", "month"] | None
    age_at: date | None
    format: str | None

    def __init__(
        self,
        name: str,
        edges: Sequence[Any] | None = None,
        part: Literal["weekday", "month"] | None = None,
        age_at: str | date | None = None,
        format: str | None = None,  # the key of schema files
        outside: Literal["clip", "refuse"] = "clip",
        missing: Any = None,
        na_values: Sequence[str | float] = (),
    ) -> None:
        check_declaration(self, name, outside, ("clip", "refuse"), na_values)
        where = f"column {name!r}"
        if part is not None and (not isinstance(part, str) or part not in PARTS):
            raise SchemaError(
                f"{where}: part must be one of {', '.join(PARTS)}; got {told(part)}"
                f"{did_you_mean(part, PARTS)}"
            )
        if (edges is None) == (part is None) or (part is not None and age_at is not None):
            raise SchemaError(
                f"{where}: a date needs edges, which are dates, or with age_at ages; or part = "
                '"weekday" or "month", without both'
            )
        at = None if age_at is None else _declared_day(age_at, where, "age_at")
        day_parser(where, format)
        object.__setattr__(self, "notation", PLAIN)
        found = range(1, len(PARTS[part]) + 2) if part else _declared_edges(edges, at, where)
        for key, value in (("part", part), ("age_at", at), ("format", format)):
            object.__setattr__(self, key, value)
        object.__setattr__(self, "edges", tuple(Fraction(edge) for edge in found))
        object.__setattr__(self, "missing", self._declared_missing(missing, where))

    def _declared_missing(self, value: Any, where: str) -> Fraction | None:
        if value is None:
            return None
        if self.part is not None:
            names = PARTS[self.part]
            if value not in names:
                raise SchemaError(f"{where}: missing must be one of {', '.join(names)}; got {told(value)}")
            return Fraction(names.index(value) + 1)
        if self.age_at is not None:
            number = YEAR * _whole(value, where, "missing")
        else:
            number = number_of(_declared_day(value, where, "missing"))
        if not self.edges[0] <= number <= self.edges[-1]:
            texts = self.edge_texts
            raise SchemaError(f"{where}: missing must lie in [{texts[0]}, {texts[-1]}]; got {value}")
        return Fraction(number)

    @property
    def markers(self) -> Markers:  # of numbers: a date has no such markers; ``days`` uses ``_own_markers``
        return NO_MARKERS

    @cached_property
    def _own_markers(self) -> Markers:
        return Markers.of(self.na_values)

    @cached_property
    def marked_days(self) -> tuple[int, ...]:
        """The dates among the missing-value markers, as numbers YYYYMMDD."""
        days = (self.parser(text) for text in self.na_values if isinstance(text, str))
        return tuple(sorted({number_of(day) for day in days if day is not None}))

    @property
    def parser(self) -> Parser:
        return day_parser(f"column {self.name!r}", self.format)

    def read(self, values: Any) -> Numbers:
        found = self.days(values)
        return Numbers(self._of_days(found.days), found.unreadable)

    def days(self, values: Any) -> Days:
        """Convert cells to days of the calendar, each by itself."""
        found = read_days(values, self.parser, partial(is_marker, markers=self._own_markers))
        days = found.days.copy()
        days[np.isin(_numbers_of(days), self.marked_days)] = np.datetime64("NaT")
        return Days(days, found.unreadable)

    def number_of_text(self, text: str) -> int | None:
        """Return the number YYYYMMDD of a text cell; None if it is missing or no date."""
        day = None if is_marker(text, self._own_markers) else self.parser(text)
        number = None if day is None else number_of(day)
        return None if number in self.marked_days else number

    def _of_days(self, days: NDArray[np.datetime64]) -> NDArray[np.float64]:
        """Return the numbers that are compared with edges: YYYYMMDD, weekday, month, or 10,000 times ages."""
        if self.part == "weekday":  # 1 January 1970 was a Thursday
            found = np.mod(days.astype(np.int64) + 3, 7) + 1.0
        else:
            written = _numbers_of(days)
            if self.part == "month":
                found = np.floor(written / 100) % 100
            else:
                found = written if self.age_at is None else number_of(self.age_at) - written
        return np.where(np.isnat(days), np.nan, found)

    @property
    def is_ordered(self) -> bool:
        return self.part is None

    @property
    def edge_texts(self) -> tuple[str, ...]:
        if self.age_at is not None:
            return tuple(str(int(edge) // YEAR) for edge in self.edges)
        return tuple(map(str, self.edges)) if self.part else tuple(iso_text(int(edge)) for edge in self.edges)

    @cached_property
    def levels(self) -> tuple[str, ...]:
        if self.part is not None:
            return PARTS[self.part]
        unit = "" if self.age_at is None else " years"
        return tuple(level + unit for level in super().levels)

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        sign = " in " if self.part is None else "="
        return tuple(f"{self.name}{sign}{level}" for level in self.levels)

    @property
    def words(self) -> tuple[str, ...]:
        if self.part is not None:
            return PARTS[self.part]
        if self.age_at is not None:
            return self._in_words("below {} years", "{} to below {} years", "{} years or more")
        return self._in_words("before {}", "{} to before {}", "{} or later")

    def refusal(self, reason: Refused) -> SchemaError:
        where = f"column {self.name!r}"
        if reason is Refused.OUTSIDE:
            texts = self.edge_texts
            return SchemaError(
                f"{where}: {'dates' if self.age_at is None else 'ages'} must lie in "
                f"[{texts[0]}, {texts[-1]}]; correct them, or declare outside='clip'"
            )
        asked = "YYYY-MM-DD" if self.format is None else repr(self.format)
        return SchemaError(
            f"{where}: missing cells, and those that are no dates, are not allowed. Dates are date types, or "
            f"text as {asked}; declare another format=..., missing_level = true, or missing=..., a date "
            "chosen without looking at the records"
        )

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"kind": "date", "name": self.name}
        if self.part is not None:
            found["part"] = self.part
        else:
            found["edges"] = [self._plain(edge) for edge in self.edges]
        found |= {} if self.age_at is None else {"age_at": self.age_at.isoformat()}
        found |= {} if self.format is None else {"format": self.format}
        found["outside"] = self.outside
        found |= {} if self.missing is None else {"missing": self._plain(self.missing)}
        return found | plain_markers(self.na_values)

    def _plain(self, number: Fraction) -> int | str:
        if self.part is not None:
            return PARTS[self.part][int(number) - 1]
        return int(number) // YEAR if self.age_at is not None else iso_text(int(number))


def number_of(day: date) -> int:
    """Return a day as the number YYYYMMDD."""
    return day.year * YEAR + day.month * 100 + day.day


def iso_text(number: int) -> str:
    """Return the day YYYYMMDD as text YYYY-MM-DD."""
    return f"{number // YEAR:04d}-{number // 100 % 100:02d}-{number % 100:02d}"


def _numbers_of(days: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Return days as numbers YYYYMMDD; NaN for NaT."""
    years, months = days.astype("datetime64[Y]"), days.astype("datetime64[M]")
    y, m = years.astype(np.float64) + 1970, (months - years.astype("datetime64[M]")).astype(np.float64)
    d = (days - months.astype("datetime64[D]")).astype(np.float64)
    return np.where(np.isnat(days), np.nan, y * YEAR + (m + 1) * 100 + d + 1)


def _declared_day(value: object, where: str, key: str) -> date:
    found = value
    if isinstance(value, datetime):
        found = value.date() if value.time() == value.time().min and value.tzinfo is None else None
    if isinstance(value, str):
        day = day_parser(where, None)(value)
        found = day if len(value) == len("YYYY-MM-DD") else None
    if not isinstance(found, date):
        raise SchemaError(f"{where}: {key} must be a date, as in '2024-12-31'; got {told(value)}")
    return found


def _whole(value: object, where: str, key: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 9998:
        raise SchemaError(f"{where}: with age_at, {key} must be ages in whole years; got {told(value)}")
    return value


def _declared_edges(edges: Any, at: date | None, where: str) -> list[int]:
    if isinstance(edges, str) or not isinstance(edges, Sequence) or len(edges) < 2:
        raise SchemaError(
            f"{where}: edges must be a list of at least two {'dates' if at is None else 'ages'}"
        )
    if at is None:
        found = [number_of(_declared_day(edge, where, "edges")) for edge in edges]
    else:
        found = [YEAR * _whole(edge, where, "edges") for edge in edges]
    for k in range(len(found) - 1):
        if not found[k] < found[k + 1]:
            raise SchemaError(
                f"{where}: edges must increase; got {told(str(edges[k]))} before {edges[k + 1]}"
            )
    if at is not None:  # the last bin includes its right edge: the whole year of that age
        found[-1] += YEAR - 1
    return found
