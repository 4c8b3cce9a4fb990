"""The cubic step: against its optimality conditions, which prove a global minimum, and against a grid."""

from __future__ import annotations

import math

import numpy as np
import pytest

from privopt.oracles.indefinite.cubic import cubic_step


@pytest.mark.parametrize("seed", range(8))
def test_a_cubic_step_is_a_global_minimum(seed: int) -> None:
    """(H + r I) s = -g, r = rho |s|/2, H + r I >= 0; a grid in the plane can only do worse, and hardly."""
    rng = np.random.default_rng(seed)
    B, rho = rng.standard_normal((2, 2)), float(10 ** rng.uniform(-2, 2))
    H, g = (B + B.T) / 2, rng.standard_normal(2) * [1.0, 1e-3][seed % 2]
    s = cubic_step(H, g, rho)
    r = rho * float(np.linalg.norm(s)) / 2
    assert (H + r * np.eye(2)) @ s == pytest.approx(-g, abs=1e-12 * (1 + r * np.linalg.norm(s)))
    assert np.linalg.eigvalsh(H)[0] + r >= -1e-11 * (1 + r)
    size = 2 * float(np.linalg.norm(s))
    angle, length = np.meshgrid(np.linspace(0, 2 * math.pi, 361), np.linspace(0, size, 401))
    points = np.stack([length * np.cos(angle), length * np.sin(angle)], axis=-1).reshape(-1, 2)

    def value(w: np.ndarray) -> np.ndarray:
        cube = rho / 6 * np.linalg.norm(w, axis=-1) ** 3
        return np.asarray(w @ g + np.einsum("...i,ij,...j->...", w, H, w) / 2 + cube)

    best, found = float(np.min(value(points))), float(value(s))
    assert best - 1e-3 * (1 + abs(best)) <= found <= best + 1e-12


def test_at_a_saddle_it_follows_the_least_eigenvector() -> None:
    s = cubic_step(np.diag([2.0, -3.0]), np.zeros(2), 0.5)
    assert np.abs(s) == pytest.approx([0.0, 12.0])  # |s| = 2 * 3 / rho
    assert cubic_step(np.diag([2.0, -3.0]), np.array([0.0, 1e-9]), 0.5)[1] < -11.9
    assert cubic_step(np.diag([2.0, 0.0]), np.zeros(2), 0.5) == pytest.approx(np.zeros(2))
