"""Empirical Bayes models of the columns of a schema from noisy moments, by their levels and their order.

Post-processing of one release: the inputs are released or public, and so are the variances of the noise.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.columns import Columns, prior_kernels
from privopt.mechanisms.convex.likely_weights import Block, Likely, likely_covariances

Floats = NDArray[np.float64]

# Prior variances of the log odds of a level, and the prior probability of each variance. All levels of a
# column share one variance. The probabilities are fitted to all columns by _ROUNDS rounds of expectation
# maximisation, in which the prior counts as _PRIOR_COLUMNS columns.
_VARIANCES = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0])
_PROBABILITIES = np.array([0.25, 0.1, 0.15, 0.15, 0.15, 0.1, 0.05, 0.03, 0.02])
_PRIOR_COLUMNS, _ROUNDS = 3.0, 20
# The log odds of a number, per standard deviation, have the prior variances above times _OF_NUMBERS. The
# variance of a number is taken to be at least _LEAST_VARIANCE times its squared range.
_LEAST_VARIANCE, _OF_NUMBERS = 1 / 320, 0.1
# Prior probability that each level of a column has its own variance, as where only one rare level is
# informative; the weight of the prior of these variances, as a number of levels; and that prior. The
# probability and the variances' prior are fitted to all columns. On eight synthetic tables without such
# levels mean AUC moved by at most .0014.
_SINGLE, _PRIOR_LEVELS = 0.2, 20.0
_OF_LEVELS = np.array([0.7, 0.03, 0.03, 0.04, 0.04, 0.05, 0.05, 0.04, 0.02])
# Squared products divided by the squared mean label are estimates of squared means of features; the divisor
# is at least this.
_UNEVEN = 0.5


@dataclass(frozen=True)
class NoisyColumns:
    """Released moments of features, measured from the middle, and of labels -1 and +1, with their noise.

    Attributes:
        products: means of features times labels, shape (d,), with noise of standard deviation ``sigma``.
        means: means of features, shape (d,), with noise of ``mean_sigma``.
        label: the mean label in [-1, 1], with noise of ``label_sigma``.
        squares: means of products of features, shape (d, d), symmetric, with noise of ``square_sigma`` on the
            diagonal and of ``square_sigma`` / sqrt 2 elsewhere.
        records: n. Public.
    """

    products: Floats
    means: Floats
    label: float
    squares: Floats
    sigma: float
    mean_sigma: float
    label_sigma: float
    square_sigma: float
    records: int


class _Levels(NamedTuple):
    """The levels of a column, each by itself.

    Attributes:
        logs: log of the likelihood of each variance over the likelihood of variance 0, shape (k, variances).
        kept: the factor by which each variance shrinks a level, shape (k, variances).
        strength: squared slope over the variance of the noise, shape (k,).
    """

    logs: Floats
    kept: Floats
    strength: Floats


class _Prior(NamedTuple):
    """Prior of the log odds of one column: a mixture over kernels and variances.

    Attributes:
        kernels: covariances at variance 1, shape (k, k) each.
        kept: the trace of the shrinkage factor (a matrix), for each kernel and variance.
        odds: probability of each kernel times likelihood of each variance, up to a factor.
        peak: the logarithm of that factor, where variance 0 has likelihood 1.
        levels: the levels, if each has its own variance; None: numbers, and fewer than three levels.
    """

    kernels: list[Floats]
    kept: Floats
    odds: Floats
    peak: float
    levels: _Levels | None


class _Chances(NamedTuple):
    """Probabilities of variances of columns and of levels; ``single``: the probability that each level has
    its own variance.
    """

    variances: Floats
    levels: Floats
    single: float


def likely_columns(seen: NoisyColumns, columns: Columns) -> tuple[Likely, Floats]:
    """Return least squares of labels 0 and 1, estimated from noisy moments, and the means of the features.

    If effects are weak, the covariance of features and labels is the covariance of the features times the log
    odds, times the variance of the labels. A priori the log odds of a column are normal, with one of a few
    variances; the log odds of ordered levels may be a random walk, or each level has its own variance.
    Correlations of columns are shrunk as in ``likely_covariances``. The posterior covariance is the sum of
    two covariances: of what the estimate misses of log odds drawn from the prior, and of the noise of the
    estimate. This noise includes errors of covariances times the estimated weights.
    """
    products = columns.within(seen.products, seen.sigma)
    # Where most labels are equal, the products are means of features, too, up to the sign.
    seen_twice = (products**2 - seen.sigma**2) / max(seen.label**2, _UNEVEN)
    noisy = columns.within(seen.means, seen.mean_sigma)
    means, hidden = columns.likely_means(noisy, seen.mean_sigma, seen_twice)
    variance = (1 - seen.label**2) / 4
    own = (products - seen.label * means) / 2
    noise = _noise(seen, means, hidden)
    gram = seen.squares - np.outer(means, means)
    variances = np.maximum(np.diag(gram), (own**2 - np.diag(noise)) / variance)  # by Cauchy-Schwarz
    blocks = columns.blocks(variances, means, seen.square_sigma)
    noises = [
        noise[start:stop, start:stop] + variance / seen.records * block.covariances
        for (start, stop), block in zip(_ends(blocks), blocks, strict=True)
    ]
    spread = _spread(own, blocks, noises, variance, columns)
    A, left = likely_covariances(gram, blocks, seen.square_sigma, columns.numbers)
    total = noise + np.diag(variance**2 * (left @ np.diag(spread)))
    for (start, stop), block in zip(_ends(blocks), blocks, strict=True):
        total[start:stop, start:stop] += variance / seen.records * block.covariances
    gain = variance * np.linalg.solve(variance * A @ spread @ A + total / variance, A @ spread).T
    weights = gain @ own
    errors = total - np.diag(variance**2 * (left @ np.diag(spread)) - left @ weights**2)
    missed = variance * (np.eye(len(own)) - gain @ A)
    posterior = missed @ spread @ missed.T + gain @ errors @ gain.T
    explained, unsure = float(weights @ A @ weights), float(weights**2 @ left @ weights**2)
    # What the model does not explain of the covariances is noise, in part noise of the means, and the means
    # are corrected by that part. Otherwise the errors of a weight and of the mean of its feature would go
    # together, and would move the mean of all scores.
    noise_share = 2 * seen.label * hidden / (seen.sigma**2 + seen.label**2 * hidden)
    means = means + noise_share * (own - A @ weights)
    return Likely(weights, explained, explained + 2 * math.sqrt(unsure), posterior), means


def _noise(seen: NoisyColumns, means: Floats, hidden: Floats) -> Floats:
    """Return the covariances of the noise in covariances of features with labels 0 and 1.

    The noise of the mean label moves all covariances together, in the direction of the means.
    """
    own = np.diag(seen.sigma**2 + seen.label**2 * hidden)
    return np.asarray(own + seen.label_sigma**2 * np.outer(means, means)) / 4


def _ends(blocks: list[Block]) -> list[tuple[int, int]]:
    return list(itertools.pairwise(np.cumsum([0, *(len(b.covariances) for b in blocks)]).tolist()))


def _spread(
    own: Floats, blocks: list[Block], noises: list[Floats], variance: float, columns: Columns
) -> Floats:
    """Return the prior covariance of log odds that shrinks each column as its mixture does on average."""
    ranges = {feature: (high - low) ** 2 for feature, low, high in columns.lines}
    priors = []
    for (first, _), (start, stop), block, noise in zip(
        columns.parts, _ends(blocks), blocks, noises, strict=True
    ):
        if first in ranges:
            at_least = max(float(block.covariances[0, 0]), _LEAST_VARIANCE * ranges[first])
            kernels = [(np.array([[_OF_NUMBERS / at_least]]), 1.0)]
        else:
            kernels = prior_kernels(stop - start, columns.ordered_levels(first))
        alone = first not in ranges and stop - start > 2
        priors.append(_prior(own[start:stop], variance * block.covariances, noise, kernels, alone))
    chances = _fitted(priors)
    found = np.zeros((len(own), len(own)))
    for (start, stop), prior in zip(_ends(blocks), priors, strict=True):
        found[start:stop, start:stop] = _covariance(prior, chances)
    return found


def _prior(
    own: Floats, slope: Floats, noise: Floats, kernels: list[tuple[Floats, float]], alone: bool
) -> _Prior:
    """Return the likelihood of ``own`` = ``slope`` times log odds, plus noise, under each prior.

    ``alone``: whether each level may have its own variance.
    """
    inverse = np.linalg.inv(np.linalg.cholesky(noise))
    logs, kept = [], []
    for kernel, probability in kernels:
        values, vectors = np.linalg.eigh(inverse @ slope @ kernel @ slope @ inverse.T)
        grown = 1 + _VARIANCES[:, None] * np.maximum(values, 0.0)
        squares = (vectors.T @ (inverse @ own)) ** 2
        gained = squares * (1 - 1 / grown) - np.log(grown)
        logs.append(math.log(probability) + 0.5 * np.sum(gained, axis=1))
        kept.append(np.sum(1 - 1 / grown, axis=1))
    likely, levels = np.array(logs), None
    if alone:
        strength = np.diag(slope) ** 2 / np.diag(noise)
        grown = 1 + strength[:, None] * _VARIANCES
        gained = (own**2 / np.diag(noise))[:, None] * (1 - 1 / grown) - np.log(grown)
        levels = _Levels(0.5 * gained, 1 - 1 / grown, strength)
    peak = float(np.max(likely))
    return _Prior([kernel for kernel, _ in kernels], np.array(kept), np.exp(likely - peak), peak, levels)


def _posterior(prior: _Prior, chances: _Chances) -> tuple[Floats, float, Floats]:
    """Return the probability of each kernel and variance, the probability that each level has its own
    variance, and the probabilities of the variances of each level.
    """
    joint = prior.odds * chances.variances
    if prior.levels is None:
        return joint / np.sum(joint), 0.0, np.zeros((0, len(_VARIANCES)))
    top = np.max(prior.levels.logs, axis=1, keepdims=True)
    each = np.exp(prior.levels.logs - top) * chances.levels
    alone = float(np.sum(top) + np.sum(np.log(np.sum(each, axis=1)))) - prior.peak
    own = chances.single * math.exp(min(alone, 600.0))
    joint = joint * (1 - chances.single)
    total = float(np.sum(joint)) + own
    return joint / total, own / total, each / np.sum(each, axis=1, keepdims=True)


def _fitted(priors: list[_Prior]) -> _Chances:
    """Return the probabilities, fitted to all columns."""
    chances = _Chances(_PROBABILITIES, _OF_LEVELS, _SINGLE)
    count = sum(prior.levels is not None for prior in priors)
    for _ in range(_ROUNDS):
        found = [_posterior(prior, chances) for prior in priors]
        columns = sum((np.sum(joint, axis=0) for joint, _, _ in found), _PRIOR_COLUMNS * _PROBABILITIES)
        levels = sum((own * np.sum(each, axis=0) for _, own, each in found), _PRIOR_LEVELS * _OF_LEVELS)
        single = sum((own for _, own, _ in found), _PRIOR_COLUMNS * _SINGLE) / (count + _PRIOR_COLUMNS)
        chances = _Chances(columns / np.sum(columns), levels / np.sum(levels), single)
    return chances


def _covariance(prior: _Prior, chances: _Chances) -> Floats:
    """Return the mean of the kernels, each times the variance that shrinks as much as its mixture does."""
    joint, own, levels = _posterior(prior, chances)
    found = np.zeros_like(prior.kernels[0])
    for kernel, kept, each in zip(prior.kernels, prior.kept, joint, strict=True):
        share = float(np.sum(each))
        if share > 0:
            found += share * np.interp(float(each @ kept) / share, kept, _VARIANCES) * kernel
    if prior.levels is not None:
        kept = np.sum(levels * prior.levels.kept, axis=1)
        least = kept / np.maximum(prior.levels.strength, 1e-300) / np.maximum(1 - kept, 1e-9)
        found += own * np.diag(np.minimum(least, _VARIANCES[-1]))
    return found
