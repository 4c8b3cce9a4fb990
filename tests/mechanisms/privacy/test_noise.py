"""Samplers fit their law, and the same test rejects a scale that is 10% off; no two sources agree."""

from __future__ import annotations

import copy
import math
import multiprocessing
import os
import pickle
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joblib import Parallel, delayed
from scipy import special, stats

from privopt.experiments.benchmark_noise import noise_rates
from privopt.mechanisms.errors import NoiseSourceError, PrivacyParameterError
from privopt.mechanisms.privacy.grid_releases import DiscreteGaussianRelease, DiscreteLaplaceRelease, _steps
from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource

# Kolmogorov-Smirnov at this size accepts the right law at level 1e-4 and, for every law below, sees a scale
# that is off by 10% (a sup-distance of 0.024 to 0.037) with a p-value far below 1e-6.
SAMPLES = 20_000

CONTINUOUS: dict[str, tuple[Callable[[NoiseSource, int], np.ndarray], Callable[..., float]]] = {
    "exponential": (lambda s, n: s.exponential(n), stats.expon.cdf),
    "laplace": (lambda s, n: s.laplace(3.0, n) / 3.0, stats.laplace.cdf),
    "gumbel": (lambda s, n: s.gumbel(n), stats.gumbel_r.cdf),
    "gaussian": (lambda s, n: s.gaussian(3.0, n) / 3.0, stats.norm.cdf),
    "discrete gaussian, fine grid": (lambda s, n: s.discrete_gaussian(30, n) / 2.0**30, stats.norm.cdf),
    "discrete laplace, fine grid": (lambda s, n: s.discrete_laplace(30, n) / 2.0**30, stats.laplace.cdf),
}


@pytest.mark.parametrize("law", CONTINUOUS)
def test_samples_fit_and_a_wrong_scale_does_not(law: str) -> None:
    draw, cdf = CONTINUOUS[law]
    sample = draw(NoiseSource(insecure_seed=11), SAMPLES)
    assert stats.kstest(sample, cdf).pvalue > 1e-4
    assert stats.kstest(1.1 * sample, cdf).pvalue < 1e-6
    assert stats.kstest(sample / 1.1, cdf).pvalue < 1e-6


def test_the_unseeded_source_fits_too() -> None:
    assert stats.kstest(NoiseSource().gaussian(1.0, SAMPLES), stats.norm.cdf).pvalue > 1e-7


def test_uniform_is_open_and_uniform() -> None:
    sample = NoiseSource(insecure_seed=1).uniform(SAMPLES)
    assert 0 < sample.min() < sample.max() < 1
    assert stats.kstest(sample, stats.uniform.cdf).pvalue > 1e-4


class _FixedWords(NoiseSource):
    """A source whose words are given, to reach corners of probability 2^-64 and less."""

    def __init__(self, *words: int) -> None:
        super().__init__()
        self.words = list(words)

    def bits(self, n: int) -> np.ndarray:
        return np.array([self.words.pop(0) for _ in range(n)], dtype=np.uint64)


def test_uniform_reaches_both_ends_of_the_double_range() -> None:
    ones = (1 << 64) - 1
    assert _FixedWords(ones).uniform()[0] == 1 - 2.0**-53
    # 11 zeros, then 32 zeros, then a leading one: 2^-1 times 2^-43, mantissa 0.
    assert _FixedWords(0, 0, ones).uniform()[0] == 2.0**-44
    # The lowest bits 00000000001: ten zeros before the first one.
    assert _FixedWords(1).uniform()[0] == 2.0**-11


def test_gaussian_tail_is_not_cut() -> None:
    # 11 + 9 * 32 zeros: half of 2^-300, far beyond the 8.3 sigma at which 53-bit uniforms end.
    tail = _FixedWords(0, *[0] * 9, (1 << 64) - 1).gaussian(1.0)[0]
    assert tail == pytest.approx(stats.norm.ppf(2.0**-301), rel=1e-12)


def test_exponential_is_fine_near_zero() -> None:
    # Coin 0: the small end. A uniform of 2^-301 gives an exponential of about 2^-301, not 0 or 1e-16.
    small = _FixedWords(0, *[0] * 9, (1 << 64) - 1).exponential()[0]
    assert small == pytest.approx(2.0**-301, rel=1e-12)


def test_exponent_bits_have_the_geometric_law() -> None:
    sample = NoiseSource(insecure_seed=5).uniform(1 << 20)
    counts = np.bincount(-np.frexp(sample)[1], minlength=40)[:16]
    expected = 2.0 ** -(np.arange(16) + 1) * sample.size
    assert float(np.sum((counts - expected) ** 2 / expected)) < stats.chi2.isf(1e-5, 16)


@pytest.mark.parametrize("exponent", [0, 1, 3])
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_discrete_laws_on_coarse_grids(law: str, exponent: int) -> None:
    """Chi-square against the normalised mass; the mass of a 10% larger scale is rejected."""
    source, scale = NoiseSource(insecure_seed=21), 2.0**exponent
    sample = getattr(source, f"discrete_{law}")(exponent, 200_000)
    support = np.arange(-60 * 2**exponent, 60 * 2**exponent + 1)

    def p_value(s: float) -> float:
        energy = support**2 / (2 * s * s) if law == "gaussian" else np.abs(support) / s
        mass = np.exp(-energy)
        expected = sample.size * mass / mass.sum()
        counts = np.bincount(sample - support[0], minlength=support.size)
        usual = expected >= 10
        observed = np.append(counts[usual], counts[~usual].sum())
        wanted = np.append(expected[usual], expected[~usual].sum())
        return float(stats.chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)

    assert p_value(scale) > 1e-4
    assert p_value(1.1 * scale) < 1e-6
    assert p_value(scale / 1.1) < 1e-6


def test_acceptance_probability_is_exact_for_whole_and_broken_exponents() -> None:
    source, n = NoiseSource(insecure_seed=2), 200_000
    for numerator, bits in ((0, 3), (5, 3), (8, 3), (13, 3), (5, 1), (3, 0)):
        accepted = np.count_nonzero(source._accept_exp(np.full(n, numerator), bits))
        p = math.exp(-numerator / 2**bits)
        assert stats.binomtest(int(accepted), n, p).pvalue > 1e-5


def test_integers_are_uniform_and_in_range() -> None:
    source = NoiseSource(insecure_seed=4)
    for n in (1, 2, 7, 64):
        sample = source.integers(n, 70_000)
        counts = np.bincount(sample, minlength=n)
        assert counts.size == n
        assert stats.chisquare(counts).pvalue > 1e-4 if n > 1 else counts[0] == 70_000
    large = 3 * (1 << 60)  # a quarter of all words is rejected here
    assert 0.66 < np.mean(source.integers(large, 50_000) < 2 * (1 << 60)) < 0.675


def test_shapes() -> None:
    source = NoiseSource()
    for draw in (source.uniform, source.exponential, source.gumbel):
        assert draw((2, 3)).shape == (2, 3)
        assert draw(0).shape == (0,)
    assert source.discrete_gaussian(4, (2, 3)).shape == (2, 3)
    assert source.discrete_laplace(4, 0).shape == (0,)
    assert source.integers(5, (4,)).dtype == np.int64


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", True])
def test_bad_scales_are_refused(bad: float) -> None:
    for draw in (NoiseSource().gaussian, NoiseSource().laplace):
        with pytest.raises(PrivacyParameterError, match="scale"):
            draw(bad, 3)


@pytest.mark.parametrize("bad", [-1, MAX_EXPONENT + 1, 2.0])
def test_bad_exponents_are_refused(bad: int) -> None:
    with pytest.raises(PrivacyParameterError, match="exponent"):
        NoiseSource().discrete_gaussian(bad, 1)


# --- no two sources agree --------------------------------------------------------------------------------


def _draw(_: object = None) -> bytes:
    return NoiseSource().bits(4).tobytes()


def _draw_from(source: NoiseSource) -> bytes:
    return source.bits(4).tobytes()


def _fork_draw(source: NoiseSource) -> bytes:
    """Output of ``source`` in a forked child, or the name of the child's exception."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            message = source.bits(4).tobytes()
        except NoiseSourceError as error:
            message = type(error).__name__.encode()
        os.write(writer, message)
        os._exit(0)
    os.waitpid(child, 0)
    message = os.read(reader, 100)
    os.close(reader)
    os.close(writer)
    return message


def test_unseeded_sources_differ() -> None:
    source = NoiseSource()
    copies = [source, source, NoiseSource(), copy.deepcopy(source), pickle.loads(pickle.dumps(source))]
    assert len({_draw_from(s) for s in copies}) == len(copies)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_unseeded_sources_differ_after_a_fork() -> None:
    source = NoiseSource()
    source.bits(1)
    assert len({_draw_from(source), _fork_draw(source), _fork_draw(source)}) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_noise_drawn_ahead_is_not_used_in_a_forked_child() -> None:
    """A fork between two steps of a run, in a callback say: the child would add the parent's noise."""
    source = NoiseSource()
    ahead = source.discrete_gaussian_vectors(MAX_EXPONENT, 3, 5)
    next(ahead)

    class Waiting(NoiseSource):
        def bits(self, n: int) -> np.ndarray:
            return next(ahead).view(np.uint64)

    assert _fork_draw(Waiting()) == b"NoiseSourceError"
    assert len(list(ahead)) == 4  # the parent goes on

    class Anew(NoiseSource):
        def bits(self, n: int) -> np.ndarray:
            return next(source.discrete_gaussian_vectors(MAX_EXPONENT, 3, 1)).view(np.uint64)

    assert len(_fork_draw(Anew())) == 24  # a run of the child's own


def test_the_operating_system_is_the_source_and_is_asked_for_every_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def urandom(n: int) -> bytes:
        asked.append(n)
        return bytes(range(256)) * (n // 256) + bytes(n % 256)

    monkeypatch.setattr(os, "urandom", urandom)
    words = NoiseSource().bits(1000)
    assert asked == [8000]
    assert words.tobytes() == urandom(8000)
    asked.clear()
    many = (1 << 17) + 3
    assert NoiseSource().bits(many).tobytes()[:256] == bytes(range(256))
    assert sum(asked) == 8 * many
    NoiseSource(insecure_seed=1).bits(1000)
    assert sum(asked) == 8 * many


def test_unseeded_sources_differ_in_workers() -> None:
    """joblib's workers get a pickled source, as those that multiprocessing spawns do."""
    source = NoiseSource()
    drawn = Parallel(n_jobs=2)(delayed(_draw_from)(source) for _ in range(3))
    assert len({*drawn, _draw()}) == 4


@pytest.mark.slow
def test_unseeded_sources_differ_in_spawned_processes() -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        drawn = pool.map(_draw_from, [NoiseSource()] * 3)
    assert len({*drawn, _draw()}) == 4


def test_seeded_sources_repeat_and_say_so() -> None:
    first, second = NoiseSource(insecure_seed=9), NoiseSource(insecure_seed=9)
    np.testing.assert_array_equal(first.gaussian(1.0, 5), second.gaussian(1.0, 5))
    assert first.insecure_seed == 9
    assert NoiseSource().insecure_seed is None
    assert "insecure_seed=9" in repr(first)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_seeded_sources_cannot_be_duplicated() -> None:
    source = NoiseSource(insecure_seed=9)
    for duplicate in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(NoiseSourceError, match="repeat"):
            duplicate(source)
    assert _fork_draw(source) == b"NoiseSourceError"


@pytest.mark.parametrize("seed", [-1, 1.5, True, "7"])
def test_bad_seeds_are_refused(seed: int) -> None:
    with pytest.raises(PrivacyParameterError):
        NoiseSource(insecure_seed=seed)


def test_the_global_numpy_state_is_neither_used_nor_moved() -> None:
    np.random.seed(3)  # noqa: NPY002  # the legacy global state is the point
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = NoiseSource().uniform(3)
    np.random.seed(3)  # noqa: NPY002
    assert not np.array_equal(first, NoiseSource().uniform(3))
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


# --- released vectors ------------------------------------------------------------------------------------


def test_released_sums_are_grid_points_with_the_stated_spread() -> None:
    plan = DiscreteGaussianRelease(sensitivity=2.0, sigma=5.0, dimension=SAMPLES)
    rows = np.random.default_rng(0).normal(size=(3, SAMPLES)) / 100
    total = plan.release(rows, NoiseSource(insecure_seed=3))
    steps = total / plan.grid
    assert np.all(steps == np.rint(steps))
    error = total - rows.sum(axis=0)
    assert stats.kstest(error / 5.0, stats.norm.cdf).pvalue > 1e-4
    assert stats.kstest(error / 4.5, stats.norm.cdf).pvalue < 1e-6


def test_rounded_sensitivity_covers_the_worst_rounding() -> None:
    """Two contributions at distance just below the sensitivity, every coordinate rounded apart."""
    plan = DiscreteGaussianRelease(sensitivity=1e-9 * 3, sigma=1.0, dimension=4)
    grid = plan.grid
    a, b = np.full(4, 0.5000001 * grid), np.full(4, -0.5000001 * grid)
    moved = np.linalg.norm((np.rint(a / grid) - np.rint(b / grid)) * grid)
    tight = DiscreteGaussianRelease(sensitivity=float(np.linalg.norm(a - b)), sigma=1.0, dimension=4)
    assert float(np.linalg.norm(a - b)) < moved <= tight.grid_sensitivity
    assert plan.distance_to_gaussian < 1e-18


@settings(max_examples=300, deadline=None)
@given(st.floats(0.5, 1, exclude_max=True), st.integers(-900, 900), st.floats(-1, 1), st.integers(-5, 59))
def test_any_number_is_rounded_to_the_nearest_grid_point(
    mantissa: float, exponent: int, share: float, size: int
) -> None:
    """In exact arithmetic. A rounded quotient x / grid is off by 2^-53 of itself: 64 steps at 2^59."""
    grid = math.ldexp(mantissa, exponent)
    x = share * math.ldexp(grid, size)
    steps = int(_steps([[x]], grid, 1)[0])
    assert abs(Fraction(x) / Fraction(grid) - steps) <= Fraction(1, 2) + Fraction(2) ** -44


def test_a_rounded_quotient_would_not_be_covered() -> None:
    """At 2^52 sensitivities quotients come in multiples of 16 steps: they move by 32, 24 are paid."""
    plan = DiscreteGaussianRelease(sensitivity=2.0**-26, sigma=0.7, dimension=1)
    rng, naive, found = np.random.default_rng(0), [], []
    for x in rng.uniform(1, 2, 2000) * 2.0**26:
        y = x - plan.sensitivity
        naive.append(float(np.rint(x / plan.grid) - np.rint(y / plan.grid)) * plan.grid)
        found.append(float(_steps([[x]], plan.grid, 1)[0] - _steps([[y]], plan.grid, 1)[0]) * plan.grid)
    assert max(found) <= plan.grid_sensitivity < max(naive)


@pytest.mark.parametrize("s", [2.0, 3.0, 8.0, 30.0])
def test_discrete_gaussian_is_gaussian_private_at_the_stated_level(s: float) -> None:
    """Tests of X against X + 1 that reject at X >= m: level and miss by summation, m up to 30 s away.

    z(miss) >= z(1 - level) - mu is mu-GDP. The stated mu, (1 + s^-2) / s, suffices everywhere; the mu of the
    continuous Gaussian, 1 / s, does not, so the lemma is about something. The worst m is near the centre,
    and needs 1 + 1 / (24 s^2).
    """
    x = np.arange(-math.ceil(60 * s), math.ceil(60 * s) + 1)
    weights = np.exp(-(x**2) / (2 * s * s))
    tail = np.cumsum(weights[::-1])[::-1] / weights.sum()  # P[X >= m], accurate to the last digits
    above = tail[(x >= 1) & (tail > 1e-200)]
    z = -special.ndtri(above)  # Phi^-1(P[X < m]) for m = 1, 2, ...; that of m = 0 is -z[0]
    steps = np.diff(np.concatenate([[-z[0]], z]))
    assert len(steps) > 25 * s
    assert 1 / s < steps.max() <= (1 + s**-2) / s
    assert steps.max() == pytest.approx((1 + 1 / (24 * s * s)) / s, rel=0.05 / s**2)


def test_the_level_of_a_release_covers_grid_and_lemma() -> None:
    plan = DiscreteGaussianRelease(sensitivity=3.0, sigma=7.0, dimension=5)
    assert plan.mu >= plan.grid_sensitivity / plan.sigma > 3 / 7
    assert plan.mu == pytest.approx(3 / 7, rel=1e-8)


def test_distances_of_coordinates_add_up() -> None:
    """Total variation distances of independent coordinates are summed: d / (32 s^2) with s = 2^30."""
    for d in (1, 7, 100_000):
        plan = DiscreteGaussianRelease(sensitivity=3.0, sigma=7.0, dimension=d)
        assert plan.distance_to_gaussian == d / (32 * 4.0**30)


def test_distance_to_gaussian_bounds_the_true_distance() -> None:
    """The same formula on a coarse grid (s = 8), where the distance can be summed."""
    s = 8.0
    x = np.arange(-100, 101)
    discrete = np.exp(-(x**2) / (2 * s * s))
    rounded = stats.norm.cdf((x + 0.5) / s) - stats.norm.cdf((x - 0.5) / s)
    distance = 0.5 * float(np.abs(discrete / discrete.sum() - rounded).sum())
    assert 0.5 / (32 * s * s) < distance < 1 / (32 * s * s)


def test_a_grid_below_the_normal_numbers_is_refused() -> None:
    """Of a subnormal grid 2^30 steps are not sigma: here they are 0.67 sigma."""
    tiny = 1.49 * 2.0**-1044
    assert 2.0**30 * (tiny * 2.0**-30) == pytest.approx(tiny / 1.49)
    with pytest.raises(PrivacyParameterError, match="too small"):
        DiscreteGaussianRelease(sensitivity=tiny, sigma=tiny, dimension=1)


def test_bad_contributions_are_refused() -> None:
    plan = DiscreteGaussianRelease(sensitivity=1.0, sigma=1.0, dimension=2)
    for bad in (np.zeros(2), np.zeros((3, 1)), np.array([[np.nan, 0.0]]), np.array([[1e30, 0.0]])):
        with pytest.raises(PrivacyParameterError):
            plan.release(bad, NoiseSource())


def test_the_benchmark_measures_every_law() -> None:
    rates = noise_rates(1000)
    assert len(rates) == 8
    assert (rates > 0).all(axis=None)


def test_laplace_release_charges_for_the_rounding_to_the_grid() -> None:
    """Neighbours at the full sensitivity: the sums differ, in steps, by no more than epsilon pays for.

    The log ratio of two discrete Laplace laws on the grid is the l1 distance in steps over 2**30.
    """
    plan = DiscreteLaplaceRelease(sensitivity=3.0, scale=2.0, dimension=3)
    rng = np.random.default_rng(0)
    worst = 0.0
    for _ in range(500):
        first, direction = rng.normal(size=3) * 10, rng.laplace(size=3)
        second = first + 3.0 * (1 - 1e-15) * direction / np.abs(direction).sum()
        sums = [np.rint(x / plan.grid).astype(np.int64) for x in (first, second)]
        worst = max(worst, float(np.abs(sums[0] - sums[1]).sum()) / 2**MAX_EXPONENT)
    assert 1.5 < worst <= plan.epsilon < 1.5 * (1 + 1e-8)  # 3 / 2 alone would not cover it


def test_laplace_release_adds_laplace_noise_on_its_grid() -> None:
    plan = DiscreteLaplaceRelease(sensitivity=2.0, scale=0.5, dimension=SAMPLES)
    rows = np.vstack([np.full(SAMPLES, 0.25), np.full(SAMPLES, 1.5)])
    released = plan.release(rows, NoiseSource(insecure_seed=5))
    steps = released / plan.grid
    assert np.array_equal(steps, np.rint(steps))
    assert stats.kstest((released - 1.75) / 0.5, stats.laplace.cdf).pvalue > 1e-4
    assert stats.kstest((released - 1.75) / 0.55, stats.laplace.cdf).pvalue < 1e-6


@pytest.mark.parametrize(
    "wrong", [{"sensitivity": 0.0}, {"scale": math.nan}, {"scale": 1e-320}, {"dimension": 0}]
)
def test_laplace_release_refuses_bad_plans(wrong: dict[str, float]) -> None:
    with pytest.raises(PrivacyParameterError):
        DiscreteLaplaceRelease(**{"sensitivity": 1.0, "scale": 1.0, "dimension": 1, **wrong})  # type: ignore[arg-type]
    with pytest.raises(PrivacyParameterError):
        DiscreteLaplaceRelease(1.0, 1.0, 2).release([[1.0, math.nan]], NoiseSource())
