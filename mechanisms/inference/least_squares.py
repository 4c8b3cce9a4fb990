"""Confidence intervals (Fieller's) of least squares on clipped records, from one release of noisy moments."""

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

    If the solutions u are unbounded, both are infinite.

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
    """Least squares theta = A^-1 b from noisy moments of rows x and labels y, with intervals.

    The moments are A = mean x x' and b = mean x y, with the noise of ``NoisyMoments``: sigma and label_weight
    are its fields. Intervals are about least squares on *clipped* records, in the population from which the
    records are independent draws. T(t) = b - A t has mean 0 at the true t, and its variance is S(t) = N(t) +
    s^2 A / n. Here

        N(t) = sigma^2 / label_weight^2 I + (sigma^2 / 2) (|t|^2 I + t t') - sigma^2 t_k^2 e_k e_k'

    is the variance due to noise. Its last term is there only if entry k of x is constant (the last one), as
    its square has no noise; e_k is the unit vector. s^2 is the variance of the residuals, assumed to be the
    same for all rows. s^2 is estimated by mean y^2 - b' theta + tr(A^-1 S): noise and sampling bias the first
    two terms downwards by this trace.

    The interval of a number c' t consists of all values v with (c' theta - v)^2 <= q^2 c' A^-1 S(t) A^-1 c,
    where q is the normal quantile and t the least-squares solution under the constraint c' t = v. Estimates
    are not shrunk.

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
        """A^-1; raises NoIntervalError if the noise hides A."""
        return noisy_inverse(self.moments.features, self.signal_to_noise)

    @cached_property
    def theta(self) -> Floats:
        return np.asarray(self.inverse @ self.moments.products)

    @cached_property
    def residual_variance(self) -> float:
        """The estimated variance s^2 of residuals, at least 0."""
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
        """Return the sampling variance of a' T for rows a of ``a``.

        ``power`` is c' A^-1 c = a' A a, and ``noise`` is the variance of a' T due to noise.
        """
        return np.asarray(self.residual_variance * power / self.moments.n_records)

    def _noise(self, a: Floats, along: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the coefficients, each of shape (k,), of a' N(theta + u along) a as a polynomial in u."""
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
        """Return the inference of a record from ``to_dict``.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: the record is not from ``to_dict``.
        """
        return cls(NoisyMoments.from_dict(record["moments"]))
