"""Missing values as a level of their own, and wishes for points, declared in schemas."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.problems import Binned, Categorical, MissingLevel, Numeric, PointRule, Schema
from privopt.problems.errors import SchemaError

SCHEMA = Schema(
    [
        MissingLevel(Binned("pulse", [40, 80, 120])),
        MissingLevel(Categorical("smoker", ["no", "yes"])),
        MissingLevel(Numeric("age", 0, 100, step=10)),
    ],
    intercept=True,
    rules={"pulse": PointRule("rising", (0, 3))},
)


def test_a_missing_value_is_a_level_and_nothing_else() -> None:
    frame = pd.DataFrame({"pulse": [50, None, 120], "smoker": ["no", "yes", None], "age": [np.nan, 30, 70]})
    features = SCHEMA.encode(frame)
    assert features.names == [
        "pulse in [40, 80)", "pulse in [80, 120]", "pulse is missing", "smoker=no", "smoker=yes",
        "smoker is missing", "age", "age is missing", "intercept",
    ]  # fmt: skip
    assert (features.X / features.denominator).tolist() == [
        [1, 0, 0, 1, 0, 0, 0, 1, 1],
        [0, 0, 1, 0, 1, 0, 0.3, 0, 1],
        [0, 1, 0, 0, 0, 1, 0.7, 0, 1],
    ]
    assert SCHEMA.levels[2] == ("pulse", "missing")
    assert SCHEMA.text_columns == ["pulse", "smoker", "age"]


def test_a_column_of_holes_alone_is_read() -> None:
    holes = SCHEMA.encode(pd.DataFrame({name: [None, None] for name in ("pulse", "smoker", "age")}))
    assert holes.X[:, [2, 5, 7]].all()
    assert holes.X.sum() == 2 * 4 * holes.denominator


def test_the_norm_of_rows_counts_the_level() -> None:
    column = Numeric("x", 0, 1, step="1/10", one=10)  # features of at most 1/10
    assert MissingLevel(column).reach == 1
    assert MissingLevel(Numeric("x", 0, 10, one=1)).reach == 10


def test_rows_stay_within_the_spread_around_the_middle() -> None:
    column = Numeric("x", -40, 100, step=10, zero=0, one=5)
    wide = Schema([MissingLevel(column), *SCHEMA.columns], intercept=True)
    rows = itertools.product((-40, 100, None), (50, None), ("no", None), (0, 100, None))
    frame = pd.DataFrame(list(rows), columns=["x", "pulse", "smoker", "age"])
    features = wide.encode(frame)
    distance = np.linalg.norm(features.X / features.denominator - wide.middle, axis=1)
    assert distance.max() <= wide.spread
    assert distance.max() >= 0.99 * wide.spread


def test_schemas_with_levels_and_rules_survive_files(tmp_path: Path) -> None:
    for name in ("schema.toml", "schema.json"):
        SCHEMA.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == SCHEMA
    assert SCHEMA.rules == (PointRule("rising", (0, 3)), PointRule(), PointRule())


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({"kind": "numeric", "low": 0, "high": 1, "missing": 0, "missing_level": True}, "exclude each other"),
        ({"kind": "numeric", "low": 0, "high": 1, "missing_level": "yes"}, "true or false"),
        ({"kind": "categorical", "categories": ["a"], "monotone": "rising"}, "no order"),
        ({"kind": "binned", "edges": [0, 1], "monotone": "up"}, '"rising" or "falling"'),
        ({"kind": "binned", "edges": [0, 1], "points": [3, 0]}, "in order"),
        ({"kind": "binned", "edges": [0, 1], "points": 3}, "two integers"),
        ({"kind": "binned", "edges": [0, 1], "points": [0, 1.5]}, "two integers"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(entry: dict[str, Any], reason: str) -> None:
    with pytest.raises(SchemaError, match=reason) as refused:
        Schema.from_dict({"columns": [{"name": "x", **entry}]})
    assert "\n" not in str(refused.value)
    assert "'x'" in str(refused.value)


def test_rules_are_for_declared_columns() -> None:
    with pytest.raises(SchemaError, match="not declared"):
        Schema([Binned("x", [0, 1])], rules={"y": PointRule("rising")})
    with pytest.raises(SchemaError, match="belongs to"):
        MissingLevel(MissingLevel(Binned("x", [0, 1])))  # type: ignore[arg-type]
