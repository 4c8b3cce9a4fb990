"""Utility measures and the certified minima that they are measured against."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from privopt.experiments.first_order_noise import advanced_epsilon, gradient_row, selection_row
from privopt.experiments.workbench import dpgd_baseline
from privopt.experiments.workbench.dpgd_baseline import dpgd_accuracies
from privopt.experiments.workbench.measures import accuracy
from privopt.oracles.convex.proximal import lower_bound, minimize_convex
from privopt.oracles.convex.quantities import contains
from privopt.oracles.errors import CertificateError, UnsupportedProblemError
from privopt.problems.convex.losses import HuberLoss, LogisticLoss, SigmoidLoss
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet, lasso, ridge
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.box import Box
from privopt.problems.convex.sets.box_intersection import BoxIntersection
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.k_support import KSupportBall
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.polytope import Polytope
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.errors import InvalidInputError
from tests.mechanisms.convex.measures import excess_risk, frank_wolfe_gap, gradient_mapping_norm
from tests.problems.datasets.logistic_signs import make_logistic_signs

X, Y, _ = make_logistic_signs(400, 5, seed=0)
RISK = EmpiricalRisk(X, Y, LogisticLoss())

PROBLEMS: list[tuple[ConvexSet, ElasticNet]] = [
    (L2Ball(5, 3.0), NO_REGULARIZER),
    (L1Ball(5, 3.0), NO_REGULARIZER),
    (Simplex(5, 2.0), ridge(0.1)),
    (LinfBall(5, 1.0), lasso(0.01)),
    (L2Ball(5, 3.0), ElasticNet(0.01, 0.01)),
    (WholeSpace(5), lasso(0.02)),
    (WholeSpace(5), ridge(0.02)),
    (WholeSpace(5), ElasticNet(0.02, 0.02)),
    (Simplex(5, 2.0), lasso(0.1)),
    (KSupportBall(5, 2, 1.0), lasso(0.01)),
    (Box(np.full(5, 0.1), np.ones(5)), lasso(0.05)),
    (ConvexHull(np.random.default_rng(1).standard_normal((12, 5))), ridge(0.1)),
    (Polytope(np.ones((1, 5)), [1.0], np.full(5, -0.5), np.ones(5)), NO_REGULARIZER),
    (Polytope(np.ones((1, 5)), [1.0], np.full(5, -0.5), np.ones(5)), lasso(0.02)),
    (BoxIntersection(Box(np.full(5, -0.5), np.ones(5)), L2Ball(5, 0.9)), lasso(0.02)),
]


@pytest.mark.parametrize(("space", "penalty"), PROBLEMS)
def test_minima_are_certified_and_lower_bounds_hold_everywhere(space: ConvexSet, penalty: ElasticNet) -> None:
    found = minimize_convex(RISK, space, penalty, gap=1e-7).require(1e-7)
    assert contains(space, found.point, 1e-9)
    rng = np.random.default_rng(0)
    for w in rng.normal(size=(20, 5)):
        assert lower_bound(RISK, space, penalty, w) <= found.value + 1e-9
    assert gradient_mapping_norm(RISK, found.point, space, penalty) < 1e-2
    low, high = excess_risk(RISK, found.point, space, penalty, reference=found)
    assert 0 <= low <= high <= 1e-7 + 1e-12


def test_the_minimum_is_the_one_of_a_general_solver() -> None:
    # The lasso with w = u - v, u, v >= 0, is smooth: L-BFGS-B solves it with bounds.
    def split(z: np.ndarray) -> float:
        return RISK.value(z[:5] - z[5:]) + 0.02 * float(np.sum(z))

    best = minimize(split, np.zeros(10), method="L-BFGS-B", bounds=[(0, None)] * 10, tol=1e-13)
    assert minimize_convex(RISK, None, lasso(0.02)).value == pytest.approx(best.fun, abs=1e-5)


def test_what_cannot_be_certified_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        minimize_convex(RISK)
    with pytest.raises(InvalidInputError, match="convex"):
        minimize_convex(EmpiricalRisk(X, Y, SigmoidLoss()), L2Ball(5, 1.0))
    with pytest.raises(UnsupportedProblemError):
        lower_bound(RISK, ConvexHull(np.eye(5)), lasso(0.1), np.zeros(5))
    with pytest.raises(CertificateError):
        minimize_convex(RISK, L2Ball(5, 3.0), steps=1).require(1e-9)


def test_measures_by_hand() -> None:
    # One record a = (1, 0), y = 0 under the Huber loss: F(w) = w_1^2 / 2 near 0, gradient (w_1, 0).
    risk = EmpiricalRisk(np.array([[1.0, 0.0]]), [0.0], HuberLoss(10.0))
    w = np.array([0.5, 0.0])
    assert gradient_mapping_norm(risk, w) == pytest.approx(0.5)
    # Over the unit l2 ball the linear minimum of (0.5, 0) is -0.5: 0.25 + 0.5.
    assert frank_wolfe_gap(risk, w, L2Ball(2, 1.0)) == pytest.approx(0.75)
    # With l2 = 1 the gradient is (1, 0): 0.5 + 1.
    assert frank_wolfe_gap(risk, w, L2Ball(2, 1.0), l2=1.0) == pytest.approx(1.5)
    # At the boundary w = (1, 0) of the ball around 0 moving out is cut: w+ = w for a gradient that points in.
    flipped = EmpiricalRisk(np.array([[1.0, 0.0]]), [5.0], HuberLoss(10.0))
    edge = np.array([1.0, 0.0])
    assert gradient_mapping_norm(flipped, edge, L2Ball(2, 1.0)) == pytest.approx(0, abs=1e-12)
    low, high = excess_risk(risk, w, L2Ball(2, 1.0))
    assert low <= 0.125 <= high + 1e-12
    assert high - low <= 1e-6
    signs = EmpiricalRisk(np.array([[1.0], [0.5], [-1.0]]), [1, -1, -1], LogisticLoss())
    assert accuracy(signs, np.array([2.0])) == pytest.approx(2 / 3)
    with pytest.raises(InvalidInputError):
        accuracy(risk, w)
    with pytest.raises(InvalidInputError):
        gradient_mapping_norm(risk, w, step=0.0)


def test_the_baseline_learns_and_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpgd_baseline, "STEPS", (5, 20))
    first = dpgd_accuracies(X, Y, X, Y, 10.0, 1e-3, 2, seed=3)
    assert len(first) == 2
    assert all(train > 0.75 and test == train for train, test, _ in first)
    again = dpgd_accuracies(X, Y, X, Y, 10.0, 1e-3, 2, seed=3)
    assert [row[:2] for row in again] == [row[:2] for row in first]


@pytest.mark.parametrize("steps", [10, 1000])
def test_noise_is_never_below_the_least_and_below_the_printed(steps: int) -> None:
    row = gradient_row(1.0, 1e-8, steps, 10_000)
    assert row["least"] <= row["added"] < 1.01 * row["least"]
    assert row["added"] < row["moments, c = 8"] < row["advanced composition"]
    choice = selection_row(1.0, 1e-8, steps, 10_000)
    assert choice["least"] <= choice["added"] * (1 + 1e-9) < choice["printed"]
    part = advanced_epsilon(1.0, 1e-8, steps)
    total = np.sqrt(2 * steps * np.log(1e8)) * part + steps * part * np.expm1(part)
    assert total == pytest.approx(1.0)
