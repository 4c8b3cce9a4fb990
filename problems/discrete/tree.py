"""Decision trees over public predicates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.predicates import Bools


class DecisionTree(BranchingProblem):
    """Choose a binary tree: a predicate at every inner node, a class at every leaf.

    Nodes are in heap order: the children of node i are 2 i + 1, where its predicate is true, and 2 i + 2. The
    coordinate of an inner node is the number of its predicate, or p or more where the tree stops; the label
    of a node that stops is the label of the first leaf below it.
    """

    ways: ClassVar[int] = 1

    @classmethod
    def places(cls, levels: int) -> tuple[int, int]:
        return 2**levels - 1, 2**levels

    @classmethod
    def pairs(cls, branches: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        for node in range(branches):
            sides = 2 * node + 1, 2 * node + 2
            first, second = (first_leaf(side, branches) for side in sides)
            yield first, second, tuple(side for side in sides if side < branches)

    @classmethod
    def predictions(cls, models: IntArray, truths: Bools) -> IntArray:
        branches, p = models.shape[1] // 2, truths.shape[1]
        node = np.zeros((len(models), len(truths)), dtype=np.int64)
        stopped = np.zeros(node.shape, dtype=bool)
        rows = np.arange(len(truths))[None, :]
        for _ in range(int(branches).bit_length()):
            asked = np.take_along_axis(models, node, axis=1)
            stopped |= asked >= p
            left = stopped | truths[rows, np.minimum(asked, p - 1)]
            node = 2 * node + np.where(left, 1, 2)
        return np.take_along_axis(models, node, axis=1)


def first_leaf(node: int, branches: int) -> int:
    """Return the first leaf below a node: its coordinate holds the label of the node where the tree stops."""
    while node < branches:
        node = 2 * node + 1
    return node
