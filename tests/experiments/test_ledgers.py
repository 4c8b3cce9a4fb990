"""The made-up ledger is whole, and what is said of bookings is said of their first and last tenth."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from privopt.experiments import ledgers
from privopt.mechanisms.privacy.ledger import Ledger, verify


def test_a_made_up_ledger_spreads_over_two_months(tmp_path: Path) -> None:
    ledger = ledgers.made_up(tmp_path / "ledger.db")
    assert verify(ledger) == []
    days = pd.to_datetime([entry.time for entry in ledger.entries()])
    assert len(days) == 40
    assert days.is_monotonic_increasing
    assert 50 < (days[-1] - days[0]).days < 70
    assert 0 < Ledger(f"{ledger}#adult/heart/ana").total().epsilon < 1


def test_the_first_and_the_last_tenth_are_compared(tmp_path: Path) -> None:
    times = ledgers.booking_times(str(tmp_path / "ledger.db"), 3)
    assert (times > 0).all(axis=None)
    assert len(Ledger(tmp_path / "ledger.db").entries()) == 3
    table = ledgers.compared(pd.DataFrame({"reserve": [1.0, *[5.0] * 18, 3.0], "commit": [2.0] * 20}))
    assert table.loc["reserve"].tolist() == pytest.approx([3.0, 4.0, 4 / 3])
    assert table.loc["commit", "last / first"] == 1
