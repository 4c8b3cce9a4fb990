"""Reading of one record never depends on another: columns and labels, whatever holds them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.mechanisms.estimators.labels import checked_labels, class_indices, public_classes
from privopt.problems import Binned, Categorical, InvalidInputError, Numeric, Schema
from privopt.problems.tables.columns import Column
from privopt.problems.tables.reading import read_table

BIG = 1 << 53
WHOLE = [0, 1, 2, -1, BIG - 1, BIG, BIG + 1, -BIG - 1, 2**63, 2**64 - 1, 10**30, True, False]
NUMPY = [np.True_, np.int8(1), np.uint64(2**64 - 1), np.float32(0.1), np.float32(2**24), np.float16(1)]
TEXTS = ["0", "1", "1.0", "01", "a", "A", "a ", "a\0", "", "nan", "True", "9007199254740993"]
OTHERS = [0.5, 1.0, 0.1, 1e300, math.nan, None, Decimal(1), Decimal("0.1"), (1,), b"a"]
VALUES = st.sampled_from([*WHOLE, *NUMPY, *TEXTS, *OTHERS])

COLUMNS: list[Column] = [
    Numeric("x", 0, 2, step="1/1000", missing=0),
    Numeric("x", -(2**62), 2**62, step=2**12),
    Binned("x", [-BIG, 0, "0.1", "0.5", 1, BIG], missing=0),
    Categorical("x", [0, 1, 2, BIG - 1], outside="ignore", missing=2),
    Categorical("x", [False, True]),
    Categorical("x", ["0", "1", "01", "a", "True", "9007199254740993"], outside="ignore", missing="0"),
]


def as_array(values: list[Any]) -> Any:
    """NumPy itself turns what stands beside text or bytes into these: what is left then is not ours."""
    if any(0 < sum(isinstance(v, kind) for v in values) < len(values) for kind in (str, bytes)):
        raise TypeError
    return np.array(values)


def in_categories(values: list[Any]) -> Any:
    """As Python tells values apart: pandas itself makes one category of np.True_ and (1,), now and then."""
    known = {v: k for k, v in enumerate(dict.fromkeys(v for v in values if not pd.isna(v)))}
    codes = [-1 if pd.isna(v) else known[v] for v in values]
    return pd.Categorical.from_codes(codes, pd.Index([*known], dtype=object, tupleize_cols=False))


# Each container decides on a type for all of the records together.
CONTAINERS: dict[str, Callable[[list[Any]], Any]] = {
    "list": lambda values: {"x": values},
    "frame": lambda values: pd.DataFrame({"x": values}),
    "nullable": lambda values: pd.DataFrame({"x": pd.Series(values).convert_dtypes()}),
    "category": lambda values: pd.DataFrame({"x": in_categories(values)}),
    "array": lambda values: {"x": as_array(values)},
    "objects": lambda values: pd.DataFrame({"x": pd.Series(values, dtype=object)}),
}
SETTINGS = settings(deadline=None, suppress_health_check=list(HealthCheck))


def read(encode: Callable[[list[Any]], Any], values: list[Any]) -> Any:
    """Its rows, or None where the package, or the container before it, refuses."""
    try:
        return encode(values)
    except (InvalidInputError, TypeError, ValueError, OverflowError, NotImplementedError, Warning):
        return None


def check(encode: Callable[[list[Any]], Any], values: list[Any], other: Any, place: int) -> None:
    before = read(encode, values)
    after = read(encode, [*values[:place], other, *values[place + 1 :]])
    if before is None or after is None:
        return
    for i in range(len(values)):
        if i != place:
            assert np.array_equal(before[i], after[i])


def check_examples(encode: Callable[[list[Any]], Any], examples: int) -> None:
    @settings(SETTINGS, max_examples=examples)
    @given(values=st.lists(VALUES, min_size=2, max_size=3), other=VALUES, place=st.integers(0, 1))
    def checked(values: list[Any], other: Any, place: int) -> None:
        check(encode, values, other, place)

    checked()


FEW_OR_MANY = pytest.mark.parametrize("examples", [50, pytest.param(300, marks=pytest.mark.slow)])


@FEW_OR_MANY
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: f"{type(c).__name__}-{c.levels[-1]}")
def test_a_row_of_features_is_its_record_s(column: Column, container: str, examples: int) -> None:
    schema = Schema([column])
    check_examples(lambda values: schema.encode(CONTAINERS[container](values)).X, examples)


@FEW_OR_MANY
@pytest.mark.parametrize("column", COLUMNS, ids=lambda c: f"{type(c).__name__}-{c.levels[-1]}")
def test_a_line_of_a_file_is_its_record_s(tmp_path: Path, column: Column, examples: int) -> None:
    schema, file = Schema([column]), tmp_path / "t.csv"

    def encode(values: list[Any]) -> Any:
        cells = ["" if v is None else str(v) for v in values]
        pd.DataFrame({"x": cells, "y": 0}).to_csv(file, index=False)
        return schema.encode(read_table(file, schema.text_columns)).X

    check_examples(encode, examples)


CLASSES: list[Any] = [(0, 1), (True, False), (1.0, -1.0), ("0", "a"), (BIG - 1, 0), (2**24, 1), (0, 1, 2)]
LABELS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "array": as_array,
    "series": pd.Series,
    "nullable": lambda values: pd.Series(values).convert_dtypes(),
    "objects": lambda values: np.array(values, dtype=object),
}


@FEW_OR_MANY
@pytest.mark.parametrize("container", LABELS)
@pytest.mark.parametrize("classes", CLASSES, ids=str)
def test_the_class_of_a_label_is_its_own(classes: Any, container: str, examples: int) -> None:
    known = public_classes(classes, np.array([]))
    made = LABELS[container]
    check_examples(lambda v: class_indices(checked_labels(made(v), len(v)), known), examples)


@pytest.mark.parametrize("estimator", [PrivateHalfspaceClassifier, PrivateLogisticRegression])
def test_classes_that_one_float_merges_are_refused(estimator: Any) -> None:
    """One label written as a float moved all labels of the class beside it, with classes declared."""
    classes, X = (BIG, BIG + 1), np.zeros((1000, 1))
    labels = [classes[i % 2] for i in range(1000)]
    moved = np.array([*labels[:-1], float(labels[-1])])
    assert np.sum(moved == classes[0]) > np.sum(np.array(labels) == classes[0])
    schema = Schema([Numeric("x", 0, 1)])
    for y in (labels, moved):
        with pytest.raises(InvalidInputError, match=r"below 2.53 in absolute value; declare them as text"):
            estimator(1.0, schema=schema, classes=classes).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(InvalidInputError, match=r"below 2.53"):
            estimator(1.0, schema=schema).fit(X, labels)


def test_labels_are_compared_as_categories_are() -> None:
    """As a declared column of the same values: the same rows, or a refusal of both."""
    for classes in ((0, 1), ("0", "1")):
        column = Categorical("x", classes)
        for y in ([0, 1], [0.0, 1], [False, True], ["0", "1"], ["0", " 1"], [0, 2], np.float32([0, 1])):
            known = public_classes(classes, np.array([]))
            labels = read(lambda v: class_indices(checked_labels(v, 2), known), y)  # noqa: B023
            rows = read(lambda v: np.argmax(Schema([column]).encode({"x": v}).X, axis=1), y)  # noqa: B023
            assert (labels is None) == (rows is None)
            assert labels is None or labels.tolist() == rows.tolist()
