"""Minimisers of smooth strongly convex risks, with the norm of the gradient as the certificate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg

from privopt.oracles.certificate import Status
from privopt.oracles.errors import CertificateError
from privopt.oracles.limits import Limits, Watch
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.errors import InvalidInputError

_LBFGS_STEPS, _NEWTON_STEPS, _CG_STEPS, _HALVINGS = 30, 120, 500, 30
_DENSE_HESSIAN = 512  # Hessians are inverted up to this number of features
# Number of steps with the same Hessian, which costs as much as several gradients.
_KEPT = 8


@dataclass(frozen=True)
class SmoothCertificate:
    """Certificate of an approximate minimiser of a strongly convex function.

    Attributes:
        status: why the solver stopped.
        value: the function at the point, up to rounding.
        gradient_norm: a bound on the l2 norm of the exact gradient at the point: the norm of the computed
            gradient plus a bound on its rounding error.
        strong_convexity: mu. The minimiser is within distance gradient_norm / mu of the point, and the
            minimum within ``gap`` of its value.
        seconds: wall-clock time of the solve.
    """

    status: Status
    value: float
    gradient_norm: float
    strong_convexity: float
    seconds: float

    @property
    def gap(self) -> float:
        """A bound on value - minimum: |gradient|^2 / (2 mu)."""
        return self.gradient_norm**2 / (2 * self.strong_convexity)

    @property
    def bound(self) -> float:
        """A lower bound on the minimum, up to rounding."""
        return self.value - self.gap

    def __str__(self) -> str:
        return (
            f"{self.status.name} value={self.value:.6g} gap={self.gap:.3g} "
            f"gradient norm={self.gradient_norm:.3g} ({self.seconds:.3g} s)"
        )


@dataclass(frozen=True, eq=False)
class SmoothAnswer:
    """A point, shape (p,), and its certificate."""

    point: Vector
    certificate: SmoothCertificate

    def require(self, tolerance: float) -> Vector:
        """Return the point if the bound on its gradient norm is small enough.

        Raises:
            CertificateError: the bound is larger; the message gives the bound, the time and a remedy.
        """
        proof = self.certificate
        if not proof.gradient_norm <= tolerance:
            reason, remedy = proof.status.name, proof.status.value
            if proof.status not in (Status.TIME_LIMIT, Status.INTERRUPTED):
                reason = "as small as rounding allows"
                remedy = "use a larger ridge penalty, or a mechanism that needs no minimum (dp-pgd)"
            raise CertificateError(
                f"the solver stopped at gradient norm {proof.gradient_norm:.3g}, {tolerance:.3g} is needed "
                f"({reason}, after {proof.seconds:.1f} s); nothing was released. To do: {remedy}"
            )
        return self.point


class _Stopped(Exception):
    """A limit was reached in the middle of a solve."""


def minimize_ridge(
    risk: EmpiricalRisk,
    l2: float,
    tolerance: float,
    linear: Vector | None = None,
    watch: Watch | None = None,
) -> SmoothAnswer:
    """Return argmin over R^p of F(w) + (l2/2) |w|^2 + <linear, w>, for a convex loss and l2 > 0.

    The method is damped Newton: a step is halved until it decreases the gradient norm. A Hessian is kept for
    a few steps, with BFGS updates. If there are too many features for a Hessian, L-BFGS steps come first, and
    then Newton directions by conjugate gradients.

    float32 data are copied to float64. With float32 predictions the gradient is a step function, and its zero
    may be farther from the minimum than the minima of neighbouring data sets are from each other.

    Args:
        risk: F.
        l2: strength of the ridge penalty, > 0.
        tolerance: the gradient norm at which to stop; see ``SmoothAnswer.require``.
        linear: shape (p,); zero by default.
        watch: says before every pass over the data whether to stop, and receives the value and its bound.

    Raises:
        InvalidInputError: the loss is not convex, or l2 <= 0.
    """
    if not (risk.facts.loss.convex and l2 > 0):
        raise InvalidInputError("a certified minimum needs a convex loss and a ridge penalty l2 > 0")
    risk = risk.in_float64()
    tilt = np.zeros(risk.facts.dimension) if linear is None else linear
    watch = watch or Limits().start()
    passes = 0

    def objective(w: Vector) -> tuple[float, Vector]:
        nonlocal passes
        if watch.stop() is not None:
            raise _Stopped
        value, gradient = risk.value_and_gradient(w)
        value, gradient = value + float(w @ (l2 / 2 * w + tilt)), gradient + l2 * w + tilt
        passes += 1
        watch.report(value, value - float(gradient @ gradient) / (2 * l2), passes)
        return value, gradient

    w = np.zeros(len(tilt))
    value, gradient, status = math.inf, np.full(len(tilt), math.inf), Status.HEURISTIC
    try:
        for iterate in _newton_iterates(objective, risk, l2, tolerance):
            w, value, gradient = iterate
    except _Stopped:
        status = watch.stop() or Status.INTERRUPTED
    sizes = float(np.linalg.norm(gradient)) + 2.0**-50 * (
        l2 * float(np.linalg.norm(w)) + float(np.linalg.norm(tilt))
    )
    norm = sizes * (1 + 1e-12) + _rounding(risk, w)
    if norm <= tolerance:
        status = Status.OPTIMAL
    return SmoothAnswer(w, SmoothCertificate(status, value, norm, l2, watch.seconds))


def _newton_iterates(
    objective: Callable[[Vector], tuple[float, Vector]], risk: EmpiricalRisk, l2: float, tolerance: float
) -> Iterator[tuple[Vector, float, Vector]]:
    """Yield iterates with values and gradients until the gradient is small or rounding prevents progress."""
    w = np.zeros(risk.facts.dimension)
    dense = len(w) <= _DENSE_HESSIAN
    if not dense:
        w = _lbfgs(objective, w, tolerance)
    value, gradient = objective(w)
    yield w, value, gradient
    inverse: Vector = np.zeros((0, 0))
    age = 0  # steps since the Hessian was computed
    for _ in range(_NEWTON_STEPS):
        if np.linalg.norm(gradient) <= tolerance / 4:
            return
        if dense and age == 0:
            curved = risk.hessian(w) + l2 * np.eye(len(w))
            inverse = _inverse(curved)
        direction = -inverse @ gradient if dense else _newton_direction(risk, w, l2, gradient)
        for _ in range(1 if age else _HALVINGS):
            following = objective(w + direction)
            if np.linalg.norm(following[1]) < np.linalg.norm(gradient):
                break
            direction = direction / 2
        else:
            if age == 0:
                return  # the gradient is as small as rounding allows
            age = 0
            continue
        change = following[1] - gradient
        w, (value, gradient) = w + direction, following
        yield w, value, gradient
        age = (age + 1) % _KEPT if dense and direction @ change > 0 else 0
        if age:
            inverse = _learnt(inverse, direction, change)


def _rounding(risk: EmpiricalRisk, w: Vector) -> float:
    """Return a bound on the rounding error of the gradient at w, from sums, slopes and predictions."""
    facts = risk.facts
    predictions = facts.smoothness * float(np.linalg.norm(w)) * (facts.dimension + 4) * 2.0**-53
    return facts.gradient_bound * (facts.rounding + 2.0**-48) + predictions


def _lbfgs(objective: Callable[[Vector], tuple[float, Vector]], start: Vector, tolerance: float) -> Vector:
    gtol = tolerance / (2 * len(start))
    options = {"maxiter": _LBFGS_STEPS, "gtol": gtol, "ftol": 0.0, "maxcor": 20}
    found: Any = minimize(  # type: ignore[call-overload]  # the stubs miss jac=True
        objective, start, jac=True, method="L-BFGS-B", options=options
    )
    return np.asarray(found.x)


def _inverse(curved: Vector) -> Vector:
    """Return the inverse of a Hessian, or its pseudoinverse if it is singular in float64.

    It is used for steps only, never for a certificate.
    """
    try:
        return np.asarray(np.linalg.inv(curved), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(curved, hermitian=True), dtype=np.float64)


def _learnt(inverse: Vector, step: Vector, change: Vector) -> Vector:
    """Return the BFGS update of an inverse Hessian; it maps the change of the gradient to the step."""
    product, along = inverse @ change, float(step @ change)
    crossed = np.outer(step, product / along)
    scale = (1 + float(change @ product) / along) / along
    return np.asarray(inverse + scale * np.outer(step, step) - crossed - crossed.T)


def _newton_direction(risk: EmpiricalRisk, w: Vector, l2: float, gradient: Vector) -> Vector:
    def product(v: Vector) -> Vector:
        return risk.hessian_vector(w, v.ravel()) + l2 * v.ravel()

    hessian: Any = LinearOperator((len(w), len(w)), matvec=product, dtype=np.float64)
    return np.asarray(cg(hessian, -gradient, rtol=1e-4, maxiter=_CG_STEPS)[0])
