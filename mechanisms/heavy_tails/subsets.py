"""Estimates on disjoint random subsets of the records, and the release of a vector that they determine."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import joblib  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import ArrayLike

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.heavy_tails.fresh_copies import Estimator, FreshCopies
from privopt.mechanisms.heavy_tails.mechanism import TableMechanism
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.parameters import check_count, check_positive
from privopt.mechanisms.privacy.reliance import spent
from privopt.mechanisms.risk.mechanism import RealRelease
from privopt.oracles.convex.erm import RiskMinimizer
from privopt.problems.arrays import as_reals
from privopt.problems.convex.losses import Loss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.unclipped import PLAIN_SQUARES

# Range of radii for which lengths and their squares neither overflow nor underflow.
_RADII = (1e-100, 1e100)


@dataclass(frozen=True)
class SubsetMechanism(TableMechanism):
    """Noisy vector computed from the answers of an estimator on disjoint random subsets.

    Attributes:
        n_records: n.
        dimension: d.
        subsets: m.
        radius: R, a bound on the norm of the estimate. Public.

    Subclasses add the field ``spend``.
    """

    n_records: int
    dimension: int
    subsets: int
    radius: float

    def release(
        self,
        X: ArrayLike,
        y: ArrayLike,
        estimator: Estimator | Loss = PLAIN_SQUARES,
        noise: NoiseSource | None = None,
        workers: int = 1,
    ) -> RealRelease:
        """Estimate on every subset in parallel, combine the estimates, add noise. Costs ``spend``.

        Args:
            X, y: shapes (n_records, features), (n_records,).
            estimator: a function (rows, labels) -> estimate without state outside itself; or a loss, whose
                empirical risk is minimised. Where it fails, or returns anything but ``dimension`` finite
                numbers, the origin replaces its answer.
            workers: number of processes.

        Raises:
            PlanMismatchError: another number of records.
            InvalidInputError: values that are not numbers; an estimator that cannot be copied.
        """
        source = checked_source(noise)
        answers = subset_estimates(X, y, estimator, self, source, workers)
        point = self._noisy(self.shortened(answers), source)
        spend = spent(self, source)
        return RealRelease(point, spend, self.noise)

    def shortened(self, estimates: Vector) -> Vector:
        """Return the estimates projected onto the ball, in units of its radius."""
        lengths = np.linalg.norm(estimates / self.radius, axis=1, keepdims=True)
        return np.asarray(estimates / self.radius / np.maximum(1.0, lengths))

    @abstractmethod
    def _noisy(self, estimates: Vector, source: NoiseSource) -> Vector:
        """Return the released vector for m points of the unit ball."""


def subset_estimates(
    X: ArrayLike,
    y: ArrayLike,
    estimator: Estimator | Loss,
    plan: SubsetMechanism,
    source: NoiseSource,
    workers: int,
) -> Vector:
    """Return the estimates on disjoint random subsets, shape (subsets, dimension). Not private.

    Raises:
        PlanMismatchError: another number of records.
        InvalidInputError: values that are not numbers; an estimator that cannot be copied.
    """
    ask = FreshCopies.of(RiskMinimizer(estimator) if isinstance(estimator, Loss) else estimator)
    rows, labels = (
        as_reals(given, what).astype(np.float64, copy=False)
        for given, what in ((X, "records of shape (n, features)"), (y, "labels of shape (n,)"))
    )
    if len(rows) != plan.n_records or labels.shape != (plan.n_records,):
        raise PlanMismatchError(
            f"this plan was made for {plan.n_records} records, the data have {len(rows)}: plan again"
        )
    order = np.argsort(source.uniform(plan.n_records), kind="stable")
    parts, seeds = np.array_split(order, plan.subsets), source.integers(2**32, plan.subsets).tolist()
    # joblib would pass larger parts to workers through files.
    answers = joblib.Parallel(n_jobs=check_count(workers, "workers"), max_nbytes=None)(
        joblib.delayed(_answer)(ask, seed, rows[part], labels[part], plan.dimension)
        for seed, part in zip(seeds, parts, strict=True)
    )
    return np.array(answers)


def check_subsets(subsets: int, n_records: int, radius: float) -> None:
    """Check the number of subsets and the radius of the ball.

    Raises:
        PrivacyParameterError: more subsets than records, or a radius that squares cannot hold.
    """
    check_positive(radius, "radius")
    if subsets > n_records:
        raise PrivacyParameterError(f"{subsets} subsets of {n_records} records: some would be empty")
    if not _RADII[0] <= radius <= _RADII[1]:
        raise PrivacyParameterError(f"radius must be from {_RADII[0]:g} to {_RADII[1]:g}, got {radius!r}")


def _answer(ask: FreshCopies, seed: int, rows: Vector, labels: Vector, dimension: int) -> Vector:
    try:
        found = np.asarray(ask(seed, rows, labels), dtype=np.float64)
    except Exception:  # which subset failed is private information
        return np.zeros(dimension)
    usable = found.shape == (dimension,) and bool(np.all(np.isfinite(found)))
    return np.clip(found, -1e150, 1e150) if usable else np.zeros(dimension)
