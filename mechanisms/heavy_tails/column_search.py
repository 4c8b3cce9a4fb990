"""Private location and scale of unbounded columns, by binary search with noisy counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from privopt.mechanisms.privacy.gradient_noise import VectorNoise, noise_at_level
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count

Floats = NDArray[np.float64]

# Halvings of the public grids below: of centres, of scales, of one length.
CENTRE_ROUNDS, SCALE_ROUNDS, LENGTH_ROUNDS = 16, 9, 6
# Where all but about as many distances as a scale may leave are 0, a search may end anywhere below these,
# with nothing near: a column is left out if too few distances lie between half and eight times its scale,
# asked thrice.
_CHECKS, _NEAR, _TOO_FEW = 3, (0.5, 8.0), 0.5
# The probability that a search for scales takes a wrong turn where nothing is beyond a number.
_LOST = 1e-3
COUNT_ROUNDS = CENTRE_ROUNDS + SCALE_ROUNDS + _CHECKS
_SHARES = (0.2, 0.5)  # of mu^2
_BLOCK = 1 << 20  # numbers that are compared at a time


@dataclass(frozen=True)
class ColumnSearch:
    """Medians of columns, a tail quantile of their distances from them, and one of a length of each row.

    Every question is "how many records are beyond this number?", or lie between two, asked of all columns
    at once and answered with Gaussian noise; which number comes next depends on noisy answers alone. The
    grids are public: centres are floats with 8 binary digits, scales powers of sqrt 2 from 2^-128 to 2^128,
    lengths powers of 2^(1/4) from 2^-6 to 2^10.

    Privacy: mu-GDP with mu = ``level``, whatever the columns hold; neighbours by replacing one record, n
    public. One record moves a count by at most 1, and so the counts of c columns by sqrt(c) in l2; adaptively
    chosen Gaussian releases compose (Dong, Roth and Su 2022, corollary 3.3).

    Attributes:
        n_records: n.
        counts: noise on the counts of all columns, 28 times.
        lengths: noise on the count of lengths, 6 times.
    """

    n_records: int
    counts: VectorNoise
    lengths: VectorNoise

    @classmethod
    def plan(cls, n_records: int, columns: int, mu: float) -> ColumnSearch:
        """The same noise on every count, mu-GDP together.

        Raises:
            PrivacyParameterError: a parameter out of range.
        """
        n, c = check_count(n_records, "n_records"), check_count(columns, "columns")
        rounds = COUNT_ROUNDS
        whole = c * rounds + LENGTH_ROUNDS
        counts = noise_at_level(mu * math.sqrt(c * rounds / whole), rounds, math.sqrt(c) * (1 + 1e-12), c)
        lengths = noise_at_level(mu * math.sqrt(LENGTH_ROUNDS / whole), LENGTH_ROUNDS, 1.0, 1)
        return cls(n, counts, lengths)

    @classmethod
    def within(cls, n_records: int, columns: int, mu: float) -> ColumnSearch | None:
        """The search that takes a fifth of mu^2, or half of it, if there are enough records for either."""
        plans = (cls.plan(n_records, columns, mu * math.sqrt(share)) for share in _SHARES)
        return next((plan for plan in plans if plan.usable), None)

    @property
    def level(self) -> float:
        """mu."""
        counts = self.counts.level(COUNT_ROUNDS)
        return math.hypot(counts, self.lengths.level(LENGTH_ROUNDS)) * (1 + 1e-12)

    @property
    def rank(self) -> float:
        """The least number of records beyond a threshold: noise hides fewer."""
        return -float(ndtri(_LOST / SCALE_ROUNDS / self.counts.dimension)) * self.counts.sigma

    @property
    def usable(self) -> bool:
        """True if there are enough records for useful noisy counts."""
        return self.rank < 0.45 * self.n_records

    def centres(self, columns: Floats, source: NoiseSource) -> Floats:
        """Private medians of the columns of an array of shape (n, c)."""

        noisy = self.counts.adder(source, CENTRE_ROUNDS)

        def lower(thresholds: Floats) -> NDArray[np.bool_]:
            return noisy(_count(columns, thresholds, np.less_equal)) >= self.n_records / 2

        end = np.full(columns.shape[1], 1 << CENTRE_ROUNDS - 1)
        return _halved(lower, centre_grid, -end, end, CENTRE_ROUNDS)

    def scales(self, distances: Floats, share: Floats, source: NoiseSource) -> Floats:
        """Private thresholds that ``share`` of each column of distances, shape (n, c), are beyond.

        0 for a column whose distances are nearly all 0, or for which the search went astray.
        """
        ranks = np.maximum(share * self.n_records, self.rank)
        noisy = self.counts.adder(source, SCALE_ROUNDS)

        def lower(thresholds: Floats) -> NDArray[np.bool_]:
            return noisy(_count(distances, thresholds, np.greater)) <= ranks

        end = np.full(distances.shape[1], 1 << SCALE_ROUNDS - 1)
        found = _halved(lower, lambda i: 2.0 ** (i / 2), -end, end, SCALE_ROUNDS)
        again = self.counts.adder(source, _CHECKS)
        beyond, far = (_count(distances, end * found, np.greater) for end in _NEAR)
        near = np.mean([again(beyond - far) for _ in range(_CHECKS)], axis=0)
        usual = (found > 2.0**-127.4) & (near > _TOO_FEW * ranks)  # the lowest end is 2^-127.5
        return np.where(usual, found, 0.0)

    def length(self, lengths: Floats, share: float, source: NoiseSource) -> float:
        """A private threshold that ``share`` of some lengths, shape (n,), are beyond."""
        rank = max(share * self.n_records, self.rank)
        noisy = self.lengths.adder(source, LENGTH_ROUNDS)

        def lower(thresholds: Floats) -> NDArray[np.bool_]:
            return noisy(_count(lengths[:, None], thresholds, np.greater)) <= rank

        low, high = np.array([-24]), np.array([40])
        return float(_halved(lower, lambda i: 2.0 ** (i / 4), low, high, LENGTH_ROUNDS)[0])


def centre_grid(index: NDArray[np.int64]) -> Floats:
    """Numbers of 8 binary digits by rank, 0 for 0: sign, exponent, 7 more digits."""
    exponent, digits = np.divmod(np.minimum(np.abs(index), 32639), 128)
    size = np.ldexp(1 + digits / 128, exponent - 127)
    return np.asarray(np.where(index == 0, 0.0, np.sign(index) * size))


def _halved(
    lower: Callable[[Floats], NDArray[np.bool_]],
    grid: Callable[[NDArray[np.int64]], Floats],
    low: NDArray[np.int64],
    high: NDArray[np.int64],
    rounds: int,
) -> Floats:
    """The upper ends of intervals of 2^rounds steps that are halved until one is left."""
    for _ in range(rounds):
        middle = (low + high) // 2
        down = lower(grid(middle))
        low, high = np.where(down, low, middle), np.where(down, middle, high)
    return grid(high)


def _count(columns: Floats, thresholds: Floats, beyond: np.ufunc) -> Floats:
    """Count the numbers of each column beyond its threshold."""
    rows = max(1, _BLOCK // columns.shape[1])
    parts = (columns[k : k + rows] for k in range(0, len(columns), rows))
    found = [np.count_nonzero(beyond(part, thresholds), axis=0) for part in parts]
    return np.asarray(np.sum(found, axis=0), dtype=np.float64)
