"""Step of the cubic Newton method: the global minimum of a quadratic with a cubic penalty."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq

from privopt.problems.convex.regularizers import Vector


def cubic_step(H: Vector, g: Vector, rho: float) -> Vector:
    """Minimise <g, s> + <s, H s>/2 + rho |s|^3/6 over s, up to rounding; H symmetric, shape (p, p), rho > 0.

    At the minimum (H + r I) s = -g with r = rho |s|/2 and H + r I >= 0 (Nesterov and Polyak 2006). As r
    grows, |s| falls while 2 r / rho grows, so r solves a scalar equation. If |s| < 2 r / rho already at the
    least r, a multiple of the eigenvector of the least eigenvalue, against the gradient, makes up the length.
    """
    d, Q = np.linalg.eigh(H)
    c, shift = Q.T @ g, max(0.0, -float(d[0]))
    gaps, slope = d + shift, float(np.linalg.norm(c))
    middle = math.sqrt(rho) * math.sqrt(slope)  # two roots, because rho * slope may overflow or underflow
    tiny = 1e-15 * (float(np.max(np.abs(d))) + middle) + 1e-300

    def excess(t: float) -> float:
        """Return |s| - 2 r / rho at r = shift + t; with t as the variable, d + r loses no digits."""
        return float(np.linalg.norm(c / (gaps + t))) - 2 * (shift + t) / rho

    if excess(tiny) <= 0:
        s = -c / (gaps + tiny)
        if shift > 0:
            rest = float(s[1:] @ s[1:])
            s[0] = math.copysign(math.sqrt(max(0.0, (2 * shift / rho) ** 2 - rest)), -c[0])
        return np.asarray(Q @ s)
    high = tiny + middle  # there |s| <= slope / t <= 2 t / rho
    return np.asarray(Q @ (-c / (gaps + float(brentq(excess, tiny, high, xtol=1e-300, rtol=1e-14)))))
