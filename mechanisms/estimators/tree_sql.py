"""A tree or a rule list as SQL: nested CASE expressions that agree with ``predict`` on every row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from privopt.mechanisms.estimators.branches import Leaf, Node, leaves_of
from privopt.mechanisms.estimators.sql import (
    alias_of,
    as_double,
    double,
    literal,
    points_expression,
    points_of_column,
    statement_with,
)
from privopt.mechanisms.evaluation.leaves import LeafRisks
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.predicates import Predicates


def tree_statement(
    predicates: Predicates,
    branches: Node,
    classes: Sequence[Any],
    risks: LeafRisks | None,
    table: str,
    columns: Sequence[str] = (),
) -> str:
    """Return a SELECT that adds the columns leaf, prediction and, with risks, the risk of each class.

    A question is translated like the points of a column (``points_of_column``): 1 for yes and 0 for no. If
    ``predict`` refuses a record, the points of some column are NULL, and so are the added values. If a
    declared column, or one of ``columns``, has the name of an added column, a number is appended to the
    name of the added column.

    Raises:
        InvalidInputError: text that SQL cannot represent.
    """
    nothing = points_expression(predicates.coarse, [0] * predicates.coarse.n_features)
    leaves = list(leaves_of(branches))
    reached = leaf_expression(branches, predicates, [str(leaf.number) for leaf in leaves])
    leaf = f"CASE WHEN (\n  {nothing}\n) = 0 THEN {reached} END"
    alias = alias_of(leaf)
    cases = [f"WHEN {leaf.number} THEN {literal(classes[leaf.label])}" for leaf in leaves]
    added = [("leaf", alias), ("prediction", f"CASE {alias} {' '.join(cases)} END")]
    if risks is not None:
        names = ["risk"] if len(classes) == 2 else [f"risk_{k}" for k in range(len(classes))]
        for name, column in zip(names, risks.shares.T[-len(names) :], strict=True):
            values = [f"WHEN {leaf.number} THEN {double(column[leaf.number])}" for leaf in leaves]
            added.append((name, as_double(f"CASE {alias} {' '.join(values)} END")))
    return statement_with(predicates.schema, table, {alias: leaf}, added, columns)


def leaf_expression(node: Node, predicates: Predicates, values: Sequence[str], indent: str = "  ") -> str:
    """Return SQL for the value of a record's leaf, from ``values`` by leaf number; no record is refused."""
    if isinstance(node, Leaf):
        return values[node.number]
    asked = predicates.questions[node.question]
    column = predicates.coarse.columns[asked.column]
    kind, has_level = plain_column(column)
    answers = asked.truths.astype(int).tolist()
    answers = answers[: len(kind.feature_names)] + answers[-1:] * has_level  # "any other" has no feature
    holds = f"{points_of_column(column, answers)} = {int(node.answer)}"
    then, otherwise = (
        leaf_expression(child, predicates, values, indent + "  ") for child in (node.then, node.otherwise)
    )
    return f"CASE WHEN {holds}\n{indent}THEN {then}\n{indent}ELSE {otherwise} END"
