"""Robust gradient descent on Poisson batches."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

from privopt.mechanisms.heavy_tails.descent import Descent, SoftOptions, TruncatedDescent
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.poisson import poisson_batch
from privopt.mechanisms.risk.iteration import Run
from privopt.mechanisms.risk.mechanism import RiskTarget
from privopt.mechanisms.risk.sampling import sampled_releases, sum_share
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.truncation import INFLUENCE

_STEPS = 50
_BATCH = 1000


@dataclass(frozen=True)
class RobustStochasticGradient(TruncatedDescent):
    """Robust gradient descent on Poisson batches.

    x+ = prox of x - eta (sum over a Poisson batch of softly truncated gradients + noise) / (q n).

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public;
    amplification by Poisson sampling, composed as privacy loss distributions.

    Source: the minibatch variant of Wang, Xiao, Devadas and Xu (2020), Algorithm 4, who draw batches of 1000.
    """

    name: ClassVar[str] = "robust-sgd"
    noised: ClassVar[str] = "a batch's robust mean of gradients, each coordinate, every step"

    sampling: float
    vector_noise: VectorNoise

    @classmethod
    def _calibrated(
        cls,
        target: RiskTarget,
        *,
        moment: float,
        steps: int = _STEPS,
        batch: int = _BATCH,
        **options: Unpack[SoftOptions],
    ) -> Self:
        """Calibrate; ``batch`` is the expected batch size q n, the rest as for ``TruncatedDescent``."""
        descent, facts = options.get("descent") or Descent(), target.facts
        n, d = facts.n_records, facts.dimension
        q = min(1.0, check_count(batch, "batch") / n)
        size = INFLUENCE * math.sqrt(d)
        unit, spend = sampled_releases(target, cls.name, q, check_count(steps, "steps"), size)
        soft = options.get("truncation") or descent.truncation(math.ceil(q * n), moment, unit.sigma / (q * n))
        bound = soft.scale * sum_share(facts) * (1 + 1e-12)
        noise = VectorNoise(unit.sensitivity * bound, unit.sigma * bound, d)
        return cls(
            facts, target.convex_set, target.regularizer, spend, steps, descent, soft, moment, q, noise
        )

    @property
    def noise(self) -> dict[str, float]:
        sigma = self.vector_noise.sigma / (self.sampling * self.facts.n_records)
        return {"sigma": sigma, "q": self.sampling, "scale": self.truncation.scale}

    def _compile(self, risk: EmpiricalRisk) -> None:
        risk.compile(batches=True)

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        soft, expected = self.truncation, self.sampling * self.facts.n_records
        records = self._records(risk)
        draw = run.source or NoiseSource()  # batches are random even in a fit without noise

        def gradient(w: Vector) -> Vector:
            batch = poisson_batch(self.facts.n_records, self.sampling, draw)
            return records.soft_gradient_sum(w, batch, soft.scale, soft.beta)

        perturb = run.perturbation(self.vector_noise, self.steps)
        return self._iterate(gradient, lambda g: perturb(g) / expected, run)
