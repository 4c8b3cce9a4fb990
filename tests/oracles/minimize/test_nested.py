"""Tries of cells: no shift and no merger changes a value, and bounds stay below every value."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.oracles.cells import regions
from privopt.oracles.minimize.native import bounds as bounds
from privopt.oracles.minimize.native import nested
from privopt.oracles.minimize.native.model import climb
from privopt.oracles.minimize.native.nested import State, Tries
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.minimize.native.tries import make_tries
from privopt.oracles.task import Task
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation
from tests.oracles.minimize.test_native import SHAPES, make_problem, noises

_NO_CUTOFF = 1 << 57  # above every value, below what stands for infinity


def value(tries: Tries, state: State, i: int, levels: IntArray) -> int:
    """Answers of a trie and its tables about one point, from the definition."""
    base, n = int(tries.first[i]), int(tries.first[i + 1] - tries.first[i])
    total, sums = int(state.constant[i]), [0] * n
    for q in range(n):
        a = base + q
        if q > 0:
            v = int(levels[tries.var[a]])
            sums[q] = sums[tries.parent[a]] + v
            total += int(state.shift[a, v])
        total += int(state.own[tries.table[i] + tries.start[a] + sums[q]])
    total += sum(int(state.theta[i, j, levels[j]]) for j in range(i, len(levels)))
    square = int(state.square[i]) + sum(int(tries.squares[j, levels[j]]) for j in range(i, len(levels)))
    return total + int(state.norm[square])


@pytest.mark.parametrize("task", list(Task))
@pytest.mark.parametrize("shape", SHAPES)
def test_nothing_changes_a_value_and_bounds_are_bounds(shape: str, task: Task) -> None:
    """Down to the last trie along random levels; brute force over what is left at every step."""
    problem, rng = make_problem(shape, 5), np.random.default_rng(5)
    noise = noises(problem, task, 5)[2]
    model = regions.CellModel.make(problem, task)
    costs, cells = model.costs(noise), model.shape
    rows = np.bincount(cells.member_var, cells.records[cells.member_factor]).astype(np.int64)
    tries = make_tries(cells, rows)
    points = np.concatenate(list(problem.lattice.batches()))
    values = problem.values(points, noise)
    region, state = regions.new_region(cells, np.int64), nested.new_state(tries, len(costs.radial))
    for number in range(len(model.weights)):
        assert model.start(region, number, UNIT, costs, model.all_levels)
        nested.load(cells, region, tries, state, int(rng.integers(-3, 4)) * UNIT)
        same = np.all(points[:, model.cells.numeric] == model.weights[number], axis=1)
        some, least = points[same], values[same]
        levels = some[:, tries.coordinate] - tries.low
        for i in range(tries.last):
            bound = nested.enter(tries, state, i, 2, _NO_CUTOFF)
            assert bound <= least.min()
            for k in rng.integers(0, len(levels), 3):
                assert value(tries, state, i, levels[k]) == least[k]
            children = state.child_count[i]
            for v, low in zip(state.child[i, :children], state.child_bound[i, :children], strict=True):
                assert np.all(least[levels[:, i] == v] >= low)
            v = int(rng.choice(np.unique(levels[:, i])))
            nested.fix(tries, state, i, v)
            some, least, levels = (a[levels[:, i] == v] for a in (some, least, levels))
        assert nested.settle(tries, state, tries.last) == least.min()
        assert least[np.all(levels == state.level, axis=1)] == least.min()


def test_the_bound_is_stronger_than_that_of_single_cells() -> None:
    """Four blocks without noise, where the bounds of cells stay at their separate minima."""
    X, y = make_cells(500, blocks=(4, 4, 4, 4), numeric=0, seed=2)
    problem = ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=16))
    model = regions.CellModel.make(problem, Task.LINEAR)
    costs, cells = model.costs(Perturbation.zero(problem.lattice)), model.shape
    region = regions.new_region(cells, np.int64)
    assert model.start(region, 0, UNIT, costs, model.all_levels)
    regions.update(cells, region, None)
    tries = make_tries(cells, np.ones(16, dtype=np.int64))
    state = nested.new_state(tries, 1)
    nested.load(cells, region, tries, state, 0)
    x, forward, shares = np.zeros_like(cells.low), np.zeros_like(region.tables), bounds.make_shares(cells)
    single = max(bounds.sweep(cells, region, forward, shares, regions.BIG, x) for _ in range(50))
    least = NativeOracle(threads=1).prepare(problem, Task.LINEAR).minimize(Perturbation.zero(problem.lattice))
    assert least.certificate.gap == 0
    together = nested.enter(tries, state, 0, 5, _NO_CUTOFF)
    assert single < together <= least.certificate.fixed_value


def test_a_tilt_helps_where_the_ball_leaves_little_room() -> None:
    """No noise, and a numeric weight that takes four of the seven squares."""
    X, y = make_cells(500, blocks=(3, 3), numeric=1, seed=2)
    problem = ZeroOneHalfspace(X, y, IntegerLattice(-2, 2, dimension=7, radius=7**0.5))
    model = regions.CellModel.make(problem, Task.NORMALIZED)
    costs, cells = model.costs(Perturbation.zero(problem.lattice)), model.shape
    number = int(np.flatnonzero(model.weights[:, 0] == 2)[0])
    points = np.concatenate(list(problem.lattice.batches()))
    least = UNIT * int(problem.losses(points[points[:, model.cells.numeric[0]] == 2]).min())
    region, tries = regions.new_region(cells, np.int64), make_tries(cells, np.ones(6, dtype=np.int64))
    state, found = nested.new_state(tries, len(costs.radial)), []
    assert model.start(region, number, UNIT, costs, model.all_levels)
    for tilt in (0, 500 * UNIT >> 6):
        nested.load(cells, region, tries, state, tilt)
        found.append(max(nested.enter(tries, state, 0, 1, _NO_CUTOFF) for _ in range(2)))
    assert found[0] + 4 * UNIT < found[1] <= least


@pytest.mark.parametrize("start", range(7))
def test_climbing_ends_at_a_top_and_stays_inside(start: int) -> None:
    heights = [0, 1, 4, 4, 3, 2, 5]
    top = climb(start, len(heights), heights.__getitem__)
    assert heights[top] >= max(heights[max(0, top - 1) : top + 2])
    assert heights[top] >= heights[start]
