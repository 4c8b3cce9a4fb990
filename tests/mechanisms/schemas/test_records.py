"""Number of records per person: law and cost of the choice by brute force, and what is left for a fit."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_delta, zcdp_epsilon
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.schemas.records import CHOICES, RecordsPlan


def law(held: tuple[int, ...], strength: float) -> np.ndarray:
    """P[k], written from the definition."""
    weights, wanted, below = [], len(held) / 10, 0
    held = tuple(min(r, CHOICES[-1]) for r in held)
    for k in CHOICES:
        fewest, most = sum(r > k for r in held), sum(r > below for r in held)
        weights.append(math.exp(-strength * max(fewest - wanted, wanted - most, 0)))
        below = k
    return np.array(weights) / sum(weights)


@pytest.mark.parametrize("strength", [0.4, 1.5])
def test_no_neighbouring_persons_refute_the_cost(strength: float) -> None:
    plan, worst, worst_delta = RecordsPlan(strength, 4), 0.0, 0.0
    kinds = (1, 2, 3, 5, 9, 33)  # numbers of records
    for rest in itertools.combinations_with_replacement(kinds, 3):
        laws = [law((*rest, changed), strength) for changed in kinds]
        for p, q in itertools.permutations(laws, 2):
            worst = max(worst, float(np.log(p / q).max() - np.log(p / q).min()))
            for epsilon in (0.0, strength / 2):
                delta = float(np.maximum(p - math.exp(epsilon) * q, 0).sum())
                worst_delta = max(worst_delta, delta / gaussian_delta(plan.level, epsilon))
    assert worst <= plan.epsilon
    assert worst > 0.45 * plan.epsilon  # the bound is not idle
    assert 0.3 < worst_delta <= 1


def test_the_choice_has_the_law_of_the_definition() -> None:
    held = (1, 1, 1, 2, 2, 5, 5, 5, 7, 40)
    source, runs, plan = NoiseSource(1), 2000, RecordsPlan(0.5, len(held))
    drawn = [plan.release(np.array(held), source) for _ in range(runs)]
    seen = np.array([drawn.count(k) for k in CHOICES])
    expected = runs * law(held, 0.5)
    # Chi-square with 9 degrees of freedom: beyond 33.7 with probability 1e-4.
    assert float(np.sum((seen - expected) ** 2 / expected)) < 33.7


def test_k_covers_nine_tenths_and_no_more() -> None:
    rng, n = np.random.default_rng(0), 4000
    columns = [np.full(n, 5), np.full(n, 1), np.full(n, 100), rng.geometric(0.3, n)]
    plan = RecordsPlan.plan(n, 1.0)
    # P[geometric > 6] = .12, > 8 .06, > 12 .01
    for held, wanted in zip(columns, ({6}, {1}, {32}, {6, 8, 12}), strict=True):
        found = [plan.release(held, NoiseSource(seed)) for seed in range(20)]
        assert sum(k in wanted for k in found) >= 19


def test_few_persons_are_refused_and_many_are_cheap() -> None:
    with pytest.raises(PrivacyParameterError, match=r"from 2,00\d persons or more at epsilon = 1; "):
        RecordsPlan.plan(90, 1.0)
    plan = RecordsPlan.plan(100_000, 1.0)
    assert plan.epsilon == pytest.approx(200 / 100_000, rel=1e-3)
    assert RecordsPlan.plan(2001, 1.0).epsilon <= 0.1


@pytest.mark.parametrize("notion", ["gdp", "zcdp", "pure", "approximate"])
def test_what_is_left_and_the_choice_make_the_whole(notion: str) -> None:
    plan, delta = RecordsPlan.plan(2500, 1.0), 0.0 if notion == "pure" else 1e-6
    left = plan.left(1.0, delta, notion)
    spend = {
        "gdp": lambda: PrivacySpend.gdp(0.1, delta, "a"),
        "zcdp": lambda: PrivacySpend.zcdp(0.01, delta, "a"),
        "pure": lambda: PrivacySpend.pure(left, "a"),
        "approximate": lambda: PrivacySpend.approximate(left, delta, "a"),
    }[notion]()
    whole = plan.beside([spend, replace(spend, mechanism="b")], delta)
    assert (whole.notion, whole.unit) == (notion, "person")
    assert whole.mechanism == "learn-records, a or b"
    if notion == "gdp":
        assert whole.level == pytest.approx(math.sqrt(0.1**2 + plan.level**2))
        assert 1 - plan.epsilon < left < 1
    elif notion == "zcdp":
        assert whole.level == pytest.approx(0.01 + plan.epsilon**2 / 8)
        assert whole.epsilon == pytest.approx(zcdp_epsilon(whole.level, delta))
        assert 1 - plan.epsilon < left < 1
    else:
        assert left == pytest.approx(1 - plan.epsilon)
        assert 1 - 1e-6 < whole.epsilon <= 1
    mixed = plan.beside([PrivacySpend.gdp(0.1, 1e-6, "a"), PrivacySpend.pure(0.3, "b")], 1e-6)
    assert mixed.notion == "approximate"
    assert mixed.epsilon == pytest.approx(max(PrivacySpend.gdp(0.1, 1e-6, "a").epsilon, 0.3) + plan.epsilon)
