"""Logistic regression by DP-SGD with the best of a grid: the baseline of Neel, Roth, Vietri and Wu (2020)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.privacy.poisson import poisson_multiplier

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Accounting = Literal["printed", "sound"]

CLIPS, BATCHES, RATES, EPOCHS = (0.25, 1.0), (256, 1024), (0.5, 2.0, 8.0), 10
_PILOTS = 2
_ORDERS = (*range(2, 65), 128, 256, 512)


@dataclass(frozen=True)
class Tuning:
    """Hyper-parameters of one run: clipping norm of gradients, expected batch size, learning rate."""

    clip: float
    batch: int
    rate: float


def grid() -> list[Tuning]:
    return [Tuning(*choice) for choice in product(CLIPS, BATCHES, RATES)]


def noise_multiplier(
    epsilon: float, delta: float, batch: int, n: int, d: int, accounting: Accounting
) -> float:
    """Return the noise in units of the clipping norm, for ``EPOCHS`` epochs of Poisson batches.

    Args:
        accounting: "printed": add/remove neighbours, by Renyi divergences of the sampled Gaussian, as in the
            library of the source paper; "sound": replace-one neighbours, as for the other mechanisms, by
            privacy loss distributions.
    """
    q, steps = min(1.0, batch / n), math.ceil(EPOCHS * n / batch)
    if accounting == "sound":
        return poisson_multiplier(epsilon, delta, q=q, steps=steps, coordinates=steps * d)
    return _moments_multiplier(epsilon, delta, q, steps)


@lru_cache(maxsize=64)
def _moments_multiplier(epsilon: float, delta: float, q: float, steps: int) -> float:
    from dp_accounting import dp_event  # slow to import, and rarely needed
    from dp_accounting.rdp import RdpAccountant

    def spent(z: float) -> float:
        sampled = dp_event.PoissonSampledDpEvent(q, dp_event.GaussianDpEvent(z))
        return float(RdpAccountant(_ORDERS).compose(sampled, steps).get_epsilon(delta))

    low, high = 0.1, 1.0
    while spent(high) > epsilon:
        low, high = high, 2 * high
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return high


def dpsgd(X: Floats, y: Labels, tuning: Tuning, multiplier: float, rng: np.random.Generator) -> Floats:
    """Return the average of all iterates, started at 0. The noise is seeded: for public data only."""
    n, d = X.shape
    q, steps = min(1.0, tuning.batch / n), math.ceil(EPOCHS * n / tuning.batch)
    lengths = np.linalg.norm(X, axis=1)
    w, total = np.zeros(d), np.zeros(d)
    for noise in rng.normal(0.0, multiplier * tuning.clip, (steps, d)):
        batch = np.flatnonzero(rng.random(n) < q)
        rows, labels = X[batch], y[batch]
        slopes = -labels / (1 + np.exp(labels * (rows @ w)))
        shares = np.minimum(1.0, tuning.clip / np.maximum(np.abs(slopes) * lengths[batch], 1e-300))
        w = w - tuning.rate / tuning.batch * ((slopes * shares) @ rows + noise)
        total += w
    return np.asarray(total / steps)


def _shape(X: Floats) -> tuple[int, int]:
    n, d = X.shape
    return n, d


def best_tuning(
    X: Floats, y: Labels, epsilon: float, delta: float, accounting: Accounting, choices: Sequence[Tuning]
) -> Tuning:
    """Return the tuning with the best mean training accuracy of a few fits. NOT private, as in the source."""
    rng = np.random.default_rng(1)

    def quality(tuning: Tuning) -> float:
        z = noise_multiplier(epsilon, delta, tuning.batch, *_shape(X), accounting)
        return float(np.mean([accuracy(dpsgd(X, y, tuning, z, rng), X, y) for _ in range(_PILOTS)]))

    return max(choices, key=quality)


def dpsgd_fits(
    X: Floats, y: Labels, epsilon: float, delta: float, accounting: Accounting, runs: int
) -> list[tuple[Floats, float]]:
    """Return the weights and seconds of several fits with the best tuning of the grid.

    Privacy: each fit at fixed hyper-parameters is (epsilon, delta)-differentially private. The budget does
    not cover the choice of the hyper-parameters, and the noise is seeded.
    """
    tuning = best_tuning(X, y, epsilon, delta, accounting, grid())
    z = noise_multiplier(epsilon, delta, tuning.batch, *_shape(X), accounting)
    fits = []
    for run in range(runs):
        began = time.perf_counter()
        w = dpsgd(X, y, tuning, z, np.random.default_rng(run))
        fits.append((w, time.perf_counter() - began))
    return fits


def accuracy(w: Floats, X: Floats, y: Labels) -> float:
    """Return the accuracy of the sign of X w; 0 predicts -1."""
    return float(np.mean(np.where(X @ w > 0, 1, -1) == y))
