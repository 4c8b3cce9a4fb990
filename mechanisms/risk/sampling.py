"""Poisson batches: default sizes, bounds on a record's contribution, and the planned noise and spend.

Batch sizes, like everything else in a plan, depend on public facts; the size of an actual batch is random and
never released.
"""

from __future__ import annotations

import math

from privopt.mechanisms.privacy.events import SampledGaussian
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, shared_by
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.poisson import grid_distance, poisson_multiplier, sampled_noise
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.mechanism import RiskTarget
from privopt.problems.convex.risk import RiskFacts

TOGETHER = "accounted as one sequence of sampled steps"

# Largest default number of sampled steps, and smallest batch size.
MOST_SAMPLED_STEPS = 5000
_LEAST_BATCH = 64
# Targets of the default batch size: see ``private_batch`` and ``balanced_batch``.
_MULTIPLIER = 2.0
_SAMPLING_SHARE = 0.25
_PASSES = 20


def sum_share(facts: RiskFacts) -> float:
    """Return the factor by which the effect of a record on a computed batch sum may exceed the bound on its
    term.

    Two sums of up to n terms each have an error of n times ``rounding``, which includes the effect of
    membership in a batch on the computed slopes of other rows.
    """
    return 1 + facts.n_records * 2 * facts.rounding


def record_bound(facts: RiskFacts) -> float:
    """Return the largest contribution of a record to a computed sum: G plus rounding."""
    return facts.gradient_bound * sum_share(facts)


def private_batch(facts: RiskFacts, steps: int, mu: float) -> int:
    """Return the least expected batch size with which T steps, together mu-GDP, need no more noise than steps
    on all records.

    By the central limit theorem the multiplier z is about 2 q sqrt(T) / mu (Bu, Dong, Long and Su 2020),
    so that the mean gradient has the same noise as in T full steps, for any q. For z >= 2 this approximation
    is accurate to about 1%; below z = 1 more noise is needed.
    """
    return math.ceil(_MULTIPLIER / 2 * facts.n_records * mu / math.sqrt(steps))


def balanced_batch(facts: RiskFacts, steps: int, mu: float) -> int:
    """Return the least expected batch size at which sampling costs T steps neither privacy nor accuracy.

    The variance of sampling, with gradients of typical length, should be at most a quarter of the variance of
    the noise, whose standard deviation is 2 G sqrt(T) / (n mu) per coordinate. But to meet this condition the
    steps need not read more records in total than 20 passes over the data.
    """
    n, p = facts.n_records, facts.dimension
    variance = p * steps * (2 * facts.gradient_bound / (n * mu)) ** 2
    steady = typical_gradient(facts) ** 2 / (_SAMPLING_SHARE * variance)
    return max(private_batch(facts, steps, mu), math.ceil(min(steady, _PASSES * n / steps)))


def typical_gradient(facts: RiskFacts) -> float:
    """Return a guess of gradient norms, for accuracy only: slopes are assumed to be half their bound, as
    slopes of the logistic loss at 0 are.
    """
    return facts.gradient_bound / 2


def sampling_rate(facts: RiskFacts, batch: int | None, default: int) -> float:
    """Return q, the expected share of the records in a batch: ``batch`` records, or the default size."""
    expected = max(_LEAST_BATCH, default) if batch is None else check_count(batch, "batch")
    return min(1.0, expected / facts.n_records)


def sampled_releases(
    target: RiskTarget, name: str, q: float, steps: int, bound: float
) -> tuple[VectorNoise, PrivacySpend]:
    """Calibrate noise for ``steps`` Poisson batches a run with contributions up to ``bound``; return the
    cost.
    """
    together = steps * target.releases
    z = poisson_multiplier(
        target.epsilon,
        target.delta,
        q=q,
        steps=together,
        coordinates=together * target.facts.dimension,
    )
    note = shared_by(target.releases, TOGETHER)
    distance = grid_distance(together * target.facts.dimension)
    event = SampledGaussian(target.epsilon, target.delta, z, q, together, distance=distance)
    spend = PrivacySpend.approximate(target.epsilon, target.delta, name, note=note, event=event)
    return sampled_noise(z, bound, target.facts.dimension), spend
