"""Errors of the oracle layer: what was asked, what was seen, what to do."""

from privopt.problems.errors import PrivOptError


class OracleError(PrivOptError):
    """Base class of oracle errors. Nothing private has been released when one is raised."""


class UnknownOracleError(OracleError, ValueError):
    """No oracle has the requested name."""


class MissingSolverError(OracleError):
    """The oracle is known, but the solver behind it is not installed."""


class UnsupportedProblemError(OracleError, ValueError):
    """The oracle cannot answer this question about this problem; the message lists every reason."""


class SolverFailedError(OracleError):
    """The solver stopped without an answer for a reason other than a limit."""


class CertificateError(OracleError):
    """The answer is not proved well enough for what it is needed for."""


class UnfinishedDrawError(OracleError):
    """A limit was reached before a random draw was complete; there is no point to release."""


class ConformanceError(OracleError, AssertionError):
    """An oracle failed conformance checks; the message lists every one of them."""
