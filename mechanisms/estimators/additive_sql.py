"""Scorecard plus decision tree as SQL: the same floating-point operations as ``decision_function``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privopt.mechanisms.estimators.branches import Node
from privopt.mechanisms.estimators.sql import (
    alias_of,
    as_double,
    class_by_sign,
    double,
    points_expression,
    statement_with,
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
    """Return a SELECT that adds the columns score and prediction; NULL for records that ``predict`` refuses.

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
    alias = alias_of(score)
    return statement_with(schema, table, score, {"score": alias, "prediction": class_by_sign(alias, classes)})
