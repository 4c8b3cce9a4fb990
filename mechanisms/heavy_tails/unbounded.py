"""Base of fits to records without declared bounds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import numpy as np

from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.heavy_tails.column_search import ColumnSearch
from privopt.mechanisms.heavy_tails.units import Floats, Units
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.reliance import spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.registry import Family
from privopt.mechanisms.risk.mechanism import RealRelease
from privopt.oracles.limits import Limits
from privopt.problems.arguments import check_type
from privopt.problems.arrays import as_reals
from privopt.problems.convex.losses import Labels, LogisticLoss, Loss, SquaredLoss


class UnboundedFacts(NamedTuple):
    """Checked arguments of ``UnboundedFit.plan`` other than budget and steps."""

    n_records: int
    dimension: int
    loss: Loss
    releases: int
    flags: tuple[int, ...]


@dataclass(frozen=True)
class UnboundedFit(ABC):
    """Public facts of a plan for records without declared bounds.

    Attributes:
        n_records: n.
        dimension: d, without the constant feature.
        loss: the squared loss for numbers, the logistic one for classes.
        releases: how many label vectors share rows, units and budget.
        search: for units, or None: columns are as they are.
        flags: columns that are 0 or 1, as is public: no units are looked for.
        spend: the claim.
    """

    family: ClassVar[Family] = Family.UNBOUNDED_FIT
    name: ClassVar[str]

    n_records: int
    dimension: int
    loss: Loss
    releases: int
    search: ColumnSearch | None
    flags: tuple[int, ...]
    spend: PrivacySpend

    @property
    @abstractmethod
    def noise(self) -> dict[str, float]:
        """The public parameters of the noise."""

    @classmethod
    def plan(
        cls,
        n_records: int,
        dimension: int,
        loss: Loss,
        *,
        epsilon: float,
        delta: float,
        steps: int | None = None,
        releases: int = 1,
        flags: tuple[int, ...] = (),
    ) -> Self:
        """Calibrate to public facts.

        Args:
            n_records: n.
            dimension: d.
            loss: a ``SquaredLoss``, whose threshold is not used, or ``LogisticLoss()``.
            epsilon, delta: the target.
            steps: T; by default the mechanism's.
            releases: how many label vectors will be fitted.
            flags: features that are 0 or 1 whatever the records, as a schema says: their unit is 1, and
                the search asks about the others alone.

        Raises:
            PrivacyParameterError: a parameter out of range, another loss, or more features than it takes.
        """
        n, d = check_count(n_records, "n_records"), check_count(dimension, "dimension")
        check_type(loss, SquaredLoss | LogisticLoss, f"{cls.name} takes the squared and the logistic loss")
        facts = UnboundedFacts(n, d, loss, check_count(releases, "releases"), flags)
        return cls._calibrated(facts, epsilon, delta, steps)

    @classmethod
    @abstractmethod
    def _calibrated(cls, facts: UnboundedFacts, epsilon: float, delta: float, steps: int | None) -> Self:
        """Return the plan."""

    @abstractmethod
    def _points(
        self, X: Floats, labels: Sequence[Floats], source: NoiseSource, limits: Limits | None
    ) -> list[Floats]:
        """Weights and intercept, shape (d + 1,), for each vector of labels."""

    def release(
        self,
        X: Floats,
        labels: Sequence[Floats],
        noise: NoiseSource | None = None,
        limits: Limits | None = None,
    ) -> list[RealRelease]:
        """Weights and intercept, shape (d + 1,), for each vector of labels. Costs ``spend`` together.

        Args:
            X: shape (n, d), finite.
            labels: as many vectors of shape (n,) as were planned: numbers, or -1 and +1.
            noise: where randomness comes from; the operating system by default.
            limits: time limit, progress and cancellation. A run that they stop releases nothing.

        Raises:
            PlanMismatchError: another shape, or another number of label vectors.
            UnfinishedDrawError: a limit was reached.
        """
        X, ys = self._checked(X, labels)
        source = checked_source(noise)
        points = self._points(X, ys, source, limits)
        spend = spent(self, source)
        return [RealRelease(point, spend, self.noise) for point in points]

    def _checked(self, X: Floats, labels: Sequence[Floats]) -> tuple[Floats, list[Floats]]:
        """Records and label vectors, of the shapes that were planned for."""
        X = as_reals(X, "records of shape (n, d)").astype(np.float64, copy=False)
        ys = [self.loss.check_labels(y) for y in labels]
        if X.shape != (self.n_records, self.dimension) or len(ys) != self.releases:
            raise PlanMismatchError(
                f"this plan was made for {self.n_records} records of {self.dimension} features and "
                f"{self.releases} label vectors; the data have shape {X.shape} and {len(ys)}: plan again"
            )
        return X, ys

    def _units(self, X: Floats, y: Floats, source: NoiseSource) -> Units:
        """Private units: costs what the search does; of classes nothing is measured."""
        if self.search is None:
            return Units.as_they_are(self.dimension)
        numbers = y if self.loss.labels is Labels.REAL else None
        return Units.found(self.search, X, numbers, source, self.flags)
