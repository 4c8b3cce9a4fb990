"""Time limits, progress callbacks and cancellation of solvers, and size limits of enumeration."""

from __future__ import annotations

import time
from abc import ABC
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from threading import Thread
from typing import ClassVar, TypeVar

from privopt.oracles.certificate import Status
from privopt.oracles.errors import UnfinishedBuildError
from privopt.oracles.facts import ProblemFacts
from privopt.problems.arguments import check_real, check_type
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError

Made = TypeVar("Made")

# Largest number of steps of an exact draw that "auto" accepts by default: some seconds on one core.
MOST_WORK = 2e9
_PATIENCE = 1.0  # seconds that an oracle has to return by itself after a limit is reached
_LOOK = 0.02  # seconds between two checks of a limit while waiting for work that does not check the limit


@dataclass(frozen=True)
class Progress:
    """A snapshot of a running solve. No privacy guarantee covers it: it depends on the records and the noise.

    Attributes:
        incumbent, bound: the best value and the proved bound so far, in units of loss; NaN if there is none.
        nodes: the work done so far: nodes, candidates, or steps of an iteration.
        seconds: seconds since the start.
        total: the total work; None if it is unknown.
    """

    incumbent: float
    bound: float
    nodes: int
    seconds: float
    total: int | None = None

    @property
    def gap(self) -> float:
        return self.incumbent - self.bound


@dataclass(frozen=True)
class Limits:
    """Time limit, progress callback and cancellation of one solve.

    Attributes:
        seconds: wall-clock limit of one solve, > 0, or None. An oracle that ignores the limit gets another
            tenth of the limit plus one second. Then its answer is dropped, although its thread goes on.
        on_progress: called at most a few times per second with a ``Progress``. The content and timing of the
            calls depend on the records, and no privacy guarantee covers them: show them only to people who
            may see the records.
        cancelled: called often; if it returns True, the solve stops with a valid bound.
    """

    seconds: float | None = None
    on_progress: Callable[[Progress], None] | None = None
    cancelled: Callable[[], bool] | None = None

    def __post_init__(self) -> None:
        if self.seconds is not None and not check_real(self.seconds, "a time limit in seconds") > 0:
            raise InvalidInputError(f"a time limit must be > 0 seconds, got {self.seconds}")
        for name in ("on_progress", "cancelled"):
            check_type(getattr(self, name), Callable | None, f"{name} must be a function or None")

    def start(self) -> Watch:
        return Watch(self)


def started(limits: Limits | None) -> Watch:
    """Start a clock for the limits; None means that there are none.

    Raises:
        InvalidInputError: the argument is no ``Limits``.
    """
    check_limits(limits)
    return (limits or Limits()).start()


def check_limits(limits: object) -> None:
    """Raise InvalidInputError if the argument is no ``Limits``; called before any budget is spent."""
    if limits is not None:
        check_type(limits, Limits, "limits must be a Limits, such as Limits(seconds=60)")


@dataclass
class Watch:
    """A running clock for ``Limits``. Solvers ask it whether to stop, and report their progress to it."""

    limits: Limits
    began: float = field(default_factory=lambda: time.monotonic())
    _reported: float = -1.0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def remaining(self) -> float | None:
        """Seconds left, never negative; None if there is no time limit."""
        return None if self.limits.seconds is None else max(0.0, self.limits.seconds - self.seconds)

    @property
    def rest(self) -> Limits:
        """The same limits with the time that is left, for the next of several runs."""
        left = self.remaining
        return self.limits if left is None else replace(self.limits, seconds=max(left, 1e-9))

    def stop(self) -> Status | None:
        """Return the reason to stop now, if any."""
        if self.limits.cancelled is not None and self.limits.cancelled():
            return Status.INTERRUPTED
        return Status.TIME_LIMIT if self.remaining == 0.0 else None

    def report(self, incumbent: float, bound: float, nodes: int = 0, total: int | None = None) -> None:
        """Pass a snapshot to ``on_progress``, at most five times a second."""
        now = self.seconds
        if self.limits.on_progress is not None and now - self._reported >= 0.2:
            self._reported = now
            self.limits.on_progress(Progress(incumbent, bound, nodes, now, total))


def within(watch: Watch, build: Callable[[], Made]) -> Made:
    """Return the result of work that does not poll limits, such as building a model or compiling.

    At a limit an error is raised; the work goes on in another thread, and its result is dropped.

    Raises:
        UnfinishedBuildError: a limit was reached.
    """
    if watch.limits.seconds is None and watch.limits.cancelled is None:
        return build()
    work = awaited(build, lambda: watch.stop() is not None)
    if not work.done():
        reason = watch.stop() or Status.INTERRUPTED
        raise UnfinishedBuildError(
            f"stopped by {reason.name} after {watch.seconds:.1f} s, before the problem was built. To do: "
            f"{reason.value}; code that was compiled on this machine is not compiled again"
        )
    return work.result()


def unless_deaf(watch: Watch, work: Callable[[], Made], otherwise: Callable[[Status], Made]) -> Made:
    """Return the result of an oracle's work, or ``otherwise(reason)`` if the work does not stop at a limit.

    After the limit, the work has another tenth of the limit plus one second to return. If it does not return
    by then, it goes on in another thread, and its result is dropped.
    """
    if watch.limits.seconds is None and watch.limits.cancelled is None:
        return work()
    patience, reached = _PATIENCE + 0.1 * (watch.limits.seconds or 0.0), list[tuple[float, Status]]()

    def over() -> bool:
        if not reached and (reason := watch.stop()) is not None:
            reached.append((watch.seconds, reason))
        return bool(reached) and watch.seconds > reached[0][0] + patience

    found = awaited(work, over)
    return found.result() if found.done() else otherwise(reached[0][1])


def awaited(work: Callable[[], Made], stopped: Callable[[], bool]) -> Future[Made]:
    """Start work in a thread, and return its future when the work is done or ``stopped()`` is true."""
    future: Future[Made] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again by ``future.result()``
            future.set_exception(error)

    # The thread runs in a copy of the context, because NumPy's error state is part of the context.
    Thread(target=copy_context().run, args=(run,), daemon=True).start()
    while not wait([future], _LOOK).done and not stopped():
        pass
    return future


def too_many_points(lattice: IntegerLattice, rows: int, max_candidates: int, max_work: float) -> list[str]:
    """Return the reasons why a lattice is too large to enumerate; empty if it is small enough.

    Args:
        lattice: the lattice.
        rows: the number of distinct rows of the problem, or an upper bound on it.
        max_candidates: the largest size of the box.
        max_work: the largest product of the size of the box and ``rows``.
    """
    box = min(lattice.box_size, 10**290)  # so that messages can format it as a double
    reasons = []
    if box > max_candidates:
        reasons.append(f"{box:.3g} candidates, more than {max_candidates}")
    if box * rows > max_work:
        # The message does not state the number of pairs, which would reveal the number of distinct rows.
        reasons.append(f"more than {max_work:.3g} candidate-record pairs")
    return reasons


class LatticeOracle(ABC):
    """Base class of minimisers and samplers over lattices, with their refusals before data are read."""

    # Whether the oracle respects the constraints of a ``ConstrainedLattice``, not only its bounds and norm.
    takes_constraints: ClassVar[bool] = False
    # Names of oracles of the same kind that respect constraints, for messages.
    takers_of_constraints: ClassVar[str]

    def planned_refusals(self, facts: ProblemFacts) -> list[str]:
        """List the reasons why the oracle may refuse some problem with these facts.

        A plan fails if the list is not empty. If it is empty, the oracle must take *every* such problem: a
        later refusal would depend on the records.
        """
        return []

    def all_planned_refusals(self, facts: ProblemFacts) -> list[str]:
        """List the planned refusals, and the refusal of constraints if the oracle takes none."""
        return [*self._boxes_alone(facts.lattice), *self.planned_refusals(facts)]

    def _boxes_alone(self, lattice: IntegerLattice) -> list[str]:
        return unconstrained(self, lattice, self.takers_of_constraints)


def unconstrained(oracle: LatticeOracle, lattice: IntegerLattice, capable: str) -> list[str]:
    """Return why an oracle refuses constraints of a lattice; ``capable`` names oracles that take them."""
    if not lattice.constrained or oracle.takes_constraints:
        return []
    return [
        f"it knows no constraints on points. To do: use another oracle ({capable}); if it is your own and "
        "searches only lattice.batches(), set takes_constraints = True in its class"
    ]
