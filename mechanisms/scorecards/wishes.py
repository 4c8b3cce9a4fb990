"""What a schema wishes for the points of columns, kept by post-processing of private weights: free."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from privopt.problems.arguments import told
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.errors import InvalidInputError
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


def check_max_columns(given: int | None) -> int | None:
    """How many columns may get points, as an int; None: all.

    Raises:
        InvalidInputError: neither None nor a whole number >= 1.
    """
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or given < 1:
        raise InvalidInputError(
            f"max_columns (--max-columns) is how many columns may get points, a whole number >= 1; "
            f"got {told(given)}"
        )
    return int(given)


def check_forced(schema: Schema, asked: tuple[Wish, ...], max_columns: int | None) -> None:
    """Raise InvalidInputError where more columns must have points, as the bounds that they wish for say."""
    starts = [start for start, _ in schema.spans]
    forced = [schema.columns[starts.index(wish.start)].name for wish in asked if _forced(wish)]
    if max_columns is not None and len(forced) > max_columns:
        raise InvalidInputError(
            f"max_columns = {max_columns}, but the schema's points leave no 0 to {len(forced)} columns: "
            f"{', '.join(map(repr, forced))}"
        )


def _forced(wish: Wish) -> bool:
    return wish.points is not None and not wish.points[0] <= 0 <= wish.points[1]


def few_columns(
    weights: Floats, spans: tuple[tuple[int, int], ...], most: int | None, asked: tuple[Wish, ...]
) -> Floats:
    """The same weights, 0 for all but the columns that tell records apart most, at most so many.

    A column tells records apart by the standard deviation of its weights when every level, and every value
    of a number, is as likely as any other. Columns that may not have 0 points come first.
    """
    real = np.array(weights, dtype=np.float64)
    if most is None or most >= len(spans):
        return real
    forced = {wish.start for wish in asked if _forced(wish)}
    # A number lies between 0 and its weight, so a twelfth of its square; levels are one at a time.
    spread = [np.var(real[a:b]) if b - a > 1 else real[a] ** 2 / 12 for a, b in spans]
    order = sorted(range(len(spans)), key=lambda j: (spans[j][0] not in forced, -float(spread[j])))
    for j in order[most:]:
        real[slice(*spans[j])] = 0.0
    return real


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
