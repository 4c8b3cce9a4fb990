"""Storage of ledgers: tables of an SQLite file or a PostgreSQL database, with serialised transactions.

- ``privopt_trail`` is append-only. A row says who did what and when, and has a number and a hash of the row
  and of the previous hash.
- ``privopt_budgets`` holds the exact spend of each budget, so that a booking adds and compares once.
- ``privopt_head`` is one row: number and hash of the last row of the trail. A booking locks it.

Beside a ledger in a file stands its head, ``NAME.head``, which is written after each transaction and records
the last row, so that an older copy of the ledger is detected.

No connection is kept between two calls: nothing is shared with a forked process, and a replaced file is
detected.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sql
from sqlalchemy import Column, Connection, Double, Index, Integer, String, Table
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from privopt.mechanisms.errors import LedgerCorruptError, LedgerError, LedgerUnavailableError
from privopt.mechanisms.privacy.ledger.forks import no_fork
from privopt.mechanisms.privacy.ledger.place import Address, HeadFile, engine
from privopt.mechanisms.privacy.ledger.trail import Account, Row, broken, miscounted
from privopt.problems.arguments import told

SQLITE = b"SQLite format 3\0"  # first bytes of an SQLite file
_FORMAT = 1
_META = sql.MetaData()
_HEAD = Table(
    "privopt_head",
    _META,
    Column("one", Integer, primary_key=True, autoincrement=False),
    Column("format", Integer, nullable=False),
    Column("start", Integer, nullable=False),  # rows at the creation of the ledger
    Column("number", Integer, nullable=False),
    Column("hash", String, nullable=False),
)
_BUDGETS = Table(
    "privopt_budgets",
    _META,
    Column("name", String, primary_key=True),
    Column("epsilon", Double, nullable=False),
    Column("delta", Double, nullable=False),
    Column("rule", String, nullable=False),
    Column("strength", String, nullable=False),  # exact sums, as fractions: see ``Spent``
    Column("strength_delta", String, nullable=False),
    Column("number", Integer, nullable=False),  # number of the row that last changed it
    Column("seal", String, nullable=False),  # a hash of the other columns
)
_TRAIL = Table(
    "privopt_trail",
    _META,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("time", String, nullable=False),
    Column("who", String, nullable=False),
    Column("action", String, nullable=False),
    Column("reservation", String, nullable=False),
    Column("content", String, nullable=False),  # a JSON object
    Column("hash", String, nullable=False),
    sql.UniqueConstraint("reservation", "action"),
)
_CREATES = _TRAIL.c.action == "create"
_CREATED = Index("privopt_created", _TRAIL.c.number, sqlite_where=_CREATES, postgresql_where=_CREATES)
# Roles that do not own the tables may only add rows about releases: see the page on budgets.
_POLICIES = (
    "ALTER TABLE privopt_trail ENABLE ROW LEVEL SECURITY",
    "DROP POLICY IF EXISTS privopt_read ON privopt_trail",
    "DROP POLICY IF EXISTS privopt_book ON privopt_trail",
    "CREATE POLICY privopt_read ON privopt_trail FOR SELECT USING (true)",
    "CREATE POLICY privopt_book ON privopt_trail FOR INSERT "
    "WITH CHECK (action IN ('reserve', 'commit', 'cancel'))",
)
_MAKING = 7_077_868_420_019  # number of the advisory lock in a server for creating tables; arbitrary


class Book:
    """A ledger inside one transaction, so that its reads and writes are atomic.

    Everything that a booking depends on is verified when it is read: the head against the last row and the
    head file, the seals of budgets, and their totals against the rows that created them. ``Store.examined``
    verifies everything.
    """

    def __init__(self, store: Store, db: Connection, *, writes: bool = True) -> None:
        self.store, self._db = store, db
        query = sql.select(_HEAD)
        heads = db.execute(query.with_for_update() if writes else query).all()
        if len(heads) != 1:
            raise store.corrupt("the row of its head is gone")
        _, made, self.start, self.number, self.hash = heads[0]
        if made != _FORMAT:
            raise store.corrupt(f"format {told(made)} is a later version's")
        last = self._rows(_TRAIL.select().order_by(_TRAIL.c.number.desc()).limit(2))
        before = last[1].hash if len(last) > 1 else ""
        if not last or (last[0].number, last[0].hash) != (self.number, self.hash):
            raise store.corrupt("rows are gone: the last one is not that of its head")
        if not last[0].follows(before):
            raise store.corrupt(f"row {self.number} was altered, or the one before it")
        self.moved_to = last[0].destination
        self._check_file(writes)

    def accounts(self, names: Sequence[str] = ()) -> list[Account]:
        """Return the accounts of the named budgets, or of all budgets.

        Raises:
            LedgerError: an unknown name.
            LedgerCorruptError: an account was altered, or its total differs from the one at creation.
        """
        query = _BUDGETS.select().order_by(_BUDGETS.c.name)
        rows = self._db.execute(query.where(_BUDGETS.c.name.in_(names)) if names else query).all()
        if self.number and not rows and not names:
            raise self.store.corrupt("its budgets are gone")
        if unknown := sorted(set(names) - {row.name for row in rows}):
            known = self._db.execute(sql.select(_BUDGETS.c.name).order_by(_BUDGETS.c.name)).scalars().all()
            raise LedgerError(
                f"{self.store} has no budget {unknown[0]!r}; there are {', '.join(known[:20])}. "
                "`privopt budget create` makes one"
            )
        accounts, created = [], self._created() if rows else {}
        for row in rows:
            made = created.get(row.name)
            budget = None if made is None else made.created_budget
            try:
                accounts.append(Account.from_row(row, "record" if budget is None else budget.unit))
            except (TypeError, ValueError, ArithmeticError):
                raise self.store.corrupt(f"the row of the budget {row.name!r} was altered") from None
            if made is None or accounts[-1].budget != budget:
                raise self.store.corrupt(f"the budget {row.name!r} is not as it was created")
            if not made.follows(self._hash(made.number - 1)):
                raise self.store.corrupt(f"row {made.number} was altered, or the one before it")
        return accounts

    def _created(self) -> dict[str, Row]:
        """Return the row that created each budget, by its name; if several rows create a budget, the first of
        them.
        """
        rows = self._rows(_TRAIL.select().where(_CREATES).order_by(_TRAIL.c.number.desc()))
        try:
            return {str(json.loads(row.content)["name"]): row for row in rows}
        except (KeyError, TypeError, ValueError):
            raise self.store.corrupt("a row that creates a budget was altered") from None

    def reserved(self, reservation: object) -> Row | None:
        """Return the row of an open reservation, or None.

        Raises:
            LedgerCorruptError: the row was altered.
        """
        if not isinstance(reservation, str) or not reservation:
            return None
        rows = self._rows(_TRAIL.select().where(_TRAIL.c.reservation == _plain(reservation)))
        if [row.action for row in rows] != ["reserve"]:
            return None
        if not rows[0].follows(self._hash(rows[0].number - 1)):
            raise self.store.corrupt(f"row {rows[0].number} was altered, or the one before it")
        return rows[0]

    def append(
        self,
        action: str,
        content: dict[str, Any],
        *,
        reservation: str = "",
        time: str | None = None,
        who: str | None = None,
    ) -> None:
        """Add a row to the trail.

        Raises:
            LedgerUnavailableError: the ledger was moved.
        """
        self.require_open()
        self.number += 1
        row = Row(
            self.number,
            datetime.now(UTC).isoformat(timespec="seconds") if time is None else _plain(time),
            self.store.who(self._db) if who is None else who,
            action,
            # The pair (reservation, action) must be unique, so a row without a reservation has its own number
            # in that column.
            _plain(reservation) or f"row {self.number}",
            json.dumps(content, allow_nan=False),
            "",
        )
        self.hash = row.digest(self.hash)
        self._db.execute(_TRAIL.insert().values(vars(replace(row, hash=self.hash))))

    def require_open(self) -> None:
        """Raise LedgerUnavailableError if the ledger was moved, which closes it to bookings."""
        if self.moved_to:
            raise LedgerUnavailableError(
                f"the ledger {self.store} was moved to {self.moved_to}: book there. What was reserved here "
                "counts as spent there"
            )

    def copy(self, rows: Sequence[Row]) -> None:
        """Copy the rows of another ledger unchanged into a new one."""
        self._db.execute(_TRAIL.insert(), [vars(row) for row in rows])
        self.number, self.hash = rows[-1].number, rows[-1].hash

    def contains(self, row: Row) -> bool:
        """Return whether the trail has this row; its hash covers all rows before it."""
        return self._hash(row.number) == row.hash

    def put(self, account: Account) -> None:
        """Write the sums of a budget, or a new budget, as of the last row."""
        columns = replace(account, number=self.number).to_row()
        sums = {name: columns[name] for name in ("strength", "strength_delta", "number", "seal")}
        mine = _BUDGETS.c.name == account.name
        # Booking roles have the right to update these columns only.
        if not self._db.execute(_BUDGETS.update().where(mine).values(sums)).rowcount:
            self._db.execute(_BUDGETS.insert().values(columns))

    def close(self, *, start: bool = False) -> None:
        """Update the head to the last row; ``start`` for a new ledger."""
        head = {"number": self.number, "hash": self.hash, **({"start": self.number} if start else {})}
        self._db.execute(_HEAD.update().values(head))

    def _rows(self, query: Any) -> list[Row]:
        return [Row(*row) for row in self._db.execute(query)]

    def _hash(self, number: int) -> str:
        found = self._db.execute(sql.select(_TRAIL.c.hash).where(_TRAIL.c.number == number)).scalar()
        return "" if found is None else str(found)

    def _check_file(self, writes: bool) -> None:
        """Compare the ledger with its head file; for a new ledger, a writer creates the head file.

        Raises:
            LedgerCorruptError: the row recorded in the head file is missing or different.
        """
        file = self.store.head
        if file is None:
            return
        try:
            remembered = file.read()
        except OSError as error:
            raise LedgerUnavailableError(f"{file.path} cannot be read: {error.strerror}") from error
        except (TypeError, ValueError, KeyError, RecursionError):
            raise self.store.corrupt(f"its head {file.path.name} is damaged") from None
        if remembered is None:
            if self.number != self.start:
                raise self.store.corrupt(f"its head {file.path.name} is gone; the two belong together")
            if writes:
                file.write(self.number, self.hash)
        elif remembered[0] > self.number:
            raise self.store.corrupt("rows are gone: it has fewer than its head says, as an older copy has")
        elif self._hash(remembered[0]) != remembered[1]:
            raise self.store.corrupt("it was edited, or is another ledger: its head does not fit")


class Examined(NamedTuple):
    """A snapshot of a ledger: its trail, its accounts, and descriptions of their faults."""

    rows: list[Row]
    accounts: list[Account]
    faults: list[str]


@dataclass(frozen=True)
class Store:
    """A database with a ledger. The object holds only text, so it can be copied and pickled."""

    address: Address

    def __str__(self) -> str:
        return str(replace(self.address, names=()))

    @property
    def head(self) -> HeadFile | None:
        """The head file of a ledger in a file; None for a server."""
        return HeadFile.beside(self.address.place) if self.address.is_file else None

    @contextmanager
    def reading(self) -> Iterator[Book]:
        """Open a read-only snapshot, without locks and without the right to write."""
        with self._transaction(reads=True) as db:
            yield Book(self, db, writes=False)

    @contextmanager
    def settled(self) -> Iterator[Book]:
        """Open the ledger under the write lock, after bookings in progress have ended; writes nothing."""
        with self._transaction() as db:
            yield Book(self, db)

    @contextmanager
    def booking(self) -> Iterator[Book]:
        """Open the ledger for a booking: the writes of the block are committed atomically."""
        with self._transaction() as db:
            book = Book(self, db)
            yield book
            book.close()
        self._write_head()

    @contextmanager
    def making(self) -> Iterator[Book]:
        """Begin a ``booking``, in a new ledger if there is none.

        Raises:
            LedgerError: the tables in a server are owned by another role.
        """
        with self._transaction() as db:
            if not self.address.is_file:  # if two clients create the tables, the second finds them
                db.execute(sql.select(sql.func.pg_advisory_xact_lock(_MAKING)))
            made = sql.inspect(db).has_table(_HEAD.name)
            if not made:
                _META.create_all(db)
                db.execute(_HEAD.insert().values(one=1, format=_FORMAT, start=0, number=0, hash=""))
            self._protect(db)
            book = Book(self, db) if made else _NewBook(self, db)
            yield book
            book.close(start=not made)
        self._write_head()

    def make_room(self) -> None:
        """Create an empty file for a new ledger in a file; leave an existing ledger unchanged.

        Raises:
            LedgerError: another file exists, or none can be created.
        """
        if self.head is None:
            return
        path = Path(self.address.place)
        try:
            if path.exists() and self._size():
                with path.open("rb") as file:
                    if not file.read(16).startswith(SQLITE) or not self.holds_a_ledger():
                        raise LedgerError(f"{self} exists already, and is no ledger of this version")
                return
            if self.head.path.exists():
                raise LedgerError(
                    f"{self.head.path} remembers a ledger that is gone from there: put it back, or remove "
                    "that file too if a new budget is meant"
                )
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise LedgerError(f"cannot create a ledger at {self}: {error.strerror}") from error

    def holds_a_ledger(self) -> bool:
        """Return whether the database has the tables of a ledger."""
        if self.address.is_file and not self._size():
            return False  # a transaction would create a database in it
        with self._transaction(reads=True) as db:
            return bool(sql.inspect(db).has_table(_HEAD.name))

    def examined(self) -> Examined:
        """Read a snapshot of the ledger and describe all its faults."""
        accounts: list[Account] = []
        found: list[str] = []
        with self._transaction(reads=True) as db:
            rows = [Row(*row) for row in db.execute(_TRAIL.select().order_by(_TRAIL.c.number))]
            try:
                accounts = Book(self, db, writes=False).accounts()
            except LedgerCorruptError as error:
                found = [error.what]
        # Nobody waits while hashes are computed: the transaction has ended.
        found = [*broken(rows), *found]
        return Examined(rows, accounts, found or list(miscounted(rows, accounts)))

    def verified(self) -> Examined:
        """Read a snapshot of the ledger and verify it.

        Raises:
            LedgerCorruptError: the ledger has a fault.
        """
        examined = self.examined()
        if examined.faults:
            raise self.corrupt(examined.faults[0])
        return examined

    def require_owner(self) -> None:
        """Raise LedgerError if the tables are in a server and owned by another role."""
        if not self.address.is_file:
            with self._transaction(reads=True) as db:
                self._require_owner(db)

    def who(self, db: Connection) -> str:
        """Return the booking user: the role in a server, the user of the operating system, the machine."""
        with contextlib.suppress(Exception):  # no user name, on some systems
            person = f"{_user()}@{socket.gethostname()}"
            if not self.address.is_file:
                person = f"{db.execute(sql.text('SELECT session_user')).scalar()}, {person}"
            return _plain(person)
        return ""

    def corrupt(self, what: str) -> LedgerCorruptError:
        """Return the error for a ledger that failed verification."""
        return LedgerCorruptError(
            f"{self}: {what}. No further spending is allowed. To do: `privopt budget verify` lists what is "
            "wrong; count every doubtful reservation as spent",
            what,
        )

    def _require_owner(self, db: Connection) -> None:
        query = (
            "SELECT pg_get_userbyid(relowner), pg_has_role(relowner, 'USAGE') FROM pg_class "
            "WHERE oid = CAST('privopt_trail' AS regclass)"
        )
        owner, mine = db.execute(sql.text(query)).one()
        if not mine:
            raise LedgerError(
                f"{self}: only {_plain(owner)!r}, the role that owns its tables, may create budgets and move "
                "the ledger. Other roles may book releases and read it"
            )

    def _protect(self, db: Connection) -> None:
        """Give a new ledger, or one of an earlier version, the row policies that protect the totals."""
        if not self.address.is_file:
            self._require_owner(db)
            for statement in _POLICIES:
                db.exec_driver_sql(statement)
        _CREATED.create(db, checkfirst=True)

    def _write_head(self) -> None:
        """Write the head file, under the lock, so that it never goes back to an earlier row."""
        if (file := self.head) is not None:
            with self._transaction() as db:
                number, digest = db.execute(sql.select(_HEAD.c.number, _HEAD.c.hash)).one()
                file.write(number, digest)

    @contextmanager
    def _transaction(self, *, reads: bool = False) -> Iterator[Connection]:
        before = self._identity()
        try:
            with (
                no_fork() if self.address.is_file else contextlib.nullcontext(),
                engine(self.address.place, reads=reads).begin() as db,
            ):
                yield db
        except SQLAlchemyError as error:
            raise self._failed(error) from None
        if self._identity() != before:
            raise LedgerError(f"{self} was replaced by another file meanwhile; nothing was run")

    def _size(self) -> int:
        return os.stat(self.address.place).st_size

    def _identity(self) -> tuple[int, int] | None:
        """Return the identity of the file itself, which its name may no longer refer to."""
        if not self.address.is_file:
            return None
        try:
            status = os.stat(self.address.place)
        except OSError as error:
            raise LedgerError(f"cannot open the ledger {self}: {error.strerror}") from error
        return status.st_dev, status.st_ino

    def _failed(self, error: SQLAlchemyError) -> LedgerError:
        """Return the error of a driver in one line, without the secrets of a URL."""
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        name = getattr(cause, "sqlite_errorname", "")
        if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
            return self.corrupt("the file is damaged, or no database")
        said = " ".join(str(cause).split())[:300]
        if not self.address.is_file:
            for secret in self.address.secrets:
                said = said.replace(secret, "***")
        return LedgerUnavailableError(
            f"the ledger {self} cannot be used: {said} ({type(cause).__name__}). What was reserved before "
            "counts as spent"
        )


class _NewBook(Book):
    """A ledger that has no row yet."""

    def __init__(self, store: Store, db: Connection) -> None:
        self.store, self._db = store, db
        self.start, self.number, self.hash, self.moved_to = 0, 0, "", ""


def _plain(text: str) -> str:
    """Return text that every database stores unchanged."""
    return text.encode("ascii", "backslashreplace").decode().replace("\0", "\\0")


@lru_cache(maxsize=1)
def _user() -> str:
    return getpass.getuser()
