"""Native exact minimiser for scorecards, by cells, dual bounds and a tree search, in integer arithmetic.

All weight vectors of the few numeric columns are enumerated. For each vector, the problem over the indicator
weights is a *region*: a small sum of tables (``regions``). Regions are queued by lower bound (best-first
branch and bound). When a region is first taken from the queue, its bound is improved (``bounds``). When it is
taken again, a tree search follows (``search``, or ``nested``). The minimiser stops when every region is
searched or has a bound of at least the value of the incumbent. Threads share the queue and the incumbent
(``run``); ``worker`` has the work of a thread, and ``model`` the data that are computed once per problem.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from privopt.oracles.cells.regions import CellModel, why_not, why_not_planned
from privopt.oracles.cells.structure import CellLimits
from privopt.oracles.certificate import Status
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Watch
from privopt.oracles.minimize.interface import DiscreteOracle, Proposal, Query, Solver, refuse_large
from privopt.oracles.minimize.native.model import Model
from privopt.oracles.minimize.native.run import Run
from privopt.oracles.minimize.native.worker import compile_kernels, go
from privopt.oracles.minimize.order import first_in_order
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.discrete.problem import DiscreteProblem

_TIES = 2000  # largest number of ties that the main search opens; then ``first_in_order`` takes over


@dataclass(frozen=True)
class NativeOracle(DiscreteOracle):
    """Exact minimiser of ``ZeroOneHalfspace`` with indicator columns, for any perturbation.

    Args:
        limits: sizes beyond which a problem is refused.
        threads: the number of threads; None for one per processor.
    """

    name: ClassVar[str] = "native"
    limits: CellLimits = field(default_factory=CellLimits)
    threads: int | None = None

    def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
        return why_not(problem, task, self.limits)

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        assert isinstance(facts.question, Task)  # minimisers get no other questions
        return why_not_planned(facts, facts.question, self.limits)

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        assert isinstance(problem, ZeroOneHalfspace)  # other problems are refused
        return self.solver(problem, CellModel.make(problem, task))

    def solver(self, problem: ZeroOneHalfspace, regions: CellModel) -> Solver:
        """Build the solver from a cell model, which other oracles may use, too."""
        compile_kernels()
        model = Model.make(problem, regions)
        threads = max(1, self.threads or os.cpu_count() or 1)

        def solve(query: Query) -> Proposal:
            return _solve(model, query, threads)

        return solve


def smallest_loss(problem: ZeroOneHalfspace, regions: CellModel, watch: Watch) -> int:
    """Return the proved smallest loss over the lattice; other oracles may use ``regions``, too.

    Raises:
        UnfinishedDrawError: a limit was reached before the proof.
    """
    query = Query(Perturbation.zero(problem.lattice), watch, break_ties=False)
    proposal = NativeOracle().solver(problem, regions)(query)
    if proposal.status is not Status.OPTIMAL or proposal.point is None:
        raise UnfinishedDrawError(
            f"permute-and-flip needs the smallest loss, and the minimiser was stopped by "
            f"{proposal.status.name}: no point was drawn. To do: {proposal.status.value}"
        )
    return problem.loss(proposal.point)


def _solve(model: Model, query: Query, threads: int) -> Proposal:
    perturbation, lattice = query.perturbation, model.problem.lattice
    refuse_large(perturbation, "the native oracle takes", "rescale, or enumerate")
    costs = model.regions.costs(perturbation)
    point = np.clip(0, lattice.low, lattice.high)  # the shortest vector of the box, so it is in the lattice
    ties = 0 if perturbation.is_zero or not query.break_ties else _TIES
    run = Run(model, costs, query.watch, lattice.low, lattice.high, ties=ties)
    run.offer(model.problem.value(point, perturbation), point)
    stopped = go(run, threads)
    assert run.point is not None
    if stopped is not None:
        return Proposal(run.point, run.bound(), stopped, nodes=run.nodes, raw_status=run.describe())
    first = query.break_ties and run.ties > 0
    if query.break_ties and not first:

        def equal(low: IntArray, high: IntArray) -> tuple[IntArray | None, Status | None]:
            deeper = Run(model, costs, query.watch, low, high, any_below=run.value + 1)
            stopped = go(deeper, threads)
            run.nodes += deeper.nodes
            return deeper.point, stopped

        run.point, stopped = first_in_order(run.point, run.low, run.high, equal)
        first = stopped is None
    status = stopped or Status.OPTIMAL
    return Proposal(run.point, run.value, status, first, nodes=run.nodes, raw_status=run.describe())
