"""Good points quickly: block after block at its exact optimum given the others. Proves nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from privopt.oracles.backends._cell_bounds import BIG, Dual, Shape
from privopt.problems.lattice import IntArray
from privopt.problems.objective import UNIT


@njit(cache=True, nogil=True)
def descend(shape: Shape, dual: Dual, table: Any, width: int, x: IntArray) -> int:
    """Improve levels ``x`` in place until no block can; returns the value (numeric costs not included).

    The variables of a block never meet in a cell, so a block's optimum given the others is a knapsack over
    the sum of squares.
    """
    k = len(shape.low)
    sums = np.zeros(len(shape.member_start) - 1, dtype=np.int64)
    for e in range(len(shape.member_var)):
        sums[shape.member_cell[e]] += x[shape.member_var[e]]
    value = _value(shape, dual, table, x, sums)
    first, unchanged, blocks = np.int64(0), 0, 0  # typed: numba would compile _improve twice
    if k > 0:
        blocks = shape.block[k - 1] + 1
    while unchanged < blocks:
        end = first
        while end < k and shape.block[end] == shape.block[first]:
            end += 1
        if _improve(shape, dual, table, width, x, sums, first, end):
            unchanged = 1
        else:
            unchanged += 1
        first = end if end < k else np.int64(0)
    after = _value(shape, dual, table, x, sums)
    return min(value, after)


@njit(cache=True, nogil=True)
def _value(shape: Shape, dual: Dual, table: Any, x: IntArray, sums: IntArray) -> int:
    total, square = 0, 0
    for c in range(len(sums)):
        total += table[shape.table_start[c] + sums[c]] * UNIT
    for j in range(len(x)):
        total += dual.unary[j, x[j]]
        square += shape.squares[j, x[j]]
    return int(total + dual.radial[square])


@njit(cache=True, nogil=True)
def _improve(
    shape: Shape, dual: Dual, table: Any, width: int, x: IntArray, sums: IntArray, first: Any, end: Any
) -> bool:
    """Optimise variables first..end-1, one block; True if that lowered the value."""
    size = end - first
    cost = np.zeros((size, dual.dom.shape[1]), dtype=np.int64)
    before, others = 0, 0
    for j in range(len(x)):
        if not first <= j < end:
            others += shape.squares[j, x[j]]
    square = others
    for j in range(first, end):
        square += shape.squares[j, x[j]]
        for v in range(shape.span[j]):
            cost[j - first, v] = dual.unary[j, v]
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            c = shape.member_cell[shape.var_member[b]]
            at = shape.table_start[c] + sums[c] - x[j]
            for v in range(shape.span[j]):
                cost[j - first, v] += table[at + v] * UNIT
        before += cost[j - first, x[j]]
    before += dual.radial[square]
    room = width - others
    best = np.full((size + 1, room), BIG)
    best[0, 0] = 0
    for i in range(size):
        for u in range(dual.dom_size[first + i]):
            v = dual.dom[first + i, u]
            q = shape.squares[first + i, v]
            for s in range(room - q):
                best[i + 1, s + q] = min(best[i + 1, s + q], best[i, s] + cost[i, v])
    after, at = BIG, 0
    for s in range(room):
        if best[size, s] + dual.radial[others + s] < after:
            after, at = best[size, s] + dual.radial[others + s], s
    if after >= before:
        return False
    for i in range(size - 1, -1, -1):
        j = first + i
        for u in range(dual.dom_size[j]):
            v = dual.dom[j, u]
            q = shape.squares[j, v]
            if q <= at and best[i, at - q] + cost[i, v] == best[i + 1, at]:
                at -= q
                for b in range(shape.var_start[j], shape.var_start[j + 1]):
                    sums[shape.member_cell[shape.var_member[b]]] += v - x[j]
                x[j] = v
                break
    return True
