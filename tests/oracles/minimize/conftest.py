"""Fixtures of tests of minimisers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from privopt.oracles.minimize import conformance
from privopt.oracles.minimize.conformance import Instance


@pytest.fixture
def one_task_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit with every second instance, each problem under one of the two tasks in turn; fewer questions.

    Solvers that take a second per instance are quick with it; slow tests put all of it to them.
    """
    thinned(monkeypatch, every=2)


@pytest.fixture
def some_of_one_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit with a sixth of its instances, for solvers that share their models with one that has more."""
    thinned(monkeypatch, every=6)


def thinned(monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Keep the instances of every k-th problem and task, whose parities alternate; 50 questions in a row."""

    def kept(whole: Callable[[int], Iterator[Instance]], seed: int) -> Iterator[Instance]:
        for number, instance in enumerate(whole(seed)):
            problem, task = divmod(number, 2)
            if task == problem % 2 and problem % (every // 2) == 0:
                yield instance

    for name in ("instances", "large_instances", "short_instances"):
        whole = getattr(conformance, name)
        monkeypatch.setattr(conformance, name, lambda seed, whole=whole: kept(whole, seed))
    monkeypatch.setattr(conformance, "_MANY", 50)
