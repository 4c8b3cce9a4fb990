"""Composition by privacy profiles: of sampled, selected, Gaussian, pure and other releases together.

Each release is dominated by a pair of laws, and their composition by the pair of products (Zhu, Dong and
Wang 2022, theorem 10): sampled releases by the pair in ``poisson``; mu-GDP by N(mu, 1) and N(0, 1); (epsilon,
delta)-DP, pure included, by randomised response that discloses everything with probability delta (Kairouz,
Oh and Viswanath 2015). All of these pairs are symmetric. Parameters of the releases (noise, sampling, number)
must not depend on results of earlier ones; their queries may.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy import optimize

from privopt.mechanisms.privacy.accounting import gaussian_floor, gaussian_mu, pure_to_gdp
from privopt.mechanisms.privacy.events import Event, SampledGaussian, SelectedGaussian
from privopt.mechanisms.privacy.loss_composition import LossLaw, composed_delta
from privopt.mechanisms.privacy.parameters import smallest
from privopt.mechanisms.privacy.poisson import FINE, gaussian_law, sampled_laws
from privopt.mechanisms.privacy.run_counts import RunCounts, selection_profile
from privopt.mechanisms.privacy.spend import PrivacySpend

# Releases with a larger mu or epsilon are not composed by their laws: these would take too many cells, and
# composing them would gain nothing.
_MOST_MU, _MOST_EPSILON = 8.0, 40.0
# Relative distance of the returned epsilon to the smallest.
_TOLERANCE = 5e-4

# The share of a release's delta that is reserved for the probability that its Gaussian does not cover. With a
# smaller share the mu of the Gaussian is hardly larger: by 0.1% to 1% for plans of a hundred to a thousand
# steps.
_DISCLOSED = 1 / 1024
# Numbers of points at which the profile is computed, and of comparisons with the Gaussian between two of
# them.
_POINTS, _BETWEEN = 32, 64
# For a larger epsilon the profile takes minutes to compute.
_MOST_COVERED = 10.0


def profile_epsilon(spends: Sequence[PrivacySpend], delta: float, most: float) -> float:
    """Return the epsilon of all releases at ``delta``, rounded up, but at most ``most``."""
    laws = _laws(spends)
    if laws is None or not math.isfinite(most):
        return most
    if math.fsum(count * law.infinite for law, count in laws) >= delta:
        return most

    sampled = [spend.event for spend in spends if isinstance(spend.event, SampledGaussian)]

    def excess(epsilon: float) -> float:
        grid = math.fsum(event.delta_of_grid(epsilon) for event in sampled)
        found = composed_delta(laws, epsilon) + grid
        return math.log(max(found, 5e-324) / (delta * (1 - 2.0**-40)))

    low = most * _TOLERANCE
    if excess(most) >= 0:
        return most
    root = low if excess(low) <= 0 else optimize.brentq(excess, low, most, rtol=_TOLERANCE, xtol=low)
    for epsilon in (root * (1 + _TOLERANCE), root * (1 + 4 * _TOLERANCE)):
        if excess(epsilon) <= 0:
            return min(epsilon, most)
    return most


def with_gaussian(spend: PrivacySpend) -> PrivacySpend:
    """Return the spend with the mu of a Gaussian release in its event. The release of the spend is at least
    as private as this Gaussian release, except with a small probability.
    """
    if spend.event is None or spend.event.mu is not None:
        return spend
    mu, disclosed = _gaussian_above(spend.event)
    return replace(spend, event=replace(spend.event, mu=mu, disclosed=disclosed))


@lru_cache(maxsize=64)
def _gaussian_above(event: Event) -> tuple[float, float]:
    """Return mu and c such that the release is a post-processing of one that is mu-GDP, and discloses
    everything with probability c.

    With delta(e) the profile of the release, mu and c are valid if delta(e) <= c + (1 - c) delta_mu(e) for
    all e >= 0 (Blackwell's theorem; for e < 0 the same follows by symmetry). delta is convex in exp(e), so
    between the points at which bounds on it are computed delta lies below the chords of these bounds. Both
    sides decrease in e, so the chord at each point of a finer grid is compared with the Gaussian at the next
    point. Beyond the last point delta is at most c.
    """
    disclosed, pure = event.delta * _DISCLOSED, (pure_to_gdp(event.epsilon), event.delta)
    if event.epsilon > _MOST_COVERED:
        return pure
    profile = _profile(event)
    last = event.epsilon
    while profile(last) > disclosed:
        last *= 1.1
        if last > 16 * event.epsilon:  # then the pair alone is used
            return pure
    points = np.linspace(0.0, last, _POINTS + 1)
    # At 0 from a point next to it: delta(0) - delta(e) <= exp(e) - 1.
    deltas = [profile(float(e)) for e in (1e-6 * last, *points[1:])]
    deltas[0] += 1.1e-6 * last * math.exp(last)
    fine = np.linspace(0.0, last, _POINTS * _BETWEEN + 1)
    chords = np.interp(np.exp(fine[:-1]), np.exp(points), deltas) * (1 + 2.0**-40)

    def covers(mu: float) -> bool:
        least = disclosed + (1 - disclosed) * gaussian_floor(mu, fine[1:])
        return bool(np.all(chords <= least * (1 - 2.0**-40)))

    if not covers(pure[0]):
        return pure
    return smallest(covers, start=gaussian_mu(event.epsilon, event.delta), ratio=1.001), disclosed


def _profile(event: Event) -> Callable[[float], float]:
    """Return the function of epsilon that bounds the delta of a release."""
    if isinstance(event, SelectedGaussian):
        return selection_profile(event.run_mu, RunCounts(event.mean, event.shape))
    laws = sampled_laws(event.z, event.q, event.steps, event.full_z or math.inf, event.full_steps)
    return lambda epsilon: min(1.0, composed_delta(laws, epsilon) + event.delta_of_grid(epsilon))


def _laws(spends: Sequence[PrivacySpend]) -> list[tuple[LossLaw, int]] | None:
    """Return the laws of all releases on one grid, with their numbers; None if they take too many cells."""
    mu, found = 0.0, []
    pairs: Counter[tuple[float, float]] = Counter()
    sampled = Counter(s.event for s in spends if isinstance(s.event, SampledGaussian))
    for event, number in sampled.items():
        laws = sampled_laws(event.z, event.q, event.steps, event.full_z or math.inf, event.full_steps)
        found += [(law, count * number) for law, count in laws]
    for spend in spends:
        if spend.notion == "gdp" and spend.level is not None:
            mu = math.hypot(mu, spend.level)
        elif isinstance(spend.event, SelectedGaussian):
            level, disclosed = _gaussian_above(spend.event)
            mu = math.hypot(mu, level)
            pairs[0.0, disclosed] += 1
        elif spend.event is None:
            pairs[spend.epsilon, spend.delta] += 1
    if mu > _MOST_MU or any(epsilon > _MOST_EPSILON for epsilon, _ in pairs):
        return None
    if mu:
        found.append((gaussian_law(mu * (1 + 2.0**-40)), 1))
    return [*found, *((_response(*pair), number) for pair, number in pairs.items())]


def _response(epsilon: float, delta: float) -> LossLaw:
    """Return the law of randomised response: losses epsilon and -epsilon, rounded up, and infinity."""
    up, down = math.ceil(epsilon / FINE * (1 + 2.0**-40)), -math.floor(epsilon / FINE * (1 - 2.0**-40))
    masses = np.zeros(up - down + 1)
    masses[-1] = (1 - delta) / (1 + math.exp(-epsilon))
    masses[0] += (1 - delta) / (1 + math.exp(epsilon))
    return LossLaw(masses, down, FINE, delta)
