"""Rule lists over public predicates: if ... then, else if ... then, else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.predicates import Bools


class RuleList(BranchingProblem):
    """Choose an ordered list of literals, each with a class, and a class for rows where no literal holds.

    The coordinate of a place in the list is 2 g if predicate g has to be true, 2 g + 1 if it has to be false,
    and 2 p or more if the list ends there; the label of that place is then the class of all other rows.
    """

    ways: ClassVar[int] = 2

    @classmethod
    def places(cls, levels: int) -> tuple[int, int]:
        return levels, levels + 1

    @classmethod
    def pairs(cls, branches: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        # The last rule, and the rows that no rule holds for.
        for place in range(1, branches + 1):
            label = branches + place
            yield label - 1, label, (place,) if place < branches else ()

    @classmethod
    def predictions(cls, models: IntArray, truths: Bools) -> IntArray:
        rules, p = models.shape[1] // 2, truths.shape[1]
        label = np.repeat(models[:, -1:], len(truths), axis=1)
        for place in reversed(range(rules)):
            literal = np.minimum(models[:, place], 2 * p - 1)
            holds = (literal % 2 == 1)[:, None] != truths[:, literal // 2].T
            holds |= models[:, place, None] >= 2 * p
            label = np.where(holds, models[:, rules + place, None], label)
        return label
