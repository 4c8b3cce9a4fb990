"""Errors of the problem layer. Messages name fields, shapes and limits, never the value of a record."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


class PrivOptError(Exception):
    """Base class of every error that privopt raises on purpose."""


class InvalidInputError(PrivOptError, ValueError):
    """Unusable argument or table: wrong shape or type, NaN, infinity, unknown label."""


class InvalidTypeError(InvalidInputError, TypeError):
    """Argument of a wrong type."""


class InfeasibleDomainError(InvalidInputError):
    """The feasible set is empty."""


class SchemaError(InvalidInputError):
    """A schema that contradicts itself, or a table that does not fit its schema."""


class MissingExtraError(PrivOptError, ImportError):
    """Package of an optional feature that is not installed."""


class PrivacyLeakWarning(UserWarning):
    """A value was computed from private data outside the budget: the guarantee does not cover it."""


def missing(what: str, package: str, extra: str) -> MissingExtraError:
    """Return the error of a feature whose package is not installed, with the extra that brings it."""
    return MissingExtraError(
        f"{what} needs {package}, which is not installed. To do: pip install 'privopt[{extra}]'"
    )


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return ' (did you mean "x"?)' if a known name is close, else an empty string. Public names only."""
    names = {name.lower(): name for name in known}
    close = get_close_matches(str(given).lower(), names, n=1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""
