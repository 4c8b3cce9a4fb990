"""Constraints of a schema on points: satisfied by every card, whatever the private weights are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.nearest import NearestCards
from privopt.mechanisms.scorecards.point_constraints import PointConstraint, constrained, few_columns
from privopt.mechanisms.scorecards.rounding import candidate_cards
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.oracles.limits import started
from privopt.oracles.select import program_oracle
from privopt.problems import (
    Binned,
    Categorical,
    IntegerLattice,
    InvalidInputError,
    MissingLevel,
    Numeric,
    PointRule,
    Schema,
)
from privopt.problems.programs.parsing import parse_constraints

SCHEMA = Schema(
    [
        MissingLevel(Binned("late", [0, 1, 2, 3, 4])),
        Binned("income", [0, 1, 2, 3]),
        Categorical("job", ["a", "b", "c"]),
        MissingLevel(Numeric("age", 0, 100, step=10, zero=100, one=0)),
    ],
    intercept=True,
    rules={
        "late": PointRule("rising"),
        "income": PointRule("falling", (0, 3)),
        "job": PointRule(None, (-2, 0)),
        "age": PointRule("rising"),
    },
)


def test_every_candidate_keeps_the_point_constraints() -> None:
    lattice = SeededScorecard.default_lattice(SCHEMA)
    facts = CardFacts.of(SCHEMA, 1000, lattice)
    rng = np.random.default_rng(0)
    spread = 0
    for _ in range(200):
        cards, _ = candidate_cards(rng.normal(size=SCHEMA.n_features) * 3, facts)
        for card in cards:
            assert (np.diff(card[:4]) >= 0).all()
            assert (np.diff(card[5:8]) <= 0).all()
            assert card[5:8].min() >= 0
            assert card[5:8].max() <= 3
            assert card[8:11].max() <= 0
            assert card[8:11].min() >= -2
            assert card[11] <= 0  # the feature falls where age rises
            spread += len(set(card[:4].tolist())) > 1
    assert spread > 50


@pytest.mark.parametrize(("most", "count", "first"), [(3, 3, [3, 1, 0]), (20, 1, [20, 7, 0])])
def test_weights_are_scaled_to_the_bound_on_their_own_side(most: int, count: int, first: list[int]) -> None:
    """Points from 0: a weight of 0.9 gets the most; with few points there are cards that are cut off too."""
    schema = Schema([Binned("income", [0, 1, 2, 3])])
    facts = CardFacts.of(schema, 1000, IntegerLattice([0, 0, 0], [most] * 3))
    found, _ = candidate_cards(np.array([0.9, 0.3, 0.0]), facts)
    assert len(found) == count
    assert found[0].tolist() == first


def test_levels_are_shifted_to_their_bound_and_the_intercept_takes_the_difference() -> None:
    weights = np.array([-1.0, 0.0, 1.0, 0.5])
    for points, shifted in (
        ((0, 3), [0, 1, 2, -0.5]),
        ((-3, 0), [-2, -1, 0, 1.5]),
        ((-3, 3), [-1, 0, 1, 0.5]),
    ):
        assert constrained(weights, (PointConstraint(0, 3, 3, 0, points),), True).tolist() == shifted
        assert (
            constrained(weights, (PointConstraint(0, 3, 3, 0, points),), False).tolist() == weights.tolist()
        )


def test_a_number_tells_apart_by_what_lies_between_0_and_its_weight() -> None:
    """A uniform number times 3 varies by 3/4, two levels of 1/2 and -1/2 by 1/4; times 1 by 1/12."""
    spans = ((0, 1), (1, 3))
    for weight, kept in ((3.0, [3.0, 0, 0]), (1.0, [0, 0.5, -0.5])):
        assert few_columns(np.array([weight, 0.5, -0.5]), spans, 1).tolist() == kept


def test_rows_without_an_intercept_are_as_long_as_is_said() -> None:
    """The longest row at the ends of both numbers, one that stays below 1 and one that goes beyond."""
    schema = Schema(
        [Numeric("a", 0, 10, zero=0, one=20), Numeric("b", 0, 30, zero=0, one=10), SCHEMA.columns[2]]
    )
    rows = pd.DataFrame({"a": [0, 10, 10], "b": [30, 0, 30], "job": ["a", "b", "c"]})
    features = schema.encode(rows)
    longest = np.linalg.norm(features.X / features.denominator, axis=1).max()
    facts = CardFacts.of(schema, 1000, SeededScorecard.default_lattice(schema))
    assert longest == pytest.approx(np.sqrt(0.25 + 9 + 1))
    assert longest <= facts.row_norm <= longest * (1 + 1e-9)


def test_a_number_and_its_missing_level_are_not_shifted_together() -> None:
    plain = Schema(SCHEMA.columns, intercept=True)
    lattice = SeededScorecard.default_lattice(plain)
    cards, _ = candidate_cards(np.array([0.0] * 11 + [2.0, -1.0, 0.0]), CardFacts.of(plain, 1000, lattice))
    assert cards[0][11] == 20  # more than a level's 10, which scale both
    assert cards[0][12] == -10


def test_fit_keeps_them() -> None:
    rng, n = np.random.default_rng(1), 2000
    frame = pd.DataFrame({"late": rng.integers(0, 4, n), "income": rng.uniform(0, 3, n),
                          "job": rng.choice(["a", "b", "c"], n), "age": rng.integers(0, 100, n)})  # fmt: skip
    y = np.where(frame["late"] - frame["income"] + rng.normal(size=n) > 0, 1, 0)
    model = PrivateHalfspaceClassifier(1.0, schema=SCHEMA, classes=(0, 1), insecure_seed=0).fit(frame, y)
    assert model.mechanism_ == "seeded"
    points = model.coef_[0]
    assert (np.diff(points[:4]) >= 0).all()
    assert (np.diff(points[5:8]) <= 0).all()
    assert model.score(frame, y) > 0.7


@pytest.mark.parametrize("most", [1, 2, 3, 9])
def test_no_more_columns_get_points_than_asked(most: int) -> None:
    plain = Schema(SCHEMA.columns, intercept=True)
    for schema in (plain, SCHEMA, Schema(SCHEMA.columns)):
        lattice = SeededScorecard.default_lattice(schema)
        facts = CardFacts.of(schema, 1000, lattice, max_columns=most)
        rng = np.random.default_rng(0)
        used = []
        for _ in range(50):
            for card in candidate_cards(rng.normal(size=schema.n_features), facts)[0]:
                used.append(sum(bool(np.any(card[a:b])) for a, b in facts.spans))
        assert max(used) == min(most, 4)


def test_the_columns_that_tell_records_apart_are_kept() -> None:
    """A number counts like levels do: by how far its part of the score is from its mean, typically."""
    plain = Schema(SCHEMA.columns, intercept=True)
    lattice = SeededScorecard.default_lattice(plain)
    weights = np.array([3.0, 3, 3, 3, 3, 0, 0, 1, 0, 0, 0.5, 2.0, 0, 0])  # late: large, but all alike

    def kept(most: int) -> list[int]:
        facts = CardFacts.of(plain, 1000, lattice, max_columns=most)
        card = candidate_cards(weights, facts)[0][0]
        return [j for j, (a, b) in enumerate(facts.spans) if np.any(card[a:b])]

    assert kept(1) == [3]
    assert kept(2) == [1, 3]
    assert kept(3) == [1, 2, 3]


def test_columns_that_must_have_points_come_first() -> None:
    rules = {"job": PointRule(None, (1, 3))}
    schema = Schema(SCHEMA.columns, intercept=True, rules=rules)
    lattice = SeededScorecard.default_lattice(schema)
    facts = CardFacts.of(schema, 1000, lattice, max_columns=2)
    card = candidate_cards(np.array([3.0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0.1, 2.0, 0, 0]), facts)[0][0]
    assert card[8:11].min() >= 1
    assert [bool(np.any(card[a:b])) for a, b in facts.spans] == [True, False, True, False]


def test_columns_to_which_a_lattice_leaves_no_0_come_first() -> None:
    """late has larger weights, but the lattice demands points of the other columns."""
    low = np.array([-9] * 5 + [1] * 8 + [-9])
    lattice = IntegerLattice(low, np.full(14, 9))
    facts = CardFacts.of(Schema(SCHEMA.columns, intercept=True), 1000, lattice, max_columns=3)
    card = candidate_cards(np.array([3.0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0.1, 2.0, 0, 0]), facts)[0][0]
    assert [bool(np.any(card[a:b])) for a, b in facts.spans] == [False, True, True, True]


@pytest.mark.parametrize(
    ("schema", "constraints", "most"),
    [
        (Schema([Categorical("a", ["x", "y"]), Numeric("b", 0, 10)], intercept=True), [], 410),
        (
            Schema([Categorical("a", ["x", "y"]), Numeric("b", 0, 10)], intercept=True),
            ["points(a) in [0, 100]", "points(b) in {-7, 3}"],
            410,  # 100 + 7 are less than the default
        ),
        (Schema([Categorical("a", ["x"])], intercept=True), ["points in [-90, 4]"], 90),
        (
            Schema([Categorical("a", ["x"])], intercept=True, rules={"a": PointRule(None, (0, 70))}),
            [],
            70,
        ),
        # Degrees from 35 to 42, a point each: 42 * 400.
        (Schema([Numeric("heat", 35, 42, zero=0, one=1)], intercept=True), [], 16_800),
    ],
)
def test_the_intercept_can_undo_the_points_of_any_record(
    schema: Schema, constraints: list[str], most: int
) -> None:
    facts = {"schema": schema, "classes": (0, 1), "numbers": "lines"}
    card = PrivateHalfspaceClassifier(1.0, constraints=constraints, **facts)
    lattice = card.plan(10_000).plan.lattice
    assert (int(lattice.low[-1]), int(lattice.high[-1])) == (-most, most)


@pytest.mark.parametrize(
    ("points", "constraints", "words"),
    [
        ((0, 2**62), None, "add up to more than 64 bits"),
        (None, [f"points in [0, {2**62}]"], "add up to more than 64 bits"),
    ],
)
def test_points_that_add_up_to_more_than_64_bits_are_refused(
    points: tuple[int, int] | None, constraints: list[str] | None, words: str
) -> None:
    schema = Schema([Categorical("a", ["x"])], intercept=True, rules={"a": PointRule(None, points)})
    with pytest.raises(InvalidInputError, match=words):
        PrivateHalfspaceClassifier(1.0, schema=schema, classes=(0, 1), constraints=constraints).plan(10_000)


@pytest.mark.parametrize(
    ("options", "points", "base"),
    [
        ({}, [10, -10, 0], 10 + 14),  # .4 points of a degree are none, and 35 degrees had 14
        ({"max_columns": 1}, [10, -10, 0], 10 + 14),
        ({"rules": {"heat": PointRule("falling")}}, [10, -10, 0], 10 + 14),
        ({"constraints": ("monotone(heat) = falling",)}, [10, -10, 0], 10 + 14),
    ],
)
def test_the_intercept_makes_up_for_numbers_far_from_their_zero(
    options: dict[str, Any], points: list[int], base: int
) -> None:
    """Degrees from 35 to 42, with a weight of .04 each, beside weights of 1: scaled by 10, .4 points."""
    columns = [Categorical("a", ["x", "y"]), Numeric("heat", 35, 42, zero=0, one=1)]
    schema = Schema(columns, intercept=True, rules=options.pop("rules", {}))
    lattice = SeededScorecard.default_lattice(schema)
    lattice = IntegerLattice(np.append(lattice.low[:-1], -9999), np.append(lattice.high[:-1], 9999))
    constraints = parse_constraints(options.pop("constraints", ()))
    facts = CardFacts.of(schema, 1000, lattice, constraints=constraints, **options)
    weights = np.array([1.0, -1.0, 0.04, 1.0])
    if facts.program is None:
        card = candidate_cards(weights, facts)[0][0]
    else:
        card = NearestCards.plan(facts, program_oracle("highs")).cards(weights, started(None))[0][0]
    assert card.tolist() == [*points, base]


def test_max_columns_is_refused_in_one_line() -> None:
    frame = pd.DataFrame({"late": [0, 1], "income": [1, 2], "job": ["a", "b"], "age": [3, 4]})
    forced = Schema(
        SCHEMA.columns, intercept=True, rules={n: PointRule(None, (1, 3)) for n in ("late", "job")}
    )
    for options, words in (
        ({"max_columns": 0}, "a whole number >= 1"),
        ({"max_columns": 2.5}, "a whole number >= 1"),
        ({"max_columns": True}, "a whole number >= 1"),
        ({"max_columns": 1, "schema": forced}, "leave no 0 to 2 columns: 'late', 'job'"),
        ({"max_columns": 3, "lattice": (1, 2)}, "leave no 0 to 4 columns: 'late', 'income', 'job', 'age'"),
    ):
        plain = {"schema": Schema(SCHEMA.columns, intercept=True), "classes": (0, 1)}
        with pytest.raises(InvalidInputError, match=words) as refused:
            PrivateHalfspaceClassifier(1.0, **{**plain, **options}).fit(frame, [0, 1])
        assert "\n" not in str(refused.value)


def test_a_classifier_with_few_columns_says_why() -> None:
    rng, n = np.random.default_rng(1), 3000
    frame = pd.DataFrame({"late": rng.integers(0, 4, n), "income": rng.uniform(0, 3, n),
                          "job": rng.choice(["a", "b", "c"], n), "age": rng.integers(0, 100, n)})  # fmt: skip
    y = np.where(frame["late"] - frame["income"] + rng.normal(size=n) / 2 > 0, 1, 0)
    plain = Schema(SCHEMA.columns, intercept=True)
    model = PrivateHalfspaceClassifier(3.0, schema=plain, classes=(0, 1), max_columns=2, insecure_seed=0)
    assert "at most 2 columns" in model.plan(n).reason
    points = model.fit(frame, y).coef_[0]
    assert not np.any(points[8:13])
    assert model.score(frame, y) > 0.8
