"""Points of trees and rule lists read from the definition of their coordinates, as references for tests."""

from __future__ import annotations

from typing import Any

from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.tree import DecisionTree


def read_aloud(kind: type[BranchingProblem], point: list[int], values: int, classes: int) -> Any:
    """A model from the definition of its coordinates: a label, or a question with its two sides.

    A label is the pair of what it says alone and how far it is from another one, until it is known which.
    """
    read = _tree_aloud if kind is DecisionTree else _list_aloud
    return _labelled(read(point, 0, values, classes), classes)


def _tree_aloud(point: list[int], node: int, values: int, classes: int) -> Any:
    inner = len(point) // 2
    if node >= inner or point[node] >= values:
        while node < inner:
            node = 2 * node + 1
        return {"alone": point[node] % classes, "away": point[node] // classes + 1}
    return point[node], *(_tree_aloud(point, 2 * node + side, values, classes) for side in (1, 2))


def _list_aloud(point: list[int], place: int, values: int, classes: int) -> Any:
    rules = len(point) // 2
    label = {"alone": point[rules + place] % classes, "away": point[rules + place] // classes + 1}
    if place == rules or point[place] >= 2 * values:
        return label
    return point[place], label, _list_aloud(point, place + 1, values, classes)


def _labelled(node: Any, classes: int) -> Any:
    if isinstance(node, dict):
        return node["alone"]
    asked, first, second = node
    if isinstance(first, dict) and isinstance(second, dict):
        return asked, first["alone"], (first["alone"] + second["away"]) % classes
    return asked, _labelled(first, classes), _labelled(second, classes)


def label_of(kind: type[BranchingProblem], model: Any, row: list[int]) -> int:
    while not isinstance(model, int):
        asked, first, second = model
        g, negated = (asked, 0) if kind is DecisionTree else divmod(asked, 2)
        model = first if row[g] == 1 - negated else second
    return model


def reached(kind: type[BranchingProblem], model: Any, asked: dict[int, int], known: dict[int, bool]) -> Any:
    """A model with None for what no record can reach; ``asked`` are the predicates of values."""
    if isinstance(model, int):
        return model
    value, *sides = model
    g, negated = (value, 0) if kind is DecisionTree else divmod(value, 2)
    found = []
    for answer, side in zip((negated == 0, negated == 1), sides, strict=True):
        if known.get(asked[g], answer) != answer:
            found.append(None)
        else:
            found.append(reached(kind, side, asked, {**known, asked[g]: answer}))
    return value, *found
