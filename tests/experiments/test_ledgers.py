"""The made-up ledger is whole, and what is said of bookings is said of the first and the last."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

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


def test_the_last_tenth_is_compared_with_the_first_of_a_new_ledger(tmp_path: Path) -> None:
    times = ledgers.booking_times(tmp_path, 20)
    assert times.shape == (2, 4)
    assert (times > 0).all(axis=None)
    assert [len(Ledger(tmp_path / name).entries()) for name in ("long.db", "new.db")] == [20, 2]
    made = {("reserve", "first"): [1.0, 2.0, 9.0], ("reserve", "last"): [2.0, 6.0, 9.0]}
    made |= {("commit", which): [1.0] * 3 for which in ("first", "last")}
    table = ledgers.compared(pd.DataFrame(made))
    assert table.iloc[0].tolist() == ["reserve", 2.0, 6.0, 2.0]
    assert table.iloc[1].tolist() == ["commit", 1.0, 1.0, 1.0]
