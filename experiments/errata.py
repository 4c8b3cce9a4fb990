"""Errata of the source papers, each with a table that shows the error: claimed values against true ones.

``python -m privopt.experiments.errata`` prints the tables of ``experiments/docs/errata.md``. Every number is
computed from the printed formulas and from our own derivations. Nothing is sampled, so the tables are the
same on every machine. Neighbours: replace-one, number of records public, unless an entry says otherwise.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import typer
from numpy.typing import NDArray
from scipy import special, stats

from privopt.mechanisms.audit.claims import AuditedClaim
from privopt.mechanisms.audit.heavy_tails import LargestDistances, outlier_claim, printed_scale
from privopt.mechanisms.audit.laws import audit_plan
from privopt.mechanisms.audit.neighbours import ParityProblem, SignLattice, parity_neighbours
from privopt.mechanisms.discrete.mechanism import LatticeMechanism
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.discrete.rspm import GaussianRSPM
from privopt.mechanisms.heavy_tails.arsinh_noise import ArsinhNoise
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.mechanisms.heavy_tails.trimming import Trimming
from privopt.mechanisms.privacy.accounting import (
    bounded_range_step_epsilon,
    bounded_range_to_zcdp,
    gaussian_epsilon,
    gaussian_mu,
    zcdp_epsilon,
)
from privopt.mechanisms.privacy.parameters import smallest
from privopt.mechanisms.privacy.poisson import poisson_multiplier
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.discrete.lattice import IntegerLattice

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Demonstration:
    """A table that shows one erratum.

    Attributes:
        number: the number of the entry on the errata page.
        title: the error in one line.
        columns, rows: headings and cells of the table.
    """

    number: int
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [self.columns, tuple("---" for _ in self.columns), *self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def the_winner_depends_on_the_noise() -> Demonstration:
    """Compute the exact epsilon of OPDisc and Gaussian RSPM on parities, under three calibrations."""
    rows = []
    for d in (50, 100, 200, 1000):
        opdisc = [
            OPDisc.plan(ParityProblem, SignLattice(d), epsilon=1.0, delta=1e-6, calibration=c)
            for c in ("printed", "sound")
        ]
        code = dataclasses.replace(opdisc[0], sigma=opdisc[0].sigma / 2)
        rows += _parity_rows("OPDisc, {-1, 1}^d", [opdisc[0], code, opdisc[1]])
    for d in (200, 1000):
        rspm = [
            GaussianRSPM.plan(
                ParityProblem, IntegerLattice(0, 1, dimension=d), epsilon=1.0, delta=1e-6, calibration=c
            )
            for c in ("printed", "sound")
        ]
        halved = dataclasses.replace(rspm[0], scale=rspm[0].scale / 2)
        rows += _parity_rows("RSPM, {0, 1}^d", [rspm[0], halved, rspm[1]])
    columns = ("mechanism", "d", "n", "claimed", "printed noise", "published code (half)", "sound noise")
    return Demonstration(1, "the winner depends on the noise", columns, tuple(rows))


def _parity_rows(name: str, plans: Sequence[LatticeMechanism[Any]]) -> list[tuple[str, ...]]:
    """Return a row for one record, and a row for the number of equal records at which each plan is worst."""
    one = [_short(_true_epsilon(plan, 1)) for plan in plans]
    several = [max((_true_epsilon(plan, n), n) for n in range(1, 60)) for plan in plans]
    d = str(plans[0].lattice.dimension)
    return [
        (name, d, "1", "1", *one),
        (name, d, "worst", "1", *(f"{_short(found)}, n = {n}" for found, n in several)),
    ]


def _true_epsilon(plan: LatticeMechanism[Any], records: int) -> float:
    return audit_plan(plan, parity_neighbours(plan.lattice, records)).true_epsilon


def squared_rho() -> Demonstration:
    """Compute the epsilon of the last iterate of DP-PGD on linear losses, with the noise of its listing."""
    delta, rows = 1e-5, []
    for smoothness, epsilon in [(1.0, 1.0), (1.0, 4.0), (1.0, 8.0), (1.0, 16.0), (0.25, 1.0), (0.25, 4.0)]:
        # T releases of a mean gradient of sensitivity 2 G / n: mu^2 = 4 G^2 T / (n^2 sigma^2), G = 1.
        rho = _paper_rho(epsilon, delta)
        printed = gaussian_epsilon(math.sqrt(2) * rho / smoothness, delta)
        corrected = gaussian_epsilon(math.sqrt(2 * rho), delta)
        rows.append((f"{smoothness:g}", f"{epsilon:g}", f"{rho:.4f}", _short(printed), _short(corrected)))
    columns = ("L / G", "claimed", "rho", "printed: 2 L^2 T / (n rho)^2", "corrected: 2 G^2 T / (n^2 rho)")
    return Demonstration(2, "rho squared, and L in the place of G", columns, tuple(rows))


def _paper_rho(epsilon: float, delta: float) -> float:
    """Return rho with rho + 2 sqrt(rho ln(1/delta)) = epsilon, by the quadratic formula in sqrt(rho)."""
    root = math.sqrt(-math.log(delta))
    return (math.sqrt(root**2 + epsilon) - root) ** 2


def exact_gradient_in_a_noisy_loop() -> Demonstration:
    """Compute the epsilon of DP-AccMD on linear losses over a large set.

    The released y_T is Gaussian, with a mean and a variance that follow a recursion.
    """
    epsilon, delta, rows = 1.0, 1e-5, []
    for steps in (1, 2, 3, 5, 10, 50):
        found = []
        for noisy_y in (False, True):
            shift, noise = _accelerated(steps, noisy_y)
            # Noise for T releases at (epsilon, delta): sigma = sqrt(T) sensitivity / mu.
            mu = abs(shift) / float(np.linalg.norm(noise)) if np.any(noise) else math.inf
            worst = mu * gaussian_mu(epsilon, delta) / math.sqrt(steps)
            found.append(math.inf if math.isinf(worst) else gaussian_epsilon(worst, delta))
        rows.append((str(steps), f"{epsilon:g}", *map(_short, found)))
    columns = (
        "T",
        "claimed",
        "printed: y-step without noise",
        "corrected: one noisy gradient for both steps",
    )
    return Demonstration(3, "the exact gradient enters the output", columns, tuple(rows))


def _accelerated(steps: int, noisy_y: bool) -> tuple[float, Floats]:
    """Return shift and noise of y_T = shift * gradient + sum_k noise[k] * b_k, b_k the noise of step k.

    The gradient is constant, x_0 = 0, and step sizes are in units of 1/L', as in the listing.

    Args:
        noisy_y: whether the y-step gets the noisy gradient too.
    """
    # An iterate is (coefficient of the gradient, coefficients of the noises).
    y, z = np.zeros(steps + 1), np.zeros(steps + 1)
    for k in range(steps):
        r, alpha = 2 / (k + 2), (k + 2) / 4
        gradient = np.zeros(steps + 1)
        gradient[0] = 1.0
        noisy = gradient.copy()
        noisy[k + 1] = 1.0
        x = r * z + (1 - r) * y
        y = x - (noisy if noisy_y else gradient)
        z = z - alpha * noisy
    return float(y[0]), y[1:]


def a_scale_that_leaks() -> Demonstration:
    """Show that one outlier multiplies the printed scale without limit, and the smooth one by at most e^t."""
    n, m, epsilon, delta, rows = 1000, 10, 1.0, 1e-5, []
    claimed = zcdp_epsilon(epsilon**2 / 2, delta)
    trimming = Trimming(n, 0.0, 1.0, m, ArsinhNoise.as_printed(epsilon))
    for outlier in (1.0, 1e4, 1e6, 1e9, 1e15):
        first, second = np.zeros(n), np.zeros(n)
        second[-1] = outlier
        found = []
        for one in (printed_scale(trimming), trimming):
            ratio = one.sensitivity(one.ordered(second)) / one.sensitivity(one.ordered(first))
            found += [f"{ratio:.4g}", _short(_scale_epsilon(ratio, delta))]
        rows.append((f"{outlier:g}", _short(claimed), *found))
    columns = (
        "outlier", "claimed", "printed scale grows by", "printed: epsilon at least", "smooth scale grows by",
        "smooth: epsilon at least",
    )  # fmt: skip
    return Demonstration(4, "the scale of the noise leaks", columns, tuple(rows))


def trimmed_mean_claim(outlier: float, epsilon: float = 1.0, delta: float = 1e-3) -> AuditedClaim:
    """Return the claim of ``TrimmedMean`` for two data sets, all zeros and zeros but for one outlier.

    The noise of its plan is scaled by the exact smooth sensitivity, the noise of its mutant by the printed
    scale. Both have t and s as printed in Algorithm 2, for which the paper claims (1/2) epsilon^2-zCDP.
    """
    trimming = Trimming(1000, 0.0, 1.0, 10, ArsinhNoise.as_printed(epsilon))
    claimed = PrivacySpend.approximate(zcdp_epsilon(epsilon**2 / 2, delta), delta, TrimmedMean.name)
    return outlier_claim(TrimmedMean(1, trimming, claimed), outlier)


def _scale_epsilon(ratio: float, delta: float) -> float:
    """Return a lower bound on epsilon between the laws of S sinh(Y) and ratio * S sinh(Y).

    Y is standard normal. The events are |output| > c and |output| <= c, for many c.
    """
    if ratio <= 1:
        return 0.0
    # With c = S sinh(u), |S sinh(Y)| > c iff |Y| > u, and |ratio * S sinh(Y)| > c iff |Y| > v.
    u = np.linspace(1e-3, math.asinh(ratio) + 12, 20_000)
    v = np.arcsinh(np.sinh(u) / ratio)
    above = _log_excess(2 * special.ndtr(-v), 2 * special.ndtr(-u), delta)
    below = _log_excess(special.erf(u / math.sqrt(2)), special.erf(v / math.sqrt(2)), delta)
    return max(above, below)


def _log_excess(likelier: Floats, other: Floats, delta: float) -> float:
    """Return the largest log((p - delta) / q) over events with probabilities p (likelier) and q (other).

    Where q underflows it is replaced by 1e-300, so that the bound stays valid.
    """
    excess = likelier - delta
    positive = excess > 0
    return float(np.max(np.log(excess[positive] / np.maximum(other[positive], 1e-300)), initial=0.0))


def epsilon_for_rho() -> Demonstration:
    """Tabulate the epsilon of all of Algorithm 3, by the composition in its proof: printed and corrected."""
    delta, rows = 1e-5, []
    for epsilon in (0.1, 0.5, 1.0):
        tilde = math.sqrt(-2 * math.log(delta) + 2 * epsilon) - math.sqrt(-2 * math.log(delta))
        found = []
        for total in (epsilon, tilde):
            # Each of d T coordinates is (1/2) total^2 / (d T)-zCDP.
            rho = total**2 / 2
            found += [rho + 2 * math.sqrt(-rho * math.log(delta)), zcdp_epsilon(rho, delta)]
        rows.append((f"{epsilon:g}", *map(_short, found)))
    columns = (
        "claimed", "printed, paper's conversion", "printed, tighter conversion",
        "corrected, paper's conversion", "corrected, tighter conversion",
    )  # fmt: skip
    return Demonstration(5, "epsilon where its zCDP counterpart belongs", columns, tuple(rows))


def a_condition_that_excludes_the_theorem() -> Demonstration:
    """Tabulate, for DP-SVRG, the largest epsilon that the theorem covers and the constant its noise needs.

    The theorem covers epsilon <= c1 T m / n^2, c1 unknown.
    """
    delta, p, rows = 1e-5, 10, []
    for n, condition in [(10_000, 10.0), (100_000, 100.0)]:
        # G = L = 1, mu = 1 / condition, epsilon = 1. With eta = 1 / (48 L) the inequality for m reads
        # 57.6 condition / m + (1 + 1/m) / 5 < 1/2; at eta = 1 / (12 L) no m satisfies it.
        m = math.floor((57.6 * condition + 0.2) / 0.3) + 1
        epochs = math.ceil(math.log(n**2 / (p * -math.log(delta) * condition)))
        steps = epochs * m
        printed = math.sqrt(steps * -math.log(delta)) / n
        # The multiplier is sigma / (2 G): a difference of two gradients of one record has norm <= 2 G.
        needed = 2 * poisson_multiplier(1.0, delta, q=1 / n, steps=steps, coordinates=p * steps)
        row = (f"{n:g}", f"{condition:g}", str(epochs), str(m), "1", f"{steps / n**2:.2g} c1")
        rows.append((*row, f"{printed:.3f} sqrt(c)", f"{needed:.3f}", f"{(needed / printed) ** 2:.0f}"))
    columns = (
        "n", "L / mu", "T", "m", "claimed", "largest epsilon covered", "printed sigma / G",
        "sufficient sigma / G", "sufficient c",
    )  # fmt: skip
    return Demonstration(6, "the theorem's condition excludes its own parameters", columns, tuple(rows))


def a_regulariser_that_is_not_there() -> Demonstration:
    """Tabulate, for DP-GLD on F(w) = (w - 1)^2 / 2, where the printed iteration goes without noise."""
    rows = []
    for strength in (0.1, 1.0, 10.0):
        eta, listing, equation = 0.05, 0.0, 0.0
        for _ in range(2000):
            listing -= eta * (listing - 1)
            equation -= eta * (equation - 1 + strength * equation)
        best = 1 / (1 + strength)

        def excess(w: float, strength: float = strength, best: float = best) -> float:
            return ((w - 1) ** 2 + strength * w**2 - (best - 1) ** 2 - strength * best**2) / 2

        rows.append(
            (f"{strength:g}", f"{best:.4f}", f"{listing:.4f}", f"{equation:.4f}", f"{excess(listing):.4f}")
        )
    columns = (
        "lambda",
        "minimiser of F^r",
        "mean of listing",
        "mean of equation (1)",
        "excess of the listing",
    )
    return Demonstration(7, "the listing minimises another function", columns, tuple(rows))


def advanced_composition() -> Demonstration:
    """Tabulate, for DP-FW-L1, the printed budget of a step and the budget by bounded-range accounting."""
    rows = []
    for steps, epsilon, delta in [(200, 2.0, 1e-3), (200, 0.5, 1e-3), (1000, 1.0, 1e-5)]:
        printed = epsilon / math.sqrt(-8 * steps * math.log(delta))
        allowed = bounded_range_step_epsilon(epsilon, delta, steps)
        spent = zcdp_epsilon(steps * bounded_range_to_zcdp(printed), delta)
        row = (str(steps), f"{delta:g}", f"{epsilon:g}", _short(spent), f"{printed:.5f}", f"{allowed:.5f}")
        rows.append((*row, f"{allowed / printed:.2f}"))
    columns = ("T", "delta", "claimed", "spent at most", "printed step", "allowed step", "noise too large by")
    return Demonstration(8, "several times the noise that is needed", columns, tuple(rows))


def distances_that_one_answer_moves() -> Demonstration:
    """Tabulate by how much the scale of sample-aggregate grows as one of m equal answers moves away."""
    rows = []
    for m, epsilon, delta in [(161, 4.0, 0.05), (401, 4.0, 1e-3), (2001, 1.0, 1e-3)]:
        plan = SampleAggregate.plan(m, 1, subsets=m, radius=1.0, epsilon=epsilon, delta=delta)
        fields = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
        first, second = np.zeros((m, 1)), np.zeros((m, 1))
        second[-1] = 1.0
        moved = []
        for one in (LargestDistances(**fields), plan):
            moved.append(one.centre(second)[1] / one.centre(first)[1])
        allowed = math.exp(epsilon / (4 * (1 + math.log(2 / delta))))
        rows.append((str(m), f"{epsilon:g}", f"{delta:g}", f"{allowed:.3f}", *(f"{r:.4g}" for r in moved)))
    columns = ("m", "epsilon", "delta", "allowed: e^beta", "largest: scale grows by", "smallest: grows by")
    return Demonstration(9, "one answer decides the largest distances", columns, tuple(rows))


def a_sum_of_deviations() -> Demonstration:
    """Tabulate, for OPSamp, how often mean answers on two neighbours differ by more than the printed bound.

    For each draw of the noise the two answers differ in every coordinate or in none.
    """
    rows = []
    for d, gamma, delta in [(10, 0.05, 1e-6), (23, 0.05, 1e-6), (100, 0.05, 1e-6), (23, 0.01, 1e-9)]:
        m = math.ceil(math.log(2 * d / delta) / (2 * gamma**2))
        share = 0.25  # the share of draws whose answers differ
        exceeds = float(stats.binom.sf(math.floor(m * (share + 4 * gamma / d)), m, share))
        needed = d * _excess(m, share, delta)
        row = (str(d), f"{gamma:g}", f"{delta:g}", str(m), f"{4 * gamma:g}", f"{exceeds:.2g}")
        rows.append((*row, f"{needed:.3g}"))
    columns = (
        "d", "gamma", "delta", "m",
        "printed bound: 4 gamma", "probability to exceed it", "Chernoff bound at delta",
    )  # fmt: skip
    return Demonstration(10, "every coordinate, and not their sum", columns, tuple(rows))


def a_variance_without_the_steps() -> Demonstration:
    """Tabulate the epsilon of T steps with full gradients: by the quoted variance, and by T times as much."""
    rows = []
    for steps, epsilon, delta in [(1, 1.0, 1e-3), (200, 0.5, 1e-3), (200, 2.0, 1e-3), (10_000, 1.0, 1e-5)]:
        # sigma in units of G / n; a mean of n gradients moves by 2 G / n.
        quoted = math.sqrt(32 * math.log(1 / delta) * math.log(steps / delta)) / epsilon
        scales = (quoted, math.sqrt(steps) * quoted)
        spent = [gaussian_epsilon(2 * math.sqrt(steps) / sigma, delta) for sigma in scales]
        rows.append((str(steps), f"{delta:g}", f"{epsilon:g}", *(_short(s) for s in spent)))
    columns = ("T", "delta", "claimed", "spent: variance as quoted", "spent: variance times T")
    return Demonstration(11, "a variance without the number of steps", columns, tuple(rows))


def a_sensitivity_of_a_noisy_size() -> Demonstration:
    """Bound the privacy loss of PrivaTree's code on a path of splits that keep two records together.

    Neighbours add a record.
    """
    columns = (
        "levels",
        "claimed",
        "path: largest loss at least",
        "one split: claimed",
        "one split: at least",
    )
    rows = []
    for levels in (3, 6):
        for epsilon in (0.01, 0.03, 0.1, 0.3):
            one, split = together_loss(epsilon / (2 * levels)), epsilon / (2 * levels)
            rows.append((str(levels), f"{epsilon:g}", _short(levels * one), f"{split:.4f}", _short(one)))
    return Demonstration(12, "a sensitivity from a noisy size", columns, tuple(rows))


def together_loss(epsilon: float) -> float:
    """Return the privacy loss of one split that keeps two records of different classes together.

    On one record all k splits have the same score, and each is drawn with probability 1/k. With two
    records, all splits but one have a score that is higher by 1/2. Permute-and-flip takes the split with the
    lower score only if it comes first and is accepted: with probability 1/k times the mean, over the noisy
    size, of the split's probability to be accepted.
    """
    half = epsilon / 2
    z = np.arange(-math.ceil(60 / half), math.ceil(60 / half) + 1)
    chance = np.exp(-half * np.abs(z)) * math.tanh(half / 2)
    n = np.maximum(2 + z, 1)
    sensitivity = 1 - (n / (n + 1)) ** 2 - (1 / (n + 1)) ** 2
    return -math.log(float(np.sum(chance * np.exp(-half * 0.5 / (2 * sensitivity)))))


def a_trim_that_does_not_grow() -> Demonstration:
    """Show that the noise of Algorithm 2 does not fall with n if the number m of trimmed records is constant.

    In units of b - a the noise has a scale of at least e^(-m t) / s, t = epsilon^2 / 16, s = epsilon / 4.
    """
    columns = (
        *("epsilon", "m", "noise at least, any n", "error of the constant (a + b) / 2, at most"),
        *("m for noise 1 / sqrt n, n = 1e4", "m for the same, n = 1e6"),
    )
    rows = []
    for epsilon in (0.1, 1.0):
        for m in (1, 10, 100):
            grown = [
                math.ceil(16 / epsilon**2 * math.log(least_trimming_noise(epsilon, 0) * math.sqrt(n)))
                for n in (1e4, 1e6)
            ]
            least = f"{least_trimming_noise(epsilon, m):.3g}"
            rows.append((f"{epsilon:g}", str(m), least, "0.5", *(f"{k:,}" for k in grown)))
    return Demonstration(13, "a trimmed number that does not grow", columns, tuple(rows))


def least_trimming_noise(epsilon: float, trimmed: int) -> float:
    """Return the least standard deviation of the noise of Algorithm 2 as printed, in units of b - a."""
    sinh = math.sqrt(math.expm1(2.0) / 2)  # the standard deviation of sinh of a standard normal variable
    return math.exp(-trimmed * epsilon**2 / 16) * 4 / epsilon * sinh


def a_scale_that_is_never_zero() -> Demonstration:
    """Tabulate the noise of sample-aggregate where all answers are equal, in units of the ball's radius."""
    columns = ("epsilon", "d", "m", "noise where L(w*) = 0")
    rows = []
    for epsilon, d in ((1.0, 1), (4.0, 1), (4.0, 4)):
        for m in (500, 1000, 2000):
            plan = SampleAggregate.plan(10**6, d, subsets=m, radius=1.0, epsilon=epsilon, delta=1e-6)
            scale = plan.sensitivity(np.zeros((plan.averaged, m)))
            rows.append((f"{epsilon:g}", str(d), f"{m:,}", f"{scale / plan.gamma:.3g}"))
    return Demonstration(14, "a smooth scale that is never 0", columns, tuple(rows))


def a_class_with_one_member() -> Demonstration:
    """Compute, by enumeration, the privacy loss if subsets with equally many mistakes form a class."""
    columns = (
        "n",
        "R(S) moves by at most",
        "largest move of R(S) here",
        "largest move of a class's least R",
        "claimed",
        "uniform in the class: epsilon at least",
        "best of the class: delta at least, any epsilon",
    )
    rows = []
    for n in (104, 400, 1600):
        losses = [subset_losses(*table) for table in tables_whose_optimum_moves(n)]
        scores = [class_scores(own) for own in losses]
        laws = [_gibbs(own) for own in scores]
        moves = [f"{np.max(np.abs(pair[0] - pair[1])):.2f}" for pair in (losses, scores)]
        epsilon = float(np.max(np.abs(np.log(laws[0] / laws[1]))))
        first, second = (drawn_by_class(subset_losses(*t)) for t in tables_whose_runner_up_moves(n))
        delta = float(np.sum(first[second == 0]))
        bound = _subset_bound(2)
        rows.append((f"{n:,}", f"{bound:.2f}", *moves, "1", f"{epsilon:.2f}", f"{delta:.3f}"))
    return Demonstration(15, "a class with one member", columns, tuple(rows))


# Bounds on the norm |b|_2 of the weights, and on |x_j| and |y|: defaults of the code of entries 15 and 16.
_BALL, _CUT = 1.1, 1.0
# Subsets of two of four columns, in order.
PAIRS = tuple(itertools.combinations(range(4), 2))


def _subset_bound(s: int) -> float:
    """Return the largest loss of a record for |S| = s: one record moves R(S) by no more than that."""
    return float((_CUT + _CUT * _BALL * math.sqrt(s)) ** 2)


def tables_whose_optimum_moves(n: int) -> list[tuple[Floats, Floats]]:
    """Return two neighbouring tables of signs; y of record 0 decides whether x1 or x2 is in the best pair.

    x2 copies x1 except in record 0, and y = .45 (x0 + x1), but for record 0 of the second table, where y =
    .45 (x0 + x2). n is a multiple of 8.
    """
    t = np.arange(n)
    x0, x1, x3 = (1.0 - 2.0 * (t >> k & 1) for k in range(3))
    x2 = x1.copy()
    x2[0] = -x1[0]
    y = 0.45 * (x0 + x1)
    other = y.copy()
    other[0] = 0.45 * (x0[0] + x2[0])
    X = np.column_stack([x0, x1, x2, x3])
    return [(X, y), (X, other)]


def tables_whose_runner_up_moves(n: int) -> list[tuple[Floats, Floats]]:
    """Return neighbouring tables of signs, with y = .45 (x0 + x1), whose second best pair differs.

    x2 and x3 copy x1 but for record 1, where both differ, and for record 0, where x3 alone differs on the
    first table, and x2 alone on the second.
    """
    t = np.arange(n)
    x0, x1 = (1.0 - 2.0 * (t >> k & 1) for k in range(2))
    found = []
    for other in (3, 2):
        X = np.column_stack([x0, x1, x1, x1])
        X[1, 2:] *= -1
        X[0, other] *= -1
        found.append((X, 0.45 * (x0 + x1)))
    return found


def subset_losses(X: Floats, y: Floats) -> Floats:
    """Return R(S), the least sum of squares, for every pair S of columns; its weights are inside the ball."""
    found = []
    for pair in PAIRS:
        weights = np.linalg.lstsq(X[:, pair], y, rcond=None)[0]
        assert np.linalg.norm(weights) <= _BALL
        found.append(float(np.sum((y - X[:, pair] @ weights) ** 2)))
    return np.array(found)


def _mistakes(losses: Floats) -> NDArray[np.int64]:
    """Return how many columns of the best pair each pair lacks."""
    best = set(PAIRS[int(np.argmin(losses))])
    return np.array([len(best - set(pair)) for pair in PAIRS])


def class_scores(losses: Floats) -> Floats:
    """Return for each pair the least loss of the pairs with as many mistakes."""
    mistakes = _mistakes(losses)
    return np.array([losses[mistakes == k].min() for k in mistakes])


def _gibbs(losses: Floats) -> Floats:
    """Return the law of the exponential mechanism at epsilon = 1."""
    weights = np.exp(-(losses - losses.min()) / (2 * _subset_bound(2)))
    return np.asarray(weights / math.fsum(weights))


def drawn_by_class(losses: Floats) -> Floats:
    """Return the law of the code: it draws a class by the sum of its weights, and returns its best member."""
    mistakes, law, found = _mistakes(losses), _gibbs(class_scores(losses)), np.zeros(len(PAIRS))
    for k in np.unique(mistakes):
        members = np.flatnonzero(mistakes == k)
        found[members[np.argmin(losses[members])]] = math.fsum(law[members])
    return found


def a_loss_for_all_the_rest() -> Demonstration:
    """Tabulate the probability to draw the informative columns, by exact draws and by the code's draws.

    The code replaces the losses of all subsets but the R best by the largest loss of these R.
    """
    columns = ("p", "s", "n", "R", "exact", "R best")
    rows = []
    for p, n in ((30, 2048), (30, 4096), (100, 4096), (100, 8192), (1000, 4096), (1000, 8192)):
        most = (p - 5) * 5 + 2
        exact, best = found_among_signs(p, 5, n, most)
        rows.append((f"{p:,}", "5", f"{n:,}", f"{most:,}", f"{exact:.3f}", f"{best:.3f}"))
    return Demonstration(16, "one loss for all the rest", columns, tuple(rows))


def found_among_signs(p: int, s: int, n: int, most: int) -> tuple[float, float]:
    """Return the probabilities of the informative columns in exact draws and in the code's, at epsilon = 1.

    The p columns are orthogonal signs (of a Hadamard matrix, say) and y is .2 times the sum of s columns, so
    that a subset that lacks k of these s has R = .04 n k: subsets are counted by k.

    Args:
        most: the number of best subsets to which the code gives their own losses.
    """
    rate = 0.04 * n / (2 * _subset_bound(s))
    counts = [math.comb(s, k) * math.comb(p - s, k) for k in range(s + 1)]
    exact = math.fsum(count * math.exp(-rate * k) for k, count in enumerate(counts))
    left, last, total = most, 0, 0.0
    for k, count in enumerate(counts):
        taken = min(left, count)
        left -= taken
        last = k if taken else last
        total += taken * math.exp(-rate * k)
    rest = (math.comb(p, s) - most) * math.exp(-rate * last)
    return 1 / exact, 1 / (total + rest)


def _excess(m: int, p: float, delta: float) -> float:
    """Return x such that the mean of m coins is p + x or more with probability at most delta.

    Each coin is 1 with probability p, else 0; x follows from Chernoff's bound.
    """

    def rare(excess: float) -> bool:
        v = min(p + excess, 1.0)
        return m * float(special.rel_entr(v, p) + special.rel_entr(1 - v, 1 - p)) >= -math.log(delta)

    return smallest(rare)


DEMONSTRATIONS: Sequence[Callable[[], Demonstration]] = (
    the_winner_depends_on_the_noise,
    squared_rho,
    exact_gradient_in_a_noisy_loop,
    a_scale_that_leaks,
    epsilon_for_rho,
    a_condition_that_excludes_the_theorem,
    a_regulariser_that_is_not_there,
    advanced_composition,
    distances_that_one_answer_moves,
    a_sum_of_deviations,
    a_variance_without_the_steps,
    a_sensitivity_of_a_noisy_size,
    a_trim_that_does_not_grow,
    a_scale_that_is_never_zero,
    a_class_with_one_member,
    a_loss_for_all_the_rest,
)


def _short(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.3f}"


def main() -> None:
    """Print every table as Markdown."""
    for make in DEMONSTRATIONS:
        shown = make()
        print(f"## {shown.number}. {shown.title}\n\n{shown.markdown()}\n")


if __name__ == "__main__":
    typer.run(main)
