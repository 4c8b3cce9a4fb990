"""Checks of privacy parameters, and a search that can only err toward privacy."""

from __future__ import annotations

import math
from collections.abc import Callable

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.problems.arguments import check_real
from privopt.problems.errors import InvalidTypeError

# A bracket that has doubled this often has left the range of doubles.
_DOUBLINGS = 1100
# Bisection stops at this relative width; callers' tolerances are far coarser.
_RELATIVE_WIDTH = 1e-10


def check_positive(value: float, name: str) -> float:
    """``value`` as a float, if it is a finite number > 0."""
    number = _number(value, name)
    if not (math.isfinite(number) and number > 0):
        raise PrivacyParameterError(f"{name} must be finite and > 0, got {value!r}")
    return number


def check_epsilon(epsilon: float) -> float:
    """``epsilon`` as a float, if it is finite and > 0."""
    return check_positive(epsilon, "epsilon")


def check_delta(delta: float, *, zero_allowed: bool = False) -> float:
    """``delta`` as a float, if 0 < delta < 1, or delta = 0 where that is allowed (pure privacy)."""
    number = _number(delta, "delta")
    if zero_allowed and number == 0:
        return 0.0
    if not 0 < number < 1:
        allowed = "0 <= delta < 1" if zero_allowed else "0 < delta < 1"
        raise PrivacyParameterError(f"delta must satisfy {allowed}, got {delta!r}")
    return number


def check_count(value: int, name: str) -> int:
    """``value`` as an int, if it is a whole number >= 1."""
    number = _number(value, name)
    if not (number >= 1 and math.isfinite(number) and number == math.floor(number)):
        raise PrivacyParameterError(f"{name} must be a whole number >= 1, got {value!r}")
    return int(value)


def smallest(
    satisfied: Callable[[float], bool], *, start: float = 1.0, width: float = _RELATIVE_WIDTH
) -> float:
    """Nearly the smallest x > 0 with ``satisfied(x)``, for a test that stays true once it is true.

    The value returned has itself passed the test, so a caller that tests "epsilon(x) <= target" cannot
    end up on the wrong side of the root.

    Args:
        satisfied: the test.
        start: where to begin; the search doubles or halves from here, so a costly test wants it close.
        width: relative distance to the root at which to stop.

    Raises:
        PrivacyParameterError: no representable x passes.
    """
    high = start
    for _ in range(_DOUBLINGS):
        if satisfied(high):
            break
        high *= 2
        if math.isinf(high):
            raise PrivacyParameterError("no noise level reaches the requested privacy")
    low = high / 2
    for _ in range(_DOUBLINGS):
        if low == 0 or not satisfied(low):
            break
        low, high = low / 2, low
    while high - low > width * high:
        middle = 0.5 * (low + high)
        if satisfied(middle):
            high = middle
        else:
            low = middle
    return high


def largest(satisfied: Callable[[float], bool], *, start: float = 1.0) -> float:
    """Nearly the largest x > 0 with ``satisfied(x)``, for a test that stays false once it is false."""
    return 1 / smallest(lambda t: satisfied(1 / t), start=1 / start)


def _number(value: float, name: str) -> float:
    try:
        return check_real(value, name)
    except InvalidTypeError as error:
        raise PrivacyParameterError(str(error)) from None
