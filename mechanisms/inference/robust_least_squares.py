"""Intervals of least squares for residuals whose variance changes from row to row: a noisy sandwich."""

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
    """Least squares of noisy moments with intervals that take every row to have a variance of its own.

    The sampling variance of a' T is a' W a / n, W = mean e^2 z z' (White 1980), in place of s^2 a' A a / n. W
    is released with residuals e that are clipped, and with noise: a' (noise) a has the standard deviation
    sigma |a|^2. An interval of variance V covers 2 Phi(z sqrt V / sqrt V_0) - 1, where V_0 is the true
    variance. This is concave in V, so noise in V of standard deviation s lowers the mean coverage, to second
    order by as much as lowering V by (1 + z^2) s^2 / (4 V) would. That amount, at most s, is added to V.

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
        """Read ``to_dict`` back.

        Raises:
            KeyError, TypeError, ValueError, InvalidInputError: not what ``to_dict`` returns.
        """
        return cls(NoisyMoments.from_dict(record["moments"]), NoisySpread.from_dict(record["spread"]))
