"""Base of mechanisms for records without declared bounds."""

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
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
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
        loss: the squared loss for numbers, the logistic loss for classes.
        releases: number of label vectors that share rows, units and budget.
        search: the private search for units, or None: columns are not rescaled.
        flags: columns publicly known to be binary; the search skips them.
        spend: the privacy claim.
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
        """Public parameters of the noise."""

    @property
    @abstractmethod
    def noise_to_signal(self) -> NoiseToSignal:
        """Norm of the noise of the steps against one coordinate of a mean gradient."""

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
            epsilon, delta: the privacy target.
            steps: T; by default the mechanism's.
            releases: the number of label vectors to fit.
            flags: features declared binary (0 or 1) in a schema: their unit is 1, and the search skips them.

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
        """Return weights and intercept, shape (d + 1,), for each vector of labels."""

    def release(
        self,
        X: Floats,
        labels: Sequence[Floats],
        noise: NoiseSource | None = None,
        limits: Limits | None = None,
    ) -> list[RealRelease]:
        """Return weights and intercept, shape (d + 1,), for each vector of labels. Costs ``spend`` together.

        Args:
            X: shape (n, d), finite.
            labels: as many vectors of shape (n,) as were planned: numbers, or -1 and +1.
            noise: source of randomness; the operating system by default.
            limits: time limit, progress and cancellation. A run that is stopped releases nothing.

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
        """Return private units, at the cost of the search; labels that are classes need no units."""
        if self.search is None:
            return Units.unscaled(self.dimension)
        numbers = y if self.loss.labels is Labels.REAL else None
        return Units.found(self.search, X, numbers, source, self.flags)
