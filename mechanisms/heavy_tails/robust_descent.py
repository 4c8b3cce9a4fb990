"""Heavy-tailed DP-SCO with known second moments: descent along private robust means of gradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self, Unpack

from privopt.mechanisms.heavy_tails.descent import Descent, SoftOptions, TruncatedDescent
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.risk.iteration import Run
from privopt.mechanisms.risk.mechanism import RiskTarget
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk


@dataclass(frozen=True)
class RobustGradientDescent(TruncatedDescent):
    """Gradient descent with private robust means: soft truncation of each coordinate, Gaussian noise.

    Privacy: mu-GDP, stated as (epsilon, delta), for all records without bounds; neighbours by replacing one
    record, n public. A record contributes at most 2 sqrt(2)/3 s/n per coordinate and step; T adaptive steps
    are one Gaussian release. For epsilon = rho + 2 sqrt(rho log(1/delta)) the noise at the printed scale is
    at most the printed sigma^2 = 8 v d T / (9 log(1/failure) n rho).

    ``without_noise`` is the robust gradient descent of Holland (2019).

    Source: Wang, Xiao, Devadas and Xu (2020), Algorithm 4. Different here: the scale
    (``SoftTruncation.balanced``), the noise (exact Gaussian accounting), and the number of steps.
    """

    name: ClassVar[str] = "robust-gd"
    noised: ClassVar[str] = "the robust mean of the gradients, each coordinate, every step"

    vector_noise: VectorNoise

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, *, moment: float, steps: int | None = None, **options: Unpack[SoftOptions]
    ) -> Self:
        """Calibrate to a target.

        Args:
            target, moment, options: see ``TruncatedDescent``.
            steps: T; by default where the bounds on optimisation error and noise are equal, up to 200.
        """
        descent, given = options.get("descent") or Descent(), options.get("truncation")
        space, regularizer = target.convex_set, target.regularizer
        n, d = target.facts.n_records, target.facts.dimension
        # Standard deviation of the noise for s = 1 and T = 1.
        unit = SoftTruncation(1.0, 1.0).sensitivity(n, d) / target.mu

        def fitting(steps: int) -> SoftTruncation:
            return given or descent.truncation(n, moment, unit * math.sqrt(steps))

        error = math.sqrt(d) * unit * fitting(1).scale
        steps = descent.steps(steps, space, regularizer, error)
        soft = fitting(steps)
        noise, spend = target.gaussian(cls.name, steps=steps, sensitivity=soft.sensitivity(n, d))
        return cls(target.facts, space, regularizer, spend, steps, descent, soft, moment, noise)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma, "scale": self.truncation.scale}

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        soft, records = self.truncation, self._records(risk)
        perturb = run.perturbation(self.vector_noise, self.steps)
        return self._iterate(lambda w: records.soft_gradient(w, soft.scale, soft.beta), perturb, run)
