"""Trees and rule lists as problems: losses and counts against their definitions, domains, refusals."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.branching_effort import BranchingEffort
from privopt.problems.discrete.conjunction_counts import SetNumbers, _segments, conjunction_counts
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.predicates import PredicateTable
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.discrete.tree import DecisionTree
from privopt.problems.errors import InvalidInputError
from tests.problems.discrete.reading import label_of, read_aloud

KINDS = (DecisionTree, RuleList)


def random_problem(
    kind: type[BranchingProblem],
    p: int,
    levels: int,
    classes: int = 2,
    *,
    n: int = 40,
    root_splits: bool = False,
    weighted: bool = False,
    seed: int = 0,
) -> BranchingProblem:
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 2, (n, p)), rng.integers(0, classes, n)
    costs = CostMatrix(rng.integers(1, 4, (classes, classes)) * (1 - np.eye(classes, dtype=np.int64)))
    counts = rng.integers(1, 30, n) if weighted else None
    return kind(X, y, kind.domain(p, levels, classes, root_splits=root_splits), costs, counts)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("p", "levels", "classes"), [(3, 1, 2), (2, 2, 3), (4, 3, 2), (3, 4, 4)])
def test_losses_are_the_definition(kind: type[BranchingProblem], p: int, levels: int, classes: int) -> None:
    problem = random_problem(kind, p, levels, classes, weighted=True)
    rng = np.random.default_rng(1)
    lattice = problem.lattice
    points = np.stack([rng.integers(lattice.low, lattice.high + 1) for _ in range(200)])
    price = problem.costs.matrix
    rows, counts = problem.X.astype(int).tolist(), problem.counts.tolist()
    for point, loss in zip(points.tolist(), problem.losses(points).tolist(), strict=True):
        model = read_aloud(kind, point, p, classes)
        told = [label_of(kind, model, row) for row in rows]
        assert loss == sum(c * int(price[y, k]) for c, y, k in zip(counts, problem.y, told, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_replacing_a_record_moves_a_loss_by_the_largest_cost_at_most_and_sometimes_by_it(
    kind: type[BranchingProblem],
) -> None:
    costs = CostMatrix([[0, 2, 7], [1, 0, 1], [3, 1, 0]])
    lattice = kind.domain(2, 2, 3)
    points = np.concatenate(list(lattice.batches()))
    losses = np.stack(
        [
            kind([[a >> 1, a & 1], [1, 0]], [y, 0], lattice, costs).losses(points)
            for a, y in itertools.product(range(4), range(3))
        ]
    )
    moved = int(np.max(np.ptp(losses, axis=0)))  # between any two records in the first's place
    assert moved == costs.largest == 7


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("classes", [2, 3])
def test_two_sides_that_stop_have_different_labels_and_any_two_equally_often(
    kind: type[BranchingProblem], classes: int
) -> None:
    """And so has any label elsewhere, over all points of the lattice: the prior."""
    problem = random_problem(kind, 1, 2, classes)
    points = np.concatenate(list(problem.lattice.batches()))
    seen: dict[str, Counter[Any]] = {"alone": Counter(), "together": Counter()}

    def look(model: Any) -> None:
        if isinstance(model, int):
            seen["alone"][model] += 1
        elif isinstance(model[1], int) and isinstance(model[2], int):
            seen["together"][model[1:]] += 1
        else:
            for side in model[1:]:
                look(side)

    written, branches = problem.models(points), kind.places(2)[0]
    for point, plain in zip(points.tolist(), written.tolist(), strict=True):
        look(read_aloud(kind, point, 1, classes))
        assert max(plain[branches:]) < classes
    assert seen["alone"].keys() == set(range(classes))
    assert seen["together"].keys() == set(itertools.permutations(range(classes), 2))
    assert all(len(set(found.values())) == 1 for found in seen.values())


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_stand_for_several_records_are_as_many_rows(kind: type[BranchingProblem]) -> None:
    few = random_problem(kind, 4, 2, 3, weighted=True)
    many = kind(np.repeat(few.X, few.counts, axis=0), np.repeat(few.y, few.counts), few.lattice, few.costs)
    points = next(iter(few.lattice.batches(500)))
    assert np.array_equal(few.losses(points), many.losses(points))
    assert few.n_records == many.n_records == many.n_rows
    assert np.array_equal(conjunction_counts(few, 1), conjunction_counts(many, 1))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n", [1, 63, 64, 65, 700])
@pytest.mark.parametrize(("p", "levels", "classes"), [(1, 1, 2), (6, 4, 3), (2, 3, 2), (7, 2, 2)])
def test_conjunctions_are_counted(
    threads: int, weighted: bool, n: int, p: int, levels: int, classes: int
) -> None:
    problem = random_problem(DecisionTree, p, levels, classes, n=n, weighted=weighted)
    counts, numbers = conjunction_counts(problem, threads), SetNumbers(p, levels)
    sets = [c for size in range(levels + 1) for c in itertools.combinations(range(p), size)]
    assert len(counts) == numbers.size == len(sets)
    seen = set()
    for some in sets:
        number = int(numbers.number(np.array([some], dtype=np.int64).reshape(1, -1))[0])
        seen.add(number)
        held = problem.X[:, list(some)].all(axis=1)
        of_class = [int(problem.counts[held & (problem.y == k)].sum()) for k in range(classes)]
        assert counts[number].tolist() == of_class
    assert seen == set(range(len(sets)))


def test_long_tables_are_counted_in_parts_and_the_clock_is_looked_at() -> None:
    rng, n = np.random.default_rng(3), 64 * (1 << 13) + 100
    X = rng.integers(0, 2, (n, 2))
    problem = DecisionTree(X, np.zeros(n, dtype=np.int64), DecisionTree.domain(2, 2))
    asked: list[int] = []
    counts = conjunction_counts(problem, 1, asked.append)
    held = [n, *X.sum(axis=0).tolist(), int((X[:, 0] & X[:, 1]).sum())]
    assert counts[:, 0].tolist() == held
    assert not counts[:, 1].any()
    assert asked[:2] == [0, 1 << 13]


def test_as_many_words_are_read_whatever_the_labels_are() -> None:
    """One word more than n / 64 a class: time does not tell how many records a class has."""
    rng, words = np.random.default_rng(4), set()
    for share in (0.0, 0.01, 0.4, 1.0):
        y = (rng.random(1000) < share).astype(np.int64)
        problem = DecisionTree(rng.integers(0, 2, (1000, 3)), y, DecisionTree.domain(3, 2))
        words.add(sum(segment.words.shape[1] for segment in _segments(problem)))
    assert max(words) - min(words) <= 1
    assert max(words) <= 1000 // 64 + 2


def test_predicate_tables_hold_what_they_were_made_of() -> None:
    rng = np.random.default_rng(5)
    truths = rng.integers(0, 2, (1003, 9)).astype(bool)
    table = PredicateTable.of(truths)
    assert len(table) == 9
    assert table.rows == 1003
    assert np.array_equal(np.stack([table.column(g) for g in range(9)], axis=1), truths)
    assert np.array_equal(np.concatenate([block for _, block in table.blocks()]), truths)


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_values_of_a_place_stop_and_a_root_that_splits_has_none_of_them(
    kind: type[BranchingProblem],
) -> None:
    free, splitting = (kind.domain(5, 3, 4, root_splits=root) for root in (False, True))
    branches, labels = kind.places(3)
    asked = 5 * kind.ways
    assert free.high.tolist() == [2 * asked - 1] * branches + [11] * labels
    assert splitting.high.tolist() == [asked - 1] + [2 * asked - 1] * (branches - 1) + [11] * labels
    problem = random_problem(kind, 5, 3, 4, root_splits=True)
    assert (problem.levels, problem.root_splits) == (3, True)


@pytest.mark.parametrize(
    ("X", "y", "lattice"),
    [
        ([[0, 2]], [0], DecisionTree.domain(2, 1)),
        ([[0, 1]], [2], DecisionTree.domain(2, 1)),
        ([[0, 1]], [0.0], DecisionTree.domain(2, 1)),
        ([[0, 1]], [0, 1], DecisionTree.domain(2, 1)),
        ([], [], DecisionTree.domain(2, 1)),
        ([[0, 1]], [0], DecisionTree.domain(3, 1)),
        ([[0, 1]], [0], DecisionTree.domain(2, 1, 3)),
        ([[0, 1]], [0], IntegerLattice(0, 1, dimension=4)),
        ([[0, 1]], [0], RuleList.domain(2, 2)),
    ],
)
def test_what_is_no_table_of_predicates_and_classes_is_refused(X: Any, y: Any, lattice: Any) -> None:
    with pytest.raises(InvalidInputError):
        DecisionTree(X, y, lattice)


@pytest.mark.parametrize("levels", [0, 5])
def test_other_numbers_of_levels_are_refused(levels: int) -> None:
    with pytest.raises(InvalidInputError, match="1 to 4 levels"):
        DecisionTree.domain(3, levels)


# --- Costs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "costs"),
    [((1, 1), (1, 1)), ((19.2, 1), (96, 5)), ((0.5, 2, 1), (1, 4, 2)), ((1.5, 1, 1), (3, 2, 2))],
)
def test_weights_become_whole_costs_in_their_ratio(weights: Any, costs: Any) -> None:
    matrix = CostMatrix.of_weights(weights).matrix
    for y, cost in enumerate(costs):
        assert matrix[y].tolist() == [0 if k == y else cost for k in range(len(costs))]


@pytest.mark.parametrize(
    "rows", [[[0]], [[0, 1]], [[1, 1], [1, 0]], [[0, -1], [1, 0]], [[0, 0], [0, 0]], [[0, 0.5], [1, 0]]]
)
def test_what_is_no_matrix_of_costs_is_refused(rows: Any) -> None:
    with pytest.raises(InvalidInputError):
        CostMatrix(rows)


def test_effort_counts_blocks_of_all_sizes() -> None:
    """Sets of up to 3 of 100, and signed ones of up to 2: counted here one by one."""
    effort = BranchingEffort.of(100, 3, 64_000, 2)
    sets = sum(1 for size in range(4) for _ in itertools.combinations(range(100), size))
    signed = sum(2**size for size in range(3) for _ in itertools.combinations(range(100), size))
    assert effort.words == (1000 + 2) * sets
    assert effort.pairs == 2 * 4 * 100 * signed == 2 * 4 * 100 * 20_001
