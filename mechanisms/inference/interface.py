"""Inference: numbers of a release from which intervals of linear functions of the weights are computed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import NoIntervalError

Floats = NDArray[np.float64]

# Intervals need at least this ratio of the smallest eigenvalue to the noise. As measured, intervals below it
# are too wide to be of use, and from 1 on they cover as often as they claim.
LEAST_SIGNAL = 0.5


class Bounds(NamedTuple):
    """Estimates of k numbers, their intervals, and the noise's share of their variances, shape (k,) each."""

    estimate: Floats
    low: Floats
    high: Floats
    noise_share: Floats


class LinearInference(ABC):
    """Released numbers about the weights theta of a linear model; everything here is post-processing.

    If ``constant`` is not 0, the last weight is that of the constant feature.
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
        """The smallest eigenvalue of the noisy curvature, in units of the noise (``signal_to_noise``)."""

    @abstractmethod
    def bounds(self, C: Floats, z: float) -> Bounds:
        """Return estimates and intervals of the k numbers C theta.

        Args:
            C: shape (k, dimension).
            z: the two-sided normal quantile of the confidence.

        Raises:
            NoIntervalError: the noise hides the curvature.
        """

    @abstractmethod
    def only(self, kept: NDArray[np.int64], spanned: Floats) -> Self:
        """Return the inference for a model with some of the features only.

        Args:
            kept: the indices of the features that are kept; a constant feature must be kept, as the last one.
            spanned: shape (number kept, dimension): column j expresses feature j by the features that are
                kept.
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""


def signal_to_noise(matrix: Floats, sigma: float) -> float:
    """Return the smallest eigenvalue of a noisy symmetric matrix in units of the noise.

    The unit is sigma sqrt(2 d), which is about the spectral norm of the noise (semicircle law).

    Args:
        matrix: shape (d, d), with noise.
        sigma: standard deviation of the noise on the diagonal; off the diagonal it is sigma / sqrt(2).
    """
    least = float(np.linalg.eigvalsh(matrix)[0])
    if sigma == 0:
        return math.inf if least > 0 else 0.0
    return least / (sigma * math.sqrt(2 * len(matrix)))


def noisy_inverse(matrix: Floats, found: float) -> Floats:
    """Return the inverse of a noisy symmetric matrix whose ``signal_to_noise`` is ``found``.

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
