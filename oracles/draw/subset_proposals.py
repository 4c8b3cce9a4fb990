"""Random subsets of k items with probabilities proportional to products of weights. Imports numba.

The items are the leaves of a binary tree. Each node has the logarithms of the elementary symmetric
polynomials of the weights below it. A draw starts with k items at the root. At each node it divides its
number of items between the two children, by a race of exponential clocks
(``privopt.oracles.draw.interface``). So the probability of every subset, however small, has a small
*relative* error.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import math

import numpy as np
from numba import njit

from privopt.oracles.cells.compiling import inner
from privopt.oracles.draw.mass_bounds import DRAWN, FAILED, OUT_OF_BITS, Words, exponential
from privopt.problems.discrete.lattice import FloatArray, IntArray
from privopt.problems.discrete.restricted_loss import loss_of_columns

UNCERTIFIED = 3


@njit(cache=True, nogil=True)
def subset_tree(log_weights: FloatArray, most: int) -> FloatArray:
    """Return log e_t of the weights below each node, t = 0..most; e_t is an elementary symmetric polynomial.

    The root is node 1, and the children of node v are 2 v and 2 v + 1.
    """
    leaves = 1
    while leaves < len(log_weights):
        leaves *= 2
    tree = np.empty((2 * leaves, most + 1))
    tree[:] = -np.inf
    for v in range(leaves, 2 * leaves):
        tree[v, 0] = 0.0
    if most > 0:
        for i in range(len(log_weights)):
            tree[leaves + i, 1] = log_weights[i]
    for v in range(leaves - 1, 0, -1):
        for t in range(most + 1):
            top = -np.inf
            for a in range(t + 1):
                top = max(top, tree[2 * v, a] + tree[2 * v + 1, t - a])
            if top > -np.inf:
                total = 0.0
                for a in range(t + 1):
                    total += math.exp(tree[2 * v, a] + tree[2 * v + 1, t - a] - top)
                tree[v, t] = top + math.log(total)
    return tree


@inner
def _draw_subset(
    tree: FloatArray,
    size: int,
    words: Words,
    cursor: int,
    nodes: IntArray,
    counts: IntArray,
    chosen: IntArray,
) -> int:
    """Draw ``size`` items, write them to ``chosen``, and return the cursor.

    ``nodes`` and ``counts`` are memory for a stack.
    """
    leaves, held, found = len(tree) // 2, 0, 0
    if size > 0:
        nodes[0], counts[0], held = 1, size, 1
    while held > 0:
        held -= 1
        v, t = nodes[held], counts[held]
        if v >= leaves:
            chosen[found] = v - leaves
            found += 1
            continue
        first, left = np.inf, 0
        for a in range(t + 1):
            weight = tree[2 * v, a] + tree[2 * v + 1, t - a]
            if weight > -np.inf:
                wait, cursor = exponential(words, cursor)
                clock = math.log(wait) - weight
                if clock < first:
                    first, left = clock, a
        if left > 0:
            nodes[held], counts[held] = 2 * v, left
            held += 1
        if t > left:
            nodes[held], counts[held] = 2 * v + 1, t - left
            held += 1
    return cursor


@inner
def _sort(columns: IntArray) -> None:
    """Sort a few numbers in place by insertion, because NumPy's sort takes long to compile."""
    for i in range(1, len(columns)):
        column, at = columns[i], i
        while at > 0 and columns[at - 1] > column:
            columns[at] = columns[at - 1]
            at -= 1
        columns[at] = column


@njit(cache=True, nogil=True)
def words_per_try(depth: int, size: int) -> int:
    """Return an upper bound on the number of random words of one proposal and its arrival.

    An exponential takes at most 4 words.
    """
    return 4 * (2 + max(1, size) * (depth + 1) * (size + 1))


@njit(cache=True, nogil=True)
def propose(
    gram: FloatArray,
    cross: FloatArray,
    square: float,
    radius: float,
    units: float,
    beta: float,
    tree: FloatArray,
    gains: FloatArray,
    free: IntArray,
    fixed: IntArray,
    columns: IntArray,
    size: int,
    base: float,
    words: Words,
    cursor: int,
    elapsed: float,
    horizon: float,
    tries: int,
) -> tuple[int, int, float, int]:
    """Propose supports at the arrivals of a Poisson process of rate 1; the first arrival is at ``elapsed``.

    The energy of a support, beta times its loss, is at least ``base`` minus the gains of its free columns. A
    proposal is accepted with probability exp(bound - energy), with this bound. The drawn support, including
    the columns ``fixed``, is written to ``columns``. The results are as for ``mass_bounds.propose``; the
    status is UNCERTIFIED if the loss of a support is not certified.
    """
    depth = int(math.log2(len(tree) / 2.0) + 0.5)
    needed = words_per_try(depth, size)
    nodes, counts = np.empty(2 * depth + 4, dtype=np.int64), np.empty(2 * depth + 4, dtype=np.int64)
    chosen = np.empty(max(1, size), dtype=np.int64)
    for made in range(tries):
        if elapsed > horizon:
            return FAILED, cursor, elapsed, made
        if len(words) - cursor < needed:
            return OUT_OF_BITS, cursor, elapsed, made
        cursor = _draw_subset(tree, size, words, cursor, nodes, counts, chosen)
        bound = base
        for i in range(size):
            columns[i] = free[chosen[i]]
            bound -= gains[chosen[i]]
        for i in range(len(fixed)):
            columns[size + i] = fixed[i]
        _sort(columns)  # as the problem does, so that losses agree to the last bit
        loss = loss_of_columns(gram, cross, square, radius, units, columns)
        if loss < 0:
            return UNCERTIFIED, cursor, elapsed, made + 1
        patience, cursor = exponential(words, cursor)
        if patience > beta * loss - bound:
            return DRAWN, cursor, elapsed, made + 1
        wait, cursor = exponential(words, cursor)
        elapsed += wait
    return FAILED, cursor, elapsed, tries
