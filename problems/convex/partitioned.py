"""Empirical risk of partitioned records: blocks of a file, or partitions on the workers of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
import scipy.sparse as sp

from privopt.problems.convex.losses import RealArray
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, Vector
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts

_STEADY = "nothing was released. To do: fit on a table that stays as it is"


class PartitionedRisk(EmpiricalRisk):
    """F(w) = (1/n) sum_i phi(<a_i, w>, y_i), with every sum over records computed part by part.

    Each part sums its own records, and the sums are added in the order of the parts; a part that is computed
    again after a worker died gives the same bits. A record's term passes through at most n additions and no
    other rounding, so ``facts.rounding`` holds. The result for a row does not depend on its part or position.

    Neighbours: replace-one, n public, as for ``EmpiricalRisk``; the replaced record may lie in another part.
    Parts may be read again in every pass, and must hold the same records each time: the sensitivities of
    gradient differences and of minima are proved for one fixed table. A fingerprint of all records
    (``mark_of``) is therefore compared with the fingerprint of the first pass.

    Args:
        parts: one ``PartRisk`` each, all of the same loss and bounds.
        facts: of the whole table; its n is the sum over the parts.
    """

    def __init__(self, parts: Parts, facts: RiskFacts) -> None:
        self.parts, self.facts = parts, facts
        self._first: int | None = None  # fingerprint of the records of the first pass

    def in_float64(self) -> EmpiricalRisk:
        return self

    def total(self, task: Callable[[EmpiricalRisk], Vector]) -> Vector:
        """Return the sum over the parts.

        Raises:
            InvalidInputError: the records, or their number, changed since the first pass.
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

    def compile(self, *, batches: bool = False, exact: bool = False) -> None:
        """Compile the kernels of dense parts on a made-up record, for parts that are on this machine.

        Workers on other machines, and sparse parts, compile theirs in the first pass.
        """
        rows = np.zeros((1, max(1, self.facts.dimension - bool(self.facts.constant))))
        PartRisk(rows, np.ones(1), self.facts, self.facts.row_norm).compile()

    def predictions(self, w: Any) -> NoReturn:
        """Raise InvalidInputError: partitioned records are summed, never collected in one place."""
        raise InvalidInputError(
            "predictions of single records are not available for partitioned data: only sums are collected"
        )

    def _batch(self, records: Any) -> NoReturn:
        self.predictions(records)


class PartRisk(EmpiricalRisk):
    """The risk of one part. A constant feature may be left out of X: its sums are computed directly.

    Row norms are computed and clipped whenever the risk is made, never reused from an earlier pass.

    Args:
        X: rows, dense or CSR, float32 or float64, a record each; with or without the constant feature. Not
            copied if float64, C-contiguous (or CSR without duplicates) and in memory.
        y: labels as the loss requires them, shape (rows,).
        facts: of the whole table; ``n_records`` is replaced by the number of records of the part.
        longest: the norm bound for the rows of X.

    Raises:
        InvalidInputError: as ``EmpiricalRisk``.
    """

    def __init__(self, X: Any, y: Any, facts: RiskFacts, longest: float) -> None:
        self._given_bound, self._constant_left_out = longest, X.shape[1] < facts.dimension
        super().__init__(
            X.astype(np.float64, copy=False),
            y,
            facts.loss,
            row_norm=facts.row_norm,
            norm=facts.norm,
            constant=facts.constant,
        )
        self.facts = replace(self.facts, dimension=facts.dimension)

    def clipped_rows(self) -> Any:
        return self._doubles(slice(0, len(self.y)))

    @property
    def _row_by_row(self) -> bool:
        return isinstance(self.X, np.ndarray)

    @property
    def _norm_bound(self) -> float:
        return self._given_bound

    @property
    def _slack(self) -> float:
        return super()._slack + 2.0**-52

    @property
    def _clipped_constant(self) -> float:
        """The constant feature after clipping, with the same margin below the bound as other rows."""
        return self.facts.constant * (1 - self._slack)

    def _predict(self, b: slice, w: RealArray) -> RealArray:
        if not self._constant_left_out:
            return super()._predict(b, w)
        return np.asarray(super()._predict(b, w[:-1]) + self._clipped_constant * w[-1])

    def _add(self, total: Vector, b: slice, weights: RealArray) -> None:
        if not self._constant_left_out:
            super()._add(total, b, weights)
            return
        super()._add(total[:-1], b, weights)
        total[-1] += self._clipped_constant * float(np.sum(weights))

    def _doubles(self, b: slice) -> Any:
        rows = self._shortened(slice(0, len(self.y)) if sp.issparse(self.X) else b)
        if not self._constant_left_out:
            return rows
        stack: Any = partial(sp.hstack, format="csr") if sp.issparse(rows) else np.hstack
        return stack([rows, np.full((rows.shape[0], 1), self._clipped_constant)])

    def bare_rows(self, b: slice) -> Any:
        return self._shortened(b)[:, : self.facts.dimension - bool(self.facts.constant)]

    def _shortened(self, b: slice) -> Any:
        """Return rows after clipping, equal to the clipped rows of an in-memory table."""
        rows: Any = self.X[b]
        diagonal: Any = sp.diags_array(self._scale[b])
        return diagonal @ rows if sp.issparse(rows) else rows * self._scale[b, None]

    def _squares(self) -> Vector:
        return np.ones(len(self.y))


class _Answer(NamedTuple):
    """The answer of a part: its number of records, their fingerprint, and the sums."""

    records: int
    mark: int
    sums: Vector


def _answer(part: EmpiricalRisk, task: Callable[[EmpiricalRisk], Vector]) -> _Answer:
    return _Answer(part.facts.n_records, part.mark, task(part))
