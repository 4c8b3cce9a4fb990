"""Schemas learned from engines: the draws of memory for the same records, types by declaration."""

from __future__ import annotations

import math
import sqlite3
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import (
    PrivateHalfspaceClassifier,
    PrivateLogisticRegression,
    fit_with_learned_schema,
    learn_schema,
)
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems.errors import InvalidInputError, SchemaError
from privopt.problems.tables.engine_cells import EngineCells
from privopt.problems.tables.skeleton import Held, column_types
from privopt.problems.tables.sources import open_table

ibis = pytest.importorskip("ibis", reason="pip install 'privopt[engines]'")
duckdb = pytest.importorskip("duckdb")

N = 600
TYPES = {"age": "whole", "dose": "number", "cost": "range", "town": "text", "mixed": "vote", "born": "date"}
HELD = "age BIGINT, dose DOUBLE, cost DECIMAL(8, 2), town VARCHAR, mixed VARCHAR, born DATE, ill BOOLEAN"
FACTS: dict[str, Any] = {"epsilon": 20.0, "insecure_seed": 3, "leave_out": ["ill"]}


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "age": rng.integers(17, 91, N),
            "dose": rng.choice([0.0, -0.0, 1.5, math.inf, 2.25], N) * rng.integers(1, 9, N),
            "cost": rng.integers(0, 99_999, N) / 100,
            "town": rng.choice(["Bern", "bern", "Köln", "K\u00f6ln ", "?"], N),
            "mixed": rng.choice(["1", "2.5", " 7 ", "x", "NA"], N),
            "born": (np.datetime64("1990-01-01") + rng.integers(0, 3653, N)).astype(str),
            "ill": rng.integers(0, 2, N).astype(bool),
        }
    ).astype(object)
    for k, name in enumerate(TYPES):
        frame.loc[k::17, name] = None
    return frame


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same records in two databases and as files."""
    folder, frame = tmp_path_factory.mktemp("places"), rows()
    records = list(frame.itertuples(index=False, name=None))
    with sqlite3.connect(folder / "t.sqlite") as lite:
        lite.execute(f"CREATE TABLE t ({HELD})")
        lite.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", records)
    lite.close()
    raw = duckdb.connect(folder / "t.duckdb")
    raw.execute(f"CREATE TABLE t ({HELD})")
    marks = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * N)  # row by row it takes seconds
    raw.execute(f"INSERT INTO t VALUES {marks}", [cell for record in records for cell in record])
    raw.execute(f"COPY (SELECT * FROM t LIMIT 200) TO '{folder}/a.parquet'")
    raw.execute(f"COPY (SELECT * FROM t OFFSET 200) TO '{folder}/b.parquet'")
    raw.close()
    return {
        "sqlite": open_table(f"sqlite://{folder}/t.sqlite", "t"),
        "duckdb": open_table(f"duckdb://{folder}/t.duckdb", "t"),
        "parquet": open_table(f"{folder}/*.parquet"),
    }


@pytest.mark.parametrize("name", ["sqlite", "duckdb", "parquet"])
def test_an_engine_learns_what_memory_learns(places: dict[str, Any], name: str) -> None:
    expected = learn_schema(rows(), types=TYPES, **FACTS)
    found = learn_schema(places[name], types=TYPES, **FACTS)
    assert found.schema == expected.schema
    assert found.spend == expected.spend
    # The order of rows has no part in it either.
    assert learn_schema(rows().iloc[::-1], types=TYPES, **FACTS).schema == expected.schema
    assert learn_schema(places[name], types=TYPES, **{**FACTS, "insecure_seed": 4}).schema != found.schema


def test_postgresql_learns_what_memory_learns(postgres: str) -> None:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE learned ({HELD.replace('DOUBLE', 'DOUBLE PRECISION')})".encode())
        records = list(rows().itertuples(index=False, name=None))
        cursor.executemany(b"INSERT INTO learned VALUES (%s, %s, %s, %s, %s, %s::date, %s)", records)
    there = open_table(postgres, "learned")
    assert (
        learn_schema(there, types=TYPES, **FACTS).schema == learn_schema(rows(), types=TYPES, **FACTS).schema
    )


def test_types_are_those_that_the_database_declares(places: dict[str, Any]) -> None:
    found = learn_schema(places["duckdb"], epsilon=20.0)
    said = {c["name"]: (c["kind"], c.get("categories")) for c in found.schema.to_dict()["columns"]}
    kinds = [kind for kind, _ in said.values()]
    assert kinds == ["binned"] * 3 + ["categorical"] * 2 + ["date", "categorical"]
    assert said["ill"] == ("categorical", [False, True])
    age = found.schema.columns[0].column  # type: ignore[attr-defined]
    assert all(float(edge).is_integer() for edge in age.edges)


# Cells of every kind: SQLite takes them all in every column, and no one of them may lead to an error.
ODD: list[Any] = [b"\xff\x00x", "x\0y", 10**18, 0.1, "1e999", "9" * 400, "", " 7", "2048-02-30", -(2**63)]
ODD += [math.inf, None]


@pytest.mark.parametrize("held", ["BIGINT", "VARCHAR", "BOOLEAN", "DATE", "DECIMAL(8, 2)"])
def test_any_cell_of_sqlite_is_read_as_in_memory(held: str) -> None:
    cells = [*ODD, *["1", 2, "Bern", "2048-02-13"] * 200]
    connection = ibis.sqlite.connect()
    connection.con.execute(f"CREATE TABLE t (x {held})")
    connection.con.executemany("INSERT INTO t VALUES (?)", [(cell,) for cell in cells])
    stored = [row[0] for row in connection.con.execute("SELECT x FROM t")]
    connection.con.execute("INSERT INTO t VALUES (CAST(x'80ff' AS TEXT))")  # text that is no UTF-8
    frame = pd.DataFrame({"x": pd.Series([*stored, "\udc80\udcff"], dtype=object)})
    for kind in ("number", "range", "text", "vote", "date"):
        facts: dict[str, Any] = {"epsilon": 20.0, "types": {"x": kind}, "insecure_seed": 0}
        found = learn_schema(connection.table("t"), **facts)
        assert found.schema == learn_schema(frame, **facts).schema


@pytest.mark.parametrize("name", ["sqlite", "duckdb"])
def test_schema_and_model_of_an_engine_are_those_of_memory(places: dict[str, Any], name: str) -> None:
    facts: dict[str, Any] = {"types": TYPES, "share": 0.5}
    frame = rows()
    there, here = places[name], frame.drop(columns=["ill"])
    for model in (
        PrivateLogisticRegression(20.0, classes=[False, True], insecure_seed=1),
        PrivateHalfspaceClassifier(20.0, mechanism="seeded", classes=[False, True], insecure_seed=1),
    ):
        found = fit_with_learned_schema(model, there, "ill", **facts)
        expected = fit_with_learned_schema(model, here, frame["ill"].astype(bool), **facts)
        assert found.schema == expected.schema
        assert found.spend_ == expected.spend_
        np.testing.assert_allclose(found.coef_, expected.coef_, atol=1e-9)


def test_a_column_that_files_hold_as_numbers_and_as_text_is_voted_on(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).integers(0, 40, 800) / 4
    parts = [pd.DataFrame({"a": numbers[:400]}), pd.DataFrame({"a": numbers[400:].astype(str)})]
    for k, part in enumerate(parts):
        part.to_parquet(tmp_path / f"{k}.parquet")
    table = open_table(f"{tmp_path}/*.parquet")
    facts: dict[str, Any] = {"epsilon": 20.0, "insecure_seed": 1}
    here = pd.concat([part.astype(object) for part in parts], ignore_index=True)
    assert learn_schema(table, **facts).schema == learn_schema(here, **facts).schema
    assert column_types(f"{tmp_path}/*.parquet") == {"a": Held.OPEN}


def test_what_an_engine_cannot_do_is_refused_before_a_booking(tmp_path: Path) -> None:
    connection = ibis.duckdb.connect()
    connection.raw_sql(
        "CREATE TABLE t AS SELECT i, i::VARCHAR AS s, TIME '01:00' AS at, i > 5 AS ill, i AS id "
        "FROM range(600) r(i)"
    )
    table, book = connection.table("t"), Ledger.create(tmp_path / "ledger", 3.0, 1e-3)
    facts: dict[str, Any] = {"epsilon": 2.0, "ledger": book}
    model = PrivateLogisticRegression(9.0, classes=[False, True], ledger=book)
    no_times = table.drop("at")
    fit = partial(fit_with_learned_schema, model)
    refused: list[tuple[Any, str]] = [
        (lambda: learn_schema(table, **facts), r"column 3 of the table: neither numbers, dates nor text"),
        (lambda: learn_schema(table, types={"at": "text"}, **facts), "column 'at': .* engine holds time"),
        (lambda: learn_schema(table.join(table, "i"), **facts), "mixes rows"),
        (lambda: learn_schema(no_times, person="nobody", **facts), "nobody"),
        (lambda: learn_schema(no_times, person="i", **{**facts, "epsilon": 0.01}), "too few records"),
        (lambda: learn_schema(no_times, **{**facts, "epsilon": 0.01}), "too few records"),
        (lambda: learn_schema(no_times.filter(table.i < 0), **facts), "no records"),
        (lambda: fit(table, "ill", leave_out=["s", "id"], types={"at": "date"}), "column 'at'"),
        (lambda: fit(no_times, "s", leave_out=["id"]), "y: labels are text"),
        (lambda: fit(no_times, None), "y is the name of the label column"),
    ]
    for run, message in refused:
        with pytest.raises((InvalidInputError, SchemaError, PrivacyParameterError), match=message):
            run()
    for person, said in (("nobody", "column 'nobody'"), ("ill", "column of persons, which is no label")):
        with pytest.raises((InvalidInputError, SchemaError), match=said):
            fit_with_learned_schema(model.set_params(person=person), no_times, "ill")
    assert book.entries() == []


@pytest.mark.parametrize("name", ["duckdb", "sqlite"])
def test_an_engine_learns_from_one_cell_of_each_person_what_memory_learns(name: str) -> None:
    """All records of a person are alike, so that any of its cells is that of its first record in memory."""
    frame = rows()
    frame.insert(0, "id", [f"p{k}" for k in range(N)])
    frame = frame.loc[np.random.default_rng(0).permutation(np.repeat(np.arange(N), np.arange(N) % 4 + 1))]
    held = f"id VARCHAR, {HELD}"
    if name == "sqlite":
        connection = ibis.sqlite.connect()
        connection.con.execute(f"CREATE TABLE t ({held})")
        records = list(frame.itertuples(index=False, name=None))
        connection.con.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?, ?)", records)
    else:
        connection = ibis.duckdb.connect()
        connection.con.execute(f"CREATE TABLE t ({held})")
        connection.con.register("given", frame)
        connection.con.execute("INSERT INTO t FROM given")
    facts = {**FACTS, "types": TYPES, "person": "id"}
    found = learn_schema(connection.table("t"), **facts)
    expected = learn_schema(frame.reset_index(drop=True), **facts)
    assert found.schema == expected.schema
    assert found.spend == expected.spend
    assert (found.spend.neighbours, found.spend.delta) == ("replace-one person", pytest.approx(1 / N**2))
    # In memory places are put in random order; with a large budget that does not matter.
    model = PrivateLogisticRegression(
        90.0, classes=[False, True], insecure_seed=1, person="id", records_per_person=3, delta=1e-4
    )
    others = {"leave_out": [key for key in TYPES if key != "age"], "types": {"age": "whole"}, "cuts": 1}
    made = fit_with_learned_schema(model, connection.table("t"), "ill", **others)
    known = frame.reset_index(drop=True)
    here = fit_with_learned_schema(model, known.drop(columns="ill"), known["ill"].astype(bool), **others)
    assert made.schema == here.schema
    assert made.spend_ == here.spend_
    np.testing.assert_allclose(made.coef_, here.coef_, atol=0.01)


def test_no_cell_is_read_before_the_booking_and_records_may_not_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ibis.memtable({"x": np.arange(600.0)})
    connection = ibis.duckdb.connect()
    table = connection.create_table("t", table)
    with pytest.raises(InvalidInputError, match="number of records has changed"):
        EngineCells(table, ["x"], 601)["x"]
    book = Ledger.create(tmp_path / "ledger", 1.0, 1e-3)
    monkeypatch.setattr(EngineCells, "__getitem__", _read)
    with pytest.raises(BudgetExceededError):
        learn_schema(table, epsilon=2.0, ledger=book)


def _read(self: Any, name: str) -> Any:
    raise AssertionError("read before it was booked")
