"""Audit of screened features: a record that raises the score of one feature, or of all others.

Two records have the label 1 and a one in the first feature; the last has the label 1, and a one in the first
feature or in all others; the rest have the label -1 and no ones. So the last record moves n times the
covariance of every feature by nearly 2, the sensitivity. All features but one are drawn, and the outcome is
whether the first is left: its chance is a product over the draws. The claim is that of the draws alone, the
first of two adaptive releases.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from privopt.mechanisms.audit.audit import Outcome, exact_epsilon
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject
from privopt.mechanisms.convex.screened_statistics import ScreenedStatistics, feature_scores
from privopt.mechanisms.privacy.accounting import zcdp_epsilon, zcdp_rho
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk

# So few records that all features but one are drawn. With two records of the first feature, being left is
# rare on either side, and the most is spent.
_EPSILON, _DELTA = 3.5, 0.01
_RECORDS, _FEATURES, _AHEAD = 300, 5, 2


def _risk(first: bool) -> EmpiricalRisk:
    """Return the records of which the last has a one in the first feature, or in all others."""
    X, y = np.zeros((_RECORDS, _FEATURES)), np.full(_RECORDS, -1.0)
    X[:_AHEAD, 0], y[:_AHEAD] = 1.0, 1.0
    X[-1, 0], X[-1, 1:], y[-1] = first, not first, 1.0
    return EmpiricalRisk(X, y, LogisticLoss(), norm="linf")


@dataclass(frozen=True)
class ScreeningSampler:
    """Sampler of a plan's draws of features; the outcome is whether the first is left.

    Attributes:
        plan: the plan.
        first: whether the last record has its one in the first feature.
    """

    plan: ScreenedStatistics
    first: bool

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        scores = feature_scores(_risk(self.first))
        return [int(0 not in self.plan.selection.choose(scores, noise)) for _ in range(runs)]

    def law(self) -> tuple[float, float]:
        """Return the probabilities that the first feature is drawn, and that it is left."""
        # A one at a label of 1 counts 1 - mean.
        one = 2 - 2 * (_AHEAD + 1) / _RECORDS
        own, other = _AHEAD * one + one * self.first, one * (not self.first)
        odds = math.exp(self.plan.selection.rate * (other - own))
        left = math.prod(m * odds / (1 + m * odds) for m in range(1, _FEATURES))
        return 1 - left, left


def _subject(name: str, plan: ScreenedStatistics, epsilon: float) -> Subject:
    samplers = ScreeningSampler(plan, True), ScreeningSampler(plan, False)
    laws = samplers[0].law(), samplers[1].law()
    return Subject(name, *samplers, epsilon, _DELTA, exact_epsilon(*laws, _DELTA), laws)


def screening_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of the draws of features, and mutants.

    Their faults: the sensitivity of a score halved, as if a record could only be left out; every draw with
    the whole budget.
    """
    plan = ScreenedStatistics.plan(_risk(True).facts, epsilon=_EPSILON, delta=_DELTA)
    draws = plan.selection
    assert draws.count == _FEATURES - 1
    whole = zcdp_rho(_EPSILON, _DELTA)
    faults = {
        "sensitivity of a score halved": dataclasses.replace(draws, sensitivity=draws.sensitivity / 2),
        "every draw with the whole budget": dataclasses.replace(draws, draw_epsilon=math.sqrt(8 * whole)),
    }
    epsilon = zcdp_epsilon(draws.rho, _DELTA)
    mutants = tuple(
        _subject(name, dataclasses.replace(plan, selection=fault), epsilon) for name, fault in faults.items()
    )
    neighbours = f"a one in one feature or in the others, n = {_RECORDS}, d = {_FEATURES}"
    return (AuditedClaim(plan.name, neighbours, _subject(RELEASED, plan, epsilon), mutants),)
