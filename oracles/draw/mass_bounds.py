"""Bounds on the masses of regions at temperature one, their optimisation, and rejection sampling from them.

Energies are in units of the temperature: beta times the loss. The mass of a region is the sum of
exp(-beta L) over its points. Minus the bound of the region (``cells.regions``) is an upper bound on the log
of its mass. This upper bound is convex in the shifts, and smallest if all factors of a variable imply the
same distribution of the variable. ``tune`` optimises the shifts and the Hoelder weights.

The same tables bound the masses of the children of a node, in which one more variable is fixed. The bounds of
the children sum to at most the bound of the node. So a point is proposed by going down variable by variable,
to a child in proportion to its bound; with the remaining probability the proposal is rejected. At a point the
bound is exact, so each point is reached with probability exp(-beta L) / (bound on the mass of the region).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.oracles.cells.compiling import inner
from privopt.oracles.cells.regions import (
    INFEASIBLE,
    Odds,
    Region,
    Shape,
    assign,
    assign_rows,
    bound,
    give_to_norm,
    update,
)
from privopt.problems.discrete.lattice import FloatArray, IntArray

Words = NDArray[np.uint64]

FAILED, DRAWN, OUT_OF_BITS = 0, 1, 2

_STEP, _WEIGHT_STEP = 0.3, 0.05  # step sizes for shifts and weights; larger steps oscillate
_LEAST_WEIGHT = 1e-4
_TINY = 1e-30


@njit(cache=True, nogil=True)
def make_odds(shape: Shape) -> Odds:
    size = shape.table_start[-1]
    return Odds(np.empty((shape.squares.shape[1], size)), np.empty(size))


@njit(cache=True, nogil=True)
def log_bound(shape: Shape, region: Region, odds: Odds) -> float:
    """Recompute the tables from the shifts of the cells and the weights; return the log of the mass bound."""
    give_to_norm(shape, region, 0.0)
    update(shape, region, odds)
    return -float(bound(shape, region))


@njit(cache=True, nogil=True)
def share_weights(shape: Shape, region: Region, norm: float) -> None:
    """Set the weight of the norm term to ``norm`` for each variable, and divide the rest among its cells."""
    for j in range(shape.fixed, len(shape.span)):
        last = shape.var_start[j + 1] - 1
        cells = last - shape.var_start[j]
        region.weight[shape.var_member[last]] = norm if cells > 0 else 1.0
        for b in range(shape.var_start[j], last):
            region.weight[shape.var_member[b]] = (1.0 - norm) / cells


@njit(cache=True, nogil=True)
def child_bounds(shape: Shape, region: Region) -> FloatArray:
    """Return the logs of the mass bounds of the children, one for each level of the first free variable."""
    gains = np.empty(shape.squares.shape[1])
    _gains(shape, region, shape.fixed, np.zeros(shape.cells + 1, dtype=np.int64), gains)
    whole = bound(shape, region)
    for v in range(len(gains)):
        gains[v] -= whole
    return gains[: shape.span[shape.fixed]]


@njit(cache=True, nogil=True)
def _gains(shape: Shape, region: Region, j: int, sums: IntArray, gains: FloatArray) -> None:
    """Write to ``gains`` the log of the ratio of the bounds of child and node, for each level of variable j.

    ``sums`` has the partial sum of each factor at the node.
    """
    last = shape.var_start[j + 1] - 1
    e = shape.var_member[last]
    at = shape.table_start[e + shape.cells] + sums[shape.cells]
    after = region.tables[
        shape.table_start[e + shape.cells + 1] + sums[shape.cells] : shape.table_start[e + shape.cells + 2]
    ]
    gains[:] = -np.inf
    for v in region.dom[j, : region.dom_size[j]]:
        step = shape.squares[j, v]
        if step < len(after) and after[step] < INFEASIBLE:
            gains[v] = region.tables[at] - after[step] - region.shift[e, v]
    for b in range(shape.var_start[j], last):
        e = shape.var_member[b]
        f = shape.member_factor[e]
        now = region.tables[shape.table_start[e + f] + sums[f]]
        first = shape.table_start[e + f + 1] + sums[f]
        for v in range(shape.span[j]):
            gains[v] += now - region.tables[first + v] - region.shift[e, v]


class _Beliefs(NamedTuple):
    """The distributions that the soft minima imply, and their entropies."""

    log: FloatArray  # (M, B) log of the marginal probabilities of each member
    entropy: FloatArray  # (M,)
    flow: FloatArray  # probability of each partial sum, in the layout of the tables


@inner
def _update_beliefs(shape: Shape, region: Region, odds: Odds, beliefs: _Beliefs) -> None:
    flow = beliefs.flow
    flow[:] = 0.0
    for f in range(shape.cells + 1):
        flow[shape.table_start[shape.member_start[f] + f]] = 1.0
    for e in range(len(shape.member_var)):
        j, at = shape.member_var[e], e + shape.member_factor[e]
        start, middle, end = shape.table_start[at], shape.table_start[at + 1], shape.table_start[at + 2]
        source = flow[start:middle]
        beliefs.entropy[e] = 0.0
        for t in range(len(source)):
            beliefs.entropy[e] += source[t] * odds.entropy[start + t]
        for i in range(region.dom_size[j]):
            v = region.dom[j, i]
            target, share, belief = flow[middle + shape.steps[e, v] : end], odds.share[v, start:middle], _TINY
            for t in range(min(len(source), len(target))):
                mass = source[t] * share[t]
                target[t] += mass
                belief += mass
            beliefs.log[e, v] = math.log(belief)


@njit(cache=True, nogil=True)
def tune(shape: Shape, region: Region, beta: float, steps: int, enough: float) -> tuple[float, int]:
    """Improve the bound by at most ``steps`` accelerated steps, until its log is at most ``enough``.

    Each step changes the shifts so that the distributions of a variable in its factors become more equal, and
    moves weight to factors of small entropy. Returns the log of the bound and the number of steps. The region
    keeps the best shifts and weights found, with their tables.
    """
    shift, weight = np.empty(region.shift.shape), np.empty(len(region.weight))  # the best ones so far
    assign_rows(shift, region.shift)
    assign(weight, region.weight)
    odds = make_odds(shape)
    best = log_bound(shape, region, odds)
    beliefs = _Beliefs(
        np.empty(region.shift.shape), np.empty(len(region.weight)), np.empty(len(region.tables))
    )
    plain = np.empty(region.shift.shape)
    assign_rows(plain, region.shift)
    pace, streak, taken = _STEP, 0, 0
    while taken < steps and best > enough and pace > 0.01:
        _update_beliefs(shape, region, odds, beliefs)
        streak += 1
        taken += 1
        _move(shape, region, beliefs, plain, pace, (streak - 1.0) / (streak + 2.0), beta)
        _reweigh(shape, region, beliefs)
        reached = log_bound(shape, region, odds)
        if reached < best:
            best = reached
            assign_rows(shift, region.shift)
            assign(weight, region.weight)
        else:  # the step was too long, so restart from the best shifts and weights without momentum
            if streak == 1:
                pace *= 0.7
            assign_rows(region.shift, shift)
            assign(region.weight, weight)
            log_bound(shape, region, odds)
            assign_rows(plain, shift)
            streak = 0
    return best, taken


@inner
def _move(
    shape: Shape,
    region: Region,
    beliefs: _Beliefs,
    plain: FloatArray,
    pace: float,
    momentum: float,
    beta: float,
) -> None:
    for j in range(shape.fixed, len(shape.span)):
        first, end = shape.var_start[j], shape.var_start[j + 1]
        for v in region.dom[j, : region.dom_size[j]]:
            common = 0.0
            for b in range(first, end):
                e = shape.var_member[b]
                common += region.weight[e] * beliefs.log[e, v]
            for b in range(first, end - 1):
                e = shape.var_member[b]
                moved = region.shift[e, v] + pace * region.weight[e] * (beliefs.log[e, v] - common)
                ahead = moved + momentum * (moved - plain[e, v])
                plain[e, v] = moved
                # The bound on rounding errors assumes shifts of at most this size: ``branch._exactness``.
                largest = beta * shape.records[shape.member_factor[e]]
                region.shift[e, v] = min(max(ahead, -largest), largest)


@inner
def _reweigh(shape: Shape, region: Region, beliefs: _Beliefs) -> None:
    for j in range(shape.fixed, len(shape.span)):
        members = shape.var_member[shape.var_start[j] : shape.var_start[j + 1]]
        mean, total = 0.0, 0.0
        for e in members:
            mean += region.weight[e] * beliefs.entropy[e]
        for e in members:
            factor = np.exp(-_WEIGHT_STEP * (beliefs.entropy[e] - mean))
            region.weight[e] = max(_LEAST_WEIGHT, region.weight[e] * factor)
            total += region.weight[e]
        for e in members:
            region.weight[e] /= total


@njit(cache=True, nogil=True)
def words_per_try(shape: Shape) -> int:
    """Return an upper bound on the number of random words of one arrival and its proposal."""
    return int(4 * (1 + (len(shape.span) - shape.fixed) * (shape.squares.shape[1] + 1)))


@njit(cache=True, nogil=True)
def propose(
    shape: Shape,
    region: Region,
    words: Words,
    cursor: int,
    elapsed: float,
    horizon: float,
    tries: int,
    levels: IntArray,
) -> tuple[int, int, float, int]:
    """Propose points at the arrivals of a Poisson process of rate 1; the first arrival is at ``elapsed``.

    It stops when a point is accepted, whose levels are then in ``levels``; after ``tries`` proposals; when
    the next arrival is later than ``horizon``; or when there are too few random words. Returns the status,
    the cursor, the time of the accepted arrival or else of the next arrival, and the number of proposals.
    """
    sums = np.empty(shape.cells + 1, dtype=np.int64)
    gains = np.empty(shape.squares.shape[1])
    needed = words_per_try(shape)
    for made in range(tries):
        if elapsed > horizon:
            return FAILED, cursor, elapsed, made
        if len(words) - cursor < needed:
            return OUT_OF_BITS, cursor, elapsed, made
        cursor, drawn = _go_down(shape, region, words, cursor, sums, gains, levels)
        if drawn:
            return DRAWN, cursor, elapsed, made + 1
        wait, cursor = exponential(words, cursor)
        elapsed += wait
    return FAILED, cursor, elapsed, tries


@inner
def _go_down(
    shape: Shape,
    region: Region,
    words: Words,
    cursor: int,
    sums: IntArray,
    gains: FloatArray,
    levels: IntArray,
) -> tuple[int, bool]:
    sums[:] = 0
    for j in range(shape.fixed, len(shape.span)):
        _gains(shape, region, j, sums, gains)
        chosen, first, total = -1, np.inf, 0.0
        for v in range(shape.span[j]):
            if gains[v] > -np.inf:
                total += np.exp(gains[v])
                wait, cursor = exponential(words, cursor)
                clock = np.log(wait) - gains[v]
                if clock < first:
                    chosen, first = v, clock
        if total < 1.0:
            wait, cursor = exponential(words, cursor)
            if np.log(wait) - np.log(1.0 - total) < first:
                return cursor, False
        if chosen < 0:
            return cursor, False
        levels[j] = chosen
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            e = shape.var_member[b]
            sums[shape.member_factor[e]] += shape.steps[e, chosen]
    return cursor, True


@njit(cache=True, nogil=True)
def exponential(words: Words, cursor: int) -> tuple[float, int]:
    """Return an exponential variable, from at most 4 random words, and the new cursor.

    The method is the one of ``privopt.oracles.draw.interface.exponentials``. One word gives the fraction (52
    bits), the half (1 bit) and the first 11 bits for the binary exponent.
    """
    word = words[cursor]
    cursor += 1
    fraction = 1.0 + (float(word >> np.uint64(12)) + 0.5) * 2.0**-52
    zeros, rest, width = 0, (word >> np.uint64(1)) & np.uint64(2047), 11
    extra = 0
    while rest == np.uint64(0) and extra < 3:
        zeros += width
        rest, width = words[cursor], 64
        cursor += 1
        extra += 1
    top = np.uint64(1) << np.uint64(width - 1)
    while zeros < 203 and not rest & top:
        rest <<= np.uint64(1)
        zeros += 1
    halved = math.ldexp(fraction, -2 - zeros)
    if word & np.uint64(1):
        return -np.log(halved), cursor
    return -np.log1p(-halved), cursor
