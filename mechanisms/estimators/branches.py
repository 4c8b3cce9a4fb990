"""Trees and rule lists as nested branches: decoded from a lattice point, pruned, and applied to records.

All of this is post-processing of a release and costs no privacy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.predicates import Bools, PredicateTable
from privopt.problems.discrete.rule_list import RuleList
from privopt.problems.tables.predicates import Predicates


@dataclass(frozen=True)
class Leaf:
    """A prediction.

    Attributes:
        label: the index of the class.
        number: the number of the leaf, in reading order.
    """

    label: int
    number: int = -1


@dataclass(frozen=True)
class Branch:
    """A yes/no question: records whose answer is ``answer`` go to ``then``, all others to ``otherwise``."""

    question: int
    answer: bool
    then: Node
    otherwise: Node


Node = Leaf | Branch


def branches_of(kind: type[BranchingProblem], point: IntArray, predicates: Predicates) -> Node:
    """Return the model that a lattice point encodes, pruned, with leaves numbered in reading order."""
    values, asked = point.tolist(), predicates.values.tolist()
    decoded = _rules(values, 0, asked) if kind is RuleList else _tree(values, 0, asked)
    known = {k: np.ones(column.n_codes, dtype=bool) for k, column in enumerate(predicates.coarse.columns)}
    return _numbered(_pruned(decoded, predicates, known), count())


def leaves_of(node: Node) -> Iterator[Leaf]:
    """Yield the leaves, in reading order."""
    if isinstance(node, Leaf):
        yield node
    else:
        yield from leaves_of(node.then)
        yield from leaves_of(node.otherwise)


def leaf_numbers(node: Node, table: PredicateTable) -> IntArray:
    """Return the number of the leaf that each row reaches, shape (rows,)."""
    if isinstance(node, Leaf):
        return np.full(table.rows, node.number, dtype=np.int64)
    here = table.column(node.question) == node.answer
    return np.where(here, leaf_numbers(node.then, table), leaf_numbers(node.otherwise, table))


def _tree(values: list[int], node: int, asked: list[int]) -> Node:
    inner = len(values) // 2
    if node < inner and values[node] < len(asked):
        sides = (_tree(values, 2 * node + side, asked) for side in (1, 2))
        return Branch(asked[values[node]], True, *sides)
    while node < inner:
        node = 2 * node + 1
    return Leaf(values[node])


def _rules(values: list[int], place: int, asked: list[int]) -> Node:
    rules = len(values) // 2
    if place == rules or values[place] >= 2 * len(asked):
        return Leaf(values[rules + place])
    value, negated = divmod(values[place], 2)
    rest = _rules(values, place + 1, asked)
    return Branch(asked[value], negated == 0, Leaf(values[rules + place]), rest)


def _pruned(node: Node, predicates: Predicates, known: dict[int, Bools]) -> Node:
    """Remove questions whose answer is known, and branches that predict the same on both sides.

    ``known`` holds, by column, which codes records that reach this node may have.
    """
    if isinstance(node, Leaf):
        return node
    asked = predicates.questions[node.question]
    possible = known[asked.column]
    then = possible & (asked.truths == node.answer)
    otherwise = possible & ~then
    if not otherwise.any():
        return _pruned(node.then, predicates, known)
    if not then.any():
        return _pruned(node.otherwise, predicates, known)
    first = _pruned(node.then, predicates, {**known, asked.column: then})
    second = _pruned(node.otherwise, predicates, {**known, asked.column: otherwise})
    return first if first == second else replace(node, then=first, otherwise=second)


def _numbered(node: Node, numbers: Iterator[int]) -> Node:
    if isinstance(node, Leaf):
        return replace(node, number=next(numbers))
    then = _numbered(node.then, numbers)
    return replace(node, then=then, otherwise=_numbered(node.otherwise, numbers))
