"""Random regression and classification with heavy tails. Seeded generators: no source of privacy noise."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]


def make_lognormal_line(
    n: int = 100_000, d: int = 10, *, spread: float = 1.0, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Draw y = <w, x> + e, e log-normal(0, spread) minus its mean.

    The ridge regression of Wang, Xiao, Devadas and Xu (2020). Features are standard normal, and w has norm 1:
    the paper states neither.

    Returns:
        X of shape (n, d), y of shape (n,), w of shape (d,).
    """
    X, w, rng = _features(n, d, seed)
    noise = rng.lognormal(0.0, spread, n) - math.exp(spread**2 / 2)
    return X, X @ w + noise, w


def make_loglogistic_signs(
    n: int = 100_000, d: int = 10, *, spread: float = 0.3, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Draw y = sign of <w, x> + e, e log-logistic(0, spread) minus its mean.

    The logistic regression of Wang, Xiao, Devadas and Xu (2020).

    Args:
        spread: below 1, where the mean exists; the tail of e has index 1 / spread.

    Returns:
        X of shape (n, d), y in {-1, +1} of shape (n,), w of shape (d,).
    """
    X, w, rng = _features(n, d, seed)
    if not 0 < spread < 1:
        raise InvalidInputError(f"spread must be in (0, 1), got {spread!r}")
    u = rng.random(n)
    noise = (u / (1 - u)) ** spread - math.pi * spread / math.sin(math.pi * spread)
    return X, np.where(X @ w + noise > 0, 1.0, -1.0), w


def _features(n: int, d: int, seed: int) -> tuple[Floats, Floats, np.random.Generator]:
    if n < 1 or d < 1:
        raise InvalidInputError(f"n and d must be at least 1, got n={n}, d={d}")
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(d)
    return rng.standard_normal((n, d)), w / np.linalg.norm(w), rng
