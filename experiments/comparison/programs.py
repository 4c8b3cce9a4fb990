"""Race of solvers for the searches that follow a release: cards under constraints, best subsets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from rich.console import Console

from privopt.experiments.workbench.pages import markdown_table
from privopt.experiments.workbench.resumable import Kept
from privopt.experiments.workbench.study import Study
from privopt.oracles.errors import MissingSolverError, OracleError, UnknownOracleError
from privopt.oracles.limits import Limits
from privopt.oracles.programs.interface import GAP
from privopt.oracles.select import program_oracle, program_oracles, subset_oracle, subset_oracles
from privopt.problems.datasets.synthetic import SparseDesign
from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.parsing import parse_constraints
from privopt.problems.programs.program import CardProgram
from privopt.problems.programs.subset import SubsetProgram

_CONSTRAINTS = (
    "at most 8 columns",
    "any of c1, c2",
    "if c0 then c5",
    "at most 2 of c3, c4, c6",
    "monotone(c7) = rising",
)
_CARDS = ((8, 4), (12, 5), (20, 5))  # (columns, levels)
_SUBSETS = ((30, 5), (60, 5), (100, 5))  # (columns, chosen)


class Entry(NamedTuple):
    """A solver and an instance: its workload, size and seed; the limit is in seconds."""

    workload: str
    size: tuple[int, int]
    seed: int
    oracle: str
    limit: float


@dataclass(frozen=True)
class Solve:
    """One solve: value of the answer, or NaN; whether the solver claims to be finished; processor seconds.

    Seconds are spent by this process and by its child processes that have ended.
    """

    workload: str
    columns: int
    each: int
    seed: int
    oracle: str
    value: float
    finished: bool
    seconds: float
    said: str


def card_program(columns: int, levels: int, seed: int) -> CardProgram:
    """Return the program of the scorecard nearest to random weights, under constraints of several kinds."""
    rng, d = np.random.default_rng(seed), columns * levels
    parts = tuple(PointColumn(f"c{k}", k * levels, (k + 1) * levels, ordered=levels) for k in range(columns))
    costs = np.sqrt(rng.uniform(0.05, 0.25, d))
    bounds = np.full(d, 5, dtype=np.int64)
    made = CardProgram.of(parts, -bounds, bounds, parse_constraints(_CONSTRAINTS), costs, shifted=True)
    return made.near(2 * rng.normal(size=d))


def subset_program(columns: int, chosen: int, seed: int) -> SubsetProgram:
    """Return the program of the best subset for ridge regression, on records with correlated columns."""
    X, y = SparseDesign(columns, chosen, correlation=0.6).table(2000, np.random.default_rng(seed))
    gram = X.T @ X / len(X) + 0.1 * np.eye(columns)
    return SubsetProgram.of(gram, X.T @ y / len(X), chosen)


# A function (columns, each, seed) -> instance, its sizes, a function name -> solver, and all solvers.
_Workload = tuple[
    Callable[[int, int, int], Any],
    Sequence[tuple[int, int]],
    Callable[[str], Any],
    Callable[[], Mapping[str, Any]],
]
WORKLOADS: Mapping[str, _Workload] = {
    "cards": (card_program, _CARDS, program_oracle, program_oracles),
    "subsets": (subset_program, _SUBSETS, subset_oracle, subset_oracles),
}


def solve(entry: Entry) -> list[Solve]:
    """Solve an instance once; a solver that fails or refuses has no value."""
    instance, _, named, _ = WORKLOADS[entry.workload]
    program = instance(*entry.size, entry.seed)
    began, value, finished, said = _clock(), float("nan"), False, ""
    try:
        answer = named(entry.oracle).solve(program, Limits(seconds=entry.limit))
        value = value if answer.value is None else float(answer.value)
        finished, said = answer.finished, answer.raw_status
    except OracleError as error:
        said = str(error)
    return [Solve(*entry[:1], *entry.size, entry.seed, entry.oracle, value, finished, _clock() - began, said)]


def _clock() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def page(solves: pd.DataFrame) -> str:
    """Return a table: for each size and solver, how often it finished and was best, and median seconds."""
    best = solves.groupby(["workload", "columns", "each", "seed"])["value"].transform("min")
    share = GAP if set(solves["workload"]) == {"cards"} else 1e-4
    near = solves.assign(best=solves["value"] - best <= share * best.abs())
    rows = []
    for _, own in near.groupby(["workload", "columns", "each", "oracle"]):
        first = own.iloc[0]
        row = {"workload": first["workload"], "size": f"{first['columns']} x {first['each']}"}
        row |= {"solver": first["oracle"], "done": f"{own['finished'].sum()} of {len(own)}"}
        row |= {"nearest": f"{own['best'].sum()} of {len(own)}", "seconds": f"{own['seconds'].median():.2f}"}
        rows.append(row)
    return markdown_table(pd.DataFrame(rows)) + "\n"


def race(
    output: Path, workload: str, oracles: Sequence[str], draws: int, limit: float, console: Console
) -> pd.DataFrame:
    """Solve every instance of a workload with every solver; write ``programs.csv`` and ``programs.md``."""
    _, sizes, named, _ = WORKLOADS[workload]
    names = list(oracles) or list(installed(workload))
    for name in names:
        named(name)  # an unknown name is an error before anything runs
    cells = [
        Entry(workload, size, seed, name, limit) for size in sizes for seed in range(draws) for name in names
    ]
    return STUDY.run(output, cells, console)


def contradictions(solves: pd.DataFrame) -> pd.DataFrame:
    """Return solves that claim to be finished, although another value is lower by more than the gap."""
    best = solves.groupby(["workload", "columns", "each", "seed"])["value"].transform("min")
    return solves[solves["finished"] & (solves["value"] - best > GAP * best.abs())]


def installed(workload: str) -> Iterator[str]:
    """Yield the names of the installed solvers of a workload, without ``auto`` and ``enumerate``."""
    _, _, named, known = WORKLOADS[workload]
    for name in known():
        try:
            named(name)
        except (MissingSolverError, UnknownOracleError):
            continue
        if name not in ("auto", "enumerate"):
            yield name


def _finished(kept: Kept, entry: Entry) -> bool:
    columns, each = entry.size
    mine = {"workload": entry.workload, "columns": columns, "each": each, "seed": entry.seed}
    return bool(kept.matching(**mine, oracle=entry.oracle))


STUDY = Study[Entry](
    name="programs",
    line=Solve,
    key=("workload", "columns", "each", "seed", "oracle"),
    compute=solve,
    is_finished=_finished,
    page=page,
)
