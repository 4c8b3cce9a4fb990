"""Mixed-integer models built once with PuLP and solved for many objectives.

A model is a fixed set of constraints; what changes from solve to solve is the cost of the columns, which of
them are allowed, which points are forbidden, and a cutoff. With HiGHS the solver's own copy of the model is
kept and edited; every other PuLP solver gets the whole model again each time.

PuLP imports every solver library that it finds (highspy among them, which does not get along with some
releases of OR-tools in one process), so it is imported when a model is built, not when this file is.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.certificate import Status
from privopt.oracles.errors import (
    MissingSolverError,
    SolverFailedError,
    UnknownOracleError,
)
from privopt.oracles.limits import Watch
from privopt.oracles.minimize.mip.private import CARELESS, private_folder
from privopt.problems.discrete.lattice import FloatArray

# What PuLP calls the solvers that people call by shorter names.
_PULP_NAMES = {"highs": "HiGHS", "cbc": "PULP_CBC_CMD"}


# Objectives that are this close are the same number to a solver.
_SLACK = 1e-9


class Outcome(Enum):
    """What a MIP solver has shown."""

    OPTIMAL = "the best point below the cutoff was found"
    NOTHING = "no point below the cutoff"
    STOPPED = "a limit came first"


@dataclass(frozen=True)
class MipAnswer:
    """What a MIP solver says, in units of loss and with its floating-point tolerances.

    Attributes:
        outcome: what has been shown.
        values: column values of the best point found, or None.
        bound: lower bound on the cost of every allowed point; -inf if the solver tells none.
        reason: why it stopped, for ``Outcome.STOPPED``.
        nodes: branch-and-bound nodes.
        raw: the solver's own words.
    """

    outcome: Outcome
    values: FloatArray | None
    bound: float
    reason: Status | None
    nodes: int
    raw: str


@dataclass
class MipModel:
    """Columns and constraints under construction, over a ``pulp.LpProblem``.

    Columns are numbered in the order of ``add``; that number is what constraints, costs and answers use.
    Every column needs to be in some constraint: those are the columns that PuLP passes on.
    """

    name: str
    columns: list[Any] = field(default_factory=list)
    rows: list[Any] = field(default_factory=list)
    problem: Any = None

    def __post_init__(self) -> None:
        import pulp

        self.problem = pulp.LpProblem(self.name, pulp.LpMinimize)

    def add(self, count: int, *, integer: bool, high: float = 1.0, low: float = 0.0) -> NDArray[np.int64]:
        """Append columns and return their numbers, shape (count,)."""
        import pulp

        start = len(self.columns)
        kind = pulp.LpInteger if integer else pulp.LpContinuous
        self.columns += [
            self.problem.add_variable(f"c{start + i:07d}", low, high, kind) for i in range(count)
        ]
        return np.arange(start, start + count, dtype=np.int64)

    def constrain(
        self,
        columns: Sequence[int] | NDArray[np.int64],
        coefficients: Sequence[float] | NDArray[Any],
        sense: str,
        right: float,
    ) -> Any:
        """Add sum coefficient * column (<=, >= or =) right."""
        import pulp

        terms = [
            (self.columns[int(c)], float(v)) for c, v in zip(columns, coefficients, strict=True) if v != 0
        ]
        code = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "=": pulp.LpConstraintEQ}[sense]
        row = pulp.LpConstraint(pulp.LpAffineExpression(terms), code, rhs=float(right))
        self.problem.addConstraint(row, f"row{len(self.rows):07d}")
        self.rows.append(row)
        return row

    def choose_one(self, columns: NDArray[np.int64]) -> None:
        """Exactly one of the columns is 1."""
        self.constrain(columns, np.ones(len(columns)), "=", 1)


def display_name(solver: str) -> str:
    """pulp-highs for HiGHS, pulp-cbc for PULP_CBC_CMD, pulp-scip for SCIP_PY, and so on."""
    short = solver.lower().removeprefix("pulp_")
    for interface in ("_cmd", "_py", "_dll"):
        short = short.removesuffix(interface)
    return f"pulp-{short}"


def is_highs(solver: str) -> bool:
    return solver.lower() == "highs"


class Question(NamedTuple):
    """What changes from solve to solve: see ``Session.solve``."""

    costs: FloatArray
    allowed: NDArray[np.bool_] | None
    forbidden: Sequence[NDArray[np.int64]]
    cutoff: float


class Session:
    """A model in the hands of a solver."""

    def solve(
        self,
        costs: FloatArray,
        allowed: NDArray[np.bool_] | None,
        forbidden: Sequence[NDArray[np.int64]],
        cutoff: float,
        watch: Watch,
        progress: Callable[[float, int], None],
    ) -> MipAnswer:
        """Minimise the costs over the model.

        Args:
            costs: cost of each column, shape (columns,), units of loss.
            allowed: columns that may be nonzero, or None for all.
            forbidden: sets of columns that must not all be 1 at once.
            cutoff: only points of at most this cost are of interest.
            watch: limits; polled as often as the solver allows.
            progress: called with (lower bound, nodes) while the solver runs, if it can.

        Raises:
            SolverFailedError: the solver stopped for another reason than a limit.
        """
        if (reason := watch.stop()) is not None:
            return MipAnswer(Outcome.STOPPED, None, -math.inf, reason, 0, "not started")
        return self._solve(Question(costs, allowed, forbidden, cutoff), watch, progress)

    def _solve(self, question: Question, watch: Watch, progress: Callable[[float, int], None]) -> MipAnswer:
        """The same, with time left to begin."""
        raise NotImplementedError


def open_session(model: MipModel, solver: str) -> Session:
    """Hand a finished model to a solver that ``require_solver`` accepts."""
    import pulp

    model.problem.setObjective(pulp.LpAffineExpression())
    return _HighsSession(model) if is_highs(solver) else _PulpSession(model, solver)


def require_solver(solver: str) -> str:
    """PuLP's own name of an installed solver.

    Raises:
        UnknownOracleError: PuLP knows no solver of that name.
        MissingSolverError: it does, but the solver is not installed.
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
            f"privopt does not use PuLP's {name}, which writes the problem, and so what it tells of records "
            f"and noise, where others may read it. To do: use another solver; HiGHS and SCIP need no files"
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


# The Python packages behind the solvers that PuLP does not run as programs.
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
    """Why a library that is installed cannot be loaded, which PuLP hides; empty if that is not so."""
    library = _LIBRARIES.get(name)
    if library is None or importlib.util.find_spec(library) is None:
        return ""
    try:
        importlib.import_module(library)
    except Exception as error:  # whatever a library raises when it is loaded
        others = sorted({"ortools", *_LIBRARIES.values()} & set(sys.modules) - {library})
        beside = f", perhaps because {' and '.join(others)} is loaded already" if others else ""
        return (
            f"PuLP cannot run {name} here: {library} is installed, but loading it failed{beside} "
            f"({type(error).__name__}: {error}). Some solver libraries do not get along in one process. "
            f"To do: use one of them per process, load {library} first, or install another release of either"
        )
    return ""


class _HighsSession(Session):
    """Keeps PuLP's HiGHS model and edits costs, bounds and cuts in place.

    The default relative gap of 1e-4 would stop short of the optimum. The feasibility tolerances stay at their
    defaults: with ``mip_feasibility_tolerance=1e-9`` HiGHS 1.15.1 cut off the optimum of a cell model
    (2645.691 for 2645.542) and called the result optimal. The status is read from HiGHS itself, because PuLP
    reports a time-limited point as optimal.
    """

    def __init__(self, model: MipModel) -> None:
        import pulp

        # No number of threads: HiGHS has one scheduler per process and fails if two callers disagree.
        solver = pulp.HiGHS(msg=False, gapRel=0.0, gapAbs=0.0)
        solver.createAndConfigureSolver(model.problem)
        solver.buildSolverModel(model.problem)
        self._highs = model.problem.solverModel
        self._index = np.array([c.index for c in model.columns], dtype=np.int32)
        self._low = np.array([c.lowBound for c in model.columns], dtype=np.float64)
        self._high = np.array([c.upBound for c in model.columns], dtype=np.float64)
        self._rows = self._highs.getNumRow()

    def _solve(self, question: Question, watch: Watch, progress: Callable[[float, int], None]) -> MipAnswer:
        self._load(question, watch.remaining)
        stopped: list[Status] = []
        raised: list[BaseException] = []

        def callback(kind: Any, message: str, out: Any, into: Any, data: Any) -> None:
            # Exceptions (also KeyboardInterrupt, which Python raises here) must not cross the solver.
            try:
                if math.isfinite(out.mip_dual_bound):
                    progress(float(out.mip_dual_bound), int(out.mip_node_count))
                if (why := watch.stop()) is not None:
                    stopped.append(why)
            except BaseException as error:
                raised.append(error)
            into.user_interrupt = bool(stopped or raised)

        self._run(callback)
        if raised:
            raise raised[0]
        return self._answer(stopped[0] if stopped else None, question.cutoff)

    def _load(self, question: Question, seconds: float | None) -> None:
        highs, (costs, allowed, forbidden, cutoff) = self._highs, question
        highs.clearSolver()  # no trace of the previous solve, nor of its status should the next one fail
        if (surplus := highs.getNumRow() - self._rows) > 0:
            highs.deleteRows(surplus, np.arange(self._rows, self._rows + surplus, dtype=np.int32))
        for columns in forbidden:
            size = len(columns)
            highs.addRow(-math.inf, size - 1.0, size, self._index[columns], np.ones(size))
        high = self._high if allowed is None else np.where(allowed, self._high, self._low)
        highs.changeColsBounds(len(self._index), self._index, self._low, high)
        highs.changeColsCost(len(self._index), self._index, np.ascontiguousarray(costs, dtype=np.float64))
        highs.setOptionValue("objective_bound", float(cutoff))
        # HiGHS counts the time of all runs of this object together.
        highs.setOptionValue("time_limit", math.inf if seconds is None else highs.getRunTime() + seconds)

    def _run(self, callback: Callable[..., None]) -> None:
        from highspy import cb

        kinds = (cb.HighsCallbackType.kCallbackMipInterrupt, cb.HighsCallbackType.kCallbackSimplexInterrupt)
        self._highs.setCallback(callback, None)
        for kind in kinds:
            self._highs.startCallback(kind)
        try:
            self._highs.run()
        finally:
            for kind in kinds:
                self._highs.stopCallback(kind)
            self._highs.setCallback(None, None)

    def _answer(self, stopped: Status | None, cutoff: float) -> MipAnswer:
        from highspy import HighsModelStatus as Model
        from highspy import SolutionStatus

        status, info = self._highs.getModelStatus(), self._highs.getInfo()
        raw = f"HiGHS {self._highs.modelStatusToString(status)}"
        nodes, bound = max(0, int(info.mip_node_count)), float(info.mip_dual_bound)
        values = None
        if info.primal_solution_status == SolutionStatus.kSolutionStatusFeasible:
            values = np.asarray(self._highs.getSolution().col_value, dtype=np.float64)[self._index]
        if status == Model.kOptimal and info.objective_function_value > cutoff + _SLACK:
            # All that could beat the cutoff was pruned; the point that is left was met on the way.
            return MipAnswer(
                Outcome.NOTHING, None, math.inf, None, nodes, raw + " (nothing below the cutoff)"
            )
        if status == Model.kOptimal and values is not None:
            return MipAnswer(Outcome.OPTIMAL, values, bound, None, nodes, raw)
        if status in (Model.kInfeasible, Model.kObjectiveBound):
            return MipAnswer(Outcome.NOTHING, None, math.inf, None, nodes, raw)
        if status == Model.kTimeLimit:
            return MipAnswer(Outcome.STOPPED, values, bound, Status.TIME_LIMIT, nodes, raw)
        if status == Model.kInterrupt:
            reason = stopped or Status.INTERRUPTED
            return MipAnswer(Outcome.STOPPED, values, bound, reason, nodes, raw)
        raise SolverFailedError(f"{raw}: neither solved nor stopped by a limit; try another solver")


class _PulpSession(Session):
    """Any solver that PuLP can run: a fresh process or call per solve.

    PuLP offers no proved bound and no callbacks across solvers. So a solve that is cut short tells no bound,
    and only the time limit reaches a running solver; cancellation is seen between solves.
    """

    def __init__(self, model: MipModel, solver: str) -> None:
        self._model, self._solver = model, solver
        self._name = require_solver(solver)

    def _solve(self, question: Question, watch: Watch, progress: Callable[[float, int], None]) -> MipAnswer:
        import pulp

        costs, allowed, forbidden, cutoff = question
        problem, columns = self._model.problem.copy(), self._model.columns
        terms = [(c, float(v)) for c, v in zip(columns, costs, strict=True) if v != 0]
        problem.setObjective(pulp.LpAffineExpression(terms))
        if terms and math.isfinite(cutoff):
            problem.addConstraint(pulp.LpAffineExpression(terms) <= float(cutoff), "cutoff")
        for number, chosen in enumerate(forbidden):
            together = pulp.LpAffineExpression([(columns[int(c)], 1.0) for c in chosen])
            problem.addConstraint(together <= len(chosen) - 1, f"forbidden{number}")
        if allowed is not None and not np.all(allowed):
            outside = pulp.LpAffineExpression([(columns[c], 1.0) for c in np.flatnonzero(~allowed)])
            problem.addConstraint(outside <= 0, "allowed")
        self._call(problem, watch.remaining)
        return self._answer(problem, costs, watch.remaining)

    def _call(self, problem: Any, seconds: float | None) -> None:
        import pulp

        with warnings.catch_warnings():
            # PuLP says on every use that its bundled CBC moves to an extra in version 4.
            warnings.simplefilter("ignore", DeprecationWarning)
            settings: dict[str, Any] = {"msg": False, "gapRel": 0.0}
            if self._name in ("PULP_CBC_CMD", "COIN_CMD"):
                # By default CBC asks an improvement of 1e-5 of every new point.
                settings |= {"gapAbs": 1e-9, "threads": 1, "options": ["increment 1e-9"]}
            if seconds is not None:
                settings["timeLimit"] = max(seconds, 0.01)
            solver = pulp.getSolver(self._name, **settings)
            try:
                with private_folder(solver):
                    problem.solve(solver)
            except pulp.PulpSolverError as error:
                raise SolverFailedError(f"{self._name} failed under PuLP: {error}") from error

    def _answer(self, problem: Any, costs: FloatArray, remaining: float | None) -> MipAnswer:
        import pulp

        raw = f"{self._name} {pulp.LpStatus[problem.status]}, {pulp.LpSolution[problem.sol_status]}"
        if problem.sol_status == pulp.LpSolutionOptimal:
            values = self._values()
            # Integrality tolerances times large costs would show up as errors of the objective.
            return MipAnswer(Outcome.OPTIMAL, values, float(costs @ np.rint(values)), None, 0, raw)
        if problem.status == pulp.LpStatusInfeasible:
            return MipAnswer(Outcome.NOTHING, None, math.inf, None, 0, raw)
        if remaining is not None:
            found = problem.sol_status == pulp.LpSolutionIntegerFeasible
            values_or_none = self._values() if found else None
            return MipAnswer(Outcome.STOPPED, values_or_none, -math.inf, Status.TIME_LIMIT, 0, raw)
        raise SolverFailedError(f"{raw}: neither solved nor stopped by a limit; try another solver")

    def _values(self) -> FloatArray:
        return np.array([c.varValue or 0.0 for c in self._model.columns], dtype=np.float64)
