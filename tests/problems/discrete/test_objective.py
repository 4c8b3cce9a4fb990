"""Fixed point: what is refused, and why the limits are where they are."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.problems import IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation, rounding_slack, to_fixed
from privopt.problems.errors import InvalidInputError

LATTICE = IntegerLattice(-1, 1, dimension=2)
ZERO = np.zeros(3, dtype=np.int64)


def test_terms_stay_where_a_few_roundings_cost_less_than_half_a_grid_step() -> None:
    """Three roundings of a product below 2^50 steps cost 3/8 of a step; from 2^51 on, 3/4."""
    largest = np.nextafter(2.0**50 - 1, 0)
    assert abs(int(to_fixed([largest / UNIT])[0]) - largest) <= 1
    assert 3 * 2.0**-53 * largest < 0.5
    for bad in (2.0**50, -(2.0**50), 2.0**51, np.inf, np.nan):
        with pytest.raises(InvalidInputError, match="objective"):
            to_fixed([0.0, bad / UNIT])


def test_tables_that_do_not_fit_the_lattice_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="one table per coordinate"):
        Perturbation(LATTICE, (ZERO,))
    with pytest.raises(InvalidInputError, match="one table per coordinate"):
        Perturbation(LATTICE, (ZERO, ZERO[:2]))
    with pytest.raises(InvalidInputError, match="radial"):
        Perturbation(LATTICE, (ZERO, ZERO), np.zeros(2, dtype=np.int64))
    assert Perturbation(LATTICE, (ZERO, ZERO), np.zeros(3, dtype=np.int64)).is_zero


def test_sums_that_could_leave_64_bits_are_refused() -> None:
    half = ZERO + (1 << 59)
    assert Perturbation(LATTICE, (half, half)).magnitude == 1 << 60
    with pytest.raises(InvalidInputError, match="64-bit"):
        Perturbation(LATTICE, (2 * half, 2 * half))
    with pytest.raises(InvalidInputError, match="64-bit"):
        Perturbation(LATTICE, (2 * half, ZERO), ZERO - (1 << 60))


def test_slack_is_four_grid_steps_a_term() -> None:
    assert rounding_slack(7) == 28 / UNIT
