"""Schemas: exact encoding, refusals that keep records out of messages, files, and the leaking draft."""

from __future__ import annotations

import gzip
import math
import warnings
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning, SchemaError
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.dates import Date
from privopt.problems.tables.frames import columns_of
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.point_columns import point_columns
from privopt.problems.tables.reading import read_table
from privopt.problems.tables.rules import PointRule
from privopt.problems.tables.schema import Schema, _round_up

PAPER = Schema(
    [
        Numeric("age", 17, 90, zero=0, one=90),
        Numeric("education-num", 1, 16, zero=0, one=16),
        Numeric("hours", 1, 99, zero=0, one=99),
        Categorical("sex", ["Female", "Male"]),
    ]
)

# --- a slow reference: one cell at a time, fractions only, straight from the docstrings ---


def numeric_cell(column: Numeric, value: float) -> list[Fraction]:
    x = min(max(Fraction(repr(value)), column.low), column.high)
    grid, point = [], column.low
    while point <= column.high:
        grid.append(point)
        point += column.step
    nearest = min(grid, key=lambda g: (abs(g - x), -g))
    return [(nearest - column.zero) / (column.one - column.zero)]


def binned_cell(column: Binned, value: float) -> list[Fraction]:
    x = min(max(Fraction(repr(value)), column.edges[0]), column.edges[-1])
    bins = list(zip(column.edges[:-1], column.edges[1:], strict=True))
    inside = [a <= x < b or (b == column.edges[-1] == x) for a, b in bins]
    return [Fraction(int(hit)) for hit in inside]


def categorical_cell(column: Categorical, value: object) -> list[Fraction]:
    return [Fraction(int(c == value)) for c in column.categories]


def slow_features(schema: Schema, rows: list[list[Any]]) -> list[list[Fraction]]:
    cells = {Numeric: numeric_cell, Binned: binned_cell, Categorical: categorical_cell}
    features = []
    for row in rows:
        parts = [cells[type(c)](c, v) for c, v in zip(schema.columns, row, strict=True)]  # type: ignore[operator]
        features.append([f for part in parts for f in part] + [Fraction(1)] * schema.intercept)
    return features


# --- random schemas and tables that fit them ---

# Multiples of 1/8 and 1/20: ties of the grid are hit on purpose, binary and decimal ones.
NUMBERS = st.one_of(
    st.integers(-400, 400).map(lambda k: k / 20),
    st.integers(-160, 160).map(lambda k: k / 8),
    st.floats(-1e6, 1e6, allow_subnormal=False),
    st.integers(-30, 30),
)
LEVELS = ["a", "b", "?", "c d", "é", "no, yes"]


@st.composite
def numerics(draw: st.DrawFn, name: str) -> Numeric:
    low = Fraction(draw(st.integers(-200, 200)), 20)
    high = low + Fraction(draw(st.integers(20, 400)), 20)
    step = (high - low) / draw(st.sampled_from([Fraction(k, 3) for k in range(3, 25)]))
    ends = st.none() | st.integers(-12, 12)
    zero, one = draw(ends), draw(ends)
    if (low if zero is None else zero) == (high if one is None else one):
        zero, one = None, None
    return Numeric(name, low, high, step, zero, one)


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    kind = draw(st.integers(0, 2))
    if kind == 0:
        return draw(numerics(name))
    if kind == 1:
        categories = draw(st.lists(st.sampled_from(LEVELS), min_size=1, unique=True))
        return Categorical(name, categories, outside="ignore")
    edges = draw(st.lists(st.integers(-40, 40), min_size=2, max_size=6, unique=True))
    return Binned(name, [Fraction(e, 20) for e in sorted(edges)])


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    width = draw(st.integers(1, 4))
    return Schema([draw(columns(f"c{i}")) for i in range(width)], draw(st.booleans()))


@st.composite
def fitting(draw: st.DrawFn) -> tuple[Schema, list[list[Any]]]:
    schema = draw(schemas())
    cells = [st.sampled_from(LEVELS) if isinstance(c, Categorical) else NUMBERS for c in schema.columns]
    return schema, [list(row) for row in draw(st.lists(st.tuples(*cells), min_size=1, max_size=12))]


@settings(max_examples=300, deadline=None)
@given(fitting())
def test_encoding_equals_fractions_cell_by_cell(case: tuple[Schema, list[list[Any]]]) -> None:
    schema, rows = case
    names = [c.name for c in schema.columns]
    encoded = schema.encode(pd.DataFrame(rows, columns=names))
    exact = [[Fraction(int(v), encoded.denominator) for v in row] for row in encoded.X]
    assert exact == slow_features(schema, rows)
    assert encoded.X.dtype == np.int64
    assert encoded.names == schema.feature_names
    assert encoded.X.shape == (len(rows), schema.n_features)
    assert set(encoded.X[:, list(schema.flags)].ravel().tolist()) <= {0, encoded.denominator}
    # The other kinds of table say the same.
    assert np.array_equal(schema.encode(np.array(rows, dtype=object)).X, encoded.X)
    by_name = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    assert np.array_equal(schema.encode(by_name).X, encoded.X)


@settings(max_examples=100, deadline=None)
@given(fitting())
def test_products_are_those_of_features_whether_written_for_codes_or_records(
    case: tuple[Schema, list[list[Any]]],
) -> None:
    schema, rows = case
    table = np.array(rows * 20, dtype=object)
    encoded = schema.encode(table)
    weights = np.random.default_rng(0).normal(size=(schema.n_features, 2))
    found = schema.products(schema.codes(table), weights)
    np.testing.assert_allclose(found, encoded.X / encoded.denominator @ weights, rtol=1e-12, atol=1e-12)
    alone = schema.products(schema.codes(np.array(rows[:1], dtype=object)), weights)
    assert np.array_equal(found[0], alone[0])  # to the bit: evaluations compare scores with edges


@settings(max_examples=100, deadline=None)
@given(fitting(), st.data())
def test_records_are_encoded_one_by_one(case: tuple[Schema, list[list[Any]]], data: st.DataObject) -> None:
    # The privacy statement of Schema: replacing one record replaces one row.
    schema, rows = case
    i = data.draw(st.integers(0, len(rows) - 1))
    X = schema.encode(np.array(rows, dtype=object)).X
    assert np.array_equal(schema.encode(np.array([rows[i]], dtype=object)).X[0], X[i])


@settings(max_examples=100, deadline=None)
@given(numerics("x"))
def test_denominator_is_the_least_one(column: Numeric) -> None:
    grid = [column.low + k * column.step for k in range(column.top + 1)]
    features = [(g - column.zero) / (column.one - column.zero) for g in grid]
    assert Schema([column]).denominator == math.lcm(*(f.denominator for f in features))
    assert column.reach == max(abs(f) for f in features)


@settings(max_examples=60, deadline=None)
@given(schemas())
def test_schemas_survive_dicts_and_files(tmp_path_factory: pytest.TempPathFactory, schema: Schema) -> None:
    assert Schema.from_dict(schema.to_dict()) == schema
    for name in ("schema.toml", "schema.json"):
        path = tmp_path_factory.mktemp("schemas") / name
        schema.save(path)
        assert Schema.load(path) == schema


@settings(max_examples=60, deadline=None)
@given(st.text(st.characters(codec="utf-8"), min_size=1), st.text(st.characters(codec="utf-8")))
def test_any_text_survives_files(tmp_path_factory: pytest.TempPathFactory, name: str, category: str) -> None:
    schema = Schema([Categorical(name, [category])])
    for suffix in (".toml", ".json"):
        path = (tmp_path_factory.mktemp("texts") / "s").with_suffix(suffix)
        schema.save(path)
        assert Schema.load(path) == schema


# --- figures from the paper's task ---


def test_multipliers_of_the_paper() -> None:
    # 7920 = lcm(90, 16, 99); 7920/90 = 88, 7920/16 = 495, 7920/99 = 80.
    encoded = PAPER.encode(pd.DataFrame({"sex": ["Male"], "hours": [40], "education-num": [13], "age": [39]}))
    assert encoded.denominator == PAPER.denominator == 7920
    assert encoded.X.tolist() == [[88 * 39, 495 * 13, 80 * 40, 0, 7920]]
    assert encoded.names == ["age", "education-num", "hours", "sex=Female", "sex=Male"]


def test_flags_are_all_features_but_those_of_numbers() -> None:
    gaps = MissingLevel(Numeric("pulse", 40, 120))
    schema = Schema([Numeric("age", 0, 100), Binned("hours", [0, 20, 40]), gaps], intercept=True)
    assert [schema.feature_names[j] for j in schema.flags] == [
        "hours in [0, 20)",
        "hours in [20, 40]",
        "pulse is missing",
        "intercept",
    ]


def test_names_and_the_last_bin() -> None:
    schema = Schema([Binned("age", [25, "32.5", 65])], intercept=True)
    assert schema.feature_names == ["age in [25, 32.5)", "age in [32.5, 65]", "intercept"]
    encoded = schema.encode({"age": [0, 25, 32.5, 64.9, 65, 99]})
    assert encoded.X.tolist() == [[1, 0, 1], [1, 0, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1], [0, 1, 1]]


def test_decimals_mean_what_they_print() -> None:
    # 0.15 is a tie between 0.1 and 0.2 although the nearest double lies below 3/20; 0.3 is on the grid.
    encoded = Schema([Numeric("x", 0, 1, step=0.1)]).encode({"x": [0.15, 0.3, 0.1 + 0.2, 0.25, 0.35]})
    assert encoded.denominator == 10
    assert encoded.X[:, 0].tolist() == [2, 3, 3, 3, 4]


def test_offsets_far_beyond_the_step_stay_exact() -> None:
    # At 2**52 + k doubles are 1 apart, and x / 0.5 - low / 0.5 has rounding errors of the order of the step.
    base = 2**52
    column = Numeric("x", base, base + 10, step=Fraction(1, 3), one=base + 1)
    values = [float(base + k) for k in range(11)]
    assert Schema([column]).encode({"x": values}).X[:, 0].tolist() == [3 * k for k in range(11)]


def test_one_yes_no_feature() -> None:
    schema = Schema([Categorical("sex", ["Female"], outside="ignore")])
    assert schema.encode({"sex": ["Male", "Female"]}).X.tolist() == [[0], [1]]


# --- kinds of tables and types ---


@pytest.mark.parametrize(
    "dtype", ["int64", "int8", "Int64", "float32", "Float64", "float64", "object", "category"]
)
def test_numeric_dtypes(dtype: str) -> None:
    frame = pd.DataFrame({"x": pd.Series([1, 3, 2], dtype=dtype)})
    assert Schema([Numeric("x", 1, 3)]).encode(frame).X[:, 0].tolist() == [0, 2, 1]
    assert Schema([Categorical("x", [3, 1, 2])]).encode(frame).X.tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1]]


ARROW_TEXT = pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))
UNUSED = pd.CategoricalDtype(["z", "a", "b"])


@pytest.mark.parametrize(
    "dtype", ["object", "string", "category", "str", "string[pyarrow]", ARROW_TEXT, UNUSED], ids=str
)
def test_text_dtypes(dtype: Any) -> None:
    frame = pd.DataFrame({"x": pd.Series(["b", "a"], dtype=dtype)})
    assert Schema([Categorical("x", ["a", "b"])]).encode(frame).X.tolist() == [[0, 1], [1, 0]]
    frame = pd.DataFrame({"x": pd.Series(["b", None], dtype=dtype)})
    with pytest.raises(SchemaError, match="missing"):
        Schema([Categorical("x", ["a", "b"])]).encode(frame)


@pytest.mark.parametrize("dtype", ["Int8", "Float32", "int64[pyarrow]", "double[pyarrow]", "boolean"])
def test_nullable_dtypes(dtype: str) -> None:
    frame = pd.DataFrame({"x": pd.array([1, 0], dtype=dtype)})
    assert Schema([Numeric("x", 0, 2, step=1, one=1)]).encode(frame).X[:, 0].tolist() == [1, 0]
    with pytest.raises(SchemaError, match=r"missing|NaN"):
        Schema([Numeric("x", 0, 1)]).encode(pd.DataFrame({"x": pd.array([1, None], dtype=dtype)}))


@pytest.mark.parametrize("dtype", ["bool", "boolean", "bool[pyarrow]", "object"])
def test_boolean_dtypes(dtype: str) -> None:
    frame = pd.DataFrame({"x": pd.array([True, False], dtype=dtype)})
    assert Schema([Categorical("x", [False, True])]).encode(frame).X.tolist() == [[0, 1], [1, 0]]


def test_parquet_keeps_nullable_types(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "n": pd.array([1, 2], dtype="Int16"),
            "t": pd.Categorical(["a", "b"], categories=["b", "a", "c"]),
            "f": pd.array([True, False], dtype="boolean"),
        }
    )
    frame.to_parquet(tmp_path / "t.parquet")
    schema = Schema([Numeric("n", 0, 2), Categorical("t", ["a", "b"]), Numeric("f", 0, 1)])
    # Over the denominator 2: n / 2, the categories, and the flag.
    assert schema.encode(read_table(tmp_path / "t.parquet")).X.tolist() == [[1, 2, 0, 2], [2, 0, 2, 0]]


def test_decimal_objects_and_booleans_are_numbers() -> None:
    assert Schema([Numeric("x", 0, 1)]).encode({"x": [Decimal("0.7"), 0, True]}).X[:, 0].tolist() == [1, 0, 1]
    assert Schema([Categorical("x", [False, True])]).encode({"x": np.array([True])}).X.tolist() == [[0, 1]]


def test_further_columns_of_frames_are_ignored_and_labels_may_be_numbers() -> None:
    frame = pd.DataFrame([[5, "x", 1]], columns=[0, "y", 1])
    assert Schema([Numeric("1", 0, 1), Numeric("0", 0, 5)]).encode(frame).X.tolist() == [[5, 5]]


def test_the_table_is_left_alone() -> None:
    frame = pd.DataFrame({"x": [0.3, 9.0]})
    before = frame.copy()
    Schema([Numeric("x", 0, 1)]).encode(frame)
    pd.testing.assert_frame_equal(frame, before)


# --- refusals ---

CONTRADICTIONS = {
    "no columns": lambda: Schema([]),
    "not a column": lambda: Schema(["age"]),  # type: ignore[list-item]
    "name twice": lambda: Schema([Numeric("x", 0, 1), Categorical("x", ["a"])]),
    "feature name twice": lambda: Schema([Numeric("x=a", 0, 1), Categorical("x", ["a"])]),
    "intercept twice": lambda: Schema([Numeric("intercept", 0, 1)], intercept=True),
    "no name": lambda: Numeric("", 0, 1),
    "low = high": lambda: Numeric("x", 1, 1),
    "low > high": lambda: Numeric("x", 2, 1),
    "same double": lambda: Numeric(
        "x", "1/3", Fraction(1, 3) + Fraction(1, 10**30), step=Fraction(1, 10**31)
    ),
    "step 0": lambda: Numeric("x", 0, 1, step=0),
    "step < 0": lambda: Numeric("x", 0, 1, step=-1),
    "step too large": lambda: Numeric("x", 0, 1, step=2),
    "step too fine": lambda: Numeric("x", 0, 1, step=Fraction(1, 2**53)),
    "step not a double": lambda: Numeric("x", 0, Fraction(1, 10**310), step=Fraction(1, 10**310)),
    "zero = one": lambda: Numeric("x", 0, 1, zero=1),
    "NaN bound": lambda: Numeric("x", math.nan, 1),
    "infinite bound": lambda: Numeric("x", 0, math.inf),
    "bound beyond doubles": lambda: Numeric("x", 0, 10**400),
    "exponent in text": lambda: Numeric("x", 0, "1e999999999"),
    "bound is text": lambda: Numeric("x", 0, "one"),
    "bound over 0": lambda: Numeric("x", 0, "1/0"),
    "bound is a boolean": lambda: Numeric("x", False, 1),
    "outside of another kind": lambda: Numeric("x", 0, 1, outside="ignore"),  # type: ignore[arg-type]
    "no categories": lambda: Categorical("x", []),
    "categories are one text": lambda: Categorical("x", "abc"),
    "category twice": lambda: Categorical("x", ["a", "a"]),
    "mixed categories": lambda: Categorical("x", ["a", 1]),
    "float categories": lambda: Categorical("x", [0.5]),  # type: ignore[list-item]
    "clipped categories": lambda: Categorical("x", ["a"], outside="clip"),  # type: ignore[arg-type]
    "one edge": lambda: Binned("x", [1]),
    "edges not increasing": lambda: Binned("x", [1, 3, 3]),
    "edges are one text": lambda: Binned("x", "123"),
    "denominator too large": lambda: Schema([Numeric(f"x{p}", 0, p) for p in (2**27 - 39, 2**27 - 79)]),
    "feature too large": lambda: Schema([Numeric("x", 2**52, 2**52 + 1, zero=0, one="1/2")]),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradictory_declarations_are_refused(name: str) -> None:
    with pytest.raises(SchemaError) as caught:
        CONTRADICTIONS[name]()
    assert isinstance(caught.value, InvalidInputError)


NUMBER, TEXT = Numeric("income", 0, 10), Categorical("town", ["here"])
SECRET, SECRET_TEXT = 48213.625, "Zanzibar"

# (declaration, table, what the message must name)
MISFITS: dict[str, tuple[Column, Any, str]] = {
    "missing column": (NUMBER, {"other": [SECRET]}, "income"),
    "column twice": (NUMBER, pd.DataFrame([[SECRET, 1]], columns=["income", "income"]), "income"),
    "NaN": (NUMBER, {"income": [SECRET, math.nan]}, "income"),
    "None": (NUMBER, {"income": [SECRET, None]}, "income"),
    "pandas NA": (NUMBER, pd.DataFrame({"income": pd.array([48213, None], dtype="Int64")}), "income"),
    "infinity": (Numeric("income", 0, 10**9, outside="refuse"), {"income": [SECRET, math.inf]}, "[0, 10"),
    "beyond doubles": (Binned("income", [0, 10**9], outside="refuse"), {"income": [10**400]}, "[0, 10"),
    "text among numbers": (NUMBER, {"income": [SECRET, SECRET_TEXT]}, "income"),
    "text that is no number": (NUMBER, {"income": np.array([f"{SECRET} EUR"])}, "income"),
    "dates": (NUMBER, pd.DataFrame({"income": pd.to_datetime(["2048-02-13"])}), "income"),
    "complex": (NUMBER, {"income": np.array([SECRET * 1j])}, "income"),
    "outside, refused": (Numeric("income", 0, 10, outside="refuse"), {"income": [SECRET]}, "[0, 10]"),
    "outside bins, refused": (Binned("income", [0, 10], outside="refuse"), {"income": [SECRET]}, "[0, 10]"),
    "NaN in bins": (Binned("income", [0, 10]), {"income": [SECRET, math.nan]}, "income"),
    "undeclared category": (TEXT, {"town": ["here", SECRET_TEXT]}, "town"),
    "missing category": (TEXT, {"town": ["here", None]}, "town"),
    "numbers for text": (TEXT, {"town": [SECRET]}, "town"),
    "text for numbers": (Categorical("town", [1, 2]), {"town": [SECRET_TEXT]}, "town"),
    "lists": (TEXT, {"town": np.array([[SECRET_TEXT], None], dtype=object)}, "town"),
    "date categories": (TEXT, {"town": np.array(["2048-02-13"], dtype="datetime64[D]")}, "town"),
    "no columns": (NUMBER, {}, "no columns"),
    "lengths differ": (NUMBER, {"income": [SECRET], "town": [1, 2]}, "same length"),
    "scalars": (NUMBER, {"income": SECRET}, "one-dimensional"),
    "one-dimensional array": (NUMBER, np.array([SECRET]), "shape"),
    "too many columns": (NUMBER, np.array([[SECRET, 1.0]]), "declared"),
    "a list": (NUMBER, [[SECRET]], "data frame"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_tables_that_do_not_fit_are_refused_without_their_values(name: str) -> None:
    column, table, named = MISFITS[name]
    with pytest.raises(SchemaError) as caught:
        Schema([column]).encode(table)
    message = str(caught.value)
    assert named in message
    assert all(secret not in message for secret in ("48213", SECRET_TEXT, "2048"))


@settings(max_examples=100, deadline=None)
@given(st.floats(1e3, 1e300), st.text("qwxyz", min_size=6), st.integers(0, 5))
def test_refusals_never_repeat_a_value(number: float, text: str, position: int) -> None:
    schema = Schema([Numeric("a", 0, 1, outside="refuse"), Categorical("b", ["k"])])
    numbers, texts = [0.5] * 6, ["k"] * 6
    numbers[position], texts[position] = number, text
    for table in ({"a": numbers, "b": ["k"] * 6}, {"a": [0.5] * 6, "b": texts}):
        with pytest.raises(SchemaError) as caught:
            schema.encode(table)
        assert text not in str(caught.value)
        assert repr(number) not in str(caught.value)
        assert caught.value.__cause__ is None


# --- files ---

AGE = {"kind": "numeric", "name": "age", "low": 0, "high": 9}
BAD_FILES = {
    "unknown key of the schema": {"columns": [AGE], "target": "y"},
    "unknown key of a column": {"columns": [AGE | {"max": 9}]},
    "missing key": {"columns": [{"kind": "numeric", "name": "age", "low": 0}]},
    "missing columns": {"intercept": True},
    "unknown kind": {"columns": [AGE | {"kind": "ordinal"}]},
    "no kind": {"columns": [{"name": "age"}]},
    "columns are text": {"columns": "age"},
    "a column is text": {"columns": ["age"]},
    "a list": [AGE],
    "intercept is a number": {"columns": [AGE], "intercept": 1},
    "bound is a list": {"columns": [AGE | {"low": [0]}]},
    "name is a number": {"columns": [AGE | {"name": 3}]},
    "outside is a list": {"columns": [AGE | {"outside": ["clip"]}]},
    "category is a list": {"columns": [{"kind": "categorical", "name": "a", "categories": [["b"]]}]},
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_schema_data_is_refused(name: str) -> None:
    with pytest.raises(SchemaError):
        Schema.from_dict(BAD_FILES[name])


@pytest.mark.parametrize(
    ("name", "content"),
    [("s.toml", b"intercept ="), ("s.json", b"{"), ("s.json", b"[]"), ("s.toml", b"\xff"), ("s.yaml", b"")],
)
def test_bad_schema_files_are_refused(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SchemaError, match=r"s\.(toml|json|yaml)"):
        Schema.load(tmp_path / name)


def test_a_missing_schema_file_and_a_bad_target_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"none\.toml"):
        Schema.load(tmp_path / "none.toml")
    with pytest.raises(SchemaError, match=r"\.toml or \.json"):
        PAPER.save(tmp_path / "schema.yaml")


def test_the_documented_file_reads_as_documented(tmp_path: Path) -> None:
    listing = (Schema.__doc__ or "").split("the same keys):")[1].split("Args:")[0]
    (tmp_path / "s.toml").write_text("\n".join(line.strip() for line in listing.splitlines()), "utf-8")
    assert Schema.load(tmp_path / "s.toml") == Schema(
        [
            Numeric("age", 17, 90, 1, zero=0, one=90),
            Categorical("sex", ["Female", "Male"]),
            Binned("hours", [1, 35, 41, Fraction(199, 2)]),
            Date("admitted", ["2020-01-01", "2022-01-01", "2024-01-01"]),
        ],
        intercept=True,
    )


def test_tables_are_read_alike_from_csv_and_parquet(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [0.1 + 0.2, 1e-7], "town": ["NA", "None"]})
    for name in ("t.csv", "t.csv.gz"):
        frame.to_csv(tmp_path / name, index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.csv.gz", "t.parquet"):
        read = read_table(tmp_path / name)
        assert read["x"].tolist() == frame["x"].tolist()
        assert read["town"].tolist() == ["NA", "None"]


def test_empty_csv_cells_are_missing(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,town\n,here\n1,\n")
    table = read_table(tmp_path / "t.csv")
    for column in (Numeric("x", 0, 1), Categorical("town", ["here"])):
        with pytest.raises(SchemaError, match=r"missing|NaN"):
            Schema([column]).encode(table)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("t.csv", b"a,b\n1,2\n48213,Zanzibar,3,4\n", "line 3: 4 cells where the header has 2"),
        ("t.csv", b"a,b\n48213,Zanzibar,3\n48213,Zanzibar,3\n", "line 2: 3 cells where the header has 2"),
        ("t.csv", b"a,b\n1,2\n\n48213\n1,2\n", "line 4: 1 cells where the header has 2"),
        ("t.csv", b'a,b\n1,2\n48213,"Zanzibar\n3,4\n', "quote"),
        ("t.csv", b"", "first line"),
        ("t.csv", b"\n\n", "first line"),
        ("t.csv", b"48213,Zanzibar, 48213\n1,2,3\n", "columns 1 and 3 have the same name"),
        ("t.csv", b"a\n\xff\n", "UTF-8"),
        ("t.csv", "a\nZanzibar\n".encode("utf-16"), "UTF-8"),
        ("t.csv.gz", b"Zanzibar", "gzip"),
        ("t.csv.gz", gzip.compress(b"a,b\n48213,Zanzibar\n", mtime=0)[:-9], "gzip"),
        ("t.parquet", b"48213", "not a Parquet file"),
        ("t.xlsx", b"", "end in .csv"),
    ],
)
def test_tables_that_cannot_be_read_are_refused_without_content(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SchemaError, match=name.split(".")[1]) as caught:
        read_table(tmp_path / name)
    # Parsers quote bytes; line numbers and numbers of cells say where to look, and nothing about records.
    assert all(told not in str(caught.value) for told in ("48213", "Zanzibar", "byte"))
    assert reason in str(caught.value)
    with pytest.raises(SchemaError, match="no such file" if name != "t.xlsx" else "end in"):
        read_table(tmp_path / ("absent" + name))


def test_parquet_columns_are_distinct(tmp_path: Path) -> None:
    table = pa.table([pa.array([1]), pa.array([2])], names=["x", "x"])
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match="columns 1 and 2 have the same name"):
        read_table(tmp_path / "t.parquet")


def test_a_folder_is_not_a_table(tmp_path: Path) -> None:
    (tmp_path / "t.csv").mkdir()
    with pytest.raises(SchemaError, match="folder"):
        read_table(tmp_path / "t.csv")


@pytest.mark.parametrize(
    "content",
    [
        "\ufeffage,town\n40,a\n50,b\n",  # the mark that spreadsheets put first
        "age;town\n40;a\n50;b\n",
        "age\ttown\r\n40\ta\r\n50\tb\r\n",
        'age,"town"\n\n40,"a"\n50,b\n\n',
        "age,town\r40,a\r50,b\r",
    ],
)
def test_csv_dialects(tmp_path: Path, content: str) -> None:
    (tmp_path / "t.csv").write_text(content, "utf-8", newline="")
    table = read_table(tmp_path / "t.csv")
    assert table.to_dict("list") == {"age": [40, 50], "town": ["a", "b"]}


def test_cells_of_text_columns_are_read_as_written(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("zip,flag,n\n01234,true,1\n,false,2\n")
    schema = Schema([Categorical("zip", ["01234"]), Categorical("flag", [False, True]), Numeric("n", 0, 2)])
    assert schema.text_columns == ["zip", "flag", "n"]
    table = read_table(tmp_path / "t.csv", schema=schema)
    assert table.equals(read_table(tmp_path / "t.csv", schema.text_columns))
    assert table.iloc[0].tolist() == ["01234", "true", "1"]
    assert table["zip"].isna().tolist() == [False, True]  # an empty cell is missing still
    assert read_table(tmp_path / "t.csv")["flag"].tolist() == [True, False]
    assert schema.encode(table.iloc[:1]).X.tolist() == [[2, 0, 2, 1]]
    assert read_table(tmp_path / "t.csv", ["n"])["n"].tolist() == ["1", "2"]  # labels, say
    with pytest.raises(SchemaError, match=r"Schema\.load"):
        read_table(tmp_path / "t.csv", schema={"columns": []})  # type: ignore[arg-type]


@pytest.mark.parametrize("other", ["7", "x", ""])
def test_with_a_schema_no_cell_changes_what_another_means(other: str, tmp_path: Path) -> None:
    """Without it the column is read as numbers beside 7, and as text beside x."""
    days = [date(year, 1, 1) for year in (2020, 2021, 2022)]
    schema = Schema(
        [
            Categorical("ward", ["01", "1"], "ignore", missing="1"),
            Date("day", days, format="%Y%m%d", missing=days[0]),
            MissingLevel(Binned("cost", [0, 100, 2000], thousands=".", decimal=",")),
        ]
    )
    rows = ["01,20210203,1.234", ",".join([other] * 3)]
    (tmp_path / "t.csv").write_text("\n".join(["ward,day,cost", *rows]))
    codes = schema.codes(read_table(tmp_path / "t.csv", schema=schema))
    assert [code[0] for code in codes] == [0, 1, 1]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("age,Smoker ,town", "'smoker' (column 2 of the table has a similar name). The table has 3 columns"),
        ("weight,town", "'age', column 'smoker'. The table has 2 columns"),
        ("48213,Zanzibar,age", "'smoker'. The table has 3 columns"),
        ("age", "'smoker'. The table has 1 column,"),
    ],
)
def test_missing_columns_are_listed_and_names_of_the_table_are_not(header: str, told: str) -> None:
    schema = Schema([Numeric("age", 0, 100), Categorical("smoker", ["no", "yes"])])
    with pytest.raises(SchemaError) as caught:
        schema.encode(pd.DataFrame([[1] * len(header.split(","))], columns=header.split(",")))
    assert told in str(caught.value)
    assert str(caught.value).endswith("is the first line of the file its header?")
    assert "Zanzibar" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Numeric("age", 90, 17), "got low = 90, high = 17"),
        (lambda: Numeric("age", 0, 10, step=20), "high - low = 10; got 20"),
        (lambda: Numeric("age", 0, 10, zero=10), "both are 10"),
        (lambda: Numeric("age", 0, 10, outside="clp"), "did you mean 'clip'?"),  # type: ignore[arg-type]
        (lambda: Numeric("age", "old", 10), "got 'old'"),
        (lambda: Numeric("age", 10**9999, 10), "a number beyond 64-bit floats"),
        (lambda: Binned("age", [1, 5, 3]), "got 5 before 3"),
        (lambda: Categorical("age", ["a", "b", "a"]), "'a' occurs twice"),
        (lambda: Schema.from_dict({"columns": [{"kind": "numerical", "name": "age"}]}), "mean 'numeric'?"),
        (lambda: Schema.from_dict({"columns": [{"name": "age"}]}), "got none"),
        (
            lambda: Schema.from_dict({"columns": [{"kind": "numeric", "name": "age", "lwo": 0, "high": 1}]}),
            "'lwo' (did you mean 'low'?)",
        ),
    ],
)
def test_declarations_are_refused_with_what_was_declared(make: Callable[[], object], told: str) -> None:
    with pytest.raises(SchemaError, match="'age'") as caught:
        make()
    assert told in str(caught.value)


# --- the draft ---


def draft(table: Any, **options: bool) -> Schema:
    with pytest.warns(PrivacyLeakWarning, match="Schema"):
        return Schema.infer(table, **options)


SCALES = st.sampled_from([1e-300, 1e-12, 1e-3, 1.0, 1e5, 1e18, 1e300])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20), st.sampled_from([0.0, 1.0, -1.0]), SCALES)
def test_drafts_fit_numbers_of_any_scale(values: list[float], shift: float, scale: float) -> None:
    x = np.array(values) * scale + shift * scale
    schema = draft(np.column_stack([x, np.arange(len(x))]))
    column = schema.columns[0]
    assert isinstance(column, Numeric)
    assert column.top <= 102  # 100 steps, and one more at each end for rounding the bounds
    assert 120 % schema.denominator == 0
    assert float(column.low) <= x.min()
    assert x.max() <= float(column.high)
    encoded = schema.encode(np.column_stack([x, np.arange(len(x))]))
    assert encoded.X.min() >= 0
    assert encoded.X.max() <= encoded.denominator
    # Order survives, and the distance of grid points is at most a fortieth of the range (100 / 2.5).
    assert np.all(np.diff(encoded.X[np.argsort(x), 0]) >= 0)
    spread = Fraction(repr(float(x.max()))) - Fraction(repr(float(x.min())))
    if scale > 1e-300:
        assert column.step <= max(spread / 40, Fraction(1)) or spread == 0


@pytest.mark.parametrize("digits", [1, 13, 19, 2, 21, 37, 5, 51, 77, 9, 99, 999999, 10**15 + 1])
@pytest.mark.parametrize("power", [-30, -3, 0, 1, 18])
def test_steps_of_drafts_are_the_next_of_one_two_and_five(digits: int, power: int) -> None:
    q = digits * Fraction(10) ** power
    nice = sorted(m * Fraction(10) ** k for m in (1, 2, 5) for k in range(power - 2, power + 18))
    assert _round_up(q) == next(step for step in nice if step >= q)


def test_drafts_keep_small_integers_apart() -> None:
    schema = draft(
        {"n": [3, 7, 5], "flag": np.array([True, False, True]), "t": ["b", "a", "b"]}, intercept=True
    )
    assert schema.columns == (
        Numeric("n", 3, 7, 1),
        Numeric("flag", 0, 1, 1),
        Categorical("t", ["a", "b"], outside="ignore"),
    )
    assert schema.intercept


def test_drafts_of_constant_columns() -> None:
    for constant in (0, 5, -3, 0.3, 1e300, -1e-9):
        table = np.full((4, 1), constant)
        encoded = draft(table).encode(table)
        assert len(set(encoded.X[:, 0].tolist())) == 1


def test_drafts_of_many_float_columns_share_a_denominator() -> None:
    rng = np.random.default_rng(5)
    table = rng.normal(size=(50, 40)) * 10.0 ** rng.integers(-8, 9, size=40)
    assert 120 % draft(table).denominator == 0


def test_drafts_are_of_the_kind_of_most_cells() -> None:
    """One cell flips nothing; it, and cells that are missing, become a level."""
    column = draft({"x": ["1", 2, "3", "x", None]}).columns[0]
    assert column == MissingLevel(Numeric("x", 1, 3, 1))
    column = draft({"x": ["a", "b", "b", 7, None]}).columns[0]
    assert column == MissingLevel(Categorical("x", ["a", "b"], outside="ignore"))
    assert draft({"x": ["a", 1]}).columns[0] == Categorical("x", ["a"], outside="ignore")


def test_drafts_refuse_what_cannot_be_encoded() -> None:
    for table in ({"x": [b"a", None]}, {"x": [math.inf]}, {"x": [f"t{k}" for k in range(1001)]}):
        with pytest.warns(PrivacyLeakWarning), pytest.raises(SchemaError, match="column 1 of the table"):
            Schema.infer(table)


def test_a_draft_names_all_columns_that_cannot_be_drafted() -> None:
    table = {"id": [f"t{k}" for k in range(1001)], "n": range(1001), "gap": [b"a"] * 1001}
    with (
        pytest.warns(PrivacyLeakWarning),
        pytest.raises(SchemaError, match=r"column 1 .*; column 3 ") as caught,
    ):
        Schema.infer({k: np.array(v, dtype=object) for k, v in table.items()})
    assert "column 2" not in str(caught.value)
    wide = {f"t{k}": np.array([b"a", ()], dtype=object) for k in range(100)}
    with pytest.warns(PrivacyLeakWarning), pytest.raises(SchemaError, match=r"; \.\.\.$"):
        Schema.infer(wide)


def test_declared_schemas_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PAPER.encode({"age": [20], "education-num": [3], "hours": [9], "sex": ["Male"]})


def test_unnamed_and_named_columns() -> None:
    assert [name for name, _ in columns_of(np.zeros((2, 2)))] == [None, None]
    assert [name for name, _ in columns_of(pd.DataFrame(np.zeros((2, 2))))] == ["0", "1"]
    assert [c.name for c in draft(np.zeros((2, 2))).columns] == ["x0", "x1"]


def missing_columns() -> list[Any]:
    return [
        Numeric("zero", 0, 1, missing=0),
        Numeric("age", 0, 100, step=10, zero=0, one=10, missing=40),
        Binned("hours", [0, 20, 60], missing="20"),
        Categorical("town", ["here", "unknown"], missing="unknown"),
        Categorical("smoker", [False, True], missing=False),
        Categorical("rare", ["x"], outside="ignore", missing="none"),
    ]


@pytest.mark.parametrize("file", ["t.csv", "t.parquet", None])
def test_missing_values_are_read_as_declared(file: str | None, tmp_path: Path) -> None:
    """As an empty cell, None, NaN, NA or NaT; a record without them stays what it was."""
    table = pd.DataFrame(
        {
            "zero": [None, 1.0],
            "age": [None, 70.0],
            "hours": pd.array([None, 5], dtype="Int64"),
            "town": [None, "here"],
            "smoker": pd.array([None, True], dtype="boolean"),
            "rare": [None, "x"],
        }
    )
    if file == "t.csv":
        table.to_csv(tmp_path / file, index=False)
    elif file:
        table.to_parquet(tmp_path / file)
    read = read_table(tmp_path / file) if file else table
    schema = Schema(missing_columns())
    assert schema.encode(read).X.tolist() == [[0, 4, 0, 1, 0, 1, 1, 0, 0], [1, 7, 1, 0, 1, 0, 0, 1, 1]]
    for name in ("schema.toml", "schema.json"):
        schema.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == schema
    assert Schema(missing_columns()[:1]) != Schema([Numeric("age", 0, 100, step=10, zero=0, one=10)])


def test_a_record_is_encoded_alike_whatever_else_is_missing() -> None:
    """Another record's missing value must not change how this one is read."""
    columns = [Numeric("x", 0, 1, step="1/1000", missing=0), Categorical("k", [0, 1, 2], missing=2)]
    complete = Schema(columns).encode({"x": [0.1234, 0.5], "k": [1, 0]}).X
    holed = Schema(columns).encode({"x": [0.1234, None], "k": [1, None]}).X
    floats = Schema(columns).encode({"x": np.array([0.1234, np.nan]), "k": np.array([1.0, np.nan])}).X
    assert complete[0].tolist() == holed[0].tolist() == floats[0].tolist()
    assert holed.tolist() == floats.tolist()


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (Numeric, {"low": 0, "high": 1, "missing": 2}, r"missing must lie in \[0, 1\]; got 2"),
        (Numeric, {"low": 0, "high": 1, "missing": "nan"}, "missing must be a finite number"),
        (Binned, {"edges": [0, 1], "missing": -1}, r"missing must lie in \[0, 1\]"),
        (Categorical, {"categories": [0, 2**53]}, "below 2.53"),
        (Categorical, {"categories": [0], "missing": -(2**53), "outside": "ignore"}, "below 2.53"),
        (Categorical, {"categories": ["a"], "missing": "b"}, "not among the categories"),
        (Categorical, {"categories": ["a"], "missing": 1, "outside": "ignore"}, "type of the categories"),
    ],
)
def test_what_missing_may_be(kind: Callable[..., Any], given: dict[str, Any], told: str) -> None:
    with pytest.raises(SchemaError, match=told):
        kind("x", **given)


@pytest.mark.parametrize(
    "values",
    [
        np.array([["x"], ["2 EUR"]]),
        np.array([[b"1"], [b"2"]]),
        np.array([["2026-01-01"], ["NaT"]], dtype="datetime64[D]"),
        np.array([[(1,)], [None]], dtype=object),
    ],
    ids=["text", "bytes", "dates", "tuples"],
)
def test_what_is_not_a_number_is_missing_where_missing_values_are_declared(values: Any) -> None:
    for column in (Numeric("x", 0, 2, missing=2), Binned("x", [0, 1, 2], missing=2)):
        codes = Schema([column]).codes(np.vstack([np.array([[0.0]]).astype(object), values.astype(object)]))
        assert codes[0].tolist() == [0, column.n_codes - 1, column.n_codes - 1]
        refusing = Numeric("x", 0, 2) if isinstance(column, Numeric) else Binned("x", [0, 1, 2])
        with pytest.raises(SchemaError, match=r"column 'x': numbers are needed.*missing_level"):
            Schema([refusing]).encode(values)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, "Float32", object])
def test_what_is_missing_is_as_declared_in_tables_of_any_precision(dtype: Any) -> None:
    table = pd.DataFrame({"x": pd.array([0.5, np.nan], dtype=dtype)})
    assert Schema([Binned("x", [0, "0.7", 1], missing="0.7")]).encode(table).X.tolist() == [[1, 0], [0, 1]]
    exact = Numeric("x", 0, 100_000, step="0.2", one=1, missing=100_000)
    assert Schema([exact]).encode(table).X[1, 0] == 500_000 * Schema([exact]).denominator // 5


def test_a_table_without_records_has_no_rows_of_features(tmp_path: Path) -> None:
    """Predictions for a file that holds a header alone are a header alone; a schema is not read off it."""
    schema = Schema([Numeric("age", 0, 100), Categorical("town", ["here"])], intercept=True)
    (tmp_path / "t.csv").write_text("age,town\n")
    for table in (pd.DataFrame({"age": [], "town": []}), read_table(tmp_path / "t.csv", ["town"])):
        assert schema.encode(table).X.shape == (0, 3)
        with pytest.warns(PrivacyLeakWarning), pytest.raises(SchemaError, match="no records"):
            Schema.infer(table)


def test_frames_of_other_libraries_are_read_as_pandas_reads_them() -> None:
    import pyarrow

    schema = Schema([Numeric("age", 18, 98, missing=50), Categorical("smoker", ["no", "yes"])])
    columns = {"smoker": ["no", "yes", "no"], "age": [20, None, 77], "more": [1, 2, 3]}
    expected = schema.encode(columns).X.tolist()
    assert schema.encode(pyarrow.table(columns)).X.tolist() == expected
    with pytest.raises(SchemaError, match="got list"):
        schema.encode([[1, 2]])  # type: ignore[arg-type]
    broken = type("Frame", (), {"to_pandas": lambda self: 1 / 0})()
    with pytest.raises(SchemaError, match="select the columns"):
        schema.encode(broken)
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(columns)
    for smoker in (polars.String, polars.Categorical, polars.Enum(["yes", "no"])):
        assert schema.encode(frame.with_columns(polars.col("smoker").cast(smoker))).X.tolist() == expected
    with pytest.raises(SchemaError, match="LazyFrame: call its collect"):
        schema.encode(frame.lazy())


# --- numbers in bins ---


@pytest.mark.parametrize("monotone", ["up", True, 1])
def test_points_rise_or_fall_and_do_nothing_else(monotone: object) -> None:
    with pytest.raises(SchemaError, match='monotone is "rising" or "falling"; got'):
        PointRule.of("age", "numeric", {"monotone": monotone})


def test_the_column_of_persons_has_a_name() -> None:
    for person in (3, ["id"], True):
        with pytest.raises(SchemaError, match="person must be the name of a column"):
            Schema([Numeric("age", 0, 90)], person=person)  # type: ignore[arg-type]


def test_points_of_a_number_that_is_turned_around_fall_where_it_rises() -> None:
    age, turned = point_columns([Numeric("age", 0, 90), Numeric("age", 0, 90, zero=90, one=0)])
    assert (age.direction, turned.direction) == (1, -1)


def test_numbers_are_put_in_bins_without_a_change_of_anything_else() -> None:
    given = Schema(
        [
            Numeric("age", 17, 90, na_values=["unknown"]),
            MissingLevel(Numeric("gain", 0, 1000, step=1)),
            Numeric("rate", "0", "1/2", step="1/10", decimal=","),
            Categorical("sex", ["f", "m"]),
            Binned("hours", [0, 20, 40, 99]),
        ],
        intercept=True,
        labels={"age": "Age of the patient"},
        units={"age": "years"},
        constraints=["at most 3 columns"],
        person="id",
    )
    binned = given.with_bins()
    age, gain, rate, sex, hours = binned.columns
    assert isinstance(age, Binned)
    assert age.edges == (17, *map(Fraction, ("25.5", "34.5", "44.5", "53.5", "62.5", "72.5", "81.5")), 90)
    assert age.na_values == ("unknown",)
    assert isinstance(gain, MissingLevel)
    assert isinstance(gain.column, Binned)
    assert [float(e) for e in gain.column.edges[:5]] == [0, 7.5, 15.5, 30.5, 62.5]
    assert isinstance(rate, Binned)
    assert rate.notation.decimal == ","
    assert (sex, hours) == given.columns[3:]
    assert (binned.intercept, binned.constraints, binned.person) == (True, given.constraints, "id")
    assert binned.titles == given.titles
    assert binned.with_bins() == binned
    assert Schema.from_dict(binned.to_dict()) == binned


@given(st.integers(-50, 50), st.integers(1, 400), st.sampled_from(["1/10", "1/4", "1", "7"]))
@settings(max_examples=60, deadline=None)
def test_a_grid_point_is_in_one_bin_with_all_that_is_rounded_to_it(low: int, size: int, step: str) -> None:
    top = Fraction(step) * size
    number = Numeric("x", low, low + top, step=step)
    plain, binned = Schema([number]), Schema([number]).with_bins()
    assert 1 <= binned.n_features <= 12
    values = np.linspace(low - 1, float(low + top) + 1, 997)
    (points,), (bins,) = plain.codes({"x": values}), binned.codes({"x": values})
    of_point = {int(p): {int(b) for b in bins[points == p]} for p in np.unique(points)}
    assert all(len(found) == 1 for found in of_point.values())
    assert np.all(np.diff(bins) >= 0)
