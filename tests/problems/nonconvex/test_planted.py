"""Non-convex problems: constants against differences, saddles and minima against what is claimed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from privopt.problems.convex.loss_check import LossCheckError, check_loss
from privopt.problems.convex.losses import SigmoidLoss
from privopt.problems.errors import InvalidInputError
from privopt.problems.nonconvex.factorisation import FactorRisk
from privopt.problems.nonconvex.planted import (
    Planted,
    low_rank,
    phase_retrieval,
    sigmoid_saddle,
    strict_saddle,
)
from privopt.problems.nonconvex.quartic import QuarticLoss

PROBLEMS = [
    strict_saddle(600, 2),
    strict_saddle(600, 3, wells=2),
    phase_retrieval(600, 4),
    low_rank(600, 4, 2),
    sigmoid_saddle(600, 3),
]


def named(problem: Planted) -> str:
    return problem.name


@pytest.mark.parametrize("bound", [1.0, 1.5, 4.0])
def test_the_quartic_keeps_its_constants(bound: float) -> None:
    check_loss(QuarticLoss(bound))
    z = np.linspace(-bound, bound, 101)
    for y in (0.0, 0.4, 1.0):
        assert QuarticLoss(bound).value(z, np.full_like(z, y)) == pytest.approx((z**2 - y) ** 2 / 4)
    far = np.array([1e3, -1e3])
    assert np.all(QuarticLoss(bound).curvature(far, np.zeros(2)) == 0)
    assert np.abs(QuarticLoss(bound).slope(far, np.zeros(2))) == pytest.approx(1.75 * bound**3)


def test_a_curvature_that_moves_faster_than_declared_is_found() -> None:
    class Hasty(SigmoidLoss):
        curvature_lipschitz = 0.12

    with pytest.raises(LossCheckError, match=r"curvature_lipschitz is declared 0\.12"):
        check_loss(Hasty())


def test_a_quartic_needs_room_for_its_minima() -> None:
    with pytest.raises(InvalidInputError, match="bound must be from 1"):
        QuarticLoss(0.9)


@pytest.mark.parametrize("problem", PROBLEMS, ids=named)
def test_gradients_and_hessians_are_derivatives(problem: Planted) -> None:
    rng = np.random.default_rng(1)
    risk, p, h = problem.risk, problem.risk.facts.dimension, 1e-5
    for scale in (0.0, 0.3, 2.0):
        w = problem.saddle + scale * rng.standard_normal(p)
        differences = [(risk.value(w + h * e) - risk.value(w - h * e)) / (2 * h) for e in np.eye(p)]
        assert risk.gradient(w) == pytest.approx(np.array(differences), abs=1e-8)
        columns = [(risk.gradient(w + h * e) - risk.gradient(w - h * e)) / (2 * h) for e in np.eye(p)]
        assert risk.hessian(w) == pytest.approx(np.array(columns), abs=1e-5)
        assert np.array_equal(risk.hessian(w), risk.hessian(w).T)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_constants_of_one_record_hold_and_are_nearly_met(rank: int) -> None:
    """Of factorisation, whose derivation is this package's own; linear models have tests elsewhere."""
    rng = np.random.default_rng(rank)
    loss = QuarticLoss(1.2)
    worst = np.zeros(4)
    for y in (0.0, 1.0):
        risk = FactorRisk(np.eye(3)[:1], [y], rank, loss)
        for length in np.linspace(0.01, 3, 60):
            U, V = rng.standard_normal((2, 3, rank))
            U[0] *= length / np.linalg.norm(U[0])
            V[1:] = 0  # only the first row is seen
            V[0] = U[0] if rng.random() < 0.5 else V[0]
            V /= np.linalg.norm(V)
            w, move, h = U.ravel(), V.ravel(), 1e-4
            H = risk.hessian(w)
            turn = (risk.hessian(w + h * move) - risk.hessian(w - h * move)) / (2 * h)
            seen = [np.linalg.norm(risk.gradient(w)), np.linalg.norm(H, 2), np.linalg.norm(H), 0.0]
            seen[3] = np.linalg.norm(turn, 2)
            worst = np.maximum(worst, seen)
    f = risk.facts
    claimed = np.array([f.gradient_bound, f.smoothness, f.hessian_bound, f.hessian_lipschitz])
    assert np.all(worst <= claimed * (1 + 1e-6))
    assert np.all(worst[[0, 1, 3]] >= 0.9 * claimed[[0, 1, 3]])


@pytest.mark.parametrize("problem", PROBLEMS, ids=named)
def test_constants_hold_between_random_points(problem: Planted) -> None:
    rng = np.random.default_rng(2)
    risk, facts = problem.risk, problem.risk.facts
    points = [problem.saddle + s * rng.standard_normal(facts.dimension) for s in (0, 0.01, 0.3, 1.0, 3.0)]
    for v, w in itertools.combinations(points, 2):
        apart = float(np.linalg.norm(v - w))
        assert abs(risk.value(v) - risk.value(w)) <= facts.gradient_bound * apart
        assert np.linalg.norm(risk.gradient(v) - risk.gradient(w)) <= facts.smoothness * apart
        assert np.linalg.norm(risk.hessian(v) - risk.hessian(w), 2) <= facts.hessian_lipschitz * apart


@pytest.mark.parametrize("problem", PROBLEMS, ids=named)
def test_the_saddle_is_a_strict_one(problem: Planted) -> None:
    assert np.linalg.norm(problem.risk.gradient(problem.saddle)) < 1e-12
    least = float(np.linalg.eigvalsh(problem.risk.hessian(problem.saddle))[0])
    assert least < -0.01
    if problem.curvature is not None:
        assert least == pytest.approx(problem.curvature)


def test_minima_are_minima() -> None:
    for problem in PROBLEMS[:-1]:
        assert problem.distance is not None
        assert problem.distance(problem.saddle) >= 0.99
        w = problem.saddle + 0.1 * np.random.default_rng(3).standard_normal(problem.saddle.size)
        for _ in range(6000):
            w = w - problem.risk.gradient(w) / problem.risk.facts.smoothness
        assert problem.risk.value(w) < 1e-3
        assert problem.distance(w) < 0.2


def test_the_sigmoid_saddle_has_the_curvature_of_the_sigmoid() -> None:
    """s'' at the offset times half of the second moment of <u c, e>, |u| = 1, over its best direction e."""
    problem = sigmoid_saddle(600, 2, offset=1.2)  # u = +-1
    s = 1 / (1 + math.exp(1.2))
    least = float(np.linalg.eigvalsh(problem.risk.hessian(problem.saddle))[0])
    assert least == pytest.approx(-0.5 * 0.5 * s * (1 - s) * (1 - 2 * s), rel=1e-6)


def test_bad_shapes_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="multiple of 2"):
        strict_saddle(7, 2)
    with pytest.raises(InvalidInputError, match="multiple of 4"):
        sigmoid_saddle(6, 2)
    with pytest.raises(InvalidInputError, match="rank must be from 1 to 2"):
        FactorRisk(np.eye(2), [0.5, 0.5], 3)
    with pytest.raises(InvalidInputError, match=r"shape \(4,\)"):
        FactorRisk(np.eye(2), [0.5, 0.5], 2).value(np.zeros(3))
