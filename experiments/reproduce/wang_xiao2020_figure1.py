"""Wang, Xiao, Devadas and Xu (2020), Figure 1: error against iterations on synthetic records."""

from __future__ import annotations

from collections.abc import Iterator

from privopt.experiments.reproduce import wang_xiao2020 as paper
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction
from privopt.experiments.reproduce.tables import pivot
from privopt.experiments.workbench.panels import panels_figure

_PANELS = (paper.LINE, paper.SIGNS)
_RECORDS, _DIMENSION = 100_000, 10


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    return paper.trajectories(cell, _RECORDS, _DIMENSION, cell.level, paper.runs(quick))


FIGURE = Reproduction(
    name="wang-xiao2020-figure1",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Figure 1, synthetic records",
    shows=(
        "Error against iterations of ridge and logistic regression: Algorithm 4 comes close to robust "
        "gradient descent without privacy, on the full batch and on batches of 1000; Algorithm 3 varies "
        "more, depends on κ = b - a, and has large errors."
    ),
    setting=lambda quick: (
        f"n = {_RECORDS:,}, d = {_DIMENSION}, ε = "
        f"{', '.join(f'{e:g}' for e in paper.epsilons(quick))}. {paper.setting(paper.runs(quick))}"
    ),
    cells=lambda quick: paper.iteration_cells(_PANELS, paper.epsilons(quick)),
    compute=compute,
    draw=lambda frame: panels_figure(paper.iteration_panels(frame, _PANELS, paper.SHOWN)),
    caption=(
        "Error at each iterate, mean and one standard deviation (bands). The dashed grey line is the error "
        "of clipped-newton, which has no iterates to show."
    ),
    table=lambda frame: pivot(
        paper.last_errors(frame), tuple(paper.MEASURES[p] for p in _PANELS), "ε = {:g}"
    ),
    verdicts=lambda frame: paper.iteration_verdicts(frame, _PANELS),
)
