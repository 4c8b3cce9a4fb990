"""Arsinh-normal noise for smooth sensitivities, under concentrated differential privacy.

The noise is (S/s) sinh(Y), Y standard normal, S a t-smooth upper bound on the local sensitivity: neighbours
see outputs that are shifted by at most S and stretched by at most e^t (Bun and Steinke 2019).

Privacy. In the unit S/s of one data set the output is Z = sinh(Y) there, and e^r Z + q on the other, |r| <=
t, |q| <= s; let L(y) be the privacy loss at z = sinh(y). If L is K-Lipschitz in y, then for every order a > 1

    D_a(P, Q) <= a K^2 / 2, that is, K^2/2-zCDP.

Proof: a K-Lipschitz function of a standard normal variable has E exp(c (L - E L)) <= exp(c^2 K^2 / 2) for
every c. At c = -1, where E exp(-L) = 1, this gives E L <= K^2 / 2, and at c = a - 1 it gives
(a - 1) D_a <= (a - 1) E L + (a - 1)^2 K^2 / 2 <= a (a - 1) K^2 / 2. Exchanging the data sets exchanges (r,
q) for (-r, -q e^-r), and the two units; so a bound for all |r| <= t and |q| <= s in the smaller unit holds in
both directions.

With H(v) = (arsinh v + v / sqrt(1 + v^2)) / sqrt(1 + v^2), the slope of the negative log density of Z,

    L'(y) = sqrt(1 + z^2) (e^-r H((z - q) e^-r) - H(z)).

Along the straight line from (0, 0) to (r, q) its derivative is at most t |(v H)'| + s e^t |H'(v)|, times
sqrt(1 + z^2) e^-r', where v = (z - q') e^-r'. As e^-r' / sqrt(1 + v^2) <= e^t / sqrt(1 + (z - q')^2) and
sqrt(1 + z^2) <= (1 + s) sqrt(1 + (z - q')^2),

    K <= e^t (1 + s) max over v of sqrt(1 + v^2) (t |(v H)'(v)| + s e^t |H'(v)|).

With v = sinh(y), T = tanh(y): sqrt(1 + v^2) (v H)' = y (1 - T^2) + T (3 - 2 T^2), and
sqrt(1 + v^2) H' = (2 - T^2 - (y + T) T) / cosh(y). Both are smooth; their maxima are taken on a fine grid,
with a margin for what lies between its points.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_positive, largest

# For |y| >= 20 the second function is below 1e-7, far below its maximum, and the first is within 1e-15 of its
# limit 1. Between grid points either function changes by less than 4 * 1e-4.
_GRID = np.linspace(0.0, 20.0, 100_001)
_BETWEEN = 4 * 2e-4 / 2


@dataclass(frozen=True)
class ArsinhNoise:
    """Parameters of arsinh-normal noise: the smoothness of S and the scale of the noise relative to it.

    Attributes:
        t: the smoothness: S changes by a factor of at most e^t between neighbours.
        s: the noise is (S/s) sinh(Y).
    """

    t: float
    s: float

    def __post_init__(self) -> None:
        check_positive(self.t, "t")
        check_positive(self.s, "s")

    @property
    def rho(self) -> float:
        """The rho of the zero-concentrated privacy of one release, rounded up."""
        return lipschitz(self.t, self.s) ** 2 / 2 * (1 + 1e-12)

    @classmethod
    def as_printed(cls, epsilon: float) -> Self:
        """Return the noise of the paper, t = epsilon^2 / 16 and s = epsilon / 4, for epsilon^2/2-zCDP.

        It is private for epsilon <= 1, with more noise than needed.
        """
        return cls(epsilon**2 / 16, epsilon / 4)

    @classmethod
    def within(cls, rho: float, *, enough: float) -> Self:
        """Return noise that spends rho: t takes half of it, up to t = ``enough``, and s is as large as
        possible.

        Raises:
            PrivacyParameterError: rho out of range.
        """
        root = math.sqrt(2 * check_positive(rho, "rho")) * (1 - 1e-9)
        t = min(largest(lambda t: lipschitz(t, 0.0) <= root / 2, start=root), enough)
        s = largest(lambda s: lipschitz(t, s) <= root, start=root)
        found = cls(t, s)
        if found.rho > rho:
            raise PrivacyParameterError("the calibrated noise does not meet its own target: report this")
        return found


def lipschitz(t: float, s: float) -> float:
    """Bound the Lipschitz constant of the privacy loss in y, for stretches up to e^t and shifts up to s."""
    stretched, shifted = _slopes()
    grown = s * math.exp(t)
    steepest = float(np.max(t * stretched + grown * shifted)) + (t + grown) * _BETWEEN
    return math.exp(t) * (1 + s) * steepest


@cache
def _slopes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return sqrt(1 + v^2) |(v H)'| and sqrt(1 + v^2) |H'| at v = sinh(y), over the grid."""
    y, tanh = _GRID, np.tanh(_GRID)
    stretched = y * (1 - tanh**2) + tanh * (3 - 2 * tanh**2)
    shifted = (2 - tanh**2 - (y + tanh) * tanh) / np.cosh(y)
    return np.abs(stretched), np.abs(shifted)
