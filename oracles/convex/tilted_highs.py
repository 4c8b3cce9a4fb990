"""Tilted risks by HiGHS: losses with a kink as linear programs, squares as quadratic ones.

The linear program is the dual one: a column for each record and a row for each feature. A tilt is its
right-hand side, so a new one is a few steps of the dual simplex away from the basis of no tilt, which every
question starts from: answers depend on the tilt alone.
"""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from privopt.oracles.certificate import Status
from privopt.oracles.convex.tilted import TiltedOracle, TiltedProposal
from privopt.oracles.errors import MissingSolverError, SolverFailedError
from privopt.oracles.limits import Watch
from privopt.problems.convex.kinked_losses import KinkedLoss
from privopt.problems.convex.losses import SquaredLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk

# Entries of rows times rows; more would take minutes to multiply.
_MOST_FEATURES = 1000


@dataclass(frozen=True, eq=False)
class HighsTilted(TiltedOracle):
    """A model that stays with the solver, one in each thread. Time limits reach it while it runs.

    Raises:
        MissingSolverError: highspy cannot be loaded in this process.
    """

    _threads: threading.local = field(default_factory=threading.local, init=False, repr=False)

    @abstractmethod
    def _model(self, highspy: Any, highs: Any) -> None:
        """Pass the model on."""

    @abstractmethod
    def _ask(self, highs: Any, tilt: Vector) -> None:
        """Put the tilt in."""

    @abstractmethod
    def _found(self, highs: Any) -> tuple[Vector, Vector | None]:
        """A point, and the multipliers of a loss with a kink."""

    def propose(self, tilt: Vector, watch: Watch) -> TiltedProposal:
        d = self.box.dimension
        highs, basis = self._solver()
        highs.clearSolver()
        if basis is not None:
            highs.setBasis(basis)
        self._ask(highs, tilt)
        if (reason := watch.stop()) is not None:
            return TiltedProposal(self.box.clip(np.zeros(d)), status=reason)
        # HiGHS counts the time of all runs of an object together.
        left = watch.remaining
        highs.setOptionValue("time_limit", math.inf if left is None else highs.getRunTime() + left)
        highs.run()
        kinds = _highspy().HighsModelStatus
        status = highs.getModelStatus()
        if status not in (kinds.kOptimal, kinds.kTimeLimit, kinds.kIterationLimit):
            raise SolverFailedError(f"HiGHS: {highs.modelStatusToString(status)}")
        point, multipliers = self._found(highs)
        if not np.all(np.isfinite(point)) or point.shape != (d,):  # stopped before there was one
            point, multipliers = self.box.clip(np.zeros(d)), None
        return TiltedProposal(
            point, multipliers, Status.OPTIMAL if status == kinds.kOptimal else Status.TIME_LIMIT
        )

    def _solver(self) -> tuple[Any, Any]:
        """This thread's, with the basis of no tilt where that is of use."""
        if not hasattr(self._threads, "solver"):
            highspy = _highspy()
            highs: Any = highspy.Highs()
            highs.setOptionValue("output_flag", False)
            self._model(highspy, highs)
            highs.run()
            basis = highs.getBasis()
            self._threads.solver = highs, basis if basis.valid else None
        found: tuple[Any, Any] = self._threads.solver
        return found


@dataclass(frozen=True, eq=False)
class LinearTilted(HighsTilted):
    """A loss with a kink, by a linear program: see ``TiltedOracle``.

    max over s_i between the slopes of -<s, y> + the least <A's - tilt, v> for v in the box: a dual of the
    minimum, whose row prices are the weights.
    """

    name: ClassVar[str] = "highs-lp"

    @staticmethod
    def reasons(risk: EmpiricalRisk) -> list[str]:
        loss = risk.facts.loss
        return (
            [] if isinstance(loss, KinkedLoss) else [f"{type(loss).__name__} has no kink: no linear program"]
        )

    def _model(self, highspy: Any, highs: Any) -> None:
        risk, d = self.risk, self.box.dimension
        loss, y = risk.facts.loss, risk.y.astype(np.float64)
        assert isinstance(loss, KinkedLoss)
        below, above = (risk.counts * slope for slope in loss.slopes(y))
        # A's - up + down = tilt.
        rows = sp.csc_array(
            sp.hstack([sp.csr_array(risk.clipped_rows().T), -sp.eye_array(d), sp.eye_array(d)])
        )
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(y) + 2 * d, d
        lp.col_cost_ = np.concatenate([y, -self.box.low, self.box.high])
        lp.col_lower_ = np.concatenate([below, np.zeros(2 * d)])
        lp.col_upper_ = np.concatenate([above, np.full(2 * d, np.inf)])
        lp.row_lower_, lp.row_upper_ = np.zeros(d), np.zeros(d)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
        lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = lp.num_col_, d
        lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = rows.indptr, rows.indices, rows.data
        highs.passModel(lp)

    def _ask(self, highs: Any, tilt: Vector) -> None:
        highs.changeRowsBounds(len(tilt), np.arange(len(tilt), dtype=np.int32), tilt, tilt)

    def _found(self, highs: Any) -> tuple[Vector, Vector | None]:
        solution, rows = highs.getSolution(), len(self.risk.y)
        sums = np.array(solution.col_value, dtype=np.float64)[:rows]
        if sums.size != rows or not np.all(np.isfinite(sums)):
            return np.array([]), None
        return np.array(solution.row_dual, dtype=np.float64), sums / self.risk.counts


@dataclass(frozen=True, eq=False)
class QuadraticTilted(HighsTilted):
    """Squares by a quadratic program in the weights: see ``TiltedOracle``.

    Residuals beyond the threshold, where the loss goes on linearly, are squared all the same: the gap then
    says what that costs.
    """

    name: ClassVar[str] = "highs-qp"

    @staticmethod
    def reasons(risk: EmpiricalRisk) -> list[str]:
        loss, d = risk.facts.loss, risk.facts.dimension
        reasons = [] if isinstance(loss, SquaredLoss) else [f"{type(loss).__name__} is no SquaredLoss"]
        return reasons + ([f"{d:,} features, more than {_MOST_FEATURES:,}"] if d > _MOST_FEATURES else [])

    def _model(self, highspy: Any, highs: Any) -> None:
        risk, d = self.risk, self.box.dimension
        A = risk.clipped_rows()
        weighted = sp.diags_array(risk.counts.astype(np.float64)) @ A
        squares: Any = A.T @ weighted
        H = np.asarray(squares.toarray() if sp.issparse(risk.X) else squares)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = d, 0
        lp.col_cost_ = -np.asarray(weighted.T @ risk.y.astype(np.float64))
        lp.col_lower_, lp.col_upper_ = self.box.low, self.box.high
        highs.passModel(lp)
        lower = sp.csc_array(np.tril((H + H.T) / 2))
        highs.passHessian(
            d, lower.nnz, int(highspy.HessianFormat.kTriangular), lower.indptr, lower.indices, lower.data
        )
        self._threads.costs = np.array(lp.col_cost_)

    def _ask(self, highs: Any, tilt: Vector) -> None:
        costs = self._threads.costs - tilt
        highs.changeColsCost(len(tilt), np.arange(len(tilt), dtype=np.int32), costs)

    def _found(self, highs: Any) -> tuple[Vector, Vector | None]:
        return np.array(highs.getSolution().col_value, dtype=np.float64), None


def _highspy() -> Any:
    try:
        import highspy
    except ImportError:
        raise MissingSolverError(
            "HiGHS cannot be loaded in this process. To do: pip install highspy, and import it before "
            "OR-tools, whose wheels hold another version of the same library"
        ) from None
    return highspy
