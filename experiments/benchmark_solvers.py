"""Solvers on the same draws of the full Adult task: seconds, ratios, agreement, peak memory, in one run.

    python -m privopt.experiments.benchmark_solvers --output FOLDER [--draws N] [--time-limit S]

Leaves ``solvers.csv`` (a line per solve, appended as it is finished: an interrupted run goes on from there),
``solvers.md`` (tables) and ``solvers.png`` (share solved against time). Half an hour to two hours on an idle
machine, most of it spent on solvers that the limit stops.

Every question is asked at one epsilon in a process of its own, one after the other, so that the peak memory
is its own; kernels are compiled before the clock starts. The row model is what one writes down first; on the
full task it is stopped by the limit, so its time, and its ratio, read as "at least". The first exact draw at
an epsilon includes everything that is prepared for it, later ones do not: both are shown.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from matplotlib.figure import Figure
from rich.console import Console

from privopt.experiments.comparison.workload import noise_of
from privopt.experiments.workbench.figures import save
from privopt.experiments.workbench.kept import (
    Kept,
    each,
    isolated,
    machine,
    markdown,
    peak_megabytes,
    seconds,
)
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.discrete.registry import MECHANISMS
from privopt.mechanisms.estimators.common import write_atomically
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.draw.interface import Law
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from privopt.oracles.minimize.interface import DiscreteOracle
from privopt.oracles.minimize.mip.highs import HighsOracle
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.select import gibbs_oracle
from privopt.oracles.task import Task
from privopt.problems.datasets.adult import load_adult23
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import Perturbation

EPSILONS = (0.01, 0.1, 1.0, 5.0)
NO_NOISE = math.inf
NATIVE, CELLS, ROWS = "native", "HiGHS, cell model", "HiGHS, row model"
MINIMISED = ("rspm", "opdisc")
LAWS = {"exponential": Law.GIBBS, "permute-and-flip": Law.PERMUTE_AND_FLIP}


@dataclass(frozen=True)
class Unit:
    """What one process does: one question at one epsilon, by one solver.

    Attributes:
        question: a minimising mechanism, or a law to draw from.
        over: name of the lattice, in ``lattices``.
        limit: seconds per solve or draw.
        small: a synthetic task of 200 records instead of Adult.
    """

    question: str
    over: str
    solver: str
    epsilon: float
    draws: int
    limit: float
    small: bool = False

    def __str__(self) -> str:
        return f"{self.question} over {self.over}, epsilon {_epsilon(self.epsilon)}, {self.solver}"


@dataclass(frozen=True)
class Solve:
    """One solve or draw: what was asked, how long it took, what was proved.

    Attributes:
        epsilon: infinite where nothing is added to the loss.
        seconds: of the solve; where it was stopped, until then.
        finished: proved optimal, or drawn.
        value: of the point, noise included; the loss of a draw. NaN without a point.
        gap: value - bound; NaN for draws.
        build_seconds: once per data set, before the first solve; compilation excluded.
        start_megabytes: peak memory of the process before building: interpreter, libraries, data.
        peak_megabytes: peak memory of the process so far, the same included.
    """

    question: str
    over: str
    solver: str
    epsilon: float
    draw: int
    seconds: float
    finished: bool
    value: float
    gap: float
    build_seconds: float
    start_megabytes: float
    peak_megabytes: float


KEY = ("question", "over", "solver", "epsilon", "draw")


TERNARY, QUINARY, BALL, WIDE = "{-1,0,1}^d", "[-2,2]^d", "OPDisc's ball", "[-4,4]^d"


def lattice(name: str, d: int) -> IntegerLattice:
    """The lattices of the comparison, by name."""
    if name == BALL:
        return OPDisc.default_lattice(d)
    bound = {TERNARY: 1, QUINARY: 2, WIDE: 4}[name]
    return IntegerLattice(-bound, bound, dimension=d)


def units(draws: int, slow_draws: int, limit: float, row_limit: float, *, small: bool) -> list[Unit]:
    """The whole run, what is likely to be answered soonest first."""
    plan: list[Unit] = []

    def minimise(solver: str, number: int, most: float, epsilons: Sequence[float]) -> None:
        for question, over in (("rspm", TERNARY), ("opdisc", BALL)):
            plan.extend(Unit(question, over, solver, e, number, most, small) for e in epsilons)

    def draw(question: str, *names: str) -> None:
        plan.extend(Unit(question, over, "draw", e, draws, limit, small) for over in names for e in EPSILONS)

    minimise(NATIVE, draws, limit, (*EPSILONS, NO_NOISE))
    draw("exponential", TERNARY, QUINARY, BALL)
    draw("permute-and-flip", TERNARY, QUINARY, BALL)
    minimise(CELLS, slow_draws, limit, (*EPSILONS, NO_NOISE))
    minimise(ROWS, 1, row_limit, EPSILONS)
    draw("exponential", WIDE)
    return plan


def data(small: bool) -> tuple[IntArray, IntArray]:
    """Features and labels."""
    if small:
        return make_cells(200, blocks=(3, 2), numeric=1, seed=0)
    X, y, _ = load_adult23()
    return X, y


def work(unit: Unit) -> Iterator[Solve]:
    """All solves of a unit, one by one. Meant for a fresh process."""
    yield from _draw(unit) if unit.question in LAWS else _minimise(unit)


def _minimise(unit: Unit) -> Iterator[Solve]:
    problem = _problem(unit)
    task = MECHANISMS[unit.question].question
    assert isinstance(task, Task)
    tiny = _problem(replace(unit, small=True))
    _solver(unit.solver).prepare(tiny, task).minimize(Perturbation.zero(tiny.lattice), Limits(seconds=5.0))
    start, began = peak_megabytes(), time.perf_counter()
    oracle = _solver(unit.solver).prepare(problem, task)
    before = time.perf_counter() - began, start
    for number in range(unit.draws if math.isfinite(unit.epsilon) else 1):
        noise = noise_of(unit.question, problem, unit.epsilon, number)
        c = oracle.minimize(noise, Limits(seconds=unit.limit), break_ties=True).certificate
        yield _solve(unit, number, unit.solver, c.seconds, c.gap == 0, c.value, c.gap, *before)


def _draw(unit: Unit) -> Iterator[Solve]:
    problem, law = _problem(unit), LAWS[unit.question]
    for name in ("elimination", "branch"):
        tiny = gibbs_oracle(name).prepare(_problem(replace(unit, small=True)), law)
        tiny.draw(1.0, NoiseSource(insecure_seed=0))
    start, began = peak_megabytes(), time.perf_counter()
    oracle = gibbs_oracle("native").prepare(problem, law)
    before = time.perf_counter() - began, start
    source = NoiseSource(insecure_seed=0)
    for number in range(unit.draws):
        began = time.perf_counter()
        try:
            d = oracle.draw(unit.epsilon / 2, source, Limits(seconds=unit.limit))
        except UnfinishedDrawError:
            elapsed = time.perf_counter() - began
            yield _solve(unit, number, oracle.name, elapsed, False, math.nan, math.nan, *before)
            return  # later draws would only start again
        yield _solve(unit, number, oracle.name, d.seconds, True, float(d.loss), math.nan, *before)


def _solve(unit: Unit, number: int, solver: str, *rest: Any) -> Solve:
    values = (unit.question, unit.over, solver, unit.epsilon, number, *rest, peak_megabytes())
    return Solve(*values)


def _problem(unit: Unit) -> ZeroOneHalfspace:
    X, y = data(unit.small)
    return ZeroOneHalfspace(X, y, lattice(unit.over, X.shape[1]))


def _solver(name: str) -> DiscreteOracle:
    if name == NATIVE:
        return NativeOracle()
    return HighsOracle("cells" if name == CELLS else "rows")


# --- What is made of the lines ------------------------------------------------------------------------


def minimised(solves: pd.DataFrame) -> pd.DataFrame:
    """Seconds of every minimising solver side by side, and how much longer the cell model takes."""
    chosen = solves[solves["question"].isin(MINIMISED)]
    lines = []
    for (question, epsilon), group in chosen.groupby(["question", "epsilon"], sort=False):
        line: dict[str, object] = {"question": question, "epsilon": _epsilon(float(epsilon))}  # type: ignore[arg-type]
        for solver in (NATIVE, CELLS, ROWS):
            line[solver] = _times(group[group["solver"] == solver])
        line[f"{CELLS} / native"] = _ratio(group)
        lines.append(line)
    return pd.DataFrame(lines)


def _times(group: pd.DataFrame) -> str:
    """ "median (largest)" of what was finished, and what was left open."""
    done, left = group[group["finished"]], group[~group["finished"]]
    parts = []
    if len(done):
        largest = f" ({seconds(done['seconds'].max())})" if len(done) > 1 else ""
        parts.append(f"{seconds(done['seconds'].median())}{largest}")
    if len(left):
        share = f"{len(left)} of {len(group)} " if len(done) else ""
        parts.append(f"{share}open at {seconds(left['seconds'].max())}, gap {left['gap'].max():.4g}")
    return "; ".join(parts)


def _ratio(group: pd.DataFrame) -> str:
    """Median over common draws of seconds by the cell model / seconds by native."""
    wide = group.pivot_table(index="draw", columns="solver", values=["seconds", "finished"], aggfunc="first")
    if any(("seconds", s) not in wide.columns for s in (NATIVE, CELLS)):
        return ""
    common = wide[wide["seconds"][CELLS].notna() & wide["seconds"][NATIVE].notna()]
    if common.empty or not common["finished"][NATIVE].astype(bool).all():
        return ""
    ratio = float((common["seconds"][CELLS] / common["seconds"][NATIVE]).median())
    at_least = "" if common["finished"][CELLS].astype(bool).all() else "> "
    return f"{at_least}{ratio:.2g}" if ratio < 100 else f"{at_least}{ratio:.0f}"


def drawn(solves: pd.DataFrame, records: int) -> pd.DataFrame:
    """Seconds of the first draw and of the next ones, and how accurate they are."""
    chosen = solves[solves["question"].isin(list(LAWS))]
    lines = []
    for (question, over, epsilon), group in chosen.groupby(["question", "over", "epsilon"], sort=False):
        first, rest = group[group["draw"] == 0], group[group["draw"] > 0]
        lines.append(
            {
                "law": question,
                "over": over,
                "epsilon": _epsilon(float(epsilon)),  # type: ignore[arg-type]
                "by": group["solver"].iloc[0],
                "first draw": _drawing(first),
                "next draws": _drawing(rest),
                "accuracy": f"{1 - group['value'].mean() / records:.4f}" if group["finished"].any() else "",
                "peak MB": f"{group['peak_megabytes'].max():.0f}",
            }
        )
    return pd.DataFrame(lines)


def _drawing(group: pd.DataFrame) -> str:
    left = group[~group["finished"]]
    if len(left):
        return f"open at {seconds(left['seconds'].max())}"
    return _times(group)


def memory(solves: pd.DataFrame) -> pd.DataFrame:
    """Peak memory, and the seconds that building takes, of the minimising solvers."""
    chosen = solves[solves["question"].isin(MINIMISED)]
    groups = chosen.groupby(["question", "solver"], sort=False)
    table = groups.agg(
        start=("start_megabytes", "max"), peak=("peak_megabytes", "max"), build=("build_seconds", "median")
    ).reset_index()
    table["MB before building"] = table.pop("start").map("{:.0f}".format)
    table["peak MB"] = table.pop("peak").map("{:.0f}".format)
    table["seconds to build"] = table.pop("build").map(seconds)
    return table


def disagreements(solves: pd.DataFrame) -> int:
    """Draws on which two solvers that both claim a proof differ in value. Must be 0.

    HiGHS proves within its tolerance: 1e-4 errors.
    """
    proved = solves[solves["finished"] & solves["question"].isin(MINIMISED)]
    values = proved.groupby(["question", "epsilon", "draw"])["value"]
    return int((values.max() - values.min() > 1e-4).sum())


def profile(solves: pd.DataFrame) -> Figure:
    """Share of solves finished within a time, one curve per solver: minimisers left, exact draws right."""
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    minimising = solves["question"].isin(MINIMISED)
    _curves(left, solves[minimising], ["question", "solver"])
    _curves(right, solves[~minimising], ["question", "over"])
    left.set(title="proved minima", xlabel="seconds per solve", ylabel="share finished")
    right.set(title="exact draws, first ones included", xlabel="seconds per draw")
    for axes in (left, right):
        axes.set(xscale="log", ylim=(0, 1.02))
        axes.grid(alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.15), ncols=2, frameon=False)
    return figure


def _curves(axes: Any, solves: pd.DataFrame, by: Sequence[str]) -> None:
    """What was not finished counts in the share, and appears at no time."""
    last = max(1e-3, float(solves["seconds"].max())) if len(solves) else 1.0
    for number, (name, group) in enumerate(solves.groupby(list(by), sort=False)):
        times = np.sort(group.loc[group["finished"], "seconds"].to_numpy(dtype=float))
        share = np.arange(1, len(times) + 1) / len(group)
        x = [*np.maximum(times, 1e-3), last]
        y = [*share, share[-1] if len(share) else 0.0]
        axes.step(x, y, where="post", ls=("-", "--", ":", "-.")[number % 4], label=", ".join(map(str, name)))


def _epsilon(epsilon: float) -> str:
    return "no noise" if math.isinf(epsilon) else f"{epsilon:g}"


def page(solves: pd.DataFrame, missing: Sequence[str], *, small: bool) -> str:
    """The whole page, from whatever is finished."""
    X, _ = data(small)
    parts = [
        "# Solvers and exact draws, timed",
        f"Made by `python -m privopt.experiments.benchmark_solvers{' --try-out' if small else ''}` in one "
        f"run on {'a small synthetic task' if small else 'Adult'}, n = {len(X):,}, d = {X.shape[1]}. "
        f"{machine()}. Seconds of wall-clock time: median, and the largest in brackets. Every question at "
        "one epsilon runs in a process of its own, after compilation. Noise: the sound calibration, "
        "delta = 1/n^2; all solvers get the same draws. Memory is the peak of the process: interpreter, "
        "libraries and data included.",
        "## Proved minima",
        markdown(minimised(solves)),
        f"Draws on which two proofs disagree: {disagreements(solves)}. *Open* is what the time limit "
        "stopped, with the gap that was left, in errors; a ratio is then a lower bound.",
        "## Memory and building",
        markdown(memory(solves)),
        "## Exact draws",
        markdown(drawn(solves, len(X))),
        "The first draw at an epsilon includes what is prepared for it; the next ones reuse that. Accuracy "
        "is the mean over the draws that were finished. An open line says how far exact draws do not go: the "
        "limit was reached, and there is no point.",
        "![share solved against time](solvers.png)",
        "Every solve: [solvers.csv](solvers.csv).",
    ]
    if missing:
        parts.insert(2, f"**Not all is there yet.** Missing: {'; '.join(missing)}.")
    return "\n\n".join(parts) + "\n"


def run(output: Path, plan: Sequence[Unit], console: Console) -> pd.DataFrame:
    """Do what is missing in ``output``, then write the page; Ctrl-C ends early with what there is."""
    output.mkdir(parents=True, exist_ok=True)
    kept = Kept(output / "solvers.csv", Solve, KEY)
    missing = each(plan, lambda unit: _run_unit(kept, unit, console), console, "solvers")
    if kept.lines:
        write_atomically(output / "solvers.md", page(kept.frame, missing, small=plan[0].small))
        save(profile(kept.frame), output / "solvers.png")
    return kept.frame


def _run_unit(kept: Kept, unit: Unit, console: Console) -> None:
    if complete(kept, unit):
        return
    for solve in isolated(work, unit):
        if not kept.holds(solve):  # draws that came before an interruption are drawn again for the next
            kept.add(solve)
            end = "" if solve.finished else ", open"
            console.print(f"{unit}: {seconds(solve.seconds)} s{end}", markup=False, highlight=False)


def complete(kept: Kept, unit: Unit) -> bool:
    """Whether all solves of a unit are there; after an open draw there are no more."""
    by = {} if unit.question in LAWS else {"solver": unit.solver}
    lines = kept.matching(question=unit.question, over=unit.over, epsilon=unit.epsilon, **by)
    if unit.question in LAWS and any(not line["finished"] for line in lines):
        return True
    return len(lines) >= (unit.draws if math.isfinite(unit.epsilon) else 1)


def main(
    output: Annotated[Path | None, typer.Option(help="Folder for page, picture and lines.")] = None,
    draws: Annotated[int, typer.Option(min=1, help="Draws per question and epsilon.")] = 5,
    slow_draws: Annotated[int, typer.Option(min=1, help="Draws through the cell model in HiGHS.")] = 1,
    time_limit: Annotated[float, typer.Option(min=0.001, help="Seconds per solve or draw.")] = 300.0,
    row_limit: Annotated[float, typer.Option(min=0.001, help="Seconds per solve of the row model.")] = 60.0,
    try_out: Annotated[bool, typer.Option("--try-out", help="A small synthetic task instead.")] = False,
) -> None:
    """Compare the solvers and time the exact draws."""
    console = Console(soft_wrap=True, emoji=False)
    plan = units(draws, slow_draws, time_limit, row_limit, small=try_out)
    with tempfile.TemporaryDirectory() as scratch:
        folder = output or Path(scratch)
        run(folder, plan, console)
        if (folder / "solvers.md").exists():
            console.print((folder / "solvers.md").read_text(), highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)
