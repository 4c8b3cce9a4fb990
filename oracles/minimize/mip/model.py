"""Solver-independent mixed-integer models, and the interface of a solver session.

A model is a fixed set of columns and constraints with integer coefficients. The data that change between
solves are a ``Question``: costs, allowed columns, forbidden points, a cutoff. ``row_model`` and
``cell_model`` build models; each solver has a ``Session``, which translates a model for it.
"""

from __future__ import annotations

import importlib.util
import math
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.certificate import Status
from privopt.oracles.errors import MissingSolverError
from privopt.oracles.limits import Watch
from privopt.problems.discrete.lattice import FloatArray, IntArray

# For a floating-point solver, objectives that differ by less than this are equal.
SLACK = 1e-9


class Outcome(Enum):
    """The conclusion of a MIP solver."""

    OPTIMAL = "the best point below the cutoff was found"
    NOTHING = "no point below the cutoff"
    STOPPED = "a limit came first"


@dataclass(frozen=True)
class MipAnswer:
    """The answer of a MIP solver, in units of loss, up to the solver's tolerances.

    Attributes:
        outcome: what was proved.
        values: column values of the best point found, or None.
        bound: lower bound on the cost of every allowed point; -inf if the solver reports none.
        reason: why the solver stopped, for ``Outcome.STOPPED``.
        nodes: branch-and-bound nodes.
        raw: the solver's status text.
    """

    outcome: Outcome
    values: FloatArray | None
    bound: float
    reason: Status | None
    nodes: int
    raw: str


class Row(NamedTuple):
    """A constraint low <= sum coefficient * column <= high; a side that is missing is None."""

    columns: NDArray[np.int64]
    coefficients: IntArray
    low: int | None
    high: int | None


@dataclass
class MipModel:
    """A mixed-integer model under construction, with integer bounds and coefficients.

    Columns are numbered in the order of the calls of ``add``; constraints, costs and answers use these
    numbers. For any costs there is an optimal point that is integral in *all* columns: the integer columns
    determine the best values of the other columns, and these values are integers. So a pure integer solver
    may treat every column as integer.

    Attributes:
        low, high: bounds of each column.
        integer: whether each column must be declared integer.
        rows: the constraints.
    """

    name: str
    low: list[int] = field(default_factory=list)
    high: list[int] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of columns."""
        return len(self.low)

    def add(self, count: int, *, integer: bool, high: int = 1, low: int = 0) -> NDArray[np.int64]:
        """Append columns and return their numbers, shape (count,)."""
        start = self.size
        self.low += [low] * count
        self.high += [high] * count
        self.integer += [integer] * count
        return np.arange(start, start + count, dtype=np.int64)

    def constrain(
        self,
        columns: Sequence[int] | NDArray[np.int64],
        coefficients: Sequence[int] | IntArray,
        sense: str,
        right: int,
    ) -> None:
        """Add the constraint sum coefficient * column (<=, >= or =) right; columns must be distinct."""
        where, what = np.asarray(columns, dtype=np.int64), np.asarray(coefficients, dtype=np.int64)
        used = what != 0
        low, high = {"<=": (None, right), ">=": (right, None), "=": (right, right)}[sense]
        self.rows.append(Row(where[used], what[used], low, high))

    def choose_one(self, columns: NDArray[np.int64]) -> None:
        """Require that exactly one of the columns is 1."""
        self.constrain(columns, np.ones(len(columns), dtype=np.int64), "=", 1)


class Formulation(NamedTuple):
    """A self-contained model of one question: minimise ``costs`` plus ``constant`` over ``model``."""

    model: MipModel
    costs: FloatArray
    constant: float


class Question(NamedTuple):
    """The data of one solve.

    Attributes:
        costs: cost of each column, shape (columns,), in units of loss; multiples of 1 / UNIT.
        allowed: columns that may be nonzero, or None for all.
        forbidden: sets of columns; the columns of a set must not all be 1 (no-good cuts).
        cutoff: points that cost more than this are not wanted.
        start: columns that are 1 at the incumbent, or None. HiGHS searches near the incumbent, even if the
            incumbent costs more than the cutoff; other solvers do not use it.
        gap: the relative gap at which a point counts as optimal. A certified minimum needs 0.
    """

    costs: FloatArray
    allowed: NDArray[np.bool_] | None = None
    forbidden: Sequence[NDArray[np.int64]] = ()
    cutoff: float = math.inf
    start: NDArray[np.int64] | None = None
    gap: float = 0.0


class SolverProgress(NamedTuple):
    """Progress of a running solver: lower bound, nodes, and column values if a better point was found."""

    bound: float
    nodes: int
    values: FloatArray | None = None


class Library(NamedTuple):
    """A Python package that a solver needs: its module, its name, and the argument for pip install."""

    module: str
    name: str
    install: str

    def require(self, oracle: str) -> None:
        """Check that the package is installed.

        Raises:
            MissingSolverError: the package is not installed.
        """
        if importlib.util.find_spec(self.module) is None:
            raise MissingSolverError(
                f"oracle {oracle!r} needs {self.name}. To do: pip install {self.install}"
            )


class Session(ABC):
    """A model that is loaded into a solver.

    ``exact`` says whether the solver has integer costs and proves its bounds in integer arithmetic.
    """

    exact: ClassVar[bool] = False

    def solve(
        self, question: Question, watch: Watch, on_progress: Callable[[SolverProgress], None]
    ) -> MipAnswer:
        """Minimise the costs over the model.

        Args:
            question: the data of this solve.
            watch: the limits, which are checked as often as the solver allows.
            on_progress: called while the solver runs, if it supports callbacks.

        Raises:
            SolverFailedError: the solver stopped for a reason other than a limit.
        """
        if (reason := watch.stop()) is not None:
            return MipAnswer(Outcome.STOPPED, None, -math.inf, reason, 0, "not started")
        return self._solve(question, watch, on_progress)

    @abstractmethod
    def _solve(
        self, question: Question, watch: Watch, on_progress: Callable[[SolverProgress], None]
    ) -> MipAnswer:
        """Solve; called only if no limit has been reached yet."""


OpenSession = Callable[[MipModel], Session]


@dataclass
class ProgressRelay:
    """Called from a callback of a solver, to report progress and to find out whether to stop.

    A callback must not raise, so exceptions are deferred. As a context manager around the call of a solver,
    the relay also defers Ctrl-C: otherwise Python would raise KeyboardInterrupt in a callback, and break the
    solver.

    Attributes:
        stopped: why the solver was told to stop, or None.
        raised: an exception that ``finish`` raises after the solver has returned, or None.
    """

    watch: Watch
    on_progress: Callable[[SolverProgress], None]
    stopped: Status | None = None
    raised: BaseException | None = None
    _kept: bool = False

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        # If the program has its own handler, this handler stays.
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._keep)
            self._kept = True

    def __exit__(self, *_: object) -> None:
        if self._kept:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._kept = False

    def _keep(self, *_: object) -> None:
        self.raised = self.raised or KeyboardInterrupt()

    def __call__(self, progress: Callable[[], SolverProgress] | None = None) -> bool:
        """Report progress; return whether the solver must stop."""
        try:
            if progress is not None and self.raised is None:
                self.on_progress(progress())
            self.stopped = self.stopped or self.watch.stop()
        except BaseException as error:
            self.raised = self.raised or error
        return self.told

    @property
    def told(self) -> bool:
        """Whether the solver was told to stop."""
        return self.stopped is not None or self.raised is not None

    def finish(self) -> Status | None:
        """Raise the deferred exception, if any; else return why the solver was told to stop, or None."""
        if self.raised is not None:
            raise self.raised
        return self.stopped


def sparse_rows(model: MipModel) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray]:
    """Return the constraint matrix in CSR form: row starts of shape (rows + 1,), columns, coefficients."""
    lengths = [len(row.columns) for row in model.rows]
    start = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
    empty: list[Any] = [np.empty(0)]
    index = np.concatenate([*(row.columns for row in model.rows), *empty]).astype(np.int32)
    value = np.concatenate([*(row.coefficients for row in model.rows), *empty]).astype(np.float64)
    return start, index, value
