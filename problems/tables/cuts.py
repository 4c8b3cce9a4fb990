"""Cuts of numbers into bins, from their declared range and grid alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privopt.problems.tables.columns import Column, Numeric
from privopt.problems.tables.missing import MissingLevel, plain_column
from privopt.problems.tables.values import Real

# Number of evenly spaced cuts of a numeric column, and further cuts at fractions of the range for amounts and
# counts, whose range starts near 0 and whose values are mostly small. On synthetic populations
# (experiments/questions.py) each of these cuts improves models.
_CUTS = 7
_SMALL = (1 / 128, 1 / 64, 1 / 32, 1 / 16)


def in_bins(column: Column) -> Column:
    """Return the column with its numbers in bins; any other kind of column as it is."""
    kind, has_level = plain_column(column)
    if not isinstance(kind, Numeric):
        return column
    inner = [kind.threshold(k) for k in grid_cuts(kind)]
    edges: list[Real] = [kind.low, *inner, kind.high]
    binned = kind.binned(edges)
    return MissingLevel(binned) if has_level else binned


def has_bins(column: Column) -> bool:
    """Return whether bins can express more than one weight can: for a number with more than two values."""
    kind, _ = plain_column(column)
    return isinstance(kind, Numeric) and kind.top > 1


def grid_cuts(column: Numeric) -> list[int]:
    """Return the indices of the grid points directly above the cuts; cuts at equal floats count once."""
    grid = column.top + 1
    shares = [k / (_CUTS + 1) for k in range(1, _CUTS + 1)]
    if 0 <= column.low <= _SMALL[-1] * column.high:
        shares += _SMALL
    above = sorted({max(1, round(share * grid)) for share in shares} - {grid})
    cuts = {column.threshold(k): k for k in above}
    return [k for cut, k in cuts.items() if float(column.low) < cut < float(column.high)]


def codes_in_bins(column: Column, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the codes that ``in_bins(column)`` has in place of codes of a column."""
    kind, _ = plain_column(column)
    if not isinstance(kind, Numeric):
        return codes
    cuts = grid_cuts(kind)
    found = np.searchsorted(cuts, codes, side="right")
    # The missing level comes after the codes of numbers, in bins as on the grid.
    return np.where(codes >= kind.n_codes, len(cuts) + 1, found).astype(np.int64)
