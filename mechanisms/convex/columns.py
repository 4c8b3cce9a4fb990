"""Public facts about the columns behind features, and covariances estimated with them from noisy moments."""

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

# Lower limit on the share of records with a level; and the variance assumed for a numeric column before any
# is measured, as a fraction of the largest variance possible at its mean.
_RARE, _TYPICAL = 1e-3, 0.25


@dataclass(frozen=True)
class Columns:
    """Grouping of features by column: indicators of one categorical column, or one numeric column.

    At most one indicator of a category is 1, so their covariances follow from their frequencies, which noisy
    moments estimate better; and a model uses all of them or none.

    Attributes:
        parts: (first, last + 1) of the features of each column. A part of several features is a category; a
            part of one may be a number.
        middle: the point that features are measured from, shape (d,).
        lines: (feature, lowest, highest) of each numeric feature, with its declared bounds.
    """

    parts: tuple[tuple[int, int], ...]
    middle: tuple[float, ...]
    lines: tuple[tuple[int, float, float], ...]

    @classmethod
    def of(cls, schema: Schema) -> Self:
        """Return the columns of a schema, measured from its middle."""
        lines = tuple(_line(start, number) for start, number in schema.numbers.items())
        # A number and the indicator of its missing values do not exclude each other: they are separate parts.
        ends = {0, *(stop for _, stop in schema.spans), *(start + 1 for start in schema.numbers)}
        return cls(tuple(itertools.pairwise(sorted(ends))), tuple(schema.middle.tolist()), lines)

    @property
    def features(self) -> NDArray[np.int64]:
        """Indices of the features of all parts, in order."""
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
    """Return the feature of a number and its declared bounds."""
    middle, half = float(number.middle[0]), math.sqrt(number.squared_spread)
    return start, middle - half, middle + half


def _levels(shares: Floats) -> Floats:
    """Return the covariances of exclusive indicators from noisy shares of the records."""
    p = np.clip(shares, _RARE, 1 - _RARE)  # a share of 1 would leave no variance
    p = p / max(float(np.sum(p)), 1.0)
    return np.asarray(np.diag(p) - np.outer(p, p))


def _number(variance: float, sigma: float, squared_range: float) -> Block:
    """Return the variance of a number: the noisy one, shrunk towards a typical one."""
    typical = _TYPICAL * squared_range / 4
    weight = typical**2 / (typical**2 + sigma**2)
    found = weight * variance + (1 - weight) * typical
    return Block(np.array([[float(np.clip(found, typical * 1e-3, squared_range / 4))]]), weight * sigma**2)
