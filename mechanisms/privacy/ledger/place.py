"""Addresses of ledgers, database connections, and the head file of a ledger in a file."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import sqlite3
import time
import uuid
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sql
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from privopt.mechanisms.errors import LedgerError
from privopt.problems.arguments import as_path, told
from privopt.problems.errors import InvalidInputError, InvalidTypeError

_WAIT = 60  # seconds to wait for other bookings
_IDLE = 10  # seconds until the server ends an idle transaction, for which others wait
_NAME = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_NO_URL = (
    "that is not the URL of a database, postgresql://USER:PASSWORD@HOST:PORT/DATABASE; a / : @ # or % of a "
    "password is written as %2F %3A %40 %23 %25"
)
_IDENTIFYING = {"host", "hostaddr", "port", "dbname", "service", "user"}  # options that identify the database
_SECRET = ("password", "sslpassword")  # options with passwords
# Doubles are read exactly, however a server or a role is configured.
_EXACT = "SET LOCAL extra_float_digits = 3"
# TCP keepalives of libpq, in seconds, which detect a lost server.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
# SQLAlchemy's compiled statements for SQLite, shared by all files: compiling them for each new file would
# take a third of the time of a booking.
_COMPILED: dict[Any, Any] = {}
_SERVERS = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True)
class Address:
    """Address of a ledger and of budgets in it: ``PLACE`` or ``PLACE#NAME,NAME``.

    Passwords in the URL are neither printed nor pickled; after unpickling, ``~/.pgpass`` or ``PGPASSWORD``
    provides them.

    Attributes:
        place: a path, or a URL of a PostgreSQL database.
        names: names of budgets, "DATA/TEAM/ANALYST"; every prefix before a / is addressed as well.
    """

    place: str
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: object) -> Address:
        """Parse an address from text or a path; an ``Address`` is returned unchanged.

        Raises:
            InvalidTypeError: no text.
            InvalidInputError: a URL of another kind, or invalid names. Passwords are not repeated.
        """
        if isinstance(text, cls):
            return text
        try:
            path = as_path(text, "a ledger")
        except InvalidTypeError:
            raise InvalidTypeError(
                "a ledger is named by a path, or the URL of a PostgreSQL database; got "
                f"{told(text) if not isinstance(text, str) else 'text that is neither'}"
            ) from None
        place, mark, names = str(text if isinstance(text, str) else path).partition("#")
        chosen = tuple(names.split(",")) if mark else ()
        if not all(len(name) <= 200 and _NAME.fullmatch(name) for name in chosen):
            raise InvalidInputError(
                "after the # of a ledger's address come names of budgets, with commas between them: "
                "letters, digits and . _ - in parts with / between them, as in ledger.db#adult/cardiology,ana"
            )
        kind, colon, rest = place.partition("://")
        if not colon:
            return cls(place, chosen)
        if kind == "sqlite" and rest.startswith("/") and len(rest) > 1:
            return cls(rest[1:], chosen)
        if kind not in _SERVERS:
            raise InvalidInputError(
                "a ledger is an SQLite file, named by its path, or a PostgreSQL database, named by its URL "
                "postgresql://USER@HOST/DATABASE; this is neither"
            )
        if rest.count("@") > 1:  # part of a password would be taken for the host
            raise InvalidInputError(_NO_URL)
        return cls(f"postgresql+psycopg://{rest}", chosen)

    @property
    def is_file(self) -> bool:
        """Whether the ledger is a file."""
        return "://" not in self.place

    @property
    def secrets(self) -> tuple[str, ...]:
        """The passwords in its URL."""
        if self.is_file:
            return ()
        try:
            url = sql.make_url(self.place)
        except (ArgumentError, ValueError):
            return (self.place,)
        return tuple(str(s) for s in (url.password, *map(url.query.get, _SECRET)) if s)

    @property
    def applying(self) -> tuple[str, ...]:
        """The names of all addressed budgets, outer budgets first."""
        parts = [name.split("/") for name in self.names]
        return tuple(dict.fromkeys("/".join(p[:k]) for p in parts for k in range(1, len(p) + 1)))

    @property
    def location(self) -> str:
        """The identity of the place, without passwords.

        Raises:
            InvalidInputError: not a URL of a database.
        """
        if self.is_file:
            return str(Path(self.place).resolve())
        try:
            url = sql.make_url(self.place)
        except (ArgumentError, ValueError):
            raise InvalidInputError(_NO_URL) from None
        identifying = {key: url.query[key] for key in sorted(_IDENTIFYING & set(url.query))}
        return str(
            sql.URL.create("postgresql", url.username, None, url.host, url.port, url.database, identifying)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """Reduce for pickling, without passwords.

        Raises:
            InvalidInputError: not a URL of a database, so that its secrets are unknown.
        """
        if not self.secrets:
            return type(self), (self.place, self.names)
        try:
            url = sql.make_url(self.place)._replace(password=None).difference_update_query(_SECRET)
        except (ArgumentError, ValueError):
            raise InvalidInputError(_NO_URL) from None
        return type(self), (url.render_as_string(hide_password=False), self.names)

    def __deepcopy__(self, memo: Any) -> Self:
        """Return the immutable object itself; copies within this process keep the password."""
        return self

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __str__(self) -> str:
        """Return the address for messages: without password and options."""
        place = self.place
        if not self.is_file:
            try:
                url = sql.make_url(place)
                port = "" if url.port is None else f":{url.port}"
                user = "" if url.username is None else f"{url.username}@"
                place = f"postgresql://{user}{url.host or ''}{port}/{url.database or ''}"
            except (ArgumentError, ValueError):
                place = "postgresql://..."
        return f"{place}#{','.join(self.names)}" if self.names else place


@dataclass(frozen=True)
class HeadFile:
    """The head file beside a ledger file, which records the last row of the trail."""

    path: Path

    @classmethod
    def beside(cls, place: str) -> HeadFile:
        """Return the head file next to the ledger file, after resolving links."""
        real = Path(place).resolve()
        return cls(real.with_name(f"{real.name}.head"))

    def read(self) -> tuple[int, str] | None:
        """Return number and hash of the last row; None if the file is missing, or of an older version."""
        try:
            record = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        if record["privopt_ledger_head"] == 1:  # head of the ledger of an older version
            return None
        number, digest = record["number"], record["hash"]
        if type(number) is not int or not isinstance(digest, str) or number < 1:
            raise ValueError("no number and hash of a row")
        return number, digest

    def write(self, number: int, digest: str) -> None:
        """Replace the file atomically.

        Raises:
            LedgerError: the file cannot be written.
        """
        record = {"privopt_ledger_head": 2, "number": number, "hash": digest}
        try:
            write_aside(self.path, (json.dumps(record) + "\n").encode(), like=self.path.with_suffix(""))
        except OSError as error:
            raise LedgerError(
                f"{self.path} could not be written: {error.strerror}. Nothing was run; an entry that "
                "the ledger already holds counts as spent"
            ) from error


def write_aside(path: Path, content: bytes, *, like: Path) -> None:
    """Replace a file atomically and durably, with the access rights of the file ``like``."""
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.new")
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        share(aside, like)
        _put_in_place(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def share(path: Path, like: Path) -> None:
    """Copy the mode of another file, and its group and owner where permitted."""
    status = like.stat()
    shutil.copymode(like, path)
    if hasattr(os, "chown"):  # on Windows the folder determines access
        for owner in ((-1, status.st_gid), (status.st_uid, -1)):
            with contextlib.suppress(PermissionError):
                os.chown(path, *owner)


def _put_in_place(aside: Path, path: Path) -> None:
    """Rename with retries: on Windows a concurrent reader, such as a virus scanner, blocks a rename."""
    for pause in (0.01, 0.1, 0.4):
        with contextlib.suppress(PermissionError):
            return os.replace(aside, path)
        time.sleep(pause)
    return os.replace(aside, path)


@lru_cache(maxsize=32)
def engine(place: str, *, reads: bool = False) -> Engine:
    """Create the engine of a ledger: write transactions are serialised, and commits are durable.

    A transaction that only ``reads`` sees a snapshot, takes no lock and needs no right to write.
    """
    if "://" not in place:
        shared = _sqlite()
        creator: Any = partial(_open_file, place)  # a type that SQLAlchemy declares too narrowly
        pool = NullPool(creator, dialect=shared.dialect)
        options = {"compiled_cache": _COMPILED}
        made = Engine(pool, shared.dialect, shared.url, execution_options=options)
        sql.event.listen(made, "begin", _begin_reading_file if reads else _begin_in_file)
        return made
    try:
        made = sql.create_engine(
            place,
            poolclass=NullPool,
            # After waiting for the lock on the head, a writer reads the current rows.
            isolation_level="REPEATABLE READ" if reads else "READ COMMITTED",
            connect_args={"connect_timeout": 10, "client_encoding": "utf8", **_KEEPALIVE},
            use_native_hstore=False,  # avoids a query of types at every connection
        )
    except ImportError:
        raise LedgerError(
            "a ledger in PostgreSQL needs the driver psycopg: pip install 'privopt[postgres]'"
        ) from None
    except (SQLAlchemyError, ValueError):
        raise InvalidInputError(_NO_URL) from None
    sql.event.listen(made, "begin", _begin_reading_server if reads else _begin_on_server)
    sql.event.listen(made, "do_connect", _connected)
    return made


@cache
def _sqlite() -> Engine:
    """Create the engine whose dialect the engines of all files share, because statements are compiled for a
    dialect.
    """
    made = sql.create_engine("sqlite://", poolclass=NullPool)  # a fork must not inherit an open connection
    with made.connect():  # the dialect learns the version of SQLite from its first connection
        return made


def _connected(dialect: Any, _: Any, words: Any, more: Any) -> Any:
    """Connect, with retries while the server has no free connection."""
    end = time.monotonic() + _WAIT
    while True:
        try:
            return dialect.connect(*words, **more)
        except dialect.dbapi.OperationalError as error:
            crowded = "too many" in str(error) or "connection slots" in str(error)
            if not crowded or time.monotonic() > end:
                raise
        time.sleep(random.uniform(0.05, 0.3))


def _begin_in_file(db: Connection) -> None:
    """Lock the file at once: sqlite3 would begin a transaction only at the first change, after reads that may
    be stale.

    The retry loop is our own, as SQLite's busy handler retries at growing intervals, which is unfair to
    clients that have waited long.
    """
    end = time.monotonic() + _WAIT
    while True:
        try:
            db.exec_driver_sql("BEGIN IMMEDIATE")
        except OperationalError as error:
            if "locked" not in str(error.orig) or time.monotonic() > end:
                raise
            time.sleep(random.uniform(0.002, 0.02))
        else:
            db.exec_driver_sql(f"PRAGMA busy_timeout = {int(1000 * _WAIT)}")  # for readers in other processes
            return


def _begin_reading_file(db: Connection) -> None:
    db.exec_driver_sql(f"PRAGMA busy_timeout = {int(1000 * _WAIT)}")
    db.exec_driver_sql("BEGIN")


def _begin_on_server(db: Connection) -> None:
    """Limit how long this client waits for others, and how long others wait for it, as it may stop at any
    moment.
    """
    db.exec_driver_sql(_EXACT)
    db.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT}s'")
    db.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE}s'")
    # Override servers configured with asynchronous commits, which a crash may lose.
    db.exec_driver_sql(
        "SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )


def _begin_reading_server(db: Connection) -> None:
    db.exec_driver_sql("SET TRANSACTION READ ONLY")
    db.exec_driver_sql(_EXACT)
    db.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE}s'")


def _open_file(place: str) -> sqlite3.Connection:
    """Connect to an existing file; its commits are durable, and so is the directory entry of its journal."""
    uri = f"{Path(place).absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA busy_timeout = 0")
    except sqlite3.Error:
        connection.close()  # Windows does not move open files
        raise
    return connection
