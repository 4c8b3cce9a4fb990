"""Wang, Xiao, Devadas and Xu (2020), Figure 3: error against the number of features."""

from __future__ import annotations

from collections.abc import Iterator

from privopt.experiments.reproduce import wang_xiao2020 as paper
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction
from privopt.experiments.reproduce.tables import pivot
from privopt.experiments.workbench.panels import panels_figure

_RECORDS = 100_000


def dimensions(quick: bool) -> tuple[int, ...]:
    return (5, 10, 20) if quick else (5, 10, 20, 40)


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    return paper.sized(cell, _RECORDS, int(cell.level), paper.runs(quick))


FIGURE = Reproduction(
    name="wang-xiao2020-figure3",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Figure 3, numbers of features",
    shows="The error of Algorithm 4 and of its stochastic version grows with d, and falls with growing ε.",
    setting=lambda quick: f"n = {_RECORDS:,}. {paper.setting(paper.runs(quick))}",
    cells=lambda quick: paper.size_cells(dimensions(quick)),
    compute=compute,
    draw=lambda frame: panels_figure(paper.size_panels(frame, "features d")),
    caption="Error of the released weights, mean and one standard deviation over runs, against d.",
    table=lambda frame: pivot(frame, (paper.MEASURES[paper.LINE], paper.MEASURES[paper.SIGNS]), "d = {:g}"),
    verdicts=lambda frame: paper.size_verdicts(frame, True, "d"),
)
