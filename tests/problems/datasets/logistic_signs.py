"""The synthetic task of Wang and Xu (2019)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def make_logistic_signs(
    n: int = 10_000, d: int = 100, *, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    """Standard normal features scaled to l2 norm at most 1, labelled by the sign of a logistic model.

    The synthetic task of Wang and Xu (2019): a random parameter w, and y = +1 exactly when
    1 / (1 + exp(-<w, x>)) > 1/2. Rows are divided by 2 sqrt(d), about twice their
    length, and shortened to norm 1 where that was not enough.

    Args:
        n: number of records, at least 1.
        d: number of features, at least 1.
        seed: decides everything.

    Returns:
        X of shape (n, d), y in {-1, +1} of shape (n,), and w of shape (d,).
    """
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(d)
    X = rng.standard_normal((n, d)) / (2 * np.sqrt(d))
    X /= np.maximum(1, np.linalg.norm(X, axis=1))[:, None]
    return X, np.where(X @ w > 0, 1, -1).astype(np.int64), w
