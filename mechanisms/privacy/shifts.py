"""Privacy of Gaussian noise whose shift between neighbours depends on the noise itself.

The output on D under eta equals the output on D' under eta + s, where s depends on eta with |s| <= c.
Comparing the densities at eta and eta + s bounds delta by E[(1 - exp(epsilon - Z))_+] with Z the largest
(<eta, s> + |s|^2 / 2) / sigma^2. Here <eta, s> <= c |eta|, and |eta| / sigma is a chi variable with as many
degrees of freedom as s has dimensions. OPDisc and objective perturbation are calibrated by this bound.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from privopt.mechanisms.privacy.accounting import gaussian_profile
from privopt.mechanisms.privacy.parameters import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    smallest_below,
)

# Cells of the Riemann sum: more cells tighten the bound, any number is valid.
_CELLS = 4096
# Relative increase of the bound for rounding; the special functions used are accurate to 1e-11 or better.
_ROUNDING = 1e-9
# The value of chi beyond which its probability is below the smallest double, and the number of cells up to
# there.
_FARTHEST, _FINE_CELLS = 40.0, 8192


def shift_delta(epsilon: float, sigma: float, shift: float, dof: int) -> float:
    """Bound E[(1 - exp(epsilon - (c sigma chi + c^2/2) / sigma^2))_+] from above, chi ~ chi(dof), c = shift.

    This mean bounds the delta of a Gaussian perturbation with |s_w| <= c, by <eta, s_w> <= c |eta|. After
    integration by parts it is the integral of P[chi > t] against the increments of 1 - min(1, exp(epsilon -
    a^2/2 - a t)), where a = c / sigma. P[chi > t] decreases, so a sum with its values at the left ends of
    cells is an upper bound, on any grid.

    Shapes: all scalars. epsilon >= 0, the others > 0.
    """
    a = shift / sigma
    threshold = (epsilon - a * a / 2) / a
    start = max(threshold, 0.0)
    # Beyond the median of chi the tail decreases faster than a Gaussian's; the rest is added at the end.
    t = np.linspace(start, max(start, math.sqrt(dof)) + 8.0, _CELLS + 1)
    squares = t * t / 2
    tail = np.exp(-squares) if dof == 2 else special.gammaincc(dof / 2, squares)
    kept = np.exp(-a * (t - threshold))
    below_start = -math.expm1(min(0.0, a * threshold))
    inside = float(np.sum(tail[:-1] * kept[:-1] * -np.expm1(-a * np.diff(t))))
    return min(1.0, (below_start + inside + float(tail[-1] * kept[-1])) * (1 + _ROUNDING) + 1e-300)


def sound_sigma(epsilon: float, delta: float, shift: float, dof: int) -> float:
    """Return nearly the smallest sigma with ``shift_delta`` <= delta; never smaller than needed."""
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    check_positive(shift, "shift")
    check_count(dof, "dof")
    start = shift * math.sqrt(dof) / epsilon
    return smallest_below(lambda sigma: shift_delta(epsilon, sigma, shift, dof), delta, start=start)


def delta_before_gaussian(epsilon: float, sigma: float, shift: float, dof: int, mu: float) -> float:
    """Bound the delta of a Gaussian perturbation as in ``shift_delta``, then a mu-GDP release, at epsilon.

    The second release may depend on the first output w. With z(w) the log ratio of the densities of w, for
    any set S the probability of the pair exceeds exp(epsilon) times that on the neighbour by at most the mean
    of delta_mu(epsilon - z(w)), delta_mu the profile of mu-GDP at arguments of any sign. delta_mu decreases,
    and z is at most a chi + a^2 / 2, a = shift / sigma. So the value at the right end of each cell of chi is
    the largest in the cell, and the sum is an upper bound on any grid. If a step between the two releases
    costs (e, d), delta is at most d more than this bound at epsilon less e: outside an event of mass d the
    density of the step is at most exp(e) times that on the neighbour.
    """
    a = shift / sigma
    t = np.linspace(0.0, _FARTHEST, _FINE_CELLS + 1)
    tail = special.gammaincc(dof / 2, t * t / 2)
    cells = np.maximum(tail[:-1] - tail[1:], 0.0) + 1e-15 * tail[:-1]
    total = float(np.sum(cells * gaussian_profile(mu, epsilon - a * (a / 2 + t[1:]))))
    return min(1.0, (total + float(tail[-1])) * (1 + _ROUNDING) + 1e-300)


def sigma_before_gaussian(epsilon: float, delta: float, shift: float, dof: int, mu: float) -> float:
    """Return nearly the smallest sigma with ``delta_before_gaussian`` <= delta; never smaller than needed.

    The delta of mu-GDP alone, at epsilon, must be below ``delta``.
    """
    start = sound_sigma(epsilon, delta, shift, dof)
    return smallest_below(
        lambda sigma: delta_before_gaussian(epsilon, sigma, shift, dof, mu), delta, start=start
    )
