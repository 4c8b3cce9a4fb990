"""Dates in SQL engines: the numbers that a ``Date`` compares with its edges, as ``Date.read`` makes them."""

from __future__ import annotations

import importlib
from datetime import date
from typing import Any

from privopt.problems.errors import SchemaError
from privopt.problems.tables.dates import YEAR, Date, number_of
from privopt.problems.tables.days import ISO_PATTERN, MONTHS, either_case, format_pattern
from privopt.problems.tables.sources import decoded, ibis_library

_REMEDY = "cast it to a date in a view"
_BLANKS = "  "  # for patterns, see ``days``


def date_number(value: Any, column: Date, engine: str) -> Any:
    """Return the number of a date as an integer of the engine; NULL where it is missing or no date.

    Raises:
        SchemaError: a type whose days differ between engines, such as times with a time zone, or a format
            that the engine does not read. No record is read.
    """
    where = f"column {column.name!r}"
    check_day(value, where, engine)
    if engine == "sqlite":
        written = _parsed(value, column)
    elif value.type().is_string():
        written = _of_text(value, column, where, engine)
    else:
        written = written_day(value.cast("date"))
    return _of_written(written, column, engine)


def _parsed(value: Any, column: Date) -> Any:
    """Parse the cells of SQLite, which has no type for dates, by the parser of tables in memory."""
    ibis = ibis_library()

    def parsed(text: bytes) -> int | None:
        return column.number_of_text(decoded(text))

    parse = ibis.udf.scalar.python(parsed, name="privopt_date", signature=(("binary",), "int64"))
    nothing = ibis.null("int64")
    return ibis.ifelse(value.typeof() == "text", parse(value.cast("binary")), nothing)


def _of_text(value: Any, column: Date, where: str, engine: str) -> Any:
    ibis = ibis_library()
    if column.format is not None and engine == "duckdb":  # parsed in this process, as tables in memory are
        arrow = importlib.import_module("pyarrow")

        def parsed(texts: Any) -> Any:
            return arrow.array(
                [column.number_of_text(text) or 0 for text in texts.to_pylist()], arrow.int64()
            )

        parse = ibis.udf.scalar.pyarrow(parsed, name="privopt_date", signature=(("string",), "int64"))
        return parse(value).nullif(0)
    if engine == "postgres":
        return _as_iso(value, column, where).replace("-", "").cast("int64")
    if column.format is not None:
        raise SchemaError(
            f"{where}: text with a format is read in DuckDB, SQLite and PostgreSQL alone, elsewhere only "
            f"YYYY-MM-DD; {_REMEDY}, or convert it"
        )
    text = ibis.ifelse((value + _BLANKS).re_search(ISO_PATTERN), value.substr(0, 10), ibis.null("string"))
    year, month, day = (text.substr(k, n).cast("int64") for k, n in ((0, 4), (5, 2), (8, 2)))
    return year * YEAR + month * 100 + day


def _as_iso(value: Any, column: Date, where: str) -> Any:
    """Return a text of PostgreSQL as YYYY-MM-DD; NULL where it has another format, or is no day.

    PostgreSQL's own function raises an error at 30 February; here only texts are put together, so no cell is
    an error. PostgreSQL evaluates an expression again at every mention, so each step mentions the one before
    only once.
    """
    ibis = ibis_library()
    types = ("string", "string")
    group = ibis.udf.scalar.builtin(lambda text, pattern: "", name="substring", signature=(types, "string"))
    if column.format is not None:
        year, month, day = (
            group(value + _BLANKS, format_pattern(where, column.format, part))
            for part in ("year", "month", "day")
        )
        if "%y" in column.format:
            year = year.re_replace("^(69|[7-9][0-9])$", r"19\1").re_replace("^([0-9]{2})$", r"20\1")
        for k, name in enumerate(MONTHS, 1) if "%m" not in column.format else ():
            month = month.re_replace(f"^{either_case(name)}.*$", str(k))
        month, day = (part.re_replace("^([0-9])$", r"0\1") for part in (month, day))
        value = year + "-" + month + "-" + day
    return group(value + _BLANKS, ISO_PATTERN.replace("(", "(?:")).substr(0, 10)


def check_day(value: Any, where: str, engine: str) -> None:
    """Raise SchemaError for a type that has no dates, or whose days differ between engines."""
    kind = value.type()
    if kind.is_timestamp() and kind.timezone is not None and engine != "sqlite":
        raise SchemaError(
            f"{where}: the day of a time stamp with a time zone depends on the settings of the engine; "
            f"{_REMEDY}"
        )
    if not (kind.is_string() or kind.is_date() or kind.is_timestamp()):
        held = "a type of its own (a domain, say)" if kind.is_unknown() else str(kind)
        raise SchemaError(
            f"{where}: dates or text are needed, the table in the engine holds {held}; {_REMEDY}"
        )


def written_day(day: Any) -> Any:
    """Return a date as the number YYYYMMDD; NULL outside the years 1 to 9999."""
    ibis = ibis_library()
    number = day.year().cast("int64") * YEAR + day.month().cast("int64") * 100 + day.day().cast("int64")
    first, last = (ibis.literal(text, "date") for text in ("0001-01-01", "9999-12-31"))
    return ibis.ifelse((day >= first) & (day <= last), number, ibis.null("int64"))


def _of_written(written: Any, column: Date, engine: str) -> Any:
    """Return the number that is compared with edges, given a date as the number YYYYMMDD."""
    ibis = ibis_library()
    if column.marked_days and engine != "sqlite":
        written = ibis.ifelse(written.isin(column.marked_days), ibis.null("int64"), written)
    if column.part == "month":
        return written % YEAR // 100
    if column.part == "weekday":
        return _weekday_in_postgres(written) if engine == "postgres" else _weekday(written)
    return written if column.age_at is None else number_of(column.age_at) - written


def _weekday(written: Any) -> Any:
    """Return 1 for Monday to 7 for Sunday, in integers and without the functions of an engine.

    Before 1 January of year y there are 365 y' + y' // 4 - y' // 100 + y' // 400 days, y' = y - 1, and 365 is
    1 modulo 7. 1 January of year 1 was a Monday. From March on, the leap day of y itself counts too.
    """
    ibis = ibis_library()
    year, month, day = written // YEAR, written % YEAR // 100, written % 100
    y = ibis.ifelse(month > 2, year, year - 1)
    leaps = y // 4 - y // 100 + y // 400
    before = ibis.cases(*((month == k, n) for k, n in zip(range(1, 13), _DAYS_BEFORE, strict=True)), else_=0)
    return (year - 1 + leaps + before + day - 1) % 7 + 1


def _weekday_in_postgres(written: Any) -> Any:
    """Return the weekday by one mention of the number, as PostgreSQL evaluates every mention again."""
    text = (written + 10**8).cast("string").re_replace("^1(.{4})(..)(..)$", r"\1-\2-\3")
    return (text.cast("date").epoch_days() + date(1970, 1, 1).toordinal() - 1) % 7 + 1


# The days of a common year before the first of each month, modulo 7.
_DAYS_BEFORE = (0, 3, 3, 6, 1, 4, 6, 2, 5, 0, 3, 5)
