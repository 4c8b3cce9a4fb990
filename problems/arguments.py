"""Checks of user arguments. Messages say what was expected and what was given, never a record's value."""

from __future__ import annotations

import numbers
import os
from pathlib import Path
from typing import Any, TypeVar

from privopt.problems.errors import InvalidInputError, InvalidTypeError

Kind = TypeVar("Kind")


def told(value: object) -> str:
    """Describe an argument for a message: a scalar by its value, cut to 60 characters; others by their type.

    The value of anything else, such as an array, might contain records.
    """
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        return "an integer beyond 64 bits"
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def check_type(value: Kind, kind: Any, what: str) -> Kind:
    """Return ``value`` if it is an instance of ``kind``; ``what`` begins the message: "limits must be ..."

    Raises:
        InvalidTypeError: ``value`` is of another type.
    """
    if not isinstance(value, kind):
        raise InvalidTypeError(f"{what}, got {told(value)}")
    return value


def check_real(value: Any, name: str) -> float:
    """Return ``value`` as a float if it is a real number; it may be infinite or NaN.

    Raises:
        InvalidTypeError: not a number, or one beyond 64-bit floats.
    """
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise InvalidTypeError(f"{name} must be a number, got {told(value)}")


def check_whole(value: Any, name: str, least: int = 1) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``least``.

    Raises:
        InvalidInputError: ``value`` is something else.
    """
    number = check_real(value, name)
    if not (number >= least and number.is_integer()):
        raise InvalidInputError(f"{name} must be a whole number >= {least}, got {told(value)}")
    return int(value)


def check_some_records(n: int) -> None:
    """Raise InvalidInputError for an empty table."""
    if n == 0:
        raise InvalidInputError("no records: at least one row is needed")


def check_same_length(rows: int, labels: int) -> None:
    """Raise InvalidInputError unless X and y have equally many rows."""
    if rows != labels:
        raise InvalidInputError(f"X has {rows} rows and y has {labels}")


def as_path(path: object, what: str) -> Path:
    """Return ``path`` as a Path; ``what`` says in messages what the path is of, as in "a ledger".

    Raises:
        InvalidTypeError: neither text nor a path, an empty path, or one with a null character.
    """
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InvalidTypeError(f"{what} is named by a path, text or a pathlib.Path; got {told(path)}")
    return Path(text)
