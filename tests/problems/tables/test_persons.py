"""Places of persons: what fills those of a person depends on its own records alone."""

from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from privopt.problems.tables.persons import Persons


def in_turn(ids, k):
    """Count (person, row) by the definition: the places of a person are its records, again and again."""
    rows = defaultdict(list)
    for row, person in enumerate(ids):
        rows[person].append(row)
    return Counter((who, mine[j % len(mine)]) for who, mine in rows.items() for j in range(k))


@pytest.mark.parametrize("k", [1, 2, 3, 7])
def test_the_records_of_a_person_fill_its_places_in_turn(k):
    ids = np.random.default_rng(k).integers(0, 9, 40).tolist()
    persons = Persons.of(ids)
    places = persons.places(k).tolist()
    assert persons.count == len(set(ids))
    assert len(places) == persons.count * k
    assert Counter((ids[row], row) for row in places) == in_turn(ids, k)


@pytest.mark.parametrize("seed", range(20))
def test_one_person_moves_k_places_at_most_whatever_its_number_of_records(seed):
    """Places are compared as multisets of cells: 0 to 6 of the others' rows stand before and between."""
    rng = np.random.default_rng(seed)
    k = int(rng.integers(1, 4))
    others = [(f"p{rng.integers(0, 6)}", int(c)) for c in rng.integers(0, 1000, 20)]

    def filled(records, who):
        rows = list(others)
        for cell in records:
            rows.insert(int(rng.integers(0, len(rows) + 1)), (who, cell))
        # The others' rows keep their order; where the person's stand does not matter.
        ids, cells = zip(*rows, strict=True)
        return Counter(cells[row] for row in Persons.of(list(ids)).places(k))

    first = filled(rng.integers(2000, 3000, int(rng.integers(1, 8))).tolist(), "ana")
    second = filled(rng.integers(4000, 5000, int(rng.integers(1, 8))).tolist(), "bob")
    assert (first - second).total() == k
    assert (second - first).total() == k


def test_rows_without_a_value_are_one_person_and_no_value_is_refused():
    persons = Persons.of(["a", None, "b", np.nan, "a", pd.NA])
    assert persons.number.tolist() == [0, 2, 1, 2, 0, 2]
    assert persons.count == 3
    odd = Persons.of(pd.Series([[1], "a", {"b": 1}, "a"], dtype=object))
    assert odd.number.tolist() == [1, 0, 1, 0]


def test_large_integers_are_told_apart_beside_a_missing_one():
    """They are one as floats, which a library makes of integers beside a missing cell."""
    held = [2**60, 2**60 + 1, 2**60 + 2]
    for last in (2**60 + 3, None):
        cells = [*held, last]
        arrow = pa.array(cells, pa.int64())
        for column in (
            cells,
            arrow,
            arrow.dictionary_encode(),
            pl.Series(cells, dtype=pl.Int64),
            pd.Series(cells, dtype="Int64"),
            pd.Series(cells, dtype="int64[pyarrow]"),
            pd.Series(cells, dtype=object),
        ):
            assert Persons.of(column).number.tolist() == [0, 1, 2, 3]
    assert Persons.of(pd.Series([*held, [1]], dtype=object)).number.tolist() == [0, 1, 2, 3]


def test_values_are_compared_as_they_are():
    assert Persons.of(["07", "7", "7 "]).count == 3
    assert Persons.of(pd.Series(["x", "y", "x"], dtype="category")).number.tolist() == [0, 1, 0]


def test_objects_are_compared_as_python_compares_them():
    """pandas compares what its table of hashes has side by side, and finds np.True_ == (1,) to be true."""
    cells = [np.True_, "nan", (1,), 1, 0, "a"] * 50
    assert Persons.of(pd.Series(cells, dtype=object)).number.tolist() == [0, 1, 2, 0, 3, 4] * 50


class Cell:
    """A foreign object that cannot be compared."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        raise RuntimeError


def test_what_cannot_be_compared_is_one_person_and_far_days_are_their_own():
    assert Persons.of([Cell(), "a", Cell(), {"b": 1}]).number.tolist() == [1, 0, 1, 1]
    days = pa.array([0, 10**7, 10**7 + 1, 10**7], pa.int32()).cast(pa.date32())
    assert Persons.of(days).number.tolist() == [0, 1, 2, 1]
    assert Persons.of(pa.array([[1], [2]])).count == 1


def test_arrays_of_any_cells_number_persons_one_by_one() -> None:
    texts = np.array(["a", "b\ud800", "a", "b"])
    assert Persons.of(texts).number.tolist() == [0, 1, 0, 2]
    far = np.array(["2000-01-01", "NaT", "30000-01-01", "2000-01-01"], dtype="datetime64[D]")
    assert Persons.of(far).count == 3
    assert Persons.of(far).number.tolist() == [0, 2, 1, 0]
    near = np.array([2**53, 2**53 + 1, 2**53], dtype="datetime64[as]")
    assert Persons.of(near).count == 2
