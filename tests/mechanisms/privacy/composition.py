"""An independent account of sequences of releases, sampled, full and pure, by their privacy loss laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.loss_composition import composed_delta
from privopt.mechanisms.privacy.parameters import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    smallest,
    smallest_below,
)
from privopt.mechanisms.privacy.poisson import sampled_laws
from privopt.mechanisms.privacy.shifts import shift_delta

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GaussianSteps:
    """``count`` releases of a sum over a Poisson sample, plus Gaussian noise.

    Every record joins each sample independently with probability ``sampling_rate`` and contributes a vector
    of norm at most C, chosen knowing earlier releases. Neighbours: replace-one.

    Attributes:
        noise_multiplier: sigma / sensitivity, where the sensitivity is 2 C as under full batches.
        sampling_rate: in (0, 1]; 1 is the full batch.
        count: number of releases.
    """

    noise_multiplier: float
    sampling_rate: float = 1.0
    count: int = 1

    def __post_init__(self) -> None:
        check_positive(self.noise_multiplier, "noise_multiplier")
        if check_positive(self.sampling_rate, "sampling_rate") > 1:
            raise PrivacyParameterError(f"sampling_rate must be at most 1, got {self.sampling_rate!r}")
        check_count(self.count, "count")

    def deltas(self, epsilon: Floats) -> Floats:
        """Delta of one release at each epsilon >= 0, to rounding.

        That of (1-q) N(0) + q N(C) against (1-q) N(0) + q N(-C), which dominates in any dimension (proof in
        ``privopt.mechanisms.privacy.poisson``). With sigma = 1 the likelihood ratio grows with x, and equals
        exp(e) where exp(C x) solves a quadratic: the best event is a half-line.
        """
        from scipy import special

        q, c = self.sampling_rate, 1 / (2 * self.noise_multiplier)
        with np.errstate(divide="ignore"):
            stays, joins = np.log1p(-q), math.log(q)
            grown = epsilon + np.log1p(-np.exp(-epsilon))  # log(exp(e) - 1)
        tilt = stays + grown - epsilon / 2 - math.log(2) - joins + c * c / 2
        # asinh(exp(tilt)), which is tilt + log 2 long before exp overflows.
        root = np.where(tilt < 20, np.arcsinh(np.exp(np.minimum(tilt, 20))), tilt + math.log(2))
        x = (epsilon / 2 + root) / c
        above = (1 - q) * special.ndtr(-x) + q * special.ndtr(c - x)
        other = np.exp(epsilon + stays + special.log_ndtr(-x)) + np.exp(
            epsilon + joins + special.log_ndtr(-x - c)
        )
        return np.asarray(np.maximum(above - other, 0.0))


@dataclass(frozen=True)
class PureSteps:
    """``count`` releases, each ``epsilon``-differentially private (pure)."""

    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_count(self.count, "count")

    def deltas(self, epsilon: Floats) -> Floats:
        """Delta of randomized response, the worst pure mechanism: Kairouz, Oh and Viswanath (2015)."""
        gap = np.maximum(0.0, -np.expm1(epsilon - self.epsilon))
        return np.asarray(gap / (1 + math.exp(-self.epsilon)))


Steps = GaussianSteps | PureSteps


def composed_epsilon(steps: Sequence[Steps], delta: float) -> float:
    """An epsilon for an adaptive sequence of releases, rounded up up to floating point; 1e-10 <= delta < 1.

    Each curve of deltas is turned into a discrete privacy loss distribution that dominates it (Doroshenko et
    al. 2022) and these are convolved.
    """
    delta = check_delta(delta)
    if delta < _SMALLEST_DELTA:
        raise PrivacyParameterError(
            f"compositions are computed for delta >= {_SMALLEST_DELTA:g}, got {delta!r}; "
            f"for full batches use gaussian_epsilon"
        )
    if not steps:
        raise PrivacyParameterError("nothing to compose: give at least one kind of step")
    total = sum(s.count for s in steps)
    if (left := delta - total * _CONVOLUTION) < delta / 2:
        raise PrivacyParameterError(
            f"delta = {delta:g} is too small for {total} steps: the rounding of their convolution is up to "
            f"{total * _CONVOLUTION:.2g}; use a larger delta, or for full batches gaussian_epsilon"
        )
    supports = [_support(s, 1e-3 * delta / total) for s in steps]
    interval = max(_INTERVAL, max(supports) / _MOST_CELLS)
    composed: PrivacyLossDistribution | None = None
    for step, support in zip(steps, supports, strict=True):
        law = _loss_distribution(step, support, interval).self_compose(step.count)
        composed = law if composed is None else composed.compose(law)
    assert composed is not None
    return float(composed.get_epsilon_for_delta(left)) * (1 + 1e-9)


# Grid of the loss distributions; a coarser one is still an upper bound.
_INTERVAL = 1e-4
_MOST_CELLS = 200_000
# A relative error of 2^-53 in the transform of a law is count * 2^-53 in its power, and moves about as much
# mass. Against the closed form for full batches at most 0.4 of that was seen, for up to 10^6 steps.
_CONVOLUTION = 2.0**-51
# Below this, the rounding errors of convolutions by Fourier transform are no longer small.
_SMALLEST_DELTA = 1e-10


def _support(step: Steps, delta: float) -> float:
    """An epsilon beyond which one release loses at most ``delta``."""
    return smallest(lambda e: bool(step.deltas(np.array([e]))[0] <= delta), width=0.1)


def _loss_distribution(step: Steps, support: float, interval: float) -> PrivacyLossDistribution:
    # Imported here: the package takes a second to load and most users never need it.
    from dp_accounting.pld import pld_pmf, privacy_loss_distribution

    cells = math.ceil(support / interval)
    epsilon = np.arange(cells + 1, dtype=np.float64) * np.float64(interval)
    deltas = step.deltas(epsilon)
    # The relation is symmetric, so the curve at -e follows from that at e.
    mirrored = -np.expm1(-epsilon) + np.exp(-epsilon) * deltas
    curve = np.concatenate([mirrored[:0:-1], deltas])
    # Negative masses would not be a law. Convexity at e >= 0 and across 0 implies it everywhere.
    weight = np.exp(np.arange(-1, cells + 1) * interval)
    slopes = np.diff(curve[cells - 1 :]) / np.diff(weight)
    if np.any(np.diff(slopes) * weight[1:-1] < -1e-9):
        raise PrivacyParameterError("the privacy curve is not convex at these parameters; use more noise")
    pmf = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, -cells, cells, curve)
    return privacy_loss_distribution.PrivacyLossDistribution(pmf)


def poisson_epsilon(
    z: float, *, q: float, steps: int, delta: float, full_z: float = math.inf, full_steps: int = 0
) -> float:
    """Epsilon of the laws by which privopt calibrates sampled and full-batch releases, rounded up."""
    laws = sampled_laws(z, q, steps, full_z, full_steps)
    if math.fsum(count * law.infinite for law, count in laws) > delta:
        return math.inf
    return smallest(lambda epsilon: composed_delta(laws, epsilon) <= delta, width=1e-4)


def shift_epsilon(delta: float, sigma: float, shift: float, dof: int) -> float:
    """Nearly the smallest epsilon with ``shift_delta`` <= delta, rounded up; 0 if delta alone suffices."""
    if shift_delta(0.0, sigma, shift, dof) <= delta:
        return 0.0
    return smallest_below(lambda epsilon: shift_delta(epsilon, sigma, shift, dof), delta)
