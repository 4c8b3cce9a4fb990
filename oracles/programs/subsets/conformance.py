"""Conformance kit for solvers of best subset programs, built-in or your own.

Instances are small enough to try every subset. Feasibility and values are recomputed. If a solver claims to
be finished, its value must be the minimum; if it claims that no subset is feasible, this must be true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np

from privopt.oracles.conformance import ConformanceReport
from privopt.oracles.programs.conformance import Instance, check_solver
from privopt.oracles.programs.interface import ProgramAnswer
from privopt.oracles.programs.subsets.enumerate import EnumeratedSubsets
from privopt.oracles.programs.subsets.interface import SubsetOracle
from privopt.problems.programs.parsing import parse_constraints
from privopt.problems.programs.subset import SubsetProgram

# Values are equal if they differ by less than this share of the largest reduction of the objective.
_EQUAL = 1e-4

# The constraints of each instance by its name, on columns x0, x1, ...
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


def instances(seed: int) -> Iterator[Instance[SubsetProgram]]:
    """Yield small programs with correlated columns, groups, and every kind of constraint."""
    for (name, program), truth in zip(_programs(seed), _truths(seed), strict=True):
        tolerance = -_EQUAL * program.value(np.ones(len(program.columns), np.int64))
        largest = None if truth.value is None else truth.value + tolerance
        yield Instance(f"{name} (seed {seed})", program, (program.gram, program.cross), truth, largest)


@cache
def _truths(seed: int) -> tuple[ProgramAnswer, ...]:
    """Return the best subsets, computed on other copies of the programs: a wrong solver may change these."""
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
    return check_solver(
        oracle,
        (instance for seed in seeds for instance in instances(seed)),
        "what goes wrong only for more columns, larger subsets or nearly singular matrices",
    )
