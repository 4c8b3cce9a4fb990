"""``--data`` that names a table in an engine: the same models, evaluations and predictions, or a refusal."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.problems.tables.schema import Schema

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("ibis", reason="pip install 'privopt[engines]'")

SCHEMA = """
intercept = true

[[columns]]
kind = "binned"
name = "age"
edges = [0, 40, "62.5", 100]
missing_level = true

[[columns]]
kind = "categorical"
name = "smoker"
categories = ["no", "yes"]
"""
FIT = ("fit", "--target", "state", "--schema", "schema.toml", "--classes", "0,1", "--epsilon", "2")


Command = Callable[..., Any]


@pytest.fixture
def clinic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same 400 patients as a file, a folder of files and two databases; tests run in their folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 95, 400) / 2.0, "smoker": rng.choice(["no", "yes"], 400)})
    frame.loc[::17, "age"] = np.nan
    frame["state"] = ((frame["smoker"] == "yes") & ~(frame["age"] < 20)).astype(int)
    frame.to_parquet(tmp_path / "patients.parquet", index=False)
    (tmp_path / "parts").mkdir()
    for k, part in enumerate(np.array_split(np.arange(400), 3)):
        frame.iloc[part].to_parquet(tmp_path / "parts" / f"{k}.parquet", index=False)
    with sqlite3.connect(tmp_path / "clinic.sqlite") as database:
        frame.to_sql("patients", database, index=False)
    database.close()
    raw = duckdb.connect(tmp_path / "clinic.duckdb")
    raw.execute(f"CREATE SCHEMA ward; CREATE TABLE ward.patients AS FROM '{tmp_path}/patients.parquet'")
    raw.close()
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def addresses(clinic: Path) -> list[tuple[str, ...]]:
    return [
        ("parts/*.parquet",),
        (f"sqlite://{clinic}/clinic.sqlite", "--table", "patients"),
        (f"duckdb://{clinic}/clinic.duckdb", "--table", "ward.patients"),
    ]


@pytest.mark.parametrize("options", [(), ("--loss", "logistic"), ("--class-weight", "balanced")])
def test_a_fit_is_the_same_wherever_the_records_are(
    privopt: Command, clinic: Path, options: tuple[str, ...]
) -> None:
    def report(*data: str) -> dict[str, Any]:
        run = privopt(*FIT, *options, "--insecure-seed", 1, "--json", "out.json", "--data", *data)
        assert run.returncode == 0, run.stderr
        found: dict[str, Any] = json.loads((clinic / "out.json").read_text())
        del found["seconds"], found["certificate"]
        return found

    expected = report("patients.parquet")
    for data in addresses(clinic):
        found = report(*data)
        np.testing.assert_allclose(found.pop("weights"), expected["weights"], atol=1e-9)
        for key in set(found) - {"intercept"}:
            assert found[key] == expected[key], key


@pytest.mark.parametrize("kind", [("--mechanism", "seeded"), ("--loss", "logistic")])
def test_schemas_are_learned_wherever_the_records_are(
    privopt: Command, clinic: Path, kind: tuple[str, str]
) -> None:
    def learned(*data: str) -> Any:
        alone = privopt("schema", "learn", *data, "--target", "state", "--epsilon", 20, "--insecure-seed", 1)
        assert alone.returncode == 0, alone.stderr
        asked = ("--target", "state", "--learn-schema", 0.3, "--classes", "0,1", "--epsilon", 20, *kind)
        run = privopt("fit", "--data", *data, *asked, "--insecure-seed", 1, "--json", "o.json")
        assert run.returncode == 0, run.stderr
        found = json.loads((clinic / "o.json").read_text())
        same = {key: found[key] for key in ("spend", "train_accuracy", "classes") if key in found}
        return alone.stdout, same

    expected = learned("patients.parquet")
    for data in addresses(clinic):
        assert learned(*data) == expected


@pytest.mark.parametrize("kind", [("--mechanism", "seeded"), ("--loss", "logistic")])
def test_a_long_table_is_read_once(
    privopt: Command, clinic: Path, kind: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reports of a fit come from the counts, and say the same as the table itself."""
    monkeypatch.setenv("COLUMNS", "200")
    told, read = [], []
    codes = Schema.codes

    def counted(schema: Schema, table: Any) -> Any:
        read.extend([1] if len(table) else [])  # the columns of no rows are checked first
        return codes(schema, table)

    monkeypatch.setattr(Schema, "codes", counted)
    for least in (1_000_000, 1):
        monkeypatch.setattr("privopt.mechanisms.estimators.counting._LONG", least)
        run = privopt(*FIT, *kind, "--data", "patients.parquet", "--insecure-seed", 1, "--json", "fit.json")
        assert run.returncode == 0, run.stderr
        told.append(json.loads((clinic / "fit.json").read_text())["train_accuracy"])
        again, read[:] = len(read), []
    assert again == 1
    assert told[0] == told[1]


def test_predictions_and_evaluations_are_the_same(privopt: Command, clinic: Path) -> None:
    fitted = privopt(*FIT, "--data", "parts/*.parquet", "--save", "model.json", "--insecure-seed", 1)
    assert fitted.returncode == 0, fitted.stderr
    expected = privopt("predict", "model.json", "patients.parquet").stdout
    assert len(expected.splitlines()) == 401
    judged = ("evaluate", "model.json", "--target", "state", "--epsilon", 1, "--insecure-seed", 1)
    numbers = privopt(*judged, "--data", "patients.parquet").stdout
    for data in addresses(clinic):
        assert privopt("predict", "model.json", *data, "--output", "out.csv").returncode == 0
        assert (clinic / "out.csv").read_text() == expected
        assert privopt(*judged, "--data", *data).stdout == numbers


def test_persons_are_protected_wherever_the_records_are(privopt: Command, clinic: Path) -> None:
    """Two records of each person in two places count as in a file; reports are of all records."""
    frame = pd.read_parquet(clinic / "patients.parquet").assign(who=np.arange(400) // 2)
    frame.to_parquet(clinic / "patients.parquet")
    for k, part in enumerate(np.array_split(np.arange(400), 3)):
        frame.iloc[part].to_parquet(clinic / "parts" / f"{k}.parquet")
    two = ("--person", "who", "--records-per-person", "2", "--insecure-seed", "1", "--json", "r.json")
    told = []
    for data in ("patients.parquet", "parts/*.parquet"):
        run = privopt(*FIT, *two, "--loss", "logistic", "--data", data, "--save", "m.json")
        assert run.returncode == 0, run.stderr
        told.append(json.loads((clinic / "r.json").read_text()))
        assert told[-1]["neighbours"] == "replace-one person"
    np.testing.assert_allclose(told[1]["weights"], told[0]["weights"], atol=1e-9)
    assert told[1]["train_accuracy"] == told[0]["train_accuracy"]
    judged = ("evaluate", "m.json", "--target", "state", "--epsilon", "1", "--data", "parts/*.parquet")
    run = privopt(*judged, "--person", "who")
    assert "(replace-one person" in run.stdout, run.stderr
    for person, said in (("nobody", "no column 'nobody'"), ("state", "that is the label")):
        assert said in privopt(*FIT, "--data", "parts/*.parquet", "--person", person).stderr


@pytest.mark.usefixtures("clinic")
def test_models_of_two_schemas_are_not_compared_in_an_engine_at_a_cost(privopt: Command) -> None:
    """An engine counts by one schema: the comparison failed after it was booked."""
    other = SCHEMA.replace("62.5", "70")
    assert other != SCHEMA
    Path("other.toml").write_text(other)
    privopt(*FIT, "--data", "parts/*.parquet", "--save", "a.json")
    privopt(*FIT, "--data", "parts/*.parquet", "--save", "b.json", "--schema", "other.toml")
    privopt("budget", "create", "l.db", "--epsilon", "9")
    judged = ("evaluate", "a.json", "--against", "b.json", "--target", "state", "--epsilon", "1")
    run = privopt(*judged, "--data", "parts/*.parquet", "--ledger", "l.db")
    assert (run.returncode, "an engine counts records by one schema" in run.stderr) == (2, True)
    assert "spent epsilon = 0 of 9" in privopt("budget", "show", "l.db").stdout


@pytest.mark.usefixtures("clinic")
def test_predictions_are_made_in_parts(privopt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert privopt(*FIT, "--data", "parts/*.parquet", "--save", "model.json").returncode == 0
    expected = privopt("predict", "model.json", "parts/*.parquet").stdout
    monkeypatch.setattr("privopt.experiments.cli.tables._PART", 7)
    assert privopt("predict", "model.json", "parts/*.parquet").stdout == expected


@pytest.mark.usefixtures("clinic")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--target", "state", "--epsilon", "1", "--data", "parts/*.parquet"),
            "--schema and --classes: declare",
        ),
        ((*FIT[1:], "--data", "parts/*.parquet", "--table", "t"), "a file holds one table"),
        ((*FIT[1:], "--data", "patients.parquet", "--table", "t"), "--table names a table"),
        ((*FIT[1:], "--data", "sqlite://clinic.sqlite"), "--table"),
        ((*FIT[1:], "--data", "sqlite://clinic.sqlite", "--table", "nobody"), "no table 'nobody'"),
        ((*FIT[1:], "--data", "parts/*.parquet", "--loss", "squared"), "--classes belongs"),
        (
            (*FIT[1:5], "--epsilon", "1", "--data", "parts/*.parquet", "--loss", "squared"),
            "needs a table in memory",
        ),
        ((*FIT[1:], "--data", "none/*.parquet"), "no Parquet files"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(privopt: Command, words: tuple[str, ...], message: str) -> None:
    run = privopt("fit", *words)
    assert (run.returncode, run.stdout) == (2, "")
    assert message in run.stderr


@pytest.mark.usefixtures("clinic")
def test_records_that_are_refused_are_paid_for(privopt: Command) -> None:
    """A refusal that depends on records is not free; one that depends on columns is."""
    assert privopt("budget", "create", "ledger.json", "--epsilon", "9", "--delta", "0.1").returncode == 0
    words = (*FIT, "--ledger", "ledger.json", "--data", "parts/*.parquet")
    unknown = privopt(*words, "--target", "nowhere")
    assert unknown.returncode == 2
    assert "Nothing was booked" in unknown.stderr
    refused = privopt(
        *FIT[:-4],
        "--classes",
        "0,2",
        "--epsilon",
        "1",
        "--data",
        "parts/*.parquet",
        "--ledger",
        "ledger.json",
    )
    assert refused.returncode == 2
    assert "outside the declared classes" in refused.stderr
    assert "counts as spent in ledger.json" in refused.stderr
    assert "Nothing was booked" not in refused.stderr
    assert "spent epsilon = 1 of 9" in privopt("budget", "show", "ledger.json").stdout


def test_help_loads_no_engine() -> None:
    import subprocess

    script = (
        "import sys; from privopt.experiments.cli import fit; "
        "print(sorted({'ibis', 'duckdb', 'sqlalchemy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
