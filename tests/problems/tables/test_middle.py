"""Centre of rows and their distance from it, over all records that can be declared."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from privopt.problems.tables.columns import Binned, Categorical, Numeric
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.schema import Schema


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("outside", ["refuse", "ignore"])
def test_the_farthest_record_is_as_far_from_the_middle_as_the_spread_says(
    intercept: bool, outside: str
) -> None:
    """The spread bounds every row, so noise is enough; and some row attains it, so noise is not wasted."""
    columns = [
        Numeric("age", 18, 98, step=5, zero=0, one=100),
        Numeric("change", -3, 1, zero=0, one=2),
        Categorical("smoker", ["no", "former", "yes"], outside=outside),
        Binned("hours", [0, 20, 35, 60]),
    ]
    schema = Schema(columns, intercept=intercept)
    values = [
        [18, 43, 98],
        [-3, 0, 1],
        ["no", "former", "yes", *["never"] * (outside == "ignore")],
        [0, 30, 60],
    ]
    records = list(itertools.product(*values))
    features = schema.encode({c.name: [r[i] for r in records] for i, c in enumerate(columns)})
    rows = features.X / features.denominator - schema.middle
    farthest = float(np.linalg.norm(rows, axis=1).max())
    assert farthest <= schema.spread
    assert farthest >= schema.spread * (1 - 1e-9)
    if intercept:  # the last feature stays the constant that models count on
        assert np.all(rows[:, -1] == 1)
    for j in range(2):  # a number moves as far to either side
        assert rows[:, j].max() == pytest.approx(-rows[:, j].min(), rel=1e-12)


@pytest.mark.parametrize(
    "column", [Numeric("x", 2, 10, one=4), Categorical("x", ["a", "b"])], ids=["number", "levels"]
)
def test_a_missing_value_is_as_far_from_the_middle_as_the_spread_says(column: Numeric | Categorical) -> None:
    schema = Schema([MissingLevel(column)], intercept=False)
    cells = [None, *([2, 6, 10] if isinstance(column, Numeric) else ["a", "b"])]
    features = schema.encode({"x": cells})
    farthest = np.linalg.norm(features.X / features.denominator - schema.middle, axis=1).max()
    assert farthest == pytest.approx(schema.spread, rel=1e-9)
