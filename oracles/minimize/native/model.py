"""Data of the native minimiser that do not depend on the noise, computed once per problem."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from privopt.oracles.cells.regions import BIG, CellModel, new_region, start_dual
from privopt.oracles.minimize.native import bounds
from privopt.oracles.minimize.native.tries import Tries, make_tries
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.objective import UNIT, Perturbation

FIRST_SWEEPS, MORE_SWEEPS = 2, 10  # sweeps over a region on its first visit, and on later visits
_REPRESENTATIVES = 8  # numeric weight vectors on which starting duals are tuned


@dataclass(frozen=True)
class Model:
    """The regions of a problem, with search order and starting duals; independent of the noise."""

    problem: ZeroOneHalfspace
    regions: CellModel
    least_loss: IntArray  # (r,) sum of the minima of the cells in each region
    rows: IntArray  # number of records in the cells of each variable, which determines the search order
    shares: bounds.Shares
    tilts: IntArray  # (2, r) the tilts of the starting duals on the first and second visit of each region
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def make(cls, problem: ZeroOneHalfspace, regions: CellModel) -> Model:
        shape, starts = regions.shape, regions.cells.table_start[:-1]
        least = np.minimum.reduceat(regions.tables, starts, axis=1).sum(axis=1, dtype=np.int64)
        rows = np.bincount(shape.member_var, shape.records[shape.member_factor]).astype(np.int64)
        shares = bounds.make_shares(shape)
        return cls(
            problem, regions, least, rows, shares, _tilts(regions, shares, least, problem.largest_loss)
        )

    @property
    def tries(self) -> Tries:
        """The tries, which are made on first use."""
        with self.lock:
            return self._tries

    @cached_property
    def _tries(self) -> Tries:
        return make_tries(self.regions.shape, self.rows)


def _tilts(regions: CellModel, shares: bounds.Shares, least: IntArray, n: int) -> IntArray:
    """Return multipliers of |w|^2 that give good bounds after few sweeps, and after many, without noise.

    They depend mostly on |a|^2 of the numeric weights a, which determines how much of the squared radius is
    left. So the regions are grouped by |a|^2, and the multipliers are found for one region of low loss in
    each group.
    """
    shape, squares = regions.shape, regions.squares
    tilts = np.zeros((2, len(squares)), dtype=np.int64)
    if not shape.coupled:
        return tilts
    region, costs = new_region(shape, np.int64), regions.costs(Perturbation.zero(regions.cells.lattice))
    forward, levels = np.zeros_like(region.tables), np.zeros_like(shape.low)
    tried = (0, *(n * UNIT >> digits for digits in range(13, 4, -1)))
    at, distinct = [0, 0], np.unique(squares)
    for part in np.array_split(distinct, min(len(distinct), _REPRESENTATIVES)):
        same = np.flatnonzero((squares >= part[0]) & (squares <= part[-1]))
        number = int(same[np.argmin(least[same])])

        @cache
        def reached(tilt: int, number: int = number) -> tuple[int, int]:
            """Return the bounds after few and after many sweeps."""
            found = -BIG, -BIG
            if regions.start(region, number, UNIT, costs, regions.all_levels):
                start_dual(shape, region, tilt)
                sweeps = range(max(FIRST_SWEEPS, MORE_SWEEPS))
                low = [bounds.sweep(shape, region, forward, shares, BIG, levels) for _ in sweeps]
                found = low[FIRST_SWEEPS - 1], low[-1]
            return found

        for stage in range(2):
            at[stage] = climb(at[stage], len(tried), lambda k: reached(tried[k])[stage])  # noqa: B023
            tilts[stage, same] = tried[at[stage]]
    return tilts


def climb(at: int, size: int, height: Callable[[int], int]) -> int:
    """Move from ``at`` to the higher neighbour in 0..size - 1 until none is higher; return the position."""
    while True:
        best = max((at, max(0, at - 1), min(size - 1, at + 1)), key=height)
        if height(best) <= height(at):
            return at
        at = best
