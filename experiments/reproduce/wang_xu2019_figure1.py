"""Wang and Xu (2019), Figure 1: the gradient along DP-PGD, for several epsilon."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from privopt.experiments.reproduce import wang_xu2019 as paper
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import earned
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import shade

EPSILONS, STEPS = (0.1, 0.5, 2.0, 5.0), 200


def cells(quick: bool) -> list[Cell]:
    return [Cell(d, "dp-pgd", e) for d in (paper.SYNTHETIC, paper.COVERTYPE) for e in EPSILONS]


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    n = paper.records(cell.panel, quick)
    return paper.trajectories(cell.panel, n, cell.level, STEPS, paper.exact_noise, paper.runs(quick))


def draw(frame: pd.DataFrame) -> Figure:
    def look(epsilon: float) -> tuple[str, str]:
        return f"ε = {epsilon:g}", shade(colour("dp-pgd"), 0.35 + 0.65 * EPSILONS.index(epsilon) / 3)

    return paper.both_panels(frame, look)


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    norms = paper.late_norms(frame)
    falls = {d: paper.falls(norms[d].to_list()) for d in norms}
    below = [paper.descended(frame, d) for d in norms]
    first = Verdict(
        "The larger ε, the smaller the gradient",
        earned(
            held(sum(falls.values()), 3 * len(falls)), sum(b for b, _ in below), sum(of for _, of in below)
        ),
        "; ".join(f"{d}: {', '.join(f'{v:.3g} at ε = {e:g}' for e, v in norms[d].items())}" for d in norms)
        + " (means over the later half of the iterations; below the norm at the start at "
        + f"{sum(b for b, _ in below)} of {sum(of for _, of in below)}).",
    )
    smaller = [e for e in EPSILONS if norms[paper.COVERTYPE][e] < norms[paper.SYNTHETIC][e]]
    better, of = paper.descended(frame, paper.COVERTYPE)
    second = Verdict(
        "The larger data set, Covertype, has the smaller gradient at the same ε",
        earned(held(len(smaller), len(EPSILONS)), better, of),
        f"So at {len(smaller)} of {len(EPSILONS)} values of ε; below its norm at the start at {better}.",
    )
    return [first, second]


FIGURE = Reproduction(
    name="wang-xu2019-figure1",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Figure 1, levels of ε",
    shows=(
        "The norm of the gradient of DP-GD with T = 200 on synthetic data and on Covertype, for ε = 0.1, "
        "0.5, 2 and 5: more privacy means more error, and the larger data set has less error."
    ),
    setting=lambda quick: f"T = {STEPS}. {paper.setting(quick)}",
    cells=cells,
    compute=compute,
    draw=draw,
    caption=paper.CAPTION + " One curve for each ε, the darker the larger.",
    table=lambda frame: paper.table(frame, "ε = {:g}"),
    verdicts=verdicts,
)
