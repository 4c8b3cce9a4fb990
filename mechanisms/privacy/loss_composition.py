"""The delta of many composed releases from the privacy loss distribution of one, accurate for tiny delta.

A discrete Fourier transform computes the law of a sum of losses, but with absolute rounding errors of about
steps * 2^-53, which exceed a delta of 1e-12 after ten thousand steps. So losses are convolved under a
*tilted* law P', proportional to P[x] exp(tilt * x), under which a total of about epsilon is likely:

    delta(epsilon) = sum over x > epsilon of P'[x] exp(Lambda(tilt) - tilt * x) (1 - exp(epsilon - x)),

with Lambda the log of the moment generating function of the total. Rounding errors are then multiplied by
exp(Lambda(tilt) - tilt * epsilon). At the tilt that minimises it, this factor is Chernoff's bound on P[x >
epsilon], not far above delta, so errors are small relative to delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import fft, optimize

Floats = NDArray[np.float64]

_NEGLIGIBLE = 80 * math.log(2)  # bound on the mass of the tilted law outside the window, on either side
_ROUNDING = 2.0**-50  # error of a transform, per halving of its length: four times the theoretical bound


@dataclass(frozen=True, eq=False)
class LossLaw:
    """The privacy loss of one release, rounded up to a grid.

    Attributes:
        masses: P[loss = (first + k) * cell], shape (m,).
        first: index of the first cell.
        cell: width of a cell.
        infinite: P[loss is infinite].
    """

    masses: Floats
    first: int
    cell: float
    infinite: float

    def log_moment(self, tilt: float) -> float:
        """Return log E[exp(tilt * loss); loss finite]."""
        exponents = self._log_masses + tilt * self._losses
        top = float(np.max(exponents))
        return top + math.log(float(np.sum(np.exp(exponents - top))))

    def tilted(self, tilt: float) -> Floats:
        """Return the masses times exp(tilt * loss), normalised."""
        return np.asarray(np.exp(self._log_masses + tilt * self._losses - self.log_moment(tilt)))

    @property
    def reach(self) -> float:
        """The largest absolute value of a finite loss."""
        return max(abs(self.first), abs(self.first + len(self.masses) - 1)) * self.cell

    @cached_property
    def _log_masses(self) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.masses))

    @cached_property
    def _losses(self) -> Floats:
        return np.asarray((self.first + np.arange(len(self.masses))) * self.cell, dtype=np.float64)


def composed_delta(releases: Sequence[tuple[LossLaw, int]], epsilon: float) -> float:
    """Return delta at ``epsilon`` of all releases together, rounded up.

    Args:
        releases: laws on the same grid, each with a number of releases, >= 1.
        epsilon: > 0.
    """

    def log_moment(tilt: float) -> float:
        return math.fsum(count * law.log_moment(tilt) for law, count in releases)

    cell = releases[0][0].cell
    tilt = _chernoff(log_moment, epsilon)
    start, stop = (round(x / cell) for x in _window(log_moment, tilt))
    totals, masses, error = _summed(releases, tilt, start - 1, stop + 2)
    raised = totals - epsilon + 2.0**-51 * np.abs(totals)  # totals are rounded products
    above = raised > 0
    kept = (np.maximum(masses[above], 0.0) + error) * np.exp(-tilt * (totals[above] - epsilon))
    found = float(np.sum(kept * -np.expm1(-raised[above]))) + 2 * math.exp(-_NEGLIGIBLE)
    # An exponent is a sum of rounded logarithms, whose errors are far below 2^-30, and of the tilt times
    # losses, which multiplies the rounding errors of the losses by the tilt.
    amplified = tilt * (epsilon + math.fsum(count * law.reach for law, count in releases))
    rounding = 2.0**-30 + 2.0**-50 * amplified
    finite = found * math.exp(log_moment(tilt) - tilt * epsilon + rounding)
    return min(1.0, finite + math.fsum(count * law.infinite for law, count in releases))


def _chernoff(log_moment: Callable[[float], float], epsilon: float) -> float:
    """Return approximately the tilt that minimises Lambda(tilt) - tilt * epsilon. Any tilt is valid."""
    found = optimize.minimize_scalar(
        lambda x: log_moment(math.exp(x)) - math.exp(x) * epsilon,
        bounds=(math.log(1e-4), math.log(1e7)),
        method="bounded",
        options={"xatol": 0.02},
    )
    return math.exp(float(found.x))


def _window(log_moment: Callable[[float], float], tilt: float) -> tuple[float, float]:
    """Return a window of totals that misses at most 2^-80 of the tilted law on either side (Chernoff's
    bound).
    """
    here = log_moment(tilt)
    # Any shift is valid. For a normal total the best of these gives a window at most an eighth wider than the
    # best of all shifts.
    shifts = (tilt * np.geomspace(1e-4, 1e4, 20)).tolist()

    @cache
    def bound(sign: int, k: int) -> float:
        found = (log_moment(tilt + sign * shifts[k]) - here + _NEGLIGIBLE) / shifts[k]
        return found if math.isfinite(found) else math.inf

    def least(sign: int) -> float:
        low, high = 0, len(shifts) - 1
        while low < high:  # Lambda is convex, so bounds fall and then rise
            middle = (low + high) // 2
            if bound(sign, middle) <= bound(sign, middle + 1):
                high = middle
            else:
                low = middle + 1
        return sign * bound(sign, low)

    return least(-1), least(1)


def _summed(
    releases: Sequence[tuple[LossLaw, int]], tilt: float, start: int, stop: int
) -> tuple[Floats, Floats, float]:
    """Return totals on the grid, their tilted masses, and a bound on the rounding error of a mass.

    Mass outside the window wraps around into it.
    """
    size = fft.next_fast_len(stop - start, real=True)
    centre, transforms = 0, []
    for law, count in releases:
        masses = law.tilted(tilt)
        cells = np.arange(len(masses))
        mean = round(float(np.sum(masses * cells)))  # losses about their mean: small phases, so small errors
        centre += count * (law.first + mean)
        transforms.append(fft.rfft(np.bincount((cells - mean) % size, masses, size)))
    counts = [count for _, count in releases]
    product = np.prod([f**count for f, count in zip(transforms, counts, strict=True)], axis=0)
    sizes = [np.abs(f) for f in transforms]
    # A transform has an error of about 2^-52 per halving of its length; the derivatives of the product
    # amplify it.
    slope = np.abs(product)
    for i, count in enumerate(counts):
        exponents = [c - (j == i) for j, c in enumerate(counts)]
        slope = slope + count * np.prod([f**e for f, e in zip(sizes, exponents, strict=True)], axis=0)
    error = _ROUNDING * math.log2(size) * float(np.mean(slope))
    masses = np.roll(fft.irfft(product, size), (centre - start) % size)
    totals = np.asarray((start + np.arange(size)) * releases[0][0].cell, dtype=np.float64)
    return totals, np.asarray(masses, dtype=np.float64), error
