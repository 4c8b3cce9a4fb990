"""Counting and stopping of runs, and accounts of full steps joined with sampled ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privopt.mechanisms.privacy.accounting import gaussian_epsilon
from privopt.mechanisms.risk.iteration import Method, StepClock, noisy_iteration
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.limits import Limits
from tests.mechanisms.privacy.composition import poisson_epsilon


def test_a_clock_counts_steps_and_says_where_it_was_stopped() -> None:
    asked = iter([False, False, False, True])
    limits = Limits(cancelled=lambda: next(asked))
    clock = StepClock(limits.start(), 9)
    method = Method(np.zeros(2), lambda k, state, x, g: state + g)
    with pytest.raises(UnfinishedDrawError, match=f"{3} of {9} steps"):
        list(noisy_iteration(method, np.ones_like, lambda g: g, 9, clock))
    assert clock.done == 3


def test_gradients_are_noised_once_a_step_and_iterates_follow() -> None:
    seen: list[float] = []

    def perturb(g: np.ndarray) -> np.ndarray:
        seen.append(float(g[0]))
        return g + 10

    method = Method(np.zeros(1), lambda k, state, x, g: x - g * (k + 1), lambda k, state: state + k)
    found = [float(x[0]) for x in noisy_iteration(method, lambda x: 2 * x, perturb, 3)]
    # x = 0: g = 10. x = -10 + 1: g = -18 + 10, twice it. x = 7 + 2: g = 18 + 10, three times it.
    assert seen == [0.0, -18.0, 18.0]
    assert found == [-10.0, 7.0, -75.0]


@pytest.mark.parametrize("full_steps", [1, 5, 40])
def test_full_steps_are_one_gaussian_release(full_steps: int) -> None:
    """Beside sampled steps that tell nothing: T releases at noise z C are 2 sqrt(T) / z-GDP."""
    exact = gaussian_epsilon(2 * math.sqrt(full_steps) / 30.0, 1e-5)
    found = poisson_epsilon(1e4, q=1e-3, steps=1, delta=1e-5, full_z=30.0, full_steps=full_steps)
    assert exact <= found <= exact * 1.01
