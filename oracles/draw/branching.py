"""Exact draws of decision trees and rule lists, by a recursion over blocks of records.

The models on the two sides of a branch are independent. So the mass of all models on a block is a sum of
products of masses on smaller blocks (``privopt.oracles.draw.branching_masses``). A draw starts at the root.
At each node it chooses a predicate, and which of the two sides branch, in proportion to the mass of the
models with this choice. Then it chooses labels; if both sides of a branch are labels, these are chosen
together.

- **Time.** The number of additions does not depend on labels. If every row is one record, time and memory
  depend only on the numbers of predicates, levels, classes and records, except for the few choices of the
  drawn model.
- **Rounding.** Losses are integers, and so are their differences in exponents. A choice between masses is a
  race of their logarithms (``privopt.oracles.draw.interface``), in which a mass of any size can win.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import ClassVar

import numpy as np

from privopt.oracles.cells.compiling import announced
from privopt.oracles.draw.arrivals import RepeatedDraws, flipped_exactness, permute_and_flip
from privopt.oracles.draw.branching_law import Block, BranchingLaw
from privopt.oracles.draw.branching_masses import LARGEST_EXPONENT, Masses
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
from privopt.problems.discrete.tree import DecisionTree, first_leaf

# The number of points of a lattice is a factor in floating point, so it must be far below overflow.
_MOST_POINTS = 1e250


@dataclass(frozen=True)
class GibbsBranching(GibbsOracle):
    """Sampler of trees and rule lists. It draws from both laws.

    It counts the records of conjunctions once per data set, and sums over all models once per beta. After
    that a draw takes milliseconds. Permute-and-flip takes a few Gibbs draws
    (``privopt.oracles.draw.arrivals``).

    Args:
        threads: number of cores to use; None for all.
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
        # The plans of trees and rule lists already limit the sizes of problems.
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
    """Compile all kernels, or load them from the cache, by a tiny problem, before a draw begins."""
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
        """Return the masses at an inverse temperature; they are kept for further draws at the same beta."""
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
    """Bound the error of a draw: each race compares products of two masses, and errors add up over races.

    K is the number of classes, p the number of predicates. The mass of a label is a mean of K exponentials,
    and the mass of two labels a mean of K (K - 1) products of two exponentials. Each exponential has an error
    of at most 1.5 roundoffs, plus the error of its argument, at most ``LARGEST_EXPONENT`` roundoffs. A sum
    over one label and then over the other adds at most 2 K roundoffs.

    The mass of models with one more level is a sum of up to three products for each of the p predicates, and
    three more products. Each product has the errors of its factors and its weight. Adding a summand takes 3.5
    roundoffs, for scaling and sum, plus the errors of the arguments of exponentials. The arguments of all its
    scalings sum to at most ``LARGEST_EXPONENT``, unless the summand is too small to matter.

    The error of the mass of one branch is smaller: 3.5 roundoffs for exponentials from tables, plus their
    arguments; two for the weight, one for each of p + K (K - 1) sums, and two for the mean.
    """
    places, pairs = lattice.dimension, int(lattice.high[-1]) + 1
    exponential = LARGEST_EXPONENT + 4
    mass = 2 * exponential + pairs + 4
    levels = next(k for k in range(1, MOST_LEVELS + 1) if sum(kind.places(k)) == places)
    for _ in range(1, levels):
        mass = 2 * mass + exponential + 11 * predicates + 16
    magnitude = beta * n + math.log(lattice.box_size)
    error = chain_error(places, UNIT_ROUNDOFF * (2 * mass + 8), 2 * magnitude)
    # A race has up to four entries, which say which sides branch, for each value that branches; at most half
    # of all values do.
    widest = 2 * (int(np.max(lattice.high)) + 1) + 1
    exactness = Exactness(error, lost_to_the_source(float(places * widest)))
    return exactness if law is Law.GIBBS else flipped_exactness(exactness, beta, n)


class _ModelDraws(RepeatedDraws):
    """Independent Gibbs draws of trees or rule lists."""

    def __init__(self, law: BranchingLaw, request: DrawRequest, rate: float) -> None:
        super().__init__(request, rate)
        self._law = law
        # The number of values of a coordinate that branch.
        self._branching = law.problem.ways * len(law.problem.table.values)
        self.places = 0

    def draw(self) -> IntArray:
        """Draw a point. Coordinates that do not affect the model, or that no row reaches, are uniform."""
        problem, random = self._law.problem, self.request.random
        spans = (problem.lattice.high - problem.lattice.low + 1).tolist()
        point = np.array([uniform_below(random, span) for span in spans], dtype=np.int64)
        whole = self._law.whole()
        chosen = self._chosen(whole)
        if not problem.root_splits and chosen == len(whole.mean) - 1:
            self._stop(point, 0)
            self._label(point, len(point) // 2, Block())
        elif self._law.one_sided:
            self._draw_list(point, chosen)
        else:
            self._draw_tree(point, 0, Block(), problem.levels, chosen)
        return point

    def _draw_tree(self, point: IntArray, node: int, block: Block, level: int, chosen: int) -> None:
        """Draw the model from a branching node on, given the node's choice (``BranchingLaw.branches``)."""
        children, branches = (2 * node + 1, 2 * node + 2), len(point) // 2
        on, g, _ = self._asked(point, node, chosen)
        sides = block.side(g, True), block.side(g, False)
        leaves = [first_leaf(child, branches) for child in children]
        if on == 0:
            self._label_both(point, leaves, sides)
        for child, side, leaf, goes_on in zip(children, sides, leaves, (on & 1, on & 2), strict=True):
            if not goes_on:
                self._stop(point, child)
                if on != 0:
                    self._label(point, leaf, side)
            elif side is None:
                self._branch(point, child)
            else:
                below = self._chosen(self._law.branches(side, level - 1))
                self._draw_tree(point, child, side, level - 1, below)

    def _draw_list(self, point: IntArray, chosen: int) -> None:
        rules, block = self._law.problem.levels, Block()
        for place in range(rules):
            on, g, way = self._asked(point, place, chosen)
            holds, rest = block.side(g, way == 0), block.side(g, way == 1)
            label = rules + place
            if on == 0:
                self._stop(point, place + 1)
                self._label_both(point, (label, label + 1), (holds, rest))
                return
            self._label(point, label, holds)
            if rest is None:
                self._branch(point, place + 1)
                return
            block = rest
            chosen = self._chosen(self._law.branches(block, rules - place - 1))

    def _chosen(self, masses: Masses) -> int:
        stop_if_asked(self.request.watch, self.places)
        self.places += 1
        return race(self.request.random, self._law.scores(masses))

    def _asked(self, point: IntArray, place: int, chosen: int) -> tuple[int, int, int]:
        """Write the coordinate of a choice; return the sides that branch, the predicate and its literal."""
        on, point[place] = divmod(chosen, self._branching)
        value, way = divmod(chosen % self._branching, self._law.problem.ways)
        return on, int(self._law.problem.table.values[value]), way

    def _branch(self, point: IntArray, place: int) -> None:
        """Map a uniform coordinate to a uniform value among the values that branch."""
        point[place] %= self._branching

    def _stop(self, point: IntArray, place: int) -> None:
        """Map a uniform coordinate to a uniform value among the values that stop; leaves have none."""
        if place < len(point) // 2:
            point[place] = self._branching + point[place] % self._branching

    def _label(self, point: IntArray, place: int, block: Block | None) -> None:
        classes = self._law.problem.costs.classes
        label = race(self.request.random, self._law.label_scores(block))
        point[place] = label + classes * (point[place] // classes)

    def _label_both(
        self, point: IntArray, places: Sequence[int], blocks: tuple[Block | None, Block | None]
    ) -> None:
        """Draw the two different labels of a branch whose sides both stop."""
        classes = self._law.problem.costs.classes
        label, away = divmod(race(self.request.random, self._law.pair_scores(*blocks)), classes - 1)
        first, second = places
        point[first] = label + classes * (point[first] // classes)
        point[second] = point[second] % classes + classes * away
