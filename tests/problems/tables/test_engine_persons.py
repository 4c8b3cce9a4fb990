"""Places of persons that an engine fills: by the records of a person alone, whatever the engine's order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Binned, Categorical
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.engine_cells import EngineCells
from privopt.problems.tables.engine_persons import EnginePersons
from privopt.problems.tables.engines import EngineCount
from privopt.problems.tables.persons import Persons
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import open_table

ibis = pytest.importorskip("ibis", reason="pip install 'privopt[engines]'")
pytest.importorskip("duckdb")

SCHEMA = Schema([Binned("a", [0, 2, 4, 6, 8]), Categorical("c", ["x", "y"])])
CLASSES = ("no", "yes")
TYPES = {"bigint": int, "text": str, "uuid": lambda i: f"00000000-0000-0000-0000-{i:012d}"}
Record = tuple[Any, int, str, str]


@contextmanager
def table(name: str, records: list[Record], request: Any, kind: str = "text") -> Iterator[Any]:
    """The records (person, a, c, y) in an engine."""
    sql = f"CREATE TABLE t (id {kind}, a INTEGER, c VARCHAR(9), y VARCHAR(9))"
    if name == "postgres":
        import psycopg

        address = request.getfixturevalue("postgres")
        with psycopg.connect(address, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"DROP TABLE IF EXISTS t; {sql}".encode())
            cursor.executemany(f"INSERT INTO t VALUES (%s::{kind}, %s, %s, %s)".encode(), records)
        given = open_table(address, "public.t")
        yield given
        given.get_backend().disconnect()  # else its locks keep the next test from dropping the table
        return
    connection = ibis.duckdb.connect() if name == "duckdb" else ibis.sqlite.connect()
    connection.con.execute(sql)
    if name == "duckdb":
        connection.con.register("given", pd.DataFrame(records, columns=["id", *"acy"], dtype=object))
        connection.con.execute("INSERT INTO t FROM given")
    else:
        connection.con.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", records)
    try:
        yield connection.table("t")
    finally:
        connection.disconnect()


def counted(table: Any, k: int) -> Counter[tuple[int, ...]]:
    """Return the number of places by codes and class."""
    found = replace(EngineCount.of(table, SCHEMA, "y", CLASSES).of_persons("id"), places=k).counted()
    rows = zip(*(codes.tolist() for codes in (*found.codes, found.label)), found.counts.tolist(), strict=True)
    return Counter({tuple(codes): n for *codes, n in rows})


def visits(persons: int, seed: int = 0, most: int = 6) -> list[Record]:
    rng = np.random.default_rng(seed)
    return [
        (i, int(rng.integers(0, 8)), "xy"[rng.integers(0, 2)], CLASSES[rng.integers(0, 2)])
        for i in range(persons)
        for _ in range(rng.integers(1, most + 1))
    ]


def named(records: list[Record], kind: str) -> list[Record]:
    return [(None if i is None else TYPES[kind](i), *rest) for i, *rest in records]


KINDS = [
    ("duckdb", "bigint"), ("duckdb", "text"), ("duckdb", "uuid"), ("sqlite", "bigint"), ("sqlite", "text"),
    ("postgres", "bigint"), ("postgres", "text"), ("postgres", "uuid"),
]  # fmt: skip


@pytest.mark.parametrize(("engine", "kind"), KINDS)
def test_what_fills_the_places_of_a_person_depends_on_its_own_records(engine, kind, request):
    """The counts of a table are the sums of those of each person alone; rows stand in any order."""
    records = named([*visits(4), (None, 1, "x", "yes"), (None, 7, "y", "no")], kind)
    held = Counter(record[0] for record in records)
    mixed = [records[i] for i in np.random.default_rng(1).permutation(len(records))]
    with table(engine, mixed, request, kind) as whole:
        for k in (1, 3):
            alone: Counter[tuple[int, ...]] = Counter()
            for who, n in held.items():
                own = whole.id.isnull() if who is None else whole.id == ibis.literal(who, whole.id.type())
                found = counted(whole.filter(own), k)
                assert found.total() == k
                assert len(found) <= min(n, k)
                alone += found
            assert counted(whole, k) == alone
        assert EngineCount.of(whole, SCHEMA, "y", CLASSES).of_persons("id").n_records == 5


@pytest.mark.parametrize("engine", ["duckdb", "sqlite", "postgres"])
def test_persons_whose_records_fill_all_places_alike_count_as_in_memory(engine, request):
    """One, two, three or six records of each, in six places: each record fills as many as any other."""
    records = named([r for r in visits(12, seed=1, most=1) for _ in range((1, 2, 3, 6)[r[0] % 4])], "text")
    records = [(i, (a + k) % 8, c, y) for k, (i, a, c, y) in enumerate(records)]
    frame = pd.DataFrame(records, columns=["id", "a", "c", "y"])
    places = frame.iloc[Persons.of(frame.id).places(6)]
    label = np.array([CLASSES.index(y) for y in places.y], dtype=np.int64)
    expected = CountedRecords.of(SCHEMA, SCHEMA.codes(places), CLASSES, label)
    with table(engine, records, request) as given:
        count = EngineCount.of(given, SCHEMA, "y", CLASSES).of_persons("id")
        found = replace(count, places=6).counted()
        assert sorted(count.persons.held()) == sorted(frame.id.value_counts())
    assert np.array_equal(found.counts, expected.counts)
    for one, other in zip((*found.codes, found.label), (*expected.codes, expected.label), strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize(("engine", "kind"), [("duckdb", "bigint"), ("duckdb", "text"), ("sqlite", "text")])
def test_records_come_first_as_often_as_there_are_of_their_kind(engine, kind, request):
    """Nine records of one kind and one of another, 300 persons: 30 expected, standard deviation 5.2."""
    kinds = [(1, "x", "no")] * 9 + [(1, "x", "yes")]
    records = named([(i, *one) for i in range(300) for one in kinds], kind)
    with table(engine, records, request, kind) as given:
        found = counted(given, 1)
    rare = {codes: n for codes, n in found.items() if codes[-1] == 1}
    assert found.total() == 300
    assert 4 < sum(rare.values()) < 57


def test_persons_are_compared_by_bytes_whatever_the_collation(request):
    records = [("a", 1, "x", "no"), ("A", 1, "x", "no"), ("a", 1, "x", "yes")]
    with table("sqlite", records, request, "TEXT COLLATE NOCASE") as given:
        assert EngineCount.of(given, SCHEMA, "y", CLASSES).of_persons("id").persons.count == 2


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("double", "id", "'id', holds float64: text or whole numbers are needed"),
        ("timestamp", "id", "'id', holds timestamp"),
        ("text", "who", "person: no column 'who'"),
    ],
)
def test_columns_that_do_not_tell_persons_are_refused(kind, name, message, request):
    with table("sqlite", [], request, kind) as given:
        count = EngineCount.of(given, SCHEMA, "y", CLASSES)
        with pytest.raises(InvalidInputError, match=message):
            count.of_persons(name)


def test_persons_that_come_or_go_after_they_were_counted_are_an_error(request):
    with table("duckdb", named(visits(5), "text"), request) as given:
        count = EngineCount.of(given, SCHEMA, "y", CLASSES).of_persons("id")
        assert count.n_records == 5
        given.get_backend().con.execute("DELETE FROM t WHERE id = '3'")
        with pytest.raises(InvalidInputError, match="number of persons has changed"):
            count.counted()


def one_each(table: Any, name: str) -> Counter[Any]:
    """Return the number of persons by the cell that counts."""
    persons = EnginePersons.of(table, "id")
    found = EngineCells(table, [name], persons.count, persons)[name]
    cells = [None if cell != cell else cell for cell in found.cells.tolist()]  # NaN: missing
    counts = Counter(dict(zip(cells, found.counts.tolist(), strict=True)))
    assert len(counts) == len(cells)
    return counts


@pytest.mark.parametrize(("engine", "kind"), KINDS)
def test_a_cell_of_a_person_counts_by_its_own_cells_alone(engine, kind, request):
    """The counts of a column are the sums of those of each person alone; rows stand in any order."""
    records = named([*visits(6, seed=3), (None, 1, "x", "yes"), (None, 7, "y", "no")], kind)
    records = [(i, None if a == 3 else a, None if a == 5 else f"{c}\u00e9", y) for i, a, c, y in records]
    held = {record[0]: Counter(r for r in records if r[0] == record[0]) for record in records}
    mixed = [records[i] for i in np.random.default_rng(1).permutation(len(records))]
    with table(engine, mixed, request, kind) as whole:
        for place, name in ((1, "a"), (2, "c")):
            alone: Counter[Any] = Counter()
            for who, own in held.items():
                mine = whole.id.isnull() if who is None else whole.id == ibis.literal(who, whole.id.type())
                found = one_each(whole.filter(mine), name)
                assert found.total() == 1
                assert set(found) <= {record[place] for record in own}
                alone += found
            assert one_each(whole, name) == alone


def test_cells_of_persons_count_in_proportion_to_their_records(request):
    """Seven records with 0, two with 1 and one with 2, of each of 3,000 persons, by odd and even numbers."""
    records = [(10 * i, a, "x", "no") for i in range(3000) for a in (0, 1, 0, 0, 0, 2, 0, 0, 1, 0)]
    for engine in ("duckdb", "sqlite"):
        with table(engine, records, request, "bigint") as whole:
            found = one_each(whole, "a")
            assert stats.chisquare([found[0], found[1], found[2]], [2100, 600, 300]).pvalue > 1e-3
