"""Audit of a drawn subset of columns: one record moves the loss of one column up and of all others down.

Common records have the label 1 and ones everywhere, so that the best weight of every column is nearly 1. The
last record has the label 1, and either -1 in the first column and ones elsewhere, or the reverse. The loss of
a column with a -1 is min over |b| <= 1 of m (1 - b)^2 + (1 + b)^2 = 4 m / (m + 1), with m the number of
common records, and 0 without; a record's loss is at most Delta = 4. The first column is drawn rarely, and
more rarely if it has the -1, so nearly all of epsilon is spent.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.discrete.subset import SubsetPlan
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.discrete.supports import UNITS, BestSubset, SubsetBounds, SupportLattice

# Common records and columns: more of either bring the pair nearer to the claim, and its outcome is rarer.
_COMMON, _COLUMNS = 60, 16


@dataclass(frozen=True)
class SubsetSampler:
    """Sampler of a plan's draw by branch and bound; the outcome is whether the first column is drawn.

    Attributes:
        plan: the plan of the draw, of one column.
        first_fits: whether the last record has its -1 everywhere but in the first column.
        screened: a fault: only the half of the columns that fits the records better may be drawn.
    """

    plan: SubsetPlan
    first_fits: bool
    screened: bool = False

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        X = np.ones((_COMMON + 1, _COLUMNS))
        X[-1, 0] = 1.0 if self.first_fits else -1.0
        X[-1, 1:] = -X[-1, 0]
        X = X[:, self._kept]
        lattice = SupportLattice(X.shape[1], 1)
        plan = dataclasses.replace(self.plan.choice, lattice=lattice)
        problem = BestSubset(X, np.ones(len(X)), lattice, self.plan.bounds)
        oracle = prepare_oracle("supports", plan, problem)
        drawn = [int(np.argmax(plan.release(oracle, noise).point)) for _ in range(runs)]
        return [int(self._kept[j] == 0) for j in drawn]

    @property
    def _kept(self) -> list[int]:
        """The columns that may be drawn."""
        if not self.screened:
            return list(range(_COLUMNS))
        start = 0 if self.first_fits else 1
        return list(range(start, start + _COLUMNS // 2))

    def law(self) -> tuple[float, float]:
        """Return the probabilities of other columns and of the first, from the losses of the derivation."""
        gap = self.plan.choice.beta * UNITS * _COMMON / (_COMMON + 1)
        odds = math.exp(gap if self.first_fits else -gap) / (len(self._kept) - 1)
        if self._kept[0] > 0:
            return 1.0, 0.0
        return 1 / (1 + odds), odds / (1 + odds)


def subset_claims() -> tuple[AuditedClaim, ...]:
    """Return the claim of a drawn column, and mutants.

    Their faults: twice the inverse temperature; a Delta of label^2, a record's loss at b = 0, although at the
    minimum a record may lose more; columns screened by the records beforehand.
    """
    plan = SubsetPlan.plan(_COLUMNS, 1, SubsetBounds(1.0, feature=1.0), epsilon=1.0)
    share = plan.bounds.largest_loss(1) / plan.bounds.label**2
    mutants = (
        _subject("beta doubled", _sharper(plan, 2)),
        _subject("Delta of zero weights", _sharper(plan, share)),
        _subject("columns screened by the records", plan, screened=True),
    )
    neighbours = f"a misfit of one column or of the others, n = {_COMMON + 1}"
    return (AuditedClaim(plan.name, neighbours, _subject(RELEASED, plan), mutants),)


def _sharper(plan: SubsetPlan, times: float) -> SubsetPlan:
    return dataclasses.replace(plan, choice=dataclasses.replace(plan.choice, beta=times * plan.choice.beta))


def _subject(name: str, plan: SubsetPlan, screened: bool = False) -> Subject:
    samplers = SubsetSampler(plan, False, screened), SubsetSampler(plan, True, screened)
    laws = samplers[0].law(), samplers[1].law()
    return subject_by_laws(name, samplers, laws, plan.choice.spend.epsilon, 0.0)
