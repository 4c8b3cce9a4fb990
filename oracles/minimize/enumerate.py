"""Minimiser by exhaustive search, vectorised over candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import too_many_points
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver
from privopt.oracles.task import Task
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, from_fixed
from privopt.problems.discrete.problem import DiscreteProblem


@dataclass(frozen=True)
class EnumerationOracle(DiscreteOracle):
    """Exhaustive search. Losses are computed once per data set and stored, in 8 bytes per candidate.

    Args:
        max_candidates: the largest accepted number of candidates.
        max_work: the largest accepted product of the numbers of candidates and of distinct rows.
    """

    name: ClassVar[str] = "enumerate"
    takes_constraints: ClassVar[bool] = True
    max_candidates: int = 2_000_000
    max_work: float = 2e9

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return self._too_many(problem.lattice, problem.n_rows)

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        return self._too_many(facts.lattice, facts.rows)

    def _too_many(self, lattice: IntegerLattice, rows: int) -> list[str]:
        return too_many_points(lattice, rows, self.max_candidates, self.max_work)

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        # Losses by batch number, computed in the first solve, so that its limits apply. This is thread-safe.
        losses: dict[int, IntArray] = {}

        def solve(query: Query) -> Proposal:
            best: tuple[int, IntArray] | None = None
            seen = 0
            # A valid bound before the last batch is done, because losses are >= 0.
            trivial = -query.perturbation.magnitude
            for number, points in enumerate(problem.lattice.batches()):
                if (reason := query.watch.stop()) is not None:
                    return Proposal(None if best is None else best[1], trivial, reason, nodes=seen)
                if number not in losses:
                    losses[number] = problem.losses(points)
                values = losses[number] * UNIT + query.perturbation.values(points)
                first = int(np.argmin(values))
                if best is None or values[first] < best[0]:
                    best = int(values[first]), points[first]
                seen += len(points)
                query.watch.report(from_fixed(best[0]), from_fixed(trivial), seen)
            assert best is not None  # a lattice is never empty
            return Proposal(best[1], best[0], Status.OPTIMAL, lexicographic=True, nodes=seen)

        return solve
