"""What a question about a column tells: against its definition, and how far one record moves it."""

from __future__ import annotations

import itertools
from fractions import Fraction

import numpy as np
import pytest

from privopt.problems import IntegerLattice, InvalidInputError, ZeroOneHalfspace
from privopt.problems.discrete.questions import Asked, ColumnQuestions

# A number from 0 to 3 with a level for records that have none, and three levels that exclude each other.
COLUMNS = (Asked(0, 2, (0, 1)), Asked(2, 5))
RECORDS = [
    [*number, *level]
    for number in ([0, 0], [1, 0], [2, 0], [3, 0], [0, 1])
    for level in ([0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1])
]


def table(rows: list[list[int]], labels: list[int], counts: list[int] | None = None) -> ZeroOneHalfspace:
    return ZeroOneHalfspace(rows, labels, IntegerLattice(-1, 1, dimension=5), counts=counts)


def pieces(row: list[int], column: int, threshold: int) -> int:
    if column:
        return row[2:].index(1) if 1 in row[2:] else 3
    return 2 if row[1] else int(row[0] > (0, 1)[threshold])


def told(rows: list[list[int]], labels: list[int], column: int, threshold: int) -> int:
    """By definition: the largest n cov(s, y) over all sets of pieces, in fractions."""
    found, n = Fraction(0), len(rows)
    positive = [label > 0 for label in labels]
    for chosen in itertools.product((0, 1), repeat=4):
        s = [chosen[pieces(row, column, threshold)] for row in rows]
        both = sum(a for a, y in zip(s, positive, strict=True) if y)
        found = max(found, both - Fraction(sum(s) * sum(positive), n))
    return int(found)


def drawn(seed: int, n: int) -> tuple[list[list[int]], list[int]]:
    rng = np.random.default_rng(seed)
    return [RECORDS[k] for k in rng.integers(0, len(RECORDS), n)], rng.choice([-1, 1], n).tolist()


@pytest.mark.parametrize("seed", range(20))
def test_what_is_told_is_what_the_definition_says(seed: int) -> None:
    rows, labels = drawn(seed, 5 + 7 * seed)
    questions = ColumnQuestions(table(rows, labels), COLUMNS, repeats=2)
    expected = [told(rows, labels, *place) for place in ((0, 0), (0, 1), (1, 0), (1, 0))]
    points = np.arange(4)[:, None]
    assert [questions.place(point) for point in points] == [(0, 0), (0, 1), (1, 0), (1, 0)]
    assert (questions.losses(points) == len(rows) // 4 + 1 - np.array(expected)).all()
    assert (questions.losses(points) >= 1).all()


def test_one_record_moves_no_loss_by_more_than_one_and_some_by_one() -> None:
    moves = []
    for seed in range(60):
        rows, labels = drawn(seed, 6)
        before = ColumnQuestions(table(rows, labels), COLUMNS)
        points = np.arange(before.lattice.box_size)[:, None]
        for row, label in itertools.product(RECORDS, (-1, 1)):
            after = ColumnQuestions(table([row, *rows[1:]], [label, *labels[1:]]), COLUMNS)
            moves.append(np.max(np.abs(after.losses(points) - before.losses(points))))
    assert max(moves) == ColumnQuestions.record_loss_bound == 1


def test_rows_may_stand_for_several_records() -> None:
    rows, labels = drawn(3, 9)
    counts = [1, 4, 2, 1, 1, 3, 1, 2, 5]
    plain = table(
        [row for row, k in zip(rows, counts, strict=True) for _ in range(k)],
        [label for label, k in zip(labels, counts, strict=True) for _ in range(k)],
    )
    points = np.arange(3)[:, None]
    of_counts = ColumnQuestions(table(rows, labels, counts), COLUMNS)
    assert (of_counts.losses(points) == ColumnQuestions(plain, COLUMNS).losses(points)).all()


@pytest.mark.parametrize("n", [100, 4 * 10**9, 10**10, 10**12])
def test_what_is_told_of_as_many_records_as_may_be_counted(n: int) -> None:
    """A level that only positive records have, half of all: n / 4. And one record moves it by one at most."""
    rows = [[0, 0, 1, 0, 0], [0, 0, 0, 1, 0]]
    for positive, tells in ((n // 2, n // 4), (n // 2 + 1, n // 4 - 1)):
        asked = ColumnQuestions(table(rows, [1, -1], [positive, n - positive]), COLUMNS)
        assert asked.losses(np.array([[2]])) == n // 4 + 1 - tells
        assert (asked.losses(np.array([[0], [1]])) == n // 4 + 1).all()


def test_what_is_known_is_not_counted_again_and_there_are_no_separators() -> None:
    rows, labels = drawn(1, 30)
    first = ColumnQuestions(table(rows, labels), COLUMNS)
    again = ColumnQuestions(first.table, COLUMNS[1:], known=first.told[1:])
    assert again.losses(np.zeros((1, 1), dtype=np.int64)) == first.losses(np.array([[2]]))
    with pytest.raises(InvalidInputError, match="separator"):
        ColumnQuestions.separators(again.lattice)
    with pytest.raises(InvalidInputError, match="a column"):
        ColumnQuestions(first.table, ())
