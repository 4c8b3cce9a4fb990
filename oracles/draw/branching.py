"""Exact draws of decision trees and rule lists, by a recursion over blocks of records.

The two sides of a branch hold independent models, so the mass of all models on a block is a sum of products
of masses on smaller blocks (``privopt.oracles.draw.branching_masses``). A draw goes from the root down: at
each node a predicate, in proportion to the mass of the models that ask it there, and then each label.

- **Time.** The same additions are made whatever the labels are; where rows stand for one record each, time
  and memory follow from the numbers of predicates, levels, classes and records alone, but for the few places
  that the drawn model has.
- **Rounding.** Losses are integers, and so are the exponents' differences, up to the draw: a choice between
  masses is a race of their logarithms (``privopt.oracles.draw.interface``), to which none is too small.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from functools import cache, partial
from typing import ClassVar

import numpy as np

from privopt.oracles.cells.compiling import announced
from privopt.oracles.draw.arrivals import RepeatedDraws, flipped_exactness, permute_and_flip
from privopt.oracles.draw.branching_law import Block, BranchingLaw
from privopt.oracles.draw.branching_masses import LARGEST_EXPONENT
from privopt.oracles.draw.interface import (
    UNIT_ROUNDOFF,
    DrawRequest,
    Exactness,
    GibbsOracle,
    Law,
    Moments,
    Sample,
    Sampler,
    chain_error,
    lost_to_the_source,
    race,
    stop_if_asked,
    uniform_below,
)
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Limits, Watch
from privopt.problems.discrete.branching import MOST_LEVELS, BranchingProblem
from privopt.problems.discrete.branching_effort import BranchingEffort
from privopt.problems.discrete.conjunction_counts import conjunction_counts
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.discrete.tree import DecisionTree

# The number of points of a lattice has to be one in floating point, with room.
_MOST_POINTS = 1e250


@dataclass(frozen=True)
class GibbsBranching(GibbsOracle):
    """Counts conjunctions once per data set, sums over all models once per beta, then draws in milliseconds.

    Answers both laws: permute-and-flip takes a few Gibbs draws (``privopt.oracles.draw.arrivals``).

    Args:
        threads: cores to use; None for all.
    """

    name: ClassVar[str] = "gibbs-branching"
    threads: int | None = None

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        if reasons := self._other(type(problem)):
            return reasons
        assert isinstance(problem, DecisionTree | RuleList)
        sizes = (len(problem.table), problem.levels, problem.n_rows, problem.costs.classes)
        reasons = BranchingEffort.of(*sizes).refusals
        if problem.lattice.box_size > _MOST_POINTS:
            reasons.append("more models than floating point can count")
        return reasons

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        # Sizes of trees and rule lists are limited where they are planned.
        return self._other(facts.kind)

    def planned_exactness(self, facts: ProblemFacts, beta: float) -> Exactness:
        assert issubclass(facts.kind, DecisionTree | RuleList)  # by refusals
        return _exactness(
            facts.kind, facts.lattice, facts.predicates, facts.question, beta, facts.largest_loss
        )

    def _other(self, kind: type[DiscreteProblem]) -> list[str]:
        known = issubclass(kind, DecisionTree | RuleList)
        return [] if known else [f"it draws decision trees and rule lists, no {kind.__name__}"]

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        assert isinstance(problem, DecisionTree | RuleList)  # by refusals
        _compile()
        return _BranchingSampler(problem, law, self.threads or os.cpu_count() or 1)


@cache
@announced("the exact sampler")
def _compile() -> None:
    """Compile all kernels (or load them from the cache) on a tiny problem, before a draw begins."""
    X, y = np.eye(3, dtype=np.int64), np.array([0, 1, 0])
    problem = DecisionTree(X, y, DecisionTree.domain(3, 3))
    _BranchingSampler(problem, Law.GIBBS, 1).moments(1.0, Limits().start())


@dataclass
class _BranchingSampler(Sampler):
    problem: BranchingProblem
    law: Law
    threads: int
    _losses: IntArray | None = field(default=None, repr=False)
    _known: tuple[float, BranchingLaw] | None = field(default=None, repr=False)

    def draw(self, request: DrawRequest) -> Sample:
        law = self._law(request.beta, request.watch)
        whole = law.total()
        arrivals = _ModelDraws(law, request, float(whole.mean[0]) * self.problem.lattice.box_size)
        problem = self.problem
        if self.law is Law.GIBBS:
            point = arrivals.draw()
        else:
            least = int(whole.smallest[0])
            point = permute_and_flip(arrivals, request.beta, lambda w: problem.loss(w) - least)
        exactness = _exactness(
            type(problem), problem.lattice, len(problem.table), self.law, request.beta, problem.largest_loss
        )
        return Sample(
            point, exactness, self.moments(request.beta, request.watch).log_partition, arrivals.places
        )

    def moments(self, beta: float, watch: Watch) -> Moments:
        whole = self._law(beta, watch).total()
        smallest, mean, excess = int(whole.smallest[0]), float(whole.mean[0]), float(whole.excess[0])
        log_size = math.log(self.problem.lattice.box_size)
        return Moments(log_size + math.log(mean) - beta * smallest, smallest + excess / mean)

    def _law(self, beta: float, watch: Watch) -> BranchingLaw:
        """Return the masses at a temperature; kept for further draws at the same."""
        stop_if_asked(watch, 0)
        asked = partial(stop_if_asked, watch)
        if self._losses is None:
            counts = conjunction_counts(self.problem, self.threads, asked)
            self._losses = np.ascontiguousarray(counts @ self.problem.costs.matrix)
        if self._known is None or self._known[0] != beta:
            self._known = beta, BranchingLaw.of(self.problem, self._losses, beta, self.threads, asked)
        return self._known[1]


def _exactness(
    kind: type[BranchingProblem], lattice: IntegerLattice, predicates: int, law: object, beta: float, n: int
) -> Exactness:
    """Each race compares products of two masses; errors add up over races.

    The mass of a leaf is a mean of K exponentials. Each is exact to 1.5 roundoffs, besides the rounding of
    its argument, which is at most ``LARGEST_EXPONENT``. The mass of one level more is a sum of two products
    for each of p predicates; each has the errors of its factors, of its weight, of two scalings and of
    another exponential.
    """
    places, labels = lattice.dimension, int(lattice.high[-1]) + 1
    exponential = LARGEST_EXPONENT + 4
    mass = exponential + labels
    levels = next(k for k in range(1, MOST_LEVELS + 1) if sum(kind.places(k)) == places)
    for _ in range(1, levels):
        mass = 2 * mass + exponential + 5 * predicates + 8
    magnitude = beta * n + math.log(lattice.box_size)
    error = chain_error(places, UNIT_ROUNDOFF * (2 * mass + 8), 2 * magnitude)
    widest = int(np.max(lattice.high)) + 1
    exactness = Exactness(error, lost_to_the_source(float(places * widest)))
    return exactness if law is Law.GIBBS else flipped_exactness(exactness, beta, n)


class _ModelDraws(RepeatedDraws):
    """Gibbs draws of trees or rule lists."""

    def __init__(self, law: BranchingLaw, request: DrawRequest, rate: float) -> None:
        super().__init__(request, rate)
        self._law = law
        self.places = 0

    def draw(self) -> IntArray:
        """Draw a point. Coordinates that the model does not use, or that no row reaches, are uniform."""
        lattice, random = self._law.problem.lattice, self.request.random
        spans = (lattice.high - lattice.low + 1).tolist()
        point = np.array([uniform_below(random, span) for span in spans], dtype=np.int64)
        if self._law.one_sided:
            self._draw_list(point)
        else:
            self._draw_tree(point, 0, Block(), self._law.problem.levels)
        return point

    def _draw_tree(self, point: IntArray, node: int, block: Block | None, level: int) -> None:
        if block is None:
            return
        if level == 0:
            point[node] = self._label(block)
            return
        asked = self._asked(point, node, block, level)
        if asked is None:
            while node < len(point) // 2:
                node = 2 * node + 1
            point[node] = self._label(block)
            return
        self._draw_tree(point, 2 * node + 1, block.side(asked, True), level - 1)
        self._draw_tree(point, 2 * node + 2, block.side(asked, False), level - 1)

    def _draw_list(self, point: IntArray) -> None:
        rules, block = self._law.problem.levels, Block()
        for place in range(rules):
            asked = self._asked(point, place, block, rules - place)
            if asked is None:
                point[rules + place] = self._label(block)
                return
            g, true = asked // 2, asked % 2 == 0
            holds, rest = block.side(g, true), block.side(g, not true)
            if holds is not None:
                point[rules + place] = self._label(holds)
            if rest is None:
                return
            block = rest
        point[-1] = self._label(block)

    def _asked(self, point: IntArray, place: int, block: Block, level: int) -> int | None:
        """Draw a coordinate; ``ways`` times the predicate it asks plus the way, or None where it stops."""
        stop_if_asked(self.request.watch, self.places)
        self.places += 1
        masses = self._law.choices(block, level)
        problem = self._law.problem
        ways, values = problem.ways, problem.table.values
        drawn = race(self.request.random, self._law.scores(masses))
        if drawn < ways * len(values):
            point[place] = drawn
            return ways * int(values[drawn // ways]) + drawn % ways
        stops = ways * len(values)
        point[place] = stops + uniform_below(self.request.random, stops)
        return None

    def _label(self, block: Block) -> int:
        return race(self.request.random, self._law.label_scores(block))
