"""Small nonconvex problems with known saddles and minima, for tests, audits and experiments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privopt.problems.convex.losses import SigmoidLoss
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.errors import InvalidInputError
from privopt.problems.nonconvex.factorisation import FactorRisk
from privopt.problems.nonconvex.interface import TwiceDifferentiableRisk
from privopt.problems.nonconvex.quartic import QuarticLoss

# Predictions at minima are at most 1.
_QUARTIC = QuarticLoss(1.1)
_NEAR_ONE = 1 - 1e-9  # rows this long are not shortened


@dataclass(frozen=True, eq=False)
class Planted:
    """A risk together with its known saddle and minima.

    Attributes:
        name: a description, for tables of results.
        risk: the risk.
        saddle: a point whose gradient is 0 and whose Hessian has a negative eigenvalue, shape (p,).
        curvature: the smallest eigenvalue of the Hessian at the saddle; None where it depends on the sample.
        distance: the distance from a point to the nearest global minimum; None if none is attained.
    """

    name: str
    risk: TwiceDifferentiableRisk
    saddle: Vector
    curvature: float | None
    distance: Callable[[Vector], float] | None


def strict_saddle(n: int, dimension: int = 2, wells: int = 1) -> Planted:
    """Return records e_1, ..., e_d in equal parts, label 1 for j <= ``wells``, else 0.

    F(w) = (1/d) (sum over wells of (w_j^2 - 1)^2 / 4 + sum over other j of w_j^4 / 4): minima are where
    w_j = +-1 on wells, 0 elsewhere; 0 is a saddle, or with d wells a maximum, of least curvature -1/d.

    Raises:
        InvalidInputError: n is no multiple of d, or no well.
    """
    if not 1 <= wells <= dimension or n % dimension:
        raise InvalidInputError(f"n = {n} must be a multiple of {dimension}, with 1 to {dimension} wells")
    X = np.tile(np.eye(dimension) * _NEAR_ONE, (n // dimension, 1))
    labels = np.tile((np.arange(dimension) < wells).astype(np.float64), n // dimension)

    def distance(w: Vector) -> float:
        return float(np.linalg.norm(np.where(np.arange(dimension) < wells, np.abs(w) - 1, w)))

    risk = EmpiricalRisk(X, labels, _QUARTIC)
    return Planted(f"quartic, d = {dimension}", risk, np.zeros(dimension), -1 / dimension, distance)


def phase_retrieval(n: int, dimension: int, seed: int = 0) -> Planted:
    """Return labels <a, w*>^2 of unit vectors a, |w*| = 1: minima are +-w*, 0 is a saddle or a maximum."""
    rng = np.random.default_rng(seed)
    X = _directions(rng, n, dimension)
    target = _directions(rng, 1, dimension)[0]
    risk = EmpiricalRisk(X, (X @ target) ** 2, _QUARTIC)

    def distance(w: Vector) -> float:
        return float(min(np.linalg.norm(w - target), np.linalg.norm(w + target)))

    return Planted(f"phase retrieval, d = {dimension}", risk, np.zeros(dimension), None, distance)


def low_rank(n: int, dimension: int, rank: int, seed: int = 0) -> Planted:
    """Return labels |U*' a|^2 of random unit vectors a, U* orthonormal: minima are U* times rotations."""
    rng = np.random.default_rng(seed)
    A = _directions(rng, n, dimension)
    target = np.linalg.qr(rng.standard_normal((dimension, rank)))[0] * _NEAR_ONE
    risk = FactorRisk(A, np.minimum(np.sum((A @ target) ** 2, axis=1), 1.0), rank, _QUARTIC)

    def distance(w: Vector) -> float:
        """Return |U - U* Q| for the best rotation Q, from the polar decomposition (Schoenemann 1966)."""
        U = w.reshape(dimension, rank)
        left, _, right = np.linalg.svd(target.T @ U)
        return float(np.linalg.norm(U - target @ left @ right))

    return Planted(f"factorisation, {dimension} x {rank}", risk, np.zeros(dimension * rank), None, distance)


def sigmoid_saddle(n: int, dimension: int, offset: float = 1.0, seed: int = 0) -> Planted:
    """Return a task for the sigmoid loss, with points on both sides of the origin in one class.

    Half of the records are (+-u, c), with u along e_1 up to noise, and have label +1; the other half have
    u = 0 and label -1; c is the constant feature. The risk is even in the weights of u. At weights
    (0, -offset / c) the slopes of the two classes cancel: a saddle with negative curvature along e_1. The
    infimum is not attained.

    Raises:
        InvalidInputError: n is no multiple of 4, or fewer than 2 dimensions.
    """
    if n % 4 or dimension < 2:
        raise InvalidInputError(f"n = {n} must be a multiple of 4, dimension {dimension} at least 2")
    rng = np.random.default_rng(seed)
    side = 0.2 * rng.standard_normal((n // 4, dimension - 1))
    side[:, 0] += 2.0
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    u = np.concatenate([side, -side, np.zeros((n // 2, dimension - 1))])
    c = math.sqrt(0.5)
    X = np.column_stack([u * c, np.full(n, c)]) * _NEAR_ONE
    y = np.repeat([1.0, -1.0], n // 2)
    risk = EmpiricalRisk(X, y, SigmoidLoss())
    saddle = np.append(np.zeros(dimension - 1), -offset / (c * _NEAR_ONE))
    return Planted(f"sigmoid, d = {dimension}", risk, saddle, None, None)


def _directions(rng: np.random.Generator, count: int, dimension: int) -> Vector:
    drawn = rng.standard_normal((count, dimension))
    return np.asarray(drawn / np.linalg.norm(drawn, axis=1, keepdims=True) * _NEAR_ONE)
