"""Conversions between notions of privacy, rounded toward privacy: epsilon and delta up, mu and rho down.

Notation: a mechanism is mu-GDP if it is at least as private as one Gaussian release with
sensitivity / sigma = mu (Dong, Roth and Su 2022); rho-zCDP is defined by Bun and Steinke (2016). All
conversions preserve the neighbouring relation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    largest_below,
    smallest_below,
)

# SciPy is imported in the functions that use it, so that a ledger with the rule "basic" opens without it.
Floats = NDArray[np.float64]

# Number of cells of the Riemann sum over a bounded range, and a relative bound on the rounding error of that
# sum. A term is a difference of numbers that are thousands of times as large; the argument of a tail is at
# most about 40, and has a relative error of 1e-14.
_RANGE_CELLS, _RANGE_ROUNDING = 4096, 1e-9
# exp, erfcx and ndtr are accurate to a few units in the last place; this bound is a hundred units.
_ULPS = 2e-14
# Every delta of a Gaussian is increased by 1e-300 to cover terms that underflow. A delta so small that this
# increase would matter is refused.
_LEAST_DELTA = 1e-290


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Return the smallest delta of a mu-GDP mechanism at ``epsilon`` >= 0, rounded up.

    delta = Phi(-e/mu + mu/2) - exp(e) Phi(-e/mu - mu/2): Balle and Wang (2018), theorem 8.
    """
    value, error = _gaussian_deltas(mu, np.array([epsilon], dtype=np.float64))
    return min(1.0, float(value[0] + error[0]))


def _gaussian_deltas(mu: float | Floats, epsilon: Floats) -> tuple[Floats, Floats]:
    """Return the values of ``gaussian_delta`` before rounding up, and bounds on their errors; mu and epsilon
    broadcast.

    With near = e/mu - mu/2 and far = e/mu + mu/2, both terms of delta are exp(-near^2/2) times a scaled
    normal tail, so nothing overflows, and the error is a known multiple of the terms.
    """
    from scipy import special

    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    with np.errstate(over="ignore"):  # products that overflow are capped like infinities
        square, product = np.minimum(near * near, 1400.0), np.minimum(np.abs(near) * far, 1e200)
    weight = np.exp(-0.5 * square) / 2
    tail = weight * special.erfcx(np.maximum(near, 0.0) / math.sqrt(2))
    first = np.where(near > 0, tail, special.ndtr(-near))
    second = weight * special.erfcx(far / math.sqrt(2))
    # near may be a small difference of large numbers; its rounding error is relative to far.
    error = _ULPS * (1 + product) * (first + second) + 1e-300
    return np.maximum(first - second, 0.0), error


def gaussian_profile(mu: float, epsilon: Floats) -> Floats:
    """Return the smallest deltas of a mu-GDP mechanism at epsilons of any sign, rounded up; shape as given.

    For e < 0, delta(e) = 1 - exp(e) + exp(e) delta(-e), because the two laws of a Gaussian pair are mirror
    images.
    """
    value, error = _gaussian_deltas(mu, np.abs(epsilon))
    mirrored = -np.expm1(-np.abs(epsilon)) + np.exp(-np.abs(epsilon)) * (value + error)
    return np.minimum(np.where(epsilon < 0, mirrored * (1 + _ULPS), value + error), 1.0)


def gaussian_floor(mu: float, epsilon: Floats) -> Floats:
    """Return the smallest deltas of mu-GDP at epsilons >= 0, rounded down; shape as given."""
    value, error = _gaussian_deltas(mu, epsilon)
    return np.maximum(value - error, 0.0)


def gaussian_ceiling(mu: Floats, epsilon: float) -> Floats:
    """Return the smallest deltas of mu-GDP for several mu at epsilon >= 0, rounded up; shape of ``mu``."""
    value, error = _gaussian_deltas(mu, np.asarray(epsilon, dtype=np.float64))
    return np.minimum(value + error, 1.0)


def _check_gaussian_delta(delta: float) -> float:
    """Check delta as ``check_delta`` does, and refuse one that is near the underflow of Gaussian deltas."""
    if (checked := check_delta(delta)) < _LEAST_DELTA:
        raise PrivacyParameterError(
            f"delta = {delta!r} is too small for Gaussian noise, whose delta is computed in doubles: "
            f"at least {_LEAST_DELTA:g}, or use a mechanism of pure privacy"
        )
    return checked


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon of a mu-GDP mechanism at ``delta``, rounded up; 0 if ``delta`` is enough
    for it.
    """
    mu, delta = check_positive(mu, "mu"), _check_gaussian_delta(delta)
    if gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    return smallest_below(lambda e: gaussian_delta(mu, e), delta)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP implies (epsilon, delta), rounded down."""
    epsilon, delta = check_epsilon(epsilon), _check_gaussian_delta(delta)
    return largest_below(lambda mu: gaussian_delta(mu, epsilon), delta)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Return an epsilon such that rho-zCDP implies (epsilon, delta), rounded up.

    Canonne, Kamath and Steinke (2020), proposition 12: every order a > 1 gives
    a rho + log(1 / (a delta)) / (a - 1) + log(1 - 1/a). Every a gives a valid epsilon, so a search on a grid
    only loses tightness.
    """
    rho, delta = check_positive(rho, "rho"), check_delta(delta)
    # The best a - 1 lies near sqrt(log(1/delta) / rho), and is small only where delta is large.
    middle = min(max(math.sqrt(-math.log(delta) / rho), 1e-150), 1e150)
    excess = middle * np.geomspace(1e-3, 1e3, 601)
    for _ in range(3):
        values = _zcdp_epsilons(rho, delta, excess)
        best = int(np.argmin(values))
        excess = np.geomspace(excess[max(best - 1, 0)], excess[min(best + 1, excess.size - 1)], 201)
    epsilon = float(np.min(_zcdp_epsilons(rho, delta, excess)))
    return max(0.0, epsilon + _ULPS * (abs(epsilon) + rho - math.log(delta) + 1))


def _zcdp_epsilons(rho: float, delta: float, excess: Floats) -> Floats:
    order = 1 + excess
    with np.errstate(over="ignore"):  # an overflow gives infinity, a valid bound
        values = order * rho - (math.log(delta) + np.log(order)) / excess - np.log1p(1 / excess)
    return np.where(np.isnan(values), np.inf, values)  # no bound at that order


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which ``zcdp_epsilon`` is at most ``epsilon``, rounded down."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    return largest_below(lambda rho: zcdp_epsilon(rho, delta), epsilon)


def pure_to_gdp(epsilon: float) -> float:
    """Return the least mu for which every epsilon-DP release is mu-GDP, rounded up.

    mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)). The trade-off curve of epsilon-DP is two straight lines that
    meet on the diagonal, at 1 / (1 + e^epsilon). The curve of mu-GDP is convex and has the same ends. With
    this mu the curve also passes through that point, so the curve lies below both lines. For the two curves
    see Dong, Roth and Su (2022), section 2.
    """
    from scipy import special

    epsilon = check_epsilon(epsilon)
    if epsilon < 1:  # 1 / (1 + e^epsilon) would lose digits of epsilon
        mu = 2 * math.sqrt(2) * float(special.erfinv(math.tanh(epsilon / 2)))
    else:
        mu = -2 * float(special.ndtri_exp(special.log_expit(-epsilon)))
    return mu * (1 + 1e-12)


def bounded_range_to_zcdp(epsilon: float) -> float:
    """Return rho = epsilon^2 / 8 of an epsilon-bounded-range release: Cesar and Rogers (2021), lemma 3.4.

    The exponential mechanism and report-noisy-max with Gumbel noise have bounded range (Durfee and Rogers
    2019); noisy max with Laplace noise and permute-and-flip do not.
    """
    return check_epsilon(epsilon) ** 2 / 8


def beside_range_delta(mu: float, width: float, epsilon: float) -> float:
    """Return delta at ``epsilon`` >= 0 of a mu-GDP release followed by one of bounded range ``width``.

    A release has bounded range w if, for neighbours, the logarithm of its likelihood ratio lies in an
    interval of width w. Let h(x) be the largest delta at x of such a release, L the loss of mu-GDP, a normal
    variable with mean mu^2 / 2 and variance mu^2. Then delta <= E h(epsilon - L):

    - For an outcome y of the first release with loss l(y), the second release adds at most h(epsilon - l(y)),
      as it has range w for every y. h(log c) is a maximum of convex functions of c, hence convex, so r
      h(epsilon - log r) is convex in r (a perspective). So the mean over y is an f-divergence, which among
      mu-GDP releases is largest for two Gaussians (Dong, Roth and Su 2022, theorem 2.10: all others are
      post-processings of them).
    - The likelihood ratio r of the second release lies in [e^(t-w), e^t] for a t in [0, w], and has the mean
      1 under the neighbour. The mean of (r - e^x)+, which is convex in r, is largest when r takes only the
      two ends of that interval. For |x| <= w it is then (1 - e^(t-w)) (1 - e^(x-t)) / (1 - e^-w), and t = (x
      + w) / 2 is worst (Dong, Durfee and Rogers 2020). So h(x) = (1 - e^((x-w)/2))^2 / (1 - e^-w) for |x| <=
      w, 0 for larger x, and 1 - e^x for smaller x.

    Integration by parts gives e^-w gaussian_delta(epsilon + w) plus the integral of -h'(x) P[L > epsilon - x]
    over |x| <= w, which is bounded by an upper Riemann sum.
    """
    from scipy import special

    x = np.linspace(-width, width, _RANGE_CELLS + 1)
    root = -np.expm1((x - width) / 2)
    falls = (root[:-1] - root[1:]) * (root[:-1] + root[1:]) / -math.expm1(-width)
    above = special.ndtr((x[1:] - epsilon) / mu + mu / 2)
    middle = float(np.sum(falls * above)) * (1 + _RANGE_ROUNDING)
    return min(1.0, middle + math.exp(-width) * gaussian_delta(mu, epsilon + width))


def mu_beside_range(epsilon: float, delta: float, width: float) -> float:
    """Return the largest mu, rounded down, such that a mu-GDP release and one of bounded range ``width`` are
    (epsilon, delta)-private together.
    """
    epsilon, delta = check_epsilon(epsilon), _check_gaussian_delta(delta)
    width = check_positive(width, "width")
    return largest_below(lambda mu: beside_range_delta(mu, width, epsilon), delta)


def bounded_range_step_epsilon(epsilon: float, delta: float, steps: int) -> float:
    """Return the epsilon of each of ``steps`` bounded-range releases that compose to (epsilon, delta)."""
    return math.sqrt(8 * zcdp_rho(epsilon, delta) / check_count(steps, "steps")) * (1 - 1e-15)
