"""Audit of a perturbed minimum with its Hessian: one record along another axis, under a strong penalty.

The penalty keeps the minimum w near 0, where the gradient of the record (e_k, 1) is -e_k / 2 and its Hessian
e_k e_k' / 4. So -l2 w and the Hessian are Gaussian around these. Between e_1 and e_2 the Hessian moves as far
as it can, the gradient by a third of its sensitivity: where a gradient is largest, the curvature is 0. The
log ratio of the two densities distinguishes the records best; standardised, it is normal around +-m/2, with m
the distance of the two records in units of the noise.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.audit.audit import Binned
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.audit.convex import masses, with_less_noise
from privopt.mechanisms.convex.perturbation_with_hessian import PerturbationWithHessian
from privopt.mechanisms.privacy.matrix_noise import MatrixNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk

Floats = NDArray[np.float64]

_EPSILON, _DELTA, _PENALTY = 1.0, 0.01, 1e4
_EDGES = np.linspace(-4, 4, 65)
_AXES = np.eye(2)


def _distances(plan: PerturbationWithHessian) -> tuple[float, float]:
    """Return the distances of the two gradients and of the two Hessians, in units of their noise."""
    return math.sqrt(0.5) / plan.sigma, math.sqrt(2) / 4 / plan.hessian_noise.vector.sigma


@dataclass(frozen=True)
class LogRatioSampler:
    """Sampler of the standardised log ratio of the densities of a plan's release on the record (e_k, 1).

    Attributes:
        plan: the plan.
        axis: k, 0 or 1.
    """

    plan: PerturbationWithHessian
    axis: int

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        risk = EmpiricalRisk([_AXES[self.axis]], [1.0], LogisticLoss())
        released = [self.plan.release(risk, noise).minimum for _ in range(runs)]
        return np.array([self._log_ratio(one.weights, one.hessian) for one in released if one is not None])

    def _log_ratio(self, w: Floats, hessian: Floats) -> float:
        tilt, sigma = self.plan.sigma, self.plan.hessian_noise.vector.sigma
        gradient = -self.plan.regularizer.l2 * w
        slope = (gradient[0] - gradient[1]) / 2 / tilt**2
        curvature = (hessian[1, 1] - hessian[0, 0]) / 4 / sigma**2
        return float(slope + curvature) / math.hypot(*_distances(self.plan))


def _subject(name: str, plan: PerturbationWithHessian) -> Subject:
    half = math.hypot(*_distances(plan)) / 2
    laws = masses(special.ndtr(_EDGES + half)), masses(special.ndtr(_EDGES - half))
    samplers = [Binned(LogRatioSampler(plan, axis), tuple(_EDGES.tolist())) for axis in (0, 1)]
    return subject_by_laws(name, samplers, laws, _EPSILON, _DELTA)


def perturbed_hessian_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of a perturbed minimum with its Hessian, and mutants with less of either noise."""
    facts = EmpiricalRisk([_AXES[0]], [1.0], LogisticLoss()).facts
    plan = PerturbationWithHessian.plan(facts, regularizer=ridge(_PENALTY), epsilon=_EPSILON, delta=_DELTA)
    entries = with_less_noise(plan.hessian_noise.vector, 0.2)
    mutants = {
        "a fifth of the Hessian's noise": dataclasses.replace(plan, hessian_noise=MatrixNoise(entries, 2)),
        "a tenth of the linear term's noise": dataclasses.replace(plan, sigma=plan.sigma / 10),
    }
    found = tuple(_subject(name, mutant) for name, mutant in mutants.items())
    return (AuditedClaim(plan.name, "e1 or e2, n = 1, d = 2", _subject(RELEASED, plan), found),)
