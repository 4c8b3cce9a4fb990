"""Counts of the records of each class that satisfy every conjunction of a few predicates.

Records are sorted by class and packed into bit sets, one bit a record; a conjunction is an intersection, and
its count is the number of bits that are set. Rows that stand for several records are packed once for every
binary digit of their count, with the weight of the digit: the counts are the same as if each record had its
own row.

Sets of predicates a < b < c < ... are numbered a + C(b, 2) + C(c, 3) + ..., separately for each size
(``SetNumbers``). Imports numba.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from privopt.problems.discrete.branching import MOST_LEVELS, BranchingProblem
from privopt.problems.discrete.lattice import IntArray

Words = NDArray[np.uint64]

# Words of each predicate intersected at a time: so many words of some hundred predicates stay in cache.
_BLOCK = 512
# Words of a segment between two checks of the clock.
_BETWEEN_LOOKS = 1 << 13


@dataclass(frozen=True)
class SetNumbers:
    """Numbering of sets of up to ``largest`` out of ``predicates``."""

    predicates: int
    largest: int

    @cached_property
    def starts(self) -> IntArray:
        """Starts of the sets of each size, and their end; shape (largest + 2,)."""
        sizes = (math.comb(self.predicates, s) for s in range(self.largest + 1))
        return np.array(list(accumulate(sizes, initial=0)), dtype=np.int64)

    @cached_property
    def binomials(self) -> IntArray:
        """Binomial coefficients C(e, t), e <= predicates, t <= MOST_LEVELS + 1, as a matrix."""
        rows = [[math.comb(e, t) for t in range(MOST_LEVELS + 2)] for e in range(self.predicates + 1)]
        return np.array(rows, dtype=np.int64)

    @property
    def size(self) -> int:
        """The number of sets."""
        return int(self.starts[-1])

    def number(self, elements: IntArray) -> IntArray:
        """Return the numbers of sets of one size, shape (sets, size), elements increasing along rows."""
        size = elements.shape[1]
        found = np.full(len(elements), self.starts[size], dtype=np.int64)
        for t in range(size):
            found += self.binomials[elements[:, t], t + 1]
        return found


def conjunction_counts(
    problem: BranchingProblem, threads: int, asked: Callable[[int], None] = lambda done: None
) -> IntArray:
    """Count the records of each class in conjunctions of up to ``levels`` predicates; shape (sets, K).

    The work depends on the numbers of predicates, levels, records and classes alone (up to one word per class
    and predicate), unless rows stand for several records: then on the binary digits of their counts, too.

    Args:
        problem: the records.
        threads: number of threads.
        asked: called between parts of the work, with the number of finished words of each predicate.
    """
    numbers = SetNumbers(len(problem.table), problem.levels)
    counts = np.zeros((numbers.size, problem.costs.classes), dtype=np.int64)
    done = 0
    with ThreadPoolExecutor(threads) as pool:
        for segment in _segments(problem):
            found = np.zeros(numbers.size, dtype=np.int64)
            found[0] = segment.rows
            for start in range(0, segment.words.shape[1], _BETWEEN_LOOKS):
                asked(done)
                stop = min(start + _BETWEEN_LOOKS, segment.words.shape[1])
                part = partial(_count, segment.words, start, stop, threads, numbers.starts, found)
                list(pool.map(part, range(threads)))
                done += stop - start
            counts[:, segment.label] += segment.weight * found
    return counts


class _Segment(NamedTuple):
    """Packed rows of one class whose counts have the binary digit ``weight``; words of shape (p, words)."""

    label: int
    weight: int
    rows: int
    words: Words


def _segments(problem: BranchingProblem) -> Iterator[_Segment]:
    digits = int(np.max(problem.counts)).bit_length()
    for label in range(problem.costs.classes):
        of_class = problem.y == label
        for digit in range(digits):
            here = of_class if digits == 1 else of_class & ((problem.counts >> digit) & 1 == 1)
            rows = np.flatnonzero(here)
            if digits == 1 or len(rows):
                yield _Segment(label, 1 << digit, len(rows), _packed(problem, rows))


def _packed(problem: BranchingProblem, rows: IntArray) -> Words:
    """Return the truth values of some rows in len(rows) // 64 + 1 words per predicate.

    The last word may be empty: so the number of words of all classes hardly depends on the labels.
    """
    words = len(rows) // 64 + 1
    packed = np.zeros((len(problem.table), 8 * words), dtype=np.uint8)
    for predicate, into in enumerate(packed):
        bits = np.packbits(problem.table.column(predicate)[rows], bitorder="little")
        into[: len(bits)] = bits
    return packed.view("<u8").astype(np.uint64, copy=False)


def _ones(_: Any, word: Any) -> Any:
    """Return the number of bits that are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


_count_ones: Any = intrinsic(_ones)


@njit(cache=True, nogil=True)
def _intersect(a: Words, b: Words, into: Words) -> int:
    total = np.uint64(0)
    for x in range(len(a)):
        both = a[x] & b[x]
        into[x] = both
        total += _count_ones(both)
    return int(total)


@njit(cache=True, nogil=True)
def _intersection(a: Words, b: Words) -> int:
    total = np.uint64(0)
    for x in range(len(a)):
        total += _count_ones(a[x] & b[x])
    return int(total)


@njit(cache=True, nogil=True)
def _count(
    bits: Words, start: int, stop: int, step: int, starts: IntArray, found: IntArray, first: int
) -> None:
    """Add to ``found`` the sizes of intersections, over the words from start to stop.

    Counted are those whose largest predicate is first, first + step, first + 2 step, ...
    """
    levels = len(starts) - 2
    two, three = np.empty(_BLOCK, dtype=np.uint64), np.empty(_BLOCK, dtype=np.uint64)
    for low in range(start, stop, _BLOCK):
        w = min(_BLOCK, stop - low)
        for d in range(first, len(bits), step):
            found[1 + d] += _intersection(bits[d, low : low + w], bits[d, low : low + w])
            if levels == 1:
                continue
            for c in range(d):
                pair = starts[2] + d * (d - 1) // 2 + c
                found[pair] += _intersect(bits[d, low : low + w], bits[c, low : low + w], two[:w])
                if levels == 2:
                    continue
                triples = starts[3] + d * (d - 1) * (d - 2) // 6 + c * (c - 1) // 2
                for b in range(c):
                    if levels == 3:
                        found[triples + b] += _intersection(two[:w], bits[b, low : low + w])
                        continue
                    found[triples + b] += _intersect(two[:w], bits[b, low : low + w], three[:w])
                    quads = d * (d - 1) * (d - 2) * (d - 3) // 24 + c * (c - 1) * (c - 2) // 6
                    quads += starts[4] + b * (b - 1) // 2
                    for a in range(b):
                        found[quads + a] += _intersection(three[:w], bits[a, low : low + w])
