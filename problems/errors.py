"""Errors of the problem layer. Messages name fields, shapes and limits, never the value of a record."""


class PrivOptError(Exception):
    """Base class of every error that privopt raises on purpose."""


class InvalidInputError(PrivOptError, ValueError):
    """An argument or a table that cannot be used: wrong shape or type, NaN, infinity, unknown label."""


class InfeasibleDomainError(InvalidInputError):
    """The feasible set is empty."""
