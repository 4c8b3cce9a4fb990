"""Composed losses against closed forms and plain convolution, at deltas that plain transforms cannot see."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution
from scipy import stats

from privopt.mechanisms.privacy import loss_composition
from privopt.mechanisms.privacy.accounting import gaussian_delta, gaussian_epsilon
from privopt.mechanisms.privacy.loss_composition import LossLaw, composed_delta
from privopt.mechanisms.privacy.poisson import _outcomes_of_losses, _sampled
from tests.mechanisms.privacy.composition import poisson_epsilon


def convolved(laws: list[LossLaw], epsilon: float) -> float:
    """Sums of products of nonnegative numbers, smallest first: relative errors of a few 2^-53 per factor."""
    masses = reduce(np.convolve, [law.masses for law in laws])
    losses = (sum(law.first for law in laws) + np.arange(len(masses))) * laws[0].cell
    above = losses > epsilon
    return math.fsum((masses[above] * -np.expm1(epsilon - losses[above])).tolist())


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.01), (0.2, 0.1), (2.0, 1.0), (1.0, 0.999), (30.0, 1e-5)])
def test_laws_of_sampled_releases_are_those_of_dp_accounting(z: float, q: float) -> None:
    theirs = privacy_loss_distribution.from_gaussian_mechanism(
        z,
        sampling_prob=q,
        value_discretization_interval=1e-2,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )._pmf_remove.to_dense_pmf()
    law = _sampled(z, q, 1e-2)
    assert (law.first, law.cell) == (theirs._lower_loss, theirs._discretization)
    assert law.infinite == pytest.approx(theirs._infinity_mass, rel=1e-6)
    assert np.max(np.abs(law.masses - theirs._probs)) < 1e-12  # differences of probabilities up to 1


@pytest.mark.parametrize(("z", "q"), [(1.0, 0.01), (0.2, 0.1), (2.0, 1.0), (5.0, 0.9)])
def test_outcomes_have_the_losses_asked_for(z: float, q: float) -> None:
    losses = np.array([-3.0, -0.5, -1e-6, 0.0, 1e-9, 0.01, 1.0, 4.0])
    x = _outcomes_of_losses(losses, z, q)

    def log_density(mean: int) -> Any:
        sampled = math.log(q) + stats.norm.logpdf(x, mean, z)
        return sampled if q == 1 else np.logaddexp(math.log1p(-q) + stats.norm.logpdf(x, 0, z), sampled)

    np.testing.assert_allclose(log_density(-1) - log_density(1), losses, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("steps", [1, 200, 5000])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12, 1e-16])
def test_full_batches_are_one_gaussian(steps: int, delta: float) -> None:
    mu = 1.0
    epsilon = gaussian_epsilon(mu, delta)
    law = _sampled(2 * math.sqrt(steps) / mu, 1.0, 1e-4)
    found = composed_delta([(law, steps)], epsilon)
    exact = gaussian_delta(mu, epsilon)
    # Truncated tails are counted as infinite losses: below 2e-22 a step.
    assert exact <= found <= exact * 1.001 + steps * 2e-22


def test_tiny_deltas_of_sampled_releases() -> None:
    """Direct convolution keeps relative accuracy; transforms of the untilted law are off by 2^-53."""
    law, other = _sampled(1.5, 0.01, 1e-2), _sampled(6.0, 1.0, 1e-2)
    for epsilon in (0.5, 2.0, 6.0):
        exact = convolved([law] * 6 + [other], epsilon)
        found = composed_delta([(law, 6), (other, 1)], epsilon)
        assert exact <= found <= exact * (1 + 1e-6) + 7 * 2e-22
    assert exact < 1e-16


@pytest.mark.parametrize("masses", [[0.2, 0.0, 0.5, 0.0, 0.3], [1.0], [0.0, 1.0, 0.0]])
def test_small_laws(masses: list[float]) -> None:
    law = LossLaw(np.array(masses), -2, 0.5, 1e-9)
    for epsilon in (1e-3, 0.4, 1.2, 3.0, 50.0):
        exact = convolved([law] * 5, epsilon)
        assert exact <= composed_delta([(law, 5)], epsilon) - 5e-9 * (1 - 1e-6) <= exact + 1e-9


def test_epsilon_at_deltas_below_the_rounding_of_a_transform() -> None:
    """5000 full batches at delta = 1e-13, where 0.4 * 5000 * 2^-53 is 2e-13."""
    steps, delta = 5000, 1e-13
    z = 2 * math.sqrt(steps)
    assert poisson_epsilon(z, q=1.0, steps=steps, delta=delta) == pytest.approx(
        gaussian_epsilon(1.0, delta), rel=1e-3
    )
    assert poisson_epsilon(z, q=1.0, steps=steps, delta=delta) >= gaussian_epsilon(1.0, delta)


def test_nothing_fits_an_infinite_loss() -> None:
    assert poisson_epsilon(1.0, q=0.5, steps=10, delta=1e-30) == math.inf


def test_a_transform_as_bad_as_its_bound_allows_does_not_lower_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    """``_summed`` states how far masses may be off: lowered by that much, delta is still covered."""
    law = LossLaw(np.array([0.5, 0.5]), -1, 1.0, 0.0)  # losses -1 or 0: their total is minus a binomial
    count, honest = 400, loss_composition._summed

    def exact(epsilon: float) -> float:
        return math.fsum(
            float(math.comb(count, k)) / 2.0**count * -math.expm1(epsilon + k)
            for k in range(count + 1)
            if -k > epsilon
        )

    shifted = LossLaw(np.array([0.5, 0.5]), 0, 1.0, 0.0)  # 0 or 1

    def binomial(epsilon: float) -> float:
        return math.fsum(
            float(math.comb(count, k)) / 2.0**count * -math.expm1(epsilon - k)
            for k in range(math.floor(epsilon) + 1, count + 1)
        )

    assert exact(1.0) == 0 <= composed_delta([(law, count)], 1.0)
    for epsilon in (150.5, 203.5, 260.5):
        assert binomial(epsilon) <= composed_delta([(shifted, count)], epsilon)

    def unlucky(*arguments: Any) -> Any:
        totals, masses, error = honest(*arguments)
        assert 0 < error < 1e-9
        return totals, masses - 1e-4, 1e-4

    monkeypatch.setattr(loss_composition, "_summed", unlucky)
    for epsilon in (150.5, 203.5, 260.5):
        assert binomial(epsilon) <= composed_delta([(shifted, count)], epsilon)


@pytest.mark.parametrize("count", [50, 2000])
def test_stated_errors_of_masses_hold(count: int) -> None:
    """Tilted sums of fair coins are binomial with another bias."""
    shifted = LossLaw(np.array([0.5, 0.5]), 0, 1.0, 0.0)
    for tilt in (0.01, 0.5, 2.0):
        totals, masses, error = loss_composition._summed([(shifted, count)], tilt, -1, count + 2)
        exact = stats.binom.pmf(totals, count, 1 / (1 + math.exp(-tilt)))
        assert np.max(np.abs(masses - exact)) <= error + 1e-12 * exact.max()
        assert error < 1e-11


def test_delta_is_rounded_up_next_to_the_largest_loss() -> None:
    """There the best tilt is the largest that is tried, which amplifies roundings; exact sums in Decimal."""
    rng = np.random.default_rng(1)
    for _ in range(120):
        first, count = int(rng.integers(1, 3000)), int(rng.integers(1, 4))
        law = LossLaw(rng.dirichlet(np.ones(3)), first, float(10 ** rng.uniform(-9, 1)), 0.0)
        cell = Decimal(law.cell)
        epsilon = float(count * (first + 2) * cell) * (1 - 10 ** rng.uniform(-15, -9))
        exact = Decimal(0)
        for cells in itertools.product(range(3), repeat=count):
            loss = (count * first + sum(cells)) * cell
            mass = math.prod((Decimal(float(law.masses[k])) for k in cells), start=Decimal(1))
            exact += mass * max(Decimal(0), 1 - (Decimal(epsilon) - loss).exp())
        assert Decimal(composed_delta([(law, count)], epsilon)) >= exact
