"""The meaning of a cell: the vectorised reading against one cell at a time, and no cell against another."""

from __future__ import annotations

import csv
import io
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.problems import Binned, Categorical, MissingLevel, Numeric, Schema, read_table
from privopt.problems.errors import SchemaError
from privopt.problems.tables.arrow_cells import arrow_cells
from privopt.problems.tables.cells import (
    MISSING,
    NO_MARKERS,
    UNDECLARED,
    UNREADABLE,
    USUAL_MARKERS,
    Markers,
    number_in,
    number_positions,
    read_numbers,
    text_positions,
)
from privopt.problems.tables.counted_cells import CountedCells
from privopt.problems.tables.frames import array_of, objects_of

BINS = Binned("x", [0, 1, 2])
# What writes numbers, and what does not.
WRITTEN = {
    "5": 5.0, " 5\t": 5.0, "+5": 5.0, ".5": 0.5, "5.": 5.0, "-0": 0.0, "1e3": 1000.0, "1E-3": 0.001,
    "007": 7.0,
    "9007199254740993": 2.0**53, "0.1": 0.1, "1e999": math.inf, "-1e999": -math.inf, "9" * 400: math.inf,
    "1e-400": 0.0, "inf": math.inf, "-Infinity": -math.inf, "True": 1.0, "FALSE": 0.0,
    "4." + "9" * 60: 5.0,
}  # fmt: skip
OTHERS = ["x", "1_000", "1,5", "0x10", "1 2", "٣", "１", "−1", "e5", ".", "1e", "--1", "5 EUR", "\ud800"]


@pytest.mark.parametrize("text", WRITTEN)
def test_texts_that_write_numbers(text: str) -> None:
    for values in (np.array([text, "x"], dtype=object), np.array([text, "x"]), pa.array([text, "x"])):
        found = read_numbers(values)
        assert found.values[0] == WRITTEN[text]
        assert found.unreadable.tolist() == [False, True]


def test_other_texts_are_missing_or_unreadable() -> None:
    found = read_numbers(np.array([*OTHERS, *USUAL_MARKERS, " NA ", "NaN", None], dtype=object))
    assert np.isnan(found.values).all()
    assert found.unreadable.tolist() == [v not in USUAL_MARKERS for v in OTHERS] + [False] * (
        len(USUAL_MARKERS) + 3
    )


DIGITS = st.text("0123456789", min_size=1, max_size=45)
NUMBERS = st.one_of(
    st.floats().map(repr),
    st.integers(-(2**70), 2**70).map(str),
    st.builds("{}.{}e{}".format, DIGITS, DIGITS, st.integers(-400, 400)),
    st.text("0123456789.-+eE ", max_size=8),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(NUMBERS | st.sampled_from([*WRITTEN, *OTHERS[:-1], "", "NA"]), min_size=1, max_size=8))
def test_columns_are_read_cell_by_cell(texts: list[str]) -> None:
    """Arrow's conversion against Python's, one cell at a time."""
    found = read_numbers(pa.array(texts))
    for text, value, unreadable in zip(texts, found.values, found.unreadable, strict=True):
        alone = number_in(text)
        assert unreadable == (alone is None)
        assert np.array_equal(value, math.nan if alone is None else alone, equal_nan=True)


def test_objects_are_read_by_their_types() -> None:
    class Broken(Fraction):
        def __float__(self) -> float:
            raise RuntimeError

    cells = [
        1, 2.5, True, np.float32(0.5), Decimal("0.1"), Fraction(1, 2), 10**400, -(10**400), Decimal("inf"),
        None, math.nan, pd.NA, pd.NaT, Decimal("NaN"), Decimal("sNaN"),
        b"1", (1,), [2], 1j, Broken(1), pd.Timestamp(0), "1", "x", "NA",
    ]  # fmt: skip
    values = np.empty(len(cells), dtype=object)
    values[:] = cells
    found = read_numbers(values)
    assert found.values[:9].tolist() == [1, 2.5, 1, 0.5, 0.1, 0.5, math.inf, -math.inf, math.inf]
    assert found.values[21] == 1
    assert np.isnan(found.values[[*range(9, 21), 22, 23]]).all()
    assert np.flatnonzero(found.unreadable).tolist() == [*range(15, 21), 22]
    texts = text_positions(values, {"x": 0, "1": 1})
    assert texts[:9].tolist() == [UNREADABLE] * 9
    assert texts[9:15].tolist() == [MISSING] * 6
    assert texts[15:].tolist() == [UNREADABLE] * 6 + [1, 0, UNDECLARED]
    numbers = number_positions(values, {1: 0, 2: 1})
    assert numbers[:3].tolist() == [0, UNDECLARED, 0]
    assert numbers[9:].tolist() == [MISSING] * 6 + [UNREADABLE] * 6 + [0, UNREADABLE, MISSING]


def test_columns_of_several_types_are_arrays_of_their_cells() -> None:
    assert array_of(pd.Series(["a", 1, None], dtype=object)).tolist() == ["a", 1, None]
    assert array_of(pd.Series(["a", None], dtype="string[pyarrow]")).tolist() == ["a", None]


def test_periods_and_intervals_in_arrow_are_no_numbers() -> None:
    for column in (pd.Series(pd.period_range("2020", periods=2)), pd.Series(pd.interval_range(0, 2))):
        _, unreadable = read_numbers(arrow_cells(pa.chunked_array([pa.array(column)])), NO_MARKERS)
        assert unreadable.tolist() == [True, True]


def test_times_in_numpy_are_unreadable_and_missing_ones_missing() -> None:
    for kind in ("M8[D]", "m8[D]"):
        assert read_numbers(np.array([5, "NaT"], dtype=kind), NO_MARKERS).unreadable.tolist() == [True, False]


@pytest.mark.parametrize("last", [7, 10**400, Decimal("sNaN")], ids=["small", "huge", "signalling"])
def test_spans_of_time_are_no_numbers_whatever_stands_beside_them(last: object) -> None:
    """NumPy converts them in an array, and not one by one, as it has to be done beside these cells."""
    cells = np.empty(3, dtype=object)
    cells[:] = [np.timedelta64(5, "D"), np.timedelta64("NaT"), last]
    _, unreadable = read_numbers(cells, NO_MARKERS)
    assert unreadable[:2].tolist() == [True, False]


def test_markers_of_a_column_and_declared_categories_that_look_like_one() -> None:
    table = {"x": ["-999", "unknown ", -999, "1", "NA"]}
    marked = MissingLevel(Binned("x", [-1000, 0, 2], na_values=[-999, "Unknown"]))
    assert Schema([marked]).codes(table)[0].tolist() == [2, 2, 2, 1, 2]
    level = MissingLevel(Categorical("x", ["1", "NA"], "ignore", na_values=["NA", "-999"]))
    assert Schema([level]).codes(table)[0].tolist() == [3, 2, 2, 0, 1]
    coded = MissingLevel(Categorical("x", [1, 9], "ignore", na_values=["9", "-999"]))
    assert Schema([coded]).codes({"x": ["9", "-999", "1.0", "NA", "x"]})[0].tolist() == [1, 3, 0, 3, 2]
    schema = Schema([marked, MissingLevel(Numeric("z", 0, 1))])
    assert Schema.from_dict(schema.to_dict()) == schema
    assert schema.with_na_values(["?!"]).codes({"x": ["?!"], "z": ["?!"]})[0].tolist() == [2]
    assert Markers.of([]) == NO_MARKERS
    for wrong in ("NA", [None], [math.nan], [True], 3):
        with pytest.raises(SchemaError, match="na_values must be a list"):
            Numeric("x", 0, 1, na_values=wrong)  # type: ignore[arg-type]


# --- one cell changes no other ---

EXTREME = "5258986265376043509"


def test_one_decimal_or_empty_cell_moves_no_integer(tmp_path: Path) -> None:
    """pandas 2 parses a column with one such cell again, by another rule: integers beyond 2^53 shift."""
    column = MissingLevel(Binned("x", [0, int(EXTREME), 2**63]))
    numbers = np.random.default_rng(0).integers(2**53, 2**63, 300)
    cells = [EXTREME, *map(str, numbers.tolist())]
    seen = []
    for last in ("5", "5.5", "", "x"):
        (tmp_path / "t.csv").write_text("\n".join(["x,y", *(f"{c},0" for c in [*cells, last])]))
        for text in ([], ["x"]):
            table = read_table(tmp_path / "t.csv", text)
            seen.append(Schema([column]).codes(table)[0][:-1].tolist())
            doubles = read_numbers(np.asarray(table["x"])).values[:-1]
            assert doubles.tolist() == [float(int(c)) for c in cells]
    assert seen == [seen[0]] * 8
    assert seen[0][0] == 1


@pytest.mark.parametrize("cell", ["x", "1e999", "NA", "9" * 400, "", "maybe", "3", "-inf", "٣"])
def test_no_cell_turns_a_lenient_declaration_into_a_refusal(cell: str, tmp_path: Path) -> None:
    schema = Schema(
        [
            MissingLevel(Numeric("number", 0, 10)),
            Binned("bin", [0, 5, 10], missing=0),
            MissingLevel(Categorical("whole", [1, 2], "ignore")),
            MissingLevel(Categorical("truth", [False, True], "ignore")),
        ]
    )
    rows = [["1", "2", "1", "True"], ["7", "8", "2", "False"], [cell] * 4]
    lines = [",".join(row) for row in (["number", "bin", "whole", "truth"], *rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    codes = schema.codes(read_table(tmp_path / "t.csv", schema.text_columns))
    assert [c[:2].tolist() for c in codes] == [[1, 7], [0, 1], [0, 1], [1, 0]]
    again = schema.codes(read_table(tmp_path / "t.csv"))
    assert all(np.array_equal(a, b) for a, b in zip(codes, again, strict=True))


def test_refusals_name_the_column_and_the_remedy() -> None:
    schema = Schema([BINS])
    for cell, remedy in (("x", "missing_level = true"), ("NA", "missing_level = true")):
        with pytest.raises(SchemaError, match=rf"column 'x': .*{remedy}"):
            schema.codes({"x": ["1", cell]})
    with pytest.raises(SchemaError, match=r"column 'x': .*outside='ignore'"):
        Schema([Categorical("x", [1])]).codes({"x": [1, "x"]})


# --- files ---

CELLS = st.sampled_from(
    ["a", "1", " b", "c ", "", " ", "1e5", "é", "it's", '"q"', '"a,b"', ' "x"', '" y"', '"a""b"']
)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6),
    separator=st.sampled_from([",", ";", "\t"]),
    end=st.sampled_from(["\n", "\r\n"]),
    gap=st.sampled_from(["", "\n"]),
)
def test_files_hold_the_cells_that_csv_says(
    tmp_path_factory: pytest.TempPathFactory,
    rows: list[tuple[str, str, str]],
    separator: str,
    end: str,
    gap: str,
) -> None:
    """With and without quotes, which different parsers read, against Python's own reader."""
    rows = [("k", *row) for row in rows]  # type: ignore[misc]  # no line is empty
    text = end.join(separator.join(row) for row in [("w", "x", "y", "z"), *rows]) + end + gap
    file = tmp_path_factory.mktemp("csv") / "t.csv"
    file.write_text(text, "utf-8", newline="")
    lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True))
    expected = [[cell or None for cell in line] for line in lines[1:] if line]
    table = read_table(file, ["w", "x", "y", "z"])
    found = [
        [None if pd.isna(cell) else cell for cell in row] for row in table.to_numpy(dtype=object).tolist()
    ]
    assert found == expected
    assert list(table.columns) == ["w", "x", "y", "z"]


@pytest.mark.parametrize(("made", "missing"), [(pa.array, 0), (objects_of, 2)], ids=["arrow", "objects"])
def test_texts_are_counted_and_missing_cells_are_none_of_them(made: Any, missing: int) -> None:
    """Arrow's missing cells are left out; others are handed on."""
    texts, others = CountedCells.of(made(["a", None, "b", "a", None])).apart()
    assert texts == {"a": 2, "b": 1}
    assert int(others.counts.sum()) == missing


def test_a_quote_that_is_never_closed_is_told_by_its_record_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('a,b\n1,2\n3,"Quagmire\n')
    with pytest.raises(SchemaError, match="the quote that opens in record 2 is never closed") as refused:
        read_table(tmp_path / "t.csv")
    assert "Quagmire" not in str(refused.value)
