"""Private means of unbounded records: error bounds, sensitivities against brute force, noise against its
claim."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.heavy_tails import arsinh_noise, grid
from privopt.mechanisms.heavy_tails.arsinh_noise import ArsinhNoise, lipschitz
from privopt.mechanisms.heavy_tails.robust_mean import RobustMean
from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean
from privopt.mechanisms.heavy_tails.trimming import Trimming, smooth_sensitivity
from privopt.mechanisms.heavy_tails.truncation import SoftTruncation
from privopt.mechanisms.privacy.accounting import gaussian_epsilon, zcdp_rho
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.problems import InvalidInputError
from privopt.problems.convex.truncation import INFLUENCE
from privopt.problems.errors import InvalidTypeError

# ---------------------------------------------------------------- robust means


@pytest.mark.parametrize("source", [0, np.random.default_rng(0)])
def test_randomness_comes_from_noise_sources_alone(source: object) -> None:
    means = (
        RobustMean.plan(10, 2, moment=1.0, epsilon=1.0, delta=1e-3),
        TrimmedMean.plan(10, 2, mean_range=(0.0, 1.0), epsilon=1.0, delta=1e-3),
    )
    for plan in means:
        with pytest.raises(InvalidTypeError, match="must be a NoiseSource"):
            plan.release(np.zeros((10, 2)), source)  # type: ignore[arg-type]


def test_robust_means_spend_their_claim() -> None:
    for n, d, epsilon, delta in [(100, 1, 0.3, 1e-3), (10**6, 40, 2.0, 1e-9)]:
        plan = RobustMean.plan(n, d, moment=2.0, epsilon=epsilon, delta=delta)
        sensitivity = 2 * INFLUENCE * plan.truncation.scale * math.sqrt(d) / n
        spent = gaussian_epsilon(sensitivity / plan.vector_noise.sigma, delta)
        assert 0.999 * epsilon <= spent <= epsilon * (1 + 1e-9)


def test_noise_is_less_than_printed_at_the_printed_scale() -> None:
    """sigma^2 = 8 v d T / (9 log(1/failure) n rho), for rho + 2 sqrt(rho log(1/delta)) = epsilon, T = 1."""
    n, d, v, failure, epsilon, delta = 10_000, 5, 3.0, 0.01, 1.0, 1e-5
    root = math.sqrt(-math.log(delta))
    rho = (math.sqrt(root**2 + epsilon) - root) ** 2
    printed = math.sqrt(8 * v * d / (9 * -math.log(failure) * n * rho))
    soft = SoftTruncation.as_printed(n, v, failure)
    plan = RobustMean.plan(n, d, moment=v, epsilon=epsilon, delta=delta, truncation=soft)
    assert 0.6 * printed < plan.vector_noise.sigma < printed


def test_deviation_and_the_balanced_scale_are_those_of_the_proof() -> None:
    """(1 + 1/beta) v / (2 s) + s log(2/p) / n at probability p; with noise in proportion, the least sum."""
    n, v, failure = 500, 3.0, 0.05
    soft = SoftTruncation(4.0, 2.0)
    assert soft.deviation(n, v, failure) == pytest.approx(1.5 * 3 / 8 + 4 * math.log(40) / 500)
    for noise in (1e-4, 1e-2, 1.0):
        found = SoftTruncation.balanced(n, v, failure, noise)

        def error(scale: float, noise: float = noise, beta: float = found.beta) -> float:
            return SoftTruncation(scale, beta).deviation(n, v, 2 * failure) + noise * scale

        assert error(found.scale) <= min(error(found.scale * 0.999), error(found.scale * 1.001))
    for bad in (0.0, 0.5, math.nan):
        with pytest.raises(PrivacyParameterError, match="failure"):
            soft.deviation(n, v, 2 * bad)


def test_a_mean_is_truncated_where_its_own_noise_says() -> None:
    for failure in (0.01, 0.2):
        plan = RobustMean.plan(2000, 10, moment=3.0, epsilon=0.5, delta=1e-5, failure=failure)
        noise = -float(special.ndtri(failure / 4)) * plan.vector_noise.sigma / plan.truncation.scale
        best = SoftTruncation.balanced(2000, 3.0, failure, noise)
        assert plan.truncation.scale == pytest.approx(best.scale, rel=1e-6)


def test_the_balanced_scale_beats_the_printed_one_where_noise_dominates() -> None:
    n, v, failure = 2000, 1.0, 0.05
    for epsilon in (0.1, 1.0):
        balanced = RobustMean.plan(n, 10, moment=v, epsilon=epsilon, delta=1e-5, failure=failure)
        printed = RobustMean.plan(
            n,
            10,
            moment=v,
            epsilon=epsilon,
            delta=1e-5,
            truncation=SoftTruncation.as_printed(n, v, failure),
        )
        assert balanced.truncation.scale < printed.truncation.scale
        assert balanced.error_bound(failure) < 0.7 * printed.error_bound(failure)


# Laws with their means and second moments; every one has infinite fourth moments.
LAWS = {
    "pareto": (lambda rng, n: rng.pareto(2.5, n) + 1, 2.5 / 1.5, 2.5 / 0.5),
    "log-normal": (
        lambda rng, n: rng.lognormal(0.0, 1.0, n),
        math.exp(0.5),
        math.exp(2.0),
    ),
    "t": (lambda rng, n: 1 + rng.standard_t(2.5, n), 1.0, 1 + 2.5 / 0.5),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("failure", [0.05, 0.3])
def test_the_error_bound_holds_with_its_probability(law: str, failure: float) -> None:
    """Of 400 runs at most 400 f + 4 sqrt(400 f) miss the bound; the bound is hardly ever so tight."""
    draw, mean, moment = LAWS[law]
    rng, noise = np.random.default_rng(0), NoiseSource(insecure_seed=0)
    plan = RobustMean.plan(1000, 1, moment=moment, epsilon=1.0, delta=1e-5, failure=failure)
    bound = plan.error_bound(failure)
    errors = [abs(plan.release(draw(rng, 1000)[:, None], noise).point[0] - mean) for _ in range(400)]
    assert np.count_nonzero(np.array(errors) > bound) <= 400 * failure + 4 * math.sqrt(400 * failure)
    assert bound < 5 * math.sqrt(moment)  # it says something


def test_the_error_bound_gives_half_of_its_failure_to_the_records_and_half_to_the_noise() -> None:
    plan = RobustMean.plan(1000, 3, moment=2.0, epsilon=1.0, delta=1e-5)
    records = plan.truncation.deviation(1000, 2.0, 0.05)
    noise = special.ndtri(1 - 0.05 / 2) * plan.vector_noise.sigma  # two-sided
    assert plan.error_bound(0.1) == pytest.approx(records + noise, rel=1e-12)


def test_means_refuse_what_they_were_not_planned_for() -> None:
    plan = RobustMean.plan(10, 2, moment=1.0, epsilon=1.0, delta=1e-3)
    with pytest.raises(PlanMismatchError, match="10 records of 2 numbers"):
        plan.release(np.zeros((10, 3)))
    with pytest.raises(InvalidInputError, match="finite"):
        plan.release(np.full((10, 2), math.nan))
    trimmed = TrimmedMean.plan(10, 2, mean_range=(0.0, 1.0), epsilon=1.0, delta=1e-3)
    with pytest.raises(PlanMismatchError, match="10 records of 2 numbers"):
        trimmed.release(np.zeros((9, 2)))
    for wrong in ({"moment": 0.0}, {"moment": math.nan}, {"moment": 1.0, "failure": 0.7}):
        with pytest.raises(PrivacyParameterError):
            RobustMean.plan(10, 1, epsilon=1.0, delta=1e-3, **wrong)  # type: ignore[arg-type]
    with pytest.raises(PrivacyParameterError, match="low < high"):
        TrimmedMean.plan(10, 2, mean_range=(1.0, 1.0), epsilon=1.0, delta=1e-3)
    with pytest.raises(PrivacyParameterError, match="trimmed"):
        TrimmedMean.plan(10, 2, mean_range=(0.0, 1.0), epsilon=1.0, delta=1e-3, trimmed=5)
    with pytest.raises(PrivacyParameterError, match="fewer steps"):
        Trimming.plan(10, 0.0, 1.0, epsilon=0.01, delta=1e-3, releases=10_000)


# ---------------------------------------------------------------- smooth sensitivity


def clamped(x: np.ndarray, m: int, width: float) -> float:
    return float(np.clip(np.mean(np.sort(x)[m : x.size - m]), 0.0, width))


def brute_sensitivity(x: np.ndarray, m: int, t: float, width: float) -> float:
    """max over data sets at distance k of e^(-kt) times what one more change does, changes anywhere.

    A change that helps goes to -infinity or +infinity, or to a record's own value: those are tried.
    """
    n, far, best = x.size, 1e9, 0.0
    for k in range(n):
        for chosen in itertools.combinations(range(n), k):
            for values in itertools.product((-far, far), repeat=k):
                moved = x.copy()
                moved[list(chosen)] = values
                here = clamped(moved, m, math.inf)
                low = high = here
                for i in range(n):
                    for end in (-far, far):
                        once = moved.copy()
                        once[i] = end
                        found = clamped_free(once, m)
                        low, high = min(low, found), max(high, found)
                # The range [0, width] may lie anywhere: the worst clamped change over its positions.
                largest = max(high - clamped_free(moved, m), clamped_free(moved, m) - low)
                best = max(best, math.exp(-k * t) * min(width, largest))
    return best


def clamped_free(x: np.ndarray, m: int) -> float:
    return float(np.mean(np.sort(x)[m : x.size - m]))


@pytest.mark.parametrize(("n", "m"), [(3, 1), (5, 1), (5, 2), (6, 2)])
def test_smooth_sensitivity_is_that_of_brute_force(n: int, m: int) -> None:
    rng = np.random.default_rng(n + m)
    for t, width in [(0.05, 3.0), (0.7, 10.0)]:
        for x in (rng.standard_normal(n), rng.integers(0, 3, n).astype(float)):
            exact = smooth_sensitivity(np.sort(x), m, t, width)
            assert exact == pytest.approx(brute_sensitivity(x, m, t, width), rel=1e-12)


def all_pairs(x: np.ndarray, m: int, t: float, width: float) -> float:
    """The maximum over pairs of order statistics, one by one."""
    n, best = x.size, math.exp(-m * t) * width
    for k in range(m):
        for left in range(k + 2):
            spread = (x[n - m + k - left] - x[m - left]) / (n - 2 * m)
            best = max(best, math.exp(-k * t) * min(width, float(spread)))
    return best


def test_halving_finds_what_all_pairs_find() -> None:
    rng = np.random.default_rng(7)
    for _ in range(300):
        n = int(rng.integers(3, 60))
        m = int(rng.integers(1, (n - 1) // 2 + 1))
        kinds = [rng.standard_t(1, n), rng.integers(-2, 3, n), rng.pareto(0.5, n), np.zeros(n)]
        x = np.sort(np.asarray(kinds[int(rng.integers(4))], dtype=float))
        t, width = float(rng.choice([1e-4, 0.05, 1.0])), float(rng.choice([0.1, 2.0, 1e6]))
        assert smooth_sensitivity(x, m, t, width) == pytest.approx(all_pairs(x, m, t, width), rel=1e-12)


def test_no_neighbour_sees_more_than_the_smooth_sensitivity_allows() -> None:
    """An adversary replaces one record by anything, again and again, to break shift or smoothness."""
    rng = np.random.default_rng(3)
    plan = Trimming.plan(40, 0.0, 1.0, epsilon=1.0, delta=1e-3, releases=1, trimmed=6)
    t = plan.noise.t
    for start in (rng.random(40), np.zeros(40), rng.standard_t(1, 40)):
        x, steps = start.copy(), []
        for _ in range(400):
            y = x.copy()
            ends = [-1e99, 1e99, 0.0, 0.5, 1.0, float(rng.choice(x)), float(rng.standard_t(1))]
            y[rng.integers(40)] = ends[int(rng.integers(len(ends)))]
            one, two = plan.ordered(x), plan.ordered(y)
            s, other = plan.sensitivity(one), plan.sensitivity(two)
            steps.append(abs(math.log(s / other)))
            assert steps[-1] <= t * (1 + 1e-9)
            assert abs(plan.centre(one) - plan.centre(two)) <= min(s, other)
            if rng.random() < 0.5 or other > s:
                x = y
        assert max(steps) > 0.3 * t  # the search does move it


# ---------------------------------------------------------------- arsinh-normal noise


def renyi(noise: ArsinhNoise, stretch: float, shift: float, order: float) -> float:
    """Renyi divergence of sinh(Y) and e^stretch sinh(Y) + shift by quadrature over y."""
    y = np.linspace(-30, 30, 60_001)
    v = (np.sinh(y) - shift) * math.exp(-stretch)
    other = np.arcsinh(v)
    loss = (other**2 - y**2) / 2 + stretch + np.log(np.sqrt(1 + v**2) / np.cosh(y))
    exponent = (order - 1) * loss - y**2 / 2
    top = np.max(exponent)
    total = np.sum(np.exp(exponent - top)) * (y[1] - y[0]) / math.sqrt(2 * math.pi)
    return float(top + np.log(total)) / (order - 1)


@pytest.mark.parametrize("rho", [0.5, 0.02, 1e-4])
def test_renyi_divergences_stay_below_the_claim(rho: float) -> None:
    for noise in (
        ArsinhNoise.within(rho, enough=math.inf),
        ArsinhNoise.within(rho, enough=1e-5),
    ):
        assert noise.rho <= rho
        shares = [
            renyi(noise, r * noise.t, q * noise.s, order) / (order * rho)
            for r in (-1, -0.5, 0, 0.5, 1)
            for q in (0, 0.5, 1)
            for order in (1.001, 2.0, 8.0, 64.0)
        ]
        assert 0.05 < max(shares) <= 1


def test_what_lies_between_points_of_the_grid_is_in_the_margin() -> None:
    """Either function moves by less than 4 for each unit of y, so by twice a step from the nearest point."""
    assert 2 * np.max(np.diff(arsinh_noise._GRID)) <= arsinh_noise._BETWEEN * (1 + 1e-9)
    assert arsinh_noise._GRID[0] == 0
    for slopes in arsinh_noise._slopes():
        assert np.max(np.abs(np.diff(slopes) / np.diff(arsinh_noise._GRID))) < 4
        assert slopes[-1] < 0.7 * np.max(slopes)


def test_the_lipschitz_bound_bounds_slopes_of_the_privacy_loss() -> None:
    y = np.linspace(-12, 12, 4001)

    def loss(r: float, q: float) -> np.ndarray:
        v = (np.sinh(y) - q) * math.exp(-r)
        return (np.arcsinh(v) ** 2 - y**2) / 2 + np.log(np.sqrt(1 + v**2) / np.cosh(y))

    for t, s in [(0.5, 0.3), (0.01, 0.2), (0.3, 1e-3)]:
        bound = lipschitz(t, s)
        for r, q in itertools.product((-t, 0, t), (-s, 0, s)):
            slopes = np.abs(np.diff(loss(r, q)) / np.diff(y))
            assert np.max(slopes) <= bound
    # The bound is no looser than first-order terms and e^t (1 + s) make it.
    assert lipschitz(1e-6, 0.0) == pytest.approx(1.857e-6, rel=1e-2)
    assert lipschitz(0.0, 1e-6) == pytest.approx(2e-6, rel=1e-2)


def test_noise_is_less_than_printed_for_the_budgets_of_single_means() -> None:
    """At one rho: t is far larger, so the smooth sensitivity is smaller, and so is s."""
    for epsilon in (0.3, 0.1, 0.01):
        printed = ArsinhNoise.as_printed(epsilon)
        found = ArsinhNoise.within(epsilon**2 / 2, enough=math.inf)
        assert found.t > 3 * printed.t
        assert found.s > 0.8 * printed.s
        x = np.sort(np.random.default_rng(0).standard_t(3, 2000))
        scales = [smooth_sensitivity(x, 200, n.t, 10.0) / n.s for n in (printed, found)]
        assert scales[1] < 0.7 * scales[0]


def test_budgets_of_trimmed_means_add_up() -> None:
    plan = TrimmedMean.plan(1000, 7, mean_range=(-1.0, 1.0), epsilon=0.5, delta=1e-6)
    lost = 7 * (2.0**-18 + 2.0**-30 / plan.trimming.noise.s)  # what ``grid`` says of doubles
    assert 7 * plan.trimming.noise.rho <= zcdp_rho(0.5 - lost, 1e-6 * math.exp(-lost / 2))
    assert 7 * plan.trimming.noise.rho >= 0.99 * zcdp_rho(0.5 - 7 * 2.0**-18, 1e-6)


def test_wide_noise_pays_for_the_steps_of_doubles() -> None:
    """Near 0 a cell of 2^-20 widths holds few uniforms where noise is wide; each end may be off by one."""
    few = TrimmedMean.plan(1000, 25, mean_range=(0.0, 1.0), epsilon=0.01, delta=1e-6).trimming.noise
    uniforms = 2.0**-20 * few.s * 2.0**54 / math.sqrt(2 * math.pi)  # in a cell, of those spaced by 2^-54
    assert 4 / uniforms <= grid.rounding(1 / few.s)
    with pytest.raises(PrivacyParameterError, match="for rounding"):
        TrimmedMean.plan(1000, 250, mean_range=(0.0, 1.0), epsilon=0.01, delta=1e-6)


def test_noise_is_never_narrower_than_its_grid() -> None:
    trim = Trimming(1000, 0.0, 1.0, 100, ArsinhNoise(5.0, 2.0))  # e^-500 is no floor
    assert trim.sensitivity(np.zeros(1000)) == 2.0 * 2.0**-16


@pytest.mark.parametrize("n", [10**6, 10**8])
def test_sums_over_many_records_pay_for_their_rounding(n: int) -> None:
    """n numbers of size 1 add up to an error of n^2 2^-53 at most, in each of two data sets."""
    plan = RobustMean.plan(n, 3, moment=1.0, epsilon=1.0, delta=1e-6)
    moved = 2 * INFLUENCE * plan.truncation.scale * math.sqrt(3) * (1 / n + n * 2.0**-53)
    assert moved <= plan.vector_noise.sensitivity <= 1.001 * moved


def test_trimmed_means_find_the_mean() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.standard_t(3, 20_000), 2 + rng.standard_t(3, 20_000)])
    plan = TrimmedMean.plan(20_000, 2, mean_range=(-10.0, 10.0), epsilon=1.0, delta=1e-6)
    found = plan.release(X, NoiseSource(insecure_seed=1))
    assert found.point == pytest.approx([0.0, 2.0], abs=0.3)
    assert not found.spend.guaranteed
    X[:100] = 1e300  # 0.5% of the records, as far out as they can be
    assert plan.release(X, NoiseSource(insecure_seed=1)).point == pytest.approx([0.0, 2.0], abs=0.9)
    # Outputs lie on a public grid.
    steps = (found.point + 0.0) / (20.0 * 2.0**-20)
    assert np.array_equal(steps, np.rint(steps))
