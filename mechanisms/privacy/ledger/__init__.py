"""Privacy budgets that survive crashes, in a file or in a database that a team shares."""

from privopt.mechanisms.privacy.ledger.ledger import Ledger, Snapshot, verify
from privopt.mechanisms.privacy.ledger.trail import Entry, Row

__all__ = ["Entry", "Ledger", "Row", "Snapshot", "verify"]
