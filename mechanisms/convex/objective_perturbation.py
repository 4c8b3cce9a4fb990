"""Objective perturbation of ridge-regularised convex risks: a random linear term, then a certified minimum.

What is released is a function of a minimum. Without a certificate that the minimum is as good as the plan
assumed, nothing is released. The fact of a failure and the running time are outside the guarantee.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.convex.penalties import gradient_tolerance, objective_penalty
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, gaussian_steps, shared_by
from privopt.mechanisms.privacy.parameters import check_delta
from privopt.mechanisms.privacy.shifts import sound_sigma
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Run
from privopt.mechanisms.risk.mechanism import RiskMechanism, RiskTarget
from privopt.oracles.convex.registry import projector
from privopt.oracles.convex.smooth import SmoothCertificate, minimize_ridge
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk

# Gradient norm that the solver must prove, in units of G / n; the same fraction is added to the sensitivity.
_OBJECTIVE_TOLERANCE = 1e-5
# Shares of epsilon and of delta for the noise that hides the distance from the exact minimum, and the share
# of epsilon for the ratio of the Hessians' determinants.
HIDING_EPSILON, HIDING_DELTA, _HESSIAN_EPSILON = 0.05, 0.1, 0.25


@dataclass(frozen=True)
class ObjectivePerturbation(RiskMechanism):
    """The minimum of F(w) + (l2/2) |w|^2 + <b, w>, b Gaussian, plus a little noise, projected onto C.

    Privacy: (epsilon, delta)-differential privacy, neighbours by replacing one record, n public. Let w be the
    exact minimum under b. On a neighbour it is the minimum under b + v, where v is the difference of two
    gradients divided by n, so |v| <= 2 G / n. The Hessians differ in two rank-one terms, so their
    determinants differ by a factor of at most 1 + L / (n l2). v depends on w and so on b, but lies in the
    plane of the two rows: <b, v> is bounded by |v| times the norm of b in that plane, which is sigma times a
    chi variable with 2 degrees of freedom; its law gives sigma (``shift_delta``). The distance from the exact
    minimum, at most tolerance / l2, is hidden by Gaussian noise on the output.

    l2 is raised to what the Hessian term needs; ``regularizer`` holds the value in use.

    Source: Chaudhuri, Monteleoni and Sarwate (2011), Kifer, Smith and Thakurta (2012), and for approximate
    minima Iyengar et al. (2019). The calibration is not theirs: it follows from the bound above.
    """

    name: ClassVar[str] = "objective-perturbation"
    takes_l1: ClassVar[bool] = False
    convex_only: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
    noised: ClassVar[str] = (
        "sigma: a linear term of the objective, each coordinate; output_sigma: its minimum"
    )

    tolerance: float
    sigma: float
    vector_noise: VectorNoise

    @classmethod
    def _calibrated(cls, target: RiskTarget) -> Self:
        """Calibrate; several releases have an even share of epsilon and delta each (basic composition).

        The proof bounds no Renyi or Gaussian privacy loss, so that no tighter composition applies.
        """
        facts, regularizer, releases = target.facts, target.regularizer, target.releases
        epsilon, delta = target.epsilon / releases, check_delta(target.delta) / releases
        if releases > 1:  # rounded down: the shares must not add up to more than the whole
            epsilon, delta = epsilon * (1 - 1e-15), delta * (1 - 1e-15)
        n = facts.n_records
        factor = math.expm1(min(_HESSIAN_EPSILON * epsilon, 700.0))  # beyond, exp overflows
        l2 = max(regularizer.l2, facts.smoothness / (n * factor), 1e-150)  # stays within doubles
        hessian = math.log1p(facts.smoothness / (n * l2)) * (1 + 1e-12)
        tolerance = gradient_tolerance(facts, _OBJECTIVE_TOLERANCE)
        hiding = gaussian_steps(
            HIDING_EPSILON * epsilon,
            HIDING_DELTA * delta,
            steps=1,
            sensitivity=2 * tolerance / l2 * (1 + 1e-12),
            dimension=facts.dimension,
        )
        sigma = sound_sigma(
            (1 - HIDING_EPSILON) * epsilon - hessian,
            (1 - HIDING_DELTA) * delta,
            2 * facts.gradient_bound / n * (1 + 1e-12),
            min(2, facts.dimension),
        )
        note = shared_by(releases, f"({epsilon:.4g}, {delta:.3g}) each")
        spend = PrivacySpend.approximate(target.epsilon, target.delta, cls.name, note=note)
        return cls(facts, target.convex_set, ElasticNet(l2=l2), spend, tolerance, sigma, hiding)

    def _find_oracles(self) -> None:
        projector(self.convex_set)

    @classmethod
    def usual_penalty(cls, target: RiskTarget) -> ElasticNet:
        """Return the default penalty, whose bias balances the noise (``objective_penalty``)."""
        if target.regularizer.l2 > 0:
            return target.regularizer
        made = cls._calibrated(target)
        hiding = made.vector_noise.sigma * made.regularizer.l2
        l2 = objective_penalty(target.facts, target.convex_set, made.sigma, hiding)
        return ElasticNet(l2=max(l2, made.regularizer.l2))

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.sigma, "output_sigma": self.vector_noise.sigma, "l2": self.regularizer.l2}

    def _compile(self, risk: EmpiricalRisk) -> None:
        risk.compile(exact=True)  # the minimum is found in float64

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, SmoothCertificate]:
        """Release the minimum, or raise CertificateError and release nothing if it is not certified."""
        l2, onto, source = self.regularizer.l2, projector(self.convex_set), run.source
        if source is None:
            answer = minimize_ridge(risk, l2, self.tolerance, watch=run.watch)
            return onto(answer.require(self.tolerance)), answer.certificate
        b = source.gaussian(self.sigma, self.facts.dimension)
        # Inputs are real numbers rounded to doubles, which moves the minimum as well: small coordinates of b
        # are rounded in units of sigma.
        drawn = float(np.linalg.norm(b)) + self.sigma * math.sqrt(self.facts.dimension)
        rounding = 2.0**-48 * drawn
        answer = minimize_ridge(risk, l2, self.tolerance, linear=b, watch=run.watch)
        w = self.vector_noise.add(answer.require(self.tolerance - rounding), source)
        return onto(w), answer.certificate
