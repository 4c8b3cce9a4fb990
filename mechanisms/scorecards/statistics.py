"""The linear model behind a card: noisy moments once, read with what is public about columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.likely_weights import Block
from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics
from privopt.mechanisms.scorecards.facts import CardFacts

Floats = NDArray[np.float64]

# The least share of records that a level is taken to have, and the variance of a number of which nothing is
# known, as a part of the largest that it can have at its mean.
_RARE, _TYPICAL = 1e-3, 0.25


@dataclass(frozen=True)
class ColumnStatistics(SufficientStatistics):
    """Noisy moments, and the weights that are likely given them and the columns that features come from.

    Privacy: what is released is what ``SufficientStatistics`` releases, whose proof this is; the rest is
    post-processing of it.

    Of a card's features more is known than a matrix of noisy moments shows. Levels exclude each other, so
    that their covariances follow from how often they occur, which is known better; and they are of use, or
    not, as a column.

    Attributes:
        card: what is public about the table; features are measured from its ``middle``.
        active: the columns that the model may use, numbers of ``card.spans``.
    """

    name: ClassVar[str] = "column-statistics"

    card: CardFacts | None = None
    active: tuple[int, ...] = ()

    @property
    def _used(self) -> NDArray[np.int64]:
        if self.card is None:
            return super()._used
        ends = [np.arange(*ends) for ends in _parts(self.card, self.active)]
        return np.concatenate([np.zeros(0, dtype=np.int64), *ends])

    def _blocks(self, A: Floats, means: Floats, sigma: float) -> list[Block]:
        card = self.card
        if card is None:
            return super()._blocks(A, means, sigma)
        lines = {feature: (high - low) ** 2 for feature, low, high in card.lines}
        shares, found, stop = means + np.array(card.middle)[self._used], [], 0
        for first, last in _parts(card, self.active):
            start, stop = stop, stop + last - first
            if first in lines:
                found.append(_number(A[start, start], sigma, lines[first]))
            else:
                found.append(Block(_levels(shares[start:stop])))
        return found


def _parts(card: CardFacts, active: tuple[int, ...]) -> list[tuple[int, int]]:
    """(first, last + 1) of the features of each part of columns: numbers apart from their missing level."""
    spans = [card.spans[j] for j in active]
    return [(a, b) for a, b in card.columns if any(start <= a < stop for start, stop in spans)]


def _levels(shares: Floats) -> Floats:
    """Covariances of levels that exclude each other, from noisy shares of the records."""
    p = np.maximum(shares, _RARE)
    p = p / max(float(np.sum(p)), 1.0)
    return np.asarray(np.diag(p) - np.outer(p, p))


def _number(variance: float, sigma: float, squared_range: float) -> Block:
    """The variance of a number from a noisy one, towards a typical one as far as noise hides it."""
    typical = _TYPICAL * squared_range / 4
    weight = typical**2 / (typical**2 + sigma**2)
    found = weight * variance + (1 - weight) * typical
    return Block(np.array([[float(np.clip(found, typical * 1e-3, squared_range / 4))]]), weight * sigma**2)
