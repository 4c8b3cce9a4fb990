"""The linear model behind a card: noisy moments once, read with what is public about columns."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.scorecards.facts import CardFacts

Floats = NDArray[np.float64]

# Prior variances of weights that are compared, and shares of columns that tell anything.
_PRIORS, _SHARES = np.geomspace(1e-4, 1e5, 46), np.array([0.05, 0.1, 0.2, 0.4, 0.7, 0.95])
# The least share of records that a level is taken to have, and the variance of a number of which nothing is
# known, as a part of the largest that it can have at its mean.
_RARE, _TYPICAL = 1e-3, 0.25


@dataclass(frozen=True)
class ColumnStatistics(SufficientStatistics):
    """Noisy moments, and the weights that are likely given them and the columns that features come from.

    Privacy: what is released is what ``SufficientStatistics`` releases, whose proof this is; the rest is
    post-processing of it.

    Three things are known of a card's features that a matrix of noisy moments does not show. Levels exclude
    each other, so that their covariances follow from how often they occur, which is known better. Columns
    mostly depend little on each other: covariances of two are shrunk towards 0 by their typical size, as it
    is estimated beside the noise. And a column may tell nothing at all: weights have a prior for each column,
    0 or Gaussian with one variance, both chosen to make the moments likely (empirical Bayes).

    Attributes:
        card: what is public about the table; features are measured from its ``middle``.
        active: the columns that the model may use, numbers of ``card.spans``.
    """

    name: ClassVar[str] = "column-statistics"

    card: CardFacts | None = None
    active: tuple[int, ...] = ()

    def _solved(self, A: Floats, b: Floats, means: Floats, label: float, sigma: float) -> Floats:
        card, weights = self.card, np.zeros(len(b))
        if card is None or sigma == 0:
            return super()._solved(A, b, means, label, sigma)
        used = [slice(*ends) for ends in _blocks(card, self.active)]
        if not used:
            return weights
        kept = np.concatenate([np.arange(s.start, s.stop) for s in used])
        lines = {feature: (high - low) ** 2 for feature, low, high in card.lines}
        shares = means + np.array(card.middle[:-1])
        own = [
            _number(A[s.start, s.start], shares[s.start], sigma, lines[s.start])
            if s.start in lines
            else _levels(shares[s])
            for s in used
        ]
        # Of b less the mean label times noisy means, and of drawing records at all.
        noise = (sigma / self._label_weight) ** 2 + (label * sigma / self.offset) ** 2 / 2
        noises = [
            noise + (1 - label**2) * float(np.trace(block)) / len(block) / self.facts.n_records
            for block in own
        ]
        seen, sizes = [b[s] for s in used], [len(block) for block in own]
        spread = np.repeat(_priors(seen, own, noises), sizes)
        A, left = _together(A[np.ix_(kept, kept)], own, sigma)
        each = np.repeat(noises, sizes) + left @ spread
        weights[kept] = spread * (A @ np.linalg.solve((A * spread) @ A + np.diag(each), np.concatenate(seen)))
        return weights


def _blocks(card: CardFacts, active: tuple[int, ...]) -> list[tuple[int, int]]:
    """(first, last + 1) of the features of each part of columns: numbers apart from their missing level."""
    spans = [card.spans[j] for j in active]
    return [(a, b) for a, b in card.columns if any(start <= a < stop for start, stop in spans)]


def _levels(shares: Floats) -> Floats:
    """Covariances of levels that exclude each other, from noisy shares of the records."""
    p = np.maximum(shares, _RARE)
    p = p / max(float(np.sum(p)), 1.0)
    return np.asarray(np.diag(p) - np.outer(p, p))


def _number(variance: float, mean: float, sigma: float, squared_range: float) -> Floats:
    """The variance of a number from a noisy one, towards a typical one as far as noise hides it."""
    typical = _TYPICAL * squared_range / 4
    weight = typical**2 / (typical**2 + sigma**2)
    found = weight * variance + (1 - weight) * typical
    return np.array([[float(np.clip(found, typical * 1e-3, squared_range / 4))]])


def _priors(seen: list[Floats], own: list[Floats], noises: list[float]) -> Floats:
    """The variance of the weights of each block, a posteriori: that of all times its chance to be used."""
    unused, used = np.zeros(len(own)), np.zeros((len(own), len(_PRIORS)))
    for j, (b, block, noise) in enumerate(zip(seen, own, noises, strict=True)):
        values, vectors = np.linalg.eigh(block)
        squares = (vectors.T @ b) ** 2
        unused[j] = -0.5 * np.sum(np.log(noise) + squares / noise)
        variance = _PRIORS[:, None] * values**2 + noise
        used[j] = -0.5 * np.sum(np.log(variance) + squares / variance, axis=1)
    odds = np.log(_SHARES) - np.log1p(-_SHARES)
    # (block, prior, share): how likely the block is, less what it is if unused.
    gains = np.logaddexp(0.0, used[:, :, None] - unused[:, None, None] + odds) + np.log1p(-_SHARES)
    prior, share = np.unravel_index(int(np.argmax(np.sum(gains, axis=0))), gains.shape[1:])
    chance = 1 / (1 + np.exp(np.clip(unused - used[:, prior] - odds[share], -500, 500)))
    return np.asarray(np.maximum(chance * _PRIORS[prior], 1e-12))


def _together(A: Floats, own: list[Floats], sigma: float) -> tuple[Floats, Floats]:
    """Covariances of all features: those within blocks as given, others shrunk as noise asks for.

    And the variances that noise leaves them with, a posteriori.
    """
    sizes = [len(block) for block in own]
    block = np.repeat(np.arange(len(own)), sizes)
    within = block[:, None] == block
    found = np.zeros_like(A)
    ends = np.cumsum([0, *sizes])
    for (start, stop), known in zip(itertools.pairwise(ends), own, strict=True):
        found[start:stop, start:stop] = known
    if np.all(within):
        return found, np.zeros_like(A)
    # Squared correlations of mean size tau beside noise: A_ij^2 = tau A_ii A_jj + sigma^2 / 2.
    sizes_of = np.outer(np.diag(found), np.diag(found))
    tau = max(float(np.sum((A**2 - sigma**2 / 2)[~within]) / np.sum(sizes_of[~within])), 0.0)
    kept = np.where(within, 0.0, tau * sizes_of / (tau * sizes_of + sigma**2 / 2))
    values, vectors = np.linalg.eigh(found + kept * A)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T), kept * sigma**2 / 2
