"""Durable privacy budgets in a file or in a shared database."""

from privopt.problems.errors import missing

try:
    import sqlalchemy  # noqa: F401
except ModuleNotFoundError as error:
    raise missing("a ledger", "SQLAlchemy", "ledgers") from error

from privopt.mechanisms.privacy.ledger.ledger import Ledger, Snapshot, verify
from privopt.mechanisms.privacy.ledger.trail import Entry, Row

__all__ = ["Entry", "Ledger", "Row", "Snapshot", "verify"]
