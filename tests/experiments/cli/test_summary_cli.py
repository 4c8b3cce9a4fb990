"""``privopt summary``: intervals of saved regressions as a table, JSON and a picture."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateLinearRegression
from privopt.mechanisms.inference.robust_least_squares import RobustLeastSquares
from privopt.problems import Categorical, Numeric, Schema

Command = Callable[..., Any]
SCHEMA = Schema([Numeric("age", 0, 100), Categorical("smoker", ["no", "yes"])])

FIT = ("fit", "--data", "patients.csv", "--schema", "schema.json", "--target", "cost", "--loss", "squared")
FIT += ("--label-range", "0:100", "--epsilon", "3", "--insecure-seed", "1")


@pytest.fixture(autouse=True)
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, privopt: Command) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 95, 4000), "smoker": rng.choice(["no", "yes"], 4000)})
    frame["cost"] = frame["age"] / 2 + 20 * (frame["smoker"] == "yes")
    frame.to_csv("patients.csv", index=False)
    SCHEMA.save("schema.json")
    assert privopt(*FIT, "--save", "model.json").returncode == 0
    assert privopt(*FIT, "--mechanism", "dp-gd", "--save", "descent.json").returncode == 0


def test_intervals_are_robust_where_the_fit_paid_for_that(privopt: Command) -> None:
    assert privopt(*FIT, "--errors", "robust", "--save", "robust.json").returncode == 0
    assert isinstance(PrivateLinearRegression.load("robust.json").inference_, RobustLeastSquares)
    assert "age" in privopt("summary", "robust.json").stdout
    assert "needs sufficient-statistics" in privopt(*FIT, "--errors", "robust", "--mechanism", "dp-gd").stderr
    of_classes = (*FIT[:7], "--epsilon", "3", "--errors", "robust")
    assert "--errors belongs to regression" in privopt(*of_classes, "--model", "linear").stderr


def test_it_prints_coefficients_per_unit_of_their_columns(privopt: Command) -> None:
    run = privopt("summary", "model.json", "--json", "out.json", "--confidence", 0.9)
    assert run.returncode == 0
    assert "90% interval" in run.stdout
    assert "Relative to smoker=no." in run.stdout
    assert "epsilon = 3" in run.stdout
    found = json.loads(Path("out.json").read_text())
    assert found == PrivateLinearRegression.load("model.json").summary(0.9).to_dict()
    values = {one["name"]: one for one in found["intervals"]}
    assert list(values) == ["age", "smoker=yes", "intercept"]
    for name, true in (("age", 0.5), ("smoker=yes", 20), ("intercept", 0)):
        # Errors beyond six standard deviations of the noise have no place in a seeded draw.
        reach = 6 / 1.645 * (values[name]["high"] - values[name]["low"]) / 2
        assert abs(values[name]["estimate"] - true) <= reach


def test_it_prints_log_odds_of_a_model_with_a_hessian(privopt: Command) -> None:
    frame = pd.read_csv("patients.csv")
    odds = np.exp((frame["age"] - 60) / 20 - 1.5 * (frame["smoker"] == "yes"))
    frame["state"] = np.where(np.random.default_rng(1).random(len(frame)) < odds / (1 + odds), "ill", "well")
    frame.to_csv("states.csv", index=False)
    words = ("fit", "--data", "states.csv", "--schema", "schema.json", "--target", "state", "--epsilon", 3)
    words += ("--classes", "well,ill", "--loss", "logistic", "--insecure-seed", 1, "--save", "odds.json")
    assert privopt(*words, "--mechanism", "objective-perturbation-hessian").returncode == 0
    run = privopt("summary", "odds.json", "--json", "out.json")
    assert run.returncode == 0
    assert "log odds of ill against well" in run.stdout
    values = {one["name"]: one for one in json.loads(Path("out.json").read_text())["intervals"]}
    for name, true in (("age", 0.05), ("smoker=yes", -1.5), ("intercept", -3.0)):
        # As above: six standard deviations, of the sampling of records too.
        reach = 6 / 1.96 * (values[name]["high"] - values[name]["low"]) / 2
        assert abs(values[name]["estimate"] - true) <= reach < 10 * abs(true)


@pytest.mark.parametrize("name", ["forest.svg", "forest.png"])
def test_it_draws_a_forest_plot(privopt: Command, name: str) -> None:
    assert privopt("summary", "model.json", "--plot", name).returncode == 0
    drawn = Path(name).read_bytes()
    assert drawn[:4] == (b"\x89PNG" if name.endswith("png") else b"<?xm")
    if name.endswith("svg"):
        assert b"smoker=yes" in drawn


def test_it_says_what_has_no_intervals(privopt: Command) -> None:
    for words, text in (
        (("descent.json",), 'mechanism="sufficient-statistics"'),
        (("schema.json",), "holds no model with intervals"),
        (("model.json", "--plot", "forest.txt"), "must end in .svg"),
        (("model.json", "--confidence", 95), "confidence must be a number"),
    ):
        run = privopt("summary", *words)
        assert run.returncode == 2
        assert text in " ".join(run.stderr.split())
