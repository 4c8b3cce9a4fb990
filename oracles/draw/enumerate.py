"""Exact draws by enumeration.

Losses are integers from 0 to the largest loss. Under both laws, points with equal losses are exchangeable. So
a draw first chooses a loss, which is a *level*, and then a uniform point of this level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
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
    Moments,
    Sample,
    Sampler,
    exponentials,
    lost_to_the_source,
    race,
    race_error,
    stop_if_asked,
    uniform_below,
)
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Watch, too_many_points
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice
from privopt.problems.discrete.problem import DiscreteProblem


@dataclass(frozen=True)
class GibbsEnumeration(GibbsOracle):
    """Exact sampler by enumeration. It computes all losses once per data set, in 16 bytes per point.

    Args:
        max_candidates: the largest accepted size of the box.
        max_work: the largest accepted product of the numbers of candidates and of distinct rows.
    """

    name: ClassVar[str] = "gibbs-enumerate"
    takes_constraints: ClassVar[bool] = True
    max_candidates: int = 2_000_000
    max_work: float = 2e9

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        return self._too_many(problem.lattice, problem.n_rows)

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return self._too_many(facts.lattice, facts.rows)

    def planned_exactness(self, facts: ProblemFacts, beta: float) -> Exactness:
        return _exactness(facts.lattice, facts.question, facts.largest_loss, beta)

    def _too_many(self, lattice: IntegerLattice, rows: int) -> list[str]:
        return too_many_points(lattice, rows, self.max_candidates, self.max_work)

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        return _LevelSampler(problem, law)


@dataclass(frozen=True)
class _Levels:
    """The ranks of all points in the box, sorted by loss.

    Level k is codes[starts[k] : starts[k + 1]], with the loss losses[k].
    """

    losses: IntArray
    starts: IntArray
    codes: IntArray

    @property
    def counts(self) -> IntArray:
        return np.diff(self.starts)


@dataclass
class _LevelSampler(Sampler):
    problem: DiscreteProblem
    law: Law
    _known: _Levels | None = field(default=None, repr=False)

    def draw(self, request: DrawRequest) -> Sample:
        levels = self._levels(request.watch)
        if self.law is Law.GIBBS:
            k = race(request.random, self._log_weights(levels, request.beta))
            log_partition = self.moments(request.beta, request.watch).log_partition
        else:
            k, log_partition = self._noisiest_level(levels, request), None
        offset = int(levels.starts[k]) + uniform_below(request.random, int(levels.counts[k]))
        point = self.problem.lattice.point(int(levels.codes[offset]))
        problem = self.problem
        exactness = _exactness(problem.lattice, self.law, problem.largest_loss, request.beta)
        return Sample(point, exactness, log_partition, nodes=len(levels.codes))

    def moments(self, beta: float, watch: Watch) -> Moments:
        levels = self._levels(watch)
        log_weights = self._log_weights(levels, beta)
        top = float(np.max(log_weights))
        weights = np.exp(log_weights - top)
        above = (levels.losses - levels.losses[0]).astype(np.float64)
        return Moments(
            log_partition=top + math.log(math.fsum(weights)) - beta * int(levels.losses[0]),
            expected_loss=int(levels.losses[0]) + math.fsum(weights * above) / math.fsum(weights),
        )

    @staticmethod
    def _log_weights(levels: _Levels, beta: float) -> FloatArray:
        """Return log(number of points x exp(-beta (loss - smallest loss))) for each level."""
        log_weights: FloatArray = np.log(levels.counts) - beta * (levels.losses - levels.losses[0])
        return log_weights

    @staticmethod
    def _noisiest_level(levels: _Levels, request: DrawRequest) -> int:
        """Return the level of the point that permute-and-flip chooses.

        The largest of N standard exponentials has the distribution function (1 - exp(-x))^N. So it has the
        law of -log(1 - U^(1/N)) = -log(1 - exp(-E / N)), U uniform and E standard exponential.
        """
        spread = exponentials(request.random, len(levels.counts)) / levels.counts
        largest = -np.log(-np.expm1(-spread))
        return int(np.argmax(largest - request.beta * (levels.losses - levels.losses[0])))

    def _levels(self, watch: Watch) -> _Levels:
        if self._known is None:
            self._known = self._enumerate(watch)
        return self._known

    def _enumerate(self, watch: Watch) -> _Levels:
        lattice = self.problem.lattice
        codes, losses, seen = [], [], 0
        for points in lattice.batches():
            stop_if_asked(watch, seen)
            codes.append(lattice.ranks(points))
            losses.append(self.problem.losses(points))
            seen += len(points)
        loss = np.concatenate(losses)
        order = np.argsort(loss, kind="stable")
        values, first = np.unique(loss[order], return_index=True)
        starts = np.append(first, len(loss)).astype(np.int64)
        return _Levels(values, starts, np.concatenate(codes)[order])


def _exactness(lattice: IntegerLattice, law: object, n: int, beta: float) -> Exactness:
    log_size, lost = math.log(lattice.box_size), lost_to_the_source(n + 1)
    if law is Law.GIBBS:
        return Exactness(race_error(log_size + beta * n), lost)
    # A relative error of E changes the maximum by at most the same absolute amount. Because exponentials are
    # memoryless, P[w wins] changes by a factor of at most exp(twice the largest error of a score).
    score = 2 * EXPONENTIAL_ERROR + 8 * UNIT_ROUNDOFF * (LOG_EXPONENTIAL_RANGE + log_size + beta * n)
    return Exactness(2 * score, lost)
