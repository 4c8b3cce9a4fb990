"""Sufficient statistics perturbation: a linear model from one release of noisy second moments."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import helmert

from privopt.mechanisms.convex.columns import Columns
from privopt.mechanisms.convex.likely_weights import (
    Block,
    Likely,
    discriminant,
    least_squares,
    likely_blocks,
    likely_weights,
    logistic_scale,
    towards_mean,
)
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.inference.interface import LEAST_SIGNAL
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, gaussian_releases, noise_at_level
from privopt.mechanisms.privacy.matrix_noise import MatrixNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.noisy_moments import NoisyMoments, NoisySpread
from privopt.mechanisms.privacy.noisy_share import NoisyShare
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Run, StepClock
from privopt.mechanisms.risk.mechanism import RealRelease, RiskMechanism, RiskTarget
from privopt.oracles.limits import Watch
from privopt.problems.convex.losses import LogisticLoss, Loss, OneVsRestLoss, SquaredLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.parts import look_up

# Limit on the features: the matrix of moments is held in memory, with noise in every entry.
MOST_FEATURES = 1000
# The constant feature is scaled so that the mean label has about this noise, in units of the labels' bound;
# the scale stays between these multiples of the bound on the other features. The share of a class may be
# noisier: classes are told apart by the other features.
_LEAST_OFFSET = 0.5
_MEAN_NOISE, _MOST_OFFSET = 0.03, 4.0
_SHARE_NOISE, _MOST_OFFSET_OF_CLASSES = 0.1, 2.0
# Lower limit on the variance of labels, in units of the square of their bound; and the variance assumed for
# numeric labels, as a fraction of the largest possible at their mean.
_LEAST_VARIANCE, _NUMBERS_VARIANCE = 0.05, 0.25
# Factor h of the mean squared label, in units of (r / B)^2. As h^2 is below 3/2, it does not raise the
# sensitivity.
_SQUARE_WEIGHT = 1.2247
_NORMS = 1e-60, 1e60
# Share of mu^2 for the moments of residuals. Residuals are clipped at _CUT standard deviations, or farther
# out as long as noise adds at most _CUT_NOISE to the variance, but not below _LEAST_CUT times the labels'
# bound (``residual_fit``).
_RESIDUAL_SHARE, _CUT, _CUT_NOISE, _LEAST_CUT = 0.2, 3.0, 0.1, 0.01
_BLOCK = 1 << 16  # numbers in a block of rows that is processed at once


@dataclass(frozen=True)
class SufficientStatistics(RiskMechanism):
    """The means of x x' and of x y with Gaussian noise, and the linear model estimated from them.

    Everything after the release is post-processing without privacy cost: least squares of the labels on the
    centred rows with shrinkage adapted to the noise. Means, variances and covariances are shrunk towards
    typical values of all columns; the prior of a weight is 0 or Gaussian, with probability and variance
    averaged by marginal likelihood (``likely_weights``, empirical Bayes). If the noise hides everything, the
    model is the noisy mean. For the logistic loss least squares is fitted to the labels -1 and +1 and scaled
    to the logistic minimum for normal scores (``logistic_scale``); the ranking is that of least squares. For
    K > 2 classes (``OneVsRestLoss``) there is one release, too: the label of class k is then v_k, the k-th
    vertex of a regular simplex of K - 1 dimensions around 0 with |v_k| = 1 (for K = 2: -1 and +1), and x v_y'
    replaces x y. Labels of k against the rest follow, as <v_k, v_y> is 1 for class k and -1/(K - 1) for all
    others, and so do least squares of each indicator, from which ``discriminant`` makes one model of log
    odds.

    Privacy: mu-GDP, one Gaussian release, stated as (epsilon, delta); neighbours by replacing one record, n
    public. With z = (x, o), |z| <= r, o constant, and |y| <= B, the release is the mean of (z z', (r / B) z
    y), where entries above the diagonal are multiplied by sqrt 2 so that the norm of the triangle is the
    Frobenius norm; for the squared loss also the mean of h (r / B)^2 y^2, h^2 <= 3/2, which gives intervals
    the residual variance. The l2 sensitivity is at most (3 / sqrt 2) r^2 / n, with or without y^2.

    Proof, in units of r and B. Replace (z, t) by (w, s), u = t^2, v = s^2 in [0, 1], q = <z, w>. The squared
    change times n^2 is |z|^4 + |w|^4 - 2 q^2 + |z|^2 u + |w|^2 v - 2 q t s + h^2 (u - v)^2, and -2 q^2 - 2 q
    t s <= u v / 2 for every q. So it is at most 2 + u + v + u v / 2 + h^2 (u - v)^2, convex in u and in v:
    its maximum is at a corner, where it is 2, 3 + h^2 or 9/2. Labels B and -B of rows of norm r at an angle
    of 60 degrees attain it. For vectors t and s, u = |t|^2, v = |s|^2 and <t, s> in place of t s, the same
    holds, since <t, s>^2 <= u v (without y^2, so h = 0); equal labels of rows at 120 degrees attain it.

    Weights v in [0, 1] of records multiply their terms. The release is then the mean of v m, where m holds
    the terms of a record and o^2, because o^2 v is no longer constant. The change |v m - v' m'|^2 is convex
    in v and in v', so it is largest at a corner: above, or |m|^2, at most (2 + h^2) r^4 < (9/2) r^4. So the
    sensitivity is the same. The noisy mean of o^2 v is divided out afterwards.

    With ``residual_noise`` a fifth of mu^2 pays for a second release (``with_residuals``): the mean of v z
    z', v = min((e / c)^2, 1), of the residuals e = y - z' theta of least squares on the first. theta and c
    follow from the first release alone. For two records |v z z' - u w w'|^2 = v^2 |z|^4 + u^2 |w|^4 - 2 u v
    <z, w>^2 <= 2 r^4 in Frobenius norm, whatever theta and c are, so its sensitivity is sqrt 2 r^2 / n. Both
    are Gaussian releases, the second chosen adaptively after the first: mu^2 adds up (Dong, Roth and Su 2022,
    3.3).

    Attributes:
        columns: public facts about the columns behind the features, used to interpret noisy moments; only
            their features have weights. None: all features are treated alike.
        residual_noise: the noise of the second release; None: there is none.

    Source: Vu and Slavkovic (2009); Wang (2018), AdaSSP, for a private penalty in place of empirical Bayes.
    """

    name: ClassVar[str] = "sufficient-statistics"
    instead: ClassVar[str] = "use objective-perturbation"
    takes_classes: ClassVar[bool] = True
    takes_weights: ClassVar[bool] = True
    shrinks_by_noise = True
    largest_dimension = MOST_FEATURES
    noised: ClassVar[str] = "the mean of x x' and, rescaled, of x y, each entry, once"

    offset: float
    vector_noise: VectorNoise
    columns: Columns | None = None
    residual_noise: MatrixNoise | None = None

    @classmethod
    def _calibrated(cls, target: RiskTarget) -> Self:
        facts = target.facts
        offset = _offset(facts, target.mu)
        sensitivity = _sensitivity(facts, offset)
        noise, spend = gaussian_releases(
            target.epsilon,
            target.delta,
            cls.name,
            steps=1,
            releases=target.releases,
            sensitivity=sensitivity,
            dimension=_released_numbers(facts),
        )
        return cls(facts, target.convex_set, target.regularizer, spend, offset, noise)

    @classmethod
    def at_level(cls, facts: RiskFacts, mu: float, delta: float) -> Self:
        """Calibrate one mu-GDP release that is a part of a larger one; its spend is stated at ``delta``."""
        offset = _offset(facts, mu)
        sensitivity = _sensitivity(facts, offset)
        noise = noise_at_level(mu, 1, sensitivity, _released_numbers(facts), facts.n_records)
        spend = PrivacySpend.gdp(noise.level(1), delta, cls.name)
        return cls(facts, WholeSpace(facts.dimension), NO_REGULARIZER, spend, offset, noise)

    def with_residuals(self) -> Self:
        """Return the plan of both releases at the same mu.

        Raises:
            PrivacyParameterError: classes or weighted records, whose residuals are not taken.
        """
        facts, n, p = self.facts, self.facts.n_records, self.facts.dimension
        if not isinstance(facts.loss, SquaredLoss) or facts.weighted:
            raise PrivacyParameterError("moments of residuals are those of numbers, without weights")
        assert self.spend.level is not None
        mu = self.spend.level * (1 - 1e-12)
        offset = _offset(facts, math.sqrt(1 - _RESIDUAL_SHARE) * mu)
        first = noise_at_level(
            math.sqrt(1 - _RESIDUAL_SHARE) * mu, 1, _sensitivity(facts, offset), _released_numbers(facts), n
        )
        moved = _residual_sensitivity(facts, offset)
        second = noise_at_level(math.sqrt(_RESIDUAL_SHARE) * mu, 1, moved, p * (p + 1) // 2, n)
        level = math.hypot(first.level(1), second.level(1)) * (1 + 1e-15)
        spend = replace(self.spend, level=level)
        return replace(
            self, offset=offset, vector_noise=first, residual_noise=MatrixNoise(second, p), spend=spend
        )

    @classmethod
    def refusals(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> list[str]:
        """Return every reason why the mechanism cannot take the combination."""
        reasons = super().refusals(facts, convex_set, regularizer)
        if not isinstance(facts.loss, LogisticLoss | SquaredLoss):
            reasons.append(f"takes the squared and the logistic loss, not {type(facts.loss).__name__}")
        return reasons

    @property
    def _free_weights(self) -> int:
        """Count ordered levels as one: neighbours are assumed to have similar weights, as on a line."""
        columns = self.columns
        smooth = 0 if columns is None else sum(stop - start - 1 for start, stop in columns.ordered)
        return self.facts.dimension - smooth

    @property
    def noise(self) -> dict[str, float]:
        found = {"sigma": self.vector_noise.sigma, "sensitivity": self.vector_noise.sensitivity}
        if self.residual_noise is not None:
            found["residual_sigma"] = self.residual_noise.vector.sigma
        return found

    @property
    def _label_weight(self) -> float:
        """Factor of x y, r / B."""
        return math.hypot(feature_norm(self.facts), self.offset) / label_bound(self.facts.loss)

    @property
    def _square_weight(self) -> float:
        """Factor of y^2."""
        return _SQUARE_WEIGHT * self._label_weight**2

    def _compile(self, risk: EmpiricalRisk) -> None:
        """Compile nothing: moments are matrix products."""

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        found, sigma = self._noisy_moments(risk, run)
        return self._models(found, sigma), None

    def _released(self, risk: EmpiricalRisk, run: Run, spend: PrivacySpend) -> RealRelease:
        """Release the share of positives or the moments, too, from which intervals follow."""
        found, sigma = self._noisy_moments(risk, run)
        moments = self.stated_moments(found, sigma)
        return RealRelease(
            self._models(found, sigma),
            spend,
            self.noise,
            share=self._share(found.products, sigma),
            moments=moments,
            spread=None if moments is None else self._spread(risk, moments, run),
        )

    def _spread(self, risk: EmpiricalRisk, moments: NoisyMoments, run: Run) -> NoisySpread | None:
        """Release the moments of the residuals of least squares on released moments, if that is planned."""
        if self.residual_noise is None:
            return None
        noise = self.residual_noise.vector
        theta, cut = self._residual_fit(moments, noise.sigma)
        StepClock(run.watch, 1).tick()
        found = risk.total(partial(_residual_sums, offset=self.offset, theta=theta, cut=cut))
        found, sigma = found / self.facts.n_records, 0.0
        if run.source is not None:
            found, sigma = self.residual_noise.add(found, run.source), noise.sigma
        return NoisySpread(found * cut**2, sigma * cut**2)

    def _residual_fit(self, moments: NoisyMoments, sigma: float) -> tuple[Vector, float]:
        """Return the fit of the residuals, and their cut: any function of ``moments`` is private."""
        return residual_fit(moments, label_bound(self.facts.loss), sigma)

    def _share(self, b: Vector, sigma: float) -> NoisyShare | None:
        """Return the share of positives from the noisy mean of z y; None without classes or a constant."""
        if not (self.facts.constant and isinstance(self.facts.loss, LogisticLoss)) or b.ndim > 1:
            return None
        label, noise = float(b[-1]) / self.offset, sigma / (self.offset * self._label_weight)
        return NoisyShare((1 + label) / 2, noise / 2)

    def stated_moments(self, found: Moments, sigma: float) -> NoisyMoments | None:
        """Return moments with their noise; None for classes, whose logistic model they do not determine.

        None for weighted records, too: their sampling variance is not in the moments.
        """
        if self.facts.weighted or not isinstance(self.facts.loss, SquaredLoss):
            return None
        weight, n = self._label_weight, self.facts.n_records
        return NoisyMoments(found.features, found.products, found.square, sigma, weight, self.offset, n)

    def _noisy_moments(self, risk: EmpiricalRisk, run: Run) -> tuple[Moments, float]:
        """Return the moments with noise and its standard deviation, 0 without a source.

        For weighted records both are divided by the noisy mean weight, so that the moments are weighted
        means.
        """
        found = moments(risk, self.offset, run.watch)
        sigma = 0.0 if run.source is None else self.vector_noise.sigma
        if run.source is not None:
            found = self._with_noise(found, run.source)
        if not (self.facts.weighted and self.facts.constant):
            return found, sigma
        square = self.offset**2
        least = max(sigma / square, 1 / self.facts.n_records)
        mean = min(max(float(found.features[-1, -1]) / square, least), 1.0)
        A = found.features / mean
        A[-1, -1] = square
        return Moments(A, found.products / mean, found.square / mean), sigma / mean

    def _with_noise(self, found: Moments, source: NoiseSource) -> Moments:
        """Return the moments with noise in every released entry."""
        p, entries, weight = len(found.features), _entries(self.facts), self._label_weight
        scale = np.where(np.eye(p, dtype=bool), 1.0, math.sqrt(2)).ravel()[entries]
        squares = [self._square_weight * found.square] if isinstance(self.facts.loss, SquaredLoss) else []
        exact = [found.features.ravel()[entries] * scale, weight * found.products.ravel(), squares]
        noisy = self.vector_noise.add(np.concatenate(exact), source)
        A = np.zeros((p, p))
        A.ravel()[entries] = noisy[: entries.size] / scale
        A = A + A.T - np.diag(np.diag(A))
        if self.facts.constant and not self.facts.weighted:
            A[-1, -1] = self.offset**2  # public
        products = noisy[entries.size :][: found.products.size].reshape(found.products.shape)
        square = found.square
        if squares:
            square = float(noisy[-1]) / self._square_weight
        return Moments(A, products / weight, square)

    def _models(self, found: Moments, sigma: float) -> Vector:
        """Return the weights of the model in units of the risk; for several classes, one row per class."""
        if found.products.ndim == 1:
            return self._model(self._fitted(found.features, found.products, sigma), sigma)
        vertices = simplex_vertices(label_columns(self.facts.loss) + 1)
        factor = 2 * (1 - 1 / len(vertices))
        fits = [self._fitted(found.features, v @ found.products, sigma, factor) for v in vertices]
        shares = np.array([self._share_of(fit.label, factor * sigma) for fit in fits])
        indicators = np.array([fit.found.weights / 2 for fit in fits])
        weights, offsets = discriminant(indicators, fits[0].covariances, shares / np.sum(shares))
        return np.array([self._in_units(w, o, fits[0].means) for w, o in zip(weights, offsets, strict=True)])

    def _model(self, fit: _Fit, sigma: float) -> Vector:
        """Return the weights of a linear or, for two classes, of a logistic model."""
        if not isinstance(self.facts.loss, LogisticLoss):
            return self._in_units(fit.found.weights, fit.label, fit.means)
        # Labels -1 and +1 have twice the spread of labels 0 and 1.
        share, found = self._share_of(fit.label, sigma), fit.found
        middle, scale = logistic_scale(share, found.explained / 4, found.at_most / 4)
        return self._in_units(found.weights * (scale / 2), middle, fit.means)

    def _share_of(self, label: float, sigma: float) -> float:
        """Return the share of a class from the mean of labels -1 and +1, no nearer to 0 or 1 than noise."""
        hidden = sigma / self.offset if self.facts.constant else 0.0
        least = max(1 / (self.facts.n_records + 2), min(hidden / self._label_weight / 2, 0.25))
        return float(np.clip((1 + label) / 2, least, 1 - least))

    def _in_units(self, own: Vector, middle: float, means: Vector) -> Vector:
        """Return weights in the units of the risk, with a score of ``middle`` at the means."""
        weights, constant = np.zeros(self.facts.dimension), self.facts.constant
        weights[self._used] = own
        if constant:
            weights[-1] = (middle - float(means @ own)) / constant
        return weights

    def _fitted(self, A: Vector, b: Vector, sigma: float, factor: float = 1.0) -> _Fit:
        """Fit least squares to moments with noise of standard deviation sigma, of labels as ``_centred``."""
        seen = self._centred(A, b, sigma, factor)
        return _Fit(self._solved(seen, sigma), seen.label, seen.means, seen.features)

    def _centred(self, A: Vector, b: Vector, sigma: float, factor: float = 1.0) -> Centred:
        """Return covariances of the used features from noisy moments, and what they were centred by.

        The labels are ``factor`` times the labels in b, plus 1 - ``factor`` if there is a constant feature.
        """
        bound, used = label_bound(self.facts.loss), self._used
        label, hidden, means, kept, shift = 0.0, 0.0, np.zeros(len(used)), 0.0, 0.0
        if self.facts.constant:
            hidden, shift = sigma / self.offset, 1 - factor
            label = float(np.clip(factor * float(b[-1]) / self.offset + shift, -bound, bound))
            means, kept = towards_mean(A[used, -1] / self.offset, hidden / math.sqrt(2))
        centred = A[np.ix_(used, used)] - np.outer(means, means)
        noise = (factor * sigma / self._label_weight) ** 2 + kept * ((label - shift) * hidden) ** 2 / 2
        return Centred(centred, factor * b[used] - means * (label - shift), means, label, noise)

    def _solved(self, seen: Centred, sigma: float) -> Likely:
        """Solve least squares with noisy covariances."""
        if sigma == 0 or not len(seen.products):
            return least_squares(seen.features, seen.products)
        blocks = self._blocks(self._variances(seen), seen.means, sigma)
        variance = self._label_variance(seen.label)
        drawn = variance / self.facts.n_records  # sampling variance of the records
        noises = [seen.noise + drawn * float(np.mean(np.diag(block.covariances))) for block in blocks]
        return likely_weights(seen.features, seen.products, blocks, noises, sigma, variance)

    def _variances(self, seen: Centred) -> Vector:
        """Return noisy variances of the used features, not below what noisy covariances with labels imply.

        By Cauchy-Schwarz the variance of a feature is at least its squared covariance with the labels,
        divided by their variance.
        """
        largest = self._largest_variance(seen.label)
        return np.maximum(np.diag(seen.features), (seen.products**2 - seen.noise) / largest)

    def _largest_variance(self, label: float) -> float:
        """Return the largest variance of labels at their mean."""
        bound = label_bound(self.facts.loss)
        return max(bound**2 - label**2, _LEAST_VARIANCE * bound**2)

    def _label_variance(self, label: float) -> float:
        """Return the variance of labels that is assumed at their mean."""
        share = _NUMBERS_VARIANCE if isinstance(self.facts.loss, SquaredLoss) else 1.0
        return share * self._largest_variance(label)

    @property
    def _used(self) -> NDArray[np.int64]:
        """Indices of the features that may have weights, without the constant feature."""
        if self.columns is not None:
            return self.columns.features
        return np.arange(self.facts.dimension - bool(self.facts.constant), dtype=np.int64)

    def _blocks(self, variances: Vector, means: Vector, sigma: float) -> list[Block]:
        """Estimate the covariances of each block of features, in order."""
        if self.columns is not None:
            return self.columns.blocks(variances, means, sigma)
        return likely_blocks(variances, sigma, self._mean_square(len(means)))

    def _mean_square(self, features: int) -> float:
        """Return the largest mean square of features that share the bound on rows."""
        return feature_norm(self.facts) ** 2 / features


class Centred(NamedTuple):
    """Noisy covariances of features, and of features with labels.

    Attributes:
        features: covariances of features, shape (k, k).
        products: covariances of features with labels, shape (k,).
        means: means of the features, shape (k,), shrunk towards their mean.
        label: mean label.
        noise: variance of the noise of ``products``.
    """

    features: Vector
    products: Vector
    means: Vector
    label: float
    noise: float


class _Fit(NamedTuple):
    """Least squares, the mean label, the means of the features, and their noisy covariances."""

    found: Likely
    label: float
    means: Vector
    covariances: Vector


def label_bound(loss: Loss) -> float:
    """Return B, to which labels are clipped: 1 for classes, half the range of a squared loss. Public."""
    return loss.threshold / 2 if isinstance(loss, SquaredLoss) else 1.0


def label_columns(loss: Loss) -> int:
    """Return the number of coordinates of a label: one less than the classes, or 1 for numbers. Public."""
    return loss.classes - 1 if isinstance(loss, OneVsRestLoss) else 1


def simplex_vertices(classes: int) -> Vector:
    """Return the vertices of a regular simplex around 0, of norm 1, shape (classes, classes - 1)."""
    return np.asarray(helmert(classes).T * math.sqrt(classes / (classes - 1)))


class Moments(NamedTuple):
    """Means over records of z z', shape (p, p), of z y, shape (p,), and of y^2, z = (features, offset).

    Of several classes ``products`` are the means of each coordinate of y times z, shape (classes - 1, p).
    """

    features: Vector
    products: Vector
    square: float


def moments(risk: EmpiricalRisk, offset: float, watch: Watch) -> Moments:
    """Return the moments. Not private.

    Rows are clipped to the public norm of the features, without the constant one, and labels to their bound.

    Raises:
        UnfinishedDrawError: a limit was reached.
    """
    StepClock(watch, 1).tick()
    sums = risk.total(partial(_moment_sums, offset=offset))
    p, n = risk.facts.dimension, risk.facts.n_records
    A, b, square, d = sums[:p, :p], sums[p:, :p], float(sums[-1, -1]), p - bool(risk.facts.constant)
    if risk.facts.constant:
        A[-1, :d] = A[:d, -1]
        if not risk.facts.weighted:
            A[-1, -1] = n * offset**2
    products = b if isinstance(risk.facts.loss, OneVsRestLoss) else b[0]
    return Moments(A / n, products / n, square / n)


def _moment_sums(risk: EmpiricalRisk, offset: float) -> Vector:
    """Return sums of products of (z, y) with z, shape (p + k, p + 1): p rows of z z', then k rows of y z'.

    With a constant feature the last row of z z' is left at 0, except for its last entry with weighted
    records. The last column of the whole array is 0, except for its last entry, the sum of y^2.
    """
    facts = risk.facts
    d = facts.dimension - bool(facts.constant)
    sums = np.zeros((facts.dimension + label_columns(facts.loss), facts.dimension + 1))
    A, b = sums[: facts.dimension, :-1], sums[facts.dimension :, :-1]
    for x, labels, counts in _clipped_blocks(risk):
        each = _times(counts, x)
        A[:d, :d] += _product(each, x)
        b[:, :d] += (each.T @ labels).T
        if facts.constant:
            A[:d, -1] += offset * np.asarray(each.sum(axis=0)).ravel()
            b[:, -1] += offset * (counts @ labels)
            if facts.weighted:
                A[-1, -1] += offset**2 * float(np.sum(counts))
        sums[-1, -1] += float(counts @ labels[:, -1] ** 2)
    return sums


def _residual_sums(risk: EmpiricalRisk, offset: float, theta: Vector, cut: float) -> Vector:
    """Return the sum of v z z', v = min(((y - z' theta) / cut)^2, 1), shape (p, p)."""
    p, constant = risk.facts.dimension, bool(risk.facts.constant)
    d = p - constant
    sums = np.zeros((p, p))
    for x, labels, counts in _clipped_blocks(risk):
        # Computed row by row: in a product of matrices the rounding of a row may depend on the other rows.
        dense = isinstance(x, np.ndarray)
        fitted: Any = np.sum(x * theta[:d], axis=1) if dense else x @ theta[:d]
        with np.errstate(over="ignore"):
            squares = ((labels[:, 0] - fitted - offset * theta[-1] * constant) / cut) ** 2
        each = _times(counts * np.minimum(squares, 1.0), x)
        sums[:d, :d] += _product(each, x)
        if constant:
            sums[:d, -1] += offset * np.asarray(each.sum(axis=0)).ravel()
            sums[-1, -1] += offset**2 * float(counts @ np.minimum(squares, 1.0))
    if constant:
        sums[-1, :d] = sums[:d, -1]
    return sums


def _clipped_blocks(risk: EmpiricalRisk) -> Iterator[tuple[Any, Vector, Vector]]:
    """Yield rows without the constant, clipped to their norm, labels and counts, in blocks."""
    facts = risk.facts
    d = facts.dimension - bool(facts.constant)
    longest = feature_norm(facts) * (1 - (d + 16) * 2.0**-52)
    sparse = bool(sp.issparse(risk.X))
    for block in row_blocks(len(risk.y), 1 if sparse else max(d, risk.X.shape[1] - 1)):
        rows, labels = risk.bare_rows(block), _labels(facts.loss, risk.y[block])
        squares = rows.multiply(rows) if sparse else rows**2
        norms = np.sqrt(np.asarray(squares.sum(axis=1))).ravel()
        scale = longest / np.maximum(norms, longest)
        counts = risk.counts[block] if risk.weights is None else risk.weights[block]
        yield _times(scale, rows), labels, counts.astype(np.float64)


def _times(scale: Vector, rows: Any) -> Any:
    """Return rows, each multiplied by a number."""
    if not sp.issparse(rows):
        return rows * scale[:, None]
    diagonal: Any = sp.diags_array(scale)
    return diagonal @ rows


def _product(each: Any, x: Any) -> Vector:
    product: Any = each.T @ x
    return np.asarray(product if isinstance(product, np.ndarray) else product.toarray())


def _labels(loss: Loss, y: Any) -> Vector:
    """Return labels as vectors, shape (rows, k): clipped numbers, or vertices of a simplex for classes."""
    if isinstance(loss, OneVsRestLoss):
        return np.asarray(simplex_vertices(loss.classes)[y.astype(np.int64)])
    bound = label_bound(loss)
    return np.asarray(np.clip(y.astype(np.float64), -bound, bound))[:, None]


def feature_norm(facts: RiskFacts) -> float:
    """Return a bound on the l2 norm of a row without the constant feature."""
    constant = facts.constant / facts.row_norm_l2
    return facts.row_norm_l2 * math.sqrt(max((1 - constant) * (1 + constant), 1e-6))


def _offset(facts: RiskFacts, mu: float) -> float:
    """Return the value of the constant feature.

    A larger value lowers the noise in the mean label and raises it elsewhere.

    The mean label has noise of (3 / sqrt 2) B sqrt(1 + (norm / offset)^2) / (n mu).
    """
    if not facts.constant:
        return 0.0
    noise, most = _MEAN_NOISE, _MOST_OFFSET
    if isinstance(facts.loss, LogisticLoss):
        noise, most = _SHARE_NOISE, _MOST_OFFSET_OF_CLASSES
    room = (noise * facts.n_records * mu * math.sqrt(2) / 3) ** 2 - 1
    wanted = 1 / math.sqrt(room) if room > 0 else most
    return feature_norm(facts) * min(max(wanted, _LEAST_OFFSET), most)


def _sensitivity(facts: RiskFacts, offset: float) -> float:
    """Return the l2 sensitivity of the computed moments: the bound that the class proves, and rounding."""
    n, r = facts.n_records, math.hypot(feature_norm(facts), offset)
    if not _NORMS[0] <= r <= _NORMS[1]:  # fourth powers are taken of it
        raise ArithmeticError(f"moments of rows of norm {r:.3g}")
    # Rounding of sums of at most n products of two numbers of a record, in any order: the norms of a
    # record's contributions to the three means are at most r^2, r^2 and, for the squared loss, sqrt(3/2)
    # r^2.
    squared = isinstance(facts.loss, SquaredLoss)
    rounding = 2 * math.sqrt(3.5 if squared else 2) * r * r * (n + facts.dimension + 8) * 2.0**-52
    return (3 / math.sqrt(2) * r * r / n + rounding) * (1 + 1e-12 + n * 2.0**-51)


def _residual_sensitivity(facts: RiskFacts, offset: float) -> float:
    """Return the Frobenius sensitivity of the mean of v z z', and rounding as in ``_sensitivity``."""
    n, r = facts.n_records, math.hypot(feature_norm(facts), offset)
    rounding = 2 * math.sqrt(2) * r * r * (n + facts.dimension + 8) * 2.0**-52
    return (math.sqrt(2) * r * r / n + rounding) * (1 + 1e-12 + n * 2.0**-51)


def residual_fit(moments: NoisyMoments, bound: float, sigma: float) -> tuple[Vector, float]:
    """Return least squares on released moments, and the cut of its residuals.

    Directions that noise hides get no weight. Among these directions is the sum of the levels of a column, if
    it is 1 for every record.

    The cut grows as far as the noise allows: until noise of standard deviation ``sigma``, on moments in units
    of the cut, adds a tenth to the variance in the direction in which that noise is largest relative to the
    moments.
    """
    values, vectors = np.linalg.eigh(moments.features)
    noise = moments.sigma * math.sqrt(2 * len(values))
    clear = values >= max(LEAST_SIGNAL * noise, 1e-12 * float(values[-1]))
    if not np.any(clear):
        return np.zeros(len(values)), bound
    kept, basis = values[clear], vectors[:, clear]
    theta = basis @ ((basis.T @ moments.products) / kept)
    variance = moments.square - float(moments.products @ theta)
    # Noise lowers this estimate on average, as in ``LeastSquares.residual_variance``: the bias is added back.
    each = 1 / moments.label_weight**2 + float(theta @ theta) / 2
    within = float(np.sum((basis.T @ theta) ** 2 / kept)) / 2
    variance += moments.sigma**2 * (each * float(np.sum(1 / kept)) + within)
    cut = max(_CUT, math.sqrt(_CUT_NOISE * kept[0] / sigma)) * math.sqrt(max(variance, 0.0))
    return theta, min(max(cut, _LEAST_CUT * bound), 2 * bound)


def _released_numbers(facts: RiskFacts) -> int:
    products = label_columns(facts.loss) * facts.dimension
    return int(_entries(facts).size + products + isinstance(facts.loss, SquaredLoss))


def _entries(facts: RiskFacts) -> Any:
    """Return flat indices of a (p, p) upper triangle without the last entry if that is public."""
    p = facts.dimension
    flat = np.ravel_multi_index(np.triu_indices(p), (p, p))
    return flat[:-1] if facts.constant and not facts.weighted else flat


def row_blocks(n_records: int, width: int) -> Iterator[slice]:
    """Yield blocks of rows. Limits are checked before each block, as products of wide rows take long."""
    rows = max(1, _BLOCK // width)
    for k in range(0, n_records, rows):
        look_up()
        yield slice(k, k + rows)
