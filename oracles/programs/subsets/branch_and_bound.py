"""Solver of best subsets by branch and bound over columns, with bounds from strong convexity."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privopt.oracles.limits import Watch
from privopt.oracles.programs.interface import ProgramProposal
from privopt.oracles.programs.subsets.interface import SubsetOracle
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.programs.subset import SubsetProgram

# Bounds are compared up to this share of the largest reduction of the objective, more than rounding errors.
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class BranchingSubsets(SubsetOracle):
    """Finds the best subset by branch and bound.

    A region is the set of choices that contain the columns F and some of the free columns U. Let b be the
    best weights on F and U together, v their value, and D a diagonal matrix with G - D positive semidefinite.
    By strong convexity, a choice that leaves out some free columns has a value of at least v plus the sum of
    D_i b_i^2 over their features i. Each column has such a sum, its gain; if at least r free columns must be
    left out, v plus the r smallest gains is a lower bound for the region.

    Args:
        most_work: approximate limit on the number of multiplications, after which the best subset so far is
            returned. The limit does not depend on the clock, so answers are reproducible.
    """

    name: ClassVar[str] = "branch-and-bound"
    most_work: float = 5e8

    def propose(self, program: SubsetProgram, watch: Watch) -> ProgramProposal:
        search = _Search(program)
        nodes = 1 + int(self.most_work / (len(program.cross) ** 3 / 3 + 2e4))
        while search.open:
            if search.nodes >= nodes or watch.stop() is not None:
                return ProgramProposal(search.choice, False, f"stopped after {search.nodes} nodes")
            search.split()
        return ProgramProposal(search.choice, True, f"{search.nodes} nodes")


@dataclass(order=True)
class _Region:
    """The choices that consist of ``inside`` and some of ``free``; regions are ordered by their bounds."""

    bound: float
    number: int
    inside: IntArray = field(compare=False)
    free: IntArray = field(compare=False)  # the largest gain first


class _Search:
    """Open regions and the best choice found."""

    def __init__(self, program: SubsetProgram) -> None:
        self.program, self.nodes = program, 0
        self.open: list[_Region] = []
        self.choice: IntArray | None = None
        self.value, self._slack = math.inf, 0.0
        every = np.arange(len(program.columns))
        self._slack = -_TOLERANCE * program.value(np.ones(len(every), np.int64))
        self._enter(every[:0], every)

    def split(self) -> None:
        """Split the open region with the least bound by its free column with the largest gain."""
        region = heapq.heappop(self.open)
        if region.bound >= self.value - self._slack:
            self.open.clear()
            return
        j, rest = region.free[:1], region.free[1:]
        self._enter(np.append(region.inside, j), rest)
        self._enter(region.inside, rest)

    def _enter(self, inside: IntArray, free: IntArray) -> None:
        """Bound a region, try its choice of the largest gains, and open it if it may contain a better one."""
        program, room = self.program, self.program.most - len(inside)
        free = free if room else free[:0]
        if not program.possible(inside, free):
            return
        self.nodes += 1
        choice = np.zeros(len(program.columns), np.int64)
        choice[np.append(inside, free)] = 1
        weights = program.weights(choice)
        gains = np.bincount(program.owners, program.convexity * weights**2, len(choice))
        ordered = free[np.argsort(-gains[free], kind="stable")]
        bound = float(np.sum(gains[ordered[room:]])) - float(program.cross @ weights)
        self._try(np.append(inside, ordered[:room]))
        if len(free) and bound < self.value - self._slack:
            heapq.heappush(self.open, _Region(bound, self.nodes, inside, ordered))

    def _try(self, columns: IntArray) -> None:
        choice = np.zeros(len(self.program.columns), np.int64)
        choice[columns] = 1
        value = self.program.value(choice)
        if value < self.value and not self.program.violations(choice):
            self.value, self.choice = value, choice
