"""Folders of Parquet files whose columns differ in type: a cell has the code of its own file, read alone."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.dates import Date
from privopt.problems.tables.engine_cells import EngineCells
from privopt.problems.tables.engine_persons import EnginePersons
from privopt.problems.tables.engines import EngineCount, count_records, rows_of
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.schema import Schema
from privopt.problems.tables.sources import open_table

pytest.importorskip("ibis", reason="pip install 'privopt[engines]'")
pytest.importorskip("duckdb")

CLASSES = ["no", "yes"]
# In DuckDB's common type NaN is the text "nan", .3 of single precision is 0.3, and no number is a date.
WHOLE = pa.array([1, 0, None, 2**53 + 1])
DOUBLE = pa.array([float("nan"), 0.1 + 0.2, 1.0, None])
SINGLE = pa.array([0.3, float("nan"), 0.5, 1.0], pa.float32())
DECIMAL = pa.array([Decimal("0.3"), None, Decimal(1), Decimal("0.5")], pa.decimal128(38, 10))
TRUTH = pa.array([True, None, False, True])
TEXT = pa.array(["1", "0,3", None, "13.02.2048"])
DAY = pa.array([date(2048, 2, 13), None, date(1999, 12, 31), date(2000, 1, 1)])
NANOSECONDS = pa.array([datetime(2048, 2, 13, 23), None, datetime(1999, 12, 31), None], pa.timestamp("ns"))
BYTES = pa.array([b"1", None, b"a", b""])
LISTS = pa.array([[1], None, [], [2, 3]])
NOTHING = pa.nulls(4)
FOLDERS = [
    [DOUBLE, TEXT],
    [TEXT, TRUTH],
    [TEXT, SINGLE, TEXT],
    [NOTHING, DAY, WHOLE],
    [DAY, TEXT, DOUBLE],
    [BYTES, TEXT, DECIMAL],
    [NANOSECONDS, TEXT],
    [LISTS, NANOSECONDS, DAY],
    [LISTS, WHOLE],
    [LISTS, TEXT, DAY],
]
NUMBERS = [[TRUTH], [SINGLE, WHOLE], [DECIMAL, TRUTH, DOUBLE]]
COLUMNS: list[Column] = [
    MissingLevel(Binned("x", [0, 0.3, 0.30000000000000004, 1, 2**53], decimal=",", thousands=".")),
    MissingLevel(Numeric("x", 0, 1, "1/1000")),
    MissingLevel(Categorical("x", ["1", "0.3", "nan", "2048-02-13"], "ignore")),
    MissingLevel(Categorical("x", [False, True], "ignore", na_values=[0])),
    MissingLevel(Date("x", edges=["1999-01-01", "2000-01-01", "2049-01-01"], format="%d.%m.%Y")),
]


def folder(path: Path, parts: list[Any], labels: list[Any] | None = None) -> Any:
    """The table of one file for each part, as the column x; the labels y."""
    for k, part in enumerate(parts):
        label = pa.array(["no"] * len(part)) if labels is None else labels[k]
        pyarrow.parquet.write_table(pa.table({"x": part, "y": label}), path / f"{k}.parquet")
    return open_table(f"{path}/*.parquet")


@pytest.mark.parametrize(
    "parts", [*FOLDERS, *NUMBERS], ids=lambda parts: "-".join(str(p.type) for p in parts)
)
def test_a_cell_is_read_by_the_type_of_its_own_file(tmp_path: Path, parts: list[Any]) -> None:
    table = folder(tmp_path, parts)
    cells = EngineCells(table, ["x"], 4 * len(parts))["x"]
    (rows,) = rows_of(table, ["x"], 100)
    for column in COLUMNS if parts in FOLDERS else (COLUMNS[0], COLUMNS[1], COLUMNS[3]):
        schema = Schema([column])
        own = [code for part in parts for code in schema.codes(pa.table({"x": part}))[0].tolist()]
        counted = count_records(table, schema, "y", CLASSES)
        assert np.repeat(counted.codes[0], counted.counts).tolist() == sorted(own)
        assert schema.codes(rows)[0].tolist() == own
        assert sorted(np.repeat(column.code(cells.cells), cells.counts).tolist()) == sorted(own)


def test_times_in_nanoseconds_do_not_shorten_those_of_other_files(tmp_path: Path) -> None:
    far = pa.array([date(9999, 12, 31), date(1500, 1, 1), None, date(1999, 12, 31)])
    schema = Schema([COLUMNS[4]])
    for k, parts in enumerate([[NANOSECONDS, far.cast(pa.timestamp("us"))], [far, NANOSECONDS]]):
        (tmp_path / str(k)).mkdir()
        counted = count_records(folder(tmp_path / str(k), parts), schema, "y", CLASSES)
        own = [code for part in parts for code in schema.codes(pa.table({"x": part}))[0].tolist()]
        assert np.repeat(counted.codes[0], counted.counts).tolist() == sorted(own)


def test_labels_of_either_kind_are_what_a_person_writes(tmp_path: Path) -> None:
    labels = [pa.array([0, 1, 1, 0]), pa.array(["1", "0", "1", "1"])]
    table, schema = folder(tmp_path, [DOUBLE, DOUBLE], labels), Schema([COLUMNS[0]])
    counted = count_records(table, schema, "y", ["0", "1"], written=True)
    assert np.bincount(counted.label, counted.counts).tolist() == [3, 5]
    for classes in (["0", "1"], [0, 1]):  # from the types of columns alone
        with pytest.raises(InvalidInputError, match="labels as different kinds"):
            EngineCount.of(table, schema, "y", classes)
    (tmp_path / "other").mkdir()
    days = folder(tmp_path / "other", [DOUBLE, DOUBLE], [labels[1], DAY])
    with pytest.raises(InvalidInputError, match="labels as different kinds"):
        EngineCount.of(days, schema, "y", ["0", "1"], written=True)


def test_persons_are_text_and_whole_numbers(tmp_path: Path) -> None:
    people = pa.array(["a", "1", "a", None])
    assert EnginePersons.of(folder(tmp_path, [WHOLE, people]), "x").count == 5
    uuids = pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([bytes(15) + bytes([k]) for k in range(4)], pa.binary(16))
    )
    for k, other in enumerate((DOUBLE, DAY, BYTES, LISTS, uuids)):  # of which some would be one person
        (tmp_path / f"{k}").mkdir()
        with pytest.raises(InvalidInputError, match="different files: text or whole numbers are needed"):
            EnginePersons.of(folder(tmp_path / f"{k}", [other, people]), "x")


def test_text_that_is_not_utf8_beside_numbers_cannot_be_read(tmp_path: Path) -> None:
    broken = pa.array([b"1", b"\xff", None, b"a"]).view(pa.string())
    schema = Schema([MissingLevel(Categorical("x", ["1", "a"], "ignore"))])
    counted = count_records(folder(tmp_path, [DOUBLE, broken]), schema, "y", CLASSES)
    assert counted.codes[0].tolist() == [0, 1, 2, 3]
    assert counted.counts.tolist() == [1, 1, 3, 3]
    (rows,) = rows_of(open_table(f"{tmp_path}/*.parquet"), ["x"], 100)
    assert schema.codes(rows)[0].tolist() == [3, 2, 2, 3, 0, 2, 3, 1]


def test_names_of_files_are_no_patterns(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    folder(tmp_path / "odd", [DOUBLE, TEXT])
    (tmp_path / "odd").rename(tmp_path / "o[d]d's")
    table = open_table(f"{tmp_path}/o*/*.parquet")
    assert table.count().execute() == 8
