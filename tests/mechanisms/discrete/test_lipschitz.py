"""OPDisc on Lipschitz losses: definitions, exact laws of neighbours, models against brute force."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.mechanisms import OPDisc
from privopt.mechanisms.audit.audit import exact_audit
from privopt.mechanisms.audit.laws import output_law
from privopt.mechanisms.discrete.calibration import calibrate_opdisc
from privopt.mechanisms.errors import PlanMismatchError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.oracles import Task
from privopt.oracles.minimize.enumerate import EnumerationOracle
from privopt.oracles.minimize.mip.pulp import PulpOracle
from privopt.problems import AbsoluteRegression, HingeHalfspace, IntegerLattice, InvalidInputError
from privopt.problems.discrete.lipschitz import LipschitzProblem, shortened

LINE = IntegerLattice(-2, 2, dimension=1)


@given(
    st.lists(st.lists(st.integers(-40, 40), min_size=3, max_size=3), min_size=1, max_size=8),
    st.integers(1, 900),
)
@settings(max_examples=60, deadline=None)
def test_a_long_row_is_shortened_by_itself(rows: list[list[int]], square: int) -> None:
    short = shortened(np.array(rows), square)
    for row, found in zip(rows, short.tolist(), strict=True):
        assert sum(v * v for v in found) <= square
        assert found == shortened(np.array([row]), square)[0].tolist()
        if sum(v * v for v in row) <= square:
            assert found == row
        # Towards zero, and by less than a unit beyond the exact factor.
        factor = min(1.0, math.sqrt(square / max(1, sum(v * v for v in row))))
        assert all(
            abs(f) <= abs(v) and abs(f) > abs(v) * factor - 1.001 for f, v in zip(found, row, strict=True)
        )


def some(kind: type[LipschitzProblem], **changes: Any) -> LipschitzProblem:
    rng = np.random.default_rng(4)
    labels = rng.choice([-1, 1], 30) if kind is HingeHalfspace else rng.integers(-20, 20, 30)
    facts: dict[str, Any] = {
        "lattice": IntegerLattice(-2, 2, dimension=3, radius=2.5),
        "norm": 6.0,
        "largest": 7,
    }
    return kind(rng.integers(-9, 10, (30, 3)), labels, **{**facts, **changes})


@pytest.mark.parametrize("kind", [HingeHalfspace, AbsoluteRegression])
def test_losses_are_those_of_the_definition_within_their_bounds(kind: type[LipschitzProblem]) -> None:
    problem = some(kind)
    points = np.concatenate(list(problem.lattice.batches()))
    scores = problem.X @ points.T
    if kind is HingeHalfspace:
        each = np.maximum(0, 7 - problem.y[:, None] * scores)
    else:
        assert np.abs(problem.y).max() <= 7
        each = np.abs(problem.y[:, None] - scores)
    assert np.array_equal(problem.losses(points), each.sum(axis=0))
    counted = kind(problem.X, problem.y, problem.lattice, 6.0, 7, counts=np.full(30, 3))
    assert np.array_equal(counted.losses(points), 3 * each.sum(axis=0))
    assert each.max() <= problem.record_loss_bound <= 7 + 6.0 * 2.5
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    change = np.abs(each[:, :, None] - each[:, None, :]).max(axis=0)
    assert np.all(change <= problem.record_lipschitz * distance + 1e-9)
    pieces = [max(0, *(a * s + b for a, b in problem.slopes(int(problem.y[0])))) for s in scores[0].tolist()]
    assert pieces == each[0].tolist()


def test_the_plan_pays_for_the_slope_where_it_is_less_than_the_largest_loss() -> None:
    lattice = IntegerLattice(-3, 3, dimension=4)
    bounds = HingeHalfspace.bounds(lattice, norm=5.0, largest=100)
    plan = OPDisc.plan(HingeHalfspace, lattice, epsilon=1.0, delta=1e-6, **bounds._asdict())
    facts: dict[str, Any] = {"squared_radius": 36, "dof": 5, "slack": 5 * 4 / 2**20}
    assert plan.sigma == calibrate_opdisc(1.0, 1e-6, loss_difference=2 * 5.0, **facts).scale
    bounded = OPDisc.plan(HingeHalfspace, lattice, epsilon=1.0, delta=1e-6, loss_bound=bounds.loss_bound)
    assert bounded.sigma == calibrate_opdisc(1.0, 1e-6, loss_difference=2 * 130.0, **facts).scale
    steep = HingeHalfspace([[6, 0, 0, 0]], [1], lattice, norm=6.0, largest=10)
    with pytest.raises(PlanMismatchError, match="plan with lipschitz=6"):
        plan.check_problem(steep)
    bounded.check_problem(steep)


@pytest.mark.parametrize("kind", [HingeHalfspace, AbsoluteRegression])
def test_exact_laws_of_neighbours_stay_within_the_claim(kind: type[LipschitzProblem]) -> None:
    """Five points of one weight, all pairs of records; with a twentieth of the noise the claim fails."""
    epsilon, delta = 1.0, 0.01
    plan = OPDisc.plan(kind, LINE, epsilon=epsilon, delta=delta, **kind.bounds(LINE, 2.0, 3)._asdict())
    labels = (-1, 1) if kind is HingeHalfspace else (-3, 0, 3)
    records = [kind([[x]], [y], LINE, 2.0, 3) for x in (-2, -1, 0, 1, 2) for y in labels]

    def worst(used: OPDisc) -> float:
        laws = [output_law(used, problem) for problem in records]
        return max(exact_audit(p, q, epsilon, delta).true_epsilon for p in laws for q in laws)

    assert worst(plan) <= epsilon
    assert worst(dataclasses.replace(plan, sigma=plan.sigma / 20)) > epsilon


@pytest.mark.parametrize("kind", [HingeHalfspace, AbsoluteRegression])
def test_highs_through_pulp_releases_what_brute_force_does(kind: type[LipschitzProblem]) -> None:
    problem = some(kind)
    plan = OPDisc.plan(
        kind, problem.lattice, epsilon=2.0, delta=1e-3, **kind.bounds(problem.lattice, 6.0, 7)._asdict()
    )
    points = [
        plan.release(oracle.prepare(problem, Task.NORMALIZED), NoiseSource(insecure_seed=5)).point.tolist()
        for oracle in (EnumerationOracle(), PulpOracle("HiGHS"))
    ]
    assert points[0] == points[1]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"norm": 0.5}, "norm of a row must be at least 1"),
        ({"norm": math.nan}, "norm of a row"),
        ({"norm": 1e300}, "norm of a row"),
        ({"largest": 0}, "must be a whole number >= 1"),
        ({"y": np.zeros(30)}, "labels"),
    ],
)
@pytest.mark.parametrize("kind", [HingeHalfspace, AbsoluteRegression])
def test_bad_inputs_are_refused(kind: type[LipschitzProblem], changes: dict[str, Any], words: str) -> None:
    good = some(kind)
    arguments = {"X": good.X, "y": good.y, "lattice": good.lattice, "norm": 6.0, "largest": 7, **changes}
    with pytest.raises(InvalidInputError, match=words):
        kind(**arguments)
