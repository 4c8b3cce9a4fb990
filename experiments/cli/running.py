"""Runs of a mechanism on the command line: ledger, limits, progress, and Ctrl-C."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from privopt.experiments.cli.errors import InterruptedRunError
from privopt.experiments.cli.files import say
from privopt.mechanisms.estimators.booking import is_booked
from privopt.oracles.limits import Limits
from privopt.oracles.progress import drawn_on
from privopt.problems.errors import PrivOptError

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

# Seconds of waiting for the solve to start after which a line explains the delay.
_PATIENCE = 5.0
_PREPARING = (
    "still preparing; a mechanism's first run on a machine compiles its solver, which can take minutes. A "
    "time limit starts after that, and later runs find it compiled"
)

# Set by the first Ctrl-C during a solve; later errors count as an interruption.
_interrupted = threading.Event()


def open_ledger(address: str) -> Ledger:
    """Open the ledger at an address; its libraries are imported only here."""
    from privopt.mechanisms.privacy.ledger import Ledger

    return Ledger(address)


@contextmanager
def accounted(book: Ledger | None) -> Iterator[None]:
    """Add to errors before a release that nothing was booked in the ledger, if that is so."""
    try:
        yield
    except (PrivOptError, KeyboardInterrupt) as error:
        if book is not None and not is_booked(error):
            error.add_note(f"Nothing was booked in {book}")
        if isinstance(error, KeyboardInterrupt) or _interrupted.is_set():
            stopped = InterruptedRunError("Interrupted: nothing was released")
            for note in getattr(error, "__notes__", ()):
                stopped.add_note(note)
            raise stopped from error
        raise


@contextmanager
def stoppable(seconds: float | None) -> Iterator[Limits]:
    """Provide limits with a live progress line; the first Ctrl-C stops the solve, the second the program."""
    told = threading.Event()
    _interrupted.clear()
    patience = threading.Timer(_PATIENCE, say.print, [_PREPARING])
    patience.daemon = True

    def is_cancelled() -> bool:
        if not told.is_set():  # the first call comes when the solve starts
            told.set()
            patience.cancel()
            say.print("solving; Ctrl-C stops the solve and releases nothing")
        return _interrupted.is_set()

    def on_signal(number: int, frame: FrameType | None) -> None:
        if _interrupted.is_set():
            raise KeyboardInterrupt
        _interrupted.set()

    before = signal.signal(signal.SIGINT, on_signal)
    patience.start()
    try:
        with drawn_on(say, Limits(seconds=seconds, cancelled=is_cancelled)) as limits:
            yield limits
    finally:
        patience.cancel()
        signal.signal(signal.SIGINT, before)
