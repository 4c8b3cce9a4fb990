"""Conformance kit for solvers of card programs, built-in or your own; ``check_solver`` takes any program.

Instances are small enough to try every point. Feasibility and values are recomputed. If a solver claims to be
finished, its value must be the minimum up to the relative ``GAP``; if it claims that no card is feasible,
this must be true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, partial
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from privopt.oracles.conformance import ConformanceReport, Finding, RandomStates, Tally, changed
from privopt.oracles.limits import Limits
from privopt.oracles.programs.enumerate import EnumeratedPrograms
from privopt.oracles.programs.interface import (
    GAP,
    AnyProgram,
    ProgramAnswer,
    ProgramOracle,
    ProgramSolver,
)
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.parsing import parse_constraints
from privopt.problems.programs.program import CardProgram

# The constraints of each instance by its name. Columns a and b have levels; c is a number.
_CONSTRAINTS: dict[str, tuple[str, ...]] = {
    "no constraint": (),
    "bounds": ("points(a) in [-1, 0]", "points(c) in [1, 2]"),
    "list": ("points in {-1, 1}",),
    "signs": ("sign(a) = +", "sign(c) = -"),
    "monotone": ("monotone(b) = falling", "monotone(c) = rising"),
    "one column": ("at most 1 columns",),
    "demanded": ("any of b, c", "all of a"),
    "excluded": ("at most 1 of a, b", "at least 2 columns"),
    "implied": ("if a then c", "all of a"),
    "total": ("total in [-1, 2]",),
    "total of some": ("total(a, c) in [0, 1]", "at least 2 of a, b, c"),
    "equal points": ("points(b) in [1, 1]", "any of b, c"),
    "used, not needed": ("points(b) in [1, 1]", "if a then b"),
    "none": ("all of a", "points(a) in [1, 1]"),
    "no room": ("at most 1 columns", "all of a, b"),
}


@dataclass(frozen=True)
class Instance(Generic[AnyProgram]):
    """A small program with its solution.

    Attributes:
        name: the kind of constraints, for the report.
        program: the program.
        arrays: the program's data, which a solver must not change.
        truth: the best of all points.
        largest: the largest value with which a solver may claim to be finished; None if no point is feasible.
    """

    name: str
    program: AnyProgram
    arrays: tuple[NDArray[Any], ...]
    truth: ProgramAnswer
    largest: float | None


class _Case(Generic[AnyProgram]):
    def __init__(self, oracle: ProgramSolver[AnyProgram], instance: Instance[AnyProgram]) -> None:
        self.oracle, self.instance = oracle, instance
        self.answer = oracle.solve(instance.program)


def instances(seed: int) -> Iterator[Instance[CardProgram]]:
    """Yield small programs with every kind of constraint, with and without shifts."""
    for (name, program), truth in zip(_programs(seed), _truths(seed), strict=True):
        arrays = program.low, program.high, program.targets, program.costs
        largest = None if truth.value is None else (1 + GAP) * truth.value
        yield Instance(f"{name} (seed {seed})", program, arrays, truth, largest)


@cache
def _truths(seed: int) -> tuple[ProgramAnswer, ...]:
    """Return the best points, computed on other copies of the programs: a wrong solver may change its own."""
    return tuple(EnumeratedPrograms().solve(program) for _, program in _programs(seed))


def _programs(seed: int) -> Iterator[tuple[str, CardProgram]]:
    rng = np.random.default_rng(seed)
    columns = (
        PointColumn("a", 0, 2, others=bool(seed % 2)),
        PointColumn("b", 2, 5, ordered=3),
        PointColumn("c", 5, 6, ordered=1, direction=1 - 2 * (seed % 2), ends=(Fraction(0), Fraction(1))),
    )
    low, high = np.full(6, -1, dtype=np.int64), np.array([1, 1, 1, 1, 1, 2], dtype=np.int64)
    for name, lines in _CONSTRAINTS.items():
        program = CardProgram.of(
            columns,
            low,
            high,
            parse_constraints(lines),
            rng.uniform(0.2, 1, 6),
            shifted=bool(rng.integers(2)),
        )
        yield name, program.near(2 * rng.normal(size=6))


def check_program_oracle(oracle: ProgramOracle, *, seeds: Iterable[int] = (0, 1)) -> ConformanceReport:
    """Put a solver of card programs through every check.

    Raises:
        ConformanceError: a check failed, or nothing was checked.
    """
    return check_solver(
        oracle,
        (instance for seed in seeds for instance in instances(seed)),
        "faults that show only with more columns, wider bounds or other constraints; a release drops every "
        "card that violates a constraint",
    )


def check_solver(
    oracle: ProgramSolver[AnyProgram], chosen: Iterable[Instance[AnyProgram]], unchecked: str
) -> ConformanceReport:
    """Put a solver of any kind of program through every check.

    Args:
        oracle: the solver.
        chosen: the instances.
        unchecked: faults that the checks cannot detect, for the report.

    Raises:
        ConformanceError: a check failed, or nothing was checked.
    """
    tally = Tally()
    for instance in chosen:
        for case in tally.built(instance.name, partial(_Case, oracle, instance)):
            tally.check_all(instance.name, (_check_answer, _check_again, _check_limit), case)
    return tally.verdict(oracle.name, (unchecked,))


def _check_answer(case: _Case[Any]) -> Iterator[Finding]:
    yield from _faults(case, case.answer)
    if not case.answer.finished:
        yield "", "it stopped before it was done, without a limit"


def _check_again(case: _Case[Any]) -> Iterator[Finding]:
    """Check the answer of a second solve, which must change neither the program nor global random states."""
    arrays = list(case.instance.arrays)
    before, states = [a.copy() for a in arrays], RandomStates()
    yield from _faults(case, case.oracle.solve(case.instance.program))
    if changed(arrays, before):
        yield "", "it changed the program"
    yield from (("", fault) for fault in states.touched())


def _check_limit(case: _Case[Any]) -> Iterator[Finding]:
    """Check that a solve that is cancelled at once makes no false claim."""
    answer = case.oracle.solve(case.instance.program, Limits(cancelled=lambda: True))
    yield from (("cancelled", fault) for _, fault in _faults(case, answer))


def _faults(case: _Case[Any], answer: ProgramAnswer) -> Iterator[Finding]:
    truth, largest, solution = case.instance.truth, case.instance.largest, case.oracle.solution
    if answer.infeasible and not truth.infeasible:
        yield "", f"it says that no {solution} is feasible, but there is one"
    if answer.finished and answer.value is not None and largest is not None and answer.value > largest:
        yield (
            "",
            f"it claims to be done with the value {answer.value:.12g}, but a {solution} has "
            f"{truth.value:.12g}",
        )
