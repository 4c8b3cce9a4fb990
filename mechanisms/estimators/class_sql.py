"""Translation of scorecards of several classes to SQL that agrees with ``predict`` on every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privopt.mechanisms.estimators.sql import (
    alias_of,
    as_double,
    literal,
    points_expression,
    statement_with,
)
from privopt.problems.tables.schema import Schema


def class_statement(
    schema: Schema,
    points: Sequence[Sequence[int]],
    classes: Sequence[Any],
    table: str,
    others: Sequence[str] = (),
) -> str:
    """Return a SELECT that adds the points of each class, ``points_LABEL``, and the prediction.

    Points and prediction are NULL for records that ``predict`` refuses. If a declared column, or one of
    ``others``, has the name of an added column, in upper or lower case, a number is appended to the added
    name. The result also has a column ``privopt_...`` for each class, with the integers that are compared.

    Raises:
        InvalidInputError: as ``points_expression``.
    """
    totals = [f"(\n  {points_expression(schema, own)}\n)" for own in points]
    # Two classes may have the same points everywhere; a number then distinguishes their aliases.
    aliases = [f"{alias_of(total)}_{k}" for k, total in enumerate(totals)]
    added = []
    for label, alias in zip(classes, aliases, strict=True):
        value = alias if schema.denominator == 1 else f"{as_double(alias)} / {schema.denominator}"
        added.append((f"points_{label}", value))
    added.append(("prediction", _largest(aliases, classes)))
    return statement_with(schema, table, dict(zip(aliases, totals, strict=True)), added, others)


def _largest(aliases: Sequence[str], classes: Sequence[Any]) -> str:
    """Return SQL for the first class with the largest score; NULL if scores are NULL."""
    cases = []
    for alias, label in zip(aliases, classes, strict=True):
        least = " AND ".join(f"{alias} >= {other}" for other in aliases if other != alias)
        cases.append(f"WHEN {least} THEN {literal(label)}")
    return "CASE " + "\n  ".join(cases) + " END"
