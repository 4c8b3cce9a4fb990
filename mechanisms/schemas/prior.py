"""Public prior law of cuts over all 64-bit numbers, with integer weights.

A twentieth of the mass is on zero, and three tenths on the other small whole numbers: 1 to 100 and their
negatives, k with a weight proportional to 1 / (k (k + 1)), so that codes and counts are mostly cut at whole
numbers. The rest has a random sign, and its log10 |x| follows a Cauchy law with median 1 and scale 1, cut off
at the range of 64-bit numbers; within each power of two it is uniform. So no column needs a declared range:
every number is possible. Beyond 100 no number is much likelier than those next to it. If round numbers were
likelier, they would draw cuts away from the middle of the records, by ln(ratio of masses) / strength records.

Numbers are handled by their *ordinal*, an integer: 0 for zero (and for subnormal numbers), k for the k-th
positive normal 64-bit number, -k for its negative. Every weight is an integer, so that masses of intervals
are exact and a number within an interval can be drawn exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.draw.interface import RandomSource, uniform_below

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Positive normal numbers: 2046 powers of two with 2^52 numbers each.
_BITS, _BINADES = 52, 2046
_SIZE = 1 << _BITS
LAST = _BINADES * _SIZE
# Parameters of the Cauchy law of log10 |x|, the largest of the small whole numbers, and the shares of the
# mass on zero and on small whole numbers.
_MEDIAN, _CAUCHY_SCALE = 1.0, 1.0
_LARGEST_WHOLE = 100
_ZERO, _WHOLE = Fraction(1, 20), Fraction(3, 10)
# The relative error of ``masses``: three products and two sums of positive terms per sign and kind, then
# the sum of five such terms, each rounded once.
MASS_ROUNDINGS = 16
# The logarithm of a positive mass lies between 0 and this: all weights together are below 2^85.
LARGEST_LOG_MASS = 59.0


@dataclass(frozen=True, eq=False)
class _Tables:
    """Weights of the prior.

    Attributes:
        fine: weight of each number of a power of two, shape (binades + 1,); the last is 0.
        below: sums of ``fine`` over the powers of two before, shape (binades + 1,).
        wholes: ordinals of the whole numbers 1, 2, ..., 100.
        counts: cumulated weights of these before scaling, shape (101,); the first is 0.
        scale: factor of ``counts``.
        zero: the weight of zero.
    """

    fine: Ints
    below: Ints
    wholes: Ints
    counts: Ints
    scale: int
    zero: int


@lru_cache(maxsize=1)
def _tables() -> _Tables:
    edges = ((np.arange(_BINADES + 1) - 1022) * math.log10(2) - _MEDIAN) / _CAUCHY_SCALE
    shares = np.diff(np.arctan(edges)) / math.pi
    fine = np.append(np.maximum(np.rint(shares * 2.0**30), 1), 0).astype(np.int64)
    below = np.concatenate([[0], np.cumsum(fine[:-1])]).astype(np.int64)
    numbers = np.arange(1, _LARGEST_WHOLE + 1)
    counts = np.concatenate([[0], np.cumsum(2**20 // (numbers * (numbers + 1)))]).astype(np.int64)
    total = 2 * _SIZE * int(below[-1]) / (1 - _ZERO - _WHOLE)
    scale = int(total * _WHOLE / 2) // int(counts[-1])
    return _Tables(fine, below, ordinals(numbers.astype(np.float64)), counts, scale, int(total * _ZERO))


def ordinals(values: Floats) -> Ints:
    """Return the ordinals of numbers, shape (n,); ordinals of infinite numbers lie beyond all others, and NaN
    is not allowed.
    """
    bits = np.abs(values + 0.0).view(np.int64)
    size = np.maximum(bits - (_SIZE - 1), 0)
    return np.where(np.signbit(values), -size, size).astype(np.int64)


def number_at(ordinal: int) -> float:
    """Return the number with an ordinal."""
    if ordinal == 0:
        return 0.0
    size = float(np.array([abs(ordinal) + _SIZE - 1], dtype=np.int64).view(np.float64)[0])
    return math.copysign(size, ordinal)


def masses(low: Ints, high: Ints) -> Floats:
    """Return the masses of the ordinals in (low, high], shape (n,), with errors as ``MASS_ROUNDINGS`` says;
    low <= high.

    Ordinals lie between -LAST - 1 and LAST.
    """
    negative = _positive_masses(np.maximum(-high, 1) - 1, np.maximum(-low, 1) - 1)
    positive = _positive_masses(np.maximum(low, 0), np.maximum(high, 0))
    zero = np.where((low < 0) & (high >= 0), float(_tables().zero), 0.0)
    return np.asarray(negative + zero + positive)


def _positive_masses(low: Ints, high: Ints) -> Floats:
    """Return ``masses`` for 0 <= low <= high <= LAST."""
    tables = _tables()
    first, last = low >> _BITS, high >> _BITS
    after, before = _SIZE - (low & (_SIZE - 1)), high & (_SIZE - 1)
    between = (tables.below[last] - tables.below[np.minimum(first + 1, _BINADES)]).astype(np.float64) * _SIZE
    apart = tables.fine[first] * after.astype(np.float64) + between + tables.fine[last] * before.astype(float)
    together = tables.fine[first] * (high - low).astype(np.float64)
    places = np.searchsorted(tables.wholes, [low, high], side="right")
    wholes = (tables.counts[places[1]] - tables.counts[places[0]]).astype(np.float64) * tables.scale
    return np.asarray(np.where(first == last, together, apart) + wholes)


def draw_between(low: int, high: int, random: RandomSource) -> int:
    """Draw an ordinal in (low, high] from the prior restricted to it, exactly; low < high."""
    tables = _tables()
    lows = [max(-high, 1) - 1, max(low, 0)]
    highs = [max(-low, 1) - 1, max(high, 0)]
    fine = [_fine_below(b) - _fine_below(a) for a, b in zip(lows, highs, strict=True)]
    short = [_counted(b) - _counted(a) for a, b in zip(lows, highs, strict=True)]
    zero = tables.zero if low < 0 <= high else 0
    rest = uniform_below(random, sum(fine) + sum(short) * tables.scale + zero)
    for sign, k in ((-1, 0), (1, 1)):
        if rest < fine[k]:
            return sign * _fine_at(_fine_below(lows[k]) + rest)
        rest -= fine[k]
        if rest < short[k] * tables.scale:
            wanted = _counted(lows[k]) + rest // tables.scale
            return sign * int(tables.wholes[np.searchsorted(tables.counts, wanted, side="right") - 1])
        rest -= short[k] * tables.scale
    return 0


def _fine_below(ordinal: int) -> int:
    """Return the weight of 1, ..., ordinal, without small whole numbers."""
    tables, binade = _tables(), ordinal >> _BITS
    return int(tables.below[binade]) * _SIZE + int(tables.fine[binade]) * (ordinal & (_SIZE - 1))


def _fine_at(weight: int) -> int:
    """Return the ordinal k with ``_fine_below(k - 1) <= weight < _fine_below(k)``."""
    tables = _tables()
    binade = int(np.searchsorted(tables.below, weight >> _BITS, side="right")) - 1
    rest = weight - int(tables.below[binade]) * _SIZE
    return binade * _SIZE + rest // int(tables.fine[binade]) + 1


def _counted(ordinal: int) -> int:
    tables = _tables()
    return int(tables.counts[np.searchsorted(tables.wholes, ordinal, side="right")])
