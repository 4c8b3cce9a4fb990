"""Makes PuLP stop at a limit while it passes a problem to a solver, which may take seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from privopt.oracles.limits import Watch

Item = TypeVar("Item")
Result = TypeVar("Result")

_EVERY = 64  # columns or rows between two checks of the limit


class NotPassedError(Exception):
    """A limit was reached before the solver had the whole problem; the solver was not started."""


def end_passing(problem: Any, solver: Any, watch: Watch, stopped: Callable[[], bool]) -> None:
    """Make PuLP stop at a limit while it passes the problem to the solver, which gets the time left then.

    Problem and solver are changed, so that ``problem.solve`` raises NotPassedError if a limit is reached
    before the solver has the problem.

    Args:
        problem: a problem of PuLP that is not used elsewhere.
        solver: a solver of PuLP: its HiGHS, or an external program, which reads the problem from a file.
        watch: the clock with the time limit.
        stopped: returns whether to stop before the time is over.
    """
    import pulp

    look = _Look(lambda: stopped() or watch.remaining == 0.0)
    problem._variables = _Columns(problem._variables, look)
    problem._constraints = _Rows(problem._constraints, look)
    if hasattr(solver, "buildSolverModel"):
        solver.buildSolverModel = look.during(solver.buildSolverModel, lambda: _ready(problem, solver, watch))
        unread = (pulp.LpStatusNotSolved, pulp.LpSolutionNoSolutionFound)
        solver.findSolutionValues = lambda problem: unread  # we read the answer from HiGHS itself
        solver.mip = False  # so that PuLP declares no integers, which takes it quadratic time
    for name in ("writeMPS", "writeLP"):
        setattr(problem, name, look.during(getattr(problem, name), lambda: _limit_program(solver, watch)))


def _ready(problem: Any, solver: Any, watch: Watch) -> None:
    """Declare the integer columns of a HiGHS model, and set its time limit."""
    import pulp
    from highspy import HighsVarType

    kinds = (HighsVarType.kContinuous, HighsVarType.kInteger)
    found = [int(kinds[column.cat == pulp.LpInteger]) for column in problem._variables]
    everything = np.arange(len(found), dtype=np.int32)
    problem.solverModel.changeColsIntegrality(len(found), everything, np.array(found, dtype=np.uint8))
    if watch.remaining is not None:
        problem.solverModel.setOptionValue("time_limit", watch.remaining)


def _limit_program(solver: Any, watch: Watch) -> None:
    if watch.remaining is not None:
        solver.timeLimit = max(watch.remaining, 0.01)


class _Look:
    """Checks a limit while PuLP passes a problem to a solver, and at no other time."""

    def __init__(self, stopped: Callable[[], bool]) -> None:
        self.stopped, self.passing = stopped, False

    def along(self, items: Iterable[Item]) -> Iterator[Item]:
        for number, item in enumerate(items):
            if self.passing and number % _EVERY == 0 and self.stopped():
                raise NotPassedError
            yield item

    def during(self, work: Callable[..., Result], then: Callable[[], None]) -> Callable[..., Result]:
        def run(*args: Any, **options: Any) -> Result:
            self.passing = True
            try:
                result = work(*args, **options)
            finally:
                self.passing = False
            if self.stopped():
                raise NotPassedError
            then()
            return result

        return run


class _Columns(list[Any]):
    """The columns of a problem. PuLP iterates over them to pass the problem, and so checks the limit."""

    def __init__(self, columns: Iterable[Any], look: _Look) -> None:
        super().__init__(columns)
        self._look = look

    def __iter__(self) -> Iterator[Any]:
        return self._look.along(super().__iter__())


class _Rows(dict[str, Any]):
    """The rows of a problem by name; as with columns, iterating over them checks the limit."""

    def __init__(self, rows: dict[str, Any], look: _Look) -> None:
        super().__init__(rows)
        self._look = look

    def items(self) -> Any:
        return self._look.along(super().items())

    def values(self) -> Any:
        return self._look.along(super().values())
