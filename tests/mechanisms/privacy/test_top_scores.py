"""Draws of the largest scores: their law by enumeration, their cost from that law, refusals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.top_scores import TopScores
from privopt.oracles.draw.interface import race_error

Law = dict[tuple[int, ...], float]


def ordered_law(scores: tuple[float, ...], rate: float, count: int) -> Law:
    """Probability of every sequence of draws without replacement, by its definition."""
    weights = [math.exp(rate * score) for score in scores]
    law = {}
    for drawn in itertools.permutations(range(len(scores)), count):
        left, chance = sum(weights), 1.0
        for j in drawn:
            chance *= weights[j] / left
            left -= weights[j]
        law[drawn] = chance
    return law


def test_the_draws_have_the_law_of_their_definition() -> None:
    plan, scores = TopScores(2, 1.0, 3.0, 1.2), (3.0, 1.0, 2.0, -3.0)
    law: Counter[tuple[int, ...]] = Counter()
    for drawn, chance in ordered_law(scores, plan.rate, 2).items():
        law[tuple(sorted(drawn))] += chance  # type: ignore[assignment]
    source, runs = NoiseSource(insecure_seed=1), 2500
    seen = Counter(tuple(plan.choose(np.array(scores), source).tolist()) for _ in range(runs))
    assert set(seen) <= set(law)
    found = stats.chisquare([seen[key] for key in law], [runs * law[key] for key in law])
    assert found.pvalue > 1e-4


def divergence(one: Law, other: Law, order: float) -> float:
    """Renyi divergence of two laws of the same draws."""
    return math.log(sum(one[k] ** order * other[k] ** (1 - order) for k in one)) / (order - 1)


@pytest.mark.parametrize(("count", "rho"), [(1, 0.02), (2, 0.02), (2, 0.5), (3, 2.0)])
def test_the_worst_neighbours_spend_the_claim_and_no_more(count: int, rho: float) -> None:
    """All changes of four scores by the sensitivity, up or down, from several scores: zCDP by definition."""
    plan = TopScores.at_level(rho, count, sensitivity=0.5, largest=10.0)
    worst = 0.0
    for scores in ((0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0), (2.0, 0.0, 0.0, 0.0)):
        before = ordered_law(scores, plan.rate, count)
        for signs in itertools.product((-1, 1), repeat=4):
            moved = tuple(s + plan.sensitivity * t for s, t in zip(scores, signs, strict=True))
            after = ordered_law(moved, plan.rate, count)
            for order in (1.01, 1.5, 2.0, 4.0, 16.0):
                worst = max(worst, divergence(before, after, order) / order)
    assert worst <= plan.rho <= rho
    # One draw between two equal pairs attains its range; later draws are less evenly split.
    assert worst >= (0.99 if count == 1 else 0.7 if rho < 1 else 0.5) * rho


def test_all_scores_may_be_drawn() -> None:
    plan = TopScores.at_level(1.0, 3, sensitivity=1.0, largest=5.0)
    assert plan.choose(np.array([1.0, 5.0, 2.0]), NoiseSource(insecure_seed=0)).tolist() == [0, 1, 2]


def test_draws_that_doubles_are_too_coarse_for_are_refused() -> None:
    with pytest.raises(PrivacyParameterError, match="too coarse"):
        TopScores.at_level(1e-26, 4, sensitivity=1.0, largest=100.0)
    with pytest.raises(PrivacyParameterError, match="too coarse"):  # scores of 10^13 sensitivities
        TopScores.at_level(1.0, 4, sensitivity=1.0, largest=1e13)


def test_draws_and_their_rounding_together_are_within_the_range_of_the_claim() -> None:
    """In rationals, for the largest scores that are not refused."""
    largest, size = 1.0, 0.0
    while True:
        try:
            plan = TopScores.at_level(1.0, 4, sensitivity=3.0, largest=largest)
        except PrivacyParameterError:
            break
        largest, size = largest * 1.01, plan.rate * largest
    rounding = 4 * (Fraction(race_error(size)) + Fraction(2.0**-53 * size))
    step = Fraction(plan.draw_epsilon)
    assert (
        2 * 3 * Fraction(plan.rate) + rounding
        <= step
        < 2 * 3 * Fraction(plan.rate) + rounding * Fraction(1.1)
    )


@pytest.mark.parametrize("wrong", [{"rho": 0.0}, {"count": 0}, {"sensitivity": 0.0}])
def test_parameters_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    given = {"rho": 1.0, "count": 2, "sensitivity": 1.0, "largest": 1.0, **wrong}
    with pytest.raises(PrivacyParameterError):
        TopScores.at_level(**given)  # type: ignore[arg-type]
