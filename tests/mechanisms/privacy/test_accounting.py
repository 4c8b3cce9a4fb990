"""Conversions against independent integrals, published figures and each other; spends and their JSON."""

from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import (
    beside_range_delta,
    bounded_range_step_epsilon,
    bounded_range_to_zcdp,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_mu,
    mu_beside_range,
    pure_to_gdp,
    zcdp_epsilon,
    zcdp_rho,
)
from privopt.mechanisms.privacy.parameters import largest, smallest
from privopt.mechanisms.privacy.spend import PrivacySpend
from tests.mechanisms.privacy.composition import (
    GaussianSteps,
    PureSteps,
    composed_epsilon,
    poisson_epsilon,
)

EPSILONS = st.floats(math.log(1e-3), math.log(20)).map(math.exp)
DELTAS = st.floats(math.log(1e-15), math.log(1e-2)).map(math.exp)


def test_reference_figures() -> None:
    """T = 200, (2, 1e-3): computed independently for the design of this package."""
    assert math.sqrt(200) / gaussian_mu(2.0, 1e-3) == pytest.approx(20.439, abs=1e-3)
    assert math.sqrt(200 / (2 * zcdp_rho(2.0, 1e-3))) == pytest.approx(22.745, abs=2e-3)
    assert bounded_range_step_epsilon(2.0, 1e-3, 200) == pytest.approx(0.0879, abs=5e-5)
    assert bounded_range_to_zcdp(0.5) == 0.125 / 4


@pytest.mark.parametrize(
    ("mu", "width", "epsilon"),
    [(0.2, 0.1, 1.0), (0.2, 1.0, 1.5), (1.5, 0.5, 3.0), (0.02, 0.3, 0.2), (3.0, 4, 9)],
)
def test_a_range_beside_a_gaussian_is_what_an_adversary_achieves(
    mu: float, width: float, epsilon: float
) -> None:
    """A second release made for the first's outcome: two values, its ratios exp(t) and exp(t - width).

    Of all such t one is picked for every loss l of the first, the best by a search: the delta of that pair
    of releases is a lower bound on what may be claimed, and the claim is that.
    """
    t = np.linspace(0, width, 501)
    high, low = -np.expm1(t - width), -np.expm1(-t)  # times 1 / (1 - exp(-width)): P of either value
    loss = mu * np.linspace(-12, 12, 10_001) + mu * mu / 2
    near = np.abs(loss - epsilon) <= width
    found = np.maximum(0, -np.expm1(epsilon - loss))  # where one value is all that counts
    left = (epsilon - loss[near])[:, None]
    gains = high * np.maximum(0, -np.expm1(left - t)) + low * np.exp(-width + t) * np.maximum(
        0, -np.expm1(left + width - t)
    )
    found[near] = np.max(gains, axis=1) / -math.expm1(-width)
    density = stats.norm.pdf((loss - mu * mu / 2) / mu) / mu
    adversary = integrate.trapezoid(found * density, loss)
    claimed = beside_range_delta(mu, width, epsilon)
    assert adversary * (1 - 1e-4) <= claimed <= adversary * 1.01


@settings(deadline=None, max_examples=25)
@given(epsilon=EPSILONS, delta=DELTAS, share=st.floats(0.01, 0.9))
def test_a_range_beside_a_gaussian_costs_less_than_their_sum(
    epsilon: float, delta: float, share: float
) -> None:
    mu = mu_beside_range(epsilon, delta, share * epsilon)
    assert beside_range_delta(mu, share * epsilon, epsilon) <= delta
    assert gaussian_mu((1 - share) * epsilon, delta) * (1 - 1e-3) <= mu <= gaussian_mu(epsilon, delta)


def test_a_range_of_nothing_leaves_the_gaussian() -> None:
    assert beside_range_delta(0.3, 1e-9, 1.0) == pytest.approx(gaussian_delta(0.3, 1.0), rel=1e-6)
    assert mu_beside_range(1.0, 1e-6, 1e-9) == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-6)


@pytest.mark.parametrize(("mu", "epsilon"), [(1.0, 0.0), (0.3, 1.0), (2.0, 0.5), (5.0, 20.0), (1e-3, 5e-3)])
def test_gaussian_delta_against_the_integral(mu: float, epsilon: float) -> None:
    """delta = integral of (p - exp(epsilon) q)_+ over t > epsilon/mu - mu/2, with p normal."""
    start = epsilon / mu - mu / 2

    def integrand(t: float) -> float:
        return float(stats.norm.pdf(t) * -math.expm1(epsilon - mu * t - mu * mu / 2))

    cut = [max(start, 0) + 1]
    exact = integrate.quad(integrand, start, start + 20, epsabs=0, epsrel=1e-12, points=cut)[0]
    assert exact * (1 - 1e-9) <= gaussian_delta(mu, epsilon) <= exact * (1 + 1e-7)


@pytest.mark.parametrize(
    ("mu", "epsilon", "delta"),
    [
        (1000.25, 508000.3, 4.6190216577396667e-15),
        (20000.0, 200100000.1, 2.8656982283671169e-7),
        (40000.7, 800100000.3, 0.035930723771544223),
        (75620.14144673162, 2860538511.631138, 4.1006334755344492e-70),
    ],
)
def test_gaussian_delta_rounds_up_where_its_arguments_cancel(mu: float, epsilon: float, delta: float) -> None:
    """Deltas by the formula in 80 digits (mpmath)."""
    assert delta <= gaussian_delta(mu, epsilon) <= delta * (1 + 1e-6)


@settings(max_examples=200, deadline=None)
@given(EPSILONS, DELTAS)
def test_gaussian_round_trip(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    assert epsilon * (1 - 1e-6) <= gaussian_epsilon(mu, delta) <= epsilon * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(EPSILONS, DELTAS)
def test_zcdp_round_trip_and_order(epsilon: float, delta: float) -> None:
    rho = zcdp_rho(epsilon, delta)
    assert epsilon * (1 - 1e-6) <= zcdp_epsilon(rho, delta) <= epsilon * (1 + 1e-9)
    # The classical conversion (Bun and Steinke 2016) is weaker; the Gaussian itself is stronger.
    assert zcdp_epsilon(rho, delta) <= rho + 2 * math.sqrt(rho * math.log(1 / delta))
    assert gaussian_epsilon(math.sqrt(2 * rho), delta) <= epsilon


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 0.5, 0.999999, 1.0, 3.0, 20.0, 800.0])
def test_pure_privacy_is_gaussian_privacy_and_no_more(epsilon: float) -> None:
    """Randomized response is the worst pure release: its delta(e) is below that of mu at every e.

    At e = 0 both are tanh(epsilon / 2), so that 1% less would already be too little.
    """
    mu = pure_to_gdp(epsilon)
    e = np.linspace(0, epsilon * 1.1, 200)
    pure = PureSteps(epsilon).deltas(e)
    assert all(d <= gaussian_delta(mu, x) for d, x in zip(pure, e.tolist(), strict=True))
    if epsilon < 5:
        assert gaussian_delta(mu, 0.0) == pytest.approx(math.tanh(epsilon / 2), rel=1e-9)
        assert gaussian_delta(0.99 * mu, 0.0) < pure[0]


def test_zcdp_conversion_against_a_dense_minimum() -> None:
    rho, delta = 0.19, 1e-3
    order = 1 + np.geomspace(1e-4, 1e5, 2_000_000)
    dense = order * rho + np.log(1 / (order * delta)) / (order - 1) + np.log1p(-1 / order)
    assert zcdp_epsilon(rho, delta) == pytest.approx(float(dense.min()), rel=1e-9)


@pytest.mark.parametrize("call", [gaussian_mu, zcdp_rho])
def test_bad_targets_are_refused(call: object) -> None:
    for epsilon, delta in ((0.0, 1e-5), (math.inf, 1e-5), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)):
        with pytest.raises(PrivacyParameterError):
            call(epsilon, delta)  # type: ignore[operator]


def test_searches_return_a_point_that_passed() -> None:
    for root in (1e-200, 0.3, 7.0, 1e200):
        assert smallest(lambda x, r=root: x >= r) == pytest.approx(root, rel=1e-9)
        assert smallest(lambda x, r=root: x >= r) >= root
        assert largest(lambda x, r=root: x <= r) <= root
    with pytest.raises(PrivacyParameterError, match="no noise level"):
        smallest(lambda _: False)


# --- sampled and mixed sequences -------------------------------------------------------------------------


@pytest.mark.parametrize(("q", "z"), [(0.01, 1.0), (0.3, 0.7), (1.0, 2.0), (1e-3, 0.3), (0.5, 0.02)])
def test_sampled_curve_is_the_integral_over_the_worst_pair(q: float, z: float) -> None:
    """Opposite contributions on a line: (1-q) N(0) + q N(C) against (1-q) N(0) + q N(-C), sigma = 1."""
    c = 1 / (2 * z)
    t = np.linspace(-12, 12 + c, 400_001)
    normal = stats.norm.pdf
    p, other = (1 - q) * normal(t) + q * normal(t - c), (1 - q) * normal(t) + q * normal(t + c)
    for epsilon in (0.0, 0.01, 0.1, 0.5, 1.0, 30.0):
        exact = float(np.trapezoid(np.maximum(0, p - math.exp(epsilon) * other), t))
        found = float(GaussianSteps(z, q).deltas(np.array([epsilon]))[0])
        assert found == pytest.approx(exact, rel=1e-6, abs=1e-12)
    # Beyond the range of exp: a curve that falls, and no warning.
    tail = GaussianSteps(0.02, q).deltas(np.array([600.0, 800.0, 2000.0]))
    assert np.all(np.diff(tail) <= 0)


@pytest.mark.parametrize(
    ("z", "q", "steps", "delta"), [(1.0, 0.01, 200, 1e-3), (2.0, 0.5, 3, 0.05), (3.0, 0.2, 50, 1e-6)]
)
def test_two_discretisations_of_the_worst_pair_agree(z: float, q: float, steps: int, delta: float) -> None:
    """Ours of the closed form, and the library's own, which calibrates the mechanisms (z in units of C)."""
    ours = composed_epsilon([GaussianSteps(z, q, steps)], delta)
    assert ours == pytest.approx(poisson_epsilon(2 * z, q=q, steps=steps, delta=delta), rel=5e-4)


def test_full_batches_agree_with_the_closed_form() -> None:
    # Also the canary of the pinned library's convolutions.
    got = composed_epsilon([GaussianSteps(20.438769, 1.0, 200)], 1e-3)
    assert 2.0 <= got * (1 + 1e-8) < 2.001


@pytest.mark.parametrize(("steps", "mu"), [(3_000, 2.0), (20_000, 1.0)])
def test_rounding_of_long_convolutions_is_paid_for(steps: int, mu: float) -> None:
    """Full batches have a closed form; unpaid, rounding hides 1.3e-13 and 3.2e-13 of this delta."""
    found = composed_epsilon([GaussianSteps(math.sqrt(steps) / mu, 1.0, steps)], 1e-10)
    assert gaussian_epsilon(mu, 1e-10) <= found <= 1.005 * gaussian_epsilon(mu, 1e-10)
    with pytest.raises(PrivacyParameterError, match="too small for 1000000 steps"):
        composed_epsilon([GaussianSteps(1e3, 1.0, 10**6)], 1e-10)


def test_sampled_sequences_are_pinned() -> None:
    """The library's accountant on the pair above; 0.3017 is a canary."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
    from dp_accounting.pld import PLDAccountant

    got = composed_epsilon([GaussianSteps(1.0, 0.01, 200)], 1e-3)
    line = PLDAccountant(NeighboringRelation.REPLACE_ONE)
    line.compose(PoissonSampledDpEvent(0.01, GaussianDpEvent(2.0)), 200)  # sigma / C = 2 sigma / (2 C)
    assert got == pytest.approx(line.get_epsilon(1e-3), rel=5e-4)
    assert got == pytest.approx(0.3017, abs=2e-4)
    assert got < composed_epsilon([GaussianSteps(1.0, 1.0, 200)], 1e-3)


def test_pure_steps_against_binomial_composition() -> None:
    """k pure releases are k randomized responses: the loss is (2 B - k) epsilon, B binomial."""
    k, epsilon, delta = 20, 0.1, 1e-4
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    loss = (2 * np.arange(k + 1) - k) * epsilon
    mass = stats.binom.pmf(np.arange(k + 1), k, p)

    def exact(e: float) -> float:
        return float(np.sum(mass * np.maximum(0, -np.expm1(e - loss))))

    got = composed_epsilon([PureSteps(epsilon, k)], delta)
    assert exact(got) <= delta * (1 + 1e-6)
    assert exact(got * 0.99) > delta


def test_mixed_sequences_cost_more_than_their_parts_and_less_than_their_sum() -> None:
    parts = [GaussianSteps(20.0, 1.0, 50), GaussianSteps(1.0, 0.01, 100), PureSteps(0.05, 10)]
    whole = composed_epsilon(parts, 1e-5)
    each = [composed_epsilon([p], 1e-5) for p in parts]
    assert max(each) < whole < sum(each)
    assert whole == pytest.approx(composed_epsilon(parts[::-1], 1e-5), rel=1e-6)


@pytest.mark.parametrize("examples", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_sampled_epsilon_is_monotone(examples: int) -> None:
    @settings(max_examples=examples, deadline=None)
    @given(
        st.floats(math.log(1e-3), 0.0).map(math.exp),
        st.floats(math.log(0.5), math.log(30)).map(math.exp),
        st.integers(1, 50),
    )
    def monotone(q: float, z: float, steps: int) -> None:
        base = composed_epsilon([GaussianSteps(z, q, steps)], 1e-5)
        assert composed_epsilon([GaussianSteps(1.3 * z, q, steps)], 1e-5) <= base
        assert composed_epsilon([GaussianSteps(z, q, 2 * steps)], 1e-5) >= base
        assert composed_epsilon([GaussianSteps(z, min(1.0, 1.3 * q), steps)], 1e-5) >= base * (1 - 1e-9)

    monotone()


def test_traps_of_the_pinned_library() -> None:
    """Why its accountants are not called. If this fails, the library changed: read its notes, then adapt."""
    import dp_accounting as dp
    from dp_accounting import pld, rdp

    replace_one = dp.NeighboringRelation.REPLACE_ONE
    answers = []
    for accountant in (rdp.RdpAccountant(neighboring_relation=replace_one), pld.PLDAccountant(replace_one)):
        accountant.compose(dp.GaussianDpEvent(22.745), 200)
        answers.append(accountant.get_epsilon(1e-3))
    assert answers == pytest.approx([2.000, 4.119], abs=2e-3)
    counted, once = pld.PLDAccountant(replace_one), pld.PLDAccountant(replace_one)
    counted.compose(dp.RandomizedResponseDpEvent(0.5, 2), 10)
    once.compose(dp.RandomizedResponseDpEvent(0.5, 2), 1)
    assert counted.get_epsilon(1e-6) == once.get_epsilon(1e-6)


def test_bad_steps_are_refused() -> None:
    for z, q, count in ((0.0, 1.0, 1), (1.0, 0.0, 1), (1.0, 1.1, 1), (1.0, 1.0, 0), (math.nan, 1.0, 1)):
        with pytest.raises(PrivacyParameterError):
            GaussianSteps(z, q, count)
    with pytest.raises(PrivacyParameterError, match="nothing"):
        composed_epsilon([], 1e-5)
    with pytest.raises(PrivacyParameterError, match="delta >="):
        composed_epsilon([PureSteps(1.0)], 1e-14)


def test_the_heavy_library_is_imported_late() -> None:
    modules = "privopt.mechanisms.privacy.accounting, privopt.mechanisms.privacy.ledger"
    code = f"import sys, {modules}; print('dp_accounting' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# --- spends ----------------------------------------------------------------------------------------------

REFUTED = PrivacySpend(1.0, 1e-6, "approximate", "opdisc", claim="printed: refuted", note="the paper's")
SPENDS = [
    PrivacySpend.pure(0.5, "exponential"),
    PrivacySpend.approximate(1.0, 1e-9, "opdisc", note="ours"),
    PrivacySpend.zcdp(0.1, 1e-6, "gradient descent"),
    PrivacySpend.gdp(0.7, 1e-6, "gradient descent"),
    REFUTED,
    PrivacySpend(1.0, 0.0, "pure", "laplace", insecure_seed=3),
]


@pytest.mark.parametrize("spend", SPENDS, ids=str)
def test_spends_survive_json(spend: PrivacySpend) -> None:
    assert PrivacySpend.from_dict(json.loads(json.dumps(spend.to_dict()))) == spend
    assert PrivacySpend.from_dict(json.loads(json.dumps(spend.to_dict()))) == spend
    assert spend.neighbours == "replace-one"
    assert "replace-one" in str(spend)


def test_levels_are_kept_and_agree_with_the_pair() -> None:
    zcdp, gdp = PrivacySpend.zcdp(0.1, 1e-6, "a"), PrivacySpend.gdp(0.7, 1e-6, "b")
    assert zcdp.level == 0.1
    assert zcdp.epsilon == zcdp_epsilon(0.1, 1e-6)
    assert gdp.level == 0.7
    assert gdp.epsilon == gaussian_epsilon(0.7, 1e-6)
    with pytest.raises(PrivacyParameterError, match="implies"):
        PrivacySpend(0.9 * gdp.epsilon, 1e-6, "gdp", "b", level=0.7)


@pytest.mark.parametrize("epsilon", [1e-14, 1e-12, 1e-10, 1e-9, 1e-6])
def test_levels_agree_with_pairs_whose_epsilon_is_lost_in_the_rounding_of_delta(epsilon: float) -> None:
    for delta in (1e-9, 1e-5):
        mu, rho = gaussian_mu(epsilon, delta), zcdp_rho(max(epsilon, 1e-9), delta)
        PrivacySpend(epsilon, delta, "gdp", "a", level=mu)
        PrivacySpend(max(epsilon, 1e-9), delta, "zcdp", "a", level=rho)
        with pytest.raises(PrivacyParameterError, match="implies"):
            PrivacySpend(epsilon, delta, "gdp", "a", level=mu * (1 + 1e-6))


def test_what_is_guaranteed() -> None:
    assert [s.guaranteed for s in SPENDS] == [True, True, True, True, False, False]
    assert "void" in str(SPENDS[-1])
    assert "refuted" in str(REFUTED)


@pytest.mark.parametrize(
    "changes",
    [
        {"epsilon": 0.0},
        {"epsilon": math.inf},
        {"epsilon": "1"},
        {"delta": 1.0},
        {"delta": -1e-9},
        {"delta": 0.0},
        {"notion": "pure"},
        {"notion": "renyi"},
        {"level": 1.0},
        {"mechanism": ""},
        {"neighbours": "add-remove"},
        {"claim": "trust me"},
        {"claim": "printed: refuted"},
        {"insecure_seed": 1.5},
        {"insecure_seed": True},
        {"unknown": 1},
    ],
)
def test_bad_spends_are_refused(changes: dict[str, object]) -> None:
    record = {**PrivacySpend.approximate(1.0, 1e-6, "opdisc").to_dict(), **changes}
    with pytest.raises(PrivacyParameterError):
        PrivacySpend.from_dict(record)


@pytest.mark.parametrize("text", ["[]", "{}", "null", "1"])
def test_bad_json_is_refused(text: str) -> None:
    with pytest.raises(PrivacyParameterError):
        PrivacySpend.from_dict(json.loads(text))
