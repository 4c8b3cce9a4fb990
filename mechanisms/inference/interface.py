"""Inference: the numbers of a release from which intervals of linear functions of weights follow."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import NoIntervalError

Floats = NDArray[np.float64]

# Least ratio of the smallest eigenvalue to the noise. Measured: below it intervals say little, from 1 on they
# cover as often as they claim.
LEAST_SIGNAL = 0.5


class Bounds(NamedTuple):
    """Estimates of k numbers, their intervals, and the share of noise in their variances, shape (k,) each."""

    estimate: Floats
    low: Floats
    high: Floats
    noise_share: Floats


class LinearInference(ABC):
    """Released numbers about the weights theta of a linear model. Post-processing costs no privacy.

    The last weight is that of the constant feature, if ``constant`` is not 0.
    """

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The number of weights."""

    @property
    @abstractmethod
    def constant(self) -> float:
        """The value of the constant feature; 0 if there is none."""

    @property
    @abstractmethod
    def n_records(self) -> int:
        """The number of records."""

    @property
    @abstractmethod
    def signal_to_noise(self) -> float:
        """The smallest eigenvalue of the noisy curvature in units of the noise."""

    @abstractmethod
    def bounds(self, C: Floats, z: float) -> Bounds:
        """Return estimates and intervals of the numbers C theta.

        Args:
            C: shape (k, dimension).
            z: two-sided normal quantile.

        Raises:
            NoIntervalError: the noise hides the curvature.
        """

    @abstractmethod
    def only(self, kept: NDArray[np.int64], spanned: Floats) -> Self:
        """Return the inference of the model of some features; a constant one must be among them, and last.

        Args:
            kept: the indices of those features.
            spanned: shape (features kept, dimension): column j expresses feature j by the features kept.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""


def signal_to_noise(matrix: Floats, sigma: float) -> float:
    """Return the smallest eigenvalue of a noisy symmetric matrix in units of the noise.

    The unit is sigma sqrt(2 d), about the spectral norm of noise with standard deviation sigma on the
    diagonal and sigma / sqrt 2 off it (semicircle law).

    Args:
        matrix: shape (d, d), with noise.
        sigma: standard deviation of the noise.
    """
    least = float(np.linalg.eigvalsh(matrix)[0])
    if sigma == 0:
        return math.inf if least > 0 else 0.0
    return least / (sigma * math.sqrt(2 * len(matrix)))


def noisy_inverse(matrix: Floats, found: float) -> Floats:
    """Return the inverse of a noisy symmetric matrix whose ``signal_to_noise`` was found.

    Raises:
        NoIntervalError: the noise hides the matrix.
    """
    if not found >= LEAST_SIGNAL:
        raise NoIntervalError(
            "the noise hides this model: the smallest eigenvalue of its noisy curvature is "
            f"{found:.2g} times the noise, and intervals need {LEAST_SIGNAL:g}. To do: a larger epsilon, "
            "more records, tighter bounds on columns, or fewer columns (none that others determine)"
        )
    inverse = np.linalg.inv(matrix)
    return np.asarray((inverse + inverse.T) / 2)
