"""Column screening, then moments of the chosen columns: a linear model of few columns of a schema."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.convex.column_statistics import ColumnStatistics
from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.screened_statistics import ScreenedStatistics
from privopt.mechanisms.convex.sufficient_statistics import MOST_FEATURES, SufficientStatistics, row_blocks
from privopt.mechanisms.privacy.accounting import zcdp_rho
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.top_scores import TopScores
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.risk.iteration import Run, StepClock
from privopt.mechanisms.risk.mechanism import RealRelease, RiskMechanism, RiskTarget
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.convex.some_columns import SomeColumns

# Share of rho for the draws; the rest is for the moments of the chosen columns.
_DRAWS_SHARE = 0.5
# A column of K levels that is independent of the label has a score of about _BY_CHANCE sqrt((K - 1) n v), v
# the variance of the labels 0 and 1; v is taken to be at least _LEAST_VARIANCE.
_BY_CHANCE, _LEAST_VARIANCE = 0.4, 0.02

# By default a column is drawn for each _BUDGET_PER_COLUMN of n mu, but at least _FEWEST.
_BUDGET_PER_COLUMN, _FEWEST = 100.0, 4

Span = tuple[int, int]


@dataclass(frozen=True)
class ScreenedColumns(RiskMechanism):
    """Draw columns whose levels differ in their labels, and fit noisy moments of these alone.

    1. A record has a distribution over the cells of a column: the cell of its level has probability 1; of a
       number at the share x of its range, one cell has probability x and another 1 - x. Labels are 0 and 1,
       with mean m. Let c be the sum over records of (label - m) times the distribution. The score of a column
       of K features is |c|_1 / 2 - p. Here p = 0.4 sqrt((K - 1) n v) is about the value of |c|_1 / 2 for a
       column that is independent of the label, and v is the larger of m (1 - m) and 0.02.
    2. Draw k columns by ``TopScores``.
    3. Release the moments of these columns, and fit them (``ColumnStatistics``). All other weights are 0.

    Privacy: rho-zCDP, neighbours by replacing one record, n public. The draws are zCDP; whatever k columns
    they choose, the moments are mu-GDP, hence mu^2 / 2-zCDP; and zCDP adds up over adaptive releases.

    Sensitivity of a score: (n - 1) / n + 0.4 * 3.4 sqrt((K - 1) / n). Proof: let a be the mean distribution
    of the other records and b the mean of their labels. c is a function of these records plus ((n - 1) / n)
    (e - a)(y - b), with the distribution e and the label y of the record. If another record (f, z) takes its
    place, half the l1 norm of the change is, apart from the first factor, |e - f|_1 |y - b| / 2 <= 1 for y =
    z; and for y = 1 and z = 0 it is |(1 - b) e + b f - a|_1 / 2, the total variation distance of two
    distributions, at most 1. As for p: m moves by 1 / n at most, and the slope of sqrt(v) in m is (1 - 2 m) /
    (2 sqrt(v)) <= 3.4 at v >= 0.02.

    Attributes:
        columns: public facts about the columns.
        spans: the features [start, stop) of each column of the schema.
        selection: the draws.
        level: mu of the moments.
        units: whether the moments may include units, by which numbers are rescaled (``ColumnStatistics``).
    """

    name: ClassVar[str] = ScreenedStatistics.name
    shrinks_by_noise = True
    noised: ClassVar[str] = "the score of each column, in every draw; the moments of the drawn columns"

    columns: Columns
    spans: tuple[Span, ...]
    selection: TopScores
    level: float
    units: bool = True

    @classmethod
    def at_level(
        cls,
        facts: RiskFacts,
        columns: Columns,
        spans: tuple[Span, ...],
        count: int,
        mu: float,
        delta: float,
        units: bool = True,
    ) -> Self:
        """Calibrate to mu^2 / 2-zCDP as a part of a larger release; the spend is stated at ``delta``.

        Args:
            facts: public facts of rows that are measured from the middle of the columns.
            columns, spans: public facts of the columns.
            count: k.
            mu: the budget.
            delta: the delta at which the spend is stated.
            units: whether numbers may be rescaled, by units that follow from their privately released means.
        """
        rho, n = mu**2 / 2 * (1 - 1e-12), facts.n_records
        levels = max(stop - start for start, stop in spans)
        largest = n / 4 + _BY_CHANCE * math.sqrt((levels - 1) * n / 4)
        moved = score_sensitivity(n, levels, columns.features.size)
        selection = TopScores.at_level(_DRAWS_SHARE * rho, count, sensitivity=moved, largest=largest)
        level = math.sqrt(2 * (1 - _DRAWS_SHARE) * rho)
        spend = PrivacySpend.zcdp((selection.rho + level**2 / 2) * (1 + 1e-12), delta, cls.name)
        space = WholeSpace(facts.dimension)
        return cls(facts, space, NO_REGULARIZER, spend, columns, spans, selection, level, units)

    @classmethod
    def _calibrated(cls, target: RiskTarget, columns: Columns, spans: tuple[Span, ...]) -> Self:
        mu = math.sqrt(2 * zcdp_rho(target.epsilon, target.delta) * (1 - 1e-9))
        count = drawn_columns(spans, target.facts.n_records, mu)
        made = cls.at_level(target.facts, columns, spans, count, mu, target.delta)
        spend = PrivacySpend(target.epsilon, target.delta, "zcdp", cls.name, level=made.spend.level)
        return replace(made, spend=spend)

    @classmethod
    def refusals(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> list[str]:
        """Return every reason why the mechanism cannot take the combination."""
        reasons = super().refusals(facts, convex_set, regularizer)
        if type(facts.loss) is not LogisticLoss or not facts.constant:
            reasons.append("takes two classes and a constant feature")
        return reasons

    @property
    def most_features(self) -> int:
        """The largest number of features that k drawn columns can have."""
        return sum(sorted((stop - start for start, stop in self.spans), reverse=True)[: self.selection.count])

    @property
    def noise(self) -> dict[str, float]:
        return {
            "selected_columns": self.selection.count,
            "score_scale": 1 / self.selection.rate,
            "score_sensitivity": self.selection.sensitivity,
            "moments_mu": self.level,
        }

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """The largest Gumbel variable of a draw, relative to the score of a column that decides the label."""
        noise = math.log(max(2, len(self.spans))) / self.selection.rate
        return NoiseToSignal(noise, self.facts.n_records / 4, "score of a column")

    def _compile(self, risk: EmpiricalRisk) -> None:
        """Compile nothing: scores and moments are matrix products."""

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        moments, view = self._drawn(risk, run)
        return self._whole(view, moments._run(view, run)[0]), None

    def _released(self, risk: EmpiricalRisk, run: Run, spend: PrivacySpend) -> RealRelease:
        """Release the share of positives, too, which the moments hold."""
        moments, view = self._drawn(risk, run)
        found = moments._released(view, run, moments.spend)
        deviations = None if found.deviations is None else self._whole(view, found.deviations)
        point = self._whole(view, found.point)
        return RealRelease(point, spend, self.noise, share=found.share, deviations=deviations)

    def _drawn(self, risk: EmpiricalRisk, run: Run) -> tuple[SufficientStatistics, SomeColumns]:
        """Draw columns; return the plan of their moments, and the records restricted to these columns."""
        StepClock(run.watch, 1).tick()
        scores, draws = column_scores(risk, self.columns, self.spans), self.selection
        chosen = draws.largest_of(scores) if run.source is None else draws.choose(scores, run.source)
        spans = [self.spans[j] for j in chosen]
        features = np.concatenate([np.arange(*span, dtype=np.int64) for span in spans])
        moments = self.moments(spans)
        return moments, SomeColumns(risk, features, moments.facts)

    def _whole(self, view: SomeColumns, own: Vector) -> Vector:
        """Return the weights of all features from the weights of the drawn features and of the constant."""
        point = np.zeros(self.facts.dimension)
        point[view.columns], point[-1] = own[:-1], own[-1]
        return point

    def moments(self, spans: Sequence[Span]) -> SufficientStatistics:
        """Return the plan of the moments of some columns, in the order of the schema."""
        own = self.columns.only(spans)
        far = math.sqrt(own.squares[0]) * (1 + 1e-12)
        dimension = sum(stop - start for start, stop in spans) + 1
        n, constant = self.facts.n_records, self.facts.constant
        facts = RiskFacts(n, dimension, self.facts.loss, math.hypot(far, constant), "l2", constant)
        plain = SufficientStatistics.at_level(facts, self.level, self.spend.delta)
        return ColumnStatistics.of(plain, own, units=self.units)


def drawn_columns(spans: Sequence[Span], n: int, mu: float, most: int | None = None) -> int:
    """Return the number of columns to draw, at most ``most``. Public.

    The number grows with n mu. The moments can hold the features of that many columns, whichever are drawn;
    so the number is 0 if the widest column alone has too many features.
    """
    sizes = sorted((stop - start for start, stop in spans), reverse=True)
    fitting = int(np.searchsorted(np.cumsum(sizes), MOST_FEATURES))
    return min(most or len(spans), fitting, max(_FEWEST, round(n * mu / _BUDGET_PER_COLUMN)))


def score_sensitivity(n: int, levels: int, features: int) -> float:
    """Bound the change of the computed score of any column when a record is replaced. Public.

    Rounding: for each feature, sums of at most n shares are multiplied and subtracted; these results are
    added up over the features of a column. A record's shares add up to at most 1 over a column. So a score is
    off by at most 4 n (n + features + 8) 2^-53.

    Args:
        n: the number of records.
        levels: the largest number of features of a column.
        features: the number of features of all columns.
    """
    by_chance = _BY_CHANCE * 3.4 * math.sqrt((levels - 1) / n)
    rounding = 8 * n * (n + features + 8) * 2.0**-53
    return ((n - 1) / n + by_chance) * (1 + 1e-9) + rounding


def column_scores(risk: EmpiricalRisk, columns: Columns, spans: Sequence[Span]) -> Vector:
    """Return the score of each column, shape (columns,). Not private."""
    n = risk.facts.n_records
    sums = risk.total(partial(_share_sums, columns=columns))
    positive = sums[0, -1] / n
    own = sums[0, :-1] - positive * sums[1, :-1]
    variance = max(positive * (1 - positive), _LEAST_VARIANCE)
    return np.array(
        [
            (np.sum(np.abs(own[a:b])) + abs(np.sum(own[a:b]))) / 2
            - _BY_CHANCE * math.sqrt((b - a - 1) * n * variance)
            for a, b in spans
        ]
    )


def _share_sums(risk: EmpiricalRisk, columns: Columns) -> Vector:
    """Return the sums of shares, then the number of records: a row for positive records, and one for all."""
    d = columns.features.size
    sums = np.zeros((2, d + 1))
    for block in row_blocks(len(risk.y), d):
        shares = columns.shares(risk.bare_rows(block))
        counts = risk.counts[block].astype(np.float64)
        positive = counts * (risk.y[block] > 0)
        for k, each in enumerate((positive, counts)):
            sums[k, :-1] += shares.T @ each
            sums[k, -1] += np.sum(each)
    return sums
