"""Counting, timing, caching and time limits around any oracle."""

from __future__ import annotations

import itertools
import time
from types import SimpleNamespace

import numpy as np
import pytest

from privopt.oracles import limits as limits_module
from privopt.oracles.certificate import Status
from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.minimize.order import first_in_order
from privopt.oracles.minimize.wrappers import Caching, Counting, TimeLimited, Timing
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.errors import InvalidInputError

LATTICE = IntegerLattice(-1, 1, dimension=2)
PROBLEM = ZeroOneHalfspace([[1, 0], [0, 1], [1, 1]], [1, -1, 1], LATTICE)
ZERO = Perturbation.zero(LATTICE)
TILTED = Perturbation.linear(LATTICE, [0.5, 0.25])


@pytest.mark.parametrize("seed", range(5))
def test_the_first_of_equally_good_points_is_found(seed: int) -> None:
    """Whichever equally good point of a box is found; a box without points is not asked about."""
    rng = np.random.default_rng(seed)
    good = np.unique(rng.integers(-2, 3, (12, 3)), axis=0)  # sorted

    def find(low: IntArray, high: IntArray) -> tuple[IntArray | None, Status | None]:
        assert np.all(low <= high)
        inside = good[np.all((low <= good) & (good <= high), axis=1)]
        return (rng.choice(inside), None) if len(inside) else (None, None)

    low, high = np.full(3, -2), np.full(3, 2)
    for point in good:
        assert np.array_equal(first_in_order(point, low, high, find)[0], good[0])
    assert first_in_order(good[-1], low, high, lambda *box: (None, Status.TIME_LIMIT))[1] is Status.TIME_LIMIT


class Patient(DiscreteOracle):
    """Waits until it is told to stop; remembers the limit that it was given."""

    name = "patient"

    def __init__(self) -> None:
        self.allowed: list[float | None] = []

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return ["no normalised task"] if task is Task.NORMALIZED else []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        def solve(query: Query) -> Proposal:
            self.allowed.append(query.watch.remaining)
            while (reason := query.watch.stop()) is None:
                time.sleep(0.001)
            return Proposal(None, -query.perturbation.magnitude, reason)

        return solve


@pytest.mark.parametrize("wrapper", [Counting, Timing, Caching, TimeLimited])
def test_a_wrapper_refuses_and_is_named_like_what_it_wraps(wrapper: type[Counting]) -> None:
    oracle = wrapper(Patient())
    assert oracle.name == "patient"
    assert oracle.refusals(PROBLEM, Task.LINEAR) == []
    with pytest.raises(UnsupportedProblemError, match="no normalised task"):
        oracle.prepare(PROBLEM, Task.NORMALIZED)


def test_counting() -> None:
    oracle = Counting(EnumerationOracle())
    prepared = oracle.prepare(PROBLEM, Task.LINEAR)
    prepared.minimize(ZERO)
    prepared.minimize(TILTED)
    oracle.prepare(PROBLEM, Task.LINEAR)
    assert (oracle.builds, oracle.solves) == (2, 2)


def test_timing_measures_each_solve_even_one_that_is_cut_short(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count()  # a clock on which a second passes with every look
    monkeypatch.setattr(limits_module, "time", SimpleNamespace(monotonic=ticks.__next__))
    oracle = Timing(Patient())
    prepared = oracle.prepare(PROBLEM, Task.LINEAR)
    for limits in (Limits(seconds=50), Limits(cancelled=lambda: True)):
        before = next(ticks)
        assert prepared.minimize(ZERO, limits).point is None
        assert 0 < oracle.seconds[-1] < next(ticks) - before
    first, second = oracle.seconds
    assert first > 40 > second


def test_caching_knows_the_exact_perturbation_and_the_data_set() -> None:
    counting = Counting(EnumerationOracle())
    oracle = Caching(counting)
    prepared = oracle.prepare(PROBLEM, Task.LINEAR)
    first, again = prepared.minimize(TILTED), prepared.minimize(TILTED)
    assert first.certificate.fixed_value == again.certificate.fixed_value
    assert np.array_equal(first.require(), again.require())
    assert (counting.solves, oracle.hits) == (1, 1)
    prepared.minimize(ZERO)
    assert counting.solves == 2
    flipped = ZeroOneHalfspace(PROBLEM.X, -PROBLEM.y, LATTICE)
    other = oracle.prepare(flipped, Task.LINEAR).minimize(TILTED)
    assert other.certificate.fixed_value != first.certificate.fixed_value
    assert counting.solves == 3


def test_caching_tells_a_radial_term_from_none() -> None:
    counting = Counting(EnumerationOracle())
    prepared = Caching(counting).prepare(PROBLEM, Task.NORMALIZED)
    radial = np.array([1, 0, 0], dtype=np.int64)
    prepared.minimize(Perturbation(LATTICE, ZERO.unary, radial))
    prepared.minimize(ZERO)
    assert counting.solves == 2


def test_caching_forgets_answers_that_were_cut_short() -> None:
    oracle = Caching(Patient())
    prepared = oracle.prepare(PROBLEM, Task.LINEAR)
    for _ in range(2):
        assert prepared.minimize(ZERO, Limits(seconds=0.01)).certificate.status is Status.TIME_LIMIT
    assert oracle.hits == 0


def test_caching_asks_again_when_ties_were_not_broken() -> None:
    class Indifferent(EnumerationOracle):
        def build(self, problem: DiscreteProblem, task: Task) -> Solver:
            solver = super().build(problem, task)

            def solve(query: Query) -> Proposal:
                answer = solver(query)
                return Proposal(answer.point, answer.bound, lexicographic=query.break_ties)

            return solve

    oracle = Caching(Indifferent())
    prepared = oracle.prepare(PROBLEM, Task.LINEAR)
    prepared.minimize(ZERO)
    assert prepared.minimize(ZERO, break_ties=True).certificate.lexicographic
    assert oracle.hits == 0
    assert prepared.minimize(ZERO).certificate.lexicographic
    assert oracle.hits == 1


def test_time_limited_uses_the_shorter_limit() -> None:
    inner = Patient()
    prepared = TimeLimited(inner, limit=0.02).prepare(PROBLEM, Task.LINEAR)
    assert prepared.minimize(ZERO).certificate.status is Status.TIME_LIMIT
    prepared.minimize(ZERO, Limits(seconds=0.005))
    prepared.minimize(ZERO, Limits(seconds=60.0))
    own, shorter, longer = inner.allowed
    assert own is not None
    assert shorter is not None
    assert longer is not None
    assert shorter <= 0.005 < own <= 0.02
    assert longer <= 0.02


def test_time_limited_keeps_cancellation() -> None:
    prepared = TimeLimited(Patient(), limit=60.0).prepare(PROBLEM, Task.LINEAR)
    answer = prepared.minimize(ZERO, Limits(cancelled=lambda: True))
    assert answer.certificate.status is Status.INTERRUPTED


@pytest.mark.parametrize("limit", [0.0, -1.0, float("nan")])
def test_time_limited_refuses_impossible_limits(limit: float) -> None:
    with pytest.raises(InvalidInputError, match="time limit"):
        TimeLimited(EnumerationOracle(), limit=limit)
