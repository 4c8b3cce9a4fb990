"""Wang, Ye and Xu (2017), Table 1: strongly convex problems."""

from __future__ import annotations

from privopt.experiments.reproduce import wang2017 as paper
from privopt.experiments.reproduce.interface import Reproduction
from privopt.problems.convex.regularizers import ridge

_STUDY = paper.Study(
    features=20,
    convex_set=None,
    regularizer=ridge(0.01),
    methods=("dp-svrg", "dp-gd", "dp-sgd", "objective-perturbation", "output-perturbation"),
    slope=-2,
    work=1,
    relevant=20,
    rivals=("dp-gd", "output-perturbation"),
)

FIGURE = Reproduction(
    name="wang2017-table1",
    paper=paper.PAPER,
    cite=paper.CITE,
    figure="Table 1, strongly convex problems",
    shows=(
        "Bounds for a strongly convex objective: DP-SVRG has the best known excess risk, p log(n) / (n ε)², "
        "after (n + κ) log n gradients; gradient perturbation as before takes n², output perturbation n κ "
        "log n, and objective perturbation wants an exact minimum."
    ),
    setting=_STUDY.setting,
    cells=_STUDY.cells,
    compute=_STUDY.compute,
    draw=_STUDY.draw,
    caption="Excess risk and gradients evaluated, mean and one standard deviation, on logarithmic axes.",
    table=_STUDY.table,
    verdicts=_STUDY.verdicts,
)
