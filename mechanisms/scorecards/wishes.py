"""What a schema wishes for the points of columns, kept by post-processing of private weights: free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.tables.columns import Numeric
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.rules import PointRule
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]


class Wish(NamedTuple):
    """Wishes for the features [start, stop) of a column.

    Attributes:
        ordered: how many of them stand in order, a missing level not counted.
        sign: 1 for weights that must not fall, -1 for those that must not rise, 0: as they come. Of a single
            feature, a number, it is the sign of its weight.
        points: (low, high), or None.
    """

    start: int
    stop: int
    ordered: int
    sign: int
    points: tuple[int, int] | None


def wishes(schema: Schema) -> tuple[Wish, ...]:
    """The wishes of a schema, for columns that have some."""
    return tuple(_wishes(schema))


def _wishes(schema: Schema) -> Iterator[Wish]:
    start = 0
    for column, rule in zip(schema.columns, schema.rules, strict=True):
        kind, missing = plain_column(column)
        stop = start + len(column.feature_names)
        sign = {"rising": 1, "falling": -1, None: 0}[rule.monotone]
        if isinstance(kind, Numeric) and kind.one < kind.zero:
            sign = -sign
        if rule != PointRule():
            yield Wish(start, stop, stop - start - missing, sign, rule.points)
        start = stop


def bounded(lattice: IntegerLattice, schema: Schema) -> IntegerLattice:
    """A box of weights within the bounds that columns wish for."""
    low, high = lattice.low.copy(), lattice.high.copy()
    for wish in wishes(schema):
        if wish.points is not None:
            low[wish.start : wish.stop], high[wish.start : wish.stop] = wish.points
    return IntegerLattice(low, high) if wishes(schema) else lattice


def granted(weights: Floats, asked: tuple[Wish, ...], intercept: bool) -> Floats:
    """Real weights that keep wishes, and keep them when scaled, rounded and cut off at bounds.

    Levels of a column that wants no points below 0 (or above) are shifted there, where an intercept takes up
    the difference.
    """
    real = np.array(weights, dtype=np.float64)
    for wish in asked:
        own = real[wish.start : wish.stop]
        line = own[: wish.ordered]
        if wish.sign and wish.ordered == 1:
            line[:] = wish.sign * np.maximum(wish.sign * line, 0)
        elif wish.sign:
            line[:] = IsotonicRegression(increasing=wish.sign > 0).fit_transform(np.arange(len(line)), line)
        if wish.points is None or wish.ordered == 1 or not intercept:
            continue
        shift = own.min() if wish.points[0] >= 0 else own.max() if wish.points[1] <= 0 else 0.0
        own -= shift
        real[-1] += shift
    return real
