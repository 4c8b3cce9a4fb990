"""Where a ledger is: its address, how to connect, and the file beside a file."""

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
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Self

import sqlalchemy as sql
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import ArgumentError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from privopt.mechanisms.errors import LedgerError
from privopt.problems.arguments import as_path, told
from privopt.problems.errors import InvalidInputError, InvalidTypeError

_WAIT = 60  # seconds for others who book
_IDLE = 10  # seconds without a word after which a client in a transaction is cut off: others wait for it
_NAME = re.compile(r"[A-Za-z0-9._-]+(/[A-Za-z0-9._-]+)*")
_NO_URL = (
    "that is no URL of a database, postgresql://USER:PASSWORD@HOST:PORT/DATABASE; a / : @ # or % of a "
    "password is written as %2F %3A %40 %23 %25"
)
_TELLING = {"host", "hostaddr", "port", "dbname", "service", "user"}  # options that say which database
_SECRET = ("password", "sslpassword")  # options that nobody else may see
# A server that is gone without a word is noticed: libpq asks after so many seconds of silence.
_KEEPALIVE = {"keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
_SERVERS = ("postgresql", "postgres", "postgresql+psycopg")


@dataclass(frozen=True)
class Address:
    """Where a ledger is, and which of its budgets are meant: ``PLACE`` or ``PLACE#NAME,NAME``.

    Nothing that is printed holds a password of its URL, and pickles leave it out: whoever reads them asks
    ``~/.pgpass`` or ``PGPASSWORD``.

    Attributes:
        place: a path, or a URL of a PostgreSQL database.
        names: of budgets, "DATA/TEAM/ANALYST"; what stands before a / is meant as well.
    """

    place: str
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: object) -> Address:
        """Read an address, text or a path; one that was read already stays as it is.

        Raises:
            InvalidTypeError: no text.
            InvalidInputError: a URL of another kind, or names that are none. Passwords are not repeated.
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
                "behind the # of a ledger's address stand names of budgets, with commas between them: "
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
        if rest.count("@") > 1:  # whatever part of a password would pass for a host
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
        """All budgets that are meant, those that contain others first."""
        parts = [name.split("/") for name in self.names]
        return tuple(dict.fromkeys("/".join(p[:k]) for p in parts for k in range(1, len(p) + 1)))

    @property
    def location(self) -> str:
        """What tells the place from others; without what is secret.

        Raises:
            InvalidInputError: no URL of a database.
        """
        if self.is_file:
            return str(Path(self.place).resolve())
        try:
            url = sql.make_url(self.place)
        except (ArgumentError, ValueError):
            raise InvalidInputError(_NO_URL) from None
        telling = {key: url.query[key] for key in sorted(_TELLING & set(url.query))}
        return str(
            sql.URL.create("postgresql", url.username, None, url.host, url.port, url.database, telling)
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """What pickles hold: all but passwords.

        Raises:
            InvalidInputError: no URL of a database, of which nobody knows what is secret.
        """
        if not self.secrets:
            return type(self), (self.place, self.names)
        try:
            url = sql.make_url(self.place)._replace(password=None).difference_update_query(_SECRET)
        except (ArgumentError, ValueError):
            raise InvalidInputError(_NO_URL) from None
        return type(self), (url.render_as_string(hide_password=False), self.names)

    def __deepcopy__(self, memo: Any) -> Self:
        """Itself: nothing in it changes. Copies in this process keep the password."""
        return self

    def __repr__(self) -> str:
        return f"Address({str(self)!r})"

    def __str__(self) -> str:
        """For messages: without password and options."""
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
    """The file beside a ledger that remembers which row was the last."""

    path: Path

    @classmethod
    def beside(cls, place: str) -> HeadFile:
        """Beside the ledger itself, whatever link leads to it."""
        real = Path(place).resolve()
        return cls(real.with_name(f"{real.name}.head"))

    def read(self) -> tuple[int, str] | None:
        """Number and hash of the row; None if there is no such file, or only that of an older version."""
        try:
            record = json.loads(self.path.read_bytes())
        except FileNotFoundError:
            return None
        if record["privopt_ledger_head"] == 1:  # of the ledger that was taken over
            return None
        number, digest = record["number"], record["hash"]
        if type(number) is not int or not isinstance(digest, str) or number < 1:
            raise ValueError("no number and hash of a row")
        return number, digest

    def write(self, number: int, digest: str) -> None:
        """Replace it, all of it or nothing.

        Raises:
            LedgerError: it cannot be written.
        """
        record = {"privopt_ledger_head": 2, "number": number, "hash": digest}
        try:
            write_aside(self.path, (json.dumps(record) + "\n").encode(), like=self.path.with_suffix(""))
        except OSError as error:
            raise LedgerError(
                f"{self.path} could not be written: {error.strerror}. Nothing was run; an entry that "
                "stands in the ledger counts"
            ) from error


def write_aside(path: Path, content: bytes, *, like: Path) -> None:
    """Replace a file by a new one that is on disk, for those who may use ``like``: all of it, or nothing."""
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
    """Give a file the mode of another, and its group and owner where one may: who used it goes on."""
    status = like.stat()
    shutil.copymode(like, path)
    if hasattr(os, "chown"):  # on Windows the folder says who may
        for owner in ((-1, status.st_gid), (status.st_uid, -1)):
            with contextlib.suppress(PermissionError):
                os.chown(path, *owner)


def _put_in_place(aside: Path, path: Path) -> None:
    """Rename; on Windows whoever reads the file at that moment, a scanner for viruses say, prevents it."""
    for pause in (0.01, 0.1, 0.4):
        with contextlib.suppress(PermissionError):
            return os.replace(aside, path)
        time.sleep(pause)
    return os.replace(aside, path)


@lru_cache(maxsize=32)
def engine(place: str, *, reads: bool = False) -> Engine:
    """How to connect. One transaction writes at a time, and what is committed is on disk.

    One that only ``reads`` sees the ledger as it was at one moment, locks nobody out, and needs no right to
    write.
    """
    if "://" not in place:
        made = sql.create_engine("sqlite://", creator=partial(_open_file, place), poolclass=NullPool)
        sql.event.listen(made, "begin", _begin_reading_file if reads else _begin_in_file)
        return made
    try:
        made = sql.create_engine(
            place,
            poolclass=NullPool,
            # Whoever waited for the head, to write, reads what is there now.
            isolation_level="REPEATABLE READ" if reads else "READ COMMITTED",
            connect_args={"connect_timeout": 10, **_KEEPALIVE},
            use_native_hstore=False,  # a type that would be looked up at every connection
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


def _connected(dialect: Any, _: Any, words: Any, more: Any) -> Any:
    """A connection; where a crowd has taken all that a server gives, wait for one."""
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
    """Lock the file, now: sqlite3 would begin at the first change, and what is read before be old by then.

    SQLite asks again ever more rarely, so that in a crowd whoever waits long waits longest.
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
            db.exec_driver_sql(f"PRAGMA busy_timeout = {int(1000 * _WAIT)}")  # for readers from elsewhere
            return


def _begin_reading_file(db: Connection) -> None:
    db.exec_driver_sql(f"PRAGMA busy_timeout = {int(1000 * _WAIT)}")
    db.exec_driver_sql("BEGIN")


def _begin_on_server(db: Connection) -> None:
    """Limit how long this client waits for others, and others for it: it may be stopped at any moment."""
    db.exec_driver_sql(f"SET LOCAL lock_timeout = '{_WAIT}s'")
    db.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE}s'")
    # A server may be told to lose the last transactions when its machine stops; not these.
    db.exec_driver_sql(
        "SELECT set_config('synchronous_commit', 'on', true) "
        "WHERE current_setting('synchronous_commit') = 'off'"
    )


def _begin_reading_server(db: Connection) -> None:
    db.exec_driver_sql("SET TRANSACTION READ ONLY")
    db.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{_IDLE}s'")


def _open_file(place: str) -> sqlite3.Connection:
    """A connection that makes no file, and whose commits are on disk, the name of the journal included."""
    uri = f"{Path(place).absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, timeout=_WAIT, isolation_level=None)
    try:
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA busy_timeout = 0")
    except sqlite3.Error:
        connection.close()  # Windows moves no file that somebody holds
        raise
    return connection
