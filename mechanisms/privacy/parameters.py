"""Checks of privacy parameters, and searches for the best parameter that satisfies a test."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.problems.arguments import check_real
from privopt.problems.errors import InvalidTypeError

# After this many doublings the ends of a bracket have left the range of doubles.
_DOUBLINGS = 1100
_OUT_OF_REACH = "no noise level reaches the requested privacy"
# Bisection stops at this relative width; callers' tolerances are far coarser.
_RELATIVE_WIDTH = 1e-10
# Secant steps between logarithms: length of the first, largest length, and number.
_SECANT, _LONGEST_MOVE, _SECANT_STEPS = 0.1, 2.0, 20


def check_positive(value: float, name: str) -> float:
    """Return ``value`` as a float, if it is a finite number > 0."""
    number = _number(value, name)
    if not (math.isfinite(number) and number > 0):
        raise PrivacyParameterError(f"{name} must be finite and > 0, got {value!r}")
    return number


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` as a float, if it is finite and > 0."""
    return check_positive(epsilon, "epsilon")


def check_delta(delta: float, *, zero_allowed: bool = False) -> float:
    """Return ``delta`` as a float, if 0 < delta < 1, or delta = 0 where allowed (pure privacy)."""
    number = _number(delta, "delta")
    if zero_allowed and number == 0:
        return 0.0
    if not 0 < number < 1:
        allowed = "0 <= delta < 1" if zero_allowed else "0 < delta < 1"
        raise PrivacyParameterError(f"delta must satisfy {allowed}, got {delta!r}")
    return number


def check_count(value: int, name: str) -> int:
    """Return ``value`` as an int, if it is a whole number >= 1."""
    number = _number(value, name)
    if not (number >= 1 and math.isfinite(number) and number == math.floor(number)):
        raise PrivacyParameterError(f"{name} must be a whole number >= 1, got {value!r}")
    return int(value)


@contextmanager
def within_doubles(name: str) -> Iterator[None]:
    """Refuse public parameters for which the arithmetic of a plan leaves the range of doubles.

    Raises:
        PrivacyParameterError: the arithmetic leaves that range; the arithmetic of a release would, too.
    """
    try:
        yield
    except ArithmeticError as error:
        raise PrivacyParameterError(
            f"{name}: numbers of this plan leave the range of doubles ({error}). To do: bounds on rows, sets "
            "or means and penalties nearer to 1, for example by other units; a less extreme epsilon or delta"
        ) from error


def smallest(
    satisfied: Callable[[float], bool],
    *,
    start: float = 1.0,
    width: float = _RELATIVE_WIDTH,
    ratio: float = 2.0,
) -> float:
    """Approximate the smallest x > 0 with ``satisfied(x)``, for a monotone test ``satisfied``.

    The returned value has passed the test, so a caller that tests "epsilon(x) <= target" always gets a value
    on the private side of the root.

    Args:
        satisfied: the test; once true, it is true for all larger x.
        start: the first x; close to the root if the test is slow.
        width: relative distance to the root at which to stop.
        ratio: ratio of the first step; each is the square of the one before, up to 2.

    Raises:
        PrivacyParameterError: no representable x passes.
    """
    low, high, step = 0.0, start, ratio
    for _ in range(_DOUBLINGS):
        if satisfied(high):
            break
        low, high, step = high, high * step, min(step * step, 2.0)
        if math.isinf(high):
            raise PrivacyParameterError(_OUT_OF_REACH)
    else:
        raise PrivacyParameterError(_OUT_OF_REACH)
    if low == 0:  # the start has passed
        low = high / ratio
        for _ in range(_DOUBLINGS):
            if low == 0 or not satisfied(low):
                break
            step = min(step * step, 2.0)
            low, high = low / step, low
    while high - low > width * high:
        middle = 0.5 * (low + high)
        if satisfied(middle):
            high = middle
        else:
            low = middle
    return high


def largest(satisfied: Callable[[float], bool], *, start: float = 1.0) -> float:
    """Approximate the largest x > 0 with ``satisfied(x)``, for a monotone test: see ``smallest``."""
    return 1 / smallest(lambda t: satisfied(1 / t), start=1 / start)


def smallest_count(satisfied: Callable[[int], bool], most: int) -> int:
    """Return the smallest integer n >= 2 with ``satisfied(n)``, for a monotone test that ``most`` passes."""
    low, high = 1, most  # too few, enough
    while high - low > 1:
        # The middle lies strictly between ``low`` and ``high``, even where both are small and the square root
        # would be rounded down to ``low``.
        middle = max(math.isqrt(low * high), low + 1) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if satisfied(middle) else (middle, high)
    return high


def smallest_below(value: Callable[[float], float], bound: float, *, start: float = 1.0) -> float:
    """Approximate ``smallest`` for the test ``value(x) <= bound`` with fewer calls, for a smooth
    ``value`` > 0.

    Secant steps on a logarithmic scale find a start for ``smallest``; the returned value has passed the test.
    """

    def excess(log_x: float) -> float:
        return math.log(value(math.exp(log_x)) / bound)

    begin, ratio = start, 2.0
    try:
        last, x = math.log(start), math.log(start) + _SECANT
        before, now = excess(last), excess(x)
        for _ in range(_SECANT_STEPS):
            move = now * (last - x) / (now - before)
            last, before, x = x, now, x + max(-_LONGEST_MOVE, min(move, _LONGEST_MOVE))
            if abs(move) <= _RELATIVE_WIDTH / 4:
                begin, ratio = math.exp(x) * (1 + _RELATIVE_WIDTH / 4), 1 + _RELATIVE_WIDTH / 2
                break
            now = excess(x)
    except (ArithmeticError, ValueError):
        pass  # a value of 0, or a constant
    return smallest(lambda x: value(x) <= bound, start=begin, ratio=ratio)


def largest_below(value: Callable[[float], float], bound: float, *, start: float = 1.0) -> float:
    """Approximate ``largest`` for the test ``value(x) <= bound``: see ``smallest_below``."""
    return 1 / smallest_below(lambda t: value(1 / t), bound, start=1 / start)


def _number(value: float, name: str) -> float:
    try:
        return check_real(value, name)
    except InvalidTypeError as error:
        raise PrivacyParameterError(str(error)) from None
