"""``privopt evaluate`` and ``privopt predict --proba``, as a user types them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from privopt.experiments.cli.main import app
from privopt.mechanisms import PrivateLinearRegression, PrivateLogisticRegression, PrivateSigmoidClassifier
from privopt.problems import Binned, Categorical, InvalidInputError, Numeric, Schema
from privopt.problems.errors import SchemaError

SCHEMA = Schema([Numeric("age", 0, 100, step=10), Categorical("smoker", ["no", "yes"])], intercept=True)


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(0, 101, 900), "smoker": rng.choice(["no", "yes"], 900)})
    frame["state"] = np.where((frame["smoker"] == "yes") & (frame["age"] > 30), 1, 0)
    frame.to_csv(tmp_path / "clinic.csv", index=False)
    model = PrivateLogisticRegression(5.0, schema=SCHEMA, classes=("0", "1"), insecure_seed=0)
    model.fit(frame, frame["state"].astype(str)).save(tmp_path / "model.json")
    return tmp_path


def run(*words: object) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_evaluate_prints_numbers_with_intervals_and_books_them(clinic: Path) -> None:
    data, ledger = clinic / "clinic.csv", clinic / "ledger.json"
    run("budget", "create", ledger, "--epsilon", 3)
    words = ("evaluate", clinic / "model.json", "--data", data, "--target", "state", "--epsilon", 2)
    text = run(*words, "--ledger", ledger, "--json", clinic / "out.json")
    for part in ("accuracy", "area under the ROC curve", "predicted 1", "Risk by score", "epsilon = 2"):
        assert part in text
    report = json.loads((clinic / "out.json").read_text())
    assert np.sum(report["confusion"]) == 900
    accuracy = report["metrics"]["accuracy"]
    assert accuracy["low"] < accuracy["value"] < accuracy["high"]
    assert "epsilon = 2" in run("budget", "show", ledger)
    again = CliRunner().invoke(app, [str(word) for word in (*words, "--ledger", ledger)])
    assert again.exit_code != 0
    assert "overdraw" in str(again.exception)


def test_evaluate_takes_the_data_that_ships(clinic: Path) -> None:
    saved = clinic / "adult.json"
    run("fit", "--data", "adult23", "--epsilon", 1, "--mechanism", "dp-gd", "--save", saved)
    assert "share of the larger class" in run("evaluate", saved, "--data", "adult23:1", "--epsilon", 1)


def test_evaluate_prints_errors_of_a_regression_with_intervals_and_books_them(clinic: Path) -> None:
    frame, ledger = pd.read_csv(clinic / "clinic.csv"), clinic / "ledger.json"
    numbers = PrivateLinearRegression(5.0, schema=SCHEMA, label_range=(0, 1), insecure_seed=0)
    numbers.fit(frame, frame["state"]).save(clinic / "numbers.json")
    run("budget", "create", ledger, "--epsilon", 3)
    words = ("evaluate", clinic / "numbers.json", "--data", clinic / "clinic.csv", "--target", "state")
    text = run(*words, "--epsilon", 2, "--ledger", ledger, "--json", clinic / "out.json")
    for part in ("R^2", "root mean squared error", "clipped to 0 to 1", "epsilon = 2"):
        assert part in text
    report = json.loads((clinic / "out.json").read_text())
    rmse = report["metrics"]["rmse"]
    assert rmse["low"] < rmse["value"] < rmse["high"]
    assert "epsilon = 2" in run("budget", "show", ledger)
    wider = run(*words, "--epsilon", 2, "--label-range=-1:1")
    assert "clipped to -1 to 1" in wider
    with pytest.raises(InvalidInputError, match="label_range is for regressions"):
        run("evaluate", clinic / "model.json", *words[2:], "--epsilon", 1, "--label-range", "0:1")


def test_evaluate_against_another_model_prints_their_differences(clinic: Path) -> None:
    frame = pd.read_csv(clinic / "clinic.csv")
    other = Schema([Numeric("age", 0, 100, step=10)], intercept=True)
    model = PrivateLogisticRegression(5.0, schema=other, classes=("0", "1"), insecure_seed=0)
    model.fit(frame, frame["state"].astype(str)).save(clinic / "other.json")
    words = ("evaluate", clinic / "model.json", "--against", clinic / "other.json", "--target", "state")
    data = ("--data", clinic / "clinic.csv", "--epsilon", 2, "--json", clinic / "out.json")
    text = run(*words, *data)
    for part in ("first minus second", "difference of balanced accuracy", "epsilon = 2"):
        assert part in text
    found = json.loads((clinic / "out.json").read_text())["metrics"]["difference of accuracy"]
    assert 0 < found["low"] < found["value"] < found["high"]  # the other does not know who smokes
    frame[["smoker", "state"]].to_csv(clinic / "narrow.csv", index=False)
    with pytest.raises(SchemaError, match="age"):
        run(*words, "--data", clinic / "narrow.csv", "--epsilon", 1)


def test_evaluate_refuses_what_it_cannot_evaluate(clinic: Path) -> None:
    with pytest.raises(InvalidInputError, match="--target is needed"):
        run("evaluate", clinic / "model.json", "--data", clinic / "clinic.csv", "--epsilon", 1)
    with pytest.raises(InvalidInputError, match="target is"):
        run("evaluate", clinic / "model.json", "--data", clinic / "clinic.csv", "--epsilon", 1,
            "--target", "state", "--about", "me")  # fmt: skip


def test_predict_prints_probabilities_of_the_classes(clinic: Path) -> None:
    table = pd.read_csv(io.StringIO(run("predict", clinic / "model.json", clinic / "clinic.csv", "--proba")))
    assert list(table) == ["score", "prediction", "probability of 0", "probability of 1"]
    assert np.allclose(table["probability of 0"] + table["probability of 1"], 1)
    assert ((table["probability of 1"] > 0.5) == (table["prediction"] == 1)).all()
    assert list(pd.read_csv(io.StringIO(run("predict", clinic / "model.json", clinic / "clinic.csv")))) == [
        "score",
        "prediction",
    ]


def test_models_without_probabilities_say_so(clinic: Path) -> None:
    frame = pd.read_csv(clinic / "clinic.csv")
    sigmoid = PrivateSigmoidClassifier(5.0, schema=SCHEMA, classes=(0, 1), insecure_seed=0)
    sigmoid.fit(frame, frame["state"]).save(clinic / "sigmoid.json")
    with pytest.raises(InvalidInputError, match="use --loss logistic"):
        run("predict", clinic / "sigmoid.json", clinic / "clinic.csv", "--proba")


def test_a_scorecard_with_risks_on_the_command_line(clinic: Path) -> None:
    (clinic / "schema.json").write_text(json.dumps(SCHEMA.to_dict()))
    data, card = clinic / "clinic.csv", clinic / "card.json"
    words = (
        "fit",
        "--data",
        data,
        "--target",
        "state",
        "--classes",
        "0,1",
        "--schema",
        clinic / "schema.json",
    )
    text = run(*words, "--epsilon", 2, "--risk-share", 0.25, "--save", card, "--json", clinic / "fit.json")
    assert "risk of state = 1" in text
    assert "the risks at 0.5" in text
    rows = json.loads((clinic / "fit.json").read_text())["risks"]
    table = pd.read_csv(io.StringIO(run("predict", card, data, "--proba")), float_precision="round_trip")
    assert set(table["probability of 1"]) <= {row["risk"] for row in rows}
    run(*words, "--epsilon", 2, "--save", card)
    with pytest.raises(InvalidInputError, match="without risks"):
        run("predict", card, data, "--proba")
    with pytest.raises(InvalidInputError, match="--risk-share belong"):
        run(*words, "--epsilon", 2, "--risk-share", 0.25, "--loss", "logistic")


def test_bins_are_printed_without_their_outer_edges_which_have_no_meaning(clinic: Path) -> None:
    age = Binned("age", [39, 40, 60, 65], "clip")
    (clinic / "schema.json").write_text(json.dumps(Schema([age], intercept=True).to_dict()))
    words = ("--target", "state", "--classes", "0,1", "--schema", clinic / "schema.json", "--epsilon", 2)
    text = run("fit", "--data", clinic / "clinic.csv", *words, "--insecure-seed", 0)
    assert all(level in text for level in ("below 40", "40 to below 60", "60 or more"))
    assert "[39" not in text


def test_columns_without_points_are_named_in_one_line(clinic: Path) -> None:
    frame = pd.read_csv(clinic / "clinic.csv").assign(ward="north")
    frame.to_csv(clinic / "clinic.csv", index=False)
    wards = Categorical("ward", ["north", "south"])
    (clinic / "schema.json").write_text(
        json.dumps(Schema([*SCHEMA.columns, wards], intercept=True).to_dict())
    )
    words = ("--target", "state", "--classes", "0,1", "--schema", clinic / "schema.json", "--epsilon", 2)
    text = run("fit", "--data", clinic / "clinic.csv", *words, "--max-columns", 2, "--insecure-seed", 0)
    assert "no points for ward\n" in text
    assert "north" not in text
    assert "intercept" in text


def test_tables_of_many_classes_are_whole_in_a_pipe(clinic: Path) -> None:
    frame = pd.read_csv(clinic / "clinic.csv")
    names = [f"a class of a long name {k}" for k in range(8)]
    frame.assign(state=np.array(names)[frame["age"] % 8]).to_csv(clinic / "many.csv", index=False)
    (clinic / "schema.json").write_text(json.dumps(SCHEMA.to_dict()))
    words = ("--classes", ",".join(names), "--schema", clinic / "schema.json")
    fit = ("fit", "--data", clinic / "many.csv", "--target", "state", "--epsilon", 2)
    text = run(*fit, "--loss", "logistic", *words)
    assert any(all(name in line for name in names) for line in text.splitlines())


def test_a_linear_model_has_no_card(clinic: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"holds a linear model \(PrivateLogisticRegression\)"):
        run("card", clinic / "model.json")


def test_a_card_is_printed_in_four_ways(clinic: Path) -> None:
    (clinic / "schema.json").write_text(json.dumps(SCHEMA.to_dict()))
    data, card, report = clinic / "clinic.csv", clinic / "card.json", clinic / "report.json"
    run("fit", "--data", data, "--target", "state", "--classes", "0,1", "--epsilon", 2, "--risk-share", 0.25,
        "--schema", clinic / "schema.json", "--save", card)  # fmt: skip
    run("evaluate", card, "--data", data, "--target", "state", "--epsilon", 1, "--json", report)
    assert "| smoker | yes |" in run("card", card)
    assert "\N{MINUS SIGN}" not in run("card", card, "--no-negative-points")
    for name, part in (
        ("card.html", "What is guaranteed"),
        ("card.md", "| smoker | yes |"),
        ("out.json", '"threshold"'),
        ("card.sql", 'FROM "people"'),
    ):
        more = ("--table", "people") if name.endswith("sql") else ()
        run("card", card, "--output", clinic / name, *more)
        assert part in (clinic / name).read_text()
    assert "expect a little less" in (clinic / "card.html").read_text()
    run("card", card, "--output", clinic / "card.html", "--evaluation", report, "--title", "Who is ill?")
    page = (clinic / "card.html").read_text()
    assert "not made from" not in page  # nobody told the page: here they are the same records
    assert "From 900 records. If any of them were training records of the card" in page
    assert "the two add up" in page
    assert "<h1>Who is ill?</h1>" in page
    assert "| distance to the model |" in run("card", card, "--several", 3)
    run("card", card, "--several", 3, "--gap", 0.5, "--output", clinic / "choice.html", "--title", "Which?")
    assert "<h1>Which?</h1>" in (clinic / "choice.html").read_text()
    # No two cards ask for the same columns, of which there are two here: others are far from the model.
    run("card", card, "--several", 3, "--gap", 1.0, "--output", clinic / "choice.json")
    assert len(json.loads((clinic / "choice.json").read_text())["cards"]) >= 2
    for words, reason in (
        (("--output", clinic / "card.pdf"), "must end in"),
        (("--title", "x"), "--title belongs"),
        (("--output", clinic / "card.sql", "--no-negative-points"), "does not apply to .sql"),
        (("--output", clinic / "card.html", "--evaluation", card), "did not write that"),
        (("--several", 3, "--no-negative-points"), "--several goes with"),
        (("--several", 3, "--output", clinic / "card.sql"), "--several goes with"),
        (("--several", 1), "several cards are 2 or more"),
        (("--gap", 0.2), "--gap belongs to --several"),
    ):
        with pytest.raises(InvalidInputError, match=reason):
            run("card", card, *words)
    with pytest.raises(InvalidInputError):
        run("card", clinic / "model.json")


def test_names_of_budgets_are_whole_in_a_pipe(tmp_path: Path) -> None:
    name, ledger = "cardiology-of-the-second-ward-by-somebody-with-a-long-name", tmp_path / "ledger.db"
    run("budget", "create", f"{ledger}#{name}", "--epsilon", 3)
    run("budget", "spend", f"{ledger}#{name}", "--epsilon", 1, "--mechanism", "a query of several words")
    assert any(name in line for line in run("budget", "list", ledger).splitlines())
    shown = run("budget", "show", ledger).splitlines()
    assert any(name in line and "a query of several words" in line for line in shown)
