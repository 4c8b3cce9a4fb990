"""Wang, Ye and Xu (2017), Table 3: many features."""

from __future__ import annotations

import math

from privopt.experiments.reproduce import wang2017 as paper
from privopt.problems.convex.regularizers import NO_REGULARIZER
from privopt.problems.convex.sets.norm_balls import L1Ball

_RELEVANT = 5

STUDY = paper.Study(
    features=200,
    # The l1 norm of the true weights.
    ball=lambda p: L1Ball(p, 2 * math.sqrt(p * _RELEVANT)),
    regularizer=NO_REGULARIZER,
    methods=("dp-accmd", "dp-pmd", "dp-pgd", "dp-fw-l1"),
    slope=-1,
    work=1.5,
    relevant=_RELEVANT,
    full_sizes=(1_000, 3_000, 10_000, 30_000),
    growth=0.5,
    dimensions=(50, 200, 800),
    rivals=("dp-pmd", "dp-fw-l1"),
)

FIGURE = STUDY.reproduction(
    name="wang2017-table3",
    figure="Table 3, many features",
    shows=(
        "Bounds over a set C of Gaussian width G_C: DP-AccMD has excess risk √(G_C² + |C|²) / (n ε) after "
        "n^1.5 √ε / (G_C² + |C|²)^(1/4) gradients, where mirror descent took n³ ε² and a private "
        "Frank-Wolfe over l1 balls has risk (n ε)^(-2/3) after (n ε)^(2/3) steps."
    ),
)
