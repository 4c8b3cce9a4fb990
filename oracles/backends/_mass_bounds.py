"""Upper bounds on sums of exp(-beta L) over a region, and rejection sampling by them. Compiled.

For fixed numeric weights the loss is a sum of cell tables over the indicator weights x_0, x_1, .... As in
the dual bound of the minimiser (``_cell_bounds``), costs may be shifted between cells and weights without
changing any total:

    -beta L(x) = sum_c [ -beta E_c(sum of its x_j) - sum_j phi_cj(x_j) ] + sum_j theta_j(x_j),
    theta_j = sum_c phi_cj.

Where the minimiser takes separate minima, a sum of exponentials is bounded by Hoelder's inequality (weighted
mini-buckets, Liu and Ihler 2011): with nonnegative weights that add up to 1 over the factors F of one
variable, sum_x prod F(x) <= prod (sum_x F(x)^(1/w))^w. Applied from the last variable to the first, every
cell becomes a chain of power sums over its own members; since a cell depends on a partial sum of its members
only, each link is a small table G_c[t]. The theta_j and the norm ball are one more factor, with a table R_j
over what is left of the squared radius. Both phi and the weights are free; tuning makes the bound tighter.

The same tables bound what is left when the first variables are fixed, and the bounds of the children of a
node never add up to more than the bound of the node. So a point is proposed by going down variable by
variable, to a child in proportion to its bound, or to none at all with the remaining probability. At the end
the bound is exact: each point is reached with probability exp(-beta L) / (bound of the region).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.problems.lattice import IntArray

FloatArray = NDArray[np.float64]
Words = NDArray[np.uint64]

FAILED, DRAWN, OUT_OF_BITS = 0, 1, 2

_STEP, _WEIGHT_STEP = 0.3, 0.05  # of the tuning; larger steps oscillate
_LEAST_WEIGHT = 1e-4
_TINY = 1e-30


class Shape(NamedTuple):
    """What regions with the same number of fixed variables share; cells of the same free members are merged.

    Member e of cell c has number e - member_start[c] in it; members come in increasing order of variable.
    The table of a cell before its member e is fixed starts at table_start[e + c], the last one (all members
    fixed: -beta times the cell's losses) at table_start[member_start[c + 1] + c].
    """

    fixed: int  # variables 0..fixed-1 are fixed
    span: IntArray  # (k,) levels of each variable
    square: IntArray  # (k, B) squared weight of each level; zeros without a norm ball
    norms: int  # values of |w|^2 that are told apart
    member_start: IntArray  # (C + 1,)
    member_var: IntArray  # (M,)
    member_cell: IntArray  # (M,)
    table_start: IntArray  # (M + C + 1,)
    var_start: IntArray  # (k + 1,)
    var_member: IntArray  # (M,) the members that belong to each variable
    merged_into: IntArray  # (C,) this cell's number once variable ``fixed`` is fixed too, -1 for a constant
    largest_shift: FloatArray  # (M,) bound on |phi|, in units of loss


class Region(NamedTuple):
    """One region: values of the fixed variables are absorbed into the tables."""

    phi: FloatArray  # (M, B)
    weight: FloatArray  # (M,)
    base_weight: FloatArray  # (k,) weights of the factor of theta and the norm ball
    theta: FloatArray  # (k, B)
    tables: FloatArray  # G
    norm_tables: FloatArray  # (k + 1, norms) R, by what is left of the squared radius
    scalars: FloatArray  # (3,): log of the constant factor; room for |w|^2; log of the bound


@njit(cache=True, nogil=True)
def new_region(shape: Shape) -> Region:
    members, (k, most) = len(shape.member_var), shape.square.shape
    return Region(
        np.zeros((members, most)),
        np.zeros(members),
        np.zeros(k),
        np.zeros((k, most)),
        np.zeros(shape.table_start[-1]),
        np.zeros((k + 1, shape.norms)),
        np.zeros(3),
    )


@njit(cache=True, nogil=True)
def set_losses(shape: Shape, region: Region, table: FloatArray, start: IntArray) -> None:
    """Fill in the last table of every cell, from a vector in which cell c starts at start[c]."""
    for c in range(len(shape.member_start) - 1):
        into = shape.table_start[shape.member_start[c + 1] + c]
        region.tables[into : into + start[c + 1] - start[c]] = table[start[c] : start[c + 1]]


@njit(cache=True, nogil=True)
def share_weights(shape: Shape, region: Region, base: float) -> None:
    """The factor of theta and the norm ball gets a share ``base``, the cells equal shares of the rest."""
    for j in range(shape.fixed, len(shape.span)):
        cells = shape.var_start[j + 1] - shape.var_start[j]
        region.base_weight[j] = base if cells > 0 else 1.0
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            region.weight[shape.var_member[b]] = (1.0 - base) / cells


@njit(cache=True, nogil=True)
def child_of(shape: Shape, below: Shape, region: Region, level: int) -> Region:
    """The region with variable ``shape.fixed`` at a level; its bound is at most ``child_bounds`` says."""
    child = new_region(below)
    j = shape.fixed
    child.scalars[0] = region.scalars[0]
    child.scalars[1] = region.scalars[1] - shape.square[j, level]
    child.base_weight[:] = region.base_weight
    for c in range(len(shape.member_start) - 1):
        first, end = shape.member_start[c], shape.member_start[c + 1]
        source = shape.table_start[end + c]
        if first < end and shape.member_var[first] == j:
            first += 1
            source += level
        into = shape.merged_into[c]
        if into < 0:
            child.scalars[0] += region.tables[source]
            continue
        at = below.member_start[into]
        for e in range(first, end):
            child.phi[at] += region.phi[e]
            child.weight[at] += region.weight[e]
            at += 1
        start, stop = below.table_start[at + into], below.table_start[at + into + 1]
        for t in range(stop - start):
            child.tables[start + t] += region.tables[source + t]
    return child


class _Odds(NamedTuple):
    """The conditional distributions behind the power sums; scratch for the tuning."""

    member: FloatArray  # (size of tables, B), by partial sum
    member_entropy: FloatArray  # (size of tables,)
    base: FloatArray  # (k, norms, B), by room
    base_entropy: FloatArray  # (k, norms)


@njit(cache=True, nogil=True)
def _make_odds(shape: Shape) -> _Odds:
    size, (k, most) = shape.table_start[-1], shape.square.shape
    return _Odds(
        np.empty((size, most)), np.empty(size), np.empty((k, shape.norms, most)), np.empty((k, shape.norms))
    )


@njit(cache=True, nogil=True)
def _power_sum(values: FloatArray, n: int, weight: float, odds: FloatArray) -> tuple[float, float]:
    """weight * log sum exp(value / weight); the terms' shares go to ``odds``; second, their entropy."""
    top = -np.inf
    for i in range(n):
        top = max(top, values[i])
    if top == -np.inf:
        odds[:n] = 0.0
        return top, 0.0
    inverse, total, mean = 1.0 / weight, 0.0, 0.0
    for i in range(n):
        exponent = (values[i] - top) * inverse
        odds[i] = math.exp(exponent)
        total += odds[i]
        if odds[i] > 0.0:
            mean += odds[i] * exponent
    for i in range(n):
        odds[i] /= total
    log_total = math.log(total)
    return top + weight * log_total, log_total - mean / total


@njit(cache=True, nogil=True)
def bound(shape: Shape, region: Region) -> float:
    """Recompute all tables; returns the log of the bound."""
    return _update_bound(shape, region, _make_odds(shape))


@njit(cache=True, nogil=True)
def _update_bound(shape: Shape, region: Region, odds: _Odds) -> float:
    k, most = shape.square.shape
    values = np.empty(most)
    for j in range(shape.fixed, k):
        region.theta[j] = 0.0
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            region.theta[j] += region.phi[shape.var_member[b]]
    total = region.scalars[0]
    tables = region.tables
    for c in range(len(shape.member_start) - 1):
        for e in range(shape.member_start[c + 1] - 1, shape.member_start[c] - 1, -1):
            here, next_ = shape.table_start[e + c], shape.table_start[e + c + 1]
            span = shape.span[shape.member_var[e]]
            for t in range(here, next_):
                for v in range(span):
                    values[v] = tables[next_ - here + t + v] - region.phi[e, v]
                tables[t], odds.member_entropy[t] = _power_sum(values, span, region.weight[e], odds.member[t])
        total += tables[shape.table_start[shape.member_start[c] + c]]
    for j in range(k - 1, shape.fixed - 1, -1):
        for room in range(shape.norms):
            for v in range(shape.span[j]):
                left = room - shape.square[j, v]
                values[v] = -np.inf if left < 0 else region.theta[j, v] + region.norm_tables[j + 1, left]
            region.norm_tables[j, room], odds.base_entropy[j, room] = _power_sum(
                values, shape.span[j], region.base_weight[j], odds.base[j, room]
            )
    room = int(region.scalars[1])
    region.scalars[2] = -np.inf if room < 0 else total + region.norm_tables[shape.fixed, room]
    return float(region.scalars[2])


@njit(cache=True, nogil=True)
def child_bounds(shape: Shape, region: Region) -> FloatArray:
    """Log bounds of the children by the first free variable."""
    j, room = shape.fixed, int(region.scalars[1])
    sums = np.zeros(len(shape.member_start) - 1, dtype=np.int64)
    gains = np.empty(shape.span[j])
    _gains(shape, region, j, room, sums, gains)
    gains += region.scalars[2]
    return gains


@njit(cache=True, nogil=True)
def _gains(shape: Shape, region: Region, j: int, room: int, sums: IntArray, gains: FloatArray) -> None:
    """log(bound of child / bound of node) by level of variable j; ``sums`` are the cells' partial sums."""
    for v in range(shape.span[j]):
        left = room - shape.square[j, v]
        if left < 0:
            gains[v] = -np.inf
        else:
            gains[v] = region.theta[j, v] + region.norm_tables[j + 1, left] - region.norm_tables[j, room]
    for b in range(shape.var_start[j], shape.var_start[j + 1]):
        e = shape.var_member[b]
        c = shape.member_cell[e]
        t = sums[c]
        now = region.tables[shape.table_start[e + c] + t]
        next_ = shape.table_start[e + c + 1] + t
        for v in range(shape.span[j]):
            gains[v] += region.tables[next_ + v] - region.phi[e, v] - now


class _Beliefs(NamedTuple):
    """The distributions that the power sums imply, and their entropies."""

    member: FloatArray  # (M, B) log of the marginal of each member
    base: FloatArray  # (k, B)
    member_entropy: FloatArray  # (M,)
    base_entropy: FloatArray  # (k,)
    flow: FloatArray  # like tables: probability of each partial sum
    norm_flow: FloatArray  # like norm_tables


@njit(cache=True, nogil=True)
def _update_beliefs(shape: Shape, region: Region, odds: _Odds, beliefs: _Beliefs) -> None:
    beliefs.flow[:] = 0.0
    for c in range(len(shape.member_start) - 1):
        beliefs.flow[shape.table_start[shape.member_start[c] + c]] = 1.0
        for e in range(shape.member_start[c], shape.member_start[c + 1]):
            here, next_ = shape.table_start[e + c], shape.table_start[e + c + 1]
            span = shape.span[shape.member_var[e]]
            belief, entropy = beliefs.member[e], 0.0
            belief[:span] = _TINY
            for t in range(here, next_):
                flow = beliefs.flow[t]
                if flow > 0.0:
                    entropy += flow * odds.member_entropy[t]
                    for v in range(span):
                        mass = flow * odds.member[t, v]
                        belief[v] += mass
                        beliefs.flow[next_ - here + t + v] += mass
            beliefs.member_entropy[e] = entropy
            for v in range(span):
                belief[v] = math.log(belief[v])
    beliefs.norm_flow[:] = 0.0
    beliefs.norm_flow[shape.fixed, int(region.scalars[1])] = 1.0
    for j in range(shape.fixed, len(shape.span)):
        _push_norms(shape, odds, beliefs, j)


@njit(cache=True, nogil=True)
def _push_norms(shape: Shape, odds: _Odds, beliefs: _Beliefs, j: int) -> None:
    belief, entropy = beliefs.base[j], 0.0
    belief[: shape.span[j]] = _TINY
    for room in range(shape.norms):
        flow = beliefs.norm_flow[j, room]
        if flow > 0.0:
            entropy += flow * odds.base_entropy[j, room]
            for v in range(shape.span[j]):
                mass = flow * odds.base[j, room, v]
                if mass > 0.0:
                    belief[v] += mass
                    beliefs.norm_flow[j + 1, room - shape.square[j, v]] += mass
    beliefs.base_entropy[j] = entropy
    for v in range(shape.span[j]):
        belief[v] = math.log(belief[v])


@njit(cache=True, nogil=True)
def tune(shape: Shape, region: Region, beta: float, steps: int, enough: float) -> int:
    """Lower the bound by ``steps`` accelerated steps, fewer once its log is below ``enough``.

    The bound is convex in phi, and smallest where all factors of a variable imply the same distribution:
    each step moves their costs toward a common one. Weights go where little entropy is. Returns the steps
    taken; the region keeps the best setting that was seen, with its tables.
    """
    best = Region(
        region.phi.copy(),
        region.weight.copy(),
        region.base_weight.copy(),
        region.theta.copy(),
        region.tables.copy(),
        region.norm_tables.copy(),
        region.scalars.copy(),
    )
    odds = _make_odds(shape)
    _update_bound(shape, region, odds)
    _copy(region, best)
    beliefs = _Beliefs(
        np.empty(region.phi.shape),
        np.empty(region.theta.shape),
        np.empty(region.weight.shape),
        np.empty(region.base_weight.shape),
        np.empty(region.tables.shape),
        np.empty(region.norm_tables.shape),
    )
    plain = region.phi.copy()
    pace, streak, taken = _STEP, 0, 0
    while taken < steps and best.scalars[2] > enough and pace > 0.01:
        _update_beliefs(shape, region, odds, beliefs)
        streak += 1
        taken += 1
        _move(shape, region, beliefs, plain, pace, (streak - 1.0) / (streak + 2.0), beta)
        _reweigh(shape, region, beliefs)
        if _update_bound(shape, region, odds) < best.scalars[2]:
            _copy(region, best)
        else:  # too far: back to the best setting, without momentum
            if streak == 1:
                pace *= 0.7
            _copy(best, region)
            _update_bound(shape, region, odds)
            plain[:] = region.phi
            streak = 0
    _copy(best, region)
    return taken


@njit(cache=True, nogil=True)
def _copy(source: Region, target: Region) -> None:
    target.phi[:] = source.phi
    target.weight[:] = source.weight
    target.base_weight[:] = source.base_weight
    target.theta[:] = source.theta
    target.tables[:] = source.tables
    target.norm_tables[:] = source.norm_tables
    target.scalars[:] = source.scalars


@njit(cache=True, nogil=True)
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
        for v in range(shape.span[j]):
            common = region.base_weight[j] * beliefs.base[j, v]
            for b in range(shape.var_start[j], shape.var_start[j + 1]):
                e = shape.var_member[b]
                common += region.weight[e] * beliefs.member[e, v]
            for b in range(shape.var_start[j], shape.var_start[j + 1]):
                e = shape.var_member[b]
                moved = region.phi[e, v] + pace * region.weight[e] * (beliefs.member[e, v] - common)
                ahead = moved + momentum * (moved - plain[e, v])
                plain[e, v] = moved
                # Rounding errors are bounded by the size of phi: see the exactness statement.
                largest = beta * shape.largest_shift[e]
                region.phi[e, v] = min(max(ahead, -largest), largest)


@njit(cache=True, nogil=True)
def _reweigh(shape: Shape, region: Region, beliefs: _Beliefs) -> None:
    for j in range(shape.fixed, len(shape.span)):
        mean = region.base_weight[j] * beliefs.base_entropy[j]
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            e = shape.var_member[b]
            mean += region.weight[e] * beliefs.member_entropy[e]
        factor = np.exp(-_WEIGHT_STEP * (beliefs.base_entropy[j] - mean))
        total = region.base_weight[j] = max(_LEAST_WEIGHT, region.base_weight[j] * factor)
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            e = shape.var_member[b]
            factor = np.exp(-_WEIGHT_STEP * (beliefs.member_entropy[e] - mean))
            region.weight[e] = max(_LEAST_WEIGHT, region.weight[e] * factor)
            total += region.weight[e]
        region.base_weight[j] /= total
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            region.weight[shape.var_member[b]] /= total


@njit(cache=True, nogil=True)
def words_per_try(shape: Shape) -> int:
    """An upper bound on the random words of one ring and the way down from it."""
    return 4 * (1 + (len(shape.span) - shape.fixed) * (len(shape.square[0]) + 1))


@njit(cache=True, nogil=True)
def propose(
    shape: Shape,
    region: Region,
    words: Words,
    cursor: int,
    time: float,
    rate: float,
    horizon: float,
    tries: int,
    levels: IntArray,
) -> tuple[int, int, float, int]:
    """Rings of a region's clock of the given rate, from one at ``time`` on; each proposes a point.

    Stops when a point is drawn (it is then in ``levels``), after so many tries, when the next ring is later
    than the horizon, or when the random words are used up. Returns status, cursor, time of the ring that drew
    or that is next, and tries made.
    """
    sums = np.empty(len(shape.member_start) - 1, dtype=np.int64)
    gains = np.empty(shape.square.shape[1])
    needed = words_per_try(shape)
    for made in range(tries):
        if time > horizon:
            return FAILED, cursor, time, made
        if len(words) - cursor < needed:
            return OUT_OF_BITS, cursor, time, made
        cursor, drawn = _go_down(shape, region, words, cursor, sums, gains, levels)
        if drawn:
            return DRAWN, cursor, time, made + 1
        wait, cursor = _exponential(words, cursor)
        time += wait / rate
    return FAILED, cursor, time, tries


@njit(cache=True, nogil=True)
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
    room = int(region.scalars[1])
    for j in range(shape.fixed, len(shape.span)):
        _gains(shape, region, j, room, sums, gains)
        chosen, first, total = -1, np.inf, 0.0
        for v in range(shape.span[j]):
            if gains[v] > -np.inf:
                total += np.exp(gains[v])
                wait, cursor = _exponential(words, cursor)
                clock = np.log(wait) - gains[v]
                if clock < first:
                    chosen, first = v, clock
        if total < 1.0:
            wait, cursor = _exponential(words, cursor)
            if np.log(wait) - np.log(1.0 - total) < first:
                return cursor, False
        if chosen < 0:
            return cursor, False
        levels[j] = chosen
        room -= shape.square[j, chosen]
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            sums[shape.member_cell[shape.var_member[b]]] += chosen
    return cursor, True


@njit(cache=True, nogil=True)
def _exponential(words: Words, cursor: int) -> tuple[float, int]:
    """Like ``privopt.oracles.gibbs.exponentials``, from a stream of random words; uses at most 4 of them.

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
