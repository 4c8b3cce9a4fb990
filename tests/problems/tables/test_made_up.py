"""Made-up rows are rows of their schema."""

from __future__ import annotations

import numpy as np
import pandas as pd

from privopt.problems import Binned, Categorical, Numeric, Schema
from privopt.problems.tables.made_up import synthetic_rows
from privopt.problems.tables.missing import MissingLevel

SCHEMA = Schema(
    [
        Numeric("age", 18, 20, outside="refuse"),
        Numeric("share", 0, 1, step=0.25, outside="refuse", missing=0.5),
        MissingLevel(Binned("hours", [1, 35, 99], outside="refuse")),
        Categorical("sex", ["f", "m"]),
        MissingLevel(Categorical("code", [3, 5])),
        Categorical("member", [True, False]),
    ]
)


def test_a_schema_that_refuses_what_it_does_not_declare_takes_them() -> None:
    rows = synthetic_rows(SCHEMA, 500)
    assert SCHEMA.encode(rows).X.shape == (500, SCHEMA.n_features)
    assert set(rows["age"]) == {18, 19, 20}
    assert set(rows["share"].dropna()) == {0, 0.25, 0.5, 0.75, 1}
    assert set(rows["hours"].dropna()) == {1, 18, 35, 67, 99}
    assert set(rows["sex"]) == {"f", "m"}


def test_values_are_missing_where_the_declaration_takes_that() -> None:
    gaps = synthetic_rows(SCHEMA, 800).isna().sum()
    assert list(gaps[gaps > 0].index) == ["share", "hours", "code"]
    assert np.all(gaps[gaps > 0] > 50)


def test_rows_are_the_same_each_time() -> None:
    pd.testing.assert_frame_equal(synthetic_rows(SCHEMA, 20), synthetic_rows(SCHEMA, 20))
    assert not synthetic_rows(SCHEMA, 20, seed=1).equals(synthetic_rows(SCHEMA, 20))
