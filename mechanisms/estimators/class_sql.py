"""Translation of scorecards of several classes to SQL that agrees with ``predict`` on every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privopt.mechanisms.estimators.sql import (
    TABLE,
    alias_of,
    as_double,
    free_name,
    identifier,
    literal,
    points_expression,
    taken_names,
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

    Both are NULL for records that ``predict`` refuses. If a declared column, or one of ``others``, has one of
    these names, in upper or lower case, a number is appended. The integers that are compared are columns
    ``privopt_...`` of the result, one for each class.

    Raises:
        InvalidInputError: as ``points_expression``.
    """
    totals = [f"(\n  {points_expression(schema, own)}\n)" for own in points]
    # Classes may have equal points everywhere: the number makes the aliases different.
    aliases = [f"{alias_of(total)}_{k}" for k, total in enumerate(totals)]
    taken = taken_names(schema, others)
    added = []
    for label, alias in zip(classes, aliases, strict=True):
        value = alias if schema.denominator == 1 else f"{as_double(alias)} / {schema.denominator}"
        name = _free(f"points_{label}", taken)
        added.append(f"{value} AS {identifier(name)}")
    added.append(f"{_largest(aliases, classes)} AS {free_name('prediction', taken)}")
    inner = ",\n".join(f"{total} AS {alias}" for total, alias in zip(totals, aliases, strict=True))
    source = f"SELECT {TABLE}.*, {inner} FROM {identifier(table)} AS {TABLE}"
    columns = ",\n  ".join(["*", *added])
    return f"SELECT {columns}\nFROM (\n{source}\n) AS scored\n"


def _free(name: str, taken: set[str]) -> str:
    """Return a name that no declared column and no earlier class has, in upper or lower case; take it."""
    free, number = name, 0
    while free.lower() in taken:
        number += 1
        free = f"{name}_{number}"
    taken.add(free.lower())
    return free


def _largest(aliases: Sequence[str], classes: Sequence[Any]) -> str:
    """Return SQL for the first class of the largest score, NULL for a record without scores."""
    cases = []
    for alias, label in zip(aliases, classes, strict=True):
        least = " AND ".join(f"{alias} >= {other}" for other in aliases if other != alias)
        cases.append(f"WHEN {least} THEN {literal(label)}")
    return "CASE " + "\n  ".join(cases) + " END"
