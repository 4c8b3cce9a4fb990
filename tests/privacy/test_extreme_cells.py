"""A cell that Python or pandas cannot hold is its own record's: it cannot be read, and no other changes."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from privopt.experiments.cli.schema import read_unlearned
from privopt.experiments.cli.tables import read_labelled
from privopt.mechanisms import PrivateLogisticRegression, fit_with_learned_schema, learn_schema
from privopt.mechanisms.estimators.labels import checked_labels
from privopt.mechanisms.estimators.validation import as_table
from privopt.mechanisms.schemas.types import votes_of
from privopt.problems import Categorical, Date, MissingLevel, Numeric, Schema, read_table
from privopt.problems.errors import SchemaError
from privopt.problems.tables.arrow_cells import wall_times
from privopt.problems.tables.cells import NO_MARKERS
from privopt.problems.tables.frames import as_pandas, cells_of, objects_of
from privopt.problems.tables.persons import Persons

SCHEMA = Schema(
    [
        MissingLevel(Numeric("number", 0, 2)),
        MissingLevel(Date("day", ["1970-01-01", "2000-01-01", "2024-01-01"])),
        MissingLevel(Categorical("word", ["1", "a", "2020-01-01"], "ignore")),
    ]
)
NAMES = [column.name for column in SCHEMA.columns]
SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))
FEW_OR_MANY = pytest.mark.parametrize("examples", [25, pytest.param(500, marks=pytest.mark.slow)])

END_OF_9999 = 253402300799  # in seconds
WHOLE = [
    0,
    1,
    2,
    18294,
    10**7,
    END_OF_9999,
    END_OF_9999 + 18000,
    -62135596801,
    2**62,
    2**63 - 1,
    -(2**63) + 1,
]
SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
ZONES = [None, "UTC", "America/New_York", "Asia/Kathmandu", "-12:00", "+05:45"]


def text(cells: list[Any], kind: Any) -> Any:
    """Text that nobody checked, as files of other programs hold."""
    held = [cell or b"" for cell in cells]
    ends = np.cumsum([0, *map(len, held)]).astype(np.int64 if str(kind).startswith("large") else np.int32)
    given = np.packbits([cell is not None for cell in cells], bitorder="little")
    buffers = [pa.py_buffer(part.tobytes()) for part in (given, ends)]
    return pa.Array.from_buffers(kind, len(cells), [*buffers, pa.py_buffer(b"".join(held))])


def view(cells: list[Any]) -> Any:
    binary = text(cells, pa.binary()).cast(pa.binary_view())
    return pa.Array.from_buffers(pa.string_view(), len(cells), binary.buffers())


def of_type(kind: Any) -> Callable[[list[Any]], Any]:
    def made(cells: list[Any]) -> Any:
        if kind.bit_width == 32:
            cells = [None if cell is None else (cell + 2**31) % 2**32 - 2**31 for cell in cells]
        return pa.array(cells, pa.int32() if kind.bit_width == 32 else pa.int64()).cast(kind)

    return made


TYPES = [pa.int64(), pa.date32(), pa.date64(), pa.time32("ms"), pa.time64("ns"), pa.duration("us")]
TYPES += [pa.timestamp(unit, zone) for unit in SECONDS for zone in ZONES]
OF_INTEGERS = {str(kind): of_type(kind) for kind in TYPES}
OF_INTEGERS |= {
    "decimal256": lambda cells: pa.array(cells, pa.decimal256(76, 0)),
    "list": lambda cells: pa.array([None if cell is None else [cell] for cell in cells]),
    "struct": lambda cells: pa.array([None if cell is None else {"a": cell} for cell in cells]),
    "dictionary of days": lambda cells: of_type(pa.date32())(cells).dictionary_encode(),
}
OF_BYTES = {
    str(k): (lambda cells, k=k: text(cells, k)) for k in (pa.string(), pa.large_string(), pa.binary())
}
OF_BYTES["dictionary of text"] = lambda cells: text(cells, pa.string()).dictionary_encode()
if hasattr(pa, "string_view"):
    OF_BYTES["string_view"] = view
MADE = OF_INTEGERS | OF_BYTES
INTEGER = st.none() | st.sampled_from(WHOLE) | st.integers(-(2**63) + 1, 2**63 - 1)
BYTES = st.sampled_from([None, b"a", b"1", b"2020-01-01", b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80", b""])
ANY = st.sampled_from(sorted(OF_INTEGERS)).flatmap(
    lambda k: st.tuples(st.just(k), st.lists(INTEGER, min_size=2, max_size=4))
)
ANY |= st.sampled_from(sorted(OF_BYTES)).flatmap(
    lambda k: st.tuples(st.just(k), st.lists(BYTES, min_size=2, max_size=4))
)


def in_arrow(column: Any) -> Any:
    return pa.table([column, column, column], NAMES)


def in_arrow_of_pandas(column: Any) -> pd.DataFrame:
    held = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([column])))
    return pd.DataFrame(dict.fromkeys(NAMES, held))


def in_polars(column: Any) -> Any:
    if str(column.type).startswith("decimal256"):  # Polars has no such numbers
        raise ValueError
    return pytest.importorskip("polars").from_arrow(in_arrow(column))


def in_file(column: Any, folder: Path) -> Any:
    pa.parquet.write_table(in_arrow(column), folder / "t.parquet")
    return read_table(folder / "t.parquet", schema=SCHEMA)


READERS: dict[str, Callable[[Any, Path], Any]] = {
    "arrow": lambda column, folder: in_arrow(column),
    "dict": lambda column, folder: dict.fromkeys(NAMES, column),
    "pandas": lambda column, folder: as_pandas(in_arrow(column)),
    "arrow in pandas": lambda column, folder: in_arrow_of_pandas(column),
    "polars": lambda column, folder: in_polars(column),
    "parquet": in_file,
}


def read(reader: str, kind: str, cells: list[Any], folder: Path) -> Any:
    """The table; an example is dropped that its own container or format does not take."""
    try:
        return READERS[reader](MADE[kind](cells), folder)
    except SchemaError:
        raise
    except Exception:
        assume(False)


@FEW_OR_MANY
@pytest.mark.parametrize("reader", READERS)
def test_each_record_is_read_as_it_is_read_alone(reader: str, examples: int, tmp_path: Path) -> None:
    @settings(SETTINGS, max_examples=examples)
    @given(drawn=ANY)
    @example(drawn=("string", [b"a", b"\xff\xfe", b"1"]))
    @example(drawn=("date32[day]", [0, 10**7]))
    @example(drawn=("timestamp[us, tz=America/New_York]", [0, END_OF_9999 * 10**6 + 10]))
    def checked(drawn: tuple[str, list[Any]]) -> None:
        kind, cells = drawn
        whole = read(reader, kind, cells, tmp_path)
        found, votes = SCHEMA.codes(whole), votes_of(cells_of(whole["day"]), NO_MARKERS)
        assert Persons.of(whole["day"]).count <= len(set(cells))
        parts = [read(reader, kind, [cell], tmp_path) for cell in cells]
        alone = np.hstack([SCHEMA.codes(part) for part in parts])
        assert np.array_equal(found, alone)
        assert np.array_equal(votes, sum(votes_of(cells_of(part["day"]), NO_MARKERS) for part in parts))

    checked()


FAR = {
    "day": of_type(pa.date32())([5] * 399 + [10**7]),
    "time in a zone": of_type(pa.timestamp("us", "America/New_York"))(
        [5] * 399 + [(END_OF_9999 + 18000) * 10**6]
    ),
    "text": text([b"a"] * 399 + [b"\xff"], pa.string()),
    "list": pa.array([[1]] * 399 + [None]),
}


@pytest.mark.parametrize("kind", FAR)
def test_a_column_that_is_not_used_does_not_matter(kind: str, tmp_path: Path) -> None:
    """Neither before the booking, where persons are counted, nor after it; in memory and in files."""
    ids, x, y = (
        [f"p{i % 200}" for i in range(400)],
        [float(i % 9) for i in range(400)],
        [i % 2 for i in range(400)],
    )
    table = pa.table({"id": ids, "x": x, "far": FAR[kind], "y": [str(k) for k in y]})
    schema = Schema([Numeric("x", 0, 8)])
    facts: dict[str, Any] = {"classes": (0, 1), "person": "id", "insecure_seed": 1}
    learned: dict[str, Any] = {"types": {"x": "range"}, "leave_out": ["far", "y"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PrivateLogisticRegression(1.0, schema=schema, **facts).fit(table, y)
        learn_schema(table, epsilon=9.0, person="id", insecure_seed=1, **learned)
        fit_with_learned_schema(PrivateLogisticRegression(9.0, **facts), table, y, share=0.5, **learned)
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    file = str(tmp_path / "t.parquet")
    records, labels = read_labelled(file, "y", schema, ("0", "1"), person="id").unread()._read()
    assert schema.codes(records)[0].tolist() == x
    assert labels.tolist() == table["y"].to_pylist()
    assert read_unlearned(file, "x=range,far=vote", None, ["y"]).n_records == 400


@pytest.mark.parametrize("target", FAR)
def test_a_label_that_cannot_be_read_waits_for_the_booking(target: str, tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"x": [1.0] * 400, "y": FAR[target]}), tmp_path / "t.parquet")
    found = read_labelled(str(tmp_path / "t.parquet"), "y", Schema([Numeric("x", 0, 8)]), ("a", "b"))
    model = PrivateLogisticRegression(1.0, schema=found.schema, classes=("a", "b"))
    for records in (found.unread(), found.unread().known((pa.table({"x": [1.0] * 400}), FAR[target]))):
        with pytest.raises(ValueError, match=r"^y(:| holds| mixes)") as refused:
            model.fit(records, None)
        assert "xff" not in str(refused.value)


def test_local_times_agree_with_pandas_and_know_no_last_year() -> None:
    rng = np.random.default_rng(0)
    seconds = np.sort(rng.integers(-62135510400, END_OF_9999 - 86400, 2000)).view("M8[s]")
    for zone in ("America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC"):
        expected = pd.DatetimeIndex(seconds, tz="UTC").tz_convert(zone).tz_localize(None)
        assert np.array_equal(wall_times(seconds, zone), expected.to_numpy())
    ends = np.array(
        ["9999-12-31T23:59:59", "10000-01-01T04:59:59", "10000-01-01T05:00", "0001-01-01"], "M8[s]"
    )
    found = wall_times(ends, "America/New_York").astype("M8[D]").astype(str).tolist()
    assert found == ["9999-12-31", "9999-12-31", "10000-01-01", "0000-12-31"]
    assert np.isnat(wall_times(np.array(["NaT"], "M8[ns]"), "Asia/Kathmandu")).all()


def test_what_pandas_stored_as_an_index_is_no_column(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="key"))
    frame.to_parquet(tmp_path / "t.parquet")
    assert list(read_table(tmp_path / "t.parquet").columns) == ["x"]
    assert list(as_pandas(pa.Table.from_pandas(frame)).columns) == ["x"]


class Text(str):
    """A text of another library, whose hash fails."""

    __hash__ = None  # type: ignore[assignment]


def test_texts_of_other_libraries_are_read_as_plain_text() -> None:
    for odd in ("\ud800", "x"):
        cells = {name: [Text("1"), Text("2020-01-01"), Text(odd)] for name in NAMES}
        assert np.array_equal(SCHEMA.codes(cells), [[1, 3, 3], [2, 1, 2], [0, 2, 3]])
        assert votes_of(cells_of(cells["day"]), NO_MARKERS)[3] == 10


def test_a_type_that_cannot_be_read_is_refused_where_it_is_used() -> None:
    nowhere = pa.array([0, 1]).cast(pa.timestamp("us", "Nowhere/At_all"))
    table = pa.table({"number": [1.0, 2.0], "far": nowhere})
    assert Schema([Numeric("number", 0, 2)]).codes(table)[0].tolist() == [1, 2]
    with pytest.raises(SchemaError, match="time zone that is not known"):
        Schema([MissingLevel(Date("far", part="month"))]).codes(table)


def test_a_missing_truth_value_changes_no_type_of_a_learned_schema() -> None:
    """It made objects of a column of booleans, whose type is then voted on: too dear for so few records."""
    model = PrivateLogisticRegression(3.0, classes=(0, 1), insecure_seed=1)
    for last in (True, None):
        table = pa.table({"b": [True] * 99 + [last], "x": [float(i) for i in range(100)]})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit_with_learned_schema(model, table, np.arange(100) % 2, share=0.5)


@pytest.mark.parametrize(
    "cells", [[[1]] * 400, [[1]] * 399 + ["z"], [np.ones((2, 2))] * 399 + [np.ones((2, 3))]]
)
def test_cells_of_lists_make_no_shape(cells: list[Any]) -> None:
    """NumPy makes rows of lists of one length, and takes no arrays of several."""
    table = {"odd": cells, "x": [float(i % 9) for i in range(400)], "id": [f"p{i}" for i in range(400)]}
    schema = Schema([MissingLevel(Numeric("odd", 0, 1)), Numeric("x", 0, 8)])
    assert schema.codes(table)[0].tolist() == [2] * 400
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for person in (None, "id"):
            learn_schema(table, epsilon=9.0, types={"x": "range"}, leave_out=["odd", "id"], person=person)
            facts: dict[str, Any] = {"schema": schema, "classes": (0, 1), "person": person}
            PrivateLogisticRegression(1.0, **facts).fit(table, [i % 2 for i in range(400)])


@pytest.mark.parametrize("odd", ["\ud800", 1 + 2j, np.datetime64(2**62, "Y"), 10**400, (1,)], ids=ascii)
@pytest.mark.parametrize("made", [list, objects_of], ids=["list", "array"])
def test_columns_in_a_dictionary_have_no_type_that_one_cell_makes(made: Any, odd: Any) -> None:
    """pandas infers one for all: a complex number beside them made complex numbers of all."""
    cells = [0.0, 1.0, np.datetime64("NaT"), odd]
    for column in SCHEMA.columns:
        schema = Schema([column])
        alone = [int(schema.codes({column.name: [cell]})[0][0]) for cell in cells]
        for others in (cells, cells[::3], cells[2:]):
            table = as_table({column.name: made(others), "not used": made(others)})
            assert schema.codes(table)[0].tolist() == [alone[cells.index(cell)] for cell in others]


WIDE: dict[str, Callable[[list[Any]], Any]] = {
    f"numpy text, missing {missing}": lambda cells, missing=missing: np.array(  # type: ignore[misc]
        [missing if cell is None else cell for cell in cells], np.dtypes.StringDType(na_object=missing)
    )
    for missing in (None, np.nan, pd.NA)
}
WIDE |= {
    f"{storage} text, missing {missing}": lambda cells, kind=(storage, missing): pd.Series(  # type: ignore[misc]
        cells, dtype=pd.StringDtype(kind[0], na_value=kind[1])
    )
    for storage in ("python", "pyarrow")
    for missing in (np.nan, pd.NA)
    if "na_value" in inspect.signature(pd.StringDtype).parameters
}
WIDE |= {
    "sparse text": lambda cells: pd.arrays.SparseArray(np.array(cells, object), fill_value=None),
    "categories of text": lambda cells: pd.Series(cells, dtype=pd.StringDtype("python")).astype("category"),
}


@pytest.mark.parametrize("made", WIDE.values(), ids=WIDE)
def test_text_of_every_type_is_read_as_its_cells(made: Callable[[list[Any]], Any]) -> None:
    """Text of variable width was no text: all of it was missing, or all of a table was refused."""
    cells = ["a", "1", "2020-01-01", "a\0", "nan", "", "\u00e9", None, "1e999"]
    if "a\0" not in list(made(["a", "a\0"])):  # pandas 2.2 makes one category of both
        cells.remove("a\0")
    alone = [SCHEMA.codes({name: [cell] for name in NAMES}) for cell in cells]
    for held in (cells, cells[:7], cells[7:], cells[::2]):
        found = SCHEMA.codes(dict.fromkeys(NAMES, made(held)))
        assert np.array_equal(found, np.hstack([alone[cells.index(cell)] for cell in held]))
    assert checked_labels(made(["a", "b", "a"]), 3).tolist() == ["a", "b", "a"]


@pytest.mark.parametrize("fill", ["NaT", "2020-01-01"])
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_sparse_times_are_days_and_no_numbers(fill: str, unit: str) -> None:
    """pandas counts a sparse column of times among its numbers: of nanoseconds, all of them clipped."""
    days = np.array(["2020-01-01", "NaT", "1975-01-01", "2020-01-01"], f"M8[{unit}]")
    sparse = pd.arrays.SparseArray(days, fill_value=np.datetime64(fill, unit))
    expected = SCHEMA.codes(dict.fromkeys(NAMES, days))
    assert expected[1].tolist() == [1, 2, 0, 1]
    for column in (sparse, pd.Series(sparse)):
        assert np.array_equal(SCHEMA.codes(dict.fromkeys(NAMES, column)), expected)


def test_a_column_of_objects_stays_one_whatever_its_cells() -> None:
    """pandas 3 makes text of it, unless one cell is a number."""
    for cells in (["a", "b"], ["a", 1], [1, 2]):
        (column,) = (c for _, c in as_table({"x": np.array(cells, dtype=object)}).items())
        assert column.dtype == object
