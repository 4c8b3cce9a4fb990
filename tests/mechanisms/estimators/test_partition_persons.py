"""Persons whose records lie in Dask partitions: they fill the places that they fill in memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateLogisticRegression, compare, evaluate
from privopt.mechanisms.estimators.partition_persons import PartitionPersons, _persons
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems.errors import InvalidInputError, SchemaError
from privopt.problems.tables.columns import Binned, Categorical
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.persons import Persons
from privopt.problems.tables.schema import Schema

dd = pytest.importorskip("dask.dataframe", reason="Dask is not installed")

SCHEMA = Schema([Binned("a", [0, 3, 6, 10]), Categorical("c", ["x", "y"])])
N = 900
IDS: dict[str, Any] = {
    "small numbers": lambda rng: rng.integers(0, 200, N),
    "numbers beyond 2^53": lambda rng: 2**60 + rng.integers(0, 200, N),
    "text, some missing": lambda rng: rng.choice(["p", "P", "p ", "q", None, ""], N),
    "times": lambda rng: np.datetime64("2001-01-01T00:00:00.000000001") + rng.integers(0, 99, N),
}


def table(ids: str) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    held = IDS[ids](rng)
    return pd.DataFrame(
        {
            "id": held,
            "a": rng.integers(0, 10, N),
            "c": rng.choice(["x", "y"], N),
            "y": rng.integers(0, 2, N),
            "unused": [object()] * N,
        }
    )


def in_parts(frame: pd.DataFrame) -> Any:
    """Seven partitions, of which one is empty."""
    parts = [frame.iloc[rows] for rows in np.array_split(np.arange(N), 6)]
    meta = frame.iloc[:0]
    return dd.from_map(lambda part: part, [*parts[:3], meta, *parts[3:]], meta=meta)


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("k", [1, 3])
def test_places_are_those_of_memory(ids: str, k: int) -> None:
    frame = table(ids)
    persons, parts = Persons.of(frame["id"]), in_parts(frame)
    rows = persons.places(k)
    label = frame["y"].to_numpy()[rows]
    expected = CountedRecords.of(SCHEMA, [codes[rows] for codes in SCHEMA.codes(frame)], [0, 1], label)
    found = PartitionPersons.of(parts, parts["y"], "id", SCHEMA, [0, 1])
    assert found.persons.count == persons.count
    counted = replace(found, places=k).counted()
    for name in ("label", "counts"):
        np.testing.assert_array_equal(getattr(counted, name), getattr(expected, name))
    np.testing.assert_array_equal(counted.codes, expected.codes)
    assert counted.n_records == k * persons.count


def test_fits_and_evaluations_protect_persons_in_partitions(tmp_path: Path) -> None:
    parts = in_parts(table("small numbers"))
    book = Ledger.create(tmp_path / "ledger", 4.0, 1e-3, unit="person")
    facts: dict[str, Any] = {"classes": [0, 1], "schema": SCHEMA, "ledger": book, "person": "id"}
    model = PrivateLogisticRegression(1.0, records_per_person=2, **facts).fit(parts, parts["y"])
    assert model.spend_.neighbours == "replace-one person"
    judged = evaluate(model, parts, parts["y"], epsilon=1.0, person="id", ledger=book)
    assert judged.spend.neighbours == "replace-one person"
    facts["schema"] = Schema([Categorical("c", ["x", "y"])])
    other = PrivateLogisticRegression(1.0, **facts).fit(parts, parts["y"])
    with pytest.raises(InvalidInputError, match="persons in partitions are compared by models with the same"):
        compare(model, other, parts, parts["y"], epsilon=0.5, person="id", ledger=book)
    assert len(book.entries()) == 3


def test_what_tells_no_persons_is_refused_before_a_booking(tmp_path: Path) -> None:
    frame = table("small numbers").assign(share=0.5)
    parts, book = in_parts(frame), Ledger.create(tmp_path / "ledger", 4.0, 1e-3, unit="person")
    fit = partial(PrivateLogisticRegression, 1.0, classes=[0, 1], schema=SCHEMA, ledger=book)
    refused = {"nobody": "no column 'nobody'", "a": "the schema declares 'a'", "share": "holds floats"}
    for person, said in refused.items():
        with pytest.raises((InvalidInputError, SchemaError), match=said):
            fit(person=person).fit(parts, parts["y"])
    found = PartitionPersons.of(parts, parts["y"], "id", SCHEMA, [0, 1])
    fewer = replace(found, persons=Persons(found.persons.number, 3))
    with pytest.raises(InvalidInputError, match="the number of persons has changed"):
        fewer.counted()
    assert book.entries() == []


def test_persons_of_partitions_are_told_apart_whatever_the_types_of_others() -> None:
    """Among floats, which one missing cell makes of a partition, two large integers are one."""
    whole, real = pd.Series([2**53, 2**53 + 1]), pd.Series([7.0, np.nan])
    assert _persons([whole, real]).count == 4
    assert _persons([whole, whole]).count == 2
