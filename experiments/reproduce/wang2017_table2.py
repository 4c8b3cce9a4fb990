"""Wang, Ye and Xu (2017), Table 2: convex problems."""

from __future__ import annotations

import math

from privopt.experiments.reproduce import wang2017 as paper
from privopt.problems.convex.regularizers import NO_REGULARIZER
from privopt.problems.convex.sets.norm_balls import L2Ball

STUDY = paper.Study(
    features=20,
    ball=lambda p: L2Ball(p, 20 * math.sqrt(p / 20)),
    regularizer=NO_REGULARIZER,
    methods=(
        "dp-svrg++",
        "dp-svrg++" + paper.PRINTED,
        "dp-pgd",
        "dp-sgd",
        paper.ONE_RECORD,
        "objective-perturbation",
        "output-perturbation",
    ),
    slope=-1,
    work=1,
    relevant=None,
    full_sizes=(1_000, 3_000, 10_000, 30_000),
    growth=0.5,
    dimensions=(5, 20, 80),
    rivals=(paper.ONE_RECORD, "dp-sgd", "objective-perturbation", "output-perturbation"),
)

FIGURE = STUDY.reproduction(
    name="wang2017-table2",
    figure="Table 2, convex problems",
    shows=(
        "Bounds without strong convexity: DP-SVRG++ has the best known excess risk, √p / (n ε), after n ε / "
        "√p + n log(n ε / p) gradients; gradient perturbation until then takes n², output perturbation has a "
        "larger risk."
    ),
)
