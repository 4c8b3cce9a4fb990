"""HiGHS through highspy. The model stays loaded between solves; only changes are passed to the solver.

highspy and the wheels of OR-tools contain different versions of a library with the same name
(``libhighs.so.1``). A process keeps the version that it loads first, and then cannot import the other
package. If highspy cannot be imported, HiGHS runs in a separate process (``worker_process``).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.certificate import Status
from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Watch
from privopt.oracles.minimize.mip.model import (
    SLACK,
    Library,
    MipAnswer,
    MipModel,
    Outcome,
    ProgressRelay,
    Question,
    Session,
    SolverProgress,
    sparse_rows,
)
from privopt.oracles.minimize.mip.oracle import MipOracle, Model
from privopt.oracles.minimize.mip.worker_process import RemoteSession

HIGHSPY = Library("highspy", "highspy", "highspy")


@dataclass(frozen=True)
class HighsOracle(MipOracle):
    """Minimiser by HiGHS. Its proofs are in floating point, like the proofs of ``PulpOracle``.

    Time limits, cancellation, Ctrl-C and progress work while the solver runs.

    Args:
        model: "cells", "rows" or "auto"; see ``MipOracle``.

    Raises:
        MissingSolverError: highspy is not installed.
    """

    name: ClassVar[str] = "highs"
    library: ClassVar[Library | None] = HIGHSPY
    model: Model = "auto"

    def open(self, model: MipModel) -> Session:
        return HighsSession(model) if loads() else RemoteSession(HighsSession, model)


def loads() -> bool:
    """Return whether highspy can be loaded in this process."""
    try:
        import highspy  # noqa: F401
    except ImportError:
        # Remove the partially imported package.
        for name in [m for m in sys.modules if m.partition(".")[0] == "highspy"]:
            del sys.modules[name]
        return False
    return True


class HighsSession(Session):
    """A HiGHS model whose costs, bounds and cuts are changed in place between solves.

    The question sets the relative gap, because with the default of 1e-4 HiGHS may stop before the optimum.
    The feasibility tolerances stay at their defaults: with ``mip_feasibility_tolerance=1e-9`` HiGHS 1.15.1
    cut off the optimum of a cell model (2645.542), and claimed that 2645.691 is optimal.
    """

    def __init__(self, model: MipModel) -> None:
        self._size, self._rows = model.size, len(model.rows)
        self._low, self._high = np.array(model.low, np.float64), np.array(model.high, np.float64)
        self.highs = loaded(model, np.zeros(model.size))
        # The number of threads is not set: HiGHS has one scheduler per process, and fails if callers set
        # different numbers.
        self.highs.setOptionValue("mip_abs_gap", 0.0)

    def _solve(
        self, question: Question, watch: Watch, on_progress: Callable[[SolverProgress], None]
    ) -> MipAnswer:
        self._load(question, watch.remaining)
        relay = ProgressRelay(watch, on_progress)
        self.highs.setCallback(callback(relay), None)
        for kind in callback_kinds():
            self.highs.startCallback(kind)
        with relay:
            self.highs.run()
        for kind in callback_kinds():
            self.highs.stopCallback(kind)
        self.highs.setCallback(None, None)
        return answer(self.highs, np.arange(self._size), relay.finish(), question.cutoff)

    def _load(self, question: Question, seconds: float | None) -> None:
        highs, allowed, everything = self.highs, question.allowed, np.arange(self._size, dtype=np.int32)
        highs.clearSolver()  # the state and status of the previous solve must not affect this solve
        if (surplus := highs.getNumRow() - self._rows) > 0:
            highs.deleteRows(surplus, np.arange(self._rows, self._rows + surplus, dtype=np.int32))
        for columns in question.forbidden:
            size = len(columns)
            highs.addRow(-math.inf, size - 1.0, size, columns.astype(np.int32), np.ones(size))
        high = self._high if allowed is None else np.where(allowed, self._high, self._low)
        highs.changeColsBounds(self._size, everything, self._low, high)
        highs.changeColsCost(self._size, everything, np.ascontiguousarray(question.costs, dtype=np.float64))
        highs.setOptionValue("objective_bound", float(question.cutoff))
        highs.setOptionValue("mip_rel_gap", float(question.gap))
        # The time limit of HiGHS is on the total time of all runs of this object.
        highs.setOptionValue("time_limit", math.inf if seconds is None else highs.getRunTime() + seconds)
        if question.start is not None:
            highs.setSolution(
                len(question.start), question.start.astype(np.int32), np.ones(len(question.start))
            )


def loaded(model: MipModel, costs: NDArray[np.float64]) -> Any:
    """Load a model with costs into a new ``Highs`` that prints nothing."""
    from highspy import Highs, HighsLp, HighsVarType, MatrixFormat

    lp = HighsLp()
    lp.num_col_, lp.num_row_ = model.size, len(model.rows)
    lp.col_cost_ = costs
    lp.col_lower_, lp.col_upper_ = np.array(model.low, np.float64), np.array(model.high, np.float64)
    lp.row_lower_ = np.array([-np.inf if r.low is None else r.low for r in model.rows], np.float64)
    lp.row_upper_ = np.array([np.inf if r.high is None else r.high for r in model.rows], np.float64)
    lp.a_matrix_.format_ = MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = model.size, len(model.rows)
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = sparse_rows(model)
    kinds = (HighsVarType.kContinuous, HighsVarType.kInteger)
    lp.integrality_ = [kinds[integer] for integer in model.integer]
    highs: Any = Highs()  # type: ignore[no-untyped-call]
    highs.setOptionValue("output_flag", False)
    highs.passModel(lp)
    return highs


def callback_kinds() -> list[Any]:
    """Return the kinds of HiGHS callbacks that are used."""
    from highspy import cb

    kinds = cb.HighsCallbackType
    return [kinds.kCallbackMipInterrupt, kinds.kCallbackSimplexInterrupt, kinds.kCallbackMipImprovingSolution]


def callback(relay: ProgressRelay, order: NDArray[np.int64] | None = None) -> Callable[..., None]:
    """Return the callback that HiGHS calls while it runs.

    Args:
        relay: receives progress, and decides whether to stop.
        order: HiGHS's index of each column of the model, shape (columns,); None if the indices are equal.
    """
    from highspy import cb

    improved = int(cb.HighsCallbackType.kCallbackMipImprovingSolution)

    def called(kind: Any, message: str, out: Any, into: Any, data: Any) -> None:
        def progress() -> SolverProgress:
            values = None
            if int(kind) == improved and len(out.mip_solution):
                values = np.array(out.mip_solution, dtype=np.float64)
                values = values if order is None else values[order]
            return SolverProgress(float(out.mip_dual_bound), int(out.mip_node_count), values)

        into.user_interrupt = relay(progress if math.isfinite(out.mip_dual_bound) else None)

    return called


def answer(highs: Any, order: NDArray[np.int64], stopped: Status | None, cutoff: float) -> MipAnswer:
    """Read the answer from HiGHS after a run.

    Args:
        highs: the solver.
        order: HiGHS's index of each column of the model, shape (columns,).
        stopped: the limit that stopped the solver, or None.
        cutoff: the cutoff of the question.
    """
    from highspy import HighsModelStatus as State
    from highspy import SolutionStatus

    status, info = highs.getModelStatus(), highs.getInfo()
    raw = f"HiGHS {highs.modelStatusToString(status)}"
    nodes, bound = max(0, int(info.mip_node_count)), float(info.mip_dual_bound)
    values = None
    if info.primal_solution_status == SolutionStatus.kSolutionStatusFeasible:
        values = np.asarray(highs.getSolution().col_value, dtype=np.float64)[order]
    if status == State.kOptimal and info.objective_function_value > cutoff + SLACK:
        # No point is below the cutoff; HiGHS reports a point above it that it found before.
        return MipAnswer(Outcome.NOTHING, None, math.inf, None, nodes, raw + " (nothing below the cutoff)")
    if status == State.kOptimal and values is not None:
        return MipAnswer(Outcome.OPTIMAL, values, bound, None, nodes, raw)
    if status in (State.kInfeasible, State.kObjectiveBound):
        return MipAnswer(Outcome.NOTHING, None, math.inf, None, nodes, raw)
    if status == State.kTimeLimit:
        return MipAnswer(Outcome.STOPPED, values, bound, Status.TIME_LIMIT, nodes, raw)
    if status == State.kInterrupt:
        return MipAnswer(Outcome.STOPPED, values, bound, stopped or Status.INTERRUPTED, nodes, raw)
    raise SolverFailedError(f"{raw}: neither solved nor stopped by a limit; try another solver")
