"""Noise calibration of OPDisc and RSPM, from public facts before any data is read.

Both mechanisms return w(eta) = argmin_w L(D, w) - <eta, phi(w)> for random eta (a sign of eta is immaterial).
Let b be the sensitivity of a loss *difference* L(D, w) - L(D, v) to replacing one record (2 B for losses in
[0, B]), and let s_w be vectors, the *shifts*, with <s_w, phi(w) - phi(v)> >= b for all v != w. If w wins on D
under eta, it wins on D' under eta + s_w. For Gaussian eta, comparing the densities at eta and eta + s_w
gives, for every event S,

    P[D in S] - exp(epsilon) P[D' in S] <= E[(1 - exp(epsilon - Z))_+],
    Z = max_w (<eta, s_w> + |s_w|^2 / 2) / sigma^2.

The maximum over w is needed because the winner depends on eta: it makes <eta, phi(w)> large. Treating
<eta, s_w> as N(0, sigma^2 |s_w|^2) is the error in the printed calibration of Neel, Roth, Vietri and Wu
(ICML 2020). The bounds here are on the law of Z: by |eta| for OPDisc, coordinate by coordinate for RSPM.

Neighbours: replace-one, number of records public, throughout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import fft, special

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    smallest_below,
)
from privopt.mechanisms.privacy.shifts import sound_sigma
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arguments import told
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import LARGEST_TERM, UNIT
from privopt.problems.discrete.problem import SeparatorSet

Floats = NDArray[np.float64]

CALIBRATIONS = ("sound", "printed")
LOSS_DIFFERENCE = 2.0  # b for losses in [0, 1]

REFUTED_OPDISC = (
    "claim of Neel, Roth, Vietri and Wu (ICML 2020), refuted: the set of bad noise in the proof depends on "
    "the winner; on {-1, 1}^200 and delta = 1e-6 the true epsilon is at least 1.327 for a claimed 1"
)
REFUTED_RSPM = (
    "claim of Neel, Roth, Vietri and Wu (ICML 2020), refuted: the proof treats the winner as independent of "
    "the noise; with 1000 separators and delta = 1e-6 the true epsilon can be 1.44 for a claimed 1"
)

# Share added to every bound for rounding; the special functions used have relative errors of at most 1e-11.
_ROUNDING = 1e-9

# Bounds on noise, in units of its scale: the probability that any of 10^4 noise numbers (of 10^8 exponential
# ones) exceeds its bound is below 2^-128.
_GAUSSIAN_REACH, _LAPLACE_REACH, EXPONENTIAL_REACH = 14.0, 100.0, 110.0

# Per-coordinate laws of RSPM are tabulated on [0, _END] in steps of 1/_FINE, and convolved on a grid of steps
# of 1/_COARSE.
_END, _FINE, _COARSE = 14, 512, 16


@dataclass(frozen=True)
class Calibration:
    """The noise of a plan and its privacy cost.

    Attributes:
        scale: standard deviation of Gaussian noise, scale parameter of Laplace noise.
        spend: the privacy cost; its ``claim`` is "printed: refuted" for a printed calibration.
    """

    scale: float
    spend: PrivacySpend


def calibrate_opdisc(
    epsilon: float,
    delta: float,
    *,
    squared_radius: float,
    dof: int,
    separation: float = 1.0,
    loss_difference: float = LOSS_DIFFERENCE,
    slack: float = 0.0,
    calibration: str = "sound",
) -> Calibration:
    """Return Gaussian noise on the normalized map of OPDisc; see ``opdisc_shift`` and ``sound_sigma``.

    Privacy: (epsilon, delta)-differential privacy, replace-one, if the answer is an exact argmin.

    Args:
        epsilon, delta: the target, epsilon > 0, 0 < delta < 1.
        squared_radius: D^2, a public bound on |w|^2.
        dof: the number of dimensions in which pi(w) varies; see ``normalized_dof``.
        separation: tau, the least distance between two points.
        loss_difference: change of L(w) - L(v) for one record at |w - v| = tau: 2 for losses in
            [0, 1], 2 G tau for G-Lipschitz losses.
        slack: error of a difference of objectives from rounding the noise terms.
        calibration: "sound", or "printed" for the calibration of the source paper, which is refuted.

    Raises:
        PrivacyParameterError: a parameter outside its range.
    """
    if _is_printed(calibration):
        lipschitz = loss_difference / (2 * separation)
        scale = printed_opdisc_sigma(
            epsilon, delta, lipschitz=lipschitz, squared_radius=squared_radius, separation=separation
        )
        return Calibration(scale, _refuted(epsilon, delta, "opdisc", REFUTED_OPDISC))
    shift = opdisc_shift(squared_radius, separation, loss_difference + slack)
    scale = within_terms(sound_sigma(epsilon, delta, shift, dof), _GAUSSIAN_REACH)
    return Calibration(scale, PrivacySpend.approximate(epsilon, delta, "opdisc"))


def calibrate_rspm(
    epsilon: float,
    delta: float,
    counts: SeparatorCounts,
    *,
    loss_bound: int = 1,
    calibration: str = "sound",
) -> Calibration:
    """Return Gaussian noise for the weights of separators; see ``rspm_sigma`` and, for ``counts``,
    ``separator_counts``.

    Separators are 0 or 1 on every point while the losses of a record lie in [0, B], B = ``loss_bound``: every
    condition on a shift is linear in b = 2 B, and so are shifts and noise.

    Rounding real weights to the fixed-point grid costs nothing: every shift is a whole number of units of
    loss, hence of grid steps, so rounding eta + s is rounding eta and then adding s. But weights are drawn as
    doubles, with relative errors of at most 2^-51; below the limit on terms this is less than a grid step.
    Two points that differ in a coordinate may differ on all its k separators, so b grows by 2 k steps: one
    for each weight before a shift, and one after it.

    Privacy: (epsilon, delta)-differential privacy, replace-one, if the answer is an exact argmin.

    Raises:
        PrivacyParameterError: a parameter outside its range.
    """
    bound = check_count(loss_bound, "loss_bound")
    if _is_printed(calibration):
        scale = printed_rspm_sigma(epsilon, delta, counts.separators) * bound
        return Calibration(scale, _refuted(epsilon, delta, "rspm", REFUTED_RSPM))
    per_unit = rspm_sigma(epsilon, delta, counts) / LOSS_DIFFERENCE
    scale = per_unit * (LOSS_DIFFERENCE * bound + counts.slack)
    scale = within_terms(scale, _GAUSSIAN_REACH)
    return Calibration(scale, PrivacySpend.approximate(epsilon, delta, "rspm"))


def calibrate_rspm_laplace(epsilon: float, counts: SeparatorCounts, *, loss_bound: int = 1) -> Calibration:
    """Return Laplace noise of scale 2 B m / epsilon for the weights of separators; losses are in [0, B].

    m is the number of separators whose weights a shift moves, at most two per ordered coordinate. Entries of
    shifts are in {-2 B, 0, 2 B}, so |s_w|_1 <= 2 B m, and the density of eta changes by a factor of at most
    exp(2 B m / scale) whatever the winner: Neel, Roth and Wu (2018), where B = 1 and m counts all separators.
    Rounding as in ``calibrate_rspm``.

    Privacy: epsilon-differential privacy (pure), replace-one, if the answer is an exact argmin.
    """
    shift = LOSS_DIFFERENCE * check_count(loss_bound, "loss_bound") + counts.slack
    scale = shift * check_count(counts.shifted, "separators") / check_epsilon(epsilon)
    scale = within_terms(scale, _LAPLACE_REACH)
    return Calibration(scale, PrivacySpend.pure(epsilon, "rspm-laplace"))


def opdisc_shift(squared_radius: float, separation: float, loss_difference: float = LOSS_DIFFERENCE) -> float:
    """Return c such that s_w = c pi(w) satisfies <s_w, pi(w) - pi(v)> >= loss_difference for all v != w.

    |pi| = 1: <pi(w), pi(w) - pi(v)> = |pi(w) - pi(v)|^2 / 2 >= |w - v|^2 / (2 D^2), so c = 2 b D^2 / tau^2.
    For losses in [0, 1], b = 2 and c = 4 D^2 / tau^2. For G-Lipschitz losses b is 2 G |w - v|, so c has to be
    at least 4 G D^2 / |w - v|. This is largest at |w - v| = tau: the same formula with b = 2 G tau, c = 4 G
    D^2 / tau.
    """
    check_positive(squared_radius, "squared_radius")
    check_positive(separation, "separation")
    return 2 * check_positive(loss_difference, "loss_difference") * squared_radius / separation**2


def normalized_dof(lattice: IntegerLattice) -> int:
    """Return the number of dimensions of pi(w): the free coordinates, and one for the length of w.

    In a fixed coordinate pi(w) and pi(v) agree, so s_w may be 0 there, and that coordinate of eta has no
    effect.
    """
    return int(np.count_nonzero(lattice.low < lattice.high)) + 1


# The epsilons for which noise on separators is computed.
_LEAST_EPSILON, _MOST_EPSILON = 1e-12, 4096.0


class SeparatorCounts(NamedTuple):
    """Numbers of coordinates by how their separators are ordered; every other separator counts as binary.

    Attributes:
        binary: coordinates with one separator.
        ternary: with two separators and three patterns of losses.
        longer: with k >= 3 ordered separators, as {k: coordinates}: the k + 1 patterns of losses have an
            order in which exactly one separator changes from each pattern to the next, each time a different
            one.
    """

    binary: int
    ternary: int
    longer: Mapping[int, int] = MappingProxyType({})

    @property
    def separators(self) -> int:
        """The number m of separators."""
        return self.binary + 2 * self.ternary + sum(k * n for k, n in self.longer.items())

    @property
    def shifted(self) -> int:
        """The largest number of separators whose weights a shift s_w moves: two per ordered coordinate."""
        return self.binary + 2 * self.ternary + 2 * sum(self.longer.values())

    @property
    def slack(self) -> float:
        """Addition to b for drawing weights as doubles; see ``calibrate_rspm``."""
        return 2 * max([2, *self.longer]) / UNIT


def separator_counts(separators: SeparatorSet) -> SeparatorCounts:
    """Count the coordinates of a separator set by how their separators are ordered."""
    binary, ternary, longer = 0, 0, dict[int, int]()
    for j in np.unique(separators.coordinate).tolist():
        own = np.flatnonzero(separators.coordinate == j)
        tables = np.stack([separators.loss_tables[k] for k in own.tolist()])
        patterns = np.unique(tables, axis=1).shape[1]
        if own.size == 2 and patterns == 3:
            ternary += 1
        elif own.size >= 3 and _ordered(tables):
            longer[own.size] = longer.get(own.size, 0) + 1
        else:
            binary += int(own.size)
    return SeparatorCounts(binary, ternary, longer)


def _ordered(tables: NDArray[np.int64]) -> bool:
    """Return whether separators, shape (k, levels), are thresholds between neighbouring levels."""
    changes = np.diff(tables, axis=1) != 0
    return bool(np.all(changes.sum(axis=0) == 1) and np.all(changes.sum(axis=1) == 1))


def rspm_delta(epsilon: float, sigma: float, counts: SeparatorCounts) -> float:
    """Bound the delta of Gaussian RSPM for losses in [0, 1] from above, by the law of the worst shift.

    The losses phi on separators of different coordinates do not interact, so s_w can be chosen, and the
    maximum in Z taken, coordinate by coordinate. With x = eta / sigma, a = 2 / sigma:

    - binary: phi in {0, 1}, s = +-2, so Z_j = a |x| + a^2 / 2;
    - ternary: phi in {(0,1), (1,0), (1,1)} up to flips. s = (-2, 0), (0, -2) and (2, 2) satisfy the condition
      (for instance (0,1) minus (1,0) or (1,1) is (-1,1) or (-1,0), at least 2 against (-2,0)), so
      Z_j = a^2/2 + a max(-x1, -x2, x1 + x2 + a/2);
    - k ordered separators: up to flips phi = (1, .., 1, 0, .., 0), and any other v differs from w in the
      last 1 or in the first 0. So s is 2 at the last 1, -2 at the first 0 and 0 elsewhere; if there is no 1
      or no 0, only the other of these two entries is left: Z_j = a^2/2 + a max(-x1, xk, max_i (x_i - x_(i+1))
      + a/2). Its tail is at most the sum of the tails.

    Z is the sum of independent Z_j = a X_j + a^2/2. The law of each X_j is rounded up on a fine grid, then
    spread to a coarse one so that the mean of exp(-a X_j) is kept; (1 - exp(epsilon - Z))_+ is convex in each
    exp(-Z_j), so both steps can only increase the result. The law of the sum comes from a power of a Fourier
    transform of the exponentially tilted law, so that rounding errors are small against the tail.
    """
    a = LOSS_DIFFERENCE / sigma
    tails: list[tuple[int, Callable[[], Floats]]] = [
        (counts.binary, _binary_tail),
        (counts.ternary, lambda: _ternary_tail(_round_up(a))),
        *((n, partial(_ordered_tail, k, _round_up(a))) for k, n in counts.longer.items()),
    ]
    parts = [(n, tail()) for n, tail in tails if n]
    count = sum(n for n, _ in parts)
    threshold = (epsilon - count * a * a / 2) / a
    beyond = sum(n * float(tail[-1]) for n, tail in parts)
    if beyond >= 1:  # nothing on the grid is left to compute with
        return 1.0
    laws = [(n, _coarse_law(tail, a)) for n, tail in parts]
    return min(1.0, (_tail_expectation(laws, a, threshold) + beyond) * (1 + _ROUNDING))


def rspm_sigma(epsilon: float, delta: float, counts: SeparatorCounts) -> float:
    """Return nearly the smallest sigma with ``rspm_delta`` <= delta; never smaller than needed.

    This is for losses in [0, 1]; for losses in [0, B] sigma is B times as large. If all coordinates are
    ternary, and m is the number of their separators, sigma is 0.6 to 0.95 times the general bound
    (``sound_sigma`` with shift 2 sqrt(m) and dof m); this factor falls with m, and is about 0.7 at m = 20.
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    if (
        min(counts.binary, counts.ternary) < 0
        or check_count(counts.separators, "the number of separators") < 1
    ):
        raise PrivacyParameterError("numbers of coordinates must be whole and >= 0, and not all 0")
    # Above the larger limit epsilon hardly changes the noise, which delta decides, and the computation would
    # take minutes.
    epsilon = min(epsilon, _MOST_EPSILON)
    if epsilon < _LEAST_EPSILON:
        raise PrivacyParameterError(f"epsilon = {epsilon:g} is too small: at least {_LEAST_EPSILON:g}")
    start = 2 * counts.shifted / epsilon

    def delta_at(sigma: float) -> float:
        return rspm_delta(epsilon, sigma, counts)

    # With noise that hides everything only the mass beyond the grid is left.
    if (least := delta_at(1e9 * max(start, 1.0))) > delta:
        raise PrivacyParameterError(
            f"delta = {delta:.3g} is below {least:.2g}, the least that is computed for Gaussian noise on "
            f"{counts.separators} separators: use a larger delta, or rspm-laplace, which is pure"
        )
    return smallest_below(delta_at, delta, start=start)


def printed_opdisc_sigma(
    epsilon: float, delta: float, *, lipschitz: float, squared_radius: float, separation: float
) -> float:
    """Return the printed noise 7 G D^2 sqrt(ln(1/delta)) / (tau epsilon); *refuted*, for figures only.

    The authors' published code uses half of it.
    """
    numerator = 7 * lipschitz * squared_radius * math.sqrt(-math.log(check_delta(delta)))
    return numerator / (separation * check_epsilon(epsilon))


def printed_rspm_sigma(epsilon: float, delta: float, separators: int) -> float:
    """Return the printed noise 7 sqrt(m ln(1/delta)) / epsilon, *refuted*. Published code uses half."""
    check_count(separators, "separators")
    return 7 * math.sqrt(-separators * math.log(check_delta(delta))) / check_epsilon(epsilon)


def within_terms(scale: float, reach: float) -> float:
    """Check that noise of a scale stays in the range of objectives, and return the scale.

    Noise outside the range is refused when it is drawn, so its law is truncated. A shift moves noise across
    the bound, where the truncated density is 0, so the proofs above do not hold.

    Raises:
        PrivacyParameterError: noise would leave the range of objectives.
    """
    if not scale * reach < LARGEST_TERM:
        raise PrivacyParameterError(
            f"noise of scale {scale:.3g} errors leaves the range of objectives, whose terms stay below "
            f"{LARGEST_TERM:.3g}: take a larger epsilon"
        )
    return scale


def _is_printed(calibration: str) -> bool:
    if not isinstance(calibration, str) or calibration not in CALIBRATIONS:
        raise PrivacyParameterError(f"calibration must be sound or printed, got {told(calibration)}")
    return calibration == "printed"


def _refuted(epsilon: float, delta: float, mechanism: str, note: str) -> PrivacySpend:
    return PrivacySpend(epsilon, delta, "approximate", mechanism, claim="printed: refuted", note=note)


def _round_up(a: float) -> float:
    """Return ``a`` with 7 significant bits, not smaller: a larger a only enlarges the ternary law."""
    mantissa, exponent = math.frexp(a)
    return math.ldexp(math.ceil(mantissa * 128), exponent - 7)


def _fine_grid() -> Floats:
    return np.arange(_END * _FINE + 1) / _FINE


@lru_cache(maxsize=1)
def _binary_tail() -> Floats:
    """Return P[|x| > t] on the fine grid."""
    return np.asarray(special.erfc(_fine_grid() / math.sqrt(2)))


@lru_cache(maxsize=32)
def _ternary_tail(a: float) -> Floats:
    """Return P[max(-x1, -x2, x1 + x2 + a/2) > t] on the fine grid, x1 and x2 standard normal.

    Either one of x1, x2 is below -t, or neither is and x1 + x2 > y = t - a/2. All terms are positive, so the
    relative error is that of Gauss-Legendre quadrature of a smooth integrand, below 1e-11.
    """
    t = _fine_grid()[:, None]
    y = t - a / 2
    nodes, weights = np.polynomial.legendre.leggauss(96)
    low, high = -np.minimum(t, 12.0), np.clip(t + y, -np.minimum(t, 12.0), 14.0)
    x1 = (low + high) / 2 + (high - low) / 2 * nodes
    density = np.exp(-x1 * x1 / 2) / math.sqrt(2 * math.pi)
    both = np.sum((high - low) / 2 * weights * density * special.ndtr(x1 - y), axis=1)
    t, y = t[:, 0], y[:, 0]
    # x1 > t + y: x2 needs only to exceed -t. The last term covers the clipped part.
    above = special.ndtr(-np.maximum(t + y, -t)) * special.ndtr(t)
    tail = special.ndtr(-t) * (2 - special.ndtr(-t)) + both + above + special.ndtr(-12.0)
    return np.asarray(np.minimum(1.0, tail * (1 + _ROUNDING)))


@lru_cache(maxsize=32)
def _ordered_tail(k: int, a: float) -> Floats:
    """Return a bound on P[max(-x1, xk, max_i (x_i - x_(i+1)) + a/2) > t] on the fine grid, x standard normal.

    It is the sum of the k + 1 probabilities; each of the k - 1 differences has variance 2.
    """
    t = _fine_grid()
    ends, between = special.ndtr(-t), special.ndtr((a / 2 - t) / math.sqrt(2))
    return np.asarray(np.minimum(1.0, (2 * ends + (k - 1) * between) * (1 + _ROUNDING)))


def _coarse_law(tail: Floats, a: float) -> Floats:
    """Return masses on 0, 1/_COARSE, ..., _END of a law with this fine tail, as in ``rspm_delta``."""
    mass = -np.diff(tail, prepend=1.0)
    ratio = _FINE // _COARSE
    # mass[k] is P[t_(k-1) < X <= t_k], placed at t_k, the right end of its fine cell.
    cell, rest = np.divmod(np.arange(mass.size), ratio)
    share = np.expm1(-a * rest / _FINE) / math.expm1(-a / _COARSE)
    law = np.bincount(cell, mass * (1 - share), minlength=_END * _COARSE + 2)
    law += np.bincount(cell + 1, mass * share, minlength=_END * _COARSE + 2)
    return np.maximum(law, 0.0)


def _tail_expectation(laws: list[tuple[int, Floats]], a: float, threshold: float) -> float:
    """Bound E[(1 - exp(-a (X - threshold)))_+] from above, X the sum of n independent draws of each law."""
    step = 1 / _COARSE
    x = np.arange(laws[0][1].size) * step
    # The tilt that minimises Chernoff's bound at the threshold; any tilt is valid.
    tilts = np.concatenate(([0.0], np.geomspace(1e-3, 30.0, 120)))
    moments = sum(n * np.log(np.exp(np.outer(tilts, x)) @ law) for n, law in laws)
    best = int(np.argmin(moments - tilts * threshold))
    tilt, log_moment = float(tilts[best]), float(np.asarray(moments)[best])

    count = sum(n for n, _ in laws)
    size = fft.next_fast_len(count * (x.size - 1) + 1, real=True)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    for n, law in laws:
        tilted = law * np.exp(tilt * x)
        spectrum *= fft.rfft(tilted / tilted.sum(), size) ** n
    # |spectrum| <= 1, and each of its entries is off by at most about count * log2(size) roundings.
    error = 8 * (count + 1) * math.log2(size) * np.finfo(np.float64).eps
    total = np.arange(size) * step - threshold
    above = total > 0
    tilted_law = np.maximum(fft.irfft(spectrum, size)[above], 0.0) + error
    gain = -np.expm1(-a * total[above])
    return float(np.sum(tilted_law * gain * np.exp(log_moment - tilt * (total[above] + threshold))))
