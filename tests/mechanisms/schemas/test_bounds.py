"""Bounds of numbers: the law of a draw, its privacy by brute force over neighbours, and odd columns."""

from __future__ import annotations

import itertools
import math
import sys

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms import learn_schema
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_delta, gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas import prior
from privopt.mechanisms.schemas.bounds import BoundsPlan
from privopt.mechanisms.schemas.cuts import counted_ordinals
from privopt.mechanisms.schemas.learning import SchemaPlan

# Points and the gaps between them, in order, and a prior that is not uniform.
CELLS = 5
PRIOR = np.array([0.1, 0.4, 0.1, 0.3, 0.1])


def upper_law(held: tuple[int, ...], strength: float, beyond: float) -> list[float]:
    """P[upper bound], written from the definition."""
    weights = []
    for t in range(CELLS):
        fewest, most = sum(x > t for x in held), sum(x >= t for x in held)
        distance = max(fewest - beyond, beyond - most, 0)
        weights.append(PRIOR[t] * math.exp(-strength * distance))
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("strength", [0.3, 1.5])
@pytest.mark.parametrize("beyond", [1.0, 2.4])
def test_no_neighbours_refute_the_level_of_bounds(strength: float, beyond: float) -> None:
    level, worst = BoundsPlan(strength, 4).level, 0.0
    cells = (-1, *range(CELLS))  # -1: missing
    for rest in itertools.combinations_with_replacement(cells, 3):
        for x, y in itertools.permutations(cells, 2):
            laws = []
            for changed in (x, y):
                held = tuple(v for v in (*rest, changed) if v >= 0)
                flipped = tuple(CELLS - 1 - v for v in held)
                both = upper_law(held, strength, beyond), upper_law(flipped, strength, beyond)
                laws.append([p * q for p, q in itertools.product(*both)])
            for epsilon in (0.0, strength, 2 * strength):
                delta = sum(max(0.0, p - math.exp(epsilon) * q) for p, q in zip(*laws, strict=True))
                claimed = gaussian_delta(level, epsilon)
                assert delta <= claimed, (rest, x, y)
                worst = max(worst, delta / claimed)
    assert worst > 0.4  # the bound is not idle


def test_a_draw_has_the_law_of_the_definition() -> None:
    values = np.array([-2.0, 1.0, 2.0, 2.0, 5.0, 9.0, 9.0, math.inf])
    plan = BoundsPlan(8.0, 8)  # 2.5 records beyond a bound
    last, largest = prior.LAST, sys.float_info.max
    held, times = counted_ordinals(values.clip(-largest, largest), None)
    five, nine = prior.ordinals(np.array([5.0, 9.0])).tolist()
    source, runs = NoiseSource(1), 3000
    drawn = np.array([plan._upper(held, times, source) for _ in range(runs)])
    # Ends of intervals (low, high], #{x > t} and #{x >= t} for a t in them; t < 5 has a weight of e^-12.
    cells = np.array(
        [
            (five - 1, five, 3, 4),
            (five, nine - 1, 3, 3),
            (nine - 1, nine, 1, 3),
            (nine, last - 1, 1, 1),
            (last - 1, last, 0, 1),
        ]
    )
    distance = np.maximum(np.maximum(cells[:, 2] - 2.5, 2.5 - cells[:, 3]), 0)
    law = prior.masses(cells[:, 0], cells[:, 1]) * np.exp(-8.0 * distance)
    seen = [int(np.sum((drawn > low) & (drawn <= high))) for low, high in cells[:, :2].tolist()]
    for count, p in zip(seen, law / law.sum(), strict=True):
        assert stats.binomtest(count, runs, p).pvalue > 1e-3


def test_bounds_hold_nearly_all_numbers_and_are_near_them() -> None:
    rng, n = np.random.default_rng(0), 5000
    columns = [rng.normal(size=n), 1e9 * rng.lognormal(size=n), np.minimum(rng.integers(0, 200, n), 100.0)]
    for seed, values in enumerate(columns):
        plan = BoundsPlan.plan(0.3, n)
        assert plan is not None
        low, high = plan.release(values, NoiseSource(seed))
        assert np.mean((values < low) | (values > high)) < 4 * plan.beyond / n
        ranks = np.quantile(values, [2.5 * plan.beyond / n, 1 - 2.5 * plan.beyond / n])
        assert low <= ranks[0]
        assert ranks[1] <= high
        # Beyond all data only if many records hold the largest number, and then at it.
        assert values.min() <= low
        assert high <= values.max()


def test_plans_refuse_few_records_and_say_how_many_are_needed() -> None:
    with pytest.raises(PrivacyParameterError, match=r"about [\d,]+ for bounds"):
        SchemaPlan.plan({"a": "range"}, 100, epsilon=0.1, delta=1e-6)
    plan = SchemaPlan.plan({"a": "range"}, 4000, epsilon=1.0, delta=1e-6)
    assert plan.columns[0].level == pytest.approx(gaussian_mu(1.0, 1e-6), rel=1e-3)
    assert "two bounds, each with about" in str(plan.columns[0])


@pytest.mark.parametrize(
    "cells",
    [
        [1.0, 5e-324],
        [math.inf, -math.inf],
        [None, "x"],
        [1.7e308, -1.7e308],
        [0.0, -0.0],
        [3, 3],
        ["1e999", 10**400],
    ],
)
def test_odd_columns_have_bounds_that_increase(cells: list[object]) -> None:
    held = np.empty(2000, dtype=object)
    held[:] = cells * 1000
    found = learn_schema({"a": held}, epsilon=1.0, types={"a": "range"}, insecure_seed=0).schema
    (column,) = found.columns
    low, high = column.column.bounds  # type: ignore[attr-defined]
    assert low < high
    assert len(found.codes({"a": held})[0]) == 2000
