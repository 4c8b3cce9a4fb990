"""Tilted risks by SciPy's L-BFGS-B: any convex loss, good where it is smooth."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import Bounds, minimize

from privopt.oracles.certificate import Status
from privopt.oracles.convex.tilted import TiltedOracle, TiltedProposal
from privopt.oracles.limits import Watch
from privopt.problems.convex.kinked_losses import KinkedLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk

_STEPS, _STARTS = 500, 10


@dataclass(frozen=True, eq=False)
class SmoothTilted(TiltedOracle):
    """Quasi-Newton steps within the bounds. See ``TiltedOracle``."""

    name: ClassVar[str] = "scipy"

    @staticmethod
    def reasons(risk: EmpiricalRisk) -> list[str]:
        loss = risk.facts.loss
        kinked = isinstance(loss, KinkedLoss)
        return [f"{type(loss).__name__} has a kink: use LinearTilted"] if kinked else []

    def propose(self, tilt: Vector, watch: Watch) -> TiltedProposal:
        n, stopped = self.risk.facts.n_records, Status.OPTIMAL

        def objective(w: Vector) -> tuple[float, Vector]:
            value, gradient = self.risk.value_and_gradient(w)
            return n * value - float(tilt @ w), n * gradient - tilt

        def watched(intermediate_result: Any) -> None:
            nonlocal stopped
            if (reason := watch.stop()) is not None:
                stopped = reason
                raise StopIteration

        w, best = self.box.clip(np.zeros(self.box.dimension)), math.inf
        for _ in range(_STARTS):  # it takes an unlucky step for the end; a fresh start from there goes on
            found = minimize(
                objective,
                w,
                jac=True,
                method="L-BFGS-B",
                bounds=Bounds(self.box.low, self.box.high),
                callback=watched,
                options={"maxiter": _STEPS, "ftol": 1e-15, "gtol": 1e-10, "maxls": 50},
            )
            if not found.fun < best:
                break
            w, best = np.asarray(found.x), float(found.fun)
            if stopped is not Status.OPTIMAL:
                break
        return TiltedProposal(w, status=stopped)
