"""Scorecard plus decision tree as SQL: the same floating-point operations as ``decision_function``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from privopt.mechanisms.estimators.branches import Node
from privopt.mechanisms.estimators.sql import (
    TABLE,
    as_double,
    double,
    free_name,
    identifier,
    literal,
    points_expression,
)
from privopt.mechanisms.estimators.tree_sql import leaf_expression
from privopt.problems.tables.predicates import Predicates


def additive_statement(
    predicates: Predicates,
    points: Sequence[int],
    unit: float,
    branches: Node,
    scores: Sequence[float],
    classes: Sequence[Any],
    table: str,
) -> str:
    """A SELECT that adds the columns score and prediction; NULL for records that ``predict`` refuses.

    Args:
        predicates: of the declared schema.
        points: the card's, one per feature of the schema.
        unit: the score of a point.
        branches: the tree.
        scores: the score of each leaf.
        classes: (negative, positive).
        table: name of the table.

    Raises:
        InvalidInputError: a schema without a translation, or text that SQL cannot represent.
    """
    schema = predicates.schema
    card = as_double(f"(\n  {points_expression(schema, points)}\n)")
    tree = leaf_expression(branches, predicates, [double(score) for score in scores])
    # A refused record has no points, and a sum with NULL is NULL.
    score = f"{double(unit)} * ({card} / {schema.denominator}) + {as_double(tree)}"
    alias = f"privopt_{hashlib.sha256(score.encode()).hexdigest()[:16]}"
    label = (
        f"CASE WHEN {alias} > 0 THEN {literal(classes[1])} WHEN {alias} <= 0 THEN {literal(classes[0])} END"
    )
    taken = {column.name.lower() for column in schema.columns}
    added = f"{alias} AS {free_name('score', taken)},\n  {label} AS {free_name('prediction', taken)}"
    inner = f"SELECT {TABLE}.*, {score} AS {alias} FROM {identifier(table)} AS {TABLE}"
    return f"SELECT *,\n  {added}\nFROM (\n{inner}\n) AS scored\n"
