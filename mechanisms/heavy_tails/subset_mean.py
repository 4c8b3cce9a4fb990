"""Mean of an estimator's answers on disjoint subsets, plus Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.heavy_tails.mechanism import TableTarget
from privopt.mechanisms.heavy_tails.subsets import SubsetMechanism, check_subsets
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.problems.convex.regularizers import Vector

# Least number of records per subset and coordinate, where the number of subsets is chosen here.
_FEWEST = 10


@dataclass(frozen=True)
class SubsetMean(SubsetMechanism):
    """The mean of estimates on m disjoint random subsets, projected onto a ball, plus Gaussian noise.

    Privacy: mu-GDP, stated as (epsilon, delta), for any estimator whose answer depends on its own subset
    alone (``FreshCopies`` makes its copies), neighbours by replacing one record, n public. One record changes
    one estimate, and two points of a ball of radius R are at most 2 R apart: the mean moves by 2 R / m.

    The noise is known before data. The noise of ``SampleAggregate`` is in proportion to the spread of the
    estimates, but larger than the noise here unless budget and number of records are larger than usual.

    Source: Nissim, Raskhodnikova and Smith (2007) for subsets; Smith (2011) for means of bounded answers.

    Attributes:
        n_records: n.
        dimension: d.
        subsets: m.
        radius: R, a bound on the norm of the estimate. Public.
        vector_noise: the noise, in units of the radius.
        spend: the privacy claim.
    """

    name: ClassVar[str] = "subset-mean"
    noised: ClassVar[str] = "the mean of the estimates of the subsets, each coordinate"

    vector_noise: VectorNoise
    spend: PrivacySpend

    @classmethod
    def _calibrated(cls, target: TableTarget, *, radius: float, subsets: int | None = None) -> Self:
        """Calibrate to a target.

        Args:
            target: shape and budget.
            radius: R; longer estimates are projected onto the ball.
            subsets: m; by default ``default_subsets``.

        Raises:
            PrivacyParameterError: a parameter out of range.
        """
        n, d = target.n_records, target.dimension
        if subsets is None:
            subsets = default_subsets(n, d, target.mu)
        m = check_count(subsets, "subsets")
        check_subsets(m, n, radius)
        # Two points of the unit ball, and the rounding of a mean of m.
        sensitivity = 2 / m * (1 + 1e-9) + math.sqrt(d) * m * 2.0**-52
        noise, spend = target.gaussian(cls.name, sensitivity=sensitivity, n_records=m)
        if not math.isfinite(noise.sigma * radius):
            raise PrivacyParameterError(f"radius {radius!r}: the noise would not be finite")
        return cls(n, d, m, float(radius), noise, spend)

    @property
    def noise(self) -> dict[str, float]:
        """Public parameters of the noise, in the unit of the estimate."""
        return {"sigma": self.vector_noise.sigma * self.radius, "subsets": self.subsets}

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """Norm of the noise against the radius of the ball."""
        sigma = self.vector_noise.sigma * self.radius
        return NoiseToSignal(math.sqrt(self.dimension) * sigma, self.radius, "norm of the estimate")

    def _noisy(self, estimates: Vector, source: NoiseSource) -> Vector:
        return self.vector_noise.add(np.mean(estimates, axis=0), source) * self.radius


def default_subsets(n_records: int, dimension: int, mu: float) -> int:
    """Return the number of subsets that balances noise and bias, from public facts.

    An estimate on n / m records has a bias of the order of R d m / n; the norm of the noise is about 2 R
    sqrt(d) / (m mu). Their sum is smallest at m = sqrt(2 n / (mu sqrt(d))). A subset has at least 10 records
    for each of the d coordinates, where n allows two such subsets.
    """
    balanced = math.sqrt(2 * n_records / (mu * math.sqrt(dimension)))
    most = n_records // (_FEWEST * dimension)
    return min(n_records, max(2, round(min(balanced, most))))
