"""Cost of calibrated noise against its target; laws of choices and shifts, computed independently."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from privopt.mechanisms import NoiseSource
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.gradient_noise import noise_at_level
from privopt.mechanisms.privacy.perturbed_leader import TiltedMean
from privopt.mechanisms.privacy.poisson import sampled_noise
from privopt.mechanisms.privacy.selection_noise import SelectionNoise
from privopt.mechanisms.privacy.shifts import shift_delta


@pytest.mark.parametrize(("epsilon", "shift"), [(0.1, 2.0), (1.0, 0.5), (3.0, 1.0), (0.0, 0.1)])
@pytest.mark.parametrize("dof", [1, 2, 3, 8])
def test_the_delta_of_a_shift_is_its_expectation_from_above(epsilon: float, shift: float, dof: int) -> None:
    """E[(1 - exp(epsilon - (c sigma chi + c^2 / 2) / sigma^2))_+] by quadrature over the law of chi."""
    sigma = 1.0

    def lost(t: float) -> float:
        return max(0.0, -math.expm1(epsilon - (shift * sigma * t + shift**2 / 2) / sigma**2))

    kink = max(0.0, (epsilon * sigma**2 - shift**2 / 2) / (shift * sigma))
    law = stats.chi(dof)
    wanted = sum(
        integrate.quad(lambda t: lost(t) * law.pdf(t), low, high, epsabs=1e-13)[0]
        for low, high in ((kink, kink + 3), (kink + 3, kink + 20))
    )
    assert wanted <= shift_delta(epsilon, sigma, shift, dof) <= wanted * 1.02 + 1e-12


def test_the_delta_of_a_shift_is_a_probability_and_never_said_to_be_0() -> None:
    assert shift_delta(0.0, 1.0, 100.0, 3) == 1.0
    assert shift_delta(1e4, 1.0, 0.1, 3) > 0


@pytest.mark.parametrize("z", [0.4, 1.0, 25.0])
@pytest.mark.parametrize("dimension", [1, 100, 10**8])
def test_sampled_noise_is_worth_its_multiplier_on_the_grid(z: float, dimension: int) -> None:
    """A step is 1/z-GDP, the rounding of contributions to the grid included; and no more is spent on that."""
    level = sampled_noise(z, 2.5, dimension).level(1)
    assert (1 - 1e-9) / z <= level <= 1 / z


def test_noise_of_averaged_answers_costs_epsilon_on_the_grid() -> None:
    """A neighbour moves the sum on the grid by the sensitivity and a step a coordinate, in l1."""
    plan = TiltedMean.plan(
        np.full(3, 2.0), lipschitz=1.0, n_records=1000, epsilon=0.7, delta=1e-5, alpha=1e-3, draws=20
    )
    release = plan.laplace
    spent = (plan.sensitivity + 3 * release.grid) / release.scale
    assert 0.7 * (1 - 1e-9) <= spent <= 0.7


@pytest.mark.parametrize("steps", [1, 50])
def test_noise_at_a_level_costs_the_level_and_hardly_less(steps: int) -> None:
    assert 0.5 * (1 - 1e-9) <= noise_at_level(0.5, steps, 2.0, 1000).level(steps) <= 0.5


def test_levels_that_the_grid_leaves_nothing_of_are_refused() -> None:
    with pytest.raises(PrivacyParameterError, match="leave nothing of mu"):
        noise_at_level(1e-3, 10**6, 1.0, 10**8)


def test_selections_are_drawn_from_the_exponential_law() -> None:
    """P[i] ~ exp(epsilon score_i / (2 sensitivity)), in 20,000 draws: four standard deviations are .014."""
    noise, source = SelectionNoise(sensitivity=0.5, step_epsilon=1.0), NoiseSource(insecure_seed=4)
    scores = np.array([0.0, 1.5, 3.0])
    drawn = np.bincount([noise.choose(scores, source) for _ in range(20_000)], minlength=3) / 20_000
    weights = np.exp(scores)
    assert drawn == pytest.approx(weights / weights.sum(), abs=0.014)
