"""Entry points: what other installed packages offer by name."""

from __future__ import annotations

from collections.abc import Container
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from privopt.problems.errors import PrivOptError


def offered(group: str, ours: Container[str]) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name. A name of ours stays ours."""
    return {entry.name: entry for entry in entry_points(group=group) if entry.name not in ours}


def provider(entry: EntryPoint) -> str:
    """Return the package behind an entry point, in words."""
    return f"the package {entry.dist.name!r}" if entry.dist else "another package"


def loaded(entry: EntryPoint, what: str, error: type[PrivOptError], *, make: bool = False) -> Any:
    """Import the object of an entry point, and call it to ``make`` one; ``error`` says what failed there."""
    try:
        found = entry.load()
        return found() if make else found
    except PrivOptError:
        raise
    except Exception as failure:  # whatever goes wrong over there
        raise error(
            f"{what} {entry.name!r} of {provider(entry)} cannot be {'made' if make else 'loaded'} "
            f"({type(failure).__name__}: {failure}). To do: install what it needs, or another release of it"
        ) from failure
