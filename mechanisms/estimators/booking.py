"""Booking a fit in a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from privopt.mechanisms.privacy.spend import PrivacySpend

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger


@contextmanager
def booked(ledger: Ledger | str | Path | None, spend: PrivacySpend) -> Iterator[None]:
    """Reserve the spend for as long as the release runs, if there is a ledger.

    Whatever goes wrong after that carries a note: the reservation stays.
    """
    if ledger is None:
        yield
        return
    from privopt.mechanisms.privacy.ledger import Ledger  # whose library for databases most fits do not need

    book, reserved = ledger if isinstance(ledger, Ledger) else Ledger(ledger), False
    try:
        with book.spending(spend):
            reserved = True
            yield
    except BaseException as error:
        if reserved:
            error.add_note(
                f"The reserved epsilon = {spend.epsilon:g}, delta = {spend.delta:.3g} counts as spent in "
                f"{book}: the run had started, and how it ended may depend on the records"
            )
        raise
