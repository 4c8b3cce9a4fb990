"""A team's ledger in a server: what roles with the documented grants can do, and what they cannot."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from privopt.mechanisms.errors import (
    BudgetExceededError,
    LedgerCorruptError,
    LedgerError,
    LedgerUnavailableError,
)
from privopt.mechanisms.privacy.budget import Budget, Spent
from privopt.mechanisms.privacy.ledger import Ledger, verify
from privopt.mechanisms.privacy.ledger import place as places
from privopt.mechanisms.privacy.ledger.store import Store
from privopt.mechanisms.privacy.ledger.trail import Account
from privopt.mechanisms.privacy.spend import PrivacySpend

TENTH = PrivacySpend.pure(0.1, "test")
PAGE = Path(__file__).parents[4] / "experiments" / "docs" / "budgets.md"


def execute(url: str, *statements: str) -> list[Any]:
    """Execute statements in a server behind the ledger's back; return the rows of the last."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as server:
        for statement in statements:
            cursor = server.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def new_role(url: str, kind: str) -> str:
    """The URL of a role with the grants that the page on budgets names for an analyst, or an auditor."""
    role = f"{kind}_{uuid.uuid4().hex[:8]}"
    grants = re.findall(rf"^    (GRANT .* TO {kind});", PAGE.read_text("utf-8"), re.MULTILINE)
    assert len(grants) == {"analysts": 4, "auditors": 1}[kind]
    execute(url, f"CREATE ROLE {role} LOGIN", *(g.replace(f"TO {kind}", f"TO {role}") for g in grants))
    return url.replace("postgres:@", f"{role}@")


@pytest.fixture
def team(empty_database: str) -> tuple[str, str]:
    """The address of a ledger as its owner and as an analyst knows it."""
    Ledger.create(empty_database, 1.0)
    return empty_database, new_role(empty_database, "analysts")


def test_analysts_book_and_look(team: tuple[str, str]) -> None:
    mine, hers = team
    with Ledger(hers).spending(TENTH):
        pass
    Ledger(hers).cancel(Ledger(hers).reserve(TENTH), "nothing was read")
    with pytest.raises(BudgetExceededError):
        Ledger(hers).reserve(PrivacySpend.pure(0.95, "m"))
    assert Ledger(hers).snapshot() == Ledger(mine).snapshot()
    assert verify(hers) == []


def test_analysts_cannot_move_a_ledger(team: tuple[str, str], tmp_path: Path) -> None:
    mine, hers = team
    with pytest.raises(LedgerError, match=r"only 'postgres', .*, may create budgets and move the ledger"):
        Ledger(hers).move(tmp_path / "hers.db")
    assert not (tmp_path / "hers.db").exists()
    with (
        pytest.raises(LedgerUnavailableError, match="row-level security"),
        Ledger(hers)._store.booking() as b,
    ):
        b.append("move", {"to": "/her/own.db"})  # without asking whose it is
    with Ledger(mine).spending(TENTH):
        pass


def test_analysts_cannot_raise_a_total(team: tuple[str, str]) -> None:
    import psycopg

    mine, hers = team
    more = Account("main", Budget(50.0), Spent(), 1).to_row()
    changed = "UPDATE privopt_budgets SET " + ", ".join(f"{k} = {v!r}" for k, v in more.items())
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        execute(hers, changed)
    with pytest.raises(LedgerError, match=r"only 'postgres', .*, may create budgets and move the ledger"):
        Ledger.create(f"{hers}#more", 50.0)
    facts = {"epsilon": 50.0, "delta": 0.0, "rule": "basic"}
    for name in ("main", "more"):
        with pytest.raises(LedgerUnavailableError, match="row-level"), Ledger(hers)._store.booking() as book:
            book.append("create", {"name": name, "neighbours": "replace-one", **facts})
    execute(mine, changed)  # whoever may, an owner say: the sums' own hash fits
    with pytest.raises(LedgerCorruptError, match="the budget 'main' is not as it was created"):
        Ledger(hers)


def test_analysts_cannot_alter_the_trail(team: tuple[str, str]) -> None:
    import psycopg

    _, hers = team
    Ledger(hers).reserve(TENTH)
    for statement in (
        "DELETE FROM privopt_trail",
        "UPDATE privopt_trail SET who = ''",
        "UPDATE privopt_head SET format = 9",
        "DELETE FROM privopt_head",
        "DELETE FROM privopt_budgets",
        "UPDATE privopt_budgets SET rule = 'gdp'",
        "DROP POLICY privopt_book ON privopt_trail",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            execute(hers, statement)


def test_what_grants_do_not_hold_is_found_by_verify(team: tuple[str, str]) -> None:
    """The page says so: sums are for those who book to change, so they can be put back, seal and all."""
    mine, hers = team
    Ledger(hers).reserve(TENTH)
    with Ledger(hers)._store.reading() as book:
        less = replace(book.accounts()[0], spent=Spent(Fraction(1, 100))).to_row()
    sums = {k: v for k, v in less.items() if k in ("strength", "strength_delta", "number", "seal")}
    execute(hers, "UPDATE privopt_budgets SET " + ", ".join(f"{k} = {v!r}" for k, v in sums.items()))
    assert verify(mine) == ["the budget 'main' is not what the trail adds up to"]


def test_a_ledger_of_an_earlier_version_is_protected_by_its_owner(team: tuple[str, str]) -> None:
    mine, hers = team
    execute(
        mine,
        "DROP POLICY privopt_book ON privopt_trail",
        "DROP POLICY privopt_read ON privopt_trail",
        "ALTER TABLE privopt_trail DISABLE ROW LEVEL SECURITY",
        "DROP INDEX privopt_created",
    )
    Ledger(hers).reserve(TENTH)
    Ledger.create(f"{mine}#more", 1.0)
    with (
        pytest.raises(LedgerUnavailableError, match="row-level security"),
        Ledger(hers)._store.booking() as b,
    ):
        b.append("move", {"to": "/her/own.db"})
    assert len(execute(mine, "SELECT 1 FROM pg_indexes WHERE indexname = 'privopt_created'")) == 1


@pytest.mark.parametrize("setting", ["extra_float_digits = 0", "client_encoding = 'SQL_ASCII'"])
def test_a_ledger_is_read_alike_however_its_server_is_configured(empty_database: str, setting: str) -> None:
    """0.1 + 0.2 has 17 digits, of which a server that writes 15 made another number: no seal fits that."""
    ledger = Ledger.create(empty_database, 0.1 + 0.2, 1e-7 / 3)
    name = execute(empty_database, "SELECT current_database()")[0][0]
    execute(empty_database, f'ALTER DATABASE "{name}" SET {setting}')
    ledger.reserve(TENTH)
    assert ledger.budget == Budget(0.1 + 0.2, 1e-7 / 3)
    assert verify(empty_database) == []


def test_an_auditor_who_may_only_read_sees_all_of_it(empty_database: str) -> None:
    Ledger.create(empty_database, 1.0).reserve(TENTH)
    auditor = new_role(empty_database, "auditors")
    seen = Ledger(auditor)
    assert verify(auditor) == []
    assert seen.snapshot() == Ledger(empty_database).snapshot()
    assert not seen.affords(PrivacySpend.pure(0.95, "m"))
    assert seen.course().keys() == {"main"}
    with pytest.raises(LedgerUnavailableError, match="permission denied"):
        seen.reserve(TENTH)
    assert len(seen.entries()) == 1


@pytest.mark.skipif(os.name == "nt", reason="forks")
def test_an_auditor_who_may_only_read_a_file_sees_all_of_it() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        Ledger.create(path, 1.0).reserve(TENTH)
        for name, mode in (("ledger.db", 0o444), ("ledger.db.head", 0o444), (".", 0o555)):
            (Path(folder) / name).chmod(mode)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                if os.getuid() == 0:
                    os.setuid(65534)
                code = 0 if verify(path) == [] and len(Ledger(path).entries()) == 1 else 2
                with pytest.raises(LedgerError, match="readonly"):
                    Ledger(path).reserve(TENTH)
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        Path(folder).chmod(0o755)


def test_of_several_who_create_a_ledger_at_once_one_does_and_the_others_are_told(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them finds the tables before all have looked; then the server lets one of them make them."""
    names = ["adult", "adult", "adult", "students"]

    def create(name: str) -> str:
        try:
            return str(Ledger.create(f"{empty_database}#{name}", 1.0))
        except LedgerError as error:
            return str(error)

    with ThreadPoolExecutor(len(names)) as crowd:
        said = list(crowd.map(create, names))
    assert sum("a budget 'adult' exists already" in text for text in said) == 2
    assert sorted(Ledger(empty_database).budgets()) == ["adult", "students"]
    assert verify(empty_database) == []


# A client that is stopped while it holds the lock of the ledger, and goes on when it is told to.
STOPPED = """
import os, signal, sys
from privopt.mechanisms.errors import LedgerUnavailableError
from privopt.mechanisms.privacy.ledger import Ledger, place
from privopt.mechanisms.privacy.ledger.store import Book
from privopt.mechanisms.privacy.spend import PrivacySpend
place._IDLE = 1
ledger, put = Ledger(sys.argv[1]), Book.put
def stopped(self, account):
    os.kill(os.getpid(), signal.SIGSTOP)
    put(self, account)
Book.put = stopped
try:
    ledger.reserve(PrivacySpend.pure(0.1, "stopped"))
except LedgerUnavailableError as error:
    print("nothing was run")
"""


@pytest.mark.skipif(os.name == "nt", reason="stops a process")
def test_a_client_that_is_stopped_within_a_booking_does_not_keep_others_out(empty_database: str) -> None:
    """Its transaction ends after a while without it; whoever waited goes on, and it has booked nothing."""
    Ledger.create(empty_database, 1.0)
    client = subprocess.Popen(
        [sys.executable, "-c", STOPPED, empty_database], stdout=subprocess.PIPE, text=True
    )
    try:
        assert os.WIFSTOPPED(os.waitpid(client.pid, os.WUNTRACED)[1])
        Ledger(empty_database).commit(Ledger(empty_database).reserve(TENTH))
        client.send_signal(signal.SIGCONT)
        assert client.communicate(timeout=300)[0] == "nothing was run\n"
    finally:
        client.kill()
        client.wait()
    assert [e.spend.mechanism for e in Ledger(empty_database).entries()] == ["test"]
    assert verify(empty_database) == []


def test_nobody_waits_while_a_history_is_checked(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others book in the middle of ``verify``: no transaction is open while hashes are computed."""
    Ledger.create(empty_database, 1.0).reserve(TENTH)
    monkeypatch.setattr(places, "_WAIT", 1)

    def during(rows: Any) -> list[str]:
        Ledger(empty_database).reserve(TENTH)
        open_ones = (
            "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL"
        )
        assert len(execute(empty_database, open_ones)) == 1  # that asks
        return []

    monkeypatch.setattr("privopt.mechanisms.privacy.ledger.store.broken", during)
    assert Store.examined(Ledger(empty_database)._store).faults == []
    assert len(Ledger(empty_database)._store.examined().rows) == 3
