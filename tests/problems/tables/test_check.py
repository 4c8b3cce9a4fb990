"""What a schema does to public rows: the counts, and refusals without one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.problems import Binned, Categorical, Date, MissingLevel, Numeric, Schema
from privopt.problems.errors import SchemaError
from privopt.problems.tables.check import check_rows
from privopt.problems.tables.made_up import synthetic_rows

TABLE = {
    "age": ["20", "x", "NA", "200", "50"],
    "town": ["a", "b", "c", None, 3],
    "on": ["2020-05-05", "soon", None, "1999-01-01", "2023-01-01"],
    "dose": [1, 2, None, 0.5, 9],
}
ACCEPTING = Schema(
    [
        MissingLevel(Binned("age", [0, 40, 100])),
        MissingLevel(Categorical("town", ["a", "b"], "ignore")),
        Date("on", ["2020-01-01", "2022-01-01", "2024-01-01"], missing="2020-01-01"),
        MissingLevel(Numeric("dose", 0, 5)),
    ]
)


def numbers(schema: Schema, table: Any) -> list[tuple[int, ...]]:
    found = check_rows(schema, table).columns
    return [(c.cells, c.missing, c.unreadable, c.outside, c.refused) for c in found]


def test_each_cell_is_counted_as_it_is_treated() -> None:
    for table in (TABLE, pd.DataFrame(TABLE)):
        assert numbers(ACCEPTING, table) == [(5, 1, 1, 1, 0)] * 3 + [(5, 1, 0, 1, 0)]
        found = check_rows(ACCEPTING, table)
        assert found.verdict == "every row is accepted"
        assert found.columns[0].levels == (("below 40", 0.2), ("40 or more", 0.4), ("missing", 0.4))
        assert found.columns[1].levels == (("a", 0.2), ("b", 0.2), ("any other", 0.4), ("missing", 0.2))
        assert str(found.columns[0]) == (
            "age: 1 missing, 1 unreadable (a level); 1 outside (clipped); "
            "below 40: 20.0%, 40 or more: 40.0%, missing: 40.0%"
        )


def test_a_column_most_of_whose_cells_are_not_read_is_named_though_no_cell_is_refused() -> None:
    """As where text writes numbers with a decimal comma, which is not declared."""
    schema = Schema([MissingLevel(Binned("cost", [0, 1, 5])), MissingLevel(Binned("age", [0, 40, 100]))])
    verdict = check_rows(schema, {"cost": ["1,50", "0,99", "3"], "age": ["20", "x", "NA"]}).verdict
    assert verdict.startswith("every row is accepted\nmost cells are not read: column 'cost'. To do: declare")
    declared = Schema([MissingLevel(Binned("cost", [0, 1, 5], decimal=","))])
    assert check_rows(declared, {"cost": ["1,50", "0,99", "3"]}).verdict == "every row is accepted"


def test_refused_cells_are_counted_and_named() -> None:
    """As many as the columns refuse one at a time."""
    strict = Schema(
        [
            Binned("age", [0, 40, 100], "refuse"),
            Categorical("town", ["a", "b"]),
            Date("on", ["2020-01-01", "2024-01-01"], outside="refuse"),
            Numeric("dose", 0, 5, outside="refuse", missing=0),
        ]
    )
    refusals = []
    for column in strict.columns:
        alone = Schema([column])
        refusals.append(0)
        for cell in TABLE[column.name]:
            try:
                alone.codes({column.name: np.array([cell], dtype=object)})
            except SchemaError:
                refusals[-1] += 1
    assert [c.refused for c in check_rows(strict, TABLE).columns] == refusals == [3, 3, 3, 1]
    assert "column 'age' (3 cells), 'town' (3 cells)" in check_rows(strict, TABLE).verdict


def test_synthetic_rows_are_accepted() -> None:
    assert check_rows(ACCEPTING, synthetic_rows(ACCEPTING, 200)).verdict == "every row is accepted"
    with pytest.raises(SchemaError, match="missing from the table"):
        check_rows(ACCEPTING, {"age": [1]})
