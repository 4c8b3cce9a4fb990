"""``privopt search``: candidates are options of ``privopt fit``, booked once and saved before printing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateTreeClassifier
from privopt.mechanisms.privacy.ledger import Ledger

Command = Callable[..., Any]
SCHEMA = """[[columns]]
name = "smoker"
kind = "categorical"
categories = ["no", "yes"]
"""
TREES = ("--candidate", "--model tree --max-depth 1", "--candidate", "--model=rules --max-depth=1")
WORDS = ("search", "--data", "t.csv", "--target", "state", "--schema", "s.toml", "--classes", "well,ill")


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    smoker = np.arange(300) % 2
    table = {"smoker": np.where(smoker, "yes", "no"), "state": np.where(smoker, "ill", "well")}
    pd.DataFrame(table).to_csv(tmp_path / "t.csv", index=False)
    (tmp_path / "s.toml").write_text(SCHEMA)
    return tmp_path


def test_best_model_is_booked_once_saved_and_reported(privopt: Command, clinic: Path) -> None:
    book = Ledger.create(clinic / "ledger.db", 9, 0.01)
    words = ("--ledger", "ledger.db", "--save", "best.json", "--json", "report.json")
    run = privopt(*WORDS, "--epsilon", 8, *TREES, *words, cwd=clinic)
    assert run.returncode == 0, run.stderr
    assert "expected: noise" in run.stderr  # a broken pipe there would end the run
    report = json.loads((clinic / "report.json").read_text())
    assert report["best_candidate"] in TREES
    assert report["scoring"] == "accuracy"
    assert report["epsilon"] == pytest.approx(8)
    assert f"best candidate: {report['best_candidate']}" in run.stdout
    assert book.total().epsilon == pytest.approx(8)
    assert len(book.entries()) == 1
    if "tree" in report["best_candidate"]:
        assert PrivateTreeClassifier.load(clinic / "best.json").spend_.epsilon == pytest.approx(8)
    predicted = privopt("predict", "best.json", "t.csv", cwd=clinic)
    assert predicted.returncode == 0, predicted.stderr
    refused = privopt(*WORDS, "--epsilon", 8, *TREES, "--ledger", "ledger.db", cwd=clinic)
    assert refused.returncode == 1
    assert "Nothing was booked" in refused.stderr


def test_plan_runs_nothing(privopt: Command, clinic: Path) -> None:
    Ledger.create(clinic / "ledger.db", 1)
    run = privopt(*WORDS, "--epsilon", 1, *TREES, "--ledger", "ledger.db", "--plan", cwd=clinic)
    assert run.returncode == 0, run.stderr
    assert "all 2 candidates are run" in run.stdout
    assert "affords it; nothing was booked" in run.stdout
    assert Ledger(clinic / "ledger.db").entries() == []


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        ("--model tree --epsilon 3", "--epsilon is no option of a candidate"),
        ("--model tree -h", "-h is no option of a candidate"),
        ("--model tree --ledger=x", "--ledger is no option"),
        ("--model auto", "name a model"),
        ("--model tree --lattice 1", "do not take"),
        ("--model 'tree", "No closing quotation"),
        ("--model linear --loss squared", "belongs to classification"),
    ],
)
def test_candidates_that_cannot_be_are_refused(
    privopt: Command, clinic: Path, candidate: str, said: str
) -> None:
    words = ("--candidate", "--model tree", "--candidate", candidate)
    run = privopt(*WORDS, "--epsilon", 1, *words, cwd=clinic)
    assert run.returncode == 2
    assert said in run.stderr


def test_one_candidate_is_no_search(privopt: Command, clinic: Path) -> None:
    run = privopt(*WORDS, "--epsilon", 1, "--candidate", "--model tree", cwd=clinic)
    assert run.returncode == 2
    assert "one candidate needs no search" in run.stderr
