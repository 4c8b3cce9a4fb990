"""Audits of the first-order mechanisms: one record whose gradient is as large as it may be, either way.

Under Huber's loss with a label far out, the gradient of the record is +-G at every iterate, so the full
sensitivity is used in every step. In one dimension the gradient methods then release a Gaussian whose mean
the record moves by all that the accounting allows, and the Frank-Wolfe methods a weighted sum of noisy votes.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.accounting import gaussian_epsilon
from privopt.mechanisms.audit import Binned, Outcome, exact_epsilon
from privopt.mechanisms.audit_claims import RELEASED, AuditedClaim, Subject
from privopt.mechanisms.first_order import (
    DPAcceleratedMirrorDescent,
    DPFrankWolfeL1,
    DPFrankWolfeL2,
    DPGradientDescent,
    DPMirrorDescent,
    DPProximalGradient,
    FullBatchMechanism,
    Output,
    RiskMechanism,
)
from privopt.mechanisms.noise import NoiseSource
from privopt.problems.losses import HuberLoss
from privopt.problems.risk import EmpiricalRisk, RiskFacts
from privopt.problems.sets import ConvexSet, L1Ball, L2Ball, WholeSpace

_FAR = 1e9  # beyond any iterate: the gradient never leaves its bound
_FACTS = RiskFacts(1, 1, HuberLoss(1.0))
_DELTA = 0.05
_STEPS = 2
_VOTES = 10
_NEIGHBOURS = "outlier, n = 1, d = 1"


@dataclass(frozen=True)
class PointSampler:
    """Runs a plan's own ``release`` on one record with the label +-_FAR; the released number."""

    plan: RiskMechanism
    sign: float

    def __call__(self, runs: int, noise: NoiseSource) -> NDArray[np.float64]:
        risk = EmpiricalRisk([[1.0]], [self.sign * _FAR], _FACTS.loss)
        return np.array([self.plan.release(risk, noise).point[0] for _ in range(runs)])


@dataclass(frozen=True)
class VoteSampler:
    """The same for Frank-Wolfe steps over [-1, 1] with rates 2 / (k + 2): a sum of votes +-1, ..., +-T."""

    points: PointSampler

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        steps = self.points.plan.steps
        return list(np.rint(self.points(runs, noise) * steps * (steps + 1) / 2).astype(int).tolist())


def _gradient_claim(kind: type[FullBatchMechanism], convex_set: ConvexSet, exact: bool) -> AuditedClaim:
    plan = kind.plan(_FACTS, convex_set, epsilon=1.0, delta=_DELTA, steps=_STEPS, output=Output.LAST)
    noise = plan.vector_noise
    halved = dataclasses.replace(plan, vector_noise=dataclasses.replace(noise, sigma=noise.sigma / 2))
    # Bins from well below to well above the spread of the output, whatever the method's step sizes.
    far = np.geomspace(1e-2, 1e2, 40) * noise.sigma
    edges = tuple(np.concatenate([-far[::-1], far]).tolist())

    def subject(name: str, run: FullBatchMechanism) -> Subject:
        # The last iterate holds the mean of all noisy gradients: one Gaussian of sensitivity 2 G / n.
        worst = gaussian_epsilon(2 * math.sqrt(_STEPS) / run.vector_noise.sigma, _DELTA) if exact else None
        first, second = (Binned(PointSampler(run, sign), edges) for sign in (1.0, -1.0))
        return Subject(name, first, second, 1.0, _DELTA, worst)

    mutant = subject("noise halved", halved)
    return AuditedClaim(kind.name, _NEIGHBOURS, subject(RELEASED, plan), (mutant,))


def _vote_claim(plan: Any, mutant: Any, name: str, vote: Callable[[Any], float]) -> AuditedClaim:
    def subject(name: str, run: Any) -> Subject:
        law = _vote_law(vote(run), run.steps)
        first, second = (VoteSampler(PointSampler(run, sign)) for sign in (1.0, -1.0))
        return Subject(name, first, second, 1.0, _DELTA, exact_epsilon(law, law[::-1], _DELTA))

    return AuditedClaim(plan.name, _NEIGHBOURS, subject(RELEASED, plan), (subject(name, mutant),))


def _vote_law(up: float, steps: int) -> NDArray[np.float64]:
    """The law of the sum of +-1, ..., +-T with independent signs, + with probability ``up``; steps of 2."""
    law = np.ones(1)
    for k in range(1, steps + 1):
        longer = np.zeros(law.size + k)
        longer[: law.size] += (1 - up) * law
        longer[k:] += up * law
        law = longer
    return law / math.fsum(law)


def _frank_wolfe_l2() -> AuditedClaim:
    plan = DPFrankWolfeL2.plan(
        _FACTS, L2Ball(1, 1.0), epsilon=1.0, delta=_DELTA, steps=_VOTES, output=Output.LAST
    )
    noise = plan.vector_noise
    mutant = dataclasses.replace(plan, vector_noise=dataclasses.replace(noise, sigma=noise.sigma / 2))
    return _vote_claim(
        plan, mutant, "noise halved", lambda run: float(special.ndtr(1 / run.vector_noise.sigma))
    )


def _frank_wolfe_l1() -> AuditedClaim:
    plan = DPFrankWolfeL1.plan(
        _FACTS, L1Ball(1, 1.0), epsilon=1.0, delta=_DELTA, steps=_VOTES, output=Output.LAST
    )
    selection = plan.selection
    halved = dataclasses.replace(selection, step_epsilon=2 * selection.step_epsilon)
    mutant = dataclasses.replace(plan, selection=halved)
    # The scores are +-1, and the difference of two Gumbel variables is logistic.
    return _vote_claim(
        plan, mutant, "noise halved", lambda run: float(special.expit(2 / run.selection.scale))
    )


_WIDE = 1e5  # a set that no iterate of these audits leaves

RISK_AUDITS: Mapping[str, Callable[[], AuditedClaim]] = {
    DPGradientDescent.name: partial(_gradient_claim, DPGradientDescent, WholeSpace(1), True),
    DPProximalGradient.name: partial(_gradient_claim, DPProximalGradient, L2Ball(1, _WIDE), True),
    DPMirrorDescent.name: partial(_gradient_claim, DPMirrorDescent, L2Ball(1, _WIDE), True),
    # Its last iterate weighs the noisy gradients unequally, so the epsilon of a Gaussian is not attained.
    DPAcceleratedMirrorDescent.name: partial(
        _gradient_claim, DPAcceleratedMirrorDescent, L2Ball(1, _WIDE), False
    ),
    DPFrankWolfeL2.name: _frank_wolfe_l2,
    DPFrankWolfeL1.name: _frank_wolfe_l1,
}
