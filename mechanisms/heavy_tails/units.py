"""Private units (centres and scales) of features and labels without declared bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.heavy_tails.column_search import ColumnSearch
from privopt.mechanisms.privacy.noise import NoiseSource

Floats = NDArray[np.float64]

OFFSET = 0.5  # the constant feature, beside rows of norm at most 1
FARTHEST = 1e100  # limit on numbers, in their units: squares must not overflow
# Tail probabilities that define the units of rows and of labels.
_LONG_ROWS, _FAR_LABELS = 0.1, 0.25


@dataclass(frozen=True)
class Units:
    """Units of records: centres and scales, either private results of a search or public.

    Attributes:
        centres, scales: of features, shape (d,); a column of scale 0 is left out.
        row_norm: rows are clipped to it, and divided by it.
        label_centre, label_scale: of numeric labels.
    """

    centres: Floats
    scales: Floats
    row_norm: float
    label_centre: float = 0.0
    label_scale: float = 1.0

    @classmethod
    def unscaled(cls, dimension: int) -> Self:
        """Return units that leave columns unscaled, for too few records for a search."""
        return cls(np.zeros(dimension), np.ones(dimension), math.sqrt(dimension))

    @classmethod
    def found(
        cls,
        search: ColumnSearch,
        X: Floats,
        y: Floats | None,
        source: NoiseSource,
        flags: tuple[int, ...] = (),
    ) -> Self:
        """Search for private units, at the cost of the search.

        Args:
            search: planned for the columns of X that are not flags (``searched_columns``), and the labels.
            X: shape (n, d), finite.
            y: numeric labels, shape (n,), or None.
            source: source of randomness.
            flags: columns of X publicly known to be binary: they are not rescaled.
        """
        d, asked = X.shape[1], searched_columns(X.shape[1], flags)
        numbers = y is not None
        columns = X[:, asked] if y is None else np.column_stack([X[:, asked], y])
        found = search.centres(columns, source)
        with np.errstate(over="ignore"):
            distances = np.abs(columns - found)
        shares = np.append(np.zeros(len(asked)), [_FAR_LABELS] * numbers)
        sizes = search.scales(distances, shares, source)
        centres, scales = np.zeros(d), np.ones(d)
        centres[asked], scales[asked] = found[: len(asked)], sizes[: len(asked)]
        centres[list(flags)], scales[list(flags)] = 0.0, 1.0
        longest = search.length(np.linalg.norm(_scaled(X, centres, scales), axis=1), _LONG_ROWS, source)
        label = (float(found[-1]), float(sizes[-1]) or 1.0) if numbers else (0.0, 1.0)
        return cls(centres, scales, longest, *label)

    def rows(self, X: Floats) -> Floats:
        """Return rows of norm at most 1 in these units with the constant feature, shape (n, d + 1)."""
        rows = _scaled(X, self.centres, self.scales)
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        short = rows / np.maximum(lengths * (1 + (rows.shape[1] + 16) * 2.0**-52), self.row_norm)
        return np.column_stack([short, np.full(len(rows), OFFSET)])

    def raw(self, weights: Floats) -> Floats:
        """Convert weights of ``rows`` to weights of the original features and the intercept."""
        inverse = np.divide(1.0, self.scales, out=np.zeros_like(self.scales), where=self.scales > 0)
        slopes = weights[:-1] * inverse / self.row_norm * self.label_scale
        middle = weights[-1] * OFFSET * self.label_scale + self.label_centre
        return np.append(slopes, middle - float(slopes @ self.centres))


def searched_columns(dimension: int, flags: tuple[int, ...]) -> list[int]:
    """Return the columns without public units, at least one, since a search needs a column."""
    return [j for j in range(dimension) if j not in flags] or [0]


def _scaled(X: Floats, centres: Floats, scales: Floats) -> Floats:
    inverse = np.divide(1.0, scales, out=np.zeros_like(scales), where=scales > 0)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.clip(np.nan_to_num((X - centres) * inverse), -FARTHEST, FARTHEST)
