"""Exact draws in constant memory, by a race over blocks of points of which only the winner is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.draw.interface import (
    EXPONENTIAL_ERROR,
    LOG_EXPONENTIAL_RANGE,
    UNIT_ROUNDOFF,
    DrawRequest,
    Exactness,
    GibbsOracle,
    Law,
    Sample,
    Sampler,
    exponentials,
    lost_to_the_source,
    race_error,
    stop_if_asked,
)
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import too_many_points
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem

# Largest number of points times records in a block, because some problems make a table of this size.
_ENTRIES = 1 << 22
_LARGEST_BLOCK = 1 << 14


@dataclass(frozen=True)
class GibbsStream(GibbsOracle):
    """Streaming sampler: computes all losses for each draw, in memory independent of lattice and records.

    The race of ``privopt.oracles.draw.interface.race`` is run block by block; its winner is the first of the
    winners of the blocks. Permute-and-flip also takes the best of the winners of the blocks.

    Args:
        max_work: the largest accepted product of the numbers of candidates and of distinct rows.
    """

    name: ClassVar[str] = "gibbs-stream"
    takes_constraints: ClassVar[bool] = True
    max_work: float = 2e10

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        return self._too_many(problem.lattice, problem.n_rows)

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return self._too_many(facts.lattice, facts.rows)

    def planned_exactness(self, facts: ProblemFacts, beta: float) -> Exactness:
        return _exactness(facts.question, beta * facts.largest_loss, facts.lattice.box_size)

    def _too_many(self, lattice: IntegerLattice, rows: int) -> list[str]:
        return too_many_points(lattice, rows, 1 << 62, self.max_work)

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        return _Stream(problem, law)


@dataclass(frozen=True)
class _Stream(Sampler):
    problem: DiscreteProblem
    law: Law

    def draw(self, request: DrawRequest) -> Sample:
        size = max(1, min(_LARGEST_BLOCK, _ENTRIES // self.problem.n_rows))
        best, point, seen = -math.inf, None, 0
        for points in self.problem.lattice.batches(size):
            stop_if_asked(request.watch, seen)
            clocks = exponentials(request.random, len(points))
            noise = -np.log(clocks) if self.law is Law.GIBBS else clocks
            scores = noise - request.beta * self.problem.losses(points)
            first = int(np.argmax(scores))
            if scores[first] > best:
                best, point = float(scores[first]), points[first]
            seen += len(points)
        assert point is not None  # a lattice is never empty
        exactness = _exactness(self.law, request.beta * self.problem.largest_loss, seen)
        return Sample(point, exactness, nodes=seen)


def _exactness(law: object, magnitude: float, drawn: int) -> Exactness:
    """Return the exactness of a race between ``drawn`` points with energies of at most ``magnitude``."""
    lost = lost_to_the_source(drawn)
    if law is Law.GIBBS:
        return Exactness(race_error(magnitude), lost)
    # Exponentials are memoryless, so absolute errors of scores change P[w wins] by a factor.
    score = 2 * EXPONENTIAL_ERROR + 8 * UNIT_ROUNDOFF * (LOG_EXPONENTIAL_RANGE + magnitude)
    return Exactness(2 * score, lost)
