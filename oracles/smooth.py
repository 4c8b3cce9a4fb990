"""Minimisers of smooth strongly convex risks, with the norm of the gradient as the certificate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from privopt.oracles.errors import CertificateError
from privopt.problems.errors import InvalidInputError
from privopt.problems.regularizers import Vector
from privopt.problems.risk import EmpiricalRisk

_LBFGS_STEPS, _NEWTON_STEPS, _CG_STEPS, _HALVINGS = 30, 60, 500, 30
_DENSE_HESSIAN = 512  # up to so many features Newton systems are solved directly


@dataclass(frozen=True, eq=False)
class SmoothAnswer:
    """A point and what is known about it.

    Attributes:
        point: shape (p,).
        gradient_norm: a bound on the l2 norm of the exact gradient at the point: the computed one plus its
            rounding. Under mu-strong convexity the minimiser is within gradient_norm / mu.
    """

    point: Vector
    gradient_norm: float

    def require(self, tolerance: float) -> Vector:
        """The point, if its gradient is proved to be that small.

        Raises:
            CertificateError: it is not.
        """
        if not self.gradient_norm <= tolerance:
            raise CertificateError(
                f"the solver stopped at gradient norm {self.gradient_norm:.3g}, {tolerance:.3g} is needed: "
                "use a larger ridge penalty, float64 data, or a mechanism that needs no minimum (dp-pgd)"
            )
        return self.point


def minimize_ridge(
    risk: EmpiricalRisk, l2: float, tolerance: float, linear: Vector | None = None
) -> SmoothAnswer:
    """argmin over R^p of F(w) + (l2/2) |w|^2 + <linear, w>, for a convex loss and l2 > 0.

    A few L-BFGS steps, then Newton steps, halved until they shrink the gradient, as the Newton direction of a
    strongly convex function does when short enough.

    float32 data are copied to float64: the gradient of float32 predictions is a step function, and its zero
    may be farther from the minimum than neighbouring minima are from each other.

    Args:
        risk: F.
        l2: strength of the ridge penalty, > 0.
        tolerance: the gradient norm to aim at; see ``SmoothAnswer.require``.
        linear: shape (p,); zero by default.

    Raises:
        InvalidInputError: a loss that is not convex, or l2 <= 0.
    """
    if not (risk.facts.loss.convex and l2 > 0):
        raise InvalidInputError("a certified minimum needs a convex loss and a ridge penalty l2 > 0")
    risk = risk.in_float64()
    tilt = np.zeros(risk.facts.dimension) if linear is None else linear

    def objective(w: Vector) -> tuple[float, Vector]:
        value, gradient = risk.value_and_gradient(w)
        return value + float(w @ (l2 / 2 * w + tilt)), gradient + l2 * w + tilt

    options = {"maxiter": _LBFGS_STEPS, "gtol": tolerance / (2 * len(tilt)), "ftol": 0.0, "maxcor": 20}
    found: Any = minimize(  # type: ignore[call-overload]  # the stubs miss jac=True
        objective, np.zeros(len(tilt)), jac=True, method="L-BFGS-B", options=options
    )
    w = np.asarray(found.x)
    gradient = objective(w)[1]
    for _ in range(_NEWTON_STEPS):
        if np.linalg.norm(gradient) <= tolerance / 4:
            break
        direction = _newton_direction(risk, w, l2, gradient)
        for _ in range(_HALVINGS):
            following = objective(w + direction)[1]
            if np.linalg.norm(following) < np.linalg.norm(gradient):
                break
            direction = direction / 2
        else:
            break  # as small as rounding allows
        w, gradient = w + direction, following
    sizes = float(np.linalg.norm(gradient)) + 2.0**-50 * (
        l2 * float(np.linalg.norm(w)) + float(np.linalg.norm(tilt))
    )
    return SmoothAnswer(w, sizes * (1 + 1e-12) + _rounding(risk, w))


def _rounding(risk: EmpiricalRisk, w: Vector) -> float:
    """How far the computed gradient at w may be from the exact one: sums, slopes, and predictions."""
    facts = risk.facts
    predictions = facts.smoothness * float(np.linalg.norm(w)) * (facts.dimension + 4) * 2.0**-53
    return facts.gradient_bound * (facts.rounding + 2.0**-48) + predictions


def _newton_direction(risk: EmpiricalRisk, w: Vector, l2: float, gradient: Vector) -> Vector:
    p = len(w)
    if p <= _DENSE_HESSIAN:
        return np.asarray(np.linalg.solve(risk.hessian(w) + l2 * np.eye(p), -gradient), dtype=np.float64)

    def product(v: Vector) -> Vector:
        return risk.hessian_vector(w, v.ravel()) + l2 * v.ravel()

    hessian: Any = LinearOperator((p, p), matvec=product, dtype=np.float64)
    return np.asarray(cg(hessian, -gradient, rtol=1e-4, maxiter=_CG_STEPS)[0])
