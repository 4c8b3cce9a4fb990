"""Best subsets by branch and bound over columns, with bounds from strong convexity."""

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

# Bounds are compared up to this share of the largest reduction of the objective; rounding errors are smaller.
_TOLERANCE = 1e-10


@dataclass(frozen=True)
class BranchingSubsets(SubsetOracle):
    """The best subset by branch and bound.

    In a region (columns F inside, U free) let b be the best weights on F and U, of value v, and D diagonal
    with G - D positive semidefinite. Weights that are 0 on a free column j cost at least the sum of D_i b_i^2
    over its features i: so a choice has a value of at least v plus these sums over the columns that it leaves
    out (strong convexity), and the smallest of them bound the region.

    Args:
        most_work: limit on about this many multiplications, after which the best subset so far is returned.
            It does not depend on the clock, so answers are reproducible.
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
    """Choices that contain ``inside`` and otherwise some of ``free``; ordered by the bound."""

    bound: float
    number: int
    inside: IntArray = field(compare=False)
    free: IntArray = field(compare=False)  # by falling gain


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
        """Split the open region of the least bound on its free column of the largest gain."""
        region = heapq.heappop(self.open)
        if region.bound >= self.value - self._slack:
            self.open.clear()
            return
        j, rest = region.free[:1], region.free[1:]
        self._enter(np.append(region.inside, j), rest)
        self._enter(region.inside, rest)

    def _enter(self, inside: IntArray, free: IntArray) -> None:
        """Bound a region, try the choice that its relaxation suggests, and open it if it may hold more."""
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
