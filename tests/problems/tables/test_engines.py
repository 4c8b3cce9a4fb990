"""Counts of an engine equal those in memory, or are refused; nothing but counts comes back."""

from __future__ import annotations

import math
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression, evaluate
from privopt.mechanisms.estimators.booking import is_booked
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems.errors import InvalidInputError, PrivOptError, SchemaError
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.counted import CountedRecords, pack, unpack
from privopt.problems.tables.engine_cells import EngineCells
from privopt.problems.tables.engines import EngineCount, count_records, rows_in, rows_of
from privopt.problems.tables.expressions import Cell, column_code
from privopt.problems.tables.expressions import _grid as grid_of
from privopt.problems.tables.expressions import _grid_code as grid_code
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.parquet_text import with_readable_rows
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import is_engine_address, open_table

ibis = pytest.importorskip("ibis", reason="pip install 'privopt[engines]'")
duckdb = pytest.importorskip("duckdb")

Rows = dict[str, list[Any]]
CLASSES = ["no", "yes"]
TYPES = {"float": "DOUBLE", "single": "FLOAT", "int": "BIGINT", "bool": "BOOLEAN", "text": "VARCHAR"}


@contextmanager
def engine(name: str, rows: Rows, kinds: dict[str, str]) -> Iterator[Any]:
    """The rows as a table of an engine, columns of the kinds in ``TYPES``."""
    columns = ", ".join(f'"{c}" {TYPES[kind]}' for c, kind in kinds.items())
    held = {**rows, **singles_of(rows, kinds, float)}  # SQLite has doubles alone
    marks, records = ", ".join("?" * len(kinds)), list(zip(*held.values(), strict=True))
    connection = ibis.duckdb.connect() if name == "duckdb" else ibis.sqlite.connect()
    raw = connection.con
    raw.execute(f"CREATE TABLE t ({columns})")
    raw.executemany(f"INSERT INTO t VALUES ({marks})", records)
    try:
        yield connection.table("t")
    finally:
        connection.disconnect()


def singles_of(rows: Rows, kinds: dict[str, str], kept: Callable[[Any], Any]) -> Rows:
    """The columns of single precision, rounded to it."""
    return {
        c: [None if v is None else kept(np.float32(v)) for v in rows[c]]
        for c, kind in kinds.items()
        if kind == "single"
    }


def in_memory(rows: Rows, kinds: dict[str, str], schema: Schema, classes: list[Any]) -> CountedRecords:
    """The same, read as a data frame that holds just these values."""
    singles = singles_of(rows, kinds, np.float32)
    frame = pd.DataFrame({c: pd.Series(v, dtype=object) for c, v in {**rows, **singles}.items()})
    index = np.array([classes.index(label) for label in rows["y"]], dtype=np.int64)
    return CountedRecords.of(schema, schema.codes(frame), classes, index)


def same(a: CountedRecords, b: CountedRecords) -> bool:
    pairs = zip((*a.codes, a.label, a.counts), (*b.codes, b.label, b.counts), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def outcome(count: Callable[[], CountedRecords]) -> CountedRecords | None:
    try:
        return count()
    except PrivOptError:
        return None


# --- random schemas, and tables with everything that a cell can hold ---

BOUNDS = st.integers(-40, 40).map(lambda k: Fraction(k, 20))
HARD = [
    0.1, 0.3, 0.1 + 0.2, 1 / 3, -0.0, 0.0, 5e-324, sys.float_info.max, -1e300, 2.0**53, 2.0**53 + 2, math.inf,
    -math.inf, math.nan, np.nextafter(0.1, 0), np.nextafter(0.1, 1), 0.05, 0.15, 1.15, 0.25,
]  # fmt: skip
WORDS = [
    "a",
    "A",
    "é",
    "e\u0301",
    "",
    " a",
    "a ",
    "it's",
    'a"b',
    "\\",
    "%",
    "日本",
    "\U0001f600",
    "ß",
    "ss",
    "1",
    "null",
]


@st.composite
def numbers(draw: st.DrawFn) -> tuple[Column, str, st.SearchStrategy[Any]]:
    low = draw(BOUNDS)
    outside: Any = draw(st.sampled_from(["clip", "refuse"]))
    missing: Any = draw(st.sampled_from([None, low]))
    column: Any
    if draw(st.booleans()):
        step = draw(st.sampled_from(["0.1", "1/3", "0.25", 1, "0.05"]))
        column = Numeric("x", low, low + 2, step, outside=outside, missing=missing)
    else:
        widths = draw(st.lists(st.sampled_from([0.05, 0.1, 1 / 3, 1.0]), min_size=1, max_size=5))
        edges = [low, *(float(low) + sum(widths[: k + 1]) for k in range(len(widths)))]
        column = Binned("x", edges, outside, missing)
    borders = [float(b) for b in getattr(column, "edges", ())] or column.cuts()[1]
    near = [float(np.nextafter(b, to)) for b in borders for to in (-math.inf, b, math.inf)]
    kind = draw(st.sampled_from(["float", "single", "int", "bool"]))
    inside = st.sampled_from([*near, float(low)]) if outside == "refuse" else st.sampled_from([*near, *HARD])
    cells = {
        "float": inside,
        "single": st.sampled_from([0.1, 0.5, -0.0, math.nan, float(low), 3e38]),
        "int": st.integers(-3, 3) | st.sampled_from([2**53 + 1, -(2**62)]),
        "bool": st.booleans(),
    }[kind]
    return column, kind, cells


@st.composite
def categories(draw: st.DrawFn) -> tuple[Column, str, st.SearchStrategy[Any]]:
    outside: Any = draw(st.sampled_from(["refuse", "ignore"]))
    known: list[Any] = [
        *WORDS,
        *draw(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))),
    ]
    kind = draw(st.sampled_from(["text", "int", "float", "bool"]))
    if kind != "text":
        known = [True, False] if draw(st.booleans()) else [0, 1, -7, 2**53 - 1]
    declared = draw(st.lists(st.sampled_from(known), min_size=1, max_size=6, unique=True))
    missing: Any = draw(st.sampled_from([None, declared[0]]))
    cells = st.sampled_from(declared if outside == "refuse" else known)
    if kind != "text" and outside == "ignore":
        others = {"int": [2**53, 2**53 + 1, 2**62], "float": [0.5, math.inf, math.nan, 1.0], "bool": [True]}[
            kind
        ]
        cells = cells | st.sampled_from(others)
    convert = {"int": int, "float": float, "bool": bool, "text": str}[kind]
    return Categorical("x", declared, outside, missing), kind, cells.map(convert)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Schema, Rows, dict[str, str]]:
    n = draw(st.integers(1, 30))
    columns: list[Column] = []
    rows: Rows = {}
    kinds: dict[str, str] = {}
    for k in range(draw(st.integers(1, 3))):
        column, kind, cells = draw(numbers() | categories())
        name = f"x {k}"
        object.__setattr__(column, "name", name)
        level = getattr(column, "missing", None) is None and draw(st.booleans())
        holes = level or getattr(column, "missing", None) is not None or draw(st.integers(0, 9)) == 0
        columns.append(MissingLevel(column) if level else column)  # type: ignore[arg-type]
        rows[name] = draw(st.lists(cells | st.none() if holes else cells, min_size=n, max_size=n))
        kinds[name] = kind
    rows["y"] = draw(st.lists(st.sampled_from(CLASSES), min_size=n, max_size=n))
    return Schema(columns), rows, {**kinds, "y": "text"}


def check_counts(table: Any, schema: Schema, rows: Rows, kinds: dict[str, str]) -> None:
    """A refusal is a refusal in both. (SQLite keeps NaN as NULL, which means the same.)"""
    expected = outcome(lambda: in_memory(rows, kinds, schema, CLASSES))
    found = outcome(lambda: count_records(table, schema, "y", CLASSES))
    assert (found is None) == (expected is None)
    assert found is None or expected is None or same(found, expected)


@pytest.mark.parametrize("name", ["duckdb", "sqlite"])
@settings(max_examples=25, deadline=None)
@given(drawn=tables())
def test_an_engine_counts_what_is_counted_in_memory(
    name: str, drawn: tuple[Schema, Rows, dict[str, str]]
) -> None:
    schema, rows, kinds = drawn
    with engine(name, rows, kinds) as table:
        check_counts(table, schema, rows, kinds)


@settings(max_examples=25, deadline=None)
@given(drawn=tables())
def test_postgresql_counts_what_is_counted_in_memory(
    postgres: str, drawn: tuple[Schema, Rows, dict[str, str]]
) -> None:
    schema, rows, kinds = drawn
    check_counts(in_postgres(postgres, rows, kinds), schema, rows, kinds)


def in_postgres(address: str, rows: Rows, kinds: dict[str, str]) -> Any:
    import psycopg

    types = {**TYPES, "float": "DOUBLE PRECISION", "single": "REAL"}
    columns = ", ".join(f'"{c}" {types[kind]}' for c, kind in kinds.items())
    marks = ", ".join(f"%s::{types[kind]}" for kind in kinds.values())
    with psycopg.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS t; CREATE TABLE t ({columns})".encode())
        cursor.executemany(f"INSERT INTO t VALUES ({marks})".encode(), list(zip(*rows.values(), strict=True)))
    return open_table(address, "public.t")


def in_spark(spark: Any, rows: Rows, kinds: dict[str, str]) -> Any:
    types = {**TYPES, "text": "STRING"}
    columns = ", ".join(f"`{c}` {types[kind]}" for c, kind in kinds.items())
    plain = [[v.item() if isinstance(v, np.generic) else v for v in cells] for cells in rows.values()]
    frame = spark._session.createDataFrame(list(zip(*plain, strict=True)), columns)
    frame.createOrReplaceTempView("t")
    return spark.table("t")


@settings(max_examples=15, deadline=None)
@given(drawn=tables())
def test_spark_counts_what_is_counted_in_memory(
    spark: Any, drawn: tuple[Schema, Rows, dict[str, str]]
) -> None:
    schema, rows, kinds = drawn
    check_counts(in_spark(spark, rows, kinds), schema, rows, kinds)


@contextmanager
def anywhere(name: str, rows: Rows, kinds: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Any]:
    """The rows in an engine, or in a server that a fixture starts."""
    if name in ("duckdb", "sqlite"):
        with engine(name, rows, kinds) as table:
            yield table
    else:
        yield {"postgres": in_postgres, "spark": in_spark}[name](request.getfixturevalue(name), rows, kinds)


@pytest.mark.parametrize("name", ["duckdb", "sqlite", "postgres", "spark"])
def test_keys_of_many_columns_are_of_64_bits(name: str, request: pytest.FixtureRequest) -> None:
    """Plain integers would overflow in engines, or wrap around."""
    rng = np.random.default_rng(0)
    rows: Rows = {f"x{k}": rng.uniform(0, 9, 30).tolist() for k in range(25)}
    rows["y"] = rng.choice(CLASSES, 30).tolist()
    kinds = {**dict.fromkeys(rows, "float"), "y": "text"}
    schema = Schema([Binned(name, range(10)) for name in rows if name != "y"])
    with anywhere(name, rows, kinds, request) as table:
        assert same(count_records(table, schema, "y", CLASSES), in_memory(rows, kinds, schema, CLASSES))


@pytest.mark.parametrize("name", ["duckdb", "sqlite", "postgres", "spark"])
def test_many_categories_are_found_by_halves(name: str, request: pytest.FixtureRequest) -> None:
    """Text in the order of its bytes, beginnings of other text and letters beyond ASCII included."""
    rng = np.random.default_rng(1)
    letters = ["a", "B", "_", " ", "'", "\u00e9", "\u20ac", "\U0001f600"]
    texts = sorted({"".join(rng.choice(letters, rng.integers(5))) for _ in range(150)})
    numbers = [int(k) for k in rng.choice(10**6, 60, replace=False) - 5 * 10**5]
    schema = Schema(
        [
            Categorical("text", texts[::2], outside="ignore"),
            Categorical("int", [*numbers[:30], 0], outside="ignore"),
            Categorical("float", numbers[:30], outside="ignore"),
        ]
    )
    rows: Rows = {
        "text": rng.choice(texts, 400).tolist(),
        "int": rng.choice([*numbers, 0], 400).tolist(),
        "float": [
            x + 0.5 * half for x, half in zip(rng.choice(numbers, 400), rng.random(400) < 0.2, strict=True)
        ],
        "y": rng.choice(CLASSES, 400).tolist(),
    }
    rows["float"] = [float(x) for x in rows["float"]]
    kinds = {"text": "text", "int": "int", "float": "float", "y": "text"}
    with anywhere(name, rows, kinds, request) as table:
        assert same(count_records(table, schema, "y", CLASSES), in_memory(rows, kinds, schema, CLASSES))


def test_spark_fits_the_same_card(spark: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400), "z": rng.choice(["a", "b"], 400)})
    frame["y"] = np.where(frame["x"] > 0, "yes", "no")
    frame.to_parquet(tmp_path / "t.parquet")
    schema = Schema([Binned("x", [-9, -1, 0, 1, 9]), Categorical("z", ["a", "b"])], intercept=True)
    facts: dict[str, Any] = {"schema": schema, "classes": CLASSES, "insecure_seed": 1}
    card = PrivateHalfspaceClassifier(1.0, **facts)
    there = card.fit(spark.read_parquet(str(tmp_path / "t.parquet")), "y").coef_.tolist()
    assert there == card.fit(frame[["x", "z"]], frame["y"]).coef_.tolist()


def test_spark_is_refused_what_it_does_not_do(spark: Any) -> None:
    table = in_spark(spark, {"x": ["Quagmire"], "y": ["no"]}, {"x": "text", "y": "text"})
    with pytest.raises(InvalidInputError, match="in parts"):
        list(rows_of(table, ["x"], 10))
    failing = table.select(x=table.x.cast("int64"), y=table.y)
    spark._session.conf.set("spark.sql.ansi.enabled", "true")
    try:
        with pytest.raises(InvalidInputError, match="could not read") as refused:
            count_records(failing, Schema([Binned("x", [0, 1])]), "y", CLASSES)
    finally:
        spark._session.conf.unset("spark.sql.ansi.enabled")
    assert "Quagmire" not in "".join(traceback.format_exception(refused.value))


# --- places where engines differ from Python ---


def test_thresholds_are_where_memory_has_them() -> None:
    """All doubles around every tie of a decimal grid; decimal literals would be read differently."""
    column = Numeric("x", "0.1", "1.3", step="1/30")
    base, cuts = column.cuts()
    near = [float(np.nextafter(t, to)) for t in cuts for to in (-math.inf, t, math.inf)]
    near += [float(np.float64(k) / 60) for k in range(90)]
    code = column.code(np.array(near))
    assert code.tolist() == [base + sum(x >= t for t in cuts) for x in near]
    rows = {"x": near, "y": ["no"] * len(near)}
    for name in ("duckdb", "sqlite"):
        with engine(name, rows, {"x": "float", "y": "text"}) as table:
            counted = count_records(table, Schema([column]), "y", CLASSES)
        assert dict(zip(counted.codes[0].tolist(), counted.counts.tolist(), strict=True)) == {
            k: int(np.sum(code == k)) for k in set(code.tolist())
        }


@pytest.mark.parametrize("name", ["duckdb", "sqlite"])
def test_collations_of_columns_do_not_merge_categories(name: str) -> None:
    connection = ibis.duckdb.connect() if name == "duckdb" else ibis.sqlite.connect()
    connection.con.execute('CREATE TABLE t ("x" VARCHAR COLLATE NOCASE, "y" VARCHAR COLLATE NOCASE)')
    connection.con.executemany("INSERT INTO t VALUES (?, ?)", [("a", "no"), ("A", "no"), ("A", "yes")])
    counted = count_records(connection.table("t"), Schema([Categorical("x", ["a", "A"])]), "y", CLASSES)
    assert (counted.codes[0].tolist(), counted.counts.tolist()) == ([0, 1, 1], [1, 1, 1])
    with pytest.raises(SchemaError, match="not declared"):
        count_records(connection.table("t"), Schema([Categorical("x", ["a"])]), "y", CLASSES)


def test_other_errors_than_of_text_in_parquet_are_the_engines() -> None:
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE VIEW v AS SELECT CAST(error('a broken view') AS VARCHAR) AS x FROM range(3)")
    with pytest.raises(Exception, match="a broken view"):
        with_readable_rows(connection.table("v"), ["x"])


def test_a_table_is_counted_for_features_other_than_its_label() -> None:
    with engine("duckdb", {"x": ["a"], "y": ["no"]}, {"x": "text", "y": "text"}) as table:
        schema = Schema([Categorical("x", ["a"]), Categorical("y", CLASSES)])
        with pytest.raises(InvalidInputError, match="the schema declares 'y', which is the label"):
            count_records(table, schema, "y", CLASSES)
    with pytest.raises(InvalidInputError, match="no records"):
        CountedRecords.together([])


def test_decimals_are_read_as_memory_reads_them() -> None:
    values = [
        Decimal("0.10"),
        Decimal("0.30"),
        Decimal("1.15"),
        Decimal("-2.05"),
        Decimal("9999999999999.95"),
    ]
    schema = Schema([Binned("x", [-3, 0.1, 0.3, 1.15, 1e14])])
    connection = ibis.duckdb.connect()
    connection.con.execute("CREATE TABLE t (x DECIMAL(15, 2), z DECIMAL(20, 2), y VARCHAR)")
    connection.con.executemany("INSERT INTO t VALUES (?, 0, 'no')", [(v,) for v in values])
    counted = count_records(connection.table("t"), schema, "y", CLASSES)
    expected = schema.codes(pd.DataFrame({"x": pd.Series(values, dtype=object)}))[0]
    assert np.repeat(counted.codes[0], counted.counts).tolist() == sorted(expected.tolist())
    assert count_records(connection.table("t"), Schema([Binned("z", [0, 1])]), "y", CLASSES).n_records == 5
    with pytest.raises(SchemaError, match="compared exactly"):
        count_records(connection.table("t"), Schema([Categorical("z", [0, 1])]), "y", CLASSES)


def test_negative_numbers_are_declared_for_columns_without_a_sign(tmp_path: Path) -> None:
    """They are no cell of it: categories, markers and classes."""
    rows: Rows = {"x": [0, 1, 3, 2**64 - 1], "y": [0, 1, 1, 0]}
    types = {"x": np.uint64, "y": np.uint32}
    pd.DataFrame({c: np.array(v, types[c]) for c, v in rows.items()}).to_parquet(tmp_path / "0.parquet")
    schema = Schema([Categorical("x", [0, -7, 1], "ignore", na_values=[-9])])
    counted = count_records(open_table(f"{tmp_path}/*.parquet"), schema, "y", [0, -1, 1])
    assert same(counted, in_memory(rows, {}, schema, [0, -1, 1]))


@pytest.mark.parametrize(
    ("kind", "values"),
    [("REAL", [1.5, "abc"]), ("INTEGER", [1, b"1"]), ("BOOLEAN", [7, "yes"]), ("TEXT", ["a", b"a"])],
)
def test_cells_of_another_type_than_their_column_are_refused(kind: str, values: list[Any]) -> None:
    """SQLite keeps them as they come; numbers are numbers in any of its numeric columns."""
    connection = ibis.sqlite.connect()
    connection.con.execute(f"CREATE TABLE t (x {kind}, y TEXT)")
    connection.con.executemany("INSERT INTO t VALUES (?, 'no')", [(v,) for v in values])
    column = Categorical("x", ["a"]) if kind == "TEXT" else Binned("x", [0, 1])
    with pytest.raises(SchemaError, match="are needed"):
        count_records(connection.table("t"), Schema([column]), "y", CLASSES)
    lenient = Categorical("x", ["a"], "ignore") if kind == "TEXT" else MissingLevel(Binned("x", [0, 1]))
    counted = count_records(connection.table("t"), Schema([lenient]), "y", CLASSES)
    assert (counted.codes[0].tolist(), counted.counts.tolist()) == ([0, 1], [1, 1])


@pytest.mark.parametrize(
    ("column", "kind", "value", "message"),
    [
        (Binned("x", [0, 1], "refuse"), "float", math.inf, "must lie in"),
        (Binned("x", [0, 1]), "float", math.nan, "missing"),
        (Numeric("x", 0, 1, outside="refuse"), "float", 4321.5, "must lie in"),
        (Binned("x", [0, 1]), "text", "4321.5 EUR", "numbers are needed"),
        (Binned("x", [0, 1], "refuse"), "text", "4321.5", "must lie in"),
        (Binned("x", [0, 1]), "text", None, "missing values"),
        (Categorical("x", ["a"]), "text", "4321.5", "not declared"),
        (Categorical("x", ["a"], "ignore"), "float", 4321.5, "cast the column to text in a view"),
        (Categorical("x", [1]), "text", "4321.5", "not declared"),
        (Numeric("x", 0, 1, step="1/10000"), "float", 4321.5, "coarser"),
        (Categorical("z", ["a"]), "text", "4321.5", "missing from the table"),
    ],
)
def test_refusals_quote_no_values(column: Column, kind: str, value: Any, message: str) -> None:
    with (
        engine("duckdb", {"x": [value], "y": ["no"]}, {"x": kind, "y": "text"}) as table,
        pytest.raises(PrivOptError, match=message) as refusal,
    ):
        count_records(table, Schema([column]), "y", CLASSES)
    assert "4321" not in str(refusal.value)


@pytest.mark.parametrize("label", [None, "perhaps", "NO"])
def test_labels_are_of_the_declared_classes(label: str | None) -> None:
    rows = {"x": [0.5, 0.5], "y": ["no", label]}
    with (
        engine("duckdb", rows, {"x": "float", "y": "text"}) as table,
        pytest.raises(InvalidInputError, match="missing labels" if label is None else "outside"),
    ):
        count_records(table, Schema([Binned("x", [0, 1])]), "y", CLASSES)


@pytest.mark.parametrize(
    ("kind", "values", "classes"),
    [
        ("int", [0, 1, 1], ["0", "1"]),
        ("float", [0.0, 1.0, 1.0], ["0", "1"]),
        ("float", [0.5, -0.0, -0.0], ["0.5", "0"]),
        ("bool", [False, True, True], ["False", "True"]),
        ("text", ["0", "01", "01"], ["0", "01"]),
    ],
)
def test_labels_are_what_a_person_writes(kind: str, values: list[Any], classes: list[str]) -> None:
    rows = {"x": [0.5] * 3, "y": values}
    with engine("duckdb", rows, {"x": "float", "y": kind}) as table:
        counted = count_records(table, Schema([Binned("x", [0, 1])]), "y", classes, written=True)
    assert (counted.label.tolist(), counted.counts.tolist()) == ([0, 1], [1, 2])


def test_what_does_not_shrink_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("privopt.problems.tables.engines._MOST_NUMBERS", 5)
    rows = {"x": [0.5, 1.5, 2.5, 3.5, 4.5, 5.5], "y": ["no"] * 6}
    with (
        engine("duckdb", rows, {"x": "float", "y": "text"}) as table,
        pytest.raises(SchemaError, match="distinct records"),
    ):
        count_records(table, Schema([Numeric("x", 0, 10)]), "y", CLASSES)


# --- addresses ---


def test_a_folder_of_parquet_files_is_one_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [0.5, 1.5, 0.5], "y": ["no", "yes", "no"]})
    for k in range(3):
        frame.to_parquet(tmp_path / f"part-{k}.parquet")
    for address in (f"{tmp_path}/*.parquet", f"{tmp_path}/part-?.parquet"):
        assert is_engine_address(address)
        counted = count_records(open_table(address), Schema([Binned("x", [0, 1, 2])]), "y", CLASSES)
        assert (counted.counts.tolist(), counted.n_records) == ([6, 3], 9)
    assert not any(map(is_engine_address, (str(tmp_path), str(tmp_path / "part-0.parquet"))))


@pytest.mark.parametrize("first", [0, 1])
def test_files_of_other_types_are_no_casts_to_those_of_the_first(tmp_path: Path, first: int) -> None:
    """A number that another file's type would round, and text that would be taken for one."""
    parts = [pd.DataFrame({"x": [0, 1], "y": CLASSES}), pd.DataFrame({"x": [0.9, 1.6], "y": CLASSES})]
    for k in (0, 1):
        parts[k - first].to_parquet(tmp_path / f"{k}.parquet")
    schema = Schema([Binned("x", [0, 1, 2])])
    counted = count_records(open_table(f"{tmp_path}/*.parquet"), schema, "y", CLASSES)
    assert counted.counts.tolist() == [2, 2]
    parts[0].astype({"x": str}).to_parquet(tmp_path / "0.parquet")
    counted = count_records(open_table(f"{tmp_path}/*.parquet"), schema, "y", CLASSES)  # all are text
    assert counted.counts.sum() == 4
    parts[0][["y"]].to_parquet(tmp_path / "0.parquet")
    with pytest.raises(SchemaError, match="missing"):
        count_records(open_table(f"{tmp_path}/*.parquet"), schema, "y", CLASSES)


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    columns = [pyarrow.array([0.5]), pyarrow.array([1.5]), pyarrow.array(["no"])]
    for second in ("x_1", "x"):
        table = pyarrow.Table.from_arrays(columns, names=["x", second, "y"])
        pyarrow.parquet.write_table(table, tmp_path / f"{second}.parquet")
    assert open_table(f"{tmp_path}/x_*.parquet").columns == ("x", "x_1", "y")
    with pytest.raises(SchemaError, match="distinct names"):
        open_table(f"{tmp_path}/?.parquet")


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_nan_in_files_is_missing_whatever_other_records_hold(tmp_path: Path, kind: str) -> None:
    """The statistics of a file leave NaN out, and an engine may take them for bounds."""
    column, total = MissingLevel(Binned("x", [0, 1, 2])), 0
    for k, cells in enumerate(([0.5, math.nan, math.nan], [math.nan, -0.0, 1.5], [math.nan] * 3)):
        held = pyarrow.array(np.array(cells, dtype=kind), from_pandas=False)
        pyarrow.parquet.write_table(pyarrow.table({"x": held, "y": ["no"] * 3}), tmp_path / f"{k}.parquet")
        total += sum(map(math.isnan, cells))
        for names, missing in ((f"[{k}]", sum(map(math.isnan, cells))), ("*", total)):
            table = open_table(f"{tmp_path}/{names}.parquet")
            found = count_records(table, Schema([column]), "y", CLASSES)
            assert found.counts[found.codes[0] == column.gap].sum() == missing
            assert np.isnan(EngineCells(table, ["x"], 3 * (k + 1) if names == "*" else 3)["x"].cells).any()


def test_what_is_no_table_and_no_classes_are_refused() -> None:
    table, schema = ibis.memtable({"x": [0.5], "y": ["no"]}), Schema([Binned("x", [0, 1])])
    for other in (table.x, table.group_by("x")):
        with pytest.raises(InvalidInputError, match="Ibis table"):
            count_records(other, schema, "y", CLASSES)
    for classes in (["no"], ["no", "no"]):
        with pytest.raises(InvalidInputError, match="2 different classes"):
            count_records(table, schema, "y", classes)


@pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
def test_a_database_is_opened_by_its_url(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "clinic.db"
    raw: Any = duckdb.connect(file) if kind == "duckdb" else sqlite3.connect(file)
    raw.execute("CREATE TABLE visits (x DOUBLE, y VARCHAR)")
    raw.executemany("INSERT INTO visits VALUES (?, ?)", [(0.5, "no"), (0.5, "no")])
    raw.commit()
    raw.close()
    counted = count_records(
        open_table(f"{kind}://{file}", "visits"), Schema([Binned("x", [0, 1])]), "y", CLASSES
    )
    assert counted.counts.tolist() == [2]


@pytest.mark.parametrize(
    ("address", "table", "message"),
    [
        ("duckdb:///no/such/file.db", "t", "no such file"),
        ("duckdb:///no/such/file.db", None, "--table"),
        ("postgresql://someone:secret@127.0.0.1:1/base", "t", "does not answer"),
        ("nonsense://x", "t", "no engine is called"),
        ("/no/such/*.parquet", None, "Parquet"),
        ("/no/such/*.csv", None, ".parquet"),
        ("/no/such/*.parquet", "t", "--table"),
    ],
)
def test_addresses_without_a_table_are_refused(address: str, table: str | None, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as refusal:
        open_table(address, table)
    assert "secret" not in str(refusal.value)


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=6), st.integers(0, 2**32))
def test_packed_codes_are_found_again(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, size, 20) for size in sizes]
    keys = pack(codes, sizes)
    assert len({tuple(k) for k in zip(*(k.tolist() for k in keys), strict=True)}) <= 20
    assert [c.tolist() for c in unpack(keys, sizes)] == [c.tolist() for c in codes]


@pytest.fixture
def database(tmp_path: Path) -> str:
    path = tmp_path / "t.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("create table raw (a varchar, y varchar)")
        connection.execute("insert into raw values ('1', 'no'), ('Quagmire', 'yes')")
        connection.execute("create view cast_to_numbers as select cast(a as integer) as a, y from raw")
    return f"duckdb://{path}"


def test_an_error_of_the_engine_quotes_no_cell(database: str) -> None:
    schema = Schema([Numeric("a", 0, 9)])
    attempts: list[Callable[[], object]] = [
        lambda: count_records(open_table(database, "cast_to_numbers"), schema, "y", ["no", "yes"]),
        lambda: list(rows_of(open_table(database, "cast_to_numbers"), ["a"], 10)),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidInputError, match="could not read") as refused:
            attempt()
        assert "Quagmire" not in "".join(traceback.format_exception(refused.value))


def test_no_engine_of_ours_writes_what_it_groups_to_files(database: str, tmp_path: Path) -> None:
    """DuckDB would, where memory is short: into .tmp where it was started, or beside the database."""
    pd.DataFrame({"a": [1]}).to_parquet(tmp_path / "a.parquet")
    for table in (open_table(database, "raw"), open_table(str(tmp_path / "*.parquet"))):
        asked = table.get_backend().raw_sql("select current_setting('temp_directory')")
        assert asked.fetchall() == [("",)]


# --- numbers with many grid points ---

GRIDS = [
    Numeric("x", 0, 1000),
    Numeric("x", "-3.7", 100, step="0.1"),
    Numeric("x", "1/3", 30, step="1/7"),
    Numeric("x", -12, 13, step="0.025"),
    Binned("x", [Fraction(k, 10) for k in range(-30, 400)]),
    Numeric("x", -300, 6000, step=300),
    Binned("x", [float(k**1.5) for k in range(200)]),
]


@pytest.mark.parametrize("name", ["duckdb", "sqlite", "postgres", "spark"])
@pytest.mark.parametrize("column", GRIDS)
def test_codes_on_fine_grids_are_those_of_memory(
    name: str, column: Any, request: pytest.FixtureRequest
) -> None:
    """On, just below and just above every cut, far beyond the bounds, and anywhere between."""
    cuts = column.cuts()[1]
    near = [float(np.nextafter(t, to)) for t in cuts for to in (-math.inf, t, math.inf)]
    beyond = [-1e308, 1e308, 5e-324, -5e-324, 0.0, -0.0, 2.0**53 + 2, None]
    between = np.random.default_rng(0).uniform(cuts[0] - 9, cuts[-1] + 9, 300).tolist()
    rows: Rows = {"x": [*near, *beyond, *between]}
    rows["y"] = [CLASSES[k % 2] for k in range(len(rows["x"]))]
    schema, kinds = Schema([MissingLevel(column)]), {"x": "float", "y": "text"}
    with anywhere(name, rows, kinds, request) as table:
        assert same(count_records(table, schema, "y", CLASSES), in_memory(rows, kinds, schema, CLASSES))


@pytest.mark.parametrize(("column", "is_computed"), list(zip(GRIDS, [1, 1, 0, 1, 1, 1, 0], strict=True)))
def test_a_number_on_an_exact_grid_is_one_comparison(column: Any, is_computed: int) -> None:
    """4,000 comparisons take 200 times as long; thirds and sevenths are no quotients that doubles hold."""
    table = ibis.table({"x": "float64", "y": "string"}, name="t")
    code = column_code(Cell(table.x, "x", "duckdb"), column)
    sql = str(ibis.to_sql(table.select(code=code), dialect="duckdb"))
    assert (len(sql) < 5000) == bool(is_computed)
    # More than this takes half as long again in DuckDB.
    assert (sql.count("LEAST(") == 2 and "BIT" not in sql) or not is_computed
    assert "* CAST(1 AS DOUBLE) AS" not in sql


@pytest.mark.parametrize("one", [1.0, 2.0])
def test_one_record_does_not_decide_which_others_meet_a_condition(tmp_path: Path, one: float) -> None:
    """DuckDB takes statistics of Parquet files for bounds, and they leave NaN out; NaN is its largest number.

    The two tables are neighbours, and their counts differ in one record.
    """
    path, schema = tmp_path / "a.parquet", Schema([MissingLevel(Binned("x", [0, 1, 2]))])
    x = pyarrow.array([one] + [math.nan] * 50, from_pandas=False)
    pyarrow.parquet.write_table(pyarrow.table({"x": x, "y": ["no"] * 51}), path)
    connection = ibis.duckdb.connect()
    table = connection.read_parquet(path)
    connection.raw_sql(f"CREATE VIEW above AS FROM '{path}' WHERE x > 1.5")
    for above in (table.filter(table.x > 1.5), connection.table("above")):
        assert count_records(above, schema, "y", CLASSES).n_records == 50 + (one > 1.5)
        assert rows_in(above) == sum(len(part) for part in rows_of(above, ["x"], 20)) == 50 + (one > 1.5)
    said = table.mutate(x=(table.x <= 1.5).cast("float64"))
    assert count_records(said, schema, "y", CLASSES).counts.tolist() == ([51] if one > 1.5 else [50, 1])
    connection.disconnect()


@pytest.mark.parametrize("one", [1.0, 2.0])
def test_one_record_does_not_decide_for_others_in_spark(spark: Any, tmp_path: Path, one: float) -> None:
    path = tmp_path / "a.parquet"
    x = pyarrow.array([one] + [math.nan] * 10, from_pandas=False)
    pyarrow.parquet.write_table(pyarrow.table({"x": x, "y": ["no"] * 11}), path)
    table = spark.read_parquet(str(path))
    schema = Schema([MissingLevel(Binned("x", [0, 1, 2]))])
    for rows in (table.filter(table.x > 1.5), table.filter(table.x != 1.0)):
        assert count_records(rows, schema, "y", CLASSES).n_records == 10 + (one > 1.5)


def test_a_locked_configuration_of_duckdb_is_told() -> None:
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE t AS SELECT 1.0 AS x, 'no' AS y FROM range(3)")
    connection.raw_sql("SET lock_configuration = true")
    with pytest.raises(InvalidInputError, match=r"is locked.*before it is locked: SET disabled_opt"):
        rows_in(connection.table("t"))
    connection.disconnect()
    connection = ibis.duckdb.connect()
    connection.raw_sql("CREATE TABLE t AS SELECT 1.0 AS x, 'no' AS y FROM range(3)")
    connection.raw_sql("SET disabled_optimizers = 'statistics_propagation, filter_pushdown, join_order'")
    connection.raw_sql("SET lock_configuration = true")
    assert rows_in(connection.table("t")) == 3
    connection.disconnect()


@settings(max_examples=60, deadline=None)
@given(
    low=st.integers(-(10**6), 10**6),
    scale=st.integers(0, 6),
    step=st.integers(1, 500),
    top=st.integers(10, 4000),
    seed=st.integers(0, 2**32),
)
def test_the_computed_position_is_the_code(low: int, scale: int, step: int, top: int, seed: int) -> None:
    """By the arithmetic of doubles that the expression stands for, rounding as engines do, or truncating."""
    unit = 10**scale
    column = Numeric("x", Fraction(low, unit), Fraction(low + top * step, unit), Fraction(step, unit))
    reached, cuts = column.cuts()
    table = ibis.table({"x": "float64"}, name="t")
    assert grid_code(Cell(table.x, "x", "duckdb"), column, reached, cuts) is not None
    assert cuts == [
        t for k in range(1, column.top + 1) if column.low < (t := column.threshold(k)) <= column.high
    ]
    a, b, d = grid_of(column, reached, cuts)
    t = np.array(cuts)
    x = np.concatenate([t, np.nextafter(t, -math.inf), np.nextafter(t, math.inf), [-1e300, 1e300]])
    x = np.concatenate([x, np.random.default_rng(seed).uniform(t[0], t[-1], 50)])
    first, width = Fraction(a, d), Fraction(b, d)
    moved = np.maximum(np.minimum(x, t[-1]), float(first - width / 2))
    position = (moved + float(width * (Fraction(1, 2) - Fraction(1, 1024)) - first)) * float(1 / width)
    for rounded in (np.rint, np.trunc):
        q = rounded(position)
        by = d if d & (d - 1) else 1
        found = q + (x >= (q * float(width * by) + float(first * by)) / float(by))
        assert (found + reached).tolist() == column.code(x).tolist()


# --- types of PostgreSQL, and of other engines ---


def typed(address: str, kind: str, values: list[str | None]) -> Any:
    """A table of PostgreSQL whose column x has a type of its own."""
    import psycopg

    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS typed CASCADE")
        connection.execute(f"CREATE TABLE typed (x {kind}, y TEXT)".encode())
        for value in values:
            connection.execute(f"INSERT INTO typed VALUES (%s::{kind}, 'no')".encode(), (value,))
    return open_table(address, "public.typed")


def test_blanks_that_fill_up_char_are_no_part_of_its_cells(postgres: str) -> None:
    """Counts, predictions and the SQL of a card compare the same text."""
    table = typed(postgres, "char(6)", ["a", "bc", " d", None])
    schema = Schema([Categorical("x", ["a", "bc", " d"], missing="a")])
    counted = count_records(table, schema, "y", CLASSES)
    assert (counted.codes[0].tolist(), counted.counts.tolist()) == ([0, 1, 2], [2, 1, 1])
    (part,) = rows_of(table, ["x"], 10)
    assert part["x"].tolist() == ["a", "bc", " d", None]


@pytest.mark.parametrize("kind", ["numeric", "numeric(40, 20)"])
def test_decimals_of_postgresql_are_the_nearest_doubles_and_none_is_missing(postgres: str, kind: str) -> None:
    values = ["0.1", "0.09999999999999999999", "-5", "NaN", None, "0.0999999999999999"]
    table = typed(postgres, kind, values)
    schema = Schema([MissingLevel(Binned("x", [0, 0.1, 1]))])
    counted = count_records(table, schema, "y", CLASSES)
    frame = pd.DataFrame({"x": pd.Series([None if v is None else float(v) for v in values], dtype=object)})
    assert np.repeat(counted.codes[0], counted.counts).tolist() == sorted(schema.codes(frame)[0].tolist())
    with pytest.raises(SchemaError, match="missing values"):
        count_records(table, Schema([Binned("x", [0, 0.1, 1])]), "y", CLASSES)


def test_infinite_decimals_of_postgresql_lie_beyond_the_bounds(postgres: str) -> None:
    table = typed(postgres, "numeric", ["Infinity", "-Infinity"])
    counted = count_records(table, Schema([Binned("x", [0, 1, 2])]), "y", CLASSES)
    assert counted.codes[0].tolist() == [0, 1]
    with pytest.raises(SchemaError, match="must lie in"):
        count_records(table, Schema([Binned("x", [0, 1, 2], outside="refuse")]), "y", CLASSES)


@pytest.mark.parametrize("kind", ["numeric", "numeric(1000, 500)"])
def test_decimals_of_postgresql_beyond_doubles_are_read_as_in_memory(postgres: str, kind: str) -> None:
    """A cast of them to a double is an error of the whole query, by which one record would show itself."""
    least, most = Fraction(1, 2**1075), 2**1024 - 2**970  # half the least double; what rounds to infinity
    values: list[str | None] = ["1e400", "-1e400", "1e-400", "-1e-400", "NaN", None, "0.5", str(most)]
    values += [f"{sys.float_info.max:.0f}", str(-most), str(most - 10**250), "2.5e-324", "2.4e-324"]
    assert Fraction("2.4e-324") < least < Fraction("2.5e-324")
    table, numbers = typed(postgres, kind, values), [None if v is None else float(v) for v in values]
    frame = pd.DataFrame({"x": pd.Series(numbers, dtype=object)})
    edges = [-sys.float_info.max, 0, 5e-324, 1, sys.float_info.max]
    for column in (Binned("x", edges, missing=1), Binned("x", [0, 5e-324, 1], missing=1, na_values=["inf"])):
        schema = Schema([column])
        counted = count_records(table, schema, "y", CLASSES)
        assert np.repeat(counted.codes[0], counted.counts).tolist() == sorted(schema.codes(frame)[0].tolist())
    with pytest.raises(SchemaError, match="must lie in"):
        count_records(table, Schema([Binned("x", edges, missing=1, outside="refuse")]), "y", CLASSES)


@pytest.mark.parametrize("name", ["duckdb", "sqlite", "postgres"])
def test_infinity_is_a_marker_of_missing_values(name: str, request: pytest.FixtureRequest) -> None:
    most = sys.float_info.max
    rows: Rows = {"x": [0.5, math.inf, -math.inf, most, -most, 1.5, None], "i": [*range(6), None]}
    rows["y"], kinds = ["no"] * 7, {"x": "float", "i": "int", "y": "text"}
    with anywhere(name, rows, kinds, request) as table:
        for marker in ("inf", "-inf", "1e400", "-" + "9" * 400):
            schema = Schema(
                [
                    MissingLevel(Binned("x", [0, 1, 2], na_values=[marker])),
                    MissingLevel(Categorical("i", [0, 1], outside="ignore", na_values=[marker])),
                ]
            )
            assert same(count_records(table, schema, "y", CLASSES), in_memory(rows, kinds, schema, CLASSES))
            codes = schema.codes(pd.DataFrame(rows))[0]
            assert (codes == 2).tolist() == [v is None or str(v) == str(float(marker)) for v in rows["x"]]


def test_enumerations_of_postgresql_are_text_and_domains_are_to_be_cast(postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TYPE IF EXISTS mood CASCADE")
        connection.execute("CREATE TYPE mood AS ENUM ('sad', 'ok')")
        connection.execute("DROP DOMAIN IF EXISTS share CASCADE")
        connection.execute("CREATE DOMAIN share AS FLOAT8 CHECK (VALUE < 2)")
    schema = Schema([Categorical("x", ["sad", "ok"])])
    table = typed(postgres, "mood", ["sad", "ok"])
    assert count_records(table, schema, "y", CLASSES).codes[0].tolist() == [0, 1]
    (part,) = rows_of(table, ["x"], 10)
    assert part["x"].tolist() == ["sad", "ok"]
    shares = typed(postgres, "share", ["0.5", "1.5"])
    with pytest.raises(SchemaError, match="cast it to one of them in a view"):
        count_records(shares, Schema([Binned("x", [0, 1, 2])]), "y", CLASSES)
    shares = shares.mutate(x=shares.x.cast("float64"))
    assert count_records(shares, Schema([Binned("x", [0, 1, 2])]), "y", CLASSES).codes[0].tolist() == [0, 1]


def test_numeric_columns_of_sqlite_hold_numbers() -> None:
    connection = ibis.sqlite.connect()
    connection.con.execute("CREATE TABLE t (x NUMERIC, y TEXT)")
    connection.con.executemany("INSERT INTO t VALUES (?, 'no')", [(1,), (0.5,), ("0.25",), (None,)])
    schema = Schema([MissingLevel(Binned("x", [0, 0.5, 1, 2]))])
    counted = count_records(connection.table("t"), schema, "y", CLASSES)
    assert (counted.codes[0].tolist(), counted.counts.tolist()) == ([0, 1, 2, 3], [1, 1, 1, 1])
    connection.con.execute("INSERT INTO t VALUES ('Quagmire', 'no')")
    there = connection.table("t").filter(lambda t: t.x.notnull())
    with pytest.raises(SchemaError, match="are needed"):
        count_records(there, Schema([Binned("x", [0, 0.5, 1, 2])]), "y", CLASSES)


def test_a_category_with_a_nul_is_found_or_refused() -> None:
    schema = Schema([Categorical("x", ["a", "a\0b"])])
    rows, kinds = {"x": ["a", "a\0b"], "y": ["no"] * 2}, {"x": "text", "y": "text"}
    with engine("duckdb", rows, kinds) as table, suppress(InvalidInputError):  # DuckDB 1.1 parses no NUL
        assert count_records(table, schema, "y", CLASSES).codes[0].tolist() == [0, 1]
    with engine("sqlite", rows, kinds) as table, pytest.raises(SchemaError, match="NUL"):
        count_records(table, schema, "y", CLASSES)


# --- places and rights ---


def test_a_table_is_found_in_its_catalog_and_schema_or_refused(tmp_path: Path, postgres: str) -> None:
    import psycopg

    path = tmp_path / "a.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE SCHEMA b; CREATE TABLE b.c AS SELECT 1.0::DOUBLE AS inner_x")
        connection.execute("CREATE SCHEMA a.a; CREATE TABLE a.a.c AS SELECT 2.0::DOUBLE AS outer_x")
    with psycopg.connect(postgres, autocommit=True) as server:
        server.execute("DROP TABLE IF EXISTS c; CREATE TABLE c (inner_x INT)")
    for address, catalog, schema in ((f"duckdb://{path}", "a", "b"), (postgres, "postgres", "public")):
        for name in (f"{catalog}.{schema}.c", f"{schema}.c"):
            assert open_table(address, name).columns == ("inner_x",)
        with pytest.raises(InvalidInputError, match=f"is called '{catalog}'"):
            open_table(address, f"other.{schema}.c")
    for name in ("w.x.y.z", "x..c", ".c", "c."):
        with pytest.raises(InvalidInputError, match=r"SCHEMA\.TABLE"):
            open_table(f"duckdb://{path}", name)


def test_each_thing_that_keeps_a_table_from_being_read_is_told(postgres: str, tmp_path: Path) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS guarded; CREATE TABLE guarded (x FLOAT8, y TEXT)")
        connection.execute("DROP ROLE IF EXISTS stranger; CREATE ROLE stranger LOGIN")
    stranger = postgres.replace("//postgres:@", "//stranger:@")
    with pytest.raises(InvalidInputError, match="permission denied"):
        count_records(open_table(stranger, "guarded"), Schema([Binned("x", [0, 1])]), "y", CLASSES)
    for address, message in (
        (postgres.replace("//postgres:@", "//nobody:@"), "refused the user or the password"),
        (postgres.replace("/postgres?", "/nowhere?"), "no database of that name"),
        (postgres, "has no table 'nothing'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            open_table(address, "nothing")
    (tmp_path / "text.duckdb").write_text("no database")
    with pytest.raises(InvalidInputError, match="cannot be opened"):
        open_table(f"duckdb://{tmp_path}/text.duckdb", "t")


def test_a_wrong_password_is_told_and_not_printed(postgres: str, guarded: str) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS visits; CREATE TABLE visits (x FLOAT8, y TEXT)")
        connection.execute("INSERT INTO visits VALUES (0.5, 'no'); GRANT SELECT ON visits TO guarded")
    schema = Schema([Binned("x", [0, 1])])
    assert count_records(open_table(guarded, "visits"), schema, "y", CLASSES).n_records == 1
    for wrong in ("swordfish", ""):
        with pytest.raises(InvalidInputError, match="refused the user or the password") as refused:
            open_table(guarded.replace("hunter2", wrong), "visits")
        assert not wrong or wrong not in "".join(traceback.format_exception(refused.value))


def test_a_connection_that_is_lost_while_records_are_counted_is_told_and_stays_booked(
    guarded: str, postgres: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS lost; CREATE TABLE lost (x FLOAT8, y TEXT)")
        connection.execute("INSERT INTO lost VALUES (0.5, 'no'), (0.5, 'yes')")
        connection.execute("GRANT SELECT ON lost TO guarded")
    table, whole = open_table(guarded, "lost"), EngineCount.counted

    def cut(self: EngineCount) -> CountedRecords:
        with psycopg.connect(postgres, autocommit=True) as connection:
            ends = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'guarded'"
            connection.execute(ends.encode())
        return whole(self)

    monkeypatch.setattr(EngineCount, "counted", cut)
    book = Ledger.create(tmp_path / "ledger.db", epsilon=2.0, delta=0.9)
    model = PrivateHalfspaceClassifier(
        1.0, schema=Schema([Binned("x", [0, 1])]), classes=CLASSES, ledger=book
    )
    with pytest.raises(InvalidInputError, match="connection to the engine was lost") as lost:
        model.fit(table, "y")
    assert is_booked(lost.value)
    assert "hunter2" not in "".join(traceback.format_exception(lost.value))
    assert [entry.state for entry in book.entries()] == ["reserved"]
    assert book.total().epsilon == 1.0
    monkeypatch.undo()
    model.fit(open_table(guarded, "lost"), "y")
    assert book.total().epsilon == 2.0


def test_a_driver_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setitem(sys.modules, "ibis.backends.postgres", None)
    with pytest.raises(InvalidInputError, match="driver for postgresql is not installed"):
        open_table("postgresql://someone:secret@127.0.0.1:1/base", "t")


# --- expressions that are no tables of records ---


@pytest.mark.parametrize(
    "mix",
    [
        lambda t: t.join(t.view(), "y").select("x", "y"),
        lambda t: t.mutate(x=t.x - t.x.max()),
        lambda t: t.mutate(x=t.x.lag().over(ibis.window(order_by="x"))),
        lambda t: t.group_by("y").aggregate(x=t.x.max()),
        lambda t: t.limit(1),
        lambda t: t.distinct(),
        lambda t: t.filter(t.x.isin(t.view().filter(lambda s: s.y == "no").x)),
        lambda t: t.union(t.view().mutate(x=ibis._.x + 1)),
        lambda t: t.union(t.get_backend().table(t.get_name().upper())),
        lambda t: t.union(t.get_backend().table(t.get_name(), database="main")),
        lambda t: t.union(ibis.memtable({"x": [0.5], "y": ["no"]}), distinct=True),
        lambda t: t.mutate(part=t.y.split("o").unnest()),
        lambda t: t.mutate(z=t.x).pivot_longer(["x", "z"], values_to="x"),
        lambda t: t.mutate(x=ibis.array([t.x, t.x])).unnest("x"),
    ],
)
def test_steps_that_let_a_record_into_several_rows_are_refused(mix: Callable[[Any], Any]) -> None:
    schema = Schema([Binned("x", [0, 1, 2])])
    with engine("duckdb", {"x": [0.5, 1.5], "y": ["no", "yes"]}, {"x": "float", "y": "text"}) as table:
        with pytest.raises(InvalidInputError, match="mixes rows"):
            count_records(mix(table), schema, "y", CLASSES)
        other = ibis.memtable({"x": [0.5, 1.5], "y": ["no", "yes"]})
        plain = table.filter(table.x > 0).mutate(x=ibis._.x * 1).union(other).order_by("x")
        assert count_records(plain, schema, "y", CLASSES).n_records == 4


# --- tables of mostly distinct rows ---


def many_columns(n: int, seed: int) -> tuple[Rows, dict[str, str], Schema]:
    rng = np.random.default_rng(seed)
    rows: Rows = {f"x{k}": rng.choice(["a", "b", "c", "d"], n).tolist() for k in range(40)}
    rows["y"] = [CLASSES[int(v == "a")] for v in rows["x0"]]
    rows = {name: [*cells, *cells[:5]] for name, cells in rows.items()}  # some are alike
    schema = Schema([Categorical(f"x{k}", ["a", "b", "c", "d"]) for k in range(40)], intercept=True)
    return rows, dict.fromkeys(rows, "text"), schema


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for 100 records of 161 features, and blocks of 64."""
    monkeypatch.setattr("privopt.problems.tables.engines._MOST_NUMBERS", 161 * 100)
    monkeypatch.setattr("privopt.problems.tables.engines._BLOCK_NUMBERS", 161 * 64)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("name", ["duckdb", "sqlite", "postgres"])
def test_a_table_of_mostly_distinct_rows_is_fitted_in_parts(
    name: str, request: pytest.FixtureRequest
) -> None:
    """The same sums as in memory, up to their last digits."""
    rows, kinds, schema = many_columns(300, 0)
    frame = pd.DataFrame(rows)
    facts: dict[str, Any] = {"schema": schema, "classes": CLASSES, "insecure_seed": 3}
    fits: list[dict[str, Any]] = [{"mechanism": "dp-gd"}]
    if name == "duckdb":  # what is read in parts is the same for all mechanisms
        fits += [{"mechanism": "sufficient-statistics"}, {"data_norm": 2.0}]
    with anywhere(name, rows, kinds, request) as table:
        for kind in fits:
            expected = PrivateLogisticRegression(5.0, **facts, **kind).fit(
                frame.drop(columns="y"), frame["y"]
            )
            found = PrivateLogisticRegression(5.0, **facts, **kind).fit(table, "y")
            assert np.allclose(found.coef_, expected.coef_, rtol=0, atol=1e-9)
            assert found.spend_ == expected.spend_
        there = evaluate(found, table, "y", insecure_seed=1)
        here = evaluate(found, frame.drop(columns="y"), frame["y"], insecure_seed=1)
        assert there.histogram.counts.tolist() == here.histogram.counts.tolist()


@pytest.mark.usefixtures("small_memory")
def test_what_needs_all_records_at_once_says_so() -> None:
    rows, kinds, schema = many_columns(300, 1)
    facts: dict[str, Any] = {"schema": schema, "classes": CLASSES}
    with engine("duckdb", rows, kinds) as table:
        with pytest.raises(SchemaError, match="a linear model, which adds records up in parts"):
            PrivateHalfspaceClassifier(1.0, **facts).fit(table, "y")
        with pytest.raises(InvalidInputError, match="picks records"):
            PrivateLogisticRegression(5.0, mechanism="dp-sgd", **facts).fit(table, "y")


@pytest.mark.usefixtures("small_memory")
def test_a_refused_value_in_any_part_is_refused() -> None:
    rows, kinds, schema = many_columns(300, 2)
    rows["x7"][17] = "Quagmire"
    with engine("duckdb", rows, kinds) as table, pytest.raises(SchemaError, match="'x7': holds a category"):
        PrivateLogisticRegression(5.0, schema=schema, classes=CLASSES).fit(table, "y")


@pytest.mark.parametrize("ledger", [True, False])
def test_records_that_do_not_fit_as_keys_are_refused_after_the_booking(
    ledger: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("privopt.problems.tables.engines._MOST_NUMBERS", 400)
    rows, kinds, schema = many_columns(300, 3)
    book = Ledger.create(tmp_path / "ledger.db", epsilon=9.0, delta=0.1) if ledger else None
    with engine("duckdb", rows, kinds) as table, pytest.raises(SchemaError, match="do not fit") as refused:
        PrivateLogisticRegression(5.0, schema=schema, classes=CLASSES, ledger=book).fit(table, "y")
    if book is not None:
        assert len(book.entries()) == 1
        assert is_booked(refused.value)
