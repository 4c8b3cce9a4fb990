"""Fixtures of the tests of experiments."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

# What the processes of races, benchmarks and analysts import.
MODULES = [
    "privopt.experiments.benchmark_solvers",
    "privopt.experiments.comparison.race",
    "privopt.experiments.ledgers",
    "privopt.experiments.scaling",
    "privopt.oracles.draw.elimination",
    "privopt.oracles.minimize.mip.highs",
    "privopt.oracles.minimize.native.worker",
]


@pytest.fixture
def imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fresh processes are forks of one that has imported what they need, and done nothing else.

    Its environment is that of the first test that starts a process.
    """
    spawned = multiprocessing.get_context
    forked = spawned("forkserver")
    forked.set_forkserver_preload(MODULES)

    def context(method: str | None = None) -> Any:
        return forked if method == "spawn" else spawned(method)

    monkeypatch.setattr(multiprocessing, "get_context", context)
