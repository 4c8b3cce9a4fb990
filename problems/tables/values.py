"""Declared values: exact fractions, positions of labels, and the errors of refused values."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.problems.arguments import told
from privopt.problems.errors import SchemaError
from privopt.problems.tables.cells import MISSING, UNREADABLE, number_positions, text_positions

Plain = int | float | str
Real = int | float | str | Fraction

# Below this, features are exact in float64, which solvers use, and products with weights fit in int64.
FEATURE_LIMIT = 1 << 53

# The advice is not to drop rows: the number of rows, which is public, would depend on the records.
_FILL = "declare missing_level = true, or missing=..., a value chosen without looking at the records"


class Refused(Enum):
    """The reason why a value has no code."""

    MISSING = "missing"
    OUTSIDE = "outside"
    KIND = "kind"  # a value of another type


def positions(where: str, values: Any, declared: Mapping[str | int, int]) -> NDArray[np.int64]:
    """Return the position of each label among the declared ones, shape (n,), -1 for others.

    Labels are compared like the categories of a schema, each by itself.

    Args:
        where: the beginning of the messages.
        values: shape (n,).
        declared: positions of values that are all text, or all numbers or booleans.

    Raises:
        SchemaError: text where numbers are declared, or the reverse; other objects, and missing values.
    """
    is_text = isinstance(next(iter(declared)), str)
    found = (text_positions if is_text else number_positions)(values, declared)
    if bool(np.any(found == UNREADABLE)):
        kinds = ("text", "numbers or booleans")
        asked, other = kinds if is_text else kinds[::-1]
        raise SchemaError(f"{where}: declared as {asked}, found as {other} or others; convert one of them")
    if bool(np.any(found == MISSING)):
        raise refusal(where, Refused.MISSING, categories=True)
    return found


def check_exact(where: str, values: Iterable[object]) -> None:
    """Raise SchemaError for declared numbers that are too large to be distinguished as 64-bit floats.

    A missing value or a fraction in another record turns a column into floats, and two large integers can be
    the same float.
    """
    if any(isinstance(v, int | float) and not abs(v) < FEATURE_LIMIT for v in values):
        raise SchemaError(f"{where}: integers must be below 2^53 in absolute value; declare them as text")


def rational(value: object, name: str, key: str) -> Fraction:
    """Convert a declared number to an exact fraction; floats and strings are read as decimals.

    Raises:
        SchemaError: not a number, not finite, or beyond 64-bit floats.
    """
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, str) and "e" not in value.lower():  # a large exponent could exhaust the memory
            exact = Fraction(value)
        elif isinstance(value, numbers.Rational):
            exact = Fraction(int(value.numerator), int(value.denominator))
        elif isinstance(value, numbers.Real):
            exact = Fraction(repr(float(value)))
        else:
            raise ValueError
        float(exact)
    except (ValueError, ZeroDivisionError, OverflowError):
        huge = isinstance(value, int) and not isinstance(value, bool)
        seen = "a number beyond 64-bit floats" if huge else told(value)
        raise SchemaError(
            f"column {name!r}: {key} must be a finite number, or text such as '0.25' or '1/3'; got {seen}"
        ) from None
    return exact


def plain(q: Fraction) -> Plain:
    """Return the simplest of int, float and str that parses as ``q``."""
    if q.denominator == 1 and abs(q) < 1 << 63:  # TOML integers have 64 bits
        return int(q)
    return float(q) if Fraction(repr(float(q))) == q else str(q)


def refusal(where: str, reason: Refused, categories: bool = False) -> SchemaError:
    """Build the error for a value of a column that has no code."""
    if reason is Refused.KIND and categories:
        return SchemaError(
            f"{where}: values of the categories' type are needed, the table holds text or other types; "
            "convert them, or declare outside='ignore'"
        )
    if reason is Refused.KIND:
        return SchemaError(
            f"{where}: numbers are needed, the table holds text or other types; declare how text writes "
            "numbers (decimal, thousands, symbols, words; dates are kind = 'date'), or missing_level = true "
            "or missing=..., which they are then read as"
        )
    if categories:
        return SchemaError(
            f"{where}: missing values are not allowed; declare missing_level = true, or missing=..., a "
            "category of their own"
        )
    return SchemaError(f"{where}: missing values (empty, NaN, NA) are not allowed; {_FILL}")
