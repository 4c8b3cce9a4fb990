"""Every released number has noise of its own: two that share it tell their exact difference."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from privopt.mechanisms import NoiseSource
from privopt.mechanisms.evaluation.bins import ScoreBins
from privopt.mechanisms.evaluation.histogram import HistogramPlan
from privopt.mechanisms.evaluation.residuals import ResidualPlan
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.mechanisms.scorecards.prevalence import PrevalencePlan

HISTOGRAM = HistogramPlan.plan(ScoreBins((0.0,)), epsilon=0.5)
AGGREGATE = SampleAggregate.plan(270, 3, subsets=270, radius=1.0, epsilon=1.0, delta=1e-2)
ROBUST = RobustMean.plan(100, 3, moment=1.0, epsilon=1.0, delta=1e-2)
TRIMMED = TrimmedMean.plan(100, 3, mean_range=(-1.0, 1.0), epsilon=1.0, delta=1e-2)


def histogram(source: NoiseSource) -> np.ndarray:
    scores = np.repeat([-1.0, 1.0], 50)
    return HISTOGRAM.release(scores, np.arange(100) % 2 == 0, source).counts.ravel()


def residuals(source: NoiseSource) -> np.ndarray:
    return ResidualPlan.plan((-1.0, 1.0), epsilon=0.5).release(np.zeros(9), np.zeros(9), source).sums


def prevalence(source: NoiseSource) -> np.ndarray:
    return PrevalencePlan.plan(0.2, 4).release(np.full(4, 1000), source)[:3]  # four shares have a public sum


def aggregate(source: NoiseSource) -> np.ndarray:
    rows = np.random.default_rng(0).uniform(-0.5, 0.5, (270, 3))
    return AGGREGATE.release(rows, np.zeros(270), lambda X, y: X[0], source).point


def robust(source: NoiseSource) -> np.ndarray:
    return ROBUST.release(np.zeros((100, 3)), source).point


def trimmed(source: NoiseSource) -> np.ndarray:
    return TRIMMED.release(np.tile(np.linspace(-1, 1, 100)[:, None], 3), source).point


@pytest.mark.parametrize(
    "release", [histogram, residuals, prevalence, aggregate, robust, trimmed], ids=lambda f: f.__name__
)
def test_numbers_released_together_differ_by_noise(release: object) -> None:
    source = NoiseSource(insecure_seed=4)
    drawn = np.array([release(source) for _ in range(60)], dtype=float)  # type: ignore[operator]
    for i, j in combinations(range(drawn.shape[1]), 2):
        difference = drawn[:, i] - drawn[:, j]
        assert np.std(difference) > 0.5 * np.std(drawn[:, i])
        assert abs(np.corrcoef(drawn[:, i], drawn[:, j])[0, 1]) < 0.6  # 60 independent pairs: 5 deviations
