"""Full-batch DP-GD logistic regression, tuned on the data, not paid for: the baseline of scorecards."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.privacy.gradient_noise import gaussian_steps
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Method, Output, choose_output, noisy_iteration
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk

STEPS = (5, 20, 80, 200)
# In units of 1/L. The smoothness L is a worst case; much longer steps are often better.
STEP_SIZES = (1.0, 4.0, 16.0, 64.0)
_PILOT_DRAWS = 3


@dataclass(frozen=True)
class Tuning:
    """Hyper-parameters of one run: T, the step size in units of 1/L, and the iterate that is returned."""

    steps: int
    step_size: float
    output: Output


def dpgd_accuracies(
    X: ArrayLike,
    y: ArrayLike,
    X_test: ArrayLike,
    y_test: ArrayLike,
    epsilon: float,
    delta: float,
    draws: int,
    seed: int,
) -> list[tuple[float, float, float]]:
    """Return (training accuracy, test accuracy, seconds) of ``draws`` fits of DP-GD with tuned parameters.

    Privacy: each fit at fixed hyper-parameters is (epsilon, delta)-differentially private, neighbours by
    replacing one record, n public. The comparison favours DP-GD and is NOT private: the budget does not cover
    the scale of the features, which is computed from the data, nor the choice of the hyper-parameters, which
    are the best of the grid ``STEPS`` x ``STEP_SIZES`` x (last iterate, average) by mean training accuracy of
    a few pilot fits. The noise is seeded.

    Args:
        X, X_test: features, shapes (n, d) and (m, d), in any unit. A constant as large as the largest entry
            is appended for the intercept, and the bound on row norms is the largest norm.
        y, y_test: labels -1 or +1.
        epsilon, delta: the budget of one fit.
        draws: the number of fits.
        seed: the seed of the noise; equal seeds give equal results.

    Source: Bassily, Smith and Thakurta (2014) and Wang, Ye and Xu (2017), Algorithm 4, with T steps
    accounted as exactly one Gaussian release.
    """
    train = np.asarray(X, dtype=np.float64), np.asarray(y)
    constant = float(np.max(np.abs(train[0])))
    train, test = _extended(*train, constant), _extended(np.asarray(X_test), np.asarray(y_test), constant)
    features = train[0]
    row_norm = float(np.max(np.linalg.norm(features, axis=1)))
    risk = EmpiricalRisk(features, y, LogisticLoss(), row_norm=row_norm * (1 + 1e-9))
    tuning = best_tuning(risk, train, epsilon, delta, seed)
    source = NoiseSource(insecure_seed=seed)
    rows = []
    for _ in range(draws):
        began = time.perf_counter()
        w = dpgd(risk, tuning, epsilon, delta, source)
        seconds = time.perf_counter() - began
        rows.append((sign_accuracy(w, *train), sign_accuracy(w, *test), seconds))
    return rows


def best_tuning(
    risk: EmpiricalRisk,
    train: tuple[NDArray[np.float64], NDArray[np.int64]],
    epsilon: float,
    delta: float,
    seed: int,
) -> Tuning:
    """Return the tuning of the grid with the best mean training accuracy over a few fits. NOT private."""
    source = NoiseSource(insecure_seed=seed + 1_000_003)
    grid = [Tuning(*cell) for cell in product(STEPS, STEP_SIZES, (Output.LAST, Output.AVERAGE))]

    def quality(tuning: Tuning) -> float:
        fits = [dpgd(risk, tuning, epsilon, delta, source) for _ in range(_PILOT_DRAWS)]
        return float(np.mean([sign_accuracy(w, *train) for w in fits]))

    return max(grid, key=quality)


def dpgd(risk: EmpiricalRisk, tuning: Tuning, epsilon: float, delta: float, source: NoiseSource) -> Vector:
    """Fit once: x+ = x - eta (grad F(x) + noise) from 0. Privacy: as ``DPGradientDescent``."""
    facts = risk.facts
    noise = gaussian_steps(
        epsilon, delta, steps=tuning.steps, sensitivity=facts.sensitivity, dimension=facts.dimension
    )
    eta, start = tuning.step_size / facts.smoothness, np.zeros(facts.dimension)
    method = Method(start, lambda _k, _state, x, g: x - eta * g)
    iterates = noisy_iteration(method, risk.gradient, lambda g: noise.add(g, source), tuning.steps)
    return choose_output(iterates, tuning.output, start)


def _extended(X: NDArray[Any], y: NDArray[Any], constant: float) -> tuple[NDArray[Any], NDArray[Any]]:
    return np.column_stack([X, np.full(len(X), constant)]).astype(np.float64), y


def sign_accuracy(w: Vector, X: NDArray[np.float64], y: NDArray[np.int64]) -> float:
    """Return the accuracy of the sign of X w for labels -1 or +1; 0 predicts -1."""
    return float(np.mean(np.where(X @ w > 0, 1, -1) == y))
