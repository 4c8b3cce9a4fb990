"""Seeded scorecards: plans, roundings, releases, and what is refused before anything is booked."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import NoiseSource, PrivateHalfspaceClassifier
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.accounting import beside_range_delta, gaussian_mu
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.rounding import candidate_cards, intercepts
from privopt.mechanisms.scorecards.seeded import SeededScorecard, points_lattice
from privopt.oracles.draw.enumerate import GibbsEnumeration
from privopt.oracles.errors import (
    CertificateError,
    UnfinishedDrawError,
    UnknownOracleError,
    UnsupportedProblemError,
)
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Limits
from privopt.oracles.select import gibbs_oracle
from privopt.problems import (
    Binned,
    Categorical,
    IntegerLattice,
    InvalidInputError,
    Numeric,
    Schema,
    ZeroOneHalfspace,
)
from privopt.problems.discrete.costs import EQUAL_COSTS, Costs

SCHEMA = Schema(
    [Numeric("age", 0, 100, step=10), Categorical("plan", ["a", "b", "c"]), Binned("visits", [0, 1, 3, 9])],
    intercept=True,
)


def facts(n: int = 400, schema: Schema = SCHEMA, points: int = 10) -> CardFacts:
    lattice = points_lattice(-points, points, schema.n_features, schema.intercept, len(schema.columns))
    return CardFacts.of(schema, n, lattice)


def people(n: int = 400, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.integers(0, 101, n),
            "plan": rng.choice(["a", "b", "c"], n),
            "visits": rng.integers(0, 9, n),
        }
    )
    score = frame["age"] / 25 + 2 * (frame["plan"] == "b") - frame["visits"] / 3
    return frame, np.where(score > 2, "yes", "no")


def table(of: CardFacts, n: int = 400) -> ZeroOneHalfspace:
    frame, y = people(n)
    return ZeroOneHalfspace(SCHEMA.encode(frame).X, np.where(y == "yes", 1, -1), of.lattice)


def test_facts_are_those_of_the_schema() -> None:
    found = facts()
    assert found.columns == ((0, 1), (1, 4), (4, 7))
    # From the middle: half a number, one of three levels twice; and the constant.
    assert found.row_norm == pytest.approx(math.sqrt(1 / 4 + 2 / 3 + 2 / 3 + 1))
    distances = np.linalg.norm(table(found).X / found.denominator - found.middle, axis=1)
    assert 0.9 * found.row_norm <= distances.max() <= found.row_norm
    assert found.denominator == 10
    assert found.lattice.high.tolist() == [10] * 7 + [30]


def test_a_model_knows_of_a_constant_feature_where_there_is_one_and_of_none_elsewhere() -> None:
    """A feature that is said to be constant is not noised: only the schema's intercept is one."""
    for intercept in (True, False):
        of = facts(schema=Schema(SCHEMA.columns, intercept=intercept))
        assert SeededScorecard.plan(of, epsilon=1.0, delta=1e-6).seed.facts.constant == float(intercept)


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 30.0])
def test_both_releases_together_cost_epsilon(epsilon: float) -> None:
    plan = SeededScorecard.plan(facts(), epsilon=epsilon, delta=1e-6)
    assert plan.spend.epsilon == epsilon
    assert plan.spend.delta == 1e-6
    assert plan.choice.spend.delta == 0
    # A loss moves by at most 1 when a record is replaced, and by 2 beta in the exponent of the law.
    assert 2 * plan.choice.beta <= plan.choice.spend.epsilon
    if plan.seed.spend.notion == "gdp":
        assert plan.seed.spend.level is not None
        together = math.hypot(plan.seed.spend.level, 0.0 if plan.means is None else plan.means.level)
        assert 0.999e-6 <= beside_range_delta(together, plan.choice.width, epsilon) <= 1e-6
        assert "-GDP (" in plan.spend.note
        assert "its rounding of bounded range" in plan.spend.note
    else:
        assert 0.999 * epsilon <= plan.seed.spend.epsilon + plan.choice.spend.epsilon <= epsilon
        assert plan.seed.spend.delta <= 1e-6
    assert (plan.seed.spend.notion == "gdp") == (epsilon <= 1)


@pytest.mark.parametrize("costs", [EQUAL_COSTS, Costs(7, 2)])
def test_the_range_of_the_choice_is_that_of_its_law(costs: Costs) -> None:
    """Two thresholds that err on the replaced record in turn: logarithms of ratios differ by the width."""
    plan = SeededScorecard.plan(dataclasses.replace(facts(), costs=costs), epsilon=1.0, delta=1e-6)
    worst = costs.largest
    laws = np.array([[0, worst], [worst, 0]]) * -plan.choice.beta
    ratios = laws[0] - laws[1]
    assert np.ptp(ratios) <= plan.choice.width <= np.ptp(ratios) * 1.001


def test_a_gaussian_model_keeps_nearly_all_of_the_budget() -> None:
    """A choice at a tenth of epsilon takes a tenth of mu where both are added up, and a thirtieth here."""
    plan = SeededScorecard.plan(facts(), epsilon=1.0, delta=1e-6, model="sufficient-statistics")
    assert plan.means is None
    assert plan.choice.spend.epsilon == pytest.approx(0.1)
    assert plan.seed.spend.level is not None
    assert 0.96 < plan.seed.spend.level / gaussian_mu(1.0, 1e-6) < 0.98
    assert gaussian_mu(0.9, 1e-6) / gaussian_mu(1.0, 1e-6) < 0.91


def test_the_choice_gets_more_where_a_twentieth_would_leave_it_to_chance() -> None:
    shares = {
        n: SeededScorecard.plan(facts(n), epsilon=1.0, delta=1e-9).choice.spend.epsilon
        for n in (50, 500, 9999)
    }
    assert shares == pytest.approx({50: 0.1, 500: 0.08, 9999: 0.05})


def test_a_model_that_would_read_for_long_is_another() -> None:
    wide = Schema([Categorical(f"c{j}", list(range(10))) for j in range(20)], intercept=True)

    def model(n: int, epsilon: float, schema: Schema = wide) -> str:
        plan = SeededScorecard.plan(facts(n, schema), epsilon=epsilon, delta=1e-9)
        assert getattr(plan.seed, "steps", 1) * n * schema.n_features <= 1.5e9  # without steps: one pass
        by_column = isinstance(plan.seed, SufficientStatistics) and plan.seed.columns is not None
        return "columns" if by_column else plan.seed.name

    assert model(3_000, 1.0) == model(30_000, 8.0) == "columns"
    assert model(300_000, 8.0) == "objective-perturbation"
    # Without an intercept features are measured from 0, and models are those of any table of numbers.
    bare = Schema(wide.columns)
    assert model(3_000, 1.0, bare) == "sufficient-statistics"
    assert model(3_000, 20.0, bare) == "dp-gd"
    assert model(30_000, 0.9, bare) == "sufficient-statistics"
    assert model(30_000, 2.0, bare) == "objective-perturbation"


def test_roundings_lie_in_the_lattice_and_rank_records_as_the_model_does() -> None:
    rng = np.random.default_rng(3)
    for points in (1, 2, 10):
        of = facts(points=points)
        for _ in range(20):
            weights = rng.normal(size=8) * rng.choice([1e-6, 1.0, 1e6])
            cards, ladders = candidate_cards(weights, of)
            assert all(of.lattice.contains(c) for c in cards)
            assert np.all(np.diff(ladders, axis=1) >= 0)
            assert np.all((ladders >= of.lattice.low[-1]) & (ladders <= of.lattice.high[-1]))
            # Centred levels differ as the model's do, to rounding: half a point each.
            scale = np.max(np.abs(cards[0][:-1])) / np.max(np.abs(centred(weights, of)))
            assert np.max(np.abs(cards[0][:-1] - scale * centred(weights, of))) <= 0.5 + 1e-9


def test_most_thresholds_are_near_the_model_and_none_is_far() -> None:
    wide = dataclasses.replace(facts(), lattice=points_lattice(-1000, 1000, 8, True, 3))
    card = np.array([1000, -1000, 500, 0, 1000, 0, 1000, 70])
    counted = np.abs(card)
    counted[[feature for feature, _, _ in wide.lines]] = 40  # a record gets a fraction of a number's points
    total = sum(int(np.max(counted[start:stop])) for start, stop in wide.columns)
    found = intercepts(card, wide)
    distances = np.abs(found - 70) / total
    assert np.all(np.diff(found) >= 0)
    assert found[len(found) // 2] == 70
    assert np.mean(distances <= 0.03 + 1e-3) == pytest.approx(0.5, abs=0.02)
    assert np.max(distances) <= 0.5 + 1e-3
    edge = np.append(card[:-1], wide.lattice.high[-1])
    assert np.max(intercepts(edge, wide)) == wide.lattice.high[-1]
    few = dataclasses.replace(facts(), lattice=points_lattice(-10, 10, 8, True, 3))
    few = dataclasses.replace(
        few, lattice=few.lattice.with_bounds(few.lattice.low // 3, few.lattice.high // 3)
    )
    low, high = int(few.lattice.low[-1]), int(few.lattice.high[-1])
    assert intercepts(card // 1000, few).tolist() == list(range(low, high + 1))


def centred(weights: np.ndarray, of: CardFacts) -> np.ndarray:
    real = weights[:-1].copy()
    for start, stop in of.columns[1:]:
        real[start:stop] -= real[start:stop].mean()
    return real


def test_a_model_of_zeros_and_one_sided_bounds_have_cards_too() -> None:
    of = facts()
    for low, high in ((-10, 10), (0, 5), (-3, 0), (0, 10), (-3, 10), (-10, 3), (-20, -1), (7, 9)):
        lattice = points_lattice(low, high, 8, True, 3)
        one_sided = dataclasses.replace(of, lattice=lattice)
        for weights in (np.zeros(8), np.ones(8), -np.ones(8), np.full(8, 1e-300)):
            cards, ladders = candidate_cards(weights, one_sided)
            assert all(lattice.contains(c) for c in cards)
            # What the choice was planned for, whatever signs the private weights have.
            assert ladders.shape == candidate_cards(np.zeros(8), one_sided)[1].shape


def test_releases_are_reproducible_with_a_seed_alone() -> None:
    plan = SeededScorecard.plan(facts(), epsilon=3.0, delta=1e-5)
    data = plan.prepare(table(plan.facts), gibbs_oracle("auto"))
    first, second = (plan.release(data, NoiseSource(insecure_seed=7)) for _ in range(2))
    assert np.array_equal(first.point, second.point)
    assert first.spend.insecure_seed == 7
    assert set(first.noise) == {*plan.seed.noise, "beta"}
    drawn = {plan.release(data).point.tobytes() for _ in range(5)}
    assert len(drawn) > 1


def test_plans_are_for_their_facts() -> None:
    plan = SeededScorecard.plan(facts(), epsilon=1.0, delta=1e-5)
    with pytest.raises(PlanMismatchError, match="records"):
        plan.prepare(table(plan.facts, 399), gibbs_oracle("auto"))
    with pytest.raises(PlanMismatchError, match="plan again"):
        plan.prepare(table(facts(points=3)), gibbs_oracle("auto"))
    ball = dataclasses.replace(facts(), lattice=IntegerLattice(-2, 2, dimension=8, radius=3.0))
    with pytest.raises(PrivacyParameterError, match="box"):
        SeededScorecard.plan(ball, epsilon=1.0, delta=1e-5)


def model(**options: Any) -> PrivateHalfspaceClassifier:
    defaults: dict[str, Any] = {"mechanism": "seeded", "schema": SCHEMA, "classes": ("no", "yes")}
    return PrivateHalfspaceClassifier(options.pop("epsilon", 3.0), **{**defaults, **options})


def test_the_classifier_learns(tmp_path: Path) -> None:
    X, y = people(4000)
    fitted = model(insecure_seed=1, delta=1e-6).fit(X, y)
    assert fitted.score(X, y) > 0.9
    assert fitted.mechanism_ == "seeded"
    assert fitted.spend_.delta == 1e-6
    assert np.max(np.abs(fitted.coef_[0, 1:-1])) <= 10
    assert 10 < np.abs(fitted.coef_[0, 0]) <= 40  # all of a number
    fitted.save(tmp_path / "m.json")
    assert np.array_equal(PrivateHalfspaceClassifier.load(tmp_path / "m.json").predict(X), fitted.predict(X))
    small = model(insecure_seed=1, lattice=(-2, 2)).fit(X, y)
    assert np.max(np.abs(small.coef_[0, :-1])) == 2
    assert small.score(X, y) > 0.8


def test_a_threshold_far_from_the_middle_of_numbers_is_found() -> None:
    """The model reads numbers from their middle, 50; a card counts from 0, and 9% of records are below 40."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({name: rng.integers(0, 101, 3000) for name in "ab"})
    y = np.where(X["a"] + X["b"] > 40, "yes", "no")
    schema = Schema([Numeric(name, 0, 100, step=1) for name in "ab"], intercept=True)
    fitted = model(insecure_seed=0, schema=schema, epsilon=20.0).fit(X, y)
    assert np.mean(fitted.predict(X)[y == "no"] == "no") > 0.9


def test_without_an_intercept_the_levels_carry_the_threshold() -> None:
    X, y = people(4000)
    bare = Schema(SCHEMA.columns)
    assert model(insecure_seed=1, schema=bare).fit(X, y).score(X, y) > 0.8


class Unplanned(GibbsEnumeration):
    """An oracle of one's own that does not say before data what it refuses."""

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return []


def test_what_public_facts_refuse_is_not_booked_and_an_oracle_that_refuses_the_table_is(
    tmp_path: Path,
) -> None:
    """An own oracle is asked about the records: that it refuses them says something of them."""
    X, y = people(100)
    Ledger.create(tmp_path / "l.json", epsilon=9.0, delta=0.5)
    for options, error, booked in (
        ({"oracle": "native"}, UnsupportedProblemError, 0),
        ({"oracle": "pulp-highs"}, UnknownOracleError, 0),
        ({"oracle": GibbsEnumeration(max_work=10)}, UnsupportedProblemError, 0),
        ({"oracle": Unplanned(max_work=10)}, UnsupportedProblemError, 1),
        ({"calibration": "printed"}, PrivacyParameterError, 0),
        ({"lattice": (-1, 1, 2.0)}, PrivacyParameterError, 0),
    ):
        before = len(Ledger(tmp_path / "l.json").entries())
        with pytest.raises(error):
            model(ledger=tmp_path / "l.json", **options).fit(X, y)
        assert len(Ledger(tmp_path / "l.json").entries()) - before == booked
    assert {entry.state for entry in Ledger(tmp_path / "l.json").entries()} == {"reserved"}


def test_limits_stop_it() -> None:
    X, y = people()
    with pytest.raises((CertificateError, UnfinishedDrawError)):
        model(limits=Limits(cancelled=lambda: True)).fit(X, y)


def test_five_hundred_features_and_one_percent_of_positives() -> None:
    rng = np.random.default_rng(5)
    schema = Schema([Categorical(f"c{j}", list(range(10))) for j in range(50)], intercept=True)
    X = pd.DataFrame({f"c{j}": rng.integers(0, 10, 3000) for j in range(50)})
    y = (rng.random(3000) < 0.01 + 0.0 * X["c0"]).astype(int)
    fitted = model(schema=schema, classes=(0, 1), epsilon=1.0).fit(X, y)
    assert fitted.coef_.shape == (1, 501)
    assert fitted.score(X, y) > 0.9


def test_schemas_and_lattices_must_fit() -> None:
    with pytest.raises(InvalidInputError, match="dimension"):
        CardFacts.of(SCHEMA, 10, points_lattice(-1, 1, 5, True, 2))
