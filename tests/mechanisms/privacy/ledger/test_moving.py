"""A ledger that moves is whole there, closed here, and never open twice, whenever it is interrupted."""

from __future__ import annotations

import itertools
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from privopt.experiments.cli.main import app
from privopt.mechanisms.errors import LedgerCorruptError, LedgerError, LedgerUnavailableError
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.ledger.place import Address
from privopt.mechanisms.privacy.ledger.store import Book, Store
from privopt.mechanisms.privacy.ledger.trail import Row
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.errors import InvalidInputError

TENTH = PrivacySpend.pure(0.1, "test")


def used(place: object) -> tuple[Ledger, str]:
    """Two budgets and three releases; the last is still running."""
    Ledger.create(f"{place}#data", 2.0, 1e-6)
    Ledger.create(f"{place}#data/ana", 1.0, 1e-6, rule="zcdp")
    ana = Ledger(f"{place}#data/ana")
    ana.commit(ana.reserve(PrivacySpend.zcdp(0.01, 1e-7, "z", note="ü")))
    ana.cancel(ana.reserve(TENTH), "nothing was read")
    return Ledger(str(place)), ana.reserve(TENTH)


def refuses(place: object, running: str = "") -> None:
    """Nothing can be booked there, and the error says where it can."""
    data = Ledger(f"{place}#data")
    for use in (
        lambda: data.reserve(TENTH),
        lambda: data.affords(TENTH),
        lambda: data.shortfall(TENTH),
        lambda: data.commit(running),
        lambda: data.cancel(running, "nothing was read"),
        lambda: Ledger.create(f"{place}#more", 1.0),
    ):
        with pytest.raises(LedgerError, match=r"was moved to .*: book there|no open reservation"):
            use()


def test_a_ledger_moves_with_its_whole_trail(place: str, tmp_path: Path) -> None:
    ledger, running = used(tmp_path / "old.db")
    entries, budgets, rows = ledger.entries(), ledger.budgets(), ledger.history()
    there = ledger.move(place)
    assert (there.entries(), there.budgets()) == (entries, budgets)
    assert there.history()[: len(rows)] == rows
    assert [row.action for row in there.history()[len(rows) :]] == ["move", "arrive"]
    assert verify(there) == verify(ledger) == []
    assert (ledger.entries(), ledger.budgets()) == (entries, budgets)  # who looks at the old one is told
    assert ledger.moved_to == Address.of(place).location
    assert there.moved_to == ""
    refuses(tmp_path / "old.db", running)
    Ledger(f"{place}#data/ana").cancel(running, "nothing was read")
    Ledger(f"{place}#data").reserve(TENTH)
    assert there.course().keys() == {"data", "data/ana"}
    # And on from there; the place that is left is closed as well.
    last = there.move(tmp_path / "last.db")
    refuses(place)
    assert len(last.entries()) == 4
    assert verify(last) == []


STEPS = [
    "Book.append",
    "Book.close",
    "Store._write_head",
    "Store.making",
    "Book.copy",
    "Book.put",
    "Store.examined",
]


def killed_at(patched: pytest.MonkeyPatch, step: str, number: int) -> None:
    """A kill when a step begins for the so-manieth time."""
    owner, name = {"Book": Book, "Store": Store}[step.partition(".")[0]], step.partition(".")[2]
    whole, calls = getattr(owner, name), itertools.count(1)

    def killed(*words: object, **more: object) -> object:
        if next(calls) == number:
            raise KeyboardInterrupt
        return whole(*words, **more)

    patched.setattr(owner, name, killed)


@pytest.mark.parametrize("step", STEPS)
def test_an_interrupted_move_is_never_open_twice_and_goes_on(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Killed in one try after the other, at most one place is open after each; then the move is complete."""
    ledger, _ = used(tmp_path / "old.db")
    entries, done = ledger.entries(), 0
    for number in range(1, 5):
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            killed_at(patched, step, number)
            ledger.move(place)
            done += 1
        is_open = 0
        for where in (ledger.address, place):
            with suppress(LedgerError):
                is_open += not Ledger(where).moved_to
        assert is_open <= 1
    assert done < 4  # some were killed
    there = ledger.move(place)
    assert there.entries() == entries
    assert verify(there) == []
    refuses(tmp_path / "old.db")


def test_a_move_that_was_begun_goes_nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the other place could be filled as well, and both be spent."""
    ledger, _ = used(tmp_path / "old.db")
    older = [(tmp_path / name).read_bytes() for name in ("old.db", "old.db.head")]
    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        killed_at(patched, "Book.copy", 1)
        ledger.move(tmp_path / "new.db")
    with pytest.raises(LedgerError, match=r"was moved to .*new.db before, and so not to .*other.db"):
        ledger.move(tmp_path / "other.db")
    assert not (tmp_path / "other.db").exists()
    refuses(tmp_path / "old.db")
    for name, content in zip(("new.db", "new.db.head"), older, strict=True):
        (tmp_path / name).write_bytes(content)  # somebody is faster, with a copy from before
    with pytest.raises(LedgerError, match=r"new.db holds another ledger than .*old.db"):
        ledger.move(tmp_path / "new.db")
    refuses(tmp_path / "old.db")


def test_a_move_ends_by_verifying_what_arrived(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that stored something else is refused at once, and not by the first who books there."""
    ledger, _ = used(tmp_path / "old.db")
    whole = Book.copy

    def damaged(book: Book, rows: list[Row]) -> None:
        whole(book, [replace(row, who="nobody") if row.number == 3 else row for row in rows])

    monkeypatch.setattr(Book, "copy", damaged)
    with pytest.raises(LedgerCorruptError, match="row 3 was altered"):
        ledger.move(tmp_path / "new.db")
    refuses(tmp_path / "old.db")


def test_what_cannot_be_moved_stays_open(tmp_path: Path) -> None:
    ledger, _ = used(tmp_path / "old.db")
    Ledger.create(tmp_path / "other.db", 1.0)
    (tmp_path / "table.csv").write_text("age\n44\n")
    for target, said in (
        ("other.db", "holds a ledger"),
        ("old.db", "holds a ledger"),
        ("table.csv", "is no ledger"),
        ("no/folder.db", "cannot create"),
        ("new.db#data", "with all its budgets"),
    ):
        with pytest.raises(LedgerError, match=said):
            ledger.move(tmp_path / target)
    with pytest.raises(LedgerError, match="with all its budgets"):
        Ledger(tmp_path / "old.db#data").move(tmp_path / "new.db")
    with pytest.raises(LedgerError, match=r"postgresql://ana@127.0.0.1:1/base cannot be used|the driver"):
        ledger.move("postgresql://ana:hunter2@127.0.0.1:1/base")
    with pytest.raises(InvalidInputError):
        ledger.move("mysql://host/base")
    Ledger(tmp_path / "old.db#data").reserve(TENTH)
    with sqlite3.connect(tmp_path / "old.db") as file:
        file.execute("UPDATE privopt_trail SET who = 'nobody' WHERE number = 3")
    with pytest.raises(LedgerCorruptError, match="row 3 was altered"):
        ledger.move(tmp_path / "new.db")
    assert not (tmp_path / "new.db").exists()
    assert ledger.moved_to == ""


def test_a_release_during_the_move_is_handed_over_and_paid_for(place: str, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "old.db", 1.0)
    with pytest.warns(UserWarning, match="stays marked as reserved"), ledger.spending(TENTH):
        there = ledger.move(place)
    assert [entry.state for entry in there.entries()] == ["reserved"]
    assert there.total().epsilon == 0.1


def test_whoever_books_while_it_moves_is_in_the_new_place(place: str, tmp_path: Path) -> None:
    ledger, made = Ledger.create(tmp_path / "old.db", 1000.0), list[str]()

    def book() -> None:
        with suppress(LedgerUnavailableError):
            while True:
                made.append(ledger.reserve(TENTH))
                time.sleep(0.02)  # SQLite gives a lock to whoever asks first, not to who waits longest

    with ThreadPoolExecutor(2) as pool:
        for _ in range(2):
            pool.submit(book)
        time.sleep(0.2)
        there = ledger.move(place)
    assert made
    assert {entry.identifier for entry in there.entries()} == set(made)
    assert verify(there) == []


@pytest.mark.parametrize(
    ("url", "location"),
    [
        ("postgresql://ana:pw@db/base?password=pw&connect_timeout=3", "postgresql://ana@db/base"),
        ("postgres://ana@/base?host=/tmp/a&sslpassword=pw", "postgresql://ana@/base?host=%2Ftmp%2Fa"),
    ],
)
def test_a_location_tells_databases_apart_and_keeps_secrets(url: str, location: str) -> None:
    assert Address.of(url).location == location


def test_a_move_is_told_without_the_password(
    empty_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = empty_database.replace("postgres:@", "postgres:hunter2@")
    Ledger.create(url, 1.0)
    assert "hunter2" in url
    assert app(["budget", "move", url, str(tmp_path / "l.db")], standalone_mode=False) is None
    said = capsys.readouterr().out
    assert "hunter2" not in said
    assert "is closed" in said
