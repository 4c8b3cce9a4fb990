"""Compiled part of drawing trees and rule lists: masses of all models on all blocks of records.

A block is the set of records that satisfy a conjunction: some predicates of a set are true, the rest false. A
mass is the *mean* of exp(-beta L) over all models of a number of levels, under the uniform distribution on
the lattice (``privopt.problems.discrete.branching``). It is stored as three numbers: the smallest loss m, an
integer; the mean s of exp(-beta (L - m)); and the mean u of (L - m) exp(-beta (L - m)). So nothing overflows,
and s is at least the share of the best model. A summand that is less than exp(-``LARGEST_EXPONENT``) times
the largest summand is dropped, which is far less than the rounding error of s. A draw can still choose the
models dropped here, because it compares logarithms of masses.

Let Z_0 be the mass of a label, D(A, B) the mass of two different labels on A and B, and S_d the mass of the
models of up to d levels whose root branches. Each side of a branch stops with probability 1/2. Let w_g be the
weight of predicate g, and w the sum of all weights. On a block S, with A = S and g, and B = S and not g,

    S_1(S) = (1 / w) sum over g of w_g D(A, B),
    S_d(S) = S_1(S) / 4 + (1 / 4 w) sum over g of w_g (Z_0(A) S_{d-1}(B) + S_{d-1}(A) Z_0(B)
                                                       + S_{d-1}(A) S_{d-1}(B)).

In a rule list one side of every branch is a label, each side with probability 1/2. So S_1 has the factor 1/2
instead of 1/4, and there is no last product. All terms are positive, because D is a sum over pairs of
different labels, not a product minus the terms of equal labels. A conjunction of a predicate and its negation
has no records, so its masses are 1. Imports numba.
"""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
from numba import njit

from privopt.problems.discrete.conjunction_counts import SetNumbers
from privopt.problems.discrete.lattice import FloatArray, IntArray

LARGEST_EXPONENT = 700.0
# Smallest loss of an empty sum, larger than any loss.
_NONE = 1 << 62


class Masses(NamedTuple):
    """Masses by block: by the size of the set of predicates, its number, and the mask of true predicates.

    The blocks of the sets of size s start at ``block_starts[s]``.
    """

    smallest: IntArray
    mean: FloatArray
    excess: FloatArray


class Powers(NamedTuple):
    """exp(-beta j) for integers j >= 0, as ``high[j >> shift]`` times ``low[j % 2^shift]``.

    Two short tables replace a table that may have millions of entries. The relative error of a product is at
    most 3.5 roundoffs, plus the rounding errors of the two arguments, which sum to beta j. The last entry of
    ``high`` is 0, for all larger j.
    """

    high: FloatArray
    low: FloatArray
    shift: int

    @classmethod
    def of(cls, beta: float, largest: int) -> Self:
        """Make the tables for j up to ``largest``, or while beta j is at most ``LARGEST_EXPONENT``."""
        most = largest if beta * largest <= LARGEST_EXPONENT else int(LARGEST_EXPONENT / beta)
        shift = (most.bit_length() + 1) // 2
        low = np.exp(-beta * np.arange(1 << shift))
        high = np.exp(-beta * np.arange(0, most + 1, 1 << shift))
        return cls(np.append(high, 0.0), low, shift)


class Tables(NamedTuple):
    """The data from which masses are computed.

    Attributes:
        losses: the loss of each label on each conjunction without false predicates, shape (sets, K).
        starts, binomials: as in ``SetNumbers``.
        blocks: the starts of the blocks of the sets of each size.
        beta: inverse temperature.
        weights: the weights of the predicates, shape (p,).
        powers: exp(-beta j).
    """

    losses: IntArray
    starts: IntArray
    binomials: IntArray
    blocks: IntArray
    beta: float
    weights: FloatArray
    powers: Powers


def block_starts(numbers: SetNumbers) -> IntArray:
    """Return offsets at which the blocks of sets of each size start, shape (largest + 2,)."""
    sizes = np.diff(numbers.starts) << np.arange(numbers.largest + 1)
    return np.append(0, np.cumsum(sizes)).astype(np.int64)


def no_masses(blocks: int) -> Masses:
    """Return masses of 0 for this many blocks."""
    return Masses(np.zeros(blocks, dtype=np.int64), np.zeros(blocks), np.zeros(blocks))


@njit(cache=True, nogil=True)
def leaf_and_one_level(first: int, stop: int, size: int, tables: Tables, leaf: Masses, one: Masses) -> None:
    """Write the masses of labels and of one branch, on the blocks of sets first to stop - 1 of one size."""
    p, labels, masks = len(tables.weights), tables.losses.shape[1], 1 << size
    here = np.empty((masks, labels), dtype=np.int64)
    true = np.empty((masks, labels, p), dtype=np.int64)
    elements = np.empty(size, dtype=np.int64)
    for r in range(first, stop):
        _elements(r, size, tables.binomials, elements)
        _signed(elements, tables, here, true)
        for mask in range(masks):
            x = tables.blocks[size] + r * masks + mask
            leaf.smallest[x], leaf.mean[x], leaf.excess[x] = _leaf(here[mask], tables.beta)
            one.smallest[x], one.mean[x], one.excess[x] = _one_branch(here[mask], true[mask], tables)


@njit(cache=True, nogil=True)
def one_level_more(
    first: int,
    stop: int,
    size: int,
    tables: Tables,
    leaf: Masses,
    one: Masses,
    rest: Masses,
    one_sided: bool,
    out: Masses,
) -> None:
    """Write the masses of models with one more level than ``rest``, on the blocks of sets of one size.

    ``leaf`` has the masses of labels, and ``one`` the masses of one branch. ``one_sided`` says whether models
    are rule lists.
    """
    binomials, beta = tables.binomials, tables.beta
    p, masks, whole = len(binomials) - 1, 1 << size, tables.weights.sum()
    elements = np.empty(size + 1, dtype=np.int64)
    with_asked = np.empty(size + 1, dtype=np.int64)
    for r in range(first, stop):
        _elements(r, size, binomials, elements)
        base = tables.blocks[size] + r * masks
        again = 0.25 * _weight(elements, size, tables.weights)
        last = 0.25 * whole if not one_sided else 0.5 * whole
        for mask in range(masks):
            x, more = base + mask, again if one_sided else 2 * again
            out.smallest[x] = one.smallest[x]
            out.mean[x], out.excess[x] = last * one.mean[x], last * one.excess[x]
            if size > 0:
                _add(out, x, leaf.smallest[x], again * leaf.mean[x], again * leaf.excess[x], beta)
                _add(out, x, rest.smallest[x], more * rest.mean[x], more * rest.excess[x], beta)
        for g in range(p):
            place = _place(elements, size, g)
            if place < 0:
                continue
            _inserted(elements, size, g, place, with_asked)
            number = 0
            for t in range(size + 1):
                number += binomials[with_asked[t], t + 1]
            below = tables.blocks[size + 1] + number * 2 * masks
            for mask in range(masks):
                no = below + (mask & ((1 << place) - 1)) + ((mask >> place) << (place + 1))
                yes = no + (1 << place)
                _add_both(out, base + mask, leaf, rest, yes, no, tables.weights[g], beta)
                _add_both(out, base + mask, leaf, rest, no, yes, tables.weights[g], beta)
                if not one_sided:
                    _add_both(out, base + mask, rest, rest, yes, no, tables.weights[g], beta)
        for mask in range(masks):
            out.mean[base + mask] /= whole
            out.excess[base + mask] /= whole


@njit(cache=True, nogil=True)
def _elements(number: int, size: int, binomials: IntArray, into: IntArray) -> None:
    """Write to ``into`` the members, increasing, of the set with this number among the sets of its size."""
    left, e = number, len(binomials) - 2
    for t in range(size, 0, -1):
        while binomials[e, t] > left:
            e -= 1
        into[t - 1] = e
        left -= binomials[e, t]


@njit(cache=True, nogil=True)
def _weight(elements: IntArray, size: int, weights: FloatArray) -> float:
    """Return the total weight of the predicates in a set."""
    total = 0.0
    for t in range(size):
        total += weights[elements[t]]
    return total


@njit(cache=True, nogil=True)
def _place(elements: IntArray, size: int, g: int) -> int:
    """Return the position at which g would be inserted into the elements; -1 if g is an element."""
    place = 0
    for t in range(size):
        if elements[t] == g:
            return -1
        place += elements[t] < g
    return place


@njit(cache=True, nogil=True)
def _inserted(elements: IntArray, size: int, g: int, place: int, into: IntArray) -> None:
    for t in range(place):
        into[t] = elements[t]
    into[place] = g
    for t in range(place, size):
        into[t + 1] = elements[t]


@njit(cache=True, nogil=True)
def _signed(elements: IntArray, tables: Tables, here: IntArray, true: IntArray) -> None:
    """Write the losses on the blocks of a set, and on the part of each block where g is true, for each g.

    The shapes are (masks, K) and (masks, K, p). Losses follow by inclusion and exclusion, in integers.
    """
    members = np.empty(len(elements), dtype=np.int64)
    for mask in range(len(here)):
        size = 0
        for t in range(len(elements)):
            if (mask >> t) & 1 == 1:
                members[size] = elements[t]
                size += 1
        _with_each(members[:size], tables, here[mask], true[mask])
    for t in range(len(elements)):
        for mask in range(len(here)):
            if (mask >> t) & 1 == 0:
                for k in range(here.shape[1]):
                    here[mask, k] -= here[mask | (1 << t), k]
                    for g in range(true.shape[2]):
                        true[mask, k, g] -= true[mask | (1 << t), k, g]


@njit(cache=True, nogil=True)
def _with_each(members: IntArray, tables: Tables, here: IntArray, true: IntArray) -> None:
    """Write the losses on the conjunction of a set, shape (K,), and of the set and each predicate, (K, p)."""
    size, binomials = len(members), tables.binomials
    number, larger = tables.starts[size], tables.starts[size + 1]
    for t in range(size):
        number += binomials[members[t], t + 1]
        larger += binomials[members[t], t + 2]
    for k in range(len(here)):
        here[k] = tables.losses[number, k]
    start = 0
    for place in range(size + 1):
        # All predicates between two successive members of the set have the same position in the larger set.
        stop = members[place] if place < size else true.shape[1]
        for g in range(start, stop):
            for k in range(len(here)):
                true[k, g] = tables.losses[larger + binomials[g, place + 1], k]
        if place < size:
            for k in range(len(here)):
                true[k, stop] = here[k]
            larger += binomials[stop, place + 1] - binomials[stop, place + 2]
            start = stop + 1


@njit(cache=True, nogil=True)
def _decayed(difference: int, beta: float) -> float:
    x = beta * difference
    return np.exp(-x) if x <= LARGEST_EXPONENT else 0.0


@njit(cache=True, nogil=True)
def _leaf(losses: IntArray, beta: float) -> tuple[int, float, float]:
    m = losses[0]
    for k in range(1, len(losses)):
        m = min(m, losses[k])
    s, u = 0.0, 0.0
    for k in range(len(losses)):
        weight = _decayed(losses[k] - m, beta)
        s += weight
        u += (losses[k] - m) * weight
    return m, s / len(losses), u / len(losses)


@njit(cache=True, nogil=True)
def _one_branch(here: IntArray, true: IntArray, tables: Tables) -> tuple[int, float, float]:
    """Return the mass of one branch on a block.

    ``here`` has the losses of labels on the block, and ``true`` those on the part where each predicate is
    true. The smallest loss is found first, so that sums need no scaling. A predicate of the conjunction of
    the block has the same value on all its records; the label of the empty side has no loss.
    """
    (labels, p), m = true.shape, _NONE
    (high, low, shift), weights = tables.powers, tables.weights
    for a in range(labels):
        for b in range(labels):
            if a != b:
                for g in range(p):
                    m = min(m, here[b] + true[a, g] - true[b, g])
    s, u, last, fine = 0.0, 0.0, len(high) - 1, len(low) - 1
    for a in range(labels):
        for b in range(labels):
            if a != b:
                mean, excess = 0.0, 0.0
                for g in range(p):
                    above = here[b] + true[a, g] - true[b, g] - m
                    weight = weights[g] * (high[min(above >> shift, last)] * low[above & fine])
                    mean += weight
                    excess += above * weight
                s += mean
                u += excess
    whole = labels * (labels - 1) * weights.sum()
    return m, s / whole, u / whole


@njit(cache=True, nogil=True)
def _add(out: Masses, x: int, m: int, s: float, u: float, beta: float) -> None:
    """Add the mass (m, s, u) to entry x."""
    if m < out.smallest[x]:
        by = out.smallest[x] - m
        scale = _decayed(by, beta)
        out.excess[x] = (out.excess[x] + by * out.mean[x]) * scale
        out.mean[x] *= scale
        out.smallest[x] = m
    by = m - out.smallest[x]
    scale = _decayed(by, beta)
    out.mean[x] += s * scale
    out.excess[x] += (u + by * s) * scale


@njit(cache=True, nogil=True)
def _add_both(out: Masses, x: int, side: Masses, rest: Masses, a: int, b: int, w: float, beta: float) -> None:
    """Add to entry x w / 4 times the product of the masses of ``side`` on block a and ``rest`` on block b."""
    s = 0.25 * w * side.mean[a] * rest.mean[b]
    u = 0.25 * w * (side.excess[a] * rest.mean[b] + side.mean[a] * rest.excess[b])
    _add(out, x, side.smallest[a] + rest.smallest[b], s, u, beta)
