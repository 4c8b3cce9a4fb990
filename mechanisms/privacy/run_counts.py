"""Random numbers of runs: the truncated negative binomial law, and the cost of choosing the best of so many
runs.

Setting (Liu and Talwar 2019; Papernot and Steinke 2022). A run is a release: a candidate drawn at random by
fresh public coins, a private model, and its private score. K runs are made, K drawn from a law on 1, 2, ...
that depends on no record; the best run by score is released, everything else stays hidden, K included.

Notation: f(x) = E[x^K]; a run has the law Q on the data, Q' on a neighbour. Runs are ordered by score, ties
at random, so no two are equal. With F(y) the probability that a run is worse than y, the released run has
the density Q(y) f'(F(y)): one of k runs is y, all others are worse.

Bound (``selection_epsilon``). Let (e1, d1) be a pair that a run satisfies, and C a bound on the ratio

    (g + (1 - g) Q'(S)) / (g + (1 - g) Q(S))   for all sets S and neighbours, g the ``stop`` of the law.

1. f'(x) is proportional to (1 - (1 - g) x)^-(shape + 1), and 1 - (1 - g) F(y) = g + (1 - g) Q(S) where S is
   the set of runs that are not worse than y. Hence f'(F) <= C^(shape + 1) f'(F') at every y.
2. For a set T of outcomes and e = e1 + (shape + 1) log C, the integral over T of Q f'(F) - exp(e) Q' f'(F')
   is at most the integral of f'(F) (Q - exp(e1) Q'), as f'(F') >= f'(F) / C^(shape + 1). f' increases to
   f'(1) = E[K], so this integral is at most E[K] d1.

So the choice satisfies (e1 + (shape + 1) log C, E[K] d1). A run is a mixture over candidates. If every
candidate satisfies (e1, d1) and the bound C, so does the mixture, as both conditions are linear in (Q(S),
Q'(S)).

Profile (``selection_profile``), for mu-GDP runs. The choice is a post-processing of all runs; K runs are
sqrt(K) mu-GDP together, and the law of K depends on no record, so delta(e) <= E[delta of sqrt(K) mu-GDP at e]
by convexity. For small e this bound is the better one. For large e the bound above is better: with e1 = e -
(1 + shape) log C >= 0, delta(e) <= E[K] delta_mu(e1).

Neighbours: any relation, the one under which runs are private; replace-one in this package.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_ceiling, gaussian_delta
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_positive, largest
from privopt.problems.arguments import check_real

Floats = NDArray[np.float64]

# The tail of the law is cut off where it holds less than _CUT of E[K]. The generating function of the law
# that is drawn from, and all its derivatives, are within a relative _LAW_ERROR of the exact ones: that covers
# the cut and the rounding of a million products of doubles.
_CUT, _LAW_ERROR = 1e-13, 1e-9
_MOST_RUNS = 1_000_000
# Relative gap at which the search for the largest ratio stops; the upper end is returned.
_RATIO_GAP = 1e-6
# Beyond this many standard deviations a normal tail changes a ratio by less than 1e-15.
_FAR = 9.0


@dataclass(frozen=True)
class RunCounts:
    """The truncated negative binomial law of a number of runs: P[k] ~ Gamma(k + shape) / k! (1 - stop)^k.

    f(x) = ((1 - (1 - stop) x)^-shape - 1) / (stop^-shape - 1); for shape 0 the logarithmic law, f(x) =
    log(1 - (1 - stop) x) / log(stop); for shape 1 the geometric law. The number 0 is excluded: there is
    always a run.

    Attributes:
        mean: E[K], > 1.
        shape: >= 0.

    Raises:
        PrivacyParameterError: out of range, or a law with runs beyond a million.
    """

    mean: float
    shape: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(check_real(self.mean, "mean")) and self.mean > 1):
            raise PrivacyParameterError(f"the mean number of runs must be finite and > 1, got {self.mean!r}")
        if not 0 <= check_real(self.shape, "shape") <= 100:
            raise PrivacyParameterError(f"shape must be from 0 to 100, got {self.shape!r}")

    @property
    def stop(self) -> float:
        """The probability g that fixes the mean."""
        return _stop(self.mean, self.shape)

    def draw(self, source: NoiseSource) -> int:
        """Draw a number of runs, by inversion of the tail: a uniform is exact relative to its size."""
        return 1 + int(np.count_nonzero(self.tail > source.uniform(1)[0]))

    @property
    def tail(self) -> Floats:
        """Probabilities P[K > k] for k = 1, 2, ..., up to the cut."""
        return _tail(self.mean, self.shape)

    def tried(self, candidates: int) -> float:
        """Return the probability that a given candidate, one of so many equally likely ones, is ever run."""
        return 1 - self.generating(1 - 1 / candidates)

    def generating(self, x: float) -> float:
        """Return f(x) = E[x^K], 0 <= x <= 1."""
        whole, part = math.log(self.stop), math.log1p(-(1 - self.stop) * x)
        if self.shape == 0:
            return part / whole
        return math.expm1(-self.shape * part) / math.expm1(-self.shape * whole)


@dataclass(frozen=True)
class RunClaim:
    """The privacy claim of every run: the pair (epsilon, delta), and mu-GDP where ``mu`` is not None."""

    epsilon: float
    delta: float
    mu: float | None = None

    def log_ratio(self, stop: float) -> float:
        """Return an upper bound on log C, with C as in the module's docstring."""
        if self.mu is None:
            return _log_ratio_of_pair(self.epsilon, self.delta, stop)
        return _log_ratio_of_gaussian(self.mu, stop)


def selection_epsilon(claim: RunClaim, law: RunCounts) -> float:
    """Return the epsilon of the best of a random number of runs, rounded up; its delta is
    ``selection_delta``.
    """
    slack = 3 * _LAW_ERROR  # f' is off by at most that factor, once above and once below
    return (claim.epsilon + (1 + law.shape) * claim.log_ratio(law.stop)) * (1 + 1e-14) + slack


def selection_delta(claim: RunClaim, law: RunCounts) -> float:
    """Return the delta of the best of a random number of runs, rounded up."""
    return claim.delta * law.mean * (1 + 2 * _LAW_ERROR)


def selection_profile(mu: float, law: RunCounts) -> Callable[[float], float]:
    """Return the function of epsilon >= 0 that bounds delta of the best of a random number of mu-GDP runs."""
    tails = np.concatenate([[1.0], law.tail])  # of the law that is drawn from: P[K >= k]
    levels = mu * np.sqrt(np.arange(1, len(tails) + 1)) * (1 + 1e-14)
    shift = selection_epsilon(RunClaim(0.0, 0.0, mu), law)

    def profile(epsilon: float) -> float:
        together = np.diff(gaussian_ceiling(levels, epsilon), prepend=0.0) @ tails * (1 + 1e-9)
        apart = (epsilon - shift) * (1 - 1e-13)
        if apart < 0:
            return min(1.0, float(together))
        alone = selection_delta(RunClaim(apart, gaussian_delta(mu, apart), mu), law)
        return min(1.0, float(together), alone)

    return profile


def run_delta(delta: float, law: RunCounts) -> float:
    """Return the delta of a run for which ``selection_delta`` is at most ``delta``."""
    return delta / law.mean * (1 - 3 * _LAW_ERROR)


def _log_ratio_of_pair(epsilon: float, delta: float, stop: float) -> float:
    """Return log C of (epsilon, delta): Q'(S) <= min(d + exp(e) a, 1 - exp(-e) (1 - d - a)), a = Q(S).

    The bound is concave and piecewise linear in a, so C is attained at a corner: a = 0, a = 1 - d, where the
    bound is 1, or where both lines meet, a = (1 - d) / (1 + exp(e)), where the bound is 1 - a.
    """
    middle = (1 - delta) * float(special.expit(-epsilon))
    corners = [(0.0, delta), (middle, 1 - middle), (1 - delta, 1.0)]
    ratios = [(stop + (1 - stop) * b) / (stop + (1 - stop) * a) for a, b in corners]
    return math.log(max(ratios)) * (1 + 1e-13) + 1e-15


@lru_cache(maxsize=256)
def _log_ratio_of_gaussian(mu: float, stop: float) -> float:
    """Return log C of mu-GDP: Q'(S) <= Phi(z + mu) where Q(S) = Phi(z); rounded up.

    Branch and bound: on an interval of z the ratio is at most the numerator at its right end over the
    denominator at its left one.
    """
    ends = np.linspace(-_FAR - mu, _FAR, 257)
    left, right = ends[:-1], ends[1:]

    def share(z: Floats) -> Floats:
        return np.asarray(stop + (1 - stop) * special.ndtr(z), dtype=np.float64)

    while True:
        bound = share(right + mu) / share(left)
        known = float(np.max(share(left + mu) / share(left)))
        tails = float(share(ends[:1] + mu)[0]) / stop, 1 / float(share(ends[-1:])[0])
        most = max(float(np.max(bound)), *tails)
        if most <= known * (1 + _RATIO_GAP):
            return math.log(most) * (1 + 1e-13) + 1e-14
        kept = bound > known
        left, right = left[kept], right[kept]
        middle = (left + right) / 2
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])


def _mean(stop: float, shape: float) -> float:
    """Return f'(1)."""
    if shape == 0:
        return (1 - stop) / (-stop * math.log(stop))
    return shape * (1 - stop) / (stop * -math.expm1(shape * math.log(stop)))


@lru_cache(maxsize=64)
def _stop(mean: float, shape: float) -> float:
    # ``stop`` is rounded up, so that the mean is at most the one asked for: fewer runs cost less.
    check_positive(mean - 1, "mean - 1")
    start = min(0.5, 1 / mean)
    stop = largest(lambda g: g < 1 and _mean(g, shape) >= mean, start=start)
    return min(stop * (1 + 1e-9), 1 - 1e-12)


@lru_cache(maxsize=16)
def _tail(mean: float, shape: float) -> Floats:
    """Return P[K > k] for k = 1, 2, ..., without the runs that are cut off."""
    stop = _stop(mean, shape)
    most = 2 + math.ceil((math.log(1 / _CUT) + 3 * math.log(mean + 2) + 2 * shape) / -math.log1p(-stop))
    if most > _MOST_RUNS:
        raise PrivacyParameterError(f"a mean of {mean:g} runs is too large: millions of runs would be likely")
    k = np.arange(1, most)
    weights = np.concatenate([[1.0], np.cumprod((k + shape) / (k + 1) * (1 - stop))])
    # The sums begin with the smallest weights, so that each is accurate relative to its size.
    tail = np.cumsum(weights[::-1])[::-1]
    return np.asarray(tail[1:] / tail[0])
