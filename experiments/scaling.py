"""Measure how certified minimisation and exact draws scale: seconds against dimension, cells and domain.

    python -m privopt.experiments.scaling --output FOLDER [--time-limit S]

Writes ``scaling.csv`` (a line per question, appended as the question is answered: an interrupted run
resumes), ``scaling.md`` (the table) and ``scaling.png`` (seconds against dimension). A question is a task,
such as an exact draw at epsilon = 1, on some columns of Adult: more columns make more dimensions and more
cells. Cost follows cells times levels, not records. A question that reaches the time limit is "open"; its
line has the remaining gap and the bound. There are 56 questions of at most ``--time-limit`` seconds each.
Seconds are processor time of one thread where the system reports it, so that other programs on the machine
change the results little.
"""

from __future__ import annotations

import contextlib
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer
from rich.console import Console

from privopt.experiments.comparison.race import Spent, processor_limits
from privopt.experiments.comparison.workload import noise_of
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.pages import filled
from privopt.experiments.workbench.panels import Curve, Panel, panels_figure, shade
from privopt.experiments.workbench.resumable import (
    isolated,
    machine,
    markdown,
    peak_megabytes,
    seconds,
)
from privopt.experiments.workbench.study import Study
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import MECHANISMS
from privopt.oracles.cells.structure import CellStructure
from privopt.oracles.errors import UnfinishedDrawError, UnsupportedProblemError
from privopt.oracles.limits import Progress
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.select import gibbs_oracle
from privopt.oracles.task import Task
from privopt.problems.datasets.adult import ADULT_TARGET, adult_labels, adult_schema, load_adult
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.tables.schema import Schema

# Increasing sets of columns of Adult, numeric ones first.
SIZES = (
    ("age", "sex", "race"),
    ("age", "hours-per-week", "sex", "race", "relationship"),
    ("age", "hours-per-week", "sex", "race", "relationship", "marital-status"),
    ("age", "hours-per-week", "sex", "race", "relationship", "marital-status", "workclass"),
    ("age", "hours-per-week", "sex", "race", "relationship", "marital-status", "occupation"),
    ("age", "hours-per-week", "sex", "race", "relationship", "workclass", "occupation", "marital-status"),
    ("age", "sex", "race", "relationship", "marital-status", "workclass", "occupation", "education"),
)
QUESTIONS = (
    *(("rspm", e) for e in (1.0, 5.0, math.inf)),
    *(("opdisc", e) for e in (1.0, 5.0, math.inf)),
    *(("exponential", e) for e in (0.1, 1.0)),
)
KEY = ("columns", "question", "epsilon")


@dataclass(frozen=True)
class Unit:
    """One question: a task at one size.

    Attributes:
        columns: columns of Adult, the numeric ones first; empty for a small synthetic task.
        question: the name of a mechanism whose task is solved.
        epsilon: the epsilon of the noise; infinite for no noise.
        limit: the time limit in seconds.
    """

    columns: tuple[str, ...]
    question: str
    epsilon: float
    limit: float

    @property
    def table(self) -> str:
        return "+".join(self.columns) or "synthetic"

    def __str__(self) -> str:
        return f"{self.question}, {_noise(self.epsilon)}, {self.table}"


@dataclass(frozen=True)
class Line:
    """The result of a unit.

    Attributes:
        columns: the columns of the table, joined by +.
        levels: the number of levels of one weight.
        by: the name of the oracle.
        status: "solved", "open" (stopped by the limit) or "refused".
        seconds: processor time of one thread; wall-clock time if the system does not report it.
        value, bound, gap: in errors, noise included; NaN if unknown. Draws have no bound.
        early_gap: the gap of an open solve after a quarter of the time limit.
        peak_megabytes: peak memory of the process, interpreter and data included.
    """

    columns: str
    dimension: int
    cells: int
    levels: int
    question: str
    epsilon: float
    by: str
    seconds: float
    status: str
    value: float
    bound: float
    gap: float
    early_gap: float
    peak_megabytes: float


def problem(unit: Unit) -> ZeroOneHalfspace:
    """Build the problem of all Adult training records, with some columns, over the mechanism's lattice."""
    kind = MECHANISMS[unit.question]
    if not unit.columns:
        X, y = make_cells(200, blocks=(3, 2), numeric=1, seed=0)
    else:
        frame = load_adult("train")
        declared = {c.name: c for c in adult_schema().columns}
        schema = Schema([declared[name] for name in unit.columns])
        X, y = schema.encode(frame.drop(columns=[ADULT_TARGET])).X, adult_labels(frame)
    return ZeroOneHalfspace(X, y, kind.default_lattice(X.shape[1]))


def work(unit: Unit) -> Iterator[Line]:
    """Yield the result of a unit; to be run in a fresh process."""
    asked, tiny = problem(unit), problem(replace(unit, columns=()))
    low, high = asked.lattice.low[0], asked.lattice.high[0]
    line = Line(
        columns=unit.table,
        dimension=asked.lattice.dimension,
        cells=CellStructure.of(asked).n_cells,
        levels=int(high - low) + 1,
        question=unit.question,
        epsilon=unit.epsilon,
        by="",
        seconds=0.0,
        status="refused",
        value=math.nan,
        bound=math.nan,
        gap=math.nan,
        early_gap=math.nan,
        peak_megabytes=0.0,
    )
    answer = _draw if unit.question == "exponential" else _minimise
    with contextlib.suppress(UnsupportedProblemError):  # the line has the status "refused"
        line = answer(unit, asked, tiny, line)
    yield replace(line, peak_megabytes=peak_megabytes())


def _minimise(unit: Unit, asked: ZeroOneHalfspace, tiny: ZeroOneHalfspace, line: Line) -> Line:
    task = MECHANISMS[unit.question].question
    assert isinstance(task, Task)
    NativeOracle(threads=1).prepare(tiny, task).minimize(Perturbation.zero(tiny.lattice))
    oracle, gaps = NativeOracle(threads=1).prepare(asked, task), dict[float, float]()
    noise, spent = noise_of(unit.question, asked, unit.epsilon, 0), Spent()

    def note(seen: Progress) -> None:
        gaps[spent.soon()] = seen.gap

    limits = processor_limits(spent, unit.limit)
    c = oracle.minimize(noise, replace(limits, on_progress=note)).certificate
    used = spent() if spent.known else c.seconds
    status = "solved" if c.gap == 0 else "open"
    early = [gap for at, gap in gaps.items() if at <= unit.limit / 4]
    line = replace(line, by=c.oracle, seconds=used, status=status)
    line = replace(line, value=c.value, bound=c.bound, gap=c.gap)
    return replace(line, early_gap=early[-1]) if early and status == "open" else line


def _draw(unit: Unit, asked: ZeroOneHalfspace, tiny: ZeroOneHalfspace, line: Line) -> Line:
    source = NoiseSource(insecure_seed=0)
    for name in ("elimination", "branch"):
        gibbs_oracle(name).prepare(tiny).draw(1.0, source)
    oracle = gibbs_oracle("native").prepare(asked)
    began, spent = time.perf_counter(), Spent()

    def used() -> float:
        return spent() if spent.known else time.perf_counter() - began

    try:
        d = oracle.draw(unit.epsilon / 2, source, processor_limits(spent, unit.limit))
    except UnfinishedDrawError:
        return replace(line, by=oracle.name, seconds=used(), status="open")
    return replace(line, by=d.oracle, seconds=used(), status="solved", value=float(d.loss))


def units(limit: float) -> list[Unit]:
    """Return all units, small sizes first."""
    return [Unit(columns, q, e, limit) for columns in SIZES for q, e in QUESTIONS]


# --- Tables and figures of the results ----------------------------------------------------------------


def table(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate seconds or, for open questions, the remaining gap: a line per size, a column per task."""
    rows = []
    for (dimension, cells), group in lines.groupby(["dimension", "cells"], sort=True):
        row: dict[str, object] = {"d": dimension, "cells": cells}
        for question, epsilon in QUESTIONS:
            found = group[(group["question"] == question) & (group["epsilon"] == epsilon)]
            answer = _answer(found.iloc[0]) + _mass(group, found.iloc[0]) if len(found) else ""
            row[f"{question}, {_noise(epsilon)}"] = answer
        rows.append(row)
    return pd.DataFrame(rows)


def _answer(line: pd.Series) -> str:
    if line["status"] == "open":
        early = "" if math.isnan(line["early_gap"]) else f"{line['early_gap']:.4g}, then "
        left = "" if math.isnan(line["gap"]) else f": gap {early}{line['gap']:.4g}, bound {line['bound']:.5g}"
        return f"open at {seconds(line['seconds'])} s{left}"
    return seconds(line["seconds"]) if line["status"] == "solved" else "refused"


def _mass(group: pd.DataFrame, line: pd.Series) -> str:
    """Return proved bounds on log Z, Z the sum of exp(-beta errors) over all points, for an unfinished draw.

    Z is at least the term of the best known point. It is at most the number of points times exp(-beta b), b
    the proved bound on the least errors.
    """
    least = group[(group["question"] == "rspm") & np.isinf(group["epsilon"])]
    if line["question"] != "exponential" or line["status"] != "open" or not len(least):
        return ""
    beta, proved = line["epsilon"] / 2, least.iloc[0]
    low = -beta * proved["value"]
    high = -beta * proved["bound"] + line["dimension"] * math.log(line["levels"])
    return f": log Z {low:.0f} to {high:.0f}"


def sizes(lines: pd.DataFrame) -> pd.DataFrame:
    """Tabulate dimension, cells, cells times levels, peak memory and columns of each size."""
    groups = lines.groupby(["dimension", "cells", "columns"], sort=True)
    found = groups.agg(peak=("peak_megabytes", "max")).reset_index()
    domains = lines.groupby(["dimension", "question"])["levels"].first()
    return pd.DataFrame(
        {
            "d": found["dimension"],
            "cells": found["cells"],
            "cells x levels, {-1,0,1}^d": [3 * c for c in found["cells"]],
            "cells x levels, OPDisc": [
                c * domains.get((d, "opdisc"), math.nan)
                for d, c in zip(found["dimension"], found["cells"], strict=True)
            ],
            "peak MB": found["peak"].map("{:.0f}".format),
            "columns": found["columns"].str.replace("+", ", "),
        }
    )


def picture(lines: pd.DataFrame) -> Figure:
    """Draw seconds against dimension, a curve per task; open questions are put on the dashed line."""
    asked = lines[lines["status"] != "refused"]
    ceiling = 2 * float(asked["seconds"].max())
    asked = asked.assign(time=asked["seconds"].where(asked["status"] == "solved", ceiling))
    panels = []
    for title, names in (("Proved minima", ("rspm", "opdisc")), ("Exact draws", ("exponential",))):
        curves = []
        for question, epsilon in QUESTIONS:
            mine = asked[(asked["question"] == question) & (asked["epsilon"] == epsilon)]
            if question in names and len(mine):
                points = mine.groupby("dimension")["time"].agg(["mean"]).assign(std=0.0)
                share = {0.1: 0.5, 1.0: 0.45, 5.0: 0.7}.get(epsilon, 1.0)
                label = f"{question}, {_noise(epsilon)}"
                curves.append(Curve(label, shade(colour(question), share), points))
        labels = ("dimension", "seconds")
        if curves:
            levels = {"open at the limit": ceiling}
            panels.append(Panel(title, *labels, curves, "linear", "log", levels, (1e-3, 2 * ceiling)))
    return panels_figure(panels)


def _noise(epsilon: float) -> str:
    return "no noise" if math.isinf(epsilon) else f"epsilon {epsilon:g}"


def page(lines: pd.DataFrame) -> str:
    """Write the page from the finished tasks."""
    places = {"machine": machine(), "times": markdown(table(lines)), "sizes": markdown(sizes(lines))}
    return filled("scaling", places)


STUDY = Study[Unit](
    "scaling",
    Line,
    KEY,
    compute=lambda unit: isolated(work, unit),
    is_finished=lambda kept, unit: bool(
        kept.matching(columns=unit.table, question=unit.question, epsilon=unit.epsilon)
    ),
    page=page,
    figures={".png": picture},
)


def main(
    output: Annotated[Path | None, typer.Option(help="Output folder for page, picture and results.")] = None,
    time_limit: Annotated[float, typer.Option(min=0.001, help="Time limit per task, in seconds.")] = 60.0,
) -> None:
    """Answer the missing questions, print the page, and write it if a folder is given."""
    console = Console(soft_wrap=True, emoji=False)
    with tempfile.TemporaryDirectory() as scratch:
        folder = output or Path(scratch)
        STUDY.run(folder, units(time_limit), console)
        if (folder / "scaling.md").exists():
            console.print((folder / "scaling.md").read_text(), highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)
