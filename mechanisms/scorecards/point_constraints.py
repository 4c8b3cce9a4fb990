"""Constraints on the points of columns, enforced by post-processing of private weights at no privacy cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class PointConstraint(NamedTuple):
    """Constraints on the weights of one column, whose features are [start, stop).

    Attributes:
        ordered: the number of ordered features; a missing level, which comes last, is not counted.
        sign: 1 for weights that are non-decreasing, -1 for non-increasing, 0 for unconstrained. For a single
            feature (a number) it is the sign of its weight.
        points: bounds (low, high) on the weights, or None.
    """

    start: int
    stop: int
    ordered: int
    sign: int
    points: tuple[int, int] | None


def point_constraints(schema: Schema) -> tuple[PointConstraint, ...]:
    """Return the constraints of a schema, one for each column that has constraints."""
    return tuple(_point_constraints(schema))


def _point_constraints(schema: Schema) -> Iterator[PointConstraint]:
    start = 0
    for column, rule in zip(schema.columns, schema.rules, strict=True):
        kind, missing = plain_column(column)
        stop = start + len(column.feature_names)
        sign = {"rising": 1, "falling": -1, None: 0}[rule.monotone]
        if isinstance(kind, Numeric) and kind.one < kind.zero:
            sign = -sign
        if rule != PointRule():
            yield PointConstraint(start, stop, stop - start - missing, sign, rule.points)
        start = stop


def bounded(lattice: IntegerLattice, schema: Schema) -> IntegerLattice:
    """Return the lattice with the bounds of constrained columns replaced by their declared points."""
    low, high = lattice.low.copy(), lattice.high.copy()
    for constraint in point_constraints(schema):
        if constraint.points is not None:
            low[constraint.start : constraint.stop], high[constraint.start : constraint.stop] = (
                constraint.points
            )
    return lattice.with_bounds(low, high) if point_constraints(schema) else lattice


def check_max_columns(given: int | None) -> int | None:
    """Validate the maximal number of columns with points and return it as an int; None means all columns.

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


def forced_columns(lattice: IntegerLattice, spans: tuple[tuple[int, int], ...]) -> list[int]:
    """Return the numbers of the columns that must have points: their bounds exclude 0."""
    no_zero = (lattice.low > 0) | (lattice.high < 0)
    return [k for k, (start, stop) in enumerate(spans) if np.any(no_zero[start:stop])]


def check_forced(schema: Schema, lattice: IntegerLattice, max_columns: int | None) -> None:
    """Raise InvalidInputError if the bounds exclude 0 points in more than ``max_columns`` columns."""
    forced = [schema.columns[k].name for k in forced_columns(lattice, schema.spans)]
    if max_columns is not None and len(forced) > max_columns:
        raise InvalidInputError(
            f"max_columns = {max_columns}, but bounds of points leave no 0 to {len(forced)} columns: "
            f"{', '.join(map(repr, forced))}"
        )


def few_columns(
    weights: Floats,
    spans: tuple[tuple[int, int], ...],
    most: int | None,
    forced: Sequence[int] = (),
) -> Floats:
    """Return the weights with all but the ``most`` most important columns set to 0.

    The importance of a column is the variance of its contribution to the score when its levels, or the values
    of a number, are uniformly distributed. The columns ``forced``, which must have points, count as the most
    important.
    """
    real = np.array(weights, dtype=np.float64)
    if most is None or most >= len(spans):
        return real
    # The contribution of a number is uniform between 0 and its weight, with variance weight^2 / 12. Of a
    # categorical column a record has one level.
    spread = [np.var(real[a:b]) if b - a > 1 else real[a] ** 2 / 12 for a, b in spans]
    order = sorted(range(len(spans)), key=lambda j: (j not in forced, -float(spread[j])))
    for j in order[most:]:
        real[slice(*spans[j])] = 0.0
    return real


def constrained(weights: Floats, constraints: tuple[PointConstraint, ...], intercept: bool) -> Floats:
    """Return real weights that satisfy the constraints, also after scaling, rounding and clipping.

    Monotone columns are projected by isotonic regression. If a column may have no points below 0 (or none
    above 0), its levels are shifted until the lowest (or the highest) is 0; the intercept absorbs the shift.
    Without an intercept nothing is shifted.
    """
    real = np.array(weights, dtype=np.float64)
    for constraint in constraints:
        own = real[constraint.start : constraint.stop]
        line = own[: constraint.ordered]
        if constraint.sign and constraint.ordered == 1:
            line[:] = constraint.sign * np.maximum(constraint.sign * line, 0)
        elif constraint.sign:
            line[:] = IsotonicRegression(increasing=constraint.sign > 0).fit_transform(
                np.arange(len(line)), line
            )
        if constraint.points is None or constraint.ordered == 1 or not intercept:
            continue
        shift = own.min() if constraint.points[0] >= 0 else own.max() if constraint.points[1] <= 0 else 0.0
        own -= shift
        real[-1] += shift
    return real
