"""Oracles by name, and the automatic choice."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.oracles import DiscreteOracle, Task, UnknownOracleError, gibbs_oracle, minimizer
from privopt.oracles.errors import MissingSolverError
from privopt.oracles.gibbs import GibbsOracle, Law
from privopt.oracles.select import GIBBS, MINIMIZERS, AutoGibbs, AutoOracle, inventory
from privopt.problems import IntegerLattice, MonotoneConjunction, ZeroOneHalfspace
from privopt.problems.discrete import DiscreteProblem
from privopt.problems.synthetic import make_cells


def cells(width: int, columns: int) -> ZeroOneHalfspace:
    X, y = make_cells(200, blocks=(4, 3), numeric=columns, seed=0)
    return ZeroOneHalfspace(X, y, IntegerLattice(-width, width, dimension=X.shape[1]))


def dense(dimension: int, width: int) -> ZeroOneHalfspace:
    rng = np.random.default_rng(0)
    X, y = rng.integers(-50, 51, (300, dimension)), rng.choice([-1, 1], 300)
    return ZeroOneHalfspace(X, y, IntegerLattice(-width, width, dimension=dimension))


def conjunction(dimension: int) -> MonotoneConjunction:
    rng = np.random.default_rng(0)
    return MonotoneConjunction(rng.integers(0, 2, (50, dimension)), rng.choice([-1, 1], 50))


@pytest.mark.parametrize(
    ("problem", "expected"),
    [
        (dense(3, 2), "enumerate"),
        (cells(4, 1), "native"),
        (dense(6, 6), "interval"),
        (conjunction(20), "pulp-highs"),
    ],
)
def test_auto_takes_the_first_that_fits_and_says_why(problem: DiscreteProblem, expected: str) -> None:
    oracle, reason = AutoOracle().choose(problem, Task.LINEAR)
    assert oracle.name == expected == minimizer("auto").prepare(problem, Task.LINEAR).name
    assert reason.startswith(expected)
    assert len(reason) > len(expected) + 10


@pytest.mark.parametrize(
    ("problem", "expected"),
    [(dense(3, 2), "gibbs-enumerate"), (cells(4, 1), "gibbs-elimination")],
)
def test_auto_draws_likewise(problem: DiscreteProblem, expected: str) -> None:
    oracle, reason = AutoGibbs().choose(problem, Law.GIBBS)
    assert oracle.name == expected == gibbs_oracle("auto").prepare(problem).name
    assert reason


def test_names_make_oracles_or_say_what_is_missing() -> None:
    for name in MINIMIZERS:
        missing = not next(e.installed for e in inventory() if e.name == name)
        if missing:
            with pytest.raises(MissingSolverError, match="install"):
                minimizer(name)
        else:
            assert isinstance(minimizer(name), DiscreteOracle)
    for name in GIBBS:
        assert isinstance(gibbs_oracle(name), GibbsOracle)
    with pytest.raises(UnknownOracleError, match="pulp-highs"):
        minimizer("magic")
    with pytest.raises(UnknownOracleError, match="elimination"):
        gibbs_oracle("magic")


def test_the_inventory_lists_every_name() -> None:
    entries = inventory()
    assert {e.name for e in entries} == set(MINIMIZERS) | set(GIBBS)
    assert all(e.summary if e.installed else e.remedy for e in entries)
