"""The compiled part of drawing trees and rule lists: masses of all models on all blocks of records.

A block is what satisfies a conjunction of literals: of a set of predicates some are true, the others false.
Its mass is the *mean* of exp(-beta L) over all models of so many levels, under the uniform distribution on
the lattice (``privopt.problems.discrete.branching``), held as three numbers: its smallest loss m, an integer,
the mean s of exp(-beta (L - m)), and the mean u of (L - m) exp(-beta (L - m)). So nothing overflows, s is no
smaller than the share of the best model, and a summand below exp(-``LARGEST_EXPONENT``) of the largest is
dropped: that is far below a rounding of s. No draw is made from what is dropped here.

Let Z_0 be the mass of a label, D(A, B) that of two different labels on A and B, and S_d the mass of the
models of up to d levels that branch. Each side of a branch stops with probability 1/2, so with predicates of
the weights w_g with the sum w, A = S and g, and B = S and not g,

    S_1(S) = (1 / w) sum over g of w_g D(A, B),
    S_d(S) = S_1(S) / 4 + (1 / 4 w) sum over g of w_g (Z_0(A) S_{d-1}(B) + S_{d-1}(A) Z_0(B)
                                                       + S_{d-1}(A) S_{d-1}(B)).

In a rule list one side is a label, and both take their turn: S_1 has the share 1/2, and the last product is
missing. All terms are positive: D is a sum over pairs of different labels, not a product less the equal ones.
A conjunction that asks for both sides of a predicate has a mass of 1. Imports numba.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from privopt.problems.discrete.conjunction_counts import SetNumbers
from privopt.problems.discrete.lattice import FloatArray, IntArray

LARGEST_EXPONENT = 700.0
# Smallest loss of a mass of 0: more than any loss.
_NONE = 1 << 62


class Masses(NamedTuple):
    """Masses by block: the r-th set of a size, and the mask of its predicates that are true.

    Arrays of all sizes follow one another: the blocks of the sets of size s begin at ``block_starts[s]``.
    """

    smallest: IntArray
    mean: FloatArray
    excess: FloatArray


class Tables(NamedTuple):
    """Inputs of the masses.

    Attributes:
        losses: of each label on the conjunctions of true predicates alone, shape (sets, K).
        starts, binomials: of the numbers of sets, as ``SetNumbers`` has them.
        blocks: where the blocks of the sets of each size begin.
        beta: inverse temperature.
        weights: of the predicates, shape (p,).
    """

    losses: IntArray
    starts: IntArray
    binomials: IntArray
    blocks: IntArray
    beta: float
    weights: FloatArray


def block_starts(numbers: SetNumbers) -> IntArray:
    """Return offsets at which the blocks of sets of each size start, shape (largest + 2,)."""
    sizes = np.diff(numbers.starts) << np.arange(numbers.largest + 1)
    return np.append(0, np.cumsum(sizes)).astype(np.int64)


def no_masses(blocks: int) -> Masses:
    """Return masses of 0 for this many blocks."""
    return Masses(np.zeros(blocks, dtype=np.int64), np.zeros(blocks), np.zeros(blocks))


@njit(cache=True, nogil=True)
def leaf_and_one_level(first: int, stop: int, size: int, tables: Tables, leaf: Masses, one: Masses) -> None:
    """Write masses of labels and of one branch, on the blocks of the sets first to stop of one size."""
    losses, binomials, beta = tables.losses, tables.binomials, tables.beta
    p, labels, masks, whole = len(binomials) - 1, losses.shape[1], 1 << size, tables.weights.sum()
    here = np.empty((masks, labels), dtype=np.int64)
    true = np.empty((masks, labels), dtype=np.int64)
    false = np.empty(labels, dtype=np.int64)
    near = np.empty(labels)
    elements = np.empty(size + 1, dtype=np.int64)
    with_asked = np.empty(size + 1, dtype=np.int64)
    for r in range(first, stop):
        _elements(r, size, binomials, elements)
        _signed(elements, size, -1, tables, here)
        base = tables.blocks[size] + r * masks
        again = _weight(elements, size, tables.weights)
        for mask in range(masks):
            m, s, u = _leaf(here[mask], beta)
            leaf.smallest[base + mask], leaf.mean[base + mask], leaf.excess[base + mask] = m, s, u
            one.smallest[base + mask], one.mean[base + mask], one.excess[base + mask] = _NONE, 0.0, 0.0
            if size > 0:
                # What is asked again splits nothing off: the label of what has no records is of no account.
                _add(one, base + mask, m, again * s, again * u, beta)
        for g in range(p):
            place = _place(elements, size, g)
            if place < 0:
                continue
            _inserted(elements, size, g, place, with_asked)
            _signed(with_asked, size + 1, place, tables, true)
            for mask in range(masks):
                for k in range(labels):
                    false[k] = here[mask, k] - true[mask, k]
                (m, s, u), w = _different(true[mask], false, beta, near), tables.weights[g]
                _add(one, base + mask, m, w * s, w * u, beta)
        for mask in range(masks):
            one.mean[base + mask] /= whole
            one.excess[base + mask] /= whole


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
    """Write masses of branches with a level more than ``rest``, on the blocks of some sets of one size.

    ``leaf`` are the masses of labels and ``one`` of one branch; ``one_sided`` says whether models are rule
    lists.
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
    """Return the members of a set by its number among those of its size, increasing."""
    left, e = number, len(binomials) - 2
    for t in range(size, 0, -1):
        while binomials[e, t] > left:
            e -= 1
        into[t - 1] = e
        left -= binomials[e, t]


@njit(cache=True, nogil=True)
def _weight(elements: IntArray, size: int, weights: FloatArray) -> float:
    """Return the total weight of the predicates in a set, whose answers are known in its blocks."""
    total = 0.0
    for t in range(size):
        total += weights[elements[t]]
    return total


@njit(cache=True, nogil=True)
def _place(elements: IntArray, size: int, g: int) -> int:
    """Return the insertion position of g among the elements; -1 if it is one of them."""
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
def _signed(elements: IntArray, size: int, fixed: int, tables: Tables, out: IntArray) -> None:
    """Return losses on the blocks of a set, by inclusion and exclusion in integers; shape (masks, K).

    ``fixed`` is the place of a predicate that is true in all of them and not part of the mask; -1: none.
    """
    free = size if fixed < 0 else size - 1
    for mask in range(1 << free):
        number, members, bit = 0, 0, 0
        for t in range(size):
            inside = t == fixed
            if not inside:
                inside = (mask >> bit) & 1 == 1
                bit += 1
            if inside:
                members += 1
                number += tables.binomials[elements[t], members]
        for k in range(out.shape[1]):
            out[mask, k] = tables.losses[tables.starts[members] + number, k]
    for t in range(free):
        for mask in range(1 << free):
            if (mask >> t) & 1 == 0:
                for k in range(out.shape[1]):
                    out[mask, k] -= out[mask | (1 << t), k]


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
def _different(first: IntArray, second: IntArray, beta: float, near: FloatArray) -> tuple[int, float, float]:
    """Return the mass of two different labels, from what labels cost on either side.

    To every label of the first side all others of the second are summed, relative to the best of those: the
    second best where the label itself is the best. So few exponentials are taken. ``near`` is scratch space.
    """
    labels, best, other, m = len(first), 0, _NONE, _NONE
    for b in range(1, labels):
        if second[b] < second[best]:
            best = b
    for b in range(labels):
        near[b] = _decayed(second[b] - second[best], beta)
        if b != best:
            other = min(other, second[b])
    for a in range(labels):
        m = min(m, first[a] + (other if a == best else second[best]))
    s, u = 0.0, 0.0
    for a in range(labels):
        least = other if a == best else second[best]
        mass, excess = 0.0, 0.0
        for b in range(labels):
            if b != a:
                weight = _decayed(second[b] - least, beta) if a == best else near[b]
                mass += weight
                excess += (second[b] - least) * weight
        above = first[a] + least - m
        weight = _decayed(above, beta)
        s += weight * mass
        u += weight * (excess + above * mass)
    pairs = labels * (labels - 1)
    return m, s / pairs, u / pairs


@njit(cache=True, nogil=True)
def _add(out: Masses, x: int, m: int, s: float, u: float, beta: float) -> None:
    """Add a mass to what is there."""
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
    """Add a quarter of the mass of ``side`` on one block and ``rest`` on another, ``w`` times."""
    s = 0.25 * w * side.mean[a] * rest.mean[b]
    u = 0.25 * w * (side.excess[a] * rest.mean[b] + side.mean[a] * rest.excess[b])
    _add(out, x, side.smallest[a] + rest.smallest[b], s, u, beta)
