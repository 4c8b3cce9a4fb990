"""Mixed-integer programming through PuLP: HiGHS by default, or any other solver that PuLP can run.

PuLP imports every solver library that it finds. One of them is highspy, which conflicts with OR-tools in one
process. So PuLP is imported only when an oracle is created.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from privopt.oracles.certificate import Status
from privopt.oracles.errors import (
    MissingSolverError,
    SolverFailedError,
    UnknownOracleError,
)
from privopt.oracles.limits import Watch
from privopt.oracles.minimize.mip import highs
from privopt.oracles.minimize.mip.model import (
    MipAnswer,
    MipModel,
    Outcome,
    ProgressRelay,
    Question,
    Session,
    SolverProgress,
)
from privopt.oracles.minimize.mip.oracle import MipOracle, Model
from privopt.oracles.minimize.mip.passing import NotPassedError, end_passing
from privopt.oracles.minimize.mip.solver_files import CARELESS, Tell, private_folder, uses_files
from privopt.problems.discrete.lattice import FloatArray

_LOOK = 0.02  # seconds between polls of the watch
_PATIENCE = 5.0  # seconds that an external program has after cancellation to write its best point
# Short names of solvers, and PuLP's names for them.
_PULP_NAMES = {"highs": "HiGHS", "cbc": "PULP_CBC_CMD"}


@dataclass(frozen=True)
class PulpOracle(MipOracle):
    """Minimiser by mixed-integer programming with any solver that PuLP can run; proofs are in floating point.

    Points are evaluated in exact integer arithmetic. Only the proof that no point is better comes from the
    solver: ``exact=False`` in a certificate means that the proof relies on the solver, which meets
    feasibility and integrality up to about 1e-6. A gap of 0 is claimed if the bound is within 1e-5 of the
    exact value, or within the error of the solver's arithmetic where that is larger. A lexicographically
    first minimiser is claimed if the solver finds no other point whose value is within ten times as much of
    the minimum, or if all such points, at most 20, have been compared exactly. If the
    integer dual bounds of the cell model answer a question without the solver, ``exact`` is true.

    PuLP passes the whole model to the solver for every question. ``HighsOracle`` and ``ScipOracle`` call
    their solvers directly, and keep the model loaded.

    Time limits, cancellation, Ctrl-C and progress work while HiGHS runs. Other solvers get the time limit. At
    a cancellation, external programs stop with their best point; at Ctrl-C they are ended. If a
    solve does not finish, only HiGHS gives a proved bound, so gaps of other solvers are large at a limit.

    Solvers that are external programs, such as CBC, read record counts and noise from files in a private
    folder, which is removed after the solve (``solver_files``). HiGHS and SCIP use no files.

    Args:
        solver: "HiGHS", "CBC", or the name of another solver in PuLP ("SCIP_PY", "GUROBI", "CPLEX_PY", ...).
        model: "cells", "rows" or "auto"; see ``MipOracle``.

    Raises:
        UnknownOracleError: PuLP knows no solver of this name.
        MissingSolverError: the solver is not installed.
    """

    name: ClassVar[str] = "pulp-highs"
    solver: str = "HiGHS"
    model: Model = "auto"

    def __post_init__(self) -> None:
        self.check_model()
        require_solver(self.solver)
        object.__setattr__(self, "name", display_name(self.solver))

    def open(self, model: MipModel) -> Session:
        return PulpSession(model, self.solver)


def display_name(solver: str) -> str:
    """Return the oracle's name, such as pulp-highs for HiGHS, pulp-cbc for PULP_CBC_CMD."""
    short = solver.lower().removeprefix("pulp_")
    for interface in ("_cmd", "_py", "_dll"):
        short = short.removesuffix(interface)
    return f"pulp-{short}"


def is_highs(solver: str) -> bool:
    return solver.lower() == "highs"


def require_solver(solver: str) -> str:
    """Return PuLP's name of an installed solver.

    Raises:
        UnknownOracleError: PuLP knows no solver of this name, or privopt does not use it.
        MissingSolverError: PuLP knows the solver, but it is not installed.
    """
    import pulp

    names = {name.lower(): name for name in pulp.listSolvers()}
    wanted = _PULP_NAMES.get(solver.lower(), solver)
    if wanted.lower() not in names:
        known = ", ".join(sorted(["HiGHS", "CBC", *names.values()]))
        raise UnknownOracleError(f"PuLP knows no solver {solver!r}; it knows {known}")
    name = str(names[wanted.lower()])
    if name in CARELESS:
        raise UnknownOracleError(
            f"privopt does not use PuLP's {name}, which writes the problem, and with it what depends on "
            f"records and noise, to files that others may read. To do: use another solver; "
            f"HiGHS and SCIP need no files"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        available = pulp.getSolver(name, msg=False).available()
    if not available:
        remedy = "pip install highspy" if is_highs(solver) else f"install {solver} so that PuLP finds it"
        raise MissingSolverError(
            _clash(name)
            or f"PuLP cannot run {name} here. To do: {remedy} "
            f"(python -c 'import pulp; print(pulp.listSolvers(onlyAvailable=True))' lists what it finds)"
        )
    return name


# The Python packages of the solvers that PuLP calls as libraries.
_LIBRARIES = {
    "HiGHS": "highspy",
    "SCIP_PY": "pyscipopt",
    "GUROBI": "gurobipy",
    "CPLEX_PY": "cplex",
    "XPRESS_PY": "xpress",
    "MOSEK": "mosek",
    "COPT": "coptpy",
}


def _clash(name: str) -> str:
    """Return why an installed solver library cannot be loaded, as PuLP does not say it; or an empty text."""
    library = _LIBRARIES.get(name)
    if library is None or importlib.util.find_spec(library) is None:
        return ""
    try:
        importlib.import_module(library)
    except Exception as error:  # a library can raise anything when it is loaded
        others = sorted({"ortools", *_LIBRARIES.values()} & set(sys.modules) - {library})
        beside = f", perhaps because {' and '.join(others)} is loaded already" if others else ""
        return (
            f"PuLP cannot run {name} here: {library} is installed, but loading it failed{beside} "
            f"({type(error).__name__}: {error}). Some solver libraries do not get along in one process. "
            f"To do: use one of them per process, load {library} first, or install another release of either"
        )
    return ""


class PulpSession(Session):
    """A session for any solver that PuLP can run; the whole model is passed for every solve.

    PuLP provides neither bounds nor callbacks. The bounds and callbacks of HiGHS are used directly; other
    solvers report no bound if they are stopped early. All solvers get the time limit. Cancellation stops
    HiGHS and external programs only.
    """

    def __init__(self, model: MipModel, solver: str) -> None:
        self._name, self._rows = require_solver(solver), len(model.rows)
        self._problem, self._columns = translated(model)

    def _solve(
        self, question: Question, watch: Watch, on_progress: Callable[[SolverProgress], None]
    ) -> MipAnswer:
        import pulp

        relay = ProgressRelay(watch, on_progress)
        problem = self._asked(question)
        for number, column in enumerate(problem.variables()):
            column.index = number
        # PuLP sorts variables by name, so the position of each column is stored.
        order = np.array([column.index for column in self._columns], dtype=np.int64)
        started = self._call(problem, question, relay, order)
        stopped = relay.finish()
        if not started:
            raw = f"{self._name} was not started"
            return MipAnswer(Outcome.STOPPED, None, -math.inf, stopped or Status.TIME_LIMIT, 0, raw)
        if is_highs(self._name):
            return highs.answer(problem.solverModel, order, stopped, question.cutoff)
        if stopped is Status.INTERRUPTED:
            found = problem.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
            values = self._values() if found else None
            return MipAnswer(Outcome.STOPPED, values, -math.inf, stopped, 0, f"{self._name} was stopped")
        return self._answer(problem, question.costs, question.gap, watch)

    def _asked(self, question: Question) -> Any:
        import pulp

        problem, columns = self._problem.copy(), self._columns
        terms = [(c, float(v)) for c, v in zip(columns, question.costs, strict=True) if v != 0]
        problem.setObjective(pulp.LpAffineExpression(terms))
        if terms and math.isfinite(question.cutoff) and not is_highs(self._name):
            problem.addConstraint(pulp.LpAffineExpression(terms) <= float(question.cutoff), "cutoff")
        for number, chosen in enumerate(question.forbidden):
            together = pulp.LpAffineExpression([(columns[int(c)], 1.0) for c in chosen])
            problem.addConstraint(together <= len(chosen) - 1, f"forbidden{number}")
        if question.allowed is not None and not np.all(question.allowed):
            outside = pulp.LpAffineExpression([(columns[c], 1.0) for c in np.flatnonzero(~question.allowed)])
            problem.addConstraint(outside <= 0, "allowed")
        return problem

    def _call(self, problem: Any, question: Question, relay: ProgressRelay, order: Any) -> bool:
        """Solve the problem; return whether the solver was started before a limit."""
        import pulp

        seconds = relay.watch.remaining
        with warnings.catch_warnings():
            # On every use PuLP warns that its bundled CBC becomes an extra in version 4.
            warnings.simplefilter("ignore", DeprecationWarning)
            settings: dict[str, Any] = {"msg": False, "gapRel": question.gap}
            if self._name in ("PULP_CBC_CMD", "COIN_CMD"):
                # By default CBC accepts only points that are better by 1e-5.
                settings |= {"gapAbs": 1e-9, "threads": 1, "options": ["increment 1e-9"]}
            if is_highs(self._name):
                settings |= {"gapAbs": 0.0, "objective_bound": float(question.cutoff)}
                settings |= {"callbackTuple": (highs.callback(relay, order), None)}
                settings |= {"callbacksToActivate": highs.callback_kinds()}
            if seconds is not None:
                settings["timeLimit"] = max(seconds, 0.01)
            solver = pulp.getSolver(self._name, **settings)
            # PuLP writes the file for an external program in another thread. Only the main thread calls the
            # relay; the writer looks at what the relay was told.
            files = uses_files(solver)
            if files or is_highs(self._name):
                end_passing(problem, solver, relay.watch, (lambda: relay.told) if files else relay)
            try:
                with private_folder(solver) as end:
                    if files:
                        _watched(lambda: problem.solve(solver), relay, end)
                    else:
                        with relay if is_highs(self._name) else nullcontext():
                            problem.solve(solver)
            except NotPassedError:
                return False
            except pulp.PulpSolverError as error:
                if not _ended(relay):
                    raise SolverFailedError(f"{self._name} failed under PuLP: {error}") from error
        return True

    def _answer(self, problem: Any, costs: FloatArray, gap: float, watch: Watch) -> MipAnswer:
        import pulp

        raw = f"{self._name} {pulp.LpStatus[problem.status]}, {pulp.LpSolution[problem.sol_status]}"
        # PuLP reports the same status whether SCIP stops at the gap or at the time limit. If time is left, it
        # was the gap.
        at_gap = gap > 0 and problem.sol_status == pulp.LpSolutionIntegerFeasible and not _late(watch)
        if problem.sol_status == pulp.LpSolutionOptimal or at_gap:
            values = self._values()
            # Values are rounded, because deviations within the integrality tolerance, times large costs,
            # would be visible errors.
            return MipAnswer(Outcome.OPTIMAL, values, float(costs @ np.rint(values)), None, 0, raw)
        # CBC 2.10 reports "infeasible" if its time limit is reached before the first relaxation is solved, so
        # this status is a proof only if time is left.
        if problem.status == pulp.LpStatusInfeasible and not _late(watch):
            return MipAnswer(Outcome.NOTHING, None, math.inf, None, 0, raw)
        if watch.remaining is not None:
            found = problem.sol_status == pulp.LpSolutionIntegerFeasible
            values_or_none = self._values() if found else None
            return MipAnswer(Outcome.STOPPED, values_or_none, -math.inf, Status.TIME_LIMIT, 0, raw)
        raise SolverFailedError(f"{raw}: neither solved nor stopped by a limit; try another solver")

    def _values(self) -> FloatArray:
        return np.array([c.varValue or 0.0 for c in self._columns], dtype=np.float64)


def _watched(work: Callable[[], object], relay: ProgressRelay, end: Tell) -> None:
    """Wait for an external program, and stop it on cancellation. The program itself keeps the time limit."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    told = math.inf
    try:
        while thread.is_alive():
            thread.join(_LOOK)
            relay()
            now = time.monotonic()
            if relay.raised is not None or now > told + _PATIENCE:
                end(True)
            elif relay.stopped is Status.INTERRUPTED and told == math.inf:
                end(False)
                told = now
    finally:
        while thread.is_alive():  # Ctrl-C
            end(True)
            thread.join(_LOOK)
    if failed:
        raise failed[0]


def _late(watch: Watch) -> bool:
    """Return whether the time limit may have stopped a solver."""
    if watch.limits.seconds is None or watch.remaining is None:
        return False
    return watch.remaining < max(1.0, 0.1 * watch.limits.seconds)


def _ended(relay: ProgressRelay) -> bool:
    """Return whether the solver was told to end, so that an error of PuLP is expected."""
    return relay.raised is not None or relay.stopped is Status.INTERRUPTED


def translated(model: MipModel) -> tuple[Any, list[Any]]:
    """Translate a model without objective to PuLP; return the problem, and its variables in column order.

    Every column must occur in some constraint, because PuLP passes no other columns to the solver.
    """
    import pulp

    problem = pulp.LpProblem(model.name, pulp.LpMinimize)
    kinds = (pulp.LpContinuous, pulp.LpInteger)
    bounds = zip(model.low, model.high, model.integer, strict=True)
    columns = [
        problem.add_variable(f"c{number:07d}", low, high, kinds[integer])
        for number, (low, high, integer) in enumerate(bounds)
    ]
    for number, row in enumerate(model.rows):
        terms = [
            (columns[c], v) for c, v in zip(row.columns.tolist(), row.coefficients.tolist(), strict=True)
        ]
        code = pulp.LpConstraintGE if row.high is None else pulp.LpConstraintLE
        code = pulp.LpConstraintEQ if row.low == row.high else code
        right = row.low if row.high is None else row.high
        line = pulp.LpConstraint(pulp.LpAffineExpression(terms), code, rhs=right)
        problem.addConstraint(line, f"row{number:07d}")
    problem.setObjective(pulp.LpAffineExpression())
    return problem, columns
