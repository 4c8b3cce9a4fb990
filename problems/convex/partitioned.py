"""The risk of records that lie in parts: blocks of a file, partitions on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from mmap import mmap
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp

from privopt.problems.convex.losses import RealArray
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, Vector
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts

_STEADY = "nothing was released. To do: fit on a table that stays as it is"


class PartitionedRisk(EmpiricalRisk):
    """F(w) = (1/n) sum_i phi(<a_i, w>, y_i), every sum over records being one of sums over parts.

    Parts add their own records up, each once, and their sums are added in the order of the parts, so a part
    that is computed again, after a worker died, gives the same bits. A record's term passes through no more
    additions than records have, in an order of its own, and nothing else is rounded: ``facts.rounding`` holds
    as it stands. What is computed for a row does not depend on where it lies, neither in a part nor in which.

    Neighbours: replace-one, n public, as for ``EmpiricalRisk``; a record may lie in another part than the one
    that it replaces. Parts that are read anew for every pass have to hold the same records: differences of
    gradients, and minima, have the sensitivity that they are said to have only if both passes saw one table.
    So all parts together have a mark (``mark_of``), and another one than at first is refused.

    Args:
        parts: risks of the same loss and bounds, where what a row adds depends on it alone: ``PartRisk``.
        facts: of all of them: n is the sum of theirs.
    """

    def __init__(self, parts: Parts, facts: RiskFacts) -> None:
        self.parts, self.facts = parts, facts
        self._first: int | None = None  # the mark of the records that the first pass saw

    def in_float64(self) -> EmpiricalRisk:
        return self

    def total(self, task: Callable[[EmpiricalRisk], Vector]) -> Vector:
        """The sum over the parts.

        Raises:
            InvalidInputError: the parts hold other records than before, or another number of them.
        """
        answers = self.parts.each(partial(_answer, task=task))
        if sum(answer.records for answer in answers) != self.facts.n_records:
            raise InvalidInputError(f"the number of records has changed since they were counted: {_STEADY}")
        mark = sum(answer.mark for answer in answers) % 2**64
        if self._first not in (None, mark):
            raise InvalidInputError(f"the records have changed since they were first read: {_STEADY}")
        self._first = mark
        total = np.array(answers[0].sums)
        for answer in answers[1:]:
            total += answer.sums
        return total

    def predictions(self, w: Any) -> NoReturn:
        """Raises InvalidInputError: records in parts are added up, never brought together."""
        raise InvalidInputError("records that lie in parts are not brought together: only sums are")

    def _batch(self, records: Any) -> NoReturn:
        self.predictions(records)


class PartRisk(EmpiricalRisk):
    """The risk of one part. A constant feature is not stored beside its rows: its sums are plain ones.

    Rows are measured and shortened whenever the risk is made, and never trusted to be what they were. Those
    of a memory-mapped file are copied first: others may write to it between two looks.

    Args:
        X: rows, dense or CSR, float32 or float64, a record each; without the constant feature where there is
            one that is not stored. Not copied if float64, C-contiguous (or CSR without duplicates) and in
            memory.
        y: labels as the loss wants them, shape (rows,).
        facts: of the whole table; ``n_records`` is that of the part.
        longest: the bound on the rows of X.

    Raises:
        InvalidInputError: as ``EmpiricalRisk``.
    """

    def __init__(self, X: Any, y: Any, facts: RiskFacts, longest: float) -> None:
        self._bound, self._beside = longest, X.shape[1] < facts.dimension
        super().__init__(
            *(_in_memory(X).astype(np.float64, copy=False), y, facts.loss),
            row_norm=facts.row_norm,
            norm=facts.norm,
            constant=facts.constant,
        )
        self.facts = replace(self.facts, dimension=facts.dimension)

    def clipped_rows(self) -> Any:
        return self._doubles(slice(0, len(self.y)))

    @property
    def _alone(self) -> bool:
        return isinstance(self.X, np.ndarray)

    @property
    def _longest(self) -> float:
        return self._bound

    @property
    def _slack(self) -> float:
        return super()._slack + 2.0**-52

    @property
    def _last(self) -> float:
        """What the constant feature is after shortening: with it, too, a row is as far below the bound."""
        return self.facts.constant * (1 - self._slack)

    def _predict(self, b: slice, w: RealArray) -> RealArray:
        if not self._beside:
            return super()._predict(b, w)
        return np.asarray(super()._predict(b, w[:-1]) + self._last * w[-1])

    def _add(self, total: Vector, b: slice, weights: RealArray) -> None:
        if not self._beside:
            super()._add(total, b, weights)
            return
        super()._add(total[:-1], b, weights)
        total[-1] += self._last * float(np.sum(weights))

    def _doubles(self, b: slice) -> Any:
        rows = self._shortened(slice(0, len(self.y)) if sp.issparse(self.X) else b)
        if not self._beside:
            return rows
        stack: Any = partial(sp.hstack, format="csr") if sp.issparse(rows) else np.hstack
        return stack([rows, np.full((rows.shape[0], 1), self._last)])

    def bare_rows(self, b: slice) -> Any:
        return self._shortened(b)[:, : self.facts.dimension - bool(self.facts.constant)]

    def _shortened(self, b: slice) -> Any:
        """Some rows, as the table of which this is a part would have them in memory."""
        rows: Any = self.X[b]
        diagonal: Any = sp.diags_array(self._scale[b])
        return diagonal @ rows if sp.issparse(rows) else rows * self._scale[b, None]

    def _squares(self) -> Vector:
        return np.ones(len(self.y))


class _Answer(NamedTuple):
    """Of a part: how many records it holds, their mark, and what was asked."""

    records: int
    mark: int
    sums: Vector


def _answer(part: EmpiricalRisk, task: Callable[[EmpiricalRisk], Vector]) -> _Answer:
    return _Answer(part.facts.n_records, part.mark, task(part))


def _in_memory(X: Any) -> Any:
    """X, or a copy of what lies in a mapped file."""
    owner = X
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return np.array(X) if isinstance(owner, mmap) else X
