"""Calibrations round toward privacy: grid steps, tails, transforms as bad as may be."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray
from scipy import integrate

from privopt.mechanisms import MECHANISMS
from privopt.mechanisms.audit.neighbours import LossTable, ParityProblem
from privopt.mechanisms.discrete import calibration
from privopt.mechanisms.discrete.calibration import (
    SeparatorCounts,
    _tail_expectation,
    calibrate_opdisc,
    calibrate_rspm,
    calibrate_rspm_laplace,
    rspm_delta,
    rspm_sigma,
    separator_counts,
)
from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.problems import IntegerLattice, MonotoneConjunction, ZeroOneHalfspace
from privopt.problems.discrete.objective import UNIT, Perturbation
from privopt.problems.discrete.problem import DiscreteProblem, SeparatorSet

STEP = 1 / UNIT


# --- noise is drawn as doubles and rounded to the grid --------------------------------------------------


@pytest.mark.parametrize("bound", [1, 2, 7])
def test_rspm_pays_for_four_grid_steps_on_every_shift(bound: int) -> None:
    """Two weights of a coordinate, before and after a shift, are a step off at most: 2 B + 4 steps.

    Noise is proportional to the shift, because laws depend on shift / sigma alone.
    """
    exact = rspm_sigma(1.0, 1e-6, SeparatorCounts(3, 2)) / 2 * (2 * bound + 4 * STEP)
    found = calibrate_rspm(1.0, 1e-6, SeparatorCounts(3, 2), loss_bound=bound).scale
    assert found == pytest.approx(exact, rel=1e-12)
    laplace = calibrate_rspm_laplace(0.5, SeparatorCounts(5, 0), loss_bound=bound).scale
    assert laplace == pytest.approx(5 * (2 * bound + 4 * STEP) / 0.5, rel=1e-12)


@pytest.mark.parametrize("bound", [1, 3, 10])
def test_a_draw_pays_for_the_rounding_of_beta(bound: int) -> None:
    """In rationals: what beta moves a probability by, and what doubles may, add up to epsilon at most."""
    lattice = IntegerLattice(-1, 1, dimension=2)
    for epsilon in np.geomspace(1e-8, 1e3, 100).tolist():
        plan = ExponentialMechanism.plan(ZeroOneHalfspace, lattice, epsilon=epsilon, loss_bound=bound)
        assert 2 * bound * Fraction(plan.beta) + 2 * Fraction(plan.precision.log_error) <= Fraction(epsilon)


@pytest.mark.parametrize("d", [1, 30, 400])
def test_opdisc_pays_for_the_rounding_of_every_term(d: int) -> None:
    """d + 1 terms at two points, before and after a shift, each less than a step off."""
    lattice = IntegerLattice(-1, 1, dimension=d)
    plan: Any = MECHANISMS["opdisc"].plan(ZeroOneHalfspace, lattice, epsilon=1.0, delta=1e-6)
    free = calibrate_opdisc(1.0, 1e-6, squared_radius=d, dof=d + 1).scale
    assert plan.sigma / free == pytest.approx((2 + 4 * (d + 1) * STEP) / 2, rel=1e-9)


def test_rounded_terms_of_opdisc_are_within_a_step_of_the_real_ones() -> None:
    lattice, rng = IntegerLattice(-3, 3, dimension=5), np.random.default_rng(0)
    d2 = lattice.max_squared_norm
    worst = 0.0
    for scale in (1.0, 1e3, 1e6):
        eta = rng.standard_normal(6) * scale
        added = Perturbation.normalized(lattice, eta)
        for table, noise in zip(added.unary, eta, strict=False):
            exact = [-noise * w / math.sqrt(d2) for w in range(-3, 4)]
            worst = max(worst, float(np.abs(table / UNIT - exact).max()))
        assert added.radial is not None
        exact = [-eta[-1] * math.sqrt(1 - k / d2) for k in range(d2 + 1)]
        worst = max(worst, float(np.abs(added.radial / UNIT - exact).max()))
    assert 0.4 * STEP < worst < STEP


# --- how separators are counted -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "lattice"),
    [
        (LossTable, IntegerLattice(0, 3, dimension=2)),
        (LossTable, IntegerLattice(-1, 1, dimension=3)),
        (LossTable, IntegerLattice(np.array([0, 0, 0]), np.array([1, 5, 2]))),
        (ParityProblem, IntegerLattice(0, 1, dimension=4)),
        (MonotoneConjunction, IntegerLattice(0, 1, dimension=4)),
        (ZeroOneHalfspace, IntegerLattice(np.array([-1, 0, -1]), np.array([1, 1, 0]))),
    ],
    ids=str,
)
def test_every_separator_is_counted_and_its_shifts_keep_the_winner(
    kind: type[DiscreteProblem], lattice: IntegerLattice
) -> None:
    """All m of them; and s = 2 (2 phi - 1) satisfies the condition on every pair of points.

    A shift of entries +-2 on m separators has |s|_1 = 2 m: what counts fewer separators pays for less.
    """
    separators = kind.separators(lattice)
    assert separator_counts(separators).separators == separators.size
    phi = {tuple(w): separators.losses(w) for w in np.concatenate(list(lattice.batches()))}
    for one, other in itertools.permutations(list(phi.values())[:40], 2):
        assert (2 * (2 * one - 1)) @ (one - other) >= 2


@pytest.mark.parametrize(
    "tables",
    [[(1, 0, 0), (0, 1, 0), (0, 0, 1)], [(0, 0, 1, 1), (0, 1, 0, 1)]],
    ids=["one for each level", "all four patterns of two"],
)
def test_separators_of_a_coordinate_without_an_order_count_one_by_one(tables: list[tuple[int, ...]]) -> None:
    """The law of two binary separators is not that of one: their noises add up."""
    m, levels = len(tables), len(tables[0])
    separators = SeparatorSet(
        IntegerLattice(0, levels - 1, dimension=1),
        np.zeros((m, 1), dtype=np.int64),
        np.ones(m, dtype=np.int64),
        np.zeros(m, dtype=np.int64),
        tuple(np.array(table, dtype=np.int64) for table in tables),
    )
    assert separator_counts(separators) == SeparatorCounts(m, 0, {})


# --- tails and transforms -------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [8.0, 13.0, 14.0, 15.0, 20.0, 30.0])
def test_tails_beyond_the_table_are_counted(threshold: float) -> None:
    """One binary coordinate, sigma = 2: E (1 - exp(threshold - |x|))_+ over a normal x, however far out."""
    epsilon = threshold + 0.5
    exact, _ = integrate.quad(
        lambda t: math.exp(-t * t / 2) * math.sqrt(2 / math.pi) * -math.expm1(threshold - t),
        threshold,
        threshold + 8,
        epsabs=0,
    )
    assert 0 < exact <= rspm_delta(epsilon, 2.0, SeparatorCounts(1, 0))


def coins(count: int, a: float, threshold: float) -> float:
    """E (1 - exp(-a (X - threshold)))_+ of the number X of heads: exact integers, summed once."""
    first = math.floor(threshold) + 1
    terms = [
        float(math.comb(count, k)) / 2.0**count * -math.expm1(-a * (k - threshold))
        for k in range(first, count + 1)
    ]
    return math.fsum(terms)


@pytest.mark.parametrize("count", [100, 900])
def test_a_transform_as_bad_as_its_bound_allows_does_not_lower_delta(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """|spectrum| <= 1 and entries off by count * log2(size) roundings: masses lowered by 7 eighths."""
    steps = calibration._COARSE  # cells in a unit
    law = np.zeros(steps + 1)
    law[[0, -1]] = 0.5
    honest = calibration.fft.irfft

    def unlucky(spectrum: ArrayLike, size: int) -> NDArray[np.float64]:
        bound = (count + 1) * math.log2(size) * np.finfo(np.float64).eps
        return np.asarray(honest(spectrum, size)) - 7 * bound

    for threshold in (count / 2 - 3.5, count / 2 + 20.5):
        exact = coins(count, 0.1, threshold)
        assert exact <= _tail_expectation([(count, law)], 0.1, threshold) <= exact * (1 + 1e-6)
        with monkeypatch.context() as patched:
            patched.setattr(calibration.fft, "irfft", unlucky)
            assert exact <= _tail_expectation([(count, law)], 0.1, threshold)


# --- noise that does not fit into an objective ------------------------------------------------------------


@pytest.mark.parametrize("grid", [33, pytest.param(97, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["opdisc", "rspm", "rspm-laplace"])
def test_noise_that_could_be_refused_when_it_is_drawn_is_refused_in_the_plan(name: str, grid: int) -> None:
    """Cut off at T, Laplace weights of scale b >> T tell one separator's winner with epsilon 2/T, not 2/b:
    P[eta >= 0, |eta| <= T] / P[eta >= 2, |eta| <= T] is about T / (T - 2). So whatever a plan lets pass has
    to fit but for 2^-128: tails are erfc(x / sqrt 2) and exp(-x)."""
    lattice, delta = IntegerLattice([-1], [1]), 0.0 if name == "rspm-laplace" else 1e-14

    def planned(epsilon: float) -> float | None:
        try:
            plan = MECHANISMS[name].plan(ZeroOneHalfspace, lattice, epsilon=epsilon, delta=delta)
        except PrivacyParameterError:
            return None
        return float(max(plan.noise.values()))

    found = [planned(epsilon) for epsilon in np.geomspace(1e-12, 1.0, grid).tolist()]
    scales = [scale for scale in found if scale is not None]
    assert grid // 11 < len(scales) < grid - grid // 11
    assert found[-len(scales) :] == scales  # all that are refused are smaller
    ends = 2.0**30 / scales[0]
    tail = math.exp(-ends) if name == "rspm-laplace" else math.erfc(ends / math.sqrt(2))
    assert tail < 2.0**-128 < tail**0.05  # and not much is refused that would do
