"""Feature screening, then sufficient statistics of the selected features: for wide and sparse tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp

from privopt.mechanisms.convex.sufficient_statistics import (
    SufficientStatistics,
    feature_norm,
    label_bound,
    row_blocks,
)
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import zcdp_rho
from privopt.mechanisms.privacy.gradient_noise import shared_by
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.top_scores import TopScores
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.risk.iteration import Run, StepClock
from privopt.mechanisms.risk.mechanism import RiskMechanism, RiskTarget
from privopt.problems.convex.losses import LogisticLoss, OneVsRestLoss, SquaredLoss
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.some_columns import SomeColumns

# Share of rho for the draws; the rest is for the moments of the selected features.
_DRAWS_SHARE = 0.8
# n mu per selected feature, and the range of their number.
_BUDGET_PER_FEATURE, _FEWEST, _MOST = 100.0, 4, 500
# Rows are clipped to the norm of a row in which this share of the selected features is at its bound, the
# others at 0. Sparse rows are shorter. Rows of numbers that are uniform between their bounds have the norm of
# rows with a third of the features at their bounds, and are shortened by an eighth.
_ROW_SHARE = 0.25


@dataclass(frozen=True)
class ScreenedStatistics(RiskMechanism):
    """Draw features with large covariances with the label, and fit noisy moments of these alone.

    1. Score feature j by n times the larger magnitude of two covariances with the label. They are the
       covariances of x+ and of x-, the positive and the negative part of x_j, clipped to R. Labels are
       clipped to [-B, B].
    2. Draw k features by ``TopScores``.
    3. Release the moments of these features, rows clipped to a public norm, and fit them
       (``SufficientStatistics``). All other weights are 0.

    k, R, B and the clipping norm are public: they follow from n, epsilon, delta and the declared bounds.

    Privacy: rho-zCDP, stated as (epsilon, delta); neighbours by replacing one record, n public. The draws are
    zCDP; given them the moments are mu-GDP, hence mu^2 / 2-zCDP, and zCDP adds up over adaptive releases.

    Sensitivity of a score: 2 R B (n - 1) / n. Proof: let a and b be the means of x+ and of y over the other
    records. n cov is a function of these records plus ((n - 1) / n) (x - a)(y - b), x and a in [0, R], y and
    b in [-B, B]. The product is at most max(a (B + b), (R - a)(B - b)) and at least -max(a (B - b), (R - a)(B
    + b)); each of the four differences is at most 2 R B. So a replaced record moves n cov by at most 2 R B
    (n - 1) / n, and the larger magnitude of two such covariances by no more. The mean label needs no separate
    release.

    Attributes:
        selection: the draws of features.
        moments: the plan of the moments of the selected features.

    Source: Fan and Lv (2008), screening by marginal covariances, made private and composed here.
    """

    name: ClassVar[str] = "screened-statistics"
    instead: ClassVar[str] = "use dp-fw-l1"
    natural_norm: ClassVar[RowNorm] = "linf"
    shrinks_by_noise = True
    noised: ClassVar[str] = "the score of each feature, in every draw; the moments of the drawn features"

    selection: TopScores
    moments: SufficientStatistics

    @classmethod
    def _calibrated(cls, target: RiskTarget) -> Self:
        facts, n = target.facts, target.facts.n_records
        rho = zcdp_rho(target.epsilon, target.delta) / target.releases * (1 - 1e-9)
        count, moved = feature_count(facts, math.sqrt(2 * rho)), score_sensitivity(facts)
        selection = TopScores.at_level(_DRAWS_SHARE * rho, count, sensitivity=moved, largest=n * moved)
        rest = math.sqrt(2 * (1 - _DRAWS_SHARE) * rho)
        moments = SufficientStatistics.at_level(_selected_facts(facts, count), rest, target.delta)
        spend = _spend(cls.name, target, selection, moments)
        return cls(facts, target.convex_set, target.regularizer, spend, selection, moments)

    @classmethod
    def refusals(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> list[str]:
        """Return every reason why the mechanism cannot take the combination."""
        reasons = super().refusals(facts, convex_set, regularizer)
        if not isinstance(facts.loss, LogisticLoss | SquaredLoss) or isinstance(facts.loss, OneVsRestLoss):
            reasons.append(f"takes the squared and the logistic loss, not {type(facts.loss).__name__}")
        if _features(facts) < 1:
            reasons.append("needs a feature besides the constant one")
        return reasons

    @property
    def noise(self) -> dict[str, float]:
        return {
            "selected_features": self.selection.count,
            "score_scale": 1 / self.selection.rate,
            "score_sensitivity": self.selection.sensitivity,
            "sigma": self.moments.vector_noise.sigma,
            "sensitivity": self.moments.vector_noise.sensitivity,
        }

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """The largest Gumbel variable of a draw, compared with the score of a feature that decides the label.

        Such a feature is at its bound in half of the records, namely the records with the label B.
        """
        noise = math.log(max(2, _features(self.facts))) / self.selection.rate
        signal = self.facts.n_records / 2 * entry_bound(self.facts) * label_bound(self.facts.loss)
        return NoiseToSignal(noise, signal, "score of a feature")

    def _compile(self, risk: EmpiricalRisk) -> None:
        """Compile nothing: scores and moments are matrix products."""

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        StepClock(run.watch, 1).tick()
        scores, draws = feature_scores(risk), self.selection
        selected = draws.largest_of(scores) if run.source is None else draws.choose(scores, run.source)
        weights = self.moments._run(SomeColumns(risk, selected, self.moments.facts), run)[0]
        point = np.zeros(self.facts.dimension)
        point[selected] = weights[: len(selected)]
        point[len(scores) :] = weights[len(selected) :]  # of the constant feature
        return point, None


def entry_bound(facts: RiskFacts) -> float:
    """Return R, to which entries of rows are clipped; an l2 bound on a row bounds its entries. Public."""
    return facts.row_norm if facts.norm == "linf" else feature_norm(facts)


def feature_count(facts: RiskFacts, mu: float) -> int:
    """Return k, the number of features to select: it grows with the budget. Public."""
    wanted = round(min(facts.n_records * mu / _BUDGET_PER_FEATURE, _MOST))
    return min(max(wanted, _FEWEST), _features(facts))


def score_sensitivity(facts: RiskFacts) -> float:
    """Return the largest change of a computed score when one record is replaced. Public.

    Rounding: three sums of at most n terms each, in any order, are multiplied and subtracted; in units of 2 R
    B a score is off by at most 3 n (n + 8) 2^-54.
    """
    n = facts.n_records
    exact = 2 * entry_bound(facts) * label_bound(facts.loss) * (n - 1) / n
    return exact + 2 * entry_bound(facts) * label_bound(facts.loss) * (3 * n * (n + 8) * 2.0**-53)


def feature_scores(risk: EmpiricalRisk) -> Vector:
    """Return the score of each feature, shape (d,) without the constant one. Not private."""
    sums = risk.total(_sums)
    mean = sums[0, -1] / risk.facts.n_records
    covariances = [products[:-1] - mean * features[:-1] for products, features in (sums[1:3], sums[3:5])]
    return np.asarray(np.max(np.abs(covariances), axis=0))


def _sums(risk: EmpiricalRisk) -> Vector:
    """Return sums of y, x+ y, x+, x- y and x-, a row each, shape (5, d + 1).

    The sum of y is the last entry of its row. The sums of a feature are in the column of that feature.
    """
    facts, d = risk.facts, _features(risk.facts)
    most, bound = entry_bound(facts), label_bound(facts.loss)
    sparse = bool(sp.issparse(risk.X))
    sums = np.zeros((5, d + 1))
    for block in row_blocks(len(risk.y), 1 if sparse else d):
        rows, counts = risk.bare_rows(block), risk.counts[block].astype(np.float64)
        weighted = counts * np.clip(risk.y[block].astype(np.float64), -bound, bound)
        sums[0, -1] += np.sum(weighted)
        for k, sign in ((1, 1.0), (3, -1.0)):
            part = _clipped(rows, sign, most)
            sums[k, :-1] += part.T @ weighted
            sums[k + 1, :-1] += part.T @ counts
    return sums


def _clipped(rows: Any, sign: float, most: float) -> Any:
    """Return the positive part of rows, or the negative one, clipped to ``most``."""
    sparse = bool(sp.issparse(rows))
    if not sparse:
        return np.clip(sign * rows, 0.0, most)
    part = rows.tocsr(copy=True)
    part.data = np.clip(sign * part.data, 0.0, most)
    return part


def _features(facts: RiskFacts) -> int:
    """Return the number of features without the constant one."""
    return facts.dimension - bool(facts.constant)


def _selected_facts(facts: RiskFacts, count: int) -> RiskFacts:
    """Return the facts of the rows on the selected features, clipped to a norm that few rows attain."""
    norm = entry_bound(facts) * math.sqrt(math.ceil(_ROW_SHARE * count))
    norm = math.hypot(min(norm, feature_norm(facts)), facts.constant)
    return RiskFacts(facts.n_records, count + bool(facts.constant), facts.loss, norm, "l2", facts.constant)


def _spend(
    name: str, target: RiskTarget, selection: TopScores, moments: SufficientStatistics
) -> PrivacySpend:
    """Return the cost of all releases, added up from what was calibrated."""
    assert moments.spend.level is not None  # mu
    one = selection.rho + moments.spend.level**2 / 2
    rho = one * target.releases * (1 + 1e-12)
    if rho > zcdp_rho(target.epsilon, target.delta):
        raise PrivacyParameterError("the calibrated noise does not meet its own target: report this")
    note = shared_by(target.releases, f"{one:.4g}-zCDP each")
    return PrivacySpend(target.epsilon, target.delta, "zcdp", name, level=rho, note=note)
