"""Audit of private selection: the best of noisy numbers, each of which is a run's model and its score.

A data set is one held-out record, which every model scores 1, or 0 on the neighbour. So all runs have the
same law, and the released number is the largest of K draws: P[largest <= t] = f(P[one <= t]) with f the
generating function of K. The outcome is whether it exceeds a threshold, low enough that all runs are rarely
below it: there the number of runs multiplies the loss of a grid that is paid for once.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from privopt.mechanisms.audit.audit import Outcome, exact_epsilon
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.tuning.scores import NoisyMean
from privopt.mechanisms.tuning.selection import BestRun, Run, SelectionPlan

# Chosen with the laws: the epsilon of the naive grid is largest near this threshold.
_CANDIDATES, _THRESHOLD = 4, 0.2


@dataclass(frozen=True)
class SelectionSampler:
    """Sampler of a plan's choice among runs that score one record: whether the best score exceeds the
    threshold.
    """

    plan: SelectionPlan
    record: float

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        candidates = [list(self.plan.runs(noise)) for _ in range(runs)]
        scores = iter(self.plan.score.releases([[self.record]] * sum(map(len, candidates)), noise).tolist())
        return [int(self._best(each, scores, noise) > _THRESHOLD) for each in candidates]

    def _best(self, candidates: list[int], scores: Iterator[float], noise: NoiseSource) -> float:
        chosen = BestRun[int](noise)
        for candidate in candidates:
            chosen.take(Run(candidate, next(scores)))
        assert chosen.best is not None
        return chosen.best.score


def _law(plan: SelectionPlan, record: float) -> tuple[float, float]:
    """Return the law of the outcome; the noise is Laplace up to its grid of 2^-30."""
    distance = (_THRESHOLD - record) * plan.score.level
    below = 1 - math.exp(-distance) / 2 if distance > 0 else math.exp(distance) / 2
    if plan.law is None:
        none = below**plan.candidates
    else:
        none = plan.law.generating(below)
    return none, 1 - none


def _subject(name: str, plan: SelectionPlan) -> Subject:
    laws = _law(plan, 1.0), _law(plan, 0.0)
    samplers = SelectionSampler(plan, 1.0), SelectionSampler(plan, 0.0)
    return Subject(name, *samplers, plan.spend.epsilon, 0.0, exact_epsilon(*laws, 0.0), laws)


def selection_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of the best of a random number of runs, and grids whose runs have the whole budget."""
    plan = SelectionPlan.plan(_CANDIDATES, epsilon=1.0, delta=0.0, notion="pure")
    whole = NoisyMean(1.0, gaussian=False)
    mutants = {
        "naive grid: every candidate run with the whole budget": replace(plan, law=None, score=whole),
        "random number of runs, each with the whole budget": replace(plan, score=whole),
    }
    subjects = tuple(_subject(name, mutant) for name, mutant in mutants.items())
    return (AuditedClaim(plan.name, "one scored record, 4 candidates", _subject(RELEASED, plan), subjects),)
