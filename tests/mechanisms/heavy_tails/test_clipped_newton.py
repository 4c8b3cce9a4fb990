"""Private units, moments and clipped steps: what they claim, what a record can do, what they find."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
from privopt.mechanisms.heavy_tails.column_search import ColumnSearch, centre_grid
from privopt.mechanisms.heavy_tails.measured_descent import MeasuredRobustDescent, MeasuredTrimmedDescent
from privopt.mechanisms.heavy_tails.units import Units, searched_columns
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import StepClock
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.unclipped import PLAIN_SQUARES
from privopt.problems.errors import InvalidInputError


@pytest.mark.parametrize("loss", [PLAIN_SQUARES, LogisticLoss()])
@pytest.mark.parametrize(("n", "d", "epsilon", "classes"), [(100, 3, 0.1, 1), (10**5, 40, 2.0, 3)])
def test_plans_spend_their_claim(n: int, d: int, epsilon: float, classes: int, loss: object) -> None:
    """From noise and the sensitivities of the theory: counts 1, moments sqrt 2 (1 + 1/4), steps 2 clip."""
    plan = ClippedNewton.plan(n, d, loss, epsilon=epsilon, delta=1e-6, releases=classes)  # type: ignore[arg-type]
    columns = d + (loss is PLAIN_SQUARES)
    squares = 0.0
    if plan.search is not None:
        squares = 28 * columns / plan.search.counts.sigma**2 + 6 / plan.search.lengths.sigma**2
    squares += 2 * 1.25**2 / (n * plan.moment_noise.sigma) ** 2
    squares += plan.steps * classes * (2 * plan.noise["clip"] / n / plan.step_noise.sigma) ** 2
    assert (plan.search is None) == (n == 100)
    # The upper triangle of moments of d features and the constant, whose own moment is public.
    assert plan.moment_noise.dimension == (d + 1) * (d + 2) / 2 - 1
    assert 0.999 * epsilon <= gaussian_epsilon(math.sqrt(squares), 1e-6) <= epsilon * (1 + 1e-9)
    assert plan.spend.level is not None
    assert math.sqrt(squares) <= plan.spend.level * (1 + 1e-9) <= gaussian_mu(epsilon, 1e-6) * (1 + 1e-9)


def test_features_that_are_0_or_1_are_not_searched() -> None:
    """Of d = 5 with 3 flags the counts of 2 columns and the labels are paid for; of flags alone, of one."""
    for flags, columns in (((), 6), ((1, 2, 4), 3), (tuple(range(5)), 2)):
        plan = ClippedNewton.plan(10**5, 5, PLAIN_SQUARES, epsilon=1.0, delta=1e-6, flags=flags)
        assert plan.search is not None
        assert plan.search.counts.dimension == columns
        rng = np.random.default_rng(0)
        X = 1000 + rng.standard_normal((400, 5))
        X[:, list(flags)] = rng.uniform(size=(400, len(flags))) < 0.02
        units = Units.found(plan.search, X, X[:, 0], NoiseSource(insecure_seed=0), flags)
        assert np.array_equal(np.flatnonzero((units.centres == 0) & (units.scales == 1)), flags)


def test_labels_that_are_numbers_have_a_unit_and_classes_have_none() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 2)), 50 + 5 * rng.standard_normal(400)
    for loss in (PLAIN_SQUARES, LogisticLoss()):
        plan = ClippedNewton.plan(400, 2, loss, epsilon=1e4, delta=1e-6)
        labels = y if loss is PLAIN_SQUARES else np.sign(y - 50)
        units = plan._units(X, labels, NoiseSource(insecure_seed=0))
        if loss is PLAIN_SQUARES:
            assert 40 < units.label_centre < 60
            assert 1 < units.label_scale < 25
        else:
            assert (units.label_centre, units.label_scale) == (0.0, 1.0)


@pytest.mark.parametrize("kind", [MeasuredRobustDescent, MeasuredTrimmedDescent])
@pytest.mark.parametrize("n", [100, 20_000])
def test_measured_descents_spend_their_claim(kind: type[MeasuredRobustDescent], n: int) -> None:
    plan = kind.plan(n, 3, PLAIN_SQUARES, epsilon=1.0, delta=1e-6)
    searched = 0.0 if plan.search is None else gaussian_epsilon(plan.search.level, 5e-7)
    assert (plan.search is None) == (n == 100)
    assert 0.999 <= searched + plan.descent.spend.epsilon <= 1.0
    assert plan.descent.spend.delta == (1e-6 if plan.search is None else 5e-7)
    assert ("counts_sigma" in plan.noise) == (plan.search is not None)  # all noise is stated
    assert kind.plan(n, 3, PLAIN_SQUARES, epsilon=1.0, delta=1e-6, steps=7).steps == 7


def test_weights_in_private_units_predict_what_the_raw_ones_do() -> None:
    """The label is its centre plus scale * <rows, weights>; a column without a scale has no weight."""
    rng = np.random.default_rng(0)
    X, weights = rng.uniform(size=(50, 3)), rng.standard_normal(4)
    units = Units(np.array([0.25, -4.0, 3.0]), np.array([2.0, 8.0, 0.0]), 10.0, -1.5, 3.0)
    raw = units.raw(weights)
    predicted = units.label_centre + units.label_scale * (units.rows(X) @ weights)
    assert X @ raw[:-1] + raw[-1] == pytest.approx(predicted, rel=1e-12)
    assert raw[2] == 0
    assert searched_columns(1, (0,)) == [0]  # a search asks about a column that there is


def wild(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    """Numbers of every size, and zeros."""
    return rng.choice([-1.0, 0.0, 1.0], (n, d)) * 10.0 ** rng.uniform(-300, 300, (n, d))


def test_a_record_is_bounded_whatever_it_holds() -> None:
    """Rows and their moments, and turned and clipped gradients, at the bounds that the noise is for."""
    rng = np.random.default_rng(0)
    for d in (1, 4, 30):
        X = np.concatenate([wild(rng, 200, d), rng.standard_normal((200, d)) * 1e3])
        units = Units(wild(rng, 1, d)[0], 10.0 ** rng.uniform(-15, 15, d), 0.7)
        rows = units.rows(X)
        assert np.all(np.isfinite(rows))
        assert np.max(np.linalg.norm(rows, axis=1)) <= math.sqrt(1.25)
        assert np.all(rows[:, -1] == 0.5)
        A = rows[:, :, None] * rows[:, None, :]
        moved = np.linalg.norm(A[:200] - A[200:], axis=(1, 2))
        assert np.max(moved) <= math.sqrt(2) * 1.25
        plan = ClippedNewton.plan(1, d, PLAIN_SQUARES, epsilon=1.0, delta=1e-6, steps=1)
        turned = rows @ plan.metric(np.cov(rows.T) + np.eye(d + 1) / 100)
        for y in (wild(rng, 400, 1)[:, 0], np.full(400, 1e308)):
            for k in range(0, 400, 7):
                seen: list[np.ndarray] = []

                def spy(g: np.ndarray, seen: list[np.ndarray] = seen) -> np.ndarray:
                    seen.append(g)
                    return g

                clock = StepClock(Limits().start(), 1)
                plan._descend(turned[k : k + 1], y[k : k + 1], spy, clock)
                assert np.linalg.norm(seen[0]) <= plan.clip_of(d, PLAIN_SQUARES) * (1 + 1e-12)


def test_units_of_too_few_records_leave_numbers_as_they_are() -> None:
    units = Units.unscaled(3)
    assert (units.label_centre, units.label_scale, units.row_norm) == (0.0, 1.0, math.sqrt(3))
    assert (units.centres.tolist(), units.scales.tolist()) == ([0.0] * 3, [1.0] * 3)
    clips = [ClippedNewton.clip_of(d, PLAIN_SQUARES) for d in (0, 3)]  # a constant is a feature, too
    assert clips[1] == pytest.approx(2 * clips[0])


def test_searches_find_medians_scales_and_lengths() -> None:
    rng = np.random.default_rng(1)
    n, source = 50_000, NoiseSource(insecure_seed=0)
    X = np.column_stack(
        [rng.normal(2010, 5, n), rng.lognormal(-20, 1, n), np.zeros(n), -(10.0**30) * rng.pareto(2, n)]
    )
    search = ColumnSearch.plan(n, 4, 0.5)
    assert search.usable
    centres = search.centres(X, source)
    # Of 8 binary digits, between the quantiles that the noise allows.
    for j, centre in enumerate(centres):
        low, high = np.quantile(X[:, j], [0.45, 0.55])
        assert low - abs(low) / 100 <= centre <= high + abs(high) / 100
    distances = np.abs(X - centres)
    scales = search.scales(distances, np.full(4, 0.25), source)
    beyond = np.mean(distances > scales, axis=0)
    assert scales[2] == 0.0
    assert np.all((beyond[[0, 1, 3]] > 0.1) & (beyond[[0, 1, 3]] < 0.35))
    length = search.length(np.abs(rng.standard_normal(n)), 0.1, source)
    assert 1.3 < length < 2.2
    # The grid has four points to a power of two.
    assert 100 <= search.length(np.full(n, 100.0), 0.1, source) < 100 * 2**0.25


def test_columns_that_are_0_about_as_often_as_the_rank_do_not_get_tiny_scales() -> None:
    """There every threshold between 0 and the others is as good: one far below them blows weights up.

    A tiny scale takes three answers of 0 records whose mean is above half the rank: for 4 columns that is
    3.49 standard deviations, a probability of 2.4e-4 at most, and of 1e-4 for three among 360.
    """
    n, shares = 5000, np.array([0.5, 0.6, 0.7, 0.8])
    search = ColumnSearch.plan(n, 4, 0.3)
    X = (np.arange(n)[:, None] < shares * search.rank).astype(float)
    found = np.array([search.scales(X, np.zeros(4), NoiseSource(insecure_seed=s)) for s in range(90)])
    assert np.count_nonzero((found > 0) & (found < 1 / 16)) <= 2  # a check of what is far: some 30


def test_scales_of_usual_columns_stand() -> None:
    rng, n = np.random.default_rng(2), 5000
    search = ColumnSearch.plan(n, 4, 0.3)
    smooth = [rng.normal(size=n), rng.pareto(1.0, n), np.exp(rng.normal(size=n))]
    X = np.abs(np.column_stack([*smooth, rng.poisson(3, n)]))
    found = np.array([search.scales(X, np.zeros(4), NoiseSource(insecure_seed=s)) for s in range(40)])
    assert np.count_nonzero(found == 0) <= 2


def test_the_grid_of_centres_has_every_size_and_both_signs() -> None:
    index = np.arange(-(2**15), 2**15 + 1)
    grid = centre_grid(index)
    assert np.all(np.diff(grid) >= 0)
    assert np.array_equal(grid, -grid[::-1])
    assert grid[2**15] == 0
    positive = grid[2**15 + 128 : -129]
    assert np.max(positive[1:] / positive[:-1]) <= 1 + 1 / 128


def test_what_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="squared and the logistic"):
        ClippedNewton.plan(10, 2, HuberLoss(1.0), epsilon=1.0, delta=1e-3)
    with pytest.raises(PrivacyParameterError, match="1,000 features"):
        ClippedNewton.plan(10, 1001, PLAIN_SQUARES, epsilon=1.0, delta=1e-3)
    plan = ClippedNewton.plan(10, 2, PLAIN_SQUARES, epsilon=1.0, delta=1e-3)
    with pytest.raises(PlanMismatchError, match="plan again"):
        plan.release(np.zeros((10, 3)), [np.zeros(10)])
    with pytest.raises(PlanMismatchError, match="plan again"):
        plan.release(np.zeros((10, 2)), [np.zeros(10)] * 2)
    with pytest.raises(PrivacyParameterError):
        ClippedNewton.plan(10, 2, PLAIN_SQUARES, epsilon=1.0, delta=1e-3, steps=0)
