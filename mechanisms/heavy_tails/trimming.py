"""The clamped trimmed mean of numbers, its exact smooth sensitivity, and its noise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.heavy_tails.arsinh_noise import ArsinhNoise
from privopt.mechanisms.heavy_tails.grid import NARROWEST, on_grid, rounding
from privopt.mechanisms.privacy.accounting import zcdp_rho
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count

Floats = NDArray[np.float64]

# Largest share of epsilon that rounding of the released number may take.
_MOST_ROUNDING = 0.05
# Standard deviation of sinh of a standard normal variable.
_SINH_DEVIATION = math.sqrt(math.expm1(2.0) / 2)
_FARTHEST = 1e100  # limit on numbers, in widths: larger ones have the effect of infinity


@dataclass(frozen=True)
class Trimming:
    """Trimmed mean: drop the m smallest and m largest of n numbers, average, clamp to [low, high], add noise.

    Attributes:
        n: number of values.
        low, high: interval that contains the mean. Public.
        trimmed: m, 1 <= m < n/2.
        noise: arsinh-normal noise.
    """

    n: int
    low: float
    high: float
    trimmed: int
    noise: ArsinhNoise

    @classmethod
    def plan(
        cls,
        n: int,
        low: float,
        high: float,
        *,
        epsilon: float,
        delta: float,
        releases: int,
        trimmed: int | None = None,
    ) -> Self:
        """Calibrate ``releases`` adaptively chosen means that are (epsilon, delta)-private together.

        Each is rho / releases-zCDP (Bun and Steinke 2016 for the sum). The default for ``trimmed`` is so
        large that clamping, which begins after m changes, adds only 1/n of the width to the smooth
        sensitivity, but at most n/4.

        Raises:
            PrivacyParameterError: parameters out of range, or so many releases that rounding costs 5% of
                epsilon.
        """
        if check_count(n, "n") < 3:
            raise PrivacyParameterError(f"a trimmed mean needs at least 3 numbers, got {n}")
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise PrivacyParameterError(f"a mean range needs finite low < high, got {low!r} and {high!r}")
        check_count(releases, "releases")
        # The noise and its rounding are largest if t takes half of the smallest possible remainder.
        least = _share(epsilon, delta, releases, _MOST_ROUNDING * epsilon)
        lost = releases * rounding(1 / ArsinhNoise.within(least, enough=math.inf).s)
        if lost > _MOST_ROUNDING * epsilon:
            raise PrivacyParameterError(
                f"{releases} releases cost {lost:.2g} for rounding, epsilon is {epsilon:g}: take fewer steps"
            )
        rho = _share(epsilon, delta, releases, lost)
        most = ArsinhNoise.within(rho, enough=math.inf).t
        if trimmed is None:
            trimmed = min(math.ceil(math.log(n) / most), max(1, n // 4))
        if not 1 <= trimmed < n / 2:
            raise PrivacyParameterError(
                f"trimmed must be at least 1 and below n/2 = {n / 2:g}, got {trimmed}"
            )
        return cls(n, float(low), float(high), trimmed, ArsinhNoise.within(rho, enough=math.log(n) / trimmed))

    @property
    def typical_noise(self) -> float:
        """Standard deviation of the noise for records within the range.

        One record then moves the trimmed mean by at most width / (n - 2 m), and m records by at most the
        width, which the smooth sensitivity multiplies by e^(-t m).
        """
        farthest = max(1 / (self.n - 2 * self.trimmed), math.exp(-self.noise.t * self.trimmed))
        return self.width * farthest / self.noise.s * _SINH_DEVIATION

    @property
    def width(self) -> float:
        return self.high - self.low

    def centre(self, ordered: Floats) -> float:
        """Return the trimmed mean of sorted, centred numbers, clamped to +-1/2, in widths. Not private."""
        return float(np.clip(np.mean(ordered[self.trimmed : self.n - self.trimmed]), -0.5, 0.5))

    def sensitivity(self, ordered: Floats) -> float:
        """Return a t-smooth upper bound on the local sensitivity of ``centre`` as it is computed, in widths.

        It is the exact smooth sensitivity (``smooth_sensitivity``), increased for the rounding of the mean,
        and at least s * 2^-16, which is a constant.
        """
        exact = smooth_sensitivity(ordered, self.trimmed, self.noise.t, 1.0)
        return max(exact * (1 + self.n * 2.0**-44), self.noise.s * NARROWEST)

    def ordered(self, values: Floats) -> Floats:
        """Return the numbers sorted, in widths from the middle of the range; NaN counts as the middle."""
        middle = self.low / 2 + self.high / 2
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = (values - middle) / self.width
        return np.sort(np.clip(np.nan_to_num(scaled, nan=0.0), -_FARTHEST, _FARTHEST))

    def estimate(self, values: Floats) -> float:
        """Return the clamped trimmed mean without noise. NOT private."""
        return self.low / 2 + self.high / 2 + self.width * self.centre(self.ordered(values))

    def release(self, columns: Iterable[Floats], source: NoiseSource) -> Floats:
        """Return the noisy means of columns of n numbers, on a public grid."""
        found = []
        for column in columns:
            ordered = self.ordered(column)
            found.append((self.centre(ordered), self.sensitivity(ordered)))
        centres, scales = np.array(found).T
        # sinh(40) is 10^17: the result is clipped anyway.
        y = np.clip(source.gaussian(1.0, len(found)), -40.0, 40.0)
        noisy = on_grid(centres + scales / self.noise.s * np.sinh(y))
        return np.asarray(self.low / 2 + self.high / 2 + self.width * noisy)


def _share(epsilon: float, delta: float, releases: int, lost: float) -> float:
    """Return rho of each of ``releases`` releases when rounding costs ``lost`` (``grid.rounding``)."""
    return zcdp_rho(epsilon - lost, delta * math.exp(-lost / 2)) / releases


def smooth_sensitivity(ordered: Floats, m: int, t: float, width: float) -> float:
    """Return max over k of e^(-kt) LS_k for the trimmed mean of sorted numbers, clamped to ``width``.

    LS_k is the largest effect of one change after k other changes. For k >= m it is the width, because a
    changed record need not be trimmed then. For k < m, with l of the k + 1 changed records pushed to the far
    left and the rest to the far right, the window of n - 2m numbers gains x_q and loses x_p, where p = m - l
    and q = n - m + k - l (counted from 0): LS_k = min(width, max (x_q - x_p) / (n - 2m)) over such pairs. For
    a larger p the best q is no smaller: from x_q' - x_p >= e^(t (q' - q)) (x_q - x_p) follows the same for p'
    > p. So pairs are found by divide and conquer, in O(m log m).
    """
    from privopt.problems.convex.windows import best_window  # imports numba, which is slow

    n = ordered.size
    cap = width * (n - 2 * m)
    floor = math.exp(-m * t) * width
    return max(floor, float(best_window(ordered, m, t, cap)) / (n - 2 * m))
