"""SCIP through PySCIPOpt, an optional package. The model stays loaded between solves."""

from __future__ import annotations

import math
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

_INFINITE = 1e19  # SCIP's infinity is 1e20
# With costs in the thousands, the default tolerance of 1e-6 on integrality would affect the objective. SCIP
# does not catch Ctrl-C, because the callbacks do.
_SETTINGS = {"limits/absgap": 0.0, "numerics/feastol": 1e-8, "misc/catchctrlc": False}

PYSCIPOPT = Library("pyscipopt", "PySCIPOpt", "'privopt[scip]'")


@dataclass(frozen=True)
class ScipOracle(MipOracle):
    """Minimiser by SCIP. Its proofs are in floating point, like the proofs of ``PulpOracle``.

    Time limits, cancellation, Ctrl-C and progress work while the solver runs.

    Args:
        model: "cells", "rows" or "auto"; see ``MipOracle``.

    Raises:
        MissingSolverError: PySCIPOpt is not installed.
    """

    name: ClassVar[str] = "scip"
    library: ClassVar[Library | None] = PYSCIPOPT
    model: Model = "auto"

    def open(self, model: MipModel) -> Session:
        return ScipSession(model)


class ScipSession(Session):
    """A SCIP model whose costs, bounds and cuts are changed in place between solves."""

    def __init__(self, model: MipModel) -> None:
        from pyscipopt import Expr
        from pyscipopt import Model as Scip

        self._scip = Scip(model.name)
        self._scip.hideOutput()
        for option, value in _SETTINGS.items():
            self._scip.setParam(option, value)
        kinds = ("C", "I")
        self._columns = [
            self._scip.addVar(lb=low, ub=high, vtype=kinds[integer])
            for low, high, integer in zip(model.low, model.high, model.integer, strict=True)
        ]
        self._high, self._cuts = np.array(model.high), list[Any]()
        for row in model.rows:
            total = self._sum(Expr, row.columns.tolist(), row.coefficients.tolist())
            if row.low is not None and row.high is not None:
                self._scip.addCons(total == row.low)
            else:
                self._scip.addCons(total >= row.low if row.high is None else total <= row.high)
        self._listener = _listener()
        self._scip.includeEventhdlr(self._listener, "privopt", "progress, and whether to stop")

    def _sum(self, expression: Any, columns: list[int], coefficients: list[float]) -> Any:
        from pyscipopt.scip import Term

        pairs = zip(columns, coefficients, strict=True)
        return expression({Term(self._columns[c]): float(v) for c, v in pairs})

    def _solve(
        self, question: Question, watch: Watch, on_progress: Callable[[SolverProgress], None]
    ) -> MipAnswer:
        self._load(question, watch.remaining)
        self._listener.relay, self._listener.columns = ProgressRelay(watch, on_progress), self._columns
        with self._listener.relay:
            self._scip.optimize()
        return self._answer(self._listener.relay.finish(), question.cutoff)

    def _load(self, question: Question, seconds: float | None) -> None:
        from pyscipopt import Expr

        scip = self._scip
        scip.freeTransform()
        while self._cuts:
            scip.delCons(self._cuts.pop())
        for columns in question.forbidden:
            together = self._sum(Expr, columns.tolist(), [1.0] * len(columns))
            self._cuts.append(scip.addCons(together <= len(columns) - 1))
        high = self._high if question.allowed is None else np.where(question.allowed, self._high, 0)
        for column, most in zip(self._columns, high.tolist(), strict=True):
            if column.getUbOriginal() != most:
                scip.chgVarUb(column, most)
        paid = np.flatnonzero(question.costs)
        scip.setObjective(self._sum(Expr, paid.tolist(), question.costs[paid].tolist()), "minimize")
        scip.setObjlimit(question.cutoff if math.isfinite(question.cutoff) else scip.infinity())
        scip.setParam("limits/gap", question.gap)
        scip.setParam("limits/time", 1e20 if seconds is None else max(seconds, 1e-3))

    def _answer(self, stopped: Status | None, cutoff: float) -> MipAnswer:
        scip = self._scip
        state, nodes = str(scip.getStatus()), int(scip.getNTotalNodes())
        raw, bound = f"SCIP {state}", float(scip.getDualbound())
        bound = bound if abs(bound) < _INFINITE else math.copysign(math.inf, bound)
        values = None
        if scip.getNSols():
            best = scip.getBestSol()
            values = np.array([scip.getSolVal(best, x) for x in self._columns], dtype=np.float64)
        if state in ("optimal", "gaplimit") and values is not None:
            return MipAnswer(Outcome.OPTIMAL, values, bound, None, nodes, raw)
        if state == "infeasible":
            return MipAnswer(Outcome.NOTHING, None, math.inf, None, nodes, raw)
        if state in ("timelimit", "userinterrupt"):
            reason = stopped or Status.TIME_LIMIT
            return MipAnswer(Outcome.STOPPED, values, min(bound, cutoff), reason, nodes, raw)
        raise SolverFailedError(f"{raw}: neither solved nor stopped by a limit; try another solver")


def _listener() -> Any:
    """Return the event handler that SCIP calls while it runs."""
    from pyscipopt import SCIP_EVENTTYPE as EVENT  # type: ignore[attr-defined]
    from pyscipopt import Eventhdlr

    kinds = (EVENT.LPSOLVED, EVENT.NODESOLVED, EVENT.BESTSOLFOUND, EVENT.PRESOLVEROUND)

    class Listener(Eventhdlr):
        relay: ProgressRelay | None = None
        columns: list[Any]

        def eventinit(self) -> None:
            for kind in kinds:
                self.model.catchEvent(kind, self)

        def eventexit(self) -> None:
            for kind in kinds:
                self.model.dropEvent(kind, self)

        def eventexec(self, event: Any) -> None:
            scip = self.model

            def progress() -> SolverProgress:
                values = None
                if event.getType() == EVENT.BESTSOLFOUND:
                    best = scip.getBestSol()
                    values = np.array([scip.getSolVal(best, x) for x in self.columns], dtype=np.float64)
                return SolverProgress(float(scip.getDualbound()), int(scip.getNTotalNodes()), values)

            if self.relay is not None and self.relay(progress):
                scip.interruptSolve()

    return Listener()
