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

# Halving steps on the public grids below: for centres, for scales, for lengths.
CENTRE_ROUNDS, SCALE_ROUNDS, LENGTH_ROUNDS = 16, 9, 6
# If all but about a fraction ``share`` of the distances are 0, the search for a scale may end at any value
# below the other distances. So a column is rejected if too few distances lie between half of its scale and
# eight times its scale, by three noisy counts.
_CHECKS, _NEAR, _TOO_FEW = 3, (0.5, 8.0), 0.5
# Probability that noise misleads a search for a scale where no distance is beyond a threshold.
_LOST = 1e-3
COUNT_ROUNDS = CENTRE_ROUNDS + SCALE_ROUNDS + _CHECKS
_SHARES = (0.2, 0.5)  # shares of mu^2
_BLOCK = 1 << 20  # numbers compared in one block


@dataclass(frozen=True)
class ColumnSearch:
    """Private medians of columns, and private tail quantiles of the distances from them and of row lengths.

    Every query counts the records beyond a threshold, or between two, in all columns at once, and is answered
    with Gaussian noise; the next threshold depends on noisy answers alone. The grids are public: centres are
    floats with 8 binary digits, scales powers of sqrt 2 from 2^-128 to 2^128, lengths powers of 2^(1/4) from
    2^-6 to 2^10.

    Privacy: mu-GDP with mu = ``level``, for columns without bounds; neighbours by replacing one record, n
    public. One record changes a count by at most 1, hence the counts of c columns by sqrt(c) in l2;
    adaptively chosen Gaussian releases compose (Dong, Roth and Su 2022, corollary 3.3).

    Attributes:
        n_records: n.
        counts: noise on the counts of all columns, in 28 queries.
        lengths: noise on the count of lengths, in 6 queries.
    """

    n_records: int
    counts: VectorNoise
    lengths: VectorNoise

    @classmethod
    def plan(cls, n_records: int, columns: int, mu: float) -> ColumnSearch:
        """Calibrate equal noise on all counts, mu-GDP together.

        Raises:
            PrivacyParameterError: a parameter out of range.
        """
        n, c = check_count(n_records, "n_records"), check_count(columns, "columns")
        rounds = COUNT_ROUNDS
        whole = c * rounds + LENGTH_ROUNDS
        share, change = math.sqrt(c * rounds / whole), math.sqrt(c) * (1 + 1e-12)
        counts = noise_at_level(mu * share, rounds, change, c, n)
        lengths = noise_at_level(mu * math.sqrt(LENGTH_ROUNDS / whole), LENGTH_ROUNDS, 1.0, 1, n)
        return cls(n, counts, lengths)

    @classmethod
    def within(cls, n_records: int, columns: int, mu: float) -> ColumnSearch | None:
        """Return a search that takes a fifth of mu^2, or half of it if a fifth is too little; None if there
        are too few records for either.
        """
        plans = (cls.plan(n_records, columns, mu * math.sqrt(share)) for share in _SHARES)
        return next((plan for plan in plans if plan.usable), None)

    @property
    def level(self) -> float:
        """The privacy level mu of all queries together."""
        counts = self.counts.level(COUNT_ROUNDS)
        return math.hypot(counts, self.lengths.level(LENGTH_ROUNDS)) * (1 + 1e-12)

    @property
    def rank(self) -> float:
        """Least number of records beyond a threshold that noisy counts can tell from none."""
        return -float(ndtri(_LOST / SCALE_ROUNDS / self.counts.dimension)) * self.counts.sigma

    @property
    def usable(self) -> bool:
        """Whether there are enough records for useful noisy counts."""
        return self.rank < 0.45 * self.n_records

    def centres(self, columns: Floats, source: NoiseSource) -> Floats:
        """Release private medians of the columns of an array of shape (n, c)."""

        noisy = self.counts.adder(source, CENTRE_ROUNDS)

        def lower(thresholds: Floats) -> NDArray[np.bool_]:
            return noisy(_count(columns, thresholds, np.less_equal)) >= self.n_records / 2

        end = np.full(columns.shape[1], 1 << CENTRE_ROUNDS - 1)
        return _halved(lower, centre_grid, -end, end, CENTRE_ROUNDS)

    def scales(self, distances: Floats, share: Floats, source: NoiseSource) -> Floats:
        """Return private thresholds exceeded by ``share`` of each column of distances, shape (n, c).

        The threshold is 0 for a column whose distances are nearly all 0, or whose search failed.
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
        usual = (found > 2.0**-127.4) & (near > _TOO_FEW * ranks)  # the lowest grid point is 2^-127.5
        return np.where(usual, found, 0.0)

    def length(self, lengths: Floats, share: float, source: NoiseSource) -> float:
        """Return a private threshold exceeded by ``share`` of the lengths, shape (n,)."""
        rank = max(share * self.n_records, self.rank)
        noisy = self.lengths.adder(source, LENGTH_ROUNDS)

        def lower(thresholds: Floats) -> NDArray[np.bool_]:
            return noisy(_count(lengths[:, None], thresholds, np.greater)) <= rank

        low, high = np.array([-24]), np.array([40])
        return float(_halved(lower, lambda i: 2.0 ** (i / 4), low, high, LENGTH_ROUNDS)[0])


def centre_grid(index: NDArray[np.int64]) -> Floats:
    """Return the float with 8 binary digits of a given rank (0 for rank 0): sign, exponent, 7 more digits."""
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
    """Bisect intervals of 2^rounds grid steps down to one, and return their upper ends."""
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
