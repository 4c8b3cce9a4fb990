"""Faults: killed processes, full disks, cut connections, crowds, replaced files.

Whatever happens, what was released is booked, nothing is booked twice, and no budget is overdrawn.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Self

import pytest
from sqlalchemy import Engine, event

from privopt.mechanisms.errors import (
    BudgetExceededError,
    LedgerCorruptError,
    LedgerError,
    LedgerUnavailableError,
)
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.ledger import place as places
from privopt.mechanisms.privacy.ledger import store as stores
from privopt.mechanisms.privacy.ledger.store import Book, Store
from privopt.mechanisms.privacy.spend import PrivacySpend

pytestmark = pytest.mark.skipif(os.name == "nt", reason="forks, kills and moves open files")
TENTH = PrivacySpend.pure(0.1, "test")


# --- killed processes ------------------------------------------------------------------------------------

# What all programs here begin with: one import, then forks, which share nothing but the ledger.
BEGIN = """
import os, random, signal, sys, time
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.privacy.ledger import Ledger, store
from privopt.mechanisms.privacy.spend import PrivacySpend
address, *words = sys.argv[1:]
ledger = Ledger(address)
def forked(run):
    child = os.fork()
    if child == 0:
        try:
            os._exit(run())
        except BaseException as error:
            print(repr(error), flush=True)
        os._exit(9)
    return child
def code_of(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
"""


def program(text: str, *words: object) -> list[str]:
    """The lines that a program prints."""
    command = [sys.executable, "-c", BEGIN + text, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


# Spends 0.01 at a time until it is killed; between reservation and commit it "releases" one byte into a file.
SPENDER = """
def spend():
    while True:
        with ledger.spending(PrivacySpend.pure(0.01, "m")), open(words[0], "ab", buffering=0) as released:
            released.write(b".")
delays = random.Random(5)
for _ in range(3):
    child = forked(spend)
    time.sleep(delays.uniform(0.05, 0.3))
    os.kill(child, signal.SIGKILL)
    code_of(child)
    states = [e.state for e in ledger.entries()]
    done = os.path.getsize(words[0]) if os.path.exists(words[0]) else 0
    print(done, len(states), states.count("committed"))
"""


def test_a_kill_at_any_moment_never_loses_a_release(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 1000.0)
    for kills, line in enumerate(program(SPENDER, path, tmp_path / "released"), 1):
        done, entries, committed = map(int, line.split())
        # What was released is reserved, with at most one unfinished reservation per kill.
        assert committed <= done <= entries <= committed + kills
    assert kills == 3
    assert entries > 0
    assert ledger.total().epsilon == pytest.approx(0.01 * entries)
    assert verify(ledger) == []


# A process kills itself when the named step of a booking begins; then what is there is told.
SUICIDE = """
def book(step):
    owner, name = step.split(".")
    setattr(getattr(store, owner), name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
    ledger.reserve(PrivacySpend.pure(0.1, "test"))
from privopt.mechanisms.privacy.ledger import verify
for step in words:
    assert code_of(forked(lambda: book(step))) == -signal.SIGKILL
    print(step, len(ledger.entries()), verify(ledger))
    ledger.reserve(PrivacySpend.pure(0.1, "test"))
"""


def test_a_kill_in_the_middle_of_a_booking_leaves_all_of_it_or_nothing(place: str) -> None:
    """Reserved, as far as anybody may have seen it, from the end of the transaction on."""
    Ledger.create(place, 9.0).reserve(TENTH)
    inside, after = ["Book.append", "Book.put", "Book.close"], ["Store._write_head"]
    after += [] if "://" in place else ["HeadFile.write"]
    told = program(SUICIDE, place, *inside, *after)
    # One was there, and one more is booked after each kill; those killed behind the transaction stand too.
    counts = [1, 2, 3, 5, 7] if "://" not in place else [1, 2, 3, 5]
    assert told == [f"{step} {n} []" for step, n in zip([*inside, *after], counts, strict=True)]
    if "://" not in place:
        assert sorted(p.name for p in Path(place).parent.iterdir()) == ["ledger.db", "ledger.db.head"]


# --- crowds ----------------------------------------------------------------------------------------------

# As many processes as it is told wait for one signal, and each tries to book once.
CROWD = """
gate, starter = os.pipe()
def book():
    os.close(starter)
    os.read(gate, 1)
    try:
        ledger.reserve(PrivacySpend.pure(0.01, "m"))
        return 0
    except BudgetExceededError:
        return 1
children = [forked(book) for _ in range(int(words[0]))]
os.close(starter)
codes = [code_of(child) for child in children]
print(codes.count(0), codes.count(1))
"""


@pytest.mark.parametrize("crowd", [24, pytest.param(200, marks=pytest.mark.slow)])
def test_a_crowd_of_processes_shares_budgets_exactly(place: str, crowd: int) -> None:
    """Three quarters fit into the smaller budget; the rest is refused, and in neither budget."""
    fit = crowd * 3 // 4
    Ledger.create(f"{place}#data", 2.0)
    Ledger.create(f"{place}#data/team", fit / 100)
    assert program(CROWD, f"{place}#data/team", crowd) == [f"{fit} {crowd - fit}"]
    ledger = Ledger(place)
    assert [total.epsilon for _, total in ledger.budgets().values()] == pytest.approx([fit / 100] * 2)
    entries = ledger.entries()
    assert len({e.identifier for e in entries}) == len(entries) == fit
    assert verify(place) == []


# Two processes read, wait until the other one must have read as well, and only then write.
RACERS = """
accounts = store.Book.accounts
def slow(self, names=()):
    found = accounts(self, names)
    time.sleep(0.4)
    return found
store.Book.accounts = slow
def book():
    try:
        ledger.reserve(PrivacySpend.pure(0.6, "test"))
        return 0
    except BudgetExceededError:
        return 1
print(*sorted(map(code_of, [forked(book), forked(book)])))
"""


def test_of_two_processes_that_read_at_once_one_is_refused(place: str) -> None:
    """Without a lock both would read an empty ledger before either writes."""
    ledger = Ledger.create(place, 1.0)
    assert program(RACERS, place) == ["0 1"]
    assert len(ledger.entries()) == 1


# Threads book while the process forks children, each of which books and is to end.
THREADS = """
import threading
stop = threading.Event()
def book():
    while not stop.is_set():
        ledger.reserve(PrivacySpend.pure(0.001, "m"))
threads = [threading.Thread(target=book) for _ in range(3)]
for thread in threads:
    thread.start()
def once():
    signal.alarm(20)  # a child that hangs is ended by it
    ledger.reserve(PrivacySpend.pure(0.001, "m"))
    return 0
children = []
for _ in range(8):
    children.append(forked(once))
    time.sleep(0.01)
stop.set()
print(*map(code_of, children))
"""


def test_a_fork_of_a_process_whose_threads_book_can_book(tmp_path: Path) -> None:
    """SQLite's locks were copied as they were held at the fork, for ever."""
    place = str(tmp_path / "ledger.db")
    Ledger.create(place, 10.0)
    assert program(THREADS, place) == ["0 0 0 0 0 0 0 0"]
    assert verify(place) == []


def test_who_waits_too_long_is_told(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(place, 1.0)
    monkeypatch.setattr(places, "_WAIT", 0.2)
    store = Store(places.Address.of(place))
    with store.booking(), pytest.raises(LedgerUnavailableError, match=r"lock"):  # as by a process that hangs
        ledger.reserve(TENTH)
    assert ledger.entries() == []


# --- full disks ------------------------------------------------------------------------------------------


@contextmanager
def pages(path: Path, spare: int) -> Iterator[None]:
    """A disk on which the file can grow by so many pages and no more."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        most = path.stat().st_size // 4096 + spare if not limits else limits[0]
        limits.append(most)
        connection.execute(f"PRAGMA max_page_count = {most}")

    limits: list[int] = []
    event.listen(Engine, "connect", limit)
    try:
        yield
    finally:
        event.remove(Engine, "connect", limit)


def book_until_it_is_full(ledger: Ledger, spend: PrivacySpend) -> list[str]:
    made = []
    try:
        while True:
            made.append(ledger.reserve(spend))
    except LedgerUnavailableError as error:
        assert "database or disk is full" in str(error)  # noqa: PT017
    return made


def test_a_full_disk_books_nothing_and_loses_nothing(tmp_path: Path) -> None:
    path, long = tmp_path / "ledger", PrivacySpend.pure(0.01, "m", note="x" * 1500)
    ledger = Ledger.create(path, 1000.0)
    with pages(path, 3):
        made = book_until_it_is_full(ledger, long)
        assert [e.identifier for e in ledger.entries()] == made
        assert verify(path) == []
    assert len(made) > 2
    ledger.reserve(long)
    assert ledger.total().epsilon == pytest.approx(0.01 * (len(made) + 1))


def test_what_was_released_is_not_lost_to_a_full_disk(tmp_path: Path) -> None:
    """The note that it finished cannot be written: a warning, for the reservation counts anyway."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 1000.0)

    def release() -> str:
        with ledger.spending(PrivacySpend.pure(0.01, "released")) as identifier:
            fillers = book_until_it_is_full(ledger, PrivacySpend.pure(1e-6, "filler"))
            with pytest.raises(LedgerUnavailableError):  # notes as long as the one that is to come
                [ledger.commit(filler) for filler in fillers]
        return identifier

    with pages(path, 2), pytest.warns(UserWarning, match="stays marked as reserved") as told:
        mine = release()
    assert told[0].lineno in {line for *_, line in release.__code__.co_lines()}
    assert next(e for e in ledger.entries() if e.identifier == mine).state == "reserved"
    assert verify(path) == []


def test_a_head_that_cannot_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(tmp_path / "ledger", 1.0)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(LedgerError, match=r"No space left on device. Nothing was run"):
        ledger.reserve(TENTH)
    monkeypatch.undo()
    assert ledger.total().epsilon == 0.1
    assert sorted(os.listdir(tmp_path)) == ["ledger", "ledger.head"]


def test_users_who_share_a_file_share_its_head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new head after each booking is for those who may use the ledger, whoever booked."""
    ledger, head, owners = Ledger.create(tmp_path / "l", 1.0), tmp_path / "l.head", list[tuple[int, int]]()
    assert head.stat().st_mode & 0o777 == 0o600
    (tmp_path / "l").chmod(0o660)
    monkeypatch.setattr(os, "chown", lambda _, uid, gid: owners.append((uid, gid)))
    ledger.reserve(TENTH)
    assert head.stat().st_mode & 0o777 == 0o660
    there = (tmp_path / "l").stat()
    assert owners == [(-1, there.st_gid), (there.st_uid, -1)]


def test_a_head_that_may_not_be_read_is_not_called_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger.create(tmp_path / "l", 1.0)

    def closed(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", closed)
    with pytest.raises(LedgerUnavailableError, match=r"l.head cannot be read: Permission denied"):
        ledger.reserve(TENTH)


def test_a_clock_that_goes_back_changes_no_sum(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are in the order of their numbers; what their times say decides nothing."""
    ledger, hours = Ledger.create(place, 0.25), iter([30, 5, 20])

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls(2020, 1, 1, tzinfo=tz) + timedelta(hours=next(hours))

    monkeypatch.setattr(stores, "datetime", Clock)
    first = ledger.reserve(TENTH)
    ledger.commit(first)
    second = ledger.reserve(TENTH)
    with pytest.raises(BudgetExceededError):
        ledger.reserve(TENTH)
    assert [e.identifier for e in ledger.entries()] == [first, second]
    assert verify(place) == []
    assert [total.epsilon for _, total in ledger.course()["main"]][-1] == 0.2


# --- cut connections -------------------------------------------------------------------------------------


def administer(url: str, statement: str) -> None:
    import psycopg

    base = url.replace(f"/{database(url)}?", "/postgres?")
    with psycopg.connect(base, autocommit=True) as server:
        server.execute(statement.encode())


def database(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]


def test_a_server_that_is_gone_between_reserve_and_commit(empty_database: str) -> None:
    """The release is handed over with a warning; it stays reserved, and counts."""
    url, name = empty_database, database(empty_database)
    ledger = Ledger.create(url, 1.0)
    with pytest.warns(UserWarning, match="stays marked as reserved") as caught, ledger.spending(TENTH):
        administer(url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    assert "cannot be used" in str(caught[0].message)
    with pytest.raises(LedgerUnavailableError, match="not currently accepting connections"):
        ledger.reserve(TENTH)
    administer(url, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert [e.state for e in ledger.entries()] == ["reserved"]
    assert ledger.total().epsilon == 0.1
    assert verify(url) == []


@pytest.mark.parametrize("step", ["append", "put", "close"])
def test_a_connection_that_is_cut_within_a_booking_books_nothing(
    empty_database: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    ledger, whole = Ledger.create(empty_database, 1.0), getattr(Book, step)
    cut = (
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database(empty_database)}'"
    )

    def after_a_cut(*words: object, **more: object) -> None:
        administer(empty_database, cut)
        whole(*words, **more)

    monkeypatch.setattr(Book, step, after_a_cut)
    with pytest.raises(LedgerUnavailableError):
        ledger.reserve(TENTH)
    monkeypatch.undo()
    assert ledger.entries() == []
    assert verify(empty_database) == []
    ledger.reserve(TENTH)


def test_an_answer_that_is_lost_is_asked_for_once_more(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A committed booking is booked, and runs; one that was not committed is not, and does not."""
    import psycopg

    ledger, commit, broken = Ledger.create(empty_database, 1.0), psycopg.Connection.commit, [True]

    def cut(connection: psycopg.Connection, arrives: bool) -> None:
        if not broken or arrives:
            commit(connection)
        if broken:
            broken.pop()
            raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(psycopg.Connection, "commit", lambda connection: cut(connection, arrives=True))
    with ledger.spending(TENTH) as identifier:
        assert [(e.identifier, e.state) for e in ledger.entries()] == [(identifier, "reserved")]
    assert not broken
    broken.append(True)
    monkeypatch.setattr(psycopg.Connection, "commit", lambda connection: cut(connection, arrives=False))
    with pytest.raises(LedgerUnavailableError, match="closed the connection"):
        ledger.reserve(TENTH)
    assert [e.state for e in ledger.entries()] == ["committed"]
    assert verify(empty_database) == []


def test_an_answer_that_is_lost_counts_as_spent(empty_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has committed, and cannot be asked any more: nothing runs, and the budget is spent."""
    import psycopg

    ledger, commit = Ledger.create(empty_database, 1.0), psycopg.Connection.commit
    name = database(empty_database)

    def gone(connection: psycopg.Connection) -> None:
        commit(connection)
        monkeypatch.undo()  # the administrator commits, too
        administer(empty_database, f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(psycopg.Connection, "commit", gone)
    ran = False
    with pytest.raises(LedgerUnavailableError, match="closed the connection"), ledger.spending(TENTH):
        ran = True
    administer(empty_database, f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    assert not ran
    assert [e.state for e in ledger.entries()] == ["reserved"]
    assert ledger.total().epsilon == 0.1


# --- replaced files --------------------------------------------------------------------------------------


def test_a_ledger_that_is_put_back_during_a_release_withholds_it(tmp_path: Path) -> None:
    """The reservation is gone with the copy: what was released must not be handed over."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 1.0)
    older = path.read_bytes()
    with pytest.raises(LedgerCorruptError), ledger.spending(TENTH):
        path.write_bytes(older)


def test_a_file_that_is_replaced_while_a_call_waits_is_noticed(tmp_path: Path) -> None:
    """As by somebody who edits a copy and renames it into place: what is booked must be in the new file."""
    path = tmp_path / "ledger"
    ledger = Ledger.create(path, 1.0)
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    holder.execute("BEGIN IMMEDIATE")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(ledger.reserve, TENTH)
        time.sleep(0.3)
        assert not waiting.done()  # nobody writes while another does
        (tmp_path / "copy").write_bytes(path.read_bytes())
        os.replace(tmp_path / "copy", path)
        holder.execute("ROLLBACK")
        holder.close()
        with pytest.raises(LedgerError, match=r"readonly|replaced by another file"):  # SQLite sees it itself
            waiting.result(60)
    assert Ledger(path).entries() == []


def test_a_file_that_is_replaced_during_a_booking_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, close = tmp_path / "ledger", Book.close
    ledger = Ledger.create(path, 1.0)
    (tmp_path / "copy").write_bytes(path.read_bytes())

    def replaced(book: Book) -> None:
        os.replace(tmp_path / "copy", path)
        close(book)

    monkeypatch.setattr(Book, "close", replaced)
    with pytest.raises(LedgerError, match="replaced by another file meanwhile; nothing was run"):
        ledger.reserve(TENTH)


def test_threads_share_a_ledger(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger", 1.0)
    start, found = threading.Barrier(6), Counter[str]()

    def book() -> None:
        start.wait()
        for _ in range(3):
            try:
                with ledger.spending(TENTH):
                    found["made"] += 1
            except BudgetExceededError:
                found["refused"] += 1

    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(book) for _ in range(6)]:
            future.result(300)
    assert found == {"made": 10, "refused": 8}
    assert ledger.total().epsilon == 1.0


def test_an_older_row_of_sums_that_is_put_back_whole_is_found_by_verify(tmp_path: Path) -> None:
    """Its own hash fits, so that a booking takes it for the sum; the trail says what it has to be."""
    path = tmp_path / "book.db"
    Ledger.create(path, 1.0)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        before = db.execute("SELECT strength, number, seal FROM privopt_budgets").fetchone()
    Ledger(path).reserve(TENTH)
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE privopt_budgets SET strength = ?, number = ?, seal = ?", before)
    (wrong,) = verify(path)
    assert "not what the trail adds up to" in wrong
    with pytest.raises(LedgerCorruptError):
        Ledger(path).history()
