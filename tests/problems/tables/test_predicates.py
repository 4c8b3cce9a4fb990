"""Predicates of a schema: what they say of values, in every kind of column, and by codes of either schema."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.errors import SchemaError
from privopt.problems.tables.columns import Binned
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.predicates import Predicates

SCHEMA = Schema(
    [
        Numeric("age", 18, 90),
        Numeric("dose", 0, 2, "1/2", missing=1),
        MissingLevel(Numeric("weight", 40, 200, 10)),
        Categorical("sex", ["f", "m"]),
        MissingLevel(Categorical("job", ["nurse", "cook"], outside="ignore")),
        Categorical("ward", [1, 2, 3], missing=3),
        MissingLevel(Binned("hours", [0, 20, 40, 100])),
    ]
)
TABLE = pd.DataFrame(
    {
        "age": [18, 26.4, 26.6, 90.0, 17.0, 54.0],
        "dose": [0.0, 0.24, 0.25, math.nan, 2.0, 5.0],
        "weight": [math.nan, 44.9, 45.0, 200.0, 10.0, 120.0],
        "sex": ["f", "m", "m", "f", "f", "m"],
        "job": ["nurse", None, "pilot", "cook", "cook", "nurse"],
        "ward": pd.array([1, 2, None, 3, 1, 2], dtype="Int64"),
        "hours": [19.999, 20.0, math.nan, 100.0, 250.0, 40.0],
    }
)


def says(kind: str, value: Any, cell: Any, gap: bool | None) -> bool:
    """The question, asked of a cell as it is written."""
    if pd.isna(cell):
        return kind == "missing" if gap is None else gap
    if kind == "missing":
        return False
    return bool(cell < value) if kind == "below" else bool(cell == value)


def test_every_predicate_is_its_own_question_of_the_cells() -> None:
    """Cuts of numbers lie halfway between grid points, where rounding to the grid changes its mind."""
    predicates = Predicates.of(SCHEMA)
    truths = predicates.table(predicates.coarse.codes(TABLE))
    for number, question in enumerate(predicates.questions):
        cells = TABLE[question.name].tolist()
        expected = [says(question.kind, question.value, cell, question.gap) for cell in cells]
        assert truths.column(number).tolist() == expected, question.text()


def test_there_are_as_many_as_cuts_and_categories_and_gaps() -> None:
    names = [(q.name, q.kind) for q in Predicates.of(SCHEMA).questions]
    counted = {pair: names.count(pair) for pair in names}
    assert counted == {
        ("age", "below"): 7,
        ("dose", "below"): 4,  # of five grid points
        ("weight", "below"): 7,
        ("weight", "missing"): 1,
        ("sex", "is"): 1,  # of two categories the one says what the other does
        ("job", "is"): 2,
        ("job", "missing"): 1,
        ("ward", "is"): 3,
        ("hours", "below"): 2,
        ("hours", "missing"): 1,
    }


def cuts(low: float, high: float, step: float = 1) -> list[float]:
    return [q.value for q in Predicates.of(Schema([Numeric("x", low, high, step)])).questions]


def test_cuts_are_evenly_spread() -> None:
    assert cuts(40, 119) == [49.5, 59.5, 69.5, 79.5, 89.5, 99.5, 109.5]
    assert cuts(-640, 639) == [-480.5, -320.5, -160.5, -0.5, 159.5, 319.5, 479.5]


def test_amounts_are_compared_with_small_numbers_too() -> None:
    assert cuts(0, 639) == [4.5, 9.5, 19.5, 39.5, 79.5, 159.5, 239.5, 319.5, 399.5, 479.5, 559.5]
    assert cuts(40, 679)[:4] == [44.5, 49.5, 59.5, 79.5]  # 40 is less than a sixteenth of 679
    assert cuts(0, 100_000, 1_000)[:5] == [500.0, 1500.0, 2500.0, 5500.0, 12500.0]


def test_codes_of_the_declared_schema_say_the_same() -> None:
    predicates = Predicates.of(SCHEMA)
    fine = predicates.coarsened(SCHEMA.codes(TABLE))
    for a, b in zip(fine, predicates.coarse.codes(TABLE), strict=True):
        assert np.array_equal(a, b)


def test_what_a_missing_value_is_read_as_answers_for_it() -> None:
    gaps = {(q.name, q.value): q.gap for q in Predicates.of(SCHEMA).questions}
    assert gaps["dose", 0.75] is False  # 1 is not below it
    assert gaps["dose", 1.25] is True
    assert (gaps["ward", 3], gaps["ward", 1]) == (True, False)
    assert gaps["age", 26.5] is None
    assert (gaps["job", None], gaps["job", "cook"]) == (True, False)


def test_conditions_in_words() -> None:
    texts = {q.text(answer) for q in Predicates.of(SCHEMA).questions for answer in (True, False)}
    assert {"age < 26.5", "age ≥ 26.5", "sex = m", "sex ≠ m", "job is missing", "job is known"} <= texts
    assert {"dose < 1.25 or missing", "dose ≥ 1.25", "hours ≥ 20 or missing", "hours < 20"} <= texts


def test_a_schema_with_nothing_to_tell_apart_is_refused() -> None:
    with pytest.raises(SchemaError, match="two distinct values"):
        Predicates.of(Schema([Categorical("only", ["one"]), Binned("x", [0, 1])]))


def test_a_column_of_many_categories_weighs_no_more_than_seven_questions() -> None:
    """Quarters of 7 / k for each of k categories, a quarter at least; then reduced."""
    schema = Schema(
        [Categorical("ward", list(range(14))), Numeric("age", 18, 90), Categorical("sex", ["f", "m"])]
    )
    predicates = Predicates.of(schema)
    assert predicates.weights.tolist() == [1] * 14 + [2] * 8  # 2 quarters, and 4
    assert predicates.values.tolist() == [*range(14), *np.repeat(np.arange(14, 22), 2)]
    country = Predicates.of(Schema([Categorical("country", list(range(100))), Numeric("age", 18, 90)]))
    assert country.weights.tolist() == [1] * 100 + [4] * 7
    assert Predicates.of(Schema([Numeric("age", 18, 90)])).weights.tolist() == [1] * 7
