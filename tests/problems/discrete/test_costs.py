"""Errors that cost: losses against their definition, sensitivity, ratios, oracles and mechanisms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from privopt.mechanisms import MECHANISMS
from privopt.mechanisms.errors import PlanMismatchError
from privopt.oracles.draw.interface import Law
from privopt.oracles.registry import GIBBS, MINIMIZERS
from privopt.oracles.select import gibbs_oracle, minimizer
from privopt.oracles.task import Task
from privopt.problems import (
    Costs,
    IntegerLattice,
    InvalidInputError,
    MonotoneConjunction,
    MonotoneDisjunction,
    Perturbation,
    ZeroOneHalfspace,
)
from privopt.problems.discrete.candidates import CandidateCards

COSTS = Costs(19, 4)
LATTICE = IntegerLattice(-1, 1, dimension=5)


def halfspaces(n: int = 60, seed: int = 0, costs: Costs = COSTS) -> ZeroOneHalfspace:
    rng = np.random.default_rng(seed)
    X = np.hstack(
        [np.eye(3, dtype=int)[rng.integers(0, 3, n)] * 6, rng.integers(-4, 7, (n, 1)), np.full((n, 1), 6)]
    )
    return ZeroOneHalfspace(X, rng.choice([-1, 1], n), LATTICE, costs)


def all_points(lattice: IntegerLattice) -> np.ndarray:
    return np.concatenate(list(lattice.batches()))


def price(predicted: np.ndarray, y: np.ndarray, costs: Costs) -> int:
    missed = int(np.sum((y > 0) & (predicted < 0)))
    alarms = int(np.sum((y < 0) & (predicted > 0)))
    return costs.false_negative * missed + costs.false_positive * alarms


@pytest.mark.parametrize("kind", [MonotoneConjunction, MonotoneDisjunction, ZeroOneHalfspace])
def test_losses_are_what_errors_cost(kind: type) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.integers(0, 2, (40, 5)), rng.choice([-1, 1], 40)
    problem: Any = kind(X, y, IntegerLattice(0, 1, dimension=5), COSTS)
    points = all_points(problem.lattice)
    assert problem.losses(points).tolist() == [price(problem.predict(w), y, COSTS) for w in points]
    assert problem.record_loss_bound == 19
    assert problem.largest_loss == 40 * 19


def test_one_record_moves_a_loss_by_at_most_the_larger_cost() -> None:
    first = halfspaces()
    most = 0
    for label in (-1, 1):
        for row in ([6, 0, 0, 3, 6], [0, 0, 0, -4, 6]):
            X, y = first.X.copy(), first.y.copy()
            X[0], y[0] = row, label
            points = all_points(LATTICE)
            moved = first.losses(points) - ZeroOneHalfspace(X, y, LATTICE, COSTS).losses(points)
            most = max(most, int(np.max(np.abs(moved))))
    assert most == 19


def test_lists_of_cards_cost_alike() -> None:
    cards = np.random.default_rng(2).integers(-1, 2, (4, 5))
    problem = CandidateCards(halfspaces(), cards, np.tile([-1, 0, 1], (4, 1)))
    points = all_points(problem.lattice)
    assert problem.losses(points).tolist() == halfspaces().losses([problem.card(p) for p in points]).tolist()
    assert problem.record_loss_bound == 19


@pytest.mark.parametrize("name", ["native", "interval", "enumerate", "pulp-highs"])
@pytest.mark.parametrize("task", list(Task))
def test_minimisers_agree_with_brute_force(name: str, task: Task) -> None:
    problem, points = halfspaces(), all_points(LATTICE)
    eta = np.random.default_rng(3).normal(size=6) * 30
    noise = (
        Perturbation.normalized(LATTICE, eta)
        if task is Task.NORMALIZED
        else Perturbation.linear(LATTICE, eta[:5])
    )
    answer = minimizer(name).prepare(problem, task).minimize(noise, break_ties=True)
    assert answer.certificate.fixed_value == int(np.min(problem.values(points, noise)))
    assert name in MINIMIZERS


@pytest.mark.parametrize("name", ["enumerate", "elimination", "branch"])
def test_samplers_sum_and_draw_what_errors_cost(name: str) -> None:
    """The mean loss of 400 draws against the exact expectation, five standard errors apart at most."""
    from privopt.mechanisms.privacy.noise import NoiseSource

    problem, points, beta = halfspaces(), all_points(LATTICE), 0.02
    losses = problem.losses(points)
    weights = np.exp(-beta * (losses - losses.min()))
    mean = float(weights @ losses / weights.sum())
    spread = float(np.sqrt(weights @ (losses - mean) ** 2 / weights.sum()))
    oracle, source = gibbs_oracle(name).prepare(problem, Law.GIBBS), NoiseSource(insecure_seed=1)
    drawn = [oracle.draw(beta, source).loss for _ in range(400)]
    assert abs(np.mean(drawn) - mean) < 5 * spread / 20
    if name != "branch":
        assert oracle.expected_loss(beta) == pytest.approx(mean, rel=1e-9)
    assert name in GIBBS


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_plans_follow_the_larger_cost(name: str) -> None:
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-3}
    plain = MECHANISMS[name].plan(ZeroOneHalfspace, LATTICE, **options)
    dear = MECHANISMS[name].plan(ZeroOneHalfspace, LATTICE, loss_bound=COSTS.largest, **options)
    key = next(iter(plain.noise))
    ratio = dear.noise[key] / plain.noise[key]
    assert ratio == pytest.approx(1 / 19 if key == "beta" else 19, rel=1e-4)
    with pytest.raises(PlanMismatchError, match="19"):
        plain.check_problem(halfspaces())
    dear.check_problem(halfspaces())


@pytest.mark.parametrize(
    ("given", "costs"),
    [
        ((1, 1), (1, 1)),
        ((5, 1), (5, 1)),
        ((1, 19.2), (5, 96)),
        ((0.5, 0.25), (2, 1)),
        ((1 / 0.03, 1), (100, 3)),
    ],
)
def test_ratios_become_small_whole_numbers(given: tuple[float, float], costs: tuple[int, int]) -> None:
    found = Costs.in_ratio(*given)
    assert (found.false_negative, found.false_positive) == costs
    assert found.false_negative / found.false_positive == pytest.approx(given[0] / given[1], rel=0.05)


@pytest.mark.parametrize(
    "given", [(0, 1), (-1, 1), (float("nan"), 1), (1, float("inf")), ("a", 1), (1e9, 1), (True, 1)]
)
def test_costs_that_are_none_are_refused(given: Any) -> None:
    with pytest.raises(InvalidInputError):
        Costs.in_ratio(*given)
    with pytest.raises(InvalidInputError):
        Costs(*given)


def test_losses_beyond_the_tables_are_refused() -> None:
    X, y = np.tile([[6, 0], [0, 6]], (40_000, 1)), np.resize([1, -1], 80_000)
    problem = ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=2), Costs(100_000, 1))
    for oracle in (
        minimizer("native").refusals(problem, Task.LINEAR),
        gibbs_oracle("elimination").refusals(problem),
    ):
        assert any("32-bit" in reason for reason in oracle)
