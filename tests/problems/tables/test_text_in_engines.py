"""Text in columns of numbers and dates: an engine's codes are those of memory, whatever the cells hold."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.problems.errors import PrivOptError, SchemaError
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.dates import Date
from privopt.problems.tables.engines import count_records
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import open_table

ibis = pytest.importorskip("ibis", reason="pip install 'privopt[engines]'")
pytest.importorskip("duckdb")

NOTATIONS: list[dict[str, Any]] = [
    {},
    {"decimal": ",", "thousands": "."},
    {"thousands": ",", "symbols": ["$", "USD"]},
    {"decimal": ",", "thousands": " ", "symbols": ["EUR"]},
    {"thousands": "'", "symbols": ["%"]},
    {"words": {"Yes": 1, "no": 0, "-": "1/2", "Nek": 2}},
    {"na_values": ["unknown", -999, "oké"]},
]
# Parts of cells, of which many are no number in some notation.
PARTS = [
    "1", "7", "12", "345", "1.234", "1,5", "1.5", "0", "-", "+", ".", ",", "'", " ", "\u00a0", "\u202f", "\t",
    "$", "USD", "EUR", "%", "e3", "E-2", "yes", "NO", "ne\u212a", "unknown", "OK\u00c9", "NA", "n/a", "inf",
    "-Infinity", "true", "FALSE", "-999", "x", "\u0661", "", "e400", "e-400", "9" * 320,
]  # fmt: skip
CELLS = st.none() | st.lists(st.sampled_from(PARTS), max_size=4).map("".join)
DAYS = ["13.02.2048", "2048-02-13", "1.1.1999", "31.2.2001", "29.02.2000 12:30", "1.1.99", "01-Feb-2003"]
DAYS += ["x", "NA", ""]


@st.composite
def columns(draw: st.DrawFn) -> tuple[Column, list[str | None]]:
    notation, cells = draw(st.sampled_from(NOTATIONS)), draw(st.lists(CELLS, min_size=1, max_size=30))
    outside: Any = draw(st.sampled_from(["clip", "clip", "refuse"]))
    make: Any
    kind = draw(st.integers(0, 2))
    if kind == 0:
        levels, other = draw(st.sampled_from([[0, 1, 7, -3], [True, False], [12, 2]])), outside != "refuse"
        make = Categorical("x", levels, "ignore" if other else "refuse", na_values=["unknown", -999, 345])
    elif kind == 1:
        make = Numeric("x", 0, 4, "0.1", outside=outside, **notation)
    else:
        make = Binned("x", [0, 1, 1.5, 7, 12, 1234, 10**6], outside, **notation)
    return MissingLevel(make) if draw(st.integers(0, 4)) else make, cells


def agree(table: Any, column: Column, cells: list[str | None]) -> None:
    """Equal counts of codes, or a refusal in both."""
    try:
        codes = column.code(np.array([*cells], dtype=object))
    except SchemaError:
        with pytest.raises(PrivOptError):
            count_records(table, Schema([column]), "y", ["no", "yes"])
        return
    counted = count_records(table, Schema([column]), "y", ["no", "yes"])
    expected = pd.Series(codes).value_counts().to_dict()
    assert dict(zip(counted.codes[0].tolist(), counted.counts.tolist(), strict=True)) == expected


def table_of(name: str, cells: list[str | None]) -> Any:
    connection = ibis.duckdb.connect() if name == "duckdb" else ibis.sqlite.connect()
    connection.con.execute("CREATE TABLE t (x VARCHAR, y VARCHAR)")
    marks = ", ".join(["(?, 'no')"] * len(cells))
    connection.con.execute(f"INSERT INTO t VALUES {marks}", list(cells))
    return connection.table("t")


@pytest.mark.parametrize("name", ["duckdb", "sqlite"])
@settings(max_examples=15, deadline=None)
@given(drawn=columns())
def test_text_in_columns_of_numbers_has_the_codes_of_memory(
    name: str, drawn: tuple[Column, list[str | None]]
) -> None:
    column, cells = drawn
    agree(table_of(name, cells), column, cells)


@pytest.mark.parametrize("name", ["duckdb", "sqlite"])
@pytest.mark.parametrize("form", ["%d.%m.%Y", "%d-%b-%Y", None])
def test_dates_in_a_format_have_the_codes_of_memory(name: str, form: str | None) -> None:
    cells = [*DAYS, None]
    for options in ({"part": "weekday"}, {"edges": ["1999-01-01", "2001-01-01", "2049-01-01"]}):
        column = MissingLevel(Date("x", format=form, na_values=["1999-01-01"], **options))  # type: ignore[arg-type]
        agree(table_of(name, cells), column, cells)


@pytest.mark.parametrize("name", ["duckdb", "sqlite"])
def test_categories_that_are_numbers_are_found_in_text(name: str) -> None:
    cells = ["1", " 01.0", "1e0", "true", "2", "x", "NA", None]
    agree(table_of(name, cells), MissingLevel(Categorical("x", [0, 1], "ignore")), cells)
    agree(table_of(name, cells[:4]), Categorical("x", [False, True]), cells[:4])
    with pytest.raises(SchemaError, match="values of the categories' type are needed"):
        count_records(table_of(name, cells[:6]), Schema([Categorical("x", [1, 2])]), "y", ["no", "yes"])


FORMATS = ["%d.%m.%Y", "%d-%b-%Y", "%B %d, %y", "%Y%m%d", "on (%m/%d/%Y)", "%d1%m^%Y", "\\%y[%m]%d"]


@pytest.mark.parametrize("form", FORMATS)
def test_dates_in_a_format_have_the_codes_of_memory_in_postgresql(postgres: str, form: str) -> None:
    """Each text by itself: one that is no day, or has another form, is missing and no error."""
    import psycopg

    days = [date(y, m, d) for y, m, d in ((1999, 1, 1), (2000, 2, 29), (1969, 5, 31), (2068, 12, 9))]
    written = [day.strftime(form) for day in days]
    odd = [w.replace("29", "30").replace("12", "13").replace("99", "9") for w in written]
    bare = [w.replace("0", "") for w in written]  # 1.1.1999, and years of two digits
    cases = [change(w) for w in written for change in (str.upper, str.lower, str.title)]
    tails = [
        w + tail for w in written for tail in (" 10:30", "T1", "t", "t9", " at noon", "\n", "x", "\u00a0")
    ]
    cells = [
        *written,
        *odd,
        *bare,
        *cases,
        *tails,
        *DAYS,
        "0/0/0000",
        "on (2/30/2001)",
        " " + written[0],
        None,
    ]
    name = "written_" + form.encode().hex()
    with psycopg.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} (x TEXT, y TEXT)".encode())
        cursor.executemany(f"INSERT INTO {name} VALUES (%s, 'no')".encode(), [(cell,) for cell in cells])
    given = open_table(postgres, name)
    for options in ({"part": "weekday"}, {"edges": ["1970-01-01", "2000-02-29", "2049-01-01"]}):
        column = MissingLevel(Date("x", format=form, na_values=["1999-01-01"], **options))  # type: ignore[arg-type]
        agree(given, column, cells)
    given.get_backend().disconnect()


def test_postgresql_refuses_text_as_numbers_by_name_without_reading_it(postgres: str) -> None:
    import psycopg

    from privopt.problems.tables.engines import EngineCount

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE texts (x TEXT, y TEXT)")
    table, cases = open_table(postgres, "texts"), {"cast it": Numeric("x", 0, 1)}
    for remedy, column in (cases | {"declare the categories as the text": Categorical("x", [0, 1])}).items():
        with pytest.raises(SchemaError, match=rf"column 'x': .*postgres does not.? {remedy}"):
            EngineCount.of(table, Schema([column]), "y", ["no", "yes"])
