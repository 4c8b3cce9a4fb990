"""The risk of records that lie in parts: blocks of a file, partitions on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np

from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, Vector
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts


class PartitionedRisk(EmpiricalRisk):
    """F(w) = (1/n) sum_i phi(<a_i, w>, y_i), every sum over records being one of sums over parts.

    Parts add their own records up, each once, and their sums are added in the order of the parts, so a part
    that is computed again, after a worker died, gives the same bits. A record's term passes through no more
    additions than records have, in an order of its own, and nothing else is rounded: ``facts.rounding`` holds
    as it stands. What is computed for a row does not depend on where it lies, neither in a part nor in which.

    Neighbours: replace-one, n public, as for ``EmpiricalRisk``; a record may lie in another part than the one
    that it replaces.

    Args:
        parts: risks of the same loss and bounds, with counts: what a row adds then depends on it alone.
        facts: of all of them: n is the sum of theirs.
    """

    def __init__(self, parts: Parts, facts: RiskFacts) -> None:
        self.parts, self.facts = parts, facts

    def in_float64(self) -> EmpiricalRisk:
        return self

    def total(self, task: Callable[[EmpiricalRisk], Vector]) -> Vector:
        """The sum over the parts.

        Raises:
            InvalidInputError: the parts hold other numbers of records than before.
        """
        answers = self.parts.each(partial(_answer, task=task))
        if sum(records for records, _ in answers) != self.facts.n_records:
            raise InvalidInputError(
                "the number of records has changed since they were counted: nothing was released. To do: fit "
                "on a table that stays as it is"
            )
        total = np.array(answers[0][1])
        for _, more in answers[1:]:
            total += more
        return total

    def predictions(self, w: Any) -> NoReturn:
        """Raises InvalidInputError: records in parts are added up, never brought together."""
        raise InvalidInputError("records that lie in parts are not brought together: only sums are")

    def _batch(self, records: Any) -> NoReturn:
        self.predictions(records)


def _answer(part: EmpiricalRisk, task: Callable[[EmpiricalRisk], Vector]) -> tuple[int, Vector]:
    return part.facts.n_records, task(part)
