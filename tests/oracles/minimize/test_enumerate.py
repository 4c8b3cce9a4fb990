"""Exhaustive search, which everything else is held against."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from privopt.oracles.limits import Limits, Progress
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import Perturbation, to_fixed
from privopt.problems.errors import InvalidInputError


class Meanwhile(ZeroOneHalfspace):
    """While the losses of the first batch are computed, something else happens: as in another thread."""

    def losses(self, points: IntArray) -> IntArray:
        if (happens := self.happens) is not None:
            self.happens = None
            happens()
        return super().losses(points)

    happens: Callable[[], object] | None = None


def test_a_search_of_several_batches_tells_its_best_value() -> None:
    rng = np.random.default_rng(0)
    problem = Meanwhile(
        rng.integers(-9, 10, (20, 11)), rng.choice([-1, 1], 20), IntegerLattice(-1, 1, dimension=11)
    )
    problem.happens = lambda: time.sleep(0.25)  # snapshots are at least a fifth of a second apart
    told: list[Progress] = []
    prepared = EnumerationOracle().prepare(problem, Task.LINEAR)
    found = prepared.minimize(Perturbation.zero(problem.lattice), Limits(on_progress=told.append))
    assert told[0].incumbent >= found.certificate.value
    assert told[0].nodes > 0


def test_solves_that_overlap_do_not_mix_up_batches() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(-9, 10, (20, 11)), rng.choice([-1, 1], 20)
    lattice = IntegerLattice(-1, 1, dimension=11)
    assert len(list(lattice.batches())) == 3
    second = Perturbation.linear(lattice, [0, -30, *rng.normal(size=9)])  # the minimum is where w_1 = 1
    unary = (to_fixed(np.array([30.0, 0.0, 30.0])), *second.unary[1:])  # and w_0 = 0: in the second batch
    noise = Perturbation(lattice, unary)
    problem = Meanwhile(X, y, lattice)
    prepared = EnumerationOracle().prepare(problem, Task.LINEAR)
    after_one = iter([False])
    limits = Limits(cancelled=lambda: next(after_one, True))
    problem.happens = lambda: prepared.minimize(noise, limits)
    found = prepared.minimize(noise).certificate
    alone = EnumerationOracle().prepare(ZeroOneHalfspace(X, y, lattice), Task.LINEAR).minimize(noise)
    assert found.fixed_bound == alone.certificate.fixed_value


def test_noise_for_another_lattice_or_task_is_refused() -> None:
    lattice, wider = IntegerLattice(-1, 1, dimension=2), IntegerLattice(-2, 2, dimension=2)
    prepared = EnumerationOracle().prepare(
        ZeroOneHalfspace(np.eye(2, dtype=int), [1, -1], lattice), Task.LINEAR
    )
    with pytest.raises(InvalidInputError, match="made for another lattice"):
        prepared.minimize(Perturbation.linear(wider, [0.5, 0.5]))
    with pytest.raises(InvalidInputError, match=r"prepared for Task\.NORMALIZED"):
        prepared.minimize(Perturbation.normalized(lattice, [0.5, 0.5, 0.5]))
