"""Gaussian noise on symmetric matrices.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems.convex.regularizers import Vector


@dataclass(frozen=True)
class MatrixNoise:
    """Gaussian noise on a symmetric matrix of known Frobenius sensitivity.

    The diagonal, and sqrt(2) times the upper triangle, form a vector whose l2 norm is the Frobenius norm of
    the matrix; noise is added to that vector. So an off-diagonal entry has noise of variance sigma^2 / 2, and
    the noise as a matrix is a Gaussian orthogonal ensemble. Its largest eigenvalue exceeds sigma (sqrt(2 d) +
    t) with probability at most exp(-t^2 / 2), as the mean of this eigenvalue is at most sigma sqrt(2 d)
    (Davidson and Szarek 2001) and the eigenvalue is 1-Lipschitz in the Frobenius norm.
    """

    vector: VectorNoise
    dimension: int

    def add(self, matrix: Vector, source: NoiseSource) -> Vector:
        """Return the symmetric matrix plus noise, shape (d, d)."""
        above = np.triu_indices(self.dimension, 1)
        packed = np.concatenate([np.diagonal(matrix), math.sqrt(2) * matrix[above]])
        noisy = self.vector.add(packed, source)
        made = np.diag(noisy[: self.dimension])
        made[above] = noisy[self.dimension :] / math.sqrt(2)
        return np.asarray(made + np.triu(made, 1).T)

    def spectral_tail(self, failure: float) -> float:
        """Return a bound that the largest eigenvalue of the noise exceeds with probability <= ``failure``."""
        room = math.sqrt(2 * self.dimension) + math.sqrt(-2 * math.log(failure))
        return self.vector.sigma * room
