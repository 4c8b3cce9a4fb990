"""Slopes of the privacy loss of arsinh-normal noise, from its density."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.mechanisms.heavy_tails.arsinh_noise import _GRID, _slopes


def test_slopes_are_those_of_the_density_of_sinh_of_a_normal() -> None:
    """Of V = sinh(Y), Y normal: the density is phi(y) / cosh(y), H its logarithm's slope in v, downward.

    sqrt(1 + v^2) d/dv is d/dy; derivatives by central differences on the grid, of width 2e-4.
    """
    y = _GRID
    logarithm = -(y**2) / 2 - np.log(np.cosh(y))
    slope = -np.gradient(logarithm, y) / np.cosh(y)
    inner = slice(2, -2)
    for found, function in zip(_slopes(), (np.sinh(y) * slope, slope), strict=True):
        assert found[inner] == pytest.approx(np.abs(np.gradient(function, y))[inner], abs=1e-5)
