"""Mass bounds of regions at temperature one, their optimisation, and rejection sampling from them.

Energies are in units of the temperature: beta times the loss. Minus the bound of a region (``regions``) is
then an upper bound on the log of its mass, the sum of exp(-beta L). It is convex in the shifts and smallest
where all factors of a variable imply the same distribution; the Hoelder weights can be chosen too. ``tune``
improves both.

The same tables bound the mass of the points in which the first variables are fixed. The bounds of the
children of a node never add up to more than the bound of the node. So a point is proposed by descending
variable by variable, to a child in proportion to its bound; with the remaining probability it is rejected. At
a point the bound is exact: each point is reached with probability exp(-beta L) / (bound of the region).
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

_STEP, _WEIGHT_STEP = 0.3, 0.05  # step sizes of the tuning; larger steps oscillate
_LEAST_WEIGHT = 1e-4
_TINY = 1e-30


@njit(cache=True, nogil=True)
def make_odds(shape: Shape) -> Odds:
    size = shape.table_start[-1]
    return Odds(np.empty((shape.squares.shape[1], size)), np.empty(size))


@njit(cache=True, nogil=True)
def log_bound(shape: Shape, region: Region, odds: Odds) -> float:
    """Recompute the tables from the cells' shifts and the weights, and return the log of the bound."""
    give_to_norm(shape, region, 0.0)
    update(shape, region, odds)
    return -float(bound(shape, region))


@njit(cache=True, nogil=True)
def share_weights(shape: Shape, region: Region, norm: float) -> None:
    """Give the norm term a share ``norm`` of each variable's weight, the cells equal shares of the rest."""
    for j in range(shape.fixed, len(shape.span)):
        last = shape.var_start[j + 1] - 1
        cells = last - shape.var_start[j]
        region.weight[shape.var_member[last]] = norm if cells > 0 else 1.0
        for b in range(shape.var_start[j], last):
            region.weight[shape.var_member[b]] = (1.0 - norm) / cells


@njit(cache=True, nogil=True)
def child_bounds(shape: Shape, region: Region) -> FloatArray:
    """Return log bounds of the children, one per level of the first free variable."""
    gains = np.empty(shape.squares.shape[1])
    _gains(shape, region, shape.fixed, np.zeros(shape.cells + 1, dtype=np.int64), gains)
    whole = bound(shape, region)
    for v in range(len(gains)):
        gains[v] -= whole
    return gains[: shape.span[shape.fixed]]


@njit(cache=True, nogil=True)
def _gains(shape: Shape, region: Region, j: int, sums: IntArray, gains: FloatArray) -> None:
    """Write log ratios of child to node bound, by level of variable j; ``sums``: factors' partial sums."""
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

    log: FloatArray  # (M, B) log of the marginal of each member
    entropy: FloatArray  # (M,)
    flow: FloatArray  # like tables: probability of each partial sum


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
    """Lower the bound by ``steps`` accelerated steps, fewer once its log is below ``enough``.

    Each step moves the shifts of every variable's factors toward a common distribution. Weights move to
    factors of little entropy. Returns the log of the bound and the steps taken. The region keeps the best
    setting found, with its tables.
    """
    shift, weight = np.empty(region.shift.shape), np.empty(len(region.weight))  # the best so far
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
        else:  # the step was too long: restart from the best setting without momentum
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
    """Return an upper bound on the random words of one arrival and its proposal."""
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
    """Propose points at the arrivals of a region's Poisson process of rate 1, the first one at ``elapsed``.

    Stops when a point is accepted (it is then in ``levels``), after ``tries`` proposals, when the next
    arrival is later than the horizon, or when the random words are used up. Returns the status, the cursor,
    the time of the accepted arrival (or else of the next one), and the number of proposals.
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
    """Draw as ``privopt.oracles.draw.interface.exponentials`` does, from at most 4 words of a random stream.

    One word gives the fraction (52 bits), the half (1) and the start of the binary exponent (11).
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
