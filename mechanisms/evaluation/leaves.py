"""Noisy counts of records by leaf of a released tree and by class, and the risks computed from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.evaluation.histogram import Floats, Ints, NoisyCounts, noise_steps
from privopt.mechanisms.evaluation.intervals import Intervals
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arrays import record_counts, tallied
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class LeafHistogram(NoisyCounts):
    """A released histogram. Everything computed from it is post-processing.

    Attributes:
        counts: counts of records by leaf and class, shape (leaves, K), each with independent noise.
        n_records: the public number of records.
        steps: the rate of the noise, see ``NoisyCounts``.
        spend: the privacy spend of the release.
    """

    counts: Ints
    n_records: int
    steps: int
    spend: PrivacySpend

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {
            "counts": self.counts.tolist(),
            "n_records": self.n_records,
            "steps": self.steps,
            "spend": self.spend.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], leaves: int, classes: int) -> Self:
        """Return the histogram of a record from ``to_dict``.

        Raises:
            InvalidInputError: the record is not from ``to_dict``, or has other numbers of leaves or classes.
        """
        try:
            counts = np.array(record["counts"])
            steps, n = check_count(record["steps"], "steps"), check_count(record["n_records"], "n_records")
            spend = PrivacySpend.from_dict(record["spend"])
            if max(steps, n) >= 2**63:
                raise ValueError("numbers that no release has")
        except (KeyError, TypeError, ValueError, PrivacyParameterError) as error:
            raise InvalidInputError(f"not a histogram of leaves ({type(error).__name__})") from error
        if counts.shape != (leaves, classes) or counts.dtype.kind != "i":
            raise InvalidInputError("a histogram of leaves holds an integer for each leaf and class")
        return cls(counts.astype(np.int64), n, steps, spend)


@dataclass(frozen=True)
class LeafPlan:
    """Count records by leaf and class, and add exact two-sided geometric noise to every count.

    Privacy: epsilon-differential privacy (pure), for data sets that differ by replacing one record; the
    number of records and the released tree are public. A replaced record lowers one count by 1 and raises
    another by 1, or changes none: at most 2 in l1, whatever the number of classes. The noise is the same as
    in ``HistogramPlan``.
    """

    name: ClassVar[str] = "leaf-histogram"
    noised: ClassVar[str] = "the number of records in each cell, by true class"

    steps: int
    spend: PrivacySpend

    @classmethod
    def plan(cls, epsilon: float) -> Self:
        """Calibrate to epsilon.

        Raises:
            PrivacyParameterError: epsilon not finite and > 0, or too small for the grid of rates.
        """
        return cls(noise_steps(epsilon), PrivacySpend.pure(epsilon, cls.name))

    def release(
        self, leaf: Ints, label: Ints, shape: tuple[int, int], noise: NoiseSource, counts: Ints | None = None
    ) -> LeafHistogram:
        """Count and add noise, once. Costs ``spend``.

        Args:
            leaf: the number of the leaf of each row, shape (rows,).
            label: the class index of each row, shape (rows,).
            shape: (leaves, classes).
            noise: the source of noise.
            counts: the number of records that each row stands for, shape (rows,); None: 1 for each row.
        """
        cells = shape[1] * leaf + label
        held = tallied(cells, record_counts(counts, len(leaf)), shape[0] * shape[1]).reshape(shape)
        return self.release_counts(held, noise)

    def release_counts(self, held: Ints, noise: NoiseSource) -> LeafHistogram:
        """Add noise, once, to counts of all records by leaf and class, shape (leaves, K). Costs ``spend``."""
        noisy = held + noise.discrete_laplace(MAX_EXPONENT, held.shape, steps=self.steps)
        spend = replace(self.spend, insecure_seed=noise.insecure_seed)
        return LeafHistogram(noisy, int(np.sum(held)), self.steps, spend)


@dataclass(frozen=True)
class LeafRisks:
    """The share of each class in each leaf. Post-processing of a histogram.

    Negative counts are set to 0. Then 1 + s records, with the class shares of the whole table, are added to
    every leaf, where s is the standard deviation of the noise of a count. So no risk is 0 or 1, and if a leaf
    has few records compared with the noise, its risks are about the average ones.

    Attributes:
        shares: shape (leaves, K); rows sum to 1.
        lows, highs: the confidence interval of each single share, for the population from which the records
            were drawn; it includes the noise.
        sizes: the share of records in each leaf, shape (leaves,).
        confidence: of each interval.
    """

    shares: Floats
    lows: Floats
    highs: Floats
    sizes: Floats
    confidence: float

    @classmethod
    def of(cls, histogram: LeafHistogram, confidence: float = 0.95) -> Self:
        """Compute the risks from a histogram."""
        counts = np.maximum(histogram.fitted, 0.0)
        overall = counts.sum(axis=0) + 0.5
        added = 1.0 + np.sqrt(histogram.variance)
        filled = counts + added * overall / overall.sum()
        shares = filled / filled.sum(axis=1, keepdims=True)
        intervals, lows, highs = Intervals(histogram, "population", confidence), [], []
        for (leaf, k), share in np.ndenumerate(shares):
            inside = np.zeros(counts.shape, dtype=bool)
            inside[leaf] = True
            others = inside.copy()
            inside[leaf], inside[leaf, k], others[leaf, k] = False, True, False
            found = intervals.share(inside, others)
            lows.append(min(found.low, share))
            highs.append(max(found.high, share))
        held = np.maximum(counts.sum(axis=1), 1e-9)
        low, high = (np.array(column).reshape(shares.shape) for column in (lows, highs))
        return cls(shares, low, high, held / held.sum(), confidence)
