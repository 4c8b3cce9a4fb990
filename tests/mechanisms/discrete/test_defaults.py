"""Defaults of a plan: lattices, calibrations, and refusals."""

from __future__ import annotations

import math

import pytest

from privopt.mechanisms import MECHANISMS, OPDisc
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.problems import IntegerLattice, ZeroOneHalfspace

LATTICE = IntegerLattice(-1, 1, dimension=3)


@pytest.mark.parametrize("name", sorted(set(MECHANISMS) - {"opdisc"}))
def test_the_default_lattice_is_that_of_signs_and_zero(name: str) -> None:
    for d in (1, 4, 30):
        assert MECHANISMS[name].default_lattice(d) == IntegerLattice(-1, 1, dimension=d)


def test_the_default_lattice_of_opdisc_is_its_papers() -> None:
    """|w_j| <= floor(sqrt d), |w| <= sqrt d: Neel, Roth, Vietri and Wu (2020)."""
    for d, b in ((1, 1), (3, 1), (4, 2), (10, 3), (99, 9)):
        expected = IntegerLattice(-b, b, dimension=d, radius=math.sqrt(d))
        assert OPDisc.default_lattice(d) == expected
        assert expected.max_squared_norm <= d


@pytest.mark.parametrize("name", ["exponential", "permute-and-flip", "rspm-laplace"])
@pytest.mark.parametrize("calibration", ["printed", "none"])
def test_calibrations_that_a_mechanism_has_not_are_refused(name: str, calibration: str) -> None:
    with pytest.raises(PrivacyParameterError, match="calibration"):
        MECHANISMS[name].plan(ZeroOneHalfspace, LATTICE, epsilon=1.0, calibration=calibration)


@pytest.mark.parametrize("name", ["opdisc", "rspm"])
def test_approximate_mechanisms_want_a_delta(name: str) -> None:
    with pytest.raises(PrivacyParameterError, match="delta"):
        MECHANISMS[name].plan(ZeroOneHalfspace, LATTICE, epsilon=1.0)
