"""Public facts of the columns behind features, and covariance estimates from noisy moments by them."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.likely_weights import Block
from privopt.problems.tables.columns import Numeric
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]

# The least share of records that a level is taken to have, and the variance of a number of which nothing is
# known, as a part of the largest that it can have at its mean.
_RARE, _TYPICAL = 1e-3, 0.25


@dataclass(frozen=True)
class Columns:
    """Grouping of features by column: levels of a category, or numbers.

    Levels exclude each other, so that their covariances follow from how often they occur, which noisy moments
    tell better; and they are of use to a model, or not, as a column.

    Attributes:
        parts: (first, last + 1) of features that belong together. A record has at most one of several; a
            single feature may be a number.
        middle: where features are measured from, shape (d,).
        lines: (feature, lowest, highest) of each feature that is a number, as it is declared.
    """

    parts: tuple[tuple[int, int], ...]
    middle: tuple[float, ...]
    lines: tuple[tuple[int, float, float], ...]

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """The columns of a schema, measured from their middle."""
        lines = tuple(_line(start, number) for start, number in schema.numbers.items())
        # A number and its missing level are no levels that could be shifted together.
        ends = {0, *(stop for _, stop in schema.spans), *(start + 1 for start in schema.numbers)}
        return cls(tuple(itertools.pairwise(sorted(ends))), tuple(schema.middle.tolist()), lines)

    @property
    def features(self) -> NDArray[np.int64]:
        """The features of all parts, in order."""
        found = [np.arange(*part, dtype=np.int64) for part in self.parts]
        return np.concatenate([np.zeros(0, dtype=np.int64), *found])

    def blocks(self, variances: Floats, means: Floats, sigma: float) -> list[Block]:
        """Estimate the covariances of each part.

        Args:
            variances: variances of ``features``, with noise of ``sigma`` each.
            means: means of ``features``, as distances from the middle.
            sigma: the standard deviation of the noise.
        """
        lines = {feature: (high - low) ** 2 for feature, low, high in self.lines}
        shares, found, stop = means + np.array(self.middle)[self.features], [], 0
        for first, last in self.parts:
            start, stop = stop, stop + last - first
            if first in lines:
                found.append(_number(variances[start], sigma, lines[first]))
            else:
                found.append(Block(_levels(shares[start:stop])))
        return found


def _line(start: int, number: Numeric) -> tuple[int, float, float]:
    """The feature of a number, and the bounds that it has by its declaration."""
    middle, half = float(number.middle[0]), math.sqrt(number.squared_spread)
    return start, middle - half, middle + half


def _levels(shares: Floats) -> Floats:
    """Covariances of levels that exclude each other, from noisy shares of the records."""
    p = np.clip(shares, _RARE, 1 - _RARE)  # all records in one level would leave it no variance
    p = p / max(float(np.sum(p)), 1.0)
    return np.asarray(np.diag(p) - np.outer(p, p))


def _number(variance: float, sigma: float, squared_range: float) -> Block:
    """The variance of a number from a noisy one, towards a typical one as far as noise hides it."""
    typical = _TYPICAL * squared_range / 4
    weight = typical**2 / (typical**2 + sigma**2)
    found = weight * variance + (1 - weight) * typical
    return Block(np.array([[float(np.clip(found, typical * 1e-3, squared_range / 4))]]), weight * sigma**2)
