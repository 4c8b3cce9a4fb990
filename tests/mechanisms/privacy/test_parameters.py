"""Searches return the root from the side of privacy; spends that contradict themselves are refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import mpmath  # type: ignore[import-untyped]
import pytest

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import pure_to_gdp, zcdp_epsilon
from privopt.mechanisms.privacy.parameters import (
    check_count,
    check_delta,
    check_positive,
    largest,
    largest_below,
    smallest,
    smallest_below,
    smallest_count,
)
from privopt.mechanisms.privacy.spend import PrivacySpend


@pytest.mark.parametrize("root", [1e-300, 1e-9, 0.3, 1.0, 7.0, 1e200])
@pytest.mark.parametrize("start", [1e-3, 0.5, 1.0, 4.0, 1e6])
def test_searches_find_the_root_from_either_side(root: float, start: float) -> None:
    found = smallest(lambda x: x >= root, start=start)
    assert root <= found <= root * (1 + 2e-10)
    found = largest(lambda x: x <= root, start=start)
    assert root * (1 - 2e-10) <= found <= root


def test_a_coarse_search_stops_where_it_is_told_to() -> None:
    asked: list[float] = []

    def enough(x: float) -> bool:
        asked.append(x)
        return x >= 1.3

    assert 1.3 <= smallest(enough, width=0.1) <= 1.3 * 1.12
    assert len(asked) < 10
    with pytest.raises(PrivacyParameterError, match="no noise level"):
        smallest(lambda x: False)
    with pytest.raises(PrivacyParameterError, match="no noise level"):  # too far to double to
        smallest(lambda x: x >= 1e200, start=1e-300)
    assert smallest(lambda x: True) == 0 or smallest(lambda x: True) < 1e-300


@pytest.mark.parametrize("bad", [0, -1, 0.5, 1.5, math.inf, math.nan, True, "3", None])
def test_counts_are_whole_numbers_from_one(bad: Any) -> None:
    with pytest.raises(PrivacyParameterError, match="number"):
        check_count(bad, "steps")
    assert check_count(1, "steps") == 1
    assert check_count(7.0, "steps") == 7  # type: ignore[arg-type]


def test_ends_of_ranges() -> None:
    for bad in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(PrivacyParameterError, match="finite"):
            check_positive(bad, "sigma")
    assert check_positive(5e-324, "sigma") == 5e-324
    for bad in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(PrivacyParameterError, match="0 < delta < 1"):
            check_delta(bad)
    assert check_delta(0.0, zero_allowed=True) == 0
    assert check_delta(0.5, zero_allowed=True) == 0.5
    with pytest.raises(PrivacyParameterError, match="0 <= delta < 1"):
        check_delta(1.0, zero_allowed=True)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claim": "hoped", "note": "whose"}, "claim"),
        ({"notion": "renyi"}, "notion"),
        ({"neighbours": "add-remove"}, "neighbours"),
        ({"notion": "pure"}, "does not fit"),
        ({"delta": 0.0}, "does not fit"),
        ({"level": 1.0}, "level"),
        ({"notion": "gdp"}, "level"),
        ({"notion": "gdp", "level": 30.0}, "implies"),
        ({"notion": "zcdp", "level": 30.0}, "implies"),
        ({"mechanism": ""}, "name"),
        ({"claim": "printed: refuted"}, "note"),
        ({"note": 3}, "note"),
        ({"insecure_seed": True}, "seed"),
        ({"insecure_seed": 1.0}, "seed"),
    ],
)
def test_spends_that_contradict_themselves_are_refused(changes: dict[str, Any], words: str) -> None:
    whole = {"epsilon": 1.0, "delta": 1e-6, "notion": "approximate", "mechanism": "m"}
    assert PrivacySpend(**whole).epsilon == 1.0  # type: ignore[arg-type]
    with pytest.raises(PrivacyParameterError, match=words):
        PrivacySpend(**{**whole, **changes})


@pytest.mark.parametrize("epsilon", [1e-12, 1e-9, 1e-6, 1e-3, 0.1, 0.999, 1.0, 5.0, 40.0])
def test_gaussian_level_of_a_pure_release_in_many_digits(epsilon: float) -> None:
    """2 Phi^-1(e^eps / (1 + e^eps)) = 2 sqrt(2) erfinv(tanh(eps / 2)), in 60 digits."""
    with mpmath.workdps(60):
        exact = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(mpmath.mpf(epsilon) / 2))
        assert exact <= pure_to_gdp(epsilon) <= exact * (1 + mpmath.mpf(1e-11))


@pytest.mark.parametrize("rho", [1e-8, 0.1, 3.0, 1e4, 1e7, 1e10, 1e13])
@pytest.mark.parametrize("delta", [1e-12, 1e-5, 0.3])
def test_zcdp_in_many_digits(rho: float, delta: float) -> None:
    """The minimum over orders a of a rho + log(1 / (a delta)) / (a - 1) + log(1 - 1 / a), by sections."""
    with mpmath.workdps(60):
        r, d = mpmath.mpf(rho), mpmath.mpf(delta)

        def value(log_excess: Any) -> Any:
            x = mpmath.exp(log_excess)
            return (1 + x) * r - (mpmath.log(d) + mpmath.log(1 + x)) / x - mpmath.log(1 + 1 / x)

        centre = mpmath.log(mpmath.sqrt(-mpmath.log(d) / r))
        low, high = centre - 8, centre + 8
        ratio = (mpmath.sqrt(5) - 1) / 2
        for _ in range(160):
            a, b = high - ratio * (high - low), low + ratio * (high - low)
            low, high = (low, b) if value(a) < value(b) else (a, high)
        exact = value((low + high) / 2)
        assert max(exact, 0) <= zcdp_epsilon(rho, delta) <= max(exact, 0) + 1e-6 * (1 + abs(exact))


@pytest.mark.parametrize("root", [1e-250, 3e-9, 0.7, 1.0, 4e5])
@pytest.mark.parametrize("start", [1.0, 1e-3])
def test_values_that_fall_meet_their_bound_where_the_plain_search_does(root: float, start: float) -> None:
    """A smooth value, one that is flat far from its root, and one with a jump there."""
    for value in (lambda x: root / x, lambda x: min(1.5, root / x), lambda x: 2.0 if x < root else 0.5):
        found = smallest_below(value, 1.0, start=start)
        assert value(found) <= 1
        assert root * (1 - 1e-15) <= found <= root * (1 + 3e-10)
    rising = largest_below(lambda x: x / root, 1.0, start=start)
    assert root * (1 - 3e-10) <= rising <= root * (1 + 1e-15)


def test_smooth_values_are_asked_for_seldom() -> None:
    asked = []

    def value(x: float) -> float:
        asked.append(x)
        return 5.0 / x

    smallest_below(value, 1e-6)
    assert len(asked) <= 12
    with pytest.raises(PrivacyParameterError, match="no noise level"):
        smallest_below(lambda _: 2.0, 1.0)


def test_a_smallest_count_is_found_in_few_steps_however_small_it_is() -> None:
    for least, most in itertools.product((2, 3, 4, 5, 17, 1000), (1000, 10**9)):
        tried: list[int] = []

        def enough(n: int, least: int = least, tried: list[int] = tried) -> bool:
            assert len(tried) < 60, "no end"
            tried.append(n)
            return n >= least

        assert smallest_count(enough, most) == least
        assert min(tried) >= 2
