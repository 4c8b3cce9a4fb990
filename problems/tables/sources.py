"""Sources of tables for engines: patterns of Parquet files, and URLs of databases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from privopt.problems.errors import InvalidInputError
from privopt.problems.plugins import entries
from privopt.problems.tables.frames import check_distinct
from privopt.problems.tables.parquet_files import by_their_own_types

# DuckDB's temporary files are readable by others, so a computation that does not fit in memory is refused.
_NO_FILES = {"temp_directory": ""}
_INSTALL = "pip install 'privopt[engines]'"
_NEEDED = f"tables in engines need Ibis and DuckDB: {_INSTALL}"
_DENIED = "42501"  # PostgreSQL's code for insufficient privilege


def is_engine_table(table: object) -> bool:
    """Return whether a table is an Ibis table; Ibis is not imported."""
    return type(table).__module__.partition(".")[0] == "ibis"


def is_type_of_null(kind: Any) -> bool:
    """Return whether an Ibis type holds NULL alone; Ibis knows DuckDB's type of NULL by its name only."""
    return kind.is_null() or (kind.is_unknown() and str(getattr(kind, "raw_type", "")) == '"NULL"')


def is_engine_address(data: str) -> bool:
    """Return whether data is read by an engine: a URL, or a pattern of Parquet files."""
    return "://" in data or (any(mark in data for mark in "*?[") and not Path(data).is_file())


def open_table(data: str, name: str | None = None) -> Any:
    """Open an Ibis table: of Parquet files by a pattern, or the table ``name`` of a database.

    Args:
        data: ``folder/*.parquet``, or a URL that Ibis knows: duckdb://PATH, sqlite://PATH,
            postgresql://USER@HOST/DATABASE.
        name: the table of a database; SCHEMA.TABLE or CATALOG.SCHEMA.TABLE where that is needed.

    Raises:
        InvalidInputError: Ibis or a driver is not installed, no such file or table, or a database that does
            not answer. URLs, which can hold passwords, are not repeated.
    """
    ibis = ibis_library()
    if "://" not in data:
        if name is not None:
            raise InvalidInputError(
                "--table names a table of a database, and a file holds one table: leave --table out"
            )
        return _parquet(ibis, data)
    kind, _, path = data.partition("://")
    if name is None:
        raise InvalidInputError(f"a table of a {kind} database needs its name: --table")
    if kind in ("duckdb", "sqlite") and not Path(path).is_file():
        raise InvalidInputError(f"{path}: no such file")
    *place, table = name.split(".")
    if len(place) > 2 or not all((*place, table)):
        raise InvalidInputError(f"--table {name!r}: TABLE, SCHEMA.TABLE or CATALOG.SCHEMA.TABLE is needed")
    connection = _connected(ibis, data, kind)
    if len(place) == 2 and place[0] != (own := _catalog(connection)):
        raise InvalidInputError(f"--table {name!r}: the database at that address is called {own!r}")
    try:
        return connection.table(table, database=place[-1] if place else None)
    except Exception as error:  # every driver has its own error types
        raise InvalidInputError(_without_table(error, kind, name)) from None


def _connected(ibis: Any, data: str, kind: str) -> Any:
    options = {"read_only": True, **_NO_FILES} if kind == "duckdb" else {}
    try:
        return ibis.connect(data, **options)
    except Exception as error:
        raise InvalidInputError(_without_connection(ibis, error, kind)) from None


def _catalog(connection: Any) -> str | None:
    """Return the name of the connected database; None for SQLite."""
    return getattr(connection, "current_catalog", None)


def _without_connection(ibis: Any, error: Exception, kind: str) -> str:
    """Explain a failed connection from the driver's message, without quoting it."""
    text = str(error).lower()
    if kind not in ("postgres", "postgresql") and not hasattr(ibis.backends, kind) and kind not in _engines():
        return f"no engine is called {kind!r}; known are {', '.join(_engines())}"
    if isinstance(error, ImportError | AttributeError):  # AttributeError: Ibis cannot import its backend
        return f"the driver for {kind} is not installed: {_INSTALL}, or pip install 'ibis-framework[{kind}]'"
    if "password" in text or "authentication" in text or ("role" in text and "does not exist" in text):
        return f"the {kind} server refused the user or the password"
    if "does not exist" in text:
        return f"the {kind} server has no database of that name"
    if kind in ("duckdb", "sqlite"):
        return (
            f"the {kind} file cannot be opened ({type(error).__name__}): another process may be writing to "
            "it, its permissions may not allow it, or another version or program made it"
        )
    return (
        f"the {kind} server does not answer ({type(error).__name__}): is it running, and the host and the "
        "port of the address right?"
    )


def _engines() -> list[str]:
    """Return the names of Ibis backends."""
    return sorted({entry.name for entry in entries("ibis.backends")} | {"postgresql"})


def _without_table(error: Exception, kind: str, name: str) -> str:
    if is_denied(error):
        return (
            f"permission denied for the table {name!r} of the {kind} database: it takes the right to SELECT"
        )
    found = type(error).__name__
    if found in ("TableNotFound", "CatalogException", "UndefinedTable", "OperationalError"):
        return f"the {kind} database has no table {name!r}: names are compared with upper and lower case"
    return f"the table {name!r} of the {kind} database cannot be opened ({found})"


def is_denied(error: BaseException | None) -> bool:
    """Return whether a database denied a privilege, in this error or in one that caused it."""
    while error is not None:
        if getattr(error, "sqlstate", None) == _DENIED or isinstance(error, PermissionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def check_encoding(table: Any) -> None:
    """Raise InvalidInputError for a table of a SQLite database in UTF-16; no record is read.

    Text is compared and ordered by its bytes, and in every other engine these are UTF-8.
    """
    backend = table.get_backend()
    if backend.name != "sqlite":
        return
    (found,) = backend.con.execute("PRAGMA encoding").fetchone()
    if found != "UTF-8":
        raise InvalidInputError(
            f"the SQLite database holds text as {found}, and UTF-8 is needed: load what `sqlite3 FILE .dump` "
            "writes into a new file"
        )


def decoded(text: bytes) -> str:
    """Decode UTF-8; other bytes become lone surrogates, so that no text is an error."""
    return bytes(text).decode("utf-8", "surrogateescape")


@contextmanager
def unquoted() -> Iterator[None]:
    """Replace errors of an engine, which can quote cells, by InvalidInputError, which does not."""
    try:
        yield
    except InvalidInputError:  # privopt's own, which quotes none
        raise
    except Exception as error:  # every driver has its own error types
        raise InvalidInputError(_without_answer(error)) from None


def _without_answer(error: Exception) -> str:
    found = type(error).__name__
    if is_denied(error):
        return "permission denied: the engine's user needs the right to SELECT from the table"
    if found in ("OperationalError", "AdminShutdown", "ConnectionError") and not hasattr(
        error, "sqlite_errorcode"
    ):
        return f"the connection to the engine was lost, or it gave up ({found}): is the server running?"
    return (
        f"the engine could not read the table ({found}): does every value fit the type of its column, and "
        "the grouping into memory? The expressions of a view can fail as well"
    )


def ibis_library() -> Any:
    """Import Ibis, on first use.

    Raises:
        InvalidInputError: it is not installed.
    """
    try:
        import ibis
    except ImportError:
        raise InvalidInputError(_NEEDED) from None
    return ibis


def _parquet(ibis: Any, data: str) -> Any:
    if not data.lower().endswith(".parquet"):
        raise InvalidInputError(f"{data}: patterns of files end in .parquet")
    if find_spec("duckdb") is None:
        raise InvalidInputError(_NEEDED)
    try:
        # Types are found from all files: by the types of the first alone, 0.9 in another file could become 1,
        # and "7" a number.
        options = {"union_by_name": True, "hive_partitioning": False}
        connection = ibis.duckdb.connect(**_NO_FILES)
        table = connection.read_parquet(data, **options)
    except Exception as error:
        raise InvalidInputError(
            f"{data}: no Parquet files that can be read together ({type(error).__name__})"
        ) from None
    if any(name.removesuffix("_1") in table.columns for name in table.columns if name.endswith("_1")):
        import pyarrow.parquet  # where it is used: estimators import this module, and need no files

        for file in glob(data, recursive=True):  # DuckDB renames the second of two columns of one name
            check_distinct(file, pyarrow.parquet.read_schema(file).names)
    return by_their_own_types(connection, table, data)
