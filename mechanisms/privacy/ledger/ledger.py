"""Durable privacy budgets in a database: reserve, run, commit.

A ledger is an SQLite file, or tables in a PostgreSQL database that a team shares. It holds named budgets. A
release is booked atomically in all addressed budgets: ``ledger.db#adult/cardiology/ana`` addresses three, the
budgets of the data, of a team and of an analyst.

A reservation is on disk before the release may run and counts as spent from then on, whether or not the
release finishes. Only ``cancel`` takes it back, for a failure before any record was read. A reservation that
``spending`` made is never cancelled, as its release starts at once.

After any sign of tampering all further spending is refused: missing, altered or reordered rows of the trail,
altered sums, totals other than those at creation, an older copy of a file. Each booking checks the data that
it depends on, in time independent of the length of the history. ``verify``, and all functions that show the
history, check everything; only they detect an older row of sums that was put back together with its own hash.
No check detects that the whole ledger (for a file, also the head beside it) was replaced by older or
recomputed data.
"""

from __future__ import annotations

import json
import os
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

from privopt.mechanisms.errors import (
    BudgetExceededError,
    LedgerError,
    LedgerUnavailableError,
)
from privopt.mechanisms.privacy.budget import Budget, Spent, Total, compose, require_guaranteed
from privopt.mechanisms.privacy.ledger.moving import move
from privopt.mechanisms.privacy.ledger.old_files import is_old_ledger, take_over
from privopt.mechanisms.privacy.ledger.place import Address
from privopt.mechanisms.privacy.ledger.store import SQLITE, Book, Store
from privopt.mechanisms.privacy.ledger.trail import MAIN, Account, Entry, Row, course, replay
from privopt.mechanisms.privacy.spend import NEIGHBOURS, PrivacySpend
from privopt.problems.notebooks import html_facts, html_table


@dataclass(frozen=True)
class Snapshot:
    """A ledger at one moment, after its trail was verified.

    Attributes:
        budgets: budget and spend by name.
        entries: all reservations in these budgets, in chronological order.
        rows: the trail, shared by all budgets.
        moved_to: the address to which the ledger was moved; empty if it was not.
    """

    budgets: dict[str, tuple[Budget, Total]]
    entries: list[Entry]
    rows: list[Row]
    moved_to: str

    def course(self) -> dict[str, list[tuple[datetime, Total]]]:
        """Return the spend over time by budget name, at some hundred moments."""
        found = course(self.rows)
        return {name: found[name] for name in self.budgets}


class Ledger:
    """Privacy budgets in a database, which processes may share; bookings are serialised.

    Args:
        address: a path, or the URL ``postgresql://USER@HOST/DATABASE``, followed by a ``#`` and names of
            budgets if there are several: ``ledger.db#adult``, ``ledger.db#adult/cardiology,ana``. A budget
            named before a ``/`` contains the one after it, and releases are booked in both.

    Pickles leave out the password of a URL; after unpickling ``~/.pgpass`` or ``PGPASSWORD`` provides it.

    A ledger of an older version, a file of JSON lines, is migrated: a database with its history replaces it;
    a copy of the file stays beside it, ``NAME.old``, from which nothing can be spent.

    Raises:
        LedgerError: no such ledger, or no such budget in it.
        LedgerCorruptError: it cannot be trusted.
        LedgerUnavailableError: the database does not answer, or the ledger was moved.
        InvalidInputError: not an address. Passwords in URLs are not repeated in any message.
    """

    def __init__(self, address: str | os.PathLike[str] | Address) -> None:
        self._address = Address.of(address)
        self._store = _opened(self._address)
        with self._store.reading() as book:
            accounts = book.accounts(self._address.applying)
        for account in accounts:
            account.budget.within(account.spent)  # import conversions now, not while others wait

    @classmethod
    def create(
        cls,
        address: str | os.PathLike[str] | Address,
        epsilon: float,
        delta: float = 0.0,
        *,
        rule: str = "basic",
        unit: str = "record",
    ) -> Self:
        """Create a budget, and a ledger if there is none at that address; see ``Budget``.

        Args:
            address: as above, with at most one name; the first budget may be created without a name, and is
                then called "main". A budget "adult/ana" is created within "adult", which must exist.
            epsilon: the total epsilon, > 0.
            delta: the total delta, in [0, 1).
            rule: "basic", "zcdp", "gdp" or "profile".
            unit: the unit of privacy, "record" or "person"; a budget within another one has the same unit.

        Raises:
            PrivacyParameterError: an invalid budget.
            LedgerError: the budget exists, the ledger cannot be written, or its tables in a server are owned
                by another role.
        """
        place, budget = Address.of(address), Budget(epsilon, delta, rule, unit)
        if len(place.names) > 1:
            raise LedgerError(
                f"one budget is made at a time; {place} names {len(place.names)}. To do: create one after "
                "the other"
            )
        *containing, name = (replace(place, names=place.names or (MAIN,))).applying
        store = Store(place)
        store.make_room()
        with store.making() as book:
            _require_room(place, name, containing, unit, {a.name: a.budget.unit for a in book.accounts()})
            facts = {"epsilon": budget.epsilon, "delta": budget.delta, "rule": budget.rule}
            book.append("create", {"name": name, "neighbours": NEIGHBOURS[unit], **facts})
            book.put(Account(name, budget, Spent()))
        return cls(address)

    @property
    def address(self) -> str:
        """The address of the ledger without a password."""
        return str(self._address)

    def __str__(self) -> str:
        return self.address

    def __repr__(self) -> str:
        return f"Ledger({self.address!r})"

    def _repr_html_(self) -> str:
        """Return a table of the budgets for notebooks; only the address if they cannot be read."""
        try:
            budgets = self.budgets()
        except LedgerError as error:
            return html_facts(str(self), {"error": error})
        rows = [
            (
                name,
                f"{budget.epsilon:g}",
                f"{budget.delta:.3g}",
                f"{spent.epsilon:.6g}",
                f"{spent.delta:.3g}",
                spent.rule,
            )
            for name, (budget, spent) in budgets.items()
        ]
        header = ("budget", "epsilon", "delta", "spent epsilon", "spent delta", "rule")
        return html_table(str(self), header, rows)

    @property
    def budget(self) -> Budget:
        """The addressed budget; see ``budgets`` if there are several."""
        with self._store.reading() as book:
            return self._one(book).budget

    def budgets(self) -> dict[str, tuple[Budget, Total]]:
        """Return budget and spend of the addressed budgets, or of all if none is named, by name."""
        with self._store.reading() as book:
            accounts = book.accounts(self._address.applying)
        return {a.name: (a.budget, a.budget.stated(a.spent)) for a in accounts}

    def total(self) -> Total:
        """Return the spend of the addressed budget so far, unfinished releases included."""
        with self._store.reading() as book:
            account = self._one(book)
        return account.budget.stated(account.spent)

    def composed(self, delta: float | None = None) -> Total:
        """Compose the releases of the addressed budget anew, by whichever rule is best: see ``compose``.

        Valid if the parameters of no release depended on the results of earlier ones; otherwise the
        guarantee is ``total``, which the budget enforces.

        Args:
            delta: of the pair; by default the delta of the budget.

        Raises:
            PrivacyParameterError: the deltas of the releases add up to more than ``delta``.
            LedgerCorruptError: something is wrong with the trail; ``verify`` says what.
        """
        budget = self.budget
        spends = [entry.spend for entry in self.entries() if entry.state != "cancelled"]
        return compose(spends, budget.delta if delta is None else delta)

    def snapshot(self) -> Snapshot:
        """Return the addressed budgets, or all if none is named, and their history, at one moment.

        Raises:
            LedgerCorruptError: something is wrong with the trail; ``verify`` says what.
        """
        rows, accounts, _ = self._store.verified()
        entries, _ = replay(rows)
        applying, names = set(self._address.applying), set(self._address.names)
        return Snapshot(
            {
                a.name: (a.budget, a.budget.stated(a.spent))
                for a in accounts
                if not names or a.name in applying
            },
            [e for e in entries.values() if not names or names & set(e.budgets)],
            rows,
            rows[-1].destination,
        )

    def entries(self) -> list[Entry]:
        """Return all reservations in the addressed budgets, in chronological order.

        Raises:
            LedgerCorruptError: something is wrong with the trail; ``verify`` says what.
        """
        return self.snapshot().entries

    def history(self) -> list[Row]:
        """Return the verified trail (who did what, when), which all budgets share.

        Raises:
            LedgerCorruptError: something is wrong with it; ``verify`` says what.
        """
        return self._store.verified().rows

    def course(self) -> dict[str, list[tuple[datetime, Total]]]:
        """Return the spend over time, thinned, of each addressed budget (of all if none is named).

        Raises:
            LedgerCorruptError: something is wrong with the trail; ``verify`` says what.
        """
        return self.snapshot().course()

    def affords(self, spend: PrivacySpend) -> bool:
        """Return whether ``reserve`` would succeed now; another process may book first."""
        require_guaranteed(spend)
        with self._store.reading() as book:
            return all(account.affords(spend) for account in self._accounts(book))

    def shortfall(self, *spends: PrivacySpend) -> str | None:
        """Explain why the spends are not affordable together now; None if they are."""
        for spend in spends:
            require_guaranteed(spend)
        with self._store.reading() as book:
            return _shortfall(self._accounts(book), *spends)

    def reserve(self, spend: PrivacySpend) -> str:
        """Reserve the spend *before* the release runs; return an identifier for ``commit`` or ``cancel``.

        On return the reservation is on disk in all addressed budgets and counts as spent, whatever happens
        next. If the connection breaks before the server's answer, a query checks once whether the reservation
        was made.

        Raises:
            BudgetExceededError: the release must not run.
            PrivacyParameterError: a refuted claim, reproducible noise, or a privacy notion that the rule of a
                budget cannot add up.
            LedgerError: several budgets are there, and none is named.
            LedgerCorruptError: the ledger cannot be trusted.
            LedgerUnavailableError: the database does not answer or cannot write. Nothing may be run.
        """
        return self._reserve(spend, {})

    def commit(self, identifier: str) -> None:
        """Record that the release finished; the spend is unchanged.

        Raises:
            LedgerError: no open reservation with that identifier in the addressed budgets. Withhold the
                release: perhaps nobody has paid for it.
        """
        with self._store.booking() as book:
            self._reserved(book, identifier, "commit")
            book.append("commit", {}, reservation=identifier)

    def cancel(self, identifier: str, reason: str) -> None:
        """Cancel a reservation; allowed *only* if the release failed before it read any record.

        Raises:
            LedgerError: no open reservation with that identifier in the addressed budgets, no reason given,
                or a reservation made by ``spending``, whose release has started.
        """
        if not (isinstance(reason, str) and reason.strip()):
            raise LedgerError("a cancellation needs a reason: how is it known that no record was read?")
        with self._store.booking() as book:
            content = self._reserved(book, identifier, "cancel")
            if content.get("started"):
                raise LedgerError(
                    "the release of this reservation has started, and may have read records: it stays spent"
                )
            book.append("cancel", {"reason": reason}, reservation=identifier)
            spend = PrivacySpend.from_dict(content["spend"])
            for account in book.accounts(content["budgets"]):
                book.put(replace(account, spent=account.spent - account.budget.cost(spend)))

    @contextmanager
    def spending(self, spend: PrivacySpend) -> Iterator[str]:
        """Reserve, run and commit: ``with ledger.spending(plan.spend): release``.

        After an exception the reservation stays, and cannot be cancelled: the failure may itself depend on
        the data. The reservation also stays if the database does not answer at the end; that is only a
        warning, as the release is paid for. Errors are those of ``reserve`` and ``commit``.
        """
        identifier = self._reserve(spend, {"started": True})
        yield identifier
        try:
            self.commit(identifier)
        except LedgerUnavailableError as error:
            warnings.warn(f"{error}, this release too: it stays marked as reserved", stacklevel=3)

    def move(self, address: str | os.PathLike[str]) -> Ledger:
        """Move the whole ledger to an empty place, such as from a file to a server's database.

        Its trail is verified, copied row by row, and verified again. This ledger is closed first, for good:
        it still shows its history, and books nothing. After an interruption no booking is possible in either
        place until the same move is repeated, which completes it.

        Args:
            address: the address of that place, without names of budgets.

        Returns:
            The ledger there.

        Raises:
            LedgerError: another ledger is there, this one was moved elsewhere, names are given, or the tables
                in a server are owned by another role.
            LedgerCorruptError: it cannot be trusted.
            LedgerUnavailableError: one of the databases does not answer.
        """
        place = Address.of(address)
        if place.names or self._address.names:
            raise LedgerError("a ledger is moved with all its budgets: leave out the # and what follows")
        move(self._store, Store(place))
        return Ledger(address)

    @property
    def moved_to(self) -> str:
        """The address to which the ledger was moved; empty if it was not."""
        with self._store.reading() as book:
            return book.moved_to

    def _reserve(self, spend: PrivacySpend, more: dict[str, bool]) -> str:
        require_guaranteed(spend)
        identifier, spend = uuid.uuid4().hex, self._priced(spend)
        try:
            self._set_aside(spend, identifier, more)
        except LedgerUnavailableError:
            if self._address.is_file or not self._was_committed(identifier):
                raise
        return identifier

    def _priced(self, spend: PrivacySpend) -> PrivacySpend:
        """Return the spend as the trail keeps it: for the rule "profile" with the Gaussian that it counts as.

        As the Gaussian is kept, the trail adds up to the same sum at any time, in any version. The Gaussian
        takes seconds to compute, so it is computed before the ledger is locked. A Gaussian that the caller's
        spend already has is not trusted.
        """
        if spend.event is None:
            return spend
        spend = replace(spend, event=replace(spend.event, mu=None, disclosed=None))
        if all(b.rule != "profile" for b, _ in self.budgets().values()):
            return spend
        from privopt.mechanisms.privacy.profiles import with_gaussian

        return with_gaussian(spend)

    def _set_aside(self, spend: PrivacySpend, identifier: str, more: dict[str, bool]) -> None:
        with self._store.booking() as book:
            accounts = self._accounts(book)
            if why := _shortfall(accounts, spend):
                raise BudgetExceededError(f"{spend} would overdraw {self}: {why}. Nothing was run")
            content = {
                "budgets": [account.name for account in accounts],
                "spend": spend.to_dict(),
                **more,
            }
            book.append("reserve", content, reservation=identifier)
            for account in accounts:
                book.put(replace(account, spent=account.spent + account.budget.cost(spend)))

    def _was_committed(self, identifier: str) -> bool:
        """Return whether a reservation was committed although the connection broke before the answer."""
        found = False
        with suppress(LedgerUnavailableError), self._store.settled() as book:  # waits for that commit
            found = book.reserved(identifier) is not None
        return found  # the query succeeded, however the connection ended

    def _reserved(self, book: Book, identifier: object, action: str) -> dict[str, Any]:
        """Return the content of an open reservation in exactly the addressed budgets.

        Raises:
            LedgerError: there is none.
        """
        row = book.reserved(identifier)
        if row is None:
            raise LedgerError(f"there is no open reservation of that identifier to {action}")
        content: dict[str, Any] = json.loads(row.content)
        if set(content["budgets"]) != {account.name for account in self._accounts(book)}:
            raise LedgerError(
                f"that reservation is in other budgets than {self}: {action} it by the address that made it, "
                f"{self._store}#{','.join(content['budgets'])}"
            )
        return content

    def _accounts(self, book: Book) -> list[Account]:
        """Return the accounts of all budgets in which a release is booked."""
        book.require_open()
        accounts = book.accounts(self._address.applying)
        if not self._address.names and len(accounts) != 1:
            raise LedgerError(_several(self, accounts))
        return accounts

    def _one(self, book: Book) -> Account:
        accounts = book.accounts(self._address.names)
        if len(accounts) != 1:
            raise LedgerError(_several(self, accounts))
        return accounts[0]


def verify(ledger: Ledger | str | os.PathLike[str]) -> list[str]:
    """Verify a ledger; return descriptions of all inconsistencies, empty if there are none.

    The whole trail is read. Every hash must match its row and the previous hash, no row may be missing (the
    first and the last included), and the stored sums must equal the sums of the rows.

    Raises:
        LedgerError: no such ledger.
    """
    address = ledger._address if isinstance(ledger, Ledger) else Address.of(ledger)
    return _opened(address).examined().faults


def _require_room(
    place: Address, name: str, containing: Sequence[str], unit: str, units: Mapping[str, str]
) -> None:
    """Raise LedgerError unless a budget can be created; ``units`` has the units of the existing ones."""
    if name in units:
        raise LedgerError(
            f"{place}: a budget {name!r} exists already; `privopt budget show {place}` tells what it holds"
        )
    if units and not place.names:
        raise LedgerError(
            f"{place} holds budgets by name ({', '.join(sorted(units)[:20])}): name the new one after a #, "
            f"as in {place}#NAME"
        )
    if missing := [other for other in containing if other not in units]:
        raise LedgerError(f"{name!r} would be within {missing[-1]!r}, which is not there: create that first")
    if others := [other for other in units if other in containing and units[other] != unit]:
        raise LedgerError(
            f"{name!r} would count by {unit}, and {others[0]!r} around it does not. To do: create it with "
            f"the unit of {others[0]!r}"
        )


def _opened(address: Address) -> Store:
    """Open the store of an existing ledger; migrate a ledger of an older version.

    Raises:
        LedgerError: there is no ledger, or something else.
    """
    store = Store(address)
    if address.is_file:
        _check_file(Path(address.place), store, address)
    if not store.holds_a_ledger():
        raise LedgerError(
            f"{store} is not a privopt ledger: `privopt budget create {address} --epsilon TOTAL` makes one"
        )
    return store


def _check_file(path: Path, store: Store, address: Address) -> None:
    """Check that a file can be a ledger; migrate a ledger of an older version."""
    if path.is_dir():
        raise LedgerError(f"{store} is a folder, not a ledger")
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except FileNotFoundError:
        raise LedgerError(
            f"no ledger {store}; `privopt budget create {address} --epsilon TOTAL` starts one"
        ) from None
    except OSError as error:
        raise LedgerError(f"cannot open the ledger {store}: {error.strerror}") from error
    if start.startswith(SQLITE):
        return
    if not is_old_ledger(start):
        raise LedgerError(
            f"{store} is not a privopt ledger: neither a database, nor a ledger's header in its first line. "
            "`privopt budget create` makes ledgers"
        )
    take_over(path)


def _shortfall(accounts: Sequence[Account], *spends: PrivacySpend) -> str | None:
    for account in accounts:
        if not account.affords(*spends):
            which = "" if account.name == MAIN else f"of the budget {account.name!r}, "
            return which + account.budget.shortfall(account.spent, *spends)
    return None


def _several(ledger: Ledger, accounts: Sequence[Account]) -> str:
    names = ", ".join(account.name for account in accounts[:20])
    return (
        f"{ledger} holds several budgets ({names}): name the one you mean after a #, as in "
        f"{ledger._store}#{accounts[0].name}"
    )
