"""Minimisers of tilted convex risks over a box, with the Frank-Wolfe gap as the certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, minimize

from privopt.oracles.errors import CertificateError
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.box import Box
from privopt.problems.errors import InvalidInputError

_STEPS = 500


@dataclass(frozen=True)
class TiltedRisk:
    """n F(w) - <tilt, w> over a box, F the risk of a convex loss, by SciPy's L-BFGS-B.

    The gap is not the solver's word: for convex F it is at most max over v in the box of <gradient, w - v>,
    which is recomputed at the point, with room for rounding.

    Attributes:
        risk: float64 data, a convex loss.
        box: the domain.
    """

    risk: EmpiricalRisk
    box: Box

    def __post_init__(self) -> None:
        if not self.risk.facts.loss.convex or self.risk.X.dtype != np.float64:
            raise InvalidInputError("a tilted risk needs a convex loss, and data in float64")
        if self.box.dimension != self.risk.facts.dimension:
            raise InvalidInputError(
                f"a box of dimension {self.box.dimension} for {self.risk.facts.dimension} features"
            )

    def solve(self, tilt: Vector, steps: int = _STEPS) -> tuple[Vector, float]:
        """A point of the box and its proved gap.

        Args:
            tilt: shape (dimension,).
            steps: of the solver, at most.
        """
        n = self.risk.facts.n_records

        def objective(w: Vector) -> tuple[float, Vector]:
            value, gradient = self.risk.value_and_gradient(w)
            return n * value - float(tilt @ w), n * gradient - tilt

        start = self.box.clip(np.zeros(self.box.dimension))
        found = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(self.box.low, self.box.high),
            options={"maxiter": steps, "ftol": 1e-15, "gtol": 1e-10, "maxls": 50},
        )
        w = self.box.clip(found.x)
        return w, self._gap(objective(w)[1], tilt, w)

    def require(self, tilt: Vector, gap: float) -> tuple[Vector, float]:
        """``solve``, if the gap is at most ``gap``.

        Raises:
            CertificateError: it is not.
        """
        w, left = self.solve(tilt)
        if not left <= gap:
            raise CertificateError(
                f"scipy proved a gap of {left:.6g} where {gap:g} is needed. To do: plan for a larger alpha"
            )
        return w, left

    def _gap(self, gradient: Vector, tilt: Vector, w: Vector) -> float:
        facts, widths = self.risk.facts, self.box.high - self.box.low
        summed = facts.n_records * facts.gradient_bound_linf * (facts.rounding + 2.0**-50)
        error = summed + 2.0**-50 * np.abs(tilt)
        away = np.maximum(gradient * (w - self.box.low), gradient * (w - self.box.high))
        return float(np.sum(np.maximum(away, 0) + error * widths))
