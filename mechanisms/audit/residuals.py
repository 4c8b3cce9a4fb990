"""Audits of noisy sums of residuals, on a record with all numbers at one end, or near the other end.

Each noisy sum is compared with the larger of the numbers that the two records contribute. Signs of
independent discrete Laplace variables have a closed-form law, and if all sums are at least as large as these
numbers, the log of the likelihood ratio attains the l1 distance of the two records in units of the noise.
Outcomes are groups of similar likelihood ratios.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.evaluation.paired_residuals import PairedResidualPlan
from privopt.mechanisms.evaluation.residuals import NoisySums, ResidualPlan, SumsPlan
from privopt.mechanisms.privacy.noise import NoiseSource

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_GROUPS = 16


@dataclass(frozen=True)
class SumsSampler:
    """Sampler of a release on one record.

    Attributes:
        release: the mechanism on that record.
        least: a number for each sum, with which it is compared.
        groups: the outcome for each set of sums that reach their number, in the order of the bits of the set.
    """

    release: Callable[[NoiseSource], NoisySums]
    least: tuple[int, ...]
    groups: tuple[int, ...]

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        powers = 1 << np.arange(len(self.least))
        sums = np.stack([self.release(noise).sums for _ in range(runs)])
        return [self.groups[bits] for bits in ((sums >= np.array(self.least)) @ powers).tolist()]


def sums_law(plan: SumsPlan, held: Ints, least: Ints) -> Floats:
    """Return the law of the bits; P[Z >= k] = a^k / (1 + a), k >= 0, a = exp(-rate)."""
    above = np.exp(-plan.rates * (least - held)) / (1 + np.exp(-plan.rates))
    choices = [(1 - p, p) for p in reversed(above.tolist())]  # the first sum is the lowest bit
    return np.array([math.prod(chosen) for chosen in itertools.product(*choices)])


def likelihood_groups(first: Floats, second: Floats) -> Ints:
    """Return a group for each outcome: the largest likelihood ratio alone, the rest in equal parts."""
    order = np.argsort(np.log(first) - np.log(second), kind="stable")
    below = np.cumsum(first[order]) - first[order]
    groups = np.empty(len(first), dtype=np.int64)
    groups[order] = np.minimum(np.floor(_GROUPS * below), _GROUPS - 1)
    groups[order[-1]] = _GROUPS
    return groups


def sums_subject(name: str, plan: Any, first: Sequence[Any], second: Sequence[Any]) -> Subject:
    """Return the audit of a plan on two records, the arguments of its ``contributions``."""
    held = [plan.contributions(*record)[0] for record in (first, second)]
    least = np.maximum(held[0], held[1])
    fine = sums_law(plan.sums, held[0], least), sums_law(plan.sums, held[1], least)
    groups = likelihood_groups(fine[0], fine[1])
    laws = [np.bincount(groups, law, minlength=_GROUPS + 1) for law in fine]
    samplers = [
        SumsSampler(partial(plan.release, *record), tuple(least.tolist()), tuple(groups.tolist()))
        for record in (first, second)
    ]
    return subject_by_laws(name, samplers, laws, plan.spend.epsilon, 0.0)


def sums_claim(plan: Any, neighbours: str, first: Sequence[Any], second: Sequence[Any]) -> AuditedClaim:
    """Return the claim of a plan on two records, and a mutant that spends all of epsilon on each block."""
    shares = [block.share for block in plan.sums.blocks]
    steps = tuple(math.floor(s / share) for s, share in zip(plan.sums.steps, shares, strict=True))
    mutant = replace(plan, sums=replace(plan.sums, steps=steps))
    subject = sums_subject("each block with the whole budget", mutant, first, second)
    return AuditedClaim(plan.name, neighbours, sums_subject(RELEASED, plan, first, second), (subject,))


def residual_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of a regression's evaluation: a label at the top of the range, predicted at its
    bottom, is replaced by a label at a quarter of the range, predicted exactly.
    """
    plan = ResidualPlan.plan((-1.0, 1.0), epsilon=3.0)
    first, second = (np.array([1.0]), np.array([-1.0])), (np.array([-0.5]), np.array([-0.5]))
    return (sums_claim(plan, "wrong or right, n = 1", first, second),)


def comparison_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of a comparison of regressions: either only the second model is right and the first is
    off by the whole range, or only the first is right and the second is off by 1 / sqrt 2 of the range.
    """
    plan = PairedResidualPlan.plan((-1.0, 1.0), epsilon=3.0)
    first = np.array([1.0]), np.array([-1.0]), np.array([1.0])
    second = np.array([1.0]), np.array([1.0]), np.array([1 - math.sqrt(2)])
    return (sums_claim(plan, "the first or the second is right, n = 1", first, second),)
