"""Misclassification costs: public whole numbers, one for false negatives and one for false positives."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np

from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError

# Ratios are rounded to fractions with denominators up to this: 19.2 is 96/5.
_FINEST = 10
# Keeps sums over billions of records within 64 bits, and sensitivities within reason.
_LARGEST = 100_000


@dataclass(frozen=True)
class Costs:
    """Costs of errors: ``false_negative`` (label +1, predicted -1) and ``false_positive`` (the reverse).

    Public inputs: choose them before looking at the data. A loss then moves by at most ``largest`` when a
    record is replaced, and mechanisms calibrate to that.

    Raises:
        InvalidInputError: not whole numbers from 1 to 100,000.
    """

    false_negative: int = 1
    false_positive: int = 1

    def __post_init__(self) -> None:
        for name, cost in (
            ("false_negative", self.false_negative),
            ("false_positive", self.false_positive),
        ):
            whole = isinstance(cost, int | np.integer) and not isinstance(cost, bool)
            if not whole or not 1 <= cost <= _LARGEST:
                raise InvalidInputError(f"{name} must be a whole number from 1 to {_LARGEST}, got {cost!r}")
            object.__setattr__(self, name, int(cost))

    @classmethod
    def in_ratio(cls, false_negative: float, false_positive: float) -> Self:
        """Return costs in the ratio of two positive numbers, rounded to the nearest n/m or m/n with m <= 10.

        Raises:
            InvalidInputError: not finite numbers > 0, or a ratio beyond 10,000.
        """
        for cost in (false_negative, false_positive):
            number = isinstance(cost, int | float | np.number) and not isinstance(cost, bool)
            if not number or not (math.isfinite(cost) and cost > 0):
                raise InvalidInputError(f"costs must be finite numbers > 0, got {cost!r}")
        small, large = sorted((Fraction(float(false_negative)), Fraction(float(false_positive))))
        ratio = (large / small).limit_denominator(_FINEST)
        if ratio > _LARGEST / _FINEST:
            raise InvalidInputError(
                f"costs may differ by a factor of {_LARGEST // _FINEST} at most, got {float(ratio):.3g}"
            )
        more, less = ratio.numerator, ratio.denominator
        return cls(more, less) if false_negative >= false_positive else cls(less, more)

    @property
    def largest(self) -> int:
        """The largest cost of one record: the sensitivity of the loss under replace-one."""
        return max(self.false_negative, self.false_positive)

    def of(self, y: IntArray) -> IntArray:
        """Return the cost of an error on each record, for labels ``y`` in {-1, +1}; shape as ``y``."""
        return np.where(np.asarray(y) > 0, self.false_negative, self.false_positive).astype(np.int64)

    def __str__(self) -> str:
        return f"{self.false_negative} for a false negative, {self.false_positive} for a false positive"


EQUAL_COSTS = Costs()
