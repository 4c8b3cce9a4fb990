"""One bound at two temperatures: regions for minimising and for drawing, against all their points."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.special import logsumexp

from privopt.oracles.cells.regions import (
    BIG,
    CellCosts,
    CellModel,
    Region,
    Shape,
    bound,
    fix,
    give_to_norm,
    new_region,
    next_shape,
    update,
)
from privopt.oracles.draw import mass_bounds as masses
from privopt.oracles.minimize.native import bounds as duals
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice
from privopt.problems.discrete.objective import UNIT, Perturbation

SEEDS = range(8)


def random_problem(seed: int) -> ZeroOneHalfspace:
    """Two one-hot blocks, flags that overlap them, a numeric column; a lopsided box, often in a ball."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 60))
    columns = [np.eye(size, dtype=np.int64)[rng.integers(0, size, n)] for size in (3, 2)]
    columns += [rng.integers(0, 2, (n, 2)), rng.integers(-4, 5, (n, 1))]
    X = np.hstack(columns)
    low = rng.integers(-2, 1, X.shape[1])
    high = low + rng.integers(0, 4, X.shape[1])
    shortest = float(np.sum(np.clip(0, low, high) ** 2))
    radius = math.sqrt(shortest + int(rng.integers(0, 9))) if seed % 2 else None
    return ZeroOneHalfspace(X, rng.choice([-1, 1], n), IntegerLattice(low, high, radius=radius))


def random_region(seed: int) -> tuple[CellModel, int, CellCosts, Region, IntArray]:
    """Model, number and costs; the region of random numeric weights at temperature zero, shifted by some
    sweeps; the values of all its points."""
    rng, problem = np.random.default_rng(seed), random_problem(seed)
    noise = Perturbation.normalized(problem.lattice, 3 * rng.normal(size=problem.lattice.dimension + 1))
    model = CellModel.make(problem, Task.NORMALIZED)
    shape, costs, number = model.shape, model.costs(noise), int(rng.integers(len(model.weights)))
    region = new_region(shape, np.int64)
    assert model.start(region, number, UNIT, costs, model.all_levels)
    give_to_norm(shape, region, 0)
    update(shape, region, None)
    for _ in range(seed % 4):
        x, forward = np.zeros_like(shape.low), np.zeros_like(region.tables)
        duals.sweep(shape, region, forward, duals.make_shares(shape), BIG, x)
    points = np.concatenate(list(problem.lattice.batches()))
    inside = np.all(points[:, model.cells.numeric] == model.weights[number], axis=1)
    return model, number, costs, region, problem.values(points[inside], noise)


def heated(model: CellModel, number: int, costs: CellCosts, cold: Region, temperature: float) -> Region:
    """The same region and shifts at another temperature, with random Hoelder weights."""
    rng, shape = np.random.default_rng(number), model.shape
    unit = 1.0 / temperature
    warm = new_region(shape, np.float64)
    scaled = CellCosts(*(c * (unit / UNIT) for c in (costs.unary, costs.radial, costs.numeric)))
    assert model.start(warm, number, unit, scaled, model.all_levels)
    warm.shift[:] = cold.shift * (unit / UNIT)
    warm.weight[:] = rng.uniform(0.1, 1.0, len(warm.weight))
    warm.weight[:] /= np.bincount(shape.member_var, warm.weight)[shape.member_var]
    return warm


@pytest.mark.parametrize("seed", SEEDS)
def test_cooling_the_bound_on_the_mass_gives_the_bound_on_the_minimum(seed: int) -> None:
    """Both bound what they should; between them are at most T log(number of level combinations), since a soft
    minimum of weight w over m levels is at most w log m below the minimum, and weights add up to T."""
    model, number, costs, cold, values = random_region(seed)
    give_to_norm(model.shape, cold, 0)
    update(model.shape, cold, None)
    least = int(bound(model.shape, cold))
    assert least <= values.min()
    volume = float(np.sum(np.log(model.shape.span)))
    for temperature in (1e3, 10.0, 1.0, 1e-2, 1e-5):
        warm = heated(model, number, costs, cold, temperature)
        log_bound = masses.log_bound(model.shape, warm, masses.make_odds(model.shape))
        assert log_bound >= logsumexp(-values / (UNIT * temperature)) - 1e-9 * (1 + abs(log_bound))
        below = least / UNIT + temperature * log_bound
        assert -1e-9 * (1 + abs(least / UNIT)) <= below <= temperature * volume + 1e-9


@pytest.mark.parametrize("seed", SEEDS)
def test_tuning_lowers_the_bound_on_the_mass_and_never_below_the_mass(seed: int) -> None:
    model, number, costs, cold, values = random_region(seed)
    cold.shift[:] = 0
    warm = heated(model, number, costs, cold, 2.0)
    odds = masses.make_odds(model.shape)
    before, exact = masses.log_bound(model.shape, warm, odds), logsumexp(-values / (UNIT * 2.0))
    after, steps = masses.tune(model.shape, warm, 0.5, 40, -math.inf)
    assert exact - 1e-9 <= after <= before
    assert steps == 40 or after == before
    assert after == masses.log_bound(model.shape, warm, odds)


def path(shape: Shape) -> list[Shape]:
    shapes = [shape]
    while shapes[-1].fixed < len(shape.span):
        shapes.append(next_shape(shapes[-1]))
    return shapes


@pytest.mark.parametrize("seed", SEEDS)
def test_fixing_all_variables_ends_at_the_value_of_a_point(seed: int) -> None:
    """On the way down a random path bounds only improve, at either temperature; at the end they are exact."""
    model, number, costs, cold, values = random_region(seed)
    warm, temperature = heated(model, number, costs, cold, 3.0), 3.0
    rng, levels = np.random.default_rng(seed), np.zeros_like(model.shape.low)
    shapes = path(model.shape)
    for above, shape in itertools.pairwise(shapes):
        cold_bound = int(bound(above, cold))
        log_bound = masses.log_bound(above, warm, masses.make_odds(above))
        children = masses.child_bounds(above, warm)
        assert logsumexp(children) <= log_bound + 1e-9
        level = int(rng.choice(np.flatnonzero(children > -math.inf)))
        levels[above.fixed] = level
        colder, warmer = new_region(shape, np.int64), new_region(shape, np.float64)
        fix(above, shape, cold, colder, level)
        fix(above, shape, warm, warmer, level)
        give_to_norm(shape, colder, 0)
        update(shape, colder, None)
        cold, warm = colder, warmer
        assert bound(shape, cold) >= cold_bound
        assert masses.log_bound(shape, warm, masses.make_odds(shape)) <= children[level] + 1e-9
    point = model.point(number, levels)
    expected = random_problem(seed).loss(point) * UNIT + int(costs.numeric[number])
    expected += sum(int(costs.unary[j, v]) for j, v in enumerate(levels.tolist()))
    expected += int(costs.radial[int(point @ point)])
    assert bound(shapes[-1], cold) == expected
    assert expected in values
    assert -temperature * masses.log_bound(shapes[-1], warm, masses.make_odds(shapes[-1])) == pytest.approx(
        expected / UNIT, rel=1e-9, abs=1e-9
    )
