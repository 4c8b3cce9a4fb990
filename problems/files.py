"""Output files: checked before any budget is spent, and written atomically."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Self

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
    with ReservedFile(as_path(path, "a file"), "file") as file:
        file.write(text)


class ReservedFile:
    """A file to be written later: its disk space is reserved now; an existing file is kept until then.

    As a context manager it frees the space at the end of the block if nothing was written.

    Args:
        path: the file; replaced if it exists, when it is written.
        option: names the file in errors.
        room: bytes on the disk to reserve.
        mode: permissions of the file, to which the umask of the process is applied.

    Raises:
        InvalidInputError: the path is a folder, a device or a pipe, or its folder does not exist.
        OSError: the folder cannot be written to, or the disk is full.
    """

    def __init__(self, path: Path, option: str, room: int = 0, mode: int = 0o666) -> None:
        self.path = file_behind(path, option)
        if not self.path.parent.is_dir():
            raise InvalidInputError(f"{option} {path}: its folder does not exist")
        self._partial = self.path.with_name(f"{self.path.name}.{uuid.uuid4().hex}.partial")
        descriptor = os.open(self._partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        self._file = os.fdopen(descriptor, "w", encoding="utf-8")
        try:
            self._file.write("\0" * room)
            self._sync()
        except OSError:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, text: str | Iterable[str]) -> None:
        """Write the text, as one string or in parts; when this returns, the whole file is on the disk.

        Raises:
            OSError: the text cannot be written; an existing file is unchanged.
        """
        self._file.seek(0)
        self._file.writelines([text] if isinstance(text, str) else text)
        self._file.truncate()
        self._sync()
        self._file.close()
        self._partial.replace(self.path)
        _sync_folder(self.path.parent)

    def close(self) -> None:
        """Free the reserved space, if nothing was written."""
        with suppress(OSError):  # closing flushes the buffer, which fails on a full disk
            self._file.close()
        self._partial.unlink(missing_ok=True)

    def _sync(self) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the name of a new file survive a crash, on systems where folders can be opened."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
