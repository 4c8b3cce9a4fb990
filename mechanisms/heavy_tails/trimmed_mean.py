"""A private mean of vectors whose coordinates have means in a known range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from privopt.mechanisms.heavy_tails.mechanism import TableMechanism, TableTarget
from privopt.mechanisms.heavy_tails.records import planned_records
from privopt.mechanisms.heavy_tails.trimming import Trimming
from privopt.mechanisms.privacy.noise import NoiseSource, checked_source
from privopt.mechanisms.privacy.reliance import spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.registry import Family
from privopt.mechanisms.risk.mechanism import RealRelease


@dataclass(frozen=True)
class TrimmedMean(TableMechanism):
    """Each coordinate's trimmed mean, clamped to [low, high], plus arsinh-normal noise.

    Privacy: (epsilon, delta)-differential privacy through zCDP, for all records without bounds; neighbours by
    replacing one record, n public. The scale of the noise is the *exact* smooth sensitivity; the scale
    printed in the paper depends on the largest record and reveals it (experiments/docs/errata.md, 4).

    Source: Bun and Steinke (2019), Proposition 5; Wang, Xiao, Devadas and Xu (2020), Algorithm 2, corrected.

    Attributes:
        dimension: d; the budget is shared evenly among coordinates.
        trimming: the trimmed mean of each coordinate.
        spend: the privacy claim.
    """

    family: ClassVar[Family] = Family.MEAN
    name: ClassVar[str] = "trimmed-mean"
    noised: ClassVar[str] = "the trimmed mean of each column"

    dimension: int
    trimming: Trimming
    spend: PrivacySpend

    @classmethod
    def _calibrated(
        cls, target: TableTarget, *, mean_range: tuple[float, float], trimmed: int | None = None
    ) -> Self:
        """Calibrate to a target.

        Args:
            target: shape and budget.
            mean_range: (low, high), an interval that contains the mean of every coordinate. Public.
            trimmed: number of values left out at either end; by default chosen for the budget.

        Raises:
            PrivacyParameterError: a parameter out of range.
        """
        d, epsilon, delta = target.dimension, target.epsilon, target.delta
        trimming = Trimming.plan(
            target.n_records, *mean_range, epsilon=epsilon, delta=delta, releases=d, trimmed=trimmed
        )
        return cls(d, trimming, PrivacySpend.approximate(epsilon, delta, cls.name))

    @property
    def noise(self) -> dict[str, float]:
        noise = self.trimming.noise
        return {"t": noise.t, "s": noise.s, "trimmed": self.trimming.trimmed}

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """Standard deviation of the noise of a mean against half its range."""
        return NoiseToSignal(self.trimming.typical_noise, self.trimming.width / 2, "a mean")

    def release(self, X: ArrayLike, noise: NoiseSource | None = None) -> RealRelease:
        """Return the private mean of the rows of X, shape (n_records, dimension). Costs ``spend``.

        Raises:
            PlanMismatchError: another shape.
            InvalidInputError: values that are not numbers.
        """
        records = planned_records(X, self.trimming.n, self.dimension).astype(np.float64, copy=False)
        source = checked_source(noise)
        point = self.trimming.release(records.T, source)
        spend = spent(self, source)
        return RealRelease(point, spend, self.noise)
