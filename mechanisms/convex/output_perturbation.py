"""Output perturbation of ridge-regularised convex risks: a certified minimum, then noise.

The release is a function of a minimum, so it requires a certificate that the minimum is as good as the plan
assumed, and fails closed without one. The failure itself and the running time are outside the guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from privopt.mechanisms.convex.penalties import checked_problem, gradient_tolerance, output_penalty
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import (
    VectorNoise,
    gaussian_releases,
)
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.risk.iteration import Output
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.oracles.convex.registry import projector
from privopt.oracles.convex.smooth import SmoothCertificate, minimize_ridge
from privopt.oracles.limits import Watch
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet

# Gradient norm that the solver must prove, in units of G / n: its share of the sensitivity is that share.
_OUTPUT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class OutputPerturbation(RiskMechanism):
    """The minimum of F(w) + (l2/2) |w|^2 plus Gaussian noise, projected onto C.

    Privacy: mu-GDP, one Gaussian release, stated as (epsilon, delta); neighbours by replacing one record, n
    public. Exact minima of neighbours are within 2 G / (n l2) (Chaudhuri, Monteleoni and Sarwate 2011); a
    minimum with gradient norm at most ``tolerance`` adds tolerance / l2 on either side.

    A penalty l2 = 0 in the plan is replaced by the one that balances its bias against the noise
    (``output_penalty``); ``regularizer`` tells which.
    """

    name: ClassVar[str] = "output-perturbation"
    takes_steps: ClassVar[bool] = False
    noised: ClassVar[str] = "the minimum, each coordinate, once"

    tolerance: float
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
        releases: int = 1,
    ) -> Self:
        """Calibrate to public facts. The arguments are those of ``FullBatchMechanism.plan``.

        Raises:
            PrivacyParameterError: parameters out of range, an l1 penalty, or a loss that is not convex.
            UnsupportedProblemError: no projection onto the set.
        """
        space = checked_problem(cls.name, facts, convex_set, regularizer)
        mu = gaussian_mu(epsilon, delta) / math.sqrt(check_count(releases, "releases"))
        tolerance = gradient_tolerance(facts, _OUTPUT_TOLERANCE)
        l2 = regularizer.l2 or output_penalty(facts, space, mu, tolerance)
        sensitivity = (2 * facts.gradient_bound / facts.n_records + 2 * tolerance) / l2
        sensitivity *= 1 + 1e-12
        noise, spend = gaussian_releases(
            *(epsilon, delta, cls.name),
            steps=1,
            releases=releases,
            sensitivity=sensitivity,
            dimension=facts.dimension,
            n_records=facts.n_records,
        )
        return cls(facts, space, ElasticNet(l2=l2), 1, Output.LAST, spend, tolerance, noise)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma, "sensitivity": self.vector_noise.sensitivity}

    def _run(
        self, risk: EmpiricalRisk, start: Vector, source: NoiseSource | None, watch: Watch
    ) -> tuple[Vector, SmoothCertificate]:
        """Run, or raise CertificateError and release nothing if the minimum is not certified."""
        answer = minimize_ridge(risk, self.regularizer.l2, self.tolerance, watch=watch)
        w = answer.require(self.tolerance)
        if source is not None:
            w = self.vector_noise.add(w, source)
        return projector(self.convex_set)(w), answer.certificate
