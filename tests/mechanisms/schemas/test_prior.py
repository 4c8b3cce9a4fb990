"""The prior of cuts: masses against its definition in fractions, draws against all weights."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas import prior

EVERYTHING = (-prior.LAST - 1, prior.LAST)


def ordinal(x: float) -> int:
    return int(prior.ordinals(np.array([x]))[0])


def mass(a: float, b: float) -> float:
    return float(prior.masses(np.array([ordinal(a)]), np.array([ordinal(b)]))[0])


TOTAL = float(prior.masses(*(np.array([end]) for end in EVERYTHING))[0])


def defined(a: float, b: float) -> float:
    """P[a < t <= b] for 0 < a < b, from the definition."""
    weights = {k: Fraction(1, k * (k + 1)) for k in range(1, 101)}
    whole = sum((weight for k, weight in weights.items() if a < k <= b), Fraction(0)) / sum(weights.values())
    fine = 0.0
    for k in range(-1022, 1024):
        low, high = (math.atan(j * math.log10(2) - 1) / math.pi for j in (k, k + 1))
        start, end = math.ldexp(1.0, k), math.ldexp(1.0, k) * 2.0
        covered = max(0.0, min(b, end) - max(a, start)) / start
        fine += covered * (high - low)
    held = [math.atan(k * math.log10(2) - 1) / math.pi for k in (-1022, 1024)]  # by the range of doubles
    return 0.15 * float(whole) + 0.325 * fine / (held[1] - held[0])


@pytest.mark.parametrize(("a", "b"), [(1.0, 2.0), (0.3, 41.5), (17.0, 17.0005), (1e-9, 3e-9), (2e40, 1e300)])
def test_masses_are_those_of_the_definition_and_symmetric(a: float, b: float) -> None:
    # Weights are rounded to integers: by less than 1e-3 of a power of two, and of a whole number.
    assert mass(a, b) / TOTAL == pytest.approx(defined(a, b), rel=1e-3)
    below = (math.nextafter(-b, -math.inf), math.nextafter(-a, -math.inf))
    assert mass(*below) == mass(a, b) or mass(*below) == pytest.approx(mass(a, b), rel=1e-12)


def test_zero_has_a_twentieth_and_every_number_something() -> None:
    tiny = np.finfo(float).tiny
    assert mass(-tiny, 0.0) / TOTAL == pytest.approx(0.05, rel=1e-6)
    for x in (tiny, 1.1, 1234567.8, np.finfo(float).max):
        assert mass(math.nextafter(x, 0.0), x) >= 1
    assert ordinal(math.inf) == prior.LAST + 1
    assert ordinal(-5e-324) == 0
    numbers = np.array([-1e300, -2.5, 0.0, tiny, 3.0, np.finfo(float).max])
    assert [prior.number_at(int(k)) for k in prior.ordinals(numbers)] == numbers.tolist()


@pytest.mark.parametrize("x", [3.0, -3.0])
def test_draws_between_use_up_every_weight(x: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three numbers around a small whole one: each has the weight of its power of two, one has its own."""
    k, tables = ordinal(x), prior._tables()
    fine = int(tables.fine[abs(k) >> 52])
    place = int(np.searchsorted(tables.wholes, abs(k)))
    short = int(tables.counts[place + 1] - tables.counts[place]) * tables.scale
    edges = [0, fine - 1, fine, 2 * fine - 1, 2 * fine, 3 * fine - 1, 3 * fine, 3 * fine + short - 1]
    rests, totals = iter(edges), []

    def chosen(random: object, total: int) -> int:
        totals.append(total)
        return next(rests)

    monkeypatch.setattr(prior, "uniform_below", chosen)
    drawn = [abs(prior.draw_between(k - 2, k + 1, NoiseSource(0))) - abs(k) for _ in edges]
    assert drawn == [-1, -1, 0, 0, 1, 1, 0, 0]
    assert set(totals) == {3 * fine + short}


def test_draws_over_everything_have_both_signs_zero_and_small_whole_numbers() -> None:
    source = NoiseSource(3)
    drawn = [prior.number_at(prior.draw_between(*EVERYTHING, source)) for _ in range(2000)]
    # Binomial standard deviations: sqrt(2000 p (1 - p)) = 9.7 for zero, 22 for signs, 20.5 for whole numbers.
    assert abs(drawn.count(0.0) - 100) < 50
    assert abs(sum(x > 0 for x in drawn) - 950) < 110
    whole = sum(x.is_integer() and 0 < abs(x) <= 100 for x in drawn)
    assert abs(whole - 600) < 100


def test_a_column_of_zeros_and_ones_is_cut_at_one_in_about_half_of_the_draws() -> None:
    """P[t = 1 | 0 < t <= 1]: 1 has half of the whole numbers of a sign; a quarter of log10 x is below 0."""
    share = mass(math.nextafter(1.0, 0.0), 1.0) / mass(0.0, 1.0)
    assert share == pytest.approx(0.15 * 101 / 200 / (0.15 * 101 / 200 + 0.325 * 0.25), rel=0.01)


def test_beyond_a_hundred_a_round_number_is_no_likelier_than_its_neighbours() -> None:
    for x in (3000.0, 2900.0, 5e7):
        assert mass(x - 1, x) == pytest.approx(mass(x, x + 1), rel=1e-9)
