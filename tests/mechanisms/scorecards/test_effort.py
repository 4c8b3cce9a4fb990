"""Work and seconds of scorecards, counted by hand; and what is chosen where they are too many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.scorecards.card_plan import as_lattice, plan_card
from privopt.mechanisms.scorecards.effort import draw_seconds, draw_work, seeded_seconds
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.seeded import points_lattice
from privopt.oracles.draw.enumerate import GibbsEnumeration
from privopt.problems import Categorical, IntegerLattice, InvalidInputError, Numeric, Schema

SCHEMA = Schema([Categorical("u", ["a", "b"]), Categorical("v", ["a", "b", "c"])])


def test_draws_take_the_less_of_two_kinds_of_work() -> None:
    """Twelve labelled rows at most, three weights for each of five features.

    Enumeration: 3^5 candidates, 12 rows, 5 products each, at 1e9 a second. Elimination: for each of the 9
    pairs of weights of u 1 + 3 + 3 + 3 sums over v, and 12 scores to lay tables out, at 4e8 a second.
    """
    lattice = IntegerLattice(-1, 1, dimension=5)
    assert draw_work(SCHEMA, 10**6, lattice) == 9 * 10 + 12
    assert draw_seconds(SCHEMA, 10**6, lattice) == pytest.approx((9 * 10 + 12) / 4e8)
    # Of one column with a number: its weight is enumerated, 3 times the table of the level's 3 weights.
    few = Schema([Numeric("x", 0, 1)])
    assert draw_seconds(few, 4, IntegerLattice(-1, 1, dimension=1)) == pytest.approx(3 * 4 * 1 / 1e9)


def test_a_linear_model_takes_passes_and_hessians() -> None:
    """12 rows of 5 features: 60 passes at 4e8 numbers a second, 6 Hessians of 12 x 5 x 5 at 5e9 products."""
    facts = CardFacts.of(SCHEMA, 10**6, points_lattice(-3, 3, 5, False, 2))
    assert seeded_seconds(SCHEMA, facts) == pytest.approx(0.1 + 60 * 60 / 4e8 + 6 * 300 / 5e9, rel=1e-12)
    rows = Schema([Numeric("x", 0, 1, step=0.0001)] * 1)
    wide = CardFacts.of(rows, 10_000, points_lattice(-3, 3, 1, False, 1))
    assert seeded_seconds(rows, wide) == pytest.approx(0.1 + 1e4 * (60 / 4e8 + 6 / 5e9), rel=1e-9)


@pytest.mark.parametrize("oracle", ["enumerate", GibbsEnumeration()])
def test_an_oracle_that_is_named_is_asked_to_draw(oracle: Any) -> None:
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6}
    assert isinstance(plan_card("auto", SCHEMA, 1000, oracle=oracle, **options).plan, ExponentialMechanism)
    assert not isinstance(plan_card("auto", SCHEMA, 1000, **options).plan, ExponentialMechanism)


def test_a_ball_whose_draws_may_take_too_long_is_refused() -> None:
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "lattice": (-3, 3, 4)}
    assert isinstance(plan_card("auto", SCHEMA, 1000, **options).plan, ExponentialMechanism)
    with pytest.raises(InvalidInputError, match="norm bound"):
        plan_card("auto", SCHEMA, 1000, max_work=10.0, **options)


@pytest.mark.parametrize("given", [(1,), (-1, 1, 2, 3), "-1,1", 5])
def test_what_is_no_lattice_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError, match="lattice must be"):
        as_lattice(given, None, 5)
    assert np.array_equal(as_lattice((-1, 1), None, 5).low, np.full(5, -1))
