"""Confidence intervals of logistic regression, from a perturbed minimum and a noisy Hessian there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.inference.interface import Bounds, LinearInference, noisy_inverse, signal_to_noise
from privopt.mechanisms.privacy.noisy_minimum import NoisyMinimum
from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class LogisticMinimum(LinearInference):
    """Logistic regression with intervals for theta = B phi, where phi = w + l2 H^-1 w undoes the shrinkage.

    w is the minimum of the risk with a penalty, (l2 / 2) |w|^2, and a random linear term b' w. H is the noisy
    Hessian of the risk at w. The gradient of the risk at w is -(l2 w + b). At the true phi_0 it has mean 0
    and, if the logistic model holds, the variance H / n. So phi - phi_0 is about -H^-1 (b + gradient at
    phi_0), without an effect of the penalty. Its variance is

        H^-1 (tilt^2 I + N + H / n) H^-1 + blur^2 (I + l2 H^-1)^2,   N = (sigma^2 / 2) (|u|^2 I + u u').

    Here tilt is the standard deviation of entries of b, blur that of the noise on w, sigma that of the noise
    on the diagonal of H, and u = l2 H^-1 w. N is the variance of H u due to the noise in H.

    Attributes:
        minimum: the release, in orthonormal coordinates phi.
        basis: B, shape (p, p), invertible.
    """

    minimum: NoisyMinimum
    basis: Floats

    def __post_init__(self) -> None:
        p = len(self.minimum.weights)
        if self.basis.shape != (p, p) or not np.all(np.isfinite(self.basis)):
            raise InvalidInputError(
                f"a minimum of {p} weights needs finite coordinates of shape ({p}, {p}), got shape "
                f"{self.basis.shape}"
            )

    @classmethod
    def of(cls, minimum: NoisyMinimum) -> Self:
        """Return the inference about the weights of a release."""
        return cls(minimum, np.eye(len(minimum.weights)))

    @property
    def dimension(self) -> int:
        return len(self.minimum.weights)

    @property
    def constant(self) -> float:
        return self.minimum.constant

    @property
    def n_records(self) -> int:
        return self.minimum.n_records

    @cached_property
    def signal_to_noise(self) -> float:
        return signal_to_noise(self.minimum.hessian, self.minimum.sigma)

    @cached_property
    def inverse(self) -> Floats:
        """The inverse of the Hessian H; raises NoIntervalError if the noise hides H."""
        return noisy_inverse(self.minimum.hessian, self.signal_to_noise)

    def bounds(self, C: Floats, z: float) -> Bounds:
        m, rows = self.minimum, C @ self.basis
        a = rows @ self.inverse
        correction = m.l2 * self.inverse @ m.weights
        estimate = rows @ (m.weights + correction)
        squares = np.sum(a**2, axis=1)
        of_hessian = m.sigma**2 / 2 * (squares * float(correction @ correction) + (a @ correction) ** 2)
        noise = m.tilt**2 * squares + of_hessian + m.blur**2 * np.sum((rows + m.l2 * a) ** 2, axis=1)
        total = noise + np.sum(rows * a, axis=1) / m.n_records
        half = z * np.sqrt(total)
        share = np.divide(noise, total, out=np.zeros_like(total), where=total > 0)
        return Bounds(estimate, estimate - half, estimate + half, share)

    def only(self, kept: NDArray[np.int64], spanned: Floats) -> Self:
        Q, R = np.linalg.qr(spanned.T)
        return replace(self, minimum=self.minimum.along(Q), basis=R.T)

    def to_dict(self) -> dict[str, Any]:
        return {"minimum": self.minimum.to_dict(), "basis": self.basis.tolist()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the inference of a record from ``to_dict``.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: the record is not from ``to_dict``.
        """
        return cls(NoisyMinimum.from_dict(record["minimum"]), np.array(record["basis"], dtype=np.float64))
