"""Conversions between notions of privacy. Every one rounds toward privacy: epsilon, delta up; mu, rho down.

Notation: a mechanism is mu-GDP if it is at least as private as one Gaussian release with
sensitivity / sigma = mu (Dong, Roth and Su 2022); rho-zCDP as in Bun and Steinke (2016). All conversions
keep the neighbouring relation of what they are given.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.parameters import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    largest,
    smallest,
)

# exp, erfcx and ndtr are good to a few units in the last place; this is a hundred of them.
_ULPS = 2e-14


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The smallest delta of a mu-GDP mechanism at ``epsilon`` >= 0, rounded up.

    delta = Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2): Balle and Wang (2018), theorem 8. With
    near = e/mu - mu/2 and far = e/mu + mu/2 both terms are exp(-near^2/2) times a scaled tail, so nothing
    overflows, and the error is a known multiple of their size.
    """
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    weight = math.exp(-0.5 * near * near) / 2 if abs(near) < 38 else 0.0
    second = weight * float(special.erfcx(far / math.sqrt(2)))
    first = weight * float(special.erfcx(near / math.sqrt(2))) if near > 0 else float(special.ndtr(-near))
    error = _ULPS * (1 + near * near) * (first + second)
    return min(1.0, max(first - second, 0.0) + error + 1e-300)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon of a mu-GDP mechanism at ``delta``, rounded up; 0 if delta alone suffices."""
    mu, delta = check_positive(mu, "mu"), check_delta(delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return smallest(lambda e: gaussian_delta(mu, e) <= delta)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu for which mu-GDP implies (epsilon, delta), rounded down."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    return largest(lambda mu: gaussian_delta(mu, epsilon) <= delta)


def gaussian_noise_multiplier(epsilon: float, delta: float, steps: int = 1) -> float:
    """sigma / sensitivity for ``steps`` full-batch Gaussian releases, adaptively chosen; rounded up.

    Such a sequence is exactly one Gaussian release with mu = sqrt(steps) sensitivity / sigma.
    """
    return math.sqrt(check_count(steps, "steps")) / gaussian_mu(epsilon, delta) * (1 + 1e-15)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """An epsilon such that rho-zCDP implies (epsilon, delta), rounded up.

    Canonne, Kamath and Steinke (2020), proposition 12: every order a > 1 gives
    a rho + log(1 / (a delta)) / (a - 1) + log(1 - 1/a). A grid search over a can only lose tightness.
    """
    rho, delta = check_positive(rho, "rho"), check_delta(delta)
    # The best a - 1 lies near sqrt(log(1/delta) / rho), and is small only where delta is large.
    excess = math.sqrt(-math.log(delta) / rho) * np.geomspace(1e-3, 1e3, 601)
    for _ in range(3):
        values = _zcdp_epsilons(rho, delta, excess)
        best = int(np.argmin(values))
        excess = np.geomspace(excess[max(best - 1, 0)], excess[min(best + 1, excess.size - 1)], 201)
    epsilon = float(np.min(_zcdp_epsilons(rho, delta, excess)))
    return max(0.0, epsilon + _ULPS * (abs(epsilon) + rho - math.log(delta) + 1))


def _zcdp_epsilons(rho: float, delta: float, excess: NDArray[np.float64]) -> NDArray[np.float64]:
    order = 1 + excess
    values: NDArray[np.float64] = (
        order * rho - (math.log(delta) + np.log(order)) / excess - np.log1p(1 / excess)
    )
    return values


def zcdp_rho(epsilon: float, delta: float) -> float:
    """The largest rho for which ``zcdp_epsilon`` stays within ``epsilon``, rounded down."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    return largest(lambda rho: zcdp_epsilon(rho, delta) <= epsilon)


def pure_to_zcdp(epsilon: float) -> float:
    """rho = epsilon^2 / 2 of an epsilon-DP release: Bun and Steinke (2016), proposition 3.3."""
    return check_epsilon(epsilon) ** 2 / 2


def bounded_range_to_zcdp(epsilon: float) -> float:
    """rho = epsilon^2 / 8 of an epsilon-bounded-range release: Cesar and Rogers (2021), lemma 3.4.

    Exponential mechanism and report-noisy-max with Gumbel noise are of bounded range (Durfee and Rogers
    2019); noisy max with Laplace noise and permute-and-flip are not.
    """
    return check_epsilon(epsilon) ** 2 / 8


def bounded_range_step_epsilon(epsilon: float, delta: float, steps: int) -> float:
    """The epsilon of each of ``steps`` bounded-range releases that together satisfy (epsilon, delta)."""
    return math.sqrt(8 * zcdp_rho(epsilon, delta) / check_count(steps, "steps")) * (1 - 1e-15)
