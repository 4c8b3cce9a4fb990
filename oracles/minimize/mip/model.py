"""Mixed-integer models in no solver's language, and what a solver that was handed one has to answer.

A model is a fixed set of columns and constraints, all in whole numbers; what changes from solve to solve is
the cost of the columns, which of them are allowed, which points are forbidden, and a cutoff. Models are
written once, by ``row_model`` and ``cell_model``; whoever translates one to a solver's language offers a
``Session``.
"""

from __future__ import annotations

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
from privopt.oracles.limits import Watch
from privopt.problems.discrete.lattice import FloatArray, IntArray

# Objectives that are this close are the same number to a solver in floating point.
SLACK = 1e-9


class Outcome(Enum):
    """What a MIP solver has shown."""

    OPTIMAL = "the best point below the cutoff was found"
    NOTHING = "no point below the cutoff"
    STOPPED = "a limit came first"


@dataclass(frozen=True)
class MipAnswer:
    """What a MIP solver says, in units of loss and with its own tolerances.

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


class Row(NamedTuple):
    """low <= sum coefficient * column <= high; None where there is no such side."""

    columns: NDArray[np.int64]
    coefficients: IntArray
    low: int | None
    high: int | None


@dataclass
class MipModel:
    """Columns and constraints, in whole numbers, under construction.

    Columns are numbered in the order of ``add``; that number is what constraints, costs and answers use. Some
    point of least cost is whole in *all* columns, whatever the costs: a column that need not be declared
    integer is one that the others decide. So a solver that knows integers only may take all for integers.

    Attributes:
        low, high: bounds of the columns.
        integer: whether a column has to be declared integer.
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
        """Add sum coefficient * column (<=, >= or =) right, over different columns."""
        where, what = np.asarray(columns, dtype=np.int64), np.asarray(coefficients, dtype=np.int64)
        used = what != 0
        low, high = {"<=": (None, right), ">=": (right, None), "=": (right, right)}[sense]
        self.rows.append(Row(where[used], what[used], low, high))

    def choose_one(self, columns: NDArray[np.int64]) -> None:
        """Exactly one of the columns is 1."""
        self.constrain(columns, np.ones(len(columns), dtype=np.int64), "=", 1)


class Formulation(NamedTuple):
    """A whole question as one model: its optimum is the least cost of a column point plus a constant."""

    model: MipModel
    costs: FloatArray
    constant: float


class Question(NamedTuple):
    """What changes from solve to solve.

    Attributes:
        costs: of each column, shape (columns,), in units of loss; multiples of 1 / UNIT.
        allowed: columns that may be nonzero, or None for all.
        forbidden: sets of columns that must not all be 1 at once.
        cutoff: only points of at most this cost are of interest.
        start: columns that are 1 at the best point known, or None. It may cost more than the cutoff, which
            then says all that most solvers would learn from it; HiGHS also searches around it.
    """

    costs: FloatArray
    allowed: NDArray[np.bool_] | None = None
    forbidden: Sequence[NDArray[np.int64]] = ()
    cutoff: float = math.inf
    start: NDArray[np.int64] | None = None


class News(NamedTuple):
    """What a solver tells while it runs: a lower bound, nodes, and a better point if it has found one."""

    bound: float
    nodes: int
    values: FloatArray | None = None


class Session(ABC):
    """A model in the hands of a solver.

    ``exact``: costs are taken, and bounds are proved, in integers.
    """

    exact: ClassVar[bool] = False

    def solve(self, question: Question, watch: Watch, tell: Callable[[News], None]) -> MipAnswer:
        """Minimise the costs over the model.

        Args:
            question: costs, and what else is new.
            watch: limits; polled as often as the solver allows.
            tell: called with news while the solver runs, if it can.

        Raises:
            SolverFailedError: the solver stopped for another reason than a limit.
        """
        if (reason := watch.stop()) is not None:
            return MipAnswer(Outcome.STOPPED, None, -math.inf, reason, 0, "not started")
        return self._solve(question, watch, tell)

    @abstractmethod
    def _solve(self, question: Question, watch: Watch, tell: Callable[[News], None]) -> MipAnswer:
        """The same, with time left to begin."""


OpenSession = Callable[[MipModel], Session]


@dataclass
class Relay:
    """Passes a solver's news on and asks whether to go on; made for callbacks, which must not raise.

    Around the call of a solver (``with relay: ...``) Ctrl-C is kept for later as well: Python would raise
    KeyboardInterrupt between any two steps of a callback, and break the solver that called it.

    Attributes:
        stopped: why the solver was told to stop.
        raised: what must be raised once it has.
    """

    watch: Watch
    tell: Callable[[News], None]
    stopped: Status | None = None
    raised: BaseException | None = None
    _kept: bool = False

    def __enter__(self) -> None:
        main = threading.current_thread() is threading.main_thread()
        # Whoever handles Ctrl-C in another way than Python's goes on doing so.
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._keep)
            self._kept = True

    def __exit__(self, *_: object) -> None:
        if self._kept:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            self._kept = False

    def _keep(self, *_: object) -> None:
        self.raised = self.raised or KeyboardInterrupt()

    def __call__(self, news: Callable[[], News] | None = None) -> bool:
        """Whether the solver has to stop."""
        try:
            if news is not None and self.raised is None:
                self.tell(news())
            self.stopped = self.stopped or self.watch.stop()
        except BaseException as error:
            self.raised = self.raised or error
        return self.stopped is not None or self.raised is not None

    def finish(self) -> Status | None:
        """Why the solver was told to stop, if it was; raises what was raised meanwhile."""
        if self.raised is not None:
            raise self.raised
        return self.stopped


def sparse_rows(model: MipModel) -> tuple[NDArray[np.int32], NDArray[np.int32], FloatArray]:
    """Where each row begins, (rows + 1,), and the columns and coefficients of all rows in turn."""
    lengths = [len(row.columns) for row in model.rows]
    start = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32)
    empty: list[Any] = [np.empty(0)]
    index = np.concatenate([*(row.columns for row in model.rows), *empty]).astype(np.int32)
    value = np.concatenate([*(row.coefficients for row in model.rows), *empty]).astype(np.float64)
    return start, index, value
