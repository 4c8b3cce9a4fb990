"""Cards to print: the points people read, and SQL that agrees with ``predict`` in real databases."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sqlite3
import sys
from contextlib import ExitStack
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest

from privopt.mechanisms import PrivacySpend, PrivateHalfspaceClassifier, evaluate
from privopt.mechanisms.discrete.mechanism import Release
from privopt.mechanisms.estimators.card import number
from privopt.mechanisms.estimators.page import _decimal, _promise, breakable, card_page
from privopt.mechanisms.evaluation.bins import card_bins
from privopt.mechanisms.evaluation.histogram import HistogramPlan
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems import Binned, Categorical, InvalidInputError, MissingLevel, Numeric, Schema
from privopt.problems.tables.engines import rows_of
from privopt.problems.tables.sources import open_table

SCHEMA = Schema(
    [
        MissingLevel(Binned("pulse", [40, 60.5, 80, 120])),
        Binned("late payments", [0, 1, 2], outside="refuse", missing=1),
        Categorical("it's", ["no", "yes", 'a "quote"'], missing="yes"),
        MissingLevel(Categorical("country", ["AT", "CH"], outside="ignore")),
        Categorical("stage", [1, 2, 3], outside="ignore", missing=7),
        Numeric("age", 0, 100, step=7, zero=10, one=90, missing=33),
        MissingLevel(Numeric("dose", "0.1", "0.9", step="0.1", outside="refuse")),
    ],
    intercept=True,
)
WHOLE = Schema([*SCHEMA.columns[:5]], intercept=True)
POINTS = [1, 0, 4, -2, 0, 3, 2, 0, -1, 5, -3, 1, 2, -4, 1, 3, -2, 5, -3]


def card(schema: Schema = SCHEMA, points: list[int] | None = None, risks: bool = True) -> Any:
    """A scorecard as if it had been released."""
    weights = np.array([*(points or POINTS)[: schema.n_features - 1], -3])
    rng, histogram = np.random.default_rng(0), None
    if risks:
        plan = HistogramPlan.plan(card_bins(schema, weights, 2000, 1.0), epsilon=1.0)
        scores = rng.normal(0, 5, 2000).round()
        histogram = plan.release(scores, rng.uniform(size=2000) < 1 / (1 + np.exp(-scores)), NoiseSource())
    release = Release(weights, PrivacySpend.pure(1.0, "exponential"), {}, "")
    model = PrivateHalfspaceClassifier(schema=schema)
    return model._set(release, schema, np.array(["well", "it's ill"]), "exponential", "a test", histogram)


def table(n: int = 3000) -> pd.DataFrame:
    """Values on and beside every edge, holes, and categories that are not declared."""
    rng = np.random.default_rng(1)

    def around(values: list[float]) -> list[float]:
        return [w for v in values for w in (math.nextafter(v, -math.inf), v, math.nextafter(v, math.inf))]

    choices: dict[str, list[Any]] = {
        "pulse": [None, -5.0, 1000.0, *around([40, 60.5, 80, 120])],
        "late payments": [None, 0.0, 0.5, 1.0, math.nextafter(1, 0), 1.5, 2.0],
        "it's": [None, "no", "yes", 'a "quote"'],
        "country": [None, "AT", "CH", "DE", "at", ""],
        "stage": [None, 1.0, 2.0, 3.0, 4.0, 2.5],
        "age": [None, -3.0, 200.0, *around([3.5 + 7 * k for k in range(14)]), 49.0, 98.0, 99.0],
        "dose": [None, 0.1, 0.9, 0.3, *around([0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85])],
    }
    return pd.DataFrame({k: pd.Series([v[i] for i in rng.integers(0, len(v), n)], dtype=object)
                         for k, v in choices.items()})  # fmt: skip


def as_stored(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.astype({"pulse": float, "late payments": float, "stage": float, "age": float, "dose": float})


def run_sqlite(frame: pd.DataFrame, statement: str) -> pd.DataFrame:
    with sqlite3.connect(":memory:") as database:
        as_stored(frame).to_sql('our "table"', database, index=False)
        return pd.read_sql_query(statement, database)


def run_duckdb(frame: pd.DataFrame, statement: str) -> pd.DataFrame:
    with duckdb.connect() as database:
        kinds = {"it's": "VARCHAR", "country": "VARCHAR"}
        columns = ", ".join(f'"{c}" {kinds.get(c, "DOUBLE")}' for c in frame.columns)
        database.execute(f'CREATE TABLE "our ""table""" ({columns})')
        rows = as_stored(frame).astype(object).where(frame.notna(), None).to_numpy().tolist()
        database.executemany(f'INSERT INTO "our ""table""" VALUES ({", ".join("?" * frame.shape[1])})', rows)
        return database.execute(statement).df()


@pytest.fixture
def run_postgres(postgres: str) -> Any:
    import psycopg

    def run(frame: pd.DataFrame, statement: str) -> pd.DataFrame:
        kinds = {"it's": "TEXT", "country": "TEXT"}
        columns = ", ".join(f'"{c}" {kinds.get(c, "DOUBLE PRECISION")}' for c in frame.columns)
        rows = as_stored(frame).astype(object).where(frame.notna(), None).to_numpy().tolist()
        with psycopg.connect(postgres) as connection, connection.cursor() as cursor:
            cursor.execute(f'CREATE TEMPORARY TABLE "our ""table""" ({columns})')
            cursor.executemany(
                f'INSERT INTO "our ""table""" VALUES ({", ".join(["%s"] * frame.shape[1])})', rows
            )
            cursor.execute(statement)
            names = [column.name for column in cursor.description]
            return pd.DataFrame(cursor.fetchall(), columns=names)

    return run


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def run(request: pytest.FixtureRequest) -> Any:
    if request.param == "postgres":
        return request.getfixturevalue("run_postgres")
    return {"sqlite": run_sqlite, "duckdb": run_duckdb}[request.param]


@pytest.mark.parametrize("schema", [SCHEMA, WHOLE])
def test_sql_agrees_with_predict_on_every_row(run: Any, schema: Schema) -> None:
    model, frame = card(schema), table(1200)
    found = run(frame, model.to_sql('our "table"'))
    assert found["prediction"].tolist() == model.predict(frame).tolist()
    assert set(found["prediction"]) == {"well", "it's ill"}
    assert found["points"].tolist() == model.decision_function(frame).tolist()
    assert found["risk"].tolist() == model.predict_proba(frame)[:, 1].tolist()


@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_sql_finds_nan_in_files_whatever_other_records_hold(tmp_path: Path, kind: str) -> None:
    """The statistics of a file leave NaN out, and DuckDB decides comparisons by them."""
    names, path = ["a", "b", "c", "d"], tmp_path / "records.parquet"
    schema = Schema(
        [
            MissingLevel(Binned("a", [0, 1, 2], na_values=["-inf"])),
            Numeric("b", 0, 2, step=1, missing=1),
            MissingLevel(Categorical("c", [0, 1], outside="ignore")),
            Binned("d", [0, 1, 2], missing=1, na_values=["inf"]),
        ],
        intercept=True,
    )
    model, cases = card(schema, points=[1, 2, 4, 8, 16, 32, 64, 128, 256], risks=False), 0
    for held in ([0.5], [-0.0, 1.0], [1.5, None], [math.inf, 1.0], [-math.inf, 0.0], [1e30], []):
        frame = pd.DataFrame({name: np.array([*held, math.nan, -math.nan], dtype=kind) for name in names})
        cells = [pyarrow.array(np.array(frame[name]), from_pandas=False) for name in names]
        pyarrow.parquet.write_table(pyarrow.table(cells, names=names), path)
        with duckdb.connect() as database:
            database.execute(f"CREATE VIEW records AS SELECT * FROM '{path}'")
            found = database.execute(model.to_sql()).fetchall()
        assert [row[-2] for row in found] == model.decision_function(frame).tolist()
        cases += len(found)
    assert cases == 24


def test_drivers_find_no_parameter_in_sql() -> None:
    """A per cent sign begins one in those of PostgreSQL."""
    assert "%" not in card().to_sql("t")


def test_what_predict_refuses_is_null(run: Any) -> None:
    schema = Schema(
        [Binned("pulse", [40, 80]), Binned("late payments", [0, 1, 2], outside="refuse"),
         Categorical("it's", ["no", "yes"]), Numeric("dose", 0, 1, step="0.1", outside="refuse")],
        intercept=True,
    )  # fmt: skip
    model = card(schema, points=[1, 0, 2, 1, 2, 0], risks=False)
    good: dict[str, Any] = {"pulse": 50.0, "late payments": 1.0, "it's": "no", "dose": 0.3, "country": None,
                            "stage": 1.0, "age": 1.0}  # fmt: skip
    bad = [("pulse", None), ("late payments", 2.1), ("late payments", -0.1), ("it's", "maybe"),
           ("it's", None), ("dose", 1.1), ("dose", None)]  # fmt: skip
    frame = pd.DataFrame([good, *({**good, name: value} for name, value in bad)])
    found = run(frame, model.to_sql('our "table"'))
    assert found["prediction"].tolist()[0] == model.predict(frame[:1])[0]
    assert found["prediction"][1:].isna().all()
    assert found["points"][1:].isna().all()
    for k in range(1, len(frame)):
        with pytest.raises(InvalidInputError):
            model.predict(frame[k : k + 1])


@pytest.mark.parametrize("kind", ["TEXT", "REAL", "NUMERIC", "", "BLOB"])
def test_text_in_a_column_of_numbers_has_no_points_in_sqlite(kind: str) -> None:
    """SQLite compares it as text, '9' above '10', or above all numbers: it predicted something else.

    Columns of REAL and NUMERIC store text that is a number as one, columns of TEXT numbers as text.
    """
    schema = Schema([Binned("late payments", [0, 2, 10, 100])], intercept=True)
    model = card(schema, points=[1, 2, 3, -2], risks=False)
    cells: list[Any] = ["9", "10", "12.50", "1e1", "x", "", "7 or so", "1e400", b"9", 1, 9.5, 1e301, math.inf]
    with sqlite3.connect(":memory:") as database:
        database.execute(f'CREATE TABLE t (n INTEGER, "late payments" {kind})')
        database.executemany("INSERT INTO t VALUES (?, ?)", list(enumerate(cells)))
        rows = database.execute(
            'SELECT typeof("late payments"), "late payments" FROM t ORDER BY n'
        ).fetchall()
        found = pd.read_sql_query(model.to_sql("t"), database).sort_values("n")
    assert {held for held, _ in rows} > {"text"}
    for (held, value), points, said in zip(rows, found["points"], found["prediction"], strict=True):
        if held in ("text", "blob"):
            assert pd.isna(points)
            assert pd.isna(said)
        else:
            (expected,) = model.predict(pd.DataFrame({"late payments": [value]}))
            assert said == expected


def test_sql_of_booleans_and_of_fine_grids() -> None:
    model = card(Schema([Categorical("stage", [False, True])], intercept=True), points=[1, 5], risks=False)
    frame = pd.DataFrame({"stage": [True, False]})
    with duckdb.connect() as database:
        database.execute('CREATE TABLE records AS SELECT * FROM (VALUES (true), (false)) AS t("stage")')
        assert database.execute(model.to_sql()).df()["prediction"].tolist() == model.predict(frame).tolist()
    with sqlite3.connect(":memory:") as lite:
        frame.to_sql("records", lite, index=False)
        found = pd.read_sql_query(model.to_sql(), lite)["prediction"].tolist()
        assert found == model.predict(frame).tolist()
    # PostgreSQL compares no boolean with a number: the next test runs it, where a server is.
    assert '"stage" = FALSE' in model.to_sql()
    fine = card(Schema([Numeric("x", 0, 1, step="0.0001")], intercept=True), points=[1], risks=False)
    with pytest.raises(InvalidInputError, match="coarser step"):
        fine.to_sql()


def test_postgresql_takes_booleans_and_single_precision_as_predict_does(postgres: str) -> None:
    """0.7 in single precision lies below 0.7, and prints as 0.7."""
    import psycopg

    schema = Schema([Categorical("stage", [False, True]), Binned("x", [0, 0.7, 1])], intercept=True)
    model, rows = card(schema, points=[1, 5, 0, 9], risks=False), [(True, 0.7), (False, 0.8), (None, 0.1)]
    with psycopg.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE singles (stage BOOLEAN, x REAL)")
        cursor.executemany("INSERT INTO singles VALUES (%s, %s)", rows)
        cursor.execute(model.to_sql("singles"))
        found = [row[-2:] for row in cursor.fetchall()]
    (part,) = rows_of(open_table(postgres, "singles"), ["stage", "x"], 10)
    assert part["x"][0] == float(np.float32(0.7)) < 0.7
    whole = part[:2]
    assert found[:2] == list(zip(model.decision_function(whole), model.predict(whole), strict=True))
    assert found[2] == (None, None)


# Names that databases, statements of ours or both give a meaning to.
NAMES = [
    "points", "Points", "POINTS", "prediction", "risk", "RISK", "points_1", "scored", "privopt", "records",
    "select", "from", "order", "it's", 'a "quote"', "a.b", "x;--", " ", "%s", ":x", "?", "\\", "é", "日本",
    "null", "1", "x" * 60,
]  # fmt: skip


def any_table(rng: np.random.Generator) -> tuple[Any, pd.DataFrame, str]:
    """A card over some columns, a table that has others beside them in any order, and the table's name."""
    names, seen = [], set()
    for k in rng.permutation(len(NAMES)).tolist():
        if NAMES[k].lower() not in seen:  # SQLite and DuckDB have one column for "x" and "X"
            seen.add(NAMES[k].lower())
            names.append(NAMES[k])
    names = names[: int(rng.integers(2, 9))]
    columns: list[Any] = []
    cells: dict[str, list[Any]] = {}
    for name in names[: int(rng.integers(1, len(names) + 1))]:
        if rng.integers(2):
            columns.append(MissingLevel(Binned(name, [0, 0.1, 0.7, 1])))
            cells[name] = rng.choice(
                np.array([None, -1.0, 0.1, math.nextafter(0.7, 0), 0.7, 3.0]), 6
            ).tolist()
        else:
            columns.append(
                Categorical(name, ["a", "it's"], outside=rng.choice(["ignore", "refuse"]), missing="a")
            )
            known = [None, "a", "it's"] + ["A", ""] * (columns[-1].outside == "ignore")
            cells[name] = rng.choice(np.array(known, dtype=object), 6).tolist()
    for name in names[len(columns) :]:
        cells[name] = rng.integers(-9, 9, 6).astype(float).tolist()
    schema = Schema(columns, intercept=True)
    model = card(schema, points=rng.integers(-5, 6, schema.n_features).tolist(), risks=bool(rng.integers(2)))
    order = [names[k] for k in rng.permutation(len(names)).tolist()]
    frame = pd.DataFrame({name: pd.Series(cells[name], dtype=object) for name in order})
    return model, frame, names[int(rng.integers(len(names)))]


@pytest.mark.parametrize("engine", [sqlite3.connect, duckdb.connect])
def test_an_undeclared_column_of_the_table_does_not_hide_the_prediction(engine: Any) -> None:
    model = card(Schema([Binned("x", [0, 1, 2])], intercept=True), points=[-3, 2, 1], risks=False)
    frame = pd.DataFrame({"x": [0.5, 1.5], "Prediction": ["old", "old"], "points": [99, 99]})
    statement = model.to_sql(columns=frame.columns).rstrip("\n")
    database = engine(":memory:")
    database.execute('CREATE TABLE records (x DOUBLE PRECISION, "Prediction" VARCHAR(9), points INTEGER)')
    database.executemany("INSERT INTO records VALUES (?, ?, ?)", frame.values.tolist())
    found = database.execute(f"SELECT points_1, prediction_1 FROM ({statement}) AS t ORDER BY x").fetchall()
    database.close()
    assert found == list(zip(model.decision_function(frame), model.predict(frame), strict=True))


def kinds_of(model: Any, frame: pd.DataFrame, number: str) -> str:
    text = {column.name for column in model.schema_.columns if isinstance(column, Categorical)}
    quoted = [(name, '"' + name.replace('"', '""') + '"') for name in frame]
    return ", ".join(f"{q} {'VARCHAR' if name in text else number}" for name, q in quoted)


def check_any_table(model: Any, frame: pd.DataFrame, name: str, execute: Any, mark: str, number: str) -> None:
    """The last columns of the result, whatever the table has, and under names that no declared column has."""
    quoted, added = '"' + name.replace('"', '""') + '"', 2 + (model.risk_ is not None)
    execute(f"CREATE TEMPORARY TABLE {quoted} ({kinds_of(model, frame, number)})", None)
    for row in frame.itertuples(index=False, name=None):
        place = quoted.replace("%", "%%") if mark == "%s" else quoted
        execute(f"INSERT INTO {place} VALUES ({', '.join([mark] * len(row))})", row)
    cursor = execute(model.to_sql(name), None)
    found = pd.DataFrame([row[-added:] for row in cursor.fetchall()])
    named = [description[0] for description in cursor.description[-added:]]
    execute(f"DROP TABLE {quoted}", None)
    assert found[0].tolist() == model.decision_function(frame).tolist()
    assert found[1].tolist() == model.predict(frame).tolist()
    assert added == 2 or found[2].tolist() == model.predict_proba(frame)[:, 1].tolist()
    declared = {column.name.lower() for column in model.schema_.columns}
    assert not declared & set(named)


@pytest.mark.parametrize(("engine", "seed"), [("sqlite", 3), ("duckdb", 4), ("postgres", 5)])
def test_sql_agrees_with_predict_whatever_columns_are_called(
    engine: str, seed: int, request: pytest.FixtureRequest
) -> None:
    rng = np.random.default_rng(seed)
    with ExitStack() as stack:
        execute, mark, number = connected(engine, stack, request)
        for _ in range(25):
            check_any_table(*any_table(rng), execute, mark, number)


def connected(engine: str, stack: ExitStack, request: pytest.FixtureRequest) -> tuple[Any, str, str]:
    """A function that executes, the mark of a parameter, and the type of a double."""
    if engine == "postgres":
        psycopg = pytest.importorskip("psycopg")
        database = stack.enter_context(psycopg.connect(request.getfixturevalue("postgres")))
        cursor = stack.enter_context(database.cursor())
        return lambda query, row: cursor.execute(query, row), "%s", "DOUBLE PRECISION"
    opened: Any = sqlite3.connect(":memory:") if engine == "sqlite" else duckdb.connect()
    stack.callback(opened.close)
    return lambda query, row: opened.execute(query, row or ()), "?", "DOUBLE"


def test_numbers_that_are_none_in_a_database_are_missing_or_refused(run_postgres: Any) -> None:
    schema = Schema(
        [MissingLevel(Binned("age", [0, 1, 2])), Binned("dose", [0, 1, 2], missing=1)], intercept=True
    )
    model = card(schema, points=[1, 2, 7, 3, 5], risks=False)
    rest: dict[str, Any] = {"late payments": 1.0, "it's": "no", "country": None, "stage": 1.0, "pulse": 1.0}
    frame = pd.DataFrame([{"age": math.nan, "dose": math.nan, **rest}, {"age": 1.5, "dose": 0.5, **rest}])
    for run in (run_postgres, run_duckdb):
        statement = model.to_sql('our "table"')
        expected = [7 + 5 - 3, 2 + 3 - 3]
        assert run(frame, statement)["points"].tolist() == expected == model.decision_function(frame).tolist()


def test_thresholds_of_any_number_of_digits_are_read_exactly(run: Any) -> None:
    """SQLite rounds decimals of many digits twice: edges of 17, on, just below and just above them."""
    rng = np.random.default_rng(5)
    edges = np.sort(rng.uniform(0, 1, 60) * 10.0 ** rng.integers(-300, 300, 60)).tolist()
    beside = [float(np.nextafter(e, to)) for e in edges for to in (-math.inf, e, math.inf)]
    model = card(Schema([Binned("pulse", edges)], intercept=True), points=list(range(59)), risks=False)
    rest: dict[str, Any] = {"late payments": 1.0, "it's": "no", "country": None, "stage": 1.0, "age": 1.0}
    frame = pd.DataFrame([{"pulse": x, "dose": 0.5, **rest} for x in beside])
    assert (
        run(frame, model.to_sql('our "table"'))["points"].tolist() == model.decision_function(frame).tolist()
    )


def test_infinities_are_read_as_predict_reads_them(run: Any) -> None:
    model = card(Schema([Binned("pulse", [0, 1, 2])], intercept=True), points=[1, 2], risks=False)
    rest: dict[str, Any] = {"late payments": 1.0, "it's": "no", "country": None, "stage": 1.0, "age": 1.0}
    cells = [1.5, math.inf, -math.inf, sys.float_info.max, -sys.float_info.max]
    frame = pd.DataFrame([{"pulse": x, "dose": 0.5, **rest} for x in cells])
    assert (
        run(frame, model.to_sql('our "table"'))["points"].tolist() == model.decision_function(frame).tolist()
    )


def test_names_and_categories_that_no_statement_holds_are_refused() -> None:
    for column in (
        Categorical("x", ["a", "a\0b"]),
        Categorical("x\0", ["a", "b"]),
    ):
        with pytest.raises(InvalidInputError, match="cannot be written in SQL"):
            card(Schema([column], intercept=True), points=[1, 2], risks=False).to_sql()


# ---------------------------------------------------------------- points people read


def added_up(shown: Any, frame: pd.DataFrame) -> list[float]:
    """Totals by the printed rows of a card over ``WHOLE``, looked up by hand."""
    levels = {c.name: dict(c.rows) for c in shown.columns}

    def of(row: Any) -> float:
        pulse, late, said, country, stage = (None if pd.isna(v) else v for v in row[:5])
        total = shown.base
        bands = [(60.5, "below 60.5"), (80, "60.5 to below 80"), (math.inf, "80 or more")]
        total += levels["pulse"]["missing" if pulse is None else next(t for e, t in bands if pulse < e)]
        total += levels["late payments"]["0 to below 1" if late is not None and late < 1 else "1 to 2"]
        total += levels["it's"]["yes" if said is None else said]
        total += levels["country"][
            "missing" if country is None else country if country in ("AT", "CH") else "any other"
        ]
        return total + levels["stage"][str(int(stage)) if stage in (1, 2, 3) else "any other"]

    return [of(row) for row in frame.itertuples(index=False)]


@pytest.mark.parametrize("plain", [True, False])
def test_adding_up_the_printed_points_gives_the_prediction(plain: bool) -> None:
    model, frame = card(WHOLE), table(500)
    shown = model.card_ if plain else model.card_.without_negative_points()
    totals = np.array(added_up(shown, frame))
    assert np.where(totals > shown.threshold, "it's ill", "well").tolist() == model.predict(frame).tolist()
    assert shown.risks.at(totals).tolist() == model.predict_proba(frame)[:, 1].tolist()
    low, high = shown.reach
    assert low <= totals.min() <= totals.max() <= high
    if not plain:
        assert min(p for c in shown.columns for p in c.points) == 0
        assert shown.base == 0
        assert low == 0


def test_points_in_proportion_are_shifted_too() -> None:
    model = card(Schema([Numeric("age", 0, 100, step=10)], intercept=True), points=[-4], risks=False)
    shown = model.card_.without_negative_points()
    assert shown.columns[0].proportion == (("0", 4.0), ("100", 0.0))
    assert shown.threshold == 7  # -3 - 4 age > 0 is 4 - 4 age > 7
    assert shown.rule == "it's ill: more than 7 points; else well"
    assert "| age | 0 to 100, in proportion | 4 to 0 |" in shown.to_markdown()


def test_columns_without_points_are_named_and_left_out() -> None:
    model = card(WHOLE, points=[0] * 4 + POINTS[4:], risks=False)
    assert model.card_.unused == ("pulse",)
    assert "No points for pulse." in model.card_.to_markdown()
    empty = card(WHOLE, points=[0] * 20, risks=False).card_
    assert empty.columns == ()
    assert "Points" in card_page(empty)


def test_a_card_is_json_and_markdown() -> None:
    shown = card(WHOLE).card_.without_negative_points()
    again = json.loads(json.dumps(shown.to_dict()))
    assert again["threshold"] == shown.threshold
    assert [c["name"] for c in again["columns"]] == [c.name for c in WHOLE.columns]
    assert len(again["risks"]) == len(shown.risks.risks)
    text = shown.to_markdown()
    for line in text.splitlines():
        assert line.count("|") in (0, 4), line
    assert "| pulse | missing | 0 |" in text
    assert number(-3) == "\N{MINUS SIGN}3"


def test_a_card_says_what_its_classes_are(tmp_path: Path) -> None:
    """A bare 1 tells nobody of what: the label column is named, after saving too; or it is class 1."""
    frame, label = pd.DataFrame({"age": [0, 100] * 50}), [0, 1] * 50
    model = PrivateHalfspaceClassifier(
        50.0, schema=Schema([Numeric("age", 0, 100)], intercept=True), classes=(0, 1), insecure_seed=1
    )
    assert model.fit(frame, pd.Series(label, name="relapse")).target_ == "relapse"
    model.save(tmp_path / "card.json")
    for shown in (model.card_, PrivateHalfspaceClassifier.load(tmp_path / "card.json").card_):
        assert shown.names == ("relapse = 0", "relapse = 1")
        assert "<title>Scorecard: relapse = 1</title>" in card_page(shown)
        assert shown.rule.startswith("relapse = 1: ")
        assert shown.to_dict()["target"] == "relapse"
    nameless = model.fit(frame, label).card_
    assert (nameless.target, nameless.names) == ("", ("class 0", "class 1"))


def test_ranges_of_whole_points_are_whole() -> None:
    shown = card(WHOLE).card_
    ranges = shown.risk_ranges()
    assert ranges[0].endswith("or fewer")
    assert ranges[-1].endswith("or more")
    assert all("." not in text for text in ranges)


class Reader(HTMLParser):
    """Tags that are open, and what is fetched from elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [str(v) for k, v in attrs if k in ("src", "href")]
        if tag not in ("meta", "br", "wbr", "input", "rect", "line", "polyline", "circle"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()


def test_the_page_is_whole_and_stands_alone() -> None:
    hostile = Schema([Categorical("<b>x", ["</script><i>", "&"]), *WHOLE.columns[1:2]], intercept=True)
    model = card(hostile, points=[2, -1, 0, 4])
    frame = pd.DataFrame({"<b>x": ["&"] * 50, "late payments": [0.5, 1.5] * 25})
    found = evaluate(model, frame, model.predict(frame), epsilon=5.0)
    page = card_page(model.card_.without_negative_points(), found, title="Who is <ill>?")
    reader = Reader()
    reader.feed(page)
    assert reader.open == []
    assert reader.fetched == []
    assert "Who is &lt;ill&gt;?" in page
    assert "<i>" not in page.split("</style>")[1].replace("<i style", "")
    for part in ("What is guaranteed", "epsilon = 1", "release of their own", "ROC curve", "@media print"):
        assert part in page
    assert "Nothing: the noise was reproducible" not in page


def test_a_large_epsilon_is_called_a_weak_promise() -> None:
    shown = card(WHOLE).card_
    assert "weak guarantee" not in card_page(shown)
    large = PrivacySpend.pure(8.0, "seeded", note="half of it for the risks")
    page = card_page(dataclasses.replace(shown, spend=large))
    assert "weak guarantee" in page
    assert "In detail: half of it for the risks" in page


def test_a_void_guarantee_is_no_guarantee_on_paper() -> None:
    frame = pd.DataFrame({"pulse": [50.0, 90.0] * 30})
    model = PrivateHalfspaceClassifier(
        1.0, schema=Schema([Binned("pulse", [40, 80, 120])], intercept=True), classes=(0, 1), insecure_seed=0
    ).fit(frame, [0, 1] * 30)
    assert "Nothing: the noise was reproducible" in card_page(model.card_)


@pytest.mark.parametrize(("last", "only"), [(-100, "well"), (100, "it's ill")])
def test_a_card_that_says_the_same_of_everybody_says_so(last: int, only: str) -> None:
    model = card()
    model.coef_[0, -1] = last
    frame = table(500)
    frame = frame[frame["late payments"].notna() & frame["dose"].between(0.1, 0.9)]
    assert set(model.predict(frame)) == {only}
    shown = model.card_
    for said in (shown.warning, shown.to_markdown(), shown.without_negative_points().warning):
        assert f"This rule predicts {only} for every record" in said
    assert 'class="warning"' in card_page(shown)
    assert "and the risks show" in shown.warning
    assert card().card_.warning == ""
    equal = replace(shown, columns=(), base=shown.threshold)  # a score at the threshold is not above it
    assert f"predicts {shown.names[0]} for every record" in equal.warning
    assert 'class="warning"' not in card_page(card().card_)


@pytest.mark.parametrize(
    ("delta", "said"), [(6.25e-10, "one in 1,600,000,000"), (1e-40, "probability 1e-40")]
)
def test_the_page_says_how_rare_the_exception_is(delta: float, said: str) -> None:
    shown = dataclasses.replace(card().card_, spend=PrivacySpend.approximate(1.0, delta, "seeded"))
    assert said in card_page(shown)


def test_a_page_names_its_model_and_version_and_breaks_long_names_at_separators() -> None:
    one, other = card().card_, dataclasses.replace(card().card_, base=1)
    number = re.compile(r"privopt [\d.]+, model ([0-9a-f]{8})")
    (first,), (again,), (second,) = (number.findall(card_page(c)) for c in (one, one, other))
    assert first == again != second
    assert "Date of birth" in card_page(one)
    assert breakable("days_since/last.visit: <a> _") == ("days_<wbr>since/<wbr>last.<wbr>visit: &lt;a&gt; _")


def test_pages_say_what_is_open_and_what_nobody_checked() -> None:
    assert (_decimal(math.nan), _decimal(0.125)) == ("open", "0.12")
    spend = PrivacySpend.pure(1.0, "a mechanism")
    unchecked = replace(spend, claim="not checked", note="made elsewhere")
    assert "has been checked" not in _promise(spend, "card")
    assert "Not all of the code behind this guarantee has been checked: made elsewhere." in _promise(
        unchecked, "card"
    )
