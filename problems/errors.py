"""Errors of the problem layer. Messages name fields, shapes and limits, never the value of a record."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class PrivOptError(Exception):
    """Base class of every error that privopt raises on purpose."""


class InvalidInputError(PrivOptError, ValueError):
    """An argument or a table that cannot be used: wrong shape or type, NaN, infinity, unknown label."""


class InvalidTypeError(InvalidInputError, TypeError):
    """An argument of another type altogether."""


class InfeasibleDomainError(InvalidInputError):
    """The feasible set is empty."""


class SchemaError(InvalidInputError):
    """A schema that contradicts itself, or a table that does not fit its schema."""


class PrivacyLeakWarning(UserWarning):
    """Something was read off private data without being paid for; the privacy statement does not cover it."""


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """' (did you mean "x"?)' for a name that is close to a known one, else nothing. Public names only."""
    names = {name.lower(): name for name in known}
    close = get_close_matches(str(given).lower(), names, n=1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""
