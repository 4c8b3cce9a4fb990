"""The audit trail of a ledger: hash-chained rows, and the spends that they add up to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from privopt.mechanisms.privacy.budget import Budget, Spent, Total
from privopt.mechanisms.privacy.spend import NEIGHBOURS, PrivacySpend
from privopt.problems.arguments import told

MAIN = "main"  # the budget of a ledger created without a name


@dataclass(frozen=True)
class Row:
    """A row of the trail."""

    number: int
    time: str
    who: str
    action: str
    reservation: str
    content: str
    hash: str

    def follows(self, previous: str) -> bool:
        """Return whether the stored hash equals the digest of the row and the previous hash."""
        return self.hash == self.digest(previous)

    @property
    def destination(self) -> str:
        """The address to which the ledger was moved by this row; otherwise empty."""
        return str(json.loads(self.content)["to"]) if self.action == "move" else ""

    @property
    def created_budget(self) -> Budget | None:
        """The budget created by this row, or None."""
        content = json.loads(self.content)
        try:
            return _budget_of(content)
        except (KeyError, TypeError, ValueError):
            return None

    def digest(self, previous: str) -> str:
        """Return the expected SHA-256 of this row, given the previous hash."""
        return _digest(
            previous, self.number, self.time, self.who, self.action, self.reservation, self.content
        )


@dataclass(frozen=True)
class Account:
    """A budget of a ledger and its spend, reservations included."""

    name: str
    budget: Budget
    spent: Spent
    number: int = 0  # number of the row that last changed it

    def affords(self, *spends: PrivacySpend) -> bool:
        """Return whether the budget affords these spends, too."""
        return self.budget.within(self.spent + self.budget.cost(*spends))

    def to_row(self) -> dict[str, Any]:
        columns = {
            "name": self.name,
            "epsilon": self.budget.epsilon,
            "delta": self.budget.delta,
            "rule": self.budget.rule,
            "strength": str(self.spent.strength),
            "strength_delta": str(self.spent.delta),
            "number": self.number,
        }
        return {**columns, "seal": _digest(*columns.values())}

    @classmethod
    def from_row(cls, row: Any, unit: str = "record") -> Account:
        """Read ``to_row`` back; ValueError if anything in it was changed.

        ``to_row`` leaves out the unit of privacy: the row of the trail that created the budget records it.
        """
        name, epsilon, delta, rule, strength, strength_delta, number, _ = row
        spent = Spent(Fraction(strength), Fraction(strength_delta))
        account = cls(name, Budget(epsilon, delta, rule, unit), spent, number)
        if account.to_row() != row._mapping:
            raise ValueError("the seal does not fit")
        return account


@dataclass(frozen=True)
class Entry:
    """One reservation. ``state`` is "reserved", "committed" or "cancelled"; the first two count as spent.

    Attributes:
        identifier: the identifier of the reservation.
        spend: the reserved spend.
        state: see above.
        time: when it was reserved, in UTC and ISO 8601, by the clock of the machine that reserved; empty if
            not recorded.
        who: who reserved; empty if not recorded.
        budgets: the names of the budgets that it is booked in.
        started: whether its release started together with the reservation; then it can never be cancelled.
    """

    identifier: str
    spend: PrivacySpend
    state: str
    time: str = ""
    who: str = ""
    budgets: tuple[str, ...] = ()
    started: bool = False


def replay(rows: Iterable[Row]) -> tuple[dict[str, Entry], dict[str, Account]]:
    """Replay a trail: return its reservations, and its budgets with their sums.

    Raises:
        KeyError, TypeError, ValueError: not a valid trail.
    """
    entries: dict[str, Entry] = {}
    accounts: dict[str, Account] = {}
    for row in rows:
        step(row, entries, accounts)
    return entries, accounts


def step(row: Row, entries: dict[str, Entry], accounts: dict[str, Account]) -> None:
    """Apply one row to the reservations and the budgets."""
    content, reservation = json.loads(row.content), row.reservation
    if row.action == "create":
        budget = _budget_of(content)
        if content["name"] in accounts:
            raise ValueError(f"row {row.number} creates a budget that exists already")
        accounts[content["name"]] = Account(content["name"], budget, Spent(), row.number)
    elif row.action == "reserve":
        spend, names = PrivacySpend.from_dict(content["spend"]), tuple(content["budgets"])
        if reservation in entries or not names:
            raise ValueError(f"row {row.number} reserves under a used identifier, or in no budget")
        started = bool(content.get("started"))
        entries[reservation] = Entry(reservation, spend, "reserved", row.time, row.who, names, started)
        for name in names:
            mine = accounts[name]
            accounts[name] = replace(mine, spent=mine.spent + mine.budget.cost(spend), number=row.number)
    elif row.action in ("commit", "cancel"):
        entry = entries[reservation]
        if entry.state != "reserved":
            raise ValueError(f"row {row.number} closes a reservation that is not open")
        if row.action == "cancel" and entry.started:  # edited by hand: a ledger refuses this
            raise ValueError(f"row {row.number} cancels a release that had started")
        entries[reservation] = replace(entry, state="committed" if row.action == "commit" else "cancelled")
        if row.action == "cancel":
            for name in entry.budgets:
                mine = accounts[name]
                spent = mine.spent - mine.budget.cost(entry.spend)
                accounts[name] = replace(mine, spent=spent, number=row.number)
    elif row.action in ("take over", "arrive"):
        accounts.update({name: replace(mine, number=row.number) for name, mine in accounts.items()})
    elif row.action != "move":
        raise ValueError(f"row {row.number} has an unknown action: {told(row.action)}")


def _budget_of(content: Any) -> Budget:
    """Return the budget that a row creates; KeyError, TypeError or ValueError if it creates none."""
    units = [unit for unit, relation in NEIGHBOURS.items() if relation == content["neighbours"]]
    if not units:
        raise ValueError("it creates a budget for neighbours that privopt does not know")
    return Budget(content["epsilon"], content["delta"], content["rule"], units[0])


def course(rows: Iterable[Row], most: int = 400) -> dict[str, list[tuple[datetime, Total]]]:
    """Return the spend of each budget over time, thinned to about ``most`` moments; the last moment is kept.

    A row without a time, as in the oldest ledgers, counts as made at the time of the row before it.
    """
    entries: dict[str, Entry] = {}
    accounts: dict[str, Account] = {}
    found: dict[str, list[tuple[datetime, Account]]] = {}
    now = datetime.fromtimestamp(0, UTC)
    for row in rows:
        with suppress(ValueError):
            now = datetime.fromisoformat(row.time)
        step(row, entries, accounts)
        for name, account in accounts.items():
            if account.number == row.number:
                found.setdefault(name, []).append((now, account))
    kept = {name: points[:: -(len(points) // -most)] + points[-1:] for name, points in found.items()}
    return {name: [(t, a.budget.stated(a.spent)) for t, a in points] for name, points in kept.items()}


def broken(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a description of each break in the chain of hashes."""
    expected, previous = 1, ""
    for row in rows:
        if row.number != expected:
            gone = (
                f"rows {expected} to {row.number - 1} are"
                if row.number > expected + 1
                else (f"row {expected} is")
            )
            yield f"{gone} gone"
        elif not row.follows(previous):
            yield f"row {row.number} was altered, or is not in its place"
        expected, previous = row.number + 1, row.hash


def miscounted(rows: Sequence[Row], accounts: Sequence[Account]) -> Iterator[str]:
    """Yield a description of each budget that differs from the replayed trail."""
    try:
        _, counted = replay(rows)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        yield f"no ledger wrote this trail: {error}"
        return
    known = {account.name: account for account in accounts}
    for name in sorted({*known, *counted}):
        if known.get(name) != counted.get(name):
            yield f"the budget {name!r} is not what the trail adds up to"
        elif not counted[name].budget.within(counted[name].spent):
            yield f"more was spent of the budget {name!r} than it has"


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
