"""The row model against the cell model, same solver, same draws, in one run.

    python -m privopt.experiments.benchmark_models [--limit SECONDS] [--draws N] [--json FILE]

Each size is solved by both models for the same perturbations, within the same time limit. Ratios of times are
between solves on this machine in this run; where the row model did not finish they are lower bounds (">").
The cell model's time includes its exact dual bounds, which often leave little or nothing to the solver.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from privopt.oracles.certificate import Certificate
from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.mip.pulp import PulpOracle
from privopt.oracles.task import Task
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import Perturbation

SIZES = (300, 500, 1000, 2000)
_BLOCKS, _NUMERIC = (3, 3, 2), 1
_DIMENSION = sum(_BLOCKS) + _NUMERIC


@dataclass(frozen=True)
class Row:
    """One size and task: medians over draws, seconds and final gaps of both models.

    Attributes:
        unfinished_rows, unfinished_cells: draws that hit the time limit.
        ratio: median over draws of row seconds / cell seconds.
    """

    task: str
    n: int
    draws: int
    row_seconds: float
    cell_seconds: float
    row_gap: float
    cell_gap: float
    unfinished_rows: int
    unfinished_cells: int
    ratio: float


def problem_of_size(n: int, task: Task) -> ZeroOneHalfspace:
    """n synthetic records with three categorical columns and a number: few enough for rows to finish some."""
    X, y = make_cells(n, blocks=_BLOCKS, numeric=_NUMERIC, seed=n)
    if task is Task.LINEAR:
        return ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=_DIMENSION))
    radius = math.sqrt(_DIMENSION)
    return ZeroOneHalfspace(X, y, IntegerLattice(-2, 2, dimension=_DIMENSION, radius=radius))


def draw(lattice: IntegerLattice, task: Task, n: int, seed: int) -> Perturbation:
    """Noise of a tenth of the largest loss: enough to move the optimum, not enough to decide it."""
    rng = np.random.default_rng(seed)
    if task is Task.LINEAR:
        return Perturbation.linear(lattice, rng.normal(0, n / 100, _DIMENSION))
    return Perturbation.normalized(lattice, rng.normal(0, n / 10, _DIMENSION + 1))


def compare(n: int, task: Task, *, draws: int, limit: float) -> Row:
    """Solve ``draws`` perturbations with both models.

    Raises:
        SolverFailedError: both claim to have finished and disagree.
    """
    problem = problem_of_size(n, task)
    results: dict[Literal["rows", "cells"], list[Certificate]] = {"rows": [], "cells": []}
    for model, found in results.items():
        prepared = PulpOracle("HiGHS", model).prepare(problem, task)
        for seed in range(draws):
            answer = prepared.minimize(draw(problem.lattice, task, n, seed), Limits(seconds=limit))
            found.append(answer.certificate)
    rows, cells = results["rows"], results["cells"]
    for a, b in zip(rows, cells, strict=True):
        if a.gap == b.gap == 0 and abs(a.value - b.value) > 1e-5:
            raise SolverFailedError(f"n = {n}: the models finished at {a.value} and {b.value}")
    return Row(
        task.name.lower(),
        n,
        draws,
        statistics.median(c.seconds for c in rows),
        statistics.median(c.seconds for c in cells),
        statistics.median(c.gap for c in rows),
        statistics.median(c.gap for c in cells),
        sum(c.gap > 0 for c in rows),
        sum(c.gap > 0 for c in cells),
        statistics.median(a.seconds / b.seconds for a, b in zip(rows, cells, strict=True)),
    )


def table(rows: list[Row]) -> Iterator[str]:
    """Lines to print."""
    yield "task           n    rows: s    open       gap   cells: s    open    gap   rows / cells"
    for r in rows:
        bound = ">" if r.unfinished_rows else " "
        yield (
            f"{r.task:10} {r.n:5} {r.row_seconds:10.3f} {r.unfinished_rows:5}/{r.draws} {r.row_gap:9.1f} "
            f"{r.cell_seconds:10.3f} {r.unfinished_cells:5}/{r.draws} {r.cell_gap:6.1f}   "
            f"{bound}{r.ratio:9.1f}"
        )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds per solve (default 10)")
    parser.add_argument("--draws", type=int, default=3, help="perturbations per size (default 3)")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="numbers of records")
    parser.add_argument("--json", type=Path, help="also write the table here")
    options = parser.parse_args(arguments)
    # The first solve of a process compiles and loads libraries: not part of the comparison.
    compare(30, Task.NORMALIZED, draws=1, limit=5.0)
    rows = [
        compare(n, task, draws=options.draws, limit=options.limit) for task in Task for n in options.sizes
    ]
    print("\n".join(table(rows)))
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(r) for r in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
