"""Simple private classifiers for comparison: AdaSSP, and a naive Bayes classifier of one release."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.problems.tables.columns import Numeric
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]
# Number of cells of equal width between the bounds of a number.
_CELLS = 10


def ada_ssp(
    X: Floats, y: Floats, norm: float, epsilon: float, delta: float, rng: np.random.Generator
) -> Floats:
    """Return weights of AdaSSP (Wang 2018, Algorithm 2); the last is for a constant feature, norm / 2.

    Labels are in [-1/2, 1/2]. The three releases (the smallest eigenvalue, X'X and X'y) have exact Gaussian
    noise for a third of mu^2 each, under replace-one, instead of the larger printed noise.
    """
    Z = np.column_stack([X, np.full(len(X), norm / 2)])
    d, longest, mu = Z.shape[1], math.hypot(norm, norm / 2), gaussian_mu(epsilon, delta) / 3**0.5
    A = Z.T @ Z
    sigma = math.sqrt(2) * longest**2 / mu
    least = np.linalg.eigvalsh(A)[0] + longest**2 / mu * (rng.normal() - math.sqrt(2 * math.log(6 / delta)))
    penalty = max(0.0, math.sqrt(d * math.log(2 * d**2 / 0.05)) * sigma - max(least, 0.0))
    upper = np.triu(rng.normal(size=A.shape), 1) / math.sqrt(2)
    noisy = A + sigma * (upper + upper.T + np.diag(rng.normal(size=d)))
    b = Z.T @ y + longest / mu * rng.normal(size=d)
    return np.asarray(np.linalg.solve(noisy + penalty * np.eye(d), b))


def naive_bayes(
    schema: Schema,
    records: Any,
    labels: NDArray[Any],
    others: Any,
    epsilon: float,
    delta: float,
    rng: np.random.Generator,
) -> Floats:
    """Return scores of other records by naive Bayes, from noisy counts of every cell of a column by class.

    A replaced record changes two counts of a column by one, so that the sensitivity of all counts together is
    the square root of twice the number of columns. Negative counts become 0; one standard deviation of the
    noise, or 1 if that is less, is added to every count.
    """
    scores = np.zeros(len(others))
    noise = math.sqrt(2 * len(schema.columns)) / gaussian_mu(epsilon, delta)
    for column in schema.columns:
        size, (codes, left_out) = _cells(column, records[column.name], others[column.name])
        counts = np.zeros((2, size))
        np.add.at(counts, (labels, codes), 1.0)
        counts = np.maximum(counts + noise * rng.normal(size=counts.shape), 0) + max(noise, 1.0)
        shares = counts / counts.sum(axis=1, keepdims=True)
        scores += np.log(shares[1] / shares[0])[left_out]
    return scores


def _cells(column: Any, *halves: Any) -> tuple[int, list[NDArray[np.int64]]]:
    """Return the number of cells of a column, and the cells of values; the last is for all other values."""
    if isinstance(column, Numeric):
        low, high = float(column.low), float(column.high)
        scaled = [(half.to_numpy(np.float64) - low) / (high - low) * _CELLS for half in halves]
        return _CELLS + 1, [_whole(values) for values in scaled]
    levels = {value: code for code, value in enumerate(column.categories)}
    return len(levels) + 1, [
        np.array([levels.get(value, len(levels)) for value in half.tolist()]) for half in halves
    ]


def _whole(values: Floats) -> NDArray[np.int64]:
    known = np.clip(np.floor(values), 0, _CELLS - 1)
    return np.where(np.isnan(values), _CELLS, known).astype(np.int64)
