"""Gradient perturbation by Bassily, Smith and Thakurta (FOCS 2014): n^2 noisy steps of one record.

For comparison, not for use: noise is sampled by NumPy in floating point, and not exactly, as the mechanisms
of the package do. Imports numba.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@njit(cache=True)
def one_record_steps(
    X: Floats,
    y: Floats,
    steps: int,
    sigma: float,
    l2: float,
    radius: float,
    rng: np.random.Generator,
) -> tuple[Floats, int]:
    """Return the last weights of logistic regression over an l2 ball, and the gradients that were evaluated.

    Each step takes every record with probability 1/n, so that the noise of sampled batches covers it. Step t
    has size 1 / (l2 t) or, without strong convexity, |C| / sqrt(t V), with |C| the diameter of the ball and V
    a bound on the expected squared norm of a noisy gradient for rows of norm 1 (Theorem 2.4 of the paper).
    """
    n, p = X.shape
    w, g = np.zeros(p), np.empty(p)
    used = 0
    for t in range(1, steps + 1):
        for j in range(p):
            g[j] = l2 * w[j] + sigma * rng.standard_normal()
        for _ in range(rng.binomial(n, 1 / n)):
            i = rng.integers(0, n)
            z = 0.0
            for j in range(p):
                z += X[i, j] * w[j]
            slope = -y[i] / (1 + math.exp(y[i] * z))
            for j in range(p):
                g[j] += slope * X[i, j]
            used += 1
        eta = 1 / (l2 * t) if l2 > 0 else 2 * radius / math.sqrt(t * (1 + p * sigma**2))
        size = 0.0
        for j in range(p):
            w[j] -= eta * g[j]
            size += w[j] ** 2
        if size > radius**2:
            w *= radius / math.sqrt(size)
    return w, used
