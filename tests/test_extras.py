"""Without extras: fitting and the command line work, and what wants an extra names it.

The packages of all extras are hidden from a process of its own, as they are where nobody installed them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import contextlib, io, json, sys

class Hiding:
    # Another finder, without the packages that are hidden.
    hidden = {
        "matplotlib", "sqlalchemy", "psycopg", "dask", "distributed", "ibis", "duckdb", "polars", "ortools",
        "pyscipopt", "pyspark", "opacus", "diffprivlib", "torch",
    }

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in self.hidden else self.finder.find_spec(name, path, target)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]

import numpy as np
from privopt.experiments.cli.main import main
from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.estimators.evaluate import evaluate
from privopt.oracles import minimizer
from privopt.problems.errors import PrivOptError
from privopt.problems.tables.sources import open_table

found = {}

def run(name, *words):
    sys.argv = ["privopt", *words]
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            main()
        except SystemExit as done:
            found[name] = [done.code, " ".join((out.getvalue() + error.getvalue()).split())]

def error_of(name, call):
    try:
        call()
    except PrivOptError as error:
        found[name] = [type(error).__name__, str(error)]

rows = np.random.default_rng(0).uniform(-1, 1, (200, 2))
y = (rows[:, 0] > 0).astype(int)
with open("table.csv", "w") as file:
    file.write("a,b,state\\n" + "".join(f"{a:.3f},{b:.3f},{s}\\n" for (a, b), s in zip(rows, y)))
facts = {"mechanism": "dp-gd", "steps": 3, "classes": (0, 1), "data_norm": 2.0}
model = PrivateLogisticRegression(1.0, **facts).fit(rows, y)
found["quality"] = int(evaluate(model, rows, y).histogram.n_records)
fit = ("fit", "--data", "table.csv", "--target", "state", "--classes", "0,1", "--loss", "logistic")
fit += ("--epsilon", "5")
run("fit", *fit, "--save", "model.json")
run("predict", "predict", "model.json", "table.csv")
run("solvers", "solvers")
run("demo", "demo", "--output", "out")
run("compare-oracles", "compare-oracles", "--output", "out")
run("reproduce", "reproduce", "--all", "--quick", "--output", "out")
run("budget", "budget", "create", "ledger", "--epsilon", "1")
run("fit with a ledger", *fit, "--ledger", "ledger")
error_of("ledger", lambda: PrivateLogisticRegression(1.0, **facts, ledger="ledger").fit(rows, y))
error_of("engine", lambda: open_table("table*.parquet"))
for name in ("scip", "cpsat"):
    error_of(name, lambda: minimizer(name))
Hiding.hidden.remove("sqlalchemy")
run("server", "budget", "show", "postgresql://somebody@localhost/budgets")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=tmp_path_factory.mktemp("bare"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answer: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return answer


def test_fitting_and_the_command_line_need_no_extra(found: dict[str, Any]) -> None:
    assert found["quality"] > 0
    for name in ("fit", "predict", "solvers"):
        assert found[name][0] == 0, found[name]


@pytest.mark.parametrize(
    ("what", "package", "extra"),
    [
        ("demo", "matplotlib", "plots"),
        ("compare-oracles", "matplotlib", "plots"),
        ("reproduce", "matplotlib", "plots"),
        ("budget", "SQLAlchemy", "ledgers"),
        ("fit with a ledger", "SQLAlchemy", "ledgers"),
        ("ledger", "SQLAlchemy", "ledgers"),
        ("server", "psycopg", "postgres"),
        ("engine", "Ibis", "engines"),
        ("scip", "PySCIPOpt", "scip"),
        ("cpsat", "OR-tools", "cpsat"),
    ],
)
def test_what_wants_an_extra_names_it(found: dict[str, Any], what: str, package: str, extra: str) -> None:
    code, message = found[what]
    assert code in (2, "MissingExtraError", "MissingSolverError", "InvalidInputError")
    assert package in message
    assert f"pip install 'privopt[{extra}]'" in message
    assert "Traceback" not in message
    extras = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert extra in extras["optional-dependencies"]
