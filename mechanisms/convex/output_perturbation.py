"""Output perturbation of ridge-regularised convex risks: a certified minimum, then noise.

What is released is a function of a minimum. Without a certificate that the minimum is as good as the plan
assumed, nothing is released. The fact of a failure and the running time are outside the guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from privopt.mechanisms.convex.penalties import gradient_tolerance, output_penalty
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.risk.iteration import Run
from privopt.mechanisms.risk.mechanism import RiskMechanism, RiskTarget
from privopt.oracles.convex.registry import projector
from privopt.oracles.convex.smooth import SmoothCertificate, minimize_ridge
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk

# Gradient norm that the solver must prove, in units of G / n; the same fraction is added to the sensitivity.
_OUTPUT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class OutputPerturbation(RiskMechanism):
    """The minimum of F(w) + (l2/2) |w|^2 plus Gaussian noise, projected onto C.

    Privacy: mu-GDP, one Gaussian release, stated as (epsilon, delta); neighbours by replacing one record, n
    public. Exact minima of neighbours are within 2 G / (n l2) (Chaudhuri, Monteleoni and Sarwate 2011); a
    minimum with gradient norm at most ``tolerance`` adds tolerance / l2 on either side.

    A penalty l2 = 0 in the plan is replaced by the penalty whose bias balances the noise
    (``output_penalty``); ``regularizer`` holds the value in use.
    """

    name: ClassVar[str] = "output-perturbation"
    takes_l1: ClassVar[bool] = False
    convex_only: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
    noised: ClassVar[str] = "the minimum, each coordinate, once"

    tolerance: float
    vector_noise: VectorNoise

    @classmethod
    def _calibrated(cls, target: RiskTarget) -> Self:
        facts, space = target.facts, target.convex_set
        tolerance = gradient_tolerance(facts, _OUTPUT_TOLERANCE)
        l2 = target.regularizer.l2 or output_penalty(facts, space, target.mu, tolerance)
        sensitivity = (2 * facts.gradient_bound / facts.n_records + 2 * tolerance) / l2
        noise, spend = target.gaussian(cls.name, steps=1, sensitivity=sensitivity * (1 + 1e-12))
        return cls(facts, space, ElasticNet(l2=l2), spend, tolerance, noise)

    def _find_oracles(self) -> None:
        projector(self.convex_set)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma, "sensitivity": self.vector_noise.sensitivity}

    def _compile(self, risk: EmpiricalRisk) -> None:
        risk.compile(exact=True)  # the minimum is found in float64

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, SmoothCertificate]:
        """Release the minimum, or raise CertificateError and release nothing if it is not certified."""
        answer = minimize_ridge(risk, self.regularizer.l2, self.tolerance, watch=run.watch)
        w = answer.require(self.tolerance)
        if run.source is not None:
            w = self.vector_noise.add(w, run.source)
        return projector(self.convex_set)(w), answer.certificate
