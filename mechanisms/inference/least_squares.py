"""Confidence intervals of least squares from one release of noisy moments: Fieller's, on clipped records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.inference.interface import Bounds, LinearInference, noisy_inverse, signal_to_noise
from privopt.mechanisms.privacy.noisy_moments import NoisyMoments

Floats = NDArray[np.float64]


def fieller(noise: tuple[Floats, Floats, Floats], sampling: Floats, z: float) -> tuple[Floats, Floats]:
    """Return the least and the largest u with u^2 <= z^2 (sampling + noise_0 + noise_1 u + noise_2 u^2).

    Where solutions u are unbounded, both are infinite.

    Source: Fieller (1954).
    """
    lead = 1 - z * z * noise[2]
    bounded = lead > 0
    safe = np.where(bounded, lead, 1.0)
    middle = z * z * noise[1] / (2 * safe)
    reach = np.sqrt(np.maximum(middle**2 + z * z * (noise[0] + sampling) / safe, 0.0))
    low, high = np.where(bounded, middle - reach, -np.inf), np.where(bounded, middle + reach, np.inf)
    return np.minimum(low, 0.0), np.maximum(high, 0.0)


@dataclass(frozen=True, eq=False)
class LeastSquares(LinearInference):
    """Least squares theta = A^-1 b of noisy moments A = mean z z' and b = mean z y, with intervals.

    Intervals are about least squares on *clipped* records in the population that they are independent draws
    from. T(t) = b - A t has mean 0 at the true t, and the variance S(t) = N(t) + s^2 A / n, where

        N(t) = sigma^2 / label_weight^2 I + (sigma^2 / 2) (|t|^2 I + t t') - sigma^2 t_c^2 e_c e_c'

    is the noise (entries of A off the diagonal occur twice; the square of a constant entry c of z has no
    noise), and s^2 the variance of the residuals, taken to be the same for all rows. It is estimated by mean
    y^2 - b' theta + tr(A^-1 S): noise and sampling bias the first two terms downwards by that trace. The
    interval of a number c' t holds every value v with (c' theta - v)^2 <= z^2 c' A^-1 S(t) A^-1 c, where t is
    the least-squares solution under the constraint c' t = v. There is no shrinkage in it.

    Attributes:
        moments: the release.
    """

    moments: NoisyMoments

    @property
    def dimension(self) -> int:
        return len(self.moments.products)

    @property
    def constant(self) -> float:
        return self.moments.constant

    @property
    def n_records(self) -> int:
        return self.moments.n_records

    @cached_property
    def signal_to_noise(self) -> float:
        return signal_to_noise(self.moments.features, self.moments.sigma)

    @cached_property
    def inverse(self) -> Floats:
        """A^-1; NoIntervalError where the noise hides A."""
        return noisy_inverse(self.moments.features, self.signal_to_noise)

    @cached_property
    def theta(self) -> Floats:
        return np.asarray(self.inverse @ self.moments.products)

    @cached_property
    def residual_variance(self) -> float:
        """Variance s^2 of residuals, at least 0."""
        m, theta = self.moments, self.theta
        trace, noise = float(np.trace(self.inverse)), m.sigma**2
        biased = noise * (1 / m.label_weight**2 + float(theta @ theta) / 2) * trace
        biased += noise / 2 * float(theta @ self.inverse @ theta)
        if m.constant:
            biased -= noise * float(theta[-1] ** 2 * self.inverse[-1, -1])
        found = m.square - float(m.products @ theta) + biased
        return max(found * m.n_records / max(m.n_records - len(theta), 1), 0.0)

    def bounds(self, C: Floats, z: float) -> Bounds:
        a = C @ self.inverse
        power = np.maximum(np.sum(C * a, axis=1), 1e-300)
        noise = self._noise(a, a / power[:, None])
        sampling = self._sampling(a, power, noise[0], z)
        low, high = fieller(noise, sampling, z)
        estimate, total = C @ self.theta, noise[0] + sampling
        share = np.divide(noise[0], total, out=np.zeros_like(total), where=total > 0)
        return Bounds(estimate, estimate + low, estimate + high, share)

    def _sampling(self, a: Floats, power: Floats, noise: Floats, z: float) -> Floats:
        """Return the sampling variance of a' T; ``power`` is c' A^-1 c = a' A a, ``noise`` the variance of
        the noise.
        """
        return np.asarray(self.residual_variance * power / self.moments.n_records)

    def _noise(self, a: Floats, along: Floats) -> tuple[Floats, Floats, Floats]:
        """Return a' N(theta + u along) a as a polynomial in u, its coefficients of shape (k,)."""
        m, theta = self.moments, self.theta
        squares, half = np.sum(a**2, axis=1), m.sigma**2 / 2
        ours, ahead = a @ theta, np.sum(a * along, axis=1)
        constant = squares * ((m.sigma / m.label_weight) ** 2 + half * float(theta @ theta)) + half * ours**2
        linear = 2 * half * (squares * (along @ theta) + ours * ahead)
        square = half * (squares * np.sum(along**2, axis=1) + ahead**2)
        if m.constant:
            last, own = 2 * half * a[:, -1] ** 2, along[:, -1]
            constant = constant - last * theta[-1] ** 2
            linear = linear - 2 * last * theta[-1] * own
            square = square - last * own**2
        return constant, linear, square

    def only(self, kept: NDArray[np.int64], spanned: Floats) -> Self:
        return replace(self, moments=self.moments.only(kept))

    def to_dict(self) -> dict[str, Any]:
        return {"moments": self.moments.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read ``to_dict`` back.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: not what ``to_dict`` returns.
        """
        return cls(NoisyMoments.from_dict(record["moments"]))
