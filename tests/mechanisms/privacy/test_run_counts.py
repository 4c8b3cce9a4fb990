"""Random numbers of runs: their law, the bound on the best run, and what others' accountants say of it."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import special, stats

from privopt.mechanisms.audit.audit import exact_delta, exact_epsilon
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_delta, gaussian_epsilon, gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import largest_below
from privopt.mechanisms.privacy.run_counts import (
    RunClaim,
    RunCounts,
    run_delta,
    selection_delta,
    selection_epsilon,
    selection_profile,
)

LAWS = [RunCounts(mean, shape) for mean in (1.5, 4.0, 16.0) for shape in (0.0, 0.5, 1.0, 3.0)]


def probabilities(law: RunCounts) -> np.ndarray:
    """P[K = k] for k = 1, 2, ... from the definition, by gamma functions."""
    k = np.arange(1, 3000)
    logs = special.gammaln(k + law.shape) - special.gammaln(k + 1) + k * math.log1p(-law.stop)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_law_is_the_truncated_negative_binomial_with_that_mean(law: RunCounts) -> None:
    found = -np.diff(np.concatenate([[1.0], law.tail, [0.0]]))
    expected = probabilities(law)[: len(found)]
    np.testing.assert_allclose(found[:50], expected[:50], rtol=1e-9)
    assert np.arange(1, len(found) + 1) @ found == pytest.approx(law.mean, rel=1e-8)
    for x in (0.0, 0.3, 0.9, 1.0):
        assert law.generating(x) == pytest.approx(expected @ x ** np.arange(1, len(found) + 1), abs=1e-9)
    assert law.tried(5) == pytest.approx(1 - law.generating(0.8))


def test_draws_follow_the_law() -> None:
    law, source = RunCounts(4.0, 0.5), NoiseSource(insecure_seed=3)
    drawn = np.array([law.draw(source) for _ in range(4000)])
    expected = probabilities(law)[:8] * len(drawn)
    found = np.bincount(np.minimum(drawn, 9), minlength=10)[1:]
    assert found.sum() == len(drawn)  # never 0
    whole = np.append(expected, len(drawn) - expected.sum())
    assert stats.chisquare(found, whole).pvalue > 1e-4


@pytest.mark.parametrize(("mean", "shape"), [(1.0, 0.0), (math.inf, 0.0), (4.0, -0.1), (4.0, math.nan)])
def test_laws_out_of_range_are_refused(mean: float, shape: float) -> None:
    with pytest.raises(PrivacyParameterError):
        RunCounts(mean, shape)


def test_law_with_millions_of_runs_is_refused() -> None:
    with pytest.raises(PrivacyParameterError, match="too large"):
        RunCounts(10_000.0, 0.0).draw(NoiseSource(insecure_seed=0))


# Per-run mu at total epsilon 1 and delta 1e-6, from a prototype with a dense grid for the ratio.
@pytest.mark.parametrize(
    ("mean", "shape", "mu"),
    [
        (2, 0, 0.207),
        (2, 1, 0.205),
        (4, 0, 0.187),
        (4, 1, 0.181),
        (8, 0, 0.171),
        (8, 1, 0.162),
        (32, 0, 0.15),
        (32, 1, 0.135),
    ],
)
def test_level_of_a_run_at_total_epsilon_1(mean: float, shape: float, mu: float) -> None:
    law = RunCounts(mean, shape)
    most = run_delta(1e-6, law)

    def total(epsilon: float) -> float:
        return selection_epsilon(RunClaim(epsilon, most, gaussian_mu(epsilon, most)), law)

    assert gaussian_mu(largest_below(total, 1.0), most) == pytest.approx(mu, abs=6e-4)


@pytest.mark.parametrize("delta", [1e-2, 1e-10])
@pytest.mark.parametrize("mean", [4.0, 64.0])
@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("mu", [0.05, 1.0])
def test_bound_is_never_worse_than_renyi_accounting(
    delta: float, mean: float, shape: float, mu: float
) -> None:
    # The accountant takes a Gaussian's sensitivity as 1 under the relation that is its default.
    accountant = RdpAccountant(neighboring_relation=dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    gaussian = dp_event.GaussianDpEvent(1 / mu)
    accountant.compose(dp_event.RepeatAndSelectDpEvent(gaussian, mean, shape))
    law = RunCounts(mean, shape)
    most = run_delta(delta, law)
    ours = selection_epsilon(RunClaim(gaussian_epsilon(mu, most), most, mu), law)
    assert ours <= float(accountant.get_epsilon(delta))


@pytest.mark.parametrize("mu", [0.01, 0.2, 1.0, 5.0])
@pytest.mark.parametrize("stop", [1e-4, 0.1, 0.7])
def test_ratio_of_gaussians_is_the_largest_on_a_dense_grid(mu: float, stop: float) -> None:
    z = np.linspace(-12 - mu, 9, 400_001)
    ratio = (stop + (1 - stop) * stats.norm.cdf(z + mu)) / (stop + (1 - stop) * stats.norm.cdf(z))
    found = RunClaim(1.0, 1e-6, mu).log_ratio(stop)
    largest = math.log(ratio.max())
    assert largest <= found <= largest + 2e-6


@pytest.mark.parametrize("pair", [(0.3, 0.0), (1.0, 1e-3), (4.0, 0.05)])
@pytest.mark.parametrize("stop", [1e-3, 0.3])
def test_ratio_of_pairs_is_the_largest_on_a_dense_grid(pair: tuple[float, float], stop: float) -> None:
    (epsilon, delta), a = pair, np.linspace(0, 1, 2_000_001)
    b = np.minimum(delta + math.exp(epsilon) * a, 1 - math.exp(-epsilon) * (1 - delta - a)).clip(max=1)
    largest = math.log(np.max((stop + (1 - stop) * b) / (stop + (1 - stop) * a)))
    assert RunClaim(epsilon, delta).log_ratio(stop) == pytest.approx(largest, rel=1e-4)
    assert RunClaim(epsilon, delta).log_ratio(stop) >= largest


def law_of_best(run: np.ndarray, law: RunCounts) -> np.ndarray:
    """The law of the best of K runs, outcomes listed from the worst: differences of f of their sums."""
    sums = np.clip(np.concatenate([[0.0], np.cumsum(run)]), 0.0, 1.0)
    return np.diff([law.generating(x) for x in sums])


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_bound_holds_for_finite_runs_of_any_order(law: RunCounts) -> None:
    # Runs of six outcomes and a neighbour's: their exact pair (epsilon, delta) implies one for the best.
    rng = np.random.default_rng(int(10 * law.mean + law.shape))
    for _ in range(60):
        run = rng.dirichlet(np.full(6, 0.5))
        other = run * np.exp(rng.uniform(-0.6, 0.6, 6) * rng.integers(0, 2, 6))
        other /= other.sum()
        delta = rng.choice([0.0, 1e-3])
        epsilon = exact_epsilon(run, other, delta)
        claim = RunClaim(max(epsilon, 1e-9), delta)
        total, rest = selection_epsilon(claim, law), selection_delta(claim, law)
        assert exact_delta(law_of_best(run, law), law_of_best(other, law), total) <= rest + 1e-12


@pytest.mark.parametrize("shape", [0.0, 0.5, 1.0, 3.0])
def test_bound_is_nearly_attained_by_three_outcomes(shape: float) -> None:
    # On the neighbour the second outcome is rarer, and the best one, which displaces it, more frequent, both
    # by exp(epsilon): a bound with one factor less is below the truth.
    law, epsilon = RunCounts(300.0, shape), 0.5
    rare, best = 1e-4, 0.25
    run = np.array([1 - rare - best, rare, best])
    other = np.array([0.0, rare * math.exp(-epsilon), best * math.exp(epsilon)])
    other[0] = 1 - other.sum()
    truth = exact_epsilon(law_of_best(run, law), law_of_best(other, law), 0.0)
    claim = RunClaim(epsilon, 0.0)
    assert exact_epsilon(run, other, 0.0) == pytest.approx(epsilon)
    assert epsilon + shape * claim.log_ratio(law.stop) < truth - 0.4
    assert truth <= selection_epsilon(claim, law) < truth + 0.1


@pytest.mark.parametrize("law", [RunCounts(4.0, 0.5), RunCounts(30.0, 0.0)], ids=str)
def test_bound_holds_for_gaussian_runs(law: RunCounts) -> None:
    # The best of K normal variables, against the same shifted by mu, in narrow cells.
    mu, cells = 0.5, np.concatenate([[-np.inf], np.linspace(-9, 10, 4001), [np.inf]])
    laws = [np.diff([law.generating(x) for x in stats.norm.cdf(cells - shift)]) for shift in (0.0, mu)]
    for epsilon in (0.5, 1.0, 2.0):
        claim = RunClaim(epsilon, gaussian_delta(mu, epsilon), mu)
        total, rest = selection_epsilon(claim, law), selection_delta(claim, law)
        assert exact_delta(*laws, total) <= rest


@pytest.mark.parametrize("law", [RunCounts(4.0, 0.5), RunCounts(300.0, 1.0), RunCounts(30.0, 0.0)], ids=str)
@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_profile_is_above_that_of_the_best_of_gaussian_runs(law: RunCounts, mu: float) -> None:
    cells = np.concatenate([[-np.inf], np.linspace(-9, 11, 4001), [np.inf]])
    laws = [np.diff([law.generating(x) for x in stats.norm.cdf(cells - shift)]) for shift in (0.0, mu)]
    profile = selection_profile(mu, law)
    for epsilon in np.append(0.0, np.geomspace(0.01, 8.0, 12)):
        truth = exact_delta(*laws, epsilon)  # up to roundings of sums near 1
        assert truth - 1e-10 <= profile(float(epsilon)) <= 1


def test_profile_of_runs_that_are_all_released_is_that_of_their_composition() -> None:
    # At epsilon 0 nothing is better: 2 Phi(sqrt(K) mu / 2) - 1 in the mean. Later on the choice is.
    law, mu = RunCounts(4.0, 0.5), 0.2
    expected = probabilities(law) @ (2 * stats.norm.cdf(np.sqrt(np.arange(1, 3000)) * mu / 2) - 1)
    assert selection_profile(mu, law)(0.0) == pytest.approx(expected, rel=1e-6)
    shift = selection_epsilon(RunClaim(0.0, 0.0, mu), law)
    assert selection_profile(mu, law)(1.0) == pytest.approx(4 * gaussian_delta(mu, 1.0 - shift), rel=1e-6)
