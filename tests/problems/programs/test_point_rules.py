"""Constraints on points: their meaning by hand, their text, and what is refused."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from privopt.problems import Binned, Categorical, InvalidInputError, MissingLevel, Numeric, Schema
from privopt.problems.errors import SchemaError
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.parsing import FORMS, parse_constraint, parse_constraints
from privopt.problems.programs.program import COST, GRID, CardProgram
from privopt.problems.tables.point_columns import point_columns

SCHEMA = Schema(
    [
        MissingLevel(Binned("late", [0, 1, 2, 3])),  # features 0, 1, 2; missing 3
        Categorical("job", ["a", "b"]),  # 4, 5
        Categorical("then, town", ["x"], outside="ignore"),  # 6
        Numeric("age", 20, 70, zero=20, one=120),  # 7: 0 to 1/2
    ],
    intercept=True,
)
COLUMNS = point_columns(SCHEMA.columns)


# Points of late, job, town, age; what satisfies a constraint, and what violates it.
@pytest.mark.parametrize(
    ("text", "good", "bad"),
    [
        ("points(late) in [-1, 2]", [-1, 0, 2, 0, 9, 9, 9, 9], [0, 0, 0, 3, 0, 0, 0, 0]),
        ("points in [-1, 2]", [-1, 0, 2, 0, 2, 2, 2, 2], [0, 0, 0, 0, 0, 0, -2, 0]),
        ("points(job, age) in {0, 3}", [1, 1, 1, 1, 3, 0, 1, 3], [0, 0, 0, 0, 1, 0, 0, 0]),
        ("sign(late) = +", [0, 1, 0, 2, -1, 0, 0, -1], [0, 0, 0, -1, 0, 0, 0, 0]),
        ("sign(age, job) = -", [1, 0, 0, 0, -1, 0, 0, -1], [0, 0, 0, 0, 0, 0, 0, 1]),
        ("monotone(late) = rising", [-1, 0, 0, -5, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0, 0, 0]),
        ("monotone(late, age) = falling", [2, 1, 1, 7, 0, 0, 0, -1], [2, 1, 1, 7, 0, 0, 0, 1]),
        ("at most 2 columns", [1, 0, 0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 1, 1, 0, 1]),
        ("at most 1 of job, age", [1, 1, 1, 1, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 0, 1]),
        ("at least 2 columns", [1, 0, 0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 1, 1, 0, 0]),  # job: 1 for everybody
        ("at least 2 of late, job, age", [1, 0, 0, 0, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 1, 0]),
        ("any of late, job", [0, 0, 0, 0, 1, 0, 0, 0], [1, 1, 1, 1, 2, 2, 1, 1]),
        ('any of "then, town"', [0, 0, 0, 0, 0, 0, 1, 0], [1, 0, 0, 0, 0, 0, 0, 0]),
        ("all of job, age", [0, 0, 0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 1, 1, 0, 1]),
        ("if late then age", [1, 1, 1, 1, 0, 0, 0, -1], [1, 1, 1, 1, 0, 0, 0, 0]),
        ("if late then age", [0, 0, 0, 0, 1, 0, 0, 0], [0, 0, 0, 1, 1, 0, 0, 0]),
        ("total in [-1, 4]", [1, 0, 1, 0, 0, 1, -1, 4], [1, 0, 1, 0, 0, 1, -1, 5]),  # 1 + 1 + 0 + 4/2
        ("total in [-1, 4]", [-1, 0, 0, 0, 0, 1, 1, 0], [-1, 0, 0, 0, -1, 1, 0, 0]),
        ("total(late, age) in [0, 2]", [0, 1, 0, 0, 9, 9, 9, 2], [0, 1, 0, 0, 0, 0, 0, 3]),
    ],
)
def test_meaning(text: str, good: list[int], bad: list[int]) -> None:
    constraint = parse_constraint(text)
    constraint.check(COLUMNS)
    assert constraint.holds(np.array(good), COLUMNS)
    assert not constraint.holds(np.array(bad), COLUMNS)
    assert constraint.held(np.array([[good, bad], [bad, good]]), COLUMNS).tolist() == [
        [True, False],
        [False, True],
    ]
    assert parse_constraint(str(constraint)) == constraint


def test_columns_are_those_of_the_schema() -> None:
    assert (
        PointColumn("late", 0, 4, ordered=3),
        PointColumn("job", 4, 6),
        PointColumn("then, town", 6, 7, others=True),
        PointColumn("age", 7, 8, ordered=1, ends=(Fraction(0), Fraction(1, 2))),
    ) == COLUMNS


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read_and_written(form: str) -> None:
    assert str(parse_constraint(form)) == form
    assert parse_constraint("  " + form.replace(", ", " ,  ").upper().replace("AGE", "age")).names is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tpr >= 90%", "tpr is a fact about records, which only the records can tell"),
        ("at most 5% false positives", "would leak, outside the budget.*class_weight"),
        ("auc > 0.8", "auc is a fact about records"),
        ("at most five columns", "is none that privopt reads; there are: points"),
        ("points(age) in [3, 1]", r"\[3, 1\] in a constraint is empty"),
        ("", "is none that privopt reads"),
    ],
)
def test_what_is_no_constraint_on_points_is_refused(text: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words) as refused:
        parse_constraint(text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("any of jobs, age", "no column 'jobs' is declared.*job"),
        ("any of age, age", "names a column twice"),
        ("monotone(job) = rising", "the categories of column 'job' have no order"),
        ("at least 5 columns", "there are only 4 such columns"),
        (f"points in [-{2**63}, 0]", "-9223372036854775808 is no number of points"),
        (f"points(age) in {{0, {10**20}}}", "100000000000000000000 is no number of points"),
    ],
)
def test_what_does_not_fit_the_columns_is_refused(text: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        SCHEMA.with_constraints([text])
    with pytest.raises(SchemaError, match=words):
        Schema(SCHEMA.columns, intercept=True, constraints=[text])


def test_a_sign_of_a_number_with_zero_inside_is_refused() -> None:
    columns = point_columns([Numeric("gain", -5, 5, zero=0, one=1)])
    with pytest.raises(InvalidInputError, match=r"both sides of its zero.*monotone\(gain\) = rising"):
        parse_constraint("sign(gain) = +").check(columns)


@pytest.mark.parametrize("given", ["any of a, b", 3, [3], [None]])
def test_what_is_no_list_of_constraints_is_refused(given: object) -> None:
    with pytest.raises(InvalidInputError, match="constraint"):
        parse_constraints(given)


def test_a_schema_keeps_its_constraints_in_every_form() -> None:
    lines = ["at most 2 columns", 'if "then, town" then age', "total(late, age) in [0, 20]"]
    schema = Schema(SCHEMA.columns, intercept=True, constraints=[*lines, lines[0]])
    assert list(map(str, schema.constraints)) == lines
    assert Schema.from_dict(schema.to_dict()) == schema
    assert "constraints" not in SCHEMA.to_dict()
    assert list(map(str, schema.with_constraints(["any of late"]))) == [*lines, "any of late"]


def test_a_schema_file_keeps_its_constraints(tmp_path) -> None:  # type: ignore[no-untyped-def]
    schema = Schema(SCHEMA.columns, intercept=True, constraints=['any of "then, town", age'])
    for name in ("schema.toml", "schema.json"):
        schema.save(tmp_path / name)
        assert Schema.load(tmp_path / name) == schema


def test_values_are_weighted_distances_with_free_shifts() -> None:
    """job: real points 1 and 4 at points 0 and 2, costs 1/2 and 1; a shift of -2 costs 2 / COST."""
    columns = (PointColumn("job", 0, 2), PointColumn("age", 2, 3, ends=(Fraction(0), Fraction(1))))
    box = np.full(3, 9)
    program = CardProgram.of(columns, -box, box, (), np.array([0.5, 1.0, 1.0]), shifted=True)
    near = program.near(np.array([1.0, 4.0, 2.5]))
    points = np.array([0, 2, 3])
    assert near.shifts(points).tolist() == [-2 * GRID, 0]
    # |1 - 2 - 0| / 2 + |4 - 2 - 2| + |2.5 - 3|, and the shift itself
    assert near.value(points) == COST * GRID + 2 * GRID
    fixed = CardProgram.of(columns, -box, box, (), np.array([0.5, 1.0, 1.0]), shifted=False)
    assert fixed.near(np.array([1.0, 4.0, 2.5])).value(points) == COST * GRID * 3
