"""Dual bound of a region at temperature zero, by sequential reweighted message passing in integers.

A sweep visits the variables of a region (``cells.regions``) up and down. At each variable, the min-marginals
of its factors are collected and their sum is distributed in shares (Kolmogorov 2015). Because tables depend
on partial sums only, the min-marginals of a factor take little time: forward tables are stored beside the
backward tables. All arithmetic is exact, in int64. Rounding of the shares makes the bound weaker but never
invalid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from privopt.oracles.cells.record import Record
from privopt.oracles.cells.regions import (
    BIG,
    INFEASIBLE,
    Region,
    Shape,
    bound,
    knapsack,
    last_table,
    least_theta,
    pull,
)
from privopt.problems.discrete.lattice import IntArray

SHARES = 1 << 12
# Share of a variable's cost for the norm term. The rest is divided among the cells of the variable, in
# proportion to the square roots of their numbers of records.
NORM_SHARE = 0.2


class Shares(Record):
    """Share of its variable's cost that each member receives in the up and the down pass, times SHARES."""

    up: IntArray  # (M,)
    down: IntArray  # (M,)


def make_shares(shape: Shape) -> Shares:
    """Return the shares; a factor gets a share only if the pass visits another variable of it later."""
    size, mass = np.diff(shape.member_start)[:-1], np.sqrt(shape.records)[shape.member_factor]
    first, last = (np.zeros(len(mass), dtype=bool) for _ in range(2))
    first[shape.member_start[:-2][size > 0]] = True
    last[shape.member_start[1:-1][size > 0] - 1] = True
    totals = [np.bincount(shape.member_var, np.where(end, 0.0, mass)) for end in (first, last)]
    most = np.maximum(1e-9, np.maximum(*totals))[shape.member_var]
    norm_share = int(NORM_SHARE * SHARES) if shape.coupled else 0
    share = ((SHARES - norm_share) * mass / most).astype(np.int64)
    share[shape.member_factor == shape.cells] = norm_share
    first[shape.member_start[-2] :][:1] = last[-1:] = True
    return Shares(np.where(last, 0, share), np.where(first, 0, share))


@njit(inline="always")
def _is_last(shape: Shape, e: int) -> Any:
    """Return whether a member is the last of its factor."""
    return e + 1 == shape.member_start[shape.member_factor[e] + 1]


@njit(inline="always")
def _push(shape: Shape, region: Region, forward: IntArray, e: int) -> None:
    """Compute the forward table of the next member from the forward table of member e."""
    j, at = shape.member_var[e], e + shape.member_factor[e]
    start, middle, end = shape.table_start[at], shape.table_start[at + 1], shape.table_start[at + 2]
    source, out, steps = forward[start:middle], forward[middle:end], shape.steps[e]
    out[:] = BIG
    for i in range(region.dom_size[j]):
        v = region.dom[j, i]
        target, cost = out[steps[v] :], region.shift[e, v]
        for t in range(min(len(source), len(target))):
            target[t] = min(target[t], source[t] + cost)


@njit(inline="always")
def _collect(shape: Shape, region: Region, forward: IntArray, j: int, down: bool) -> None:
    """Move all min-marginals of variable j into theta_j.

    The down pass skips members that are the last of their factors: the up pass has moved their min-marginals.
    """
    theta = region.theta[j]
    for b in range(shape.var_start[j], shape.var_start[j + 1]):
        e = shape.var_member[b]
        if down and _is_last(shape, e):
            continue
        at = e + shape.member_factor[e]
        start, middle, end = shape.table_start[at], shape.table_start[at + 1], shape.table_start[at + 2]
        before, after = forward[start:middle], region.tables[middle:end]
        shift, steps = region.shift[e], shape.steps[e]
        for i in range(region.dom_size[j]):
            v = region.dom[j, i]
            rest = after[steps[v] :]
            least = 2 * BIG
            for t in range(min(len(before), len(rest))):
                least = min(least, before[t] + rest[t])
            theta[v] += least + shift[v]
            shift[v] = -least


@njit(inline="always")
def _drop_levels(region: Region, j: int, slack: int) -> bool:
    """Drop the levels that cost at least ``slack`` more than the best level; return whether any is left."""
    least, kept = least_theta(region, j), 0
    for i in range(region.dom_size[j]):
        v = region.dom[j, i]
        if region.theta[j, v] - least < slack:
            region.dom[j, kept] = v
            kept += 1
    region.dom_size[j] = kept
    return kept > 0


@njit(inline="always")
def _deal(shape: Shape, region: Region, j: int, shares: IntArray) -> None:
    """Distribute theta_j to the factors that the pass visits again, in their shares.

    Only the excess over the minimum is distributed, so that the minimum of no factor decreases, as ``sweep``
    needs.
    """
    theta, least = region.theta[j], least_theta(region, j)
    for i in range(region.dom_size[j]):
        v = region.dom[j, i]
        piece = (theta[v] - least) // SHARES
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            e = shape.var_member[b]
            region.shift[e, v] += piece * shares[e]
            theta[v] -= piece * shares[e]


def sweep(shape: Shape, region: Region, forward: IntArray, shares: Shares, cutoff: int, x: IntArray) -> int:
    """Make one pass up and one down; return a lower bound, or BIG if no point is below the cutoff.

    Levels that have no point below the cutoff are dropped. Tables must be up to date on entry, and are on
    return. The levels of the minimiser of the norm term, a point of the norm ball, are written to ``x``.
    ``forward`` is scratch memory of the size of the tables.
    """
    if not _two_passes(shape, region, forward, shares, cutoff):
        return int(BIG)
    joint = joint_bound(shape, region, x)
    return int(BIG) if joint >= cutoff else joint


def joint_bound(shape: Shape, region: Region, x: IntArray) -> int:
    """Return the bound with all of theta moved to the norm term, which is at least ``bound``.

    The levels of the minimiser of the norm term, a point of the norm ball, are written to ``x``.
    """
    cells = region.tables[shape.first_tables[:-1]]
    costs = region.theta.copy()
    costs[shape.fixed :] += region.shift[shape.member_start[shape.cells] :]
    norm = last_table(shape, region, shape.cells)[: region.width[0]]
    free = np.arange(shape.fixed, len(shape.span))
    return int(region.constant[0] + cells.sum() + knapsack(shape, region, free, costs, norm, x))


@njit(cache=True, nogil=True)
def _two_passes(shape: Shape, region: Region, forward: IntArray, shares: Shares, cutoff: int) -> bool:
    """Make one pass up and one down; return False if they prove that no point is below the cutoff."""
    k, slack = len(shape.span), cutoff - bound(shape, region)
    if slack <= 0:
        return False
    for f in range(shape.cells + 1):
        forward[shape.table_start[shape.member_start[f] + f]] = 0
    for step in range(2 * (k - shape.fixed)):  # one loop for both passes, so that callees are compiled once
        down = step >= k - shape.fixed
        j = 2 * k - shape.fixed - 1 - step if down else shape.fixed + step
        _collect(shape, region, forward, j, down)
        if not _drop_levels(region, j, slack):
            return False
        _deal(shape, region, j, shares.down if down else shares.up)
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            e = shape.var_member[b]
            if down:
                pull(shape, region, None, e)
            elif not _is_last(shape, e):
                _push(shape, region, forward, e)
    return True


def quick_bounds(
    shape: Shape,
    unary: IntArray,
    radial: IntArray,
    squares: IntArray,
    offsets: IntArray,
    first: IntArray,
    last: IntArray,
) -> IntArray:
    """Return a lower bound for each of many numeric weight vectors.

    It is the sum of the minima of the cells and the joint minimum of all other terms, or BIG if no point is
    in the norm ball.

    Args:
        squares: the squared norm of each numeric weight vector.
        offsets: the cost of each numeric weight vector, plus the minima of the cells.
        first, last: the first and the last level of each variable.
    """
    size = len(radial)
    least = np.full(size, BIG)  # least cost of the variables, by their sum of squares
    least[0] = 0
    for j in range(len(shape.span)):
        before, least = least, np.full(size, BIG)
        for v in range(first[j], last[j] + 1):
            if (square := shape.squares[j, v]) < size:
                target = least[square:]
                np.minimum(target, before[: size - square] + unary[j, v], out=target)
    distinct, which = np.unique(squares, return_inverse=True)
    found = np.array([np.min(least[: size - s] + radial[s:], initial=BIG) for s in distinct.tolist()])[which]
    return np.where(found < INFEASIBLE, found + offsets, BIG)
