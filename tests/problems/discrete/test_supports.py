"""Restricted squared losses: against an independent solver, and their sensitivity by brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import brentq

from privopt.problems.datasets.synthetic import SparseDesign
from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.supports import (
    MOST_FEATURES,
    UNITS,
    BestSubset,
    SubsetBounds,
    SupportLattice,
    too_large,
)
from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]


def least_squares_in_ball(A: Floats, y: Floats, radius: float) -> float:
    """Minimum of |y - A b|^2 over |b| <= radius, from a singular value decomposition of the records."""
    U, d, _ = np.linalg.svd(A, full_matrices=False)
    seen = d > 1e-10 * d.max(initial=1e-300)
    d, q = d[seen], (U.T @ y)[seen]

    def shrunk(penalty: float) -> Floats:
        return np.asarray(q * d / (d**2 + penalty))

    def excess(penalty: float) -> float:
        return float(np.linalg.norm(shrunk(penalty))) - radius

    penalty = 0.0
    if excess(0.0) > 0:
        penalty = float(brentq(excess, 0.0, np.linalg.norm(q * d) / radius, xtol=1e-14, rtol=1e-14))
    rest = float(y @ y) - float(q @ q)
    return rest + float(np.sum((q - d * shrunk(penalty)) ** 2))


@pytest.mark.parametrize("bounds", [
    SubsetBounds(1.0, feature=1.0),
    SubsetBounds(2.0, feature=0.5, radius=5.0),
    SubsetBounds(1.0, row=1.5, constant=0.75),
    SubsetBounds(0.5, feature=1.0, row=1.2, constant=2.0, radius=0.1),
])  # fmt: skip
@pytest.mark.parametrize("n", [3, 40])
def test_losses_are_minima_over_the_ball(bounds: SubsetBounds, n: int) -> None:
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, 5))
    X[:, 4] = X[:, 0]  # singular for some supports; for n = 3, for all
    y = X[:, 0] - X[:, 1] + rng.normal(size=n)
    lattice = SupportLattice(5, 3)
    problem = BestSubset(X, y, lattice, bounds)
    points = np.concatenate(list(lattice.batches()))
    features, labels = bounds.cut(X, y)
    if bounds.constant:
        features = np.column_stack([features, np.full(n, bounds.constant)])
    worst = (bounds.label + bounds.ball(3) * bounds.reach(3)) ** 2
    for point, loss in zip(points, problem.losses(points), strict=True):
        columns = [*np.flatnonzero(point), *range(5, features.shape[1])]
        exact = least_squares_in_ball(features[:, columns], labels, bounds.ball(3))
        assert abs(loss - exact * UNITS / worst) <= problem.loss_error


def test_losses_of_nearly_equal_columns_are_certified() -> None:
    """Columns that differ by a billionth: along the difference b is large before the ball ends it."""
    rng, lattice = np.random.default_rng(0), SupportLattice(4, 2)
    for _ in range(30):
        X = rng.normal(size=(300, 1)) + 1e-9 * rng.normal(size=(300, 4))
        y = X[:, 0] * 10.0 ** rng.integers(-3, 3)
        BestSubset(X, y, lattice, SubsetBounds(1.0, feature=1.0)).losses(
            np.concatenate(list(lattice.batches()))
        )


def test_a_bound_on_rows_or_on_columns_bounds_the_predictions() -> None:
    """No feasible residual exceeds label + r reach: the supremum over corners, by brute force."""
    for bounds in (SubsetBounds(1.0, feature=2.0), SubsetBounds(3.0, feature=1.0, constant=0.5, radius=2.0)):
        corners = np.array(list(itertools.product((-bounds.feature, bounds.feature), repeat=3)))
        rows = np.column_stack([corners, np.full(len(corners), bounds.constant)])
        largest = bounds.ball(3) * np.linalg.norm(rows, axis=1).max()  # by Cauchy and Schwarz, reached
        assert (bounds.label + largest) ** 2 == pytest.approx(bounds.largest_loss(3), rel=1e-9)
    assert SubsetBounds(1.0, feature=2.0).ball(4) == pytest.approx(0.25)  # predictions of at most 1


def test_replacing_a_record_moves_no_loss_by_more_than_the_bound() -> None:
    """Neighbours from extreme records, some beyond the bounds: the bound holds, and is nearly reached."""
    bounds, lattice = SubsetBounds(1.0, feature=1.0), SupportLattice(3, 2)
    points = np.concatenate(list(lattice.batches()))
    corners = np.array(list(itertools.product((-7.0, 0.0, 1.0), repeat=3)))
    records = [(x, label) for x in corners for label in (-30.0, 0.0, 1.0)]
    largest = 0
    for common in ((1.0, 1.0, 1.0), (1.0, 0.0, -1.0), (0.1, 0.0, 0.0)):
        X, y = np.tile(common, (60, 1)), np.ones(60)
        losses = []
        for x, label in records:
            X[0], y[0] = x, label
            losses.append(BestSubset(X, y, lattice, bounds).losses(points))
        spread = np.max(losses, axis=0) - np.min(losses, axis=0)
        largest = max(largest, int(spread.max()))
    assert largest <= BestSubset.record_loss_bound + 2 * BestSubset.loss_error
    assert largest >= 0.9 * BestSubset.record_loss_bound


def test_records_are_cut_one_by_one() -> None:
    bounds = SubsetBounds(1.0, feature=1.0, row=1.2)
    X = np.array([[3.0, 0.5, 0.0], [0.1, -0.2, 0.3], [-2.0, -2.0, -2.0]])
    features, labels = bounds.cut(X, np.array([5.0, -0.5, -9.0]))
    assert np.array_equal(labels, [1.0, -0.5, -1.0])
    assert np.array_equal(features[1], X[1])
    assert np.max(np.linalg.norm(features, axis=1)) <= 1.2 * (1 + 1e-15)
    for k in range(3):
        assert np.array_equal(bounds.cut(X[[k]], np.zeros(1))[0][0], features[k])


def test_supports_are_counted_once() -> None:
    lattice = SupportLattice(6, 3)
    points = np.concatenate(list(lattice.batches(7)))
    assert len(points) == lattice.size == lattice.box_size == math.comb(6, 3)
    assert all(lattice.contains(w) for w in points)
    assert sorted(lattice.ranks(points).tolist()) == list(range(20))
    ranks = lattice.ranks(points).tolist()
    assert all(np.array_equal(lattice.point(k), w) for k, w in zip(ranks, points, strict=True))
    assert not lattice.contains(np.ones(6, dtype=np.int64))
    assert not lattice.contains(np.array([1, 1, 1, 0, 0, 2]))
    assert lattice == SupportLattice(6, 3)
    assert hash(lattice) == hash(SupportLattice(6, 3))
    assert lattice != SupportLattice(6, 2)
    assert lattice != IntegerLattice(0, 1, dimension=6)
    assert IntegerLattice(0, 1, dimension=6) != lattice
    assert str(lattice) == "supports of 3 of 6 features"


def test_boxes_number_their_points() -> None:
    lattice = IntegerLattice(np.array([-1, 2]), np.array([1, 5]))
    points = np.concatenate(list(lattice.batches()))
    assert lattice.ranks(points).tolist() == list(range(12))
    assert all(np.array_equal(lattice.point(k), w) for k, w in enumerate(points))


def test_bad_input_is_refused() -> None:
    good, bounds = np.zeros((4, 3)), SubsetBounds(1.0, feature=1.0)
    with pytest.raises(InvalidInputError, match="at most 3 features, as there are"):
        SupportLattice(3, 4)
    with pytest.raises(InvalidInputError, match="whole number"):
        SupportLattice(3, 0)
    with pytest.raises(InvalidInputError, match="3 features and a label per row"):
        BestSubset(good, np.zeros(3), SupportLattice(3, 1), bounds)
    with pytest.raises(InvalidInputError, match="finite"):
        BestSubset(np.full((4, 3), np.nan), np.zeros(4), SupportLattice(3, 1), bounds)
    for wrong in ({"label": 0.0}, {"feature": -1.0}, {"radius": 0.0}):
        with pytest.raises(InvalidInputError, match="must be > 0"):
            SubsetBounds(**{"label": 1.0, "feature": 1.0, **wrong})
    for unbounded in ({}, {"feature": 1.0, "radius": math.inf}, {"feature": 1.0, "constant": -1.0}):
        with pytest.raises(InvalidInputError, match="bound"):
            SubsetBounds(1.0, **unbounded)
    assert too_large(1000, SupportLattice(10, 2)) == []
    assert len(too_large(10**9, SupportLattice(MOST_FEATURES + 1, 41))) == 3


def test_a_design_has_its_variances_and_correlations() -> None:
    design = SparseDesign(12, 3, snr=4.0, correlation=0.5)
    X, y = design.table(40_000, np.random.default_rng(0))
    assert design.support.tolist() == [0, 4, 8]
    correlations = np.corrcoef(X, rowvar=False)
    assert correlations[2, 3] == pytest.approx(0.5, abs=0.02)
    assert correlations[2, 4] == pytest.approx(0.25, abs=0.02)
    signal = X[:, design.support].sum(axis=1) / math.sqrt(3)
    assert np.var(signal) / np.var(y - signal) == pytest.approx(4.0, rel=0.05)
    with pytest.raises(InvalidInputError, match="sparse design"):
        SparseDesign(3, 4)
