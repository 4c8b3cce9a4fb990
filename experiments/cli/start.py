"""What ``privopt`` starts: Ctrl-C while modules are imported ends it with a word, not a traceback."""

from __future__ import annotations

import os
import signal
from types import FrameType


def main() -> None:
    """Import the command line, which takes a second, then run it."""
    signal.signal(signal.SIGINT, _interrupted)
    from privopt.experiments.cli.main import main as run

    signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _interrupted(number: int, frame: FrameType | None) -> None:
    # An exception could be swallowed, or turned into another one, by whatever is being imported.
    os.write(2, b"Interrupted\n")
    os._exit(130)
