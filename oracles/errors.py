"""Errors of the oracle layer."""

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
    """The certificate of an answer is weaker than its use requires."""


class UnfinishedDrawError(OracleError):
    """A limit was reached before a random draw was complete; nothing can be released."""


class UnfinishedBuildError(CertificateError, UnfinishedDrawError):
    """A limit was reached before a problem was built: there is neither a certificate nor a draw."""


class ConformanceError(OracleError, AssertionError):
    """An oracle failed conformance checks, or none could be made; the message lists every kind of failure."""
