"""Errors of the problem layer. Messages name fields, shapes and limits, never the value of a record."""


class PrivOptError(Exception):
    """Base class of every error that privopt raises on purpose."""


class InvalidInputError(PrivOptError, ValueError):
    """An argument or a table that cannot be used: wrong shape or type, NaN, infinity, unknown label."""


class InfeasibleDomainError(InvalidInputError):
    """The feasible set is empty."""


class SchemaError(InvalidInputError):
    """A schema that contradicts itself, or a table that does not fit its schema."""


class PrivacyLeakWarning(UserWarning):
    """Something was read off private data without being paid for; the privacy statement does not cover it."""
