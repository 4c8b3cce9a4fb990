"""Preparation of records for linear fits: encoded records, outlines for plans, and empirical risks.

All of this also works on partitioned tables: the outline of each part is made on its worker, and the risks of
parts are summed.
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
from privopt.problems.arguments import check_some_records
from privopt.problems.arrays import record_counts, tallied
from privopt.problems.convex.coded import CodedRows
from privopt.problems.convex.losses import Loss, OneVsRestLoss, WeightedLoss
from privopt.problems.convex.partitioned import PartitionedRisk, PartRisk
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.errors import InvalidInputError
from privopt.problems.parts import Parts, Whole

Floats = NDArray[np.float64]


class Targets(NamedTuple):
    """Targets of a fit: a label vector per release, and the loss; ``centre`` is added to predictions."""

    labels: list[Floats]
    loss: Loss
    classes: NDArray[Any] | None = None
    centre: float = 0.0
    label_range: tuple[float, float] | None = None
    number: NDArray[np.int64] | None = None  # class index of each record

    @property
    def releases(self) -> int:
        """The number of label vectors, read or not: one, or for more than two classes one per class."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)

    def weighted(self, weights: Floats | None) -> Targets:
        """Multiply labels by their class weights, shape (K,), unless the weights are equal."""
        if self.number is None or weights is None or np.all(weights == weights[0]):
            return self
        carried = weights[self.number]
        loss = WeightedLoss(self.loss, float(np.max(weights)))
        return self._replace(labels=[carried * y for y in self.labels], loss=loss)

    def labels_for(self, loss: Loss, number: int, weights: Floats | None) -> Floats:
        """Return label vector ``number`` with class weights, or class indices if one release is for all
        classes.
        """
        if isinstance(loss, OneVsRestLoss):
            assert self.number is not None
            return self.number.astype(np.float64)
        return self.weighted(weights).labels[number]


class Prepared(NamedTuple):
    """Encoded records of a table or of a part of it.

    The constant feature, if any, comes last and is not counted in ``columns``. Features, label vectors,
    counts and weights are private. ``middle`` is the centre that was subtracted from rows, and ``bound``
    bounds the norm of centred rows. Weights lie in [0, 1].
    """

    features: Any
    targets: Targets
    counts: NDArray[np.int64] | None
    columns: int
    names: tuple[str, ...]
    middle: Floats | None
    bound: float
    weights: Floats | None = None


class Outline(NamedTuple):
    """Summary of records: their number, targets without labels, and counts by class (``held``)."""

    records: int
    releases: int
    held: NDArray[np.int64] | None
    targets: Targets
    columns: int
    names: tuple[str, ...]
    middle: Floats | None
    bound: float
    weighted: bool = False

    def in_one_release(self) -> Outline:
        """Return the outline of a fit in which one release, without class weights, is for all classes."""
        assert self.targets.classes is not None
        loss = OneVsRestLoss(len(self.targets.classes))
        return self._replace(releases=1, targets=self.targets._replace(loss=loss))


def _outline(part: Prepared) -> Outline:
    rows = part.features.shape[0]
    counts, targets = record_counts(part.counts, rows), part.targets
    held, number = None, targets.number
    if number is not None and targets.classes is not None:
        held = tallied(number, counts, len(targets.classes))
        number = number[:0].copy()  # copy: a view would keep the whole array
    facts = targets._replace(labels=[], number=number)
    records, weighted = int(np.sum(counts)), part.weights is not None
    return Outline(records, len(targets.labels), held, facts, *part[3:7], weighted)


def outline_of_part(part: Prepared) -> Outline:
    """Return the outline of a part, after a check that its features are finite (counted records always are).

    Raises:
        InvalidInputError: a feature is not finite.
    """
    try:
        if part.counts is None:
            assert_all_finite(part.features, input_name="X")
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None
    return _outline(part)


def _together(parts: list[Outline]) -> Outline:
    """Merge the outlines of parts.

    Raises:
        InvalidInputError: no records, or parts with different columns.
    """
    check_some_records(len(parts))
    first = parts[0]
    if any(part.columns != first.columns or part.names != first.names for part in parts):
        raise InvalidInputError("partitions differ in their columns: give all the same, in one order")
    held = None if first.held is None else np.sum(np.array([part.held for part in parts]), axis=0)
    return first._replace(records=sum(part.records for part in parts), held=held)


def outline_of(table: Parts) -> Outline:
    return _together(table.each(_outline if isinstance(table, Whole) else outline_of_part))


def risk_of(table: Parts, number: int, weights: Floats | None, facts: RiskFacts) -> EmpiricalRisk:
    """Return the empirical risk of one label vector."""
    task = _risk_in_memory if isinstance(table, Whole) else _risk_of_part
    risks = table.made(partial(task, number=number, weights=weights, facts=facts))
    return risks.part if isinstance(risks, Whole) else PartitionedRisk(risks, facts)


def _risk_in_memory(part: Prepared, number: int, weights: Floats | None, facts: RiskFacts) -> EmpiricalRisk:
    return EmpiricalRisk(
        part.features,
        part.targets.labels_for(facts.loss, number, weights),
        facts.loss,
        row_norm=facts.row_norm,
        norm=facts.norm,
        constant=facts.constant,
        counts=part.counts,
        weights=part.weights,
    )


def _risk_of_part(part: Prepared, number: int, weights: Floats | None, facts: RiskFacts) -> EmpiricalRisk:
    if part.counts is not None:  # counted records are prepared like a whole table
        return _risk_in_memory(part, number, weights, facts)
    return PartRisk(part.features, part.targets.labels_for(facts.loss, number, weights), facts, part.bound)


def risk_facts(
    n: int, d: int, loss: Loss, bound: float, norm: RowNorm, intercept: bool, weighted: bool = False
) -> RiskFacts:
    """Return the public facts of the risk, including the constant feature if there is an intercept."""
    constant = constant_feature(bound, norm) if intercept else 0.0
    extended = math.hypot(bound, constant) if norm == "l2" else bound
    return RiskFacts(n, d + intercept, loss, extended, norm, constant, weighted)


def constant_feature(bound: float, norm: RowNorm) -> float:
    """Return the value of the constant feature, whose weight determines the intercept.

    For the linf norm it is the bound R on rows, which leaves the norm bound unchanged. For the l2 norm it is
    R/2: this increases the bound on gradients, and the noise with it, by 12%, and keeps the intercept well
    scaled.
    """
    return bound if norm == "linf" else bound / 2


def with_constant(X: Any, constant: float) -> Any:
    if isinstance(X, CodedRows):
        return X.with_constant(constant)
    column = np.full((X.shape[0], 1), constant, dtype=X.dtype)
    stack: Any = sp.hstack if sp.issparse(X) else np.hstack
    return stack([X, column])


def shortened(X: Any, bound: float, norm: RowNorm) -> Any:
    """Scale rows whose norm exceeds ``bound`` down to this norm.

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
