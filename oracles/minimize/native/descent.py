"""Block coordinate descent, a heuristic for good points: it optimises each block given the other blocks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit

from privopt.oracles.cells.compiling import inner
from privopt.oracles.cells.regions import BIG, INFEASIBLE, Region, Shape, knapsack, last_table
from privopt.problems.discrete.lattice import IntArray


def descend_from_many(shape: Shape, region: Region, count: int) -> tuple[int, IntArray]:
    """Descend from many starts; return the best value and its levels, or BIG if the norm ball is empty.

    The starts are the shortest point and the minimisers of random costs. The generator has a fixed seed, so
    that results are reproducible. Each descent first uses small weights only, then all: otherwise, with many
    levels, it would end at a poor point.
    """
    rng, best = np.random.default_rng(0), (int(BIG), np.zeros_like(shape.low))
    variables = np.arange(shape.fixed, len(shape.span))
    costs = (shape.low[:, None] + np.arange(shape.squares.shape[1])) ** 2
    outside = last_table(shape, region, shape.cells)[: region.width[0]] >= BIG
    ball = np.where(outside, BIG, 0)
    first = _small(shape, region)
    for _ in range(count):
        x = np.zeros_like(shape.low)
        if knapsack(shape, first, variables, costs, ball, x) >= INFEASIBLE:
            break
        descend(shape, first, x)
        if (value := descend(shape, region, x)) < best[0]:
            best = value, x
        costs = rng.integers(0, 1 << 20, costs.shape)
    return best


def _small(shape: Shape, region: Region) -> Region:
    """Return the region with each variable restricted to the weights -1, 0 and 1, if it has any of these."""
    size, dom = region.dom_size.copy(), region.dom.copy()
    for j in range(shape.fixed, len(shape.span)):
        levels = dom[j, : size[j]]
        kept = levels[np.abs(shape.low[j] + levels) <= 1]
        if len(kept) > 0:
            size[j], dom[j, : len(kept)] = len(kept), kept
    return replace(region, dom_size=size, dom=dom)


def descend(shape: Shape, region: Region, x: IntArray) -> int:
    """Improve levels ``x`` in place to a blockwise optimum, and return its value.

    No cell has two variables of the same block. So, given all other blocks, a block is optimised by a
    knapsack over the sum of squares.
    """
    steps = shape.steps[np.arange(len(shape.member_var)), x[shape.member_var]]
    sums = np.zeros(shape.cells + 1, dtype=np.int64)
    np.add.at(sums, shape.member_factor, steps)
    costs, variables = np.zeros(shape.squares.shape, dtype=np.int64), np.arange(len(x))
    _improve_blocks(shape, region, x, sums, costs, variables)
    unary = region.unary[variables, x][shape.fixed :]
    return int(region.constant[0] + region.tables[shape.last_tables + sums].sum() + unary.sum())


@njit(cache=True, nogil=True)
def _improve_blocks(
    shape: Shape, region: Region, x: IntArray, sums: IntArray, costs: IntArray, variables: IntArray
) -> None:
    """Optimise the blocks in turn until none improves; ``sums`` are the sums of steps of the factors."""
    k = len(shape.span)
    first, unchanged = shape.fixed, 0
    while unchanged <= shape.block[k - 1] - shape.block[shape.fixed]:
        end = first
        while end < k and shape.block[end] == shape.block[first]:
            end += 1
        unchanged = 1 if _improve(shape, region, x, sums, costs, variables[first:end]) else unchanged + 1
        first = end if end < k else shape.fixed


@njit(inline="always")
def _improve(
    shape: Shape, region: Region, x: IntArray, sums: IntArray, costs: IntArray, block: IntArray
) -> Any:
    """Optimise one block of variables given all other variables; return whether the value decreased."""
    _move(shape, x, sums, block, np.int64(-1))
    norm = last_table(shape, region, shape.cells)[sums[shape.cells] : region.width[0]]
    before, square = 0, 0
    for i in range(len(block)):
        j = block[i]
        for v in range(shape.span[j]):
            costs[j, v] = region.unary[j, v]
        for b in range(shape.var_start[j], shape.var_start[j + 1] - 1):
            c = shape.member_factor[shape.var_member[b]]
            table = last_table(shape, region, c)[sums[c] :]
            for v in range(shape.span[j]):
                costs[j, v] += table[v]
        before += costs[j, x[j]]
        square += shape.squares[j, x[j]]
    before += norm[square]
    after = knapsack(shape, region, block, costs, norm, x)
    _move(shape, x, sums, block, np.int64(1))
    return after < before


@inner
def _move(shape: Shape, x: IntArray, sums: IntArray, block: IntArray, sign: Any) -> None:
    """Add the levels of a block to the sums of its factors, or subtract them."""
    for i in range(len(block)):
        j = block[i]
        for b in range(shape.var_start[j], shape.var_start[j + 1]):
            e = shape.var_member[b]
            sums[shape.member_factor[e]] += sign * shape.steps[e, x[j]]
