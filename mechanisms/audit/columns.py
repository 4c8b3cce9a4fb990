"""Audits of the moments of the columns of a schema, and of the units of numbers, which are released first.

Both releases are Gaussian, so the log ratio of their densities on two neighbouring tables is Gaussian, and no
other function of a release distinguishes the tables better. Three pairs attain the sensitivity: records at
opposite ends of the range of a number, which no unit moves; records of one label with different levels; and
records that differ in their label alone.

Neighbours: replace-one, the number of records public.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import special

from privopt.mechanisms.audit.audit import Binned
from privopt.mechanisms.audit.claims import RELEASED, AuditedClaim, Subject, subject_by_laws
from privopt.mechanisms.audit.convex import masses, with_less_noise
from privopt.mechanisms.convex.column_statistics import (
    UNIT_FACTOR,
    ColumnStatistics,
    ColumnUnit,
    _column_sums,
    _share_sums,
)
from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.likely_columns import NoisyColumns
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.privacy.gradient_noise import noise_at_level
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.risk.iteration import Run
from privopt.oracles.limits import Limits
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.tables.columns import Categorical, Column, Numeric
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]

# Encoded row and label.
Record = tuple[tuple[float, ...], float]

NAME = "column-statistics"
_EPSILON, _DELTA = 1.0, 0.01
# Enough records for the means of numbers to be released, a quarter of them at the upper end: units are then
# smaller than the range, and both sizes and means are many standard deviations from where units are clipped.
_RECORDS = 300


@dataclass(frozen=True)
class ColumnsSampler:
    """Sampler of the log ratio of the densities of what a plan releases on two neighbouring tables.

    Attributes:
        plan: the plan, of one number if units are released.
        common: the records of both tables.
        pair: the record that is replaced, and the one in its place.
        second: whether to run on the second table.
    """

    plan: ColumnStatistics
    common: tuple[Record, ...]
    pair: tuple[Record, Record]
    second: bool

    @property
    def columns(self) -> Columns:
        return self.plan._shape[0]

    @cached_property
    def risks(self) -> tuple[EmpiricalRisk, EmpiricalRisk]:
        first, second = (self._risk(record) for record in self.pair)
        return first, second

    def _risk(self, last: Record) -> EmpiricalRisk:
        facts, records = self.plan.facts, (*self.common, last)
        rows = np.array([row for row, _ in records]) - np.array(self.columns.middle)
        X = np.column_stack([rows, np.full(len(rows), facts.constant)])
        labels = np.array([label for _, label in records])
        return EmpiricalRisk(X, labels, facts.loss, row_norm=facts.row_norm, constant=facts.constant)

    @cached_property
    def moments(self) -> tuple[Floats, float, float]:
        """The unit vector of the difference of moments, its length, and the projection of the middle."""
        n = self.plan.facts.n_records
        first, second = (self._weighted(_column_sums(risk, self.columns, ()) / n) for risk in self.risks)
        length = float(np.linalg.norm(second - first))
        unit = (second - first) / length
        return unit, length, float(unit @ (first + second)) / 2

    @cached_property
    def shares(self) -> tuple[float, float]:
        """The difference of the means of the number, as shares of its range, and their middle."""
        n = self.plan.facts.n_records
        first, second = (float(_share_sums(risk, self.columns)[0]) / n for risk in self.risks)
        return second - first, (first + second) / 2

    @property
    def distances(self) -> tuple[float, float]:
        """The distances of the tables in moments and in the number's mean, in units of their noise."""
        noise, own = self.plan.unit_noise, self.moments[1] / self.plan.vector_noise.sigma
        return own, 0.0 if noise is None else self.shares[0] / noise.sigma

    def _weighted(self, sums: Floats) -> Floats:
        """Return the means weighted as they are released.

        The matrix x x' has each off-diagonal entry twice, in place of once times sqrt 2: lengths are the
        same.
        """
        weights, d = self.plan._shape[1], len(self.columns.features)
        parts = sums[:d], weights.alpha * sums[d : 2 * d], weights.beta * sums[2 * d : 2 * d + 1]
        return np.concatenate([*parts, weights.gamma / weights.reach * sums[2 * d + 1 :]])

    def __call__(self, runs: int, noise: NoiseSource) -> Floats:
        risk = self.risks[self.second]
        run = Run(np.zeros(self.plan.facts.dimension), noise, Limits().start())
        return np.array([self._log_ratio(*self.plan._noisy_columns(risk, run, noise)) for _ in range(runs)])

    def _log_ratio(self, seen: NoisyColumns, units: tuple[ColumnUnit, ...]) -> float:
        unit, _, middle = self.moments
        found = np.concatenate([seen.products, seen.means, [seen.label], seen.squares.ravel()])
        along = (float(unit @ self._weighted(found)) - middle) / self.plan.vector_noise.sigma
        (own, other), noise = self.distances, self.plan.unit_noise
        if noise is None:
            return own * along
        # The unit of a single number reveals its whole noisy mean: see ``_RECORDS`` and ``unit_sizes``.
        across = (units[0].size / UNIT_FACTOR - noise.sigma - self.shares[1]) / noise.sigma
        return own * along + other * across


# A plan with a fault, made from the plan.
Fault = Callable[[ColumnStatistics], ColumnStatistics]


def _claim(
    name: str,
    column: Column,
    common: tuple[Record, ...],
    pair: tuple[Record, Record],
    faults: Mapping[str, Fault],
) -> AuditedClaim:
    columns, n = Columns.of(Schema([column], intercept=False)), len(common) + 1
    reach = math.sqrt(columns.squares[0])
    row_norm, constant = math.sqrt(1.25) * reach, reach / 2
    facts = RiskFacts(n, len(columns.features) + 1, LogisticLoss(), row_norm, "l2", constant)
    moments = SufficientStatistics.plan(facts, epsilon=_EPSILON, delta=_DELTA)
    plan = ColumnStatistics.of(moments, columns)
    assert isinstance(plan, ColumnStatistics)
    edges = np.linspace(-4, 4, 65) * math.hypot(*ColumnsSampler(plan, common, pair, False).distances)

    def subject(title: str, one: ColumnStatistics) -> Subject:
        samplers = ColumnsSampler(one, common, pair, False), ColumnsSampler(one, common, pair, True)
        apart = math.hypot(*samplers[0].distances)
        # The log ratio of two Gaussians is Gaussian with this standard deviation, around half of its square,
        # with the sign of either table.
        laws = (
            masses(special.ndtr(edges / apart + apart / 2)),
            masses(special.ndtr(edges / apart - apart / 2)),
        )
        binned = [Binned(sampler, tuple(edges.tolist())) for sampler in samplers]
        return subject_by_laws(title, binned, laws, _EPSILON, _DELTA)

    mutants = tuple(subject(title, fault(plan)) for title, fault in faults.items())
    return AuditedClaim(NAME, f"{name}, n = {n}", subject(RELEASED, plan), mutants)


def _heavier(field: str, times: float) -> Fault:
    """Return a fault: the sensitivity ignores one of the means, whose weight may then be any number."""

    def fault(plan: ColumnStatistics) -> ColumnStatistics:
        weights = plan._shape[1]
        heavier = weights._replace(**{field: times * getattr(weights, field)})
        return dataclasses.replace(plan, weights=heavier)

    return fault


def _left_out(plan: ColumnStatistics) -> ColumnStatistics:
    weights = plan._shape[1]
    factor = weights.largest / math.sqrt(weights.squared_change)
    return dataclasses.replace(plan, vector_noise=with_less_noise(plan.vector_noise, factor))


def _whole_budget_twice(plan: ColumnStatistics) -> ColumnStatistics:
    assert plan.unit_noise is not None
    assert plan.spend.level is not None
    moments, units = (
        noise_at_level(plan.spend.level, 1, noise.sensitivity, noise.dimension)
        for noise in (plan.vector_noise, plan.unit_noise)
    )
    return dataclasses.replace(plan, vector_noise=moments, unit_noise=units)


def _quiet_units(plan: ColumnStatistics) -> ColumnStatistics:
    return dataclasses.replace(plan, unit_noise=with_less_noise(plan.unit_noise, 0.1))


def column_claims() -> tuple[AuditedClaim, ...]:
    """Return claims of moments of columns: of a number with its unit, of levels, of a label.

    Faults of mutants: the units of numbers are not charged to the budget, or have nearly no noise; the
    sensitivity is computed for leaving a record out, not for replacing it; or the sensitivity ignores x x' or
    the mean label, which then has a larger weight.
    """
    low, high = ((0.0,), 1.0), ((1.0,), 1.0)
    upper = _RECORDS // 4
    common = (low,) * (_RECORDS - 1 - upper) + (high,) * upper
    a, b = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)
    site = Categorical("site", ["a", "b", "c"])
    # With 5 levels a record moves the moments most if its label changes, so this pair shows whether the
    # weight of the mean label is charged.
    many, e = Categorical("place", list("abcde")), (0.0, 0.0, 0.0, 0.0, 1.0)
    units = {
        "the whole budget for each release": _whole_budget_twice,
        "a tenth of the units' noise": _quiet_units,
    }
    moments = {"a record left out": _left_out, "products of features forgotten": _heavier("gamma", 5.0)}
    label = {"mean label forgotten": _heavier("beta", 5.0)}
    return (
        _claim("a number from end to end", Numeric("age", 0, 1), common, (low, high), units),
        _claim("one level of 3 or another", site, (), ((a, 1.0), (b, 1.0)), moments),
        _claim("either label at a level of 5", many, (), ((e, 1.0), (e, -1.0)), label),
    )
