"""A private mean of vectors with bounded second moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from privopt.mechanisms.heavy_tails.mechanism import TableMechanism, TableTarget
from privopt.mechanisms.heavy_tails.records import planned_records
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.reliance import spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import Family
from privopt.mechanisms.risk.mechanism import RealRelease
from privopt.problems.convex.regularizers import Vector


@dataclass(frozen=True)
class RobustMean(TableMechanism):
    """Private mean: soft truncation of every number at a public scale, and Gaussian noise on the mean.

    Privacy: mu-GDP, stated as (epsilon, delta), for all records without bounds; neighbours by replacing one
    record, n public. The bound ``moment`` is needed for accuracy alone.

    Source: Catoni and Giulini (2017); Holland (2019); Wang, Xiao, Devadas and Xu (2020), Theorem 6. Different
    here: the scale takes the noise into account (``SoftTruncation.balanced``), and the noise is calibrated
    for one Gaussian release, which is less noise than their zCDP accounting needs.

    Attributes:
        n_records: number of records.
        dimension: number of columns.
        moment: v, the public bound on the second moment (not centred) of every coordinate.
        truncation: the soft truncation.
        vector_noise: the noise.
        spend: the privacy claim.
    """

    family: ClassVar[Family] = Family.MEAN
    name: ClassVar[str] = "robust-mean"
    noised: ClassVar[str] = "the robust mean of each column"

    n_records: int
    dimension: int
    moment: float
    truncation: SoftTruncation
    vector_noise: VectorNoise
    spend: PrivacySpend

    @classmethod
    def _calibrated(
        cls,
        target: TableTarget,
        *,
        moment: float,
        failure: float = 0.05,
        truncation: SoftTruncation | None = None,
    ) -> Self:
        """Calibrate to a target.

        Args:
            target: shape and budget.
            moment: v: each coordinate has E x^2 <= v. Public.
            failure: the failure probability for which the scale is chosen, in (0, 0.5).
            truncation: overrides the truncation that balances bias, deviation and noise.

        Raises:
            PrivacyParameterError: a parameter out of range.
        """
        n, d = target.n_records, target.dimension
        if truncation is None:
            unit = SoftTruncation(1.0, 1.0).sensitivity(n, d) / target.mu
            quantile = -float(special.ndtri(failure / 4)) if 0 < failure < 1 else math.nan
            truncation = SoftTruncation.balanced(n, moment, failure, unit * quantile)
        noise, spend = target.gaussian(cls.name, sensitivity=truncation.sensitivity(n, d))
        return cls(n, d, float(moment), truncation, noise, spend)

    @property
    def noise(self) -> dict[str, float]:
        return {"sigma": self.vector_noise.sigma, "scale": self.truncation.scale}

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """Noise of a coordinate against the largest mean that the second moment allows."""
        return NoiseToSignal(self.vector_noise.sigma, math.sqrt(self.moment), "a mean")

    def error_bound(self, failure: float = 0.05) -> float:
        """Bound the error of a released coordinate, except with probability ``failure``.

        Half of ``failure`` is for the records, assumed independent with second moments of at most ``moment``;
        half is for the noise.
        """
        spread = -float(special.ndtri(failure / 4)) * self.vector_noise.sigma
        return self.truncation.deviation(self.n_records, self.moment, failure / 2) + spread

    def release(self, X: ArrayLike, noise: NoiseSource | None = None) -> RealRelease:
        """Return the private mean of the rows. Costs ``spend``.

        Args:
            X: shape (n_records, dimension), finite.

        Raises:
            PlanMismatchError: another shape.
            InvalidInputError: NaN, infinity, or values that are not numbers.
        """
        source = checked_source(noise)
        point = self.vector_noise.add(self.without_noise(X), source)
        spend = spent(self, source)
        return RealRelease(point, spend, self.noise)

    def without_noise(self, X: ArrayLike) -> Vector:
        """Return the robust mean without noise. NOT private."""
        from privopt.problems.convex.soft_truncation import soft_mean  # imports numba, which is slow

        rows = np.ascontiguousarray(planned_records(X, self.n_records, self.dimension))
        return soft_mean(rows, self.truncation.scale, self.truncation.beta)
