"""Audit of the histogram of scores by class: one record, moved to another bin and another class.

The record changes two counts, and the outcome says which of the two exceed 0. This depends on the signs of
the noise, so the four outcomes have a closed-form law, and the worst outcome attains epsilon. Both counts are
needed to reject a mechanism that pays for one count only.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.evaluation.bins import ScoreBins
from privopt.mechanisms.evaluation.histogram import HistogramPlan
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource

_BINS = ScoreBins((0.0,))


@dataclass(frozen=True)
class HistogramSampler:
    """Sampler of a plan's ``release`` on one record: positive with score above 0, or negative below."""

    plan: HistogramPlan
    positive: bool

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        score, label = np.array([1.0 if self.positive else -1.0]), np.array([self.positive])
        counts = [self.plan.release(score, label, noise).counts for _ in range(runs)]
        return [2 * int(c[0, 0] > 0) + int(c[1, 1] > 0) for c in counts]


def _law(plan: HistogramPlan, positive: bool) -> tuple[float, ...]:
    """Return the law of the two signs.

    P[Z > 0] = a / (1 + a) with a = exp(-rate), and P[1 + Z > 0] = 1 / (1 + a).
    """
    ratio = math.exp(-plan.steps / 2**MAX_EXPONENT)
    without, held = ratio / (1 + ratio), 1 / (1 + ratio)
    left, right = (without, held) if positive else (held, without)
    return ((1 - left) * (1 - right), (1 - left) * right, left * (1 - right), left * right)


def _subject(name: str, plan: HistogramPlan) -> Subject:
    laws = _law(plan, True), _law(plan, False)
    samplers = HistogramSampler(plan, True), HistogramSampler(plan, False)
    return subject_by_laws(name, samplers, laws, plan.spend.epsilon, 0.0)


def evaluation_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of the score histogram, and a mutant that pays for one count of two."""
    plan = HistogramPlan.plan(_BINS, epsilon=1.0)
    mutant = _subject("one count paid for", replace(plan, steps=2 * plan.steps))
    return (AuditedClaim(plan.name, "moved record, n = 1", _subject(RELEASED, plan), (mutant,)),)
