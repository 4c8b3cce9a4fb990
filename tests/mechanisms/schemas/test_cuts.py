"""Cuts of numbers: the law of a draw, and the privacy of whole trees by brute force over neighbours."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_delta
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas import prior
from privopt.mechanisms.schemas.cuts import CutPlan, _drawn_cut, law_error, strength_of

# A grid of seven cells with cuts between them, and a prior that is not uniform.
CELLS = 5
PRIOR = np.array([0.0, 0.4, 0.1, 0.3, 0.2])  # of the cut t = k; t = 0 cuts nothing off
Law = dict[tuple[int, ...], float]


UNBOUNDED = 0.1  # c of the definition; the proof holds for any


@cache
def node_law(low: int, high: int, held: tuple[int, ...], strength: float) -> Law:
    """P[cut] at a node [low, high), written from the definition."""
    weights = {
        t: PRIOR[t] * math.exp(-strength * abs(sum(x < t for x in held) - len(held) / 2))
        for t in range(low + 1, high)
    }
    if not weights:
        return {(): 1.0}
    found: Law = {(t,): weight for t, weight in weights.items()}
    beyond = float(PRIOR[low + 1 : high].sum()) * math.exp(-strength * len(held) / 2)
    few = math.exp(0.05 * strength * len(held))
    ends = (low == 0) + (high == CELLS)
    found[()] = beyond * (few, max(few, math.exp(UNBOUNDED)), math.exp(UNBOUNDED))[ends]  # left whole
    return {cut: weight / sum(found.values()) for cut, weight in found.items()}


@cache
def tree_law(low: int, high: int, held: tuple[int, ...], strength: float, depth: int) -> Law:
    if depth == 0:
        return {(): 1.0}
    found: Law = {}
    for cut, p in node_law(low, high, held, strength).items():
        if not cut:  # tried again, which an observer who sees every level knows
            for below, q in tree_law(low, high, held, strength, depth - 1).items():
                found[-2, *below] = p * q
            continue
        under, above = (tuple(x for x in held if (x < cut[0]) is side) for side in (True, False))
        left = tree_law(low, cut[0], under, strength, depth - 1)
        right = tree_law(cut[0], high, above, strength, depth - 1)
        for (a, q), (b, r) in itertools.product(left.items(), right.items()):
            found[*cut, -1, *a, -1, *b] = p * q * r
    return found


def neighbours(n: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """All pairs of tables of n cells, missing ones as -1, up to order, that differ in one record."""
    cells = (-1, *range(CELLS))
    pairs = []
    for rest in itertools.combinations_with_replacement(cells, n - 1):
        for x, y in itertools.permutations(cells, 2):
            pairs.append(tuple(tuple(sorted(v for v in (*rest, z) if v >= 0)) for z in (x, y)))
    return pairs  # type: ignore[return-value]


@pytest.mark.parametrize("strength", [0.3, 1.5])
@pytest.mark.parametrize("depth", [1, 2])
def test_no_neighbours_refute_the_level_of_a_tree(strength: float, depth: int) -> None:
    level, worst = CutPlan(strength, depth, 4).level, 0.0
    for first, second in neighbours(4):
        p, q = (tree_law(0, CELLS, held, strength, depth) for held in (first, second))
        for epsilon in (0.0, strength, 2 * strength):
            delta = sum(max(0.0, a - math.exp(epsilon) * q[cuts]) for cuts, a in p.items())
            claimed = gaussian_delta(level, epsilon)
            assert delta <= claimed, (first, second, epsilon)
            worst = max(worst, delta / claimed)
    # The bound is not idle: some neighbours come near it, and half the level would be refuted.
    assert worst > 0.6
    assert any(
        sum(max(0.0, a - q[cuts]) for cuts, a in p.items()) > gaussian_delta(level / 2, 0.0)
        for p, q in (
            tuple(tree_law(0, CELLS, held, strength, depth) for held in pair) for pair in neighbours(4)
        )
    )


def test_a_draw_has_the_law_of_the_definition() -> None:
    values = np.array([-2.0, 1.0, 2.0, 2.0, 5.0, 9.0, 9.0, math.inf])
    plan, edges = CutPlan(0.7, 1, 8), np.array([-2.0, 1.0, 2.0, 5.0, 9.0])
    ends = [-prior.LAST - 1, *prior.ordinals(edges).tolist(), prior.LAST]
    masses = prior.masses(np.array(ends[:-1]), np.array(ends[1:]))
    below = np.array([0, 1, 2, 4, 5, 7])

    def law(strength: float) -> np.ndarray:
        whole = masses.sum() * math.exp(4 - strength * 4)
        weights = np.append(masses * np.exp(-strength * np.abs(below - 4)), whole)
        return weights / weights.sum()

    source, runs = NoiseSource(1), 2000
    cuts = [plan.release(values, source) for _ in range(runs)]
    places = [int(np.searchsorted(edges, cut[0])) if cut else 6 for cut in cuts]
    seen = np.bincount(places, minlength=7)
    assert stats.chisquare(seen, law(0.7) * runs).pvalue > 1e-3
    assert stats.chisquare(seen, law(1.05) * runs).pvalue < 1e-9  # would notice a wrong strength


@pytest.mark.parametrize("width", [2, 3, 5])
def test_a_node_is_cut_inside_however_narrow_it_is(width: int) -> None:
    low = int(prior.ordinals(np.array([1.0]))[0])
    held, times, source = np.array([low + 1]), np.array([1]), NoiseSource(insecure_seed=1)
    cuts = {_drawn_cut(low, low + width, held, times, 0.1, source) for _ in range(100)}
    assert cuts == {None, *range(low + 1, low + width)}  # None: left whole


def test_a_node_that_holds_a_single_number_is_left_whole() -> None:
    rng, n = np.random.default_rng(0), 4000
    counts = rng.choice([0.0, 0.0, 0.0, 1.0, 2.0, 3.0], n)
    plan = CutPlan(0.2, 2, n)
    for seed in range(20):
        first, second = plan.release(counts, NoiseSource(seed))  # no third one among the zeros
        assert 0 < first <= 1 < second <= 3


def test_cuts_beyond_all_records_are_as_rare_as_the_definition_says() -> None:
    """Noise is tested where it is worst: two numbers, and records that are just enough for a plan."""
    n, runs = 4000, 300
    plan, values = CutPlan(40 / n, 3, n), np.repeat([0.0, 1.0], n // 2)
    cuts = [plan.release(values, NoiseSource(seed)) for seed in range(runs)]
    assert sum(any(0 < cut <= 1 for cut in found) for found in cuts) == runs
    # Either side is tried twice, and cut with probability 1 / (1 + e^4) each time.
    beyond = sum(any(not 0 < cut <= 1 for cut in found) for found in cuts)
    assert stats.binomtest(beyond, runs, 1 - (1 - 1 / (1 + math.exp(4))) ** 4).pvalue > 1e-3
    # A column with a single number has no cut; it is tried three times.
    none = sum(not plan.release(np.zeros(n), NoiseSource(seed)) for seed in range(runs))
    assert stats.binomtest(none, runs, (1 - 1 / (1 + math.exp(4))) ** 3).pvalue > 1e-3


def test_where_records_are_many_nodes_of_one_number_are_whole_always() -> None:
    """5% of the records of a node at an end count for more than e^4 then."""
    n = 100_000
    for seed in range(50):
        (cut,) = CutPlan(0.01, 3, n).release(np.repeat([0.0, 1.0], n // 2), NoiseSource(seed))
        assert 0 < cut <= 1


def test_cuts_split_shapes_without_a_declared_range() -> None:
    rng, n = np.random.default_rng(0), 4000
    shapes = [rng.normal(size=n), 1e12 * rng.lognormal(size=n), 1234567 + 5.0 * rng.integers(0, 99, n)]
    for k, values in enumerate(shapes):
        plan = CutPlan.plan(0.2, n, most_depth=2)
        assert plan is not None
        cuts = plan.release(values, NoiseSource(k))
        assert len(cuts) == 3
        shares = np.diff([0, *(np.mean(values < cut) for cut in cuts), 1])
        assert np.abs(shares - 0.25).max() < 0.06


def test_plans_take_the_depth_that_records_allow_and_no_more() -> None:
    mu, n = 0.05, 2000
    one, two = strength_of(mu, n), strength_of(mu / math.sqrt(2), n)
    # lambda = mu / 1.2533 per level, a little less for the charge of rounding.
    assert one == pytest.approx(mu / (2 * math.sqrt(math.pi / 8)), rel=1e-3)
    for records, depth in ((math.ceil(40 / two), 2), (math.ceil(40 / two) - 1, 1), (math.ceil(40 / one), 1)):
        plan = CutPlan.plan(mu, records, most_depth=2)
        assert plan is not None
        assert plan.depth == depth
        assert plan.level <= mu
    assert CutPlan.plan(mu, math.ceil(40 / one) - 1, most_depth=2) is None
    assert law_error(one, n) < 1e-10
    with pytest.raises(PrivacyParameterError, match="too coarse"):
        strength_of(1e-12, 10)


def test_empty_missing_and_equal_records_are_cut_somewhere() -> None:
    plan, source = CutPlan(1.0, 3, 10), NoiseSource(0)
    for values in ([], [3.0] * 10, [math.inf] * 5, [-math.inf, math.inf], [5e-324], [0.0, -0.0]):
        cuts = plan.release(np.array(values), source)
        assert list(cuts) == sorted(set(cuts))
        assert all(map(math.isfinite, cuts))


def test_a_closed_node_of_few_records_is_left_whole_as_often_as_its_cuts_have_mass() -> None:
    """Records add almost nothing at this strength; only nodes without an end are left whole more often."""
    low = int(prior.ordinals(np.array([1.0]))[0])
    held, times, source = np.array([low + 10]), np.array([1]), NoiseSource(insecure_seed=1)
    cuts = [_drawn_cut(low, low + 20, held, times, 1e-6, source) for _ in range(400)]
    assert 160 <= cuts.count(None) <= 240
