"""Intervals of least squares if the variance of residuals differs between rows: a noisy sandwich estimate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.inference.least_squares import LeastSquares
from privopt.mechanisms.privacy.noisy_moments import NoisyMoments, NoisySpread
from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RobustLeastSquares(LeastSquares):
    """Least squares from noisy moments, with intervals that allow a different residual variance in each row.

    The sampling variance of a' T (see ``LeastSquares``) is a' W a / n with W = mean e^2 x x' (White 1980), in
    place of s^2 a' A a / n. W is released with clipped residuals e and with noise; the noise in a' W a has
    the standard deviation sigma |a|^2.

    Noise in W lowers the coverage of intervals, which is corrected as follows. An interval computed from a
    variance V has the coverage 2 Phi(z sqrt(V / V_0)) - 1, where V_0 is the true variance. This coverage is
    concave in V, so noise in V of standard deviation s lowers the mean coverage, to second order by as much
    as lowering V by (1 + z^2) s^2 / (4 V) would. This amount, but at most s, is added to V.

    Attributes:
        spread: the released W.
    """

    spread: NoisySpread

    def __post_init__(self) -> None:
        if len(self.spread.matrix) != len(self.moments.products):
            raise InvalidInputError("moments of residuals have the size of the moments")

    def _sampling(self, a: Floats, power: Floats, noise: Floats, z: float) -> Floats:
        found = np.sum((a @ self.spread.matrix) * a, axis=1) / self.n_records
        error = self.spread.sigma * np.sum(a**2, axis=1) / self.n_records
        total = np.maximum(noise + np.maximum(found, 0.0), 1e-300)
        enlarged = found + np.minimum((1 + z * z) / 4 * error**2 / total, error)
        return np.asarray(np.maximum(enlarged, 0.0))

    def only(self, kept: NDArray[np.int64], spanned: Floats) -> Self:
        matrix = self.spread.matrix[np.ix_(kept, kept)]
        return replace(self, moments=self.moments.only(kept), spread=replace(self.spread, matrix=matrix))

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "spread": self.spread.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Return the inference of a record from ``to_dict``.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: the record is not from ``to_dict``.
        """
        return cls(NoisyMoments.from_dict(record["moments"]), NoisySpread.from_dict(record["spread"]))
