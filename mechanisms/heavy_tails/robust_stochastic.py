"""Robust gradient descent on Poisson batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from scipy import special

from privopt.mechanisms.heavy_tails.descent import Descent, RobustDescent, robust_space
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, shared_by
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon
from privopt.mechanisms.privacy.poisson import poisson_batch, poisson_multiplier, sampled_noise
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Output, Perturb
from privopt.mechanisms.risk.sampling import TOGETHER, sum_share
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.truncation import INFLUENCE

_STEPS = 50
_BATCH = 1000


@dataclass(frozen=True)
class RobustStochasticGradient(RobustDescent):
    """Stochastic version: x+ = prox of x - eta (sum over a Poisson batch of soft gradients + noise) / (q n).

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public;
    amplification by Poisson sampling, composed as privacy loss distributions.

    Source: the minibatch variant of Wang, Xiao, Devadas and Xu (2020), Algorithm 4, who draw batches of 1000.
    """

    name: ClassVar[str] = "robust-sgd"
    noised: ClassVar[str] = "a batch's robust mean of gradients, each coordinate, every step"

    truncation: SoftTruncation
    sampling: float
    vector_noise: VectorNoise

    @classmethod
    def plan(
        cls,
        facts: RiskFacts,
        convex_set: ConvexSet | None = None,
        regularizer: ElasticNet = NO_REGULARIZER,
        *,
        epsilon: float,
        delta: float,
        moment: float,
        steps: int | None = None,
        batch: int = _BATCH,
        descent: Descent | None = None,
        truncation: SoftTruncation | None = None,
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            steps: T; 50 by default.
            batch: the expected batch size q n.

        The other arguments and errors are those of ``RobustGradientDescent.plan``.
        """
        check_epsilon(epsilon), check_delta(delta)
        descent = descent or Descent()
        space = robust_space(facts, convex_set, regularizer)
        n, d = facts.n_records, facts.dimension
        steps = _STEPS if steps is None else check_count(steps, "steps")
        q = min(1.0, check_count(batch, "batch") / n)
        together = steps * check_count(releases, "releases")
        z = poisson_multiplier(epsilon, delta, q=q, steps=together, coordinates=together * d)
        if truncation is None:
            unit = sampled_noise(z, INFLUENCE * math.sqrt(d), d).sigma / (q * n)
            spread = unit * -float(special.ndtri(descent.failure / 2))
            truncation = SoftTruncation.balanced(math.ceil(q * n), moment, descent.failure, spread)
        bound = INFLUENCE * truncation.scale * math.sqrt(d) * sum_share(facts) * (1 + 1e-12)
        noise = sampled_noise(z, bound, d)
        spend = PrivacySpend.approximate(epsilon, delta, cls.name, note=shared_by(releases, TOGETHER))
        return cls(facts, space, regularizer, steps, Output.LAST, spend, descent, truncation, q, noise)

    @property
    def noise(self) -> dict[str, float]:
        sigma = self.vector_noise.sigma / (self.sampling * self.facts.n_records)
        return {"sigma": sigma, "q": self.sampling, "scale": self.truncation.scale}

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, None]:
        soft, expected = self.truncation, self.sampling * self.facts.n_records
        records = self._records(risk)
        draw = source or NoiseSource()  # batches are random with or without noise

        def gradient(w: Vector) -> Vector:
            batch = poisson_batch(self.facts.n_records, self.sampling, draw)
            return records.soft_gradient_sum(w, batch, soft.scale, soft.beta)

        perturb: Perturb = (lambda g: g) if source is None else self.vector_noise.adder(source, self.steps)
        return self._iterate(gradient, lambda g: perturb(g) / expected, start, watch), None
