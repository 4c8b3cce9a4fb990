"""The cell rewriting equals the loss it rewrites, point by point, and says when it does not pay."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.oracles.cells.structure import CellLimits, CellStructure, why_not
from privopt.problems.discrete.conjunction import MonotoneConjunction
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice


def random_problem(seed: int) -> ZeroOneHalfspace:
    rng = np.random.default_rng(seed)
    n, k, m = int(rng.integers(1, 40)), int(rng.integers(1, 5)), int(rng.integers(0, 3))
    scale = int(rng.choice([-3, -1, 1, 2, 5]))
    X = np.hstack([rng.integers(0, 2, (n, k)) * scale, rng.integers(-4, 5, (n, m))])
    X = X[:, rng.permutation(k + m)]
    low = rng.integers(-3, 1, k + m)
    high = low + rng.integers(0, 4, k + m)
    shortest = int(np.sum(np.clip(0, low, high) ** 2))
    radius = None if rng.random() < 0.5 else float(np.sqrt(shortest + rng.integers(0, 8)))
    return ZeroOneHalfspace(X, rng.choice([-1, 1], n), IntegerLattice(low, high, radius=radius))


@pytest.mark.parametrize("seed", range(40))
def test_tables_give_the_loss_of_every_point(seed: int) -> None:
    problem = random_problem(seed)
    cells = CellStructure.of(problem)
    points = list(problem.lattice.points())[:200]
    assert [cells.loss(w) for w in points] == problem.losses(np.array(points)).tolist()


@pytest.mark.parametrize("seed", range(40))
def test_numeric_weights_are_those_that_points_of_the_lattice_have(seed: int) -> None:
    problem = random_problem(seed)
    cells = CellStructure.of(problem)
    weights = [tuple(a) for a in cells.numeric_weights().tolist()]
    assert weights == sorted({tuple(w[cells.numeric].tolist()) for w in problem.lattice.points()})
    assert cells.n_numeric_weights == len(weights)


@pytest.mark.parametrize("seed", range(40))
def test_cells_and_blocks_describe_the_rows(seed: int) -> None:
    problem = random_problem(seed)
    cells = CellStructure.of(problem)
    active = problem.X[:, cells.indicators] != 0
    patterns = {tuple(cells.indicators[row].tolist()) for row in active}
    assert {tuple(cells.members(c).tolist()) for c in range(cells.n_cells)} == patterns
    assert cells.n_cells == len(patterns)
    assert sorted(j for b in cells.blocks for j in b.tolist()) == cells.indicators.tolist()
    for block in cells.blocks:
        assert np.all(np.sum(problem.X[:, block] != 0, axis=1) <= 1)
    assert cells.records.sum() == problem.n_records


def test_columns_are_told_apart_by_their_values() -> None:
    X = np.array([[5, 0, 3, 0, 5, 2], [5, 5, 3, 0, 0, 0], [5, 0, 0, 0, 0, 1]])
    cells = CellStructure.of(ZeroOneHalfspace(X, [1, -1, 1], IntegerLattice(-1, 1, dimension=6)))
    assert cells.scale == 5
    assert cells.indicators.tolist() == [0, 1, 3, 4]  # an intercept, two levels, an empty level
    assert cells.numeric.tolist() == [2, 5]  # 0/3 has another constant; 0/1/2 is not two-valued
    assert [cells.members(c).tolist() for c in range(cells.n_cells)] == [[0], [0, 4], [0, 1]]


def test_one_hot_columns_become_blocks() -> None:
    rng = np.random.default_rng(0)
    X = np.hstack([np.eye(levels, dtype=np.int64)[rng.integers(0, levels, 200)] for levels in (3, 4, 2)])
    cells = CellStructure.of(ZeroOneHalfspace(X, np.ones(200), IntegerLattice(-1, 1, dimension=9)))
    assert [b.tolist() for b in cells.blocks] == [[0, 1, 2], [3, 4, 5, 6], [7, 8]]


def test_many_indicator_columns_are_packed_without_collisions() -> None:
    X = np.eye(150, dtype=np.int64) + np.eye(150, k=70, dtype=np.int64)
    cells = CellStructure.of(ZeroOneHalfspace(X, np.ones(150), IntegerLattice(-1, 1, dimension=150)))
    assert cells.n_cells == 150
    w = np.random.default_rng(1).integers(-1, 2, 150)
    assert cells.loss(w) == int(np.sum(X @ w <= 0))


def test_equal_rows_are_merged() -> None:
    X = np.array([[1, 7], [1, 7], [0, 7], [1, 7]])
    cells = CellStructure.of(ZeroOneHalfspace(X, [1, -1, 1, 1], IntegerLattice(-1, 1, dimension=2)))
    counts = zip(cells.group_positive.tolist(), cells.group_negative.tolist(), strict=True)
    assert sorted(counts) == [(1, 0), (2, 1)]


def test_structure_is_computed_once_per_problem() -> None:
    problem = random_problem(0)
    assert CellStructure.of(problem) is CellStructure.of(problem)


def test_refusals_list_every_reason() -> None:
    rng = np.random.default_rng(2)
    X = np.hstack([rng.integers(0, 2, (50, 4)), rng.integers(-9, 10, (50, 2))])
    problem = ZeroOneHalfspace(X, rng.choice([-1, 1], 50), IntegerLattice(-2, 2, dimension=6))
    assert why_not(problem) == []
    tight = CellLimits(cells=3, numeric_combinations=24, table_bytes=100)
    assert len(why_not(problem, tight)) == 3
    dense = ZeroOneHalfspace(X[:, 4:], np.ones(50), IntegerLattice(-2, 2, dimension=2))
    assert "no indicator columns" in why_not(dense)[0]
    conjunction = MonotoneConjunction(X[:, :4], np.ones(50), IntegerLattice(0, 1, dimension=4))
    assert "MonotoneConjunction" in why_not(conjunction)[0]
