"""No reader lets one cell change how another record is read, or turn a lenient schema into a refusal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.mechanisms.estimators.learn_schema import column_types
from privopt.problems import (
    Binned,
    Categorical,
    Date,
    InvalidInputError,
    MissingLevel,
    Numeric,
    Schema,
    read_table,
)
from privopt.problems.arrays import record_counts
from privopt.problems.tables.engine_cells import EngineCells
from privopt.problems.tables.engine_persons import EnginePersons
from privopt.problems.tables.engines import EngineCount, count_records, rows_of
from privopt.problems.tables.parquet_text import answer
from privopt.problems.tables.sources import open_table

BIG = 1 << 53
SCHEMA = Schema(
    [
        MissingLevel(Binned("whole", [-BIG, 0, BIG, 5258986265376043509, 2**63])),
        MissingLevel(Numeric("real", -1, 1, step="1/1000", na_values=["none given", -0.5])),
        MissingLevel(Categorical("word", ["a", "\u00e9", "NA", "1"], "ignore", na_values=["?"])),
        MissingLevel(Categorical("level", [0, 1, -7], "ignore", na_values=[9])),
        MissingLevel(Date("day", ["1970-01-01", "2000-02-29", "2024-12-31"], na_values=["1900-01-01"])),
    ]
)
KINDS = {
    "whole": pa.int64(),
    "real": pa.float64(),
    "word": pa.string(),
    "level": pa.int64(),
    "day": pa.date32(),
}
WHOLE = st.sampled_from(
    [None, 0, 1, BIG - 1, BIG + 1, 5258986265376043509, 5258986265376043508, 2**63 - 1, -(2**63)]
)
REAL = st.sampled_from(
    [None, 0.1, -0.0, -0.5, 0.5005, 1e300, float("inf"), float("-inf"), float("nan"), 5e-324]
)
WORD = st.sampled_from([None, "a", "\u00e9", "e\u0301", "NA", "?", "x" * 400, "a ", "1", "1.0"])
LEVEL = st.sampled_from([None, 0, 1, -7, 9, BIG + 1])
DAY = st.sampled_from(
    [None, *(date(*day) for day in ((1, 1, 1), (1900, 1, 1), (1969, 12, 31), (2000, 2, 29), (9999, 12, 31)))]
)
ROW = st.tuples(WHOLE, REAL, WORD, LEVEL, DAY)
ROWS = st.lists(ROW, min_size=2, max_size=6)
WRITTEN = st.sampled_from(
    [
        "",
        "x",
        "NA",
        "1e999",
        "9" * 400,
        "5.5",
        "-inf",
        "nan",
        "\u0663",
        "5258986265376043509",
        "2000-02-30",
        "1999-12-31T24:00",
        "20240229",
    ]
)
SETTINGS = settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
ENGINES = settings(
    SETTINGS, max_examples=6, phases=[Phase.explicit, Phase.generate]
)  # shrinking takes minutes
Rows = list[tuple[Any, ...]]


def arrow(rows: Rows) -> Any:
    columns = zip(*rows, strict=True)
    return pa.table({n: pa.array(c, kind) for (n, kind), c in zip(KINDS.items(), columns, strict=True)})


def in_dictionaries(rows: Rows) -> Any:
    table = arrow(rows)
    return pa.table({name: table[name].dictionary_encode() for name in KINDS})


def in_polars(rows: Rows) -> Any:
    return pytest.importorskip("polars").from_arrow(arrow(rows))


def in_nullable(rows: Rows) -> pd.DataFrame:
    with np.errstate(invalid="ignore"):  # pandas 2.2 tries whether 1e300 is a whole number, and warns
        return pd.DataFrame(rows, columns=list(KINDS)).convert_dtypes()


def from_parquet(rows: Rows, folder: Path) -> Any:
    pa.parquet.write_table(arrow(rows), folder / "t.parquet")
    return read_table(folder / "t.parquet")


IN_MEMORY: dict[str, Callable[[Rows, Path], Any]] = {
    "lists": lambda rows, folder: dict(zip(KINDS, map(list, zip(*rows, strict=True)), strict=True)),
    "pandas": lambda rows, folder: pd.DataFrame(rows, columns=list(KINDS)),
    "nullable": lambda rows, folder: arrow(rows).to_pandas(types_mapper=pd.ArrowDtype),
    "numpy nullable": lambda rows, folder: in_nullable(rows),
    "categorical": lambda rows, folder: pd.DataFrame(rows, columns=list(KINDS)).astype("category"),
    "arrow": lambda rows, folder: arrow(rows),
    "dictionaries": lambda rows, folder: in_dictionaries(rows),
    "polars": lambda rows, folder: in_polars(rows),
    "parquet": from_parquet,
}


def codes(table: Any) -> list[list[int]]:
    return np.transpose(SCHEMA.codes(table)).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("reader", IN_MEMORY)
@SETTINGS
@given(rows=ROWS, other=ROW, place=st.integers(0, 1))
def test_one_record_changes_its_own_codes_alone(
    reader: str, tmp_path: Path, rows: Rows, other: tuple[Any, ...], place: int
) -> None:
    """And all readers read alike: each record as it is read alone, as Python objects."""
    made = IN_MEMORY[reader]
    expected = [codes({n: [v] for n, v in zip(KINDS, row, strict=True)})[0] for row in rows]
    assert codes(made(rows, tmp_path)) == expected
    changed = codes(made([*rows[:place], other, *rows[place + 1 :]], tmp_path))
    assert [c for i, c in enumerate(changed) if i != place] == [
        c for i, c in enumerate(expected) if i != place
    ]


@SETTINGS
@given(rows=ROWS, cell=WRITTEN, place=st.integers(0, 1), column=st.integers(0, 4), quoted=st.booleans())
def test_one_cell_of_a_file_changes_its_own_record_alone(
    tmp_path: Path, rows: Rows, cell: str, place: int, column: int, quoted: bool
) -> None:
    lines = [["" if v is None else str(v) for v in row] for row in rows]
    expected = [codes({n: [v or None] for n, v in zip(KINDS, line, strict=True)})[0] for line in lines]
    lines[place][column] = cell
    mark = '"' if quoted else ""
    text = "\n".join(",".join(f"{mark}{v}{mark}" for v in line) for line in [list(KINDS), *lines])
    (tmp_path / "t.csv").write_text(text + "\n", "utf-8")
    for as_text in (SCHEMA.text_columns, ["word"]):
        found = codes(read_table(tmp_path / "t.csv", as_text))
        assert [c for i, c in enumerate(found) if i != place] == [
            c for i, c in enumerate(expected) if i != place
        ]


@pytest.mark.parametrize("reader", ["csv", "quoted csv"])
def test_the_least_64_bit_integer_is_not_missing(tmp_path: Path, reader: str) -> None:
    """pandas before 3.1 reads it as missing if another cell of its column is."""
    for least, other in ((str(-(2**63)), ""), ("", str(-(2**63)))):
        mark = '"' if reader == "quoted csv" else ""
        (tmp_path / "t.csv").write_text(f"a,b\n{mark}{least}{mark},1\n{mark}{other}{mark},2\n")
        found = read_table(tmp_path / "t.csv")["a"]
        assert sorted(found.dropna()) == [float(-(2**63))]
        assert found.isna().sum() == 1


# Cells as engines hold them: with types of their own, but for SQLite, where any cell can be of any type.
TYPED = st.lists(ROW, min_size=1, max_size=40)
ODD = st.sampled_from(
    [
        "", "x", "NA", " Inf ", "-infinity", "TRUE", "false", "\tnan", "?", "None Given", "9", "1e999",
        "9" * 400, "5.5", "5.", b"1", 2.5, 1, 0.0,
    ]
)  # fmt: skip
WRITTEN_DAY = st.sampled_from(
    [
        None, "", "NA", "x", 20000229, 2.5, "1900-01-01 00:00", "1969-12-31", "2000-02-29T23:59:59+02:00",
        "2001-02-29", "1900-02-29", "2000-1-1", "2000-01-01 BC", " 2000-01-01", "2000-01-01 ", "0000-01-01",
        "10000-01-01", "2000-01-01\n",
    ]
)  # fmt: skip
UNTYPED = st.lists(
    st.tuples(WHOLE | ODD, REAL | ODD, WORD | st.just(b"a"), LEVEL | ODD, WRITTEN_DAY | ODD),
    min_size=1,
    max_size=40,
)
WRITTEN_DAYS = st.lists(
    st.tuples(WHOLE, REAL, WORD, LEVEL, WRITTEN_DAY.filter(lambda v: not isinstance(v, int | float))),
    min_size=1,
    max_size=40,
)


def create(execute: Callable[[str], Any], double: str, text: str, day: str = "DATE") -> None:
    columns = f'whole BIGINT, "real" {double}, word {text}, level BIGINT, "day" {day}, y {text}'
    execute(f"CREATE TABLE readers ({columns})")


def in_folder(rows: Rows, folder: Path) -> Any:
    for old in folder.glob("*.parquet"):
        old.unlink()
    labelled = arrow(rows).append_column("y", pa.array(["no"] * len(rows)))
    for k, part in enumerate((labelled[:1], labelled[1:])):
        pa.parquet.write_table(part, folder / f"{k}.parquet")
    return open_table(f"{folder}/*.parquet")


def in_database(rows: Rows, kind: str, day: str = "DATE") -> Any:
    ibis = pytest.importorskip("ibis")
    connection = ibis.duckdb.connect() if kind == "duckdb" else ibis.sqlite.connect()
    create(connection.con.execute, "DOUBLE", "VARCHAR", day)
    connection.con.executemany("INSERT INTO readers VALUES (?, ?, ?, ?, ?, 'no')", rows)
    return connection.table("readers")


def in_postgres(rows: Rows, url: str, day: str = "DATE") -> Any:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS readers")
        create(lambda query: cursor.execute(query.encode()), "DOUBLE PRECISION", "TEXT", day)
        cursor.executemany("INSERT INTO readers VALUES (%s, %s, %s, %s, %s, 'no')", rows)
    return open_table(url, "public.readers")


def in_spark(rows: Rows, spark: Any, day: str = "DATE") -> Any:
    types = f"whole BIGINT, real DOUBLE, word STRING, level BIGINT, day {day}, y STRING"
    spark._session.createDataFrame([(*row, "no") for row in rows], types).createOrReplaceTempView("readers")
    return spark.table("readers")


def check_counted_alone(table: Any, rows: Rows) -> list[list[int]]:
    """Each record is counted with the codes that it has alone in memory; return those."""
    expected = sorted(codes({n: [v] for n, v in zip(KINDS, row, strict=True)})[0] for row in rows)
    counted = count_records(table, SCHEMA, "y", ["no", "yes"])
    assert np.repeat(np.transpose(counted.codes), counted.counts, axis=0).tolist() == expected
    return expected


def check_alone(table: Any, rows: Rows) -> None:
    """So are they when they are handed over for predictions."""
    expected = check_counted_alone(table, rows)
    (part,) = rows_of(table, list(KINDS), 100)
    assert sorted(codes(part)) == expected


@ENGINES
@given(rows=TYPED)
def test_a_folder_of_parquet_files_is_read_record_by_record(tmp_path: Path, rows: Rows) -> None:
    pytest.importorskip("ibis")
    check_alone(in_folder(rows, tmp_path), rows)


@ENGINES
@given(rows=TYPED)
def test_duckdb_is_read_record_by_record(rows: Rows) -> None:
    check_alone(in_database(rows, "duckdb"), rows)


@ENGINES
@given(rows=TYPED)
def test_postgresql_is_read_record_by_record(postgres: str, rows: Rows) -> None:
    pytest.importorskip("ibis")
    check_alone(in_postgres(rows, postgres), rows)


@ENGINES
@given(rows=TYPED)
def test_spark_is_read_record_by_record(spark: Any, rows: Rows) -> None:
    check_counted_alone(in_spark(rows, spark), rows)


@ENGINES
@given(rows=WRITTEN_DAYS)
def test_written_dates_are_read_alike_in_engines(postgres: str, rows: Rows) -> None:
    pytest.importorskip("ibis")
    check_alone(in_database(rows, "duckdb", "VARCHAR"), rows)
    check_alone(in_postgres(rows, postgres, "TEXT"), rows)


@ENGINES
@given(rows=WRITTEN_DAYS)
def test_written_dates_are_read_alike_in_spark(spark: Any, rows: Rows) -> None:
    check_counted_alone(in_spark(rows, spark, "STRING"), rows)


@settings(ENGINES, max_examples=12)
@given(rows=UNTYPED)
def test_sqlite_is_read_record_by_record_whatever_the_type_of_a_cell(rows: Rows) -> None:
    """As in memory, once it is stored: SQLite turns "5.5" into a number there, and 9 into text."""
    table = in_database(rows, "sqlite")
    query = 'SELECT whole, "real", word, level, "day" FROM readers'
    stored = table.get_backend().con.execute(query).fetchall()
    check_alone(table, stored)


# Bytes that are no text in UTF-8, and text with a NUL, beside readable cells of a column of any type.
CELLS = [
    b"a",
    b"\xff\xfe",
    b"1",
    b"1\xff",
    b"2000-02-29",
    b"2000-02-29\xff",
    b"a\x00",
    b"1\x00",
    b"\xed\xa0\x80",
    b"\xc3\xa9",
]


@pytest.mark.parametrize("kind", ["TEXT", "REAL", "INTEGER"])
def test_a_text_of_sqlite_that_is_not_utf8_is_its_own_record_s(kind: str) -> None:
    """With one such cell in it the query of a column of numbers or dates failed, and so did predictions."""
    ibis = pytest.importorskip("ibis")
    connection = ibis.sqlite.connect()
    connection.con.execute(f"CREATE TABLE t (x {kind}, y TEXT)")
    connection.con.executemany("INSERT INTO t VALUES (CAST(? AS TEXT), 'no')", [(cell,) for cell in CELLS])
    texts = [cell.decode("utf-8", "surrogateescape") for cell in CELLS]
    whole = Categorical("x", [0, 1], "ignore")
    dated = Date("x", ["1970-01-01", "2000-01-01", "2024-12-31"])
    readable = [
        Binned("x", [0, 1, 2]),
        *([dated, Categorical("x", ["a", "1"], "ignore")] if kind == "TEXT" else [whole]),
    ]
    for column in readable:
        schema, table = Schema([MissingLevel(column)]), connection.table("t")
        found = count_records(table, schema, "y", ["no", "yes"])
        expected = [schema.codes({"x": [text]})[0][0] for text in texts]
        assert np.repeat(found.codes[0], found.counts).tolist() == sorted(expected)
        (part,) = rows_of(table, ["x"], 100)
        assert schema.codes(part)[0].tolist() == expected
        assert connection.con.text_factory is str


def in_parquet(file: Path, cells: list[bytes | None], **others: Any) -> None:
    """A file whose text x need not be UTF-8: Arrow takes its bytes as they are."""
    text = pa.Array.from_buffers(pa.string(), len(cells), pa.array(cells, pa.binary()).buffers())
    pyarrow.parquet.write_table(pa.table({"x": text, "y": pa.array(["no"] * len(cells)), **others}), file)


def opened(pattern: str, by: str) -> Any:
    ibis = pytest.importorskip("ibis")
    return open_table(pattern) if by == "privopt" else ibis.duckdb.connect().read_parquet(pattern)


@pytest.mark.parametrize("by", ["privopt", "ibis"])
def test_a_text_of_parquet_files_that_is_not_utf8_is_its_own_record_s(tmp_path: Path, by: str) -> None:
    """DuckDB ends a query at such a cell, after the booking."""
    in_parquet(tmp_path / "t.parquet", [*CELLS, None])
    memory, table = read_table(tmp_path / "t.parquet"), opened(f"{tmp_path}/*.parquet", by)
    dates = ["1970-01-01", "2000-01-01", "2024-12-31"]
    for column in (Binned("x", [0, 1, 2]), Date("x", dates), Categorical("x", ["a", "1"], "ignore")):
        schema = Schema([MissingLevel(column)])
        expected = schema.codes(memory)[0].tolist()
        found = count_records(table, schema, "y", ["no", "yes"])
        assert np.repeat(found.codes[0], found.counts).tolist() == sorted(expected)
        (part,) = rows_of(table, ["x"], 100)
        assert schema.codes(part)[0].tolist() == expected
    cells = EngineCells(table, ["x"], len(memory))["x"]
    alike = [b"" if "\ufffd" in c.decode("utf-8", "replace") else c.decode() for c in CELLS]
    seen = dict(zip(cells.cells, cells.counts.tolist(), strict=True))
    assert seen == {None: 1, **{cell: alike.count(cell) for cell in alike}}


def test_cells_beside_a_text_that_is_not_utf8_stay_what_they_are(tmp_path: Path) -> None:
    """Of every type, in files of different columns and types, in the order of the records."""
    pytest.importorskip("ibis")
    days = pa.array([date(1, 1, 1), None, date(2000, 2, 29)])
    others = {
        "whole": pa.array([BIG + 1, None, -BIG]),
        "exact": pa.array([Decimal("0.10"), None, Decimal("-7.25")]),
        "real": pa.array([0.1, float("nan"), 1e300]),
        "day": days,
        "time": days.cast(pa.timestamp("s")).cast(pa.timestamp("us", "Asia/Tokyo")),
        "word": pa.array(["a", None, "\u00e9"]).dictionary_encode(),
    }

    def write(unreadable: bytes) -> list[list[Any]]:
        in_parquet(tmp_path / "0.parquet", [b"a", unreadable, None], **others)
        in_parquet(tmp_path / "1.parquet", [unreadable], real=pa.array([7]), word=pa.array([8]))
        parts = rows_of(open_table(f"{tmp_path}/*.parquet"), ["x", "y", *others], 3)
        return [row for part in parts for row in part.astype(object).to_numpy().tolist()]

    clean, mended = write(b"other"), write(b"\xff")
    assert [row[0] == "other" for row in clean] == [False, True, False, True]
    assert len({row[0] for row in mended} - {"a", None}) == 1
    assert repr([row[1:] for row in mended]) == repr([row[1:] for row in clean])


def test_text_that_is_not_utf8_in_views_and_sql_is_its_own_record_s(tmp_path: Path) -> None:
    """What DuckDB makes of the other cells stays as it is, with parts of paths that are columns."""
    connection = pytest.importorskip("ibis").duckdb.connect()
    one, pattern, cells = f"'{tmp_path}/z=1/t.parquet'", f"'{tmp_path}/*/*.parquet'", [b"a", b"?", b"b"]

    def write(unreadable: bytes) -> None:
        for part, keys in (("z=1", [1, 2, 3]), ("z=p%20q", [4, 5, 6])):
            (tmp_path / part).mkdir(exist_ok=True)
            parts = [unreadable if cell == b"?" else cell for cell in cells]
            in_parquet(tmp_path / part / "t.parquet", parts, k=pa.array(keys))

    write(b"?")
    for name, query in {
        "one": f"SELECT upper(x) AS x, y FROM read_parquet({pattern}, hive_partitioning = false)",
        "two(k, z)": f"SELECT t.x || '!', z FROM {pattern} AS t WHERE k < 6",
        "three": "SELECT k, o.z FROM two AS o WHERE k <> 'b!'",
        "four": f"WITH one AS (FROM {one}) SELECT one.x, p.k FROM one JOIN parquet_scan([{one}]) p "
        "USING (k) ORDER BY k",
    }.items():
        connection.con.execute(f"CREATE VIEW {name} AS {query}")
    tables = [connection.table(name) for name in ("one", "two", "three", "four")]
    tables += [tables[1].filter(tables[1].z == "1"), connection.read_parquet(pattern[1:-1])]
    clean = [answer(table).to_pylist() for table in tables]
    write(b"\xff")
    for table, rows in zip(tables, clean, strict=True):
        found = answer(table).to_pylist()
        assert len({repr(cell) for row in found for cell in row.values() if "UTF" in repr(cell)}) == 1
        for was, row in zip(rows, found, strict=True):
            for name, cell in row.items():
                assert was[name] == cell or ("?" in was[name] and "UTF" in cell.upper())
    schema = Schema([Categorical("x", ["A"], "ignore")])
    counted = count_records(tables[0], schema, "y", ["no", "yes"])
    assert counted.counts.tolist() == [2, 4]


def test_text_that_is_not_utf8_in_files_of_unknown_options_is_refused_without_a_value(tmp_path: Path) -> None:
    connection = pytest.importorskip("ibis").duckdb.connect()
    in_parquet(tmp_path / "t.parquet", [b"a", b"secret\xff"])
    connection.con.execute(
        f"CREATE VIEW own AS FROM read_parquet('{tmp_path}/*.parquet', file_row_number = true)"
    )
    with pytest.raises(InvalidInputError, match="could not read the table") as found:
        count_records(
            connection.table("own"), Schema([Categorical("x", ["a"], "ignore")]), "y", ["no", "yes"]
        )
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
def test_a_database_of_sqlite_in_utf16_is_refused_before_a_record_is_read(encoding: str) -> None:
    """Categories were looked up by the order of their bytes in UTF-8, and cells came back as such bytes."""
    ibis = pytest.importorskip("ibis")
    connection = ibis.sqlite.connect()
    connection.con.execute(f"PRAGMA encoding = '{encoding}'")
    connection.con.execute("CREATE TABLE t (x TEXT, y TEXT)")
    table = connection.table("t")
    with pytest.raises(InvalidInputError, match="holds text as UTF-16"):
        EngineCount.of(table, Schema([Categorical("x", ["a", "b"])]), "y", ["no", "yes"])
    with pytest.raises(InvalidInputError, match="holds text as UTF-16"):
        EngineCells(table, ["x"], 0)


NOTED = MissingLevel(
    Binned(
        "x", [-BIG, -1234.5, 0, 1234.5, BIG], na_values=["-999,00"], decimal=",", thousands=".",
        symbols=["%", "\u20ac"], words={"none": 0},
    )
)  # fmt: skip
NOTE = st.sampled_from(
    [
        None, "", "1.234,5", "-1.234,5 %", "\u20ac 0", "none", "None", "1.5", "1234.5", "-999,00", "x", "?",
        "9" * 400, "1" + ".234" * 100 + ",5", "5\u0663", ",", "-", "12,5\u00a0\u20ac",
    ]
)  # fmt: skip
NOTES = st.lists(NOTE, min_size=2, max_size=6)
# The codes of the bins, and of a missing cell.
NOTE_CODES = {
    None: 4, "": 4, "1.234,5": 3, "-1.234,5 %": 1, "\u20ac 0": 2, "none": 2, "None": 2, "1.5": 4, "1234.5": 4,
    "-999,00": 4, "x": 4, "?": 4, "9" * 400: 3, "1" + ".234" * 100 + ",5": 3, "5\u0663": 4, ",": 4, "-": 4,
    "12,5\u00a0\u20ac": 2,
}  # fmt: skip


def noted_tables(cells: list[str | None]) -> Iterator[Any]:
    held = pa.table({"x": pa.array(cells, pa.string())})
    yield {"x": list(cells)}
    yield held
    yield held.to_pandas()
    yield held.to_pandas(types_mapper=pd.ArrowDtype)
    yield pa.table({"x": held["x"].dictionary_encode()})
    yield pd.DataFrame({"x": cells}, dtype=object).astype("category")


@SETTINGS
@given(cells=NOTES, other=NOTE, place=st.integers(0, 1))
def test_a_declared_notation_is_read_cell_by_cell(
    tmp_path: Path, cells: list[str | None], other: str | None, place: int
) -> None:
    """Also in columns of numbers in SQLite, where any cell can be text."""
    schema = Schema([NOTED])
    for held in (cells, [*cells[:place], other, *cells[place + 1 :]]):
        expected = [NOTE_CODES[cell] for cell in held]
        for table in noted_tables(held):
            assert schema.codes(table)[0].tolist() == expected
        pd.DataFrame({"x": held, "y": 0}).to_csv(tmp_path / "t.csv", index=False)
        assert schema.codes(read_table(tmp_path / "t.csv", schema.text_columns))[0].tolist() == expected


def test_a_declared_notation_is_read_in_sqlite() -> None:
    ibis = pytest.importorskip("ibis")
    connection = ibis.sqlite.connect()
    connection.con.execute("CREATE TABLE notes (x REAL, y TEXT)")
    # SQLite stores "1.5" and "1234.5" in such a column as numbers, which they then are.
    known = {cell: code for cell, code in NOTE_CODES.items() if cell not in ("1.5", "1234.5", "9" * 400)}
    connection.con.executemany("INSERT INTO notes VALUES (?, 'no')", [(cell,) for cell in known])
    found = count_records(connection.table("notes"), Schema([NOTED]), "y", ["no", "yes"])
    assert np.repeat(found.codes[0], found.counts).tolist() == sorted(known.values())


def test_partitions_of_dask_are_read_alike() -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    rows = [
        (5258986265376043509, 0.1, "a", 0, date(2000, 2, 29)),
        (None, 0.5, None, 9, "1999-12-31 12:00"),
        (BIG + 1, float("inf"), "?", None, "soon"),
        (1, None, "NA", 5, None),
    ]
    frame = pd.DataFrame(
        {n: pd.Series(c, dtype=object) for n, c in zip(KINDS, zip(*rows, strict=True), strict=True)}
    )
    parts = dataframe.from_pandas(frame, npartitions=2).to_delayed()
    assert [code for part in parts for code in codes(part.compute())] == codes(frame)


TRUE = [True, False, None, True]
DECIMALS = [Decimal("0.10"), None, Decimal("0.09999999999999999999"), Decimal("1.15")]


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (TRUE, "boolean"),
        (TRUE, object),
        (TRUE, "bool[pyarrow]"),
        ([1, 0, None, 5258986265376043509], "Int64"),
        ([Decimal("NaN"), *DECIMALS], object),
        (DECIMALS, pd.ArrowDtype(pa.decimal128(30, 20))),
        (["a", "b", None, "a"], "category"),
    ],
)
def test_nullable_types_and_decimals_are_the_same_in_partitions(cells: list[Any], kind: Any) -> None:
    dataframe = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame({"x": pd.Series(cells, dtype=kind)})
    parts = [part.compute() for part in dataframe.from_pandas(frame, npartitions=2).to_delayed()]
    text = cells[0] == "a"
    for column in (
        Categorical("x", ["a"] if text else [0, 1], "ignore"),
        Binned("x", [0, 0.1, 0.5, 1.15, 2]),
    ):
        schema = Schema([MissingLevel(column)])
        expected = schema.codes(frame)[0].tolist()
        assert [code for part in parts for code in schema.codes(part)[0].tolist()] == expected


@pytest.mark.parametrize("cells", [["a", None, "b", "a"], ["a", 1, None], [2.5, 1.0, None], [None, None]])
def test_columns_of_categories_are_read_as_their_cells(cells: list[Any]) -> None:
    plain, coded = (pd.DataFrame({"x": pd.Series(cells, dtype=kind)}) for kind in (object, "category"))
    for column in (Categorical("x", ["a"], "ignore"), Binned("x", [0, 2, 3])):
        schema = Schema([MissingLevel(column)])
        assert schema.codes(coded)[0].tolist() == schema.codes(plain)[0].tolist()


def test_labels_and_counts_of_odd_types_are_refused_in_plain_words() -> None:
    schema, table = Schema([Binned("x", [0, 1, 2])]), {"x": [1, 1]}
    card = PrivateHalfspaceClassifier(1.0, schema=schema, classes=(0, 1))
    with pytest.raises(InvalidInputError, match="missing labels"):
        card.fit(table, [Decimal("sNaN"), 1])
    # scikit-learn 1.6 hands bytes on, later versions as objects.
    with pytest.raises(InvalidInputError, match=r"no text, integers or booleans|found as text or others"):
        card.fit(table, np.array([b"a", b"b"]))
    with pytest.raises(InvalidInputError, match="counts must be whole numbers"):
        record_counts([[1], [1, 2]], 2)
    twice = pd.DataFrame([[0.1, 0.2]] * 2, columns=["SECRET", "SECRET"])
    with pytest.raises(InvalidInputError, match="columns need distinct names") as refused:
        PrivateLogisticRegression(1.0, data_norm=1.0, classes=(0, 1)).fit(twice, [0, 1])
    assert "SECRET" not in str(refused.value)


EMPTY = Schema(
    [
        MissingLevel(Categorical("word", ["a"], "ignore")),
        MissingLevel(Categorical("level", [0, 1], "ignore")),
        MissingLevel(Categorical("truth", [True, False], "ignore")),
        MissingLevel(Numeric("real", 0, 1)),
        MissingLevel(Date("day", ["1970-01-01", "2000-01-01"])),
        MissingLevel(Date("written", ["1970-01-01", "2000-01-01"], format="%d.%m.%Y")),
    ]
)


@pytest.mark.parametrize("by", ["file", "expression"])
def test_a_column_without_a_cell_has_a_type_of_its_own_and_is_missing(tmp_path: Path, by: str) -> None:
    """Parquet files get it from the cells, so a refusal would tell what they hold, before the booking."""
    ibis = pytest.importorskip("ibis")
    if by == "file" and int(pytest.importorskip("duckdb").__version__.split(".")[0]) < 2:
        pytest.skip("before 2.0 DuckDB reads the type of NULL in Parquet as whole numbers")
    names = [column.name for column in EMPTY.columns]
    empty = pa.table({**dict.fromkeys(names, pa.nulls(4)), "y": ["no", "yes"] * 2})
    pyarrow.parquet.write_table(empty, tmp_path / "t.parquet")
    table = open_table(f"{tmp_path}/*.parquet")
    if by == "expression":
        table = table.mutate(**{name: ibis.null() for name in names})
    codes = [column[0] for column in count_records(table, EMPTY, "y", ["no", "yes"]).codes]
    assert codes == [column[0] for column in EMPTY.codes(empty)] == [c.gap for c in EMPTY.columns]
    for classes in (["no", "yes"], [0, 1]):  # refused, as in memory, in the counts that follow the booking
        EngineCount.of(table, Schema(EMPTY.columns[:2]), "real", classes)
    assert EngineCells(table, ["word"], 4)["word"].cells.tolist() == [None]
    assert EnginePersons.of(table, "word").count == 1
    assert set(column_types(table, {}, None, ["y"]).values()) == {"text"}
