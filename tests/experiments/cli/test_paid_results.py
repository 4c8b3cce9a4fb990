"""Paid means kept: no terminal, pipe or full disk takes away what was released, or what was booked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.experiments.cli import files
from privopt.experiments.cli.errors import UnshownResultError
from privopt.experiments.cli.files import PaidFile
from privopt.experiments.cli.models import load_model
from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators.evaluate import Evaluation
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems import Categorical, InvalidInputError, Numeric, Schema
from privopt.problems.files import ReservedFile, write_atomically

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks; /dev/full")

# One import, then a fork for every case: its standard output is a pipe that nobody reads, a device that is
# full, or closed; the same for standard error, where asked.
PROGRAM = """
import json, os, resource, sys
from tests.warm_process import import_and_freeze
from privopt.experiments.cli.main import main

def broken(kind):
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY)
    reader, writer = os.pipe()
    os.close(reader)
    return writer

import_and_freeze()
for line in sys.stdin:
    case = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(case["folder"])
        os.environ["TMPDIR"] = case["folder"] + "/tmp"
        if case["out"] == "closed":
            sys.stdout = None
        else:
            os.dup2(broken(case["out"]), 1)
        os.dup2(broken(case["out"]) if case["err"] else os.open("said", os.O_WRONLY | os.O_CREAT), 2)
        if case["most"]:
            resource.setrlimit(resource.RLIMIT_FSIZE, (case["most"], case["most"]))
        sys.argv = ["privopt", *case["words"]]
        main()
        os._exit(99)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

COLUMNS = [Numeric("age", 0, 100, step=10), Categorical("smoker", ["no", "yes"])]
DATA = ["--data", "clinic.csv", "--target", "state", "--epsilon", "1", "--ledger", "ledger"]
PUBLIC = ["--schema", "schema.json", "--classes", "no,yes"]
# What each command writes, by which option, and how it is read.
SPENDING = {
    "card": (["fit", *DATA, *PUBLIC], "--save"),
    "linear": (["fit", *DATA, *PUBLIC, "--loss", "logistic"], "--save"),
    "robust": (["fit", *DATA, *PUBLIC, "--robust"], "--save"),
    "estimate": (
        ["estimate", "subset-mean", *DATA, *PUBLIC, "--loss", "logistic", "--radius", "5"],
        "--save",
    ),
    "evaluation": (["evaluate", "model.json", *DATA], "--json"),
    "schema": (["schema", "learn", "clinic.csv", *DATA[2:], "--types", "age=number,smoker=text"], "--save"),
}


@pytest.fixture(scope="module")
def program() -> Iterator[Any]:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:

        def run(folder: Path, out: str, words: list[str], *, err: bool = False, most: int = 0) -> int:
            case = {"folder": str(folder), "out": out, "words": words, "err": err, "most": most}
            assert running.stdin is not None
            assert running.stdout is not None
            print(json.dumps(case), file=running.stdin, flush=True)
            return int(running.stdout.readline())

        yield run


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table, its schema and a model of it."""
    folder = tmp_path_factory.mktemp("table")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(0, 101, 300), "smoker": rng.choice(["no", "yes"], 300)})
    frame["state"] = np.where((frame["smoker"] == "yes") & (frame["age"] > 30), "yes", "no")
    frame.to_csv(folder / "clinic.csv", index=False)
    schema = Schema(COLUMNS, intercept=True)
    (folder / "schema.json").write_text(json.dumps(schema.to_dict()))
    model = PrivateHalfspaceClassifier(5.0, schema=schema, classes=("no", "yes"), insecure_seed=0)
    model.fit(frame[["age", "smoker"]], frame["state"]).save(folder / "model.json")
    return folder


@pytest.fixture
def clinic(table: Path, tmp_path: Path) -> Path:
    shutil.copytree(table, tmp_path, dirs_exist_ok=True)
    (tmp_path / "tmp").mkdir()
    Ledger.create(tmp_path / "ledger", 1.0, 0.1)
    return tmp_path


def is_result(path: Path) -> bool:
    content = json.loads(path.read_text("utf-8"))
    if "columns" in content:
        return Schema.load(path).n_features > 0
    if "estimate" in content:
        return bool(np.all(np.isfinite(list(content["estimate"].values()))))
    return "weights" in content or Evaluation.from_dict(content).histogram.n_records == 300


def states(clinic: Path) -> list[str]:
    return [entry.state for entry in Ledger(clinic / "ledger").entries()]


def shared_out(outs: Sequence[str]) -> list[Any]:
    """Every command with one of the outs, every out with two commands; a card with all. The rest are slow."""
    return [
        pytest.param(what, out, marks=[] if what == "card" or k % len(outs) == j else pytest.mark.slow)
        for k, what in enumerate(SPENDING)
        for j, out in enumerate(outs)
    ]


@pytest.mark.parametrize(("what", "out"), shared_out(["pipe", "full", "closed"]))
def test_what_was_asked_to_be_saved_is_saved(clinic: Path, program: Any, what: str, out: str) -> None:
    words, option = SPENDING[what]
    code = program(clinic, out, [*words, option, "kept.json"], err=out == "pipe")
    assert code == (0 if what == "schema" and out != "closed" else 74)  # a saved schema is not printed
    assert is_result(clinic / "kept.json")
    assert states(clinic) == ["committed"]
    assert list((clinic / "tmp").iterdir()) == []
    assert not [p for p in clinic.iterdir() if p.suffix == ".partial"]


@pytest.mark.parametrize(("what", "out"), shared_out(["closed", "pipe", "full"]))
def test_what_could_not_be_shown_is_kept(clinic: Path, program: Any, what: str, out: str) -> None:
    """In a temporary file, of which standard error tells where it is."""
    words, _ = SPENDING[what]
    assert program(clinic, out, words) == 74
    (kept,) = (clinic / "tmp").iterdir()
    assert is_result(kept)
    assert kept.stat().st_mode & 0o077 == 0
    assert f"it is in {kept}" in (clinic / "said").read_text("utf-8").replace("\n", "")
    assert states(clinic) == ["committed"]


def test_the_model_that_a_search_chose_is_kept(clinic: Path, program: Any) -> None:
    words = ["search", *DATA, *PUBLIC, *(["--candidate", "--model tree --max-depth 1"] * 2)]
    code = program(clinic, "full", words, err=True)
    assert code == 74
    (kept,) = (clinic / "tmp").iterdir()
    assert load_model(kept).spend_.mechanism == "private-selection"
    assert states(clinic) == ["committed"]


@pytest.mark.parametrize("out", ["pipe", "full"])
def test_what_was_booked_by_hand_is_not_called_refused(clinic: Path, program: Any, out: str) -> None:
    """Exit code 1 would say that nothing was booked."""
    assert program(clinic, out, ["budget", "spend", "ledger", "--epsilon", "0.5"]) == 74
    assert states(clinic) == ["committed"]


@pytest.mark.parametrize("what", SPENDING)
def test_a_disk_without_room_for_the_result_is_found_before_anything_is_spent(
    clinic: Path, program: Any, what: str
) -> None:
    """Files of at most 400,000 bytes: enough for the ledger, not for what is set aside for a result."""
    words, option = SPENDING[what]
    for more in ([option, "kept.json"], []):
        assert program(clinic, "pipe", [*words, *more], most=400_000) == 2
        assert "Nothing was run" in (clinic / "said").read_text("utf-8").replace("\n", " ")
    assert states(clinic) == []
    assert not (clinic / "kept.json").exists()
    assert list((clinic / "tmp").iterdir()) == []


@pytest.mark.parametrize(("what", "where"), shared_out(["missing/kept.json", ".", "/dev/null"]))
def test_a_place_that_takes_no_file_is_found_before_anything_is_spent(
    clinic: Path, program: Any, what: str, where: str
) -> None:
    words, option = SPENDING[what]
    assert program(clinic, "pipe", [*words, option, where]) == 2
    assert states(clinic) == []


def test_a_place_that_is_gone_after_the_release_is_replaced_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.tempfile, "tempdir", str(tmp_path))
    (tmp_path / "gone").mkdir()
    with PaidFile(tmp_path / "gone" / "m.json", "--save") as kept:
        (next((tmp_path / "gone").iterdir())).unlink()
        (tmp_path / "gone").rmdir()
        with pytest.raises(UnshownResultError, match=r"is paid for: it is in .*privopt-kept-.*\.json"):
            kept.keep("the result")
    (other,) = tmp_path.iterdir()
    assert other.read_text() == "the result"


def test_a_file_that_is_reserved_is_what_it_was_until_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    path.write_text("before")
    with ReservedFile(path, "--save", room=5000) as file:
        assert path.read_text() == "before"
        assert sorted(p.stat().st_size for p in tmp_path.iterdir()) == [6, 5000]
        file.write(["after", "wards"])
        assert path.read_text() == "afterwards"
    with ReservedFile(path, "--save"):
        pass
    write_atomically(path, "again")
    assert [p.read_text() for p in tmp_path.iterdir()] == ["again"]
    with pytest.raises(InvalidInputError, match="its folder does not exist"):
        write_atomically(tmp_path / "no" / "m.json", "")
