"""Audits of persons with several records: a histogram of places, with the noise of k records; a learned k.

A person has nine positive records with a score above 0, or one negative record below; another person has k
negative records above 0. The first person fills k places, which move from one cell to another, and the
histogram has noise for epsilon / k. The outcome says of three counts whether each is on the side of the first
table: the counts of these two cells, and the count of the other person's cell, which moves only if the other
person's places depend on the first person's records. Each side attains exp(k rate), so the worst outcome
attains epsilon.

If k is learned, one person in ten may have more records than k. Of the persons 19 have 40 records, one has
two, and all others have one; on the neighbour a person with one record has 40 instead. So the distance d(k)
of ``RecordsPlan`` rises from 0 to 1 at k = 1, and falls from 1 to 0 at every k above 2.

Neighbours: one person with all of its records, the number of persons public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.evaluation.bins import ScoreBins
from privopt.mechanisms.evaluation.histogram import HistogramPlan
from privopt.mechanisms.privacy.groups import PersonBudget
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.schemas.records import CHOICES, RecordsPlan
from privopt.problems.tables.persons import Persons

_BINS, _K = ScoreBins((0.0,)), 3
_PERSONS = 200
# Cells of the counts in an outcome, and for each the largest count on the side of the second table.
_CELLS, _MOST = ((1, 1), (0, 0), (1, 0)), (_K - 1, 0, 0)


@dataclass(frozen=True)
class PersonSampler:
    """Sampler of a histogram of the places of two persons.

    Attributes:
        plan: the plan of the histogram, for one record.
        many: whether the first person has nine records.
        shared: a fault: the first rows of the table are kept, whosever they are.
    """

    plan: HistogramPlan
    many: bool
    shared: bool = False

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        scores, labels = self._places()
        counts = [self.plan.release(scores, labels, noise).counts for _ in range(runs)]
        return [
            sum((c[cell] > m) << i for i, (cell, m) in enumerate(zip(_CELLS, _MOST, strict=True)))
            for c in counts
        ]

    def _places(self) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the score and the label of the record in each place."""
        own = 9 if self.many else 1
        persons = Persons.of([0] * own + [1] * _K)
        rows = np.arange(own + _K)[: 2 * _K] if self.shared else persons.places(_K)
        scores = np.array([1.0 if self.many else -1.0] * own + [1.0] * _K)
        labels = np.array([self.many] * own + [False] * _K)
        return scores[rows], labels[rows]

    def law(self) -> tuple[float, ...]:
        """Return the law of the outcome: P[Z > m] = a^(m + 1) / (1 + a) for m >= 0, a = exp(-rate)."""
        scores, labels = self._places()
        a, found = math.exp(-self.plan.steps / 2**MAX_EXPONENT), np.ones(1)
        for (upper, positive), most in zip(_CELLS, _MOST, strict=True):
            held = int(np.sum(((scores > 0) == bool(upper)) & (labels == bool(positive))))
            m = most - held
            above = a ** (m + 1) / (1 + a) if m >= 0 else 1 - a ** (-m) / (1 + a)
            found = np.concatenate([found * (1 - above), found * above])
        return tuple(found.tolist())


@dataclass(frozen=True)
class ChoiceSampler:
    """Sampler of a learned number of records per person, as its index among the choices.

    Attributes:
        plan: the plan of the choice.
        moved: the number of records of the person in which the tables differ.
    """

    plan: RecordsPlan
    moved: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        held = np.array([self.moved, 2, *[40] * 19, *[1] * (_PERSONS - 21)])
        return [CHOICES.index(self.plan.release(held, noise)) for _ in range(runs)]

    def law(self) -> tuple[float, ...]:
        """Return the law of the outcome. At k = 2 the distance d(k) is 0 on both tables."""
        away = [1, 0, *[0] * 8] if self.moved > 1 else [0, 0, *[1] * 8]
        weights = np.exp(-self.plan.strength * np.array(away))
        return tuple((weights / weights.sum()).tolist())


@dataclass(frozen=True)
class _WithoutNoise(RecordsPlan):
    """Mutant: releases the best choice, the first if several are best, without noise."""

    def release(self, held: NDArray[np.int64], source: NoiseSource) -> int:
        del source
        return 1 if np.count_nonzero(held > 1) <= self.n_persons // 10 else 2


def _choice_claim() -> AuditedClaim:
    plan = RecordsPlan.plan(_PERSONS, 11.0)
    doubled = replace(plan, strength=2 * plan.strength)
    bare = _WithoutNoise(plan.strength, plan.n_persons)
    bare_samplers, bare_laws = (ChoiceSampler(bare, 1), ChoiceSampler(bare, 40)), np.eye(len(CHOICES))[:2]
    mutants = (
        _choice_subject("strength doubled", doubled, plan.epsilon),
        subject_by_laws("without noise", bare_samplers, list(bare_laws), plan.epsilon, 0.0),
    )
    claim = _choice_subject(RELEASED, plan, plan.epsilon)
    return AuditedClaim("persons", f"40 records or one, k is learned from {_PERSONS} persons", claim, mutants)


def _choice_subject(name: str, plan: RecordsPlan, epsilon: float) -> Subject:
    samplers = ChoiceSampler(plan, 1), ChoiceSampler(plan, 40)
    return subject_by_laws(name, samplers, (samplers[0].law(), samplers[1].law()), epsilon, 0.0)


def person_claims() -> tuple[AuditedClaim, ...]:
    """Return the claims of a histogram of three places per person, and of a learned number of places.

    Faults of mutants: the noise of one record; records of a person that are left out because of rows of other
    persons; half the noise of the choice, or no noise.
    """
    budget = PersonBudget(1.0, 0.0, _K)
    plan = HistogramPlan.plan(_BINS, epsilon=budget.of_record("pure")[0])
    epsilon = budget.of_person(plan.spend).epsilon
    mutants = (
        _subject("the noise of one record", HistogramPlan.plan(_BINS, epsilon=1.0), epsilon),
        _subject("the first rows of the table, whosever they are", plan, epsilon, shared=True),
    )
    return (
        AuditedClaim("persons", f"nine records or one, k = {_K}", _subject(RELEASED, plan, epsilon), mutants),
        _choice_claim(),
    )


def _subject(name: str, plan: HistogramPlan, epsilon: float, shared: bool = False) -> Subject:
    samplers = PersonSampler(plan, True, shared), PersonSampler(plan, False, shared)
    return subject_by_laws(name, samplers, (samplers[0].law(), samplers[1].law()), epsilon, 0.0)
