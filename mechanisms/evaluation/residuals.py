"""Sums of residuals and labels with exact integer noise: the only release of a private regression evaluation.

Labels y and predictions p are clipped to the declared range [low, high], whose width is w and whose middle is
c. With

    e = (y - p) / w,   t = 2 (y - c) / w,   both in [-1, 1],

each record adds ten numbers to the sums: e, |e|, e^2, t, t^2, and e^4, t^3, t^4, e^2 t, e^2 t^2. The last
five are for the sampling variances of metrics.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.evaluation.histogram import MOST_STEPS, fourth_cumulant_of, variance_of
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Block(NamedTuple):
    """Numbers whose sums get noise of the same rate.

    Attributes:
        names: the names of the numbers.
        share: the share of epsilon that is spent on them.
        reach: the largest l1 distance between the numbers of two records.
    """

    names: tuple[str, ...]
    share: float
    reach: float


def pair(odd: str, even: str, share: float) -> Block:
    """Return the block of two numbers o in [-1, 1] and v with o^2 <= v <= |o|.

    The reach of the block is 2 + 1/4. For two records (o, v) and (o', v') with v >= v', the l1 distance is
    |o - o'| + v - v' <= |o| + |o'| + 1 - o'^2 <= 2 + 1/4, as |o'| - o'^2 <= 1/4.
    """
    return Block((odd, even), share, 2.25)


# The shares were chosen on synthetic tasks. The reach of (e, |e|) is 2: if |e| >= |e'|, then
# |e - e'| + |e| - |e'| <= 2 |e|.
BLOCKS = (
    Block(("e", "|e|"), 0.16, 2.0),
    Block(("e^2",), 0.32, 1.0),
    Block(("e^4",), 0.08, 1.0),
    pair("t", "t^2", 0.28),
    pair("t^3", "t^4", 0.08),
    pair("e^2 t", "e^2 t^2", 0.08),
)
_LEAST_BITS, _MOST_BITS, _LEAST_STEPS = 8, 20, 64


@dataclass(frozen=True)
class SumsPlan:
    """Plan of the noise on sums of numbers that are rounded to a grid, in blocks of coordinates.

    Attributes:
        blocks: the coordinates.
        bits: numbers are rounded to multiples of 2**-bits, the grid.
        steps: one number for each block: its noise, in units of the grid, has rate steps / 2**30.
    """

    blocks: tuple[Block, ...]
    bits: int
    steps: tuple[int, ...]

    @classmethod
    def of(cls, blocks: tuple[Block, ...], epsilon: float) -> Self:
        """Calibrate to epsilon: the sum of steps * (reach on the grid) / 2**30 over blocks is <= epsilon.

        The grid, of 8 to 20 bits, is the finest on which all rates are at least 64 steps, so that rounding
        rates down to whole steps loses little.

        Raises:
            PrivacyParameterError: epsilon not finite and > 0, or too small for the grid of rates.
        """
        epsilon = min(check_epsilon(epsilon), 4096.0)
        least = min(epsilon * block.share / block.reach for block in blocks)
        bits = math.floor(math.log2(least) + MAX_EXPONENT - math.log2(_LEAST_STEPS))
        bits = min(max(bits, _LEAST_BITS), _MOST_BITS)
        steps = tuple(_steps(block, epsilon, bits) for block in blocks)
        if min(steps) < 1:
            raise PrivacyParameterError(f"epsilon = {epsilon:g} is too small: noise would exceed 2^30")
        return cls(blocks, bits, steps)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for block in self.blocks for name in block.names)

    @property
    def rates(self) -> Floats:
        """The rate of the noise of each coordinate, in units of the grid."""
        sizes = [len(block.names) for block in self.blocks]
        return np.repeat(np.array(self.steps, dtype=np.float64), sizes) / 2.0**MAX_EXPONENT

    def rounded(self, numbers: Floats) -> Ints:
        """Round numbers in [-1, 1], shape (n, coordinates), to the grid; return integers in its unit."""
        assert np.all(np.isfinite(numbers))  # conversion would turn NaN into the smallest integer
        return np.rint(np.clip(numbers, -1.0, 1.0) * 2.0**self.bits).astype(np.int64)

    def noisy(self, sums: Ints, noise: NoiseSource) -> Ints:
        """Add independent noise to each coordinate of the sums."""
        drawn = [
            noise.discrete_laplace(MAX_EXPONENT, len(block.names), steps=steps)
            for block, steps in zip(self.blocks, self.steps, strict=True)
        ]
        return np.asarray(sums + np.concatenate(drawn))


def _steps(block: Block, epsilon: float, bits: int) -> int:
    """Return the rate of a block in steps; rounding to the grid adds up to 1 to its reach per coordinate."""
    reach = math.ceil(block.reach * 2**bits) + len(block.names)
    rate = epsilon * block.share * (1 - 1e-12) / reach
    steps: int = math.floor(rate * 2.0**MAX_EXPONENT)
    return min(steps, MOST_STEPS)


@dataclass(frozen=True, eq=False)
class NoisySums:
    """Released sums over all records. Everything computed from them is post-processing.

    Attributes:
        plan: the noise.
        sums: integers in units of the grid, shape (coordinates,).
        n_records: the public number of records.
        spend: the privacy spend of the release.
    """

    plan: SumsPlan
    sums: Ints
    n_records: int
    spend: PrivacySpend

    @property
    def means(self) -> dict[str, float]:
        """The noisy mean of each number."""
        return self._by_name(self.sums / self._scale)

    @property
    def variances(self) -> dict[str, float]:
        """The noise variance of each mean."""
        return self._by_name([variance_of(rate) / self._scale**2 for rate in self.plan.rates])

    @property
    def fourth_cumulants(self) -> dict[str, float]:
        """The fourth cumulant of the noise of each mean."""
        return self._by_name([fourth_cumulant_of(rate) / self._scale**4 for rate in self.plan.rates])

    @property
    def _scale(self) -> float:
        return self.n_records * 2.0**self.plan.bits

    def _by_name(self, values: Any) -> dict[str, float]:
        return dict(zip(self.plan.names, map(float, values), strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; ``from_dict`` reads it back."""
        return {
            "sums": self.sums.tolist(),
            "bits": self.plan.bits,
            "steps": list(self.plan.steps),
            "n_records": self.n_records,
            "spend": self.spend.to_dict(),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], blocks: tuple[Block, ...]) -> Self:
        """Return the sums of a record from ``to_dict``.

        Raises:
            InvalidInputError: the record is not from ``to_dict``.
        """
        try:
            sums = np.array(record["sums"])
            steps = tuple(check_count(s, "steps") for s in record["steps"])
            plan = SumsPlan(blocks, check_count(record["bits"], "bits"), steps)
            n = check_count(record["n_records"], "n_records")
            if not (_LEAST_BITS <= plan.bits <= _MOST_BITS and max(*steps, 0, n) < 2**63):
                raise ValueError("numbers that no release has")
            spend = PrivacySpend.from_dict(record["spend"])
        except (KeyError, TypeError, ValueError, PrivacyParameterError) as error:
            raise InvalidInputError(f"not sums of residuals ({type(error).__name__})") from error
        if sums.shape != (len(plan.names),) or sums.dtype.kind != "i" or len(steps) != len(blocks):
            raise InvalidInputError("sums of residuals hold an integer for each of their numbers")
        return cls(plan, sums.astype(np.int64), n, spend)


def check_width(label_range: tuple[float, float]) -> None:
    """Refuse a range if its width or the square of its width is not a double of full precision.

    Raises:
        InvalidInputError: the range is refused; the message states the accepted widths.
    """
    low, high = label_range
    width, largest = high - low, max(abs(low), abs(high))
    if not (1e-150 <= width <= 1e150 and width >= 2.0**-40 * largest):
        raise InvalidInputError(
            "an evaluation needs a label_range whose width is from 1e-150 to 1e150 and at least 2^-40 of its "
            f"larger end, got low = {low:g} and high = {high:g}: declare the range that labels have"
        )


def clipped(values: Floats, label_range: tuple[float, float]) -> Floats:
    """Clip labels or predictions to a range.

    Raises:
        InvalidInputError: a number is not finite.
    """
    if not np.all(np.isfinite(values)):
        raise InvalidInputError("labels and predictions of a regression must be finite numbers")
    return np.clip(values, label_range[0], label_range[1])


@dataclass(frozen=True)
class ClippedSumsPlan:
    """Sum numbers of clipped labels and predictions, and add exact two-sided geometric noise to every sum.

    Privacy: epsilon-differential privacy (pure), for data sets that differ by replacing one record; the
    number of records, the models and the range of labels are public. A replaced record changes the numbers of
    a block by at most its ``reach`` in l1 (``blocks``); rounding to the grid adds at most one unit of the
    grid for each number. With noise P[z] ~ exp(-rate |z|), the probability of any sums of a block therefore
    changes by a factor of at most exp(rate * reach); the rate is the block's share of epsilon divided by its
    reach, rounded down.

    Attributes:
        label_range: (low, high), the range to which labels and predictions are clipped.
        sums: the noise.
        spend: the privacy spend of the release.
    """

    name: ClassVar[str]
    noised: ClassVar[str]
    blocks: ClassVar[tuple[Block, ...]]

    label_range: tuple[float, float]
    sums: SumsPlan
    spend: PrivacySpend

    @classmethod
    def plan(cls, label_range: tuple[float, float], *, epsilon: float) -> Self:
        """Calibrate the noise to epsilon and to public facts.

        Raises:
            PrivacyParameterError: epsilon not finite and > 0, or too small for the grid of rates.
            InvalidInputError: the range is too wide or too narrow for doubles.
        """
        check_width(label_range)
        return cls(label_range, SumsPlan.of(cls.blocks, epsilon), PrivacySpend.pure(epsilon, cls.name))

    def release_sums(self, held: Ints, n_records: int, noise: NoiseSource) -> NoisySums:
        """Add noise, once, to the sums of ``contributions`` of all records. Costs ``spend``."""
        return NoisySums(self.sums, self.sums.noisy(held, noise), n_records, self.spend_with(noise))

    def spend_with(self, noise: NoiseSource) -> PrivacySpend:
        """Return the spend of a release with this source."""
        return replace(self.spend, insecure_seed=noise.insecure_seed)


class ResidualPlan(ClippedSumsPlan):
    """Sums of residuals, labels and their powers (``BLOCKS``), released to evaluate a regression."""

    name: ClassVar[str] = "regression-evaluation"
    noised: ClassVar[str] = "sums of powers of the residual e and of the label t, in units of the label range"
    blocks: ClassVar[tuple[Block, ...]] = BLOCKS

    def contributions(self, labels: Floats, predictions: Floats) -> Ints:
        """Return what each record adds to the sums, shape (n, 10); not private.

        Args:
            labels, predictions: finite, shape (n,).

        Raises:
            InvalidInputError: a number is not finite.
        """
        low, high = self.label_range
        y, p = clipped(labels, self.label_range), clipped(predictions, self.label_range)
        e, t = (y - p) / (high - low), 2 * (y - (low / 2 + high / 2)) / (high - low)
        numbers = (e, np.abs(e), e**2, e**4, t, t**2, t**3, t**4, e**2 * t, e**2 * t**2)
        return self.sums.rounded(np.column_stack(numbers))

    def release(self, labels: Floats, predictions: Floats, noise: NoiseSource) -> NoisySums:
        """Sum and add noise, once. Costs ``spend``."""
        held = np.sum(self.contributions(labels, predictions), axis=0)
        return self.release_sums(held, len(labels), noise)
