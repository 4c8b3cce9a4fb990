"""Entry points: what other installed packages offer by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Container
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from privopt.problems.errors import PrivOptError


def offered(group: str, ours: Container[str]) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, except those whose name is among ``ours``."""
    return {entry.name: entry for entry in entries(group) if entry.name not in ours}


def entries(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group.

    The search reads the metadata of every installed package. It is repeated only when ``sys.path`` or a
    folder on it has changed. Installing a package changes a folder.
    """
    return _entries(group, tuple((folder, _changed(folder)) for folder in sys.path))


@lru_cache(maxsize=32)
def _entries(group: str, _path: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=group))


def _changed(folder: str) -> int:
    try:
        return os.stat(folder or ".").st_mtime_ns
    except OSError:
        return 0


def provider(entry: EntryPoint) -> str:
    """Return the package behind an entry point, in words."""
    return f"the package {entry.dist.name!r}" if entry.dist else "another package"


def loaded(entry: EntryPoint, what: str, error: type[PrivOptError], *, make: bool = False) -> Any:
    """Import the object of an entry point, and call it if ``make``; raise an ``error`` if that fails."""
    try:
        found = entry.load()
        return found() if make else found
    except PrivOptError:
        raise
    except Exception as failure:  # code of another package can fail in any way
        raise error(
            f"{what} {entry.name!r} of {provider(entry)} cannot be {'made' if make else 'loaded'} "
            f"({type(failure).__name__}: {failure}). To do: install what it needs, or another release of it"
        ) from failure
