"""Average stability of minimisers of randomly tilted objectives, and the noise that their mean needs.

Let f be the sum of the losses of D, f' the sum for a neighbour of D, and h = f' - f with |h(w) - h(v)| <= L
|w - v|_1. The domain lies within a box of widths D_1..D_d, and sigma_j are independent exponential variables
of rate eta. Let x(sigma) be a point at which f - <sigma, w> is within alpha of its minimum, and x'(sigma)
likewise for f'; let y = x(sigma + c e_i), y' = x'(sigma + c e_i).

*A larger tilt increases its coordinate.* From the optimality of x' at sigma and of y' at sigma + c e_i: y'_i
>= x'_i - 2 alpha / c. From these two and the optimality of x: c (y'_i - x_i) >= h(x') - h(x) - 3 alpha. With
f and f' exchanged, the same for y. So min(y_i, y'_i) >= max(x_i, x'_i) - (L |x - x'|_1 + 3 alpha) / c.

*A tilt and the same tilt increased by c have comparable densities.* For a function u of sigma with values in
[lo, lo + D_i], memorylessness gives E u(sigma) - lo >= q (E u(sigma + c e_i) - lo), q = exp(-eta c). This
with u = min(x_i, x'_i), summed over i, gives

    S = E |x - x'|_1 <= (1 - q) sum D_i + q d (L S + 3 alpha) / c,

which is solved for S. This holds for every c > q d L, and the best c is taken. (The lemma of Suggala and
Netrapalli 2019 that Neel et al. 2020 cite gives 250 eta G d^2 D + alpha / (10 G), with L = 2G: c = 100 d L
and looser steps. Here it is 8 eta G d^2 D at alpha = 0.)

*Integer points.* Let every coordinate of the domain be an integer and |h(w) - h(v)| <= 2 B for all points,
as for losses in [0, B]. From the optimality of x' at sigma and of y at sigma + c e_i: c (y_i - x'_i) >=
h(x') - h(y) - 2 alpha >= -2 B - 2 alpha; likewise for x and y', and with 2 alpha alone for x and y, x' and
y'. For c > 2 B + 2 alpha the differences exceed -1, so they are at least 0: min(y_i, y'_i) >= max(x_i, x'_i)
without an error term, and S <= (1 - q) sum D_i. At alpha = 0 that is 2 eta B d D.

*Centred tilts.* A public linear function may be added to f and f' without a change of h. So 1 / eta, the mean
of a tilt, is subtracted from every tilt, which otherwise would pull all coordinates up.

*The mean of m answers.* With the same tilts on both sides the distance of the means is at most the mean of m
independent |x - x'|_1, each in [0, sum D_i] with mean at most S. By Chernoff's bound it exceeds v sum D_i
with probability at most exp(-m kl(v, S / sum D_i)), kl the divergence of Bernoulli laws. For the v at which
that is delta, lambda = v sum D_i bounds the l1 sensitivity except with probability delta, and Laplace noise
of scale lambda / epsilon makes the mean (epsilon, delta)-private. (The 4 D gamma in the paper bounds the
deviation of every coordinate, where the sum over coordinates is needed.)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Self

import joblib  # type: ignore[import-untyped]
import numpy as np
from numpy.typing import NDArray
from scipy.special import rel_entr

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.grid_releases import DiscreteLaplaceRelease
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import (
    check_count,
    check_delta,
    check_epsilon,
    check_positive,
    smallest,
)
from privopt.mechanisms.privacy.spend import PrivacySpend

Vector = NDArray[np.float64]

# Largest default number of answers.
_MOST_DRAWS = 5000
# Share of the l1 diameter that covers the rounding of the mean.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class AveragedRelease:
    """A released mean of the oracle's answers. ``worst_gap`` is not private.

    Attributes:
        point: shape (dimension,).
        spend: the privacy spend.
        noise: the public parameters of the noise.
        worst_gap: the largest gap among the certificates.
    """

    point: Vector
    spend: PrivacySpend
    noise: Mapping[str, float]
    worst_gap: float = field(repr=False, default=math.nan)

    def __getstate__(self) -> dict[str, object]:
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {**kept, "worst_gap": math.nan}


@dataclass(frozen=True)
class TiltedMean:
    """Plan to release the mean of minimisers of randomly tilted objectives, plus Laplace noise.

    Attributes:
        epsilon, delta: the claim.
        rate: eta of the exponential tilts.
        draws: m.
        alpha: the largest accepted gap of a certificate.
        sensitivity: lambda, in l1, except with probability delta.
        dimension: d.
    """

    epsilon: float
    delta: float
    rate: float
    draws: int
    alpha: float
    sensitivity: float
    dimension: int

    @classmethod
    def plan(
        cls,
        widths: Vector,
        *,
        lipschitz: float,
        n_records: int,
        epsilon: float,
        delta: float,
        alpha: float = 0.0,
        slack: float = 0.0,
        loss_bound: float = math.inf,
        rate: float | None = None,
        draws: int | None = None,
    ) -> Self:
        """Calibrate to public facts.

        Args:
            widths: of the box around the domain, shape (d,).
            lipschitz: G: one record's loss is G-Lipschitz in l1.
            n_records: n; n G is the weight of noise on the released point in the cost that chooses ``rate``.
            epsilon, delta: the privacy target.
            alpha: the largest gap of an accepted answer, >= 0, in units of the sum of the losses.
            slack: a bound on the difference between the solved objective and the stated one.
            loss_bound: B: losses of a record are in [0, B] and coordinates are whole numbers; infinite:
                neither is assumed.
            rate: eta; by default the one with the least estimated cost, in units of the sum of the losses.
                The tilts cost the standard deviation of a centred tilt between opposite corners of the box;
                the noise costs n G times its standard deviation as a share of the mean width.
            draws: m; by default as many as make the sensitivity twice the mean distance, but at most 5000.

        Raises:
            PrivacyParameterError: a parameter out of range.
        """
        check_epsilon(epsilon), check_delta(delta), check_positive(lipschitz, "lipschitz")
        if not (math.isfinite(alpha) and alpha >= 0):
            raise PrivacyParameterError(f"alpha must be finite and >= 0, got {alpha!r}")
        if draws is not None:
            check_count(draws, "draws")

        def made(eta: float) -> tuple[int, float]:
            far = mean_distance(widths, lipschitz, eta, alpha + slack)
            if loss_bound < math.inf:
                far = min(far, lattice_distance(widths, loss_bound, eta, alpha + slack))
            return _sensitivity(widths, far, delta, draws)

        def cost(eta: float) -> float:
            noise = math.sqrt(2) * made(eta)[1] / epsilon / float(np.mean(widths))
            return float(np.linalg.norm(widths)) / eta + n_records * lipschitz * noise

        if rate is None:
            guess = math.sqrt(epsilon / check_count(n_records, "n_records")) / (len(widths) * lipschitz)
            rate = min((float(eta) for eta in guess * np.geomspace(1e-3, 1e3, 61)), key=cost)
        m, found = made(check_positive(rate, "rate"))
        return cls(epsilon, delta, rate, m, alpha, found, len(widths))

    @property
    def noise(self) -> dict[str, float]:
        """Public parameters of the noise."""
        return {
            "rate": self.rate,
            "draws": self.draws,
            "alpha": self.alpha,
            "sensitivity": self.sensitivity,
            "scale": self.laplace.scale,
        }

    @property
    def laplace(self) -> DiscreteLaplaceRelease:
        """Exact noise on a grid: pure epsilon at the sensitivity."""
        usable = self.epsilon / (1 + 2.0**-39) - self.dimension * 2.0**-30
        if usable <= 0:
            raise PrivacyParameterError(
                f"epsilon = {self.epsilon:g} is too small for {self.dimension} coordinates: rounding to the "
                f"grid alone takes {self.dimension * 2.0**-30:.3g}"
            )
        return DiscreteLaplaceRelease(
            self.sensitivity, self.sensitivity / usable * (1 + 1e-12), self.dimension
        )

    def tilts(self, source: NoiseSource) -> Vector:
        """Draw all tilts before the first query, less their mean; shape (draws, dimension)."""
        return (source.exponential((self.draws, self.dimension)) - 1.0) / self.rate

    def ask(
        self, answer: Callable[[Vector], tuple[Vector, float]], source: NoiseSource, workers: int = 1
    ) -> tuple[Vector, float]:
        """Return the noisy mean of the answers, and the largest gap.

        Args:
            answer: tilt -> (point, gap); it raises an error for a gap above ``alpha``, and then nothing is
                released.
            workers: number of threads.
        """
        questions = self.tilts(source)
        parallel = joblib.Parallel(n_jobs=check_count(workers, "workers"), prefer="threads")
        found = parallel(joblib.delayed(answer)(tilt) for tilt in questions)
        mean = np.mean([point for point, _ in found], axis=0)
        return self.laplace.release(mean[None, :], source), max(gap for _, gap in found)


def mean_distance(widths: Vector, lipschitz: float, rate: float, alpha: float) -> float:
    """Return S, a bound on E |x - x'|_1 between neighbours, for answers within alpha of the minimum."""
    d, whole, change = len(widths), float(np.sum(widths)), 2 * lipschitz
    steps = d * change * np.geomspace(1.0, 1e6, 2001)
    q = np.exp(-rate * steps)
    kept = 1 - q * d * change / steps
    valid = kept > 1e-9
    bounds = ((1 - q) * whole + 3 * q * d * alpha / steps)[valid] / kept[valid]
    return min(whole, float(np.min(bounds, initial=whole)) * (1 + 1e-9))


def lattice_distance(widths: Vector, loss_bound: float, rate: float, alpha: float) -> float:
    """Return S for integer points and losses in [0, B], for answers within alpha of the minimum."""
    step = (2 * loss_bound + 2 * alpha) * (1 + 1e-9)
    return -math.expm1(-rate * step) * float(np.sum(widths)) * (1 + 1e-9)


def _sensitivity(widths: Vector, distance: float, delta: float, draws: int | None) -> tuple[int, float]:
    """Return m and lambda, for answers that are ``distance`` apart in expectation."""
    whole = float(np.sum(widths))
    p = distance / whole
    log = -math.log(delta)
    if draws is None:
        draws = 1 if p >= 0.5 else min(_MOST_DRAWS, math.ceil(log / _divergence(2 * p, p)))
    if p >= 1 or draws * _divergence(1.0, p) < log:
        return draws, whole * (1 + _ROUNDING)
    share = p + (1 - p) * smallest(lambda s: draws * _divergence(min(1.0, p + (1 - p) * s), p) >= log)
    return draws, whole * min(1.0, share + _ROUNDING)


def _divergence(v: float, p: float) -> float:
    """Return the kl divergence between Bernoulli laws of v and p, rounded down."""
    return float(rel_entr(v, p) + rel_entr(1 - v, 1 - p)) * (1 - 1e-12)
