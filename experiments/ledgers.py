"""What a ledger looks like after two months, and how long a booking takes after thousands.

    python -m privopt.experiments.ledgers [--bookings 10000] [--output FOLDER]

Draws a made-up ledger by ``privopt budget picture``. Books in a ledger, a file in a temporary folder, and
compares the milliseconds of the last tenth of the bookings with those of the first in a new one beside it.
"""

from __future__ import annotations

import tempfile
import time
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Annotated, Self
from unittest import mock

import numpy as np
import pandas as pd
import typer

from privopt.experiments.cli.budget import picture
from privopt.experiments.workbench.pages import markdown_table, readable
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend


def made_up(path: Path) -> Ledger:
    """Three budgets, one within the other, and forty releases in the two months after 1 March 2026."""

    class Calendar(datetime):
        moment = datetime(2026, 3, 1, 9, tzinfo=UTC)

        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(cls.moment.timestamp(), tz)

    chance = np.random.default_rng(7)
    with mock.patch("privopt.mechanisms.privacy.ledger.store.datetime", Calendar):
        for name, epsilon in (("adult", 3.0), ("adult/heart", 2.0), ("adult/heart/ana", 1.0)):
            Ledger.create(f"{path}#{name}", epsilon, 1e-6, rule="zcdp")
        for number in range(40):
            Calendar.moment += timedelta(hours=float(chance.exponential(36)))
            name = ("adult", "adult/heart", "adult/heart", "adult/heart/ana")[number % 4]
            spend = PrivacySpend.zcdp(float(chance.uniform(0.0002, 0.003)), 1e-7, "dp-gd")
            with Ledger(f"{path}#{name}").spending(spend):
                pass
    return Ledger(path)


def booking_times(folder: Path, bookings: int) -> pd.DataFrame:
    """Milliseconds of each booking among the last tenth in a ledger, beside those of a new one, in turn.

    In turn, because a disk or a processor that others use as well is slow to both then.
    """
    long, new = (Ledger.create(folder / name, 1e6) for name in ("long.db", "new.db"))
    tenth = bookings // 10
    for _ in range(bookings - tenth):
        _book(long)
    return pd.DataFrame([{**_book(new, "first"), **_book(long, "last")} for _ in range(tenth)])


def _book(ledger: Ledger, which: str = "") -> dict[tuple[str, str], float]:
    began = time.perf_counter()
    identifier = ledger.reserve(PrivacySpend.pure(0.01, "dp-gd"))
    reserved = time.perf_counter()
    ledger.commit(identifier)
    done = time.perf_counter()
    return {("reserve", which): 1e3 * (reserved - began), ("commit", which): 1e3 * (done - reserved)}


def compared(times: pd.DataFrame) -> pd.DataFrame:
    """Medians of the first bookings and of the last, and the median of their ratios."""
    lines = []
    for step in ("reserve", "commit"):
        first, last = times[step, "first"], times[step, "last"]
        lines.append((step, first.median(), last.median(), (last / first).median()))
    count = f"{len(times):,}"
    return pd.DataFrame(lines, columns=["", f"first {count}, ms", f"last {count}, ms", "last / first"])


def main(
    bookings: Annotated[int, typer.Option(min=10)] = 10_000,
    output: Path = Path(),
) -> None:
    """Draw budget.png in a folder, and print what a booking takes at first and at last."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        picture(str(made_up(Path(folder, "ledger.db"))), output / "budget.png")
        times = booking_times(Path(folder), bookings)
    print(markdown_table(compared(times).map(readable)))


if __name__ == "__main__":
    typer.run(main)
