"""Which tests reach which functions, and how long they take, so that a mutant is soon found out."""

from __future__ import annotations

import ast
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from types import FrameType
from typing import Any

import pytest

from tests.mutation.inject import start
from tests.mutation.mutate import ROOT, Mutant, digest

REACHED = ROOT / ".mutation" / "reached"

# By the name of a test: its seconds, and the functions it calls as path::qualified name.
Reached = dict[str, tuple[float, list[str]]]


class Recorder:
    """A pytest plugin that notes the calls of every test."""

    def __init__(self) -> None:
        self.reached: Reached = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        seen: set[Any] = set()

        def called(frame: FrameType, event: str, argument: Any) -> None:
            seen.add(frame.f_code)

        begin = time.perf_counter()
        threading.settrace(called), sys.settrace(called)
        yield
        sys.settrace(None), threading.settrace(None)  # type: ignore[arg-type]
        own = (c for c in seen if c.co_filename.startswith(f"{ROOT}/"))
        names = {f"{c.co_filename.removeprefix(f'{ROOT}/')}::{_outermost(c.co_qualname)}" for c in own}
        self.reached[item.nodeid] = time.perf_counter() - begin, sorted(names)


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


def reached_by(tests: Iterable[str]) -> Reached:
    """What tests reach, from files that are kept until the test file changes; a first time takes a while."""
    REACHED.mkdir(parents=True, exist_ok=True)
    result: Reached = {}
    for test in sorted({t.partition("::")[0] for t in tests if not t.startswith("-")}):
        kept = REACHED / f"{test.replace('/', '.')}-{digest(test)}.json"
        if not kept.exists():
            print(f"what does {test} reach?", flush=True)
            recorder = Recorder()
            child = start(
                None, ["--maxfail=1000", test], recorder, then=lambda r=recorder, k=kept: _write(r, k)
            )  # type: ignore[misc]
            os.waitpid(child, 0)
        result |= json.loads(kept.read_text()) if kept.exists() else {}
    return result


def _write(recorder: Recorder, kept: Any) -> None:
    torn = kept.with_suffix(f".{os.getpid()}")
    torn.write_text(json.dumps(recorder.reached))
    torn.rename(kept)


def likeliest_first(mutant: Mutant, tests: Sequence[str], reached: Reached) -> list[str]:
    """The same tests one by one: those first that call the mutant's function, quick ones before others."""
    wanted = f"{mutant.path}::{_function(mutant)}"
    out = {t.partition("=")[2] for t in tests if t.startswith("--deselect=")}
    asked = [t for t in tests if not t.startswith("-")]

    def is_asked(name: str) -> bool:
        plain = name.partition("[")[0]
        return plain not in out and any(plain == t or plain.startswith(f"{t}::") for t in asked)

    found = [(wanted not in calls, s, name) for name, (s, calls) in reached.items() if is_asked(name)]
    return [name for _, _, name in sorted(found)]


def _function(mutant: Mutant) -> str | None:
    """The outermost function whose body a mutant changes."""

    def search(nodes: Sequence[ast.stmt], scope: str) -> str | None:
        for node in nodes:
            if isinstance(node, ast.ClassDef) and (found := search(node.body, f"{scope}{node.name}.")):
                return found
            if isinstance(node, ast.FunctionDef) and node.body[0].lineno <= mutant.line <= node.end_lineno:  # type: ignore[operator]
                return scope + node.name
        return None

    return search(ast.parse((ROOT / mutant.path).read_bytes()).body, "")


def _outermost(name: str) -> str:
    return name.partition(".<locals>")[0]
