"""Smoothed soft truncation against quadrature, and its pass over rows against the definition."""

from __future__ import annotations

import itertools
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import integrate

from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.soft_truncation import _influence, soft_mean
from privopt.problems.convex.truncation import EDGE, INFLUENCE
from privopt.problems.convex.unclipped import PLAIN_SQUARES, UnclippedRisk
from privopt.problems.errors import InvalidInputError

# Elementwise E phi(a + a Z / sqrt(beta)): a record's share in the robust mean, in units of its scale.
influence = np.vectorize(_influence, otypes=[np.float64])


def soft_truncate(x: float) -> float:
    """phi(x) = x - x^3/6 for |x| <= sqrt 2, and +-2 sqrt(2)/3 beyond."""
    clipped = min(max(x, -math.sqrt(2)), math.sqrt(2))
    return clipped - clipped**3 / 6


def by_quadrature(a: float, b: float) -> float:
    """E phi(a + b Z), piece by piece between the points where phi bends and where Z has its mass."""

    def integrand(z: float) -> float:
        return float(soft_truncate(a + b * z)) * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)

    bends = [z for z in ((-EDGE - a) / b, (EDGE - a) / b) if -38 < z < 38]
    cuts = sorted([-38.0, -8.0, -3.0, 0.0, 3.0, 8.0, 38.0, *bends])
    return math.fsum(
        integrate.quad(integrand, low, high, epsabs=1e-15, epsrel=1e-13, limit=200)[0]
        for low, high in itertools.pairwise(cuts)
        if high > low
    )


def smoothed(a: Any, b: Any) -> Any:
    """E phi(a + b Z) for a != 0, as the influence at beta = (a / b)^2."""
    first, second = np.broadcast_arrays(np.asarray(a, dtype=float), np.asarray(b, dtype=float))
    pairs = zip(first.ravel().tolist(), second.ravel().tolist(), strict=True)
    return np.array([float(influence(x, (x / z) ** 2)) for x, z in pairs]).reshape(first.shape)


@pytest.mark.parametrize("a", [1e-9, 0.1, 0.3, 1.0, 1.4, EDGE, 1.5, 2.5, 5.0, 10.0, 40.0, 1e3, 1e6, 1e12])
@pytest.mark.parametrize("b", [1e-9, 1e-3, 0.2, 0.7, 1.0, 1.0001, 1.3, 3.0, 100.0, 1e5, 1e12])
def test_influence_is_the_integral(a: float, b: float) -> None:
    expected = by_quadrature(a, b)
    assert float(smoothed(a, b)) == pytest.approx(expected, abs=2e-13)
    assert float(smoothed(-a, b)) == pytest.approx(-expected, abs=2e-13)


def test_wide_grid_is_odd_bounded_and_continuous() -> None:
    a = np.geomspace(1e-8, 1e8, 400)
    b = np.geomspace(1e-8, 1e8, 97)[:, None]
    found = smoothed(a, b)
    assert np.array_equal(found, -smoothed(-a, b))
    assert np.all(np.abs(found) <= INFLUENCE)
    # |phi'| <= 1, so E phi(a + bZ) moves by at most the step in a.
    assert np.all(np.abs(np.diff(found, axis=1)) <= np.diff(a) + 1e-14)
    # Across b = 1, where the formula changes.
    near = smoothed(a, 1.0) - smoothed(a, 1.0 + 1e-9)
    assert np.max(np.abs(near)) < 1e-8


def test_influence_has_limits_and_takes_everything() -> None:
    found = influence(np.array([math.inf, -math.inf, math.nan, 1e308, -1e101, 0.0]), 3.0)
    limit = INFLUENCE * math.erf(math.sqrt(1.5))
    assert found == pytest.approx([limit, -limit, 0.0, limit, -limit, 0.0])
    assert float(influence(1e99, 3.0)) == pytest.approx(limit)


def heavy(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_t(1.5, (n, d)) * 3


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [0.01, 2.0, 1e4])
def test_the_pass_is_the_definition(dtype: Any, scale: float) -> None:
    X = heavy(3000, 7).astype(dtype)
    expected = scale * np.mean(influence(X.astype(np.float64) / scale, 2.5), axis=0)
    assert soft_mean(X, scale, 2.5) == pytest.approx(expected, rel=1e-9, abs=1e-12 * scale)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_record_that_is_not_finite_is_refused(wrong: float) -> None:
    X = heavy(50, 3)
    X[7, 1] = wrong
    with pytest.raises(InvalidInputError, match="finite"):
        soft_mean(X, 1.0, 2.5)


@pytest.mark.parametrize("loss", [PLAIN_SQUARES, LogisticLoss()])
def test_soft_gradients_are_means_of_influences(loss: Any) -> None:
    X, rng = heavy(500, 5), np.random.default_rng(1)
    X[rng.random(X.shape) < 0.5] = 0.0
    y = np.sign(rng.standard_normal(500))
    w, scale = rng.standard_normal(5), 0.7
    risk = UnclippedRisk(X, y, loss)
    gradients = X * loss.slope(X @ w, y)[:, None]
    assert risk.slopes(w) == pytest.approx(loss.slope(X @ w, y))
    each = scale * influence(gradients / scale, 3.0)
    assert risk.soft_gradient(w, scale, 3.0) == pytest.approx(each.mean(axis=0), rel=1e-9)
    some = np.array([3, 4, 77, 499])
    assert risk.soft_gradient_sum(w, some, scale, 3.0) == pytest.approx(each[some].sum(axis=0), rel=1e-9)
    sparse = UnclippedRisk(sp.csr_array(X), y, loss)
    assert sparse.soft_gradient(w, scale, 3.0) == pytest.approx(each.mean(axis=0), rel=1e-9)
    assert sparse.soft_gradient_sum(w, some, scale, 3.0) == pytest.approx(each[some].sum(axis=0), rel=1e-9)


def test_a_record_moves_the_soft_gradient_by_its_bound_at_most() -> None:
    """Whatever it holds: overflowing products, and NaN that comes of them, included."""
    X, y = heavy(20, 3), heavy(20, 1)[:, 0]
    w, scale = np.ones(3), 0.5
    before = UnclippedRisk(X, y, PLAIN_SQUARES).soft_gradient(w, scale, 3.0)
    for row, label in [(1e90, 1e300), (-1e90, 1.0), (1e-300, -1e308), (0.0, 1e308)]:
        X[3], y[3] = row, label
        for v in (w, 1e250 * w):
            after = UnclippedRisk(X, y, PLAIN_SQUARES).soft_gradient(v, scale, 3.0)
            assert np.all(np.isfinite(after))
            if v is w:
                assert np.max(np.abs(after - before)) <= 2 * INFLUENCE * scale / 20 * (1 + 1e-12)


def test_no_array_of_the_size_of_the_data_is_made() -> None:
    X = np.ones((200_000, 10))
    soft_mean(X[:100], 1.0, 3.0)
    tracemalloc.start()
    soft_mean(X, 1.0, 3.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 4
