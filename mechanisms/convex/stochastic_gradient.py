"""DP-SGD on Poisson batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, shared_by
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon
from privopt.mechanisms.privacy.poisson import poisson_batch, poisson_multiplier, sampled_noise
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import (
    Method,
    Output,
    Perturb,
    StepClock,
    choose_output,
    noisy_iteration,
)
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.mechanisms.risk.sampling import (
    MOST_SAMPLED_STEPS,
    TOGETHER,
    balanced_batch,
    record_bound,
    sampling_rate,
    typical_gradient,
)
from privopt.mechanisms.risk.sets import checked_space
from privopt.mechanisms.risk.step_counts import euclidean_steps, typical_distance
from privopt.oracles.convex.prox import prox_step
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet


@dataclass(frozen=True)
class DPStochasticGradient(RiskMechanism):
    """DP-SGD: x+ = prox of x - eta (sum over a Poisson batch of gradients + noise) / (q n).

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public. One record
    contributes at most G without any clipping, because the loss is Lipschitz and rows are clipped; privacy
    amplification by Poisson sampling, composed as privacy loss distributions.

    Defaults: at equal privacy T sampled steps carry the noise of T full ones, so T is that of DP-GD, though
    up to 5000, and a batch is as small as it can be without costing accuracy (``balanced_batch``). The step
    size minimises the bound D^2 / (2 eta T) + eta V, V the variance of a noisy step, up to 1 / (L + l2); for
    convex losses iterates are averaged with weights 1, 2, ..., which forgets the start.

    Source: Abadi et al. (2016); Bassily, Smith and Thakurta (2014); the average: Shamir and Zhang (2013).
    """

    name: ClassVar[str] = "dp-sgd"
    noised: ClassVar[str] = "a batch's mean gradient, each coordinate, every step"
    by_sums: ClassVar[bool] = False

    sampling: float
    vector_noise: VectorNoise
    step_size: float

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet | None = None,
        regularizer: ElasticNet = NO_REGULARIZER,
        *,
        epsilon: float,
        delta: float,
        steps: int | None = None,
        output: Output | None = None,
        batch: int | None = None,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            batch: the expected batch size q n. The other arguments are those of ``FullBatchMechanism.plan``;
                several releases are accounted together, as one sequence of steps.
        """
        check_epsilon(epsilon), check_delta(delta)
        space = checked_space(facts, convex_set, regularizer)
        share = gaussian_mu(epsilon, delta) / math.sqrt(check_count(releases, "releases"))
        longest = 1 / (facts.smoothness + regularizer.l2)
        if steps is None:
            mu = share / facts.sensitivity
            steps = euclidean_steps(facts, space, regularizer, mu, longest, MOST_SAMPLED_STEPS)
        together = check_count(steps, "steps") * releases
        q = sampling_rate(facts, batch, balanced_batch(facts, steps, share))
        z = poisson_multiplier(epsilon, delta, q=q, steps=together, coordinates=together * facts.dimension)
        noise = sampled_noise(z, record_bound(facts), facts.dimension)
        expected = q * facts.n_records
        per_step = math.hypot(
            typical_gradient(facts) * math.sqrt((1 - q) / expected),
            math.sqrt(facts.dimension) * noise.sigma / expected,
        )
        rate = min(longest, typical_distance(facts, space) / (per_step * math.sqrt(2 * steps)))
        output = output or (Output.WEIGHTED if facts.loss.convex else Output.RANDOM)
        spend = PrivacySpend.approximate(epsilon, delta, cls.name, note=shared_by(releases, TOGETHER))
        prox_step(space, regularizer)  # an oracle that does not exist is refused now, not on the data
        return cls(facts, space, regularizer, steps, output, spend, q, noise, rate)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma / (self.sampling * self.facts.n_records), "q": self.sampling}

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self.step_size, self.step_size

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, None]:
        n, q, eta = self.facts.n_records, self.sampling, self.step_size
        step = prox_step(self.convex_set, self.regularizer)
        draw = source or NoiseSource()  # batches are random with or without noise

        def gradient(x: Vector) -> Vector:
            return risk.gradient_sum(x, poisson_batch(n, q, draw))

        method = Method(start, lambda _k, _state, x, g: step(x - (eta / (q * n)) * g, eta))
        steps = self._drawn_steps(source)
        perturb: Perturb = (lambda g: g) if source is None else self.vector_noise.adder(source, steps)
        iterates = noisy_iteration(method, gradient, perturb, steps, StepClock(watch, steps))
        return choose_output(iterates, self.output, start), None
