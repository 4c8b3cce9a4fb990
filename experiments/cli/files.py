"""Output files of a command: checked before any budget is spent, and written before results are printed."""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from rich.console import Console

from privopt.experiments.cli.errors import InterruptedRunError, UnshownResultError
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import ReservedFile, check_writable

# Bytes of disk space reserved for a result before any budget is spent; a card of a thousand levels needs
# half.
_ROOM = 1 << 20
_KEPT = "privopt-kept-"
_PICTURES = (".svg", ".png", ".pdf")


class _Say(Console):
    """Console on standard error; a failing write never ends the run."""

    def print(self, *words: Any, **more: Any) -> None:
        with suppress(OSError):
            super().print(*words, **more)

    def on_broken_pipe(self) -> None:
        self.quiet = True


say = _Say(stderr=True, emoji=False)


def check_files(outputs: dict[str, Path | None]) -> None:
    """Check before any budget is spent that files can be written; note those that will be replaced."""
    for option, path in outputs.items():
        check_writable(path, option)
        if path is not None and path.exists():
            say.print(
                f"note: {option} {path}: the file exists, and is replaced", highlight=False, markup=False
            )


def check_picture(option: str, path: Path) -> None:
    """Check that the name of a file ends in the suffix of a kind of picture.

    Raises:
        InvalidInputError: another suffix.
    """
    if path.suffix.lower() not in _PICTURES:
        raise InvalidInputError(f"{option} {path}: its name must end in .svg, .png or .pdf")


def json_text(report: Any) -> str:
    """Return a report as the JSON text of a file."""
    return json.dumps(report, indent=2) + "\n"


class PaidFile:
    """A file for a result that costs budget; its disk space is reserved before any budget is spent.

    Without a path it is a temporary file, which is removed once the result has been printed.

    Raises:
        InvalidInputError: no disk space. Nothing was run.
    """

    def __init__(self, path: Path | None, option: str) -> None:
        check_files({option: path})
        self.is_temporary = path is None
        try:
            if path is None:
                self._file = ReservedFile(_temporary(), option, _ROOM, mode=0o600)
            else:
                self._file = ReservedFile(path, option, _ROOM)
        except OSError as error:
            reason = (error.strerror or "it cannot be written").lower()
            where = "a temporary file for the result" if path is None else f"{option} {path}"
            raise InvalidInputError(f"{where}: {reason}. Nothing was run") from error
        self.path = self._file.path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def keep(self, text: str) -> None:
        """Write the result, to a temporary file if the file itself fails.

        Raises:
            UnshownResultError: the file failed; the message names the temporary file or contains the result.
        """
        with _uninterrupted():
            try:
                self._file.write(text)
            except OSError as error:
                self._elsewhere(text, error)

    def shown(self) -> None:
        """Remove a temporary file after its result was printed."""
        if self.is_temporary:
            self.path.unlink(missing_ok=True)

    def _elsewhere(self, text: str, error: OSError) -> None:
        lost = f"{self.path}: {(error.strerror or 'cannot be written').lower()}. The result is paid for"
        try:
            with ReservedFile(_temporary(), "a temporary file", mode=0o600) as file:
                file.write(text)
        except (OSError, InvalidInputError):
            raise UnshownResultError(f"{lost}, and could be written nowhere; here it is: {text}") from error
        raise UnshownResultError(f"{lost}: it is in {file.path}") from error


@contextmanager
def paid_files(save: Path | None, report: Path | None) -> Iterator[tuple[PaidFile, PaidFile | None]]:
    """Reserve the file of a result (--save), and the file of a full report (--json) if one is asked for."""
    with ExitStack() as files:
        kept = files.enter_context(PaidFile(save, "--save"))
        yield kept, None if report is None else files.enter_context(PaidFile(report, "--json"))


def kept_aside(text: str) -> Path:
    """Write a result that is paid for to a temporary file that stays; return its path."""
    path = _temporary()
    with ReservedFile(path, "a temporary file", mode=0o600) as file:
        file.write(text)
    return path


def _temporary() -> Path:
    descriptor, name = tempfile.mkstemp(prefix=_KEPT, suffix=".json")
    os.close(descriptor)
    os.unlink(name)
    return Path(name)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C while a result is written."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def showing(what: str, kept: PaidFile | None = None) -> Iterator[None]:
    """Guard the printing of a released result: a failing terminal or pipe changes only the exit code.

    Args:
        what: the part of the message that says what has been done.
        kept: the file of the result; a temporary one is removed once all is printed.

    Raises:
        UnshownResultError: the result could not be printed.
        InterruptedRunError: Ctrl-C while printing.
    """
    where = "" if kept is None else f": it is in {kept.path}"
    try:
        yield
        if sys.stdout is None:
            raise OSError(errno.EBADF, "it is closed")
        sys.stdout.flush()
    except (OSError, SystemExit) as error:  # Rich and typer turn a broken pipe into SystemExit
        _silence()
        reason = (getattr(error, "strerror", None) or "broken pipe").lower()
        raise UnshownResultError(f"standard output: {reason}. {what}{where}") from None
    except KeyboardInterrupt as error:
        raise InterruptedRunError(f"Interrupted: {what}{where}") from error
    if kept is not None:
        kept.shown()


def _silence() -> None:
    """Redirect standard output to the null device, so that the interpreter's final flush cannot fail."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
