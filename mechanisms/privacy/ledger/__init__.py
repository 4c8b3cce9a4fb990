"""Durable privacy budgets in a file or in a shared database."""

from privopt.mechanisms.privacy.ledger.ledger import Ledger, Snapshot, verify
from privopt.mechanisms.privacy.ledger.trail import Entry, Row

__all__ = ["Entry", "Ledger", "Row", "Snapshot", "verify"]
