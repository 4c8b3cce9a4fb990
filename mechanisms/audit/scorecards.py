"""Audits of the mechanisms for scorecards: one record, replaced by its opposite, with an exact law.

Under Huber's loss with a small threshold the gradient of a record is +-G for all possible models: the full
sensitivity is used, and the weights of the model are Gaussian. There is a pair of neighbours for each of the
two releases behind a seeded scorecard, and one for both:

- a record with a feature that no other record has, among many records that fix the weight of another
  feature: the points of the first feature reveal its weight in units of the second feature's weight, and
  there is no choice to make;
- a record with only the constant, which two candidate cards classify differently: the choice between these
  cards does not depend on the model;
- a single record, about which the sign of a weight reveals as much as the threshold chosen for it: the model
  is one Gaussian release, and the choice is accounted as a release of bounded range beside it.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, claim_by_laws, subject_by_laws
from privopt.mechanisms.convex.gradient_descent import DPGradientDescent
from privopt.mechanisms.convex.objective_perturbation import ObjectivePerturbation
from privopt.mechanisms.privacy.accounting import gaussian_delta
from privopt.mechanisms.privacy.gradient_noise import noise_at_level
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.scorecards.facts import CardFacts
from privopt.mechanisms.scorecards.prevalence import PrevalencePlan
from privopt.mechanisms.scorecards.seeded import SeededScorecard
from privopt.mechanisms.scorecards.units import NumberMeans
from privopt.oracles.select import gibbs_oracle
from privopt.problems.convex.losses import HuberLoss
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice

Floats = NDArray[np.float64]

_EPSILON, _DELTA = 1.0, 0.01
_FLAT = HuberLoss(1e-3)  # all weights of the model are far from the labels -1 and +1
_POINTS, _OTHERS = 100, 199
_HALF = 5  # records of either class beside the replaced one
_RANGE = 2  # points merged into one outcome
# Privacy level, and bin edges, for means of numbers.
_MEANS_MU, _EDGES = 1.5, np.linspace(-1, 2, 61)
_ALONE = (3, 1)  # a record whose feature outweighs the constant and gets 9 or 10 points


@dataclass(frozen=True)
class PointSampler:
    """Sampler of a plan's ``release`` on a label and other records: the points of one feature.

    Attributes:
        plan: the mechanism.
        features, label: the record that is replaced by one with the other label.
        others: number of further records (0, 1) with label +1.
        seen: the feature whose points are the outcome; ``width`` neighbouring numbers of points are merged.
    """

    plan: SeededScorecard
    features: tuple[int, int]
    label: int
    others: int
    seen: int
    width: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        rows, labels = [self.features, *[(0, 1)] * self.others], [self.label, *[1] * self.others]
        lattice = self.plan.lattice
        data = self.plan.prepare(ZeroOneHalfspace(rows, labels, lattice), gibbs_oracle("auto"))
        lowest = int(lattice.low[self.seen])
        points = [int(self.plan.release(data, noise).point[self.seen]) for _ in range(runs)]
        return [(p - lowest) // self.width for p in points]


@dataclass(frozen=True)
class BothSampler:
    """Sampler of a plan's ``release`` on a single record: the points of its feature, and the chosen card."""

    plan: SeededScorecard
    label: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        lattice = self.plan.lattice
        data = self.plan.prepare(ZeroOneHalfspace([_ALONE], [self.label], lattice), gibbs_oracle("auto"))
        rungs = int(lattice.high[1] - lattice.low[1]) + 1
        found = [self.plan.release(data, noise).point - lattice.low for _ in range(runs)]
        return [int(point[0]) * rungs + int(point[1]) for point in found]


def seeded_claims() -> tuple[AuditedClaim, ...]:
    """Return claims of the seeded scorecard, with mutants whose model or choice has too little noise."""
    return _model_claim(), _choice_claim(), _claim_of_both()


def _model_claim() -> AuditedClaim:
    numbers = CardFacts(
        1 + _OTHERS, IntegerLattice(-_POINTS, _POINTS, dimension=2), ((0, 1), (1, 2)), False, 1.0
    )
    modelled = SeededScorecard.plan(numbers, epsilon=_EPSILON, delta=_DELTA, loss=_FLAT)
    assert isinstance(modelled.seed, ObjectivePerturbation)  # by the number of features
    with_less_noise = dataclasses.replace(modelled.seed, sigma=modelled.seed.sigma / 4)
    return _claim(
        "a feature of its own",
        modelled,
        {"noise of the model quartered": dataclasses.replace(modelled, seed=with_less_noise)},
        lambda plan, label: PointSampler(plan, (1, 0), label, _OTHERS, 0, _RANGE),
        _points_law,
    )


def _choice_claim() -> AuditedClaim:
    ladder = CardFacts(1, IntegerLattice([-_POINTS, 0], [_POINTS, 1]), ((0, 1),), True, 1.0)
    chosen = SeededScorecard.plan(ladder, epsilon=_EPSILON, delta=_DELTA, loss=_FLAT)
    sharper = dataclasses.replace(chosen.choice, beta=40 * chosen.choice.beta)
    return _claim(
        "nothing but the constant",
        chosen,
        {"choice at forty times its beta": dataclasses.replace(chosen, choice=sharper)},
        lambda plan, label: PointSampler(plan, (0, 1), label, 0, 1, 1),
        _rung_law,
    )


def _claim_of_both() -> AuditedClaim:
    alone = CardFacts(1, IntegerLattice([9, -30], [10, -26]), ((0, 1),), True, math.hypot(*_ALONE))
    both = SeededScorecard.plan(alone, epsilon=_EPSILON, delta=_DELTA, loss=_FLAT, model="dp-gd")
    assert isinstance(both.seed, DPGradientDescent)
    assert both.seed.steps == 1
    noise = both.seed.vector_noise
    quieter = dataclasses.replace(both.seed, vector_noise=dataclasses.replace(noise, sigma=noise.sigma / 4))
    sharper = dataclasses.replace(both.choice, beta=40 * both.choice.beta)
    return _claim(
        "a single record",
        both,
        {
            "noise of the model quartered": dataclasses.replace(both, seed=quieter),
            "choice at forty times its beta": dataclasses.replace(both, choice=sharper),
        },
        BothSampler,
        _joint_law,
    )


@dataclass(frozen=True)
class MeansSampler:
    """Sampler of a plan's ``shares``: the bin of ``_EDGES`` that the noisy mean of one number falls into.

    Attributes:
        plan: the mechanism.
        value: the number of the replaced record, 0 or 1; the two other records have 0 and 1.
    """

    plan: NumberMeans
    value: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        rows = [(self.value, 1), (0, 1), (1, 1)]
        table = ZeroOneHalfspace(rows, [1, -1, 1], self.plan.facts.lattice)
        found = [self.plan.shares(table, noise) for _ in range(runs)]
        return [int(np.searchsorted(_EDGES, share[0])) for share in found]


def means_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of the means of numbers, with a mutant: a number moves across its whole range."""
    facts = CardFacts(
        3,
        IntegerLattice(-1, 1, dimension=2),
        ((0, 1),),
        True,
        math.sqrt(1.25),
        middle=(0.5, 0.0),
        spans=((0, 1),),
        lines=((0, 0.0, 1.0),),
    )
    plan = NumberMeans(facts, noise_at_level(_MEANS_MU, 1, 1 / 3 + 2.0**-50, 1))
    with_less_noise = dataclasses.replace(plan.noise, sigma=plan.noise.sigma / 4)
    spend = PrivacySpend.gdp(plan.level, gaussian_delta(plan.level, _EPSILON), plan.name)

    def subject(name: str, one: NumberMeans) -> Subject:
        laws = _means_law(one, 0), _means_law(one, 1)
        samplers = MeansSampler(one, 0), MeansSampler(one, 1)
        return subject_by_laws(name, samplers, laws, spend.epsilon, spend.delta)

    mutants = (subject("noise quartered", dataclasses.replace(plan, noise=with_less_noise)),)
    return (AuditedClaim(plan.name, "one number, n = 3", subject(RELEASED, plan), mutants),)


def _means_law(plan: NumberMeans, value: int) -> Floats:
    """Return the law of a Gaussian around the mean of 0, 1 and the value."""
    below = special.ndtr((_EDGES - (1 + value) / 3) / plan.noise.sigma)
    return np.asarray(np.diff(np.concatenate([[0.0], below, [1.0]])))


@dataclass(frozen=True)
class CountSampler:
    """Sampler of the released share of the positive class, times the number of records.

    Attributes:
        plan: the mechanism.
        label: the label of the replaced record, 0 or 1; half of the other records are positive.
    """

    plan: PrevalencePlan
    label: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        index = np.array([self.label, *[1] * _HALF, *[0] * _HALF])
        shares = [float(self.plan.release(np.bincount(index, minlength=2), noise)[1]) for _ in range(runs)]
        return [round(share * len(index)) for share in shares]


def prevalence_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of the prevalence estimate, with a mutant of half the noise."""
    plan = PrevalencePlan.plan(_EPSILON, 2)

    def subject(name: str, one: PrevalencePlan) -> Subject:
        laws = _count_law(one, 0), _count_law(one, 1)
        samplers = CountSampler(one, 0), CountSampler(one, 1)
        return subject_by_laws(name, samplers, laws, _EPSILON, 0.0)

    with_less_noise = dataclasses.replace(plan, steps=2 * plan.steps)
    where = f"a label, n = {2 * _HALF + 1}"
    mutants = (subject("noise halved", with_less_noise),)
    return (AuditedClaim(plan.name, where, subject(RELEASED, plan), mutants),)


def _count_law(plan: PrevalencePlan, label: int) -> Floats:
    """Return the law: discrete Laplace around the count of positives, clipped to 0..n."""
    noise = np.arange(-2000, 2001)
    mass = np.exp(-np.abs(noise) * plan.steps / 2.0**MAX_EXPONENT)
    n = 2 * _HALF + 1
    law = np.bincount(np.clip(noise + _HALF + label, 0, n), mass / np.sum(mass), minlength=n + 1)
    return np.asarray(law, dtype=np.float64)


def _claim(
    record: str,
    plan: SeededScorecard,
    mutants: Mapping[str, SeededScorecard],
    sampler: Callable[[SeededScorecard, int], PointSampler | BothSampler],
    law: Callable[[SeededScorecard, int], Floats],
) -> AuditedClaim:
    """Build the audited claim on a record with the label 1 or -1."""
    return claim_by_laws(plan, (1, -1), f"{record}, n = {plan.facts.n_records}", sampler, law, mutants)


def _points_law(plan: SeededScorecard, label: int) -> Floats:
    """Return the law of the points of the record's own feature.

    The larger of the two weights gets the largest number of points, the other a rounded ratio of two
    Gaussians: a linear function plus l2 |w|^2 / 2 + <b, w>, with b the Gaussian noise, has a minimum with
    independent Gaussian coordinates, and so has the noise added to it.
    """
    seed = plan.seed
    assert isinstance(seed, ObjectivePerturbation)
    l2, slope = seed.regularizer.l2, seed.facts.loss.lipschitz / seed.facts.n_records
    spread = math.hypot(seed.sigma / l2, seed.vector_noise.sigma)
    own, other = label * slope / l2 / spread, _OTHERS * slope / l2 / spread
    nodes, weights = np.polynomial.legendre.leggauss(1000)
    size = (other + 10) * (nodes + 1) / 2  # |other weight| / spread: nothing is beyond
    bell = np.exp(-((size - other) ** 2) / 2) + np.exp(-((size + other) ** 2) / 2)
    density = (other + 10) / 2 * weights * bell / math.sqrt(2 * math.pi)
    edges = np.concatenate([[-np.inf], np.arange(-_POINTS + _RANGE, _POINTS + 1, _RANGE) - 0.5, [np.inf]])
    below = special.ndtr(edges[:, None] * size / _POINTS - own) @ density
    law = np.diff(below)
    law[law < 1e-15] = 0.0  # rounding
    return np.asarray(law / math.fsum(law))


def _rung_law(plan: SeededScorecard, label: int) -> Floats:
    """Return the law of the exponential mechanism on a correct and a wrong threshold."""
    wrong = float(special.expit(-plan.choice.beta))
    return np.array([wrong, 1 - wrong] if label > 0 else [1 - wrong, wrong])


def _joint_law(plan: SeededScorecard, label: int) -> Floats:
    """Return the joint law: a positive weight gets 10 points, a negative one 9, each with its thresholds."""
    assert isinstance(plan.seed, DPGradientDescent)
    slope = plan.seed.facts.loss.lipschitz * _ALONE[0] / plan.seed.vector_noise.sigma
    law = []
    for points, share in ((9, special.ndtr(-label * slope)), (10, special.ndtr(label * slope))):
        rungs = np.arange(plan.lattice.low[1], plan.lattice.high[1] + 1)
        wrong = (_ALONE[0] * points + rungs > 0) != (label > 0)
        mass = np.exp(-plan.choice.beta * wrong)
        law.append(share * mass / np.sum(mass))
    return np.concatenate(law)
