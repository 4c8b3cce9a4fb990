"""Trees and rule lists on the command line: fit, plan, predict, card, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from privopt.experiments.cli.main import app
from privopt.mechanisms import PrivateAdditiveTreeClassifier
from privopt.problems import Categorical, Numeric, Schema


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(18, 91, 400), "job": rng.choice(["nurse", "cook"], 400)})
    table["state"] = np.where((table["age"] > 54) & (table["job"] == "cook"), "ill", "well")
    table.to_csv(tmp_path / "t.csv", index=False)
    Schema([Numeric("age", 18, 90), Categorical("job", ["nurse", "cook"])]).save(tmp_path / "s.toml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Any:
    return CliRunner().invoke(app, list(words))


PLAN = ("--schema", "s.toml", "--records")
FIT = ("fit", "--data", "t.csv", "--target", "state", "--schema", "s.toml", "--classes", "well,ill")


@pytest.mark.parametrize("model", ["tree", "rules"])
def test_from_a_table_to_a_printed_model(model: str, folder: Path) -> None:
    options = (
        "--epsilon",
        "20",
        "--model",
        model,
        "--risk-share",
        "0.1",
        "--save",
        "m.json",
        "--json",
        "r.json",
    )
    found = run(*FIT, *options)
    assert found.exit_code == 0, found.output
    report = json.loads(Path("r.json").read_text())
    assert report["train_accuracy"] > 0.9
    assert report["epsilon"] == 20
    assert run("predict", "m.json", "t.csv", "--output", "p.csv", "--proba").exit_code == 0
    told = pd.read_csv("p.csv")
    assert (told["prediction"] == pd.read_csv("t.csv")["state"]).mean() == pytest.approx(
        report["train_accuracy"]
    )
    for name in ("m.html", "m.md", "m.svg", "m.sql"):
        assert run("card", "m.json", "--output", name).exit_code == 0
    assert "<svg" in Path("m.html").read_text()
    assert "age" in Path("m.md").read_text()


def test_a_plan_needs_no_data(folder: Path) -> None:
    words = ("plan", "--schema", "s.toml", "--records", "1000", "--epsilon", "1", "--model", "tree", "--json")
    found = run(*words, "--classes", "well,ill")
    assert found.exit_code == 0, found.output
    plan = json.loads(found.output)
    assert (plan["epsilon"], plan["delta"], plan["levels"], plan["predicates"]) == (1.0, 0.0, 4, 8)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--model", "forest"), "there are card, linear, robust, tree, rules"),
        (("--model", "tree", "--mechanism", "exponential"), "decision trees (--model tree) do not take it"),
        (("--model", "tree", "--lattice=-1:1"), "--lattice"),
        (("--model", "tree", "--loss", "logistic"), "--loss"),
        (("--max-depth", "2"), "--max-depth belongs to"),
        (("--model", "tree", "--max-depth", "9"), "from 1 to 4"),
    ],
)
def test_what_does_not_fit_together_is_refused(words: tuple[str, ...], said: str, folder: Path) -> None:
    found = run(*FIT, "--epsilon", "1", *words)
    assert found.exit_code != 0
    assert said in (found.output + str(found.exception))


def test_a_card_and_a_tree_together(folder: Path) -> None:
    found = run(*FIT, "--epsilon", "20", "--model", "additive", "--save", "m.json", "--json", "r.json")
    assert found.exit_code == 0, found.output
    assert json.loads(Path("r.json").read_text())["epsilon"] == 20
    assert run("predict", "m.json", "t.csv", "--output", "p.csv").exit_code == 0
    assert set(pd.read_csv("p.csv")["prediction"]) == {"ill", "well"}
    for name in ("m.html", "m.md"):
        assert run("card", "m.json", "--output", name).exit_code == 0
        assert "state = ill" in Path(name).read_text()
    assert run("card", "m.json", "--output", "m.sql", "--table", "patients").exit_code == 0
    assert 'FROM "patients"' in Path("m.sql").read_text()
    refused = run("card", "m.json", "--output", "m.svg")
    assert ".html, .md, .json or .sql" in str(refused.exception)
    lacking = run("card", "none.json", "--output", "m.svg")
    assert isinstance(lacking.exception, FileNotFoundError)
    planned = run("plan", *PLAN, "400", "--epsilon", "1", "--model", "additive")
    assert "tree: levels: " in planned.output
    refused = run("predict", "m.json", "t.csv", "--proba")
    assert "the sum of a card and a tree predicts scores" in str(refused.exception)


@pytest.mark.parametrize(("records", "model"), [("400", "tree"), ("10000000", "card")])
def test_a_plan_says_which_model_is_chosen_and_why(records: str, model: str, folder: Path) -> None:
    found = run("plan", *PLAN, records, "--epsilon", "1", "--model", "auto", "--json")
    assert found.exit_code == 0, found.output
    report = json.loads(found.output)
    assert report["model"] == model
    assert "records times epsilon" in report["model_reason"]


@pytest.mark.parametrize(("records", "model"), [("300", "tree"), ("4000", "additive"), ("10000000", "card")])
def test_a_plan_says_which_model_ranks_best(records: str, model: str, folder: Path) -> None:
    found = run("plan", *PLAN, records, "--epsilon", "1", "--model", "auto", "--ranking", "--json")
    assert found.exit_code == 0, found.output
    report = json.loads(found.output)
    assert report["model"] == model
    assert "to rank" in report["model_reason"]


def test_ranking_belongs_to_the_choice_alone_and_sums_predict_no_probabilities(
    folder: Path,
) -> None:
    refused = run("plan", *PLAN, "4000", "--epsilon", "1", "--model", "tree", "--ranking")
    assert "--ranking belongs to models chosen by public facts" in str(refused.exception)
    options = ("--epsilon", "1", "--model", "auto", "--ranking", "--risk-share", "0.1")
    refused = run("plan", *PLAN, "4000", *options)
    assert "predicts scores and no probabilities" in str(refused.exception)
    assert run("plan", *PLAN, "10000000", *options).exit_code == 0


def test_a_fit_takes_the_model_that_the_plan_names(folder: Path) -> None:
    found = run(*FIT, "--epsilon", "5", "--model", "auto", "--save", "m.json")
    assert found.exit_code == 0, found.output
    assert "model: tree (records times epsilon are 2e+03" in found.output
    assert json.loads(Path("m.json").read_text())["format"].startswith("privopt-tree")
    found = run(*FIT, "--epsilon", "5", "--model", "auto", "--ranking", "--save", "sum.json")
    assert "model: additive" in found.output
    assert json.loads(Path("sum.json").read_text())["format"] == PrivateAdditiveTreeClassifier.file_format
    planned = run("plan", *PLAN, "400", "--epsilon", "5", "--model", "auto", "--ranking")
    assert "tree: levels: " in planned.output
