"""Ledgers of older versions, which are files of JSON lines: reading them, and migration to a database.

Such a file holds a header with the budget, then "reserve", "commit" and "cancel" entries. The head beside it,
``NAME.head``, holds the file's number of bytes and their SHA-256. Any irregularity is an error, as it was in
the older versions.

Migration creates the database under another name and then renames it to the name of the file, in one step.
Meanwhile a lock keeps older versions out; a process that waited for the lock finds the database, which older
versions refuse to read. A crash at any moment leaves either the file or the database. A copy of the file
stays, ``NAME.old``, with a last line that makes every version refuse it, so that nothing can be spent twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privopt.mechanisms.errors import LedgerCorruptError, LedgerError
from privopt.mechanisms.privacy.budget import Budget, Spent
from privopt.mechanisms.privacy.ledger.place import Address, HeadFile, share, write_aside
from privopt.mechanisms.privacy.ledger.store import Store
from privopt.mechanisms.privacy.ledger.trail import MAIN, Account
from privopt.mechanisms.privacy.spend import PrivacySpend

_HEADER = {"privopt_ledger", "neighbours", "epsilon", "delta", "rule"}
_ENTRIES = {"reserve": {"spend"}, "commit": set[str](), "cancel": {"reason"}}  # beside action, id and time
_CLOSED = "taken over"


@dataclass(frozen=True)
class OldLedger:
    """Content of a file: its budget, and its entries in order."""

    content: bytes
    version: int
    budget: Budget
    records: list[dict[str, Any]]


def is_old_ledger(start: bytes) -> bool:
    """Return whether a file with this beginning is, or was, a ledger of an older version."""
    return b'"privopt_ledger"' in start.split(b"\n")[0]


def take_over(path: Path) -> None:
    """Replace a ledger of an older version by a database with its whole history.

    Raises:
        LedgerCorruptError: the old ledger cannot be read in full, or its head does not match it.
        LedgerError: the old ledger was migrated before, or the folder cannot be written.
    """
    real = path.resolve()
    aside = real.with_name(f"{real.name}.{uuid.uuid4().hex}.new")
    with _locked(path) as content:
        if content is None:  # another process was faster
            return
        old = read_old(path, content)
        try:
            _keep_copy(real, content)
            os.close(os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            _fill(aside, old, real.name)
            share(aside, real)
            os.replace(aside, real)
            _sync_folder(real.parent)
        except OSError as error:
            raise LedgerError(
                f"{path} is an older version's, and cannot be migrated: {error.strerror}"
            ) from error
        finally:
            for left in (aside, HeadFile.beside(str(aside)).path):
                left.unlink(missing_ok=True)


def read_old(path: Path, content: bytes) -> OldLedger:
    """Read and check the content of a file, and the head beside it.

    Raises:
        LedgerCorruptError: anything irregular.
        LedgerError: the copy that stayed after a migration.
    """
    # Some editors remove the newline at the end of a file. The last line is nevertheless complete if it is a
    # JSON object, as no proper prefix of a JSON object is one.
    whole = content if content.endswith(b"\n") else content + b"\n"
    try:
        header, *records = [_strict_object(line) for line in whole.decode().split("\n")[:-1]]
    except (ValueError, RecursionError) as error:
        torn = "the last line is incomplete, as after a power failure"
        unreadable = f"an entry cannot be read ({type(error).__name__})"
        raise _corrupt(path, unreadable if content.endswith(b"\n") else torn) from error
    version = header.get("privopt_ledger")
    if version not in (1, 2):
        raise _corrupt(path, "the first line is not a ledger's header")
    if set(header) != _HEADER or header["neighbours"] != "replace-one":
        raise _corrupt(path, f"its header must hold {', '.join(sorted(_HEADER))}, and nothing else")
    if records and records[-1].get("action") == _CLOSED:
        raise LedgerError(
            f"{path} is a copy of a ledger that was migrated to a database: {records[-1].get('into')!r}. "
            "Nothing can be spent from a copy"
        )
    _check_head(path, whole, needed=version != 1 and bool(records))
    try:
        budget = Budget(header["epsilon"], header["delta"], header["rule"])
        affordable = budget.within(_replayed(budget, records))
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, f"an entry cannot be read ({type(error).__name__})") from error
    if not affordable:
        raise _corrupt(path, "more has been spent than the budget allows")
    return OldLedger(whole, version, budget, records)


def _replayed(budget: Budget, records: list[dict[str, Any]]) -> Spent:
    """Return what the entries spend of the budget; any irregularity is a ValueError or KeyError."""
    spent, spends, closed = Spent(), dict[str, PrivacySpend](), set[str]()
    for record in records:
        identifier, action = record["id"], record["action"]
        if set(record) - {"time"} != {"action", "id"} | _ENTRIES[action]:
            raise ValueError("a key is missing or unknown")
        if not all(isinstance(text, str) and text.isascii() for text in (identifier, record.get("time", ""))):
            raise ValueError("identifiers and times are text")
        if action == "reserve":
            if identifier in spends:
                raise ValueError("an identifier is used twice")
            spends[identifier] = PrivacySpend.from_dict(record["spend"])
            spent += budget.cost(spends[identifier])
            continue
        if identifier in closed:
            raise ValueError("a reservation is closed twice")
        closed.add(identifier)
        spend = spends[identifier]
        if action == "cancel":
            spent -= budget.cost(spend)
    return spent


def _fill(aside: Path, old: OldLedger, name: str) -> None:
    """Write the history into a new database, row by row; the last row says where it came from."""
    with Store(Address(str(aside))).making() as book:
        facts = {"epsilon": old.budget.epsilon, "delta": old.budget.delta, "rule": old.budget.rule}
        content = {"name": MAIN, "neighbours": "replace-one", **facts}
        book.append("create", content, who="", time="")
        book.put(Account(MAIN, old.budget, Spent()))
        for record in old.records:
            more = {key: record[key] for key in _ENTRIES[record["action"]]}
            if record["action"] == "reserve":
                more["budgets"] = [MAIN]
            book.append(record["action"], more, reservation=record["id"], time=record.get("time", ""), who="")
        origin = {"file": name, "format": old.version, "bytes": len(old.content)}
        book.append("take over", {**origin, "sha256": hashlib.sha256(old.content).hexdigest()})
        book.put(Account(MAIN, old.budget, _replayed(old.budget, old.records)))


def _keep_copy(real: Path, content: bytes) -> None:
    """Write ``NAME.old``: the file as it was, and a last line that closes it.

    Raises:
        LedgerError: another file of that name exists.
    """
    copy = real.with_name(f"{real.name}.old")
    closing = {"action": _CLOSED, "into": real.name}
    closed = content.removesuffix(b"\n") + b"\n" + json.dumps(closing).encode() + b"\n"
    if copy.exists() and copy.read_bytes() != closed:
        raise LedgerError(
            f"{real} is an older version's, and its copy cannot be kept: {copy} is there already"
        )
    write_aside(copy, closed, like=real)


def _check_head(path: Path, content: bytes, needed: bool) -> None:
    """Raise LedgerCorruptError unless the ledger agrees with its head."""
    file = HeadFile.beside(str(path)).path
    try:
        head = _strict_object(file.read_bytes().decode())
    except FileNotFoundError:
        if needed:
            raise _corrupt(path, f"its head {file.name} is gone; the two belong together") from None
        return
    except OSError as error:
        raise _corrupt(path, f"its head {file.name} cannot be read") from error
    except (ValueError, RecursionError) as error:
        raise _corrupt(path, f"its head {file.name} is damaged") from error
    size = head.get("bytes")
    if type(size) is not int or not 0 < size <= len(content):
        raise _corrupt(path, "lines are gone: it is shorter than its head says, as an older copy is")
    if head.get("sha256") != hashlib.sha256(content[:size]).hexdigest():
        raise _corrupt(path, "it was edited, or is another ledger: its head does not fit")


@contextmanager
def _locked(path: Path) -> Iterator[bytes | None]:
    """Take the lock of older versions and yield the content; None if the file is no longer one of theirs."""
    try:
        import fcntl
    except ImportError:
        raise LedgerError(
            f"{path} is an older version's, which ran on POSIX systems: open it once on one of them, then "
            "move it here"
        ) from None
    try:
        file = os.open(path, os.O_RDWR)
    except OSError as error:
        raise LedgerError(f"cannot open the ledger {path}: {error.strerror}") from error
    with open(file, "rb") as stream:
        fcntl.flock(file, fcntl.LOCK_EX)
        there = path.exists() and os.path.samestat(os.fstat(file), os.stat(path))
        yield stream.read() if there else None


def _corrupt(path: Path, what: str) -> LedgerCorruptError:
    return LedgerCorruptError(
        f"{path}: {what}. No further spending is allowed. To do: inspect the file, and count every "
        "doubtful reservation as spent"
    )


def _strict_object(line: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise ValueError("a key is given twice")
        return dict(pairs)

    record = json.loads(line, object_pairs_hook=unique)
    if not isinstance(record, dict):
        raise ValueError("a line is not an object")
    return record


def _sync_folder(folder: Path) -> None:
    """Write the folder itself to disk, so that a new name in it survives a crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
