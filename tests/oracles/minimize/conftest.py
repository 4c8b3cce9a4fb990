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
    thinned(monkeypatch, lambda problem: True)


@pytest.fixture(params=range(3))
def third(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit of ``one_task_each``, dealt out to three solvers that share their models."""
    thinned(monkeypatch, lambda problem: problem % 3 == request.param)


def thinned(monkeypatch: pytest.MonkeyPatch, chosen: Callable[[int], bool]) -> None:
    """The chosen problems under tasks in turn, and 50 questions in a row."""

    def kept(whole: Callable[[int], Iterator[Instance]], seed: int) -> Iterator[Instance]:
        for number, instance in enumerate(whole(seed)):
            problem, task = divmod(number, 2)
            if task == problem % 2 and chosen(problem):
                yield instance

    for name in ("instances", "large_instances"):
        whole = getattr(conformance, name)
        monkeypatch.setattr(conformance, name, lambda seed, whole=whole: kept(whole, seed))
    short = list(conformance.short_instances(0))
    monkeypatch.setattr(conformance, "short_instances", lambda seed: iter(short[:1]))
    monkeypatch.setattr(conformance, "_MANY", 50)
