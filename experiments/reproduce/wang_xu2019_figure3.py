"""Wang and Xu (2019), Figure 3: the gradient along DP-PGD, for several numbers of records."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from privopt.experiments.reproduce import wang_xu2019 as paper
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction, Verdict, held
from privopt.experiments.reproduce.tables import earned
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import panels_figure, shade

EPSILON, STEPS, SHARES = 2.0, 400, (8, 4, 2, 1)


def sizes(dataset: str, quick: bool) -> list[int]:
    return [paper.records(dataset, quick) // share for share in SHARES]


def cells(quick: bool) -> list[Cell]:
    return [Cell(d, "dp-pgd", n) for d in (paper.SYNTHETIC, paper.COVERTYPE) for n in sizes(d, quick)]


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    n = int(cell.level)
    return paper.trajectories(cell.panel, n, EPSILON, STEPS, paper.exact_noise, paper.runs(quick))


def draw(frame: pd.DataFrame) -> Figure:
    panels = []
    for dataset, title in ((paper.SYNTHETIC, "Synthetic"), (paper.COVERTYPE, "Covertype")):
        most = float(frame.loc[frame["panel"] == dataset, "level"].max())

        def look(n: float, most: float = most) -> tuple[str, str]:
            place = SHARES.index(round(most / n))
            return f"n = {n:,.0f}", shade(colour("dp-pgd"), 0.35 + 0.65 * place / 3)

        panels.append(paper.panel(frame, dataset, title, look))
    return panels_figure(panels)


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    found = []
    for dataset, values in paper.late_norms(frame).items():
        better, of = paper.descended(frame, dataset)
        words = ", ".join(f"{v:.3g} at n = {n:,.0f}" for n, v in values.items())
        found.append(
            Verdict(
                f"{dataset}: the more records, the smaller the gradient",
                earned(held(paper.falls(values.to_list()), len(values) - 1), better, of),
                f"{words} (means over the later half of the iterations); below the norm at the start at "
                f"{better} of {of} values of n.",
            )
        )
    return found


FIGURE = Reproduction(
    name="wang-xu2019-figure3",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Figure 3, numbers of records",
    shows="The norm of the gradient of DP-GD at ε = 2 and T = 400 for several n: more records, less error.",
    setting=lambda quick: (
        f"ε = {EPSILON:g}, T = {STEPS}; the paper does not print its values of n; here they are all records, "
        f"and 1/2, 1/4 and 1/8 of them. {paper.setting(quick)}"
    ),
    cells=cells,
    compute=compute,
    draw=draw,
    caption=paper.CAPTION + " One curve for each n, the darker the larger.",
    table=lambda frame: paper.table(frame, "n = {:,.0f}"),
    verdicts=verdicts,
)
