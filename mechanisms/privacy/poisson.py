"""Calibration of noise for Poisson-sampled batches, by privacy loss distributions under replace-one.

Every record joins a batch independently with probability q, and noise of standard deviation z * C covers
contributions of norm at most C. Replacing a record moves the sum by up to 2 C when the record is sampled; the
dominating pair is (1-q) N(0) + q N(C) against (1-q) N(0) + q N(-C), in any dimension. (Given the other
records the pair is (1-q) N(0) + q N(x) against (1-q) N(0) + q N(x'). By advanced joint convexity (Balle,
Barthe and Gaboardi 2018) its delta is q E[(1 - a R)_+], a and b functions of q and epsilon, with R = (1-b)
N(0)/N(x) + b N(x')/N(x) under N(x): a sum of two lognormal variables of mean 1 whose logs have standard
deviations of at most C and 2 C. In convex order R is largest at the largest deviations and perfect
correlation, that is at x' = -x.)

dp-accounting's privacy loss distributions call this adjacency REPLACE, with standard deviation z. Their
losses are composed by ``loss_composition``, because dp-accounting's own composition has an error of about
steps * 2^-53 in delta. (Its Renyi accountant, which is not used, takes z = sigma / 2C. The version of
dp-accounting is pinned.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.grid_releases import DiscreteGaussianRelease
from privopt.mechanisms.privacy.loss_composition import Floats, LossLaw, composed_delta
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon

# Cell widths of the distributions. Losses are rounded up to cells, so the coarse width is valid as well, and
# fast. The search starts with it, which finds the answer within a few percent, and ends with the fine one.
_COARSE, FINE = 1e-3, 1e-4
_COARSE_TOLERANCE, _TOLERANCE = 1e-2, 2e-3
# The search does not go below this noise: the number of cells grows as its inverse square, and every
# distribution would take seconds.
_LEAST_NOISE = 0.2


def sampled_laws(z: float, q: float, steps: int, full_z: float, full_steps: int) -> list[tuple[LossLaw, int]]:
    """Return the losses of sampled releases and of those on all records, on the fine grid."""
    return _releases(z, q, steps, full_z, full_steps, FINE)


def gaussian_law(mu: float) -> LossLaw:
    """Return the loss of a mu-GDP release on the fine grid."""
    return _sampled(2 / mu, 1.0, FINE)  # contributions that differ by 2


def _releases(
    z: float, q: float, steps: int, full_z: float, full_steps: int, interval: float
) -> list[tuple[LossLaw, int]]:
    found = [(_sampled(z, q, interval), steps)]
    if full_steps:  # together they are one Gaussian release
        found.append((_sampled(full_z / math.sqrt(full_steps), 1.0, interval), 1))
    return found


@lru_cache(maxsize=256)
def poisson_multiplier(
    epsilon: float,
    delta: float,
    *,
    q: float,
    steps: int,
    coordinates: int,
    full_z: float = math.inf,
    full_steps: int = 0,
) -> float:
    """Return the smallest z (within 0.2%, rounded up) for which all releases are (epsilon, delta)-private.

    It is at least about 0.17. The search starts from above: the distribution of a far too small z would not
    fit in memory.

    Args:
        coordinates: number of coordinates that get noise on the grid; the distance of that noise from
            continuous Gaussians is paid out of delta.

    Raises:
        PrivacyParameterError: a parameter out of range, or no z found.
    """
    check_epsilon(epsilon), check_count(steps, "steps")
    if not 0 < q <= 1:
        raise PrivacyParameterError(f"the sampling probability must lie in (0, 1], got {q}")
    left = continuous_delta(epsilon, check_delta(delta), coordinates=coordinates)

    if full_steps and gaussian_epsilon(2 * math.sqrt(full_steps) / full_z, left) >= epsilon:
        raise PrivacyParameterError(
            f"the {full_steps} full steps alone spend epsilon = {epsilon:g}: no noise on the others can help"
        )

    def fits(z: float, interval: float) -> bool:
        return composed_delta(_releases(z, q, steps, full_z, full_steps, interval), epsilon) <= left

    # Central limit: mu = 2 q sqrt(steps) / z once z is not small.
    found = _smallest(fits, max(2 * q * math.sqrt(steps) / gaussian_mu(epsilon, left), 0.7))
    if found is None:
        raise PrivacyParameterError(
            f"no noise brings {steps} sampled and {full_steps} full steps to epsilon = {epsilon:g}"
        )
    return found


def _smallest(fits: Callable[[float, float], bool], start: float) -> float | None:
    """Return the smallest z that fits, first by a coarse grid; None if 1.2^29 times ``start`` does not."""
    high = start
    for _ in range(30):
        if fits(high, _COARSE):
            break
        high *= 1.2
    else:
        return None
    low = high / 1.2
    while low > _LEAST_NOISE and fits(low, _COARSE):
        high, low = low, low / 1.2
    high = _bisect(lambda z: fits(z, _COARSE), low, high, _COARSE_TOLERANCE)
    low = high
    while low > _LEAST_NOISE and fits(low, FINE):
        high, low = low, low * (1 - 2 * _COARSE_TOLERANCE)
    return _bisect(lambda z: fits(z, FINE), low, high, _TOLERANCE)


def grid_distance(coordinates: int) -> float:
    """Return the total variation distance of noise on the grid from continuous Gaussians."""
    return DiscreteGaussianRelease(1.0, 1.0, 1).distance_to_gaussian * coordinates


def continuous_delta(epsilon: float, delta: float, *, coordinates: int) -> float:
    """Return the delta that is left after paying for discrete Gaussians in place of continuous ones.

    Raises:
        PrivacyParameterError: less than half remains.
    """
    check_epsilon(epsilon)
    distance = grid_distance(coordinates)
    left = check_delta(delta) - (1 + math.exp(min(epsilon, 700.0))) * distance
    if left < delta / 2:
        raise PrivacyParameterError(
            f"delta = {delta:g} is too small for {coordinates} draws on the grid at epsilon = {epsilon:g}: "
            "use a larger delta, a smaller epsilon or fewer steps"
        )
    return left


def _bisect(fits: Callable[[float], bool], low: float, high: float, tolerance: float) -> float:
    """Bisect a bracket to a relative width; return its upper end, which satisfies the test."""
    while high - low > tolerance * high:
        middle = (low + high) / 2
        high, low = (middle, low) if fits(middle) else (high, middle)
    return high


def sampled_noise(z: float, bound: float, dimension: int) -> VectorNoise:
    """Return grid noise of standard deviation about z * bound for contributions of norm at most ``bound``.

    With and without a record, rounded sums differ by at most bound + sqrt(dimension) grid steps.
    """
    usable = 1 / z / (1 + 2.0**-39) - math.sqrt(dimension) * 2.0**-MAX_EXPONENT
    return VectorNoise(bound, bound / usable * (1 + 1e-12), dimension)


def poisson_batch(n: int, q: float, source: NoiseSource) -> NDArray[np.int64]:
    """Return sorted indices of a Poisson sample of 0..n-1, by geometric gaps (linear in the sample size)."""
    if q >= 1:
        return np.arange(n)
    rate = -math.log1p(-q)
    chosen: list[NDArray[np.int64]] = []
    at = -1
    while at < n:
        draws = int((n - at) * q * 1.1) + 16
        gaps = np.minimum(np.floor(source.exponential(draws) / rate), n).astype(np.int64) + 1
        chosen.append(at + np.cumsum(gaps))
        at = int(chosen[-1][-1])
    found = np.concatenate(chosen)
    return found[found < n]


@lru_cache(maxsize=8)
def _sampled(z: float, q: float, interval: float) -> LossLaw:
    # Imported here: it is slow to import, and few plans need it.
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss

    loss = GaussianPrivacyLoss(z, sampling_prob=q, adjacency_type=AdjacencyType.REPLACE)
    bounds = loss.connect_dots_bounds()
    first = math.floor(bounds.epsilon_lower / interval)
    last = math.ceil(bounds.epsilon_upper / interval)
    epsilons = np.arange(first, last + 1) * interval
    cuts = _outcomes_of_losses(epsilons, z, q)
    # This is what loss.get_delta_for_epsilon computes, but for all cuts in one pass: separate calls took most
    # of the time of a plan.
    deltas = np.clip(loss.mu_upper_cdf(cuts) - np.exp(epsilons + loss.mu_lower_log_cdf(cuts)), 0.0, 1.0)
    # The dominating pair is symmetric, so one law serves both directions. The fields read here are private
    # ones of the pinned version.
    law: Any = create_pmf_pessimistic_connect_dots_fixed_gap(interval, first, last, deltas).to_dense_pmf()
    return LossLaw(np.asarray(law._probs), law._lower_loss, law._discretization, law._infinity_mass)


def _outcomes_of_losses(losses: Floats, z: float, q: float) -> Floats:
    """Return the outcomes at which (1-q) N(0) + q N(-1) against (1-q) N(0) + q N(1) has these losses.

    The loss l at x satisfies sinh(l / 2 + x / z^2) = -alpha sinh(l / 2) with alpha = exp(1 / (2 z^2)) (1-q) /
    q. A delta is a maximum over cut points of the outcome, attained at the exact outcome, so rounding
    of that outcome hardly lowers delta.
    """
    if q == 1:
        return -losses * z**2 / 2
    half = np.abs(losses) / 2
    with np.errstate(divide="ignore"):  # log(0) = -inf, whose exponential is 0
        log_sinh = half + np.log(-np.expm1(-2 * half)) - math.log(2)
    logs = 0.5 / z**2 + math.log1p(-q) - math.log(q) + log_sinh
    # Beyond exp(300), arcsinh(y) = log(2 y) to the last digit.
    angles = np.where(logs < 300, np.arcsinh(np.exp(np.minimum(logs, 300.0))), logs + math.log(2))
    return np.asarray(z**2 * (-np.sign(losses) * angles - losses / 2))
