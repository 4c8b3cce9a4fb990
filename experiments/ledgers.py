"""What a ledger looks like after two months, and how long a booking takes after thousands.

    python -m privopt.experiments.ledgers [--bookings 10000] [--place LEDGER] [--output FOLDER]

Draws a made-up ledger by ``privopt budget picture``; books in a new ledger, and compares the milliseconds of
the first tenth of the bookings with those of the last, in one run. ``--place`` is where: a path or the URL of
an empty PostgreSQL database; without one it is a file in a folder that is removed.
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


def booking_times(place: str, bookings: int) -> pd.DataFrame:
    """Milliseconds that each reservation and each commit takes, in the order in which they are made."""
    ledger, spend, times = Ledger.create(place, 1e6), PrivacySpend.pure(0.01, "dp-gd"), []
    for _ in range(bookings):
        began = time.perf_counter()
        identifier = ledger.reserve(spend)
        reserved = time.perf_counter()
        ledger.commit(identifier)
        times.append((reserved - began, time.perf_counter() - reserved))
    return 1e3 * pd.DataFrame(times, columns=["reserve", "commit"])


def compared(times: pd.DataFrame) -> pd.DataFrame:
    """Medians of the first tenth and of the last, and their ratio."""
    tenth = max(1, len(times) // 10)
    first, last = times.head(tenth).median(), times.tail(tenth).median()
    names = (f"first {tenth:,}, ms", f"last {tenth:,}, ms", "last / first")
    return pd.DataFrame([first, last, last / first], index=names).T.rename_axis("")


def main(
    bookings: Annotated[int, typer.Option(min=10)] = 10_000,
    place: Annotated[str | None, typer.Option(help="A path or an empty database's URL.")] = None,
    output: Path = Path(),
) -> None:
    """Draw budget.png in a folder, and print what a booking takes at first and at last."""
    with tempfile.TemporaryDirectory() as folder:
        picture(str(made_up(Path(folder, "ledger.db"))), output / "budget.png")
        times = booking_times(place or str(Path(folder, "times.db")), bookings)
    print(markdown_table(compared(times).reset_index().map(readable)))


if __name__ == "__main__":
    typer.run(main)
