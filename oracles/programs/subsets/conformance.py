"""Conformance kit for solvers of best subset programs, built-in or your own.

Instances are small enough to try every subset. Feasibility and values are recomputed; a solver that claims to
be done must have the least value of all subsets, and must be right where it says that there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from privopt.oracles.conformance import ConformanceReport, Finding, RandomStates, Tally, changed
from privopt.oracles.limits import Limits
from privopt.oracles.programs.subsets.enumerate import EnumeratedSubsets
from privopt.oracles.programs.subsets.interface import SubsetAnswer, SubsetOracle
from privopt.problems.programs.parsing import parse_constraints
from privopt.problems.programs.subset import SubsetProgram

# Values that differ by less, in units of the largest reduction of the objective, are equal.
_EQUAL = 1e-4

# One list of constraints for each instance, on columns x0, x1, ... of which some are groups.
_CONSTRAINTS: dict[str, tuple[str, ...]] = {
    "no constraint": (),
    "excluded": ("at most 1 of x0, x1, x2",),
    "demanded": ("any of x3, x4", "all of x5"),
    "implied": ("if x0 then x3", "if x1 then x4"),
    "several": ("at least 2 of x2, x3, x4", "at most 1 of x3, x4"),
    "fewer": ("at most 1 columns",),
    "none": ("all of x0, x1", "at most 1 of x0, x1"),
}
_COLUMNS = {"single": (3, None), "groups": (2, ((0, 2), (2, 3), (3, 6), (6, 7), (7, 8), (8, 10)))}


@dataclass(frozen=True)
class SubsetInstance:
    """A small program, its name, and the best of all its subsets."""

    name: str
    program: SubsetProgram
    truth: SubsetAnswer


class _Case:
    def __init__(self, oracle: SubsetOracle, instance: SubsetInstance) -> None:
        self.oracle, self.program, self.truth = oracle, instance.program, instance.truth
        self.answer: SubsetAnswer = oracle.solve(self.program)
        every = np.ones(len(self.program.columns), np.int64)
        self.tolerance = -_EQUAL * self.program.value(every)


def instances(seed: int) -> Iterator[SubsetInstance]:
    """Return small programs with correlated columns, groups, and every kind of constraint."""
    for (name, program), truth in zip(_programs(seed), _truths(seed), strict=True):
        yield SubsetInstance(f"{name} (seed {seed})", program, truth)


@cache
def _truths(seed: int) -> tuple[SubsetAnswer, ...]:
    """Return the best subsets, from programs of their own: a wrong solver may change those that it sees."""
    return tuple(EnumeratedSubsets().solve(program) for _, program in _programs(seed))


def _programs(seed: int) -> Iterator[tuple[str, SubsetProgram]]:
    rng = np.random.default_rng(seed)
    for kind, (size, spans) in _COLUMNS.items():
        for name, lines in _CONSTRAINTS.items():
            X = rng.normal(size=(40, 10)) + rng.normal(size=(40, 1))
            y = X @ rng.normal(size=10) + rng.normal(size=40)
            gram, constraints = X.T @ X / 40 + 0.05 * np.eye(10), parse_constraints(lines)
            program = SubsetProgram.of(gram, X.T @ y / 40, size, spans=spans, constraints=constraints)
            yield f"{kind}, {name}", program


def check_subset_oracle(oracle: SubsetOracle, *, seeds: Iterable[int] = (0,)) -> ConformanceReport:
    """Put a solver of best subset programs through every check.

    Raises:
        ConformanceError: a check failed, or nothing was checked.
    """
    tally = Tally()
    for instance in (instance for seed in seeds for instance in instances(seed)):
        for case in tally.built(instance.name, partial(_Case, oracle, instance)):
            tally.check_all(instance.name, (_check_answer, _check_again, _check_limit), case)
    return tally.verdict(
        oracle.name,
        ("what goes wrong only for more columns, larger subsets or nearly singular matrices",),
    )


def _check_answer(case: _Case) -> Iterator[Finding]:
    yield from _faults(case, case.answer)
    if not case.answer.finished:
        yield "", "it was not done, without a limit"


def _check_again(case: _Case) -> Iterator[Finding]:
    """Check the same program again, its data and the global random states."""
    arrays = [case.program.gram, case.program.cross]
    before, states = [a.copy() for a in arrays], RandomStates()
    yield from _faults(case, case.oracle.solve(case.program))
    if changed(arrays, before):
        yield "", "it changed the program"
    yield from (("", fault) for fault in states.touched())


def _check_limit(case: _Case) -> Iterator[Finding]:
    """Check that a solve that is cancelled at once claims nothing that is wrong."""
    answer = case.oracle.solve(case.program, Limits(cancelled=lambda: True))
    yield from (("cancelled", fault) for _, fault in _faults(case, answer))


def _faults(case: _Case, answer: SubsetAnswer) -> Iterator[Finding]:
    truth = case.truth
    if answer.infeasible and not truth.infeasible:
        yield "", "it says that no subset is feasible, and there is one"
    if not answer.finished or answer.value is None or truth.value is None:
        return
    if answer.value > truth.value + case.tolerance:
        yield "", f"it is done with the value {answer.value:.6g}, and a subset has {truth.value:.6g}"
