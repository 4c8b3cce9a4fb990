"""Rows that stand for several records: the same problem, to the last bit, as the table they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privopt.mechanisms import MECHANISMS, NoiseSource
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.oracles.cells.structure import CellStructure
from privopt.oracles.registry import MINIMIZERS
from privopt.oracles.select import minimizer
from privopt.oracles.task import Task
from privopt.problems import Costs, IntegerLattice, MonotoneConjunction, ZeroOneHalfspace
from privopt.problems.discrete.candidates import CandidateCards
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.errors import InvalidInputError

COSTS = Costs(3, 2)


def both(kind: Any, seed: int, features: int = 4) -> tuple[Any, Any, np.ndarray[Any, Any]]:
    """A problem over rows with counts, the problem over the records, and the counts."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(1, 12))
    low, high = (0, 1) if kind is MonotoneConjunction else (-1, 1)
    X, y = rng.integers(0, 2, (rows, features)), rng.choice([-1, 1], rows)
    lattice, counts = IntegerLattice(low, high, dimension=features), rng.integers(1, 6, rows)
    expanded = kind(np.repeat(X, counts, axis=0), np.repeat(y, counts), lattice, COSTS)
    return kind(X, y, lattice, COSTS, counts), expanded, counts


@pytest.mark.parametrize("kind", [ZeroOneHalfspace, MonotoneConjunction])
@pytest.mark.parametrize("seed", range(8))
def test_losses_are_those_of_the_expanded_table(kind: Any, seed: int) -> None:
    counted, expanded, counts = both(kind, seed)
    points = np.concatenate(list(counted.lattice.batches()))
    assert counted.losses(points).tolist() == expanded.losses(points).tolist()
    assert counted.n_records == expanded.n_records == counts.sum()
    assert (counted.n_rows, counted.largest_loss) == (len(counts), expanded.largest_loss)


@pytest.mark.parametrize("seed", range(8))
def test_cells_are_the_same(seed: int) -> None:
    counted, expanded, _ = both(ZeroOneHalfspace, seed)
    a, b = CellStructure.of(counted), CellStructure.of(expanded)
    for field in ("group_cell", "group_numeric", "group_positive", "group_negative", "records"):
        assert np.array_equal(getattr(a, field), getattr(b, field))


@pytest.mark.parametrize("name", MINIMIZERS)
@pytest.mark.parametrize("kind", [ZeroOneHalfspace, MonotoneConjunction])
def test_every_minimiser_gives_the_same_point(name: str, kind: Any) -> None:
    counted, expanded, _ = both(kind, 5)
    try:
        oracle = minimizer(name)
        prepared = [oracle.prepare(p, Task.LINEAR) for p in (counted, expanded)]
    except Exception as refusal:  # not installed, or not for this kind
        pytest.skip(str(refusal))
    noise = Perturbation.linear(counted.lattice, np.random.default_rng(1).normal(size=4))
    answers = [p.minimize(noise) for p in prepared]
    assert answers[0].point.tolist() == answers[1].point.tolist()
    assert answers[0].certificate.value == answers[1].certificate.value


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_a_mechanism_releases_the_same_with_the_same_noise(name: str) -> None:
    counted, expanded, _ = both(ZeroOneHalfspace, 3)
    plan = MECHANISMS[name].plan(
        ZeroOneHalfspace, counted.lattice, epsilon=1.0, delta=1e-5, loss_bound=COSTS.largest
    )
    found = [
        plan.release(prepare_oracle("auto", plan, p), NoiseSource(insecure_seed=7))
        for p in (counted, expanded)
    ]
    assert found[0].point.tolist() == found[1].point.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_a_list_of_cards_counts_records(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y, counts = rng.integers(-3, 4, (9, 3)), rng.choice([-1, 1], 9), rng.integers(1, 5, 9)
    X[:, -1] = 2
    lattice = IntegerLattice(-5, 5, dimension=3)
    cards, ladders = rng.integers(-5, 6, (4, 3)), np.tile([-3, 0, 4], (4, 1))
    counted = CandidateCards(ZeroOneHalfspace(X, y, lattice, COSTS, counts), cards, ladders)
    records = ZeroOneHalfspace(np.repeat(X, counts, axis=0), np.repeat(y, counts), lattice, COSTS)
    expanded = CandidateCards(records, cards, ladders)
    points = np.concatenate(list(counted.lattice.batches()))
    assert counted.losses(points).tolist() == expanded.losses(points).tolist()


@pytest.mark.parametrize("kind", [ZeroOneHalfspace, MonotoneConjunction])
@pytest.mark.parametrize("seed", range(6))
def test_neighbours_move_one_record_between_counts(kind: Any, seed: int) -> None:
    """A row of many records is no more sensitive than one of a single record: the bound is per record."""
    counted, _, counts = both(kind, seed + 20)
    rng = np.random.default_rng(seed)
    points = np.concatenate(list(counted.lattice.batches()))
    leaving = int(rng.integers(len(counts)))
    less = counts.copy()
    less[leaving] -= 1
    X = np.vstack([counted.X, rng.integers(0, 2, (1, 4))])
    y = np.append(counted.y, -counted.y[leaving])
    left = np.append(less, 1) > 0
    after = kind(X[left], y[left], counted.lattice, COSTS, np.append(less, 1)[left])
    assert after.n_records == counted.n_records
    moved = np.abs(after.losses(points) - counted.losses(points))
    assert moved.max() <= counted.record_loss_bound


def test_billions_of_records_are_counted_exactly() -> None:
    X, y = np.array([[1, 0], [0, 1]]), np.array([1, -1])
    problem = ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=2), counts=[(1 << 39) - 1, 3])
    assert problem.losses(np.array([[-1, 1], [-1, -1], [1, 1]])).tolist() == [(1 << 39) + 2, (1 << 39) - 1, 3]
    assert problem.n_records == (1 << 39) + 2


@pytest.mark.parametrize(
    "counts", [[0, 1], [1], [1, -2], [1.0, 2.0], [[1, 1]], "ab", [1 << 40, 1], [True, True], [1, 1 << 62]]
)
def test_what_is_no_count_is_refused(counts: Any) -> None:
    with pytest.raises(InvalidInputError, match="counts"):
        ZeroOneHalfspace([[1], [2]], [1, -1], IntegerLattice(-1, 1, dimension=1), counts=counts)
