"""Base of mechanisms for records without declared bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.heavy_tails.column_search import ColumnSearch
from privopt.mechanisms.heavy_tails.units import Floats, Units
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.registry import Family
from privopt.problems.arrays import as_reals
from privopt.problems.convex.losses import Labels, Loss


@dataclass(frozen=True)
class UnboundedFit:
    """Public facts of a plan for records without declared bounds.

    Attributes:
        n_records: n.
        dimension: d, without the constant feature.
        loss: the squared loss for numbers, the logistic loss for classes.
        releases: number of label vectors that share rows, units and budget.
        search: the private search for units, or None: columns are not rescaled.
        flags: columns publicly known to be binary; the search skips them.
    """

    family: ClassVar[Family] = Family.UNBOUNDED_FIT

    n_records: int
    dimension: int
    loss: Loss
    releases: int
    search: ColumnSearch | None
    flags: tuple[int, ...]

    def _checked(self, X: Floats, labels: Sequence[Floats]) -> tuple[Floats, list[Floats]]:
        """Return the records and label vectors, checked against the planned shapes."""
        X = as_reals(X, "records of shape (n, d)").astype(np.float64, copy=False)
        ys = [self.loss.check_labels(y) for y in labels]
        if X.shape != (self.n_records, self.dimension) or len(ys) != self.releases:
            raise PlanMismatchError(
                f"this plan was made for {self.n_records} records of {self.dimension} features and "
                f"{self.releases} label vectors; the data have shape {X.shape} and {len(ys)}: plan again"
            )
        return X, ys

    def _units(self, X: Floats, y: Floats, source: NoiseSource) -> Units:
        """Return private units, at the cost of the search; labels that are classes are not measured."""
        if self.search is None:
            return Units.unscaled(self.dimension)
        numbers = y if self.loss.labels is Labels.REAL else None
        return Units.found(self.search, X, numbers, source, self.flags)
