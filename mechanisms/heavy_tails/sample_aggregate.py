"""Sample and aggregate: an estimator on disjoint subsets, a centre of its answers, Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from scipy.spatial.distance import cdist

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.heavy_tails.grid import NARROWEST, on_grid, rounding
from privopt.mechanisms.heavy_tails.mechanism import TableTarget
from privopt.mechanisms.heavy_tails.subsets import SubsetMechanism, check_subsets
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import (
    check_count,
    largest,
)
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.problems.convex.regularizers import Vector

# Upper bound on S: (1 + g) times the diameter, in radii, for the largest g. The noise is then at most this
# over gamma.
_WIDEST = 8.0


@dataclass(frozen=True)
class SampleAggregate(SubsetMechanism):
    """The centre of estimates on m disjoint random subsets, plus Gaussian noise in proportion to S, defined
    below.

    r_i(t) is the distance from the i-th estimate to its t-th nearest one (itself the first), and the diameter
    2R for t > m; rho(t) is the mean of the q smallest r_i(t). The centre is the estimate with the smallest
    r_i(t0), t0 = floor((m + 1) / 2) + 1.

    Privacy: (epsilon, delta)-differential privacy for any estimator whose answer depends on its own subset
    alone, neighbours by replacing one record, n public. Every subset gets a copy of the estimator made before
    data were seen (``FreshCopies`` says which state a copy cannot include: modules, classes, files). With S =
    (1 + g) max over k of rho(t0 + 1 + k) e^(-B k) and g = (q + 1) / (q - 1), the noise is S / gamma, gamma =
    epsilon / (5 sqrt(2 log(2/delta))), for log g + B = beta = epsilon / (4 (d + log(2/delta))) (Nissim,
    Raskhodnikova and Smith 2007, Lemma 2.7 with normal noise). These formulas are proved for epsilon up to
    about 2; for a larger epsilon the noise is calibrated to the largest part of epsilon that ``is_private``
    verifies.

    *Proof.* One record changes one estimate. An unchanged i has r'_i(t) <= r_i(t + 1). Of the q smallest
    r_i(t + 1) at most one belongs to the changed estimate. Let i be the unchanged estimate with the smallest
    r_i(t + 1) = r0. Within r0 of i lie t >= q unchanged estimates j, each with r'_j(t) <= 2 r0; one such j
    replaces the changed estimate among the q smallest. So rho'(t) <= (1 + 2 / (q - 1)) rho(t + 1) = g rho(t +
    1), and S' <= g e^B S. Balls around both centres hold t0 - 1 unchanged estimates each, more than half of
    the m - 1, so they share one, and the centres are no farther apart than rho(t0) + rho'(t0) <= (1 + g)
    rho(t0 + 1) <= S; likewise S'.

    Source: Wang, Xiao, Devadas and Xu (2020), Algorithm 1, after Nissim et al. Different here: subsets are
    disjoint (in the paper a record is in up to sqrt(m) subsets and changes as many estimates); the maximum
    over k continues beyond m, with the diameter, without which S is not smooth; and rho is the mean of the
    *smallest* distances, because one estimate can make the largest distance arbitrarily large. For single
    numbers of a finite range fewer subsets are enough, about log(1/delta) / epsilon, or larger subsets that
    overlap (Linder, Raskhodnikova, Smith and Steinke 2025; Steinke and Steinke 2026).

    Attributes:
        n_records: n.
        dimension: d.
        subsets: m.
        radius: R: estimates are projected onto the ball of that radius. Public.
        averaged: q.
        decay: B.
        gamma: the noise is S / gamma per coordinate.
        spend: the privacy claim.
    """

    name: ClassVar[str] = "sample-aggregate"
    noised: ClassVar[str] = "the centre of the estimates of the subsets, each coordinate"

    averaged: int
    decay: float
    gamma: float
    spend: PrivacySpend

    @classmethod
    def _calibrated(cls, target: TableTarget, *, subsets: int, radius: float) -> Self:
        """Calibrate to a target.

        Args:
            target: shape and budget.
            subsets: m; each gets n/m records, one more or less.
            radius: R, a bound on the l2 norm of estimates; longer ones are projected onto the ball.

        Raises:
            PrivacyParameterError: a parameter out of range; epsilon at most 2d/sqrt(m), where the noise would
                exceed the signal; or too few subsets for the proof.
        """
        n, d, epsilon, delta = target.n_records, target.dimension, target.epsilon, target.delta
        m = check_count(subsets, "subsets")
        check_subsets(m, n, radius)
        if epsilon <= 2 * d / math.sqrt(m):
            raise PrivacyParameterError(
                f"epsilon = {epsilon:g} is at most 2 d / sqrt(m) = {2 * d / math.sqrt(m):.3g}: the noise "
                f"would exceed the estimate. Use more than {math.ceil((2 * d / epsilon) ** 2)} subsets"
            )
        part = min(epsilon, largest(lambda x: is_private(x, epsilon, delta, d), start=epsilon))
        beta, gamma = _smooth_noise(part, delta, d)
        averaged = math.ceil(1 / math.tanh(beta / 4) + 1e-9)  # log((q + 1) / (q - 1)) <= beta / 2
        if averaged > (m + 1) // 2 + 1:
            raise PrivacyParameterError(
                f"{m} subsets are too few for the proof at epsilon = {epsilon:g}, delta = {delta:g}, d = "
                f"{d}: use at least {2 * averaged}"
            )
        decay = beta - math.log((averaged + 1) / (averaged - 1))
        spend = PrivacySpend.approximate(epsilon, delta, cls.name)
        return cls(n, d, m, float(radius), averaged, decay, gamma, spend)

    @property
    def noise(self) -> dict[str, float]:
        return {"gamma": self.gamma, "decay": self.decay, "averaged": self.averaged, "subsets": self.subsets}

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """Norm of the noise against the radius, if an estimate from k records is off by R sqrt(d / k).

        S is then 1 + g times the distance of two estimates. Their true distance depends on the records: where
        labels follow features closely, distance and noise are smaller. But S is at least a part that comes
        from the diameter, which is large with few subsets, however well the estimates agree. So the unit says
        what is assumed.
        """
        apart = min(2.0, math.sqrt(2 * self.dimension * self.subsets / self.n_records))
        beyond = self.subsets - self._first
        whole = 2.0 * math.exp(-self.decay * beyond)
        unit = (
            f"norm of the estimate, if two subsets' are {apart * self.radius:.2g} apart, less if not so far"
        )
        if whole >= apart:
            unit = "norm of the estimate, however well subsets agree: there are too few"
        noise = math.sqrt(self.dimension) * self._growth * max(apart, whole) / self.gamma
        return NoiseToSignal(noise * self.radius, self.radius, unit)

    def centre(self, estimates: Vector) -> tuple[Vector, float]:
        """Return the centre of m points of the unit ball, and S. Not private."""
        distances = np.sort(cdist(estimates, estimates), axis=1)
        best = int(np.argmin(distances[:, self._first - 1]))
        return estimates[best], self.sensitivity(distances)

    def sensitivity(self, distances: Vector) -> float:
        """Return S from the sorted distances of every estimate; at least gamma * 2^-16, a constant."""
        means = np.append(self.mean_distances(distances[:, self._first :]), 2.0)
        farthest = float(np.max(means * np.exp(-self.decay * np.arange(means.size))))
        return max(self._growth * farthest * (1 + 1e-9), self.gamma * NARROWEST)

    @property
    def _growth(self) -> float:
        """1 + g."""
        return 1 + (self.averaged + 1) / (self.averaged - 1)

    @property
    def _first(self) -> int:
        """Index of t0 + 1 in sorted distances, from 0."""
        return (self.subsets + 1) // 2 + 1

    def mean_distances(self, distances: Vector) -> Vector:
        """Return rho(t): for each column, the mean of the q smallest."""
        kept = np.partition(distances, self.averaged - 1, axis=0)[: self.averaged]
        return np.asarray(np.mean(kept, axis=0))

    def _noisy(self, estimates: Vector, source: NoiseSource) -> Vector:
        centre, scale = self.centre(estimates)
        return on_grid(centre + source.gaussian(scale / self.gamma, self.dimension)) * self.radius


def _smooth_noise(epsilon: float, delta: float, dimension: int) -> tuple[float, float]:
    """Return beta, a bound on the change of log S between neighbours, and gamma: the noise is S / gamma."""
    log = math.log(2 / delta)
    return epsilon / (4 * (dimension + log)), epsilon / (5 * math.sqrt(2 * log))


def is_private(part: float, epsilon: float, delta: float, dimension: int) -> bool:
    """Check a sufficient condition for (epsilon, delta)-privacy of noise planned for ``part``.

    In units of the noise on one data set, neighbours see N(0, I) and N(s, r^2 I), |s| <= gamma, |log r| <=
    beta. The privacy loss at z is d log r + |z - s|^2 / (2 r^2) - |z|^2 / 2. Outside an event of 3/4 delta,
    with L = log(2/delta), -<z, s> <= gamma sqrt(2 L) and |z|^2 <= d + 2 sqrt(d L) + 2 L (Laurent and Massart
    2000). There the loss is at most d beta + gamma sqrt(2 L) + gamma^2 / 2 for r >= 1, and for r = e^-l,

        (e^2l - 1) |z|^2 / 2 - d l + e^2l (gamma sqrt(2 L) + gamma^2 / 2),

    whose first part is convex in l and so largest at 0 or beta. The remaining quarter of delta covers the
    effect of rounding on events; its effect on epsilon is added.
    """
    beta, gamma = _smooth_noise(part, delta, dimension)
    log = math.log(2 / delta)
    if beta > 100 or part > epsilon:
        return False
    lost = dimension * rounding(_WIDEST / gamma)
    shifted = gamma * math.sqrt(2 * log) + gamma**2 / 2
    length = dimension + 2 * math.sqrt(dimension * log) + 2 * log
    wider = dimension * beta + shifted
    narrower = max(0.0, math.expm1(2 * beta) * length / 2 - dimension * beta) + math.exp(2 * beta) * shifted
    return max(wider, narrower) + lost <= epsilon * (1 - 1e-9) and lost <= 0.25
