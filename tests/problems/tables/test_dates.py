"""Columns of dates: the calendar, ages, weekdays and months against the standard library; declarations."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privopt.problems import Date, MissingLevel, Schema, count_records
from privopt.problems.errors import SchemaError
from privopt.problems.tables.days import day_parser
from privopt.problems.tables.made_up import synthetic_rows
from privopt.problems.tables.predicates import Predicates

EDGES = ["1970-01-01", "2000-02-29", "2024-12-31"]
SPREAD = [date(1, 1, 1) + timedelta(k) for k in range(0, 3_652_058, 1777)]
SCHEMA = Schema(
    [
        MissingLevel(Date("seen", EDGES, na_values=["1999-09-09"])),
        Date("day", part="weekday", missing="Sunday"),
        MissingLevel(Date("month", part="month", format="%d.%m.%Y")),
        MissingLevel(Date("born", [0, 18, 65, 120], age_at="2024-02-29", outside="refuse")),
    ]
)


def codes(column: Date, cells: Any) -> list[int]:
    schema = Schema([MissingLevel(column) if column.missing is None else column])
    return schema.codes({column.name: cells})[0].tolist()  # type: ignore[no-any-return]


def test_texts_are_days_of_the_calendar_alone() -> None:
    parse = day_parser("x", None)
    for year in (0, 1, 4, 100, 400, 1900, 2000, 2023, 2024, 9999):
        for month in range(14):
            for day in range(33):
                try:
                    known = date(year, month, day)
                except ValueError:
                    known = None
                assert parse(f"{year:04}-{month:02}-{day:02}") == known


def test_days_that_an_engine_writes_are_those_days() -> None:
    pytest.importorskip("ibis")
    from privopt.problems.tables.engine_cells import _days

    written = pa.chunked_array([[day.year * 10_000 + day.month * 100 + day.day for day in SPREAD], [None]])
    assert _days(written).tolist() == [*SPREAD, None]


def test_weekdays_in_an_engine_are_those_of_the_standard_library() -> None:
    ibis = pytest.importorskip("ibis")
    table = ibis.memtable({"x": [day.isoformat() for day in SPREAD], "y": ["no"] * len(SPREAD)})
    counted = count_records(table, Schema([Date("x", part="weekday")]), "y", ["no", "yes"])
    found = np.zeros(7, dtype=np.int64)
    found[counted.codes[0]] = counted.counts
    assert found.tolist() == np.bincount([day.weekday() for day in SPREAD]).tolist()


def test_weekdays_and_months_are_those_of_the_standard_library() -> None:
    assert codes(Date("x", part="weekday"), SPREAD) == [day.weekday() for day in SPREAD]
    assert codes(Date("x", part="month"), SPREAD) == [day.month - 1 for day in SPREAD]
    assert codes(Date("x", part="month"), np.array(SPREAD, "datetime64[D]")) == [d.month - 1 for d in SPREAD]


@pytest.mark.parametrize("at", [date(2024, 2, 29), date(2023, 2, 28), date(2024, 3, 1), date(2023, 12, 31)])
def test_ages_count_birthdays(at: date) -> None:
    """A birthday on 29 February is 1 March in other years; the last bin is all of its age."""
    column = Date("x", [0, 17, 18, 19], age_at=at, outside="refuse")
    born = [at - timedelta(k) for k in range(365 * 17, 365 * 20)]
    ages = [at.year - b.year - ((at.month, at.day) < (b.month, b.day)) for b in born]
    kept = [b for b, age in zip(born, ages, strict=True) if age <= 19]
    assert codes(column, kept) == [max(age - 16, 0) if age < 19 else 2 for age in ages if age <= 19]
    with pytest.raises(SchemaError, match="ages must lie in \\[0, 19\\]"):
        codes(column, [date(at.year - 20, at.month, 1)])
    with pytest.raises(SchemaError, match="ages must lie in"):
        codes(column, [at + timedelta(1)])


FORMATS = {
    "%d.%m.%Y": {"29.2.2000": 1, "29.02.2000 23:59": 1, "29.02.1900": 2, "2000-02-29": 2, "1.1.20001": 2},
    "%m/%d/%y": {"2/29/00": 1, "12/31/69": 0, "12/31/68": 1, "13/01/99": 2},
    "%Y%m%d": {"20000229": 1, "2000229": 2, "20000229T10": 1},
    "%d-%b-%Y": {"29-FEB-2000": 1, "1-jan-1999": 0, "1-foo-1999": 2, "1-January-1999": 2},
    "%B %d, %Y": {"March 1, 2000": 1, "Mar 1, 2000": 2, "february 28, 2000": 0},
}


@pytest.mark.parametrize("form", FORMATS)
def test_formats_are_read_as_declared(form: str) -> None:
    known = FORMATS[form]
    assert codes(Date("x", EDGES, format=form), list(known)) == list(known.values())
    assert codes(Date("x", EDGES, format=form), [date(2000, 2, 29), None]) == [1, 2]


NEW_YORK = timezone(timedelta(hours=-5))
NATIVE: dict[str, Any] = {
    "seconds": np.array(["2000-02-28T23:59:59", "2000-02-29", "1969-12-31T23", "NaT"], "datetime64[s]"),
    "objects": [date(2000, 2, 28), datetime(2000, 2, 29, 1), np.datetime64("1969-12-31"), None],
    "local": [datetime(2000, 2, 28, 23, tzinfo=NEW_YORK), "2000-02-29T00:00+14:00", "1969-12-31", pd.NaT],
    "zones": pd.Series(
        np.array(["2000-02-28T23", "2000-02-29", "1969-12-31", "NaT"], "M8[s]")
    ).dt.tz_localize("America/New_York"),
    "arrow": pd.Series([date(2000, 2, 28), date(2000, 2, 29), date(1969, 12, 31), None]).astype(
        pd.ArrowDtype(pa.date32())
    ),
    "stamps": pa.table(
        {"x": pa.array([datetime(2000, 2, 28, 23), datetime(2000, 2, 29), datetime(1969, 12, 31), None])}
    ).to_pandas()["x"],
    "categories": pd.Series(["2000-02-28", "2000-02-29", "1969-12-31", None], dtype="category"),
}


@pytest.mark.parametrize("kind", NATIVE)
def test_dates_of_every_type_are_the_days_that_they_write(kind: str) -> None:
    assert codes(Date("x", EDGES), NATIVE[kind]) == [0, 1, 0, 2]


def test_other_cells_are_missing_each_by_itself() -> None:
    odd = [20000229, 3.5, True, b"2000-02-29", (2000, 2, 29), "\ud800", np.datetime64(10**18, "Y"), "NA"]
    assert codes(Date("x", EDGES), [*odd, "2000-02-29"]) == [2] * len(odd) + [1]
    assert codes(Date("x", EDGES), np.array([10**17, -(10**17), 30, 31], "datetime64[Y]")) == [2, 2, 0, 1]
    assert codes(Date("x", EDGES), np.array([20000229.0, np.nan])) == [2, 2]
    assert codes(Date("x", EDGES, missing="1999-01-01"), ["soon", "2001-01-01"]) == [0, 1]
    assert codes(Date("x", [0, 18, 99], age_at="2024-01-01", missing=30), [None, "2010-01-01"]) == [1, 0]
    with pytest.raises(SchemaError, match=r"column 'x': missing cells.*missing_level = true") as refused:
        Schema([Date("x", EDGES)]).codes({"x": ["SECRET"]})
    assert "SECRET" not in str(refused.value)


def test_schemas_with_dates_survive_files(tmp_path: Path) -> None:
    for name in ("schema.toml", "schema.json"):
        SCHEMA.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == SCHEMA
    text = '[[columns]]\nkind = "date"\nname = "x"\nedges = [2020-01-01, 2021-01-01T00:00:00]\n'
    (tmp_path / "native.toml").write_text(text)
    assert Schema.load(tmp_path / "native.toml") == Schema([Date("x", ["2020-01-01", "2021-01-01"])])
    marked = SCHEMA.with_na_values(["1980-01-01", "gone"])
    assert marked.columns[0].to_dict()["na_values"] == ["1999-09-09", "1980-01-01", "gone"]
    row = {c.name: ["1980-01-01" if c.name != "month" else "1.1.1980"] for c in marked.columns}
    assert [found[0] for found in marked.codes(row)] == [2, 6, 0, 3]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({}, "needs edges"),
        ({"edges": EDGES, "part": "month"}, "needs edges"),
        ({"part": "month", "age_at": "2020-01-01"}, "needs edges"),
        ({"part": "weekdays"}, "did you mean 'weekday'"),
        ({"edges": ["2020-01-01"]}, "at least two dates"),
        ({"edges": ["2020-01-01", "2019-01-01"]}, "must increase"),
        ({"edges": ["2020-01-01", "2020-02-30"]}, "must be a date"),
        ({"edges": [0, 18]}, "must be a date"),
        ({"edges": ["0", "18"], "age_at": "2020-01-01"}, "whole years"),
        ({"edges": EDGES, "format": "%d.%m"}, "day, month and year"),
        ({"edges": EDGES, "format": "%d.%m.%Y %H"}, "day, month and year"),
        ({"edges": EDGES, "missing": "2030-01-01"}, "must lie in"),
        ({"part": "month", "missing": "Mai"}, "must be one of"),
        ({"part": "month", "monotone": "rising"}, "have no order"),
        ({"edges": EDGES, "missing": "2000-01-01", "missing_level": True}, "exclude each other"),
    ],
)
def test_dates_that_cannot_be_are_refused_by_name(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as refused:
        Schema.from_dict({"columns": [{"kind": "date", "name": "x", **entry}]})
    assert "'x'" in str(refused.value)


def test_levels_questions_and_synthetic_rows_are_in_words() -> None:
    assert [column.words for column in (Date("x", EDGES), Date("x", [0, 18, 65], age_at="2024-01-01"))] == [
        ("before 2000-02-29", "2000-02-29 or later"),
        ("below 18 years", "18 years or more"),
    ]
    asked = [question.text() for question in Predicates.of(SCHEMA).questions]
    assert {"seen < 2000-02-29", "day = Sunday or missing", "month = May", "born < 18 years"} <= set(asked)
    rows = synthetic_rows(SCHEMA, 200)
    for column, found in zip(SCHEMA.columns, SCHEMA.codes(rows), strict=True):
        assert len(set(found.tolist())) == column.n_codes


def test_engines_refuse_what_they_would_read_otherwise() -> None:
    ibis = pytest.importorskip("ibis")
    pytest.importorskip("duckdb")
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE t (zone TIMESTAMPTZ, number BIGINT, text VARCHAR, y VARCHAR)")
    for column, reason in (
        (Date("zone", EDGES), "time zone.*cast it to a date in a view"),
        (Date("number", EDGES), "dates or text are needed.*int64.*cast it"),
    ):
        with pytest.raises(SchemaError, match=f"column '{column.name}'.*{reason}"):
            count_records(connection.table("t"), Schema([column]), "y", ["no", "yes"])


@pytest.mark.parametrize("unit", ["ps", "fs", "as"])
def test_times_of_the_finest_units_are_days_too(unit: str) -> None:
    cells = [np.datetime64(5, unit), np.datetime64(-5, unit), "1970-01-02", None, "x"]
    found = codes(Date("day", ["1970-01-01", "1970-01-02"]), cells)
    same = codes(
        Date("day", ["1970-01-01", "1970-01-02"]), ["1970-01-01", "1969-12-31", "1970-01-02", None, "x"]
    )
    assert found == same
