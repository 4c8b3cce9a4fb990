"""Wang, Xiao, Devadas and Xu (2020), Figure 4: error against the number of records."""

from __future__ import annotations

from collections.abc import Iterator

from privopt.experiments.reproduce import wang_xiao2020 as paper
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction
from privopt.experiments.reproduce.tables import pivot
from privopt.experiments.workbench.panels import panels_figure

_DIMENSION = 10


def sizes(quick: bool) -> tuple[int, ...]:
    return (10_000, 30_000, 100_000) if quick else (10_000, 30_000, 100_000, 300_000)


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    return paper.sized(cell, int(cell.level), _DIMENSION, paper.runs(quick))


FIGURE = Reproduction(
    name="wang-xiao2020-figure4",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Figure 4, numbers of records",
    shows="The error of Algorithm 4 and of its stochastic version falls with n, and with growing ε.",
    setting=lambda quick: f"d = {_DIMENSION}. {paper.setting(paper.runs(quick))}",
    cells=lambda quick: paper.size_cells(sizes(quick)),
    compute=compute,
    draw=lambda frame: panels_figure(paper.size_panels(frame, "records n")),
    caption="Error of the released weights, mean and one standard deviation over runs, against n.",
    table=lambda frame: pivot(
        frame, (paper.MEASURES[paper.LINE], paper.MEASURES[paper.SIGNS]), "n = {:,.0f}"
    ),
    verdicts=lambda frame: paper.size_verdicts(frame, False, "n"),
)
