"""Empirical Bayes linear models from noisy moments: post-processing of one release, without privacy cost.

The inputs of these functions are released or public, and so is the variance of the noise in them.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

Floats = NDArray[np.float64]

# Grid of hyperparameters: fractions of the labels' variance explained by the model, and shares of non-zero
# blocks.
_EXPLAINED, _SHARES = np.geomspace(1e-4, 1, 25)[:, None], np.array([0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0])
# Prior guess of the mean variance of the features, as a fraction of its upper bound; and the lower limit of a
# feature's variance, as a fraction of the mean variance.
_TYPICAL, _LEAST = 0.25, 0.05
# Usual squared correlation of two numeric columns.
_USUAL = 0.1
# Each pair of blocks of ordered levels has a mean squared correlation tau, one of these values. The prior of
# log tau is centred at a common estimate, has standard deviation _WIDTH, and counts as much as _PRIOR_PAIRS
# pairs of blocks. With one tau for all pairs, AUC was .006 and .010 lower at epsilon 0.3 and 1 on a table
# whose numbers nearly repeat each other (magic), and level on other real and on 40 synthetic tables. If
# pairs of categories had their own tau as well, AUC was up to .003 lower on a table of dependent categories.
_TAUS, _WIDTH, _PRIOR_PAIRS = np.array([0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0]), 0.8, 3.0
_LEAST_TAU, _ROUNDS = 1e-3, 20
# Largest standard deviation of logistic scores: larger estimates come from noise and give overconfident
# models.
_MOST_SPREAD = 1.5
# For a discriminant, the features explain at most this share of the variance of any combination of class
# indicators: larger shares are reduced to it.
_MOST_EXPLAINED = 0.9
# Gauss-Hermite quadrature for the standard normal law.
_NODES, _DENSITY = np.polynomial.hermite_e.hermegauss(41)
_DENSITY = _DENSITY / np.sum(_DENSITY)


class Likely(NamedTuple):
    """A linear model, with the variance of its predictions.

    Attributes:
        weights: shape (d,).
        explained: the estimated variance of the predictions.
        at_most: ``explained`` plus two standard deviations of its error.
        covariances: posterior covariances of the weights, shape (d, d), where they are known.
    """

    weights: Floats
    explained: float
    at_most: float
    covariances: Floats | None = None


class Block(NamedTuple):
    """Features whose weights are zero or non-zero together.

    Attributes:
        covariances: estimated covariances of the features, shape (k, k), positive semidefinite.
        hidden: posterior variance of each estimated variance, due to the noise.
        kernel: prior covariances of the log odds of the features, up to a factor; None: they are independent.
    """

    covariances: Floats
    hidden: float = 0.0
    kernel: Floats | None = None

    @property
    def ordered(self) -> bool:
        """Whether log odds of the features depend on each other a priori, as with ordered levels."""
        return self.kernel is not None and bool(np.any(self.kernel != np.diag(np.diag(self.kernel))))

    def directions(self) -> tuple[Floats, Floats]:
        """Return orthogonal directions, and how much each is expected to covary with other blocks.

        If two blocks depend weakly on each other, the covariances between them are the covariances within
        one block, times a matrix of log odds, times the covariances within the other block. So covariances
        between blocks are expected to be largest in directions in which log odds are largest a priori, such
        as the smooth directions of ordered levels. The expected sizes add up to the sum of the variances.
        """
        total = float(np.trace(self.covariances))
        prior = np.eye(len(self.covariances)) if self.kernel is None else self.kernel
        values, vectors = np.linalg.eigh(self.covariances @ prior @ self.covariances)
        values = np.maximum(values, 0.0)
        return vectors, values * total / max(float(np.sum(values)), 1e-300)


def towards_mean(noisy: Floats, sigma: float) -> tuple[Floats, float]:
    """Shrink noisy numbers towards their mean by empirical Bayes; return them and the shrinkage factor.

    Args:
        noisy: shape (d,), each with independent noise.
        sigma: standard deviation of the noise.
    """
    mean = float(np.mean(noisy))
    spread = max(float(np.mean((noisy - mean) ** 2)) - sigma**2, 0.0)
    kept = spread / (spread + sigma**2) if spread > 0 else float(sigma == 0)
    return mean + kept * (noisy - mean), kept


def likely_blocks(noisy: Floats, sigma: float, largest: float) -> list[Block]:
    """Return a block for each feature, from noisy variances, shape (d,), shrunk towards their mean.

    Each block has the posterior mean plus two standard deviations: an underestimated variance inflates a
    weight, an overestimated one only shrinks it.

    Args:
        noisy: variances with noise.
        sigma: standard deviation of the noise of each.
        largest: upper bound on the mean variance.
    """
    typical = _TYPICAL * largest
    known = typical**2 / (typical**2 + sigma**2 / len(noisy))
    mean = known * float(np.mean(noisy)) + (1 - known) * typical
    mean = min(max(mean, _LEAST**2 * largest), largest)
    kept = towards_mean(noisy, sigma)[1]
    near = np.clip(mean + kept * (noisy - mean), _LEAST * mean, len(noisy) * largest)
    hidden = kept * sigma**2
    return [Block(np.array([[v + 2 * math.sqrt(hidden)]]), hidden) for v in near.tolist()]


def likely_covariances(
    A: Floats, blocks: list[Block], sigma: float, numbers: NDArray[np.bool_] | None = None
) -> tuple[Floats, Floats]:
    """Estimate the covariances of all features: within blocks as given, between blocks shrunk to 0.

    How much a covariance is shrunk depends on tau, a mean squared correlation. All pairs of blocks share one
    estimate of tau, with two exceptions: pairs of two ``numbers`` share another estimate, and each pair of
    two blocks of ordered levels has its own (``_kept_by_pairs``).

    Args:
        A: noisy covariances, shape (d, d), symmetric; off-diagonal noise has standard deviation sigma / sqrt
            2.
        blocks: all features, in order.
        sigma: standard deviation of the noise.
        numbers: mask of the features that are numbers, whose correlations with each other are of another
            size, shape (d,).

    Returns:
        a positive semidefinite matrix, and the posterior variances of its entries.
    """
    sizes = [len(block.covariances) for block in blocks]
    number = np.repeat(np.arange(len(blocks)), sizes)
    within = number[:, None] == number
    found, hidden = np.zeros_like(A), np.diag(np.repeat([block.hidden for block in blocks], sizes))
    basis, expected = np.zeros_like(A), np.zeros(len(A))
    for (start, stop), block in zip(itertools.pairwise(np.cumsum([0, *sizes])), blocks, strict=True):
        found[start:stop, start:stop] = block.covariances
        basis[start:stop, start:stop], expected[start:stop] = block.directions()
    if len(blocks) == 1:
        return found, hidden
    turned, scales = basis.T @ A @ basis, np.outer(expected, expected)
    pairs = np.zeros_like(within) if numbers is None else np.outer(numbers, numbers) & ~within
    overall = _squared_correlation(turned, scales, sigma, ~within & ~pairs)
    tau = np.full_like(A, overall)
    if np.any(pairs):
        seen = _squared_correlation(turned, scales, sigma, pairs)
        # If there are few pairs and the noise is large, the pairs tell little, so the estimate is shrunk
        # towards a usual value.
        unsure = sigma**4 / (np.sum(pairs) * float(np.mean(scales[pairs])) ** 2)
        tau[pairs] = (_USUAL**2 * seen + unsure * _USUAL) / (_USUAL**2 + unsure)
    noise = max(sigma**2 / 2, 1e-300)
    kept = tau * scales / (tau * scales + noise)
    ordered = [block.ordered for block in blocks]
    if sigma > 0 and sum(ordered) > 1:
        features = np.flatnonzero(np.repeat(ordered, sizes))
        levels = np.ix_(features, features)
        own_sizes = [size for size, own in zip(sizes, ordered, strict=True) if own]
        kept[levels] = _kept_by_pairs(
            turned[levels] / math.sqrt(noise), scales[levels] / noise, own_sizes, overall
        )
    kept = np.where(within, 0.0, kept)
    values, vectors = np.linalg.eigh(found + basis @ (kept * turned) @ basis.T)
    left = basis**2 @ (kept * sigma**2 / 2) @ (basis**2).T
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T), hidden + left


def _squared_correlation(A: Floats, scales: Floats, sigma: float, pairs: NDArray[np.bool_]) -> float:
    """Return tau, a mean squared correlation, by moments: E A_ij^2 = tau times scale + sigma^2 / 2.

    Entries are weighted by their scale: where noise is large, the entries with the largest scales are the
    most informative.
    """
    if not np.any(pairs):
        return 0.0
    excess, expected = A[pairs] ** 2 - sigma**2 / 2, scales[pairs]
    tau = float(np.sum(expected * excess) / np.sum(expected**2))
    return min(max(tau, 0.0), 1.0)


def _kept_by_pairs(seen: Floats, scales: Floats, sizes: list[int], overall: float) -> Floats:
    """Return the factors that shrink covariances between blocks, if each pair of blocks has its own tau.

    In many tables a few columns nearly repeat each other, and the rest are nearly independent. The prior of
    tau is a mixture over ``_TAUS``, fitted to all pairs by expectation maximisation.

    Args:
        seen: covariances between directions of the blocks, divided by the standard deviation of the noise,
            shape (d, d).
        scales: prior variances of the covariances at tau = 1, divided by the variance of the noise, shape
            (d, d).
        sizes: of the blocks.
        overall: the prior median of tau.
    """
    starts, squares = np.cumsum([0, *sizes[:-1]]), seen**2

    def log_likelihood(tau: float) -> Floats:
        grown = 1 + tau * scales
        each = 0.5 * (squares * (1 - 1 / grown) - np.log(grown))
        return np.add.reduceat(np.add.reduceat(each, starts, axis=0), starts, axis=1)

    likely = np.array([log_likelihood(tau) for tau in _TAUS.tolist()])
    likely = np.exp(likely - np.max(likely, axis=0))
    fitted = likely[:, np.triu(np.ones(likely.shape[1:], dtype=np.bool_), k=1)]
    apart = np.log(np.maximum(_TAUS, _LEAST_TAU) / max(overall, _LEAST_TAU))
    prior = np.exp(-0.5 * (apart / _WIDTH) ** 2)
    prior /= np.sum(prior)
    chances = prior
    for _ in range(_ROUNDS):
        joint = fitted * chances[:, None]
        chances = np.sum(joint / np.sum(joint, axis=0), axis=1) + _PRIOR_PAIRS * prior
        chances /= np.sum(chances)
    posterior = likely * chances[:, None, None]
    posterior /= np.sum(posterior, axis=0)
    number, kept = np.repeat(np.arange(len(sizes)), sizes), np.zeros_like(seen)
    for tau, probability in zip(_TAUS.tolist(), posterior, strict=True):
        kept += probability[np.ix_(number, number)] * (tau * scales / (tau * scales + 1))
    return kept


def likely_weights(
    A: Floats, b: Floats, blocks: list[Block], noises: list[float], sigma: float, variance: float
) -> Likely:
    """Return the posterior mean of w in b = A w + noise, shape (d,).

    A priori the weights of a block are 0, or Gaussian with one variance for all blocks. This variance and the
    share of non-zero blocks are averaged over a grid, weighted by their marginal likelihood of b, with blocks
    taken as independent; the model w = 0 has half of the prior probability (empirical Bayes).

    Args:
        A: noisy covariances of features, as ``likely_covariances`` takes them.
        b: noisy covariances of features with labels, shape (d,).
        blocks: all features, in order.
        noises: variance of the noise of b in each block, > 0.
        sigma: standard deviation of the noise of A.
        variance: bound on the variance of the labels, hence on the variance of predictions.
    """
    sizes = [len(block.covariances) for block in blocks]
    ends = np.cumsum([0, *sizes]).tolist()
    prior = _likely_priors([b[i:j] for i, j in itertools.pairwise(ends)], blocks, noises, variance)
    spread = np.zeros_like(A)
    for (start, stop), own in zip(itertools.pairwise(ends), prior, strict=True):
        spread[start:stop, start:stop] = own
    A, left = likely_covariances(A, blocks, sigma)
    noise = np.repeat(noises, sizes) + left @ np.diag(spread)
    weights = spread @ A @ np.linalg.solve(A @ spread @ A + np.diag(noise), b)
    explained, hidden = float(weights @ A @ weights), float(weights**2 @ left @ weights**2)
    return Likely(weights, explained, explained + 2 * math.sqrt(hidden))


def least_squares(A: Floats, b: Floats) -> Likely:
    """Return the shortest w with A w = b, for exact moments."""
    values, vectors = np.linalg.eigh((A + A.T) / 2)
    kept = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
    weights = vectors[:, kept] @ ((vectors.T @ b)[kept] / values[kept])
    explained = float(weights @ A @ weights)
    return Likely(weights, explained, explained)


def logistic_scale(share: float, explained: float, at_most: float) -> tuple[float, float]:
    """Return the mean score of a logistic model and the factor from least-squares weights to its weights.

    Least squares is fitted to labels 0 and 1. If scores are normal, the logistic minimum is a multiple of it
    by Stein's lemma (Erdogdu, Bayati and Dicker 2016); the factor is found by matching the share of ones and
    the covariance with labels. For a small covariance that is one Newton step from the best constant model.

    Args:
        share: share of ones, strictly between 0 and 1.
        explained: variance of the least-squares predictions.
        at_most: upper estimate of that variance; the standard deviation of scores is limited accordingly.
    """
    if explained <= 0:
        return math.log(share / (1 - share)), 1 / (share * (1 - share))

    def mean(spread: float) -> float:
        reach = 1 + abs(math.log(share / (1 - share))) + spread * float(_NODES.max())
        found = brentq(lambda m: float(_DENSITY @ expit(m + spread * _NODES)) - share, -reach, reach)
        return float(found)

    def lacking(spread: float) -> float:
        p = expit(mean(spread) + spread * _NODES)
        return spread * float(_DENSITY @ (p * (1 - p))) - math.sqrt(explained)

    most = _MOST_SPREAD * math.sqrt(explained / max(at_most, explained))
    spread = most if lacking(most) <= 0 else float(brentq(lacking, 0.0, most))
    return mean(spread), spread / math.sqrt(explained)


def discriminant(weights: Floats, covariances: Floats, shares: Floats) -> tuple[Floats, Floats]:
    """Return the weights, shape (K, d), and the scores at the mean, shape (K,), of Fisher's discriminant.

    It is computed from the least-squares predictions of the K class indicators, which determine it (Hastie,
    Tibshirani and Buja 1994). With B the weights, M = B C B' the covariance of the predictions, D
    the diagonal matrix of the shares p_k and Q = (D - M)^-1, the predictions have covariance M - M D^-1 M
    within classes, and their mean in class k is M e_k / p_k. So the log odds of normal classes are
    (x - mean)' B' Q e_k + log p_k - (Q_kk - 1 / p_k) / 2. M is noisy: eigenvalues of D^-1/2 M D^-1/2 are
    clipped.

    Args:
        weights: of least squares of the indicators, a row per class.
        covariances: C, of the features, possibly noisy, shape (d, d).
        shares: of the classes, > 0, of sum 1.
    """
    weights = weights - np.mean(weights, axis=0)  # the indicators sum to 1
    roots = np.sqrt(shares)
    M = weights @ covariances @ weights.T / np.outer(roots, roots)
    values, vectors = np.linalg.eigh((M + M.T) / 2)
    grown = 1 / (1 - np.clip(values, 0.0, _MOST_EXPLAINED))
    Q = (vectors * grown) @ vectors.T / np.outer(roots, roots)
    return Q @ weights, np.log(shares) - (np.diag(Q) - 1 / shares) / 2


def _likely_priors(
    seen: list[Floats], blocks: list[Block], noises: list[float], variance: float
) -> list[Floats]:
    """Return, for each block, the prior covariance that shrinks weights as the average over the grid does."""
    trace = sum(float(np.trace(block.covariances)) for block in blocks)
    priors = _EXPLAINED * variance / (_SHARES * trace)
    bases = [np.linalg.eigh(block.covariances) for block in blocks]
    total, nothing = np.zeros(priors.shape), 0.0
    gains = []
    for b, (values, vectors), noise in zip(seen, bases, noises, strict=True):
        squares = (vectors.T @ b) ** 2
        unused = -0.5 * float(np.sum(np.log(noise) + squares / noise))
        spread = priors[..., None] * values**2 + noise
        used = -0.5 * np.sum(np.log(spread) + squares / spread, axis=-1)
        with np.errstate(divide="ignore"):  # a share of 1 leaves no block unused
            both = np.logaddexp(unused + np.log1p(-_SHARES), used + np.log(_SHARES))
        gains.append(used + np.log(_SHARES) - both)
        total, nothing = total + both, nothing + unused
    best = max(float(total.max()), nothing)
    likely = np.exp(total - best)
    likely /= np.sum(likely) + total.size * np.exp(nothing - best)
    found = []
    for (values, vectors), noise, gain in zip(bases, noises, gains, strict=True):
        # kept is the averaged factor s / (s values^2 + noise); it is solved for the variance s of the prior.
        squares = values**2
        kept = np.sum((likely * np.exp(gain))[..., None] * _shrinkage(priors, squares, noise), axis=(0, 1))
        own = kept * noise / np.maximum(1 - kept * squares, 1e-12)
        found.append((vectors * own) @ vectors.T)
    return found


def _shrinkage(priors: Floats, squares: Floats, noise: float) -> Floats:
    each = priors[..., None]
    return np.asarray(each / (each * squares + noise))
