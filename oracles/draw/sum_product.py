"""Compiled part of elimination: sums of exponentials of losses over many assignments of the weights.

A sum is stored as three numbers (``Mass``): the smallest loss m, s = sum of exp(-beta (L - m)), and
u = sum of (L - m) exp(-beta (L - m)). So s >= 1, and no sum over- or underflows for any beta and any number
of records. A summand that is less than exp(-``LARGEST_EXPONENT``) times the largest summand is dropped.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from privopt.oracles.cells.compiling import inner
from privopt.oracles.cells.record import Record
from privopt.oracles.cells.regions import assign
from privopt.oracles.cells.structure import Int32Array
from privopt.problems.discrete.lattice import FloatArray, IntArray

# exp(-700) is a normal number, so products keep their precision.
LARGEST_EXPONENT = 700.0
EMPTY = 1 << 29  # the smallest loss of an empty sum


class Mass(NamedTuple):
    """A sum over points with losses L: their smallest loss m, and two sums.

    ``total`` is the sum of exp(-beta (L - m)), and ``excess`` the sum of (L - m) exp(-beta (L - m)).
    """

    smallest: int
    total: float
    excess: float


class Program(Record):
    """Program of the enumeration, on one integer array ``work``, which begins with the cell tables.

    Step p gives a weight its digit d, from 0 to span[p] - 1, and runs the operations start[p] to
    start[p + 1] - 1. An operation sets work[dst + x] = work[prev + x] + work[add + d + x] for 0 <= x < width;
    a summand is 0 if its prev or add is negative. After the last step, all values of the lane weights are
    computed in parallel, and the leaf weights are summed out in turn.
    """

    span: IntArray  # (steps,)
    low: IntArray  # (steps,) smallest level of the weight
    start: IntArray  # (steps + 1,)
    dst: IntArray  # (operations,)
    width: IntArray
    prev: IntArray
    add: IntArray
    leaf_base: IntArray  # (leaf weights,) table of losses before lane weights are added, -1 for none
    leaf_low: IntArray
    leaf_span: IntArray
    lane_add: IntArray  # (leaf weights, lane weights) table added by each lane weight, -1 for none
    lane_low: IntArray  # (lane weights,)
    lane_span: IntArray
    work_size: int
    ball: bool  # whether |w|^2 is limited


def number_of_exponentials(beta: float, n: int) -> int:
    """Return the length of the table of exponentials for losses up to n."""
    return 2 + (n if beta * n <= LARGEST_EXPONENT else math.floor(LARGEST_EXPONENT / beta))


def exponentials_of_losses(beta: float, n: int) -> FloatArray:
    """Return exp(-beta k) for k = 0, 1, ..., and a last entry 0 for all larger k."""
    weights = np.arange(number_of_exponentials(beta, n), dtype=np.float64)
    weights *= -beta  # in place: with large costs there are up to 2^28
    np.exp(weights, out=weights)
    weights[-1] = 0.0
    return weights


@njit(cache=True, nogil=True)
def sum_out(
    program: Program,
    table: Int32Array,
    fixed: IntArray,
    lane_fixed: IntArray,
    room: int,
    weights: FloatArray,
) -> tuple[int, float, float]:
    """Return the mass of all points with the given digits.

    Args:
        program: the operations of the enumeration.
        table: the cell tables at the given numeric weights.
        fixed, lane_fixed: the digit of each step and of each lane weight; -1 to sum over all digits.
        room: the squared radius minus the squared norm of the numeric weights; 0 without a norm ball.
        weights: the result of ``exponentials_of_losses``.
    """
    depth = len(program.span)
    work = np.empty(program.work_size, dtype=np.int32)
    assign(work, table)
    counts = np.empty((3, depth + 1), dtype=np.int64)
    digit, left, smallest = counts[0], counts[1], counts[2]  # left: the part of the room left at each step
    digit[0], left[0], smallest[0] = -1, room, EMPTY
    sums = np.zeros((2, depth + 1))
    total, excess = sums[0], sums[1]
    lane_norm = _lane_norms(program, lane_fixed)
    losses, least, masses = _make_buffers(program, room, len(lane_norm))
    p = 0
    while p >= 0:
        if p == depth:
            smallest[p], total[p], excess[p] = _sum_lanes(
                program, work, lane_norm, left[p], weights, losses, least, masses
            )
            finished = True
        else:
            digit[p] = max(digit[p] + 1, fixed[p])
            finished = digit[p] >= program.span[p] or (fixed[p] >= 0 and digit[p] > fixed[p])
        if finished:  # add the sum of this subtree to the sum of its parent
            p -= 1
            if p >= 0:
                smallest[p], total[p], excess[p] = _joined(
                    smallest[p], total[p], excess[p], smallest[p + 1], total[p + 1], excess[p + 1], weights
                )
            continue
        left[p + 1] = left[p]
        if program.ball:
            left[p + 1] -= (program.low[p] + digit[p]) ** 2
            if left[p + 1] < 0:
                continue
        _run_step(program, p, digit[p], work)
        p += 1
        digit[p] = -1
        smallest[p], total[p], excess[p] = EMPTY, 0.0, 0.0
    return smallest[0], total[0], excess[0]


@inner
def _run_step(program: Program, p: int, d: int, work: Int32Array) -> None:
    for op in range(program.start[p], program.start[p + 1]):
        dst, prev, add = program.dst[op], program.prev[op], program.add[op]
        for x in range(program.width[op]):
            value = np.int32(0)
            if prev >= 0:
                value += work[prev + x]
            if add >= 0:
                value += work[add + d + x]
            work[dst + x] = value


@inner
def _joined(
    m1: int, s1: float, u1: float, m2: int, s2: float, u2: float, weights: FloatArray
) -> tuple[int, float, float]:
    if m2 < m1:
        m1, s1, u1, m2, s2, u2 = m2, s2, u2, m1, s1, u1
    k = m2 - m1
    t = weights[min(k, len(weights) - 1)]
    return m1, s1 + s2 * t, u1 + (u2 + s2 * k) * t


@inner
def _lane_norms(program: Program, lane_fixed: IntArray) -> IntArray:
    """Return the sum of squares of each lane's weights, 0 without a norm ball; -1 for lanes to leave out."""
    lanes = 1
    for q in range(len(program.lane_span)):
        lanes *= program.lane_span[q]
    norm = np.zeros(lanes, dtype=np.int64)
    for lane in range(lanes):
        code = lane
        for q in range(len(program.lane_span)):
            d = code % program.lane_span[q]
            code //= program.lane_span[q]
            if lane_fixed[q] >= 0 and d != lane_fixed[q]:
                norm[lane] = -1
                break
            if program.ball:
                norm[lane] += (program.lane_low[q] + d) ** 2
    return norm


@inner
def _make_buffers(program: Program, room: int, lanes: int) -> tuple[Int32Array, Int32Array, FloatArray]:
    """Make buffers for losses, by level and lane, and for an old and a new mass: smallest losses and sums.

    The sums are totals and excesses. Row q of a mass is the sum over the leaf weights so far whose squares
    sum to q; it has a column for each lane.
    """
    levels = 1
    for j in range(len(program.leaf_span)):
        levels = max(levels, program.leaf_span[j])
    return (
        np.empty((levels, lanes), dtype=np.int32),
        np.empty((2, room + 1, lanes), dtype=np.int32),
        np.empty((2, 2, room + 1, lanes)),
    )


@inner
def _sum_lanes(
    program: Program,
    work: Int32Array,
    lane_norm: IntArray,
    room: int,
    weights: FloatArray,
    losses: Int32Array,
    smallest: Int32Array,
    sums: FloatArray,
) -> tuple[int, float, float]:
    """Return the mass of all points with the current digits of all steps."""
    old, new = 0, 1
    _clear(smallest[old], sums[old], room)
    for lane in range(len(lane_norm)):
        smallest[old, 0, lane], sums[old, 0, 0, lane] = 0, 1.0
    for j in range(len(program.leaf_span)):
        _fill_losses(program, work, j, losses)
        _clear(smallest[new], sums[new], room)
        for v in range(program.leaf_span[j]):
            square = (program.leaf_low[j] + v) ** 2 if program.ball else 0
            for q in range(room + 1 - square):
                _lower(smallest[old, q], losses[v], smallest[new, q + square])
        for v in range(program.leaf_span[j]):
            square = (program.leaf_low[j] + v) ** 2 if program.ball else 0
            for q in range(room + 1 - square):
                at = q + square
                _add_scaled(
                    smallest[old, q], sums[old, :, q], losses[v], smallest[new, at], sums[new, :, at], weights
                )
        old, new = new, old
    least, total, excess = EMPTY, 0.0, 0.0
    for lane in range(len(lane_norm)):
        if lane_norm[lane] < 0:
            continue
        for q in range(room + 1 - lane_norm[lane]):
            m, s, u = int(smallest[old, q, lane]), sums[old, 0, q, lane], sums[old, 1, q, lane]
            least, total, excess = _joined(least, total, excess, m, s, u, weights)
    return least, total, excess


@inner
def _clear(smallest: Int32Array, sums: FloatArray, room: int) -> None:
    for q in range(room + 1):
        for lane in range(smallest.shape[1]):
            smallest[q, lane], sums[0, q, lane], sums[1, q, lane] = EMPTY, 0.0, 0.0


@inner
def _fill_losses(program: Program, work: Int32Array, j: int, losses: Int32Array) -> None:
    """Write to losses[v, lane] the losses that depend on leaf weight j, at level v of this weight."""
    base = program.leaf_base[j]
    for v in range(program.leaf_span[j]):
        losses[v, 0] = work[base + v] if base >= 0 else 0
        size = 1
        for q in range(len(program.lane_span)):
            add = program.lane_add[j, q]
            for d in range(program.lane_span[q] - 1, -1, -1):
                extra = work[add + v + d] if add >= 0 else np.int32(0)
                for lane in range(size):
                    losses[v, d * size + lane] = losses[v, lane] + extra
            size *= program.lane_span[q]


@inner
def _lower(old: Int32Array, losses: Int32Array, new: Int32Array) -> None:
    for lane in range(len(new)):
        new[lane] = min(new[lane], old[lane] + losses[lane])


@inner
def _add_scaled(
    m0: Int32Array, old: FloatArray, losses: Int32Array, m1: Int32Array, new: FloatArray, weights: FloatArray
) -> None:
    """Add the old mass, with a level of the current leaf weight, to the new mass."""
    s0, u0, s1, u1 = old[0], old[1], new[0], new[1]
    last = len(weights) - 1
    for lane in range(len(m0)):
        k = m0[lane] + losses[lane] - m1[lane]
        t = weights[min(k, last)]
        s1[lane] += s0[lane] * t
        u1[lane] += (u0[lane] + s0[lane] * k) * t
