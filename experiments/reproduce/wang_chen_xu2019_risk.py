"""Wang, Chen and Xu (2019), sections 3 and 4: excess risk of Langevin dynamics and of nets against n."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from privopt.experiments import nonconvex
from privopt.experiments.reproduce.interface import Agreement, Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import means, pivot
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import Curve, Panel, averaged, panels_figure

CITE = "Wang, Chen and Xu (2019)"
PAPER = (
    "Wang, Chen and Xu, Differentially Private Empirical Risk Minimization with Non-convex Loss Functions, "
    "ICML 2019"
)
MEASURE = "excess"
_PROBLEM, _EPSILON = "two classes, d = 2", 1.0
_CURVES = ("dp-gld", "net", "dp-gd")


def sizes(quick: bool) -> tuple[int, ...]:
    return (500, 2_000, 10_000) if quick else (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000)


def runs(quick: bool) -> int:
    return 5 if quick else 15


def part_of(kind: str, problem: str, cell: Cell, epsilon: float, count: int) -> nonconvex.Part:
    """Return the part of ``privopt.experiments.nonconvex`` that computes a cell."""
    found = next(p for p in nonconvex.parts(False) if p.part == kind)
    return nonconvex.Part(kind, problem, cell.curve, int(cell.level), epsilon, count, found.work)


def cells(quick: bool) -> list[Cell]:
    return [Cell(_PROBLEM, curve, n) for curve in _CURVES for n in sizes(quick)]


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    part = part_of("excess", _PROBLEM, cell, _EPSILON, runs(quick))
    for run in range(part.draws):
        yield Point(run, cell.level, MEASURE, max(part.work(part, run)[MEASURE], 1e-9))


def draw(frame: pd.DataFrame) -> Figure:
    curves = [Curve(name, colour(name), averaged(frame[frame["curve"] == name], MEASURE)) for name in _CURVES]
    return panels_figure(
        [Panel("Two classes, two features, ε = 1", "n", "excess risk", curves, "log", "log")]
    )


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = means(frame, _PROBLEM, MEASURE)
    powers = {
        name: float(np.polyfit(np.log(values.index.to_numpy(dtype=float)), np.log(values), 1)[0])
        for name, values in found.items()
    }
    falls = found["dp-gld"]
    words = ", ".join(f"{v:.3g} at n = {n:,.0f}" for n, v in falls.items())
    first = Verdict(
        "dp-gld: the excess risk falls as n grows",
        held(int((np.diff(falls) < 0).sum()), len(falls) - 1),
        f"{words}: like n to the power {powers['dp-gld']:.2f}. The bound, d / (log n ε²), promises much "
        "less.",
    )
    second = Verdict(
        "The exponential mechanism on a net reaches a risk that falls with a power of n, in few dimensions",
        Agreement.YES if powers["net"] < -0.25 else Agreement.PARTLY if powers["net"] < 0 else Agreement.NO,
        f"Measured power: {powers['net']:.2f}.",
    )
    count = int((found["net"] < found["dp-gld"]).sum())
    third = Verdict(
        "A net is ahead of Langevin dynamics in two dimensions",
        held(count, len(falls)).beside,
        f"At {count} of {len(falls)} values of n. Its work grows like a power of n with d in the exponent.",
    )
    return [first, second, third]


FIGURE = Reproduction(
    name="wang-chen-xu2019-risk",
    paper=PAPER,
    cite=CITE,
    figure="excess risk against n",
    shows=(
        "Theorems, no pictures. Gradient Langevin dynamics has excess risk d / (log n ε²) up to logarithms, "
        "with 1 / log n improved to a power of 1 / n for fixed d; so has the exponential mechanism on a "
        "net, at a cost that is exponential in d."
    ),
    setting=lambda quick: (
        "Two classes in the plane, one on both sides of the other, under the sigmoid loss with a ridge "
        "penalty: several local minima. The least risk is the best of many starts without privacy. ε = "
        f"{_EPSILON:g}, δ = 1/n², replacing one record, n public; {runs(quick)} runs, new records for each. "
        "All mechanisms with privopt's defaults and sound noise; dp-gd stands beside as the simple baseline."
    ),
    cells=cells,
    compute=compute,
    draw=draw,
    caption="Excess penalised risk against n, mean and one standard deviation.",
    table=lambda frame: pivot(frame, (MEASURE,), "n = {:,.0f}"),
    verdicts=verdicts,
)
