"""A skeleton is a function of names and types, and what is filled in is a schema."""

from __future__ import annotations

import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from privopt.problems import Binned, Categorical, Date, MissingLevel, Schema
from privopt.problems.errors import SchemaError
from privopt.problems.tables.dictionary import read_dictionary
from privopt.problems.tables.enumerations import enumerations
from privopt.problems.tables.skeleton import Held, Known, column_types, skeleton

TABLE = pd.DataFrame(
    {
        "age": [48213, 44],
        "dose": [0.5, np.nan],
        "smoker": [True, False],
        'a "place"': ["Quagmire", None],
        "kind": pd.Categorical(["Quagmire", "x"]),
        "on": pd.to_datetime(["2048-02-13", "2048-02-14"]),
        "state": ["well", "ill"],
    }
)
SECRETS = ("48213", "Quagmire", "2048")


def test_a_skeleton_says_what_types_say_and_no_value(tmp_path: Path) -> None:
    other = TABLE.assign(age=[1, 2], dose=[2.5, 3.5]).iloc[::-1]
    texts = []
    for k, frame in enumerate((TABLE, other, TABLE.set_index("state"))):
        frame.to_parquet(tmp_path / f"{k}.parquet")
        types = column_types(str(tmp_path / f"{k}.parquet"))
        assert types["age"] == types["dose"] == Held.NUMBERS
        assert types["kind"] == types['a "place"'] == Held.TEXT
        assert (types["smoker"], types["on"]) == (Held.TRUTH, Held.DATES)
        texts.append(skeleton({**types, "state": Held.TEXT}, "state"))
    assert texts[0] == texts[1]
    assert "state" not in texts[0]
    assert not any(secret in texts[0] for secret in SECRETS)
    pd.DataFrame(columns=TABLE.columns[:3]).astype(TABLE.dtypes[:3]).to_parquet(tmp_path / "none.parquet")
    empty = skeleton(column_types(str(tmp_path / "none.parquet")), "smoker")
    assert [c["name"] for c in tomllib.loads(empty)["columns"]] == ["age", "dose"]


def test_a_skeleton_is_refused_until_it_is_filled_in(tmp_path: Path) -> None:
    file = tmp_path / "schema.toml"
    file.write_text(
        skeleton({"age": Held.NUMBERS, "smoker": Held.TRUTH, "town": Held.TEXT, "y": Held.TEXT}, "y")
    )
    with pytest.raises(SchemaError, match="'age': edges must be a list of at least two"):
        Schema.load(file)
    file.write_text(file.read_text().replace("edges = []", "edges = [0, 10, 20]"))
    with pytest.raises(SchemaError, match="'town': categories must be a list"):
        Schema.load(file)
    file.write_text(file.read_text().replace("categories = []", 'categories = ["a", "b"]'))
    columns = [
        Binned("age", [0, 10, 20]),
        Categorical("smoker", [False, True]),
        Categorical("town", ["a", "b"], "ignore"),
    ]
    assert Schema.load(file) == Schema([MissingLevel(column) for column in columns], intercept=True)


def test_a_skeleton_is_short() -> None:
    """A comment block, then a line a column."""
    text = skeleton({f"x{k}": Held.NUMBERS for k in range(21)}, "x0")
    assert len(text.splitlines()) <= 21 + 15
    assert all(line.startswith("#") for line in text.splitlines()[:9])
    assert text.count("#") == sum(line.startswith("#") for line in text.splitlines())


def test_a_dictionary_fills_in_what_is_public(tmp_path: Path) -> None:
    file = tmp_path / "dictionary.csv"
    file.write_text(
        "Variable,Type,Label,Unit,Min,Max,Values,Missing,Remark\n"
        "age,integer,Age,years,0,100,,,x\n"
        "sex,,Sex,,,,1=female|2=male,9,x\n"
        "seen,date,,,,,,1900-01-01;2999-01-01,x\n"
    )
    types = {"age": Held.OPEN, "sex": Held.OPEN, "seen": Held.OPEN, "on": Held.DATES, "y": Held.OPEN}
    text = skeleton(types, "y", read_dictionary(file))
    lines = [line for line in text.splitlines() if line.startswith("  {")]
    text = text.replace(lines[2], lines[2].replace("[]", '["2020-01-01", "2024-01-01"]', 1))
    (tmp_path / "s.toml").write_text(text.replace(lines[3] + "\n", ""))
    days = Date("seen", ["2020-01-01", "2024-01-01"], na_values=["1900-01-01", "2999-01-01"])
    columns = [
        Binned("age", [0, 25, 50, 75, 100]),
        Categorical("sex", ["1", "2"], "ignore", na_values=["9"]),
        days,
    ]
    filled = Schema.load(tmp_path / "s.toml")
    assert filled.columns == tuple(MissingLevel(column) for column in columns)
    assert filled.titles == {"age": "Age (years)", "sex": "Sex", "seen": "seen"}
    with pytest.raises(SchemaError, match="dictionary: no column 'age'"):
        skeleton({"y": Held.OPEN, "x": Held.OPEN}, "y", read_dictionary(file))
    for bad, reason in (
        ("what,type\na,text\n", "needs a column called name or column"),
        ("name,low,high\na,9,1\n", "'a': low must be below high"),
        ("name,low,high\na,x,1\n", "'a': low must be a finite number"),
        ("name\na\na\n", "a name of its own"),
    ):
        file.write_text(bad)
        with pytest.raises(SchemaError, match=reason):
            read_dictionary(file)


def test_of_a_csv_file_the_header_is_read_and_nothing_else(tmp_path: Path) -> None:
    file, filled = tmp_path / "t.csv", tmp_path / "s.toml"
    file.write_bytes(b'age; "the ""town"""; y\n48213;"Quagmire never closed')
    text = skeleton(column_types(str(file)), "y")
    assert [c["name"] for c in tomllib.loads(text)["columns"]] == ["age", 'the "town"']
    filled.write_text(text)
    with pytest.raises(SchemaError, match="kind must be one of"):
        Schema.load(filled)
    filled.write_text(text.replace('kind = ""', 'kind = "binned", edges = [0, 1, 2]'))
    assert Schema.load(filled).n_features == 3 + 3 + 1
    for content, reason in ((b"44,Quagmire\n1,2\n", "holds numbers"), (b"a,,b\n", "or gaps"), (b"", "empty")):
        file.write_bytes(content)
        with pytest.raises(SchemaError, match=reason) as refused:
            column_types(str(file))
        assert "Quagmire" not in str(refused.value)
    for target, reason in (("z", "no column 'z'"), ("y", "no column beside")):
        with pytest.raises(SchemaError, match=reason):
            skeleton({"y": Held.TEXT}, target)


def test_a_database_tells_types_by_its_catalogue(tmp_path: Path) -> None:
    pytest.importorskip("ibis")
    with sqlite3.connect(tmp_path / "t.db") as lite:
        lite.execute("CREATE TABLE t (age INTEGER, dose REAL, town TEXT, smoker BOOLEAN, on_day TIMESTAMP)")
    found = column_types(f"sqlite://{tmp_path}/t.db", "t")
    assert list(found.values()) == [Held.NUMBERS, Held.NUMBERS, Held.TEXT, Held.TRUTH, Held.DATES]


def test_values_of_enumerations_are_in_the_catalogue(tmp_path: Path) -> None:
    """Also those that no record holds."""
    pytest.importorskip("ibis")
    with pytest.importorskip("duckdb").connect(str(tmp_path / "t.duckdb")) as database:
        database.execute("CREATE TYPE stage AS ENUM ('I', 'it''s II', 'III')")
        database.execute("CREATE TABLE t (stage stage, free VARCHAR)")
        database.execute("INSERT INTO t VALUES ('I', 'Quagmire')")
    found = enumerations(f"duckdb://{tmp_path}/t.duckdb", "t")
    assert found == {"stage": Known(categories=("I", "it's II", "III"))}
    text = skeleton({"stage": Held.TEXT, "free": Held.TEXT}, "free", found)
    assert 'categories = ["I", "it\'s II", "III"]' in text
    assert enumerations("t.csv") == {}
    with closing(sqlite3.connect(tmp_path / "t.sqlite")) as other:  # which has no enumerations
        other.execute("CREATE TABLE t (stage TEXT)")
    assert enumerations(f"sqlite://{tmp_path}/t.sqlite", "t") == {}


def test_values_of_enumerations_are_in_the_catalogue_of_postgresql(postgres: str) -> None:
    pytest.importorskip("ibis")
    with pytest.importorskip("psycopg").connect(postgres, autocommit=True) as database:
        database.execute("DROP TABLE IF EXISTS enumerated; DROP TYPE IF EXISTS stage")
        database.execute("CREATE TYPE stage AS ENUM ('low', 'high')")
        database.execute("CREATE TABLE enumerated (a stage, b TEXT)")
    assert enumerations(postgres, "enumerated") == {"a": Known(categories=("low", "high"))}
