"""Solvers on the same draws of the full Adult task: seconds, ratios, agreement, peak memory, in one run.

    python -m privopt.experiments.benchmark_solvers [--draws N] [--time-limit S] [--json FILE]

Every solver runs in a process of its own, one after the other, on the same seeded noise. One solve before the
clock starts pays for compilation and building. The row model is what one writes down first; on the full task
it is stopped by the limit, so its time, and its ratio, read as "at least".
"""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console

from privopt.mechanisms.classifier import write_atomically
from privopt.mechanisms.noise import NoiseSource
from privopt.mechanisms.registry import MECHANISMS
from privopt.oracles.backends.native import NativeOracle
from privopt.oracles.backends.pulp import PulpOracle
from privopt.oracles.gibbs import Law
from privopt.oracles.interface import DiscreteOracle, Limits, Task
from privopt.oracles.select import gibbs_oracle
from privopt.problems.adult import load_adult23
from privopt.problems.halfspace import ZeroOneHalfspace
from privopt.problems.lattice import IntegerLattice
from privopt.problems.objective import Perturbation

EPSILONS = (0.01, 0.1, 1.0, 5.0)
SOLVERS = ("native", "highs cells", "highs rows")
LATTICES = {
    "{-1,0,1}^23": IntegerLattice(-1, 1, dimension=23),
    "[-2,2]^23": IntegerLattice(-2, 2, dimension=23),
    "OPDisc's": IntegerLattice(-4, 4, dimension=23, radius=23**0.5),
    "[-4,4]^23": IntegerLattice(-4, 4, dimension=23),
}


@dataclass(frozen=True)
class Solve:
    """One solve or draw: what was asked, how long it took, what was proved."""

    question: str
    epsilon: float
    solver: str
    draw: int
    seconds: float
    finished: bool
    value: float
    peak_megabytes: float


def minimise(mechanism: str, solver: str, epsilons: Sequence[float], draws: int, limit: float) -> list[Solve]:
    """All draws of one minimising mechanism through one solver. Runs in a fresh process."""
    X, y, _ = load_adult23()
    kind = MECHANISMS[mechanism]
    problem = ZeroOneHalfspace(X, y, kind.default_lattice(X.shape[1]))
    task = kind.question
    assert isinstance(task, Task)
    oracle = _solver(solver).prepare(problem, task)
    oracle.minimize(_noise(mechanism, problem, epsilons[-1], 10**6), Limits(seconds=min(limit, 30.0)))
    solves = []
    for epsilon in epsilons:
        for draw in range(draws):
            answer = oracle.minimize(
                _noise(mechanism, problem, epsilon, draw), Limits(seconds=limit), break_ties=True
            )
            c = answer.certificate
            proved = c.gap == 0
            solves.append(Solve(mechanism, epsilon, solver, draw, c.seconds, proved, c.value, _peak()))
    return solves


def draw(lattice: str, law: Law, epsilons: Sequence[float], draws: int, limit: float) -> list[Solve]:
    """All draws of one law over one lattice through the automatic oracle. Runs in a fresh process."""
    X, y, _ = load_adult23()
    problem = ZeroOneHalfspace(X, y, LATTICES[lattice])
    oracle = gibbs_oracle("auto").prepare(problem, law)
    source = NoiseSource(insecure_seed=0)
    oracle.draw(0.5, source, Limits())
    question = f"{law.name.lower()} over {lattice}"
    solves = []
    for epsilon in epsilons:
        for number in range(draws):
            d = oracle.draw(epsilon / 2, source, Limits())
            solves.append(Solve(question, epsilon, d.oracle, number, d.seconds, True, float(d.loss), _peak()))
    return solves


def _solver(name: str) -> DiscreteOracle:
    if name == "native":
        return NativeOracle()
    return PulpOracle("HiGHS", model="cells" if name == "highs cells" else "rows")


def _noise(mechanism: str, problem: ZeroOneHalfspace, epsilon: float, seed: int) -> Perturbation:
    """The perturbation that the mechanism's plan asks for, seeded."""
    n, lattice = problem.n_records, problem.lattice
    plan = MECHANISMS[mechanism].plan(ZeroOneHalfspace, lattice, epsilon=epsilon, delta=1.0 / n**2)
    source = NoiseSource(insecure_seed=seed)
    if mechanism == "opdisc":
        return Perturbation.normalized(lattice, source.gaussian(plan.noise["sigma"], lattice.dimension + 1))
    separators = ZeroOneHalfspace.separators(lattice)
    return separators.weighted(source.gaussian(plan.noise["sigma"], separators.size))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(solves: pd.DataFrame) -> pd.DataFrame:
    """Median and largest seconds per question, epsilon and solver, and the ratio to the fastest."""
    groups = solves.groupby(["question", "epsilon", "solver"], sort=False)
    rows = groups.agg(
        draws=("draw", "count"),
        finished=("finished", "sum"),
        median=("seconds", "median"),
        largest=("seconds", "max"),
        peak_megabytes=("peak_megabytes", "max"),
    ).reset_index()
    fastest = rows.groupby(["question", "epsilon"])["median"].transform("min")
    return rows.assign(ratio=rows["median"] / fastest)


def disagreements(solves: pd.DataFrame) -> int:
    """Draws on which two solvers that both claim a proof differ in value. Must be 0."""
    proved = solves[solves["finished"] & solves["solver"].isin(SOLVERS)]
    spread = proved.groupby(["question", "epsilon", "draw"])["value"].nunique()
    return int((spread > 1).sum())


def main(
    draws: Annotated[int, typer.Option(min=1, help="Draws per question and epsilon.")] = 5,
    time_limit: Annotated[float, typer.Option(help="Seconds per solve of the row model.")] = 60.0,
    slow_draws: Annotated[int, typer.Option(min=1, help="Draws through HiGHS.")] = 1,
    json_file: Annotated[Path | None, typer.Option("--json", help="Write all rows here.")] = None,
) -> None:
    """Compare the solvers and time the exact draws."""
    console = Console(soft_wrap=True)
    rows: list[Solve] = []
    jobs: list[tuple[str, object, tuple[object, ...]]] = []
    for mechanism in ("rspm", "opdisc"):
        jobs.append(("native", minimise, (mechanism, "native", EPSILONS, draws, 600.0)))
        jobs.append(("highs cells", minimise, (mechanism, "highs cells", EPSILONS, slow_draws, 300.0)))
        jobs.append(("highs rows", minimise, (mechanism, "highs rows", (1.0,), 1, time_limit)))
    for lattice in ("{-1,0,1}^23", "[-2,2]^23", "OPDisc's"):
        jobs.append((f"draws over {lattice}", draw, (lattice, Law.GIBBS, EPSILONS, draws, 600.0)))
    jobs.append(("permute and flip", draw, ("{-1,0,1}^23", Law.PERMUTE_AND_FLIP, EPSILONS, draws, 600.0)))
    for label, work, words in jobs:
        console.print(f"running {label} ...")
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
            rows += process.submit(work, *words).result()  # type: ignore[arg-type]
    solves = pd.DataFrame([asdict(row) for row in rows])
    console.print(table(solves).to_string(index=False, float_format="{:.3g}".format), highlight=False)
    console.print(f"draws on which two proofs disagree: {disagreements(solves)}")
    if json_file is not None:
        write_atomically(json_file, json.dumps(solves.to_dict("records"), indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
