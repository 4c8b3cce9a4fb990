"""Objective perturbation of logistic risks with a noisy Hessian at the minimum, for confidence intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import ClassVar, Self

from privopt.mechanisms.convex.objective_perturbation import (
    HIDING_DELTA,
    HIDING_EPSILON,
    ObjectivePerturbation,
)
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import noise_at_level
from privopt.mechanisms.privacy.matrix_noise import MatrixNoise
from privopt.mechanisms.privacy.noisy_minimum import NoisyMinimum
from privopt.mechanisms.privacy.shifts import sigma_before_gaussian
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Run
from privopt.mechanisms.risk.mechanism import RealRelease, RiskTarget
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import ElasticNet
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet

# Limit on the features: the Hessian is held in memory, with noise in every entry.
_MOST_FEATURES = 1000
# Share of mu^2 for the Hessian, and of epsilon for the ratio of determinants.
_SHARE, _DETERMINANT_EPSILON = 0.2, 0.1


@dataclass(frozen=True)
class PerturbationWithHessian(ObjectivePerturbation):
    """Objective perturbation, then the mean Hessian at the released point with Gaussian noise.

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public. The point is
    released by ``ObjectivePerturbation``. The Hessian of a record a is h a a' with 0 <= h <= M / |a|^2, M = L
    (``RiskFacts.smoothness``). For two records |h a a' - k c c'|^2 = h^2 |a|^4 + k^2 |c|^4 - 2 h k <a, c>^2
    <= 2 M^2, so the mean has Frobenius sensitivity sqrt 2 M / n at any point. As the point has been released,
    the noisy mean is a further Gaussian release, mu-GDP. Both releases together are calibrated by
    ``delta_before_gaussian``, which averages the profile of the mean over the privacy loss of the point.

    The default penalty is small (``usual_penalty``): intervals correct the bias of the penalty.

    Attributes:
        hessian_noise: the noise of the Hessian.
    """

    name: ClassVar[str] = "objective-perturbation-hessian"
    takes_set: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = False
    largest_dimension = _MOST_FEATURES
    instead: ClassVar[str] = "use objective-perturbation"
    noised: ClassVar[str] = (
        f"{ObjectivePerturbation.noised}; hessian_sigma: the mean Hessian there, each entry"
    )

    hessian_noise: MatrixNoise

    @classmethod
    def _calibrated(cls, target: RiskTarget) -> Self:
        """Calibrate; several releases have an even share of epsilon and delta each (basic composition)."""
        base, facts = ObjectivePerturbation._calibrated(target), target.facts
        n, p, releases = facts.n_records, facts.dimension, target.releases
        rounded = 1.0 if releases == 1 else 1 - 1e-15
        determinants = math.log1p(facts.smoothness / (n * base.regularizer.l2)) * (1 + 1e-12)
        epsilon = (1 - HIDING_EPSILON) * (target.epsilon / releases * rounded) - determinants
        delta = (1 - HIDING_DELTA) * (target.delta / releases * rounded)
        sensitivity = facts.smoothness * (math.sqrt(2) / n + 2 * facts.rounding) * (1 + 1e-12)
        level = math.sqrt(_SHARE) * gaussian_mu(epsilon, delta)
        entries = noise_at_level(level, 1, sensitivity, p * (p + 1) // 2, n)
        shift = 2 * facts.gradient_bound / n * (1 + 1e-12)
        sigma = sigma_before_gaussian(epsilon, delta, shift, min(2, p), entries.level(1))
        kept = {field.name: getattr(base, field.name) for field in fields(base)}
        spend = PrivacySpend.approximate(target.epsilon, target.delta, cls.name, note=base.spend.note)
        return cls(**{**kept, "sigma": sigma, "spend": spend}, hessian_noise=MatrixNoise(entries, p))

    @classmethod
    def usual_penalty(cls, target: RiskTarget) -> ElasticNet:
        """Return the given penalty, or the least penalty with which two costs are small if that is larger.

        The ratio of determinants costs a tenth of epsilon. The noise that hides the distance from the exact
        minimum has a quarter of 1 / sqrt(n L), the least standard error of a weight without privacy.
        """
        facts, made = target.facts, ObjectivePerturbation._calibrated(target)
        factor = math.expm1(min(_DETERMINANT_EPSILON * target.epsilon / target.releases, 700.0))
        hiding = made.vector_noise.sigma * made.regularizer.l2
        least = 4 * hiding * math.sqrt(facts.n_records * facts.smoothness)
        return ElasticNet(l2=max(target.regularizer.l2, facts.smoothness / (facts.n_records * factor), least))

    @classmethod
    def refusals(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> list[str]:
        """Return every reason why the mechanism cannot take the combination."""
        reasons = super().refusals(facts, convex_set, regularizer)
        if not isinstance(facts.loss, LogisticLoss):
            reasons.append(f"takes the logistic loss without class weights, not {type(facts.loss).__name__}")
        return reasons

    @property
    def noise(self) -> dict[str, float]:
        return {**super().noise, "hessian_sigma": self.hessian_noise.vector.sigma}

    def _released(self, risk: EmpiricalRisk, run: Run, spend: PrivacySpend) -> RealRelease:
        """Release the point, then the Hessian at it."""
        point, proof = self._run(risk, run)
        hessian = risk.hessian(point)
        if run.source is not None:
            hessian = self.hessian_noise.add(hessian, run.source)
        minimum = NoisyMinimum(
            point,
            hessian,
            l2=self.regularizer.l2,
            tilt=self.sigma,
            blur=self.vector_noise.sigma,
            sigma=self.hessian_noise.vector.sigma,
            constant=self.facts.constant,
            n_records=self.facts.n_records,
        )
        return RealRelease(point, spend, self.noise, proof, minimum=minimum)
