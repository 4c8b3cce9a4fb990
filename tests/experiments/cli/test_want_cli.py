"""``privopt plan --want``: bands and widths as in Python, one number left out, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import privopt.experiments.cli.plan as module
from privopt.mechanisms import ExpectedAuc, ExpectedIntervals
from privopt.problems import Categorical, Numeric, Schema

SCHEMA = Schema([Numeric("age", 20, 80), Categorical("region", ["a", "b", "c"])], intercept=True)
AUC = ("--prevalence", "0.2", "--best-auc", "0.85")
INTERVAL = ("--label-range", "0:10", "--residual-sd", "1")


def planned(folder: Path, *words: str) -> Any:
    SCHEMA.save(folder / "schema.toml")
    return CliRunner().invoke(module.app, ["--schema", str(folder / "schema.toml"), *words])


def test_auc_is_the_band_of_python(tmp_path: Path) -> None:
    words = (*AUC, "--records", "2000", "--epsilon", "1")
    report = json.loads(planned(tmp_path, "--want", "auc=0.8", *words, "--json").output)
    expected = ExpectedAuc(SCHEMA, 0.2, 0.85)
    assert report["auc"] == expected.at(2000, 1.0)._asdict()
    assert report["records"] == expected.records(0.8, 1.0)._asdict()
    assert report["epsilon"] == expected.epsilon(0.8, 2000)._asdict()
    told = planned(tmp_path, "--want", "auc", *words).output
    low, middle, high = expected.at(2000, 1.0)
    assert f"{low:.3f} to {high:.3f}, median {middle:.3f}" in told
    assert "a forecast, not a promise" in told
    assert "beyond what was measured" not in told
    beyond = ("auc=0.8", *AUC, "--records", "90000"), ("auc=0.51", *AUC, "--epsilon", "8", "--delta", "0.01")
    for words in beyond:  # given, and found
        told = planned(tmp_path, "--want", *words).output
        assert "beyond what was measured: records from 500 to 8,000" in told


def test_intervals_are_those_of_python(tmp_path: Path) -> None:
    expected = ExpectedIntervals(SCHEMA, (0.0, 10.0), 1.0)
    words = (*INTERVAL, "--epsilon", "1", "--json")
    report = json.loads(planned(tmp_path, "--want", "interval:region=b=0.5", *words).output)
    assert report == {"records": expected.records(0.5, 1.0, "region=b")}
    report = json.loads(planned(tmp_path, "--want", "interval:region=b", *words, "--records", "9000").output)
    assert report["widths"]["region=b"] == expected.widths(9000, 1.0)["region=b"]._asdict()
    told = planned(tmp_path, "--want", "interval=0.5", *INTERVAL, "--records", "300", "--epsilon", "1").output
    assert "cannot be planned" in told  # at 300 records; and what it takes
    assert f"at epsilon = 1: {expected.records(0.5, 1.0):,}" in told
    assert "without privacy" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--want auc=0.8 --epsilon 1", "needs --prevalence and --best-auc"),
        ("--want auc=0.9 --epsilon 1 --prevalence 0.2 --best-auc 0.85", "out of reach"),
        ("--want auc=0.8 --prevalence 0.2 --best-auc 0.85", "needs one of --records and --epsilon"),
        ("--want auc --epsilon 1 --prevalence 0.2 --best-auc 0.85", "needs --records"),
        ("--want auc --prevalence 0.2 --best-auc 0.85 --mechanism rspm", "leave out --mechanism"),
        ("--want auc --prevalence 0.2 --best-auc 0.85 --person p", "leave out --person"),
        ("--want auc=0.8 --epsilon 1 --prevalence 0.2,0.3 --best-auc 0.85", "one number"),
        ("--want auc=0.8 --epsilon 1 --prevalence 0.2 --best-auc 0.85 --classes a,b,c", "two classes"),
        ("--want auc=0.8 --epsilon 1 --prevalence 0.2 --best-auc 0.85 --model tree", "card and linear"),
        ("--want auc:age=0.8 --epsilon 1", "--want is auc"),
        ("--want risk=0.8 --epsilon 1", "--want is auc"),
        ("--want interval:=0.5 --epsilon 1", "--want is auc"),
        ("--want interval=0.5 --epsilon 1 --label-range 0:10", "needs --residual-sd"),
        (
            "--want interval=0.5 --epsilon 1 --label-range 0:10 --residual-sd 1 --model card",
            "linear regression",
        ),
        ("--want interval:x=0.5 --epsilon 1 --label-range 0:10 --residual-sd 1", "no coefficient 'x'"),
        ("--epsilon 1", "plan needs --records"),
        ("--records 10", "plan needs --epsilon"),
        ("--records 10 --epsilon 1 --best-auc 0.8", "--best-auc: only with --want"),
    ],
)
def test_refusals_say_what_to_do(tmp_path: Path, words: str, told: str) -> None:
    run = planned(tmp_path, *words.split())
    assert run.exit_code != 0
    assert told in str(run.exception)
