"""Moments of the columns of a schema: sensitivity by brute force, the budget, units, the reading."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.special import expit, logit
from sklearn.metrics import roc_auc_score

from privopt.mechanisms import PrivateLogisticRegression
from privopt.mechanisms.convex.column_statistics import (
    UNIT_FACTOR,
    ColumnStatistics,
    ColumnUnit,
    MomentWeights,
    _column_sums,
    _share_sums,
    unit_noise,
    unit_sizes,
)
from privopt.mechanisms.convex.columns import Columns, likely_shares
from privopt.mechanisms.convex.likely_columns import NoisyColumns, likely_columns
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.privacy.accounting import gaussian_delta, gaussian_mu
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Run
from privopt.oracles.limits import Limits
from privopt.problems import Binned, Categorical, MissingLevel, Numeric, Schema
from privopt.problems.convex.losses import LogisticLoss, OneVsRestLoss, SquaredLoss
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.tables.columns import Column

LEVELS = Categorical("site", ["a", "b", "c"], outside="ignore")
NUMBER = Numeric("age", 0, 4, zero=0, one=2)
COLUMNS: dict[str, list[Column]] = {
    "levels": [LEVELS, Binned("bin", [0, 1, 2, 3, 4])],
    "many levels": [Categorical("place", list("abcdefghij"))],
    "two levels": [Categorical("sex", ["f", "m"])],
    "numbers": [NUMBER, Numeric("far", 0, 1)],
    "one level": [Categorical("only", ["x"], outside="ignore")],
    "mixed": [MissingLevel(NUMBER), LEVELS, MissingLevel(Categorical("sex", ["f", "m"]))],
}


def facts_of(columns: Columns, n: int) -> RiskFacts:
    far = columns.squares[0]
    return RiskFacts(
        n, len(columns.features) + 1, LogisticLoss(), math.sqrt(far * 1.25), "l2", math.sqrt(far) / 2
    )


def plan_of(columns: Columns, n: int, epsilon: float, units: bool = True) -> ColumnStatistics:
    plain = SufficientStatistics.plan(facts_of(columns, n), epsilon=epsilon, delta=1e-6)
    found = ColumnStatistics.of(plain, columns, units)
    assert isinstance(found, ColumnStatistics)
    return found


def risk_of(rows: np.ndarray, labels: np.ndarray, facts: RiskFacts) -> EmpiricalRisk:
    X = np.column_stack([rows, np.full(len(rows), facts.constant)])
    return EmpiricalRisk(X, labels, facts.loss, row_norm=facts.row_norm, constant=facts.constant)


@pytest.mark.parametrize("name", COLUMNS)
def test_no_two_records_move_the_moments_by_more_than_is_paid_for(name: str) -> None:
    """All records of a small schema, numbers on a grid, with both labels; and rows that no schema encodes."""
    columns = Columns.of(Schema(COLUMNS[name], intercept=False))
    weights, facts, d = MomentWeights.of(columns), facts_of(columns, 1), len(columns.features)
    numbers = {feature for feature, _, _ in columns.lines}
    choices = []
    for start, stop in columns.parts:
        k = stop - start
        if start in numbers:
            choices.append([[v] for v in (0.0, 0.5, 1.0, 2.0)])
        else:
            choices.append([[0.0] * k, *np.eye(k).tolist()])
    rows = [np.concatenate(chosen) for chosen in itertools.product(*choices)]
    rng = np.random.default_rng(0)
    rows += [9 * rng.normal(size=d) for _ in range(10)]
    rows += [sign * 9 * axis for axis in np.eye(d) for sign in (-1, 1)]
    found = []
    for row, label in itertools.product(rows, (-1.0, 1.0)):
        sums = _column_sums(
            risk_of((row - np.array(columns.middle)[:d])[None], np.array([label]), facts), columns, ()
        )
        scale = [
            np.ones(d),
            np.full(d, weights.alpha),
            [weights.beta],
            np.full(d * d, weights.gamma / weights.reach),
        ]
        found.append(np.concatenate(scale) * sums)
    largest = max(float(np.sum((a - b) ** 2)) for a, b in itertools.combinations(found, 2))
    assert largest <= weights.squared_change * (1 + 1e-9)
    if name != "mixed":
        assert largest >= 0.8 * weights.squared_change
    norms = [float(np.linalg.norm(vector)) for vector in found]
    assert max(norms) <= weights.largest * (1 + 1e-9)


def test_both_releases_spend_what_one_would() -> None:
    columns = Columns.of(Schema(COLUMNS["mixed"], intercept=False))
    for n, epsilon in ((50, 1.0), (1000, 0.3), (10**6, 3.0)):
        mu = gaussian_mu(epsilon, 1e-6)
        plan, d = plan_of(columns, n, epsilon), len(columns.features)
        assert plan.weights is not None
        level = math.sqrt(plan.weights.squared_change) / n / plan.vector_noise.sigma
        units = 0.0 if plan.unit_noise is None else 1 / n / plan.unit_noise.sigma  # one number
        assert (plan.unit_noise is None) == (n == 50)
        assert 0.999 * mu <= math.hypot(level, units) <= mu
        assert plan.spend.level is not None
        assert math.hypot(level, units) <= plan.spend.level <= mu * (1 + 1e-12)
        assert units <= math.sqrt(0.1) * mu * (1 + 1e-12)
        assert plan.vector_noise.dimension == 2 * d + 1 + d * (d + 1) // 2
        assert plan_of(columns, n, epsilon, units=False).unit_noise is None


def test_a_fit_books_both_releases_as_one_event(tmp_path: Path) -> None:
    rng, n, delta = np.random.default_rng(0), 2000, 1e-6
    frame = pd.DataFrame({"income": rng.exponential(2.0, n).clip(0, 100), "few": rng.integers(0, 3, n)})
    schema = Schema([Numeric("income", 0, 100), Categorical("few", [0, 1, 2])], intercept=True)
    ledger = Ledger.create(tmp_path / "ledger.db", 1.0, 1e-5)
    facts = {"schema": schema, "classes": (False, True), "numbers": "lines"}
    model = PrivateLogisticRegression(0.5, delta=delta, **facts, ledger=ledger)
    model.fit(frame, rng.random(n) < 0.5)
    noise = model.noise_
    together = math.hypot(noise["sensitivity"] / noise["sigma"], 1 / n / noise["unit_sigma"])
    (entry,) = ledger.entries()
    assert entry.state == "committed"
    for spend in (model.spend_, entry.spend):
        assert (spend.notion, spend.epsilon, spend.delta) == ("gdp", 0.5, delta)
        assert spend.level is not None
        assert together <= spend.level <= 1.001 * together
        assert gaussian_delta(spend.level, 0.5) <= delta * (1 + 1e-9)


def test_sums_over_many_records_pay_for_their_rounding() -> None:
    columns, n = Columns.of(Schema(COLUMNS["levels"], intercept=False)), 10**9
    plan = plan_of(columns, n, 1.0)
    assert plan.weights is not None
    exact = math.sqrt(plan.weights.squared_change) / n
    assert plan.vector_noise.sensitivity >= exact + 2 * plan.weights.largest * n * 2.0**-52


def test_what_is_released_are_the_means_with_the_noise_that_was_planned() -> None:
    columns = Columns.of(Schema(COLUMNS["mixed"], intercept=False))
    n, d, rng = 400, len(columns.features), np.random.default_rng(0)
    plan = plan_of(columns, n, 20.0)
    rows = columns.clipped(rng.uniform(-0.7, 0.7, (n, d)))
    labels = np.where(rng.random(n) < 0.2, 1.0, -1.0)
    risk, run = risk_of(rows, labels, plan.facts), Run(np.zeros(d + 1), NoiseSource(1), Limits().start())
    assert run.source is not None
    seen, units = plan._noisy_columns(risk, run, run.source)
    read = rows.copy()
    for unit in units:
        read[:, unit.feature] = unit.read(read[:, unit.feature])
    pairs = (
        (seen.products, labels @ read / n, seen.sigma),
        (seen.means, read.mean(axis=0), seen.mean_sigma),
        (np.array([seen.label]), np.array([labels.mean()]), seen.label_sigma),
        (seen.squares, read.T @ read / n, seen.square_sigma),
    )
    for noisy, exact, sigma in pairs:
        assert 0 < float(np.max(np.abs(noisy - exact))) <= 5 * sigma
    deviations = np.concatenate([np.ravel((noisy - exact) / sigma) for noisy, exact, sigma in pairs[:3]])
    assert 0.5 <= float(np.std(deviations)) <= 1.6
    released = plan.release(risk, NoiseSource(1))
    assert released.share is not None
    assert released.share.value == (1 + seen.label) / 2
    assert released.share.deviation == seen.label_sigma / 2
    low, high = columns.lines[0][1:]
    shares = np.clip((rows[:, 0] + 2 * columns.middle[0] / 2 - low) / (high - low), 0, 1)
    assert float(_share_sums(risk, columns)[0]) == pytest.approx(float(np.sum(shares)), rel=1e-9)


def test_units_follow_means_with_the_noise_that_was_planned() -> None:
    """A quarter of the records at the upper end of a number, so that its unit is below its range."""
    columns, n = Columns.of(Schema([Numeric("far", 0, 1)], intercept=False)), 400
    plan, noise = plan_of(columns, n, 3.0), NoiseSource(insecure_seed=1)
    assert plan.unit_noise is not None
    rows = np.where(np.arange(n) < n // 4, 0.5, -0.5)[:, None]
    risk, run = risk_of(rows, np.ones(n), plan.facts), Run(np.zeros(2), noise, Limits().start())
    sizes = np.array([plan._noisy_columns(risk, run, noise)[1][0].size for _ in range(100)])
    found = (sizes / UNIT_FACTOR - plan.unit_noise.sigma - 0.25) / plan.unit_noise.sigma
    assert abs(float(np.mean(found))) <= 0.4  # four standard errors
    assert 0.7 <= float(np.std(found)) <= 1.3


def test_units_of_many_numbers_near_one_end_show_through_noise_that_hides_each_of_them() -> None:
    rng, sigma, exact = np.random.default_rng(0), 0.4, np.array([0.02, 0.06])
    noise = unit_noise(60, 3000, 0.02)
    assert noise is not None
    assert noise.sigma == pytest.approx(sigma, rel=0.05)  # of one number so much is useless
    assert unit_noise(3, 3000, 0.02 * math.sqrt(3 / 60)) is None
    found = unit_sizes(np.tile(exact, 30) + sigma * rng.normal(size=60), sigma)
    assert not any(upper for _, upper in found)
    assert max(size for size, _ in found) <= 0.4
    # Where noise is small, each number has its own unit and end.
    near = unit_sizes(np.array([0.02, 0.98, 0.3, 0.5]), 1e-3)
    assert [size for size, _ in near] == pytest.approx([0.03, 0.03, 0.45, 0.75], abs=0.005)
    assert [upper for _, upper in near[:3]] == [False, True, False]


def test_scores_of_numbers_in_units_are_those_of_the_rows_as_they_were_read() -> None:
    unit = ColumnUnit(0, half=2.0, end=-2.0, size=0.25, gap=(1.5, 1))
    x, weights = np.array([-2.0, -1.9, -1.0]), np.array([3.0, 0.7])
    middle = (0.0, 0.5)  # the level is -1/2 or 1/2
    read, shift = 3.0 * unit.read(x), unit.move(weights, middle)
    assert weights[0] * x + shift - weights[1] / 2 == pytest.approx(read - 0.7 / 2)
    # A missing number is at 1.5, where it is clipped when read; its level makes up for the difference.
    assert weights[0] * 1.5 + shift + weights[1] / 2 == pytest.approx(3.0 * 2.0 + 0.7 / 2)


def test_other_losses_and_weighted_records_keep_the_moments_of_any_rows() -> None:
    columns = Columns.of(Schema(COLUMNS["levels"], intercept=False))
    d, norm = len(columns.features), 1.5
    for loss, weighted in ((SquaredLoss(2.0), False), (OneVsRestLoss(3), False), (LogisticLoss(), True)):
        facts = RiskFacts(100, d + 1, loss, norm, "l2", 0.5, weighted)
        plan = ColumnStatistics.of(SufficientStatistics.plan(facts, epsilon=1.0, delta=1e-6), columns)
        assert type(plan) is SufficientStatistics
        assert plan.columns is columns


def test_shares_are_on_the_simplex_of_their_sum() -> None:
    assert likely_shares(np.array([0.1, -0.2, 0.1]), 1e-9, 0.0)[0] + 1 / 3 == pytest.approx(
        [0.433, 0.133, 0.433], abs=1e-3
    )
    shares, kept = likely_shares(np.array([2.0, -1.0, -1.0]), 2.0, 0.0)
    assert np.all((kept > 0) & (kept < 0.1))  # noise explains all of it
    assert np.sum(shares) == pytest.approx(0.0)
    assert np.min(shares) > -1 / 3
    assert np.min(likely_shares(np.array([2.0, -1.0, -1.0]), 2.0, 100.0)[1]) > 0.9
    some = likely_shares(np.array([-0.2, -0.2, -0.2]), 1e-9, 0.0)[0]  # most records have no level
    assert some + 1 / 3 == pytest.approx([0.1333] * 3, abs=1e-3)


def test_shares_of_ordered_levels_are_like_their_neighbours_where_noise_hides_each() -> None:
    """Bins of a number between 4 and 6 deviations around its mean, 3 in 10 missing, with noise of 0.05."""
    columns, errors = Columns.of(Schema([MissingLevel(Binned("x", range(13)))], intercept=False)), []
    shares = np.exp(-((np.arange(12) - 4.0) ** 2) / 8)
    exact = np.append(0.7 * shares / np.sum(shares), 0.3) - 1 / 13
    for seed in range(20):
        noisy = columns.within(exact + 0.05 * np.random.default_rng(seed).normal(size=13), 0.05)
        found, hidden = columns.likely_means(noisy, 0.05, np.zeros(13))
        assert np.sum(found) <= 1e-9
        assert np.min(found) > -1 / 13
        assert np.all((hidden > 0) & (hidden < 0.05**2))
        alike = likely_shares(noisy, 0.05, 0.0)[0]
        errors.append([np.sum((found - exact) ** 2), np.sum((alike - exact) ** 2)])
    near, alone = np.mean(errors, axis=0)
    assert near < 0.8 * alone
    seen = columns.likely_means(exact, 1e-6, np.zeros(13))[0]
    assert seen == pytest.approx(exact, abs=1e-3)  # of the missing level, too


def seen_of(products: np.ndarray, sigma: float) -> NoisyColumns:
    """Moments of one column of equally frequent levels, with labels of mean 0."""
    k = len(products)
    squares = np.eye(k) / k - 1 / k**2
    return NoisyColumns(products, np.zeros(k), 0.0, squares, sigma, 1e-9, 1e-9, 1e-9, 10**9)


def test_ordered_levels_are_read_as_a_line_where_noise_hides_each() -> None:
    rng, truth = np.random.default_rng(1), np.arange(8) - 3.5
    schema = {kind: Schema([column]) for kind, column in (
        ("ordered", Binned("x", range(9))), ("not", Categorical("x", list("abcdefgh"))))}  # fmt: skip
    found = {}
    for kind, one in schema.items():
        own = np.random.default_rng(1)
        fits = [
            likely_columns(seen_of(truth / 100 + 0.03 * own.normal(size=8), 0.03), Columns.of(one))[0].weights
            for _ in range(20)
        ]
        found[kind] = float(np.mean([np.corrcoef(w, truth)[0, 1] for w in fits if np.ptp(w) > 0]))
    assert found["ordered"] > found["not"] + 0.1
    bumps = np.array([1, -1] * 4) / 20 + 1e-3 * rng.normal(size=8)  # seen well, order or not
    fit = likely_columns(seen_of(bumps, 1e-3), Columns.of(schema["ordered"]))[0].weights
    assert np.corrcoef(fit, bumps)[0, 1] > 0.99


@pytest.mark.parametrize("label", [-1.3, -0.9, 0.2, 1.4])
def test_where_noise_hides_the_share_of_positives_scores_have_its_posterior_mean(label: float) -> None:
    """The prior has the density p^-0.5 (1 - p)^0.5 up to a factor, the noise of the share is 0.2."""
    columns = Columns.of(Schema(COLUMNS["two levels"], intercept=False))
    plan, d = plan_of(columns, 500, 0.1), len(columns.features)
    seen = NoisyColumns(np.zeros(d), np.zeros(d), label, np.eye(d) / 4, 0.1, 0.1, 0.4, 0.1, 500)

    def density(p: float) -> float:
        return p**-0.5 * (1 - p) ** 0.5 * math.exp(-((((1 + label) / 2 - p) / 0.2) ** 2) / 2)

    mean = quad(lambda p: p * density(p), 0, 1)[0] / quad(density, 0, 1)[0]
    weights = plan._read(seen, ())[0]
    assert weights[:d] == pytest.approx(0)
    assert weights[d] * plan.facts.constant == pytest.approx(logit(mean), abs=0.1)  # a grid of shares


def test_noise_in_means_of_features_does_not_move_the_mean_probability() -> None:
    """A fifth of the labels is positive; ten columns have five levels, which tell something."""
    columns = Columns.of(Schema([Categorical(f"c{j}", [*"abcde"]) for j in range(10)], intercept=False))
    rng, plan, d, found = np.random.default_rng(0), plan_of(columns, 1000, 0.3), len(columns.features), []
    levels = rng.choice(5, p=[0.5, 0.2, 0.2, 0.05, 0.05], size=(400, 10))
    rows = np.eye(5)[levels].reshape(400, d) - 0.2
    means, squares = rows.mean(axis=0), rows.T @ rows / 400
    covariances = squares - np.outer(means, means)
    for _ in range(30):
        told, first, second = rng.normal(size=(3, d))
        products = -0.6 * means + 0.16 * covariances @ told + 0.05 * first
        seen = NoisyColumns(products, means + 0.1 * second, -0.6, squares, 0.05, 0.1, 1e-3, 0.05, 1000)
        weights = plan._read(seen, ())[0]
        scores = rows @ weights[:d] + weights[d] * plan.facts.constant
        found.append(float(np.mean(expit(scores))))
    assert abs(float(np.mean(found)) - 0.2) <= 0.02


def test_two_numbers_that_say_the_same_count_once_beside_levels_that_say_nothing() -> None:
    """Correlations of levels are 0 here, and those of numbers 0.95: one size for all would hide them."""
    schema = Schema(
        [Numeric("a", 0, 1), Numeric("b", 0, 1), *(Categorical(f"c{k}", list("xyz")) for k in range(9))]
    )
    columns, rng, sigma = Columns.of(schema), np.random.default_rng(0), 0.03
    d, squares = len(columns.features), np.zeros((29, 29))
    squares[:2, :2] = 0.08 * np.array([[1, 0.95], [0.95, 1]])
    for start, stop in columns.parts[2:]:
        squares[start:stop, start:stop] = np.eye(3) / 3 - 1 / 9
    products = 0.25 * squares[:, 0] * 2  # the log odds are a
    explained = []
    for _ in range(10):
        noise = np.triu(rng.normal(size=(d, d)) * sigma / math.sqrt(2))
        noisy = squares + noise + noise.T
        seen = NoisyColumns(products, np.zeros(d), 0.0, noisy, 1e-3, 1e-9, 1e-9, sigma, 10**6)
        explained.append(float(np.sum(likely_columns(seen, columns)[0].weights[:2])))
    assert np.mean(explained) == pytest.approx(0.25, rel=0.15)  # twice that if both counted


def test_a_number_near_one_end_of_its_range_ranks_records_at_a_small_budget() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"income": np.round(rng.exponential(2.0, 3000)).clip(0, 100), "few": rng.integers(0, 3, 3000)}
    )
    label = (frame["income"] + rng.normal(0, 1.5, 3000) > 2).to_numpy()
    schema = Schema([Numeric("income", 0, 100), Categorical("few", [0, 1, 2])], intercept=True)
    facts = {"schema": schema, "classes": (False, True), "numbers": "lines"}
    for seed in range(5):
        model = PrivateLogisticRegression(0.3, **facts, insecure_seed=seed)
        model.fit(frame, label)
        assert model.mechanism_ == "sufficient-statistics"
        assert set(model.noise_) == {"sigma", "sensitivity", "unit_sigma", "steps"}
        assert roc_auc_score(label, model.decision_function(frame)) > 0.8


@pytest.mark.parametrize(
    ("columns", "options", "name"),
    [
        ([MissingLevel(NUMBER), Numeric("far", 0, 1), LEVELS], {}, "sufficient-statistics"),
        ([NUMBER, LEVELS], {}, "objective-perturbation"),
        ([NUMBER], {"class_weight": "balanced"}, "objective-perturbation"),
        ([NUMBER], {"classes": ("a", "b", "c")}, "objective-perturbation"),
    ],
)
def test_tables_of_numbers_are_left_to_moments_that_read_units(
    columns: list[Column], options: dict[str, Any], name: str
) -> None:
    settings = {
        "classes": ("a", "b"),
        "schema": Schema(columns, intercept=True),
        "numbers": "lines",
        **options,
    }
    frame = pd.DataFrame({"age": [1.0], "far": [0.5], "site": ["b"]})[[c.name for c in columns]]
    model = PrivateLogisticRegression(1.0, **settings)
    assert model.fit(frame.sample(20_000, replace=True), ["a"] * 20_000).mechanism_ == name


def test_rare_levels_with_large_effects_stand_out_of_many_levels_without() -> None:
    """Ten columns of 15 levels, of which one of 2% each tells much, and the others nothing."""
    rng, n = np.random.default_rng(0), 3000
    shares = [*([0.07] * 14), 0.02]
    X = rng.choice(15, (2 * n, 10), p=shares)
    y = (rng.random(2 * n) < expit(2.5 * np.sum(X == 14, axis=1) - 2.6)).astype(int)
    schema = Schema([Categorical(f"c{j}", list(range(15))) for j in range(10)], intercept=True)
    model = PrivateLogisticRegression(5.0, schema=schema, classes=(0, 1), insecure_seed=1)
    scores = model.fit(X[:n], y[:n]).decision_function(X[n:])
    assert roc_auc_score(y[n:], scores) > 0.7
