"""Places of ledgers under test: a file, and a server's database."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(params=["file", "server"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An address without a ledger yet."""
    if request.param == "file":
        return str(tmp_path / "ledger.db")
    url: str = request.getfixturevalue("empty_database")
    return url
