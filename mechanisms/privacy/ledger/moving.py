"""Moving of a ledger to another database: close the source, then write the target.

The last row of the source names the target and closes the source to bookings. Then all rows are copied
unchanged, hashes included, in one transaction, followed by a row that names the source. Between the two
transactions no booking is possible in either place. Repeating the same move completes it; a move to any other
place is refused.
"""

from __future__ import annotations

from privopt.mechanisms.errors import LedgerError
from privopt.mechanisms.privacy.ledger.store import Store
from privopt.mechanisms.privacy.ledger.trail import replay


def move(source: Store, target: Store) -> None:
    """Move the content of ``source`` to the empty ``target``, or complete an interrupted move.

    Raises:
        LedgerCorruptError: ``source`` or ``target`` cannot be trusted.
        LedgerError: there is another ledger, ``source`` was moved elsewhere, or is in tables that another
            role owns.
        LedgerUnavailableError: a database does not answer.
    """
    where, rows = target.address.location, source.verified().rows
    if rows[-1].destination not in ("", where):
        raise LedgerError(f"{source} was moved to {rows[-1].destination} before, and so not to {where}")
    source.require_owner()
    target.make_room()
    if not rows[-1].destination:
        if target.holds_a_ledger():
            raise LedgerError(f"{target} holds a ledger: move to an empty place")
        with source.booking() as book:
            book.append("move", {"to": where})
        rows = source.verified().rows
    accounts = replay(rows)[1].values()
    with target.making() as book:
        if not book.number:
            book.copy(rows)
            book.append("arrive", {"from": source.address.location})
            for account in accounts:
                book.put(account)
        elif not book.contains(rows[-1]):
            raise LedgerError(f"{target} holds another ledger than {source}, which was to be moved there")
    target.verified()
