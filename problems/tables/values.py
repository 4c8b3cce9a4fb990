"""What cells and declarations are read as: numbers, levels, exact fractions; and why some are refused."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from privopt.problems.arguments import told
from privopt.problems.errors import SchemaError
from privopt.problems.lazy import LazyModule

if TYPE_CHECKING:
    import pandas as pd
else:
    pd = LazyModule("pandas")

Plain = int | float | str

# Features stay exact in float64 too (solvers keep their models in it), with room for weights in int64.
FEATURE_LIMIT = 1 << 53

# Dropping rows would make their number, which is public, a function of the records.
_FILL = "declare missing_level = true, or missing=..., a value chosen without looking at the records"


class Refused(Enum):
    """Why a value has no code."""

    MISSING = "missing"
    INFINITE = "infinite"
    OUTSIDE = "outside"
    KIND = "kind"  # of another type


@cache
def _number_types() -> tuple[type, ...]:
    return numbers.Real, Decimal, np.bool_, type(None), type(pd.NA), type(pd.NaT)


def is_numeric(values: NDArray[Any]) -> bool:
    """Whether an array holds numbers or booleans, also as Python objects; missing values count as either."""
    if values.dtype.kind != "O":
        return values.dtype.kind in "biuf"
    return _are(values, _number_types())


def _are(values: NDArray[Any], types: tuple[type, ...]) -> bool:
    return all(issubclass(kind, types) for kind in set(map(type, values)))


def as_numbers(where: str, values: NDArray[Any], missing: Fraction | None = None) -> NDArray[np.float64]:
    """A column as finite float64, shape (n,), with ``missing`` in the place of missing values.

    ``where`` begins the messages: "column 'age'", say.

    Raises:
        SchemaError: text or other types, infinities, missing values if there is nothing to read them as.
    """
    gaps = np.asarray(pd.isna(values))
    if missing is None and bool(np.any(gaps)):
        raise refusal(where, Refused.MISSING)
    if not is_numeric(values):
        raise refusal(where, Refused.KIND)
    try:
        x = np.where(gaps, 0, values).astype(np.float64)
    except OverflowError:
        raise SchemaError(f"{where}: a number is too large for a 64-bit float") from None
    if not bool(np.all(np.isfinite(x))):
        raise refusal(where, Refused.INFINITE)
    if missing is not None:
        x[gaps] = float(missing)
    return x


def as_levels(
    where: str, values: NDArray[Any], missing: str | int | None = None
) -> tuple[NDArray[np.intp], list[Any]]:
    """A column as codes, shape (n,), into the list of its distinct values; missing ones are ``missing``.

    Raises:
        SchemaError: types that cannot be categories, or missing values with nothing to read them as.
    """
    if values.dtype.kind not in "OUbiuf":
        raise SchemaError(f"{where}: text, integers or booleans are needed, not {values.dtype}")
    # Equality of other objects can be anything: np.True_ == (1,), say.
    if values.dtype.kind == "O" and not _are(values, (str, *_number_types())):
        raise SchemaError(f"{where}: text, integers or booleans are needed, not other objects")
    codes, levels = pd.factorize(values)
    if not bool(np.any(codes < 0)):
        return codes, levels.tolist()
    if missing is None:
        raise refusal(where, Refused.MISSING, categories=True)
    return np.where(codes < 0, len(levels), codes), [*levels.tolist(), missing]


def positions(
    where: str,
    values: NDArray[Any],
    declared: Mapping[str | int, int],
    missing: str | int | None = None,
) -> NDArray[np.int64]:
    """The position of each value among the declared ones, shape (n,), -1 for others.

    The one comparison of categories and of labels. Each record's position is its own: whatever another one
    holds, a column of floats included, numbers below ``FEATURE_LIMIT`` stay what they are (``check_exact``).

    Args:
        where: begins the messages.
        values: shape (n,).
        declared: positions of values that are all text, or all numbers or booleans.
        missing: what missing values are read as.

    Raises:
        SchemaError: text where numbers are declared, or the reverse; and as ``as_levels``.
    """
    codes, levels = as_levels(where, values, missing)
    is_text = isinstance(next(iter(declared)), str)
    if any(isinstance(v, str) != is_text for v in levels):
        kinds = ("text", "numbers or booleans")
        asked, found = kinds if is_text else kinds[::-1]
        raise SchemaError(f"{where}: declared as {asked}, found as {found}; convert one of them")
    return np.array([declared.get(v, -1) for v in levels], dtype=np.int64)[codes]


def check_exact(where: str, values: Iterable[object]) -> None:
    """Raise SchemaError for numbers that are declared, to be told from others, and are too large for it.

    A hole or a fraction in another record makes a column of floats, which merges larger integers.
    """
    if any(isinstance(v, int | float) and not abs(v) < FEATURE_LIMIT for v in values):
        raise SchemaError(f"{where}: integers must be below 2^53 in absolute value; declare them as text")


def rational(value: object, name: str, key: str) -> Fraction:
    """A declared number as an exact fraction: floats and strings are read as decimals.

    Raises:
        SchemaError: not a number, not finite, or beyond 64-bit floats.
    """
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, str) and "e" not in value.lower():  # an exponent could ask for any memory
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
    """The simplest of int, float and str that reads back as ``q``."""
    if q.denominator == 1 and abs(q) < 1 << 63:  # TOML integers have 64 bits
        return int(q)
    return float(q) if Fraction(repr(float(q))) == q else str(q)


def refusal(where: str, reason: Refused, categories: bool = False) -> SchemaError:
    """Why a value of a column has no code."""
    if reason is Refused.INFINITE:
        return SchemaError(f"{where}: infinities are not allowed")
    if reason is Refused.KIND:
        wanted = "values of the categories' type" if categories else "numbers"
        return SchemaError(
            f"{where}: {wanted} are needed, the table holds text or other types; convert them, "
            f"with a decimal point and without units, dates to days since a fixed one"
        )
    if categories:
        return SchemaError(
            f"{where}: missing values are not allowed; declare missing_level = true, or missing=..., a "
            "category of their own"
        )
    return SchemaError(f"{where}: missing values (empty, NaN) are not allowed; {_FILL}")
