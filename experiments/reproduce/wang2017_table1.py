"""Wang, Ye and Xu (2017), Table 1: strongly convex problems."""

from __future__ import annotations

from privopt.experiments.reproduce import wang2017 as paper
from privopt.problems.convex.regularizers import ridge

STUDY = paper.Study(
    features=20,
    ball=None,
    regularizer=ridge(0.01),
    methods=(
        "dp-svrg",
        "dp-svrg" + paper.PRINTED,
        "dp-gd",
        "dp-sgd",
        paper.ONE_RECORD,
        "objective-perturbation",
        "output-perturbation",
    ),
    slope=-2,
    work=1,
    relevant=None,
    growth=1,
    dimensions=(5, 20, 80),
    ridges=(0.1, 0.01, 0.001),
    rivals=(paper.ONE_RECORD, "dp-sgd", "objective-perturbation", "output-perturbation"),
)

FIGURE = STUDY.reproduction(
    name="wang2017-table1",
    figure="Table 1, strongly convex problems",
    shows=(
        "Bounds for a strongly convex objective: DP-SVRG has the best known excess risk, p log(n) / (n ε)², "
        "after (n + κ) log n gradients; gradient perturbation until then takes n², output perturbation n κ "
        "log n, and objective perturbation needs an exact minimum."
    ),
)
