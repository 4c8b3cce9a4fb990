"""Means of numbers: what they cost, the units that they suggest, and features and weights in these units."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import NoiseSource, PrivateHalfspaceClassifier
from privopt.mechanisms.convex.column_statistics import UNIT_FACTOR
from privopt.mechanisms.convex.screened_columns import ScreenedColumns
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.privacy.accounting import beside_range_delta
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.mechanisms.scorecards.units import NumberMeans, Unit, Units
from privopt.problems import Categorical, Numeric, Schema, ZeroOneHalfspace
from privopt.problems.tables.missing import MissingLevel

SCHEMA = Schema(
    [
        Numeric("money", 0, 128),
        Numeric("age", -20, 80, zero=-20, one=180),
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
    frame["age"] = 80 - np.minimum(rng.exponential(10, n).round(), 100)
    frame["visits"] = np.where(rng.random(n) < 0.2, np.nan, rng.integers(0, 65, n))
    return frame, (frame["money"] + rng.normal(size=n) > 3).astype(int).to_numpy()


def table(frame: pd.DataFrame, y: np.ndarray, of: CardFacts) -> ZeroOneHalfspace:
    return ZeroOneHalfspace(SCHEMA.encode(frame).X, 2 * y - 1, of.lattice)


def test_what_means_cost_follows_from_the_budget() -> None:
    found = {mu: NumberMeans.plan(facts(), mu) for mu in (0.01, 0.1, 0.3, 5.0)}
    assert [plan is not None for plan in found.values()] == [False, True, True, True]  # too much noise
    for mu, plan in found.items():
        if plan is not None:
            assert plan.level <= mu * math.sqrt(0.1)
            assert plan.noise.sensitivity >= math.sqrt(7) / 2000
            assert plan.noise.sigma >= 0.01  # no better than it must be
    levels = Schema([c for c in SCHEMA.columns if isinstance(c, Categorical)], intercept=True)
    assert NumberMeans.plan(facts(schema=levels), 0.1) is None
    assert NumberMeans.plan(facts(schema=Schema(SCHEMA.columns)), 0.1) is None


def test_a_record_moves_the_means_by_no_more_than_planned() -> None:
    """From one end of all ranges to the other; numbers beyond theirs, as nobody checks, count as the end."""
    of, (frame, y) = facts(50), records(50)
    planned = NumberMeans.plan(facts(), 0.3)
    assert planned is not None
    plan = NumberMeans(of, dataclasses.replace(planned.noise, sigma=1e-7))
    whole, means = table(frame, y, of), []
    for beyond in (-7, 7):
        X = whole.X.copy()
        for feature, low, high in of.lines:
            X[0, feature] = of.denominator * ((low + high) / 2 + beyond * (high - low))
        moved = ZeroOneHalfspace(X, whole.y, of.lattice)
        means.append(plan.shares(moved, NoiseSource(insecure_seed=0)))
    assert np.linalg.norm(means[1] - means[0]) == pytest.approx(math.sqrt(7) / 50, abs=1e-5)
    counts = np.arange(1, 51)
    again = ZeroOneHalfspace(whole.X, whole.y, of.lattice, counts=counts)
    money = np.average(frame["money"] / 128, weights=counts)
    assert plan.shares(again, NoiseSource(insecure_seed=0))[0] == pytest.approx(money, abs=1e-5)


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_means_model_and_choice_together_cost_what_is_claimed(epsilon: float) -> None:
    plan = SeededScorecard.plan(facts(), epsilon=epsilon, delta=1e-6)
    assert plan.means is not None
    assert isinstance(plan.seed, SufficientStatistics)
    assert plan.seed.columns is not None
    assert plan.seed.spend.level is not None
    together = math.hypot(plan.means.level, plan.seed.spend.level)
    assert 0.999e-6 <= beside_range_delta(together, plan.choice.width, epsilon) <= 1e-6
    assert "means of 7 numbers" in plan.spend.note


@pytest.mark.parametrize("levels", [4, 6])
def test_a_card_of_a_small_budget_is_planned_for_any_number_of_features(levels: int) -> None:
    """Moments are of up to 1,000; beyond, they are of columns that are drawn first."""
    texts = [Categorical(f"c{j}", [*"abcdef"[:levels]]) for j in range(160)]
    wide = Schema([*texts, *(Numeric(f"x{j}", 0, 100) for j in range(160))], intercept=True)
    plan = SeededScorecard.plan(facts(5000, wide), epsilon=1.0, delta=1e-7)
    assert plan.means is not None
    assert isinstance(plan.seed, SufficientStatistics if levels == 4 else ScreenedColumns)


def test_numbers_near_one_end_have_small_units_from_there() -> None:
    of, (frame, y) = facts(20_000), records(20_000)
    plan = NumberMeans.plan(of, 0.3)
    assert plan is not None
    found = plan.release(table(frame, y, of), NoiseSource(insecure_seed=3)).units
    assert [unit.column for unit in found] == [0, 1, 2, 6, 7, 8, 9]
    money, age, *others = found
    assert money.end == money.low == 0
    assert money.size == pytest.approx(UNIT_FACTOR * (4 / 128 + plan.noise.sigma), abs=6 * plan.noise.sigma)
    assert age.end == age.high == 0.5
    assert age.size == pytest.approx(UNIT_FACTOR * (0.1 + plan.noise.sigma), abs=6 * plan.noise.sigma)
    assert all(unit.size > 0.5 for unit in others)


def test_no_record_is_farther_from_the_middle_than_planned() -> None:
    of, rng, farthest = facts(), np.random.default_rng(0), 0.0
    X = SCHEMA.encode(records(300)[0]).X / of.denominator
    starts = [start for start, _ in of.spans]
    for _ in range(100):
        units = tuple(
            Unit(starts.index(j), low, high, rng.uniform(0.02, 1), float(rng.choice([low, high])))
            for j, low, high in of.lines
        )
        farthest = max(farthest, np.linalg.norm(Units(of, units).features(X), axis=1).max())
    assert 0.9 * of.row_norm <= farthest <= of.row_norm


def test_weights_say_the_same_in_the_units_of_the_card() -> None:
    """Of records within the units, missing ones included; others are cut off for the model."""
    of = facts()
    frame, rng = records(500)[0], np.random.default_rng(1)
    frame["money"], frame["age"] = rng.integers(0, 129, 500), rng.integers(-20, 81, 500)
    X = SCHEMA.encode(frame).X / of.denominator
    for low in (True, False):
        ends = [(a, b, a if low else b) for _, a, b in of.lines[:3]]
        units = tuple(Unit(j, a, b, 0.5, end) for j, (a, b, end) in enumerate(ends))
        modelled = rng.normal(size=of.lattice.dimension)
        of_units = Units(of, units)
        features, card = of_units.features(X), of_units.weights(modelled)
        inside = np.ones(len(X), dtype=bool)
        for j, (a, b, _) in enumerate(ends):
            start = of.spans[j][0]
            moved = features[:, start] + of.middle[start]
            missing = X[:, start + 1] == 1 if j == 2 else np.zeros(len(X), dtype=bool)
            inside &= missing | ((moved > a + 1e-9) & (moved < b - 1e-9))
        assert 5 < inside.sum() < 480
        assert np.allclose((features @ modelled)[inside], (X @ card)[inside], atol=1e-9)
        # Independent weights of such deviations: what each moves in the card adds up in squares.
        steps = rng.random(of.lattice.dimension)
        steps[-1] = 0.0
        moved = np.array([of_units.weights(step) - of_units.weights(0 * step) for step in np.diag(steps)])
        assert np.allclose(of_units.deviations(steps)[:-1], np.sqrt(np.sum(moved**2, axis=0))[:-1])
    plain, modelled = Units(of), rng.normal(size=of.lattice.dimension)
    assert np.allclose(plain.features(X) @ modelled, X @ plain.weights(modelled))


@pytest.mark.parametrize(("epsilon", "least"), [(0.3, 0.85), (1.0, 0.93)])
def test_small_budgets_find_what_tells(epsilon: float, least: float) -> None:
    """Without units AUC is near .5 and .7: money is small beside its range."""
    (X, y), (others, truth) = records(4000), records(4000, 1)
    model = PrivateHalfspaceClassifier(epsilon, schema=SCHEMA, classes=(0, 1), insecure_seed=5).fit(X, y)
    scores = model.decision_function(others)
    positive, negative = scores[truth > 0], scores[truth == 0]
    auc = np.mean(positive[:, None] > negative) + np.mean(positive[:, None] == negative) / 2
    assert auc > least
