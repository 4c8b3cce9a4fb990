"""What ``privopt`` starts: quickly, and Ctrl-C meanwhile ends it with a word, not a traceback."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType


def main() -> None:
    """Import the command line, then run it."""
    gc.set_threshold(20_000)  # modules stay: looking for garbage among them takes a tenth of a start
    signal.signal(signal.SIGINT, _interrupted)
    from privopt.experiments.cli.main import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _interrupted(number: int, frame: FrameType | None) -> None:
    # An exception could be swallowed, or turned into another one, by whatever is being imported.
    os.write(2, b"Interrupted\n")
    os._exit(130)
