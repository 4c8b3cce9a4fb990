"""How far the native solver and the exact draws go: dimension, cells and lattice against seconds.

    python -m privopt.experiments.scaling [--time-limit S] [--json FILE]

More columns of Adult make more cells. Cost follows cells times levels, not records: an open row is one that
the limit stopped, with the gap that was left.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from privopt.mechanisms.classifier import write_atomically
from privopt.mechanisms.noise import NoiseSource
from privopt.mechanisms.opdisc import OPDisc
from privopt.oracles.backends.native import NativeOracle
from privopt.oracles.cells import CellStructure
from privopt.oracles.errors import UnfinishedDrawError, UnsupportedProblemError
from privopt.oracles.interface import Limits, Task
from privopt.oracles.select import gibbs_oracle
from privopt.problems.adult import ADULT_TARGET, adult_labels, adult_schema, load_adult
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.lattice import IntegerLattice
from privopt.problems.objective import Perturbation
from privopt.problems.schema import Schema

COLUMNS = ("sex", "race", "relationship", "marital-status", "workclass", "occupation", "education")
NUMERIC = ("age", "hours-per-week")


@dataclass(frozen=True)
class Line:
    """One question at one size. ``gap`` is what was left open, in errors; NaN for an unfinished draw."""

    dimension: int
    cells: int
    question: str
    epsilon: float
    seconds: float
    finished: bool
    gap: float


def sizes() -> list[ZeroOneHalfspace]:
    """The whole Adult training file with more and more categorical columns, over {-1, 0, 1}^d."""
    frame = load_adult("train")
    y = adult_labels(frame)
    declared = {c.name: c for c in adult_schema().columns}
    problems = []
    for k in range(2, len(COLUMNS) + 1):
        schema = Schema([declared[name] for name in (*NUMERIC, *COLUMNS[:k])])
        X = schema.encode(frame.drop(columns=[ADULT_TARGET])).X
        problems.append(ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=X.shape[1])))
    return problems


def minimise(problem: ZeroOneHalfspace, epsilon: float, limit: float) -> Line:
    """One OPDisc draw over OPDisc's own lattice; epsilon = inf is no noise."""
    d, n = problem.lattice.dimension, problem.n_records
    lattice = OPDisc.default_lattice(d)
    wide = ZeroOneHalfspace(problem.X, problem.y, lattice)
    noise = Perturbation.zero(lattice)
    if np.isfinite(epsilon):
        plan = OPDisc.plan(ZeroOneHalfspace, lattice, epsilon=epsilon, delta=1.0 / n**2)
        noise = Perturbation.normalized(lattice, NoiseSource(insecure_seed=0).gaussian(plan.sigma, d + 1))
    oracle = NativeOracle().prepare(wide, Task.NORMALIZED)
    c = oracle.minimize(noise, Limits(seconds=limit)).certificate
    return Line(d, CellStructure.of(wide).n_cells, "opdisc", epsilon, c.seconds, c.gap == 0, c.gap)


def draw(problem: ZeroOneHalfspace, epsilon: float, limit: float) -> Line:
    """One exact draw of the exponential mechanism over {-1, 0, 1}^d."""
    size = problem.lattice.dimension, CellStructure.of(problem).n_cells
    oracle = gibbs_oracle("auto").prepare(problem)
    try:
        d = oracle.draw(epsilon / 2, NoiseSource(insecure_seed=0), Limits(seconds=limit))
    except UnfinishedDrawError:
        return Line(*size, "exponential", epsilon, limit, False, float("nan"))
    return Line(*size, "exponential", epsilon, d.seconds, True, 0.0)


def main(
    time_limit: Annotated[float, typer.Option(help="Seconds per question.")] = 30.0,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all rows here.")] = None,
) -> None:
    """Print one line per size and question as it is answered."""
    lines = []
    for problem in sizes():
        for question, epsilon in ((minimise, 1.0), (minimise, 5.0), (minimise, np.inf), (draw, 1.0)):
            try:
                line = question(problem, epsilon, time_limit)
            except UnsupportedProblemError as error:
                typer.echo(f"d = {problem.lattice.dimension}: {error}")
                continue
            lines.append(line)
            typer.echo(line)
    typer.echo(
        pd.DataFrame([asdict(line) for line in lines]).to_string(index=False, float_format="{:.3g}".format)
    )
    if json_file is not None:
        write_atomically(json_file, json.dumps([asdict(line) for line in lines], indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
