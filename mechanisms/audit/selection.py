"""Audit of private selection: the largest of noisy scores, each of which stands for a run's model and score.

A data set is one held-out record, which every model scores 1, or 0 on the neighbour. So all runs have the
same law, and the released number is the largest of K draws: P[largest <= t] = f(P[one <= t]) with f the
generating function of K. The outcome says where the released number lies relative to two edges. Below both
edges all runs are low, so the privacy loss of a grid is the loss of one run times the number of candidates;
between the edges a run is rare, and so are runs that displace it.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.tuning.scores import NoisyMean
from privopt.mechanisms.tuning.selection import BestRun, Run, SelectionPlan

# Chosen with the laws: near these edges the epsilons of the claim and of both mutants are largest.
_CANDIDATES, _EDGES = 4, (-0.2, 0.2)


@dataclass(frozen=True)
class SelectionSampler:
    """Sampler of a plan's choice among runs that score one record: the cell of the best score."""

    plan: SelectionPlan
    record: float

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        candidates = [list(self.plan.runs(noise)) for _ in range(runs)]
        scores = iter(self.plan.score.releases([[self.record]] * sum(map(len, candidates)), noise).tolist())
        best = [self._best(each, scores, noise) for each in candidates]
        return list(np.searchsorted(_EDGES, best).tolist())

    def _best(self, candidates: list[int], scores: Iterator[float], noise: NoiseSource) -> float:
        chosen = BestRun[int](noise)
        for candidate in candidates:
            chosen.take(Run(candidate, next(scores)))
        assert chosen.best is not None
        return chosen.best.score


def _law(plan: SelectionPlan, record: float) -> tuple[float, ...]:
    """Return the law of the outcome; the noise is Laplace up to its grid of 2^-30."""
    below = np.asarray(stats.laplace.cdf(_EDGES, loc=record, scale=1 / plan.score.level)).tolist()
    if plan.law is None:
        sums = [p**plan.candidates for p in below]
    else:
        sums = [plan.law.generating(p) for p in below]
    return tuple(np.diff([0.0, *sums, 1.0]).tolist())


def _subject(name: str, plan: SelectionPlan) -> Subject:
    laws = _law(plan, 1.0), _law(plan, 0.0)
    samplers = SelectionSampler(plan, 1.0), SelectionSampler(plan, 0.0)
    return subject_by_laws(name, samplers, laws, plan.spend.epsilon, 0.0)


def selection_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of the best of a random number of runs, and grids whose runs have the whole budget."""
    plan = SelectionPlan.plan(_CANDIDATES, epsilon=1.0, delta=0.0, notion="pure")
    whole = NoisyMean(1.0, gaussian=False)
    mutants = {
        "naive grid: every candidate run with the whole budget": replace(plan, law=None, score=whole),
        "random number of runs, each with the whole budget": replace(plan, score=whole),
    }
    subjects = tuple(_subject(name, mutant) for name, mutant in mutants.items())
    return (
        AuditedClaim(
            plan.name, f"one scored record, {_CANDIDATES} candidates", _subject(RELEASED, plan), subjects
        ),
    )
