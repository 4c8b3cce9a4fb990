"""Functions that each test reaches, and times of tests, so that a mutant is soon found out."""

from __future__ import annotations

import ast
import builtins
import functools
import json
import math
import os
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FunctionType

import pytest

from tests.mutation.mutate import INTERPRETED, ROOT, Mutant, digest, read

REACHED = ROOT / ".mutation" / ("interpreted" if INTERPRETED else "reached")
# Tests of the library; those of the command line and of pages take long and reach everything.
_FOLDERS = ("problems", "oracles", "mechanisms", "privacy", "conformance", "bad_inputs")
_MANY = 8
# The builtin that functions call to note their names.
_NOTE = "_note_call"

# By the name of a test: its seconds, and the functions it calls as path::qualified name.
Reached = dict[str, tuple[float, list[str]]]


class Recorder:
    """A pytest plugin that notes the functions that every passing test calls.

    Each live function is given a code object that begins by noting its own name: tests run as fast as they do
    otherwise, where a tracer would take five times as long. Compiled functions are left as they are.

    Args:
        functions: the live functions, by their file.
        most: processor seconds of a test; one that takes longer is ended, and is not asked about mutants.
    """

    def __init__(self, functions: Mapping[str, Iterable[FunctionType]], most: float = math.inf) -> None:
        self.most = most
        self.reached: Reached = {}
        self.failed: set[str] = set()
        self.called: set[str] = set()
        setattr(builtins, _NOTE, self.called.add)
        for path, living in functions.items():
            source, file = read(path), str(ROOT / path)
            old = compile(source, file, "exec", dont_inherit=True)
            new = compile(_noting(path, ast.parse(source)), file, "exec", dont_inherit=True)
            noting = dict(zip(codes(old), codes(new), strict=True))
            for function in living:
                function.__code__ = noting.get(function.__code__, function.__code__)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.called.clear()
        begin = time.process_time()
        if math.isfinite(self.most):
            signal.signal(signal.SIGPROF, _give_up)
            signal.setitimer(signal.ITIMER_PROF, self.most)
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        if item.nodeid not in self.failed:
            self.reached[item.nodeid] = time.process_time() - begin, sorted(self.called)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)


def _give_up(*_: object) -> None:
    raise TimeoutError("this test takes longer than the effort allows")


def _noting(path: str, module: ast.Module) -> ast.Module:
    """The module with a first statement in every function that notes the function's name."""

    def enter(nodes: Sequence[ast.AST], scope: str) -> None:
        for node in nodes:
            if isinstance(node, ast.FunctionDef):
                if not any("jit" in ast.unparse(d) for d in node.decorator_list):
                    note = ast.parse(f"{_NOTE}({f'{path}::{scope}{node.name}'!r})").body[0]
                    node.body.insert(0, note)
            else:
                inner = f"{scope}{node.name}." if isinstance(node, ast.ClassDef) else scope
                enter(list(ast.iter_child_nodes(node)), inner)

    enter(module.body, "")
    return ast.fix_missing_locations(module)


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code of every function in a module, outer ones first."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 0x2:  # new locals: a function, and no body of a class
                yield constant
            yield from codes(constant)


class Patience:
    """A pytest plugin that ends the process when a test takes many times what it took: a mutant hangs."""

    def __init__(self, reached: Reached) -> None:
        self.reached = reached

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        seconds, _ = self.reached.get(item.nodeid, (60.0, []))
        signal.setitimer(signal.ITIMER_PROF, 10 + 5 * seconds)  # of the processor's time, however busy it is
        yield
        signal.setitimer(signal.ITIMER_PROF, 0)


def files_of_tests(path: str) -> list[str]:
    """The test files of a module: of its folder's mirror, and those that name it."""
    folder, module = path.rpartition("/")[0], "privopt." + path.removesuffix(".py").replace("/", ".")
    package, _, last = module.rpartition(".")
    names = (module, f"from {package} import {last}\n")
    mirror = {file for file in _texts() if file.startswith(f"tests/{folder}/")}
    naming = {file for file, text in _texts().items() if any(name in text for name in names)}
    many = mirror & naming and len(naming) > _MANY  # whatever everybody uses has tests of its own
    return sorted(mirror if many else mirror | naming)


@functools.cache
def _texts() -> dict[str, str]:
    files = sorted(p for folder in _FOLDERS for p in (ROOT / "tests" / folder).rglob("test_*.py"))
    return {p.relative_to(ROOT).as_posix(): p.read_text("utf-8") for p in files}


def kept(file: str) -> Path:
    """File that keeps the reach of a test file until that changes."""
    return REACHED / f"{file.replace('/', '.')}-{digest(file)}.json"


def keep(file: str, reached: Reached) -> None:
    REACHED.mkdir(parents=True, exist_ok=True)
    torn = kept(file).with_suffix(f".{os.getpid()}")
    torn.write_text(json.dumps(reached))
    torn.rename(kept(file))


def reached_by(files: Iterable[str]) -> Reached:
    """The tests of some files, of those whose reach is known."""
    result: Reached = {}
    for file in files:
        if kept(file).exists():
            result |= json.loads(kept(file).read_text())
    return result


def likeliest_first(mutant: Mutant, names: Iterable[str], reached: Reached, most: float) -> list[str]:
    """The tests that reach a mutant, quick ones first, in so many seconds together.

    Of a constant or a default these are all that reach its module.
    """
    within = f"{mutant.path}::" if mutant.function is None else f"{mutant.path}::{mutant.function}"
    whole = mutant.function is not None

    def reaches(call: str) -> bool:
        return call == within if whole else call.startswith(within)

    chosen, spent = [], 0.0
    for seconds, name in sorted((reached[n][0], n) for n in names if n in reached):
        if any(map(reaches, reached[name][1])):
            spent += seconds
            if chosen and spent > most:
                break
            chosen.append(name)
    return chosen
