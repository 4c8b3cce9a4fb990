"""Files that a command is to write."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from privopt.problems.files import check_writable

say = Console(stderr=True, emoji=False)


def check_files(outputs: dict[str, Path | None]) -> None:
    """Find out before anything is spent that a file cannot be written; say so if one is replaced."""
    for option, path in outputs.items():
        check_writable(path, option)
        if path is not None and path.exists():
            say.print(
                f"note: {option} {path}: the file exists, and is replaced", highlight=False, markup=False
            )
