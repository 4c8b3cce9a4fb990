"""Audits of the mechanisms for non-convex risks, similar to ``privopt.mechanisms.audit.convex``.

Langevin dynamics on an outlying record are an affine function of the noise, like gradient descent. A net has
finitely many points, with the probabilities of the exponential mechanism.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, subject_by_laws
from privopt.mechanisms.audit.convex import (
    Records,
    binned,
    gradient_claims,
    masses,
    outlier,
    risk_claim,
    with_less_noise,
)
from privopt.mechanisms.audit.laws import output_law
from privopt.mechanisms.nonconvex.constrained import DPConstrainedStationaryPoint
from privopt.mechanisms.nonconvex.langevin import DPLangevin
from privopt.mechanisms.nonconvex.net import NetMechanism
from privopt.mechanisms.nonconvex.newton import DPCubicNewton
from privopt.mechanisms.nonconvex.second_order import LocalMinimumRelease, SecondOrderMechanism
from privopt.mechanisms.nonconvex.spider import DPSpider, SpiderRelease, difference_sensitivity
from privopt.mechanisms.nonconvex.stationary import DPStationaryPoint
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.losses import Labels, Loss, RealArray
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.nonconvex.net import NetProblem

Floats = NDArray[np.float64]

_EPSILON, _DELTA = 1.0, 0.05


def _noise_halved(plan: DPLangevin) -> DPLangevin:
    """Return the plan with half the noise: four times the beta, the same step size."""
    return dataclasses.replace(plan, vector_noise=with_less_noise(plan.vector_noise), beta=4 * plan.beta)


def _net() -> tuple[AuditedClaim, ...]:
    """Return the claim on records that favour one end of an interval; the other end spends most epsilon."""
    pair = outlier(others=8)
    plan = NetMechanism.plan(pair[0].facts, L2Ball(1, 1.0), epsilon=_EPSILON, alpha=0.25)
    points = plan.net.points(np.concatenate(list(plan.net.lattice.batches())))[:, 0]
    edges = (points[1:] + points[:-1]) / 2

    def law(one: NetMechanism, records: Records) -> Floats:
        return output_law(one.draw, NetProblem(records.risk(), one.net))

    louder = dataclasses.replace(plan.draw, beta=2 * plan.draw.beta)
    mutants = {"beta doubled": dataclasses.replace(plan, draw=louder)}
    return (risk_claim(plan, pair, "outlier", binned(edges), law, mutants),)


@dataclass(frozen=True)
class _Tilt(Loss):
    """Loss y sin z, with slope and no curvature at z = 0, or y (1 - cos z), with curvature and no slope."""

    bent: bool

    labels = Labels.SIGN
    convex = False
    lipschitz = 1.0
    smoothness = 1.0
    curvature_lipschitz = 1.0

    def value(self, z: RealArray, y: RealArray) -> RealArray:
        return np.asarray(y * (1 - np.cos(z) if self.bent else np.sin(z)))

    def slope(self, z: RealArray, y: RealArray) -> RealArray:
        return np.asarray(y * (np.sin(z) if self.bent else np.cos(z)))

    def curvature(self, z: RealArray, y: RealArray) -> RealArray:
        return np.asarray(y * (np.cos(z) if self.bent else -np.sin(z)))


@dataclass(frozen=True)
class _FirstTest:
    """Sampler of the bin of the first noisy gradient, or of the first noisy Hessian.

    If no Hessian was released, the outcome is a separate bin. A Hessian of one dimension is its own
    eigenvalue; DP-GD-SO computes the least (u - w)^2 H.
    """

    plan: SecondOrderMechanism
    risk: EmpiricalRisk
    bent: bool
    edges: tuple[float, ...]

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        return [
            self._outcome(cast(LocalMinimumRelease, self.plan.release(self.risk, noise))) for _ in range(runs)
        ]

    def _outcome(self, released: LocalMinimumRelease) -> int:
        if not self.bent:
            return int(np.digitize(released.gradients[0, 0], self.edges))
        if not released.tests:
            return len(self.edges) + 1
        return int(np.digitize(released.tests[0].curvature, self.edges))


def _second_order(kind: type[SecondOrderMechanism], convex_set: ConvexSet) -> tuple[AuditedClaim, ...]:
    """Return claims of one step and one test from 0: on a record with only slope, and with only curvature."""
    found = []
    for bent, name in ((False, "slope up or down"), (True, "curved up or down")):
        risks = [EmpiricalRisk([[1.0]], [y], _Tilt(bent)) for y in (1.0, -1.0)]
        plan = kind.plan(
            risks[0].facts,
            convex_set,
            epsilon=_EPSILON,
            delta=_DELTA,
            steps=1,
            tests=1,
            hessian_share=0.5,
        )
        vector = plan.hessian_noise.vector if bent else plan.gradient_noise
        edges = np.linspace(-4, 4, 65) * vector.sigma
        quiet = with_less_noise(vector, 0.25)
        mutant = (
            {"hessian_noise": dataclasses.replace(plan.hessian_noise, vector=quiet)}
            if bent
            else {"gradient_noise": quiet}
        )
        # The mutant keeps the tolerances of the plan, which follow from its noise: both test equally often.
        weaker = dataclasses.replace(plan, **mutant)
        kinds = ((RELEASED, plan), (f"noise of {'Hessians' if bent else 'gradients'} quartered", weaker))
        subjects = []
        for title, one in kinds:
            seen = [_FirstTest(one, risk, bent, tuple(edges.tolist())) for risk in risks]
            laws = [_first_law(one, bent, sign, edges) for sign in (1.0, -1.0)]
            subjects.append(subject_by_laws(title, seen, laws, _EPSILON, _DELTA))
        found.append(AuditedClaim(kind.name, f"{name}, n = 1, d = 1", subjects[0], tuple(subjects[1:])))
    return tuple(found)


def _first_law(plan: SecondOrderMechanism, bent: bool, sign: float, edges: Floats) -> Floats:
    """Return the law of a binned Gaussian; for a Hessian, times the probability that the gradient passes.

    Records with curvature have no slope at 0, so that their noisy gradient is noise alone.
    """
    if not bent:
        return masses(special.ndtr((edges - sign) / plan.gradient_noise.sigma))
    if isinstance(plan, DPConstrainedStationaryPoint):
        # A Hessian is released if |g| <= alpha/2, as |v - w| = 1. The least t^2 H for |t| <= 1 is min(H, 0).
        limit = plan.alpha / 2
        below = special.ndtr((edges - sign) / plan.hessian_noise.vector.sigma)
        below = np.where(edges > 0, 1.0, below)
    else:
        always = isinstance(plan, DPCubicNewton)
        limit = math.inf if always else plan.alpha - plan.gradient_tail
        below = special.ndtr((edges - sign) / plan.hessian_noise.vector.sigma)
    passes = 1 - 2 * float(special.ndtr(-limit / plan.gradient_noise.sigma))
    law = np.append(passes * masses(below), 1 - passes)
    return np.asarray(law / math.fsum(law))


@dataclass(frozen=True)
class _FirstDifference:
    """Sampler of the bin of the first noisy difference, times the sign of the step before it.

    The difference is in units of its sensitivity.
    """

    plan: DPSpider
    risk: EmpiricalRisk
    edges: tuple[float, ...]

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        return [self._outcome(cast(SpiderRelease, self.plan.release(self.risk, noise))) for _ in range(runs)]

    def _outcome(self, released: SpiderRelease) -> int:
        """Return the outcome. Steps are -eta v: one from the anchor, then one after the first difference."""
        path = released.trajectory[self.plan.warm :, 0]
        first, second = np.diff(path)[:2]
        moved = -(second - first) / self.plan.step_sizes[0]
        unit = difference_sensitivity(self.plan.facts, path[1:2], path[:1])
        return int(np.digitize(math.copysign(1.0, first) * moved / unit, self.edges))


def _spider() -> tuple[AuditedClaim, ...]:
    """Return claims on a pair with different gradients, and on one with different gradient differences."""
    pair = outlier()
    plan = DPSpider.plan(pair[0].facts, epsilon=_EPSILON, delta=_DELTA, steps=2)
    edges = np.linspace(-4, 4, 65) * math.hypot(plan.warm_noise.sigma, plan.anchor_noise.sigma)

    def law(one: DPSpider, records: Records) -> Floats:
        slope = 2 * records.slope(np.zeros(1))[0]
        spread = math.hypot(one.warm_noise.sigma, one.anchor_noise.sigma)
        return masses(special.ndtr((edges + slope) / spread))

    quiet = {name: with_less_noise(getattr(plan, name)) for name in ("warm_noise", "anchor_noise")}
    mutants = {"noise of gradients halved": dataclasses.replace(plan, **quiet)}
    return risk_claim(plan, pair, "outlier", binned(edges), law, mutants), _curved_difference()


def _curved_difference() -> AuditedClaim:
    """Return the claim on a record curved up or down at 0, beside idle records, which keep steps short.

    A gradient difference is about +-(w+ - w) / n, half its sensitivity.
    """
    idle = 999
    rows = np.eye(1 + idle, 1)
    risks = [EmpiricalRisk(rows, [y, *[1.0] * idle], _Tilt(True)) for y in (1.0, -1.0)]
    plan = DPSpider.plan(risks[0].facts, epsilon=_EPSILON, delta=_DELTA, steps=4)
    edges = np.linspace(-4, 4, 65) * plan.multiplier
    subjects = []
    quiet = dataclasses.replace(plan, multiplier=plan.multiplier / 4)
    for title, one in ((RELEASED, plan), ("noise of differences quartered", quiet)):
        seen = [_FirstDifference(one, risk, tuple(edges.tolist())) for risk in risks]
        laws = [masses(special.ndtr((edges - half) / one.multiplier)) for half in (0.5, -0.5)]
        subjects.append(subject_by_laws(title, seen, laws, _EPSILON, _DELTA))
    return AuditedClaim(
        DPSpider.name, f"curved up or down, n = {1 + idle}, d = 1", subjects[0], (subjects[1],)
    )


NONCONVEX_AUDITS: Mapping[str, Callable[[], tuple[AuditedClaim, ...]]] = {
    DPLangevin.name: partial(gradient_claims, DPLangevin, WholeSpace(1), _noise_halved),
    NetMechanism.name: _net,
    DPStationaryPoint.name: partial(_second_order, DPStationaryPoint, WholeSpace(1)),
    DPCubicNewton.name: partial(_second_order, DPCubicNewton, WholeSpace(1)),
    DPSpider.name: _spider,
    DPConstrainedStationaryPoint.name: partial(_second_order, DPConstrainedStationaryPoint, L2Ball(1, 1.0)),
}
