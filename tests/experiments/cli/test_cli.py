"""The command line, as a user types it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.experiments.cli.main import COMMANDS, load
from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems.tables.columns import Binned, Numeric
from privopt.problems.tables.schema import Schema

SCHEMA = """
intercept = true

[[columns]]
kind = "numeric"
name = "age"
low = 0
high = 100
step = 10

[[columns]]
kind = "categorical"
name = "smoker"
categories = ["no", "yes"]
"""


Command = Callable[..., Any]


def test_the_module_runs_as_a_command() -> None:
    command = [sys.executable, "-m", "privopt.experiments.cli.main", "--help"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0
    for word in ("fit", "calibrate", "predict", "solvers", "demo"):
        assert word in run.stdout


@pytest.fixture
def clinic(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.integers(18, 95, 150), "smoker": rng.choice(["no", "yes"], 150)})
    frame["state"] = np.where((frame["smoker"] == "yes") & (frame["age"] > 40), "ill", "well")
    frame.to_csv(tmp_path / "patients.csv", index=False)
    frame.to_parquet(tmp_path / "patients.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


FIT = ("fit", "--target", "state", "--schema", "schema.toml", "--classes", "well,ill", "--epsilon", "5")


def test_the_skeleton_of_a_schema_is_written_once(privopt: Command, clinic: Path) -> None:
    words = ("schema", "patients.parquet", "--target", "state")
    printed = privopt(*words, cwd=clinic)
    assert printed.returncode == 0
    assert '{ name = "age", kind = "binned", edges = [], missing_level = true },\n' in printed.stdout
    assert privopt(*words, "--output", "new.toml", cwd=clinic).returncode == 0
    assert (clinic / "new.toml").read_text() == printed.stdout
    for refused, reason in (("new.toml", "may be filled in already"), ("new.json", "must end in .toml")):
        run = privopt(*words, "--output", refused, cwd=clinic)
        assert (run.returncode, reason in run.stderr) == (2, True)


def test_labels_may_hold_commas(privopt: Command, clinic: Path) -> None:
    frame = pd.read_csv(clinic / "patients.csv").replace({"state": {"ill": 'ill, in "bed"'}})
    frame.to_csv(clinic / "commas.csv", index=False)
    words = (*FIT, "--data", "commas.csv", "--classes", '"well","ill, in ""bed"""')
    run = privopt(*words, "--class-weight", 'well=1, "ill, in ""bed""=2"', "--save", "model.json", cwd=clinic)
    assert run.returncode == 0, run.stderr
    assert json.loads((clinic / "model.json").read_text())["classes"] == ["well", 'ill, in "bed"']
    planned = ("--schema", "schema.toml", "--records", 150, "--epsilon", 1, "--class-weight", "a=1,b=2")
    assert privopt("plan", *planned, "--classes", "a, b").returncode == 0


@pytest.mark.parametrize("data", ["patients.csv", "patients.parquet"])
def test_fit_report_save_predict(privopt: Command, clinic: Path, data: str) -> None:
    run = privopt(
        *FIT,
        "--data",
        data,
        "--mechanism",
        "opdisc",
        "--json",
        "out.json",
        "--save",
        "model.json",
        cwd=clinic,
    )
    assert run.returncode == 0, run.stderr
    report = json.loads((clinic / "out.json").read_text())
    keys = (
        "mechanism",
        "epsilon",
        "delta",
        "neighbours",
        "sigma",
        "oracle",
        "weights",
        "train_accuracy",
        "seconds",
    )
    assert all(key in report for key in keys)
    assert report["delta"] == pytest.approx(1 / 150**2)
    assert report["neighbours"] == "replace-one"
    assert set(report["certificate"]) >= {"status", "value", "bound", "gap"}
    assert report["certificate"]["status"] == "OPTIMAL"
    assert report["certificate"]["gap"] == 0
    assert "train_accuracy" in report["not_private"]
    assert "smoker" in run.stdout
    predicted = privopt("predict", "model.json", data, cwd=clinic)
    assert predicted.returncode == 0, predicted.stderr
    lines = predicted.stdout.strip().splitlines()
    assert lines[0] == "score,prediction"
    assert len(lines) == 151


def test_constraints_hold_for_what_is_fitted_and_saved(privopt: Command, clinic: Path) -> None:
    run = privopt(
        *FIT, "--data", "patients.csv", "--constraint", "at most 1 columns", "--constraint", "any of smoker",
        "--card-solver", "highs", "--save", "card.json", "--json", "report.json", cwd=clinic,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    said = ["at most 1 columns", "any of smoker"]
    for name in ("report.json", "card.json"):
        written = json.loads((clinic / name).read_text())
        assert written["constraints"] == said
        *age, no, yes, _ = written["weights"]
        assert not any(age)
        assert no != yes


@pytest.mark.parametrize("oracle", ["auto", "enumerate", "pulp-highs", "pulp-cbc"])
def test_every_oracle_gives_the_same_seeded_scorecard(privopt: Command, clinic: Path, oracle: str) -> None:
    run = privopt(
        *FIT, "--data", "patients.csv", "--mechanism", "rspm", "--insecure-seed", 3, "--oracle", oracle,
        "--json", "out.json", cwd=clinic,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    report = json.loads((clinic / "out.json").read_text())
    assert report["insecure_seed"] == 3
    reference = privopt(
        *FIT, "--data", "patients.csv", "--mechanism", "rspm", "--insecure-seed", 3, "--oracle", "enumerate",
        "--json", "reference.json", cwd=clinic,
    )  # fmt: skip
    assert reference.returncode == 0
    assert report["weights"] == json.loads((clinic / "reference.json").read_text())["weights"]


@pytest.mark.parametrize("mechanism", ["exponential", "permute-and-flip", "rspm-laplace"])
def test_pure_mechanisms_spend_no_delta(privopt: Command, clinic: Path, mechanism: str) -> None:
    run = privopt(*FIT, "--data", "patients.csv", "--mechanism", mechanism, "--json", "out.json", cwd=clinic)
    assert run.returncode == 0, run.stderr
    assert json.loads((clinic / "out.json").read_text())["delta"] == 0


def test_a_lattice_is_passed_on(privopt: Command, clinic: Path) -> None:
    run = privopt(
        *FIT, "--data", "patients.csv", "--mechanism", "opdisc", "--lattice", "-2:2:3", "--json", "out.json",
        cwd=clinic,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    weights = np.array(json.loads((clinic / "out.json").read_text())["weights"])
    assert np.all(np.abs(weights) <= 2)
    assert weights @ weights <= 9


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--epsilon", "0"), "PrivacyParameterError"),
        (("--epsilon", "inf"), "PrivacyParameterError"),
        (("--delta", "2", "--mechanism", "opdisc"), "PrivacyParameterError"),
        (("--delta", "soon"), "InvalidInputError"),
        (("--mechanism", "magic"), "UnknownMechanismError"),
        (("--oracle", "magic"), "UnknownOracleError"),
        (("--oracle", "pulp-gurobi", "--mechanism", "rspm"), "MissingSolverError"),
        (("--lattice", "one:two"), "InvalidInputError"),
        (("--lattice", "1:2:3:4"), "InvalidInputError"),
        (("--target", "mood"), "InvalidInputError"),
        (("--classes", "well,dead"), "InvalidInputError"),
        (("--schema", "nowhere.toml"), "SchemaError"),
        (("--data", "nowhere.csv"), "nowhere.csv"),
        (("--save", "."), "InvalidInputError"),
        (("--json", "nowhere/out.json"), "InvalidInputError"),
        (("--json", "/proc/out.json"), "InvalidInputError: --json /proc/out.json: its folder"),
        (("--epsilon", "abc"), "UsageError: Invalid value for '--epsilon'"),
        (("--epsilon", "-1"), "PrivacyParameterError"),
        (("--epsilom", "1"), "--epsilon"),
        (("--mechanism", "exponental"), "did you mean 'exponential'?"),
        (("--mechanism", "dp-dg"), "did you mean 'dp-gd'?"),
        (("--mechanism", "opdisc", "--delta", "0"), "PrivacyParameterError"),
        (("--mechanism", "opdisc", "--calibration", "printd"), "sound or printed"),
        (("--mechanism", "opdisc", "--oracle", "pulp-higs"), "did you mean 'pulp-highs'?"),
        (
            ("--oracle", "pulp-highs"),
            "needs a sampler: an oracle that draws at random; there are auto, native",
        ),
        (("--mechanism", "exponential", "--delta", "1e-6"), "exponential is pure"),
        (("--lattice", "-1:1:1e300"), "radius must be >= 0 with a finite square"),
        (("--lattice", "-99999999999999999999:1"), "64-bit integers"),
        (("--classes", "ill,ill"), "must differ"),
        (("--classes", 'well,"ill'), "put a label with a comma into double quotes"),
        (("--classes", "well, dead"), "outside the declared classes 'well', 'dead'"),
        (("--lattice", "1:-1"), "LOW = 1 is above HIGH = -1"),
        (("--lattice", "-2:2", "--mechanism", "rspm"), "--lattice=-1:1"),
        (
            ("--target", "stat"),
            "no column 'stat' (column 3 of the table has a similar name). The table has 3",
        ),
        (("--target", "age"), "it declares 'age', which is the label"),
        (("--data", "."), "is a folder"),
        (("--time-limit", "0"), "time limit must be > 0"),
        (("--ledger", "nowhere"), "privopt budget create nowhere"),
        (("--ledger", "patients.csv"), "is not a privopt ledger"),
        (("--ledger", "."), "is a folder"),
    ],
)
def test_bad_words_give_one_line_and_leave_nothing(
    privopt: Command, clinic: Path, words: tuple[str, ...], error: str
) -> None:
    before = set(clinic.iterdir())
    files = ("--json", "out.json", "--save", "model.json")
    run = privopt(*FIT, "--data", "patients.csv", *files, *words, cwd=clinic)
    assert run.returncode == 2
    assert error in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert set(clinic.iterdir()) == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("opdisc", "--dimension", "23", "--delta", "4.066e-9"), 808.3),
        (("rspm-laplace", "--separators", "46"), 92.0),
        (("rspm-laplace", "--dimension", "23"), 92.0),
    ],
)
def test_calibrate_needs_no_data(privopt: Command, words: tuple[str, ...], expected: float) -> None:
    run = privopt("calibrate", *words, "--epsilon", "1", "--json")
    assert run.returncode == 0, run.stderr
    report = json.loads(run.stdout)
    assert report.get("sigma", report.get("scale")) == pytest.approx(expected, rel=5e-3)
    assert report["epsilon"] == 1
    assert report["claim"] == "proved"


@pytest.mark.parametrize(
    "words",
    [
        ("opdisc", "--dimension", 5, "--delta", 1e-6, "--separators", 3),
        ("rspm", "--dimension", 5, "--delta", 1e-6, "--radius", 3),
        ("rspm-laplace", "--dimension", 5, "--delta", 1e-6),
        ("opdisc", "--dimension", -3, "--delta", 1e-6),
        ("opdisc", "--dimension", 3, "--delta", 1e-6, "--radius", -1),
        ("rspm", "--separators", 0, "--delta", 1e-6),
        ("exponential", "--dimension", 3, "--delta", 1e-6),
    ],
)
def test_calibrate_refuses_what_it_would_ignore(privopt: Command, words: tuple[object, ...]) -> None:
    run = privopt("calibrate", *words, "--epsilon", 1)
    assert run.returncode == 2
    assert "InvalidInputError" in run.stderr


def test_the_printed_calibration_says_that_it_is_refuted(privopt: Command) -> None:
    run = privopt(
        "calibrate", "opdisc", "--dimension", "23", "--epsilon", "1", "--delta", "4.066e-9",
        "--calibration", "printed", "--json",
    )  # fmt: skip
    report = json.loads(run.stdout)
    assert report["sigma"] == pytest.approx(7 * 23 * math.sqrt(math.log(1 / 4.066e-9)), rel=1e-6)
    assert "refuted" in report["claim"]


def test_a_new_budget_says_which_others_count_its_releases(privopt: Command, tmp_path: Path) -> None:
    """One beside the budget of a table looks like one within it."""

    def told(name: str) -> str:
        made = privopt("budget", "create", name, "--epsilon", 1, "--delta", 0.1, cwd=tmp_path)
        return " ".join(made.stdout.split("rule basic")[1].split())

    assert told("one.db") == ""
    assert told("one.db#ana") == (
        "note: its releases count in none of the other budgets (main); within main it would be "
        "one.db#main/ana"
    )
    assert told("one.db#main/ana") == "its releases count in main, too"
    assert told("one.db#main/ana/summer") == "its releases count in main and in main/ana, too"
    assert "budgets (ana, main); within ana it would be one.db#ana/ben" in told("one.db#ben")
    assert told("two.db#visits") == ""
    # As it says:
    for name, counted in (("one.db#main/ana/summer", ["main", "main/ana"]), ("one.db#ben", [])):
        before = Ledger("one.db").budgets()
        assert privopt("budget", "spend", name, "--epsilon", 0.01).returncode == 0
        after = Ledger("one.db").budgets()
        assert [n for n in after if after[n] != before[n]] == sorted([*counted, name.partition("#")[2]])


def test_budgets_are_kept_checked_and_enforced(privopt: Command, clinic: Path) -> None:
    made = privopt("budget", "create", "ledger", "--epsilon", 1, "--delta", 0.1, cwd=clinic)
    assert made.returncode == 0
    assert privopt("budget", "check", "ledger", "--epsilon", 1).returncode == 0
    assert privopt("budget", "spend", "ledger", "--epsilon", 0.4, "--mechanism", "survey").returncode == 0
    assert privopt("budget", "check", "ledger", "--epsilon", 0.7).returncode == 1
    assert privopt("budget", "spend", "ledger", "--epsilon", 0.7).returncode == 1
    words = ("--data", "patients.csv", "--ledger", "ledger", "--json", "out.json")
    refused = privopt(*FIT, *words)  # epsilon 5
    assert refused.returncode == 1
    assert "BudgetExceededError" in refused.stderr
    assert not (clinic / "out.json").exists()
    assert privopt(*FIT, *words, "--epsilon", 0.5).returncode == 0
    report = json.loads(privopt("budget", "show", "ledger", "--json").stdout)
    assert report["spent"]["epsilon"] == pytest.approx(0.9)
    assert [e["spend"]["mechanism"] for e in report["entries"]] == ["survey", "seeded"]
    assert [datetime.fromisoformat(e["time"]).utcoffset() for e in report["entries"]] == [timedelta(0)] * 2
    shown = privopt("budget", "show", "ledger").stdout
    assert "survey" in shown
    assert report["entries"][0]["time"][:10] in shown


def test_the_version(privopt: Command) -> None:
    assert privopt("--version").stdout == f"privopt {metadata.version('privopt')}\n"


@pytest.mark.parametrize("words", [("fitt",), ("fit",), ("fit", "--data"), ("budget", "shw", "x"), ()])
def test_usage_errors_are_one_line_too(privopt: Command, words: tuple[str, ...]) -> None:
    run = privopt(*words)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1 if words else "Usage" in run.stdout + run.stderr


def test_ledger_of_the_environment_is_the_default(
    privopt: Command, clinic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    privopt("budget", "create", "default", "--epsilon", 1, "--delta", 0.1, cwd=clinic)
    monkeypatch.setenv("PRIVOPT_LEDGER", "default")
    for code in (0, 1):  # the second would overdraw it
        assert privopt(*FIT, "--data", "patients.csv", "--epsilon", 0.6).returncode == code
    privopt("budget", "create", "own", "--epsilon", 1, "--delta", 0.1, cwd=clinic)
    words = ("--data", "patients.csv", "--epsilon", 0.6, "--ledger", "own")
    assert privopt(*FIT, *words).returncode == 0
    assert Ledger(clinic / "default").total().epsilon == Ledger(clinic / "own").total().epsilon == 0.6


def test_files_of_another_kind_are_no_ledgers(privopt: Command, clinic: Path) -> None:
    for words in (("show",), ("check", "--epsilon", 1), ("spend", "--epsilon", 1)):
        run = privopt("budget", words[0], "patients.csv", *words[1:], cwd=clinic)
        assert run.returncode == 2
        assert "is not a privopt ledger" in run.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--schema", "other.toml"), "Nothing was booked in ledger"),
        (("--oracle", "enumerate", "--time-limit", "1e-9"), "delta = 0 counts as spent in ledger"),
        (("--oracle", "elimination", "--time-limit", "1e-9"), "delta = 0 counts as spent in ledger"),
        (("--oracle", "branch", "--time-limit", "1e-9"), "delta = 0 counts as spent in ledger"),
    ],
)
def test_a_failed_fit_says_what_was_booked(
    privopt: Command, clinic: Path, words: tuple[str, ...], told: str
) -> None:
    (clinic / "other.toml").write_text(SCHEMA.replace('"smoker"', '"diabetic"'))
    privopt("budget", "create", "ledger", "--epsilon", 9, cwd=clinic)
    run = privopt(*FIT, "--data", "patients.csv", "--ledger", "ledger", *words)
    assert run.returncode == 2
    assert told in run.stderr
    spent = json.loads(privopt("budget", "show", "ledger", "--json").stdout)["spent"]["epsilon"]
    assert spent == (0 if "Nothing" in told else 5)


def test_replacing_a_file_is_said(privopt: Command, clinic: Path) -> None:
    words = ("--data", "patients.csv", "--save", "model.json")
    assert "note" not in privopt(*FIT, *words, cwd=clinic).stderr
    assert "note: --save model.json: the file exists, and is replaced" in privopt(*FIT, *words).stderr


def test_columns_in_any_order_and_labels_as_written(privopt: Command, clinic: Path) -> None:
    frame = pd.read_csv(clinic / "patients.csv")
    frame["state"] = np.where(frame["state"] == "ill", "01", "00")  # would read as numbers
    frame.to_csv(clinic / "codes.csv", index=False)
    frame[["state", "smoker", "age"]].to_csv(clinic / "turned.csv", sep=";", index=False)
    words = ("--classes", "00,01", "--epsilon", 50, "--save", "model.json")
    for data in ("codes.csv", "turned.csv"):
        run = privopt(*FIT, *words, "--data", data, cwd=clinic)
        assert run.returncode == 0, run.stderr
    first, second = (privopt("predict", "model.json", data).stdout for data in ("codes.csv", "turned.csv"))
    assert first == second
    assert set(first.split("\n")[1].split(",")[1]) <= {"0", "1"}


def test_labels_of_parquet_are_compared_as_written(privopt: Command, clinic: Path) -> None:
    frame = pd.read_parquet(clinic / "patients.parquet")
    sick = frame["state"] == "ill"
    kinds = {"0,1": sick.astype(float), "False,True": sick, "well,ill": frame["state"].astype("category")}
    for classes, labels in kinds.items():
        frame.assign(state=labels).to_parquet(clinic / "kind.parquet")
        run = privopt(*FIT, "--classes", classes, "--data", "kind.parquet", cwd=clinic)
        assert run.returncode == 0, run.stderr


def test_the_demo_keeps_to_folders_and_says_what_an_interruption_left(
    privopt: Command, clinic: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = privopt("demo", "--output", "patients.csv", cwd=clinic)
    assert run.returncode == 2
    assert "name a folder" in run.stderr

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("privopt.experiments.cli.demo.run_demo", interrupted)
    run = privopt("demo", "--output", "here", cwd=clinic)
    assert run.returncode == 130
    assert run.stderr.startswith("Interrupted: finished draws are kept in here/draws.csv")


def test_solvers_lists_what_is_here(privopt: Command) -> None:
    run = privopt("solvers")
    assert run.returncode == 0, run.stderr
    for name in ("enumerate", "native", "pulp-highs", "pulp-cbc", "elimination", "floating point"):
        assert name in run.stdout
    assert "privopt[scip]" in run.stdout  # brackets are no markup


def test_ctrl_c_stops_a_long_solve_and_releases_nothing(tmp_path: Path) -> None:
    # 19^10 weights for random labels, hardly any noise to decide: no branch and bound gets through that.
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"x{j}": rng.integers(-50, 51, 1000) for j in range(10)})
    frame.assign(y=rng.choice(["a", "b"], 1000)).to_csv(tmp_path / "noise.csv", index=False)
    Schema([Numeric(f"x{j}", -50, 50) for j in range(10)]).save(tmp_path / "noise.toml")
    command = [
        sys.executable, "-m", "privopt.experiments.cli.main", "fit", "--data", "noise.csv", "--target", "y",
        "--schema", "noise.toml", "--classes", "a,b",
            "--mechanism", "opdisc", "--oracle", "interval", "--lattice", "-9:9", "--epsilon", "1000",
        "--json", "out.json", "--ledger", "ledger",
    ]  # fmt: skip
    Ledger.create(tmp_path / "ledger", 2000.0, 0.1)
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert running.stderr is not None
        while "Ctrl-C" not in running.stderr.readline():
            assert running.poll() is None
        os.kill(running.pid, signal.SIGINT)
        _, errors = running.communicate(timeout=300)
    assert running.returncode == 130, errors
    last = errors.strip().splitlines()[-1]
    assert last.startswith("Interrupted: nothing was released. The reserved epsilon = 1000")
    assert "counts as spent in ledger" in last
    assert {p.name for p in tmp_path.iterdir()} == {"noise.csv", "noise.toml", "ledger", "ledger.head"}
    assert [e.state for e in Ledger(tmp_path / "ledger").entries()] == ["reserved"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_announces_each_command_by_the_first_lines_of_its_own_help(name: str) -> None:
    # What ``privopt --help`` prints is written apart, so that it imports no command.
    assert COMMANDS[name] == " ".join(load(name).help.partition("\n\n")[0].split())


def test_help_and_budget_import_nothing_that_computes(tmp_path: Path) -> None:
    """Help does without databases, budgets of plain sums without arrays."""
    code = """
import sys
from privopt.experiments.cli.main import app
def run(*lines):
    for line in lines:
        assert app(line.split(), standalone_mode=False) in (0, None), line
run("--help", "budget --help", "budget create --help")
assert not {"numpy", "sqlalchemy", "sqlite3"} & set(sys.modules), "for help"
run(
    "budget create a.db --epsilon 1 --delta 1e-6", "budget spend a.db --epsilon 0.1 --delta 1e-7",
    "budget check a.db --epsilon 0.1", "budget list a.db", "budget show a.db", "budget show a.db --json",
    "budget export a.db", "budget export a.db --output a.json", "budget verify a.db", "budget move a.db b.db",
)
loaded = {"numpy", "scipy", "pandas", "matplotlib", "sqlalchemy.orm", "psycopg"} & set(sys.modules)
assert not loaded, loaded
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("figure9",), "there are neel2020-figure1"),
        ((), "name figures, or use --all"),
        (("neel2020-figure2", "--all"), "name figures, or use --all"),
        (("neel2020-figure2", "--output", "file"), "that is a file"),
    ],
)
def test_figures_that_there_are_not(
    privopt: Command, tmp_path: Path, words: tuple[str, ...], error: str
) -> None:
    (tmp_path / "file").write_text("")
    run = privopt("reproduce", *words, cwd=tmp_path)
    assert run.returncode == 2
    assert error in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_fit_for_persons_reads_their_column_as_it_is_written(tmp_path: Path, privopt: Command) -> None:
    """ "07" and "7" are two persons; k, the unit and the number of persons are in the report."""
    Schema([Binned("a", [0, 4, 8])], intercept=True).save(tmp_path / "s.toml")
    rows = [f"{who},{a},{'ill' if a > 3 else 'well'}" for who in ("07", "7", "8") for a in range(8)]
    (tmp_path / "t.csv").write_text("\n".join(["id,a,state", *rows]))
    words = ("fit", "--data", "t.csv", "--target", "state", "--schema", "s.toml", "--classes", "well,ill")
    persons = ("--epsilon", "9", "--person", "id", "--records-per-person", "2", "--json", "r.json")
    run = privopt(*words, "--model", "tree", *persons, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["neighbours"] == "replace-one person"
    assert "at most 2 records" in report["note"]
    learned = ("--epsilon", "700", "--person", "id", "--records-per-person", "learn", "--json", "r.json")
    run = privopt(*words, "--model", "tree", *learned, cwd=tmp_path)
    assert "learned at epsilon = 66.67" in json.loads((tmp_path / "r.json").read_text())["note"], run.stderr
    wrong = privopt(*words, "--model", "tree", *learned[:-3], "most", cwd=tmp_path)
    assert "--records-per-person must be a whole number or learn, got 'most'" in wrong.stderr
    chosen = privopt(*words, "--model", "auto", *persons, cwd=tmp_path)
    assert chosen.returncode == 0, chosen.stderr
    wrong = privopt(*words, "--person", "who", "--epsilon", "1", cwd=tmp_path)
    assert "--person: no column 'who'" in wrong.stderr
    Schema([Binned("a", [0, 4, 8])], intercept=True, person="id").save(tmp_path / "s.toml")
    run = privopt(*words, "--model", "tree", "--epsilon", "9", "--json", "r.json", cwd=tmp_path)
    assert json.loads((tmp_path / "r.json").read_text())["neighbours"] == "replace-one person", run.stderr
    two = ("--candidate", "--model tree --max-depth 1", "--candidate", "--model tree", "--epsilon", "9")
    planned = privopt("search", *words[1:], *two, "--plan", cwd=tmp_path)
    assert "epsilon = 9, delta = 0 (replace-one person" in planned.stdout, planned.stderr
    bare = privopt(*words[:5], "--person", "id", "--epsilon", "1", cwd=tmp_path)
    assert "--person needs --schema" in bare.stderr


def test_weights_of_records_are_a_column_of_the_file(tmp_path: Path, privopt: Command) -> None:
    """As in Python; what cannot be weighted is refused before a booking, and a weight is no feature."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.integers(0, 8, 300), "w": rng.integers(0, 4, 300), "id": range(300)})
    frame["y"] = np.where(frame.a + rng.normal(size=300) > 4, "yes", "no")
    frame.to_csv(tmp_path / "t.csv", index=False)
    schema = Schema([Binned("a", [0, 2, 4, 6, 8])], intercept=True)
    schema.save(tmp_path / "s.toml")
    words = ["fit", "--data", "t.csv", "--target", "y", "--schema", "s.toml", "--classes", "no,yes"]
    words += ["--epsilon", "2", "--insecure-seed", "1", "--json", "r.json"]
    given = ("--sample-weight", "w", "--max-weight", "3")
    run = privopt(*words, *given, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    facts: dict[str, Any] = {"schema": schema, "classes": ("no", "yes"), "max_weight": 3, "insecure_seed": 1}
    card = PrivateHalfspaceClassifier(2.0, **facts).fit(frame[["a"]], frame.y, sample_weight=frame.w)
    assert json.loads((tmp_path / "r.json").read_text())["weights"] == card.release_.point.tolist()
    assert privopt(*words, *given, "--loss", "logistic", cwd=tmp_path).returncode == 0
    privopt("budget", "create", "l.db", "--epsilon", "9", cwd=tmp_path)
    for more, said in WEIGHTS_REFUSED.items():
        wrong = privopt(*words, *more.split(), "--ledger", "l.db", cwd=tmp_path)
        assert (wrong.returncode, said in wrong.stderr) == (2, True), wrong.stderr
    assert "spent epsilon = 0 of 9" in privopt("budget", "show", "l.db", cwd=tmp_path).stdout


def test_a_ledger_shows_which_releases_are_not_proved(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from privopt.experiments.cli.budget import app
    from privopt.mechanisms.privacy.spend import PrivacySpend

    book, spend = Ledger.create(tmp_path / "l.db", epsilon=9.0), PrivacySpend.pure(0.5, "opdisc")
    book.reserve(spend)
    assert "opdisc" in (shown := CliRunner().invoke(app, ["show", str(tmp_path / "l.db")]).stdout)
    assert "not checked" not in shown
    book.reserve(spend.relying_on("the oracle Mine", checked=False))
    assert "not checked: the oracle Mine" in CliRunner().invoke(app, ["show", str(tmp_path / "l.db")]).stdout


WEIGHTS_REFUSED = {
    "--max-weight 3": "--max-weight belongs to --sample-weight",
    "--sample-weight w": "sample_weight needs max_weight, a public bound",
    "--sample-weight w --max-weight 2.5": "--max-weight of a card is a whole number >= 1, got 2.5",
    "--sample-weight v --max-weight 3": "--sample-weight: no column 'v'",
    "--sample-weight a --max-weight 3": "--sample-weight a: that is the label or a feature",
    "--sample-weight w --max-weight 3 --model tree": "decision trees (--model tree) do not take them",
    "--sample-weight w --max-weight 3 --person id": "not taken together with person",
    "--sample-weight w --max-weight 3 --risk-share .2": "not taken together with risk_share",
}


def test_budgets_by_person_take_releases_of_persons(tmp_path: Path, privopt: Command) -> None:
    made = privopt("budget", "create", "l.db", "--epsilon", "1", "--unit", "person", cwd=tmp_path)
    assert "unit person" in made.stdout
    refused = privopt("budget", "spend", "l.db", "--epsilon", ".5", cwd=tmp_path)
    assert "counts by person" in refused.stderr
    booked = privopt("budget", "spend", "l.db", "--epsilon", ".5", "--unit", "person", cwd=tmp_path)
    assert booked.returncode == 0
    assert "(replace-one person, rule basic" in privopt("budget", "show", "l.db", cwd=tmp_path).stdout
    composed = privopt("budget", "compose", "l.db", cwd=tmp_path).stdout
    assert "epsilon = 0.5, delta = 0 (rule basic), if no release's parameters depended" in composed
    assert json.loads(privopt("budget", "compose", "l.db", "--json", cwd=tmp_path).stdout)["epsilon"] == 0.5
    assert (
        "--unit 'family'" in privopt("budget", "check", "l.db", "--epsilon", "1", "--unit", "family").stderr
    )
