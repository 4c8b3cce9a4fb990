"""Feature screening and moments of the selected features: sensitivity, cost, releases."""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.mechanisms.convex import screened_statistics
from privopt.mechanisms.convex.screened_statistics import (
    ScreenedStatistics,
    feature_scores,
    score_sensitivity,
)
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import zcdp_epsilon
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.choice import choose_risk_mechanism
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SquaredLoss
from privopt.problems.convex.partitioned import PartitionedRisk, PartRisk
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.parts import Whole

BUDGET: dict[str, float] = {"epsilon": 2.0, "delta": 1e-6}
LABEL = SquaredLoss(3.0)  # labels are bounded by 1.5


def risk(X: Any, y: Any, loss: Any = LABEL, **options: Any) -> EmpiricalRisk:
    return EmpiricalRisk(X, y, loss, **{"norm": "linf", "row_norm": 2.0, **options})


def table(n: int = 300, d: int = 40, seed: int = 0) -> tuple[Any, Any, Any]:
    """Sparse counts of both signs, of which three columns decide the label, and labels -1 and 1."""
    rng = np.random.default_rng(seed)
    X = rng.integers(-2, 3, size=(n, d)) * (rng.random((n, d)) < 0.3) * 1.0
    chance = 1 / (1 + np.exp(-3 * (X[:, 3] + X[:, 17] - X[:, 30])))
    return X, np.where(rng.random(n) < chance, 1.0, -1.0), np.array([3, 17, 30])


def covariance_scores(X: Any, y: Any, most: float, bound: float) -> Any:
    """n times the larger magnitude of the covariances of both parts, by NumPy."""
    y, n = np.clip(y, -bound, bound), len(y)
    parts = np.clip(X, 0, most), np.clip(-X, 0, most)
    found = [[abs(np.cov(part[:, j], y, bias=True)[0, 1]) for j in range(X.shape[1])] for part in parts]
    return n * np.max(found, axis=0)


CORNERS = st.sampled_from([-5.0, -2.0, 0.0, 2.0]) | st.floats(-3, 3)
LABELS = st.sampled_from([-1.5, 1.5, 9.0]) | st.floats(-2, 2)
RECORD = st.tuples(CORNERS, LABELS)


@settings(max_examples=80, deadline=None)
@given(st.lists(RECORD, min_size=0, max_size=5), RECORD, RECORD)
def test_a_replaced_record_moves_no_score_by_more_than_the_sensitivity(
    others: list[tuple[float, float]], one: tuple[float, float], other: tuple[float, float]
) -> None:
    rows = [[*others, record] for record in (one, other)]
    found = [
        covariance_scores(np.array([[x] for x, _ in some]), np.array([y for _, y in some]), 2.0, 1.5)
        for some in rows
    ]
    facts = RiskFacts(len(others) + 1, 1, LABEL, 2.0, "linf")
    assert abs(float(found[0][0] - found[1][0])) <= score_sensitivity(facts)


@pytest.mark.parametrize("n", [2, 10, 1000])
def test_the_sensitivity_is_attained(n: int) -> None:
    """A record of R and B, or -B, beside records of 0 and of -B: n cov is 0, or 2 R B (n - 1) / n."""
    X, labels = np.zeros((n, 1)), np.full(n, -1.5)
    X[-1] = 2.0
    high = labels.copy()
    high[-1] = 1.5
    before, after = (feature_scores(risk(X, y))[0] for y in (labels, high))
    assert after - before == pytest.approx(2 * 2.0 * 1.5 * (n - 1) / n, rel=1e-12)
    assert after - before <= score_sensitivity(risk(X, labels).facts) <= (after - before) * (1 + 1e-6)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array])
def test_scores_by_definition_dense_sparse_and_counted(kind: Any) -> None:
    X, y, _ = table()
    X, y = 2 * X, 2 * y  # entries and labels beyond their bounds are clipped
    expected = covariance_scores(X, y, 2.0, 1.5)
    assert feature_scores(risk(kind(X), y)) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    counts = 1 + np.arange(len(y)) % 3
    repeated = covariance_scores(np.repeat(X, counts, axis=0), np.repeat(y, counts), 2.0, 1.5)
    assert feature_scores(risk(kind(X), y, counts=counts)) == pytest.approx(repeated, rel=1e-9, abs=1e-9)


def test_rounding_of_sums_over_many_records_is_paid_for() -> None:
    """Half of the records at either bound, in single precision tenths: exact sums by integers."""
    n = 200_001
    X, y = np.full((n, 1), 0.1), np.where(np.arange(n) % 2, 1.5, -1.5)
    facts = risk(X[:2], y[:2]).facts
    found = feature_scores(risk(X, y))[0]
    exact = abs(0.1 * float(y.sum()) - float(y.sum()) / n * 0.1 * n)
    spare = score_sensitivity(dataclasses.replace(facts, n_records=n)) - 2 * 2.0 * 1.5 * (n - 1) / n
    assert 2 * abs(found - exact) <= spare
    assert spare == pytest.approx(2 * 2.0 * 1.5 * 3 * n * (n + 8) * 2.0**-53, rel=1e-6)


@pytest.mark.parametrize(
    ("n", "d", "loss", "norm", "epsilon", "delta"),
    [
        (4000, 5001, LogisticLoss(), "linf", 3.0, 1e-7),
        (300, 40, LABEL, "linf", 0.3, 1e-4),
        (100_000, 30, LogisticLoss(), "l2", 8.0, 1e-9),
        (50, 3, LABEL, "l2", 1.0, 1e-3),
    ],
)
def test_draws_and_moments_spend_the_claim(
    n: int, d: int, loss: Any, norm: Any, epsilon: float, delta: float
) -> None:
    """rho from the noise and from sensitivities derived here: 2 R B (n - 1) / n, (3 / sqrt 2) r^2 / n."""
    facts = RiskFacts(n, d, loss, 1.0, norm)
    bound = loss.threshold / 2 if isinstance(loss, SquaredLoss) else 1.0
    for releases in (1, 3):
        plan = ScreenedStatistics.plan(facts, epsilon=epsilon, delta=delta, releases=releases)
        draw = 2 * plan.noise["score_scale"] ** -1 * 2 * bound * (n - 1) / n
        moved = 3 / math.sqrt(2) * (plan.moments.facts.row_norm_l2**2 + plan.moments.offset**2) / n
        rho = plan.selection.count * draw**2 / 8 + (moved / plan.noise["sigma"]) ** 2 / 2
        assert 0.99 * epsilon <= zcdp_epsilon(releases * rho, delta) <= epsilon
        assert plan.spend.level is not None
        assert releases * rho <= plan.spend.level
        assert (plan.spend.epsilon, plan.spend.delta, plan.spend.notion) == (epsilon, delta, "zcdp")


def test_features_are_more_for_more_budget_and_at_most_all() -> None:
    def count(n: int, epsilon: float, d: int = 5000, constant: float = 0.0) -> int:
        facts = RiskFacts(n, d, LogisticLoss(), 1.0, "linf", constant)
        return ScreenedStatistics.plan(facts, epsilon=epsilon, delta=1e-6).selection.count

    assert 4 == count(500, 0.5) < count(4000, 1.0) < count(4000, 3.0) < count(40_000, 3.0) < 500
    assert count(10**7, 3.0) == 500
    assert (count(10**7, 3.0, 7), count(10**7, 3.0, 7, 1.0), count(500, 0.5, 2, 1.0)) == (7, 6, 1)


@pytest.mark.parametrize("loss", [LogisticLoss(), LABEL])
def test_without_noise_the_best_features_are_fitted_alone(loss: Any) -> None:
    X, y, informative = table(2000)
    found = ScreenedStatistics.plan(risk(X, y, loss).facts, **BUDGET)
    point = found.without_noise(risk(X, y, loss))
    best = np.sort(np.argsort(-covariance_scores(X, y, 2.0, 1.5))[: found.selection.count])
    assert set(informative) <= set(best.tolist())
    inner = risk(X[:, best], y, loss, norm="l2", row_norm=found.moments.facts.row_norm)
    alone = SufficientStatistics.plan(inner.facts, **BUDGET).without_noise(inner)
    assert point[best] == pytest.approx(alone, rel=1e-9)
    assert np.all(np.delete(point, best) == 0)


def released(data: EmpiricalRisk, seed: int = 1, epsilon: float = 20.0) -> Any:
    plan = ScreenedStatistics.plan(data.facts, epsilon=epsilon, delta=1e-6)
    return plan.release(data, NoiseSource(insecure_seed=seed)).point


def test_a_release_finds_informative_features_in_a_table_of_any_kind() -> None:
    X, y, informative = table(4000)
    X = np.column_stack([X, np.full(len(X), 2.0)])
    options: dict[str, Any] = {"loss": LogisticLoss(), "constant": 2.0}
    dense = risk(X, y, **options)
    point = released(dense)
    assert point[informative] @ [1, 1, -1] > 1
    assert point[-1] != 0
    assert released(risk(sp.csr_array(X), y, **options)) == pytest.approx(point, rel=1e-9, abs=1e-12)
    halves = [slice(0, 1000), slice(1000, None)]

    class Parts(Whole):
        def each(self, task: Any) -> Any:
            return [task(PartRisk(X[b, :-1], y[b], dense.facts, 2.0)) for b in halves]

    parted = released(PartitionedRisk(Parts(None), dense.facts))
    assert parted == pytest.approx(point, rel=1e-9, abs=1e-12)


def test_selection_and_moments_use_their_noise() -> None:
    X, y, _ = table(300)
    chosen = {tuple(np.flatnonzero(released(risk(X, y), seed, 0.5))) for seed in range(8)}
    assert len(chosen) > 4
    weights = [released(risk(X[:, :2], y), seed)[0] for seed in range(2)]  # all features are selected
    assert weights[0] != weights[1]


@pytest.mark.parametrize(
    ("d", "norm", "loss", "size", "name"),
    [
        (5000, "linf", LogisticLoss(), None, "screened-statistics"),
        (101, "linf", LABEL, None, "screened-statistics"),
        (100, "linf", LABEL, None, "sufficient-statistics"),
        (512, "l2", LABEL, None, "sufficient-statistics"),
        (1000, "l2", LogisticLoss(), None, "sufficient-statistics"),
        (1001, "l2", LABEL, None, "screened-statistics"),
        (5000, "linf", LogisticLoss(), 2.0, "dp-fw-l1"),
        (5000, "linf", HuberLoss(1.0), None, "dp-fw-l1"),
    ],
)
def test_the_automatic_choice_follows_from_public_facts(
    d: int, norm: Any, loss: Any, size: float | None, name: str
) -> None:
    facts = RiskFacts(4000, d, loss, 1.0, norm)
    choice = choose_risk_mechanism("auto", facts, None if size is None else L1Ball(d, size), mu=0.3)
    assert choice.kind.name == name


def test_combinations_that_it_does_not_take_are_refused() -> None:
    facts = RiskFacts(100, 3, LogisticLoss(), 1.0, "linf")
    ball: dict[str, Any] = {"convex_set": L1Ball(3, 1.0)}
    for one, more in itertools.chain(
        [(dataclasses.replace(facts, loss=HuberLoss(1.0)), {})],
        [(facts, ball), (facts, {"regularizer": ridge(0.1)})],
        [(RiskFacts(100, 1, LogisticLoss(), 1.0, "linf", 1.0), {})],
    ):
        with pytest.raises(PrivacyParameterError, match="use dp-fw-l1"):
            ScreenedStatistics.plan(one, **more, **BUDGET)
    with pytest.raises(PrivacyParameterError, match="delta"):
        ScreenedStatistics.plan(facts, epsilon=1.0)


def test_noise_is_compared_with_the_score_of_a_deciding_feature() -> None:
    """log(d) scales of the Gumbel law against n / 2 records at R and B."""
    plan = ScreenedStatistics.plan(RiskFacts(1000, 50, LABEL, 2.0, "linf"), **BUDGET)
    expected = math.log(50) * plan.noise["score_scale"] / (500 * 2.0 * 1.5)
    assert plan.noise_to_signal.ratio == pytest.approx(expected)
    assert screened_statistics.entry_bound(RiskFacts(10, 2, LABEL, 3.0, "l2")) == pytest.approx(3.0, rel=1e-5)
