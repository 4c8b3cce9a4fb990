"""Empirical risk minimiser of linear models, without a certificate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from privopt.problems.convex.losses import Loss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.unclipped import UnclippedRisk


@dataclass(frozen=True)
class RiskMinimizer:
    """Minimiser of the mean loss plus (l2/2) |w|^2, by SciPy's L-BFGS. NOT private, not certified.

    Attributes:
        loss: a convex loss.
        l2: strength of the ridge penalty.
    """

    loss: Loss
    l2: float = 1e-6

    def __call__(self, X: Vector, y: Vector) -> Vector:
        """Return the minimiser, shape (features,)."""
        risk = UnclippedRisk(X, y, self.loss)

        def objective(w: Vector) -> tuple[float, Vector]:
            value, gradient = risk.value_and_gradient(w)
            return value + self.l2 / 2 * float(w @ w), gradient + self.l2 * w

        found = minimize(objective, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B")
        return np.asarray(found.x)
