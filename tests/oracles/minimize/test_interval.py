"""Branch and bound over boxes against exhaustive search, on dense features."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from privopt.oracles.certificate import Status
from privopt.oracles.errors import SolverFailedError, UnsupportedProblemError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize import interval
from privopt.oracles.minimize.conformance import check_oracle
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interval import IntervalOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.conjunction import MonotoneConjunction
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation, levels, to_fixed


def dense_problem(seed: int, *, n: int = 60, d: int = 4, largest: int = 3) -> ZeroOneHalfspace:
    """Small features, so that scores of zero and equal rows are common; lopsided or round domains."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-largest, largest + 1, (n, d))
    low = rng.integers(-4, 1, d)
    high = low + rng.integers(0, 6, d)
    if seed % 2:
        low, high = np.full(d, -3), np.full(d, 3)
    shortest = int(np.sum(np.clip(0, low, high) ** 2))
    radius = None if seed % 3 == 0 else float(np.sqrt(shortest + rng.integers(0, 12)))
    truth = X @ rng.integers(-3, 4, d) + rng.normal(size=n) * largest
    return ZeroOneHalfspace(X, np.where(truth > 0, 1, -1), IntegerLattice(low, high, radius=radius))


def noises(problem: ZeroOneHalfspace, seed: int) -> list[Perturbation]:
    rng, lattice = np.random.default_rng(seed), problem.lattice
    d = lattice.dimension
    small = Perturbation.linear(lattice, rng.integers(-1, 2, d))
    unary = tuple(to_fixed(3 * rng.normal(size=len(v))) for v in levels(lattice))
    jagged = to_fixed(5 * rng.normal(size=lattice.max_squared_norm + 1))
    sizes = (0.0, 0.5, 5.0, 1e4)
    return [
        *(Perturbation.normalized(lattice, s * rng.normal(size=d + 1)) for s in sizes),
        *(Perturbation.linear(lattice, s * rng.normal(size=d)) for s in sizes[1:]),
        Perturbation(lattice, unary, jagged),
        small,
    ]


@pytest.mark.parametrize("seed", range(12))
def test_equals_enumeration(seed: int) -> None:
    problem = dense_problem(seed)
    oracle = IntervalOracle().prepare(problem, Task.NORMALIZED)
    linear = IntervalOracle().prepare(problem, Task.LINEAR)
    reference = EnumerationOracle().prepare(problem, Task.NORMALIZED)
    for noise in noises(problem, seed):
        expected = reference.minimize(noise)
        for prepared in (oracle, linear) if noise.radial is None else (oracle,):
            found = prepared.minimize(noise).certificate
            assert found.fixed_value == found.fixed_bound == expected.certificate.fixed_value
            first = prepared.minimize(noise, break_ties=True)
            np.testing.assert_array_equal(first.require(lexicographic=True), expected.point)


@pytest.mark.parametrize("ties", [0, 1, 3])
def test_ties_are_broken_however_few_are_opened(ties: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "_TIES", ties)
    for seed in range(4):
        problem = dense_problem(seed)
        noise = Perturbation.linear(problem.lattice, np.arange(problem.lattice.dimension) % 2)
        first = IntervalOracle().prepare(problem, Task.LINEAR).minimize(noise, break_ties=True)
        expected = EnumerationOracle().prepare(problem, Task.LINEAR).minimize(noise)
        np.testing.assert_array_equal(first.require(lexicographic=True), expected.point)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_conformance(seed: int) -> None:
    assert check_oracle(IntervalOracle(), seeds=[seed]).passed


def test_a_wrong_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors on negative records are forgotten."""
    true_data = interval._Data.of

    def wrong_data(problem: ZeroOneHalfspace, coupled: bool) -> interval._Data:
        data = true_data(problem, coupled)
        return replace(data, negative=0 * data.negative)

    monkeypatch.setattr(interval._Data, "of", wrong_data)
    wrong = 0
    for seed in range(1, 12, 3):
        problem = dense_problem(seed)
        expected = EnumerationOracle().prepare(problem, Task.LINEAR)
        noise = noises(problem, seed)[5]
        try:
            found = IntervalOracle().prepare(problem, Task.LINEAR).minimize(noise).certificate
            wrong += found.fixed_bound != expected.minimize(noise).certificate.fixed_value
        except SolverFailedError:
            wrong += 1
    assert wrong > 0


@pytest.mark.parametrize("calls", [0, 1, 2, 4, 8, 50])
def test_interrupted_bounds_are_honest(calls: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interval, "_SLICE_ROWS", 500)
    problem = dense_problem(5, n=200, largest=50)
    for noise in noises(problem, 5):
        seen = iter(range(calls))
        limits = Limits(cancelled=lambda seen=seen: next(seen, None) is None)
        found = IntervalOracle().prepare(problem, Task.NORMALIZED).minimize(noise, limits).certificate
        true = EnumerationOracle().prepare(problem, Task.NORMALIZED).minimize(noise).certificate
        assert found.fixed_value is not None
        assert found.fixed_bound <= true.fixed_value <= found.fixed_value
        assert found.status in (Status.INTERRUPTED, Status.OPTIMAL)
        assert found.status is Status.INTERRUPTED or found.fixed_bound == true.fixed_value


def test_nothing_is_compiled_while_a_clock_runs() -> None:
    """Building has seen every combination of types that solving needs."""
    kernels = (interval._push_root, interval._search, interval._cheapest, interval._open_bound)
    IntervalOracle().prepare(dense_problem(1), Task.NORMALIZED)
    known = [len(kernel.signatures) for kernel in kernels]
    assert known == [1, 1, 1, 1]
    for seed in range(4):
        problem = dense_problem(seed)
        for noise in noises(problem, seed):
            prepared = IntervalOracle().prepare(problem, Task.NORMALIZED)
            prepared.minimize(noise, break_ties=True)
            prepared.minimize(noise, Limits(seconds=1e-9))
    assert [len(kernel.signatures) for kernel in kernels] == known


def test_large_scores_do_not_lose_precision() -> None:
    """Features near 2**40: the Cauchy-Schwarz bound is a float and has to stay on the safe side."""
    rng = np.random.default_rng(0)
    X = rng.integers(-(1 << 40), 1 << 40, (40, 3))
    X[:10] = X[10:20] * np.array([1, 2, -1])
    problem = ZeroOneHalfspace(X, rng.choice([-1, 1], 40), IntegerLattice(-4, 4, dimension=3, radius=4.0))
    found = IntervalOracle().prepare(problem, Task.LINEAR).minimize(Perturbation.zero(problem.lattice))
    expected = EnumerationOracle().prepare(problem, Task.LINEAR).minimize(Perturbation.zero(problem.lattice))
    assert found.certificate.fixed_bound == expected.certificate.fixed_value


@pytest.mark.parametrize("seed", range(20))
def test_features_near_the_largest_integer_are_bounded_soundly(seed: int) -> None:
    """A weight that is all but fixed takes features near 2**59; 39 times that is no 64-bit integer."""
    rng = np.random.default_rng(seed)
    lattice = IntegerLattice([-1, -40], [1, 40], radius=39.0)
    X = np.stack([rng.integers(-(1 << 59), 1 << 59, 6), rng.integers(-9, 10, 6) << 52], axis=1)
    problem, noise = ZeroOneHalfspace(X, rng.choice([-1, 1], 6), lattice), Perturbation.zero(lattice)
    found = IntervalOracle().prepare(problem, Task.LINEAR).minimize(noise)
    expected = EnumerationOracle().prepare(problem, Task.LINEAR).minimize(noise)
    assert found.certificate.fixed_bound == expected.certificate.fixed_value


def test_refusals() -> None:
    problem = dense_problem(1)
    assert IntervalOracle().refusals(problem, Task.NORMALIZED) == []
    assert len(IntervalOracle(max_bytes=1000, max_squared_norm=1).refusals(problem, Task.NORMALIZED)) == 2
    conjunction = MonotoneConjunction(np.eye(2, dtype=int), [1, -1], IntegerLattice(0, 1, dimension=2))
    assert "MonotoneConjunction" in IntervalOracle().refusals(conjunction, Task.LINEAR)[0]
    problem = dense_problem(1, d=8)
    boundless = Perturbation.linear(problem.lattice, np.full(8, 3.5e8))
    with pytest.raises(UnsupportedProblemError, match="rescale"):
        IntervalOracle().prepare(problem, Task.LINEAR).minimize(boundless)
