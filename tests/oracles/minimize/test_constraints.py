"""MIP minimisers over constrained lattices against enumeration, for every kind of constraint."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
import pytest

from privopt.oracles import Task, minimizer
from privopt.oracles.errors import UnsupportedProblemError
from privopt.oracles.minimize.mip.highs import HighsOracle
from privopt.problems import (
    ConstrainedLattice,
    IntegerLattice,
    MonotoneConjunction,
    Perturbation,
    ZeroOneHalfspace,
)
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.programs.columns import PointColumn

COLUMNS = (
    PointColumn("bins", 0, 2, ordered=2),
    PointColumn("kinds", 2, 4, others=True),
    PointColumn("number", 4, 5, ordered=1, ends=(Fraction(1, 2), Fraction(1))),
)
BOX = IntegerLattice([-1, -1, -1, -1, -2, 0], [1, 1, 1, 1, 2, 1])
KINDS = [
    ["points(number) in {-2, 1}", "points(bins) in [0, 1]"],
    ["sign(kinds, number) = -", "monotone(bins) = falling"],
    ["at most 1 of bins, number", "at least 2 columns"],
    ["if kinds then number", "any of bins, kinds"],
    ["total in [-1, 1]", "all of number"],
]


def rows() -> tuple[IntArray, IntArray]:
    rng = np.random.default_rng(3)
    hot = [np.eye(2, dtype=np.int64)[rng.integers(0, 2, 30)] for _ in range(2)]
    return np.hstack([*hot, rng.integers(0, 3, (30, 1)), np.ones((30, 1), np.int64)]), rng.choice([-1, 1], 30)


@pytest.mark.parametrize("model", ["rows", "cells"])
@pytest.mark.parametrize("constraints", KINDS, ids="; ".join)
def test_models_have_the_rows_of_every_constraint(
    constraints: list[str], model: Literal["rows", "cells"]
) -> None:
    lattice = ConstrainedLattice(BOX, COLUMNS, constraints)
    problem = ZeroOneHalfspace(*rows(), lattice)
    reference = minimizer("enumerate").prepare(problem, Task.LINEAR)
    highs = HighsOracle(model=model).prepare(problem, Task.LINEAR)
    rng = np.random.default_rng(4)
    # Whole numbers make ties common; without losses to speak of, every corner of the domain is a minimiser.
    for scale in (1, 60):
        perturbation = Perturbation.linear(lattice, scale * rng.integers(-1, 2, 6))
        expected = reference.minimize(perturbation, break_ties=True).require(lexicographic=True)
        found = highs.minimize(perturbation, break_ties=True)
        assert found.require(gap=0.0, lexicographic=True).tolist() == expected.tolist()


def test_rows_cut_nothing_off_that_satisfies_the_constraints() -> None:
    """Each point of a domain is the only minimiser of some perturbation, and the model finds it."""
    lattice = ConstrainedLattice(
        IntegerLattice(0, 1, dimension=3), (PointColumn("a", 0, 2), PointColumn("b", 2, 3)), ["if b then a"]
    )
    problem = MonotoneConjunction([[1, 1, 1]], [1], lattice)
    prepared = minimizer("highs").prepare(problem, Task.LINEAR)
    points = [point.tolist() for point in lattice.points()]
    assert len(points) == 6  # of 8: (0, 0, 1) and (1, 1, 1) have b without telling records apart by a
    for point in points:
        towards = Perturbation.linear(lattice, 50 * (1 - 2 * np.array(point)))
        assert prepared.minimize(towards).require().tolist() == point


def test_more_distinct_records_than_a_row_model_takes_are_minimised_in_cells() -> None:
    """Without records of the second class 0 is the only perfect point; the constraint excludes it."""
    columns = (PointColumn("a", 0, 2, ordered=2), PointColumn("number", 2, 3, ordered=1))
    lattice = ConstrainedLattice(
        IntegerLattice([0, 0, -1], [1, 1, 0]), columns, ["any of a", "if number then a"]
    )
    n = 50_001
    X = np.column_stack([np.eye(2, dtype=np.int64)[np.arange(n) % 2], -1 - np.arange(n)])
    problem = ZeroOneHalfspace(X, np.full(n, -1), lattice)
    assert problem.loss(np.zeros(3, dtype=np.int64)) == 0
    with pytest.raises(UnsupportedProblemError, match="more than 50000 columns"):
        HighsOracle(model="rows").prepare(problem, Task.LINEAR)
    cells = HighsOracle(model="cells").prepare(problem, Task.LINEAR)
    answer = cells.minimize(Perturbation.zero(lattice), break_ties=True)
    # The level of odd rows, of which there are n // 2; any points of the number cost more.
    assert answer.require(lexicographic=True).tolist() == [0, 1, 0]


def test_totals_of_fine_numbers_are_refused_before_a_model_is_built() -> None:
    fine = (PointColumn("number", 0, 1, ordered=1, ends=(Fraction(1, 10_007), Fraction(1))),)
    lattice = ConstrainedLattice(IntegerLattice(-1, 1, dimension=1), fine, ["total in [-1, 1]"])
    problem = ZeroOneHalfspace([[1], [2]], [1, -1], lattice)
    with pytest.raises(UnsupportedProblemError, match="common denominator 10007"):
        minimizer("highs").prepare(problem, Task.LINEAR)
    assert minimizer("auto").prepare(problem, Task.LINEAR).name == "enumerate"
