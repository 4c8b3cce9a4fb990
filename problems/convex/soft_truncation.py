"""Smoothed soft truncation: the influence of one record on a robust mean (Catoni and Giulini 2017).

With phi(x) = x - x^3/6 for |x| <= sqrt 2 and +-2 sqrt(2)/3 beyond, and Z standard normal, E phi(a + b Z)
has a closed form. The printed formula loses all digits where |a| is large, as terms as large as a^3 cancel.
Here the expectation is computed from truncated moments where b <= 1, and otherwise from an integral over [0,
sqrt 2] of a positive function; both are good to about 1e-14.

In the estimator of Holland (2019) b = |a| / sqrt(beta), so a record's influence is a function of a alone.
For nearly all records |a| is so small that the influence is a (1 - b^2/2) - a^3/6 to the last bit.

Kernels are compiled at first use: import this module where a pass is run.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from privopt.problems.convex.losses import RealArray
from privopt.problems.convex.passes import full_pass, rows_of
from privopt.problems.convex.truncation import EDGE, INFLUENCE
from privopt.problems.errors import InvalidInputError

Vector = NDArray[np.float64]

# Number of standard deviations beyond which a normal tail (1e-19) is below the last bit of everything here.
_TAIL = 9.0
_INVERSE_ROOT = 1 / math.sqrt(2 * math.pi)

# Gauss-Legendre on [0, sqrt 2]: with b > 1 the integrand is so smooth that 16 nodes leave only rounding.
_nodes, _weights = np.polynomial.legendre.leggauss(16)
_NODES = (_nodes + 1) * EDGE / 2
_WEIGHTS = _weights * EDGE / 2 * (_NODES - _NODES**3 / 6) * _INVERSE_ROOT

_REORDERED = {"reassoc", "contract", "nsz"}


@njit(cache=True)
def _upper(x: float) -> float:
    """Return the upper tail of the normal distribution."""
    return 0.5 * math.erfc(x / EDGE)


@njit(cache=True)
def _density(x: float) -> float:
    return _INVERSE_ROOT * math.exp(-0.5 * x * x)


@njit(cache=True)
def _smoothed(a: float, b: float) -> float:
    if a == 0.0:  # by symmetry
        return 0.0
    sign = 1.0 if a >= 0 else -1.0
    a = abs(a)
    if b == 0.0:
        return sign * (a - a**3 / 6 if a <= EDGE else INFLUENCE)
    near, far = (EDGE - a) / b, (EDGE + a) / b
    if near > _TAIL:
        return sign * (a * (1 - b * b / 2) - a**3 / 6)
    if near < -_TAIL:
        return sign * INFLUENCE
    outside = INFLUENCE * (_upper(near) - _upper(far))
    inside = _moments(a, b, near, far) if b <= 1 else _integral(a, b)
    return sign * min(INFLUENCE, outside + inside)


@njit(cache=True)
def _moments(a: float, b: float, near: float, far: float) -> float:
    """Return E (X - X^3/6; |X| <= sqrt 2) for X = a + b Z, by the moments of Z truncated to [-far, near]."""
    high, low = _density(near), _density(far)
    m0 = 0.5 * (math.erf(near / EDGE) + math.erf(far / EDGE))
    m1 = low - high
    m2 = m0 - far * low - near * high
    m3 = (far * far + 2) * low - (near * near + 2) * high
    cube = a**3 * m0 + 3 * a * a * b * m1 + 3 * a * b * b * m2 + b**3 * m3
    return a * m0 + b * m1 - cube / 6


@njit(cache=True)
def _integral(a: float, b: float) -> float:
    """Integrate over [0, sqrt 2], with the density at x minus that at -x, which is never negative."""
    total = 0.0
    for k in range(_NODES.size):
        x = _NODES[k]
        z = (x - a) / b
        total -= _WEIGHTS[k] * math.exp(-0.5 * z * z) * math.expm1(-2 * (a / b) * (x / b))
    return total / b


@njit(cache=True)
def _influence(a: float, beta: float) -> float:
    """Return the influence of a number: 0 for NaN, the limit for infinity, always within the bound."""
    if not abs(a) <= 1e100:
        limit = INFLUENCE * math.erf(math.sqrt(beta / 2))
        return limit if a > 0 else (-limit if a < 0 else 0.0)
    return _smoothed(a, abs(a) / math.sqrt(beta))


# One pass over the rows of a block computes the polynomial for each entry, which vectorises. A row with an
# entry that is too large for the polynomial is visited again. No array of the size of the block is made.


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def add_soft_dense(X: RealArray, factor: Vector, beta: float, total: Vector) -> None:
    """Do total_j += sum_i influence(factor_i X_ij)."""
    n, d = X.shape
    cubic = 1 / (2 * beta) + 1 / 6
    safe = EDGE * math.sqrt(beta) / (_TAIL + math.sqrt(beta))
    for i in range(n):
        g, outside = factor[i], 0
        for j in range(d):
            a = g * X[i, j]
            fits = abs(a) <= safe
            outside += 0 if fits else 1
            kept = a if fits else 0.0
            total[j] += kept * (1 - cubic * kept * kept)
        if outside:
            for j in range(d):
                a = g * X[i, j]
                if not abs(a) <= safe:
                    total[j] += _influence(a, beta)


@njit(cache=True, nogil=True, fastmath=_REORDERED)
def add_soft_sparse(
    data: RealArray,
    indices: NDArray[np.int32],
    starts: NDArray[np.int32],
    factor: Vector,
    beta: float,
    total: Vector,
) -> None:
    """Add up the influences of CSR rows; entries of 0 have none."""
    cubic = 1 / (2 * beta) + 1 / 6
    safe = EDGE * math.sqrt(beta) / (_TAIL + math.sqrt(beta))
    for i in range(factor.size):
        for k in range(starts[i], starts[i + 1]):
            a = factor[i] * data[k]
            if abs(a) <= safe:
                total[indices[k]] += a * (1 - cubic * a * a)
            else:
                total[indices[k]] += _influence(a, beta)


def soft_mean(X: RealArray, scale: float, beta: float) -> Vector:
    """Return scale / n * sum_i influence(X_ij / scale), shape (d,), in one pass and on all threads.

    Args:
        X: C-contiguous float32 or float64, shape (n, d).

    Raises:
        InvalidInputError: NaN or infinity.
    """
    n, d = X.shape
    rows = rows_of(X)

    def visit(b: slice, total: Vector) -> float:
        if not np.all(np.isfinite(X[b])):
            raise InvalidInputError("records must be finite; got NaN or infinity")
        add_soft_dense(X[b], np.full(b.stop - b.start, 1 / scale), beta, total)
        return 0.0

    return np.asarray(full_pass(visit, n, d, rows.stored, rows.block)[1] * (scale / n))
