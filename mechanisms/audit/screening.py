"""Audit of screened features and columns: a record that raises one score, or all others.

Two records have the label 1 and a one in the first feature; the last has the label 1, and a one in the first
feature or in all others; the rest have the label -1 and no ones. So the last record moves n times the
covariance of every feature by nearly 2, the sensitivity. All features but one are drawn, and the outcome is
whether the first is the one left out: this probability is a product over the draws. The claim is for
the draws alone, the first of two adaptive releases. For columns of a schema the ones are levels, and labels
count as 1 and 0.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.audit.audit import Outcome
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.screened_columns import ScreenedColumns, column_scores
from privopt.mechanisms.convex.screened_statistics import ScreenedStatistics, feature_scores
from privopt.mechanisms.privacy.accounting import zcdp_epsilon, zcdp_rho
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.tables.columns import Categorical
from privopt.problems.tables.schema import Schema

# So few records that all features but one are drawn. With two further records in the first feature, leaving
# it out is rare on either side, and nearly all of epsilon is spent.
_EPSILON, _DELTA = 3.5, 0.01
_RECORDS, _FEATURES, _AHEAD = 300, 5, 2
_SCHEMA = Schema([Categorical(f"x{k}", [1], "ignore") for k in range(_FEATURES)], intercept=True)
Floats = NDArray[np.float64]


def _risk(first: bool) -> EmpiricalRisk:
    """Return the records of which the last has a one in the first feature, or in all others."""
    return EmpiricalRisk(*_records(first), LogisticLoss(), norm="linf")


def _records(first: bool) -> tuple[Floats, Floats]:
    X, y = np.zeros((_RECORDS, _FEATURES)), np.full(_RECORDS, -1.0)
    X[:_AHEAD, 0], y[:_AHEAD] = 1.0, 1.0
    X[-1, 0], X[-1, 1:], y[-1] = first, not first, 1.0
    return X, y


def _risk_of_columns(first: bool) -> EmpiricalRisk:
    """Return the records as rows of a schema, measured from its middle."""
    X, y = _records(first)
    rows = np.column_stack([X - _SCHEMA.middle[:-1], np.ones(_RECORDS)])
    return EmpiricalRisk(rows, y, LogisticLoss(), row_norm=math.sqrt(_FEATURES / 4 + 1), constant=1.0)


@dataclass(frozen=True)
class ScreeningSampler:
    """Sampler of a plan's draws of features or columns; the outcome is whether the first is left out.

    Attributes:
        plan: the plan.
        first: whether the last record has its one in the first feature.
    """

    plan: ScreenedStatistics | ScreenedColumns
    first: bool

    def __call__(self, runs: int, noise: NoiseSource) -> list[Outcome]:
        if isinstance(self.plan, ScreenedColumns):
            scores = column_scores(_risk_of_columns(self.first), self.plan.columns, self.plan.spans)
        else:
            scores = feature_scores(_risk(self.first))
        return [int(0 not in self.plan.selection.choose(scores, noise)) for _ in range(runs)]

    def law(self) -> tuple[float, float]:
        """Return the probabilities that the first feature is drawn, and that it is left out."""
        # A one at a label of 1 counts 1 - mean; labels of columns are 1 and 0, of features 1 and -1.
        one = (1 - (_AHEAD + 1) / _RECORDS) * (1 if isinstance(self.plan, ScreenedColumns) else 2)
        own, other = _AHEAD * one + one * self.first, one * (not self.first)
        odds = math.exp(self.plan.selection.rate * (other - own))
        left = math.prod(m * odds / (1 + m * odds) for m in range(1, _FEATURES))
        return 1 - left, left


def _subject(name: str, plan: ScreenedStatistics | ScreenedColumns, epsilon: float) -> Subject:
    samplers = ScreeningSampler(plan, True), ScreeningSampler(plan, False)
    laws = samplers[0].law(), samplers[1].law()
    return subject_by_laws(name, samplers, laws, epsilon, _DELTA)


def screening_claims() -> tuple[AuditedClaim, ...]:
    """Return the claims of the draws of features and of columns, and mutants.

    Their faults: the sensitivity of a score halved, as if a record could only be left out; every draw with
    the whole budget.
    """
    features = ScreenedStatistics.plan(_risk(True).facts, epsilon=_EPSILON, delta=_DELTA)
    whole = math.sqrt(2 * zcdp_rho(_EPSILON, _DELTA))
    columns = ScreenedColumns.at_level(
        _risk_of_columns(True).facts, Columns.of(_SCHEMA), _SCHEMA.spans, _FEATURES - 1, whole, _DELTA
    )
    return _claims(features, "a one in one feature"), _claims(columns, "a level in one column")


def _claims(plan: ScreenedStatistics | ScreenedColumns, neighbours: str) -> AuditedClaim:
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
    where = f"{neighbours} or in the others, n = {_RECORDS}, d = {_FEATURES}"
    return AuditedClaim(plan.name, where, _subject(RELEASED, plan, epsilon), mutants)
