"""Dates in exported SQL: the points that the schema gives, in SQLite, DuckDB and PostgreSQL."""

from __future__ import annotations

import sqlite3
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest

from privopt.mechanisms.estimators.sql import points_expression
from privopt.problems import Date, InvalidInputError, MissingLevel, Schema
from privopt.problems.errors import SchemaError

SCHEMA = Schema(
    [
        MissingLevel(Date("d", ["2019-01-01", "2020-02-29", "2021-01-01"], na_values=["2020-05-05"])),
        MissingLevel(Date("w", part="weekday")),
        Date("m", part="month", missing="May"),
        MissingLevel(Date("b", [0, 18, 65, 120], age_at="2024-02-29", outside="refuse")),
    ]
)
POINTS = [1, 2, 4, *range(10, 90, 10), *range(100, 1300, 100), 10_000, 20_000, 30_000, 40_000]
WRITTEN = [
    None, "", "NA", "2019-01-01", "2020-02-28", "2020-02-29", "2020-02-30", "2021-02-29", "1900-02-29",
    "2000-02-29", "2020-04-31", "2020-05-05", "2006-02-28", "2006-03-01", "2020-01-01T12:33Z", "2020-01-01 x",
    "2020-01-01 ", "1-1-2020", "2020-01-01\n", "2020-01-01 BC", "20a0-01-01", "2020-01-0", "2020-01- 1",
    "2020-13-01", "2020-00-10", "2020-01-00", "0000-01-01", "10000-01-01", "2030-01-01",
]  # fmt: skip
DAYS = [date(1896, 1, 1) + timedelta(k) for k in range(0, 48_000, 149)]


def expected(cell: Any) -> int | None:
    try:
        found = SCHEMA.encode({c.name: [cell] for c in SCHEMA.columns})
    except SchemaError:  # refused records have no points
        return None
    return int(found.X[0] @ np.array(POINTS)) // SCHEMA.denominator


@pytest.mark.parametrize("engine", ["sqlite", "duckdb", "postgres"])
@pytest.mark.parametrize("kind", ["TEXT", "DATE", "TIMESTAMP"])
def test_points_of_dates_are_those_of_the_schema(
    engine: str, kind: str, request: pytest.FixtureRequest
) -> None:
    if engine == "sqlite":
        database: Any = sqlite3.connect(":memory:")
    elif engine == "duckdb":
        database = pytest.importorskip("duckdb").connect()
    else:
        url = request.getfixturevalue("postgres")
        database = pytest.importorskip("psycopg").connect(url, autocommit=True)
    typed = kind != "TEXT" and engine != "sqlite"
    cells = [None] * typed + WRITTEN * (not typed) + [day.isoformat() for day in DAYS]
    mark = "%s" if engine == "postgres" else "?"
    with database:
        cursor = database.cursor()
        cursor.execute("DROP TABLE IF EXISTS dates")
        cursor.execute(f"CREATE TABLE dates (i INTEGER, d {kind}, w {kind}, m {kind}, b {kind})")
        cursor.executemany(f"INSERT INTO dates VALUES ({mark}, {mark}, {mark}, {mark}, {mark})",
                           [(i, c, c, c, c) for i, c in enumerate(cells)])  # fmt: skip
        points = points_expression(SCHEMA, POINTS)
        cursor.execute(f"SELECT {points} FROM dates AS privopt ORDER BY i")
        assert [row[0] for row in cursor.fetchall()] == [expected(cell) for cell in cells]
        cursor.execute("DROP TABLE dates")


def test_a_format_has_no_translation() -> None:
    with pytest.raises(InvalidInputError, match=r"column 'x': dates with a format.*YYYY-MM-DD"):
        points_expression(Schema([Date("x", part="month", format="%d.%m.%Y")]), [0] * 12)
