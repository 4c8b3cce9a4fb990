"""DP-SGD: noisy gradient steps on Poisson batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.poisson import poisson_batch
from privopt.mechanisms.risk.iteration import Method, Output, Run, StepClock, choose_output, noisy_iteration
from privopt.mechanisms.risk.mechanism import IterativeMechanism, RiskTarget
from privopt.mechanisms.risk.options import StepOptions
from privopt.mechanisms.risk.sampling import (
    MOST_SAMPLED_STEPS,
    balanced_batch,
    record_bound,
    sampled_releases,
    sampling_rate,
    typical_gradient,
)
from privopt.mechanisms.risk.step_counts import euclidean_steps, typical_distance
from privopt.oracles.convex.prox import prox_step
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk


@dataclass(frozen=True)
class DPStochasticGradient(IterativeMechanism):
    """DP-SGD: x+ = prox of x - eta (sum over a Poisson batch of gradients + noise) / (q n).

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public. One record
    contributes at most G without clipping of gradients, because the loss is Lipschitz and rows are clipped.
    Poisson sampling amplifies privacy; steps are composed as privacy loss distributions.

    Defaults: at equal privacy T sampled steps carry the noise of T full steps, so T is as in DP-GD, at most
    5000, and the batch is the smallest that does not cost accuracy (``balanced_batch``). The step size
    minimises the bound D^2 / (2 eta T) + eta V, V the variance of a noisy step, up to 1 / (L + l2). For
    convex losses iterates are averaged with weights 1, 2, ..., which reduces the influence of the start.

    Source: Abadi et al. (2016); Bassily, Smith and Thakurta (2014); the average: Shamir and Zhang (2013).
    """

    name: ClassVar[str] = "dp-sgd"
    noised: ClassVar[str] = "a batch's mean gradient, each coordinate, every step"
    by_sums: ClassVar[bool] = False

    sampling: float
    vector_noise: VectorNoise
    step_size: float

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, *, batch: int | None = None, **options: Unpack[StepOptions]
    ) -> Self:
        """Calibrate; ``batch`` is the expected batch size q n.

        Several releases are accounted as one sequence.
        """
        facts, space, regularizer = target.facts, target.convex_set, target.regularizer
        steps, output = options.get("steps"), options.get("output")
        longest = 1 / (facts.smoothness + regularizer.l2)
        if steps is None:
            steps = euclidean_steps(facts, space, regularizer, target.precision, longest, MOST_SAMPLED_STEPS)
        q = sampling_rate(facts, batch, balanced_batch(facts, check_count(steps, "steps"), target.mu))
        noise, spend = sampled_releases(target, cls.name, q, steps, record_bound(facts))
        expected = q * facts.n_records
        per_step = math.hypot(
            typical_gradient(facts) * math.sqrt((1 - q) / expected),
            math.sqrt(facts.dimension) * noise.sigma / expected,
        )
        rate = min(longest, typical_distance(facts, space) / (per_step * math.sqrt(2 * steps)))
        output = output or (Output.WEIGHTED if facts.loss.convex else Output.RANDOM)
        return cls(facts, space, regularizer, spend, steps, output, q, noise, rate)

    def _find_oracles(self) -> None:
        prox_step(self.convex_set, self.regularizer)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma / (self.sampling * self.facts.n_records), "q": self.sampling}

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self.step_size, self.step_size

    def _compile(self, risk: EmpiricalRisk) -> None:
        risk.compile(batches=True)

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        n, q, eta = self.facts.n_records, self.sampling, self.step_size
        step = prox_step(self.convex_set, self.regularizer)
        draw = run.source or NoiseSource()  # batches are random even in a fit without noise

        def gradient(x: Vector) -> Vector:
            return risk.gradient_sum(x, poisson_batch(n, q, draw))

        method = Method(run.start, lambda _k, _state, x, g: step(x - (eta / (q * n)) * g, eta))
        steps = self._drawn_steps(run.source)
        perturb = run.perturbation(self.vector_noise, steps)
        iterates = noisy_iteration(method, gradient, perturb, steps, StepClock(run.watch, steps))
        return choose_output(iterates, self.output, run.start), None
