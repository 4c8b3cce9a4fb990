"""Draws of columns: how many, what they cost, the units of numbers, and the moments of what was drawn."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import special

from privopt.mechanisms import NoiseSource, PrivateHalfspaceClassifier
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.privacy.accounting import (
    beside_range_delta,
    bounded_range_at_gdp,
    bounded_range_to_gdp,
)
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.picks import CUTS, ColumnPicks, Pick, Units
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.oracles.limits import Limits, started
from privopt.oracles.select import gibbs_oracle
from privopt.problems import Categorical, Numeric, Schema, ZeroOneHalfspace
from privopt.problems.tables.missing import MissingLevel

NUMBERS = [Numeric("money", 0, 128), Numeric("age", -20, 80, zero=-20, one=180)]
SCHEMA = Schema(
    [
        *NUMBERS,
        MissingLevel(Numeric("visits", 0, 64)),
        *(Categorical(f"c{j}", ["a", "b", "c"]) for j in range(3)),
        *(Numeric(f"n{j}", 0, 10) for j in range(4)),
    ],
    intercept=True,
)


def facts(n: int = 2000, schema: Schema = SCHEMA) -> CardFacts:
    return CardFacts.of(schema, n, SeededScorecard.default_lattice(schema))


def records(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Money tells whether a record is positive: it is mostly far below its upper bound."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({f"c{j}": rng.choice(["a", "b", "c"], n) for j in range(3)})
    for j in range(4):
        frame[f"n{j}"] = rng.integers(0, 11, n)
    frame["money"] = np.minimum(rng.exponential(4, n).round(), 128)
    frame["age"] = rng.integers(-20, 81, n)
    frame["visits"] = np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 65, n))
    return frame, (frame["money"] + rng.normal(size=n) > 3).astype(int).to_numpy()


@pytest.mark.parametrize("width", [1e-6, 0.01, 0.5, 3.0, 20.0])
def test_bounded_range_is_gdp_at_every_corner(width: float) -> None:
    """The trade-off curve of a release whose ratios take two values, e^(t-w) and e^t, has one corner."""
    mu = bounded_range_to_gdp(width)
    t = np.linspace(0, width, 2001)[1:-1]
    p = np.expm1(t - width) / np.expm1(-width)
    a = np.exp(-t) * p
    gains = special.ndtri(p) - special.ndtri(a)
    assert np.max(gains) <= mu * (1 + 1e-9)
    assert np.max(gains) >= mu * (1 - 1e-5)
    assert bounded_range_at_gdp(mu) == pytest.approx(width, rel=1e-6)
    assert bounded_range_to_gdp(bounded_range_at_gdp(mu)) <= mu


def test_how_many_columns_follows_from_the_budget() -> None:
    found = {mu: ColumnPicks.plan(facts(), mu) for mu in (0.001, 0.02, 0.2, 0.6, 5.0)}
    assert {mu: plan and len(plan.draws) for mu, plan in found.items()} == {
        0.001: 1,
        0.02: 1,
        0.2: 3,
        0.6: 5,
        5.0: None,
    }
    for mu, plan in found.items():
        if plan is not None:
            assert plan.level <= mu * math.sqrt(0.5) * (1 + 1e-9)
            assert all(draw.width <= 1000 / 2000 for draw in plan.draws)
            assert [draw.lattice.box_size for draw in plan.draws] == [
                len(CUTS) * (10 - k) for k in range(len(plan.draws))
            ]
    few = CardFacts.of(SCHEMA, 2000, SeededScorecard.default_lattice(SCHEMA), max_columns=2)
    assert len(ColumnPicks.plan(few, 0.6).draws) == 2  # type: ignore[union-attr]
    assert ColumnPicks.plan(facts(schema=Schema(SCHEMA.columns)), 0.02) is None
    levels = Schema([c for c in SCHEMA.columns if isinstance(c, Categorical)], intercept=True)
    assert ColumnPicks.plan(facts(schema=levels), 0.02) is None  # no units to be found


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_draws_model_and_choice_together_cost_what_is_claimed(epsilon: float) -> None:
    plan = SeededScorecard.plan(facts(), epsilon=epsilon, delta=1e-6)
    assert plan.picks is not None
    assert isinstance(plan.seed, SufficientStatistics)
    assert plan.seed.columns is not None
    squares = sum(bounded_range_to_gdp(draw.width) ** 2 for draw in plan.picks.draws)
    assert plan.picks.level == pytest.approx(math.sqrt(squares))
    assert plan.seed.spend.level is not None
    together = math.hypot(math.sqrt(squares), plan.seed.spend.level)
    assert 0.999e-6 <= beside_range_delta(together, plan.choice.width, epsilon) <= 1e-6
    assert "columns drawn" in plan.spend.note


@pytest.mark.parametrize("levels", [4, 6])
def test_a_card_of_a_small_budget_is_planned_for_any_number_of_features(levels: int) -> None:
    """Moments are of up to 1,000; beyond, nothing is drawn, and the model is another one."""
    texts = [Categorical(f"c{j}", [*"abcdef"[:levels]]) for j in range(160)]
    wide = Schema([*texts, *(Numeric(f"x{j}", 0, 100) for j in range(160))], intercept=True)
    plan = SeededScorecard.plan(facts(5000, wide), epsilon=1.0, delta=1e-7)
    assert (plan.picks is None) == (levels == 6)
    assert isinstance(plan.seed, SufficientStatistics) == (levels == 4)


def test_no_record_is_farther_from_the_middle_than_planned() -> None:
    of = facts()
    for mu in (0.01, 0.3):
        plan = ColumnPicks.plan(of, mu)
        assert plan is not None
        frame, _ = records(300)
        X = SCHEMA.encode(frame).X / of.denominator
        rng, farthest = np.random.default_rng(0), 0.0
        for _ in range(200):
            chosen = rng.choice(len(of.spans), len(plan.draws), replace=False)
            picks = tuple(Pick(int(j), int(rng.integers(len(CUTS)))) for j in chosen)
            farthest = max(farthest, np.linalg.norm(Units(of, picks).features(X), axis=1).max())
        assert 0.95 * plan.row_norm <= farthest <= plan.row_norm


def test_weights_say_the_same_in_the_units_of_the_card() -> None:
    """Of records within the unit, missing ones included, up to 1e-12; others are cut off for the model."""
    of = facts()
    frame, rng = records(500)[0], np.random.default_rng(1)
    frame["money"] = rng.integers(0, 129, 500)
    X = SCHEMA.encode(frame).X / of.denominator
    for low, high in ((2, 8), (8, 2)):  # cuts near either end: units of half the range
        picks = (Pick(0, low), Pick(1, high), Pick(2, low), Pick(5, 5))
        units = Units(of, picks)
        modelled = rng.normal(size=of.lattice.dimension)
        features, card = units.features(X), units.weights(modelled)
        inside = np.ones(len(X), dtype=bool)
        for pick in picks[:3]:
            start = of.spans[pick.column][0]
            ends = next((a, b) for feature, a, b in of.lines if feature == start)
            moved = features[:, start] + of.middle[start]
            missing = X[:, start + 1] == 1 if pick.column == 2 else np.zeros(len(X), dtype=bool)
            inside &= missing | ((moved > ends[0] + 1e-9) & (moved < ends[1] - 1e-9))
        assert 5 < inside.sum() < 480
        assert np.allclose((features @ modelled)[inside], (X @ card)[inside], atol=1e-9)
        assert np.count_nonzero(card[:-1]) == 1 + 1 + 2 + 3  # of the columns that were drawn
    plain = Units(of, tuple(Pick(j, None) for j in range(len(of.spans))))
    modelled = rng.normal(size=of.lattice.dimension)
    assert np.allclose(plain.features(X) @ modelled, X @ plain.weights(modelled))


def test_the_column_that_tells_is_drawn_in_the_unit_in_which_it_does() -> None:
    frame, y = records(20_000)
    of = facts(20_000)
    plan = ColumnPicks.plan(of, 0.02)
    assert plan is not None
    data = ZeroOneHalfspace(SCHEMA.encode(frame).X, 2 * y - 1, of.lattice)
    found = plan.release(data, gibbs_oracle("auto"), NoiseSource(insecure_seed=3), started(Limits()))
    assert found[0].column == 0
    assert CUTS[found[0].cut or 0] in (2.0**-6, 2.0**-5)  # 2 or 4 of 128: 3 or more is positive, mostly


def test_moments_of_columns_that_were_not_drawn_get_no_weight() -> None:
    frame, y = records(4000)
    plan = SeededScorecard.plan(facts(4000), epsilon=0.3, delta=1e-7)
    assert plan.picks is not None
    data = plan.prepare(
        ZeroOneHalfspace(SCHEMA.encode(frame).X, 2 * y - 1, plan.lattice), gibbs_oracle("auto")
    )
    card = plan.release(data, NoiseSource(insecure_seed=1)).point
    used = [j for j, (a, b) in enumerate(plan.facts.spans) if np.any(card[a:b])]
    assert used[0] == 0
    assert len(used) <= len(plan.picks.draws)


@pytest.mark.parametrize(("epsilon", "least"), [(0.1, 0.85), (1.0, 0.93)])
def test_small_budgets_find_what_tells(epsilon: float, least: float) -> None:
    """Before columns were drawn, AUC was .5 to .6 at epsilon 0.1: money is small in units of its range."""
    (X, y), (others, truth) = records(4000), records(4000, 1)
    model = PrivateHalfspaceClassifier(epsilon, schema=SCHEMA, classes=(0, 1), insecure_seed=5).fit(X, y)
    scores = model.decision_function(others)
    positive, negative = scores[truth > 0], scores[truth == 0]
    auc = np.mean(positive[:, None] > negative) + np.mean(positive[:, None] == negative) / 2
    assert auc > least
