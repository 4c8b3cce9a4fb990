"""Measure exact draws from lattices on the Adult task: seconds, accuracy and peak memory.

    python -m privopt.experiments.benchmark_solvers --output FOLDER [--draws N] [--time-limit S]

Writes ``exact-draws.csv`` (a line per draw, appended as the draw finishes: an interrupted run resumes),
``exact-draws.md`` (tables) and ``exact-draws.png`` (share of draws finished against time). ``privopt
compare-oracles`` compares minimisers.

Each combination of law, lattice and epsilon runs in a separate process, one process after another, so that
its peak memory is measured alone; kernels are compiled before the clock starts. The time of the first draw at
an epsilon includes everything that is prepared for that epsilon, the times of later draws do not: the table
has both.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console

from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.pages import filled
from privopt.experiments.workbench.palette import SERIES
from privopt.experiments.workbench.resumable import (
    Kept,
    isolated,
    machine,
    markdown,
    peak_megabytes,
    seconds,
)
from privopt.experiments.workbench.study import Study
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.draw.interface import Law
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.oracles.select import gibbs_oracle
from privopt.problems.datasets.adult import load_adult23
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice

EPSILONS = (0.01, 0.1, 1.0, 5.0)
LAWS = {"exponential": Law.GIBBS, "permute-and-flip": Law.PERMUTE_AND_FLIP}


@dataclass(frozen=True)
class Unit:
    """The work of one process: draws from one law over one lattice at one epsilon.

    Attributes:
        law: a key of ``LAWS``.
        over: the name of the lattice, as ``lattice`` takes it.
        draws: the number of draws.
        limit: the time limit of a draw, in seconds.
        small: a synthetic task of 200 records instead of Adult.
    """

    law: str
    over: str
    epsilon: float
    draws: int
    limit: float
    small: bool = False

    def __str__(self) -> str:
        return f"{self.law} over {self.over}, epsilon {self.epsilon:g}"


@dataclass(frozen=True)
class Draw:
    """One draw: its setting and its cost.

    Attributes:
        by: the name of the oracle.
        draw: the number of the draw, from 0.
        seconds: the time of the draw; for a draw that was stopped, the time until then.
        finished: whether the draw gave a point.
        loss: the loss of the point; NaN without a point.
        build_seconds: the time of preparing the oracle, once per process; compilation excluded.
        peak_megabytes: peak memory of the process so far: interpreter, libraries and data included.
    """

    law: str
    over: str
    by: str
    epsilon: float
    draw: int
    seconds: float
    finished: bool
    loss: float
    build_seconds: float
    peak_megabytes: float


KEY = ("law", "over", "epsilon", "draw")


TERNARY, QUINARY, BALL, WIDE = "{-1,0,1}^d", "[-2,2]^d", "OPDisc's ball", "[-4,4]^d"


def lattice(name: str, d: int) -> IntegerLattice:
    """Return a lattice of the comparison by its name."""
    if name == BALL:
        return OPDisc.default_lattice(d)
    bound = {TERNARY: 1, QUINARY: 2, WIDE: 4}[name]
    return IntegerLattice(-bound, bound, dimension=d)


def units(draws: int, limit: float, *, small: bool) -> list[Unit]:
    """Return all units, those expected to be fast first."""
    both = [(law, over) for law in LAWS for over in (TERNARY, QUINARY, BALL)]
    return [
        Unit(law, over, e, draws, limit, small)
        for law, over in (*both, ("exponential", WIDE))
        for e in EPSILONS
    ]


def data(small: bool) -> tuple[IntArray, IntArray]:
    """Return features and labels."""
    if small:
        return make_cells(200, blocks=(3, 2), numeric=1, seed=0)
    X, y, _ = load_adult23()
    return X, y


def work(unit: Unit) -> Iterator[Draw]:
    """Yield the draws of a unit; to be run in a fresh process."""
    problem, law = _problem(unit), LAWS[unit.law]
    for name in ("elimination", "branch"):
        tiny = gibbs_oracle(name).prepare(_problem(replace(unit, small=True)), law)
        tiny.draw(1.0, NoiseSource(insecure_seed=0))
    began = time.perf_counter()
    oracle = gibbs_oracle("native").prepare(problem, law)
    build = time.perf_counter() - began
    source = NoiseSource(insecure_seed=0)
    for number in range(unit.draws):
        began = time.perf_counter()
        asked = (unit.law, unit.over, oracle.name, unit.epsilon, number)
        try:
            d = oracle.draw(unit.epsilon / 2, source, Limits(seconds=unit.limit))
        except UnfinishedDrawError:
            yield Draw(*asked, time.perf_counter() - began, False, math.nan, build, peak_megabytes())
            return  # a later draw would only repeat the preparation that did not finish
        yield Draw(*asked, d.seconds, True, float(d.loss), build, peak_megabytes())


def _problem(unit: Unit) -> ZeroOneHalfspace:
    X, y = data(unit.small)
    return ZeroOneHalfspace(X, y, lattice(unit.over, X.shape[1]))


# --- Tables and figures of the results ----------------------------------------------------------------


def drawn(draws: pd.DataFrame, records: int) -> pd.DataFrame:
    """Tabulate seconds of the first draw and of later ones, mean accuracy and peak memory, by setting."""
    lines = []
    for (law, over, epsilon), group in draws.groupby(["law", "over", "epsilon"], sort=False):
        first, rest = group[group["draw"] == 0], group[group["draw"] > 0]
        lines.append(
            {
                "law": law,
                "over": over,
                "epsilon": f"{epsilon:g}",
                "by": group["by"].iloc[0],
                "first draw": _drawing(first),
                "next draws": _drawing(rest),
                "accuracy": f"{1 - group['loss'].mean() / records:.4f}" if group["finished"].any() else "",
                "peak MB": f"{group['peak_megabytes'].max():.0f}",
            }
        )
    return pd.DataFrame(lines)


def _drawing(group: pd.DataFrame) -> str:
    """Format seconds of draws as "median (largest)", or "open at S" if the limit stopped a draw after S."""
    if not len(group):
        return ""
    if not group["finished"].all():
        return f"open at {seconds(group.loc[~group['finished'], 'seconds'].max())}"
    largest = f" ({seconds(group['seconds'].max())})" if len(group) > 1 else ""
    return f"{seconds(group['seconds'].median())}{largest}"


def profile(draws: pd.DataFrame) -> Figure:
    """Draw the share of draws finished within a time, one curve per law and lattice."""
    figure = Figure(figsize=(7, 5), layout="constrained")
    axes = figure.subplots()
    last = max(1e-3, float(draws["seconds"].max()))
    for number, (name, group) in enumerate(draws.groupby(["law", "over"], sort=False)):
        times = np.sort(group.loc[group["finished"], "seconds"].to_numpy(dtype=float))
        # Unfinished draws count in the total: their time is infinite.
        share = np.arange(1, len(times) + 1) / len(group)
        x, y = [*np.maximum(times, 1e-3), last], [*share, share[-1] if len(share) else 0.0]
        style: dict[str, Any] = {
            "ls": ("-", "--", ":", "-.")[number % 4],
            "color": SERIES[number % len(SERIES)],
        }
        axes.step(x, y, where="post", label=", ".join(map(str, name)), **style)
    axes.set(title="exact draws, first ones included", xlabel="seconds per draw", ylabel="share drawn")
    axes.set(xscale="log", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    return figure


def page(draws: pd.DataFrame, *, small: bool) -> str:
    """Write the page from the finished draws."""
    X, _ = data(small)
    places = {
        "command": f"python -m privopt.experiments.benchmark_solvers{' --try-out' if small else ''}",
        "task": f"{'a small synthetic task' if small else 'Adult'}, n = {len(X):,}, d = {X.shape[1]}",
        "machine": machine(),
        "draws": markdown(drawn(draws, len(X))),
    }
    return filled("exact-draws", places)


def complete(kept: Kept, unit: Unit) -> bool:
    """Return whether a unit has all its draws: as many as wanted, or fewer and an unfinished one last."""
    lines = kept.matching(law=unit.law, over=unit.over, epsilon=unit.epsilon)
    return len(lines) >= unit.draws or any(not line["finished"] for line in lines)


def study(*, small: bool) -> Study[Unit]:
    """Return the study.

    A resumed unit repeats the draws that it finished before: later draws depend on them. Their lines are kept
    as they were.
    """
    return Study(
        "exact-draws",
        Draw,
        KEY,
        compute=lambda unit: isolated(work, unit),
        is_finished=complete,
        page=partial(page, small=small),
        figures={".png": profile},
    )


def main(
    output: Annotated[Path | None, typer.Option(help="Output folder for page, picture and results.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Number of draws per law and epsilon.")] = 5,
    time_limit: Annotated[float, typer.Option(min=0.001, help="Time limit per draw, in seconds.")] = 300.0,
    try_out: Annotated[bool, typer.Option("--try-out", help="Use a small synthetic task.")] = False,
) -> None:
    """Time the exact draws."""
    console = Console(soft_wrap=True, emoji=False)
    plan = units(draws, time_limit, small=try_out)
    with tempfile.TemporaryDirectory() as scratch:
        folder = output or Path(scratch)
        study(small=try_out).run(folder, plan, console)
        if (folder / "exact-draws.md").exists():
            console.print((folder / "exact-draws.md").read_text(), highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)
