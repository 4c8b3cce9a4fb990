"""Ledgers of older versions, files of JSON lines: taken over whole or refused, and never spent twice."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from privopt.mechanisms.errors import LedgerCorruptError, LedgerError
from privopt.mechanisms.privacy.budget import Total
from privopt.mechanisms.privacy.ledger import Ledger, old_files, verify
from privopt.mechanisms.privacy.spend import PrivacySpend

fcntl = pytest.importorskip("fcntl")

TENTH = PrivacySpend.pure(0.1, "test")


def header(version: int = 2, epsilon: float = 1.0, **more: object) -> str:
    facts = {"privopt_ledger": version, "neighbours": "replace-one", "epsilon": epsilon, "delta": 0.0}
    return json.dumps({**facts, "rule": "basic", **more})


def entry(action: str, identifier: str, **more: object) -> str:
    return json.dumps({"action": action, "id": identifier, "time": "2026-01-02T03:04:05+00:00", **more})


def reserve(identifier: str, epsilon: float = 0.1) -> str:
    return entry("reserve", identifier, spend=PrivacySpend.pure(epsilon, "test").to_dict())


def write(path: Path, lines: list[str], *, head: bool = True) -> bytes:
    """A ledger as version 2 wrote it, and its head."""
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(content)
    remembered = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    if head:
        path.with_name(f"{path.name}.head").write_text(json.dumps({"privopt_ledger_head": 1, **remembered}))
    return content


HISTORY = [
    header(),
    reserve("a"),
    entry("commit", "a"),
    reserve("b", 0.2),
    entry("cancel", "b", reason="why"),
]
HISTORY += [reserve("c", 0.3)]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    write(tmp_path / "ledger.json", HISTORY)
    return tmp_path / "ledger.json"


def test_an_old_ledger_goes_on_with_its_whole_history(old: Path) -> None:
    content = old.read_bytes()
    ledger = Ledger(old)
    assert [(e.identifier, e.state, e.spend.epsilon) for e in ledger.entries()] == [
        ("a", "committed", 0.1),
        ("b", "cancelled", 0.2),
        ("c", "reserved", 0.3),
    ]
    assert {e.time for e in ledger.entries()} == {"2026-01-02T03:04:05+00:00"}
    assert ledger.total() == Total(0.4, 0.0, "basic")
    *_, cancelled, _, origin = ledger.history()
    assert json.loads(cancelled.content) == {"reason": "why"}
    assert json.loads(origin.content)["sha256"] == hashlib.sha256(content).hexdigest()
    ledger.commit("c")
    ledger.reserve(TENTH)
    assert Ledger(old).total() == Total(0.5, 0.0, "basic")
    assert verify(old) == []
    assert sorted(os.listdir(old.parent)) == ["ledger.json", "ledger.json.head", "ledger.json.old"]


def test_nothing_can_be_spent_from_the_copy(old: Path) -> None:
    content = old.read_bytes()
    Ledger(old).reserve(TENTH)
    copy = old.with_name("ledger.json.old")
    assert copy.read_bytes().startswith(content)
    elsewhere = old.with_name("elsewhere")
    shutil.copy(copy, elsewhere)
    for path in (copy, elsewhere):
        with pytest.raises(LedgerError, match=r"a copy of a ledger that was migrated .* 'ledger.json'"):
            Ledger(path)
    # Put back over the database: its head remembers what came after.
    for put_back in (copy.read_bytes(), content):
        old.write_bytes(put_back)
        with pytest.raises(LedgerError):
            Ledger(old)
    # And the versions that wrote such files refuse an action that they do not know.
    assert json.loads(copy.read_text().splitlines()[-1])["action"] not in ("reserve", "commit", "cancel")


def test_another_file_of_the_copys_name_stays(old: Path) -> None:
    content, other = old.read_bytes(), old.with_name("ledger.json.old")
    other.write_text("mine")
    with pytest.raises(LedgerError, match=r"ledger.json.old is there"):
        Ledger(old)
    assert (old.read_bytes(), other.read_text()) == (content, "mine")


def test_a_folder_that_cannot_be_written_keeps_the_old_ledger(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = old.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(old_files.os, "replace", full)
        with pytest.raises(LedgerError, match="cannot be migrated: No space left on device"):
            Ledger(old)
    assert old.read_bytes() == content
    assert not list(old.parent.glob("*.new*"))
    assert Ledger(old).total() == Total(0.4, 0.0, "basic")


def test_links_and_modes_stay(old: Path) -> None:
    old.chmod(0o660)
    (link := old.with_name("link")).symlink_to(old.name)
    Ledger(link).reserve(TENTH)
    assert link.is_symlink()
    assert old.stat().st_mode & 0o777 == 0o660
    assert Ledger(old).total() == Total(0.5, 0.0, "basic")


@pytest.mark.parametrize("moment", ["_keep_copy", "_fill", "share", "replace", "_sync_folder"])
def test_a_kill_while_it_is_taken_over_loses_nothing(
    old: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Before or in each step; afterwards the ledger opens, with all that was spent."""

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    place = old_files.os if moment == "replace" else old_files
    with monkeypatch.context() as patched:
        patched.setattr(place, moment, killed)
        with pytest.raises(KeyboardInterrupt):
            Ledger(old)
    assert Ledger(old).total() == Total(0.4, 0.0, "basic")
    Ledger(old).reserve(TENTH)
    assert Ledger(old).total() == Total(0.5, 0.0, "basic")
    assert verify(old) == []


def test_the_head_of_an_older_version_counts_for_nothing_once_something_is_booked(old: Path) -> None:
    before = old.with_name("ledger.json.head").read_bytes()
    ledger = Ledger(old)
    old.with_name("ledger.json.head").write_bytes(before)  # as after a kill just behind the last step
    ledger.reserve(TENTH)
    old.with_name("ledger.json.head").write_bytes(before)
    with pytest.raises(LedgerCorruptError, match=r"ledger.json.head is gone"):
        ledger.reserve(TENTH)


def test_whoever_waits_for_the_lock_finds_the_database(old: Path) -> None:
    """Another process of an older version holds the lock, adds an entry, and lets go."""
    holder = os.open(old, os.O_RDWR | os.O_APPEND)
    fcntl.flock(holder, fcntl.LOCK_EX)
    started = threading.Barrier(3)

    def open_it() -> float:
        started.wait()
        return Ledger(old).total().epsilon

    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(open_it) for _ in range(2)]
        started.wait()
        time.sleep(0.3)
        assert not any(future.done() for future in waiting)
        write(old.with_name("more"), [*HISTORY, reserve("d")])
        os.write(holder, f"{reserve('d')}\n".encode())
        shutil.copy(old.with_name("more.head"), old.with_name("ledger.json.head"))
        os.close(holder)
        assert [future.result() for future in waiting] == [0.5, 0.5]
    assert len(Ledger(old).entries()) == 4


def test_two_processes_take_it_over_once(old: Path) -> None:
    program = (
        "import sys; from privopt.mechanisms.privacy.ledger import Ledger\n"
        "from privopt.mechanisms.privacy.spend import PrivacySpend\n"
        "Ledger(sys.argv[1]).reserve(PrivacySpend.pure(0.1, 'm'))"
    )
    racers = [subprocess.Popen([sys.executable, "-c", program, str(old)]) for _ in range(3)]
    assert [racer.wait(timeout=300) for racer in racers] == [0, 0, 0]
    assert Ledger(old).total().epsilon == 0.7
    assert verify(old) == []


# --- files that cannot be trusted ------------------------------------------------------------------------


def refused(path: Path, match: str = "No further spending") -> None:
    before = path.read_bytes()
    with pytest.raises(LedgerError, match=match):
        Ledger(path)
    assert path.read_bytes() == before
    assert not path.with_name(f"{path.name}.old").exists()


def test_every_torn_file_is_refused(tmp_path: Path) -> None:
    """Cut within a line; without its head, too, as in the first of them."""
    path = tmp_path / "ledger"
    whole = write(path, [header(1), reserve("a"), entry("commit", "a")], head=False)
    first = whole.index(b"\n")
    for size in range(first + 2, len(whole), 7):
        if whole[size - 1 : size] == b"\n" or whole[size : size + 1] == b"\n":
            continue  # whole lines, the last newline apart
        path.write_bytes(whole[:size])
        refused(path, "the last line is incomplete")


TWICE = reserve("a").replace('"epsilon": 0.1', '"epsilon": 0.1, "epsilon": 0.01')
BAD = {
    "closes what was never opened": [header(1), entry("commit", "a")],
    "twice": [header(1), reserve("a"), reserve("a")],
    "taken back": [header(1), reserve("a"), entry("commit", "a"), entry("cancel", "a", reason="why")],
    "closed twice": [header(1), reserve("a"), entry("commit", "a"), entry("commit", "a")],
    "an empty line": [header(1), reserve("a"), ""],
    "no object": [header(1), reserve("a"), "[]"],
    "deep": [header(1), reserve("a"), "[" * 100_000],
    "forget": [header(1), reserve("a"), entry("forget", "a")],
    "negative": [header(1), reserve("a").replace("0.1", "-0.1")],
    "NaN": [header(1), reserve("a").replace("0.1", "NaN")],
    "a key twice": [header(1), TWICE],
    "other neighbours": [header(1), reserve("a").replace("replace-one", "add-remove")],
    "overspent": [header(1, 0.25), reserve("a"), reserve("b"), reserve("c")],
    "rule": [header(1).replace("basic", "best"), reserve("a")],
    "a key of the header": [header(1, limit=3), reserve("a")],
    "version": [header(3), reserve("a")],
    "header of other neighbours": [header(1).replace("replace-one", "add-remove"), reserve("a")],
    "no neighbours": [header(1).replace(', "neighbours": "replace-one"', "").replace("1, ", "1, "), "{}"],
    "a key of an entry": [header(1), reserve("a").replace("{", '{"void": true, ', 1)],
    "identifier": [header(1), reserve("a").replace('"a"', "7")],
    "a reason to commit": [header(1), reserve("a"), entry("commit", "a", reason="why")],
    "no reason": [header(1), reserve("a"), entry("cancel", "a")],
    "no head": [header(2), reserve("a")],
}


@pytest.mark.parametrize("what", BAD)
def test_irregular_files_are_refused(tmp_path: Path, what: str) -> None:
    write(tmp_path / "ledger", BAD[what], head=False)
    refused(tmp_path / "ledger")


def test_what_the_head_remembers_must_be_there(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    whole = write(path, HISTORY)
    lines = whole.splitlines(keepends=True)
    bad = [b"".join(lines[:k] + lines[k + 1 :]) for k in range(1, len(lines))]
    bad += [whole.replace(b"0.3", b"0.2", 1), whole.replace(b'"time": "2', b'"time": "3', 1)]
    for content in bad:
        path.write_bytes(content)
        refused(path)
    path.write_bytes(whole)
    for content in (b"", b"{}", b"[1]\n", b"\xff"):
        path.with_name("ledger.head").write_bytes(content)
        refused(path)
    remembered = {"bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()}  # of no line at all
    path.with_name("ledger.head").write_text(json.dumps({"privopt_ledger_head": 1, **remembered}))
    refused(path, "it is shorter than its head says")
    path.with_name("ledger.head").unlink()
    refused(path, "ledger.head is gone")


@pytest.mark.parametrize("version", [1, 2])
def test_a_last_line_without_a_newline_and_an_unspent_ledger_are_taken_over(
    tmp_path: Path, version: int
) -> None:
    path = tmp_path / "ledger"
    write(path, [header(version), reserve("a")])
    path.write_bytes(path.read_bytes().removesuffix(b"\n"))
    assert Ledger(path).total().epsilon == 0.1
    write(tmp_path / "unspent", [header(version)], head=False)
    ledger = Ledger(tmp_path / "unspent")
    assert (ledger.entries(), ledger.budget.epsilon) == ([], 1.0)
    ledger.reserve(TENTH)


def test_ledgers_from_before_gaussian_releases_were_recorded_as_such_are_read(tmp_path: Path) -> None:
    """Lines as version 0 wrote them: full-batch fits as (epsilon, delta), with and without levels."""
    from privopt.mechanisms.privacy.accounting import zcdp_rho

    rest = {"neighbours": "replace-one", "claim": "proved", "note": "", "insecure_seed": None}
    first = {"epsilon": 1.0, "delta": 1e-6, "notion": "approximate", "mechanism": "dp-gd", "level": None}
    rho = zcdp_rho(0.5, 1e-6)
    second = {"epsilon": 0.5, "delta": 1e-6, "notion": "zcdp", "mechanism": "dp-fw-l1", "level": rho}
    lines = [header(1, 3.0, delta=1e-5)]
    lines += [entry("reserve", name, spend={**s, **rest}) for name, s in (("a", first), ("b", second))]
    write(tmp_path / "ledger", lines, head=False)
    assert Ledger(tmp_path / "ledger").total() == Total(1.5, 2e-6, "basic")
