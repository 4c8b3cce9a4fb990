"""Calibrations against independent integrals, and against the parity example that refutes the printed one."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special, stats

from privopt.mechanisms.discrete.calibration import (
    SeparatorCounts,
    calibrate_opdisc,
    calibrate_rspm,
    calibrate_rspm_laplace,
    normalized_dof,
    opdisc_shift,
    printed_opdisc_sigma,
    printed_rspm_sigma,
    rspm_delta,
    rspm_sigma,
    separator_counts,
)
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.shifts import shift_delta, sound_sigma
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.objective import UNIT
from privopt.problems.errors import InvalidInputError
from tests.mechanisms.privacy.composition import shift_epsilon

EPSILONS = st.floats(math.log(1e-3), math.log(20)).map(math.exp)
Function = Callable[[float], float]
DELTAS = st.floats(math.log(1e-15), math.log(1e-2)).map(math.exp)


def chi_integral(epsilon: float, sigma: float, shift: float, dof: int) -> float:
    """E[(1 - exp(epsilon - (c sigma chi + c^2/2)/sigma^2))_+] from the density of chi, adaptively."""
    a = shift / sigma
    threshold = max(0.0, (epsilon - a * a / 2) / a)
    log_norm = (dof / 2 - 1) * math.log(2) + special.gammaln(dof / 2)

    def integrand(t: float) -> float:
        log_density = (dof - 1) * math.log(t) - t * t / 2 - log_norm if t > 0 else -math.inf
        return math.exp(log_density) * max(0.0, -math.expm1(epsilon - a * t - a * a / 2))

    end = max(threshold, math.sqrt(dof)) + 14
    middle = math.sqrt(dof)
    cuts = np.unique(np.clip([threshold, middle, threshold + 1, middle + 4, end], threshold, end))
    return sum(
        integrate.quad(integrand, low, high, epsabs=0, epsrel=1e-11, limit=500)[0]
        for low, high in itertools.pairwise(cuts.tolist())
    )


# --- OPDisc ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("d", "sigma", "ratio"),
    [(5, 131.5, 0.855), (10, 293.5, 0.954), (23, 808.3, 1.142), (50, 2183, 1.419), (100, 5491, 1.785)],
)
def test_reference_table(d: int, sigma: float, ratio: float) -> None:
    """n = 15,682, delta = n^-2, G = tau = 1, D = sqrt d: figures computed independently, and re-checked."""
    delta = 15_682.0**-2
    got = calibrate_opdisc(1.0, delta, squared_radius=d, dof=d + 1).scale
    printed = calibrate_opdisc(1.0, delta, squared_radius=d, dof=d + 1, calibration="printed").scale
    assert got == pytest.approx(sigma, rel=5e-3)
    assert got / printed == pytest.approx(ratio, rel=5e-3)
    assert chi_integral(1.0, got, 4.0 * d, d + 1) <= delta < chi_integral(1.0, 0.999 * got, 4.0 * d, d + 1)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 20.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-9, 1e-15])
@pytest.mark.parametrize("dof", [1, 24, 3000])
def test_sound_sigma_is_enough_and_hardly_more(epsilon: float, delta: float, dof: int) -> None:
    sigma = sound_sigma(epsilon, delta, 7.0, dof)
    assert chi_integral(epsilon, sigma, 7.0, dof) <= delta < chi_integral(epsilon, 0.995 * sigma, 7.0, dof)


@settings(max_examples=60, deadline=None)
@given(EPSILONS, DELTAS, st.integers(1, 3000), st.floats(0.1, 1e4))
def test_epsilon_of_calibrated_noise(epsilon: float, delta: float, dof: int, shift: float) -> None:
    sigma = sound_sigma(epsilon, delta, shift, dof)
    assert shift_delta(epsilon, sigma, shift, dof) <= delta
    assert 0.99 * epsilon <= shift_epsilon(delta, sigma, shift, dof) <= epsilon * (1 + 1e-9)


@settings(max_examples=40, deadline=None)
@given(EPSILONS, DELTAS, st.integers(1, 500), st.floats(1.05, 3.0))
def test_noise_is_monotone(epsilon: float, delta: float, d: int, factor: float) -> None:
    def sigma(e: float = epsilon, q: float = delta, n: int = d, slack: float = 0.0) -> float:
        return calibrate_opdisc(e, q, squared_radius=n, dof=n + 1, slack=slack).scale

    base = sigma()
    assert sigma(e=epsilon * factor) < base
    assert sigma(q=delta * factor) < base
    assert sigma(n=d + 1) > base
    assert sigma(slack=0.1) > base


def test_shift_satisfies_the_condition_on_every_pair() -> None:
    """<s_w, pi(w) - pi(v)> >= 2 over all pairs of a small lattice, and equality is almost attained."""
    lattice = IntegerLattice(-2, 2, dimension=3, radius=3.0)
    points = np.concatenate(list(lattice.batches())).astype(float)
    d2 = lattice.max_squared_norm
    pi = np.column_stack([points, np.sqrt(d2 - np.sum(points**2, axis=1))]) / math.sqrt(d2)
    gram = opdisc_shift(d2, lattice.separation) * (1 - pi @ pi.T)
    off_diagonal = gram[~np.eye(len(points), dtype=bool)]
    assert off_diagonal.min() >= 2 - 1e-12
    assert off_diagonal.min() < 2.2


def test_lipschitz_and_bounded_losses_agree_where_they_should() -> None:
    # G = 1 / tau: a loss difference of 2 at distance tau.
    by_bound = calibrate_opdisc(1.0, 1e-6, squared_radius=9, dof=4, separation=2.0)
    by_slope = calibrate_opdisc(1.0, 1e-6, squared_radius=9, dof=4, separation=2.0, loss_difference=2.0)
    assert by_bound.scale == by_slope.scale
    assert opdisc_shift(9, 2.0, 2 * 3.0 * 2.0) == pytest.approx(4 * 3.0 * 9 / 2.0)


def test_fixed_coordinates_do_not_count() -> None:
    assert normalized_dof(IntegerLattice(-1, 1, dimension=4)) == 5
    assert normalized_dof(IntegerLattice(np.array([0, 2, -1]), np.array([1, 2, 1]))) == 3


# --- the parity example ----------------------------------------------------------------------------------
#
# W = {-1, 1}^d, one record, loss = 1 on one parity of w and 0 on the other; the neighbour has the losses
# swapped. tau = 2, D^2 = d, and all |w| are equal, so pi(w) = w / sqrt d has d dimensions. The winner is
# sign(eta) if its parity is good; else the cheapest flip, 2 min|eta_j| / sqrt d, is taken when it costs < 1.


def parity_epsilon(flip_threshold: float, d: int, delta: float) -> float:
    """True epsilon from the event "bad parity": P = p on D, 1 - p on D'. threshold is min|eta|/sigma."""
    p = 0.5 * special.erfc(flip_threshold / math.sqrt(2)) ** d
    return math.log((1 - p - delta) / p)


def opdisc_on_parity(epsilon: float, delta: float, d: int, calibration: str) -> float:
    sigma = calibrate_opdisc(
        epsilon, delta, squared_radius=d, dof=d, separation=2.0, calibration=calibration
    ).scale
    return parity_epsilon(math.sqrt(d) / (2 * sigma), d, delta)


@pytest.mark.parametrize(
    ("claimed", "delta", "d", "true"),
    [
        (1, 1e-6, 50, 0.738),
        (1, 1e-6, 100, 0.993),
        (1, 1e-6, 200, 1.327),
        (1, 1e-6, 1000, 2.560),
        (4, 1e-6, 50, 2.37),
        (4, 1e-6, 1000, 8.48),
        (1, 1e-2, 50, 1.169),
    ],
)
def test_printed_opdisc_is_refuted_in_closed_form(claimed: float, delta: float, d: int, true: float) -> None:
    assert opdisc_on_parity(claimed, delta, d, "printed") == pytest.approx(true, abs=6e-3)
    assert opdisc_on_parity(claimed, delta, d, "sound") <= claimed


def test_published_code_halves_the_printed_noise() -> None:
    sigma = printed_opdisc_sigma(1, 1e-6, lipschitz=0.5, squared_radius=50, separation=2) / 2
    assert parity_epsilon(math.sqrt(50) / (2 * sigma), 50, 1e-6) == pytest.approx(1.334, abs=2e-3)


@settings(max_examples=25, deadline=None)
@given(EPSILONS, DELTAS, st.integers(1, 300))
def test_sound_calibrations_survive_parity(epsilon: float, delta: float, d: int) -> None:
    assert opdisc_on_parity(epsilon, delta, d, "sound") <= epsilon
    # RSPM on {0, 1}^d with one separator per coordinate: a flip costs |eta_j|.
    assert parity_epsilon(1 / rspm_sigma(epsilon, delta, SeparatorCounts(d, 0)), d, delta) <= epsilon


def test_printed_rspm_is_refuted_in_closed_form() -> None:
    """The same example: 7 sqrt(m ln(1/delta)) / epsilon gives epsilon >= 1.44 for a claimed 1 at m = 1000."""
    assert parity_epsilon(1 / printed_rspm_sigma(1, 1e-6, 1000), 1000, 1e-6) > 1.4


def run_parity(sigma: float, d: int, runs: int, source: NoiseSource) -> np.ndarray:
    """Whether OPDisc returns the bad parity, by running it: the argmin over a flip of every coordinate."""
    bad = np.empty(runs, dtype=bool)
    for start in range(0, runs, 1000):
        eta = source.gaussian(sigma, (min(1000, runs - start), d))
        favoured_is_bad = np.count_nonzero(eta < 0, axis=1) % 2 == 1
        flip_is_dearer = 2 * np.min(np.abs(eta), axis=1) / math.sqrt(d) >= 1
        bad[start : start + len(eta)] = favoured_is_bad & flip_is_dearer
    return bad


def audited_epsilon(sigma: float, d: int, delta: float, runs: int) -> float:
    """A lower bound on the true epsilon from independent runs on D and D', each bound at level 1e-4."""
    bad_on_d = int(run_parity(sigma, d, runs, NoiseSource(insecure_seed=1)).sum())
    good_on_other = int((~run_parity(sigma, d, runs, NoiseSource(insecure_seed=2))).sum())
    upper = stats.beta.isf(1e-4, bad_on_d + 1, runs - bad_on_d)
    lower = stats.beta.ppf(1e-4, good_on_other, runs - good_on_other + 1)
    return math.log((lower - delta) / upper)


def test_simulation_catches_the_printed_calibration_and_passes_the_sound_one() -> None:
    d, delta, runs = 200, 1e-6, 12_000
    arguments = {"squared_radius": d, "dof": d, "separation": 2.0}
    printed = calibrate_opdisc(1.0, delta, **arguments, calibration="printed")
    sound = calibrate_opdisc(1.0, delta, **arguments)
    assert audited_epsilon(printed.scale, d, delta, runs) > 1.1
    assert audited_epsilon(sound.scale, d, delta, runs) < 1.0
    assert audited_epsilon(0.4 * sound.scale, d, delta, runs) > 1.0


def test_printed_results_say_that_they_are_refuted() -> None:
    opdisc = calibrate_opdisc(1.0, 1e-6, squared_radius=4, dof=5, calibration="printed").spend
    rspm = calibrate_rspm(1.0, 1e-6, SeparatorCounts(0, 4), calibration="printed").spend
    for spend in (opdisc, rspm):
        assert spend.claim == "printed: refuted"
        assert "Neel" in spend.note
        assert not spend.guaranteed
    assert calibrate_opdisc(1.0, 1e-6, squared_radius=4, dof=5).spend.guaranteed


# --- Gaussian RSPM ---------------------------------------------------------------------------------------


def one_ternary_integral(epsilon: float, sigma: float) -> float:
    """E[(1 - exp(epsilon - Z))_+] for one ternary coordinate, from the plane normal density."""
    a = 2 / sigma
    x = (np.arange(1600) + 0.5) / 1600 * 20 - 10
    x1, x2 = x[:, None], x[None, :]
    z = np.maximum(np.maximum(-a * x1, -a * x2) + a * a / 2, a * (x1 + x2) + a * a)
    density = np.exp(-(x1**2 + x2**2) / 2) / (2 * math.pi) * (20 / 1600) ** 2
    return float(np.sum(density * np.maximum(0.0, -np.expm1(epsilon - z))))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-2), (1.0, 1e-6), (5.0, 1e-9)])
def test_one_ternary_coordinate(epsilon: float, delta: float) -> None:
    sigma = rspm_sigma(epsilon, delta, SeparatorCounts(0, 1))
    assert one_ternary_integral(epsilon, sigma) <= delta < one_ternary_integral(epsilon, 0.99 * sigma)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-2), (1.0, 1e-6), (5.0, 1e-9)])
def test_one_binary_coordinate_agrees_with_chi(epsilon: float, delta: float) -> None:
    # One separator: |eta| is sigma chi(1) and the shift is 2, so the general formula is the same law.
    sigma = rspm_sigma(epsilon, delta, SeparatorCounts(1, 0))
    assert chi_integral(epsilon, sigma, 2.0, 1) <= delta < chi_integral(epsilon, 0.99 * sigma, 2.0, 1)


@pytest.mark.parametrize(("binary", "ternary"), [(4, 0), (0, 23), (10, 20), (0, 200)])
def test_many_coordinates_by_simulation(binary: int, ternary: int) -> None:
    """E[(1 - exp(epsilon - Z))_+] by sampling the worst shift itself, at a delta that sampling can see."""
    sigma = rspm_sigma(0.5, 0.02, SeparatorCounts(binary, ternary))
    a, runs, rng = 2 / sigma, 100_000, np.random.default_rng(8)
    z = np.zeros(runs)
    for _ in range(binary):
        z += a * np.abs(rng.standard_normal(runs)) + a * a / 2
    for _ in range(ternary):
        x1, x2 = rng.standard_normal((2, runs))
        z += np.maximum(np.maximum(-a * x1, -a * x2) + a * a / 2, a * (x1 + x2) + a * a)
    gain = np.maximum(0.0, -np.expm1(0.5 - z))
    error = 4 * gain.std() / math.sqrt(runs)
    assert gain.mean() - error <= 0.02 < 1.06 * (gain.mean() + error)


def test_two_binary_coordinates_far_in_the_tail() -> None:
    """|x1| + |x2| has the density 4 phi(t / sqrt 2) / sqrt 2 erf(t / 2): a one-dimensional integral."""
    epsilon, delta = 1.0, 1e-13
    sigma = rspm_sigma(epsilon, delta, SeparatorCounts(2, 0))

    def exact(s: float) -> float:
        a = 2 / s
        start = (epsilon - a * a) / a

        def integrand(t: float) -> float:
            density = 4 * stats.norm.pdf(t / math.sqrt(2)) / math.sqrt(2) * math.erf(t / 2)
            return float(density * -math.expm1(a * (start - t)))

        return float(integrate.quad(integrand, start, start + 10, epsabs=0, epsrel=1e-10)[0])

    assert exact(sigma) <= delta < exact(0.99 * sigma)


@settings(max_examples=10, deadline=None)
@given(EPSILONS, DELTAS, st.integers(0, 60), st.integers(1, 60))
def test_rspm_noise_is_sound_monotone_and_below_the_general_bound(
    epsilon: float, delta: float, binary: int, ternary: int
) -> None:
    sigma = rspm_sigma(epsilon, delta, SeparatorCounts(binary, ternary))
    assert rspm_delta(epsilon, sigma, SeparatorCounts(binary, ternary)) <= delta
    assert sigma < rspm_sigma(epsilon, delta, SeparatorCounts(binary + 2, ternary))
    assert sigma < rspm_sigma(epsilon, delta, SeparatorCounts(binary + 2, ternary - 1)) * 1.001
    m = binary + 2 * ternary
    assert sigma < 1.01 * sound_sigma(epsilon, delta, 2 * math.sqrt(m), m)


def test_ternary_shifts_satisfy_the_condition() -> None:
    patterns = {1: (0, 1), -1: (1, 0), 0: (1, 1)}
    shifts = {1: (-2, 0), -1: (0, -2), 0: (2, 2)}
    for w, v in itertools.permutations(patterns, 2):
        assert np.subtract(patterns[w], patterns[v]) @ np.array(shifts[w]) >= 2


def test_counts_of_halfspace_separators() -> None:
    def counts(low: list[int], high: list[int]) -> SeparatorCounts:
        return separator_counts(ZeroOneHalfspace.separators(IntegerLattice(np.array(low), np.array(high))))

    assert counts([-1, -1, -1], [1, 1, 1]) == (0, 3, {})
    assert counts([0, -1, -1, 1], [1, 1, 0, 1]) == (2, 1, {})
    threshold = counts([-3, -1, 0, 0, -2], [3, 1, 1, 0, -2])
    assert threshold == (1, 1, {6: 1})
    assert (threshold.separators, threshold.shifted) == (9, 5)


def threshold_lattice(bound: int, dimension: int) -> IntegerLattice:
    """Weights from -bound to bound, and the weight -3 of a constant feature."""
    return IntegerLattice(np.array([-bound] * dimension + [-3]), np.array([bound] * dimension + [-3]))


def test_separators_of_threshold_functions_are_records_with_these_losses() -> None:
    lattice = threshold_lattice(2, 2)
    separators = ZeroOneHalfspace.separators(lattice)
    assert separators.size == 8
    points = np.concatenate(list(lattice.batches()))
    alone = [
        ZeroOneHalfspace(x[None], [y], lattice)
        for x, y in zip(separators.records, separators.labels, strict=True)
    ]
    losses = np.stack([problem.losses(points) for problem in alone], axis=1)
    assert np.array_equal(losses, [separators.losses(w) for w in points])
    assert len(np.unique(losses, axis=0)) == len(points)
    with pytest.raises(InvalidInputError, match="a threshold function"):
        ZeroOneHalfspace.separators(IntegerLattice(-2, 2, dimension=2))


def ordered_shift(phi: np.ndarray, cuts: int) -> np.ndarray:
    """The shift of a threshold function with losses phi: 2 on a coordinate's last 1, -2 on its first 0."""
    shift = np.zeros(len(phi))
    for start in range(0, len(phi), cuts):
        zeros = np.count_nonzero(phi[start : start + cuts] == 0)  # the losses of w_j are 0, .., 0, 1, .., 1
        if zeros:
            shift[start + zeros - 1] = -2
        if zeros < cuts:
            shift[start + zeros] = 2
    return shift


def test_ordered_shifts_satisfy_the_condition_and_move_what_is_counted() -> None:
    lattice = threshold_lattice(2, 2)
    separators = ZeroOneHalfspace.separators(lattice)
    losses = [separators.losses(w) for w in np.concatenate(list(lattice.batches()))]
    for one, other in itertools.permutations(losses, 2):
        assert ordered_shift(one, 4) @ (one - other) >= 2
    most = max(np.abs(ordered_shift(phi, 4)).sum() for phi in losses)
    assert most == 2 * separator_counts(separators).shifted == 8  # |s|_1, which Laplace noise pays for


def test_ordered_coordinates_by_simulation() -> None:
    """E[(1 - exp(epsilon - Z))_+] by sampling the worst shift, in 3 coordinates of 5 separators."""
    epsilon, cuts, coordinates = 0.5, 5, 3
    patterns = np.array([[0] * z + [1] * (cuts - z) for z in range(cuts + 1)])
    shifts = np.array([ordered_shift(phi, cuts) for phi in patterns])
    sigma = rspm_sigma(epsilon, 0.02, SeparatorCounts(0, 0, {cuts: coordinates}))
    rng, z = np.random.default_rng(3), np.zeros(50_000)
    for _ in range(coordinates):
        eta = sigma * rng.standard_normal((len(z), cuts))
        z += np.max((eta @ shifts.T + np.sum(shifts**2, axis=1) / 2) / sigma**2, axis=1)
    delta = float(np.mean(np.maximum(0, -np.expm1(epsilon - z))))
    assert 0.004 < delta < 0.02


def test_gaussian_rspm_on_parity_of_threshold_functions_by_simulation() -> None:
    """{-2, .., 2}^3 with a threshold, loss = parity of the sum against its complement, run as argmins."""
    epsilon, delta, runs = 1.0, 0.01, 60_000
    lattice = threshold_lattice(2, 3)
    separators, points = ZeroOneHalfspace.separators(lattice), np.concatenate(list(lattice.batches()))
    phi = np.array([separators.losses(w) for w in points], dtype=np.float64)
    parity = points[:, :3].sum(axis=1) % 2
    sigma = rspm_sigma(epsilon, delta, separator_counts(separators))

    def frequencies(loss: np.ndarray, scale: float, seed: int) -> np.ndarray:
        eta = NoiseSource(insecure_seed=seed).gaussian(scale * sigma, (runs, separators.size))
        return np.bincount(np.argmin(loss + eta @ phi.T, axis=1), minlength=len(points)) / runs

    def audited_delta(scale: float) -> float:
        p, other = frequencies(parity, scale, 1), frequencies(1 - parity, scale, 2)
        return float(np.maximum(0, p - math.exp(epsilon) * other).sum())

    assert audited_delta(1.0) <= delta
    assert audited_delta(0.2) > 2 * delta


def test_gaussian_rspm_on_ternary_parity_by_simulation() -> None:
    """All of {-1, 0, 1}^4, loss = parity of the support against its complement, run as argmins."""
    epsilon, delta, runs = 1.0, 0.01, 100_000
    points = np.array(list(itertools.product((-1, 0, 1), repeat=4)))
    phi = np.concatenate([points <= 0, points >= 0], axis=1).astype(np.float64)
    parity = np.count_nonzero(points, axis=1) % 2
    sigma = rspm_sigma(epsilon, delta, SeparatorCounts(0, 4))

    def frequencies(loss: np.ndarray, scale: float, seed: int) -> np.ndarray:
        eta = NoiseSource(insecure_seed=seed).gaussian(scale * sigma, (runs, 8))
        return np.bincount(np.argmin(loss + eta @ phi.T, axis=1), minlength=len(points)) / runs

    def audited_delta(scale: float) -> float:
        p, other = frequencies(parity, scale, 1), frequencies(1 - parity, scale, 2)
        return float(np.maximum(0, p - math.exp(epsilon) * other).sum())

    assert audited_delta(1.0) <= delta
    assert audited_delta(0.4) > 2 * delta


# --- RSPM on one weight, exactly -------------------------------------------------------------------------


def ternary_law(losses: tuple[int, ...], cdf: Function, pdf: Function) -> np.ndarray:
    """P[w = -1, 0, 1] of RSPM on {-1, 0, 1}: argmin of l_-1 + eta_1, l_0 + eta_1 + eta_2, l_1 + eta_2."""
    minus, zero, plus = losses
    both = cdf(plus - zero) * cdf(minus - zero)
    kinks = sorted({0.0, float(plus - zero), float(plus - minus), -80.0, 80.0})
    one = sum(
        integrate.quad(lambda t: pdf(t) * cdf(t + minus - plus), a, b, epsrel=1e-10, limit=200)[0]
        for a, b in itertools.pairwise(k for k in kinks if k >= plus - zero)
    )
    return np.array([1 - both - one, both, one])


def worst_delta(epsilon: float, cdf: Function, pdf: Function) -> float:
    """The largest sum of (P - exp(epsilon) P')_+ over all neighbours on two base tables of losses."""
    worst = 0.0
    for base in ((0, 0, 0), (0, 2, 0)):
        laws = {
            record: ternary_law(tuple(np.add(base, record).tolist()), cdf, pdf)
            for record in itertools.product((0, 1), repeat=3)
        }
        for p, q in itertools.permutations(laws.values(), 2):
            worst = max(worst, float(np.maximum(0, p - math.exp(epsilon) * q).sum()))
    return worst


def test_laplace_rspm_is_pure_and_tight_on_one_weight() -> None:
    epsilon = 1.0
    plan = calibrate_rspm_laplace(epsilon, SeparatorCounts(2, 0))
    assert plan.scale == pytest.approx(4 / epsilon, rel=1e-5)
    # Weights drawn as doubles may be a grid step off, twice, on both separators of a coordinate.
    assert plan.scale * epsilon / 4 * 2 >= 2 + 4 / UNIT
    assert plan.spend.delta == 0

    def worst(scale: float) -> float:
        law = stats.laplace(scale=scale)
        return worst_delta(epsilon, lambda t: float(law.cdf(t)), lambda t: float(law.pdf(t)))

    assert worst(plan.scale) <= 1e-8
    assert worst(0.5 * plan.scale) > 0.01


def test_gaussian_rspm_on_one_weight() -> None:
    epsilon, delta = 0.5, 1e-3
    sigma = calibrate_rspm(epsilon, delta, SeparatorCounts(0, 1)).scale

    def worst(s: float) -> float:
        law = stats.norm(scale=s)
        return worst_delta(epsilon, lambda t: float(law.cdf(t)), lambda t: float(law.pdf(t)))

    assert worst(sigma) <= delta
    assert worst(0.5 * sigma) > delta


# --- refusals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf, "1", None, True])
def test_bad_epsilon(epsilon: float) -> None:
    for call in (
        lambda: calibrate_opdisc(epsilon, 1e-6, squared_radius=4, dof=5),
        lambda: calibrate_opdisc(epsilon, 1e-6, squared_radius=4, dof=5, calibration="printed"),
        lambda: calibrate_rspm(epsilon, 1e-6, SeparatorCounts(0, 4)),
        lambda: calibrate_rspm_laplace(epsilon, SeparatorCounts(4, 0)),
    ):
        with pytest.raises(PrivacyParameterError, match="epsilon"):
            call()


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, 2.0, math.nan])
def test_bad_delta(delta: float) -> None:
    for calibration in ("sound", "printed"):
        with pytest.raises(PrivacyParameterError, match="delta"):
            calibrate_opdisc(1.0, delta, squared_radius=4, dof=5, calibration=calibration)
        with pytest.raises(PrivacyParameterError, match="delta"):
            calibrate_rspm(1.0, delta, SeparatorCounts(0, 4), calibration=calibration)


def test_other_bad_arguments() -> None:
    for arguments in ({"squared_radius": 0.0, "dof": 5}, {"squared_radius": 4.0, "dof": 0}):
        with pytest.raises(PrivacyParameterError):
            calibrate_opdisc(1.0, 1e-6, **arguments)
    with pytest.raises(PrivacyParameterError, match="calibration"):
        calibrate_opdisc(1.0, 1e-6, squared_radius=4, dof=5, calibration="published")
    for binary, ternary in ((0, 0), (-1, 3)):
        with pytest.raises(PrivacyParameterError):
            calibrate_rspm(1.0, 1e-6, SeparatorCounts(binary, ternary))
    with pytest.raises(PrivacyParameterError, match="separators"):
        calibrate_rspm_laplace(1.0, SeparatorCounts(0, 0))


def test_noise_on_separators_for_epsilons_beyond_what_is_computed() -> None:
    with pytest.raises(PrivacyParameterError, match="too small: at least 1e-12"):
        rspm_sigma(1e-300, 1e-6, SeparatorCounts(1, 0))
    huge = rspm_sigma(1e300, 1e-6, SeparatorCounts(1, 0))  # found at once, and more noise than is needed
    assert rspm_delta(50.0, huge, SeparatorCounts(1, 0)) > 1e-6
    assert 0 < huge < rspm_sigma(10.0, 1e-6, SeparatorCounts(1, 0))


def test_the_delta_of_weights_with_hardly_any_noise_is_no_more_than_one() -> None:
    """A sum of tails, rounded up, exceeds 1 there."""
    for sigma in (0.2, 0.1, 0.02):
        assert 0.999 < rspm_delta(1e-3, sigma, SeparatorCounts(3, 1)) <= 1.0
