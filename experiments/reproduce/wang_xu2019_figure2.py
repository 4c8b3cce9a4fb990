"""Wang and Xu (2019), Figure 2: the gradient along DP-PGD, for several numbers of iterations."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from privopt.experiments.reproduce import wang_xu2019 as paper
from privopt.experiments.reproduce.interface import Agreement, Cell, Point, Reproduction, Verdict
from privopt.experiments.reproduce.tables import earned
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import colour
from privopt.experiments.workbench.panels import shade

EPSILON, STEPS = 2.0, (50, 100, 200, 400)


def cells(quick: bool) -> list[Cell]:
    return [Cell(d, "dp-pgd", t) for d in (paper.SYNTHETIC, paper.COVERTYPE) for t in STEPS]


def compute(cell: Cell, quick: bool) -> Iterator[Point]:
    n, steps = paper.records(cell.panel, quick), int(cell.level)
    return paper.trajectories(cell.panel, n, EPSILON, steps, paper.exact_noise, paper.runs(quick))


def draw(frame: pd.DataFrame) -> Figure:
    def look(steps: float) -> tuple[str, str]:
        return f"T = {steps:g}", shade(colour("dp-pgd"), 0.35 + 0.65 * STEPS.index(int(steps)) / 3)

    return paper.both_panels(frame, look)


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    norms = paper.late_norms(frame)
    found = []
    for dataset, values in norms.items():
        ratio = float(values.max() / values.min())
        agreement = Agreement.YES if ratio < 1.5 else Agreement.PARTLY if ratio < 3 else Agreement.NO
        better, of = paper.descended(frame, dataset)
        found.append(
            Verdict(
                f"{dataset}: the number of iterations matters little",
                earned(agreement, better, of),
                f"{', '.join(f'{v:.3g} at T = {t:g}' for t, v in values.items())} (means over the later "
                f"half of the iterations): the largest is {ratio:.1f} times the smallest; {better} of {of} "
                "are below the norm at the start. With more iterations each has more noise; with fewer "
                "they stop short of the minimum.",
            )
        )
    return found


FIGURE = Reproduction(
    name="wang-xu2019-figure2",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Figure 2, numbers of iterations",
    shows=(
        "The norm of the gradient of DP-GD at ε = 2 for several T: although noise grows with T, T matters "
        "less than ε does, as the bounds do not depend on it."
    ),
    setting=lambda quick: f"ε = {EPSILON:g}; the paper's values of T are not printed. {paper.setting(quick)}",
    cells=cells,
    compute=compute,
    draw=draw,
    caption=paper.CAPTION + " One curve for each T, the darker the larger.",
    table=lambda frame: paper.table(frame, "T = {:g}"),
    verdicts=verdicts,
)
