"""Columns of a schema as constraints on points see them."""

from __future__ import annotations

from collections.abc import Sequence

from privopt.problems.programs.columns import PointColumn
from privopt.problems.programs.constraints import Constraint, Monotone, PointBounds
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.rules import PointRule


def point_columns(columns: Sequence[Column]) -> tuple[PointColumn, ...]:
    """Return the columns of a schema for constraints, in order."""
    found: list[PointColumn] = []
    start = 0
    for column in columns:
        kind, missing = plain_column(column)
        size = len(column.feature_names)
        number = kind if isinstance(kind, Numeric) else None
        found.append(
            PointColumn(
                column.name,
                start,
                start + size,
                ordered=size - missing if _is_ordered(kind) else 0,
                direction=-1 if number is not None and number.one < number.zero else 1,
                ends=None if number is None else number.ends,
                others=isinstance(kind, Categorical) and kind.outside == "ignore",
            )
        )
        start += size
    return tuple(found)


def _is_ordered(kind: Column) -> bool:
    return isinstance(kind, Numeric) or (isinstance(kind, Binned) and kind.is_ordered)


def rules_of(columns: Sequence[Column], rules: Sequence[PointRule]) -> tuple[Constraint, ...]:
    """Return the keys ``monotone`` and ``points`` of a schema's columns as constraints."""
    found: list[Constraint] = []
    for column, rule in zip(columns, rules, strict=True):
        if rule.monotone is not None:
            found.append(Monotone((column.name,), 1 if rule.monotone == "rising" else -1))
        if rule.points is not None:
            found.append(PointBounds((column.name,), *rule.points))
    return tuple(found)
