"""A privacy budget that survives crashes: reserve, run, commit, in a file that only grows.

The file holds one JSON object per line: a header with the budget, then "reserve", "commit" and "cancel"
entries. A reservation is on disk before the release may run and counts as spent from then on, whether or not
the release finished; only ``cancel``, for a failure before any record was read, takes it back. A file that
cannot be read in full (a torn last line, an unknown entry or key) refuses all further spending.

Beside the ledger stands its head, ``NAME.head``: how many bytes the ledger had after the last entry, and
their SHA-256. What the ledger held must still be its beginning, so lines that are gone or edited are noticed,
an older copy put back included, and so is a head that is gone. What no file can show is not noticed: an older
copy of *both*, or both made anew. Move and copy the two together.

Which releases are affordable is decided by one rule, fixed when the ledger is made: parameters of later
releases may depend on earlier results, and that is proved for each rule by itself (Rogers et al. 2016 for
"basic", Whitehouse et al. 2023 for "zcdp", Smith and Thakurta 2022 for "gdp"), not for the better of
several. For a sequence fixed in advance see ``compose``, which takes the best.

POSIX only: it relies on ``fcntl`` locks, so the file should be on a local disk.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import math
import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from privopt.mechanisms.errors import (
    BudgetExceededError,
    LedgerCorruptError,
    LedgerError,
    PrivacyParameterError,
)
from privopt.mechanisms.privacy.accounting import (
    gaussian_epsilon,
    gaussian_mu,
    pure_to_gdp,
    zcdp_epsilon,
    zcdp_rho,
)
from privopt.mechanisms.privacy.parameters import check_delta, check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.arguments import as_path, check_type, told

RULES = ("basic", "zcdp", "gdp")
_FORMAT = 2  # of 1, without a head from the start, the first entry that is added makes the head
_HEADER = {"privopt_ledger", "neighbours", "epsilon", "delta", "rule"}
_ENTRIES = {"reserve": {"spend"}, "commit": set[str](), "cancel": {"reason"}}  # beside action, id and time
# Ten tenths are one: the rounding of decimal numbers, and of sums of squares, is forgiven. The conversions
# keep a larger margin of their own.
_ROUNDING = 1 + 1e-15


@dataclass(frozen=True)
class Total:
    """A valid (epsilon, delta) for a sequence of releases, and the rule that gave it."""

    epsilon: float
    delta: float
    rule: str


@dataclass(frozen=True)
class Entry:
    """One reservation. ``state`` is "reserved", "committed" or "cancelled"; the first two are spent.

    ``time`` is when it was reserved, by this machine's clock, in UTC and ISO 8601; empty if a line has none.
    """

    identifier: str
    spend: PrivacySpend
    state: str
    time: str = ""


@dataclass(frozen=True)
class Budget:
    """What may be spent in total, and how releases are added up.

    Attributes:
        epsilon, delta: the total guarantee, epsilon > 0, 0 <= delta < 1.
        rule: "basic" adds epsilons and deltas. "zcdp" adds rho, keeping half of delta for the conversion and
            half for releases that have a delta of their own. "gdp" adds mu^2 and takes GDP and pure releases;
            gradient mechanisms on full batches are GDP, and compose to exactly one Gaussian release.
    """

    epsilon: float
    delta: float = 0.0
    rule: str = "basic"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.rule, str) or self.rule not in RULES:
            raise PrivacyParameterError(f"rule must be one of {', '.join(RULES)}; got {told(self.rule)}")
        zero_allowed = self.rule == "basic"
        object.__setattr__(self, "delta", check_delta(self.delta, zero_allowed=zero_allowed))

    def total(self, spends: Sequence[PrivacySpend]) -> Total:
        """What the spends add up to under the rule.

        Raises:
            PrivacyParameterError: the rule cannot account for one of them.
        """
        if not spends:
            return Total(0.0, 0.0, self.rule)
        if self.rule == "basic":
            return _basic(spends)
        if self.rule == "zcdp":
            return _zcdp(spends, self.delta / 2)
        self._require_gdp(spends)
        return _gdp(spends, self.delta)

    def affords(self, spends: Sequence[PrivacySpend]) -> bool:
        """Whether all the spends together stay within the budget."""
        if self.rule == "basic":
            total = self.total(spends)
            return total.epsilon <= self.epsilon * _ROUNDING and total.delta <= self.delta * _ROUNDING
        if self.rule == "zcdp":
            own, rho = math.fsum(_own_delta(s) for s in spends), math.fsum(_rho(s) for s in spends)
            limit = zcdp_rho(self.epsilon, self.delta / 2)
            return own <= self.delta / 2 * _ROUNDING and rho <= limit * _ROUNDING
        self._require_gdp(spends)
        return _squared_mu(spends) <= gaussian_mu(self.epsilon, self.delta) ** 2 * _ROUNDING

    def shortfall(self, spent: Sequence[PrivacySpend], more: PrivacySpend) -> str:
        """Why ``more`` is not affordable after ``spent``, for people."""
        total = self.total(spent)
        text = (
            f"spent epsilon = {total.epsilon:.6g} and delta = {total.delta:.3g}, of epsilon = "
            f"{self.epsilon:g} and delta = {self.delta:g} under the rule {self.rule!r}"
        )
        after = self.total([*spent, more])
        text += f"; with it, epsilon = {after.epsilon:.6g} and delta = {after.delta:.3g}"
        if self.rule != "basic" or after.epsilon > self.epsilon * _ROUNDING:
            return text
        wanted = "a larger --delta" if self.delta else "--delta"
        return f"{text}. Only delta is short: create the ledger with {wanted}"

    def _require_gdp(self, spends: Sequence[PrivacySpend]) -> None:
        # A delta of their own would have to be set aside in advance: which of mu and delta a later release
        # uses up may depend on earlier results, and then the better of several budgets is no budget.
        wrong = sorted({f"{s.mechanism} ({s.notion})" for s in spends if s.notion not in ("gdp", "pure")})
        if wrong:
            raise PrivacyParameterError(
                f"the rule 'gdp' adds up GDP and pure releases only, not {', '.join(wrong)}: use a mechanism "
                "that is one Gaussian release, such as dp-gd, or a ledger with the rule 'basic' or 'zcdp'"
            )


def compose(spends: Sequence[PrivacySpend], delta: float) -> Total:
    """The smallest epsilon at ``delta`` that any rule gives for releases with parameters fixed in advance.

    Neighbours: replace-one, as in every spend.

    Raises:
        PrivacyParameterError: a spend that guarantees nothing, or deltas that add up to more than ``delta``.
    """
    delta = check_delta(delta, zero_allowed=True)
    for spend in check_type(spends, Sequence, "expected a list of PrivacySpend"):
        _require_guaranteed(spend)
    if not spends:
        return Total(0.0, 0.0, "basic")
    candidates = [_basic(spends)]
    left = delta - math.fsum(_own_delta(s) for s in spends)
    if left > 0:
        candidates.append(_zcdp(spends, left))
        if all(s.notion != "zcdp" for s in spends):
            candidates.append(_gdp(spends, left))
    valid = [c for c in candidates if c.delta <= delta * _ROUNDING]
    if not valid:
        raise PrivacyParameterError(f"the deltas of these releases add up to more than {delta:g}")
    return min(valid, key=lambda c: c.epsilon)


class Ledger:
    """A budget kept in a file. Every call reads the file afresh under a lock, so processes may share it.

    Args:
        path: a file made by ``Ledger.create``.

    Raises:
        LedgerError: no such file.
        LedgerCorruptError: it cannot be read in full.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = as_path(path, "a ledger")
        self.budget, _ = self._read()

    @classmethod
    def create(
        cls, path: str | os.PathLike[str], epsilon: float, delta: float = 0.0, *, rule: str = "basic"
    ) -> Self:
        """Start a ledger with a budget; see ``Budget``.

        Raises:
            PrivacyParameterError: an invalid budget.
            LedgerError: the file exists, or cannot be written.
        """
        path, budget = as_path(path, "a ledger"), Budget(epsilon, delta, rule)
        head = _head_of(path)
        if head.exists() and not path.exists():
            raise LedgerError(
                f"{head} remembers a ledger that is gone from there: put it back, or remove that file too if "
                "a new budget is meant"
            )
        header = {"privopt_ledger": _FORMAT, "neighbours": "replace-one", "epsilon": budget.epsilon}
        line = _line({**header, "delta": budget.delta, "rule": budget.rule})
        # Written aside and linked into place: nobody ever sees a ledger without its header.
        try:
            with _written_aside(path, line) as aside:
                os.link(aside, path)
            _sync_folder(path.parent)
        except OSError as error:
            raise LedgerError(f"cannot create a ledger at {path}: {error.strerror}") from error
        return cls(path)

    def entries(self) -> list[Entry]:
        """All reservations in the order in which they were made."""
        return self._read()[1]

    def total(self) -> Total:
        """What has been spent so far, unfinished releases included."""
        budget, entries = self._read()
        return budget.total(_spent(entries))

    def affords(self, spend: PrivacySpend) -> bool:
        """Whether ``reserve`` would succeed now; another process may be faster."""
        _require_guaranteed(spend)
        budget, entries = self._read()
        return budget.affords([*_spent(entries), spend])

    def reserve(self, spend: PrivacySpend) -> str:
        """Set the spend aside *before* the release runs; returns an identifier for ``commit`` or ``cancel``.

        On return the reservation is on disk and counts as spent, come what may.

        Raises:
            BudgetExceededError: the release must not run.
            PrivacyParameterError: a refuted claim, reproducible noise, or a notion that the rule cannot add.
            LedgerCorruptError: the file cannot be trusted.
        """
        _require_guaranteed(spend)
        with self._locked() as file:
            budget, entries = self._parse(file)
            if not budget.affords([*_spent(entries), spend]):
                raise BudgetExceededError(
                    f"{spend} would overdraw {self.path}: {budget.shortfall(_spent(entries), spend)}. "
                    "Nothing was run"
                )
            identifier = uuid.uuid4().hex
            self._add(file, {**_stamp("reserve", identifier), "spend": spend.to_dict()})
        return identifier

    def commit(self, identifier: str) -> None:
        """Note that the release finished. Changes nothing in what is spent.

        Raises:
            LedgerError: no open reservation of that name.
        """
        self._close(identifier, "commit", {})

    def cancel(self, identifier: str, reason: str) -> None:
        """Take a reservation back. *Only* if the release failed before it read any record.

        Raises:
            LedgerError: no open reservation of that name, or no reason given.
        """
        if not (isinstance(reason, str) and reason.strip()):
            raise LedgerError("a cancellation needs a reason: how is it known that no record was read?")
        self._close(identifier, "cancel", {"reason": reason})

    @contextmanager
    def spending(self, spend: PrivacySpend) -> Iterator[str]:
        """``with ledger.spending(plan.spend): release`` reserves, runs and commits.

        After an exception the reservation stays: the failure may itself depend on the data.
        """
        identifier = self.reserve(spend)
        yield identifier
        self.commit(identifier)

    def _close(self, identifier: str, action: str, more: dict[str, str]) -> None:
        with self._locked() as file:
            _, entries = self._parse(file)
            if not any(e.identifier == identifier and e.state == "reserved" for e in entries):
                raise LedgerError(f"there is no open reservation of that identifier to {action}")
            self._add(file, {**_stamp(action, identifier), **more})

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The open file under an exclusive lock, which ends with the descriptor, even by a kill."""
        while True:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_APPEND)
            except OSError as error:
                raise LedgerError(f"cannot open the ledger {self.path}: {error.strerror}") from error
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                if self._is_at_its_path(file):  # and was not replaced while this call waited
                    yield file
                    return
            finally:
                os.close(file)

    def _is_at_its_path(self, file: int) -> bool:
        try:
            return os.path.samestat(os.fstat(file), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _add(self, file: int, record: dict[str, Any]) -> None:
        """Write an entry, then the head: a kill in between leaves a ledger longer than its head says."""
        before = _content(file)
        if not self._head_file.exists():
            self._write_head(before)
        _append(file, (b"" if before.endswith(b"\n") else b"\n") + _line(record))
        self._write_head(_content(file))
        if not self._is_at_its_path(file):
            raise LedgerError(f"{self.path} was replaced by another file meanwhile; nothing was run")

    @property
    def _head_file(self) -> Path:
        return _head_of(self.path)

    def _write_head(self, content: bytes) -> None:
        head = {
            "privopt_ledger_head": 1,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        try:
            with _written_aside(self._head_file, _line(head)) as aside:
                os.replace(aside, self._head_file)
            _sync_folder(self._head_file.parent)
        except OSError as error:
            raise LedgerError(
                f"{self._head_file} could not be written: {error.strerror}. Nothing was run; an entry that "
                "stands in the ledger counts"
            ) from error

    def _check_head(self, content: bytes, needed: bool) -> None:
        """Raise LedgerCorruptError unless the ledger begins as its head says."""
        try:
            text = self._head_file.read_bytes().decode()
        except FileNotFoundError:
            if needed:
                raise self._corrupt(
                    f"its head {self._head_file.name} is gone; the two belong together"
                ) from None
            return
        except (OSError, ValueError) as error:
            raise self._corrupt(f"its head {self._head_file.name} cannot be read") from error
        try:
            head = _strict_object(text)
        except (ValueError, RecursionError) as error:
            raise self._corrupt(f"its head {self._head_file.name} is damaged") from error
        size = head.get("bytes")
        if type(size) is not int or not 0 < size <= len(content):
            raise self._corrupt("lines are gone: it is shorter than its head says, as an older copy is")
        if head.get("sha256") != hashlib.sha256(content[:size]).hexdigest():
            raise self._corrupt("it was edited, or is another ledger: its head does not fit")

    def _read(self) -> tuple[Budget, list[Entry]]:
        with self._locked() as file:
            return self._parse(file)

    def _parse(self, file: int) -> tuple[Budget, list[Entry]]:
        content = _content(file)
        # Without its last newline, as some editors leave it, a line is whole if it is an object: no shorter
        # part of it is one.
        whole = content if content.endswith(b"\n") else content + b"\n"
        try:
            header, *records = [_strict_object(line) for line in whole.decode().split("\n")[:-1]]
        except (ValueError, RecursionError) as error:
            torn = "the last line is incomplete, as after a power failure"
            unreadable = f"an entry cannot be read ({type(error).__name__})"
            raise self._corrupt(unreadable if content.endswith(b"\n") else torn) from error
        if header.get("privopt_ledger") not in (1, _FORMAT):
            raise self._corrupt("the first line is not a ledger's header")
        if set(header) != _HEADER or header["neighbours"] != "replace-one":
            raise self._corrupt(f"its header must hold {', '.join(sorted(_HEADER))}, and nothing else")
        self._check_head(whole, needed=header["privopt_ledger"] != 1 and bool(records))
        try:
            budget = Budget(header["epsilon"], header["delta"], header["rule"])
            entries: dict[str, Entry] = {}
            for record in records:
                _apply(entries, record)
            affordable = budget.affords(_spent(list(entries.values())))
        except (KeyError, TypeError, ValueError) as error:
            raise self._corrupt(f"an entry cannot be read ({type(error).__name__})") from error
        if not affordable:
            raise self._corrupt("more has been spent than the budget allows")
        return budget, list(entries.values())

    def _corrupt(self, what: str) -> LedgerCorruptError:
        return LedgerCorruptError(
            f"{self.path}: {what}. No further spending is allowed. To do: inspect the file, and count every "
            f"doubtful reservation as spent"
        )


def _apply(entries: dict[str, Entry], record: dict[str, Any]) -> None:
    """Replay one line; any irregularity is a ValueError or KeyError."""
    identifier, action = record["id"], record["action"]
    if set(record) - {"time"} != {"action", "id"} | _ENTRIES[action]:
        raise ValueError("a key is missing or unknown")
    if not (isinstance(identifier, str) and isinstance(record.get("time", ""), str)):
        raise ValueError("identifiers and times are text")
    if action == "reserve":
        if identifier in entries:
            raise ValueError("an identifier is used twice")
        spend = PrivacySpend.from_dict(record["spend"])
        entries[identifier] = Entry(identifier, spend, "reserved", record.get("time", ""))
        return
    state = {"commit": "committed", "cancel": "cancelled"}[action]
    if entries[identifier].state != "reserved":
        raise ValueError("a reservation is closed twice")
    entries[identifier] = replace(entries[identifier], state=state)


def _spent(entries: Sequence[Entry]) -> list[PrivacySpend]:
    return [e.spend for e in entries if e.state != "cancelled"]


def _require_guaranteed(spend: PrivacySpend) -> None:
    if not isinstance(spend, PrivacySpend):
        raise PrivacyParameterError(f"expected a PrivacySpend, got {told(spend)}")
    if not spend.guaranteed:
        raise PrivacyParameterError(
            f"{spend.mechanism} guarantees nothing that could be added up: its claim is {spend.claim!r}"
            + ("" if spend.insecure_seed is None else ", its noise is reproducible")
        )


def _basic(spends: Sequence[PrivacySpend]) -> Total:
    """Epsilons and deltas add up: Dwork et al. (2006)."""
    return Total(math.fsum(s.epsilon for s in spends), math.fsum(s.delta for s in spends), "basic")


def _zcdp(spends: Sequence[PrivacySpend], delta: float) -> Total:
    """rho adds up, (epsilon, delta) being delta-approximate epsilon^2/2-zCDP: Bun and Steinke (2016), 8."""
    epsilon = zcdp_epsilon(math.fsum(_rho(s) for s in spends), delta)
    return Total(epsilon, math.fsum([delta, *(_own_delta(s) for s in spends)]), "zcdp")


def _gdp(spends: Sequence[PrivacySpend], delta: float) -> Total:
    """mu^2 adds up: Dong, Roth and Su (2022), corollary 3.3.

    epsilon-DP is GDP (``pure_to_gdp``). (epsilon, delta)-DP is a release that tells all with probability
    delta and otherwise is epsilon-DP (Kairouz, Oh and Viswanath 2015): its delta is added, as in ``_zcdp``.
    """
    epsilon = gaussian_epsilon(math.sqrt(_squared_mu(spends)), delta)
    return Total(epsilon, math.fsum([delta, *(_own_delta(s) for s in spends)]), "gdp")


def _own_delta(spend: PrivacySpend) -> float:
    """The delta that a release has in itself; that of zCDP and GDP only states a conversion."""
    return spend.delta if spend.notion == "approximate" else 0.0


def _rho(spend: PrivacySpend) -> float:
    if spend.notion == "zcdp" and spend.level is not None:
        return spend.level
    strength = spend.epsilon if spend.level is None else spend.level
    return strength**2 / 2


def _squared_mu(spends: Sequence[PrivacySpend]) -> float:
    if any(s.notion == "zcdp" for s in spends):
        raise PrivacyParameterError("zCDP implies no GDP")
    return math.fsum((pure_to_gdp(s.epsilon) if s.level is None else s.level) ** 2 for s in spends)


def _stamp(action: str, identifier: str) -> dict[str, str]:
    return {"action": action, "id": identifier, "time": datetime.now(UTC).isoformat(timespec="seconds")}


def _line(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, allow_nan=False) + "\n").encode()


def _strict_object(line: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) != len(pairs):
            raise ValueError("a key is given twice")
        return dict(pairs)

    record = json.loads(line, object_pairs_hook=unique)
    if not isinstance(record, dict):
        raise ValueError("a line is not an object")
    return record


def _head_of(path: Path) -> Path:
    """Beside the ledger itself, whatever link leads to it."""
    real = path.resolve()
    return real.with_name(f"{real.name}.head")


@contextmanager
def _written_aside(path: Path, line: bytes) -> Iterator[Path]:
    """A new file beside ``path`` with that line on disk, to be moved or linked to its place."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    file = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        _append(file, line)
        yield aside
    finally:
        os.close(file)
        aside.unlink(missing_ok=True)


def _content(file: int) -> bytes:
    with open(os.dup(file), "rb") as stream:
        stream.seek(0)
        return stream.read()


def _append(file: int, line: bytes) -> None:
    """Write a whole line to disk, or leave the file as it was."""
    size = os.fstat(file).st_size
    try:
        if os.write(file, line) != len(line):
            raise OSError("short write")
        os.fsync(file)
    except OSError as error:
        os.ftruncate(file, size)
        raise LedgerError("the ledger could not be written; nothing was reserved or changed") from error


def _sync_folder(folder: Path) -> None:
    """Make the new name durable, too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
