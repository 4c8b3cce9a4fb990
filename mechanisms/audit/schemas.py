"""Audits of learned schemas: cuts of numbers, categories of text, and the vote on a type.

- Cuts: in every column three records hold the number c; half of the other records hold a number far below c,
  and half a number far above c. One more record holds numbers below all others, or above all others on the
  neighbour. Cuts up to c and cuts beyond c have about the same score, and the replaced record moves the two
  scores by 1, in opposite directions. The outcome is the number of columns that are cut beyond c.
- Categories: a record moves from a category somewhat above the threshold to one below; or it is the only
  record of its category.
- Vote: a cell is a number, or text on the neighbour, and decides which type has the majority.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource
from privopt.mechanisms.schemas.categories import CategoryPlan
from privopt.mechanisms.schemas.cuts import CutPlan
from privopt.mechanisms.schemas.learning import SchemaPlan
from privopt.mechanisms.schemas.prior import LAST, masses, ordinals
from privopt.mechanisms.schemas.types import CANDIDATES, Candidate, ColumnType, VotePlan, votes_of
from privopt.problems.tables.cells import NO_MARKERS
from privopt.problems.tables.columns import Binned
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.notation import PLAIN

# Chosen with the exact laws: for these the true epsilon of the release is near its largest. With other deltas
# it is up to a third smaller.
_COLUMNS, _DELTA, _RECORDS = 4, 0.1, 112
_CENTRE, _MIDDLE, _FAR = 0.001, 3, 1e200
_VOTE_DELTA, _LEAD = 0.1, 2
_COUNT_DELTA, _COUNTED, _FREQUENT = 0.05, 1000, (7, 4)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CutSampler:
    """Sampler of a schema of numbers: how many columns are cut above the number of the middle records."""

    plan: SchemaPlan
    moved: float

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        half = (self.plan.n_records - 1 - _MIDDLE) // 2
        held = np.array([self.moved] + [-_FAR] * half + [_CENTRE] * _MIDDLE + [_FAR] * half)
        cells = {column.name: held for column in self.plan.columns}
        return [self._outcome(cells, noise) for _ in range(runs)]

    def _outcome(self, cells: Mapping[str, Floats], noise: NoiseSource) -> int:
        outcome = 0
        for column in self.plan.release(cells, noise).schema.columns:
            binned = plain_column(column)[0]
            assert isinstance(binned, Binned)
            outcome += float(binned.edges[1]) > _CENTRE
        return outcome


def _cut_laws(plan: SchemaPlan) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the laws of the outcome with the record below and above all others."""
    inner = ordinals(np.array([-_FAR, _CENTRE, _FAR])).tolist()
    ends = np.array([-LAST, *inner, LAST - 1])
    sides, n = masses(ends[:-1], ends[1:]), plan.n_records
    half = (n - 1 - _MIDDLE) // 2
    laws = []
    for moved in (1, 0):  # is the record below all cuts between the other records?
        below = np.array([0, half + moved, half + moved + _MIDDLE, n - 1 + moved])
        columns = []
        for column in plan.columns:
            assert column.cuts is not None
            strength = column.cuts.strength
            weights = sides * np.exp(-strength * np.abs(below - n / 2))
            whole = sides.sum() * np.exp(4 - strength * n / 2)
            beyond = float(weights[2:].sum() / (weights.sum() + whole))
            columns.append(np.array([1 - beyond, beyond]))
        laws.append(tuple(float(p) for p in reduce(np.convolve, columns)))
    return laws[0], laws[1]


def _cut_subject(name: str, plan: SchemaPlan) -> Subject:
    laws = _cut_laws(plan)
    samplers = CutSampler(plan, -1e300), CutSampler(plan, 1e300)
    return subject_by_laws(name, samplers, laws, plan.spend.epsilon, _DELTA)


def _with_cuts(plan: SchemaPlan, cuts: CutPlan) -> SchemaPlan:
    return dataclasses.replace(plan, columns=tuple(replace(column, cuts=cuts) for column in plan.columns))


def _cut_claim() -> AuditedClaim:
    types = {f"x{k}": ColumnType.NUMBER for k in range(_COLUMNS)}
    plan = SchemaPlan.plan(types, _RECORDS, epsilon=1.0, delta=_DELTA, cuts=1)
    cuts = plan.columns[0].cuts
    assert cuts is not None
    alone = CutPlan.plan(gaussian_mu(1.0, _DELTA), _RECORDS, most_depth=1)
    assert alone is not None
    mutants = {
        "every column spends the whole budget": _with_cuts(plan, alone),
        "strength doubled": _with_cuts(plan, replace(cuts, strength=2 * cuts.strength)),
    }
    subjects = tuple(_cut_subject(name, mutant) for name, mutant in mutants.items())
    where = f"one record below or above all others, {_COLUMNS} columns, n = {_RECORDS}"
    return AuditedClaim(SchemaPlan.name, where, _cut_subject(RELEASED, plan), subjects)


@dataclass(frozen=True)
class CategorySampler:
    """Sampler of a plan's categories: which of "a" and "b" are kept."""

    plan: CategoryPlan
    counts: tuple[int, int]

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        values = ["a"] * self.counts[0] + ["b"] * self.counts[1]
        kept = [self.plan.release(values, noise) for _ in range(runs)]
        return [("a" in found) + 2 * ("b" in found) for found in kept]


def _category_law(plan: CategoryPlan, counts: tuple[int, int]) -> tuple[float, ...]:
    """Return the law of the outcome; the noise is Gaussian up to its grid."""
    distances = [(plan.threshold - count * plan.steps) / 2**MAX_EXPONENT for count in counts]
    p, q = (
        float(stats.norm.sf(distance)) if count else 0.0
        for distance, count in zip(distances, counts, strict=True)
    )
    return (1 - p) * (1 - q), p * (1 - q), (1 - p) * q, p * q


def _category_subject(name: str, plan: CategoryPlan, first: tuple[int, int]) -> Subject:
    """Return a subject on two counts, and on those after a record moved to the second category."""
    second = first[0] - 1, first[1] + 1
    laws = _category_law(plan, first), _category_law(plan, second)
    samplers = CategorySampler(plan, first), CategorySampler(plan, second)
    return subject_by_laws(name, samplers, laws, 1.0, _COUNT_DELTA)


@dataclass(frozen=True)
class _WithThreshold(CategoryPlan):
    """Mutant with another threshold.

    Attributes:
        chosen: the threshold, in noise steps.
    """

    chosen: int

    @property
    def threshold(self) -> int:
        return self.chosen


def _category_claims() -> tuple[AuditedClaim, ...]:
    """Return the claims of a plan that spends half of delta on the threshold."""
    plan = CategoryPlan.plan(gaussian_mu(1.0, _COUNT_DELTA / 2), _COUNT_DELTA / 2, _COUNTED)
    halved = _WithThreshold(2 * plan.steps, plan.delta, plan.n_records, 2 * plan.threshold)
    at_once = _WithThreshold(plan.steps, plan.delta, plan.n_records, 1)
    claims = []
    for where, counts, name, mutant in (
        ("a record moves between frequent categories", _FREQUENT, "noise halved", halved),
        ("a record is alone in its category", (1, 0), "no threshold", at_once),
    ):
        first, second = _category_subject(RELEASED, plan, counts), _category_subject(name, mutant, counts)
        claims.append(AuditedClaim(SchemaPlan.name, where, first, (second,)))
    return tuple(claims)


@dataclass(frozen=True)
class VoteSampler:
    """Sampler of a vote of cells, ``numbers`` of which are numbers and the others text."""

    plan: VotePlan
    numbers: int
    others: int

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        votes = self.votes
        return [CANDIDATES.index(self.plan.release(votes, noise)) for _ in range(runs)]

    @property
    def votes(self) -> NDArray[np.int64]:
        cells = np.array([1.5] * self.numbers + ["text"] * self.others, dtype=object)
        return votes_of(cells, NO_MARKERS)


def _vote_subject(name: str, plan: VotePlan) -> Subject:
    laws, samplers = [], []
    for lead in (_LEAD, _LEAD - 2):
        numbers = (_RECORDS + lead) // 2
        samplers.append(VoteSampler(plan, numbers, _RECORDS - numbers))
        held = [_votes(c, numbers, _RECORDS - numbers) for c in CANDIDATES]
        weights = [math.exp(plan.strength * (votes - numbers)) for votes in held]
        laws.append(tuple(weight / sum(weights) for weight in weights))
    return subject_by_laws(name, samplers, laws, 1.0, _VOTE_DELTA)


def _votes(candidate: Candidate, numbers: int, others: int) -> float:
    """Return the votes of numbers such as 1.5 and of other texts for a candidate, by its definition."""
    if candidate.type is ColumnType.NUMBER:
        share = {PLAIN: 1.0}.get(candidate.notation, 0.8 if candidate.notation.decimal == "." else 0.0)
        return share * numbers
    return others if candidate.type is ColumnType.TEXT else 0.0


def _vote_claim() -> AuditedClaim:
    plan = VotePlan.plan(gaussian_mu(1.0, _VOTE_DELTA), _RECORDS)
    doubled = replace(plan, strength=2 * plan.strength)
    mutants = (_vote_subject("strength doubled", doubled),)
    return AuditedClaim(
        SchemaPlan.name, "a record turns the majority", _vote_subject(RELEASED, plan), mutants
    )


def schema_claims() -> tuple[AuditedClaim, ...]:
    """Return the claims of cuts, categories and the vote, each with a mutant that spends more."""
    return _cut_claim(), *_category_claims(), _vote_claim()
