"""DP-SPIDER from a warm start: one noisy gradient, updated by noisy gradient differences."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, noise_at_level
from privopt.mechanisms.privacy.noise import MAX_EXPONENT
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Run, StepClock
from privopt.mechanisms.risk.mechanism import RealRelease, RiskTarget, SteppedMechanism
from privopt.mechanisms.risk.step_counts import MOST_STEPS, loss_range, whole_steps
from privopt.oracles.convex.smooth import SmoothCertificate
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk

# Bound on the expected growth of log |v|^2 by the noise of the differences.
_STRETCH = 0.3


@dataclass(frozen=True)
class SpiderRelease(RealRelease):
    """A released point and its trajectory, all of it covered by ``spend``.

    Attributes:
        trajectory: all iterates, shape (steps + 1, p).
    """

    trajectory: Vector = dataclasses.field(default_factory=lambda: np.empty((0, 0)), repr=False)


@dataclass(frozen=True)
class DPSpider(SteppedMechanism):
    """DP-SPIDER: w+ = w - (v + l2 w) / (L + l2), v a noisy gradient updated by noisy differences.

    First comes a warm start: ``warm`` steps of noisy gradient descent. Then comes a phase of differences: v
    is a noisy gradient at its first point, the anchor; after a step from w to w+, v+ = v + grad F(w+) - grad
    F(w) + noise. The shorter the steps, the smaller this noise. The gradient at the end is then about as long
    as the noise on a single gradient with most of the budget. Descent ends with a gradient as long as the
    noise on a single gradient when hundreds of gradients share the budget. So the method is better where
    minima are well curved; where F is flat, steps stay long and little is gained.

    Privacy: mu-GDP, stated as (epsilon, delta); neighbours by replacing one record, n public. Given the
    released values, w and w+ are fixed, and one record changes the computed difference by at most
    ``difference_sensitivity``, a public number: 2 min(2 G, L |w+ - w|) / n and rounding. Noise is
    ``multiplier`` times that number, so a difference is (1 / multiplier)-GDP, whatever the steps. Gradients
    have sensitivity 2 G / n. All are adaptive Gaussian releases, so they compose exactly: ``warm_share`` of
    mu^2 for the warm start, ``anchor_share`` of the rest for the anchor, and the remainder for differences
    (Dong, Roth and Su 2022, corollary 3.3). The whole trajectory is covered.

    Defaults, from public facts: the warm start runs until descent reaches its noise; the phase is as long as
    its noise allows (the noise is a multiple of |v|, and would make v grow: ``phase_length``). Shares were
    chosen on synthetic tasks, and so was a single phase: with several, each anchor has part of the budget and
    more noise.

    Source: Lowy, Ullman and Wright (2024) for the warm start, by any private method that makes F small;
    Arora, Bassily, Gonzalez, Guzman, Menart and Ullah (2023) for the recursion, after Fang, Li, Lin and Zhang
    (2018). Differences: all records in every step; exact accounting; one phase; the last iterate, where their
    theorems bound the gradient at a random one.

    Attributes:
        warm: steps of the warm start.
        phase: steps after it, the anchor's included.
        warm_noise, anchor_noise: noise of the gradients.
        multiplier: noise on a difference, in units of its sensitivity.
    """

    name: ClassVar[str] = "dp-spider"
    noised: ClassVar[str] = (
        "sigma_warm, sigma: the mean gradient, in a step of the warm start and at the anchor; multiplier: a "
        "difference of two, in units of its sensitivity"
    )
    takes_set: ClassVar[bool] = False
    takes_l1: ClassVar[bool] = False
    instead: ClassVar[str] = "use dp-pgd or dp-gd-so"
    warm_share: ClassVar[float] = 0.5
    anchor_share: ClassVar[float] = 0.75

    warm: int
    phase: int
    warm_noise: VectorNoise
    anchor_noise: VectorNoise
    multiplier: float

    @classmethod
    def _calibrated(cls, target: RiskTarget, steps: int | None = None) -> Self:
        """Calibrate; of the ``steps`` T, half, rounded up, are the warm start."""
        facts, regularizer, together = target.facts, target.regularizer, target.releases
        mu = gaussian_mu(target.epsilon, target.delta) * (1 - 1e-12)  # rounding of the sum of three squares
        if steps is None:
            warm, phase = cls._default_steps(facts, regularizer, mu / math.sqrt(together))
        else:
            phase = check_count(steps, "steps") // 2
            warm = steps - phase
        # At least one release of each kind is paid for, even if a run is too short for it.
        times = [together * max(1, k) for k in (warm, 1, phase - 1)]
        sizes = (facts.sensitivity, facts.sensitivity, 1.0)  # for differences see ``multiplier``
        warm_noise, anchor_noise, unit = noises = [
            noise_at_level(mu * math.sqrt(share), count, size, facts.dimension, facts.n_records)
            for share, count, size in zip(cls._shares(), times, sizes, strict=True)
        ]
        level = math.hypot(*(noise.level(count) for noise, count in zip(noises, times, strict=True)))
        spend = target.gdp_spend(cls.name, level)
        return cls(
            facts,
            target.convex_set,
            regularizer,
            spend,
            warm + phase,
            warm,
            phase,
            warm_noise,
            anchor_noise,
            unit.sigma,
        )

    @classmethod
    def _shares(cls) -> tuple[float, float, float]:
        """Return the shares of mu^2 for the warm start, the anchor and the differences."""
        rest = 1 - cls.warm_share
        return cls.warm_share, rest * cls.anchor_share, rest * (1 - cls.anchor_share)

    @classmethod
    def _default_steps(cls, facts: RiskFacts, regularizer: ElasticNet, mu: float) -> tuple[int, int]:
        """Return the number of steps in which a warm start reaches its noise, and the number in a phase.

        Descent has |grad F|^2 <= 2 L B / T for its best step. A phase has as many steps as its noise permits.
        """
        for_warm, _, for_differences = (mu * math.sqrt(share) for share in cls._shares())
        gain = 2 * loss_range(facts, WholeSpace(facts.dimension)) * (facts.smoothness + regularizer.l2)
        noise = facts.sensitivity * math.sqrt(facts.dimension) / for_warm
        most = MOST_STEPS // 2
        return whole_steps(math.sqrt(gain) / noise, most), whole_steps(
            phase_length(facts, for_differences), most
        )

    @property
    def noise(self) -> dict[str, float]:
        return {
            "sigma_warm": self.warm_noise.sigma,
            "sigma": self.anchor_noise.sigma,
            "multiplier": self.multiplier,
        }

    @property
    def step_sizes(self) -> tuple[float, float]:
        eta = 1 / (self.facts.smoothness + self.regularizer.l2)
        return eta, eta

    def difference_noise(self, w: Vector, before: Vector) -> VectorNoise:
        """Return the noise on the difference of the gradients at two released points."""
        bound = difference_sensitivity(self.facts, w, before)
        return VectorNoise(bound, self.multiplier * bound, self.facts.dimension)

    def _iterates(self, risk: TwiceDifferentiableRisk, run: Run) -> Iterator[Vector]:
        """Yield w_2, ..., w_{T+1}."""
        exact, drawn = risk.in_float64(), None  # float32 predictions are not Lipschitz in w
        if run.source is not None:
            drawn = run.source.discrete_gaussian_vectors(MAX_EXPONENT, run.start.size, self.steps)
        clock, eta, l2 = StepClock(run.watch, self.steps), self.step_sizes[0], self.regularizer.l2

        def noised(vector: Vector, noise: VectorNoise) -> Vector:
            return vector if drawn is None else noise.add_drawn(vector, next(drawn))

        w = before = run.start
        v = last = np.zeros_like(w)
        for k in range(self.steps):
            clock.tick()
            gradient = exact.gradient(w)
            if k < self.warm:
                v = noised(gradient, self.warm_noise)
            elif k == self.warm:
                v = noised(gradient, self.anchor_noise)
            else:
                v = v + noised(gradient - last, self.difference_noise(w, before))
            before, last, w = w, gradient, w - eta * (v + l2 * w)
            yield w

    def _compile(self, risk: TwiceDifferentiableRisk) -> None:
        risk.compile(exact=True)  # steps are computed in float64

    def _run(self, risk: TwiceDifferentiableRisk, run: Run) -> tuple[Vector, SmoothCertificate | None]:
        *_, w = self._iterates(risk, run)
        return w, None

    def _released(self, risk: TwiceDifferentiableRisk, run: Run, spend: PrivacySpend) -> SpiderRelease:
        path = [run.start, *self._iterates(risk, run)]
        return SpiderRelease(path[-1], spend, self.noise, trajectory=np.stack(path))


def difference_sensitivity(facts: RiskFacts, w: Vector, before: Vector) -> float:
    """Return the l2 sensitivity of the computed grad F(w) - grad F(before), replacing one record.

    It is 2 min(2 G, L |w - before|) / n, and rounding. With u = (d + 4) 2^-53: a computed |w - before| has
    relative error u; a prediction has the error u |w| times the length of its row, hence a gradient u L |w|
    (both are taken twice); a slope itself has 2^-50 of its bound at either point (taken 8 times). Each of the
    two sums has the error in ``facts.sensitivity``, which does not vanish with the distance.
    """
    unit = (facts.dimension + 4) * 2.0**-52
    lengths = float(np.linalg.norm(w) + np.linalg.norm(before))
    distance = float(np.linalg.norm(w - before)) * (1 + unit) + unit * lengths
    own = min(2 * facts.gradient_bound, facts.smoothness * distance + facts.gradient_bound * 2.0**-46)
    return (2 * own / facts.n_records + 4 * facts.gradient_bound * facts.rounding) * (1 + 2.0**-50)


def phase_length(facts: RiskFacts, mu: float) -> float:
    """Return the steps of a phase with mu-GDP differences whose noise does not make v grow.

    With m steps, noise on a difference is about 2 |v| sqrt(m) / (n mu) per coordinate, as steps are |v| / L
    long. The noise increases log |v|^2 by 4 d m^2 / (n mu)^2 on average; this increase is set to
    ``_STRETCH``.
    """
    return facts.n_records * mu * math.sqrt(_STRETCH / (4 * facts.dimension))
