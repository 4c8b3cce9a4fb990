"""The made-up ledger is whole, and what is said of bookings is said of the first and the last."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

from privopt.experiments import ledgers
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.spend import PrivacySpend


def test_a_made_up_ledger_spreads_over_two_months(tmp_path: Path) -> None:
    ledger = ledgers.made_up(tmp_path / "ledger.db")
    assert verify(ledger) == []
    days = pd.to_datetime([entry.time for entry in ledger.entries()])
    assert len(days) == 40
    assert days.is_monotonic_increasing
    assert 50 < (days[-1] - days[0]).days < 70
    assert 0 < Ledger(f"{ledger}#adult/heart/ana").total().epsilon < 1


def test_the_last_tenth_is_compared_with_the_first_of_a_new_ledger(tmp_path: Path) -> None:
    long, new = (Ledger.create(tmp_path / name, 1e6) for name in ("long.db", "new.db"))
    long.reserve(PrivacySpend.pure(0.1, "m"))
    times = ledgers.booking_times(long, new, 2)
    assert times.shape == (2, 4)
    assert (times > 0).all(axis=None)
    assert [len(ledger.entries()) for ledger in (long, new)] == [3, 2]
    made = {("reserve", "first"): [1.0, 2.0, 9.0], ("reserve", "last"): [2.0, 6.0, 9.0]}
    made |= {("commit", which): [1.0] * 3 for which in ("first", "last")}
    table = ledgers.compared(pd.DataFrame(made))
    assert table.iloc[0].tolist() == ["reserve", 2.0, 6.0, 2.0]
    assert table.iloc[1].tolist() == ["commit", 1.0, 1.0, 1.0]


@pytest.mark.usefixtures("imported_once")
def test_a_page_tells_of_each_place_and_crowd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # a server takes long to start
    steps, crowds = ledgers.measured(tmp_path, 10, 2)
    assert set(steps["where"]) == {ledgers.FILE}
    assert crowds["analysts at once"].tolist() == [1, 2]
    assert (crowds["longest, ms"] >= crowds["median, ms"]).all()
    # Each process of a crowd makes one release beside those that count.
    assert len(Ledger(tmp_path / "long.db").entries()) == 10 + 1 + 2
    assert len(Ledger(tmp_path / "new.db").entries()) == 1
    text = ledgers.page(steps, crowds, "this", 10)
    assert text.count("| reserve |") == 1
    assert text.count(f"| {ledgers.FILE} |") == 4
