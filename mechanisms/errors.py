"""Errors of the mechanism layer; messages say what was asked, what was seen, and what to do."""

from privopt.problems.errors import PrivOptError


class PrivacyParameterError(PrivOptError, ValueError):
    """A privacy parameter, or a public fact behind it, that cannot be used."""


class NoiseSourceError(PrivOptError, RuntimeError):
    """A noise source was used where its draws could repeat: a seeded source was copied, pickled or used in a
    fork.
    """


class PlanMismatchError(PrivOptError, ValueError):
    """A plan was asked to run on an oracle or a problem that it was not made for."""


class UnknownMechanismError(PrivOptError, ValueError):
    """No mechanism has the requested name."""


class InexactDrawError(PrivOptError):
    """The arithmetic behind a draw is too coarse for the privacy claim; nothing was released."""


class NoIntervalError(PrivOptError, ValueError):
    """Confidence intervals were asked of a release whose noise hides the model."""


class LedgerError(PrivOptError):
    """Base class of ledger errors. No release has run when one is raised."""


class BudgetExceededError(LedgerError):
    """The release would overdraw the budget; it was not run."""


class LedgerCorruptError(LedgerError):
    """The ledger cannot be trusted, so no further spending is allowed; ``what`` is a short reason."""

    def __init__(self, text: str, what: str = "") -> None:
        super().__init__(text)
        self.what = what


class LedgerUnavailableError(LedgerError):
    """The database does not answer, cannot write, or was moved. Reservations count as spent."""


class AuditError(PrivOptError, ValueError):
    """An audit that cannot be made: invalid laws, outcomes of another type, or a law without a closed
    form.
    """


class SearchError(PrivOptError, RuntimeError):
    """A search ended without a model, at a limit or because every run failed. Its budget stays spent."""
