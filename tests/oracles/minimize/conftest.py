"""Fixtures of tests of minimisers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from privopt.oracles.minimize import conformance
from privopt.oracles.minimize.conformance import Instance


@pytest.fixture
def one_task_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kit with every second instance: each problem under one of the two tasks, in turn.

    Solvers that take a second per instance are quick with it; slow tests put both tasks to them.
    """

    def halved(whole: Callable[[int], Iterator[Instance]], seed: int) -> Iterator[Instance]:
        for number, instance in enumerate(whole(seed)):
            problem, task = divmod(number, 2)
            if task == problem % 2:
                yield instance

    for name in ("instances", "large_instances"):
        whole = getattr(conformance, name)
        monkeypatch.setattr(conformance, name, lambda seed, whole=whole: halved(whole, seed))
