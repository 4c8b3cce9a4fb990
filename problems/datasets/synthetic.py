"""Random instances for tests and benchmarks. Seeded generators: no source of privacy noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError


def make_cells(
    n: int,
    blocks: Sequence[int] = (7, 6, 5, 2),
    numeric: int = 3,
    *,
    grid: int = 16,
    noise: float = 0.1,
    seed: int,
) -> tuple[IntArray, IntArray]:
    """Return a table of the usual kind: numbers on a grid, then one-hot categories of uneven frequency.

    Records with equal categories form cells. Labels come from a random halfspace with weights in [-2, 2]^d,
    flipped with probability ``noise``.

    Args:
        n: number of records, at least 1.
        blocks: number of categories of each categorical column, each at least 1.
        numeric: number of numeric columns, which come first.
        grid: numeric features are 0, ..., grid, and one-hot features 0 or grid: a common denominator.
        noise: probability with which each label is flipped, independently.
        seed: of the generator.

    Returns:
        X of shape (n, numeric + sum(blocks)) and y of shape (n,) with entries -1 and +1; both int64.

    Raises:
        InvalidInputError: an empty shape, or a probability outside [0, 1].
    """
    _check(n=n, grid=grid, **{f"blocks[{i}]": size for i, size in enumerate(blocks)})
    _check(columns=numeric + len(blocks))
    rng = np.random.default_rng(seed)
    parts = [rng.integers(0, grid + 1, size=(n, numeric), dtype=np.int64)]
    for size in blocks:
        chances = rng.dirichlet(np.ones(size))
        parts.append(grid * np.eye(size, dtype=np.int64)[rng.choice(size, size=n, p=chances)])
    X = np.hstack(parts)
    w: IntArray = rng.integers(-2, 3, size=(X.shape[1],), dtype=np.int64)
    return X, _labels(X, w, noise, rng)


@dataclass(frozen=True)
class SparseDesign:
    """Law of tables for sparse regression: y = x'b + noise, with few columns of equal weight.

    Features are normal with unit variance, neighbouring ones correlated. The informative columns are spread
    evenly, with weights of 1/sqrt(s) each: the design of published comparisons of best subset selection.

    Attributes:
        features: p >= 1.
        informative: s, 1 to p.
        snr: variance of x'b over the variance of the noise, > 0.
        correlation: of neighbouring columns, in (-1, 1); its j-th power for columns that are j apart.

    Raises:
        InvalidInputError: a number out of its range.
    """

    features: int
    informative: int
    snr: float = 5.0
    correlation: float = 0.1

    def __post_init__(self) -> None:
        _check(features=self.features, informative=self.informative)
        if not (self.informative <= self.features and 0 < self.snr < math.inf and abs(self.correlation) < 1):
            raise InvalidInputError(
                "a sparse design needs at most as many informative columns as features, snr > 0 and a "
                f"correlation between -1 and 1; got {self.informative} of {self.features}, {self.snr} and "
                f"{self.correlation}"
            )

    @property
    def support(self) -> IntArray:
        """The informative columns, in increasing order."""
        return np.arange(self.informative, dtype=np.int64) * (self.features // self.informative)

    def table(self, n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Draw X, shape (n, p), and y, shape (n,)."""
        X = rng.normal(size=(n, self.features))
        fresh = math.sqrt(1 - self.correlation**2)
        for j in range(1, self.features):
            X[:, j] = self.correlation * X[:, j - 1] + fresh * X[:, j]
        apart = np.abs(np.subtract.outer(self.support, self.support))
        variance = float(np.sum(self.correlation**apart)) / self.informative
        signal = X[:, self.support].sum(axis=1) / math.sqrt(self.informative)
        return X, signal + math.sqrt(variance / self.snr) * rng.normal(size=n)


def _labels(X: IntArray, w: IntArray, noise: float, rng: np.random.Generator) -> IntArray:
    if not 0 <= noise <= 1:
        raise InvalidInputError(f"noise is a probability between 0 and 1, got {noise}")
    positive: NDArray[np.bool_] = (X @ w > 0) != (rng.random(len(X)) < noise)
    return np.where(positive, 1, -1).astype(np.int64)


def _check(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise InvalidInputError(f"{name} must be at least 1, got {count}")
