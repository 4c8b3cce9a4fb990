"""Without an extra: fitting and the command line work, and what wants the extra names it.

A process of its own imports privopt with the packages of all extras hidden, as they are where nobody
installed them. It is then copied for every extra: with the packages of that one hidden, and for all together.
What all copies run is first run once before they are made.
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
import contextlib, io, json, os, sys

EXTRAS = {
    "plots": {"matplotlib"},
    "ledgers": {"sqlalchemy"},
    "postgres": {"psycopg"},
    "engines": {"ibis"},
    "duckdb": {"duckdb"},
    "scip": {"pyscipopt"},
    "cpsat": {"ortools"},
    "dask": {"dask", "distributed"},
}
OTHERS = {"polars", "pyspark", "opacus", "diffprivlib", "torch"}
EXTRAS["all"] = set().union(*EXTRAS.values())

class Hiding:
    # Another finder, without the packages that are hidden.
    hidden = EXTRAS["all"] | OTHERS

    def __init__(self, finder):
        self.finder = finder

    def __getattr__(self, name):  # find_distributions, by which entry points are read
        return getattr(self.finder, name)

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
fit = ("fit", "--data", "table.csv", "--target", "state", "--classes", "0,1", "--loss", "logistic")
fit += ("--epsilon", "5")

class Partitioned:
    # As a Dask collection that was unpickled where Dask is not installed.
    __dask_graph__ = None
    shape, ndim = (200, 2), 2

def fitted(**more):
    return PrivateLogisticRegression(1.0, **facts, **more).fit(rows, y)

def core(extra):
    found["quality"] = int(evaluate(fitted(), rows, y).histogram.n_records)
    run("fit", *fit, "--save", f"model-{extra}.json")
    run("predict", "predict", f"model-{extra}.json", "table.csv")
    run("solvers", "solvers")

ASKED = {
    "plots": lambda: (
        run("demo", "demo", "--output", "out"),
        run("compare-oracles", "compare-oracles", "--output", "out"),
        run("reproduce", "reproduce", "--all", "--quick", "--output", "out"),
    ),
    "ledgers": lambda: (
        run("budget", "budget", "create", "ledger", "--epsilon", "1"),
        run("fit with a ledger", *fit, "--ledger", "ledger"),
        error_of("ledger", lambda: fitted(ledger="ledger")),
    ),
    "postgres": lambda: run("server", "budget", "show", "postgresql://somebody@localhost/budgets"),
    "engines": lambda: error_of("engine", lambda: open_table("table*.parquet")),
    "duckdb": lambda: (
        error_of("engine", lambda: open_table("table*.parquet")),
        error_of("database", lambda: open_table("duckdb://table.csv", "t")),
    ),
    "scip": lambda: error_of("scip", lambda: minimizer("scip")),
    "cpsat": lambda: error_of("cpsat", lambda: minimizer("cpsat")),
    "dask": lambda: error_of(
        "partitions", lambda: PrivateLogisticRegression(1.0, **facts).fit(Partitioned(), Partitioned())
    ),
    "all": lambda: [ask() for extra, ask in ASKED.items() if extra not in ("all", "duckdb", "postgres")],
}
core("none")  # the copies share what this imports
for extra, ask in ASKED.items():
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        Hiding.hidden = EXTRAS[extra] | OTHERS
        core(extra)
        ask()
        with open(f"{extra}.found", "w") as file:
            json.dump(found, file)
        os._exit(0)
    os.waitpid(child, 0)
print(json.dumps({extra: json.load(open(f"{extra}.found")) for extra in ASKED}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM],
        cwd=tmp_path_factory.mktemp("bare"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    answer: dict[str, dict[str, Any]] = json.loads(run.stdout.splitlines()[-1])
    return answer


EACH = ["plots", "ledgers", "postgres", "engines", "duckdb", "scip", "cpsat", "dask"]


@pytest.mark.parametrize("absent", [*EACH, "all"])
def test_fitting_and_the_command_line_need_no_extra(found: dict[str, dict[str, Any]], absent: str) -> None:
    assert found[absent]["quality"] > 0
    for name in ("fit", "predict", "solvers"):
        assert found[absent][name][0] == 0, found[absent][name]


WANTED = [
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
    ("partitions", "Dask", "dask"),
]


@pytest.mark.parametrize(
    ("what", "package", "extra", "absent"),
    [
        *((*wanted, wanted[-1]) for wanted in WANTED),
        *((*wanted, "all") for wanted in WANTED if wanted[0] != "server"),  # which needs SQLAlchemy first
        ("engine", "DuckDB", "engines", "duckdb"),
        ("database", "duckdb", "engines", "duckdb"),
    ],
)
def test_what_wants_an_extra_names_it(
    found: dict[str, dict[str, Any]], what: str, package: str, extra: str, absent: str
) -> None:
    code, message = found[absent][what]
    assert code in (2, "MissingExtraError", "MissingSolverError", "InvalidInputError")
    assert package in message
    assert f"pip install 'privopt[{extra}]'" in message
    assert "Traceback" not in message
    extras = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    assert extra in extras["optional-dependencies"]
