"""Records as a linear fit wants them, what a plan may know of them, and the risk that is minimised.

All of it works on parts of a table where they lie: they are outlined, and their risks added up.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import norm as sparse_norm
from sklearn.utils import assert_all_finite

from privopt.mechanisms.estimators.validation import without_values
from privopt.problems.arrays import record_counts, tallied
from privopt.problems.convex.coded import CodedRows
from privopt.problems.convex.losses import Loss, WeightedLoss
from privopt.problems.convex.partitioned import PartitionedRisk, PartRisk
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts, Whole
from privopt.problems.tables.schema import Schema

Floats = NDArray[np.float64]


class Targets(NamedTuple):
    """What is fitted: label vectors, one per release, for a loss; ``centre`` is added to predictions."""

    labels: list[Floats]
    loss: Loss
    classes: NDArray[Any] | None = None
    centre: float = 0.0
    label_range: tuple[float, float] | None = None
    number: NDArray[np.int64] | None = None  # of each record's class

    @property
    def releases(self) -> int:
        """How many label vectors there are, whether or not they are here: one for each of several classes."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    def weighted(self, weights: Floats | None) -> Targets:
        """Labels that carry the weights of their classes, shape (K,), where those differ."""
        if self.number is None or weights is None or np.all(weights == weights[0]):
            return self
        carried = weights[self.number]
        loss = WeightedLoss(self.loss, float(np.max(weights)))
        return self._replace(labels=[carried * y for y in self.labels], loss=loss)


class Prepared(NamedTuple):
    """Records of a table, or of a part of it, as a fit wants them.

    Features end with the constant one, if there is one, which is not among the ``columns``. They, the label
    vectors and the counts are private; ``middle`` and ``bound`` are where rows are measured from, and how far
    away they may be.
    """

    features: Any
    targets: Targets
    counts: NDArray[np.int64] | None
    columns: int
    names: tuple[str, ...]
    middle: Floats | None
    bound: float


class Outline(NamedTuple):
    """What a plan needs to know of records: targets without labels, and how many records each class has."""

    records: int
    releases: int
    held: NDArray[np.int64] | None
    targets: Targets
    columns: int
    names: tuple[str, ...]
    middle: Floats | None
    bound: float


def _outline(part: Prepared) -> Outline:
    rows = part.features.shape[0]
    counts, targets = record_counts(part.counts, rows), part.targets
    held, number = None, targets.number
    if number is not None and targets.classes is not None:
        held = tallied(number, counts, len(targets.classes))
        number = number[:0].copy()  # a view would keep all of them
    facts = targets._replace(labels=[], number=number)
    return Outline(int(np.sum(counts)), len(targets.labels), held, facts, *part[3:])


def outline_of_part(part: Prepared) -> Outline:
    """The outline of a part, which is finite.

    Raises:
        InvalidInputError: it is not.
    """
    try:
        assert_all_finite(part.features, input_name="X")
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None
    return _outline(part)


def _together(parts: list[Outline]) -> Outline:
    """All parts at once.

    Raises:
        InvalidInputError: no records, or parts with other columns than the first.
    """
    if not parts:
        raise InvalidInputError("no records: at least one row is needed")
    first = parts[0]
    if any(part.columns != first.columns or part.names != first.names for part in parts):
        raise InvalidInputError("partitions differ in their columns")
    held = None if first.held is None else np.sum(np.array([part.held for part in parts]), axis=0)
    return first._replace(records=sum(part.records for part in parts), held=held)


def outline_of(table: Parts) -> Outline:
    return _together(table.each(_outline if isinstance(table, Whole) else outline_of_part))


def risk_of(table: Parts, number: int, weights: Floats | None, facts: RiskFacts) -> EmpiricalRisk:
    """The risk of one label vector."""
    task = _risk_in_memory if isinstance(table, Whole) else _risk_of_part
    risks = table.made(partial(task, number=number, weights=weights, facts=facts))
    return risks.part if isinstance(risks, Whole) else PartitionedRisk(risks, facts)


def _risk_in_memory(part: Prepared, number: int, weights: Floats | None, facts: RiskFacts) -> EmpiricalRisk:
    return EmpiricalRisk(
        *(part.features, part.targets.weighted(weights).labels[number], facts.loss),
        row_norm=facts.row_norm,
        norm=facts.norm,
        constant=facts.constant,
        counts=part.counts,
    )


def _risk_of_part(part: Prepared, number: int, weights: Floats | None, facts: RiskFacts) -> PartRisk:
    return PartRisk(part.features, part.targets.weighted(weights).labels[number], facts, part.bound)


def risk_facts(n: int, d: int, loss: Loss, bound: float, norm: RowNorm, intercept: bool) -> RiskFacts:
    """Public facts of the rows, with the constant feature if there is one."""
    constant = constant_feature(bound, norm) if intercept else 0.0
    extended = math.hypot(bound, constant) if norm == "l2" else bound
    return RiskFacts(n, d + intercept, loss, extended, norm, constant)


def constant_feature(bound: float, norm: RowNorm) -> float:
    """The feature that carries the intercept. Free under linf; under l2 half the bound, so that it adds 12%
    to every gradient's bound, and so to the noise, and an intercept is still within easy reach.
    """
    return bound if norm == "linf" else bound / 2


def with_constant(X: Any, constant: float) -> Any:
    if isinstance(X, CodedRows):
        return X.with_constant(constant)
    column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
    stack: Any = sp.hstack if sp.issparse(X) else np.hstack
    return stack([X, column])


def shortened(X: Any, bound: float, norm: RowNorm) -> Any:
    """Rows longer than ``bound`` scaled down to it, all others as they are.

    Raises:
        InvalidInputError: a row whose norm overflows.
    """
    norms = (sparse_norm if sp.issparse(X) else np.linalg.norm)(X, np.inf if norm == "linf" else 2, axis=1)
    if not np.all(np.isfinite(norms)):
        raise InvalidInputError("a row is too long to be shortened to data_norm: clip the columns first")
    if not np.any(norms > bound):
        return X
    scale = (bound / np.maximum(norms, bound)).astype(X.dtype)
    if not sp.issparse(X):
        return X * scale[:, None]
    diagonal: Any = sp.diags_array(scale)
    return (diagonal @ X).tocsr()


def schema_norm(schema: Schema, norm: RowNorm = "l2") -> float:
    """A bound on the norm of every row that a schema can encode. Public."""
    if norm == "linf":
        return max([float(column.reach) for column in schema.columns] + [1.0] * schema.intercept)
    squares = sum(float(column.reach) ** 2 for column in schema.columns)  # one-hots: one level at a time
    return math.sqrt(squares + schema.intercept)
