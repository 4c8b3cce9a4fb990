"""CP-SAT of OR-tools: constraint programming with integer variables, costs and bounds.

CP-SAT runs in a separate process (``worker_process``), because OR-tools and highspy cannot be loaded into one
process (see ``highs``).
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Watch
from privopt.oracles.minimize.mip.model import (
    Library,
    MipAnswer,
    MipModel,
    Outcome,
    ProgressRelay,
    Question,
    Session,
    SolverProgress,
)
from privopt.oracles.minimize.mip.oracle import MipOracle, Model
from privopt.oracles.minimize.mip.worker_process import RemoteSession
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.objective import UNIT

_LOOK = 0.02  # seconds between polls of the watch
_LARGEST = 1 << 62  # bound on the absolute value of an objective

ORTOOLS = Library("ortools", "OR-tools", "'privopt[cpsat]'")


@dataclass(frozen=True)
class CpSatOracle(MipOracle):
    """Minimiser by CP-SAT. Objectives and bounds are integer numbers of grid steps.

    So its proofs are in integer arithmetic, and assume only that the solver is correct. Time limits,
    cancellation and Ctrl-C work while the solver runs.

    Args:
        model: "cells", "rows" or "auto"; see ``MipOracle``.
        threads: number of solver threads; None for one thread per processor.

    Raises:
        MissingSolverError: OR-tools is not installed.
    """

    name: ClassVar[str] = "cpsat"
    library: ClassVar[Library | None] = ORTOOLS
    model: Model = "auto"
    threads: int | None = None

    def open(self, model: MipModel) -> Session:
        return RemoteSession(CpSatSession, model, self.threads or 0)


class CpSatSession(Session):
    """A CP-SAT model without objective, which is copied for every solve."""

    exact = True

    def __init__(self, model: MipModel, threads: int) -> None:
        from ortools.sat.python import cp_model

        self._threads = threads
        self._low, self._high = np.array(model.low, np.int64), np.array(model.high, np.int64)
        self._model = cp_model.CpModel()
        proto = self._model.proto
        for bounds in zip(model.low, model.high, strict=True):
            proto.variables.add().domain.extend(bounds)
        for row in model.rows:
            low = _least(row.columns, row.coefficients, self._low, self._high) if row.low is None else row.low
            high = (
                -_least(row.columns, -row.coefficients, self._low, self._high)
                if row.high is None
                else row.high
            )
            _constrain(proto, row.columns, row.coefficients, low, high)

    def _solve(
        self, question: Question, watch: Watch, on_progress: Callable[[SolverProgress], None]
    ) -> MipAnswer:
        from ortools.sat.python import cp_model

        solver, relay = cp_model.CpSolver(), ProgressRelay(watch, on_progress)
        solver.parameters.num_workers = self._threads
        solver.parameters.catch_sigint_signal = False
        solver.parameters.relative_gap_limit = question.gap
        if watch.remaining is not None:
            solver.parameters.max_time_in_seconds = watch.remaining
        done = threading.Event()

        def better_bound(bound: float) -> None:
            relay(lambda: SolverProgress(bound / UNIT, 0))

        def stop_in_time() -> None:
            while not done.wait(_LOOK):
                if relay():
                    solver.stop_search()

        solver.best_bound_callback = better_bound
        watcher = threading.Thread(target=stop_in_time, daemon=True)
        watcher.start()
        try:
            status = solver.solve(self._asked(question), _improved(relay))
        finally:
            done.set()
            watcher.join()
        return _answer(solver, status, relay.finish(), self._low.size)

    def _asked(self, question: Question) -> Any:
        """Return a copy of the model with the objective, bounds and cuts of a question."""
        from ortools.sat.python import cp_model

        model = cp_model.CpModel()
        proto = model.proto
        proto.copy_from(self._model.proto)
        high = self._high if question.allowed is None else np.where(question.allowed, self._high, self._low)
        for column in np.flatnonzero(high < self._high).tolist():
            domain = proto.variables[column].domain
            domain.clear()
            domain.extend([int(self._low[column]), int(high[column])])
        for columns in question.forbidden:
            _constrain(proto, columns, np.ones(len(columns), np.int64), 0, len(columns) - 1)
        costs = grid_steps(question.costs)
        paid = np.flatnonzero(costs)
        least = _least(paid, costs[paid], self._low, high)
        most = -_least(paid, -costs[paid], self._low, high)
        cutoff = most if math.isinf(question.cutoff) else math.floor(question.cutoff * UNIT)
        proto.objective.vars.extend(paid.tolist())
        proto.objective.coeffs.extend(costs[paid].tolist())
        if cutoff < least:  # an empty objective domain would mean "unrestricted" to the solver
            _constrain(proto, paid[:0], costs[:0], 1, 1)
        elif cutoff < most:
            proto.objective.domain.extend([least, cutoff])
        return model


def grid_steps(costs: np.typing.NDArray[np.float64]) -> IntArray:
    """Convert costs to whole numbers of grid steps.

    Raises:
        SolverFailedError: the costs are no multiples of the grid step, or their sum may exceed 64 bits.
    """
    scaled = costs * UNIT
    steps = np.rint(scaled)
    if not np.array_equal(scaled, steps) or float(np.sum(np.abs(steps))) >= _LARGEST:
        raise SolverFailedError("costs are no multiples of the grid step, or too large for 64-bit integers")
    return steps.astype(np.int64)


def _least(columns: IntArray, coefficients: IntArray, low: IntArray, high: IntArray) -> int:
    """Return the minimum of a linear expression over the column bounds."""
    products = np.where(coefficients > 0, low[columns], high[columns]) * coefficients
    return int(np.sum(products))


def _constrain(proto: Any, columns: IntArray, coefficients: IntArray, low: int, high: int) -> None:
    linear = proto.constraints.add().linear
    linear.vars.extend(columns.tolist())
    linear.coeffs.extend(coefficients.tolist())
    linear.domain.extend([low, high])


def _improved(relay: ProgressRelay) -> Any:
    """Return the callback that CP-SAT calls for each improved point."""
    from ortools.sat.python import cp_model

    class Improved(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            values = np.array(self.response_proto.solution, dtype=np.float64)
            relay(lambda: SolverProgress(self.best_objective_bound / UNIT, self.num_branches, values))

    return Improved()


def _answer(solver: Any, status: Any, stopped: Status | None, size: int) -> MipAnswer:
    name, response = status.name, solver.response_proto
    raw, nodes = f"CP-SAT {name}", int(response.num_branches)
    found = np.array(response.solution, dtype=np.float64)
    values = found if len(found) == size else None
    # This is the bound as an integer; ``best_objective_bound`` is a double. Objectives are below 2**53 grid
    # steps, so every useful bound is exact as a float.
    bound = int(response.inner_objective_lower_bound) / UNIT
    if name == "OPTIMAL" and values is not None:
        return MipAnswer(Outcome.OPTIMAL, values, bound, None, nodes, raw)
    if name == "INFEASIBLE":
        return MipAnswer(Outcome.NOTHING, None, math.inf, None, nodes, raw)
    if name in ("FEASIBLE", "UNKNOWN"):
        # A bound of 0 that is reported before the search has begun proves nothing.
        proved = bound if nodes or values is not None else -math.inf
        return MipAnswer(Outcome.STOPPED, values, proved, stopped or Status.TIME_LIMIT, nodes, raw)
    raise SolverFailedError(f"{raw}: neither solved nor stopped by a limit; try another solver")
