"""Noise against signal of plans: how it scales, what releases show of it, and when it warns."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.mechanisms import (
    MEANS,
    MECHANISMS,
    RISK_MECHANISMS,
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustClassifier,
    PrivateSubsetSelector,
    PrivateTreeClassifier,
)
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.discrete.branching import BranchingPlan
from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.errors import BudgetExceededError, PrivacyParameterError
from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.heavy_tails.measured_descent import MeasuredRobustDescent
from privopt.mechanisms.heavy_tails.trimmed_descent import TrimmedGradientDescent
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.ambient import budget
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.usefulness import NoiseToSignal, NoiseWarning, warn_if_noise
from privopt.problems import Categorical, IntegerLattice, Numeric, Schema, ZeroOneHalfspace
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets import L1Ball, L2Ball
from privopt.problems.convex.truncation import INFLUENCE
from privopt.problems.convex.unclipped import PLAIN_SQUARES, unclipped_facts
from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.discrete.supports import BestSubset, SubsetBounds
from privopt.problems.discrete.tree import DecisionTree

LATTICE = IntegerLattice(-1, 1, dimension=5)
BALLS: dict[str, Any] = {"dp-fw-l1": L1Ball(2, 1.0), "net": L2Ball(2, 1.0)}


def test_noise_of_linear_models_is_told_before_a_record_is_read() -> None:
    X = pd.DataFrame({"a": np.arange(60.0)})
    facts: dict[str, Any] = {"schema": Schema([Numeric("a", 0, 60)]), "delta": 1e-6}
    with budget(epsilon=0.001, delta=1e-9) as book:
        for model, y in (
            (PrivateLogisticRegression(0.01, classes=(0, 1), **facts), np.arange(60) % 2),
            (PrivateLinearRegression(0.01, label_range=(0.0, 1.0), **facts), np.arange(60) / 60),
        ):
            with pytest.warns(NoiseWarning), pytest.raises(BudgetExceededError):
                model.fit(X, y)
        assert book.entries() == []


def test_nothing_is_compared_with_no_signal() -> None:
    for signal in (0.0, -1.0, float("nan")):
        with pytest.raises(PrivacyParameterError, match="signal"):
            NoiseToSignal(1.0, signal, "noise")


def ratio(name: str, epsilon: float, n: int) -> float:
    """Return noise over signal of a plan of any mechanism that predicts it."""
    if name in MECHANISMS:
        plan = MECHANISMS[name].plan(ZeroOneHalfspace, LATTICE, epsilon=epsilon, delta=1e-6)
        return float(plan.noise_to_signal(n).ratio)
    if name in MEANS:
        fact = {"moment": 1.0} if name == "robust-mean" else {"mean_range": (-1.0, 1.0)}
        return float(MEANS[name].plan(n, 2, **fact, epsilon=epsilon, delta=1e-6).noise_to_signal.ratio)
    facts, kind = RiskFacts(n, 2, LogisticLoss(), 1.0), RISK_MECHANISMS[name]
    space = BALLS.get(name, L2Ball(2, 1.0) if kind.wants_bounded_set else None)
    penalty = ridge(0.1) if name in ("output-perturbation", "dp-svrg") else ridge(0.0)
    return float(kind.plan(facts, space, penalty, epsilon=epsilon, delta=1e-6).noise_to_signal.ratio)


@pytest.mark.parametrize("name", [*MECHANISMS, *RISK_MECHANISMS, *MEANS])
def test_noise_falls_with_epsilon_and_records(name: str) -> None:
    few, more, richer = ratio(name, 0.5, 2000), ratio(name, 0.5, 8000), ratio(name, 2.0, 2000)
    assert 0 < more < 0.6 * few
    assert 0 < richer < 0.6 * few


def test_the_ratio_of_a_gradient_method_is_two_d_over_n_mu() -> None:
    """Sensitivity 2 G / n over mu, times sqrt(d), against G / sqrt(d), whatever the steps."""
    facts = RiskFacts(1000, 9, LogisticLoss(), 1.0)
    for steps in (1, 16):
        plan = DPGradientDescent.plan(facts, epsilon=1.0, delta=1e-6, steps=steps)
        assert plan.noise_to_signal.ratio == pytest.approx(2 * 9 / (1000 * plan.spend.level), rel=1e-3)


@pytest.mark.parametrize("name", ["exponential", "opdisc", "rspm", "rspm-laplace"])
def test_excess_losses_without_a_signal_are_within_what_is_predicted(name: str) -> None:
    """Noise alone, with equal losses everywhere but one loss less at one point, by enumeration."""
    rng, points = np.random.default_rng(0), np.concatenate(list(LATTICE.batches()))
    plan = MECHANISMS[name].plan(ZeroOneHalfspace, LATTICE, epsilon=1.0, delta=1e-6)
    if name == "exponential":
        # Worst gap t between one point and the others: the expected excess is t K / (K + e^(beta t)).
        gaps = np.linspace(0, 3 * plan.excess, 2000)
        rest = len(points) - 1
        found = float(np.max(gaps * rest / (rest + np.exp(plan.beta * gaps))))
    elif name == "opdisc":
        square = LATTICE.max_squared_norm
        sphere = np.column_stack([points, np.sqrt(square - np.sum(points**2, axis=1))]) / math.sqrt(square)
        found = float(np.mean(np.max(rng.normal(0, plan.sigma, (2000, 6)) @ sphere.T, axis=1)))
    else:
        separators = ZeroOneHalfspace.separators(LATTICE)
        losses = (points @ separators.records.T <= 0).astype(float)
        deviation = plan.scale if name == "rspm" else math.sqrt(2) * plan.scale
        eta = rng.normal(0, deviation, (2000, separators.size))
        found = float(np.mean(np.max(eta @ losses.T, axis=1)))
    assert 0.3 * plan.excess < found < 1.3 * plan.excess


def test_the_noise_of_a_trimmed_mean_is_that_of_releases() -> None:
    """Records within the range, evenly spread: at most the predicted deviation, and a good part of it."""
    X = np.linspace(-1, 1, 500)[:, None]
    plan = TrimmedMean.plan(500, 1, mean_range=(-1.0, 1.0), epsilon=1.0, delta=1e-6)
    source = NoiseSource(insecure_seed=0)
    found = np.array([plan.release(X, source).point[0] for _ in range(400)])
    assert 0.2 * plan.noise_to_signal.noise < float(np.std(found)) < 1.2 * plan.noise_to_signal.noise


def test_the_ratio_of_a_robust_fit_is_two_d_over_n_mu() -> None:
    """A coordinate's gradient is clipped to b; one record moves d of them by 2 b sqrt(d) / n."""
    n, d, mu = 100, 6, gaussian_mu(1.0, 1e-6)  # too few records to search for units
    for loss in (PLAIN_SQUARES, LogisticLoss()):
        plan = ClippedNewton.plan(n, d, loss, epsilon=1.0, delta=1e-6)
        assert plan.search is None
        rest = mu * math.sqrt(0.7)  # its moments take 30% of mu^2
        assert plan.noise_to_signal.ratio == pytest.approx(2 * (d + 1) / (n * rest), rel=1e-3)


def test_the_ratio_of_a_robust_descent_is_that_of_a_step() -> None:
    """The last iterate has the noise of its step, sqrt(T) times that of a release; E g^2 <= v bounds E g."""
    n, d = 100, 6
    for steps in (1, 16):
        plan = MeasuredRobustDescent.plan(n, d, PLAIN_SQUARES, epsilon=1.0, delta=1e-6, steps=steps)
        assert plan.search is None
        soft = plan.descent.truncation
        largest = min(math.sqrt(2.0), INFLUENCE * soft.scale)  # of a second moment of 2, in private units
        shift = 2 * INFLUENCE * soft.scale * (d + 1) / n
        expected = shift * math.sqrt(steps) / gaussian_mu(1.0, 1e-6) / largest
        assert plan.noise_to_signal.ratio == pytest.approx(expected, rel=1e-3)
    trimmed = TrimmedGradientDescent.plan(
        unclipped_facts(400_000, d, PLAIN_SQUARES), mean_range=(-1, 1), epsilon=1.0, delta=1e-6, steps=4
    )
    mean = TrimmedMean.plan(
        400_000, 4 * d, mean_range=(-1, 1), epsilon=1.0, delta=1e-6, trimmed=trimmed.trimming.trimmed
    )  # as many means at the same budget
    each = math.sqrt(d) * mean.noise_to_signal.ratio
    assert trimmed.noise_to_signal.ratio == pytest.approx(each)


@pytest.mark.parametrize("kind", [DecisionTree, RuleList])
@pytest.mark.parametrize("root_splits", [False, True])
def test_a_tree_loses_no_more_than_predicted_over_one_split(
    kind: type[BranchingProblem], root_splits: bool
) -> None:
    """The exact law over all models of two predicates, one of weight 2, on labels of any pattern."""
    weights, costs = np.array([1, 2]), CostMatrix.equal(2)
    plan = BranchingPlan.plan(
        kind, weights, 400, epsilon=0.2, costs=costs, max_levels=2, root_splits=root_splits
    )
    points = np.concatenate(list(plan.choice.lattice.batches()))
    X = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], 100, axis=0)[:, [0, 1, 1]]  # a column for each value
    measure, rng = plan.noise_to_signal(len(X)), np.random.default_rng(0)
    for share in ((0, 0, 1, 1), (0.2, 0.9, 0.3, 0.6), (0.5, 0.5, 0.5, 0.5)):
        y = (rng.random(400) < np.repeat(share, 100)).astype(np.int64)
        losses = kind(X, y, plan.choice.lattice).losses(points).astype(float)
        chances = np.exp(-plan.choice.beta * (losses - losses.min()))
        split = X[:, 0] == 1
        least = sum(min(int(y[side].sum()), int((1 - y[side]).sum())) for side in (split, ~split))
        assert float(chances @ losses / chances.sum()) <= least + measure.noise
    assert measure.signal == 200
    assert plan.noise_to_signal(20).is_noise


def test_a_draw_of_columns_loses_no_more_than_predicted() -> None:
    """The exact law over all pairs of five columns, on labels that two of them explain, or none."""
    bounds, rng = SubsetBounds(2.0, feature=1.0), np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 5))
    for epsilon in (0.05, 2.0):
        plan = SubsetPlan.plan(5, 2, bounds, epsilon=epsilon)
        measure = plan.noise_to_signal(300)
        for y in (X[:, 0] + X[:, 3], rng.uniform(-2, 2, 300)):
            problem = BestSubset(X, y, plan.lattice, bounds)
            points = np.concatenate(list(plan.lattice.batches()))
            losses = problem.losses(points).astype(float)
            chances = np.exp(-plan.choice.beta * (losses - losses.min()))
            added = float(chances @ losses / chances.sum() - losses.min())
            # losses are counted in parts of (label + largest prediction)^2 = 16
            assert added * 16 / plan.choice.loss_bound <= measure.noise
        # beta is smaller by 1e-4 for the arithmetic
        assert measure.noise == pytest.approx(math.log(10) * 2 * 16 / epsilon, rel=2e-4)
        assert measure.signal == 300 * 4


def test_noise_of_a_choice_of_columns_is_told_before_a_record_is_read(tmp_path: Any) -> None:
    """The ledger refuses, so that nothing is read, and the warning is there; with more records it is not."""
    facts: dict[str, Any] = {"data_norm": 1.0, "label_range": (-1.0, 1.0)}
    selector = PrivateSubsetSelector(2, **facts)
    regression = PrivateLinearRegression(mechanism="best-subset", max_features=2, delta=1e-6, **facts)
    for model in (selector, regression):
        book = Ledger.create(tmp_path / type(model).__name__, epsilon=1e-4, delta=1e-9)
        model.set_params(epsilon=0.05, ledger=book)
        with (
            pytest.warns(NoiseWarning, match="no better than a constant"),
            pytest.raises(BudgetExceededError),
        ):
            model.fit(np.zeros((40, 8)), np.zeros(40))
        model.set_params(epsilon=2.0)
        with warnings.catch_warnings():
            warnings.simplefilter("error", NoiseWarning)
            with pytest.raises(BudgetExceededError):
                model.fit(np.zeros((1000, 8)), np.zeros(1000))


def test_noise_of_robust_fits_and_of_trees_is_told_before_a_record_is_read(tmp_path: Any) -> None:
    """The ledger refuses, so that nothing is read, and the warning is there."""
    schema = Schema([Categorical(name, ["no", "yes"]) for name in "abcdef"])
    table = {name: np.array(["no", "yes"] * 10) for name in "abcdef"}
    for kind in (PrivateTreeClassifier, PrivateRobustClassifier):
        book = Ledger.create(tmp_path / kind.__name__, epsilon=1e-4, delta=1e-9)
        model = kind(0.01, schema=schema, classes=(0, 1), ledger=book)
        with (
            pytest.warns(NoiseWarning, match="no better than a constant"),
            pytest.raises(BudgetExceededError),
        ):
            model.fit(pd.DataFrame(table), np.array([0, 1] * 10))
    shown = PrivateTreeClassifier(0.01, schema=schema, classes=(0, 1)).plan(20)
    assert "noise / signal" in str(shown)
    assert "no better than a constant" in str(shown)


def test_noise_is_told_before_a_record_is_read(tmp_path: Any) -> None:
    """The ledger refuses the fit, so that nothing is read, and the warning is there."""
    schema = Schema([Categorical(name, ["no", "yes"]) for name in "abcdef"])
    book = Ledger.create(tmp_path / "book", epsilon=1e-4, delta=1e-9)
    model = PrivateHalfspaceClassifier(0.01, schema=schema, classes=(0, 1), ledger=book)
    table = {name: np.array(["no", "yes"] * 10) for name in "abcdef"}
    with (
        pytest.warns(NoiseWarning, match="no better than a constant"),
        pytest.raises(BudgetExceededError),
    ):
        model.fit(table, np.array([0, 1] * 10))


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (1.0, "expect an answer no better than a constant"),
        (0.99, "the answer may be worse than a constant"),
        (0.1, "the answer may be worse than a constant"),
    ],
)
def test_what_is_expected_follows_the_ratio_and_is_what_a_fit_says(ratio: float, expected: str) -> None:
    measure = NoiseToSignal(ratio, 1.0, "x")
    assert expected in measure.warning
    with pytest.warns(NoiseWarning, match=re.escape(measure.warning)):
        warn_if_noise(measure)


def test_little_noise_is_not_warned_of() -> None:
    assert NoiseToSignal(0.099, 1.0, "x").warning == ""
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoiseWarning)
        warn_if_noise(NoiseToSignal(0.099, 1.0, "x"))
        warn_if_noise(None)


def test_one_is_noise_and_less_is_none() -> None:
    assert NoiseToSignal(1.0, 1.0, "x").is_noise
    assert NoiseToSignal(math.nan, 1.0, "x").is_noise
    assert not NoiseToSignal(0.99, 1.0, "x").is_noise


def test_random_weights_of_separators_move_a_minimum_by_no_more_than_predicted() -> None:
    """The largest sum of weights over three values of each of 20 coordinates, in 4,000 draws."""
    plan = MECHANISMS["rspm"].plan(
        ZeroOneHalfspace, IntegerLattice(-1, 1, dimension=20), epsilon=1.0, delta=1e-6
    )
    rng = np.random.default_rng(0)
    walks = np.cumsum(rng.normal(0, plan.scale, (4000, 20, 2)), axis=2)
    seen = float(np.mean(np.sum(np.maximum(np.max(walks, axis=2), 0.0), axis=1)))
    assert seen < plan.excess < 2 * seen


def test_weights_of_an_averaged_minimum_are_noise_where_that_is_half_their_range() -> None:
    """sqrt(2) times the scale of the Laplace noise; losses of so many records are larger than the tilts."""
    for width in (1, 3):
        plan = OPSamp.plan(
            ZeroOneHalfspace,
            IntegerLattice(-width, width, dimension=3),
            n_records=10**9,
            epsilon=1.0,
            delta=1e-4,
            draws=200,
        )
        measure = plan.noise_to_signal
        assert measure.noise == pytest.approx(math.sqrt(2) * plan.mean.laplace.scale)
        assert measure.signal == width
