"""The lists of mutants fit the code, and the runner tells a mutant that lives from one that dies."""

from __future__ import annotations

import ast
import functools
import io
import multiprocessing
import shutil
import tempfile
import tomllib
from collections import Counter
from contextlib import redirect_stdout, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from tests.mutation import run
from tests.mutation.mutate import ROOT, definitions, located, modules, mutants, read
from tests.mutation.reach import Recorder, files_of_tests
from tests.mutation.run import Job, carry_out, known, sample

HERE = Path(__file__).parent


def unwatched(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    """Mutants are those of another tree, of which nothing is known yet."""
    monkeypatch.setattr("tests.mutation.mutate.ROOT", root)
    for cached in (modules, definitions, read):
        monkeypatch.setattr(f"tests.mutation.mutate.{cached.__name__}", functools.cache(cached.__wrapped__))


@functools.cache
def lists(name: str) -> Any:
    return tomllib.loads((HERE / name).read_text("utf-8"))


@pytest.mark.parametrize("folder", ["mechanisms/privacy", "mechanisms/discrete", "problems/tables"])
def test_mutants_are_programs_and_have_names_of_their_own(folder: str) -> None:
    for path in (path for path in modules() if path.startswith(folder)):
        made = mutants(path)
        assert len({m.name for m in made}) == len(made)
        for mutant in sample(path, 10, 1):
            ast.parse(mutant.source())
            assert mutant.source() != (ROOT / path).read_bytes()


def test_every_test_that_is_asked_exists() -> None:
    for test in (t for one in lists("named.toml").values() for t in one["tests"]):
        path, _, name = test.partition("::")
        assert f"def {name.rpartition('::')[2]}" in (ROOT / path).read_text("utf-8")


def test_a_module_is_tested_by_its_mirror_and_by_whoever_names_it() -> None:
    found = files_of_tests("mechanisms/privacy/poisson.py")
    assert "tests/mechanisms/privacy/test_accounting.py" in found
    assert "tests/mechanisms/convex/test_stochastic.py" in found


@pytest.mark.parametrize("name", lists("named.toml"))
def test_named_mutants_quote_the_code_as_it_stands(name: str) -> None:
    one = lists("named.toml")[name]
    ast.parse(located(one["where"], one["old"], one["new"], name).program())


def test_equivalent_mutants_are_mutants_and_have_a_reason() -> None:
    every = Counter(m.change for path in modules() for m in mutants(path))
    for one in lists("equivalent.toml").get("mutant", []):
        assert every[one["name"]] == 1, f"{every[one['name']]} mutants are called {one['name']}"
        assert len(one["reason"]) > 20


def test_operators_are_found_where_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        '"""Doc: a + b."""\n\n\ndef f(a: int = 3) -> int:\n    if not a < 2:\n'
        '        raise ValueError(f"{a + 1}")\n    return max(a, -1)\n'
    )
    (tmp_path / "module.py").write_text(text)
    unwatched(monkeypatch, tmp_path)
    changed = {m.source().decode() for m in mutants("module.py")}
    assert changed == {
        text.replace("= 3", "= 4"),
        text.replace("not a < 2", "False"),
        text.replace("not a", " a"),
        text.replace("a < 2", "a <= 2"),
        text.replace("< 2", "< 3"),
        text.replace('raise ValueError(f"{a + 1}")', "pass"),
        text.replace("max", "min"),
        text.replace("-1", "1"),
        text.replace("-1", "-2"),
    }


def test_a_fault_is_found_by_its_function_however_its_lines_are_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mechanisms").mkdir()
    module = tmp_path / "mechanisms" / "module.py"
    plan = "class Plan:\n    def sum(self, a, b):\n        return (\n            a\n            + b + b)\n"
    module.write_text(f"LIMIT = 3\n\n\n{plan}")
    unwatched(monkeypatch, tmp_path)
    changed = located("Plan.sum", "a + b", "a - b", "a difference")
    assert changed.path == "mechanisms/module.py"
    assert changed.source().decode() == module.read_text().replace("a\n            + b", "a - b", 1)
    assert b"LIMIT = 4" in located("LIMIT", "3", "4", "a larger limit").source()
    for where, old, what in [
        ("Plan.sum", "+ b", "2 times"),
        ("Plan.sum", "c", "0 times"),
        ("Plan", "LIMIT", "0 times"),
    ]:
        with pytest.raises(ValueError, match=what):
            located(where, old, "x", "no single place")


def carry_out_two(results: Path, tests: tuple[str, ...], told: Connection) -> None:
    """Run a fault inside a function and one of a constant with each test, and tell what became of them."""
    run.RESULTS = results
    faults = [
        located("noise_steps", "if steps < 1:", "if False:", "a release without noise"),
        located("_RECORD_MOVES", "2", "1", "a record moves one count"),
    ]
    printed = io.StringIO()
    for test in tests:
        jobs = [Job(fault, (test,)) for fault in faults]
        with redirect_stdout(printed):
            carry_out(jobs, workers=1, effort=60.0)
        told.send([known(jobs).get(job.mutant.key) for job in jobs])
    told.send(printed.getvalue().count("1 of constants, defaults and classes start afresh"))


@pytest.mark.usefixtures("imported_once")
def test_a_fault_is_killed_by_the_test_that_sees_it_and_by_no_other(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """One inside a function, run warm although a conftest freezes objects, and one of a constant, afresh.

    In a process of their own: that of this test may have threads, which its forks would wait for.
    """
    # In the project, as tests have to be; pytest 8.0 imports none from a hidden folder.
    (ROOT / "build").mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=ROOT / "build"))
    request.addfinalizer(lambda: shutil.rmtree(folder))
    (blind := folder / "test_blind.py").write_text("def test_nothing():\n    pass\n")
    (sees := folder / "test_sees.py").write_text(
        "import gc\nimport pytest\nfrom privopt.mechanisms.errors import PrivacyParameterError\n"
        "from privopt.mechanisms.evaluation.bins import ScoreBins\n"
        "from privopt.mechanisms.evaluation.histogram import HistogramPlan\n\ngc.freeze()\n\n"
        "def test_one():\n    with pytest.raises(PrivacyParameterError):\n"
        "        HistogramPlan.plan(ScoreBins((0.0,)), epsilon=1e-12)\n"
        "    assert HistogramPlan.plan(ScoreBins((0.0,)), epsilon=1.0).steps == 2**29\n"
    )
    processes = multiprocessing.get_context("spawn")
    hears, told = processes.Pipe(duplex=False)
    tests = tuple(path.relative_to(ROOT).as_posix() for path in (blind, sees))
    results = tmp_path / "results" / "results.jsonl"
    process = processes.Process(target=carry_out_two, args=(results, tests, told))
    process.start()
    told.close()
    assert [hears.recv() for _ in range(3)] == [["alive", "alive"], ["killed", "killed"], 2]
    process.join()


def test_the_recorder_notes_the_functions_that_a_test_calls(request: pytest.FixtureRequest) -> None:
    """Methods and functions by their qualified names, what they call in other modules as well; no others."""
    from privopt.mechanisms.privacy import budget, spend

    path, other = "mechanisms/privacy/budget.py", "mechanisms/privacy/spend.py"
    own = [budget.Budget.__post_init__, budget.Budget.within, budget.Budget.cost]
    functions = {path: own, other: [spend.PrivacySpend.pure.__func__]}
    for function in (*own, *functions[other]):
        request.addfinalizer(functools.partial(setattr, function, "__code__", function.__code__))
    recorder = Recorder(functions)
    around = recorder.pytest_runtest_protocol(request.node)
    next(around)
    budget.Budget(1.0).cost(spend.PrivacySpend.pure(0.1, "test"))
    with suppress(StopIteration):
        next(around)
    seconds, called = recorder.reached[request.node.nodeid]
    assert called == [f"{path}::Budget.__post_init__", f"{path}::Budget.cost", f"{other}::PrivacySpend.pure"]
    assert seconds >= 0
