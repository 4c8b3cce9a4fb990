"""Outside code that ignores a limit is not waited for, and its answer is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from typing import Any

import numpy as np
import pytest

from privopt.oracles import DiscreteOracle, GibbsOracle, Law, Limits, Proposal
from privopt.oracles import limits as own
from privopt.oracles.certificate import Status
from privopt.oracles.draw import conformance as draw_kit
from privopt.oracles.draw.interface import Sampler
from privopt.oracles.errors import CertificateError, UnfinishedDrawError
from privopt.oracles.minimize import conformance as minimize_kit
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.task import Task
from privopt.problems import IntegerLattice
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.objective import Perturbation

LATTICE = IntegerLattice(-1, 1, dimension=2)
PROBLEM = ZeroOneHalfspace(np.array([[1, 0], [0, 1], [1, 1]]), np.array([1, -1, 1]), LATTICE)


@pytest.fixture
def released(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """The event that deaf code waits for; it happens at the end of a test."""
    monkeypatch.setattr(own, "_PATIENCE", 0.0)
    event = Event()
    yield event
    event.set()


class Deaf(DiscreteOracle):
    """Enumeration that answers when an event has happened, whatever its limits are."""

    name = "deaf"

    def __init__(self, event: Event) -> None:
        self.event = event

    def refusals(self, problem: Any, task: Task) -> list[str]:
        return []

    def build(self, problem: Any, task: Task) -> Any:
        solve = EnumerationOracle().build(problem, task)

        def after(query: Any) -> Proposal:
            assert self.event.wait(60)
            return solve(query)

        return after


class DeafSampler(GibbsOracle):
    name = "deaf"

    def __init__(self, event: Event) -> None:
        self.event = event

    def refusals(self, problem: Any, law: Law = Law.GIBBS) -> list[str]:
        return []

    def build(self, problem: Any, law: Law = Law.GIBBS) -> Any:
        return DeafDraws(self.event)


class DeafDraws(Sampler):
    def __init__(self, event: Event) -> None:
        self.event = event

    def draw(self, request: Any) -> Any:
        assert self.event.wait(60)
        raise AssertionError("nobody asks for this draw any more")


@pytest.mark.parametrize("cancel", [False, True])
def test_a_solve_that_ignores_its_limit_proves_nothing(released: Event, cancel: bool) -> None:
    prepared, noise = Deaf(released).prepare(PROBLEM, Task.LINEAR), Perturbation.zero(LATTICE)
    limits = Limits(cancelled=lambda: True) if cancel else Limits(seconds=0.01)
    answer = prepared.minimize(noise, limits)
    assert answer.point is None
    assert answer.certificate.status is (Status.INTERRUPTED if cancel else Status.TIME_LIMIT)
    with pytest.raises(CertificateError):
        answer.require()
    released.set()
    assert prepared.minimize(noise, Limits(seconds=60.0)).certificate.gap == 0


def test_a_draw_that_ignores_its_limit_is_none(released: Event) -> None:
    prepared, source = DeafSampler(released).prepare(PROBLEM), np.random.default_rng(0)
    with pytest.raises(UnfinishedDrawError, match="'deaf' went on, and was abandoned"):
        prepared.draw(1.0, source, Limits(seconds=0.01))  # type: ignore[arg-type]


def test_the_kits_wait_for_late_answers(released: Event) -> None:
    """Also of code that polls no limit: what it answers in the end is what they check."""
    instance, drawn = next(iter(minimize_kit.instances(0))), next(iter(draw_kit.draw_instances(0)))
    case = minimize_kit._Case(Deaf(released), instance, 0.0)
    law = draw_kit._Case(DeafSampler(released), drawn, Law.GIBBS, 0)
    assert (case.prepared.maker, law.prepare().maker) == (None, None)
    released.set()
    limited = case.prepared.minimize(Perturbation.zero(instance.problem.lattice), Limits(seconds=1e-9))
    assert "abandoned" not in limited.certificate.raw_status
