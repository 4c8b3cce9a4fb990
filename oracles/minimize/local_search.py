"""Local search: good points quickly, without any proof of optimality.

The objective at these points is usually a few percent above the minimum. Mechanisms that need a certified
minimiser refuse this oracle. It provides incumbents to exact solvers, and non-private baselines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver, trivial_bound
from privopt.oracles.task import Task
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import Perturbation, from_fixed
from privopt.problems.discrete.problem import DiscreteProblem

# Largest work for an incumbent (candidates x records x features), and largest number of descents for it.
_WORK, _MOST_STARTS = 2e8, 8


@dataclass(frozen=True)
class LocalSearchOracle(DiscreteOracle):
    """Coordinate descent on the exact objective from several points. It takes any problem.

    Its lower bound is ``trivial_bound``, so it certifies nothing.

    Args:
        starts: the number of descents, from ``starting_points``.
    """

    name: ClassVar[str] = "local-search"
    certifies: ClassVar[bool] = False
    starts: int = 16

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        def solve(query: Query) -> Proposal:
            starts = starting_points(query.perturbation, self.starts)
            point = descend(problem, query, starts)
            bound = min(trivial_bound(query.perturbation), problem.value(point, query.perturbation))
            reason = query.watch.stop() or Status.HEURISTIC
            return Proposal(point, bound, reason, raw_status=f"{len(starts)} descents")

        return solve


def incumbent(problem: DiscreteProblem, query: Query) -> IntArray:
    """Find an incumbent for exact solvers, in little time compared with their search."""
    lattice = problem.lattice
    move = float(np.sum(lattice.high - lattice.low)) * problem.n_records * lattice.dimension
    count = int(np.clip(_WORK / (8 * max(1.0, move)), 1, _MOST_STARTS))
    return descend(problem, query, starting_points(query.perturbation, count))


def descend(problem: DiscreteProblem, query: Query, starts: Sequence[IntArray]) -> IntArray:
    """Descend by coordinates from several points, and return the best point found before a limit."""
    lattice, watch = problem.lattice, query.watch
    best: tuple[int, IntArray] | None = None
    for start in starts:
        point, value = start, problem.value(start, query.perturbation)
        while watch.stop() is None:
            moves = _neighbours(point, lattice)
            if len(moves) == 0:
                break
            found = problem.values(moves, query.perturbation)
            first = int(np.argmin(found))
            if int(found[first]) >= value:
                break
            point, value = moves[first], int(found[first])
        if best is None or value < best[0]:
            best = value, point
            watch.report(from_fixed(value), from_fixed(trivial_bound(query.perturbation)))
        if watch.stop() is not None:
            break
    assert best is not None  # there are starts
    return best[1]


def starting_points(perturbation: Perturbation, count: int) -> list[IntArray]:
    """Return starting points for descents.

    They are the point of the box nearest to the origin, the minimiser of the unary terms over the box if that
    minimiser is feasible, and the ends of random walks from the point nearest to the origin. The generator of
    the walks is seeded, so runs are reproducible.
    """
    lattice = perturbation.lattice
    origin = np.clip(np.zeros(lattice.dimension, dtype=np.int64), lattice.low, lattice.high)
    points = [origin]
    flat = np.array([int(np.argmin(t)) for t in perturbation.unary], dtype=np.int64) + lattice.low
    points += [flat] if lattice.contains(flat) else []
    rng = np.random.default_rng(0)
    while len(points) < count:
        point = origin.copy()
        for j in rng.permutation(lattice.dimension):
            trial = point.copy()
            trial[j] = rng.integers(lattice.low[j], lattice.high[j] + 1)
            if lattice.contains(trial):
                point = trial
        points.append(point)
    return points


def _neighbours(point: IntArray, lattice: IntegerLattice) -> IntArray:
    """Return all points of the lattice that differ from ``point`` in exactly one coordinate."""
    moves = []
    for j in range(lattice.dimension):
        levels = np.arange(lattice.low[j], lattice.high[j] + 1)
        block = np.repeat(point[None, :], len(levels), axis=0)
        block[:, j] = levels
        moves.append(block[levels != point[j]])
    block = np.concatenate(moves)
    if lattice.squared_radius is not None:
        block = block[np.einsum("ij,ij->i", block, block) <= lattice.squared_radius]
    return block
