"""Least squares on a few columns within a ball, from sums of products. Imports numba.

yy - 2 c'b + b'Gb is minimised over |b|_2 <= r: the trust-region problem, by Newton's method on its secular
equation (More and Sorensen 1983). A duality gap certifies the result: the objective is convex, so its minimum
is at least f(b) + <f'(b), b* - b> >= f(b) - <f'(b), b> - r |f'(b)|, whatever b is.
"""

# mypy: allow-untyped-calls, allow-untyped-decorators

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.problems.discrete.lattice import FloatArray, IntArray

_ROUNDOFF = 2.0**-53
# Newton steps; the convergence is quadratic and from one side, so a handful is usual.
_MOST_STEPS = 200


@njit(cache=True, nogil=True)
def _factor(gram: FloatArray, shift: float, factor: FloatArray) -> bool:
    """Factor gram + shift I by Cholesky in the lower triangle; False if it is not positive definite."""
    size = len(gram)
    for i in range(size):
        for j in range(i + 1):
            total = gram[i, j] + (shift if i == j else 0.0)
            for k in range(j):
                total -= factor[i, k] * factor[j, k]
            if i > j:
                factor[i, j] = total / factor[j, j]
            elif total > 0.0:
                factor[i, i] = math.sqrt(total)
            else:
                return False
    return True


@njit(cache=True, nogil=True)
def _forward(factor: FloatArray, right: FloatArray, solution: FloatArray) -> None:
    for i in range(len(right)):
        total = right[i]
        for k in range(i):
            total -= factor[i, k] * solution[k]
        solution[i] = total / factor[i, i]


@njit(cache=True, nogil=True)
def _backward(factor: FloatArray, right: FloatArray, solution: FloatArray) -> None:
    for i in range(len(right) - 1, -1, -1):
        total = right[i]
        for k in range(i + 1, len(right)):
            total -= factor[k, i] * solution[k]
        solution[i] = total / factor[i, i]


@njit(cache=True, nogil=True)
def _squares(vector: FloatArray) -> float:
    total = 0.0
    for i in range(len(vector)):
        total += vector[i] * vector[i]
    return total


@njit(cache=True, nogil=True)
def _minimiser_in_ball(gram: FloatArray, cross: FloatArray, radius: float) -> FloatArray:
    """Return b with |b| <= radius up to rounding that minimises b'Gb - 2 c'b up to rounding."""
    size = len(cross)
    trace, length = 0.0, 0.0
    for i in range(size):
        trace += gram[i, i]
        length += cross[i] * cross[i]
    # The shift makes rounded semidefinite matrices definite; its effect is part of the gap.
    shift = max(4.0 * (size + 1) * _ROUNDOFF * trace, math.sqrt(length) / radius - trace, 1e-300)
    factor, half, b = np.empty((size, size)), np.empty(size), np.zeros(size)
    last, nudge = np.inf, 4.0 * _ROUNDOFF
    for _ in range(_MOST_STEPS):
        if not _factor(gram, shift, factor):
            shift *= 4.0
            continue
        _forward(factor, cross, half)
        _backward(factor, half, b)
        norm = math.sqrt(_squares(b))
        if norm <= radius * (1.0 + 1e-14):
            break
        if not norm < last:  # rounding spoils Newton's step, but a larger shift still shortens b
            shift *= 1.0 + nudge
            nudge *= 4.0
            continue
        last = norm
        _forward(factor, b, half)
        step = (norm * norm / _squares(half)) * ((norm - radius) / radius)
        shift += step
    norm = math.sqrt(_squares(b))
    if norm > radius:
        for i in range(size):
            b[i] *= radius / norm
    return b


@njit(cache=True, nogil=True)
def least_in_ball(gram: FloatArray, cross: FloatArray, radius: float) -> tuple[FloatArray, float, float]:
    """Return b with |b| <= radius up to rounding, b'Gb - 2 c'b, and the duality gap."""
    size, b = len(cross), _minimiser_in_ball(gram, cross, radius)
    value, slope, steepness = 0.0, 0.0, 0.0
    for i in range(size):
        residual = -cross[i]
        for k in range(size):
            residual += gram[i, k] * b[k]
        value += b[i] * (residual - cross[i])
        slope += b[i] * residual
        steepness += residual * residual
    return b, value, 2.0 * (slope + radius * math.sqrt(steepness))


@njit(cache=True, nogil=True)
def loss_of_columns(
    gram: FloatArray, cross: FloatArray, square: float, radius: float, units: float, columns: IntArray
) -> int:
    """Return the loss of some columns in whole units, rounded down; -1 if the gap exceeds a quarter unit."""
    size = len(columns)
    inner, right = np.empty((size, size)), np.empty(size)
    for i in range(size):
        right[i] = cross[columns[i]]
        for k in range(size):
            inner[i, k] = gram[columns[i], columns[k]]
    _, value, gap = least_in_ball(inner, right, radius)
    if not gap * units <= 0.25:
        return -1
    return int(max(0.0, math.floor((square + value) * units)))


@njit(cache=True, nogil=True)
def losses_of_columns(
    gram: FloatArray,
    cross: FloatArray,
    square: float,
    radius: float,
    units: float,
    chosen: NDArray[np.int64],
) -> IntArray:
    """Return ``loss_of_columns`` for each row of ``chosen``."""
    losses = np.empty(len(chosen), dtype=np.int64)
    for i in range(len(chosen)):
        losses[i] = loss_of_columns(gram, cross, square, radius, units, chosen[i])
    return losses
