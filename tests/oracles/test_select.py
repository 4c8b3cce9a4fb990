"""Oracles by name, and the automatic choice."""

from __future__ import annotations

import numpy as np
import pytest

from privopt.oracles import DiscreteOracle, Task, UnknownOracleError, gibbs_oracle, minimizer
from privopt.oracles.cells.structure import CellLimits
from privopt.oracles.draw.branch import GibbsBranch
from privopt.oracles.draw.elimination import GibbsElimination
from privopt.oracles.draw.enumerate import GibbsEnumeration
from privopt.oracles.draw.interface import GibbsOracle, Law
from privopt.oracles.errors import MissingSolverError, UnsupportedProblemError
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.interval import IntervalOracle
from privopt.oracles.minimize.mip import cell_model, row_model
from privopt.oracles.minimize.native.solver import NativeOracle
from privopt.oracles.programs.enumerate import EnumeratedPrograms
from privopt.oracles.registry import GIBBS, MINIMIZERS, PROGRAMS
from privopt.oracles.select import AutoGibbs, AutoOracle, inventory
from privopt.problems import IntegerLattice, MonotoneConjunction, ZeroOneHalfspace
from privopt.problems.datasets.synthetic import make_cells
from privopt.problems.discrete.problem import DiscreteProblem


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
        (conjunction(20), "highs"),
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


def test_names_are_corrected_and_kinds_told_apart() -> None:
    with pytest.raises(UnknownOracleError, match=r"did you mean 'pulp-highs'"):
        minimizer("pulp-higs")
    with pytest.raises(UnknownOracleError, match=r"needs a sampler.*there are auto, native, bounded, enum"):
        gibbs_oracle("pulp-highs")
    with pytest.raises(UnknownOracleError, match=r"needs a minimiser.*pulp-highs"):
        minimizer("elimination")


def test_the_inventory_tells_every_oracle_apart() -> None:
    entries = inventory()
    assert [e.name for e in entries if e.kind == "minimises"] == list(MINIMIZERS)
    assert [e.name for e in entries if e.kind == "draws"] == list(GIBBS)
    assert [e.name for e in entries if e.kind == "nearest cards"] == list(PROGRAMS)
    assert len({(e.kind, e.summary) for e in entries}) == len(entries)
    assert all(e.installed or "install" in e.remedy for e in entries)


def test_the_limits_in_the_inventory_are_the_oracles() -> None:
    told = {(e.kind, e.name): e.limits for e in inventory()}
    for kind, oracle in (("minimises", EnumerationOracle()), ("draws", GibbsEnumeration())):
        assert f"{oracle.max_candidates:,} candidates" in told[kind, "enumerate"]
        assert f"{oracle.max_work:.0e}".replace("e+0", "e") in told[kind, "enumerate"]
    assert f"{EnumeratedPrograms().most:,} cards" in told["nearest cards", "enumerate"]
    cells = CellLimits()
    assert NativeOracle().limits == GibbsElimination().limits == GibbsBranch().limits == cells
    text = told["minimises", "native"]
    assert f"{cells.cells:,} distinct" in text
    assert f"{cells.numeric_combinations:,} weight vectors" in text
    assert f"{cells.table_bytes >> 30} GiB" in text
    for name in ("elimination", "branch"):
        assert told["draws", name].startswith("as native")
    assert f"{cells.squared_norm:,}" in told["minimises", "native"]
    assert f"{IntervalOracle().max_squared_norm:,}" in told["minimises", "interval"]
    assert f"{IntervalOracle().max_bytes >> 30} GiB" in told["minimises", "interval"]
    assert f"{GibbsElimination().max_work:.0e}".replace("e+", "e") in told["draws", "elimination"]
    mip, rows = cell_model._LIMITS, row_model._MAX_COLUMNS
    for text in (f"{mip.cells:,} patterns", f"{mip.numeric_combinations:,} numeric", f"{rows:,} binaries"):
        assert text in told["minimises", "highs"]


def test_a_refusal_names_the_way_out() -> None:
    with pytest.raises(UnsupportedProblemError, match=r"To do: a smaller lattice .*--lattice="):
        minimizer("auto").prepare(dense(8, 5000), Task.NORMALIZED)
