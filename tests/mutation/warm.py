"""Runs tests on mutants in forks of one process that has imported and collected everything already.

A mutant inside a function is put in by giving the live function another code object: nothing is imported
again. What cannot be put in this way (constants, defaults, bodies of classes) starts afresh, in ``inject``.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any, TypeVar

import pytest

from tests.mutation.mutate import ROOT, Mutant, modules, read
from tests.mutation.reach import Patience, Reached, Recorder, codes, keep

Job = TypeVar("Job")


class Warm:
    """A pytest plugin that puts forks for mutants in the place of the run of the collected tests.

    Args:
        unknown: test files whose reach is to be recorded before.
        choose: the mutants to run and the names of their tests, once that is known.
        patience: processor seconds for recording a test file; what comes later in it is not asked.
        tell: told every mutant and whether its tests passed, or None where it cannot be put in this way.
    """

    def __init__(
        self,
        unknown: Sequence[str],
        choose: Callable[[Sequence[str]], tuple[Sequence[tuple[Mutant, Sequence[str]]], Reached]],
        tell: Callable[[Mutant, bool | None], None],
        workers: int,
        patience: float,
    ) -> None:
        self.unknown, self.choose, self.tell = unknown, choose, tell
        self.workers, self.patience = workers, patience

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise pytest.UsageError("some tests cannot be collected, without any mutant")
        items = {item.nodeid: item for item in session.items}
        files = [[i for i in session.items if i.nodeid.startswith(f"{f}::")] for f in self.unknown]
        for path in modules():  # also those that tests import when they run
            if not path.startswith("experiments/"):
                name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                importlib.import_module(f"privopt.{name}")
        functions, caches = _living()
        gc.freeze()

        def record(file: Sequence[pytest.Item]) -> int:
            def work() -> int:
                recorder = Recorder(functions, most=self.patience / 3)
                session.config.pluginmanager.register(recorder)
                session.config.option.maxfail = 10**6
                end = time.process_time() + self.patience
                _run(session, file, stop=lambda: time.process_time() > end)
                keep(file[0].nodeid.partition("::")[0], recorder.reached)
                return 0

            return forked(work)

        for file, _ in in_forks((f for f in files if f), record, self.workers, lambda _: 3600.0):
            print(f"recorded what {file[0].nodeid.partition('::')[0]} reaches", flush=True)
        jobs, reached = self.choose(list(items))

        def put_in(job: tuple[Mutant, Sequence[str]]) -> int:
            mutant, names = job

            def work() -> int:
                if not swap(mutant, functions.get(mutant.path, ())):
                    return _CANNOT
                for cache in caches:
                    cache.cache_clear()
                session.config.pluginmanager.register(Patience(reached))
                return _run(session, [items[n] for n in names], stop=lambda: bool(session.testsfailed))

            return forked(work)

        def limit(job: tuple[Mutant, Sequence[str]]) -> float:
            return 120 + 20 * sum(reached.get(n, (60.0, []))[0] for n in job[1])

        for (mutant, _), code in in_forks(iter(jobs), put_in, self.workers, limit):
            self.tell(mutant, None if code == _CANNOT else code == 0)
        return True


_CANNOT = 77


def swap(mutant: Mutant, functions: Iterable[FunctionType]) -> bool:
    """Put a mutant into live functions of its module; False if its change is in none of them."""
    where = mutant.function
    file = str(ROOT / mutant.path)
    old = list(codes(compile(read(mutant.path), file, "exec", dont_inherit=True)))
    new = list(codes(compile(mutant.source(), file, "exec", dont_inherit=True)))
    alike = [(c.co_qualname, c.co_freevars) for c in old] == [(c.co_qualname, c.co_freevars) for c in new]
    if where is None or not alike:
        return False
    changed = {
        a: b
        for a, b in zip(old, new, strict=True)
        if a.co_qualname == where or a.co_qualname.startswith(f"{where}.<locals>")
    }
    found = False
    for function in functions:
        if function.__code__ in changed:
            function.__code__ = changed[function.__code__]
            found = True
    return found


def _living() -> tuple[dict[str, list[FunctionType]], list[Any]]:
    """All functions of the repository by their file, and its caches of results."""
    gc.unfreeze()  # a conftest may have frozen what was collected, and frozen objects are not listed
    functions: dict[str, list[FunctionType]] = {}
    caches = []
    for thing in gc.get_objects():
        kind = type(thing)
        if kind is FunctionType and thing.__code__.co_filename.startswith(f"{ROOT}/"):
            functions.setdefault(thing.__code__.co_filename.removeprefix(f"{ROOT}/"), []).append(thing)
        elif kind is functools._lru_cache_wrapper and str(thing.__module__).startswith("privopt."):
            caches.append(thing)
    return functions, caches


def _run(session: pytest.Session, items: Sequence[pytest.Item], stop: Callable[[], bool]) -> int:
    for item, after in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        if stop():
            break
    return 1 if session.testsfailed else 0


def forked(work: Callable[[], int], quiet: bool = True) -> int:
    """Fork a process, in a group of its own, that does some work and exits with its answer."""
    sys.stdout.flush(), sys.stderr.flush()
    child = os.fork()
    if child:
        return child
    code = 3
    try:
        os.setsid()
        os.chdir(ROOT)
        if quiet:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        code = work()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def in_forks(
    jobs: Iterator[Job], launch: Callable[[Job], int], workers: int, limit: Callable[[Job], float]
) -> Iterator[tuple[Job, int]]:
    """Each job and its process's exit status, as they end; one that takes longer than its limit is ended."""
    running: dict[int, tuple[Job, float]] = {}
    while True:
        while len(running) < workers and (job := next(jobs, None)) is not None:
            running[launch(job)] = job, time.monotonic() + limit(job)
        if not running:
            return
        for child, (job, end) in list(running.items()):
            pid, status = os.waitpid(child, os.WNOHANG)
            if not pid and time.monotonic() > end:
                os.killpg(child, signal.SIGKILL)
                pid, status = os.waitpid(child, 0)
            if pid:
                del running[child]
                yield job, os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
