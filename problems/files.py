"""Output files: checked before any budget is spent, and written atomically."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from privopt.problems.arguments import as_path
from privopt.problems.errors import InvalidInputError


def check_writable(path: Path | None, option: str) -> None:
    """Check that an output file can be written, before any privacy budget is spent.

    Raises:
        InvalidInputError: the path is a folder, or its folder does not exist or is not writable.
    """
    if path is None:
        return
    path = file_behind(path, option)
    if not path.parent.is_dir():
        raise InvalidInputError(f"{option} {path}: its folder does not exist. Nothing was run")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        reason = (error.strerror or "it cannot be written").lower()
        raise InvalidInputError(f"{option} {path}: its folder: {reason}. Nothing was run") from error


def file_behind(path: Path, what: str) -> Path:
    """Resolve symbolic links, and require that the result is absent or a regular file.

    Raises:
        InvalidInputError: a folder, a device or a pipe, which must not be replaced by a file.
    """
    real = path.resolve()
    if real.is_dir():
        raise InvalidInputError(f"{what} {path}: that is a folder; name a file")
    if real.exists() and not real.is_file():
        raise InvalidInputError(f"{what} {path}: that is no regular file; name one")
    return real


def write_atomically(path: str | Path, text: str | Iterable[str]) -> None:
    """Write a whole file or nothing: an interrupted run leaves no half-written file behind.

    Args:
        path: the file; replaced if it exists.
        text: the contents, as one string or in parts.

    Raises:
        InvalidInputError: the path is neither free nor a regular file (or a link to one).
        OSError: the file cannot be written.
    """
    path = file_behind(as_path(path, "a file"), "file")
    if not path.parent.is_dir():
        raise InvalidInputError(f"{path}: its folder does not exist")
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
