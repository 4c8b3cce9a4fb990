"""Wang, Xiao, Devadas and Xu (2020), Figure 2: test risk against iterations on Adult."""

from __future__ import annotations

from collections.abc import Iterator

from privopt.experiments.reproduce import wang_xiao2020 as paper
from privopt.experiments.reproduce.interface import Cell, Point, Reproduction
from privopt.experiments.reproduce.tables import pivot
from privopt.experiments.workbench.panels import panels_figure

_PANELS = (paper.ADULT_LINE, paper.ADULT_SIGNS)


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    return paper.trajectories(cell, paper.ADULT_TRAIN, 6, cell.level, paper.runs(quick))


FIGURE = Reproduction(
    name="wang-xiao2020-figure2",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Figure 2, Adult",
    shows=(
        "Risk on test records against iterations, ridge and logistic regression on Adult: the methods have "
        "the order of Figure 1."
    ),
    setting=lambda quick: (
        "30,000 records of the training file, 28,000 to train and 2,000 to test, as in the paper, drawn "
        "anew for each run; income above 50,000 from the five numeric columns, each divided by a "
        "typical large value (public), and an intercept; capital gains of 99,999 are kept. ε = "
        f"{', '.join(f'{e:g}' for e in paper.epsilons(quick))}. "
        f"{paper.setting(paper.runs(quick), 'The paper states no parameters.')}"
    ),
    cells=lambda quick: paper.iteration_cells(_PANELS, paper.epsilons(quick)),
    compute=compute,
    draw=lambda frame: panels_figure(paper.iteration_panels(frame, _PANELS, paper.SHOWN)),
    caption=(
        "Mean loss on 2,000 held-out records at each iterate: mean and one standard deviation over runs "
        "(bands). The dashed grey lines are clipped-newton and the best constant."
    ),
    table=lambda frame: pivot(paper.last_errors(frame), ("test risk",), "ε = {:g}"),
    verdicts=lambda frame: paper.iteration_verdicts(frame, _PANELS),
)
