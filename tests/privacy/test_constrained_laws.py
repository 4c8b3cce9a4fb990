"""Mechanisms over constrained lattices: exact laws, claims, and releases, on domains written down by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms import MECHANISMS
from privopt.mechanisms.audit.audit import exact_audit
from privopt.mechanisms.audit.laws import output_law
from privopt.mechanisms.audit.neighbours import LossTable, predefined_neighbours
from privopt.mechanisms.discrete.opsamp import OPSamp
from privopt.mechanisms.discrete.preparation import prepare_oracle
from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles.errors import UnsupportedProblemError
from privopt.problems import ConstrainedLattice, IntegerLattice, InvalidInputError, ZeroOneHalfspace
from privopt.problems.programs.columns import PointColumn

RUNS, SEED = 1500, 5
PLANE = (PointColumn("a", 0, 1, ordered=1), PointColumn("b", 1, 2, ordered=1))
LINE = (PointColumn("a", 0, 1, ordered=1),)


def plane() -> tuple[ConstrainedLattice, list[list[int]]]:
    return ConstrainedLattice(IntegerLattice(0, 1, dimension=2), PLANE, ["at most 1 columns"]), [
        [0, 0],
        [0, 1],
        [1, 0],
    ]


def line() -> tuple[ConstrainedLattice, list[list[int]]]:
    return ConstrainedLattice(IntegerLattice(-2, 2, dimension=1), LINE, ["points in {-2, 1, 2}"]), [
        [-2],
        [1],
        [2],
    ]


# The law of noise in two dimensions is known: OPDisc has one more than the lattice.
CASES: list[tuple[str, Callable[[], tuple[ConstrainedLattice, list[list[int]]]]]] = [
    *((name, plane) for name in ("exponential", "permute-and-flip", "rspm", "rspm-laplace")),
    ("opdisc", line),
]


@pytest.mark.parametrize(("name", "domain"), CASES)
def test_claims_hold_and_releases_follow_the_exact_law(
    name: str, domain: Callable[[], tuple[ConstrainedLattice, list[list[int]]]]
) -> None:
    lattice, points = domain()
    plan: Any = MECHANISMS[name].plan(LossTable, lattice, epsilon=1.0, delta=1e-2)
    for pair in predefined_neighbours(LossTable, lattice):
        laws = [output_law(plan, problem) for problem in (pair.first, pair.second)]
        assert laws[0].shape == (len(points),)
        assert math.fsum(laws[0]) == pytest.approx(1, abs=1e-9)
        audited = exact_audit(laws[0], laws[1], plan.spend.epsilon, plan.spend.delta)
        assert not audited.refuted, pair.name
    problem = LossTable([[0, 1, 1]] * 3 + [[1, 0, 1]] * 2, lattice)
    oracle, source = prepare_oracle("enumerate", plan, problem), NoiseSource(insecure_seed=SEED)
    seen = [points.index(plan.release(oracle, source).point.tolist()) for _ in range(RUNS)]
    assert stats.chisquare(np.bincount(seen, minlength=3), RUNS * output_law(plan, problem)).pvalue > 1e-3


@pytest.mark.parametrize("name", ["enumerate", "stream", "branch"])
def test_draws_from_tables_follow_the_law_of_the_constrained_domain(name: str) -> None:
    lattice, points = plane()
    problem = ZeroOneHalfspace([[1, 0], [0, 1], [1, 1]] * 4, [1, -1, 1] * 4, lattice)
    plan: Any = MECHANISMS["exponential"].plan(ZeroOneHalfspace, lattice, epsilon=0.5)
    law = np.exp(-plan.beta * np.array([8.0, 8.0, 0.0]))  # of losses by hand: 4 for each kind of record
    assert problem.losses(np.array(points)).tolist() == [8, 8, 0]
    oracle, source = prepare_oracle(name, plan, problem), NoiseSource(insecure_seed=SEED)
    seen = [points.index(plan.release(oracle, source).point.tolist()) for _ in range(RUNS)]
    assert stats.chisquare(np.bincount(seen, minlength=3), RUNS * law / law.sum()).pvalue > 1e-3


@pytest.mark.parametrize("name", ["native", "interval", "local-search"])
def test_minimisers_that_know_only_boxes_refuse(name: str) -> None:
    from privopt.oracles import Task, minimizer

    lattice, _ = plane()
    problem = ZeroOneHalfspace([[1, 0], [0, 1]], [1, -1], lattice)
    with pytest.raises(UnsupportedProblemError, match=r"knows no constraints on points.*highs"):
        minimizer(name).prepare(problem, Task.LINEAR)


@pytest.mark.parametrize("name", ["elimination"])
def test_samplers_that_know_only_boxes_refuse(name: str) -> None:
    from privopt.oracles.select import gibbs_oracle

    lattice, _ = plane()
    problem = ZeroOneHalfspace([[1, 0], [0, 1]], [1, -1], lattice)
    with pytest.raises(UnsupportedProblemError, match=r"knows no constraints on points.*branch"):
        gibbs_oracle(name).prepare(problem)


@pytest.mark.parametrize("name", ["branch", "stream"])
def test_permute_and_flip_follows_the_law_of_the_constrained_domain(name: str) -> None:
    """Its clock is set by the smallest loss under the constraints, 4: that of the box is 0, at (1, 1)."""
    lattice, points = plane()
    problem = ZeroOneHalfspace([[1, 0], [0, 1], [1, 1]] * 4, [1] * 12, lattice)
    assert problem.losses(np.array([*points, [1, 1]])).tolist() == [12, 4, 4, 0]
    plan: Any = MECHANISMS["permute-and-flip"].plan(ZeroOneHalfspace, lattice, epsilon=0.3)
    oracle, source = prepare_oracle(name, plan, problem), NoiseSource(insecure_seed=SEED)
    seen = [points.index(plan.release(oracle, source).point.tolist()) for _ in range(RUNS)]
    assert stats.chisquare(np.bincount(seen, minlength=3), RUNS * output_law(plan, problem)).pvalue > 1e-3


def test_plans_of_one_domain_refuse_the_other() -> None:
    lattice, _ = plane()
    plan = MECHANISMS["exponential"].plan(ZeroOneHalfspace, lattice, epsilon=1.0)
    boxed = ZeroOneHalfspace([[1, 0], [0, 1]], [1, -1], lattice.box)
    with pytest.raises(PlanMismatchError, match="under 'at most 1 columns'"):
        prepare_oracle("enumerate", plan, boxed)


def test_mechanisms_without_a_proof_for_parts_of_a_lattice_refuse() -> None:
    lattice, _ = plane()
    with pytest.raises(InvalidInputError, match="opsamp takes no constraints"):
        OPSamp.plan(ZeroOneHalfspace, lattice, n_records=9, epsilon=1.0, delta=1e-3)

    class Outside(MECHANISMS["rspm"]):  # type: ignore[misc, name-defined]
        takes_constraints = False

    with pytest.raises(InvalidInputError, match="takes no constraints"):
        Outside.plan(ZeroOneHalfspace, lattice, epsilon=1.0, delta=1e-3)
