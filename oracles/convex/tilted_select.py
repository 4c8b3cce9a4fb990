"""Which solver minimises a tilted risk."""

from __future__ import annotations

from privopt.oracles.convex.tilted import TiltedOracle
from privopt.oracles.convex.tilted_highs import LinearTilted, QuadraticTilted
from privopt.oracles.convex.tilted_lbfgs import SmoothTilted
from privopt.problems.convex.kinked_losses import KinkedLoss
from privopt.problems.convex.losses import SquaredLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.box import Box


def tilted_minimizer(risk: EmpiricalRisk, box: Box) -> TiltedOracle:
    """HiGHS for losses with a kink and for squares, SciPy for other convex losses.

    Raises:
        UnsupportedProblemError: a loss that is not convex, data in float32, a box of another dimension.
    """
    loss = risk.facts.loss
    if isinstance(loss, KinkedLoss):
        return LinearTilted(risk, box)
    return QuadraticTilted(risk, box) if isinstance(loss, SquaredLoss) else SmoothTilted(risk, box)
