"""Sufficient statistics of the columns of a schema: most of the budget for label moments, some for x x'."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.likely_columns import NoisyColumns, likely_columns
from privopt.mechanisms.convex.likely_weights import Likely, logistic_scale
from privopt.mechanisms.convex.sufficient_statistics import (
    SufficientStatistics,
    _clipped_blocks,
)
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, noise_at_level
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.noisy_share import NoisyShare, likely_share
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Run, StepClock
from privopt.mechanisms.risk.mechanism import RealRelease
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts

# gamma^2, the candidates for alpha^2, and the least beta^2 / R^2 (``MomentWeights``).
_GAMMA_SQUARED, _ALPHAS_SQUARED, _LEAST_BETA_SQUARED = 0.25, (0.1, 0.2, 0.3, 0.4, 0.5), 0.08
# alpha is chosen to be best for a table with these values of the squared mean label, and of the squared mean
# of the features over R^2. All these were chosen on synthetic tables of categories, bins and numbers.
_MEAN_LABEL, _MEAN_FEATURE = 0.12, 0.03
# The release of means of numbers. All these were best on synthetic tables of 500 to 20,000 records and 3 to
# 60 numbers, some of which fill their range while others lie near one end.
_SHARE = 0.1  # the largest share of mu^2 spent on it
_ENOUGH = 0.01  # the least noise asked for: a standard deviation, as a share of a range
# The means are not released if the standard deviation of the noise, as a share of a range, would exceed
# _TOO_MUCH in the average of the means, or _HIDING in each mean.
_TOO_MUCH, _HIDING = 0.12, 0.5
UNIT_FACTOR = 1.5  # the unit of a number, in distances of its mean from the nearer end of the range
# Prior variance of means about their mean, and the number of means whose weight this prior has.
_PRIOR_VARIANCE, _PRIOR_NUMBERS = 0.02, 3
# For the variance of labels the rarer class is taken to have at least this share.
_LEAST_SHARE = 0.05


class MomentWeights(NamedTuple):
    """Factors of the released means: 1 for x y, ``alpha`` for x, ``beta`` for y, ``gamma`` / R for x x'.

    Attributes:
        reach: R, a bound on the norm of rows.
        width: S, a bound on the distance of two rows, S^2 between 2 R^2 and 4 R^2.
        alpha, beta, gamma: the weights, with 2 gamma^2 + alpha^2 <= 1.
    """

    reach: float
    width: float
    alpha: float
    beta: float
    gamma: float

    @classmethod
    def of(cls, columns: Columns) -> Self:
        """Choose weights from public facts: alpha for the least noise in covariances with labels."""
        far, wide = columns.squares
        made = [cls._with_alpha(far, wide, square) for square in _ALPHAS_SQUARED]
        return min(made, key=cls._noise)

    @classmethod
    def _with_alpha(cls, far: float, wide: float, square: float) -> Self:
        found = cls(math.sqrt(far), math.sqrt(wide), math.sqrt(square), 0.0, math.sqrt(_GAMMA_SQUARED))
        # Up to this beta the bound on the change for different labels is at most the bound for equal labels,
        # so beta costs nothing.
        free = (found._same_label - 4 * far) / 4
        return found._replace(beta=math.sqrt(max(free, _LEAST_BETA_SQUARED * far)))

    def _noise(self) -> float:
        """Return the variance of noise in covariances of features with labels, at the typical means above."""
        of_label = _MEAN_FEATURE * self.reach**2 / self.beta**2
        return self.squared_change * (1 + _MEAN_LABEL / self.alpha**2 + of_label)

    @property
    def _same_label(self) -> float:
        far, wide = self.reach**2, self.width**2
        return wide * (1 + self.alpha**2) + self.gamma**2 * wide * (4 - wide / far) / 2

    @property
    def squared_change(self) -> float:
        """Bound on the squared change of the sums when a record is replaced: see ``ColumnStatistics``."""
        return max(self._same_label, 4 * self.reach**2 + 4 * self.beta**2)

    @property
    def largest(self) -> float:
        """The largest norm of what one record adds to the sums."""
        return math.sqrt(self.reach**2 * (1 + self.alpha**2 + self.gamma**2) + self.beta**2)


@dataclass(frozen=True)
class ColumnStatistics(SufficientStatistics):
    """Sufficient statistics for two classes, with most of the budget spent on the means of x y.

    With features x measured from the middle, |x| <= R and |x - w| <= S for any two records, and labels y = -1
    and +1, the release is the mean of (x y, alpha x, beta y, gamma / R x x'), entries above the diagonal of x
    x' times sqrt 2. R and S follow from the columns (``Columns.squares``): the distance of two levels of a
    column is sqrt 2, not twice the distance of a level from the middle. Rows are clipped to the columns, so
    that this holds for any rows. A first release of the means of numbers, unless noise would hide them,
    decides the units in which numbers are read, as for cards: a number whose mean is near an end of its range
    is measured from that end. Weights are estimated by ``likely_columns``.

    Privacy: mu-GDP, neighbours by replacing one record, n public: one Gaussian release of l2 sensitivity
    sqrt(M) / n, with M the larger of

        S^2 (1 + alpha^2) + gamma^2 S^2 (4 - S^2 / R^2) / 2    and    4 R^2 + 4 beta^2,

    If the means of numbers are released, that release comes first; the units are post-processing of it, and
    mu^2 of both releases adds up.

    Proof. Replace (x, y) by (w, v); let d = x - w, s = x + w, c = |<s, d>| = ||x|^2 - |w|^2|. Then |xx' -
    ww'|^2 = (|s|^2 |d|^2 + c^2) / 2, and |s|^2 + |d|^2 + 2 c <= 4 R^2, since the left side is 4 max(|x|^2,
    |w|^2). Let R = 1 (scaling), D = |d|^2 <= S^2, and g = gamma^2, where 2 g + alpha^2 <= 1.

    Equal labels: the squared change is (1 + alpha^2) D + g (|s|^2 D + c^2) / 2. For a given D it grows with
    |s|^2 and is convex in c where |s|^2 = 4 - D - 2 c, so it is largest at c = 0 or at the largest c = |s|
    |d|, where |s| = 2 - |d|. At c = 0 it is (1 + alpha^2) D + g D (4 - D) / 2, of slope at least 1 + alpha^2
    - 2 g > 0 in D <= 4, so at most its value at S^2. At c = |s| |d| it is (1 + alpha^2) D + g D (2 - |d|)^2,
    which grows with |d| as well, since (2 - |d|)(2 - 2 |d|) >= -1/2; at |d| = S it is no larger than the
    value at c = 0, as (2 - S)^2 <= (2 - S)(2 + S) / 2 for S >= 2/3.

    Different labels: x y - w v is s up to its sign, and the squared change is |s|^2 + alpha^2 D + 4 beta^2 +
    g (|s|^2 D + c^2) / 2, with the same two cases. At c = 0 it is 4 + 4 beta^2 - (1 - alpha^2) D + g D (4 -
    D) / 2, which falls with D as 2 g <= 1 - alpha^2. At c = |s| |d| it is (2 - e)^2 + alpha^2 e^2 + 4 beta^2
    + g e^2 (2 - e)^2, e = |d| <= 2, which is at most 4 + 4 beta^2: after division by e, e (1 + alpha^2) + g e
    (2 - e)^2 <= 2 e + g e ((2 - e)^2 - 2) <= 4, as g <= 1/2 and (2 - e)^2 <= 2 unless e < 0.6, where it is at
    most 3 e. QED.

    Attributes:
        weights: the factors of the released means.
        unit_noise: the noise of the means of numbers, as shares of their ranges; None: they are not released.
    """

    weights: MomentWeights | None = None
    unit_noise: VectorNoise | None = None

    @classmethod
    def of(cls, plan: SufficientStatistics, columns: Columns, units: bool = True) -> SufficientStatistics:
        """Return the plan at the same mu for the columns of a schema.

        Args:
            plan: a plan for rows measured from the middle of the columns.
            columns: the public facts.
            units: whether numbers may be rescaled, by units that follow from their privately released means.

        Returns:
            a plan of this class, for two classes, unweighted records and a constant feature; otherwise the
            given plan, with the columns.
        """
        plain = replace(plan, columns=columns)
        facts = plan.facts
        if not cls.fits(facts, columns):
            return plain
        assert plan.spend.level is not None
        level = plan.spend.level * (1 - 1e-12)
        first = unit_noise(len(columns.lines), facts.n_records, level) if units else None
        own = level if first is None else math.sqrt((level - first.level(1)) * (level + first.level(1)))
        weights, d = MomentWeights.of(columns), len(columns.features)
        sensitivity = _sensitivity(weights, facts)
        noise = noise_at_level(own, 1, sensitivity, 2 * d + 1 + d * (d + 1) // 2, facts.n_records)
        together = math.hypot(noise.level(1), 0.0 if first is None else first.level(1)) * (1 + 1e-15)
        same = {f.name: getattr(plain, f.name) for f in fields(SufficientStatistics)}
        same |= {"vector_noise": noise, "spend": replace(plan.spend, level=together)}
        return cls(**same, weights=weights, unit_noise=first)

    @staticmethod
    def fits(facts: RiskFacts, columns: Columns) -> bool:
        """Return whether there are two classes, unweighted records, a constant feature and columns."""
        two = type(facts.loss) is LogisticLoss and not facts.weighted
        return two and facts.constant > 0 and bool(columns.parts)

    @property
    def noise(self) -> dict[str, float]:
        if self.unit_noise is None:
            return super().noise
        return {**super().noise, "unit_sigma": self.unit_noise.sigma}

    @property
    def _shape(self) -> tuple[Columns, MomentWeights]:
        assert self.columns is not None
        assert self.weights is not None
        return self.columns, self.weights

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        if run.source is None:  # exact least squares
            return super()._run(risk, run)
        return self._read(*self._noisy_columns(risk, run, run.source))[0], None

    def _released(self, risk: EmpiricalRisk, run: Run, spend: PrivacySpend) -> RealRelease:
        if run.source is None:
            return super()._released(risk, run, spend)
        seen, units = self._noisy_columns(risk, run, run.source)
        share = NoisyShare((1 + seen.label) / 2, seen.label_sigma / 2)
        point, deviations = self._read(seen, units)
        return RealRelease(point, spend, self.noise, share=share, deviations=deviations)

    def _noisy_columns(
        self, risk: EmpiricalRisk, run: Run, source: NoiseSource
    ) -> tuple[NoisyColumns, tuple[ColumnUnit, ...]]:
        """Release units of numbers, if that is planned, and the moments."""
        columns, weights = self._shape
        n, d, sigma = self.facts.n_records, len(columns.features), self.vector_noise.sigma
        units: tuple[ColumnUnit, ...] = ()
        StepClock(run.watch, 1).tick()
        if self.unit_noise is not None:
            shares = risk.total(partial(_share_sums, columns=columns)) / n
            units = _units(self.unit_noise.add(shares, source), columns, self.unit_noise.sigma)
        sums = risk.total(partial(_column_sums, columns=columns, units=units)) / n
        upper = np.triu_indices(d)
        factors = np.where(upper[0] == upper[1], 1.0, math.sqrt(2)) * weights.gamma / weights.reach
        square = sums[2 * d + 1 :].reshape(d, d)[upper]
        first = np.concatenate(
            [sums[:d], weights.alpha * sums[d : 2 * d], weights.beta * sums[2 * d : 2 * d + 1]]
        )
        noisy = self.vector_noise.add(np.concatenate([first, factors * square]), source)
        squares = np.zeros((d, d))
        squares[upper] = noisy[2 * d + 1 :] / factors
        squares = squares + squares.T - np.diag(np.diag(squares))
        label = float(noisy[2 * d]) / weights.beta
        sigmas = sigma, sigma / weights.alpha, sigma / weights.beta, sigma * weights.reach / weights.gamma
        return NoisyColumns(noisy[:d], noisy[d : 2 * d] / weights.alpha, label, squares, *sigmas, n), units

    def _read(self, seen: NoisyColumns, units: tuple[ColumnUnit, ...]) -> tuple[Vector, Vector | None]:
        """Return the weights of a logistic model of the rows of the risk, and their deviations.

        There are no deviations (None) where numbers are read in units.
        """
        columns, _ = self._shape
        rarest, hidden = 1 / (seen.records + 2), seen.label_sigma / 2
        share = min(max(likely_share((1 + seen.label) / 2, hidden), rarest), 1 - rarest)
        most = 1 - 2 * max(_LEAST_SHARE, min(hidden, 0.25), rarest)
        label = min(max(seen.label, -most), most)
        found, means = likely_columns(replace(seen, label=label), columns)
        middle, scale = logistic_scale(share, found.explained, found.at_most)
        own = scale * found.weights
        middle -= float(means @ own)
        for unit in units:
            middle += unit.move(own, columns.middle)
        point = self._in_units(own, middle, np.zeros(len(own)))
        return point, None if units else self._deviations(found, scale)

    def _deviations(self, found: Likely, scale: float) -> Vector:
        """Return posterior standard deviations: of weights; of levels, from the mean of their column."""
        columns, _ = self._shape
        assert found.covariances is not None
        variances, first = [], 0
        for start, stop in columns.parts:
            last = first + stop - start
            centre = np.eye(stop - start) - (1 / (stop - start) if stop - start > 1 else 0.0)
            variances.append(np.diag(centre @ found.covariances[first:last, first:last] @ centre))
            first = last
        deviations = np.zeros(self.facts.dimension)
        deviations[columns.features] = scale * np.sqrt(np.maximum(np.concatenate(variances), 0.0))
        return deviations


class ColumnUnit(NamedTuple):
    """Unit of a number x, measured from the middle: x is read as end + (x - end) / size, within its range.

    Attributes:
        feature: the number.
        half: half of its range.
        end: -half or half.
        size: the unit as a share of the range, at most 1.
        gap: the value of x if the number is missing, and the feature that says so; None: it is never missing.
    """

    feature: int
    half: float
    end: float
    size: float
    gap: tuple[float, int] | None

    def read(self, x: Vector) -> Vector:
        return np.asarray(np.clip(self.end + (x - self.end) / self.size, -self.half, self.half))

    def move(self, weights: Vector, middle: Sequence[float]) -> float:
        """Replace the weight of the rescaled number by the weight of x; return what is added to all scores.

        Features are measured from ``middle``, indicators of missing numbers among them.
        """
        weight, shift = float(weights[self.feature]), self.end * (1 - 1 / self.size)
        weights[self.feature] = weight / self.size
        gained = weight * shift
        if self.gap is not None:
            where, flag = self.gap
            missing = weight * (float(self.read(np.array(where))) - where / self.size - shift)
            weights[flag] += missing
            gained += missing * middle[flag]
        return gained


def unit_noise(numbers: int, n: int, mu: float) -> VectorNoise | None:
    """Calibrate the noise of means of numbers to a share of mu^2; None if there are no numbers, or if noise
    would hide their means.

    Means are of shares of ranges, in [0, 1]: their l2 sensitivity is sqrt(numbers) / n, and rounding.
    """
    if not numbers:
        return None
    sensitivity = math.sqrt(numbers) * (1 / n + 2 * (n + 8) * 2.0**-52) * (1 + 1e-12)
    noise = noise_at_level(min(mu * math.sqrt(_SHARE), sensitivity / _ENOUGH), 1, sensitivity, numbers, n)
    most = min(_TOO_MUCH * math.sqrt(numbers), _HIDING)
    return noise if noise.sigma <= most else None


class UnitSize(NamedTuple):
    """Unit of a number as a share of its range, at most 1, and whether it is counted from the upper end."""

    size: float
    upper: bool


def unit_sizes(shares: Vector, sigma: float) -> list[UnitSize]:
    """Return units of numbers by their means, as shares of their ranges, with noise of ``sigma`` each.

    Means are shrunk towards their average by empirical Bayes: noise that hides each of many means need not
    hide that most means are near one end. A unit is computed from the distance of the shrunk mean from the
    nearer end, plus one standard deviation of its remaining error, as too small a unit would clip
    information.
    """
    count, centre = len(shares), float(np.mean(shares))
    seen = max(float(np.sum((shares - centre) ** 2)) - (count - 1) * sigma**2, 0.0)
    spread = (seen + _PRIOR_NUMBERS * _PRIOR_VARIANCE) / (count - 1 + _PRIOR_NUMBERS)
    kept = spread / (spread + sigma**2)
    unsure = sigma * math.sqrt(kept + (1 - kept) / count)
    near = (centre + kept * (shares - centre)).tolist()
    distances = [max(min(share, 1 - share), 0.0) for share in near]
    return [
        UnitSize(min(1.0, UNIT_FACTOR * (distance + unsure)), share > 0.5)
        for distance, share in zip(distances, near, strict=True)
    ]


def _sensitivity(weights: MomentWeights, facts: RiskFacts) -> float:
    """Return the l2 sensitivity of the computed means: the bound that the class proves, and rounding.

    Rounding occurs where features are measured from the middle and clipped, and in sums of at most n
    numbers, in any order.
    """
    n = facts.n_records
    rounding = 2 * weights.largest * (n + facts.dimension + 8) * 2.0**-52
    return (math.sqrt(weights.squared_change) / n + rounding) * (1 + 1e-12 + n * 2.0**-51)


def _share_sums(risk: EmpiricalRisk, columns: Columns) -> Vector:
    """Return the sum of each number as a share of its range, shape (numbers,)."""
    found = np.zeros(len(columns.lines))
    for x, _, counts in _clipped_blocks(risk):
        for k, (feature, low, high) in enumerate(columns.lines):
            found[k] += float(counts @ np.clip(x[:, feature] / (high - low) + 0.5, 0.0, 1.0))
    return found


def _column_sums(risk: EmpiricalRisk, columns: Columns, units: tuple[ColumnUnit, ...]) -> Vector:
    """Return the sums of x y, x, y and, flat, of x x' over records, x clipped to the columns."""
    d = len(columns.features)
    first, squares = np.zeros(2 * d + 1), np.zeros((d, d))
    for rows, labels, counts in _clipped_blocks(risk):
        x = np.array(rows)
        for unit in units:
            x[:, unit.feature] = unit.read(x[:, unit.feature])
        x = columns.clipped(x)
        each = x * counts[:, None]
        first += np.concatenate([each.T @ labels[:, 0], np.sum(each, axis=0), [counts @ labels[:, 0]]])
        squares += each.T @ x
    return np.concatenate([first, squares.ravel()])


def _units(shares: Vector, columns: Columns, sigma: float) -> tuple[ColumnUnit, ...]:
    """Return the units of all numbers by their noisy means, with noise of ``sigma``, as shares of ranges."""
    found = []
    for (size, upper), (feature, low, high) in zip(unit_sizes(shares, sigma), columns.lines, strict=True):
        half = (high - low) / 2
        gap = (-columns.middle[feature], feature + 1) if feature + 1 in columns.gaps else None
        found.append(ColumnUnit(feature, half, half if upper else -half, size, gap))
    return tuple(found)
