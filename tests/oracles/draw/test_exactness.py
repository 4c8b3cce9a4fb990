"""Stated exactness of draws covers the effects of rounding, derived or measured."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from privopt.oracles.cells.regions import CellModel
from privopt.oracles.draw import elimination, mass_bounds
from privopt.oracles.draw.arrivals import Arrivals, _key, flipped_exactness, permute_and_flip
from privopt.oracles.draw.branch import GibbsBranch, _exactness, _Model
from privopt.oracles.draw.elimination import GibbsElimination
from privopt.oracles.draw.enumerate import GibbsEnumeration
from privopt.oracles.draw.interface import (
    UNIT_ROUNDOFF,
    Exactness,
    GibbsOracle,
    Law,
    PreparedGibbs,
    Sample,
    Sampler,
    chain_error,
    clock_error,
    exponentials,
    lost_to_the_source,
    race_error,
)
from privopt.oracles.draw.sum_product import exponentials_of_losses
from privopt.oracles.errors import SolverFailedError
from privopt.oracles.limits import Limits
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray, IntegerLattice

EXACT = Context(prec=60)


class Bits:
    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)

    def bits(self, n: int, /) -> NDArray[np.uint64]:
        return self._rng.integers(0, 2**64, n, dtype=np.uint64)


class Zeros:
    def bits(self, n: int, /) -> NDArray[np.uint64]:
        return np.zeros(n, dtype=np.uint64)


def planted(blocks: tuple[int, ...], n: int, *, radius: float | None = None) -> ZeroOneHalfspace:
    rng = np.random.default_rng(7)
    columns = [np.eye(size, dtype=np.int64)[rng.integers(0, size, n)] for size in blocks]
    X = np.hstack([*columns, np.ones((n, 1), dtype=np.int64)])
    y = np.where(X @ rng.integers(-1, 2, X.shape[1]) + rng.normal(size=n) > 0, 1, -1)
    return ZeroOneHalfspace(X, y, IntegerLattice(-1, 1, dimension=X.shape[1], radius=radius))


def log_share(weights: list[Decimal]) -> Decimal:
    """The log of the first weight's share."""
    return EXACT.ln(EXACT.divide(weights[0], sum(weights, Decimal(0))))


def shifted(weight: Decimal, by: float) -> Decimal:
    return EXACT.multiply(weight, EXACT.exp(Decimal(by)))


# --- Races ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magnitude", [0.0, 30.0, 1e4])
def test_a_race_is_off_by_no_more_than_an_early_winner_among_late_ones(magnitude: float) -> None:
    """A clock of weight r that is early by e^d rings first as if its weight were r e^d."""
    rare = [EXACT.exp(Decimal(-20)), Decimal(1)]
    off = clock_error(magnitude)
    worst = [shifted(rare[0], off), shifted(rare[1], -off)]
    change = float(abs(log_share(worst) - log_share(rare)))
    assert change <= race_error(magnitude) * (1 + 1e-9)
    assert change > 1.9 * off


@pytest.mark.parametrize("magnitude", [0.0, 30.0, 1e4])
def test_clocks_are_off_by_no_more_than_is_said(magnitude: float) -> None:
    """The same words through decimal arithmetic with 60 digits."""
    words = [Bits(seed).bits(2) for seed in range(200)] + [np.array([w, 1], dtype=np.uint64) for w in (0, 1)]
    for first, second in words:
        given = iter([np.array([first]), np.array([second])])
        source = type("Given", (), {"bits": lambda _, n, g=given: next(g)})()
        ours = float(np.log(exponentials(source, 1)[0]) - magnitude)
        with localcontext(EXACT):
            fraction = 1 + ((int(first) >> 12) + Decimal("0.5")) * Decimal(2) ** -52
            halved = fraction * Decimal(2) ** (-2 - (64 - int(second).bit_length()))
            wait = -(halved if int(first) & 1 else 1 - halved).ln()
            off = abs(wait.ln() - Decimal(magnitude) - Decimal(ours))
        assert off <= clock_error(magnitude)


@pytest.mark.parametrize("races", [1, 4, 30])
def test_races_in_a_row_add_up(races: int) -> None:
    """The probability of a path is a product: each race may favour or harm the same path."""
    rare, weight = [EXACT.exp(Decimal(-20)), Decimal(1)], 3e-12
    off = weight + clock_error(50.0)
    worst = [shifted(rare[0], off), shifted(rare[1], -off)]
    change = races * float(abs(log_share(worst) - log_share(rare)))
    assert change <= chain_error(races, weight, 50.0) * (1 + 1e-6)
    assert change > 0.9 * chain_error(races, weight, 50.0)


def test_what_the_source_loses_is_counted() -> None:
    """After 256 zero bits an exponential is as small as it gets: what is below, smaller ones, never come."""
    smallest = float(exponentials(Zeros(), 1)[0])
    assert 0 < smallest < 1e-70
    impossible = -math.expm1(-smallest / 2)
    assert lost_to_the_source(1) >= impossible
    assert lost_to_the_source(1000) >= 1000 * impossible * (1 - 1e-9)


def test_what_the_kernels_source_loses_is_counted() -> None:
    smallest, _ = mass_bounds.exponential(np.zeros(8, dtype=np.uint64), 0)
    assert 0 < smallest < 1e-60
    problem = planted((2, 2), 30)
    model = _Model(CellModel.make(problem, Task.LINEAR), 0.5, 1 << 30)
    uses = 2.0**50  # no draw uses more
    stated = _exactness(model.sizes, problem.lattice, Law.GIBBS, 0.5, 30)
    assert stated.lost_mass >= uses * -math.expm1(-smallest / 2)


# --- Permute-and-flip -----------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [1e-6, 1e-3])
def test_permute_and_flip_doubles_what_noises_are_off_by(off: float) -> None:
    """Two points, c apart: the worse one wins with probability exp(-c) / 2, for c >= 0. If its own noise is
    smaller by d and the other one's larger, c grows by 2d."""
    change = abs(math.log(math.exp(-(1 + 2 * off)) / 2) - math.log(math.exp(-1) / 2))
    assert flipped_exactness(Exactness(off, 0.0), 1.0, 1).log_error >= change * (1 - 1e-9)


def test_the_unit_roundoff_is_what_rounding_is_off_by_at_most() -> None:
    """Half way between two doubles, just above 1, the relative error is largest."""
    exact = 1 + Fraction(1, 2**53)
    assert 0.999 * UNIT_ROUNDOFF < abs(Fraction(float(exact)) / exact - 1) <= UNIT_ROUNDOFF


@pytest.mark.parametrize("rate", [0.0, 1e-320, 1e-17, 1e-3, 1.0])
@pytest.mark.parametrize("time", [1e-300, 3e-17, 0.4, 30.0])
def test_keys_are_the_expected_wait_up_to_a_time_also_where_rates_vanish(time: float, rate: float) -> None:
    """(1 - exp(-r t)) / r, which is t at r = 0: exp(-beta excess) underflows for losses that still count."""
    product = EXACT.multiply(Decimal(rate), Decimal(time))
    exact = Decimal(time)
    if product > Decimal("1e-25"):  # below, the series ends after its first term
        exact = EXACT.divide(EXACT.subtract(1, EXACT.exp(-product)), Decimal(rate))
    assert float(abs(Decimal(_key(time, rate)) / exact - 1)) <= 8 * UNIT_ROUNDOFF


class Exactly(Arrivals):
    """Poisson arrivals at given rates, the largest of them 1, and how many there were."""

    def __init__(self, rates: NDArray[np.float64], rng: np.random.Generator) -> None:
        self.rates, self.rng, self.time, self.rings = rates, rng, 0.0, 0

    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        self.time += self.rng.exponential() / self.rates.sum()
        if self.time > horizon:
            return None
        self.rings += 1
        return self.time, np.array([self.rng.choice(len(self.rates), p=self.rates / self.rates.sum())])


@pytest.mark.parametrize("excess", [[0, 0], [0, 1, 1, 1], [0, *[6] * 400], list(range(30))])
def test_mass_may_be_lost_at_every_ring(excess: list[int]) -> None:
    """Wald: the chance that any of N rings is lost is at most E[N] times that of one."""
    rng, losses, runs, beta = np.random.default_rng(0), np.array(excess), 400, 0.7
    rings = 0
    for _ in range(runs):
        arrivals = Exactly(np.exp(-beta * losses), rng)
        permute_and_flip(arrivals, beta, lambda w: int(losses[w[0]]))
        rings += arrivals.rings
    flipped = flipped_exactness(Exactness(0.0, 2.0**-100), beta, 1)
    assert rings / runs * 2.0**-100 <= flipped.lost_mass
    assert rings > 1.15 * runs or excess[1] != 1  # one ring's worth would not do


class Late(Arrivals):
    """Arrivals at given points, one after the other, from a time on."""

    def __init__(self, time: float, *points: int) -> None:
        self.time, self.points = time, iter(points)

    def next(self, horizon: float) -> tuple[float, IntArray] | None:
        self.time += 1.0
        return None if self.time > horizon else (self.time, np.array([next(self.points)]))


@pytest.mark.parametrize(
    ("points", "beta", "winner"), [((0,), 1.0, 0), ((1, 0), 1.0, 0), ((1, 0), 1e-18, 1), ((2, 1), 1e-18, 2)]
)
def test_permute_and_flip_ends_however_late_arrivals_are(
    points: tuple[int, ...], beta: float, winner: int
) -> None:
    """From 38 on, 1 - exp(-t) is 1 in floating point, the bound on keys, and the search went on for ever."""
    excess = [0, 1, 5]
    assert permute_and_flip(Late(40.0, *points), beta, lambda w: excess[w[0]])[0] == winner


# --- Samplers -------------------------------------------------------------------------------------------

SAMPLERS: dict[str, Callable[[], GibbsOracle]] = {
    "enumeration": GibbsEnumeration,
    "elimination": lambda: GibbsElimination(threads=1),
    "branch": GibbsBranch,
}


@pytest.mark.parametrize("name", ["elimination", "branch"])
@pytest.mark.parametrize("radius", [None, 2.0], ids=["box", "ball"])
def test_every_weight_that_is_drawn_by_a_race_adds_its_error(name: str, radius: float | None) -> None:
    for blocks in ((2, 2), (3, 3), (4, 4, 2)):
        problem = planted(blocks, 10, radius=radius)
        stated = SAMPLERS[name]().prepare(problem).draw(0.01, Bits()).exactness.log_error
        assert stated >= chain_error(problem.lattice.dimension, UNIT_ROUNDOFF, 0.0)


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("law", list(Law))
def test_more_records_or_a_colder_law_are_rounded_more(name: str, law: Law) -> None:
    problem, more = planted((3, 3), 40), planted((3, 3), 4000)
    oracle = SAMPLERS[name]()
    if oracle.refusals(problem, law):
        return  # permute-and-flip without a minimiser
    stated = [
        oracle.prepare(p, law).draw(beta, Bits()).exactness for p in (problem, more) for beta in (0.1, 1)
    ]
    errors = [e.log_error for e in stated]
    assert errors == sorted(errors)
    assert errors[0] > UNIT_ROUNDOFF
    assert all(0 < e.lost_mass < 2.0**-100 for e in stated)


@pytest.mark.parametrize("beta", [0.03, 0.7, 40.0])
@pytest.mark.parametrize("radius", [None, 2.0], ids=["box", "ball"])
def test_the_way_down_to_a_point_is_off_by_less_than_is_stated(beta: float, radius: float | None) -> None:
    """The bound of a region times the chances on the way down is the mass of the point, exp(-beta loss)."""
    problem = planted((3, 3), 2000, radius=radius)
    model = _Model(CellModel.make(problem, Task.LINEAR), beta, 1 << 30)
    (root,) = model.roots(Limits().start())
    shape, worst = model.shapes[0], 0.0
    for steps in range(2):
        log_bound = model.open(root) if steps == 0 else model.tune(root, -math.inf)
        assert root.region is not None
        for w in np.concatenate(list(problem.lattice.batches())):
            levels = w[shape.coordinate] - shape.low
            sums, gains = np.zeros(shape.cells + 1, dtype=np.int64), np.empty(shape.squares.shape[1])
            reached = log_bound
            for j, v in enumerate(levels.tolist()):
                mass_bounds._gains(shape, root.region, j, sums, gains)
                reached += gains[v]
                for e in shape.var_member[shape.var_start[j] : shape.var_start[j + 1]]:
                    sums[shape.member_factor[e]] += shape.steps[e, v]
            worst = max(worst, abs(reached + beta * problem.loss(w)))
    stated = _exactness(model.sizes, problem.lattice, Law.GIBBS, beta, problem.n_records)
    assert 0 < worst <= stated.log_error


@pytest.mark.parametrize("beta", [0.03, 0.7, 40.0])
@pytest.mark.parametrize("radius", [None, 2.0], ids=["box", "ball"])
@pytest.mark.parametrize("name", ["enumeration", "elimination"])
def test_sums_are_off_by_less_than_is_stated(name: str, beta: float, radius: float | None) -> None:
    problem = planted((3, 3), 2000, radius=radius)
    losses = problem.losses(np.concatenate(list(problem.lattice.batches())))
    total = sum(EXACT.exp(Decimal(-beta) * int(loss)) for loss in losses.tolist())
    draw = SAMPLERS[name]().prepare(problem).draw(beta, Bits())
    assert draw.log_partition is not None
    off = abs(float(EXACT.ln(total) - Decimal(draw.log_partition)))
    assert off <= draw.exactness.log_error


def test_a_point_outside_the_lattice_is_no_draw() -> None:
    """A claim is made for draws from the lattice: whatever else a sampler returns is not released."""

    class Astray(Sampler):
        def draw(self, request: object) -> Sample:
            return Sample(np.array([2, 0]), Exactness(0.0, 0.0))

    problem = ZeroOneHalfspace([[1, 0], [0, 1]], [1, -1], IntegerLattice(-1, 1, dimension=2))
    with pytest.raises(SolverFailedError, match="outside the lattice"):
        PreparedGibbs("astray", problem, Law.GIBBS, Astray()).draw(1.0, Bits())


def test_exponentials_of_losses_end_where_doubles_do() -> None:
    """Below exp(-700) a weight counts as 0, and no sooner; without losses so large all are there."""
    weights = exponentials_of_losses(0.5, 3000)
    assert weights[1400] == pytest.approx(math.exp(-700), rel=1e-12)
    assert weights[1401:].tolist() == [0.0]
    assert len(exponentials_of_losses(0.5, 1000)) == 1002


def test_exponentials_of_losses_take_the_memory_of_one_table() -> None:
    """With large costs there are up to 2^28, and memory is planned by nobody."""
    tracemalloc.start()
    weights = exponentials_of_losses(1e-6, 200_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert weights.nbytes <= peak < 1.5 * weights.nbytes


def test_a_draw_by_elimination_makes_its_exponentials_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []

    def counted(beta: float, n: int) -> NDArray[np.float64]:
        made.append(beta)
        return exponentials_of_losses(beta, n)

    prepared = GibbsElimination(threads=1).prepare(planted((3, 3), 200), Law.PERMUTE_AND_FLIP)
    monkeypatch.setattr(elimination, "exponentials_of_losses", counted)
    prepared.draw(0.01, Bits())
    assert made == [0.01]
