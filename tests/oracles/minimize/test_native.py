"""The native minimiser against exhaustive search: value, lexicographically first point, honest limits."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from privopt.oracles.cells import regions as regions
from privopt.oracles.cells.structure import CellLimits, CellStructure
from privopt.oracles.certificate import Answer, Status
from privopt.oracles.errors import SolverFailedError, UnsupportedProblemError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.conformance import check_oracle
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interval import IntervalOracle
from privopt.oracles.minimize.native import bounds as bounds
from privopt.oracles.minimize.native import nested, solver, worker
from privopt.oracles.minimize.native.run import Run
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation, levels, to_fixed

# one-hot levels, flags, numeric columns, intercept, weights, room in the ball beyond the shortest vector
SHAPES = {
    "blocks": ((3, 4), 0, 0, False, (-1, 1), None),
    "two blocks and a number": ((3, 3), 0, 1, False, (-1, 1), None),
    "three blocks in a ball": ((2, 3, 2), 0, 1, False, (-2, 2), 6),
    "wide weights": ((2, 2), 0, 1, True, (-4, 4), 9),
    "flags that overlap": ((), 5, 1, False, (-2, 2), 7),
    "flags and a block": ((3,), 3, 1, True, (-1, 1), 5),
    "lopsided": ((3, 3), 1, 1, False, None, None),
    "lopsided in a ball": ((3, 2), 2, 0, True, None, 8),
    "two numbers": ((3,), 1, 2, False, (-2, 2), 8),
    "one point": ((2, 2), 0, 1, False, (-1, 1), 0),
}
SCALES = (0.0, 0.3, 5.0, 1e4)


def make_problem(shape: str, seed: int) -> ZeroOneHalfspace:
    blocks, flags, numbers, intercept, box, room = SHAPES[shape]
    rng = np.random.default_rng(seed)
    n, scale = int(rng.integers(10, 60)), int(rng.choice([-2, 1, 3]))
    columns = [np.eye(size, dtype=np.int64)[rng.integers(0, size, n)] * scale for size in blocks]
    columns.append(rng.integers(0, 2, (n, flags)) * scale)
    columns.append(np.full((n, int(intercept)), scale))
    columns.append(rng.integers(-6, 7, (n, numbers)))
    X = np.hstack(columns)
    X = X[:, rng.permutation(X.shape[1])]
    d = X.shape[1]
    low, high = (
        (np.full(d, box[0]), np.full(d, box[1])) if box else (rng.integers(-2, 1, d), np.zeros(d, int))
    )
    if not box:
        high = low + rng.integers(0, 4, d)
    shortest = int(np.sum(np.clip(0, low, high) ** 2))
    radius = None if room is None else float(np.sqrt(shortest + room))
    truth = X @ rng.integers(-2, 3, d) + rng.normal(size=n) * 2
    return ZeroOneHalfspace(X, np.where(truth > 0, 1, -1), IntegerLattice(low, high, radius=radius))


def noises(problem: ZeroOneHalfspace, task: Task, seed: int) -> list[Perturbation]:
    """Real noise of several sizes and none; small integers, which make ties; tables of any shape."""
    rng, lattice = np.random.default_rng(seed), problem.lattice
    small = Perturbation.linear(lattice, rng.integers(-1, 2, lattice.dimension))
    if task is Task.LINEAR:
        return [
            small,
            *(Perturbation.linear(lattice, s * rng.normal(size=lattice.dimension)) for s in SCALES),
        ]
    noise = [Perturbation.normalized(lattice, s * rng.normal(size=lattice.dimension + 1)) for s in SCALES]
    unary = tuple(to_fixed(3 * rng.normal(size=len(v))) for v in levels(lattice))
    jagged = to_fixed(5 * rng.normal(size=lattice.max_squared_norm + 1))
    steps = to_fixed(rng.integers(-2, 3, lattice.max_squared_norm + 1))
    return [*noise, Perturbation(lattice, unary, jagged), Perturbation(lattice, small.unary, steps)]


def agree(answer: Answer, reference: Answer) -> bool:
    found, true = answer.certificate, reference.certificate
    return found.fixed_value == found.fixed_bound == true.fixed_value and found.exact


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("shape", SHAPES)
def test_equals_enumeration(shape: str, task: Task) -> None:
    for seed in range(4):
        problem = make_problem(shape, seed)
        oracle = NativeOracle(threads=1 + seed % 2).prepare(problem, task)
        reference = EnumerationOracle().prepare(problem, task)
        for noise in noises(problem, task, seed):
            expected = reference.minimize(noise)
            assert agree(oracle.minimize(noise), expected)
            first = oracle.minimize(noise, break_ties=True)
            assert agree(first, expected)
            assert first.certificate.lexicographic
            np.testing.assert_array_equal(first.point, expected.point)


@pytest.mark.parametrize("ties", [0, 1, 3])
def test_ties_are_broken_however_few_are_opened(ties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "_TIES", ties)
    for shape in ("blocks", "flags and a block", "wide weights"):
        problem = make_problem(shape, 7)
        noise = Perturbation.linear(problem.lattice, np.arange(problem.lattice.dimension) % 2)
        first = NativeOracle(threads=1).prepare(problem, Task.LINEAR).minimize(noise, break_ties=True)
        expected = EnumerationOracle().prepare(problem, Task.LINEAR).minimize(noise)
        np.testing.assert_array_equal(first.require(lexicographic=True), expected.point)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_trees_that_are_split_lose_nothing(nodes: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if shared:  # as if other threads were waiting for parts all the time
        monkeypatch.setattr(Run, "starved", property(lambda run: True))
    monkeypatch.setattr(worker, "_FIRST_TREE_NODES", nodes)
    monkeypatch.setattr(worker, "_TREE_NODES", nodes)
    monkeypatch.setattr(worker.Worker, "_nested", lambda *_: False)
    monkeypatch.setattr(worker, "MORE_SWEEPS", 1)
    for shape in ("three blocks in a ball", "wide weights", "two numbers", "lopsided"):
        problem = make_problem(shape, nodes)
        oracle = NativeOracle(threads=1).prepare(problem, Task.NORMALIZED)
        for noise in noises(problem, Task.NORMALIZED, nodes):
            expected = EnumerationOracle().prepare(problem, Task.NORMALIZED).minimize(noise)
            first = oracle.minimize(noise, break_ties=True)
            assert agree(first, expected)
            np.testing.assert_array_equal(first.require(lexicographic=True), expected.point)


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_tries_that_are_split_lose_nothing(nodes: int, shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if shared:  # as if other threads were waiting for parts all the time
        monkeypatch.setattr(Run, "starved", property(lambda run: True))
    monkeypatch.setattr(worker, "_FIRST_TREE_NODES", 1)
    monkeypatch.setattr(worker, "_WORTH", -0.01)  # always
    monkeypatch.setattr(worker, "_PART_NODES", nodes)
    monkeypatch.setattr(worker, "MORE_SWEEPS", 1)
    monkeypatch.setattr(worker, "_PASSES", nodes)
    searched = 0
    true_search = nested.search

    def counted(*arguments: object) -> object:
        nonlocal searched
        searched += 1
        return true_search(*arguments)

    monkeypatch.setattr(nested, "search", counted)
    for shape in ("three blocks in a ball", "wide weights", "two numbers", "lopsided", "flags and a block"):
        problem = make_problem(shape, nodes)
        oracle = NativeOracle(threads=1).prepare(problem, Task.NORMALIZED)
        for noise in noises(problem, Task.NORMALIZED, nodes):
            expected = EnumerationOracle().prepare(problem, Task.NORMALIZED).minimize(noise)
            first = oracle.minimize(noise, break_ties=True)
            assert agree(first, expected)
            np.testing.assert_array_equal(first.require(lexicographic=True), expected.point)
    assert searched > 20


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_conformance(seed: int) -> None:
    assert check_oracle(NativeOracle(), seeds=[seed]).passed


def test_a_wrong_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    true_sweep = bounds.sweep
    monkeypatch.setattr(bounds, "sweep", lambda *arguments: true_sweep(*arguments) + 2 * UNIT)
    wrong = 0
    for seed in range(5):
        problem = make_problem("two blocks and a number", seed)
        noise = noises(problem, Task.LINEAR, seed)[2]
        expected = EnumerationOracle().prepare(problem, Task.LINEAR).minimize(noise)
        try:
            found = NativeOracle(threads=1).prepare(problem, Task.LINEAR).minimize(noise)
            wrong += not agree(found, expected)
        except SolverFailedError:
            wrong += 1
    assert wrong > 0


@pytest.mark.parametrize("shape", ["three blocks in a ball", "flags that overlap", "lopsided"])
def test_dual_bounds_rise_and_stay_below_every_value(shape: str) -> None:
    """Brute force over the indicator weights, for each numeric weight vector apart."""
    problem = make_problem(shape, 3)
    cells, noise = CellStructure.of(problem), noises(problem, Task.NORMALIZED, 3)[2]
    points = np.concatenate(list(problem.lattice.batches()))
    values = problem.values(points, noise)
    model = regions.CellModel.make(problem, Task.NORMALIZED)
    shape, costs, shares = model.shape, model.costs(noise), bounds.make_shares(model.shape)
    region = regions.new_region(shape, np.int64)
    x, forward = np.zeros_like(shape.low), np.zeros_like(region.tables)
    for i, a in enumerate(model.weights):
        least = int(values[np.all(points[:, cells.numeric] == a, axis=1)].min())
        assert model.start(region, i, UNIT, costs, model.all_levels)
        regions.give_to_norm(shape, region, 0)
        regions.update(shape, region, None)
        before = regions.bound(shape, region)
        for _ in range(6):
            joint = bounds.sweep(shape, region, forward, shares, regions.BIG, x)
            simple = regions.bound(shape, region)
            assert before <= simple <= joint <= least
            before = simple


def stopping_after(calls: int) -> Callable[[], bool]:
    seen = iter(range(calls))
    return lambda: next(seen, None) is None


@pytest.mark.parametrize("calls", [0, 1, 2, 5, 9, 20])
def test_interrupted_bounds_are_honest(calls: int) -> None:
    problem = make_problem("wide weights", 11)
    for noise in noises(problem, Task.NORMALIZED, 11):
        expected = EnumerationOracle().prepare(problem, Task.NORMALIZED).minimize(noise).certificate
        oracle = NativeOracle(threads=1).prepare(problem, Task.NORMALIZED)
        limits = Limits(cancelled=stopping_after(calls))
        found = oracle.minimize(noise, limits, break_ties=True)
        assert found.certificate.fixed_bound <= expected.fixed_value <= found.certificate.fixed_value
        assert found.certificate.status in (Status.INTERRUPTED, Status.OPTIMAL)
        if found.certificate.status is Status.OPTIMAL:
            assert agree(found, oracle.minimize(noise))
        elif calls == 0:
            assert not found.certificate.lexicographic


def test_errors_of_callbacks_reach_the_caller() -> None:
    def fail() -> bool:
        raise KeyError("callback")

    problem = make_problem("blocks", 0)
    oracle = NativeOracle(threads=2).prepare(problem, Task.LINEAR)
    with pytest.raises(KeyError, match="callback"):
        oracle.minimize(Perturbation.zero(problem.lattice), Limits(cancelled=fail))


def test_as_many_threads_search_as_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(solver, "go", lambda run, threads: asked.append(threads))
    problem = make_problem("blocks", 0)
    noise = Perturbation.zero(problem.lattice)
    for threads in (1, 3, None):
        NativeOracle(threads=threads).prepare(problem, Task.LINEAR).minimize(noise)
    assert asked == [1, 3, os.cpu_count()]


def test_refusals() -> None:
    problem = make_problem("wide weights", 0)
    assert NativeOracle().refusals(problem, Task.NORMALIZED) == []
    small = NativeOracle(CellLimits(cells=1, squared_norm=4))
    assert len(small.refusals(problem, Task.NORMALIZED)) == 2
    boundless = Perturbation.linear(problem.lattice, np.full(problem.lattice.dimension, 2.6e8))
    with pytest.raises(UnsupportedProblemError, match="rescale"):
        NativeOracle().prepare(problem, Task.LINEAR).minimize(boundless)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, 40.0, 4000.0])
def test_agrees_with_interval_search_beyond_enumeration(scale: float) -> None:
    """Two searches that share nothing but the loss: 3**12 and 5**12 points, 3,000 records."""
    rng = np.random.default_rng(4)
    columns = [100 * np.eye(size, dtype=np.int64)[rng.integers(0, size, 3000)] for size in (4, 3, 3)]
    X = np.hstack([*columns, rng.integers(0, 101, (3000, 2))])
    truth = X @ rng.integers(-2, 3, 12) + rng.normal(size=3000) * 150
    y = np.where(truth > 0, 1, -1)
    for lattice in (IntegerLattice(-1, 1, dimension=12), IntegerLattice(-2, 2, dimension=12, radius=3.0)):
        problem = ZeroOneHalfspace(X, y, lattice)
        noise = Perturbation.normalized(lattice, scale * rng.normal(size=13))
        found = NativeOracle().prepare(problem, Task.NORMALIZED).minimize(noise)
        other = IntervalOracle().prepare(problem, Task.NORMALIZED).minimize(noise)
        assert agree(found, other)
        assert other.certificate.gap == 0
