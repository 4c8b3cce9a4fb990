"""Histogram of scores by class with exact integer noise: the only release of a private evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.evaluation.bins import ScoreBins
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arrays import record_counts, tallied
from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# At this rate, 2**40 steps of 2**-30, noise is practically always 0; more steps would exceed 64 bits.
MOST_STEPS = 1 << 40
_RECORD_MOVES = 2  # a replaced record changes two counts: one down, one up


def scale_of(steps: int) -> float:
    """Return the scale, 1 / rate, of noise whose rate is steps / 2**30."""
    return 2.0**MAX_EXPONENT / steps


def variance_of(rate: float) -> float:
    """Return the variance of noise Z, a difference of two geometric variables: P[Z = z] ~ exp(-rate |z|)."""
    ratio = math.exp(-rate)
    return 2 * ratio / math.expm1(-rate) ** 2


def fourth_cumulant_of(rate: float) -> float:
    """Return the fourth cumulant of the noise of ``variance_of``."""
    ratio = math.exp(-rate)
    return 2 * ratio * (1 + 4 * ratio + ratio**2) / math.expm1(-rate) ** 4


class NoisyCounts:
    """Counts of all records by cell, each with independent noise Z, where P[Z = z] ~ exp(-rate |z|).

    Attributes:
        counts: integers, which may be negative.
        n_records: the public number of records.
        steps: rate = steps / 2**30.
    """

    counts: Ints
    n_records: int
    steps: int

    @property
    def rate(self) -> float:
        return self.steps / 2.0**MAX_EXPONENT

    @property
    def variance(self) -> float:
        """The variance of the noise of one count."""
        return variance_of(self.rate)

    @property
    def fourth_cumulant(self) -> float:
        """The fourth cumulant of the noise of one count."""
        return fourth_cumulant_of(self.rate)

    @property
    def fitted(self) -> Floats:
        """The counts, all shifted by the same amount so that they sum to the public number of records."""
        excess = (int(self.counts.sum()) - self.n_records) / self.counts.size
        return np.asarray(self.counts - excess, dtype=np.float64)


@dataclass(frozen=True)
class ScoreHistogram(NoisyCounts):
    """A released histogram. Everything computed from it is post-processing.

    Attributes:
        bins: the public bins of scores.
        counts: counts of records by bin and class, shape (bins, 2), the positive class second. Each count has
            independent noise Z with P[Z = z] ~ exp(-rate |z|); they may be negative.
        n_records: the public number of records.
        steps: rate = steps / 2**30.
        spend: the privacy spend of the release.
    """

    bins: ScoreBins
    counts: Ints
    n_records: int
    steps: int
    spend: PrivacySpend

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {
            "edges": list(self.bins.edges),
            "counts": self.counts.tolist(),
            "n_records": self.n_records,
            "steps": self.steps,
            "spend": self.spend.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the histogram of a record from ``to_dict``.

        Raises:
            InvalidInputError: the record is not from ``to_dict``.
        """
        try:
            counts = np.array(record["counts"])
            bins = ScoreBins(tuple(map(float, record["edges"])))
            steps, n = check_count(record["steps"], "steps"), check_count(record["n_records"], "n_records")
            spend = PrivacySpend.from_dict(record["spend"])
        except (KeyError, TypeError, ValueError, PrivacyParameterError) as error:
            raise InvalidInputError(f"not a histogram of scores ({type(error).__name__})") from error
        if counts.shape != (bins.size, 2) or counts.dtype.kind != "i":
            raise InvalidInputError("a histogram of scores holds a pair of integers for each bin")
        return cls(bins, counts.astype(np.int64), n, steps, spend)


@dataclass(frozen=True)
class HistogramPlan:
    """Count records by score bin and class, and add exact two-sided geometric noise to every count.

    Privacy: epsilon-differential privacy (pure), for data sets that differ by replacing one record; the
    number of records, the model and the bins are public. A replaced record lowers one count by 1 and raises
    another by 1, or changes none: at most 2 in l1. With noise P[z] ~ exp(-rate |z|), the probability of any
    table of counts therefore changes by a factor of at most exp(2 rate), and rate = steps / 2**30 is
    epsilon / 2 rounded down.

    Source: Ghosh, Roughgarden and Sundararajan (STOC 2009). The noise is sampled in integers by algorithm 2
    of Canonne, Kamath and Steinke (2020).
    """

    name: ClassVar[str] = "evaluation"
    noised: ClassVar[str] = "the number of records in each cell, by true class"

    bins: ScoreBins
    steps: int
    spend: PrivacySpend

    @classmethod
    def plan(cls, bins: ScoreBins, *, epsilon: float) -> Self:
        """Calibrate the noise to epsilon and to public facts.

        Raises:
            PrivacyParameterError: epsilon not finite and > 0, or too small for the grid of rates.
        """
        return cls(bins, noise_steps(epsilon), PrivacySpend.pure(epsilon, cls.name))

    def release(
        self,
        scores: Floats,
        positive: NDArray[np.bool_],
        noise: NoiseSource,
        counts: NDArray[np.int64] | None = None,
    ) -> ScoreHistogram:
        """Count and add noise, once. Costs ``spend``.

        Args:
            scores: shape (rows,), rows >= 1, without NaN.
            positive: whether each row is of the positive class, shape (rows,).
            counts: the number of records that each row stands for, shape (rows,); None: 1 for each row.
        """
        return self.release_counts(held_in(self.bins, scores, positive, counts), noise)

    def release_counts(self, held: Ints, noise: NoiseSource) -> ScoreHistogram:
        """Add noise, once, to the counts of all records, as returned by ``held_in``."""
        noisy = held + noise.discrete_laplace(MAX_EXPONENT, held.shape, steps=self.steps)
        return ScoreHistogram(self.bins, noisy, int(np.sum(held)), self.steps, self.spend_with(noise))

    def spend_with(self, noise: NoiseSource) -> PrivacySpend:
        """Return the spend of a release with this source."""
        return replace(self.spend, insecure_seed=noise.insecure_seed)


def noise_steps(epsilon: float) -> int:
    """Return the rate of noise on counts, in steps of 2**-30; a replaced record changes two counts by 1.

    Raises:
        PrivacyParameterError: epsilon not finite and > 0, or too small for the grid of rates.
    """
    steps: int = math.floor(min(check_epsilon(epsilon), 4096.0) / _RECORD_MOVES * 2**MAX_EXPONENT)
    if steps < 1:
        raise PrivacyParameterError(f"epsilon = {epsilon:g} is too small: noise would exceed 2^30")
    return min(steps, MOST_STEPS)


def held_in(
    bins: ScoreBins, scores: Floats, positive: NDArray[np.bool_], counts: NDArray[np.int64] | None = None
) -> Ints:
    """Return counts of records by bin and class, shape (bins, 2), not private.

    Arguments are those of ``HistogramPlan.release``.
    """
    cells = 2 * bins.of(scores) + positive
    return tallied(cells, record_counts(counts, len(scores)), 2 * bins.size).reshape(-1, 2)
