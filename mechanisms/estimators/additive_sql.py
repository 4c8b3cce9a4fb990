"""Sum of a scorecard and a tree as SQL, with the same floating-point operations as ``decision_function``."""

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
from privopt.problems.tables.schema import Schema


def additive_statement(
    predicates: Predicates,
    schema: Schema,
    points: Sequence[int],
    unit: float,
    branches: Node,
    scores: Sequence[float],
    classes: Sequence[Any],
    table: str,
    columns: Sequence[str] = (),
) -> str:
    """Return a SELECT that adds the columns score and prediction; NULL for records that ``predict`` refuses.

    Args:
        predicates: the predicates of the tree.
        schema: the schema of the card: the schema of the tree, perhaps with numbers in bins.
        points: the points of the card, one per feature of its schema.
        unit: the score of a point.
        branches: the tree.
        scores: the score of each leaf.
        classes: (negative, positive).
        table: name of the table.
        columns: names of the columns of the table, which added columns do not take.

    Raises:
        InvalidInputError: a schema without a translation, or text that SQL cannot represent.
    """
    card = as_double(f"(\n  {points_expression(schema, points)}\n)")
    tree = leaf_expression(branches, predicates, [double(score) for score in scores])
    # The points of a refused record are NULL, and so is a sum with NULL.
    score = f"{double(unit)} * ({card} / {schema.denominator}) + {as_double(tree)}"
    alias = alias_of(score)
    added = [("score", alias), ("prediction", class_by_sign(alias, classes))]
    return statement_with(predicates.schema, table, {alias: score}, added, columns)
